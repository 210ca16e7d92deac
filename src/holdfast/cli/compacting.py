"""`holdfast compact FILE --at LINE`: what a compaction of a log would leave, for people and for measuring (QLT-1)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from holdfast.adapters.values import Unusable, parsed
from holdfast.cli.door import EXIT_OK, out, out_json
from holdfast.cli.tables import plural
from holdfast.context.ledger import CompactedText, Tools, compacted
from holdfast.errors import BadSetting, SessionNotFound
from holdfast.memory.trust.secrets import redact
from holdfast.transcript.foreign.detect import read_recordings
from holdfast.transcript.foreign.recording import LoggedCompaction, LoggedRewind, Recording, Said
from holdfast.transcript.messages import Message

STRATEGIES = ("ledger",)


def measure_command(
    file: Path, *, at: int, strategy: str, budget: str, tail: str, is_json: bool, tools: Tools | None = None
) -> int:
    """Print the compacted view of everything before a line since the boundary before it; changes nothing."""
    if strategy not in STRATEGIES:
        raise BadSetting(f"--strategy {strategy}: a log can be measured with {', '.join(STRATEGIES)}")
    budget_tokens, tail_tokens = _tokens("--budget", budget), _tokens("--tail", tail)
    if not file.is_file():
        raise SessionNotFound(f"{file}: there is no such log")
    done = compacted(_before(file, at), budget_tokens, tail_tokens, tools=tools)
    done = replace(done, text=redact(done.text).text)  # a report, also for other eyes (SEC-5)
    if is_json:
        out_json({"text": done.text, "tokens": done.tokens, "kept": done.kept, "dropped": done.dropped})
    else:
        _show(done)
    return EXIT_OK


def _tokens(option: str, given: str) -> int:
    try:
        return int(parsed("summary_budget_tokens", given, 0))
    except Unusable as e:
        raise BadSetting(f"{option} {given}: {e}") from None


def _before(file: Path, at: int) -> list[Message]:
    """What was said before a line, of the session that goes on there."""
    found: list[Message] = []
    nearest = 0
    for recording in read_recordings(file.read_bytes(), file.name):
        messages, last = said_before(recording, at)
        if messages and last >= nearest:
            found, nearest = messages, last
    if not found:
        raise SessionNotFound(f"{file}: nothing was said before line {at} since the boundary before it")
    return found


def said_before(recording: Recording, at: int) -> tuple[list[Message], int]:
    """The messages before a line (from 1) since the last boundary, without sub-agents; and the line of the last."""
    messages: list[Message] = []
    last = 0
    for step in recording.steps:
        if step.line >= at:
            break
        if isinstance(step, LoggedCompaction):
            messages = [message for message in messages if message.id in step.kept]
        elif isinstance(step, LoggedRewind):
            messages = _rewound(messages, step)
        elif isinstance(step, Said) and not step.logged_only and step.message.agent_id is None:
            messages.append(step.message)
            last = step.line
    return messages, last


def _rewound(messages: list[Message], step: LoggedRewind) -> list[Message]:
    ids = [message.id for message in messages]
    return messages[: ids.index(step.to) + 1] if step.to in ids else messages


def _show(done: CompactedText) -> None:
    out(done.text)
    parts: dict[str, int] = {}
    for entry in done.kept:
        parts[str(entry["section"])] = parts.get(str(entry["section"]), 0) + 1
    out(f"\n{done.tokens:,} tokens; kept: {', '.join(f'{name} {count}' for name, count in parts.items()) or 'nothing'}")
    for name, gone in done.dropped.items():
        ids = ", ".join(str(one) for one in gone["recall"][:3])
        out(f"left out of {name}: {plural(gone['count'], 'item')}{f' (recall {ids} …)' if ids else ''}")
