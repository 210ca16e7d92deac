"""One writer for each session, in this process or any other (ENG-4, REL-8).

The lock is the operating system's (it goes with the process, however that ends); the file's text only says who holds
it. So a holder record without a lock behind it is stale, and is taken over. The lease tells people, not programs: a
holder whose lease ran out may be stopped, but as long as it holds the lock it may wake up and write.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
import time
import weakref
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from perdure.errors import JournalError, SessionBusy

LOCK = "lock"
LEASE_SECONDS = 60.0
BUSY = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)

if sys.platform == "win32":
    import msvcrt

    _LOCKED_BYTE = 1 << 30  # far behind the text, which others must be able to read

    def lock_now(fd: int) -> None:
        os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)

    def _unlock(fd: int) -> None:
        os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def lock_now(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)


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
                fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
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
            _unlock(self._fd)
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
        return msgspec.json.decode((directory / LOCK).read_bytes(), type=LockHolder)
    except (OSError, msgspec.MsgspecError):
        return None


def _is_same(fd: int, path: Path) -> bool:
    try:
        here, there = os.fstat(fd), os.stat(path)
    except FileNotFoundError:
        return False
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _busy_line(directory: Path, holder: LockHolder | None) -> str:
    what_to_do = "close it there, fork the session, or open it read-only"
    if holder is None:
        return f"session {directory.name} is being written by another process: {what_to_do}"
    who = f"process {holder.pid} on {holder.host}" + (" (this process)" if holder.pid == os.getpid() else "")
    since = datetime.fromtimestamp(holder.started, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    silent = " (it hasn't written for a while, and may be idle or stopped)" if holder.lease_until < time.time() else ""
    return f"session {directory.name} is being written by {who} since {since}{silent}: {what_to_do}"
