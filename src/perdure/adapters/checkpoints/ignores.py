"""Which files of a project are left alone: what git ignores and doesn't track, by gitignore's own rules (CKP-2).

Patterns come with the project, so they run on an engine that none of them can make slow (SEC-6).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field

from pathspec import GitIgnoreSpec

from perdure.adapters.former import FORMER_STAGING
from perdure.adapters.machine.system import AT_ONCE, open_itself

IGNORE_FILE = ".gitignore"
_LIMIT_BYTES = 1_000_000
GIT, STAGING = ".git", ".perdure-rewind-"
STAGINGS = (STAGING, FORMER_STAGING)
_AS_TEXT = {0x0A: 0x10FF0A} | {0xDC00 + byte: 0x10FF00 + byte for byte in range(0x80, 0x100)}
"""Bytes that aren't UTF-8, and line ends, which patterns don't see in names: one character each, as git counts them."""
_IN_PATTERNS = {code: char for code, char in _AS_TEXT.items() if code != 0x0A}


@dataclass(slots=True)
class IgnoreRules:
    """The rules of one tree. `start` before every walk: rules that changed count from there on."""

    root: str  # a real path
    excludes: Sequence[str] = ()  # the weakest rules
    own: frozenset[str] = frozenset()  # folders of ours that may lie in the tree: journals aren't files of the project
    _specs: dict[str, tuple[tuple[int, ...], GitIgnoreSpec | None]] = field(default_factory=dict)
    _base: list[GitIgnoreSpec] = field(default_factory=list)
    _tracked: frozenset[str] = frozenset()
    _tracked_folders: frozenset[str] = frozenset()
    _index_stamp: tuple[int, ...] | None = None
    _decided: dict[tuple[str, bool, int], bool] = field(default_factory=dict)

    def start(self) -> None:
        if not self._base:
            info = _lines(os.path.join(self.root, ".git", "info", "exclude"))
            self._base = [_spec(self.excludes), _spec(info)]
        self._read_index()

    def is_ignored(self, name: str, *, is_folder: bool, above: Sequence[tuple[str, GitIgnoreSpec]]) -> bool:
        """Whether to leave out a name; `above` are the rules of the folders it stands in, outermost first."""
        key = (name, is_folder, len(above))
        if (known := self._decided.get(key)) is None:
            known = self._decided[key] = self._decide(name, is_folder=is_folder, above=above)
        return known

    def _decide(self, name: str, *, is_folder: bool, above: Sequence[tuple[str, GitIgnoreSpec]]) -> bool:
        if name.rsplit("/", 1)[-1] == GIT or self.is_own(name):
            return True
        asked = f"{name}/".translate(_AS_TEXT) if is_folder else name.translate(_AS_TEXT)
        said: bool | None = None
        for spec in self._base:
            found = spec.check_file(asked).include
            said = said if found is None else found
        for folder, spec in above:
            found = spec.check_file(asked[len(folder) + 1 :] if folder else asked).include
            said = said if found is None else found
        if not said:
            return False
        return name not in (self._tracked_folders if is_folder else self._tracked)

    def is_own(self, name: str) -> bool:
        """Whether this is ours: what a rewind works with, or a session's folder."""
        return name.rsplit("/", 1)[-1].startswith(STAGINGS) or os.path.join(self.root, name) in self.own

    def rules_in(self, folder: str, about: os.stat_result) -> GitIgnoreSpec | None:
        """The rules that stand in a folder of the tree."""
        stamp = (about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
        known = self._specs.get(folder)
        if known is None or known[0] != stamp:
            lines = _lines(os.path.join(self.root, folder, IGNORE_FILE))
            known = (stamp, _spec(lines) if lines else None)
            self._specs[folder] = known
            self._decided.clear()
        return known[1]

    def _read_index(self) -> None:
        """What git tracks here is never ignored. The user's index is read, and nothing of it is touched."""
        path = os.path.join(self.root, ".git", "index")
        try:
            about = os.lstat(path)
            if not stat.S_ISREG(about.st_mode) or _leads_elsewhere(path):
                raise OSError
        except OSError:
            if self._tracked:
                self._decided.clear()
            self._tracked = self._tracked_folders = frozenset()
            self._index_stamp = None
            return
        stamp = (about.st_ino, about.st_size, about.st_mtime_ns)
        if stamp == self._index_stamp:
            return
        from dulwich.index import Index

        try:
            names = [os.fsdecode(name) for name in Index(path)]
        except Exception:  # the boundary to the library: an index that it can't read says nothing
            names = []
        self._tracked = frozenset(names)
        self._tracked_folders = frozenset(_folders_of(names))
        self._index_stamp = stamp
        self._decided.clear()


def _folders_of(names: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for name in names:
        while (at := name.rfind("/")) > 0 and name[:at] not in found:
            name = name[:at]
            found.add(name)
    return found


def _leads_elsewhere(path: str) -> bool:
    """Whether a file of git's, or a folder above it, is a link: it came with the project as all of it did (SEC-8)."""
    return os.path.realpath(path) != path


def _lines(path: str) -> list[str]:
    if _leads_elsewhere(path):
        return []
    try:
        fd = open_itself(path, os.O_RDONLY | AT_ONCE)
    except OSError:
        return []
    try:
        with open(fd, "rb", closefd=False) as file:
            text = file.read(_LIMIT_BYTES).decode("utf-8", "surrogateescape").translate(_IN_PATTERNS)
            return [line.removesuffix("\r") for line in text.split("\n")]
    except OSError:
        return []
    finally:
        os.close(fd)


def _spec(lines: Sequence[str]) -> GitIgnoreSpec:
    good = []
    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line], backend="simple")
        except ValueError:
            continue  # a line that is no pattern; git takes none from it either
        good.append(line)
    return GitIgnoreSpec.from_lines(good, backend="re2")
