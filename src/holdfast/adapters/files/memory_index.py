"""Memory directories on disk, for reading: scans, an index that stays, and one in a file beside no memory (MEM-12).

`MemoryDirectory` holds the index of one directory for as long as the process lives. A question costs a look at the
times of the folders; a file that was edited in place, which no folder tells, is found by a rescan that compares the
time and size of every file. With a cache file the index survives the process; a damaged one is made anew.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from holdfast.adapters.files.beneath import CALLS, Calls
from holdfast.adapters.files.disk import DISK, Disk, discard, make_private, write_new
from holdfast.adapters.files.rooted import Rooted
from holdfast.errors import FileMissing, FileRefused
from holdfast.memory.contents import hooks, normalised
from holdfast.memory.directory import is_memory
from holdfast.memory.names import PROJECT, shown
from holdfast.memory.retrieval.index import Counts, Index, Packed
from holdfast.memory.retrieval.memories import (
    BACKGROUND,
    MEMORY_FIELDS,
    Card,
    Chosen,
    Wanted,
    candidates,
    counts_of,
    empty_index,
    ranked,
)
from holdfast.memory.topics import INDEX, Topic, topic

HEAD_BYTES = 32_768  # of each file; what a memory is about stands at its top
MOST_FILES = 200_000
MOST_DEPTH = 8
INDEX_BYTES = 4_000_000
CACHES = "memory-index"
_VERSION = 3


class _Seen(msgspec.Struct, frozen=True, array_like=True):
    """A file as it was read: time in nanoseconds, bytes, and what is known of it."""

    modified_ns: int
    size: int
    name: str
    description: str
    type: str | None
    keywords: tuple[str, ...]
    problems: tuple[str, ...]


class _Cached(msgspec.Struct, frozen=True, array_like=True):
    version: int
    directory: str
    folders: dict[str, int]
    files: dict[str, _Seen]
    hooks: str  # digest of what the indexes said
    index: Packed


@dataclass(frozen=True, slots=True)
class Stated:
    """A file of the directory: its time in nanoseconds, and bytes."""

    modified_ns: int
    size: int


@dataclass(frozen=True, slots=True)
class Unread:
    """A file that couldn't be read, and why."""

    file: str
    why: str


@dataclass(frozen=True, slots=True)
class Look:
    """What a directory looks like: the times of its folders, its files, and what its indexes say of them."""

    folders: dict[str, int]
    files: dict[str, Stated]
    said: dict[str, str]


@dataclass(slots=True)
class MemoryDirectory:
    """The memories of one directory, ready to be asked. Blocks for the disk; writes nothing into the directory."""

    path: Path
    cache: Path | None = None
    disk: Disk = DISK
    calls: Calls = CALLS
    unread: tuple[Unread, ...] = ()
    _folders: dict[str, int] = field(default_factory=dict)
    _files: dict[str, _Seen] = field(default_factory=dict)
    _cards: dict[str, Card] = field(default_factory=dict)
    _index: Index = field(default_factory=empty_index)
    _hooks: str = ""
    _is_loaded: bool = False

    def __len__(self) -> int:
        return len(self._files)

    @property
    def cards(self) -> Mapping[str, Card]:
        """What is known of each memory, by file, as of the last look."""
        return self._cards

    def ask(self, wanted: Wanted, *, is_sure: bool = False) -> tuple[Chosen, ...]:
        """The memories for a question. `is_sure`: also those edited in place a moment ago, at the cost of a rescan."""
        if is_sure or not self.is_fresh():
            self.rescan()
        return ranked(self._index, self._cards, wanted)

    def is_fresh(self) -> bool:
        """Whether no folder tells of a file that came, went or was replaced since the last look."""
        if not self._is_loaded:
            return False
        for folder, modified in self._folders.items():
            try:
                if self.disk.stat(self.path / folder).st_mtime_ns != modified:
                    return False
            except OSError:
                return False
        return True

    def candidates(self, wanted: Wanted) -> tuple[Card, ...]:
        """What a model may choose from, as of the last look."""
        return candidates(self._index, self._cards, wanted)

    def rescan(self) -> int:
        """Look at the time and size of every file, read those that changed; how many did."""
        return self.take(self.look())

    def look(self) -> Look:
        """The time and size of every file; changes nothing here, so that it can go on while questions are answered."""
        folders, files = self._walked()
        return Look(folders, files, self._said(files))

    def take(self, look: Look) -> int:
        """Read what changed; how many files that were."""
        if not self._is_loaded:
            self._load()
        folders, files, said = look.folders, look.files, look.said
        digest = hashlib.sha256(msgspec.json.encode(said)).hexdigest()
        stale = [f for f, now in files.items() if not _is_same(self._files.get(f), now)]
        if digest != self._hooks and self._files:
            stale = list(dict.fromkeys((*stale, *(f for f in files if f in said))))
        gone = [f for f in self._files if f not in files]
        self._take(stale, files, said)
        for file in gone:
            self._forget(file)
        self._folders, self._hooks, self._is_loaded = folders, digest, True
        if (stale or gone) and self.cache is not None:
            self._store()
        return len(stale) + len(gone)

    def read(self, file: str) -> Topic:
        """One memory, whole. Raises OSError, and `FileNotFoundError` for what isn't a memory of this directory."""
        if not is_memory(file) or ".." in file.split("/") or Path(file).is_absolute():
            raise FileNotFoundError(2, "not a memory of this directory", file)
        return topic(file, self._text(file, INDEX_BYTES))

    def index_text(self, folder: str = "") -> str | None:
        """`MEMORY.md` of the directory, or of a folder in it; None when there is none."""
        try:
            return self._text(f"{folder}/{INDEX}" if folder else INDEX, INDEX_BYTES)
        except OSError:
            return None

    # --- reading

    def _walked(self) -> tuple[dict[str, int], dict[str, Stated]]:
        folders: dict[str, int] = {}
        files: dict[str, Stated] = {}
        for folder, modified, entries in _folders_of(self.path, self.disk):
            folders[folder] = modified
            for name, one in entries:
                file = f"{folder}/{name}" if folder else name
                if is_memory(file) and len(files) < MOST_FILES:
                    files[file] = one
        return folders, files

    def _said(self, files: Mapping[str, Stated]) -> dict[str, str]:
        """What the indexes of the directory and its folders say of each file."""
        found: dict[str, str] = {}
        for folder in ("", *sorted({file.rsplit("/", 1)[0] for file in files if "/" in file})):
            text = self.index_text(folder)
            for file, hook in hooks(normalised(text)).items() if text else ():
                found[f"{folder}/{file}" if folder else file] = hook
        return found

    def _take(self, stale: list[str], files: Mapping[str, Stated], said: Mapping[str, str]) -> None:
        texts: list[tuple[str, Counts]] = []
        unread: list[Unread] = []
        for file in stale:
            try:
                found = topic(file, self._text(file, HEAD_BYTES))
            except OSError as e:
                unread.append(Unread(file, e.strerror or str(e)))
                self._forget(file)
                continue
            now = files[file]
            seen = _Seen(
                now.modified_ns, now.size, found.name, found.description, found.type, found.keywords, found.problems
            )
            self._files[file] = seen
            self._cards[file] = _card(file, seen)
            texts.append((file, counts_of(found, said.get(file, ""))))
        self.unread = tuple(unread)
        if len(self._index) < len(texts):  # so many are new that the average lengths have to be taken anew
            kept = len(self._index)
            if kept == 0 or len(texts) == len(files):
                self._index = empty_index()
                self._index.fill(texts)
                return
        for file, counts in texts:
            self._index.put(file, counts)

    def _forget(self, file: str) -> None:
        self._files.pop(file, None)
        self._cards.pop(file, None)
        self._index.drop(file)

    def _text(self, file: str, most: int) -> str:
        """The beginning of a file of the directory, and of nothing that a link or another name leads to (SEC-2)."""
        try:
            with Rooted.open(self.path, is_theirs=True, rules=PROJECT, calls=self.calls) as root:
                return root.read(file, limit_bytes=most, is_cut=True).decode("utf-8", "replace")
        except FileMissing as e:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file) from e
        except FileRefused as e:
            raise PermissionError(errno.EACCES, str(e).removeprefix(f"{shown(file)}: "), file) from e

    # --- the cache file

    def _load(self) -> None:
        """Take what the cache file holds; whatever is wrong with it, it is as if there were none."""
        if self.cache is None:
            return
        try:
            cached = msgspec.msgpack.decode(self.cache.read_bytes(), type=_Cached)
        except (OSError, msgspec.DecodeError, ValueError):
            return
        keys = {key for key in cached.index.keys if key is not None}
        if cached.version != _VERSION or cached.directory != str(self.path) or keys != cached.files.keys():
            return
        self._files, self._folders, self._hooks = dict(cached.files), dict(cached.folders), cached.hooks
        self._cards = {file: _card(file, seen) for file, seen in self._files.items()}
        self._index = Index.unpacked(MEMORY_FIELDS, cached.index, background=BACKGROUND)

    def _store(self) -> None:
        """Write the cache file; a disk that refuses costs only the next start."""
        assert self.cache is not None
        cached = _Cached(_VERSION, str(self.path), self._folders, self._files, self._hooks, self._index.packed())
        draft = self.cache.with_name(f".{self.cache.name}.{secrets.token_hex(4)}")
        try:
            make_private(self.cache.parent)
            write_new(self.disk, draft, msgspec.msgpack.encode(cached))
            self.disk.rename(draft, self.cache)
        except OSError:
            discard(self.disk, draft)


def cache_of(home: Path, directory: Path) -> Path:
    """Where the index of a directory is kept: in the store, never in the directory."""
    return home / CACHES / f"{hashlib.sha256(os.fsencode(os.path.realpath(directory))).hexdigest()[:20]}.msgpack"


def _card(file: str, seen: _Seen) -> Card:
    return Card(
        file=file,
        name=seen.name,
        description=seen.description,
        type=seen.type,
        keywords=seen.keywords,
        modified=seen.modified_ns / 1e9,
        size=seen.size,
        problems=seen.problems,
    )


def _is_same(seen: _Seen | None, now: Stated) -> bool:
    return seen is not None and seen.modified_ns == now.modified_ns and seen.size == now.size


def _folders_of(root: Path, disk: Disk) -> Iterator[tuple[str, int, list[tuple[str, Stated]]]]:
    """Every folder under a directory with its time and its files; hidden ones and links to folders are passed over.

    Raises OSError when the directory itself can't be read.
    """
    waiting = [("", 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            modified = disk.stat(root / folder).st_mtime_ns
            found: list[tuple[str, Stated]] = []
            with os.scandir(root / folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if depth < MOST_DEPTH:
                            waiting.append((f"{folder}/{entry.name}" if folder else entry.name, depth + 1))
                    elif entry.name.endswith(".md") and entry.is_file(follow_symlinks=False):
                        about = entry.stat(follow_symlinks=False)
                        found.append((entry.name, Stated(about.st_mtime_ns, about.st_size)))
        except OSError:
            if not folder:
                raise
            continue
        found.sort(key=lambda one: one[0])
        yield folder, modified, found
