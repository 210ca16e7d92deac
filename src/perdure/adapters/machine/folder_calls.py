"""The calls by which files below an open folder are reached, where no name leads out of it (SEC-2, OPS-1).

Linux resolves a whole path in one call (`openat2`); where there is no such call, each part is opened in the folder
before it. Windows has no calls that begin at an open folder: `PathCalls` looks at each part instead.
"""

from __future__ import annotations

import errno
import functools
import itertools
import os
import platform
import struct
import sys
from collections.abc import Iterator
from typing import Final

from perdure.adapters.machine.system import (
    CLOSE_ON_EXEC,
    NO_LINK,
    NO_LINKS,
    ONLY_FOLDER,
    leads_elsewhere,
    open_itself,
    read_at,
    replace,
    set_mode,
    sync_data,
    sync_folder,
)

_OPENAT2 = 437  # the same number on every architecture but Alpha
_RESOLVE = 0x02 | 0x04 | 0x08  # NO_MAGICLINKS, NO_SYMLINKS, BENEATH
_RENAME_NOREPLACE, _RENAME_EXCL = 1, 4
_UNKNOWN = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)
_RETRIES = 16  # EAGAIN: the kernel lost a race against a rename, and asks to be called again


@functools.cache
def _libc():  # type: ignore[no-untyped-def]
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def _failed(name: str) -> OSError:
    import ctypes

    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), name)


def _openat2(dir_fd: int, name: str, flags: int) -> int:
    """One call of openat2; OSError as from `os.open`."""
    import ctypes

    how = struct.pack("=QQQ", flags | CLOSE_ON_EXEC, 0, _RESOLVE)
    for _ in range(_RETRIES):
        fd = _libc().syscall(
            ctypes.c_long(_OPENAT2), ctypes.c_int(dir_fd), os.fsencode(name), how, ctypes.c_size_t(len(how))
        )
        if fd >= 0:
            return int(fd)
        failed = _failed(name)
        if failed.errno not in (errno.EAGAIN, errno.EINTR):
            break
    raise failed


@functools.cache
def has_openat2() -> bool:
    """Whether the kernel has it and lets us call it: sandboxes answer ENOSYS or EPERM to calls they don't know."""
    if not sys.platform.startswith("linux") or platform.machine() == "alpha":
        return False
    root = os.open("/", os.O_RDONLY | ONLY_FOLDER | CLOSE_ON_EXEC)
    try:
        os.close(_openat2(root, ".", os.O_RDONLY | ONLY_FOLDER))
    except (OSError, AttributeError):
        return False
    finally:
        os.close(root)
    return True


class OsCalls:
    """The real thing. Everything raises OSError; nothing here retries an error, or follows a link in the last part."""

    has_beneath: bool | None = None  # None: as the kernel has it

    def open_root(self, path: str) -> int:
        """The one place where a path is followed: it is the operator's word."""
        return os.open(path, os.O_RDONLY | ONLY_FOLDER | CLOSE_ON_EXEC)

    def open_beneath(self, dir_fd: int, name: str, flags: int) -> int | None:
        """A descriptor of something below a directory, without any link on the way; None where it can't be had so."""
        if not (has_openat2() if self.has_beneath is None else self.has_beneath):
            return None
        return _openat2(dir_fd, name, flags)

    def open(self, dir_fd: int, part: str, flags: int) -> int:
        return os.open(part, flags | NO_LINK | CLOSE_ON_EXEC, 0o600, dir_fd=dir_fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def stat(self, dir_fd: int, part: str) -> os.stat_result:
        return os.stat(part, dir_fd=dir_fd, follow_symlinks=False)

    def fstat(self, fd: int) -> os.stat_result:
        return os.fstat(fd)

    def read(self, fd: int, length: int, offset: int) -> bytes:
        return read_at(fd, length, offset)

    def write(self, fd: int, data: memoryview) -> int:
        return os.write(fd, data)

    def make_private(self, fd: int) -> None:
        set_mode(fd, 0o600)

    def set_time(self, dir_fd: int, part: str, mtime_ns: int) -> None:
        os.utime(part, ns=(mtime_ns, mtime_ns), dir_fd=dir_fd, follow_symlinks=False)

    def sync(self, fd: int) -> None:
        sync_data(fd)

    def sync_folder(self, fd: int) -> None:
        sync_folder(fd)

    def mkdir(self, dir_fd: int, part: str) -> None:
        os.mkdir(part, 0o700, dir_fd=dir_fd)

    def rmdir(self, dir_fd: int, part: str) -> None:
        os.rmdir(part, dir_fd=dir_fd)

    def unlink(self, dir_fd: int, part: str) -> None:
        os.unlink(part, dir_fd=dir_fd)

    def rename(self, old_fd: int, old: str, new_fd: int, new: str) -> None:
        os.rename(old, new, src_dir_fd=old_fd, dst_dir_fd=new_fd)

    def rename_new(self, old_fd: int, old: str, new_fd: int, new: str) -> None:
        """A rename that never overwrites: FileExistsError instead."""
        if not _rename_exclusive(old_fd, old, new_fd, new):
            try:
                os.link(old, new, src_dir_fd=old_fd, dst_dir_fd=new_fd, follow_symlinks=False)
            except OSError as e:
                if e.errno not in NO_LINKS or _is_there(new_fd, new):
                    raise
                os.rename(old, new, src_dir_fd=old_fd, dst_dir_fd=new_fd)  # a network drive that knows neither
                return
            os.unlink(old, dir_fd=old_fd)

    def scan(self, fd: int) -> Iterator[tuple[str, os.stat_result]]:
        """The names in a directory with what they are themselves; one that goes away meanwhile is left out."""
        with os.scandir(fd) as entries:
            for entry in entries:
                try:
                    about = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield entry.name, about


def _is_there(dir_fd: int, part: str) -> bool:
    try:
        os.stat(part, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _rename_exclusive(old_fd: int, old: str, new_fd: int, new: str) -> bool:
    """By the kernel's own call; False where there is none, or the file system doesn't know it."""
    try:
        if sys.platform == "darwin":
            call, flag = _libc().renameatx_np, _RENAME_EXCL
        else:
            call, flag = _libc().renameat2, _RENAME_NOREPLACE
    except AttributeError:
        return False
    import ctypes

    if call(old_fd, os.fsencode(old), new_fd, os.fsencode(new), ctypes.c_uint(flag)) == 0:
        return True
    failed = _failed(new)
    if failed.errno in _UNKNOWN:
        return False
    raise failed


_FIRST_FOLDER: Final = 1 << 30  # numbers that no descriptor has
_NO_PARTS: Final = frozenset("/\\:\0")


class PathCalls(OsCalls):
    """The same by paths: a folder is a number of ours that stands for one.

    Each part is looked at before it is used: it has to lie in its folder, and be no link. Who may rename in the folder
    can put another in its place in between, so this is for folders that nobody else writes.
    """

    has_beneath = False

    def __init__(self) -> None:
        self._folders: dict[int, str] = {}
        self._numbers = itertools.count(_FIRST_FOLDER)

    def open_root(self, path: str) -> int:
        if not os.path.isdir(path):
            os.stat(path)
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return self._folder(os.path.realpath(path))

    def open(self, dir_fd: int, part: str, flags: int) -> int:
        path = self._at(dir_fd, part)
        try:
            about: os.stat_result | None = os.lstat(path)
        except FileNotFoundError:
            about = None
        if about is not None and leads_elsewhere(about):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        is_folder = about is not None and os.path.isdir(path)
        if not flags & ONLY_FOLDER:
            if is_folder:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            return open_itself(path, flags)
        if not is_folder:
            number = errno.ENOENT if about is None else errno.ENOTDIR
            raise OSError(number, os.strerror(number), path)
        return self._folder(path)

    def close(self, fd: int) -> None:
        if self._folders.pop(fd, None) is None:
            os.close(fd)

    def stat(self, dir_fd: int, part: str) -> os.stat_result:
        return os.lstat(self._at(dir_fd, part))

    def fstat(self, fd: int) -> os.stat_result:
        path = self._folders.get(fd)
        return os.fstat(fd) if path is None else os.lstat(path)

    def set_time(self, dir_fd: int, part: str, mtime_ns: int) -> None:
        os.utime(self._at(dir_fd, part), ns=(mtime_ns, mtime_ns))

    def sync_folder(self, fd: int) -> None:
        """Nothing: see `system.sync_directory`."""

    def mkdir(self, dir_fd: int, part: str) -> None:
        os.mkdir(self._at(dir_fd, part), 0o700)

    def rmdir(self, dir_fd: int, part: str) -> None:
        os.rmdir(self._at(dir_fd, part))

    def unlink(self, dir_fd: int, part: str) -> None:
        os.unlink(self._at(dir_fd, part))

    def rename(self, old_fd: int, old: str, new_fd: int, new: str) -> None:
        replace(self._at(old_fd, old), self._at(new_fd, new))

    def rename_new(self, old_fd: int, old: str, new_fd: int, new: str) -> None:
        os.rename(self._at(old_fd, old), self._at(new_fd, new))  # which never overwrites there

    def scan(self, fd: int) -> Iterator[tuple[str, os.stat_result]]:
        for name in os.listdir(self._folders[fd]):  # what a listing says of each has no number and no count of links
            try:
                yield name, self.stat(fd, name)
            except FileNotFoundError:
                continue

    def _folder(self, path: str) -> int:
        number = next(self._numbers)
        self._folders[number] = path
        return number

    def _at(self, dir_fd: int, part: str) -> str:
        """The path of a part, below a folder that is still where it was."""
        folder = self._folders.get(dir_fd)
        if folder is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), part)
        if part in ("", ".", "..") or not _NO_PARTS.isdisjoint(part):
            raise OSError(errno.EINVAL, "not a name that can be used here", part)
        if os.path.normcase(os.path.realpath(folder)) != os.path.normcase(folder):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), folder)
        return os.path.join(folder, part)


CALLS: Final = PathCalls() if sys.platform == "win32" else OsCalls()
