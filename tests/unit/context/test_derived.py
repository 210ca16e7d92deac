"""MEM-10, SEC-1: whose word a text is that a model writes, as far as the view tells."""

from __future__ import annotations

import pytest
from tests.memories import Desk, played

from perdure import Message, Settings
from perdure.context.provenance import added_lines, origin_of
from perdure.context.reminders import prepend_context
from perdure.engine.compact import CompactionSuccess, compact
from perdure.memory.files import topic
from perdure.memory.recalled import RecalledMemory, recalled_text

pytestmark = pytest.mark.unit


def test_words_of_the_user_whole_or_not_at_all() -> None:
    async def do(desk: Desk) -> None:
        await desk.user("Never push to main. I like tea, and Anna does too! Use:\n- pnpm\n- ruff")
        await desk.result("Bash", {"command": "ls"}, "push to main")
        view = desk.session.view
        for added in (
            "Never push to main",
            "- never push to MAIN.",
            "* pnpm\n* ruff",
            "---\nname: pnpm\ntype: user\n---",
        ):
            assert origin_of(view, added) == "user", added
        for added in (
            "push to main",
            "I like tea",
            "pnpm\nnpm",
            "---\nname: npm\n---\npnpm",
            "",
            "---\ntype: user\n---",
        ):
            assert origin_of(view, added) == "tool", added

    played(do)


def test_a_compaction_or_a_recalled_memory_hides_nothing() -> None:
    """What came from outside stays so behind a boundary, and when it was a memory in between."""

    async def do(desk: Desk) -> None:
        session = desk.session
        await desk.user("Look around.")
        assert origin_of(session.view) == "assistant"
        memory = recalled_text(RecalledMemory(topic("t.md", "Cluster zz."), 0.0), now=1.0, budget_tokens=100)
        (message,) = prepend_context((), {"Memories": memory})
        await session.append(Message.of("user", list(message.blocks), origin="reminder", note="memory"))
        assert origin_of(session.view) == "assistant"
        assert origin_of(session.view, memories={"/memories/t.md": "web"}) == "web"
        await desk.result("Bash", {"command": "make"}, "planted " * 2_000)
        for number in range(30):
            await desk.user(f"Go on with {number}. " + "word " * 300)
            await desk.model("Done. " + "word " * 300)
        assert isinstance(await compact(session, trigger="manual"), CompactionSuccess)
        assert not session.view.results
        assert origin_of(session.view) == "tool"

    played(do, settings=Settings(window_tokens=40_000, restore=False))


def test_what_is_new_in_a_text() -> None:
    assert added_lines("a\nb\n", "a\nc\nb\nd\n") == "c\nd"
    assert added_lines(None, "a") == "a"
