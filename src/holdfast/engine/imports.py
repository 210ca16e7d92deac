"""A recording of another agent becomes a session: what was said, in its order, and where it came from (ENG-6).

What the other agent's own system did (summaries, clearing) belongs to its history, not to ours, and stays out; a rewind
is kept. The source's bytes go into a blob, so an import that nobody went on with is exported as it came.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from holdfast.engine.session import Session
from holdfast.errors import MalformedBlock
from holdfast.memory.trust.redaction import redact_log
from holdfast.transcript.edits import Rewound
from holdfast.transcript.foreign.recording import LoggedRewind, Recording, Said
from holdfast.transcript.limits import Limits, check_limits
from holdfast.transcript.messages import BlobId, Message, MessageId
from holdfast.transcript.records import Noted, Record, Titled

KIND = "imported"
_BATCH_BYTES = 1_000_000  # of one transaction: one line of the journal, one sync
_AFTER = (Titled, Noted)  # records that change nothing of what was said


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of it. `skipped` names what could not be taken, by line."""

    messages: int
    blob: BlobId
    renamed: int
    skipped: tuple[str, ...]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session came from, as its journal has it. `is_whole`: the blob is this session's alone."""

    file: str
    format: str
    session: str
    blob: BlobId
    bytes: int
    messages: int
    is_whole: bool = True


async def import_recording(
    session: Session, recording: Recording, data: bytes, *, file: str, is_whole: bool = True
) -> Imported:
    """Say everything that was said, into an empty session. The note of its source comes last: with it, all is there."""
    if session.settings.redact_at_ingest:
        data = redact_log(data, session.world.secret_key)
    (blob,) = await session.world.blobs.put((data,))
    front = (
        recording.front if recording.front.model else msgspec.structs.replace(recording.front, model=recording.model)
    )
    if front.model or front.system or front.tools:
        await session.record(front)
    if recording.title or recording.branch:
        await session.record(Titled(title=recording.title, branch=recording.branch))
    said = _Said(session.entry_limits)
    for batch in said.batches(recording):
        if isinstance(batch, Rewound):
            await session.record(batch)
        else:
            await session.append(*batch)
    source = Source(
        file=file,
        format=recording.format,
        session=recording.session,
        blob=blob,
        bytes=len(data),
        messages=said.count,
        is_whole=is_whole,
    )
    await session.record(Noted(kind=KIND, data=msgspec.to_builtins(source)))
    return Imported(said.count, blob, said.renamed, tuple(said.skipped))


class _Said:
    """The messages of a recording with an id each, in batches that fit a line."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.count = self.renamed = 0
        self.skipped: list[str] = []
        self._ids: set[str] = set()

    def batches(self, recording: Recording) -> Iterator[tuple[Message, ...] | Rewound]:
        batch: list[Message] = []
        size = 0
        for step in recording.steps:
            if isinstance(step, LoggedRewind):
                if batch:
                    yield tuple(batch)
                    batch, size = [], 0
                yield Rewound(to=step.to, reason="rewound in the recording")
            elif isinstance(step, Said) and not step.logged_only:
                message = self._named(step)
                if message is None:
                    continue
                batch.append(message)
                size += sum(map(len, message.content))
                if size >= _BATCH_BYTES:
                    yield tuple(batch)
                    batch, size = [], 0
        if batch:
            yield tuple(batch)

    def _named(self, step: Said) -> Message | None:
        """The message under an id that no other has; None when it can't be kept."""
        message = step.message
        try:
            check_limits(message, self._limits)
            message.check()
        except MalformedBlock as e:
            self.skipped.append(f"line {step.line}: {e}")
            return None
        identity, number = message.id, 2
        while identity in self._ids:
            identity, number = MessageId(f"{message.id}~{number}"), number + 1
        self._ids.add(identity)
        self.count += 1
        if identity == message.id:
            return message
        self.renamed += 1
        return msgspec.structs.replace(message, id=identity)


def source_of(records: tuple[Record, ...]) -> Source | None:
    """Where a session was imported from; None when it wasn't, or when something was said or decided since."""
    at = next((n for n in range(len(records) - 1, -1, -1) if _is_source(records[n])), None)
    if at is None or not all(isinstance(record, _AFTER) for record in records[at:]):
        return None
    note = records[at]
    return msgspec.convert(note.data, Source) if isinstance(note, Noted) else None


def _is_source(record: Record) -> bool:
    return isinstance(record, Noted) and record.kind == KIND
