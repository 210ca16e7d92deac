"""What outlives the session: instruction files and persistent memory."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from perdure.memory.changes import Change, MemoryLogEntry, MemoryProposal, Provenance, Stamp, WriteResult
    from perdure.memory.files import Topic
    from perdure.memory.instructions import LoadedInstructions
    from perdure.memory.retrieval import MemoryCard, MemoryQuery, RankedMemory


class InstructionFiles(Protocol):
    """The instruction files of a working directory, as they are now (INS-1 to INS-6). None of the methods raises.

    `at_start` is what loads with a session, in loading order; `touched` what loads once tools touched these paths;
    `again` these files once more, whatever made them load (one that is gone is missing in the answer).
    """

    async def at_start(self) -> LoadedInstructions: ...

    async def touched(self, paths: tuple[str, ...]) -> LoadedInstructions: ...

    async def reload(self, paths: tuple[str, ...]) -> LoadedInstructions: ...


@dataclass(frozen=True, slots=True)
class MemorySearchResult:
    """What a question found: the memories in their order with why, all candidates if asked for, and of how many."""

    chosen: tuple[RankedMemory, ...]
    scanned: int
    cards: tuple[MemoryCard, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryIndex:
    """`MEMORY.md` of the project's directory, None without one, and what is known of the files that indexes name.

    `modified` says when each file changed (seconds), `marks` what is to be said at the lines of those that were
    superseded or are scoped (MEM-14).
    """

    text: str | None = None
    modified: Mapping[str, float] = field(default_factory=dict)
    marks: Mapping[str, str] = field(default_factory=dict)


class MeaningIndex(Protocol):
    """How near texts are to a question in meaning (MEM-15), each by its key: a cosine. Nothing leaves the machine."""

    def put(self, key: str, text: str) -> None: ...

    def drop(self, key: str) -> None: ...

    def near(self, query: str) -> Mapping[str, float]: ...


class MemorySearch(Protocol):
    """The persistent memories that a session may read (MEM-4, MEM-12). None of the methods raises for a bad file.

    `find` ranks at once, on an index that stays in the process; with `fill`, `cards` are the best, and after them the
    newest, up to the limit. `read` gives the memories that can be read, whole. `index` is `MEMORY.md` with
    what is known of the files. `used` counts these memories as shown once more, beside the
    directory and never in it, and gives the counts of all. `where` names the directory, for people and models.
    `is_empty` says that there is no memory to find, so that nobody has to make a question of what was said.
    """

    where: str

    async def is_empty(self) -> bool: ...

    async def find(self, wanted: MemoryQuery, *, fill: bool = False) -> MemorySearchResult: ...

    async def read(self, files: tuple[str, ...]) -> tuple[Topic, ...]: ...

    async def index(self) -> MemoryIndex: ...

    async def used(self, files: tuple[str, ...] = ()) -> Mapping[str, int]: ...


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A file of the memory. `text` keeps bytes that are no UTF-8 (`changes.encoded` gives them back)."""

    name: str
    text: str
    digest: str


@dataclass(frozen=True, slots=True)
class MemoryStat:
    """A file of the memory as a listing has it; `mtime` in seconds since the epoch."""

    name: str
    bytes: int
    mtime: float
    digest: str


@dataclass(frozen=True, slots=True)
class MemoryListing:
    """All files in order of their names; `refused` are others with the reason; `is_cut`: there are more."""

    files: tuple[MemoryStat, ...]
    refused: tuple[tuple[str, str], ...] = ()
    is_cut: bool = False


class MemoryStore(Protocol):
    """One memory directory: its files, the log of what was done to them, what waits for a person, and its upkeep.

    Failures are `FileRefused`, one line each. A directory that isn't there (`is_there`) holds nothing; it is made by
    the first change.

    Files (MEM-1, MEM-9, REL-7): names are relative, as `memory.places` has them. Readers see whole files, old or new,
    at any moment. `write` makes a change that carries the text it started from: when the file still says that, it is
    replaced in one step; when it says something else, both are merged by lines, or the new text is kept under a name
    beside it and `WriteResult` says so; a delete or rename of a file that changed is refused (`MemoryChanged`). Nothing
    acknowledged is ever lost. What may be written is for `memory.trust.gate` to say, before: `engine.remember` asks it.

    Log (MEM-8, MEM-10): written before what it tells. `entries` gives the last ones, newest first, of all files or one.
    `provenance` tells where files come from; one that was written around us isn't in it, or has another digest. `undo`
    takes back the entry or batch named, or the last that wasn't taken back: all of it or, where a file says something
    else by now (`MemoryChanged`), nothing. It says what came of each file, last first. An undo is an entry, and can be
    taken back.

    Inbox (MEM-8): `approve` makes a change that waited as `write` does, with its own stamp.

    Upkeep (MEM-11): `is_due` counts a session, and says whether so many seconds and sessions went by since the
    directory was last put in order; the first look at one that is there begins the count, `done` begins it anew.
    `alone` is held while somebody is at it: `FolderBusy` at once for anybody else, in any process.

    `deferred` gives the directory as it is now, so that what is changed there waits for its `commit` (SCL-2).
    """

    async def is_there(self) -> bool: ...

    async def listing(self) -> MemoryListing: ...

    async def read(self, name: str) -> MemoryFile | None: ...

    async def write(self, change: Change, stamp: Stamp, *, mode: str) -> WriteResult: ...

    async def entries(self, *, limit: int = 50, name: str | None = None) -> tuple[MemoryLogEntry, ...]: ...

    async def provenance(self) -> Mapping[str, Provenance]: ...

    async def undo(self, entry: str | None, stamp: Stamp) -> tuple[WriteResult, ...]: ...

    async def pending(self) -> tuple[MemoryProposal, ...]: ...

    async def propose(self, change: Change, stamp: Stamp, why: str) -> MemoryProposal: ...

    async def approve(self, proposal: str) -> WriteResult: ...

    async def reject(self, proposal: str) -> None: ...

    async def is_due(self, session: str, now: float, *, seconds: float, sessions: int) -> bool: ...

    async def done(self, now: float) -> None: ...

    def alone(self) -> AbstractAsyncContextManager[None]: ...

    async def deferred(self) -> DeferredStore: ...


class DeferredStore(MemoryStore, Protocol):
    """A copy of a memory directory. `commit` makes in the directory itself what was changed here, as it is by then:
    what was changed there meanwhile is merged, or `MemoryChanged`.
    """

    async def commit(self) -> None: ...
