"""A journal written anew, when it can't be mended in place: the header is damaged, or lines stand in the wrong order.

The new file holds every intact line, in the order of the numbers, and says what was wrong with the old one. It takes
the old one's place by a rename; the old one stays beside it, whole (ENG-9). What earlier repairs put into side files
and is missing in the journal can be brought back at the same time.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from holdfast.adapters.files.disk import Disk, discard, write_new
from holdfast.adapters.files.reading import REBUILT, Line, Reader, Scan, between, gap_of, pieces, what_of
from holdfast.errors import DamagedLine, JournalError, NewerFormat
from holdfast.transcript.codec import VERSION, decode_line, encode_header, encode_line
from holdfast.transcript.edits import Compacted
from holdfast.transcript.foreign.recording import Problem
from holdfast.transcript.messages import Message
from holdfast.transcript.records import Record, Repaired

_REFUSED = "that were not acknowledged"  # said of bytes that nobody was promised


@dataclass(frozen=True, slots=True)
class Returned:
    """A line that an earlier repair put aside and that the journal lacks."""

    seq: int
    data: bytes
    records: tuple[Record, ...]
    file: str


def set_aside(path: Path, scan: Scan) -> tuple[Returned, ...]:
    """The intact lines in the journal's side files whose numbers are missing in it.

    Not those of an append that failed, since its caller was told so; nor one whose place a damaged line has; nor two
    different ones of one number, since nothing says which was the journal's.
    """
    gaps = [gap for d in scan.damage if (gap := gap_of(d.what)) is not None]
    if not gaps:
        return ()
    refused = {
        placed.record.quarantine
        for placed in scan.placed
        if isinstance(placed.record, Repaired) and _REFUSED in placed.record.what
    }
    found: dict[int, dict[bytes, Returned]] = {}
    for pattern in (".quarantine", ".torn-*", f"{REBUILT}*"):
        for beside in sorted(path.parent.glob(path.name + pattern)):
            for piece in () if beside.name in refused else _pieces_of(beside):
                try:
                    transaction = decode_line(piece, scan.header.version)
                except (DamagedLine, NewerFormat):
                    continue
                if any(before < transaction.seq < after for before, after in gaps):
                    one = Returned(transaction.seq, piece, transaction.records, beside.name)
                    found.setdefault(transaction.seq, {}).setdefault(piece, one)
    return tuple(next(iter(which.values())) for _, which in sorted(found.items()) if len(which) == 1)


def _pieces_of(beside: Path) -> Iterator[bytes]:
    try:
        raw = beside.read_bytes()
    except OSError as e:
        raise JournalError(f"{beside}: {e.strerror or e}: what was set aside can't be read") from e
    for line in raw.split(b"\n"):
        yield from (piece for _, piece in pieces(line))


def rebuild(
    disk: Disk,
    path: Path,
    reader: Reader,
    scan: Scan,
    returned: Sequence[Returned] = (),
    pointers: Sequence[Problem] = (),
) -> tuple[Repaired, ...]:
    """Put a new file in the journal's place; what it says of the old one that wasn't said before. Raises `OSError`.

    All boundaries point to the new places of what they keep; `pointers` are those that were wrong before.
    """
    aside = _free(path)
    lines = [*scan.lines, *(Line(one.seq, 0, 0, one.records, -1) for one in returned)]
    lines.sort(key=lambda line: line.seq)
    data = {one.seq: one.data for one in returned}
    header = msgspec.structs.replace(scan.header, version=VERSION)
    parts = [scan.header_line + b"\n" if header == scan.header else encode_header(header)]
    at = len(parts[0])
    offsets: dict[str, int] = {}
    for line in lines:
        moved = tuple(_pointing(record, offsets) for record in line.records)
        if header == scan.header and moved == line.records:
            old = data.get(line.seq) or reader.read(line.offset, line.length)
            parts.append(old.rstrip(b"\n") + b"\n")
        else:
            parts.append(encode_line(line.seq, moved))
        offsets |= {record.id: at for record in moved if isinstance(record, Message)}
        at += len(parts[-1])
    repairs, told = _said(scan, lines, aside.name)
    mended = (
        *(Repaired(line=0, what=f"sequence number {r.seq} was brought back from {r.file}") for r in returned),
        *(Repaired(line=p.line, what=f"{p.what}: put right", quarantine=aside.name) for p in pointers),
    )
    parts.append(encode_line(scan.seq + 1, (*repairs, *mended)))
    draft = path.with_name(f"{path.name}.new-{secrets.token_hex(8)}")
    write_new(disk, draft, b"".join(parts))
    try:
        write_new(disk, aside, reader.everything())
        disk.sync_directory(path.parent)
        disk.rename(draft, path)
    except OSError:
        discard(disk, draft)
        raise
    disk.sync_directory(path.parent)
    return (*told, *mended)


def _said(scan: Scan, lines: Sequence[Line], aside: str) -> tuple[tuple[Repaired, ...], tuple[Repaired, ...]]:
    """What the new journal says of the old one, and what of it is news.

    What is missing is said again, since nothing that was said of the old file counts for the new one.
    """
    news = [d for d in scan.news if not d.is_between]
    repairs = [Repaired(line=d.line, what=d.what, quarantine=aside, crc=d.crc) for d in news]
    told = list(repairs)
    known = {what_of(d.what): d for d in scan.damage if d.is_between}
    end = Line(scan.seq + 1, 0, 0, (), len(lines))  # what says all this
    for line, what in between([*lines, end], {}, 0):
        damage = known.get(what_of(what))
        said = (
            Repaired(line=damage.line, what=damage.what)
            if damage
            else Repaired(line=scan.first_line + line.index, what=what)
        )
        repairs.append(msgspec.structs.replace(said, quarantine=aside))
        if damage is not None and damage.is_news:
            told.append(repairs[-1])
    return tuple(repairs), tuple(told)


def _pointing(record: Record, offsets: dict[str, int]) -> Record:
    """A boundary with the offset that its first kept message has now."""
    if not isinstance(record, Compacted):
        return record
    first = min((offsets[i] for i in record.kept if i in offsets), default=0)
    return record if first == record.kept_from else msgspec.structs.replace(record, kept_from=first)


def _free(path: Path) -> Path:
    number = 1
    while (beside := path.with_name(f"{path.name}{REBUILT}{number}")).exists():
        number += 1
    return beside
