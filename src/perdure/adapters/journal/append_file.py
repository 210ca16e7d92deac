"""The writing end of one append-only file: what was acknowledged, and whether it is still there (REL-1, REL-9, REL-10).

Blocking; the journal runs it in a worker thread. After a failed write or sync the descriptor is never used again: the
kernel may have dropped the unwritten pages, and a second sync on it would report success. The file is opened anew,
compared with what was acknowledged, and the bytes beyond that are set aside before they are cut off.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

from perdure.adapters.journal.disk import Disk, write_all, write_new
from perdure.errors import JournalError, JournalLost

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
    def has_grip(self) -> bool:
        """Whether there is a descriptor that never failed."""
        return self._fd is not None

    def append(self, data: bytes, *, is_worth_keeping: bool = True) -> int:
        """Write at the end and make it durable; returns where it starts. All of it is acknowledged, or nothing.

        What a failed append leaves behind is set aside by the next `grip`, unless it isn't worth keeping.
        """
        if self._fd is None:
            raise JournalError(f"{self._path}: not open for writing")
        try:
            self._check(self._disk.fstat(self._fd), is_exact=True)
            write_all(self._disk, self._fd, data)
            if self.is_synced:
                self._disk.sync_data(self._fd)
        except OSError as e:
            self.let_go()
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
            self.let_go()
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

    def grip(self) -> SetAsideBytes | None:
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
            self._close(fd)
            raise disk_refusal(self._path, e) from e
        except JournalError:
            self._close(fd)
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

    def let_go(self) -> None:
        """Close the descriptor; the next use needs a new grip."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self._close(fd)

    def _close(self, fd: int) -> None:
        try:
            self._disk.close(fd)
        except OSError:
            pass  # what was acknowledged was synced before; nothing depends on the close
