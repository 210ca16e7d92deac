"""The journal in a file: appends are committed in groups, damage is set aside and said (ENG-3, REL-1, REL-2).

Coroutines that append while a write is under way share the next write and sync. `durability="process"` leaves the sync
out: it survives the death of the process, but not of the machine.
"""

from __future__ import annotations

import errno
import os
import secrets
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from perdure.adapters.journal.append_file import (
    NOTHING,
    AppendOnlyFile,
    JournalMark,
    MarkFile,
    SessionLock,
    SetAsideBytes,
    disk_refusal,
    line_checksum,
)
from perdure.adapters.journal.disk import DISK, Disk, discard, write_all, write_new
from perdure.adapters.journal.reading import JournalDamage, JournalScan, open_journal_reader, pointing_wrong
from perdure.adapters.journal.repair import rebuild, set_aside
from perdure.errors import DamagedLine, JournalError, JournalLost, SessionBusy
from perdure.ports.home import Durability
from perdure.ports.session import LoadedJournal as Loaded
from perdure.ports.session import PlacedRecord as Placed
from perdure.ports.session import Receipt
from perdure.transcript.blocks import one_line
from perdure.transcript.codec import decode_line, encode_header, encode_line
from perdure.transcript.messages import Message
from perdure.transcript.records import Compacted, Header, Record, Repaired, Transaction

_NOT_A_WRITER = (errno.EACCES, errno.EPERM, errno.EROFS)

LARGE_BYTES = 64 * 1024  # more is encoded in a thread, synced or not, so that others have the loop (SPD-8)


@dataclass(slots=True, eq=False)
class PendingAppend:
    """One call of `append`, until its records are durable."""

    records: tuple[Record, ...]
    is_taken: bool = False
    receipt: Receipt | None = None
    error: JournalError | None = None

    def outcome(self) -> Receipt:
        """What `append` gives, or raises."""
        if self.receipt is None:
            error = self.error or JournalError("the append was given up; nothing was recorded")
            raise type(error)(str(error)) from error  # its own copy: several tasks may raise it
        return self.receipt


class GroupedAppends(ABC):
    """What journals share that write in groups: coroutines that append while a write is under way share the next."""

    def __init__(self) -> None:
        self._queue: list[PendingAppend] = []
        self._turn = anyio.Lock()

    async def append(self, records: tuple[Record, ...]) -> Receipt:
        """What the port says."""
        waiting = PendingAppend(records)
        self._queue.append(waiting)
        try:
            async with self._turn:
                if not waiting.is_taken:
                    await self._flush()
        finally:
            if not waiting.is_taken:  # cancelled before its turn
                self._queue.remove(waiting)
        return waiting.outcome()

    async def _flush(self) -> None:
        """Write all that waits for its turn, whoever is cancelled meanwhile."""
        batch, self._queue = self._queue, []
        for waiting in batch:
            waiting.is_taken = True
        with anyio.CancelScope(shield=True):
            await self._write(batch)

    @abstractmethod
    async def _write(self, batch: list[PendingAppend]) -> None:
        """Write them, and give each its receipt or its error."""


class FileJournal(GroupedAppends):
    """`ports.Journal` in one file. Made by `create` or `open`; a writer should hold the session's lock."""

    def __init__(
        self,
        path: Path,
        scan: JournalScan,
        file: AppendOnlyFile | None,
        disk: Disk,
        lock: SessionLock | None,
        *,
        is_to_mend: bool = False,
    ) -> None:
        super().__init__()
        self._path = path
        self._disk = disk
        self._lock = lock
        self._file = file
        self.header = scan.header
        self._is_synced = file is not None and file.is_synced
        self._seq = scan.seq
        self._last = scan.last
        self._mark = MarkFile(disk, path, scan.header_line)
        self._is_to_rebuild = file is not None and (scan.is_disordered or is_to_mend)
        self._tail: JournalDamage | None = None
        self._damage: list[JournalDamage] = []
        self._unrecorded: list[Repaired] = []
        self._repairs: tuple[Repaired, ...] = ()
        self._one_thread = anyio.CapacityLimiter(1)
        self._is_closed = False
        self._opened: Loaded | None = self._repaired(scan)
        self._has_past = not self._opened.whole

    @classmethod
    async def create(
        cls,
        path: Path,
        header: Header,
        *,
        durability: Durability = "commit",
        disk: Disk = DISK,
        lock: SessionLock | None = None,
    ) -> FileJournal:
        """A new journal; `JournalError` when there is one. Its name and header are on stable storage on return."""
        return await anyio.to_thread.run_sync(partial(cls._create, Path(path), header, durability, disk, lock))

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        durability: Durability = "commit",
        read_only: bool = False,
        mend: bool = False,
        disk: Disk = DISK,
        lock: SessionLock | None = None,
    ) -> FileJournal:
        """An existing journal. Raises only for a file that is none, a newer format, or what can't be read or opened.

        Damage is repaired and recorded, or with `read_only` only reported, by the first `load`. To `mend` it is to read
        it wholly, and to bring back what earlier repairs put aside and it lacks (ENG-9).
        """
        mode: Durability | None = None if read_only else durability
        return await anyio.to_thread.run_sync(partial(cls._open, Path(path), mode, disk, lock, mend=mend))

    @classmethod
    def _create(
        cls, path: Path, header: Header, durability: Durability, disk: Disk, lock: SessionLock | None
    ) -> FileJournal:
        draft, line = path.with_name(f"{path.name}.new-{secrets.token_hex(8)}"), encode_header(header)
        try:
            write_new(disk, draft, line)
            try:
                disk.link(draft, path)
            finally:
                discard(disk, draft)
            disk.sync_directory(path.parent)
            made = disk.stat(path)
        except FileExistsError:
            raise JournalError(f"{path}: there is a journal already; open it instead") from None
        except OSError as e:
            raise disk_refusal(path, e) from e
        scan = JournalScan(header, line.rstrip(b"\n"), NOTHING, end=len(line), last=line_checksum(line))
        identity, is_synced = (made.st_dev, made.st_ino), durability == "commit"
        return cls(path, scan, AppendOnlyFile(disk, path, scan.end, identity=identity, is_synced=is_synced), disk, lock)

    @classmethod
    def _open(
        cls, path: Path, durability: Durability | None, disk: Disk, lock: SessionLock | None, *, mend: bool = False
    ) -> FileJournal:
        with open_journal_reader(disk, path, may_be_empty=True) as reader:
            scan = reader.scan(reader.body) if mend else reader.since_boundary()
        file = None
        if durability is not None:
            file = AppendOnlyFile(disk, path, scan.end, identity=reader.identity, is_synced=durability == "commit")
        is_to_mend = mend and (bool(set_aside(path, scan)) or any(True for _ in pointing_wrong(scan)))
        return cls(path, scan, file, disk, lock, is_to_mend=is_to_mend)

    @property
    def repairs(self) -> tuple[Repaired, ...]:
        """What was damaged, and has been set aside since it was opened."""
        return self._repairs

    # --- reading

    async def load(self, *, whole: bool = False) -> Loaded:
        """What the port says. A writer reads what was acknowledged; a reader what is there now."""
        async with self._turn:
            opened, self._opened = self._opened, None
            if opened is not None and (opened.whole or not whole):
                return opened
            work = partial(self._load, whole, is_first=opened is not None)
            return await anyio.to_thread.run_sync(work, limiter=self._one_thread)

    @property
    def has_past(self) -> bool:
        """Whether it was opened for writing at a boundary, and what lies before wasn't looked at since."""
        return self._has_past and self._file is not None and not self._is_closed

    async def look_back(self) -> tuple[Repaired, ...]:
        """Verify what the opening didn't read, in a thread; what was found is set aside as by a whole `load` (ENG-3).

        Appends go on meanwhile, unless there is damage. Returns what is said of it.
        """
        size, self._has_past = self._file.size if self._file else None, False
        if await anyio.to_thread.run_sync(self._is_sound, size):
            return ()
        before = self._repairs
        loaded = await self.load(whole=True)
        return tuple(repaired for repaired in loaded.repairs if repaired not in before)

    def _is_sound(self, size: int | None) -> bool:
        with open_journal_reader(self._disk, self._path, size) as reader:
            return reader.is_sound()

    def _load(self, whole: bool, *, is_first: bool) -> Loaded:
        if self._file is None or self._is_to_rebuild:
            return self._repaired(self._scanned(whole))
        self._file.check()
        scan = self._scanned(whole, self._file.size)
        self._is_to_rebuild = scan.is_disordered and is_first
        if scan.is_disordered and not is_first:  # before the last boundary; offsets were given out, and have to hold
            not_made = tuple(repair_of(d) for d in scan.news)
            return Loaded(header=scan.header, records=scan.placed, whole=scan.whole, repairs=self._repairs + not_made)
        return self._repaired(scan)

    def _scanned(self, whole: bool, size: int | None = None) -> JournalScan:
        with open_journal_reader(self._disk, self._path, size, may_be_empty=True) as reader:
            return reader.scan(reader.body) if whole else reader.since_boundary()

    def _repaired(self, scan: JournalScan) -> Loaded:
        """What the scan found, once its damage is repaired; when the disk refuses, it is repaired before an append."""
        news = scan.news if scan.damage else []
        not_made = tuple(map(repair_of, news))
        added: tuple[Placed, ...] = ()
        if self._file is not None:
            try:
                if self._is_to_rebuild:
                    self._rebuild()
                    scan = self._scanned(scan.whole)
                    news = scan.news
                self._tail = next((d for d in news if d.is_tail), self._tail)
                self._damage = [d for d in news if not d.is_tail]
                added = self._mend_file()
                not_made = ()
                if scan.remembered.mark != self._current_mark():
                    self._mark.write(self._current_mark())
            except (JournalLost, SessionBusy):
                raise
            except JournalError as e:
                if isinstance(e.__cause__, OSError) and e.__cause__.errno in _NOT_A_WRITER:
                    raise
                # A full or failing disk doesn't keep a session from opening; the next append has to get past it.
        return Loaded(
            header=scan.header, records=scan.placed + added, whole=scan.whole, repairs=self._repairs + not_made
        )

    def _rebuild(self) -> None:
        """Write the journal anew, and go on with the new file. The old one stays beside it."""
        file = self._writable()
        try:
            with open_journal_reader(self._disk, self._path, may_be_empty=True) as reader:
                scan = reader.scan(reader.body)
                returned, pointers = set_aside(self._path, scan), tuple(pointing_wrong(scan))
                if scan.is_disordered or returned or pointers:  # else it was done, and only the last sync failed
                    self._repairs += rebuild(self._disk, self._path, reader, scan, returned, pointers)
        except OSError as e:
            raise disk_refusal(self._path, e) from e
        with open_journal_reader(self._disk, self._path) as reader:
            scan = reader.since_boundary()
        file.close()
        self._file = AppendOnlyFile(
            self._disk, self._path, scan.end, identity=reader.identity, is_synced=file.is_synced
        )
        self._seq, self._last = scan.seq, scan.last
        self._mark.close(is_synced=False)
        self._mark = MarkFile(self._disk, self._path, scan.header_line)
        self._is_to_rebuild = False
        self._tail, self._damage = None, []

    # --- writing

    async def hold(self) -> None:
        """Nothing: the session's lock is held until it is closed."""

    async def store(self) -> None:
        """No-op: what was appended is the file's."""

    async def release(self) -> bool:
        """Nothing, likewise: nobody else may write it."""
        return False

    async def sync(self) -> None:
        """Make durable what was acknowledged so far under `durability="process"`; `JournalError` when it can't be."""
        async with self._turn:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._sync, limiter=self._one_thread)

    def _sync(self) -> None:
        self._mend_file()
        self._writable().sync()
        self._mark.write(msgspec.structs.replace(self._current_mark(), is_synced=True))

    async def _write(self, batch: list[PendingAppend]) -> None:
        """Write and sync them."""
        self._opened = None
        if self._is_synced or sum(map(encoding_weight, batch)) >= LARGE_BYTES:
            await anyio.to_thread.run_sync(self._commit, batch, limiter=self._one_thread)
        else:
            self._commit(batch)

    def _commit(self, batch: list[PendingAppend]) -> None:
        try:
            self._mend_file()
            file = self._writable()
            lines: list[tuple[PendingAppend, bytes]] = []
            for waiting in batch:
                try:
                    lines.append((waiting, sealed_line(self._seq + len(lines) + 1, waiting.records)))
                except JournalError as e:
                    waiting.error = e
            offset = file.append(b"".join(line for _, line in lines))
        except JournalError as e:
            for waiting in batch:
                waiting.error = waiting.error or e
            self._recover()
            return
        except BaseException:
            self._close_file()  # whatever this was: what is on disk has to be looked at before the next append
            raise
        for waiting, line in lines:
            self._seq += 1
            waiting.receipt = Receipt(self._seq, offset)
            offset += len(line)
        if lines:
            self._remember(lines[-1][1])

    def _remember(self, line: bytes) -> None:
        """Note beside the journal how far it was acknowledged, now that it is (ENG-9)."""
        self._last = line_checksum(line)
        self._mark.write(self._current_mark())

    def _current_mark(self) -> JournalMark:
        size, is_synced = (self._file.size, self._file.is_synced) if self._file else (0, False)
        return JournalMark(bytes=size, seq=self._seq, last=self._last, is_synced=is_synced)

    def _recover(self) -> None:
        """Take what was refused off the file again, if the disk allows it now; else the next append has to."""
        try:
            self._mend_file()
        except JournalError:
            pass  # the append's own error says what is wrong

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()

    def _writable(self) -> AppendOnlyFile:
        if self._is_closed:
            raise JournalError(f"{self._path}: the journal is closed")
        if self._file is None:
            raise JournalError(f"{self._path}: the journal was opened read-only")
        if self._lock is not None and not self._lock.is_held:
            raise SessionBusy(f"{self._path}: this process doesn't hold the session's lock (any more)")
        if self._lock is not None:
            self._lock.renew()
        return self._file

    def _mend_file(self) -> tuple[Placed, ...]:
        """Open the file anew if need be; set aside and record what is damaged. Returns the repair records."""
        if self._is_to_rebuild:
            self._rebuild()
        file = self._writable()
        if not file.is_open and (aside := file.reopen()) is not None:
            self._unrecorded.append(self._cut(file, aside))
        if self._damage:
            self._quarantine(file, self._damage)
            self._damage = []
        if not self._unrecorded:
            return ()
        records = tuple(sorted(self._unrecorded, key=lambda repaired: repaired.line))
        offset = file.append(line := sealed_line(self._seq + 1, records), is_worth_keeping=False)
        self._seq, self._unrecorded, self._repairs = self._seq + 1, [], self._repairs + records
        self._remember(line)
        return tuple(Placed(record, self._seq, offset) for record in records)

    def _cut(self, file: AppendOnlyFile, aside: SetAsideBytes) -> Repaired:
        tail, self._tail = self._tail, None
        if tail is not None:
            return Repaired(line=tail.line, what=tail.what, quarantine=aside.file)
        try:
            with open_journal_reader(self._disk, self._path, file.size) as reader:
                line = reader.lines_before(file.size) + 1
        except JournalError:
            line = self._seq + 2  # right, unless lines were damaged before
        what = f"an append that failed left {aside.length} bytes that were not acknowledged"
        return Repaired(line=line, what=what, quarantine=aside.file)

    def _quarantine(self, file: AppendOnlyFile, damage: list[JournalDamage]) -> None:
        """Copy the damaged lines beside the journal, each behind its number, place and length."""
        beside = self._path.with_name(f"{self._path.name}.quarantine")
        entries: list[bytes] = []
        with open_journal_reader(self._disk, self._path, file.size) as reader:
            for d in damage:
                said = f"line {d.line}, offset {d.offset}, {d.length} bytes: {d.what}\n".encode()
                entries += [said, reader.read(d.offset, d.length).rstrip(b"\n"), b"\n"] if d.length else []
        try:
            if entries:
                fd = self._disk.open(beside, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                try:
                    write_all(self._disk, fd, b"".join(entries))
                    self._disk.sync_data(fd)
                finally:
                    self._disk.close(fd)
                self._disk.sync_directory(beside.parent)
        except OSError as e:
            raise disk_refusal(beside, e) from e
        self._unrecorded += [repair_of(d, beside.name if d.length else None) for d in damage]

    async def close(self) -> None:
        """Let go of the file and the lock, after the appends under way. May be called twice."""
        with anyio.CancelScope(shield=True):
            async with self._turn:
                if not self._is_closed and self._file is not None and not self._file.is_open:
                    await anyio.to_thread.run_sync(self._recover, limiter=self._one_thread)
                self._is_closed = True
                self._opened = None
                self._close_file()
                if self._is_synced:
                    await anyio.to_thread.run_sync(partial(self._mark.close, is_synced=True), limiter=self._one_thread)
                else:
                    self._mark.close(is_synced=False)
                if self._lock is not None:
                    self._lock.release()


def encoding_weight(waiting: PendingAppend) -> int:
    """About how many bytes an append encodes and reads back: a boundary holds much, and so do messages."""
    return sum(
        sum(map(len, record.content)) if isinstance(record, Message) else LARGE_BYTES * isinstance(record, Compacted)
        for record in waiting.records
    )


def repair_of(damage: JournalDamage, quarantine: str | None = None) -> Repaired:
    """The record that says of this damage that it was dealt with."""
    return Repaired(line=damage.line, what=damage.what, quarantine=quarantine, crc=damage.crc)


def sealed_line(seq: int, records: tuple[Record, ...]) -> bytes:
    """The records as one line that is sure to be read back."""
    try:
        line = encode_line(seq, records)
        if line.find(b"\n") != len(line) - 1:  # raw JSON came with line breaks between its tokens
            raw = one_line(msgspec.json.encode(Transaction(seq=seq, records=records)))
            line = encode_line(seq, msgspec.json.decode(raw, type=Transaction).records)
        decode_line(line)
    except (TypeError, ValueError, OverflowError, RecursionError, DamagedLine) as e:
        raise JournalError(f"these records can't be written as JSON: {e}") from e
    return line
