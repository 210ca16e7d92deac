"""Reading a journal: from its last boundary (SPD-3), wholly, or to verify; damage is found, never raised (REL-2).

Nothing here changes a file. What is damaged comes back as `Damage`, which the writer sets aside and records.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.adapters.boundaries import last_boundary, since
from holdfast.adapters.files.disk import DISK, Disk
from holdfast.errors import DamagedLine, JournalError, NewerFormat
from holdfast.ports import Placed
from holdfast.transcript.codec import decode_header, decode_line
from holdfast.transcript.edits import Compacted
from holdfast.transcript.foreign.recording import Problem
from holdfast.transcript.messages import Message
from holdfast.transcript.records import Header, Repaired

CHUNK_BYTES = 256 * 1024  # read backwards in steps of this size
STEP_BYTES = 1024 * 1024  # and forwards of this
HEADER_BYTES = 64 * 1024
_BOUNDARY = b'{"type":"compacted"'


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that can't be read as a transaction (length 0: bytes that are missing).

    `is_tail` when no good line follows: to be cut off, since the next append starts here.
    """

    line: int
    what: str
    offset: int
    length: int
    is_tail: bool = False


@dataclass(slots=True)
class Scan:
    """What reading found. `end` is where the last good line ends and `seq` its number."""

    header: Header
    end: int
    seq: int = 0
    placed: tuple[Placed, ...] = ()
    damage: list[Damage] = field(default_factory=list)
    known: set[tuple[int, str]] = field(default_factory=set)
    whole: bool = True

    @property
    def news(self) -> list[Damage]:
        """The damage that no repair record in the journal speaks of yet."""
        return [d for d in self.damage if (d.line, d.what) not in self.known]


class Reader:
    """A journal's bytes up to `size` (what is there, when it isn't given), behind an open descriptor."""

    def __init__(self, disk: Disk, path: Path, fd: int, size: int | None = None) -> None:
        about = disk.fstat(fd)
        self._disk = disk
        self._path = path
        self._fd = fd
        self.identity = (about.st_dev, about.st_ino)
        self.size = about.st_size if size is None else size
        self.header, self.body = self._read_header()

    def read(self, start: int, length: int) -> bytes:
        """Up to `length` bytes: less only at the end of the file."""
        parts: list[bytes] = []
        length = min(length, self.size - start)
        while length > 0 and (part := self._disk.read_at(self._fd, length, start)):
            parts.append(part)
            start, length = start + len(part), length - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _read_header(self) -> tuple[Header, int]:
        """The header, and where the first transaction starts."""
        line, newline, _ = self.read(0, HEADER_BYTES).partition(b"\n")
        if not newline:
            raise DamagedLine(f"{self._path}: no journal header on the first line")
        try:
            return decode_header(line), len(line) + 1
        except DamagedLine as e:
            raise DamagedLine(f"{self._path}: line 1: {e.reason}") from None
        except NewerFormat as e:
            raise NewerFormat(f"{self._path}: {e}") from None

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

    def scan(self, start: int) -> Scan:
        """Every transaction from `start` to the end, and all damage on the way."""
        scan = Scan(header=self.header, end=start, whole=start == self.body)
        placed: list[Placed] = []
        found: list[tuple[int, str, int, int]] = []  # index of the line, what, offset, length
        bad: list[tuple[int, str, int, int]] = []  # the same, since the last good line
        version, last = self.header.version, None if start > self.body else 0
        for index, (offset, line, is_complete) in enumerate(self.lines(start)):
            try:
                if not is_complete:
                    raise DamagedLine("the line was cut short")
                transaction = decode_line(line, version)
                if last is not None and transaction.seq <= last:
                    raise DamagedLine(f"sequence number {transaction.seq} again, after {last}")
            except DamagedLine as e:
                bad.append((index, e.reason, offset, len(line) + is_complete))
                continue
            except NewerFormat as e:
                raise self._newer(offset, e) from None
            if last is not None and transaction.seq > last + 1 + len(bad):
                gap = f"sequence jumps from {last} to {transaction.seq}: lines are missing before this one"
                bad.append((index, gap, offset, 0))
            if bad:
                found += bad
                bad = []
            last = transaction.seq
            placed += [Placed(record, last, offset) for record in transaction.records]
            scan.end = offset + len(line) + 1
        scan.seq, scan.placed = last or 0, tuple(placed)
        if found or bad:
            self._number(scan, start, found, bad)
        return scan

    def _number(
        self, scan: Scan, start: int, found: list[tuple[int, str, int, int]], bad: list[tuple[int, str, int, int]]
    ) -> None:
        """Give the damage its line numbers; what stands behind the last good line is one piece."""
        before = self.lines_before(start) + 1
        scan.damage = [Damage(before + index, what, offset, length) for index, what, offset, length in found]
        if bad:
            index, what, _, _ = bad[0]
            what = f"torn tail of {self.size - scan.end} bytes: {what}"
            scan.damage.append(Damage(before + index, what, scan.end, self.size - scan.end, is_tail=True))
        scan.known = {(p.record.line, p.record.what) for p in scan.placed if isinstance(p.record, Repaired)}

    def since_boundary(self) -> Scan:
        """What an opened session needs: from the last boundary that still holds, or everything."""
        limit = self.size
        while (found := self.boundary_before(limit)) is not None:
            limit = offset = found[0]
            scan = self.scan(self.first_needed(offset, found[1]))
            boundary = last_boundary([p.record for p in scan.placed if p.offset == offset])
            needed = boundary and since(boundary, scan.placed)
            if needed:
                scan.placed, scan.whole = needed, False
                return scan
        return self.scan(self.body)


@contextmanager
def reading(disk: Disk, path: Path, size: int | None = None) -> Iterator[Reader]:
    """The file, open for reading; `JournalError` when it can't be opened or read."""
    try:
        fd = disk.open(path, os.O_RDONLY)
    except OSError as e:
        raise JournalError(f"{path}: {e.strerror or e}: the journal can't be read") from e
    try:
        yield Reader(disk, path, fd, size)
    except OSError as e:
        raise JournalError(f"{path}: {e.strerror or e}: the journal can't be read") from e
    finally:
        disk.close(fd)


def verify(path: Path, *, disk: Disk = DISK) -> tuple[Problem, ...]:
    """Everything that is wrong with a journal, from its first byte to its last; changes nothing (ENG-3)."""
    try:
        with reading(disk, path) as reader:
            scan = reader.scan(reader.body)
    except JournalError as e:
        return (Problem(1 if isinstance(e, DamagedLine) else 0, str(e)),)
    problems = [
        Problem(d.line, d.what + (" (set aside and recorded)" if (d.line, d.what) in scan.known else ""))
        for d in scan.damage
    ]
    starts: dict[str, int] = {}
    for placed in scan.placed:
        record = placed.record
        if isinstance(record, Message):
            starts.setdefault(record.id, placed.offset)
        elif isinstance(record, Compacted):
            problems += [Problem(placed.seq + 1, what) for what in _boundary_problems(record, placed.offset, starts)]
    return tuple(sorted(problems, key=lambda problem: problem.line))


def _boundary_problems(boundary: Compacted, offset: int, starts: dict[str, int]) -> Iterator[str]:
    """What is wrong with a boundary's pointers; `starts` are the lines of the messages before it."""
    carried = {message.id for message in boundary.carried}
    if missing := [id for id in boundary.kept if id not in starts and id not in carried]:
        yield f"boundary {boundary.id} keeps messages that aren't in the journal: {', '.join(missing[:5])}"
    first = min((starts[id] for id in boundary.kept if id in starts), default=offset)
    if boundary.kept_from > first:
        yield f"boundary {boundary.id} points to offset {boundary.kept_from}, behind its first kept message at {first}"
