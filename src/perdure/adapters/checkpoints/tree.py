"""The tree of a project as it is now, against what was last seen of it (CKP-2)."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Container, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

import msgspec
from pathspec import GitIgnoreSpec

from perdure.adapters.checkpoints.ignores import GIT, IGNORE_FILE, IgnoreRules
from perdure.adapters.checkpoints.log import escaped_name, unescaped_name
from perdure.adapters.checkpoints.objects import GitObjects
from perdure.adapters.checkpoints.rooted_tree import RootedTree
from perdure.adapters.machine.rooted import RootedFolder
from perdure.errors import FileRefused
from perdure.memory.checkpoints import NONE, MissedChange, PathChange, PathState, same
from perdure.memory.places import DISK, refusal

INDEX = "index.msgpack"
_LIMIT_BYTES = 500_000_000


class SavedIndex(msgspec.Struct, array_like=True):
    """The index as it stands on the disk. It can be lost: then everything is read once more."""

    root: str
    known: dict[str, KnownPath]
    unkept: dict[str, UnkeptPath]


def save_index(own: RootedFolder, tree: ProjectTree) -> None:
    """Survives the process, and not a power cut."""
    saved = SavedIndex(tree.files.path, tree.last_seen, tree.unkept)
    try:
        data = msgspec.msgpack.encode(saved)
    except UnicodeEncodeError:  # a name that isn't UTF-8 (CKP-7)
        known = {escaped_name(name): _with_target(known, escaped_name) for name, known in tree.last_seen.items()}
        unkept = {escaped_name(name): about for name, about in tree.unkept.items()}
        data = msgspec.msgpack.encode(SavedIndex(escaped_name(tree.files.path), known, unkept))
    own.write(INDEX, data, is_durable=False)


def load_index(own: RootedFolder, tree: ProjectTree, objects: GitObjects) -> None:
    """Take up what an earlier process knew; nothing when that can't be read, or is of another folder."""
    try:
        saved = msgspec.msgpack.decode(own.read(INDEX, limit_bytes=_LIMIT_BYTES), type=SavedIndex)
    except (FileRefused, msgspec.MsgspecError):
        return
    if unescaped_name(saved.root) != tree.files.path:
        return
    for known in saved.known.values():
        known.is_saved = known.is_saved and objects.has(known.state.blob)
    tree.last_seen = {unescaped_name(name): _with_target(known, unescaped_name) for name, known in saved.known.items()}
    tree.unkept = {unescaped_name(name): about for name, about in saved.unkept.items()}
    tree.is_taken_up = True


def _with_target(known: KnownPath, how: Callable[[str], str]) -> KnownPath:
    """Where a link leads is a name as well."""
    if not known.state.target:
        return known
    return replace(known, state=msgspec.structs.replace(known.state, target=how(known.state.target)))


IGNORED, CLOSED, FOLDER_MODE = "ignored by git", "a folder that can't be read", "the permissions of a folder"
REMOVED, CHANGED, MADE, UNSEEN = "removed", "changed", "made", "not looked into"
_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # of us, not of the folder
_MOST_MISSED = 200  # named for one call
_RACY_NS = 50_000_000  # a file that changed so shortly before it was read may have changed again in the same tick
Stamp = tuple[int, int, int, int, int]


class TooManyFiles(OSError):
    """The tree holds more files than are compared."""


@dataclass(slots=True)
class KnownPath:
    """What was last seen at a name. `seen_ns` is when; `is_saved`: its bytes are in the store."""

    stamp: Stamp
    seen_ns: int
    state: PathState
    is_saved: bool = False


@dataclass(slots=True)
class UnkeptPath:
    """Something that is left out, and why; without a reason it is ours, and nobody has to hear of it (CKP-7)."""

    why: str
    stamp: Stamp = (0, 0, 0, 0, 0)


@dataclass(slots=True)
class TreeChanges:
    """What differs from what was known, by name, what of it isn't kept, and the bytes of the files that were read."""

    changes: tuple[PathChange, ...] = ()
    missed: tuple[MissedChange, ...] = ()
    read: dict[str, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class ProjectTree:
    """The files of a project by name. `look` finds what changed; what it returns is known from then on."""

    files: RootedTree
    ignores: IgnoreRules
    limit_bytes: int
    most_files: int
    last_seen: dict[str, KnownPath] = field(default_factory=dict)
    unkept: dict[str, UnkeptPath] = field(default_factory=dict)  # what the last walk left out, files and whole folders
    has_looked: bool = False
    is_taken_up: bool = False  # what is known was known to an earlier process

    def changes(self) -> TreeChanges:
        """Walk the tree, and read what may have changed."""
        changes: list[PathChange] = []
        missed: list[MissedChange] = []
        read: dict[str, bytes] = {}
        seen: set[str] = set()
        before, self.unkept = self.unkept, {}
        is_first = not self.has_looked and not self.is_taken_up
        for name, about in self._walk():
            seen.add(name)
            old = self.last_seen.get(name)
            now, stamp = time.time_ns(), _stamp(about)
            if old is not None and old.stamp == stamp and (about.st_ctime_ns < old.seen_ns - _RACY_NS):
                continue
            state, data = self.files.state(name, limit_bytes=self.limit_bytes)
            if state.kind in ("none", "other"):
                seen.discard(name)
                continue
            was_saved = old is not None and old.is_saved and old.state.blob == state.blob
            self.last_seen[name] = KnownPath(stamp, now, state, was_saved)
            if data is not None and not was_saved:
                read[name] = data
            if old is None or not same(old.state, state):
                is_sure = old is not None or not _is_among(name, before)  # else it stood there, and was ignored
                changes.append(PathChange(name, old.state if old else NONE, state, is_sure))
            elif old.state.mode != state.mode:  # a folder's, which no rewind puts back
                missed.append(MissedChange(name, FOLDER_MODE, CHANGED))
        for name in [name for name in self.last_seen if name not in seen]:
            gone = self.last_seen.pop(name)
            if not _is_among(name, self.unkept):  # else it is ignored from now on
                changes.append(PathChange(name, gone.state, NONE))
        changes.sort(key=lambda change: change.path)
        missed += [] if is_first else self._missed(before)
        self.has_looked = True
        return TreeChanges(tuple(changes), _few(sorted(missed, key=lambda one: one.path)), read)

    def _missed(self, before: dict[str, UnkeptPath]) -> Iterator[MissedChange]:
        """What became of all that isn't kept."""
        for name, old in before.items():
            if name not in self.unkept and name not in self.last_seen and not _is_among(name, self.unkept) and old.why:
                yield MissedChange(name, old.why, REMOVED)
        for name, new in self.unkept.items():
            known = before.get(name)
            if not new.why or (known is None and _is_among(name, before)):
                continue
            if known is None:
                yield MissedChange(name, new.why, MADE)
            elif known.stamp != new.stamp:
                yield MissedChange(name, new.why, CHANGED)

    def unseen(self, told: AbstractSet[str]) -> Iterator[MissedChange]:
        """The folders that nobody looks into, but for these; git's own isn't one that a rewind could mean."""
        for name, left in sorted(self.unkept.items()):
            if left.why == IGNORED and stat.S_ISDIR(left.stamp[1]) and name not in told:
                yield MissedChange(name, IGNORED, UNSEEN)

    def knows(self, name: str, state: PathState) -> None:
        """What one of our own changes left at a name. The next look reads it again, and finds nothing new."""
        old = self.last_seen.get(name)
        if state.kind in ("none", "other"):
            self.last_seen.pop(name, None)
        elif old is not None or not self.is_ignored(name, is_folder=state.kind == "folder"):
            is_saved = old is not None and old.is_saved and old.state.blob == state.blob
            self.last_seen[name] = KnownPath((0, 0, 0, 0, 0), 0, state, is_saved)

    def is_ignored(self, name: str, *, is_folder: bool) -> bool:
        """Whether the walk leaves a name out, for itself or for a folder that it stands in."""
        self.ignores.start()
        above: list[tuple[str, GitIgnoreSpec]] = []
        parts = name.split("/")
        for depth in range(len(parts)):
            folder = "/".join(parts[:depth])
            try:
                rules = self.ignores.rules_in(folder, os.lstat(os.path.join(self.files.path, folder, IGNORE_FILE)))
            except OSError:
                rules = None
            if rules is not None:
                above.append((folder, rules))
            is_last = depth == len(parts) - 1
            if self.ignores.is_ignored("/".join(parts[: depth + 1]), is_folder=is_folder or not is_last, above=above):
                return True
        return False

    def _walk(self) -> Iterator[tuple[str, os.stat_result]]:
        """Every file, link and folder that isn't ignored. Folders come before what is in them."""
        self.ignores.start()
        count = 0
        folders: list[tuple[str, tuple[tuple[str, GitIgnoreSpec], ...]]] = [("", ())]
        while folders:
            folder, above = folders.pop()
            entries = self._listed(folder)
            mine = next((about for name, about in entries if name == IGNORE_FILE), None)
            if mine is not None and (rules := self.ignores.rules_in(folder, mine)) is not None:
                above = (*above, (folder, rules))
            for leaf, about in entries:
                name = f"{folder}/{leaf}" if folder else leaf
                if about is None:
                    self.unkept[name] = UnkeptPath(CLOSED)
                    continue
                is_folder = stat.S_ISDIR(about.st_mode)
                if self.ignores.is_ignored(name, is_folder=is_folder, above=above):
                    self.unkept[name] = self._ignored(name, leaf, about)
                    continue
                if not (is_folder or stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode)):
                    self.unkept[name] = UnkeptPath(_KINDS.get(stat.S_IFMT(about.st_mode), "no file"), _stamp(about))
                    continue
                if name not in self.last_seen and refusal(name, DISK) is not None:
                    self.unkept[name] = UnkeptPath("folders too deep", _stamp(about))
                    continue
                count += 1
                if count > self.most_files:
                    raise TooManyFiles(f"there are more than {self.most_files:,} files (checkpoint_files)")
                yield name, about
                if is_folder:
                    folders.append((name, above))

    def _ignored(self, name: str, leaf: str, about: os.stat_result) -> UnkeptPath:
        if self.ignores.is_own(name):
            return UnkeptPath("")
        if not stat.S_ISDIR(about.st_mode):
            return UnkeptPath(IGNORED, _stamp(about))
        # Nobody looks into it: its own time tells what comes and goes right in it.
        why = "git's own" if leaf == GIT else IGNORED
        return UnkeptPath(why, (about.st_ino, about.st_mode, 0, about.st_mtime_ns, 0))

    def _listed(self, folder: str) -> list[tuple[str, os.stat_result | None]]:
        try:
            return self.files.listed(folder)
        except OSError as e:
            if not folder or e.errno in _SCARCE:
                raise
            if e.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                self.unkept[folder] = UnkeptPath(CLOSED)  # what was in it isn't known to be gone
            return []


def _few(missed: list[MissedChange]) -> tuple[MissedChange, ...]:
    """A build may make thousands of ignored files in one call."""
    if len(missed) <= _MOST_MISSED:
        return tuple(missed)
    return (*missed[:_MOST_MISSED], MissedChange("", f"{len(missed) - _MOST_MISSED:,} more that aren't kept"))


def _is_among(name: str, names: Container[str]) -> bool:
    """Whether a name, or a folder that it stands in, is one of these."""
    while name not in names:
        at = name.rfind("/")
        if at < 0:
            return False
        name = name[:at]
    return True


def _stamp(about: os.stat_result) -> Stamp:
    if stat.S_ISDIR(about.st_mode):  # what is in it changes its times
        return (about.st_ino, about.st_mode, 0, 0, 0)
    return (about.st_ino, about.st_mode, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
