"""A recording of another agent becomes a session: what was said, in its order, and where it came from (ENG-6).

What the other agent's own system did to its context (summaries, clearing, rewinds) becomes ours, by `context.logged`:
the view is the one that the log's model saw, and what left it can be searched and recalled (ENG-8). The source's bytes
go into a blob, so an import that nobody went on with is exported as it came.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from holdfast.context.logged import front_of, steps_of
from holdfast.engine.session import LiveSession
from holdfast.errors import HoldfastError, JournalError
from holdfast.memory.trust.redaction import redact_log
from holdfast.transcript.edits import Compacted, Edit
from holdfast.transcript.foreign.recording import Recording, Said
from holdfast.transcript.messages import BlobId, Message, MessageId
from holdfast.transcript.records import Front, Noted, Record, Titled

KIND = "imported"
_AFTER = (Titled, Noted)  # records that change nothing of what was said


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of it. `skipped` names what could not be taken, by line."""

    messages: int
    blob: BlobId
    renamed: int
    skipped: tuple[str, ...]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session came from, as its journal has it. `is_whole`: the blob is this session's alone.

    `at` is the time of the import, which messages have that the log gives none.
    """

    file: str
    format: str
    session: str
    blob: BlobId
    bytes: int
    messages: int
    is_whole: bool = True
    at: float | None = None


async def import_recording(
    session: LiveSession,
    recording: Recording,
    data: bytes,
    *,
    file: str,
    is_whole: bool = True,
    at: float | None = None,
    known: Sequence[Record] = (),
) -> Imported:
    """Say everything that was said. The note of its source comes last: with it, all is there.

    What the log's own system did to its context is done here as well, so that the view is the one that it had. `known`
    is what an earlier import of the same log left in the session: only what came after it is added. The same log, `at`
    and header give the same journal to the byte, so that a damaged line can be had again (`engine.reimporting`).
    """
    at = session.world.clock.now() if at is None else at
    if session.settings.redact_at_ingest:
        data = redact_log(data, session.world.secret_key)
    (blob,) = await session.world.blobs.put((data,))
    # Its thinking stays where its own system kept it; what no longer holds goes with the first request of ours.
    with session.taken_for(dataclasses.replace(session.model, thinking_is_bound=False)):
        said = await _said(session, recording, at, known)
    source = Source(
        file=file,
        format=recording.format,
        session=recording.session,
        blob=blob,
        bytes=len(data),
        messages=said.count + said.before,
        is_whole=is_whole,
        at=at,
    )
    await session.record(Noted(kind=KIND, data=msgspec.to_builtins(source)))
    return Imported(said.count, blob, said.renamed, tuple(said.skipped))


@dataclass(slots=True)
class _Said:
    """What came of the messages: how many, how many under another id, and which could not be kept."""

    count: int = 0
    before: int = 0  # that an earlier import brought
    renamed: int = 0
    skipped: list[str] = field(default_factory=list)
    lines: dict[MessageId, int] = field(default_factory=dict)


async def _said(session: LiveSession, recording: Recording, at: float, known: Sequence[Record]) -> _Said:
    """Fold a recording into the session, one message a line; what no limit lets in is left out and named."""
    told = _Said()
    there = {record.id for record in known if isinstance(record, Message | Compacted)}
    first: list[Record] = [front] if _is_said(front := front_of(recording)) and front != session.view.front else []
    if (recording.title or recording.branch) and not known:
        first.append(Titled(title=recording.title, branch=recording.branch))
    if first:
        await session.append(also=tuple(first))  # a ratio that other sessions learned is of no use to a log
    lines = {step.message.id: step.line for step in recording.steps if isinstance(step, Said)}
    steps = list(steps_of(recording, session.settings))
    new = max((n for n, step in enumerate(steps, 1) if isinstance(step, Message) and step.id in there), default=0)
    told.before = sum(isinstance(step, Message) and step.id in there for step in steps[:new])
    for step in steps[new:]:
        if isinstance(step, Message):
            if step.at is None:
                step = msgspec.structs.replace(step, at=at)
            await _say(session, step, told, lines)
        elif (record := step(session.view)) is None:
            continue
        elif isinstance(record, Compacted):
            if record.id in there:
                continue
            await session.commit_boundary(record)
        elif isinstance(record, Edit):
            await session.commit((record,), session.facts())
        else:
            await session.record(record)
    return told


async def _say(session: LiveSession, message: Message, told: _Said, lines: dict[MessageId, int]) -> None:
    identity, number = message.id, 2
    while identity in told.lines:
        identity, number = MessageId(f"{message.id}~{number}"), number + 1
    named = message if identity == message.id else msgspec.structs.replace(message, id=identity)
    try:
        await session.append(named)
    except JournalError:
        raise
    except HoldfastError as e:
        told.skipped.append(f"line {lines.get(message.id, 0)}: {e}")
        return
    told.lines[identity] = lines.get(message.id, 0)
    told.count += 1
    told.renamed += named is not message


def _is_said(front: Front) -> bool:
    return bool(front.model or front.system or front.tools)


def last_source(records: Sequence[Record]) -> Source | None:
    """Where a session was imported from, whatever happened since; None when it wasn't."""
    for record in reversed(records):
        if isinstance(record, Noted) and record.kind == KIND:
            try:
                return msgspec.convert(record.data, Source)
            except msgspec.ValidationError:
                return None
    return None


def source_of(records: tuple[Record, ...]) -> Source | None:
    """Where a session was imported from; None when it wasn't, or when something was said or decided since."""
    at = next((n for n in range(len(records) - 1, -1, -1) if _is_source(records[n])), None)
    if at is None or not all(isinstance(record, _AFTER) for record in records[at:]):
        return None
    note = records[at]
    return msgspec.convert(note.data, Source) if isinstance(note, Noted) else None


def _is_source(record: Record) -> bool:
    return isinstance(record, Noted) and record.kind == KIND
