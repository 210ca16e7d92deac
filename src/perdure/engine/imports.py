"""A recording of another agent becomes a session; which recording a session came from, and its lines once more
(ENG-6, ENG-8).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

import msgspec

from perdure.compaction.logged import CLEARED_IN_LOG, REWOUND_IN_LOG, front_of, steps_of
from perdure.context.passes import blob_id
from perdure.engine.session import LiveSession, SessionPorts
from perdure.errors import JournalError, PerdureError
from perdure.logs.detect import read_recordings
from perdure.logs.recording import LoggedCompaction, RecordedMessage, Recording
from perdure.memory.trust.messages import without_secrets
from perdure.memory.trust.secrets import Redactor, redact_log
from perdure.ports.session import Journal
from perdure.settings import Settings
from perdure.transcript.codec import decode_line, encode_header, encode_line
from perdure.transcript.messages import BlobId, Message, MessageId
from perdure.transcript.records import (
    IMPORTED,
    Cleared,
    Compacted,
    Edit,
    Front,
    Header,
    Noted,
    Record,
    Repaired,
    Rewound,
    Titled,
)
from perdure.transcript.texts import first_words

_AFTER = (Titled, Noted)  # records that change nothing of what was said


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What came of it. `skipped` names what could not be taken, by line."""

    messages: int
    blob: BlobId
    renamed: int
    skipped: tuple[str, ...]


class LogStamp(msgspec.Struct, frozen=True, kw_only=True):
    """Which file was read, and how it was then: one that still is so brings nothing new.

    `first` is the id of its first message where the log gives ids that no other log has: two logs that begin with the
    same one are one conversation, written down twice.
    """

    path: str
    bytes: int
    mtime_ns: int
    first: str | None = None


class ImportSource(msgspec.Struct, frozen=True, kw_only=True):
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
    stamp: LogStamp | msgspec.UnsetType = msgspec.UNSET


async def import_recording(
    session: LiveSession,
    recording: Recording,
    data: bytes,
    *,
    file: str,
    is_whole: bool = True,
    at: float | None = None,
    known: Sequence[Record] = (),
    keeps_log: bool = True,
    stamp: LogStamp | msgspec.UnsetType = msgspec.UNSET,
) -> ImportResult:
    """Say everything that was said. The note of its source comes last: with it, all is there.

    What the log's own system did to its context is done here as well, so that the view is the one that it had. `known`
    is what an earlier import of the same log left in the session: only what came after it is added. The same log, `at`
    and header give the same journal to the byte, so that a damaged line can be had again (`lines_again`); but for a log
    that isn't kept, as one that grows while it is followed.
    """
    at = session.ports.clock.now() if at is None else at
    if session.settings.redact_at_ingest:
        data = redact_log(data, session.ports.secret_key)
    blob = (await session.ports.blobs.put((data,)))[0] if keeps_log else blob_id(data)
    # Its thinking stays where its own system kept it; what no longer holds goes with the first request of ours.
    with session.taken_for(dataclasses.replace(session.model, thinking_is_bound=False)):
        said = await _import_messages(session, recording, at, known)
    source = ImportSource(
        file=file,
        format=recording.format,
        session=recording.session,
        blob=blob,
        bytes=len(data),
        messages=said.count + said.before,
        is_whole=is_whole and keeps_log,
        at=at,
        stamp=stamp,
    )
    await session.record(Noted(kind=IMPORTED, data=msgspec.to_builtins(source)))
    return ImportResult(said.count, blob, said.renamed, tuple(said.skipped))


@dataclass(slots=True)
class _ImportedMessages:
    """What came of the messages: how many, how many under another id, and which could not be kept."""

    count: int = 0
    before: int = 0  # that an earlier import brought
    renamed: int = 0
    skipped: list[str] = field(default_factory=list)
    lines: dict[MessageId, int] = field(default_factory=dict)


async def _import_messages(
    session: LiveSession, recording: Recording, at: float, known: Sequence[Record]
) -> _ImportedMessages:
    """Fold a recording into the session, one message a line; what no limit lets in is left out and named."""
    told = _ImportedMessages()
    there = {record.id for record in known if isinstance(record, Message | Compacted)}
    first: list[Record] = [front] if _is_said(front := front_of(recording)) and front != session.view.front else []
    if (recording.title or recording.branch) and not known:
        first.append(Titled(title=recording.title, branch=recording.branch))
    if first:
        await session.append(also=tuple(first))  # a ratio that other sessions learned is of no use to a log
    lines = {step.message.id: step.line for step in recording.steps if isinstance(step, RecordedMessage)}
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


async def _say(session: LiveSession, message: Message, told: _ImportedMessages, lines: dict[MessageId, int]) -> None:
    identity, number = message.id, 2
    while identity in told.lines:
        identity, number = MessageId(f"{message.id}~{number}"), number + 1
    named = message if identity == message.id else msgspec.structs.replace(message, id=identity)
    try:
        await session.append(named)
    except JournalError:
        raise
    except PerdureError as e:
        told.skipped.append(f"line {lines.get(message.id, 0)}: {e}")
        return
    told.lines[identity] = lines.get(message.id, 0)
    told.count += 1
    told.renamed += named is not message


def _is_said(front: Front) -> bool:
    return bool(front.model or front.system or front.tools)


def last_source(records: Sequence[Record]) -> ImportSource | None:
    """Where a session was imported from, whatever happened since; None when it wasn't."""
    for record in reversed(records):
        if isinstance(record, Noted) and record.kind == IMPORTED:
            try:
                return msgspec.convert(record.data, ImportSource)
            except msgspec.ValidationError:
                return None
    return None


_UNIQUE = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def first_id(recording: Recording) -> str | None:
    """The id of what a recording begins with, where it is one that no other log has: its root, or its first message."""
    first = next(iter(recording.messages), None)
    found = recording.root or (first.id if first is not None else "")
    return found if _UNIQUE.fullmatch(found) else None


def is_held(recording: Recording, records: Sequence[Record]) -> bool:
    """Whether records hold everything that was said in a recording: the same log, or a later copy of it."""
    known = _by_id(records)
    return all(
        (there := known.get(message.id)) is not None
        and there.role == message.role
        and (message.at in (None, there.at) or message.content == there.content)
        and len(there.content) == len(message.content)
        for message in recording.messages
    )


def is_copied(recording: Recording, records: Sequence[Record]) -> bool:
    """Whether what a recording and records both have by its id is the same, but for the times, which are a copy's own.

    Ids that are places in a log mean something else behind the place where a copy and its original part.
    """
    known = _by_id(records)
    return recording.root is None or all(
        there.role == message.role and there.content == message.content
        for message in recording.messages
        if (there := known.get(message.id)) is not None
    )


def _by_id(records: Sequence[Record]) -> dict[str, Message]:
    return {record.id.split("~")[0]: record for record in records if isinstance(record, Message)}


def is_beyond(records: Sequence[Record], recording: Recording) -> bool:
    """Whether records hold anything that wasn't said in a recording."""
    said = {message.id for message in recording.messages}
    return any(isinstance(record, Message) and record.id.split("~")[0] not in said for record in records)


_CLIENTS: Final[dict[str, str]] = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "swe-agent": "SWE-agent",
    "mini-swe-agent": "mini-swe-agent",
}


def is_continued(records: Sequence[Record], recording: Recording) -> bool:
    """Whether anything was said or decided since a recording was imported that isn't from the recording itself.

    What is from it stands behind the last note of an import when the next one was stopped on its way.
    """
    said = {message.id for message in recording.messages}
    boundaries = {step.message_id for step in recording.steps if isinstance(step, LoggedCompaction)}
    for record in reversed(records):
        if _is_source(record):
            return False
        if isinstance(record, Message | Compacted):
            if record.id.split("~")[0] not in (said if isinstance(record, Message) else boundaries):
                return True
        elif isinstance(record, Cleared | Rewound):
            if record.reason not in (CLEARED_IN_LOG, REWOUND_IN_LOG):
                return True
        elif not isinstance(record, (*_AFTER, Front, Repaired)):
            return True
    return True


_TITLED_BY = 12  # messages in which a person's first words are looked for
SUB_AGENT: Final = "sub-agent"  # the tag of what a client's sub-agents said, in logs of their own


def listed_as(recording: Recording, known: Titled) -> Titled | None:
    """What listings call an import, where they don't yet: its title, its client, and whether a sub-agent said it.

    A title that a person gave stays.
    """
    shown = (without_secrets(message, Redactor()) for message in recording.messages[:_TITLED_BY])
    words = first_words(shown)
    title = recording.title or words
    tags = (SUB_AGENT,) if recording.is_sub_agent else None
    found = Titled(
        title=title if known.title in (None, words) and title != known.title else None,
        client=_CLIENTS.get(recording.format) if known.client is None else None,
        tags=tags if known.tags is None else None,
    )
    return found if found != Titled() else None


def source_of(records: tuple[Record, ...]) -> ImportSource | None:
    """Where a session was imported from; None when it wasn't, or when something was said or decided since."""
    at = next((n for n in range(len(records) - 1, -1, -1) if _is_source(records[n])), None)
    if at is None or not all(isinstance(record, _AFTER) for record in records[at:]):
        return None
    note = records[at]
    return msgspec.convert(note.data, ImportSource) if isinstance(note, Noted) else None


def _is_source(record: Record) -> bool:
    return isinstance(record, Noted) and record.kind == IMPORTED


@dataclass(frozen=True, slots=True)
class ImportedLines:
    """The lines of an import as they were first written, the header among them, and where each starts."""

    data: bytes
    starts: tuple[int, ...]


async def lines_again(
    ports: SessionPorts, journal: Journal, header: Header, settings: Settings, source: ImportSource
) -> ImportedLines | None:
    """What the import of a source wrote; None when the source can't be read any more.

    `journal` is an empty one in memory that counts offsets as a file does, `ports` has the blobs of the session.
    """
    try:
        data = await ports.blobs.get(source.blob)
        found = [one for one in read_recordings(data, source.file) if one.session == source.session and one.messages]
        if not found:
            return None
        session = await LiveSession.load(replace(ports, journal=journal, calibrations=None), settings)
        at = source.at or header.created
        await import_recording(
            session, found[0], data, file=source.file, is_whole=source.is_whole, at=at, stamp=source.stamp
        )
        loaded = await journal.load(whole=True)
    except PerdureError:
        return None
    lines = [encode_header(header)]
    for seq, placed in groupby(loaded.records, key=lambda one: one.seq):
        lines.append(encode_line(seq, tuple(one.record for one in placed)))
    starts, at = [], 0
    for line in lines:
        starts.append(at)
        at += len(line)
    return ImportedLines(b"".join(lines), tuple(starts))


def repair_journal(there: bytes, lines: ImportedLines) -> tuple[bytes, tuple[int, ...]] | None:
    """The journal with its damaged lines as they were written, and their numbers; None when that isn't sure.

    Sure it is when what stands behind the import begins where the import ended: then each line has its place, and what
    isn't there any more is known by it. A line that is whole but another than the import's is nothing to mend.
    """
    end, rest = len(lines.data), there[len(lines.data) :]
    if len(there) < end or (rest and not _is_line(rest[: rest.find(b"\n") + 1])):
        return None
    ends = (*lines.starts[1:], end)
    damaged = [n for n, (a, b) in enumerate(zip(lines.starts, ends, strict=True), 1) if there[a:b] != lines.data[a:b]]
    if not damaged or len(damaged) * 2 > len(lines.starts):
        return None
    if any(_is_line(there[lines.starts[n - 1] : ends[n - 1]]) for n in damaged):
        return None
    return lines.data + rest, tuple(damaged)


def _is_line(line: bytes) -> bool:
    try:
        decode_line(line)
    except JournalError:
        return False
    return True
