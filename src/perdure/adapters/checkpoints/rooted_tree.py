"""The files that are rewound, reached from an open root and never through a link: states, moves, folders (SEC-2).

Links themselves are things like any other here: they are kept, moved and made, and never followed.
"""

from __future__ import annotations

import errno
import os
import stat

from perdure.adapters.checkpoints.objects import name_of
from perdure.adapters.machine.folder_calls import OsCalls
from perdure.adapters.machine.rooted import RootedFolder
from perdure.adapters.machine.system import AT_ONCE, ONLY_FOLDER, set_mode
from perdure.memory.checkpoints import NONE, PathState
from perdure.memory.places import DISK, parts_of

_READ = os.O_RDONLY | AT_ONCE
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV)
_NOT_READABLE = (errno.EACCES, errno.EPERM, errno.EIO, errno.EBUSY, errno.ESTALE, errno.EOVERFLOW, errno.ETXTBSY)
_CHUNK = 1 << 20


class TreeOsCalls(OsCalls):
    """What a tree needs beyond plain files."""

    def readlink(self, dir_fd: int, part: str) -> str:
        return os.readlink(part, dir_fd=dir_fd)

    def symlink(self, target: str, dir_fd: int, part: str) -> None:
        os.symlink(target, part, dir_fd=dir_fd)

    def chmod(self, fd: int, mode: int) -> None:
        set_mode(fd, mode)


TREE_OS_CALLS = TreeOsCalls()


class RootedTree(RootedFolder):
    """A root whose files, links and folders can be looked at, moved and made. Failures are `OSError`."""

    _calls: TreeOsCalls

    def state(self, name: str, *, limit_bytes: int) -> tuple[PathState, bytes | None]:
        """What stands there, and its bytes when it is a file of at most so many that may be read."""
        *folders, leaf = parts_of(name, self._rules)
        try:
            with self._folder(folders) as parent:
                return self._state(parent, leaf, limit_bytes)
        except OSError as e:
            if e.errno in _NOT_THERE:
                return NONE, None
            raise

    def _state(self, parent: int, leaf: str, limit_bytes: int) -> tuple[PathState, bytes | None]:
        about = self._calls.stat(parent, leaf)
        mode = stat.S_IMODE(about.st_mode)
        if _is_other_case(parent, leaf, about):
            return NONE, None
        if stat.S_ISLNK(about.st_mode):
            return PathState("link", target=self._calls.readlink(parent, leaf)), None
        if stat.S_ISDIR(about.st_mode):
            return PathState("folder", mode=mode), None
        if not stat.S_ISREG(about.st_mode):
            return PathState("other"), None
        data = self._bytes(parent, leaf, limit_bytes) if about.st_size <= limit_bytes else None
        if data is None:
            return PathState("file", bytes=about.st_size, mode=mode, stamp=about.st_mtime_ns), None
        return PathState("file", name_of(data), len(data), mode), data

    def _bytes(self, parent: int, leaf: str, limit_bytes: int) -> bytes | None:
        """All of a file; None when it is larger, or may not be read."""
        try:
            fd = self._calls.open(parent, leaf, _READ)
        except OSError as e:
            if e.errno in _NOT_READABLE:
                return None
            raise
        try:
            if not stat.S_ISREG(self._calls.fstat(fd).st_mode):
                raise OSError(errno.ENOENT, "it was replaced just now", leaf)
            parts, at = [], 0
            while part := self._calls.read(fd, _CHUNK, at):
                at += len(part)
                if at > limit_bytes:
                    return None
                parts.append(part)
        except OSError as e:
            if e.errno in _NOT_READABLE:
                return None
            raise
        finally:
            self._calls.close(fd)
        return b"".join(parts)

    def listed(self, folder: str) -> list[tuple[str, os.stat_result | None]]:
        """The names in a folder of the tree ("": the root) with what they are; None where that can't be known."""
        found: list[tuple[str, os.stat_result | None]] = []
        with self._folder(parts_of(folder, self._rules) if folder else ()) as fd, os.scandir(fd) as entries:
            for entry in entries:
                try:
                    found.append((entry.name, entry.stat(follow_symlinks=False)))
                except FileNotFoundError:
                    continue
                except OSError:
                    found.append((entry.name, None))
        return found

    def place(self, name: str, state: PathState, data: bytes | None) -> None:
        """Make a new file or link with its mode, durably but for its name; the folder is there."""
        *folders, leaf = parts_of(name, self._rules)
        with self._folder(folders) as parent:
            if state.kind == "link":
                self._calls.symlink(state.target, parent, leaf)
                return
            fd = self._calls.open(parent, leaf, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                self._write_all(fd, data or b"")
                self._calls.chmod(fd, state.mode)
                self._calls.sync(fd)
            finally:
                self._calls.close(fd)

    def move(self, old: str, new: str) -> None:
        """A rename that never overwrites, on stable storage on return; `FileExistsError` when the name is taken."""
        (*old_folders, old_leaf), (*new_folders, new_leaf) = parts_of(old, self._rules), parts_of(new, self._rules)
        with self._folder(old_folders) as source, self._folder(new_folders) as target:
            self._calls.rename_new(source, old_leaf, target, new_leaf)
            self._calls.sync_folder(target)
            self._calls.sync_folder(source)

    def make_folder(self, name: str, mode: int) -> None:
        """A folder in one that is there; nothing when it stands already."""
        *folders, leaf = parts_of(name, self._rules)
        with self._folder(folders) as parent:
            try:
                self._calls.mkdir(parent, leaf)
            except FileExistsError:
                if not stat.S_ISDIR(self._calls.stat(parent, leaf).st_mode):
                    raise
                return
            fd = self._calls.open(parent, leaf, os.O_RDONLY | ONLY_FOLDER)
            try:
                self._calls.chmod(fd, mode)
            finally:
                self._calls.close(fd)
            self._calls.sync_folder(parent)

    def take_folder(self, name: str) -> bool:
        """Remove an empty folder; False when something is in it."""
        *folders, leaf = parts_of(name, self._rules)
        try:
            with self._folder(folders) as parent:
                self._calls.rmdir(parent, leaf)
                self._calls.sync_folder(parent)
        except OSError as e:
            if e.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                return False
            if e.errno not in _NOT_THERE:
                raise
        return True

    def drop(self, name: str) -> None:
        """Remove a file or link of ours, if it is there."""
        *folders, leaf = parts_of(name, self._rules)
        try:
            with self._folder(folders) as parent:
                self._calls.unlink(parent, leaf)
        except FileNotFoundError:
            pass

    def has(self, name: str) -> bool:
        """Whether anything stands there."""
        *folders, leaf = parts_of(name, self._rules)
        try:
            with self._folder(folders) as parent:
                self._calls.stat(parent, leaf)
        except OSError as e:
            if e.errno in _NOT_THERE:
                return False
            raise
        return True


def open_rooted_tree(path: str, calls: TreeOsCalls = TREE_OS_CALLS) -> RootedTree:
    """The folder as a root; raises `OSError`."""
    fd = calls.open_root(path)
    return RootedTree(fd, path, DISK, calls)


def _is_other_case(parent: int, leaf: str, about: os.stat_result) -> bool:
    """Whether the file system only took this name for one that is spelled in another case (CKP-3: case changes)."""
    swapped = leaf.swapcase()
    if swapped == leaf or (about.st_nlink > 1 and not stat.S_ISDIR(about.st_mode)):
        return False
    try:
        twin = os.stat(swapped, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return False
    if (twin.st_dev, twin.st_ino) != (about.st_dev, about.st_ino):
        return False
    with os.scandir(parent) as entries:
        return all(entry.name != leaf for entry in entries)
