"""The tree of a project as it is now, against what is known of it: one walk, and reading only what changed (CKP-2)."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from pathspec import GitIgnoreSpec

from holdfast.adapters.shadow.ground import NAMES, Ground
from holdfast.adapters.shadow.ignores import IGNORE_FILE, Ignores
from holdfast.memory.checkpoints import NONE, Change, State, same
from holdfast.memory.names import refusal

_RACY_NS = 50_000_000  # a file that changed so shortly before it was read may have changed again in the same tick
Stamp = tuple[int, int, int, int, int]


class TooManyFiles(OSError):
    """The tree holds more files than are compared."""


@dataclass(slots=True)
class Known:
    """What was last seen at a name. `seen_ns` is when; `is_saved`: its bytes are in the store."""

    stamp: Stamp
    seen_ns: int
    state: State
    is_saved: bool = False


@dataclass(slots=True)
class Tree:
    """The files of a project by name. `look` finds what changed; what it returns is known from then on."""

    ground: Ground
    ignores: Ignores
    limit_bytes: int
    most_files: int
    known: dict[str, Known] = field(default_factory=dict)
    skipped: set[str] = field(default_factory=set)  # what the last walk left out, files and whole folders
    has_looked: bool = False
    is_taken_up: bool = False  # what is known was known to an earlier process

    def look(self) -> tuple[tuple[Change, ...], dict[str, bytes]]:
        """What differs from what was known, by name, and the bytes of the files that were read for it."""
        changes: list[Change] = []
        read: dict[str, bytes] = {}
        seen: set[str] = set()
        before, self.skipped = self.skipped, set()
        for name, about in self._walk():
            seen.add(name)
            old = self.known.get(name)
            now, stamp = time.time_ns(), _stamp(about)
            if old is not None and old.stamp == stamp and (about.st_ctime_ns < old.seen_ns - _RACY_NS):
                continue
            state, data = self.ground.state(name, limit_bytes=self.limit_bytes)
            if state.kind in ("none", "other"):
                seen.discard(name)
                continue
            was_saved = old is not None and old.is_saved and old.state.blob == state.blob
            self.known[name] = Known(stamp, now, state, was_saved)
            if data is not None and not was_saved:
                read[name] = data
            if old is None or not same(old.state, state):
                is_sure = old is not None or not _is_among(name, before)  # else it stood there, and was ignored
                changes.append(Change(name, old.state if old else NONE, state, is_sure))
        for name in [name for name in self.known if name not in seen]:
            gone = self.known.pop(name)
            if not _is_among(name, self.skipped):  # else it is ignored from now on
                changes.append(Change(name, gone.state, NONE))
        changes.sort(key=lambda change: change.path)
        self.has_looked = True
        return tuple(changes), read

    def knows(self, name: str, state: State) -> None:
        """What one of our own changes left at a name. The next look reads it again, and finds nothing new."""
        old = self.known.get(name)
        if state.kind in ("none", "other"):
            self.known.pop(name, None)
        elif old is not None or not self.is_ignored(name, is_folder=state.kind == "folder"):
            is_saved = old is not None and old.is_saved and old.state.blob == state.blob
            self.known[name] = Known((0, 0, 0, 0, 0), 0, state, is_saved)

    def is_ignored(self, name: str, *, is_folder: bool) -> bool:
        """Whether the walk leaves a name out, for itself or for a folder that it stands in."""
        self.ignores.start()
        above: list[tuple[str, GitIgnoreSpec]] = []
        parts = name.split("/")
        for depth in range(len(parts)):
            folder = "/".join(parts[:depth])
            try:
                rules = self.ignores.rules_in(folder, os.lstat(os.path.join(self.ground.path, folder, IGNORE_FILE)))
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
                is_folder = stat.S_ISDIR(about.st_mode)
                if not (is_folder or stat.S_ISREG(about.st_mode) or stat.S_ISLNK(about.st_mode)):
                    continue
                if self.ignores.is_ignored(name, is_folder=is_folder, above=above):
                    self.skipped.add(name)
                    continue
                if name not in self.known and refusal(name, NAMES) is not None:
                    continue
                count += 1
                if count > self.most_files:
                    raise TooManyFiles(f"there are more than {self.most_files:,} files (checkpoint_files)")
                yield name, about
                if is_folder:
                    folders.append((name, above))

    def _listed(self, folder: str) -> list[tuple[str, os.stat_result]]:
        found = []
        try:
            with os.scandir(os.path.join(self.ground.path, folder)) as entries:
                for entry in entries:
                    try:
                        found.append((entry.name, entry.stat(follow_symlinks=False)))
                    except FileNotFoundError:
                        continue
        except OSError as e:
            if not folder:
                raise
            if isinstance(e, FileNotFoundError | NotADirectoryError):
                return []
            if not isinstance(e, PermissionError):
                raise
            self.skipped.add(folder)  # it can't be looked into: what was in it isn't known to be gone
        return found


def _is_among(name: str, names: set[str]) -> bool:
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
