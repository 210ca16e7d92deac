"""Where a recording is cut: at the compactions that its log shows, and at shares of the session (QLT-1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from perdure.lab.bench.probe import HORIZON_TOKENS
from perdure.logs.recording import LoggedCompaction, LoggedRewind, RecordedMessage, Recording, Step
from perdure.transcript.messages import Message, MessageId, ToolUseId
from perdure.transcript.tokens import block_size

Where = Literal["cut", "boundary"]

_CWD: Final = re.compile(rb'"cwd"\s*:\s*("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True, slots=True)
class BenchCut:
    """A cut: what was said since the last boundary, what was said behind it, and the log's own view if it made one.

    `summary` and `kept` are what the log's system put in place of `before`; None where the log doesn't show it.
    """

    where: Where
    session: str
    file: str
    line: int
    before: tuple[Message, ...]
    after: tuple[Message, ...]
    tokens: int  # of what is before, by the base rule
    lines: dict[MessageId, int] = field(repr=False, default_factory=dict)
    summary: tuple[Message, ...] | None = None


def is_one_project(data: bytes) -> bool:
    """Whether all working directories that a log names lie in one of them: facts of two projects are not one memory."""
    found: set[str] = set()
    for raw in set(_CWD.findall(data)):
        try:
            found.add(re.sub(r"[\\/]+", "/", msgspec.json.decode(raw, type=str)).rstrip("/"))
        except msgspec.MsgspecError:
            continue
    root = min(found, key=len, default="")
    return all(f"{cwd}/".startswith(f"{root}/") for cwd in found)


def cuts_of_recording(
    recording: Recording, file: str, *, shares: Sequence[float], least_tokens: int, boundaries: bool = True
) -> list[BenchCut]:
    """All places of a recording, in order; those with less than `least_tokens` before them teach nothing."""
    steps = [step for step in recording.steps if not _is_side(step)]
    lines = {step.message.id: step.line for step in steps if isinstance(step, RecordedMessage)}
    at = _cut_indexes(steps, shares)
    places: list[BenchCut] = []
    before: list[Message] = []
    for index, step in enumerate(steps):
        where: Where | None = None
        if isinstance(step, LoggedRewind):
            before = _rewound(before, step)
        elif isinstance(step, LoggedCompaction):
            where = "boundary" if boundaries else None
        elif index in at:
            where = "cut"
        if where is not None and (tokens := _tokens(before)) >= least_tokens:
            after = _after(steps, index)
            shown = _shown_instead(recording, steps, index) if where == "boundary" else None
            places.append(
                BenchCut(where, recording.session, file, step.line, tuple(before), after, tokens, lines, shown)
            )
        if isinstance(step, LoggedCompaction):
            before = []
        elif isinstance(step, RecordedMessage) and not step.logged_only:
            before.append(step.message)
    return places


def _is_side(step: Step) -> bool:
    return isinstance(step, RecordedMessage) and step.message.agent_id is not None


def _tokens(messages: Sequence[Message]) -> int:
    return sum(block_size(block).base for message in messages for block in message.blocks)


def _rewound(before: list[Message], step: LoggedRewind) -> list[Message]:
    ids = [message.id for message in before]
    return before[: ids.index(step.to) + 1] if step.to in ids else before


def _after(steps: Sequence[Step], index: int) -> tuple[Message, ...]:
    """What was said behind a place, until the log's context was changed again or the horizon is passed."""
    start = index if isinstance(steps[index], RecordedMessage) else index + 1
    found: list[Message] = []
    tokens = 0
    for step in steps[start:]:
        if isinstance(step, (LoggedCompaction, LoggedRewind)) or tokens > HORIZON_TOKENS:
            break
        if isinstance(step, RecordedMessage) and not step.logged_only:
            found.append(step.message)
            tokens += _tokens([step.message])
    return tuple(found)


def _shown_instead(recording: Recording, steps: Sequence[Step], index: int) -> tuple[Message, ...] | None:
    """The summary of the log's system and the messages that it kept; None where they are encrypted or missing."""
    boundary = steps[index]
    if recording.format == "codex" or not isinstance(boundary, LoggedCompaction):
        return None
    summary: list[Message] = []
    for step in steps[index + 1 :]:
        if isinstance(step, RecordedMessage) and step.logged_only:
            summary.append(step.message)
        elif summary or isinstance(step, LoggedCompaction):
            break
    by_id = {step.message.id: step.message for step in steps[:index] if isinstance(step, RecordedMessage)}
    kept = [by_id[identity] for identity in boundary.kept if identity in by_id]
    return (*summary, *kept) if summary else None


def _cut_indexes(steps: Sequence[Step], shares: Sequence[float]) -> set[int]:
    """For each share of the session's tokens the next step at which the model is asked anew, with no call open."""
    sizes = [_tokens([s.message]) if isinstance(s, RecordedMessage) and not s.logged_only else 0 for s in steps]
    targets = sorted(share * sum(sizes) for share in shares)
    found: set[int] = set()
    open_calls: set[ToolUseId] = set()
    response: str | None = None
    done = 0
    for index, step in enumerate(steps):
        if isinstance(step, RecordedMessage) and not step.logged_only:
            message = step.message
            is_new = message.role == "assistant" and (message.response_id is None or message.response_id != response)
            while is_new and not open_calls and targets and done >= targets[0]:
                found.add(index)
                targets.pop(0)
            if message.role == "assistant":
                response = message.response_id
            open_calls |= {ToolUseId(use.id) for use in message.tool_uses}
            open_calls -= {ToolUseId(result.tool_use_id) for result in message.tool_results}
        elif isinstance(step, (LoggedCompaction, LoggedRewind)):
            open_calls.clear()
        done += sizes[index]
    return found
