"""Short ways to make messages with tool calls and their results, for tests of trackers and restorers."""

from __future__ import annotations

from itertools import count
from typing import Any

from perdure.compaction.restore.registry import Tracker
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.tool_calls.actions import Happened, HistoryReader

_numbers = count(1)


def used(
    name: str, arguments: dict[str, Any], result: Any = "ok", *, is_error: bool = False, is_users: bool = False
) -> list[Message]:
    """A call and its answer, as two messages; `is_users` when that is a person's."""
    number = next(_numbers)
    call = {"type": "tool_use", "id": f"toolu-{number}", "name": name, "input": arguments}
    answer: dict[str, Any] = {"type": "tool_result", "tool_use_id": f"toolu-{number}", "content": result}
    if is_error:
        answer["is_error"] = True
    return [
        Message.of("assistant", [call], id=MessageId(f"call-{number}")),
        Message.of(
            "user", [answer], id=MessageId(f"result-{number}"), answered=[f"toolu-{number}"] if is_users else []
        ),
    ]


def words(text: str, origin: str = "reminder") -> list[Message]:
    """A message of one text."""
    role = "assistant" if origin == "model" else "user"
    return [Message.of(role, text, id=MessageId(f"words-{next(_numbers)}"), origin=origin)]


def happened(*messages: list[Message]) -> list[Happened]:
    """What trackers see of these."""
    return list(HistoryReader().read(one for some in messages for one in some))


def tracked(tracker: Tracker, *messages: list[Message]) -> Any:
    """The tracker's state after these."""
    state = tracker.state()
    for one in happened(*messages):
        state = tracker.track(state, one)
    return state


def numbered(text: str, first: int = 1, sign: str = "→") -> str:
    """A listing as Claude Code makes it."""
    return "\n".join(f"{first + i:6}{sign}{line}" for i, line in enumerate(text.split("\n")))
