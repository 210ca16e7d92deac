"""Reading a journal: from its last boundary, wholly, or to verify; damage is found, never raised (REL-2, SPD-3)."""

from __future__ import annotations

import os
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import TypeVar

import msgspec

from perdure.adapters.journal.append_file import (
    NOTHING,
    MarkReading,
    line_checksum,
    read_mark,
)
from perdure.adapters.journal.disk import DISK, Disk
from perdure.adapters.machine.system import read_at
from perdure.errors import DamagedLine, JournalError, NewerFormat
from perdure.logs.recording import Problem
from perdure.ports.session import PlacedRecord as Placed
from perdure.transcript.codec import FORMAT, VERSION, decode_header, decode_line, encode_header, seal, unseal
from perdure.transcript.messages import Message
from perdure.transcript.records import Compacted, Header, Record, Repaired, Rewound, Undone, Worded


def is_overtaken(boundary: Compacted, after: Iterable[Record]) -> bool:
    """Whether a later record reaches behind the boundary: it was undone, the session was rewound to before it, or a
    rewind from before it was taken back.
    """
    records = tuple(after)
    within = {*boundary.kept[boundary.read :], *(message.id for message in boundary.summary)}
    rewinds = {record.id for record in records if isinstance(record, Rewound) and record.id}
    undone = {record.undoes for record in records if isinstance(record, Rewound)}
    until = ""  # within a rewind that was taken back: nothing of that way is left (CKP-8)
    for record in records:
        if until:
            until = "" if isinstance(record, Rewound) and record.undoes == until else until
            continue
        match record:
            case Message():
                within.add(record.id)
            case Undone() if record.id == boundary.id:
                return True
            case Rewound() if record.undoes and record.undoes not in rewinds:
                return True
            case Rewound() if record.id and record.id in undone:
                until = record.id
            case Rewound() if record.to not in within:
                return True
            case _:
                pass
    return False


def records_since(boundary: Compacted, placed: Sequence[Placed]) -> tuple[Placed, ...] | None:
    """The kept messages before the boundary, the boundary, and all that follows; None when it can't stand for the past.

    `placed` runs to the end of the journal from where the boundary's kept messages start, or from further back.
    """
    at = next((i for i in range(len(placed) - 1, -1, -1) if placed[i].record is boundary), None)
    if at is None or is_overtaken(boundary, (p.record for p in placed[at + 1 :])):
        return None
    kept = frozenset(boundary.kept)
    before = (p for p in placed[:at] if _message_of(p.record) in kept)
    return (*before, *placed[at:])


def _message_of(record: Record) -> str | None:
    """The message that a record says, or says more of."""
    return record.id if isinstance(record, Message) else record.message if isinstance(record, Worded) else None


def last_boundary(records: Sequence[Record]) -> Compacted | None:
    """The last boundary among them."""
    return next((r for r in reversed(records) if isinstance(r, Compacted)), None)


_SEARCHED_BYTES = 2048  # of a header in which one wrong byte is looked for
_TRAILER_BYTES = len(b',"crc":"89abcdef"}')
_SEALED = re.compile(rb',"crc":"([0-9a-f]{8})"\}$')
_BYTES = tuple(bytes([value]) for value in range(256))

T = TypeVar("T")
_MEMBER = rb'"%b":("(?:[^"\\]|\\.)*"|[0-9.eE+-]+)'


@dataclass(frozen=True, slots=True)
class JournalHeader:
    """The header of a journal; `problem` says what was wrong with it and where this one is from."""

    header: Header
    problem: str | None = None


def _recovered_header(path: Path, line: bytes, said: str, elsewhere: bytes | None, copy: bytes) -> JournalHeader:
    """The header, from the first source that has it. `said` is what is wrong with the first line.

    Raises `NewerFormat` when the header that it finds is of a newer version.
    """
    if elsewhere is not None:
        return JournalHeader(
            decode_header(elsewhere), f"the header is damaged ({said}): taken from another place of the file"
        )
    if copy:
        return JournalHeader(decode_header(copy), f"the header is damaged ({said}): taken from its copy in the mark")
    for right in _one_byte_off(line.rstrip(b"\r\n")):
        try:
            return JournalHeader(decode_header(right), f"the header is damaged ({said}): one wrong byte was put right")
        except DamagedLine:
            continue
    return JournalHeader(
        _guessed(path, line),
        f"the header is damaged ({said}): made from what can be read of it and the folder's name",
    )


def _one_byte_off(line: bytes) -> Iterator[bytes]:
    """The lines that differ in one byte (changed, lost, or too many) and whose checksum holds."""
    if not 0 < len(line) <= _SEARCHED_BYTES:
        return
    for end in range(max(0, len(line) - _TRAILER_BYTES - 1), len(line)):  # the byte is in the checksum
        right = seal(line[:end] + b"}").rstrip(b"\n")
        if any(right[:at] + right[at + 1 :] in (line, line[:at] + line[at + 1 :]) for at in range(end, len(right))):
            yield right
        yield from (right for at in range(end, len(line)) if line[:at] + line[at + 1 :] == right)
    sealed = _SEALED.search(line)
    if sealed is None:
        return
    body, wanted = line[: sealed.start()], int(sealed.group(1), 16)
    for at in range(len(body) + 1):  # the byte is before it
        crc, rest = zlib.crc32(body[:at]), body[at + 1 :]
        for byte in (b"", *_BYTES):
            for tail in (byte + rest, byte + body[at:]):
                if zlib.crc32(tail, crc) == wanted:
                    yield body[:at] + tail + line[sealed.start() :]


def _guessed(path: Path, line: bytes) -> Header:
    created = _member(line, b"created", float)
    if created is None:
        created = path.stat().st_mtime
    version = _member(line, b"version", int)
    return Header(
        format=FORMAT,
        version=version if version is not None and 1 <= version <= VERSION else VERSION,
        session=path.parent.name,
        created=created,
        project=_member(line, b"project", str),
        source=_member(line, b"source", str),
        forked_from=_member(line, b"forked_from", str),
    )


def _member(line: bytes, name: bytes, kind: type[T]) -> T | None:
    found = re.search(_MEMBER % name, line)
    try:
        return msgspec.json.decode(found.group(1), type=kind) if found else None
    except msgspec.MsgspecError:
        return None


CHUNK_BYTES = 256 * 1024  # read backwards in steps of this size
STEP_BYTES = 1024 * 1024  # and forwards of this
HEADER_BYTES = 64 * 1024
_MOST_HEADERS_BYTES = 4 * 1024  # enough for every header we write; more is read when it isn't
_BOUNDARY = b'{"type":"compacted"'
_REPAIRED = b'{"type":"repaired"'
LINE_NUMBER = re.compile(rb'\{"seq":(\d{1,18}),')
_STARTS = re.compile(rb'\{"(?:seq|format)":')
_ENDS = re.compile(rb',"crc":"([0-9a-f]{8})"\}')
_MOST_PIECES = 64  # looked for in one damaged line
_GAP = re.compile(r"sequence jumps from (\d+) to (\d+)")
REBUILT = ".before-"  # in the name of a file that holds what a journal was before it was written anew
SET_ASIDE = " (set aside and recorded)"  # at the end of what is said of damage that was dealt with
BESIDE = 0  # the line of damage that is in no line: the journal isn't what is remembered of it


@dataclass(frozen=True, slots=True)
class JournalDamage:
    """Bytes that can't be read as a transaction (length 0: bytes that are missing, or stand in the wrong place).

    `is_tail` when no good line follows: to be cut off, since the next append starts here. `crc` is the checksum of the
    bytes as they are; `is_news` when no repair record speaks of it yet.
    """

    line: int
    what: str
    offset: int
    length: int
    is_tail: bool = False
    crc: str = ""
    is_news: bool = True

    @property
    def is_between(self) -> bool:
        """Whether it is nothing that stands in the file, but the numbers of two good lines."""
        return self.what.startswith(("sequence jumps", "two different lines"))


@dataclass(frozen=True, slots=True)
class JournalLine:
    """A transaction whose checksum holds, where its bytes stand, and in which of the lines that were read."""

    seq: int
    offset: int
    length: int
    records: tuple[Record, ...]
    index: int


@dataclass(slots=True)
class JournalScan:
    """What reading found. `end` is where the last good line ends and `seq` the highest number that was given.

    `is_disordered`: the file can't be mended in place. Its header is damaged, or its lines don't stand in their order.
    """

    header: Header
    header_line: bytes
    remembered: MarkReading
    end: int
    seq: int = 0
    last: str = ""  # the checksum of the line that ends there
    lines: list[JournalLine] = field(default_factory=list)
    placed: tuple[Placed, ...] = ()
    damage: list[JournalDamage] = field(default_factory=list)
    whole: bool = True
    is_disordered: bool = False
    first_line: int = 2  # the number of the line that has the index 0

    @property
    def news(self) -> list[JournalDamage]:
        """The damage that no repair record in the journal speaks of yet."""
        return [d for d in self.damage if d.is_news]


@dataclass(frozen=True, slots=True)
class _BadLine:
    """Something that isn't a transaction. `follows`: how many good lines stand before it."""

    index: int
    what: str
    offset: int
    length: int
    follows: int
    crc: str = ""
    hides_one: bool = True  # whether a transaction may have stood here


def lines_within(line: bytes) -> Iterator[tuple[int, bytes]]:
    """The whole lines within a damaged one, whose line breaks were lost: where each starts, and its bytes."""
    starts = [found.start() for found in islice(_STARTS.finditer(line), _MOST_PIECES)]
    ends = list(islice(_ENDS.finditer(line), _MOST_PIECES)) if starts else []
    after = 0
    for start in starts:
        if start < after:
            continue
        crc, at = 0, start
        for end in ends:
            if end.start() <= start:
                continue
            crc, at = zlib.crc32(memoryview(line)[at : end.start()], crc), end.start()
            if b"%08x" % crc == end.group(1):
                yield start, line[start : end.end()]
                after = end.end()
                break


def gap_of(what: str) -> tuple[int, int] | None:
    """The numbers on both sides of a gap, of damage that is one."""
    found = _GAP.match(what)
    return (int(found.group(1)), int(found.group(2))) if found else None


def numbering_faults(
    lines: Iterable[JournalLine], hidden: Mapping[int, int], last: int | None
) -> Iterator[tuple[JournalLine, str]]:
    """What is wrong with the numbers of good lines in order: those that are missing, and those that are there twice.

    `hidden` says how many damaged lines stand before the n-th good one; they had numbers too. `last` is the number
    before the first line, if that is known.
    """
    for position, line in enumerate(lines):
        if last is not None and line.seq > last + 1 + hidden.get(position, 0):
            yield line, f"sequence jumps from {last} to {line.seq}: lines are missing before this one"
        elif last == line.seq:
            yield line, f"two different lines have the sequence number {last}: both are kept, as they stand"
        last = line.seq


def _is_header(line: bytes) -> bool:
    try:
        decode_header(line)
    except DamagedLine:
        return False
    except NewerFormat:
        pass
    return True


def _is_transaction(line: bytes) -> bool:
    try:
        decode_line(line)
    except DamagedLine:
        return False
    except NewerFormat:
        pass
    return True


class RecordedDamage:
    """The damage that repair records speak of: by its bytes, or for what is missing by what was said of it.

    A journal that was written anew names all that is left, so what was said before counts no longer.
    """

    def __init__(self, lines: Iterable[JournalLine]) -> None:
        self._crcs: set[str] = set()
        self._said: set[tuple[int, str]] = set()
        for line in lines:
            repairs = [record for record in line.records if isinstance(record, Repaired)]
            if any(REBUILT in (repaired.quarantine or "") for repaired in repairs):
                self._crcs, self._said = set(), set()
            for repaired in repairs:
                if repaired.crc:
                    self._crcs.add(repaired.crc)
                else:
                    self._said |= {(repaired.line, repaired.what), (0, short_damage(repaired.what))}

    def has(self, damage: JournalDamage) -> bool:
        """Whether a repair record speaks of it."""
        if damage.line == BESIDE:
            return False
        if damage.crc and damage.crc in self._crcs:
            return True
        return ((damage.line, damage.what) if damage.length else (0, short_damage(damage.what))) in self._said


def short_damage(what: str) -> str:
    """What is said of damage without the words that only explain it."""
    found = _GAP.match(what)
    return found.group() if found else what


class JournalReader:
    """A journal's bytes up to `size` (what is there, when it isn't given), behind an open descriptor."""

    def __init__(
        self,
        disk: Disk,
        path: Path,
        fd: int,
        size: int | None = None,
        remembered: MarkReading = NOTHING,
        *,
        may_be_empty: bool = False,
    ) -> None:
        about = disk.fstat(fd)
        self._disk = disk
        self._path = path
        self._fd = fd
        self.identity = (about.st_dev, about.st_ino)
        self.size = about.st_size if size is None else size
        self.remembered = remembered
        self._found, self.body = self._find_header(path, may_be_empty)
        self.header = self._found.header

    def read(self, start: int, length: int) -> bytes:
        """Up to `length` bytes: less only at the end of the file."""
        parts: list[bytes] = []
        length = min(length, self.size - start)
        while length > 0 and (part := self._disk.read_at(self._fd, length, start)):
            parts.append(part)
            start, length = start + len(part), length - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def everything(self) -> bytes:
        """The file as it is now, also beyond `size`."""
        size = self._disk.fstat(self._fd).st_size
        return b"".join(
            self._disk.read_at(self._fd, min(STEP_BYTES, size - at), at) for at in range(0, size, STEP_BYTES)
        )

    def _find_header(self, path: Path, may_be_empty: bool) -> tuple[JournalHeader, int]:
        """The header, and where the first transaction starts: at 0 when it isn't known where the header ends."""
        line, newline, _ = self.read(0, HEADER_BYTES).partition(b"\n")
        try:
            if not newline:
                raise DamagedLine("no journal header on the first line")
            return JournalHeader(decode_header(line)), len(line) + 1
        except DamagedLine as e:
            said = e.reason
        except NewerFormat as e:
            raise NewerFormat(f"{path}: {e}") from None
        elsewhere, is_journal = None, may_be_empty and bool(self.remembered.header)
        for _, line, _ in self.lines(0):
            for piece in (line, *(piece for _, piece in lines_within(line))):
                is_journal = is_journal or _is_transaction(piece)
                elsewhere = elsewhere or (piece if _is_header(piece) else None)
            if elsewhere and is_journal:
                break
        if elsewhere is None and not is_journal:
            raise DamagedLine(f"{path}: line 1: {said}")
        return _recovered_header(
            path, self.read(0, HEADER_BYTES).partition(b"\n")[0], said, elsewhere, self.remembered.header
        ), 0

    def lines(self, start: int) -> Iterator[tuple[int, bytes, bool]]:
        """Each line from `start`: its offset, its bytes without the line end, and whether it had one."""
        parts: list[bytes] = []
        at = offset = start
        while chunk := self.read(at, STEP_BYTES):
            at += len(chunk)
            first, *others = chunk.split(b"\n")
            parts.append(first)
            if not others:
                continue
            line = b"".join(parts)
            yield offset, line, True
            offset += len(line) + 1
            for line in others[:-1]:
                yield offset, line, True
                offset += len(line) + 1
            parts = [others[-1]]
        if rest := b"".join(parts):
            yield offset, rest, False

    def lines_before(self, offset: int) -> int:
        """How many lines end before `offset`; reads everything up to there."""
        starts = range(0, offset, STEP_BYTES)
        return sum(self.read(at, min(STEP_BYTES, offset - at)).count(b"\n") for at in starts)

    def line_start(self, offset: int) -> int:
        """Where the line that holds this offset starts."""
        while offset > self.body:
            start = max(self.body, offset - CHUNK_BYTES)
            if (at := self.read(start, offset - start).rfind(b"\n")) >= 0:
                return start + at + 1
            offset = start
        return self.body

    def boundary_before(self, limit: int) -> tuple[int, Compacted] | None:
        """The last good line before `limit` that holds a boundary: its offset, and that boundary."""
        while (hit := self._last_hit(limit)) is not None:
            start = self.line_start(hit)
            _, line, is_complete = next(self.lines(start))
            try:
                records = decode_line(line, self.header.version).records if is_complete else ()
            except DamagedLine:
                records = ()  # the forward scan reports it; an earlier boundary will do
            except NewerFormat as e:
                raise self._newer(start, e) from None
            if (boundary := last_boundary(records)) is not None:
                return start, boundary
            limit = start
        return None

    def _last_hit(self, limit: int) -> int | None:
        """The last place before `limit` that looks like a boundary record; what a tool was sent may look so too."""
        while limit > self.body:
            start = max(self.body, limit - CHUNK_BYTES)
            if (at := self.read(start, limit - start).rfind(_BOUNDARY)) >= 0:
                return start + at
            if start == self.body:
                return None
            limit = start + len(_BOUNDARY) - 1
        return None

    def first_needed(self, offset: int, boundary: Compacted) -> int:
        """Where to start for this boundary; from the beginning when its own word can't be right."""
        start = boundary.kept_from or (self.body if boundary.kept else offset)
        if not self.body <= start <= offset or self.line_start(start) != start:
            return self.body
        return start

    def _newer(self, offset: int, error: NewerFormat) -> NewerFormat:
        return NewerFormat(f"{self._path}: line {self.lines_before(offset) + 1}: {error}")

    def scan(self, start: int) -> JournalScan:
        """Every transaction from `start` to the end in the order of their numbers, and all damage on the way."""
        lines, bad, is_disordered = self._read_lines(start)
        count = max(lines[-1].index if lines else -1, bad[-1].index if bad else -1) + 1
        header = self.read(0, self.body).rstrip(b"\n") or encode_header(self.header).rstrip(b"\n")
        scan = JournalScan(self.header, header, self.remembered, end=start, whole=start == self.body)
        scan.first_line = 2 if self.body else 1  # for a whole scan; others count the lines before when they have to
        scan.end = max((line.offset + line.length for line in lines), default=start)
        scan.last = line_checksum(self.read(max(0, scan.end - 16), 16))
        scan.is_disordered = is_disordered or self._found.problem is not None or not self._is_ordered(lines)
        tail: list[_BadLine] = []
        if scan.is_disordered:
            lines, misplaced = self._ordered(lines)
            bad += misplaced
        else:
            tail = [one for one in bad if one.follows == len(lines)]
            bad = [one for one in bad if one.follows < len(lines)]
        scan.lines = lines
        scan.seq = lines[-1].seq if lines else 0
        scan.placed = tuple(Placed(record, line.seq, line.offset) for line in lines for record in line.records)
        hidden = Counter(one.follows for one in bad if one.hides_one)
        for line, what in numbering_faults(
            lines, {} if scan.is_disordered else hidden, None if start > self.body else 0
        ):
            bad.append(_BadLine(line.index, what, line.offset, 0, 0, hides_one=False))
        beside = self._compared(scan)
        lost = self._lost(scan, count)
        if bad or tail or beside or lost or self._found.problem:
            self._say(scan, start, bad, tail, lost, beside)
        return scan

    def _read_lines(self, start: int) -> tuple[list[JournalLine], list[_BadLine], bool]:
        """The good lines as they stand, what else stands there, and whether good lines were within bad ones."""
        lines: list[JournalLine] = []
        bad: list[_BadLine] = []
        version, is_disordered = self.header.version, False
        for index, (offset, line, is_complete) in enumerate(self.lines(start)):
            try:
                if not is_complete:
                    raise DamagedLine("the line was cut short")
                transaction = decode_line(line, version)
                lines.append(JournalLine(transaction.seq, offset, len(line) + 1, transaction.records, index))
                continue
            except DamagedLine as e:
                what = e.reason
            except NewerFormat as e:
                raise self._newer(offset, e) from None
            within = self._within(index, offset, line, is_complete)
            is_header = _is_header(line)
            if not (start == 0 and (index == 0 or (is_header and decode_header(line) == self.header))):
                what = "a header in the middle of the journal" if is_header else what
                what += f"; {len(within)} intact lines within it were kept" if within else ""
                crc, hides_one = f"{zlib.crc32(line):08x}", not (is_header or within)
                bad.append(_BadLine(index, what, offset, len(line) + is_complete, len(lines), crc, hides_one))
            lines += within
            is_disordered = is_disordered or bool(within)
        return lines, bad, is_disordered

    def _within(self, index: int, offset: int, line: bytes, is_complete: bool) -> list[JournalLine]:
        """The transactions within a damaged line. At the end of the file only those that were acknowledged."""
        found = []
        mark = self.remembered.mark
        for at, piece in lines_within(line):
            try:
                transaction = decode_line(piece, self.header.version)
            except DamagedLine:
                continue
            except NewerFormat as e:
                raise self._newer(offset, e) from None
            if is_complete or (mark is not None and transaction.seq <= mark.seq):
                found.append(JournalLine(transaction.seq, offset + at, len(piece), transaction.records, index))
        return found

    def _bytes(self, line: JournalLine) -> bytes:
        return self.read(line.offset, line.length).rstrip(b"\n")

    def _is_ordered(self, lines: Sequence[JournalLine]) -> bool:
        """Whether the numbers only go up. Two lines may share one, but not be the same."""
        return all(b.seq > a.seq or (b.seq == a.seq and self._bytes(a) != self._bytes(b)) for a, b in pairwise(lines))

    def _ordered(self, lines: Sequence[JournalLine]) -> tuple[list[JournalLine], list[_BadLine]]:
        """The lines in the order of their numbers, each once, and what was wrong with it."""
        highest = 0
        late: list[JournalLine] = []
        for line in lines:
            if line.seq < highest:
                late.append(line)
            highest = max(highest, line.seq)
        kept: list[JournalLine] = []
        again: list[JournalLine] = []
        same: set[bytes] = set()
        for line in sorted(lines, key=lambda one: (one.seq, one.index)):  # stable: those that share one stay in order
            if not kept or kept[-1].seq != line.seq:
                same = set()
            if kept and kept[-1].seq == line.seq:
                same = same or {self._bytes(kept[-1])}
                if (data := self._bytes(line)) in same:
                    again.append(line)
                    continue
                same.add(data)
            kept.append(line)
        gone = {(line.index, line.offset) for line in again}
        late = [line for line in late if (line.index, line.offset) not in gone]
        said = []
        for which, what in (
            (late, "out of order (the first has sequence number {}): put back in its place"),
            (again, "repeated (the first has sequence number {}): dropped, since it says the same byte for byte"),
        ):
            if which:
                first = min(which, key=lambda one: one.index)
                count = f"{len(which)} lines are " if len(which) > 1 else "the line is "
                said.append(_BadLine(first.index, count + what.format(first.seq), first.offset, 0, 0, hides_one=False))
        return kept, said

    def _compared(self, scan: JournalScan) -> list[str]:
        """What is remembered of the journal and isn't so."""
        mark, said = self.remembered.mark, []
        if self.remembered.problem is not None:
            said.append(self.remembered.problem)
        if self.body and self.remembered.header not in (b"", self.read(0, self.body).rstrip(b"\n")):
            said.append("the header isn't the one that the journal was made with: the file was replaced or rewritten")
        if mark is not None and scan.whole:
            # A boundary points elsewhere once the journal was written anew, which a mark may not know yet.
            there = [
                line
                for line in scan.lines
                if line.seq == mark.seq and not any(isinstance(record, Compacted) for record in line.records)
            ]
            if there and all(line_checksum(self._bytes(line)[-16:]) != mark.last for line in there):
                what = f"line {mark.seq} isn't the one that was acknowledged: the file was replaced or rewritten"
                said.append(what.replace("line", "the line of sequence number", 1))
        return said

    def _lost(self, scan: JournalScan, count: int) -> _BadLine | None:
        """What was acknowledged and is missing at the end: only what is remembered outside of the journal tells."""
        mark = self.remembered.mark
        if mark is None or scan.seq >= mark.seq:
            return None
        missing = mark.seq - scan.seq
        what = f"sequence jumps from {scan.seq} to {mark.seq + 1}: " + (
            f"{missing} lines that were acknowledged are missing at the end of the journal"
            if missing > 1
            else "the last line that was acknowledged is missing"
        )
        if not mark.is_synced:
            what += " (durability=process doesn't survive a loss of power)"
        scan.seq = mark.seq
        return _BadLine(count, what, scan.end, 0, len(scan.lines))

    def _say(
        self,
        scan: JournalScan,
        start: int,
        bad: list[_BadLine],
        tail: list[_BadLine],
        lost: _BadLine | None,
        beside: list[str],
    ) -> None:
        """Give the damage its line numbers; what stands behind the last good line is one piece."""
        before = self.lines_before(start) + 1
        fresh = [JournalDamage(BESIDE, what, 0, 0) for what in beside]
        if self._found.problem is not None:
            fresh.append(JournalDamage(1, self._found.problem, 0, 0))
        damage = [JournalDamage(before + one.index, one.what, one.offset, one.length, crc=one.crc) for one in bad]
        if tail:
            what = f"torn tail of {self.size - scan.end} bytes: {tail[0].what}"
            length = self.size - scan.end
            damage.append(JournalDamage(before + tail[0].index, what, scan.end, length, is_tail=True))
        if lost is not None:
            fresh.append(JournalDamage(before + lost.index, lost.what, scan.end, 0))
        known = RecordedDamage(scan.lines)
        scan.damage = [*fresh, *(replace(d, is_news=not known.has(d)) for d in damage)]
        scan.damage.sort(key=lambda d: (d.line, d.length == 0))

    def is_sound(self) -> bool:
        """Whether all lines are as they were written and in order, but for what repair records speak of.

        Only checksums and numbers are looked at, which is quick and lets other threads run.
        """
        found: list[JournalDamage] = []
        repairs: list[JournalLine] = []
        last = hidden = 0
        for index, (offset, line, is_complete) in enumerate(self.lines(self.body)):
            number = LINE_NUMBER.match(line)
            try:
                unseal(line)
            except DamagedLine:
                number = None
            if number is None or not is_complete:
                found.append(JournalDamage(index + 2, "", offset, len(line), crc=f"{zlib.crc32(line):08x}"))
                hidden += 1
                continue
            seq = int(number.group(1))
            if not last < seq <= last + 1 + hidden:
                found.append(JournalDamage(index + 2, f"sequence jumps from {last} to {seq}", offset, 0))
            last, hidden = seq, 0
            if _REPAIRED in line:
                repairs.append(
                    JournalLine(seq, offset, len(line), decode_line(line, self.header.version).records, index)
                )
        known = RecordedDamage(repairs)
        return self._found.problem is None and all(known.has(damage) for damage in found)

    def since_boundary(self) -> JournalScan:
        """What an opened session needs: from the last boundary that still holds, or everything.

        Everything as well where something suggests that needed lines stand elsewhere, or are missing (ENG-9).
        """
        if not self._is_as_remembered():
            return self.scan(self.body)
        limit = self.size
        while (found := self.boundary_before(limit)) is not None:
            limit = offset = found[0]
            scan = self.scan(start := self.first_needed(offset, found[1]))
            if scan.is_disordered or not self._follows(start, scan) or any(_GAP.match(d.what) for d in scan.news):
                break
            boundary = last_boundary([p.record for p in scan.placed if p.offset == offset])
            needed = boundary and records_since(boundary, scan.placed)
            if boundary and needed:
                if missing_messages(boundary, needed):
                    break
                scan.placed, scan.whole = needed, False
                return scan
        return self.scan(self.body)

    def _is_as_remembered(self) -> bool:
        """Whether the journal can have been cut or replaced, as far as can be told at once."""
        mark = self.remembered.mark
        if self._found.problem is not None:
            return False
        if mark is None:
            return True
        end = self.read(max(0, mark.bytes - 16), 16) if mark.bytes <= self.size else b""
        return end.endswith(b"\n") and line_checksum(end) == mark.last

    def _follows(self, start: int, scan: JournalScan) -> bool:
        """Whether the line before `start` has a lower number than those behind it, as far as it can be read."""
        if start <= self.body or not scan.lines:
            return True
        found = LINE_NUMBER.match(self.read(self.line_start(start - 1), 32))
        return found is None or int(found.group(1)) <= scan.lines[0].seq


def missing_messages(boundary: Compacted, placed: Sequence[Placed]) -> list[str]:
    """The messages that a boundary keeps and that aren't here."""
    here = {p.record.id for p in placed if isinstance(p.record, Message)}
    here |= {message.id for message in boundary.carried}
    return [identity for identity in boundary.kept if identity not in here]


def header_at(fd: int) -> Header:
    """The header alone of an open journal, for listings. Raises `PerdureError` for a damaged one."""
    line, newline, _ = read_at(fd, _MOST_HEADERS_BYTES, 0).partition(b"\n")
    if not newline:
        line = read_at(fd, HEADER_BYTES, 0).partition(b"\n")[0]
    return decode_header(line)


@contextmanager
def open_journal_reader(
    disk: Disk, path: Path, size: int | None = None, *, may_be_empty: bool = False
) -> Iterator[JournalReader]:
    """The file, open for reading; `JournalError` when it can't be opened or read, or is no journal.

    One of which nothing is left is still taken for a journal if it `may_be_empty` and its mark knows it.
    """
    before = read_mark(disk, path)  # before the file: whoever writes it now makes it longer first
    try:
        fd = disk.open(path, os.O_RDONLY)
    except OSError as e:
        raise JournalError(f"{path}: {e.strerror or e}: the journal can't be read") from e
    try:
        yield JournalReader(disk, path, fd, size, before, may_be_empty=may_be_empty)
    except OSError as e:
        raise JournalError(f"{path}: {e.strerror or e}: the journal can't be read") from e
    finally:
        disk.close(fd)


def verify(path: Path, *, disk: Disk = DISK) -> tuple[Problem, ...]:
    """Everything that is wrong with a journal, from its first byte to its last; changes nothing (ENG-3).

    What was set aside and recorded before says so.
    """
    return verify_and_scan(path, disk=disk)[0]


def verify_and_scan(path: Path, *, disk: Disk = DISK) -> tuple[tuple[Problem, ...], JournalScan | None]:
    """What `verify` finds, and what was read; None of a file that can't be read as a journal."""
    try:
        with open_journal_reader(disk, path) as reader:
            scan = reader.scan(reader.body)
    except JournalError as e:
        return (Problem(1 if isinstance(e, DamagedLine) else 0, str(e)),), None
    problems = [Problem(d.line, d.what + ("" if d.is_news else SET_ASIDE)) for d in scan.damage]
    is_known = bool(scan.damage) and not scan.news  # then it is known as well why a message isn't there
    problems += [*pointing_wrong(scan), *_keeping_nothing(scan, SET_ASIDE if is_known else "")]
    return tuple(sorted(problems, key=lambda problem: problem.line)), scan


def pointing_wrong(scan: JournalScan) -> Iterator[Problem]:
    """The boundaries of a whole journal that point to another place than that of what they keep."""
    places = {line.offset for line in scan.lines}
    for line, boundary, starts in _boundaries(scan):
        first = min((starts[id] for id in boundary.kept if id in starts), default=line.offset)
        what = f"boundary {boundary.id} points to offset {boundary.kept_from}"
        if boundary.kept_from > first:
            yield Problem(scan.first_line + line.index, f"{what}, behind its first kept message at {first}")
        elif boundary.kept_from and boundary.kept_from not in places:
            yield Problem(scan.first_line + line.index, f"{what}, where no line starts")


def _keeping_nothing(scan: JournalScan, known: str) -> Iterator[Problem]:
    for line, boundary, starts in _boundaries(scan):
        carried = {message.id for message in boundary.carried}
        if missing := [id for id in boundary.kept if id not in starts and id not in carried]:
            what = f"boundary {boundary.id} keeps messages that aren't in the journal: {', '.join(missing[:5])}"
            yield Problem(scan.first_line + line.index, what + known)


def _boundaries(scan: JournalScan) -> Iterator[tuple[JournalLine, Compacted, Mapping[str, int]]]:
    """Each boundary, with where the messages before it stand."""
    starts: dict[str, int] = {}
    for line in scan.lines:
        for record in line.records:
            if isinstance(record, Message):
                starts.setdefault(record.id, line.offset)
            elif isinstance(record, Compacted):
                yield line, record, starts
