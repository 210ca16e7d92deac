"""A journal written anew, with what earlier repairs put aside, when it can't be mended in place (ENG-9)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perdure.adapters.journal.disk import Disk, discard, write_new
from perdure.adapters.journal.reading import (
    REBUILT,
    JournalLine,
    JournalReader,
    JournalScan,
    gap_of,
    lines_within,
    numbering_faults,
    short_damage,
)
from perdure.adapters.machine.system import read_file
from perdure.errors import DamagedLine, JournalError, NewerFormat
from perdure.logs.recording import Problem
from perdure.transcript.codec import VERSION, decode_line, encode_header, encode_line
from perdure.transcript.messages import Message
from perdure.transcript.records import Compacted, Record, Repaired

_REFUSED = "that were not acknowledged"  # said of bytes that nobody was promised


@dataclass(frozen=True, slots=True)
class RecoveredLine:
    """A line that an earlier repair put aside and that the journal lacks."""

    seq: int
    data: bytes
    records: tuple[Record, ...]
    file: str


def set_aside(path: Path, scan: JournalScan) -> tuple[RecoveredLine, ...]:
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
    found: dict[int, dict[bytes, RecoveredLine]] = {}
    for pattern in (".quarantine", ".torn-*", f"{REBUILT}*"):
        for beside in sorted(path.parent.glob(path.name + pattern)):
            for piece in () if beside.name in refused else _pieces_of(beside):
                try:
                    transaction = decode_line(piece, scan.header.version)
                except (DamagedLine, NewerFormat):
                    continue
                if any(before < transaction.seq < after for before, after in gaps):
                    one = RecoveredLine(transaction.seq, piece, transaction.records, beside.name)
                    found.setdefault(transaction.seq, {}).setdefault(piece, one)
    return tuple(next(iter(which.values())) for _, which in sorted(found.items()) if len(which) == 1)


def _pieces_of(beside: Path) -> Iterator[bytes]:
    try:
        raw = read_file(beside)
    except OSError as e:
        raise JournalError(f"{beside}: {e.strerror or e}: what was set aside can't be read") from e
    for line in raw.split(b"\n"):
        yield from (piece for _, piece in lines_within(line))


def rebuild(
    disk: Disk,
    path: Path,
    reader: JournalReader,
    scan: JournalScan,
    returned: Sequence[RecoveredLine] = (),
    pointers: Sequence[Problem] = (),
) -> tuple[Repaired, ...]:
    """Put a new file in the journal's place; what it says of the old one that wasn't said before. Raises `OSError`.

    All boundaries point to the new places of what they keep; `pointers` are those that were wrong before.
    """
    aside = _free(path)
    lines = [*scan.lines, *(JournalLine(one.seq, 0, 0, one.records, -1) for one in returned)]
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
    repairs, told = _repairs(scan, lines, aside.name)
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


def _repairs(
    scan: JournalScan, lines: Sequence[JournalLine], aside: str
) -> tuple[tuple[Repaired, ...], tuple[Repaired, ...]]:
    """What the new journal says of the old one, and what of it is news.

    What is missing is said again, since nothing that was said of the old file counts for the new one.
    """
    news = [d for d in scan.news if not d.is_between]
    repairs = [Repaired(line=d.line, what=d.what, quarantine=aside, crc=d.crc) for d in news]
    told = list(repairs)
    known = {short_damage(d.what): d for d in scan.damage if d.is_between}
    end = JournalLine(scan.seq + 1, 0, 0, (), len(lines))  # what says all this
    for line, what in numbering_faults([*lines, end], {}, 0):
        damage = known.get(short_damage(what))
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
