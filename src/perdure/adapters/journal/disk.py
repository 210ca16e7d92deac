"""Every call by which journal and blobs touch storage, as one object: tests hand in one that fails the n-th call."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from perdure.adapters.machine.system import (
    NO_LINKS,
    check_file,
    open_file,
    read_at,
    replace,
    sync_data,
    sync_directory,
    write_at,
)

_SQLITE_WAL_SINCE = (3, 51, 3)  # before, a WAL reset could lose a commit


class Disk:
    """The real thing. Everything raises OSError; nothing here retries or hides an error."""

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        """A regular file, without waiting: what else stands there is an error."""
        return open_file(path, flags, mode)

    def close(self, fd: int) -> None:
        os.close(fd)

    def write(self, fd: int, data: memoryview) -> int:
        return os.write(fd, data)

    def write_at(self, fd: int, data: bytes, offset: int) -> int:
        return write_at(fd, data, offset)

    def read_at(self, fd: int, length: int, offset: int) -> bytes:
        return read_at(fd, length, offset)

    def sync_data(self, fd: int) -> None:
        """The file's bytes and size are on stable storage."""
        sync_data(fd)

    def sync_directory(self, path: Path) -> None:
        """Names made, renamed or removed in this directory are on stable storage."""
        sync_directory(path)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def rename(self, old: Path, new: Path) -> None:
        """In the place of a file that has the name."""
        replace(old, new)

    def link(self, old: Path, new: Path) -> None:
        """A second name; FileExistsError when the name is taken, which a rename would overwrite."""
        try:
            os.link(old, new)
        except OSError as e:
            if e.errno not in NO_LINKS or new.exists():
                raise
            replace(old, new)  # a file system without hard links

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def stat(self, path: Path) -> os.stat_result:
        return os.stat(path)

    def fstat(self, fd: int) -> os.stat_result:
        return os.fstat(fd)


DISK = Disk()


def write_all(disk: Disk, fd: int, data: bytes) -> None:
    """One write; the rest in further ones when the disk took only a part."""
    rest = memoryview(data)
    while rest:
        taken = disk.write(fd, rest)
        if taken <= 0:
            raise OSError(errno.EIO, "the disk took no bytes")
        rest = rest[taken:]


def write_new(disk: Disk, path: Path, data: bytes) -> None:
    """A new private file with these bytes, on stable storage but for its name; nothing is left when it fails."""
    fd = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        try:
            write_all(disk, fd, data)
            disk.sync_data(fd)
        finally:
            disk.close(fd)
    except OSError:
        discard(disk, path)
        raise


def first_link(path: Path, below: Path) -> Path | None:
    """The first symbolic link on the way from a folder to a path in it, the path included; None without one."""
    at = below
    for part in path.relative_to(below).parts:
        at /= part
        if at.is_symlink():
            return at
    return None


def discard(disk: Disk, path: Path) -> None:
    """Remove a file of ours that holds nothing of value, if that can be done."""
    try:
        disk.unlink(path)
    except OSError:
        pass  # it is only litter: a temporary file, named as such


def sqlite_journal_mode() -> str:
    """How an SQLite file is written that several processes share."""
    import sqlite3

    return "WAL" if sqlite3.sqlite_version_info >= _SQLITE_WAL_SINCE else "TRUNCATE"


def check_database(path: Path) -> None:
    """Refuse a database of SQLite of which a part is no regular file: SQLite would wait at a pipe.

    Raises:
        OSError: One is.
    """
    for part in ("", "-journal", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            check_file(f"{path}{part}")


def make_private(directory: Path) -> None:
    """The directory and its missing parents, 0700, their names on stable storage (ENG-4)."""
    missing = [d for d in (directory, *directory.parents) if not d.exists()]
    for folder in reversed(missing):
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            continue
        DISK.sync_directory(folder.parent)
