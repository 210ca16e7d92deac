"""The writing end of a journal: its one writer, its file, and the mark of what was acknowledged (ENG-4, ENG-9, REL-1,
REL-8 to REL-10).
"""

from __future__ import annotations

import errno
import os
import socket
import time
import weakref
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from perdure.adapters.journal.disk import Disk, discard, write_all, write_new
from perdure.adapters.machine.system import BUSY, lock_now, open_file, read_file, unlock
from perdure.errors import DamagedLine, JournalError, JournalLost, SessionBusy
from perdure.transcript.codec import seal, unseal

LOCK = "lock"
LEASE_SECONDS = 60.0


class LockHolder(msgspec.Struct, frozen=True):
    """Who writes the session. Times are in seconds since the epoch."""

    pid: int
    host: str
    started: float
    lease_until: float


class SessionLock:
    """`SessionLock.acquire(directory)` holds `<directory>/lock` until `release()` or the end of the process."""

    def __init__(self, path: Path, fd: int, lease_seconds: float) -> None:
        self._path = path
        self._fd: int | None = fd
        self._lease_seconds = lease_seconds
        self._started = time.time()
        self._renewed = 0.0
        self.renew()
        _HELD.add(self)

    @classmethod
    def acquire(cls, directory: Path, *, lease_seconds: float = LEASE_SECONDS) -> SessionLock:
        """Take the lock, or raise `SessionBusy` naming the holder."""
        path = directory / LOCK
        while True:
            try:
                fd = open_file(path, os.O_RDWR | os.O_CREAT)
            except OSError as e:
                raise JournalError(f"{path}: {e.strerror}: the session can't be locked for writing") from e
            try:
                lock_now(fd)
                if _is_same(fd, path):
                    return cls(path, fd, lease_seconds)
            except OSError as e:
                os.close(fd)
                if e.errno in BUSY:
                    raise SessionBusy(_busy_line(directory, read_holder(directory))) from None
                raise JournalError(f"{path}: {e.strerror}: the session can't be locked for writing") from e
            os.close(fd)  # the file was removed between open and lock: take the new one

    @property
    def is_held(self) -> bool:
        """False after `release()`, and in a forked child, which isn't the writer."""
        return self._fd is not None

    def renew(self) -> None:
        """Say for another lease that the holder is well, when half of the last one is over. Called at each append.

        It is only information: a failure to write it changes nothing.
        """
        now = time.time()
        if self._fd is None or abs(now - self._renewed) < self._lease_seconds / 2:
            return
        self._renewed = now
        holder = LockHolder(os.getpid(), socket.gethostname(), self._started, now + self._lease_seconds)
        try:
            os.ftruncate(self._fd, 0)
            os.lseek(self._fd, 0, os.SEEK_SET)
            os.write(self._fd, msgspec.json.encode(holder) + b"\n")
        except OSError:
            pass

    def release(self) -> None:
        """Let the next writer in. May be called twice."""
        if self._fd is None:
            return
        try:
            os.ftruncate(self._fd, 0)
            unlock(self._fd)
        except OSError:
            pass  # closing releases it all the same
        self.drop()

    def drop(self) -> None:
        """Close the descriptor and nothing else: in a forked child the lock stays with the parent."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)


_HELD: weakref.WeakSet[SessionLock] = weakref.WeakSet()


def _drop_in_child() -> None:
    for lock in list(_HELD):
        lock.drop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_in_child)


def read_holder(directory: Path) -> LockHolder | None:
    """What the lock file says; None when it says nothing. That someone is named doesn't mean that the lock is held."""
    try:
        return msgspec.json.decode(read_file(directory / LOCK), type=LockHolder)
    except (OSError, msgspec.MsgspecError):
        return None


def _is_same(fd: int, path: Path) -> bool:
    try:
        here, there = os.fstat(fd), os.stat(path)
    except FileNotFoundError:
        return False
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _busy_line(directory: Path, holder: LockHolder | None) -> str:
    name = directory.name
    what_to_do = f"close it there first, or go on in a copy of it: `perdure resume {name} --fork`"
    if holder is None:
        return f"{name} is being written by another process: {what_to_do}"
    who = f"process {holder.pid} on {holder.host}" + (" (this process)" if holder.pid == os.getpid() else "")
    since = datetime.fromtimestamp(holder.started, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    silent = " (it hasn't written for a while, and may be idle or stopped)" if holder.lease_until < time.time() else ""
    return f"{name} is being written by {who} since {since}{silent}: {what_to_do}"


_MARK_BYTES = 128  # of the part that is written again and again: less than a sector, so that it is there or it isn't
_MOST_BYTES = 64 * 1024


class JournalMark(msgspec.Struct, frozen=True, kw_only=True):
    """How far a journal was acknowledged. `last` is the checksum of the line that ends there.

    Without `is_synced` that was promised to outlive the process, but not a loss of power.
    """

    bytes: int
    seq: int
    last: str
    is_synced: bool


class MarkReading(msgspec.Struct, frozen=True):
    """What the file of a mark says. `problem` when its bytes aren't those that were written."""

    mark: JournalMark | None = None
    header: bytes = b""  # the line without its end; not checked
    problem: str | None = None


NOTHING = MarkReading()
_DECODER = msgspec.json.Decoder(JournalMark)


def mark_path(journal: Path) -> Path:
    """Where the mark of a journal stands."""
    return journal.with_suffix(".mark")


def line_checksum(line: bytes) -> str:
    """The checksum that a line ends with, as a mark names it."""
    return line.rstrip(b"\n")[-10:-2].decode("ascii", "replace")


def read_mark(disk: Disk, journal: Path) -> MarkReading:
    """What is remembered of a journal; nothing where there is no mark or it can't be read."""
    path = mark_path(journal)
    try:
        fd = disk.open(path, os.O_RDONLY)
    except OSError:
        return NOTHING
    try:
        raw = disk.read_at(fd, _MOST_BYTES, 0)
    except OSError:
        return NOTHING
    finally:
        disk.close(fd)
    first, header = raw[:_MARK_BYTES], raw[_MARK_BYTES:].rstrip(b"\n")
    if len(first) < _MARK_BYTES or not first.strip(b"\0 \n"):  # made, and not written yet when the power went
        return MarkReading(None, header)
    try:
        return MarkReading(_DECODER.decode(unseal(first.rstrip(b" \n"))), header)
    except (DamagedLine, msgspec.MsgspecError):
        return MarkReading(None, header, f"{path.name}: what is remembered of the journal's length is damaged")


class MarkFile:
    """The writing end. Nothing here raises `OSError`: a mark that can't be written stays as old as it is."""

    def __init__(self, disk: Disk, journal: Path, header: bytes) -> None:
        self._disk = disk
        self._path = mark_path(journal)
        self._header = header
        self._fd: int | None = None

    def write(self, mark: JournalMark) -> None:
        """Remember this; one small write, without a sync."""
        data = seal(msgspec.json.encode(mark))[:-1].ljust(_MARK_BYTES - 1) + b"\n"
        try:
            if self._fd is None:
                self._fd = self._disk.open(self._path, os.O_RDWR | os.O_CREAT)
                if self._disk.read_at(self._fd, _MOST_BYTES, _MARK_BYTES) != self._header:
                    self._disk.truncate(self._fd, 0)  # a mark without its header, or half of it, says nothing
                    write_all(self._disk, self._fd, b" " * _MARK_BYTES + self._header)
            if self._disk.write_at(self._fd, data, 0) < len(data):
                self.forget()  # half a mark would look like a damaged one
        except OSError:
            self._drop()

    def forget(self) -> None:
        """Remove the mark: from now on nothing is remembered, until the next `write`."""
        self._drop()
        discard(self._disk, self._path)

    def close(self, *, is_synced: bool) -> None:
        """Let go of the file; what it says is on stable storage then, if that is wanted and can be done."""
        if self._fd is not None and is_synced:
            try:
                self._disk.sync_data(self._fd)
            except OSError:
                pass  # then it may be older than it could be
        self._drop()

    def _drop(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            try:
                self._disk.close(fd)
            except OSError:
                pass  # nothing depends on it


_CHECKED_BYTES = 64 * 1024  # of the end of what was acknowledged, compared when the file is opened anew
_HINTS = {
    errno.ENOSPC: "free some space and go on",
    errno.EDQUOT: "free some of the quota and go on",
    errno.EROFS: "make the file system writable, or open the session read-only",
    errno.EACCES: "check who owns the file, or open the session read-only",
}


@dataclass(frozen=True, slots=True)
class SetAsideBytes:
    """Bytes that stood beyond what was acknowledged, and the file that holds them now."""

    length: int
    file: str


def disk_refusal(path: Path, error: OSError) -> JournalError:
    """What the disk said, as an error for people."""
    hint = _HINTS.get(error.errno or 0, "check the disk, then go on")
    return JournalError(f"{path}: {error.strerror or error}: nothing was recorded; {hint}")


class AppendOnlyFile:
    """One file, of which `size` bytes are acknowledged."""

    def __init__(self, disk: Disk, path: Path, size: int, *, identity: tuple[int, int], is_synced: bool) -> None:
        self._disk = disk
        self._path = path
        self._fd: int | None = None
        self._identity = identity
        self.is_synced = is_synced
        self._last = b""
        self._worthless = b""
        self._was_used = False
        self.size = size

    @property
    def is_open(self) -> bool:
        """Whether there is a descriptor that never failed."""
        return self._fd is not None

    def append(self, data: bytes, *, is_worth_keeping: bool = True) -> int:
        """Write at the end and make it durable; returns where it starts. All of it is acknowledged, or nothing.

        What a failed append leaves behind is set aside by the next `reopen`, unless it isn't worth keeping.
        """
        if self._fd is None:
            raise JournalError(f"{self._path}: not open for writing")
        try:
            self._check(self._disk.fstat(self._fd), is_exact=True)
            write_all(self._disk, self._fd, data)
            if self.is_synced:
                self._disk.sync_data(self._fd)
        except OSError as e:
            self.close()
            self._worthless = b"" if is_worth_keeping else data
            raise disk_refusal(self._path, e) from e
        offset, self.size, self._last = self.size, self.size + len(data), data[-_CHECKED_BYTES:]
        return offset

    def sync(self) -> None:
        """Make durable what was written without a sync; a descriptor whose sync failed is never used again."""
        if self._fd is None:
            raise JournalError(f"{self._path}: not open for writing")
        try:
            self._disk.sync_data(self._fd)
        except OSError as e:
            self.close()
            raise disk_refusal(self._path, e) from e

    def check(self) -> None:
        """Raise `JournalLost` if what was acknowledged is no longer there."""
        if self._fd is not None:
            try:
                self._check(self._disk.fstat(self._fd), is_exact=True)
            except OSError as e:
                raise disk_refusal(self._path, e) from e

    def _check(self, here: os.stat_result, *, is_exact: bool) -> None:
        try:
            there = self._disk.stat(self._path)
        except FileNotFoundError:
            raise self._lost("was deleted or moved away") from None
        if (there.st_dev, there.st_ino) != self._identity:
            raise self._lost("was replaced by another file")
        if here.st_nlink == 0:
            raise self._lost("was deleted")
        if here.st_size < self.size:
            raise self._lost(f"was cut from {self.size} to {here.st_size} bytes")
        if is_exact and here.st_size > self.size:
            raise self._lost(f"was written to by another program ({here.st_size - self.size} bytes)")

    def _lost(self, what: str) -> JournalLost:
        return JournalLost(
            f"{self._path}: the journal {what} while the session was open; put it back, or go on in a new session"
        )

    def reopen(self) -> SetAsideBytes | None:
        """Open the file (anew), verify it against what was acknowledged, and cut off what goes beyond that."""
        try:
            fd = self._disk.open(self._path, os.O_RDWR | os.O_APPEND)
        except FileNotFoundError:
            raise self._lost("was deleted or moved away") from None
        except OSError as e:
            raise disk_refusal(self._path, e) from e
        try:
            aside = self._verify(fd)
        except OSError as e:
            self._close_descriptor(fd)
            raise disk_refusal(self._path, e) from e
        except JournalError:
            self._close_descriptor(fd)
            raise
        self._fd, self._was_used = fd, True
        return aside

    def _verify(self, fd: int) -> SetAsideBytes | None:
        here = self._disk.fstat(fd)
        self._check(here, is_exact=False)
        if self._last and self._read(fd, self.size - len(self._last), len(self._last)) != self._last:
            raise self._lost("was changed near its end")
        aside: SetAsideBytes | None = None
        if here.st_size > self.size:
            beyond = self._read(fd, self.size, here.st_size - self.size)
            aside = None if self._worthless.startswith(beyond) else self._set_aside(beyond)
            self._disk.truncate(fd, self.size)
        if self.is_synced:
            self._disk.sync_data(fd)
        return aside

    def _read(self, fd: int, start: int, length: int) -> bytes:
        data = b""
        while len(data) < length and (part := self._disk.read_at(fd, length - len(data), start + len(data))):
            data = data + part if data else part
        return data

    def _set_aside(self, data: bytes) -> SetAsideBytes:
        kind = "refused" if self._was_used else "torn"  # what a caller was refused is never brought back (ENG-9)
        number = 1
        while True:
            beside = self._path.with_name(f"{self._path.name}.{kind}-{number}")
            try:
                write_new(self._disk, beside, data)
            except FileExistsError:
                number += 1
                continue
            self._disk.sync_directory(beside.parent)
            return SetAsideBytes(len(data), beside.name)

    def close(self) -> None:
        """Close the descriptor; `reopen` it before the next use."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self._close_descriptor(fd)

    def _close_descriptor(self, fd: int) -> None:
        try:
            self._disk.close(fd)
        except OSError:
            pass  # what was acknowledged was synced before; nothing depends on the close
