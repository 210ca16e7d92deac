"""MEM-7: "remember …" and "forget …" in a conversation, done before the model is asked, and said back."""

from __future__ import annotations

from typing import Any

import pytest
from tests.memories import HAND, Desk, played
from tests.services import serve

from perdure.engine.guarded_memory import approve
from perdure.engine.remember import NAME, UserMemoryRequests
from perdure.engine.turn import run_turn
from perdure.events import MemoryAsked
from perdure.testing import ScriptedModel
from perdure.transcript.blocks import Text

pytestmark = pytest.mark.unit


class Talk:
    def __init__(self, desk: Desk) -> None:
        self.desk, self.lines = desk, list[str]()
        serve(desk.session, reminders=(UserMemoryRequests(),))
        serve(desk.session, on_remembered=(self.lines.append,))
        self.model = ScriptedModel(["ok"] * 9)

    async def say(self, text: str) -> str:
        """The line that was said back; the request that the model got holds it, too."""
        told = len(self.lines)
        await run_turn(self.desk.session, text, self.model)
        return "\n".join(self.lines[told:])

    @property
    def reminders(self) -> list[str]:
        return [
            "".join(b.value.text for b in item.message.blocks if isinstance(b.value, Text))
            for item in self.desk.session.view.items
            if item.message.note == NAME
        ]

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        return [(e.action, e.outcome) for e in self.desk.sink.events if isinstance(e, MemoryAsked)]


def test_kept_and_forgotten_on_the_users_word() -> None:
    async def do(desk: Desk) -> None:
        talk = Talk(desk)
        await desk.result("Bash", {"command": "ls"}, "a b")  # the words are the user's all the same
        line = await talk.say("Remember that we deploy on Fridays. Then fix the build.")
        name = "project_we_deploy_on_fridays.md"
        assert line == f"Remembered as {name}: we deploy on Fridays"
        text = await desk.text(name)
        assert text is not None
        assert text.endswith("type: project\n---\n\nwe deploy on Fridays.\n")
        assert await desk.text("MEMORY.md") == f"- [we deploy on Fridays]({name})\n"
        assert line.replace(name, f"/memories/{name}") in talk.reminders[0]  # by its path there
        known = (await desk.store.provenance())[name]
        asked = next(i.message.id for i in desk.session.view.items if i.message.origin == "user")
        assert (known.least, known.stamp.message, known.stamp.session) == ("user", asked, "memory")
        assert "already" in await talk.say("Remember that we deploy on Fridays.")
        assert await talk.say("What else is there?") == ""
        assert "Nothing in the memory says this" in await talk.say("Forget about the moon")
        assert await talk.say("Forget that we deploy on Fridays") == f"Forgotten: {name}"
        assert await desk.text(name) is None
        assert await desk.text("MEMORY.md") == ""
        assert talk.outcomes == [
            ("remember", "written"),
            ("remember", "unchanged"),
            ("forget", "nothing"),
            ("forget", "forgotten"),
        ]
        assert len(talk.reminders) == 4

    played(do)


@pytest.mark.parametrize(
    ("mode", "line", "outcomes"),
    [
        ("ask", "Waits for approval", ["waits"]),
        ("read-only", "Not done: the memory is read-only", ["refused"]),
        ("off", "", []),
    ],
)
def test_modes(mode: str, line: str, outcomes: list[str]) -> None:
    """MEM-8: the modes hold for the user's word, too; `off` doesn't listen."""

    async def do(desk: Desk) -> None:
        talk = Talk(desk)
        said = await talk.say("Remember that I like tea.")
        assert said.startswith(line)
        assert bool(said) is bool(line)
        assert [outcome for _, outcome in talk.outcomes] == outcomes
        assert (await desk.store.listing()).files == ()
        assert len(await desk.store.pending()) == (1 if mode == "ask" else 0)

    played(do, mode)


def test_the_index_follows_an_approval() -> None:
    """MEM-2, MEM-8: wherever a change waited, its line comes and goes with it; whose word it is stays."""

    async def do(desk: Desk) -> None:
        talk = Talk(desk)
        (mount,) = desk.session.services.memories.mounts if desk.session.services.memories else ()
        await talk.say("Remember that I like tea.")
        await talk.say("Remember that Anna reviews.")
        for one in await desk.store.pending():
            await approve(mount.memory, one)
        lines = (await desk.text("MEMORY.md") or "").splitlines()
        assert sorted(lines) == ["- [Anna reviews](project_anna_reviews.md)", "- [I like tea](user_i_like_tea.md)"]
        assert {one.least for one in (await desk.store.provenance()).values()} == {"user"}
        await talk.say("Forget that Anna reviews")
        (one,) = await desk.store.pending()
        await approve(mount.memory, one)
        assert await desk.text("MEMORY.md") == "- [I like tea](user_i_like_tea.md)\n"
        await desk.result("Bash", {"command": "ls"}, "x")
        await desk.memory("create", path="/memories/new.md", file_text="Something new.\n")
        text = "- [I like tea](user_i_like_tea.md)\n- [New](new.md) — the model's own line\n"
        await desk.memory("insert", path="/memories/MEMORY.md", insert_line=1, insert_text=text.splitlines()[1])
        for one in await desk.store.pending():
            await approve(mount.memory, one)
        assert await desk.text("MEMORY.md") == text
        assert (await desk.store.provenance())["MEMORY.md"].least == "tool"

    played(do, "ask")


def test_secrets_and_orders_are_refused_and_said() -> None:
    """MEM-10, SEC-5: also when the user says them; the line names the rule and never the value."""

    async def do(desk: Desk) -> None:
        talk = Talk(desk)
        secret = "gh" + "p_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
        said = await talk.say(f"Remember that the token is {secret}")
        assert "Not done" in said
        assert secret.lower() not in said.lower()
        assert secret.lower() not in "\n".join(talk.reminders).lower()
        assert (await desk.store.listing()).files == ()

    played(do)


def test_many_that_may_be_meant_are_asked_about() -> None:
    async def do(desk: Desk) -> None:
        talk = Talk(desk)
        for number in ("one", "two", "three", "four"):
            await talk.say(f"Remember that server {number} is old.")
        before: Any = (await desk.store.listing()).files
        assert "4 memories may be meant" in await talk.say("Forget about old server")
        assert (await desk.store.listing()).files == before

    played(do)


def test_two_that_wait_are_both_approved_where_there_was_no_index() -> None:
    """MEM-2, MEM-8: each brings its line, whichever begins the index; the same wish doesn't wait twice."""

    async def do(desk: Desk) -> None:
        talk = Talk(desk)
        (mount,) = desk.session.services.memories.mounts if desk.session.services.memories else ()
        await talk.say("Remember that I like tea.")
        await talk.say("Remember that Anna reviews.")
        await talk.say("Remember that Anna reviews.")
        first, second = await desk.store.pending()
        await approve(mount.memory, second)
        await approve(mount.memory, first)
        lines = (await desk.text("MEMORY.md") or "").splitlines()
        assert sorted(lines) == ["- [Anna reviews](project_anna_reviews.md)", "- [I like tea](user_i_like_tea.md)"]
        await desk.store.undo(None, HAND)
        assert (await desk.text("MEMORY.md"), await desk.text("user_i_like_tea.md")) == (
            "- [Anna reviews](project_anna_reviews.md)\n",
            None,
        )

    played(do, "ask")
