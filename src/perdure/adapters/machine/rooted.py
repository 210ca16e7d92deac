"""Files below one directory and nothing outside it: what memory, notes and checkpoints stand on (SEC-2, REL-7)."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from perdure.adapters.journal.disk import make_private
from perdure.adapters.machine.folder_calls import CALLS, OsCalls
from perdure.adapters.machine.system import AT_ONCE, ONLY_FOLDER, RENAMES_OPEN, open_folder_lock, try_lock, user_id
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


def not_plain(about: os.stat_result, *, may_be_shared: bool = False) -> str | None:
    """Why something is no file to read or replace. One that `may_be_shared` has several names: no byte of it changes
    where a file is always replaced, as in copies of which snapshots are taken by hard links.
    """
    if stat.S_ISLNK(about.st_mode):
        return "is a symbolic link, and links aren't followed"
    if stat.S_ISDIR(about.st_mode):
        return "is a folder"
    if not stat.S_ISREG(about.st_mode):
        return "is not a regular file"
    if about.st_nlink > 1 and not may_be_shared:  # none at all: replaced since it was opened, and still what it was
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


def why_refused(name: str, error: FileRefused) -> str:
    """What an error says of a file, without the name: whoever knows the whole path says that instead."""
    return str(error).removeprefix(f"{name_for_people(name)}: ")


def takes_nothing(error: BaseException) -> bool:
    """Whether a disk takes nothing more: it has no room, gives none to this user, or can only be read."""
    cause = error.__cause__ if isinstance(error, FileRefused) else error
    return isinstance(cause, OSError) and cause.errno in _NO_ROOM


_NO_ROOM = (errno.ENOSPC, errno.EROFS, getattr(errno, "EDQUOT", errno.ENOSPC))
_READ = os.O_RDONLY | AT_ONCE
_FOLDER = os.O_RDONLY | ONLY_FOLDER
_CHUNK = 1 << 20
_DRAFT = ".draft-"
_DRAFT_NAME = re.compile(rf"{re.escape(_DRAFT)}[0-9a-f]{{16}}")
_LOCK_STEP_SECONDS = 0.002
_LINK_TRIES = 3  # without an exclusive rename a new file has two names for a moment


class RootedFolder:
    """An open root. Close it, or use it as a context; it may be used by one thread at a time."""

    def __init__(self, fd: int, path: str, rules: NameRules, calls: OsCalls, *, may_be_shared: bool = False) -> None:
        self.path = path
        self._fd, self._rules, self._calls = fd, rules, calls
        self._may_be_shared = may_be_shared

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        create: bool = False,
        is_theirs: bool = False,
        may_be_shared: bool = False,
        rules: NameRules = MEMORY_NAMES,
        calls: OsCalls = CALLS,
    ) -> RootedFolder:
        """The folder as a root; `create` makes it, 0700. `FileMissing` when it isn't there.

        It has to be ours (or root's), and not writable by everybody: who may rename in it owns what it holds. Whoever
        only reads says `is_theirs`. `may_be_shared`: files may have other names elsewhere, for whoever appends to none.
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
        return cls(fd, path, rules, calls, may_be_shared=may_be_shared)

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
            found, most = bytearray(), limit_bytes + 1
            while part := self._calls.read(fd, min(_CHUNK, most - len(found)), offset + len(found)):
                found += part
        data = bytes(found)
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
        why = not_plain(about, may_be_shared=self._may_be_shared)
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
            with self._draft(parent, data, is_durable=is_durable) as draft:
                if mtime_ns is not None:
                    self._calls.set_time(parent, draft, mtime_ns)
                if is_new:
                    self._calls.rename_new(parent, draft, parent, leaf)
                else:
                    self._calls.rename(parent, draft, parent, leaf)
            if is_durable:
                self._calls.sync_folder(parent)

    def append(self, name: str, data: bytes, *, is_durable: bool = True) -> None:
        """Add to the end of a file, in one write where the disk takes it so; on stable storage on return."""
        *folders, leaf = parts_of(name, self._rules)
        with disk_errors(name), self._folder(folders, make=True) as parent:
            fd = self._calls.open(parent, leaf, os.O_WRONLY | os.O_APPEND | os.O_CREAT | AT_ONCE)
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

    def discard_drafts(self, under: str) -> None:
        """Remove the drafts below a folder that writers left which were killed.

        One that somebody holds, who still writes it, stays, and so does what can't be looked at.
        """
        folders: list[tuple[str, ...]] = [parts_of(under, self._rules)]
        while folders:
            folder = folders.pop()
            with suppress(OSError), self._folder(folder) as fd:
                for part, about in list(self._calls.scan(fd)):
                    if stat.S_ISDIR(about.st_mode):
                        folders.append((*folder, part))
                    elif stat.S_ISREG(about.st_mode) and _DRAFT_NAME.fullmatch(part):
                        with suppress(OSError):
                            self._discard_left(fd, part)

    def _discard_left(self, parent: int, draft: str) -> None:
        """Remove a draft, unless somebody holds it."""
        fd = self._calls.open(parent, draft, os.O_RDWR | AT_ONCE)
        try:
            is_left = try_lock(fd) and _same(self._calls.fstat(fd), self._calls, parent, draft)
            if is_left and RENAMES_OPEN:
                self._calls.unlink(parent, draft)  # while it is held, so that nobody begins to write it
        finally:
            self._calls.close(fd)
        if is_left and not RENAMES_OPEN:
            self._calls.unlink(parent, draft)

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

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Hold the folder itself, which leaves no file in it: `FolderBusy` at once while somebody else does.

        Gives whether it is held: there are network drives that know no locks.
        """
        try:
            fd = open_folder_lock(self.path)
        except OSError:
            yield False
            return
        try:
            try:
                is_held = try_lock(fd)
            except OSError:
                yield False
                return
            if not is_held:
                raise FolderBusy(f"{self.path}: another process writes there: try again, or end it")
            yield True
        finally:
            os.close(fd)

    def _locked(self, folders: list[str], leaf: str, name: str, until: float) -> int:
        while True:
            with disk_errors(name), self._folder(folders, make=True) as parent:
                fd = self._calls.open(parent, leaf, os.O_RDWR | os.O_CREAT | AT_ONCE)
                try:
                    about = self._plain(fd, name)
                    if try_lock(fd) and _same(about, self._calls, parent, leaf):
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
            why = not_plain(about, may_be_shared=self._may_be_shared)
            if why is None:
                return about
            if about.st_nlink != 2 or attempt + 1 == _LINK_TRIES:
                break
            time.sleep(_LOCK_STEP_SECONDS)
        raise NotPlain(f"{name_for_people(name)}: {why}")

    def _replaceable(self, parent: int, leaf: str, name: str, *, is_new: bool) -> None:
        try:
            why = not_plain(self._calls.stat(parent, leaf), may_be_shared=self._may_be_shared)
        except FileNotFoundError:
            return
        if why is not None:
            raise NotPlain(f"{name_for_people(name)}: {why}")
        if is_new:
            raise NameTaken(f"{name_for_people(name)}: there is such a file already")

    @contextmanager
    def _draft(self, parent: int, data: bytes, *, is_durable: bool) -> Iterator[str]:
        """A new private file with these bytes, to be given its name; nothing is left of it when that fails.

        It is held until then, where files can be renamed that are open: `discard_drafts` takes none that is.
        """
        draft, fd = self._new_draft(parent)
        is_open = True
        try:
            try:
                self._calls.make_private(fd)
                self._write_all(fd, data)
                if is_durable:
                    self._calls.sync(fd)
                if not RENAMES_OPEN:
                    is_open = False
                    self._calls.close(fd)
                yield draft
            finally:
                if is_open:
                    self._calls.close(fd)
        except BaseException:
            self._discard(parent, draft)
            raise

    def _new_draft(self, parent: int) -> tuple[str, int]:
        """An empty file with a name of its own, held where the drive knows locks."""
        while True:
            draft = f"{_DRAFT}{secrets.token_hex(8)}"
            fd = self._calls.open(parent, draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                try:
                    is_ours = try_lock(fd) and _same(self._calls.fstat(fd), self._calls, parent, draft)
                except OSError:
                    is_ours = True  # without locks nobody discards drafts
                if is_ours:
                    return draft, fd
            except BaseException:
                self._calls.close(fd)
                self._discard(parent, draft)
                raise
            self._calls.close(fd)  # somebody took it for one that was left, before it was held

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
    user = user_id()
    if user is None:
        return None  # the rights of a folder in the user's own are the user's
    if user not in (0, about.st_uid) and about.st_uid != 0:
        return "belongs to another user: use a folder of your own"
    if about.st_mode & stat.S_IWOTH:
        return "everybody may write there: `chmod o-w` it, or use another folder"
    return None


def _same(about: os.stat_result, calls: OsCalls, parent: int, leaf: str) -> bool:
    """Whether the locked file is still the one that the name means."""
    try:
        there = calls.stat(parent, leaf)
    except FileNotFoundError:
        return False
    return (about.st_dev, about.st_ino) == (there.st_dev, there.st_ino)
