"""What is known of the memories of a directory, ready to be asked: cards and an index that stay, and are brought up to
date by what changed (MEM-12). The files may stand anywhere.
"""

from __future__ import annotations

import hashlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Protocol

import anyio.to_thread
import msgspec

from perdure.adapters.memory.store import (
    AUDIT,
    LOCK,
    LOCK_SECONDS,
    MOST_AUDIT_BYTES,
    MOST_FILE_BYTES,
    STATE,
    OpenedFolder,
    StoredFolder,
    log_entries,
)
from perdure.context.provenance import MEMORY_ROOT
from perdure.errors import FileMissing, FileRefused
from perdure.memory.changes import TRUST, decoded, digest_of, provenance
from perdure.memory.files import INDEX, Topic, topic
from perdure.memory.index_file import index_hooks, normalised_index
from perdure.memory.meaning import compared_text, rank_by_meaning
from perdure.memory.newest import newest_first
from perdure.memory.places import is_memory
from perdure.memory.retrieval import (
    MemoryCard,
    MemoryQuery,
    MemoryWriter,
    RankedMemory,
    candidates,
    counts_of,
    empty_index,
    index_marks,
    may_supersede,
    rank_memories,
)
from perdure.memory.scope import EVERYWHERE, MemoryScope
from perdure.ports.memory import MeaningIndex, MemoryIndex, MemorySearchResult
from perdure.text.scoring import Counts, TextIndex

HEAD_BYTES = 32_768  # of each file; what a memory is about stands at its top
INDEX_BYTES = 4_000_000
MOST_FILES = 200_000
USES = f"{STATE}/uses.json"  # how often memories were shown


class IndexedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file as it was read: time in nanoseconds, bytes, and what is known of it."""

    modified_ns: int
    size: int
    name: str
    description: str
    type: str | None
    keywords: tuple[str, ...]
    problems: tuple[str, ...]
    supersedes: tuple[str, ...] = ()
    is_pinned: bool = False
    scope: MemoryScope = EVERYWHERE

    def card(self, file: str) -> MemoryCard:
        """The same, for who asks."""
        return MemoryCard(
            file=file,
            name=self.name,
            description=self.description,
            type=self.type,
            keywords=self.keywords,
            modified=self.modified_ns / 1e9,
            size=self.size,
            problems=self.problems,
            supersedes=self.supersedes,
            is_pinned=self.is_pinned,
            scope=self.scope,
        )


@dataclass(frozen=True, slots=True)
class FileStat:
    """A file of the directory: its time in nanoseconds, and bytes."""

    modified_ns: int
    size: int


@dataclass(frozen=True, slots=True)
class UnreadableFile:
    """A file that couldn't be read, and why."""

    file: str
    why: str


@dataclass(slots=True)
class MemoryCatalogue(ABC):
    """The memories of one directory as of the last look."""

    unread: tuple[UnreadableFile, ...] = field(default=(), init=False)
    _files: dict[str, IndexedFile] = field(default_factory=dict, init=False)
    _cards: dict[str, MemoryCard] = field(default_factory=dict, init=False)
    _index: TextIndex = field(default_factory=empty_index, init=False)
    _hooks: str = field(default="", init=False)  # digest of what the indexes said
    _is_settled: bool = field(default=False, init=False)
    _meaning: MeaningIndex | None = field(default=None, init=False)  # once somebody asked by meaning

    def __len__(self) -> int:
        return len(self._files)

    @property
    def cards(self) -> Mapping[str, MemoryCard]:
        """What is known of each memory, by file."""
        return self._cards

    def rank(self, wanted: MemoryQuery) -> tuple[RankedMemory, ...]:
        """The memories for a question."""
        meaning = self._meant() if wanted.by_meaning and wanted.query and self._cards else None
        if meaning is None:
            found = rank_memories(self._index, self._cards, wanted)
        else:
            found = rank_by_meaning(self._index, self._cards, wanted, meaning.near(wanted.query))
        return newest_first(found, wanted.query)

    def _meant(self) -> MeaningIndex | None:
        """The same memories by their meaning; None where nothing can tell it."""
        if self._meaning is None:
            from perdure.adapters.semantic import semantic_index

            if (made := semantic_index()) is None:
                return None
            for file, card in self._cards.items():
                made.put(file, compared_text(card))
            self._meaning = made
        return self._meaning

    def candidates(self, wanted: MemoryQuery) -> tuple[MemoryCard, ...]:
        """What a model may choose from."""
        return candidates(self._index, self._cards, wanted)

    @abstractmethod
    def _whole(self, name: str, most_bytes: int) -> bytes | None:
        """A file of the directory, also a hidden one; None when it can't be read, or has more bytes."""

    @abstractmethod
    def _heads(self, files: Sequence[str]) -> Iterator[tuple[str, str | UnreadableFile]]:
        """The beginnings of files, as far as they can be read."""

    def _learn(self, files: Mapping[str, FileStat], said: Mapping[str, str]) -> int:
        """Read what changed since the last look; how many files that were.

        Args:
            files: All memories that are there.
            said: What indexes say of them.
        """
        digest = hashlib.sha256(msgspec.json.encode(said)).hexdigest()
        known = {file: FileStat(one.modified_ns, one.size) for file, one in self._files.items()}
        stale = [file for file, now in files.items() if known.get(file) != now]
        if digest != self._hooks and self._files:
            stale = list(dict.fromkeys((*stale, *(f for f in files if f in said))))
        gone = [f for f in self._files if f not in files]
        self._take(stale, files, said)
        for file in gone:
            self._forget(file)
        self._hooks = digest
        if stale or gone or not self._is_settled:
            self._settle()
        return len(stale) + len(gone)

    def _settle(self) -> None:
        """Let each memory supersede what its word reaches, and say of which it doesn't (MEM-14, SEC-1)."""
        claims = {file: [old for old in one.supersedes if old in self._files] for file, one in self._files.items()}
        claiming = {file: named for file, named in claims.items() if named}
        writers = self.writers({*claiming, *chain.from_iterable(claiming.values())}) if claiming else {}
        for file in [file for file, one in self._files.items() if one.supersedes]:
            card = self._files[file].card(file)
            above = [
                old
                for old in claims[file]
                if not may_supersede(writers[file], writers[old], is_pinned=self._files[old].is_pinned)
            ]
            said = tuple(
                f"supersedes {old}, which still holds: that one is by {writers[old]}"
                f"{' and pinned' if self._files[old].is_pinned else ''}, this one by {writers[file]} can't replace it"
                for old in above
            )
            self._cards[file] = replace(
                card,
                supersedes=tuple(old for old in card.supersedes if old not in above),
                problems=(*card.problems, *said),
            )
        self._is_settled = True

    def writers(self, files: Collection[str]) -> Mapping[str, MemoryWriter]:
        """Who wrote each of these files."""
        log = self._whole(AUDIT, MOST_AUDIT_BYTES)
        known = provenance(log_entries(log)) if log else {}
        found = dict.fromkeys(files, MemoryWriter())
        for file in found.keys() & known.keys():
            is_as_left = digest_of(self._whole(file, MOST_FILE_BYTES) or b"") == known[file].digest
            found[file] = MemoryWriter(TRUST[known[file].least], is_as_left)
        return found

    def _take(self, stale: list[str], files: Mapping[str, FileStat], said: Mapping[str, str]) -> None:
        texts: list[tuple[str, Counts]] = []
        unread: list[UnreadableFile] = []
        for file, text in self._heads(stale):
            if isinstance(text, UnreadableFile):
                unread.append(text)
                self._forget(file)
                continue
            found, now = topic(file, text), files[file]
            about = (found.name, found.description, found.type, found.keywords, found.problems)
            seen = IndexedFile(now.modified_ns, now.size, *about, found.supersedes, found.is_pinned, found.scope)
            self._files[file] = seen
            self._cards[file] = seen.card(file)
            if self._meaning is not None:
                self._meaning.put(file, compared_text(self._cards[file]))
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
        if self._meaning is not None:
            self._meaning.drop(file)


def said_in_indexes(files: Mapping[str, FileStat], text_of: Callable[[str], str | None]) -> dict[str, str]:
    """What the indexes of a directory and its folders say of each file; `text_of` gives an index, None for none."""
    found: dict[str, str] = {}
    for folder in ("", *sorted({file.rsplit("/", 1)[0] for file in files if "/" in file})):
        text = text_of(f"{folder}/{INDEX}" if folder else INDEX)
        for file, hook in index_hooks(normalised_index(text)).items() if text else ():
            found[f"{folder}/{file}" if folder else file] = hook
    return found


# --- of a folder that says when it changed ----------------------------------------------------------------------------


class ListedFolder(OpenedFolder, Protocol):
    """An opened folder that gives the beginnings of many files at once."""

    def heads(self, names: Sequence[str], most_bytes: int) -> dict[str, bytes]: ...


class VersionedFolder(StoredFolder, Protocol):
    """A folder that says by a number whether anything changed; None while it isn't there. Opened, it is listed."""

    async def version(self) -> int | None: ...


class FolderCatalogue(MemoryCatalogue):
    """The catalogue of a folder that is given to it opened."""

    def __init__(self) -> None:
        super().__init__()
        self.indexes: dict[str, str] = {}  # the texts of `MEMORY.md`, of the directory and of folders in it
        self.uses: dict[str, int] = {}
        self._opened: ListedFolder | None = None

    def look(self, folder: ListedFolder | None) -> None:
        """Bring it up to date with a folder; None: it is gone."""
        self._opened = folder
        listed = folder.listing(limit=MOST_FILES).entries if folder is not None else ()
        files = {one.name: FileStat(one.mtime_ns, one.bytes) for one in listed if is_memory(one.name)}
        names = [one.name for one in listed if one.name.rpartition("/")[2] == INDEX]
        read = folder.heads((*names, USES), INDEX_BYTES) if folder is not None else {}
        self.uses = _uses(read.pop(USES, b"{}"))
        self.indexes = {name: decoded(data) for name, data in read.items()}
        self._learn(files, said_in_indexes(files, self.indexes.get))
        self._opened = None

    def _heads(self, files: Sequence[str]) -> Iterator[tuple[str, str | UnreadableFile]]:
        assert self._opened is not None or not files
        read = self._opened.heads(files, HEAD_BYTES) if self._opened is not None and files else {}
        for file in files:
            data = read.get(file)
            yield file, UnreadableFile(file, "it is gone") if data is None else data.decode("utf-8", "replace")

    def _whole(self, name: str, most_bytes: int) -> bytes | None:
        with suppress(FileRefused):
            return self._opened.read(name, limit_bytes=most_bytes) if self._opened is not None else None
        return None


class FolderMemories:
    """`ports.MemorySearch` of a folder that says when it changed: the catalogue stays in the process, for whoever asks.

    A folder that can't be read holds nothing then.
    """

    where = MEMORY_ROOT

    def __init__(self, folder: VersionedFolder) -> None:
        self._folder = folder
        self._catalogue = FolderCatalogue()
        self._version: int | None = None
        self._guard = threading.Lock()

    async def is_empty(self) -> bool:
        """What the port says."""
        await self._refresh()
        return not len(self._catalogue)

    async def find(self, wanted: MemoryQuery, *, fill: bool = False) -> MemorySearchResult:
        """What the port says."""
        await self._refresh()

        def ranked() -> MemorySearchResult:
            with self._guard:
                known = self._catalogue
                asked = wanted if wanted.uses else replace(wanted, uses=known.uses)
                chosen, cards = ((), known.candidates(asked)) if fill else (known.rank(asked), ())
                return MemorySearchResult(chosen, len(known), cards)

        return await anyio.to_thread.run_sync(ranked)

    async def read(self, files: tuple[str, ...]) -> tuple[Topic, ...]:
        """What the port says."""

        def texts(folder: OpenedFolder) -> list[Topic]:
            found = []
            for file in filter(is_memory, files):
                with suppress(FileRefused):  # it went since it was found, or is no name of a memory
                    found.append(topic(file, folder.read(file, limit_bytes=INDEX_BYTES).decode("utf-8", "replace")))
            return found

        try:
            return tuple(await self._folder.run(texts, create=False))
        except FileRefused:
            return ()

    async def index(self) -> MemoryIndex:
        """What the port says."""
        await self._refresh()
        with self._guard:
            cards = self._catalogue.cards
            modified = {file: card.modified for file, card in cards.items()}
            return MemoryIndex(self._catalogue.indexes.get(INDEX), modified, index_marks(cards))

    async def used(self, files: tuple[str, ...] = ()) -> Mapping[str, int]:
        """What the port says. The counts are a hint, and may be lost."""

        def count(folder: OpenedFolder) -> None:
            with folder.lock(LOCK, seconds=LOCK_SECONDS):
                about = folder.stat(USES)
                counts = _uses(folder.read(USES, limit_bytes=INDEX_BYTES)) if about is not None else {}
                for file in files:
                    counts[file] = counts.get(file, 0) + 1
                folder.write(USES, msgspec.json.encode(counts), is_durable=False)
                self._catalogue.uses = counts

        if files:
            with suppress(FileRefused):
                await self._folder.run(count, create=False)
        else:
            await self._refresh()
        return dict(self._catalogue.uses)

    async def _refresh(self) -> None:
        """Take in what changed since the last look, if anything did."""

        def look(folder: OpenedFolder) -> None:
            with self._guard:
                self._catalogue.look(folder)  # type: ignore[arg-type]  # a `VersionedFolder` opens one that is listed

        try:
            version = await self._folder.version()
            if version is None:
                raise FileMissing("there is no such directory")
            if version != self._version:
                await self._folder.run(look, create=False)
                self._version = version
        except FileRefused:
            with self._guard:
                self._version = None
                self._catalogue.look(None)


def _uses(data: bytes) -> dict[str, int]:
    try:
        return msgspec.json.decode(data, type=dict[str, int])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}
