"""An import has its source beside it, so its lines can be made again, to the byte (ENG-8, REL-2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby

from holdfast.engine.imports import Source, import_recording
from holdfast.engine.session import LiveSession, World
from holdfast.errors import HoldfastError, JournalError
from holdfast.ports import Journal
from holdfast.settings import Settings
from holdfast.transcript.codec import decode_line, encode_header, encode_line
from holdfast.transcript.foreign.detect import read_recordings
from holdfast.transcript.records import Header


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of an import as they were first written, the header among them, and where each starts."""

    data: bytes
    starts: tuple[int, ...]


async def lines_again(
    world: World, journal: Journal, header: Header, settings: Settings, source: Source
) -> Lines | None:
    """What the import of a source wrote; None when the source can't be read any more.

    `journal` is an empty one in memory that counts offsets as a file does, `world` has the blobs of the session.
    """
    try:
        data = await world.blobs.get(source.blob)
        found = [one for one in read_recordings(data, source.file) if one.session == source.session and one.messages]
        if not found:
            return None
        session = await LiveSession.open(replace(world, journal=journal, calibrations=None), settings)
        await import_recording(
            session, found[0], data, file=source.file, is_whole=source.is_whole, at=source.at or header.created
        )
        loaded = await journal.load(whole=True)
    except HoldfastError:
        return None
    lines = [encode_header(header)]
    for seq, placed in groupby(loaded.records, key=lambda one: one.seq):
        lines.append(encode_line(seq, tuple(one.record for one in placed)))
    starts, at = [], 0
    for line in lines:
        starts.append(at)
        at += len(line)
    return Lines(b"".join(lines), tuple(starts))


def mended(there: bytes, lines: Lines) -> tuple[bytes, tuple[int, ...]] | None:
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
