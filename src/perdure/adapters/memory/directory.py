"""Memory directories on disk, for reading: scans, an index that stays, and questions to it (MEM-1, MEM-12)."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import anyio.to_thread
import msgspec

from perdure.adapters.former import adopt
from perdure.adapters.journal.disk import DISK, Disk, discard, make_private, write_new
from perdure.adapters.machine.folder_calls import CALLS, OsCalls
from perdure.adapters.machine.rooted import PlainListing, RootedFolder, why_refused
from perdure.adapters.machine.system import read_file
from perdure.adapters.memory.catalogue import (
    HEAD_BYTES,
    INDEX_BYTES,
    MOST_FILES,
    FileStat,
    IndexedFile,
    MemoryCatalogue,
    UnreadableFile,
    said_in_indexes,
)
from perdure.adapters.memory.store import DiskFolder, StoredMemories
from perdure.errors import FileMissing, FileRefused
from perdure.memory.files import INDEX, Topic, topic
from perdure.memory.places import OWN, PROJECT, is_memory, name_for_people
from perdure.memory.retrieval import (
    BACKGROUND,
    MEMORY_FIELDS,
    MemoryCard,
    MemoryQuery,
    RankedMemory,
    index_marks,
)
from perdure.ports.memory import MemoryIndex, MemorySearch, MemorySearchResult
from perdure.settings import Settings
from perdure.text.scoring import PackedIndex, TextIndex

MOST_DEPTH = 8
CACHES = "memory-index"
_VERSION = 5


class _CachedIndex(msgspec.Struct, frozen=True, array_like=True):
    version: int
    directory: str
    folders: dict[str, int]
    files: dict[str, IndexedFile]
    hooks: str  # digest of what the indexes said
    index: PackedIndex


@dataclass(frozen=True, slots=True)
class DirectorySnapshot:
    """What a directory looks like: the times of its folders, its files, and what its indexes say of them."""

    folders: dict[str, int]
    files: dict[str, FileStat]
    said: dict[str, str]


@dataclass(slots=True)
class MemoryDirectory(MemoryCatalogue):
    """The memories of one directory, ready to be asked. Blocks for the disk; writes nothing into the directory."""

    path: Path
    cache: Path | None = None
    disk: Disk = DISK
    calls: OsCalls = CALLS
    _folders: dict[str, int] = field(default_factory=dict, init=False)
    _is_loaded: bool = field(default=False, init=False)

    def ask(self, wanted: MemoryQuery, *, is_sure: bool = False) -> tuple[RankedMemory, ...]:
        """The memories for a question. `is_sure`: also those edited in place a moment ago, at the cost of a rescan."""
        if is_sure or not self.is_fresh():
            self.rescan()
        return self.rank(wanted)

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

    def rescan(self) -> int:
        """Look at the time and size of every file, read those that changed; how many did."""
        return self.load(self.snapshot())

    def snapshot(self) -> DirectorySnapshot:
        """The time and size of every file; changes nothing here, so that it can go on while questions are answered."""
        folders, files = self._walked()
        return DirectorySnapshot(folders, files, said_in_indexes(files, self._index_text))

    def load(self, look: DirectorySnapshot) -> int:
        """Read what changed; how many files that were."""
        if not self._is_loaded:
            self._load()
        changed = self._learn(look.files, look.said)
        self._folders, self._is_loaded = look.folders, True
        if changed and self.cache is not None:
            self._store()
        return changed

    def read(self, file: str) -> Topic:
        """One memory, whole. Raises OSError, and `FileNotFoundError` for what isn't a memory of this directory."""
        if not is_memory(file) or ".." in file.split("/") or Path(file).is_absolute():
            raise FileNotFoundError(2, "not a memory of this directory", file)
        return topic(file, self._text(file, INDEX_BYTES))

    def index_text(self, folder: str = "") -> str | None:
        """`MEMORY.md` of the directory, or of a folder in it; None when there is none."""
        return self._index_text(f"{folder}/{INDEX}" if folder else INDEX)

    def left_out(self) -> tuple[tuple[str, str], ...]:
        """What would be a memory if it were a plain file, each with the reason why it isn't read."""
        try:
            with RootedFolder.open(self.path, is_theirs=True, rules=PROJECT, calls=self.calls) as root:
                return tuple(left_out(root, root.listing(limit=MOST_FILES)))
        except FileRefused:
            return ()

    def _index_text(self, name: str) -> str | None:
        try:
            return self._text(name, INDEX_BYTES)
        except OSError:
            return None

    # --- reading

    def _walked(self) -> tuple[dict[str, int], dict[str, FileStat]]:
        folders: dict[str, int] = {}
        files: dict[str, FileStat] = {}
        for folder, modified, entries in _folders_of(self.path, self.disk):
            folders[folder] = modified
            for name, one in entries:
                file = f"{folder}/{name}" if folder else name
                if is_memory(file) and len(files) < MOST_FILES:
                    files[file] = one
        return folders, files

    def _heads(self, files: Sequence[str]) -> Iterator[tuple[str, str | UnreadableFile]]:
        for file in files:
            try:
                yield file, self._text(file, HEAD_BYTES)
            except OSError as e:
                yield file, UnreadableFile(file, e.strerror or str(e))

    def _text(self, file: str, most: int) -> str:
        """The beginning of a file of the directory, and of nothing that a link or another name leads to (SEC-2)."""
        try:
            with RootedFolder.open(self.path, is_theirs=True, rules=PROJECT, calls=self.calls) as root:
                return root.read(file, limit_bytes=most, is_cut=True).decode("utf-8", "replace")
        except FileMissing as e:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file) from e
        except FileRefused as e:
            raise PermissionError(errno.EACCES, why_refused(file, e), file) from e

    def _whole(self, name: str, most_bytes: int) -> bytes | None:
        try:
            with RootedFolder.open(self.path, is_theirs=True, rules=PROJECT, calls=self.calls) as root:
                return root.read(name, limit_bytes=most_bytes)
        except (FileRefused, OSError):
            return None

    # --- the cache file

    def _load(self) -> None:
        """Take what the cache file holds; whatever is wrong with it, it is as if there were none."""
        if self.cache is None:
            return
        try:
            cached = msgspec.msgpack.decode(read_file(self.cache), type=_CachedIndex)
        except (OSError, msgspec.DecodeError, ValueError):
            return
        keys = {key for key in cached.index.keys if key is not None}
        if cached.version != _VERSION or cached.directory != str(self.path) or keys != cached.files.keys():
            return
        self._files, self._folders, self._hooks = dict(cached.files), dict(cached.folders), cached.hooks
        self._cards = {file: seen.card(file) for file, seen in self._files.items()}
        self._index = TextIndex.unpacked(MEMORY_FIELDS, cached.index, background=BACKGROUND)

    def _store(self) -> None:
        """Write the cache file; a disk that refuses costs only the next start."""
        assert self.cache is not None
        cached = _CachedIndex(_VERSION, str(self.path), self._folders, self._files, self._hooks, self._index.packed())
        draft = self.cache.with_name(f".{self.cache.name}.{secrets.token_hex(4)}")
        try:
            make_private(self.cache.parent)
            write_new(self.disk, draft, msgspec.msgpack.encode(cached))
            self.disk.rename(draft, self.cache)
        except OSError:
            discard(self.disk, draft)


def left_out(root: RootedFolder, listed: PlainListing) -> Iterator[tuple[str, str]]:
    """What of a listing would be memories: what isn't read has a memory's name, or is a link to a folder of them."""
    for name, why in listed.refused:
        if name.endswith(".md") or os.path.isdir(os.path.join(root.path, name)):
            yield name, why.removeprefix(f"{name}: ")


def cache_of(home: Path, directory: Path) -> Path:
    """Where the index of a directory is kept: in the store, never in the directory."""
    return home / CACHES / f"{hashlib.sha256(os.fsencode(os.path.realpath(directory))).hexdigest()[:20]}.msgpack"


def _folders_of(root: Path, disk: Disk) -> Iterator[tuple[str, int, list[tuple[str, FileStat]]]]:
    """Every folder under a directory with its time and its files; hidden ones and links to folders are passed over.

    Raises OSError when the directory itself can't be read.
    """
    waiting = [("", 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            modified = disk.stat(root / folder).st_mtime_ns
            found: list[tuple[str, FileStat]] = []
            with os.scandir(root / folder) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if depth < MOST_DEPTH:
                            waiting.append((f"{folder}/{entry.name}" if folder else entry.name, depth + 1))
                    elif entry.name.endswith(".md") and entry.is_file(follow_symlinks=False):
                        about = entry.stat(follow_symlinks=False)
                        found.append((entry.name, FileStat(about.st_mtime_ns, about.st_size)))
        except OSError:
            if not folder:
                raise
            continue
        found.sort(key=lambda one: one[0])
        yield folder, modified, found


class JoinedMemories:
    """The memories of several directories as one: those of the first by their files, of others below a prefix (MEM-14).

    `MEMORY.md` is that of the first; the others' are shown by whoever shows indexes.
    """

    def __init__(self, first: MemorySearch, others: Mapping[str, MemorySearch]) -> None:
        self.where = first.where
        self._first = first
        self._all = {"": first, **{f"{prefix}/": one for prefix, one in others.items()}}

    async def is_empty(self) -> bool:
        return all([await one.is_empty() for one in self._all.values()])

    async def find(self, wanted: MemoryQuery, *, fill: bool = False) -> MemorySearchResult:
        chosen: list[RankedMemory] = []
        cards: list[MemoryCard] = []
        scanned = 0
        for prefix, one in self._all.items():
            shown = {file.removeprefix(prefix): at for file, at in wanted.shown.items() if file.startswith(prefix)}
            found = await one.find(replace(wanted, shown=shown), fill=fill)
            chosen += [replace(r, card=replace(r.card, file=prefix + r.card.file)) for r in found.chosen]
            cards += [replace(card, file=prefix + card.file) for card in found.cards]
            scanned += found.scanned
        chosen.sort(key=lambda r: -r.score)
        return MemorySearchResult(tuple(chosen[: wanted.limit]), scanned, tuple(cards[: wanted.limit]))

    async def read(self, files: tuple[str, ...]) -> tuple[Topic, ...]:
        found: list[Topic] = []
        for prefix, one in self._all.items():
            topics = await one.read(self._of(prefix, files))
            found += [replace(topic, file=prefix + topic.file) for topic in topics]
        return tuple(found)

    async def index(self) -> MemoryIndex:
        first = await self._first.index()
        marks = dict(first.marks)
        for prefix, one in self._all.items():
            marks |= {prefix + file: mark for file, mark in (await one.index()).marks.items()} if prefix else {}
        return replace(first, marks=marks)

    async def used(self, files: tuple[str, ...] = ()) -> Mapping[str, int]:
        counts: dict[str, int] = {}
        for prefix, one in self._all.items():
            if (some := self._of(prefix, files)) or not files:
                counts |= {prefix + file: count for file, count in (await one.used(some)).items()}
        return counts

    def _of(self, prefix: str, files: tuple[str, ...]) -> tuple[str, ...]:
        """The files of one directory, as it names them."""
        others = tuple(one for one in self._all if one)
        if not prefix:
            return tuple(file for file in files if not file.startswith(others))
        return tuple(file.removeprefix(prefix) for file in files if file.startswith(prefix))


def file_memories(directory: Path, settings: Settings | None = None, *, calls: OsCalls = CALLS) -> StoredMemories:
    """The memories in a directory, which is made at the first write. `durability` of the settings holds here, too."""
    is_durable = (settings or Settings()).durability == "commit"
    return StoredMemories(DiskFolder(partial(_open_root, directory, calls)), is_durable=is_durable)


def _open_root(directory: Path, calls: OsCalls, create: bool) -> RootedFolder:
    if not create and not directory.is_dir():  # most projects have no memories: the fastest no there is
        raise FileMissing(f"{name_for_people(str(directory))}: there is no such directory")
    adopt(directory)
    return RootedFolder.open(directory, create=create, rules=OWN, calls=calls)


async def are_any_there(directories: Sequence[str]) -> bool:
    """Whether any of these directories is there: what a project without memories is asked, and nothing more."""
    return await anyio.to_thread.run_sync(lambda: any(map(os.path.isdir, directories)))


RESCAN_SECONDS = 2.0  # between two rescans: edits in place are seen that much later at worst


class FileMemories:
    """The memories of one directory, for one process. A directory that isn't there holds none."""

    def __init__(self, path: Path, *, cache: Path | None = None) -> None:
        self.where = str(path)
        self._path, self._cache = path, cache
        self._found: MemoryDirectory | None = None  # None until there is one
        self._lock = threading.Lock()
        self._counts = cache.with_suffix(".uses.json") if cache is not None else None
        self._uses: dict[str, int] | None = None
        self._rescanned = 0.0
        self._scanner: threading.Thread | None = None

    async def is_empty(self) -> bool:
        return await anyio.to_thread.run_sync(self._is_empty)

    async def find(self, wanted: MemoryQuery, *, fill: bool = False) -> MemorySearchResult:
        return await anyio.to_thread.run_sync(self._find, wanted, fill)

    async def read(self, files: tuple[str, ...]) -> tuple[Topic, ...]:
        return await anyio.to_thread.run_sync(self._read, files)

    async def index(self) -> MemoryIndex:
        return await anyio.to_thread.run_sync(self._index)

    async def used(self, files: tuple[str, ...] = ()) -> Mapping[str, int]:
        return await anyio.to_thread.run_sync(self._used, files)

    def wait_for_rescan(self) -> None:
        """Wait for a rescan that runs."""
        if self._scanner is not None:
            self._scanner.join()

    def _is_empty(self) -> bool:
        with self._lock:
            directory = self._directory()
            return directory is None or not len(directory)

    def _find(self, wanted: MemoryQuery, fill: bool) -> MemorySearchResult:
        with self._lock:
            directory = self._directory()
            if directory is None:
                return MemorySearchResult((), 0)
            wanted = wanted if wanted.uses else replace(wanted, uses=self._counted())
            chosen = directory.ask(wanted) if not fill else ()
            cards = directory.candidates(wanted) if fill else ()
            found = MemorySearchResult(chosen, len(directory), cards)
        self._rescan_soon(directory)
        return found

    def _directory(self) -> MemoryDirectory | None:
        """The directory, with what its folders tell of; None when there is none, as in most projects."""
        if self._found is None:
            if not os.path.isdir(self._path):
                return None
            self._found = MemoryDirectory(self._path, cache=self._cache)
        if not self._found.is_fresh():
            try:
                self._found.rescan()
            except OSError:
                return None
            self._rescanned = time.monotonic()
        return self._found

    def _rescan_soon(self, directory: MemoryDirectory) -> None:
        """Look for edits in place, beside whatever goes on."""
        is_running = self._scanner is not None and self._scanner.is_alive()
        if is_running or time.monotonic() - self._rescanned < RESCAN_SECONDS:
            return
        self._rescanned = time.monotonic()
        self._scanner = threading.Thread(target=self._rescan, args=(directory,), name="memory-rescan", daemon=True)
        self._scanner.start()

    def _rescan(self, directory: MemoryDirectory) -> None:
        try:
            look = directory.snapshot()
        except OSError:
            return  # it went; the next question finds that out
        with self._lock:
            directory.load(look)

    def _read(self, files: tuple[str, ...]) -> tuple[Topic, ...]:
        directory, found = self._found or MemoryDirectory(self._path), []
        for file in files:
            try:
                found.append(directory.read(file))
            except OSError:
                continue  # it went since it was found
        return tuple(found)

    def _index(self) -> MemoryIndex:
        with self._lock:
            directory = self._directory()
            if directory is None:
                return MemoryIndex()
            modified = {file: card.modified for file, card in directory.cards.items()}
            return MemoryIndex(directory.index_text(), modified, index_marks(directory.cards))

    # --- how often memories were shown: kept with the index, a hint that may be lost

    def _used(self, files: tuple[str, ...]) -> Mapping[str, int]:
        with self._lock:
            if not files:
                return dict(self._counted())
            if self._counts is not None:
                self._uses = None  # others count, too
            counts = self._counted()
            for file in files:
                counts[file] = counts.get(file, 0) + 1
            self._write_counts(counts)
            return dict(counts)

    def _counted(self) -> dict[str, int]:
        if self._uses is None:
            try:
                data = read_file(self._counts) if self._counts is not None else b"{}"
                self._uses = msgspec.json.decode(data, type=dict[str, int])
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
                self._uses = {}
        return self._uses

    def _write_counts(self, counts: dict[str, int]) -> None:
        if self._counts is None:
            return
        draft = self._counts.with_name(f".{self._counts.name}.{secrets.token_hex(4)}")
        try:
            make_private(draft.parent)
            write_new(DISK, draft, msgspec.json.encode(counts))
            DISK.rename(draft, self._counts)
        except OSError:
            discard(DISK, draft)
