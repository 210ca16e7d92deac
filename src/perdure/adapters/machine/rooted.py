"""Files below one directory and nothing outside it: what memory, notes and checkpoints stand on (SEC-2, REL-7)."""

from __future__ import annotations

import errno
import functools
import os
import platform
import secrets
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from perdure.adapters.journal.append_file import BUSY, lock_now
from perdure.adapters.journal.disk import DISK, make_private
from perdure.errors import FileMissing, FileRefused, FileTooLarge, FolderBusy, NameTaken, NotPlain
from perdure.memory.places import MEMORY_NAMES, NameRules, name_for_people, parts_of, refusal


@dataclass(frozen=True, slots=True)
class PlainFile:
    """A regular file below the root. `version` changes whenever its content may have."""

    name: str
    bytes: int
    mtime_ns: int
    version: tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class PlainListing:
    """All files in order of their names; `refused` are others with the reason; `is_cut`: there were more."""

    entries: tuple[PlainFile, ...]
    refused: tuple[tuple[str, str], ...] = ()
    is_cut: bool = False


def not_plain(about: os.stat_result) -> str | None:
    if stat.S_ISLNK(about.st_mode):
        return "is a symbolic link, and links aren't followed"
    if stat.S_ISDIR(about.st_mode):
        return "is a folder"
    if not stat.S_ISREG(about.st_mode):
        return "is not a regular file"
    if about.st_nlink > 1:  # none at all: replaced since it was opened, and still what it was
        return "has another name elsewhere (a hard link), so it may be a file of another place"
    return None


def entry(name: str, about: os.stat_result) -> PlainFile:
    version = (about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    return PlainFile(name, about.st_size, about.st_mtime_ns, version)


_WORDS: dict[int, tuple[Callable[[str], FileRefused], str]] = {
    errno.ENOENT: (FileMissing, "there is no such file"),
    errno.EEXIST: (NameTaken, "there is such a file already"),
    errno.ELOOP: (NotPlain, "a symbolic link is on the way, and links aren't followed"),
    errno.EXDEV: (NotPlain, "it lies outside the folder"),
    errno.ENOTDIR: (NotPlain, "a part of its name is no folder"),
    errno.EISDIR: (NotPlain, "is a folder"),
    errno.ENXIO: (NotPlain, "is not a regular file"),
}


@contextmanager
def disk_errors(name: str, where: str = "") -> Iterator[None]:
    """What the disk says as one line of the one family of errors."""
    try:
        yield
    except OSError as e:
        kind, words = _WORDS.get(e.errno or 0, (FileRefused, (e.strerror or "it can't be used").lower()))
        raise kind(f"{where or name_for_people(name)}: {words}") from e


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


class OsCalls:
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

    def set_time(self, dir_fd: int, part: str, mtime_ns: int) -> None:
        os.utime(part, ns=(mtime_ns, mtime_ns), dir_fd=dir_fd, follow_symlinks=False)

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


CALLS = OsCalls()


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


_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_CHUNK = 1 << 20
_DRAFT = ".draft-"
_LOCK_STEP_SECONDS = 0.002
_LINK_TRIES = 3  # without an exclusive rename a new file has two names for a moment


class RootedFolder:
    """An open root. Close it, or use it as a context; it may be used by one thread at a time."""

    def __init__(self, fd: int, path: str, rules: NameRules, calls: OsCalls) -> None:
        self.path = path
        self._fd, self._rules, self._calls = fd, rules, calls

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        create: bool = False,
        is_theirs: bool = False,
        rules: NameRules = MEMORY_NAMES,
        calls: OsCalls = CALLS,
    ) -> RootedFolder:
        """The folder as a root; `create` makes it, 0700. `FileMissing` when it isn't there.

        It has to be ours (or root's), and not writable by everybody: who may rename in it owns what it holds. Whoever
        only reads says `is_theirs`.
        """
        path = os.fspath(folder)
        with disk_errors("the folder", path):
            if create:
                make_private(Path(folder))
            fd = calls.open_root(path)
            try:
                if not is_theirs and (why := _ruled_by_others(calls.fstat(fd))) is not None:
                    raise NotPlain(f"{path}: {why}")
            except BaseException:
                calls.close(fd)
                raise
        return cls(fd, path, rules, calls)

    def close(self) -> None:
        if self._fd >= 0:
            self._calls.close(self._fd)
            self._fd = -1

    def __enter__(self) -> RootedFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- single files -----------------------------------------------------------------------------------------------

    def read(self, name: str, *, limit_bytes: int, offset: int = 0, is_cut: bool = False) -> bytes:
        """The bytes of a file from `offset`. Where there are more than the limit: `FileTooLarge`, or `is_cut` to it."""
        parts = parts_of(name, self._rules)
        with disk_errors(name), self._opened(parts, _READ) as fd:
            about = self._plain(fd, name)
            if about.st_size - offset > limit_bytes and not is_cut:
                raise FileTooLarge(
                    f"{name_for_people(name)}: has {about.st_size:,} bytes, at most {limit_bytes:,} are read"
                )
            data, most = b"", limit_bytes + 1
            while part := self._calls.read(fd, min(_CHUNK, most - len(data)), offset + len(data)):
                data += part
        if len(data) > limit_bytes and not is_cut:
            raise FileTooLarge(f"{name_for_people(name)}: has more than {limit_bytes:,} bytes")
        return data[:limit_bytes]

    def stat(self, name: str) -> PlainFile | None:
        """What is known of a file without reading it; None when there is none."""
        *folders, leaf = parts_of(name, self._rules)
        try:
            with disk_errors(name), self._folder(folders) as parent:
                about = self._calls.stat(parent, leaf)
        except FileMissing:
            return None
        why = not_plain(about)
        if why is not None:
            raise NotPlain(f"{name_for_people(name)}: {why}")
        return entry(name, about)

    def write(
        self, name: str, data: bytes, *, is_new: bool = False, is_durable: bool = True, mtime_ns: int | None = None
    ) -> None:
        """Replace a file in one step, or make it, with its folders. `is_new`: `NameTaken` when there is one.

        Whoever reads at any moment, and after a crash, finds the old bytes or the new, whole. On return they are on
        stable storage, unless `is_durable` is off: then they survive the process, and not a power cut. `mtime_ns`: when
        it is said to have been written, if not now.
        """
        *folders, leaf = parts_of(name, self._rules)
        with disk_errors(name), self._folder(folders, make=True) as parent:
            self._replaceable(parent, leaf, name, is_new=is_new)
            draft = self._draft(parent, data, is_durable=is_durable)
            try:
                if mtime_ns is not None:
                    self._calls.set_time(parent, draft, mtime_ns)
                if is_new:
                    self._calls.rename_new(parent, draft, parent, leaf)
                else:
                    self._calls.rename(parent, draft, parent, leaf)
            except BaseException:
                self._discard(parent, draft)
                raise
            if is_durable:
                self._calls.sync_folder(parent)

    def append(self, name: str, data: bytes, *, is_durable: bool = True) -> None:
        """Add to the end of a file, in one write where the disk takes it so; on stable storage on return."""
        *folders, leaf = parts_of(name, self._rules)
        with disk_errors(name), self._folder(folders, make=True) as parent:
            fd = self._calls.open(parent, leaf, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0))
            try:
                about = self._plain(fd, name)
                if about.st_nlink == 0:
                    raise FileMissing(f"{name_for_people(name)}: was removed at this moment: try again")
                is_first = about.st_size == 0
                self._write_all(fd, data)
                if is_durable:
                    self._calls.sync(fd)
            finally:
                self._calls.close(fd)
            if is_first and is_durable:
                self._calls.sync_folder(parent)

    def remove(self, name: str, *, is_durable: bool = True) -> None:
        """Remove a file; `FileMissing` when there is none."""
        *folders, leaf = parts_of(name, self._rules)
        with disk_errors(name), self._folder(folders) as parent:
            why = not_plain(self._calls.stat(parent, leaf))
            if why is not None:
                raise NotPlain(f"{name_for_people(name)}: {why}")
            self._calls.unlink(parent, leaf)
            if is_durable:
                self._calls.sync_folder(parent)

    def rename(self, old: str, new: str, *, is_durable: bool = True) -> None:
        """Give a file another name; `NameTaken` when that is in use, whoever takes it at that moment."""
        (*old_folders, old_leaf), (*new_folders, new_leaf) = parts_of(old, self._rules), parts_of(new, self._rules)
        with disk_errors(old), self._folder(old_folders) as source:
            why = not_plain(self._calls.stat(source, old_leaf))
            if why is not None:
                raise NotPlain(f"{name_for_people(old)}: {why}")
            with disk_errors(new), self._folder(new_folders, make=True) as target:
                self._calls.rename_new(source, old_leaf, target, new_leaf)
                if is_durable:
                    self._calls.sync_folder(target)
                    self._calls.sync_folder(source)

    def remove_folder(self, name: str) -> None:
        """Remove an empty folder."""
        *folders, leaf = parts_of(name, self._rules)
        with disk_errors(name), self._folder(folders) as parent:
            self._calls.rmdir(parent, leaf)
            self._calls.sync_folder(parent)

    # --- many files -------------------------------------------------------------------------------------------------

    def listing(self, *, under: str = "", limit: int = 20_000, depth: int = 20) -> PlainListing:
        """Every regular file with one name below a folder; links aren't followed. At most `limit` files.

        Hidden ones are our own, and are listed only `under` a folder that is named.
        """
        found: list[PlainFile] = []
        refused: list[tuple[str, str]] = []
        folders: list[tuple[str, ...]] = [parts_of(under, self._rules) if under else ()]
        while folders and len(found) <= limit:
            folder = folders.pop()
            try:
                with disk_errors("/".join(folder) or "."), self._folder(folder) as fd:
                    inside = self._scanned(fd, folder, found, refused, has_hidden=bool(under))
                    folders += inside if len(folder) < depth else []
            except FileMissing:
                continue
            except FileRefused as e:
                refused.append(("/".join(folder), str(e)))
        found.sort(key=lambda entry: entry.name)
        return PlainListing(tuple(found[:limit]), tuple(sorted(refused)), len(found) > limit)

    def _scanned(
        self,
        fd: int,
        folder: tuple[str, ...],
        found: list[PlainFile],
        refused: list[tuple[str, str]],
        *,
        has_hidden: bool,
    ) -> list[tuple[str, ...]]:
        inside = []
        for part, about in self._calls.scan(fd):
            if part.startswith(".") and (not has_hidden or part.startswith(_DRAFT)):
                continue
            parts = (*folder, part)
            name = "/".join(parts)
            if stat.S_ISDIR(about.st_mode) and refusal(name, self._rules) is None:
                inside.append(parts)
                continue
            why = refusal(name, self._rules) or not_plain(about)
            if why is None:
                found.append(entry(name, about))
            else:
                refused.append((name_for_people(name), why))
        return inside

    # --- one at a time ----------------------------------------------------------------------------------------------

    @contextmanager
    def lock(self, name: str, *, seconds: float) -> Iterator[None]:
        """Hold the lock that a file stands for; it goes with the process, however that ends.

        `FolderBusy` after so many seconds. Every opening is a holder of its own, threads of one process too.
        """
        *folders, leaf = parts_of(name, self._rules)
        fd = self._locked(folders, leaf, name, time.monotonic() + seconds)
        try:
            yield
        finally:
            self._calls.close(fd)

    def _locked(self, folders: list[str], leaf: str, name: str, until: float) -> int:
        while True:
            with disk_errors(name), self._folder(folders, make=True) as parent:
                fd = self._calls.open(parent, leaf, os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0))
                try:
                    about = self._plain(fd, name)
                    if _is_taken(fd) and _same(about, self._calls, parent, leaf):
                        return fd
                except BaseException:
                    self._calls.close(fd)
                    raise
                self._calls.close(fd)
            if time.monotonic() > until:
                raise FolderBusy(f"{self.path}: another process writes there: try again, or end it")
            time.sleep(_LOCK_STEP_SECONDS * (0.5 + secrets.randbelow(1_000) / 1_000))

    # --- how --------------------------------------------------------------------------------------------------------

    @contextmanager
    def _folder(self, parts: tuple[str, ...] | list[str], *, make: bool = False) -> Iterator[int]:
        """A descriptor of a folder below the root."""
        fd = self._reach(tuple(parts), make=make)
        try:
            yield fd
        finally:
            if fd != self._fd:
                self._calls.close(fd)

    def _reach(self, parts: tuple[str, ...], *, make: bool) -> int:
        if not parts:
            return self._fd
        try:
            fd = self._calls.open_beneath(self._fd, "/".join(parts), _FOLDER)
            if fd is not None:
                return fd
        except OSError as e:  # a path may be too long for the kernel where each part of it isn't
            if e.errno != errno.ENAMETOOLONG and not (make and e.errno == errno.ENOENT):
                raise
        at = self._fd
        for part in parts:
            below = self._step(at, part, make=make)
            if at != self._fd:
                self._calls.close(at)
            at = below
        return at

    def _step(self, at: int, part: str, *, make: bool) -> int:
        """From a folder into one that stands in it, made where it is missing; the way so far is closed on errors."""
        try:
            try:
                return self._calls.open(at, part, _FOLDER)
            except FileNotFoundError:
                if not make:
                    raise
            try:
                self._calls.mkdir(at, part)
                self._calls.sync_folder(at)
            except FileExistsError:
                pass  # somebody else made it
            return self._calls.open(at, part, _FOLDER)
        except BaseException:
            if at != self._fd:
                self._calls.close(at)
            raise

    @contextmanager
    def _opened(self, parts: tuple[str, ...], flags: int) -> Iterator[int]:
        fd = self._calls.open_beneath(self._fd, "/".join(parts), flags)
        if fd is None:
            with self._folder(parts[:-1]) as parent:
                fd = self._calls.open(parent, parts[-1], flags)
        try:
            yield fd
        finally:
            self._calls.close(fd)

    def _plain(self, fd: int, name: str) -> os.stat_result:
        for attempt in range(_LINK_TRIES):
            about = self._calls.fstat(fd)
            why = not_plain(about)
            if why is None:
                return about
            if about.st_nlink != 2 or attempt + 1 == _LINK_TRIES:
                break
            time.sleep(_LOCK_STEP_SECONDS)
        raise NotPlain(f"{name_for_people(name)}: {why}")

    def _replaceable(self, parent: int, leaf: str, name: str, *, is_new: bool) -> None:
        try:
            why = not_plain(self._calls.stat(parent, leaf))
        except FileNotFoundError:
            return
        if why is not None:
            raise NotPlain(f"{name_for_people(name)}: {why}")
        if is_new:
            raise NameTaken(f"{name_for_people(name)}: there is such a file already")

    def _draft(self, parent: int, data: bytes, *, is_durable: bool) -> str:
        """A new private file with these bytes beside its later name; nothing is left of it when that fails."""
        draft = f"{_DRAFT}{secrets.token_hex(8)}"
        fd = self._calls.open(parent, draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            try:
                self._calls.make_private(fd)
                self._write_all(fd, data)
                if is_durable:
                    self._calls.sync(fd)
            finally:
                self._calls.close(fd)
        except BaseException:
            self._discard(parent, draft)
            raise
        return draft

    def _write_all(self, fd: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            taken = self._calls.write(fd, rest)
            if taken <= 0:
                raise OSError(errno.EIO, "the disk took no bytes")
            rest = rest[taken:]

    def _discard(self, parent: int, draft: str) -> None:
        try:
            self._calls.unlink(parent, draft)
        except OSError:
            pass  # a hidden draft, named as such


def _ruled_by_others(about: os.stat_result) -> str | None:
    user = os.geteuid() if hasattr(os, "geteuid") else about.st_uid
    if user not in (0, about.st_uid) and about.st_uid != 0:
        return "belongs to another user: use a folder of your own"
    if about.st_mode & stat.S_IWOTH:
        return "everybody may write there: `chmod o-w` it, or use another folder"
    return None


def _is_taken(fd: int) -> bool:
    try:
        lock_now(fd)
    except OSError as e:
        if e.errno in BUSY:
            return False
        raise
    return True


def _same(about: os.stat_result, calls: OsCalls, parent: int, leaf: str) -> bool:
    """Whether the locked file is still the one that the name means."""
    try:
        there = calls.stat(parent, leaf)
    except FileNotFoundError:
        return False
    return (about.st_dev, about.st_ino) == (there.st_dev, there.st_ino)
