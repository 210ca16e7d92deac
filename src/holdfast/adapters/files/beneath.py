"""The calls by which files below a root are touched, one object: tests put a fault, or an attacker, between them.

Every call names a file by one descriptor of a directory and one part of a name, and follows no link; `open_beneath` is
the one that takes a path of several parts, and only where the kernel itself keeps it below the descriptor.
"""

from __future__ import annotations

import errno
import functools
import os
import platform
import struct
import sys
from collections.abc import Iterator

from holdfast.adapters.files.disk import DISK

_CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0)
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
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

    how = struct.pack("=QQQ", flags | _CLOSE_ON_EXEC, 0, _RESOLVE)
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
    root = os.open("/", os.O_RDONLY | os.O_DIRECTORY | _CLOSE_ON_EXEC)
    try:
        os.close(_openat2(root, ".", os.O_RDONLY | os.O_DIRECTORY))
    except (OSError, AttributeError):
        return False
    finally:
        os.close(root)
    return True


class Calls:
    """The real thing. Everything raises OSError; nothing here retries an error, or follows a link in the last part."""

    has_beneath: bool | None = None  # None: as the kernel has it

    def open_root(self, path: str) -> int:
        """The one place where a path is followed: it is the operator's word."""
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | _CLOSE_ON_EXEC)

    def open_beneath(self, dir_fd: int, name: str, flags: int) -> int | None:
        """A descriptor of something below a directory, without any link on the way; None where it can't be had so."""
        if not (has_openat2() if self.has_beneath is None else self.has_beneath):
            return None
        return _openat2(dir_fd, name, flags)

    def open(self, dir_fd: int, part: str, flags: int) -> int:
        return os.open(part, flags | _NO_FOLLOW | _CLOSE_ON_EXEC, 0o600, dir_fd=dir_fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def stat(self, dir_fd: int, part: str) -> os.stat_result:
        return os.stat(part, dir_fd=dir_fd, follow_symlinks=False)

    def fstat(self, fd: int) -> os.stat_result:
        return os.fstat(fd)

    def read(self, fd: int, length: int, offset: int) -> bytes:
        return os.pread(fd, length, offset)

    def write(self, fd: int, data: memoryview) -> int:
        return os.write(fd, data)

    def make_private(self, fd: int) -> None:
        os.fchmod(fd, 0o600)

    def sync(self, fd: int) -> None:
        DISK.sync_data(fd)

    def sync_folder(self, fd: int) -> None:
        os.fsync(fd)

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
            os.link(old, new, src_dir_fd=old_fd, dst_dir_fd=new_fd, follow_symlinks=False)
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


CALLS = Calls()


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
