"""What Linux, macOS and Windows each do in their own way: one function for each thing, with its substitutes (OPS-1).

Nothing else in the package asks for the platform to open, lock, sync, rename or signal. What is lost without a call is
in docs/reference/platforms.md.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # a client's hook imports this, and has little time
    from pathlib import Path

# --- opening ----------------------------------------------------------------------------------------------------------

CLOSE_ON_EXEC: Final[int] = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOINHERIT", 0) | getattr(os, "O_BINARY", 0)
"""With every opening: children don't get the descriptor, and bytes stay as they are."""
AT_ONCE: Final[int] = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
"""With what may be anything: no waiting at a pipe that nobody writes to, and no terminal of ours."""
NO_LINK: Final[int] = getattr(os, "O_NOFOLLOW", 0)
"""No symbolic link, for calls that are safe without it: `open_itself` is for the others."""
ONLY_FOLDER: Final[int] = getattr(os, "O_DIRECTORY", 1 << 29)
"""Only a folder; a bit of our own where the system has none, for `PathCalls`."""

_LINK_TAGS: Final = (0xA000000C, 0xA0000003)  # of Windows: symbolic links, and junctions


def leads_elsewhere(about: os.stat_result) -> bool:
    """Whether what `lstat` found is a symbolic link or, on Windows, a junction."""
    return stat.S_ISLNK(about.st_mode) or getattr(about, "st_reparse_tag", 0) in _LINK_TAGS


def open_itself(path: str | Path, flags: int, mode: int = 0o600) -> int:
    """Open what stands at a path, and never what a link there leads to: OSError ELOOP."""
    if sys.platform == "win32":
        return _open_checked(path, flags | CLOSE_ON_EXEC, mode)
    else:
        return os.open(path, flags | CLOSE_ON_EXEC | NO_LINK, mode)


def open_file(path: str | Path, flags: int, mode: int = 0o600) -> int:
    """Open a regular file and nothing else, without waiting: OSError for what holds its reader up, or has no end.

    A pipe that nobody writes to, a device, a socket: among our own files somebody else has put them there.
    """
    fd = os.open(path, flags | AT_ONCE | CLOSE_ON_EXEC, mode)
    try:
        _check_kind(os.fstat(fd), path)
    except OSError:
        os.close(fd)
        raise
    return fd


def check_file(path: str | Path) -> None:
    """The same of what somebody else will open: nothing is opened, whose end would let go of that one's locks."""
    _check_kind(os.stat(path), path)


def _check_kind(about: os.stat_result, path: str | Path) -> None:
    if stat.S_ISDIR(about.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))


def read_file(path: str | Path) -> bytes:
    """All bytes of a regular file, as `open_file` opens it."""
    with open(open_file(path, os.O_RDONLY), "rb") as file:
        return file.read()


def is_null_device(path: str | Path) -> bool:
    """Whether a path leads to the null device: a usual way to say that a file of settings is empty."""
    try:
        about, null = os.stat(path), os.stat(os.devnull)
    except OSError:
        return False
    return stat.S_ISCHR(about.st_mode) and stat.S_ISCHR(null.st_mode) and about.st_rdev == null.st_rdev


def _open_checked(path: str | Path, flags: int, mode: int) -> int:
    """Without `O_NOFOLLOW`: what was opened has to be what `lstat` finds, before and after."""
    try:
        is_link = leads_elsewhere(os.lstat(path))
    except FileNotFoundError:
        is_link = False
    if not is_link:
        fd = os.open(path, flags, mode)
        if os.path.samestat(os.fstat(fd), os.lstat(path)):
            return fd
        os.close(fd)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))


if sys.platform == "win32":
    import threading

    _PLACE = threading.Lock()  # one for all: a descriptor has one place, whichever thread moves it

    @contextmanager
    def _at(fd: int, offset: int) -> Iterator[None]:
        """The place in a file, which is afterwards where it was."""
        with _PLACE:
            before = os.lseek(fd, 0, os.SEEK_CUR)
            os.lseek(fd, offset, os.SEEK_SET)
            try:
                yield
            finally:
                os.lseek(fd, before, os.SEEK_SET)

    def read_at(fd: int, length: int, offset: int) -> bytes:
        """Bytes from a place in a file, as `os.pread`."""
        with _at(fd, offset):
            return os.read(fd, length)

    def write_at(fd: int, data: bytes, offset: int) -> int:
        """Bytes to a place in a file, as `os.pwrite`."""
        with _at(fd, offset):
            return os.write(fd, data)
else:
    read_at, write_at = os.pread, os.pwrite


# --- stable storage ---------------------------------------------------------------------------------------------------


def sync_data(fd: int) -> None:
    """A file's bytes and size are on stable storage."""
    if sys.platform == "darwin":
        _sync_full(fd)
    elif sys.platform == "win32":
        os.fsync(fd)  # FlushFileBuffers
    else:
        os.fdatasync(fd)


def sync_folder(fd: int) -> None:
    """The names in an open folder are on stable storage."""
    if sys.platform == "darwin":
        _sync_full(fd)
    else:
        os.fsync(fd)


def sync_directory(path: Path) -> None:
    """The names in a folder are on stable storage. Windows opens no folder: there NTFS's own log has to do."""
    if sys.platform == "win32":
        return
    fd = os.open(path, os.O_RDONLY | CLOSE_ON_EXEC)
    try:
        sync_folder(fd)
    finally:
        os.close(fd)


if sys.platform == "darwin":
    import fcntl

    def _sync_full(fd: int) -> None:
        """Out of the drive's cache as well, where `fsync` of macOS leaves it; some network drives know no more."""
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        except OSError as e:
            if e.errno not in (errno.ENOTSUP, errno.ENOTTY, errno.EINVAL):
                raise
            os.fsync(fd)


# --- names ------------------------------------------------------------------------------------------------------------

NO_LINKS: Final = (
    *(errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK),
    *((errno.EINVAL,) if sys.platform == "win32" else ()),
)
"""What a file system says that has no hard links, or no more of them for this file."""
HAS_LONG_PATHS: Final = sys.platform != "win32"
"""Whether a path may have more than 260 characters: on Windows only where somebody has allowed it."""
RENAMES_OPEN: Final = sys.platform != "win32"
"""Whether a file can be renamed or removed while somebody has it open, or a folder in which it stands."""
_TRIES, _PAUSE_SECONDS = 40, 0.025  # a scanner for viruses, or an indexer, has a new file open for a moment


def replace(old: str | Path, new: str | Path) -> None:
    """Give a file or folder a name, in the place of the file that has it. Windows refuses while somebody has one of the
    two open: for a second that is tried again.
    """
    if sys.platform == "win32":
        for _ in range(_TRIES):
            try:
                return os.replace(old, new)
            except PermissionError:
                time.sleep(_PAUSE_SECONDS)
        os.replace(old, new)
    else:
        os.rename(old, new)


# --- whose it is ------------------------------------------------------------------------------------------------------

HAS_MODES: Final = sys.platform != "win32"
"""Whether the bits of a mode say who may read and write: Windows has lists of rights, which a folder passes on."""


def user_id() -> int | None:
    """Whose process this is; None where users have no numbers."""
    if sys.platform == "win32":
        return None
    else:
        return os.geteuid()


def set_mode(fd: int, mode: int) -> None:
    """Who may read and write an open file; nothing where modes don't say so."""
    if sys.platform != "win32":
        os.fchmod(fd, mode)


# --- locks ------------------------------------------------------------------------------------------------------------

BUSY: Final = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
"""What `lock_now` says where another opening of the file holds it."""
_FOLDER_LOCK = ".lock"
_STEP_SECONDS = 0.01

if sys.platform == "win32":
    import msvcrt

    _LOCKED_BYTE = 1 << 30  # far behind the text, which others must be able to read

    def lock_now(fd: int) -> None:
        """Hold the lock of an open file, which goes with its descriptor; OSError, one of `BUSY`, if it is taken."""
        with _at(fd, _LOCKED_BYTE):
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)

    def lock(fd: int) -> None:
        """The same, however long it takes."""
        while True:
            try:
                return lock_now(fd)
            except OSError as e:
                if e.errno not in BUSY:
                    raise
            time.sleep(_STEP_SECONDS)

    def unlock(fd: int) -> None:
        """Let the next one in."""
        with _at(fd, _LOCKED_BYTE):
            msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

    def open_folder_lock(folder: str | Path) -> int:
        """A descriptor to lock a folder with: Windows opens none, so that a file in it stands for it."""
        return os.open(os.path.join(folder, _FOLDER_LOCK), os.O_RDWR | os.O_CREAT | CLOSE_ON_EXEC, 0o600)
else:
    import fcntl

    def lock_now(fd: int) -> None:
        """Hold the lock of an open file, which goes with its descriptor; OSError, one of `BUSY`, if it is taken."""
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def lock(fd: int) -> None:
        """The same, however long it takes."""
        fcntl.flock(fd, fcntl.LOCK_EX)

    def unlock(fd: int) -> None:
        """Let the next one in."""
        fcntl.flock(fd, fcntl.LOCK_UN)

    def open_folder_lock(folder: str | Path) -> int:
        """A descriptor to lock a folder with."""
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | CLOSE_ON_EXEC)


def try_lock(fd: int) -> bool:
    """Take the lock of an open file, unless another opening holds it: whether it is ours now."""
    try:
        lock_now(fd)
    except OSError as e:
        if e.errno in BUSY:
            return False
        raise
    return True


# --- processes --------------------------------------------------------------------------------------------------------

if sys.platform == "win32":
    STOP_SIGNALS: tuple[signal.Signals, ...] = (signal.SIGTERM,)
    RELOAD_SIGNAL: signal.Signals | None = None
else:
    STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
    RELOAD_SIGNAL = signal.SIGHUP
"""What tells a process to end, besides Ctrl-C; and what tells a server to read its configuration again."""


def end_group(pid: int, *, at_once: bool) -> bool:
    """Tell a group of processes to end, or end it; False when nothing is left of it."""
    if sys.platform == "win32":
        raise OSError(errno.ENOSYS, "Windows has no groups of processes")
    else:
        try:
            os.killpg(pid, signal.SIGKILL if at_once else signal.SIGTERM)
        except (ProcessLookupError, PermissionError):
            return False
        return True


NO_AGENT: Final = "which has no bash and no groups of processes"
NO_SIGNALS: Final = "whose event loops hear no signals, so that nothing could tell it to end in order"
NO_PLUGIN: Final = "whose shells don't read the commands that clients are given"


def needs_unix(what: str, why: str) -> None:
    """Raise `BadSetting` on Windows, for what can't be done there."""
    if sys.platform == "win32":
        from perdure.errors import BadSetting

        raise BadSetting(f"{what}: not on Windows, {why}; use Linux, macOS or WSL")
