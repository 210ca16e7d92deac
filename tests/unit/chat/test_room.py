"""How full the window is, in words (CLI-6, PRS-7, TOK-6)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import anyio
import pytest

from perdure.cli.room import room_line, room_lines, window_line
from perdure.context.models import UNKNOWN, model_spec
from perdure.context.policy import Facts, thresholds
from perdure.context.view import ContextView, project
from perdure.engine.session import Services
from perdure.settings import Settings
from perdure.transcript.messages import Message, MessageId, ResponseId, Usage
from perdure.transcript.records import CompactionFailed, Record
from perdure.wiring import SessionOptions, memory_session

pytestmark = pytest.mark.unit


def facts(window: int = 200_000, **changes: Any) -> Facts:
    settings = Settings(**changes)
    return Facts(settings=settings, limits=thresholds(settings, UNKNOWN, window, "default"))


def view(*more: Record, reported: int | None = 10_000, words: str = "hello") -> ContextView:
    """A prompt and its answer, reported at so many tokens, and what came after it."""
    asked = Message.of("user", words, id=MessageId("m1"))
    usage = None if reported is None else Usage(input_tokens=reported)
    said = Message.of("assistant", "Yes.", id=MessageId("m2"), response_id=ResponseId("r1"), usage=usage)
    return project([asked, said, *more])


LATER = Message.of("user", "and more words " * 400, id=MessageId("m3"))


@pytest.mark.parametrize(
    ("shown", "changes", "words"),
    [
        (view(), {}, "10,000 of 200,000 tokens used, 157,000 left until auto-compaction"),
        (view(), {"auto_compact": False}, "10,000 of 200,000 tokens used, 167,000 left until calls stop"),
        (view(reported=168_000), {}, "168,000 of 200,000 tokens used; auto-compaction is due before the next call"),
    ],
)
def test_what_is_left_is_told_in_tokens(shown: ContextView, changes: dict[str, Any], words: str) -> None:
    """CLI-6, PRS-7: never a percentage of something else than the numbers beside it."""
    assert room_line(shown, facts(**changes)) == words


def test_only_what_was_measured_is_a_fact() -> None:
    """TOK-3: before any report the size is estimated with a margin, and what came since a report is estimated."""
    assert room_line(view(LATER), facts()).startswith("about 11,")
    assert "about 15" in room_line(view(LATER), facts()).partition(",")[2]  # what is left is no surer
    before = room_line(view(reported=None, words="hello " * 3_000), facts())
    assert before.startswith("up to about ") and before.split()[3].endswith("0")
    used, left = (int(part.split()[at].replace(",", "")) for part, at in zip(before.split(", "), (3, 3), strict=True))
    size = facts().size(view(reported=None, words="hello " * 3_000))
    assert used >= size and used + left <= 167_000 + 10, "what is promised is there"
    lines = "\n".join(room_lines(view(), facts()))
    assert "used: as the provider counted it\n" in lines
    assert "used: estimated, with a margin," in "\n".join(room_lines(view(reported=None), facts()))
    assert "and estimated since" in "\n".join(room_lines(view(LATER), facts()))


def test_what_is_left_and_what_is_free_are_two_things_with_one_name_each() -> None:
    """TOK-6, PRS-7: left until auto-compaction, free beside the answer."""
    assert list(room_lines(view(), facts()))[2:4] == [
        "left: 157,000 tokens (94%) until auto-compaction at 167,000",
        "free: 170,000 tokens beside the 20,000 reserved for the answer, 167,000 of them until calls stop at 177,000",
    ]


def test_auto_compaction_that_gave_up_is_not_promised() -> None:
    """PRS-5: after failures nothing is compacted by itself, whatever the size is."""
    failed: Iterable[Record] = [CompactionFailed(trigger="auto", reason="empty") for _ in range(3)]
    line = room_line(view(*failed, reported=170_000), facts())
    assert line.endswith("tokens used; auto-compaction has given up: /compact makes room, and calls stop at 177,000")
    lines = "\n".join(room_lines(view(*failed, reported=170_000), facts()))
    assert "until calls stop at 177,000, as auto-compaction has given up\n" in lines


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("claude-sonnet-4-5", "200,000 tokens, as the table of models has it"),
        ("some-model", "200,000 tokens, assumed, as the model's own isn't known"),
    ],
)
def test_only_a_window_of_the_table_is_said_to_be_of_it(model: str, words: str) -> None:
    """CLI-6, PRS-8."""

    async def do() -> str:
        session = await memory_session(parts=SessionOptions(services=Services(facts_of=lambda _: model_spec(model))))
        try:
            return window_line(session.limits)
        finally:
            await session.close()

    assert anyio.run(do) == words
