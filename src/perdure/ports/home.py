"""Where sessions are kept, and what is kept beside them: on this machine's disk, in a database, or in memory (SCL-1).

A store has homes: one of a person, or one for each tenant of a gateway. A home never sees what another one holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from perdure.ports.session import Archive, Blobs, Calibrations, Journal, LoadedJournal, NotesFile, PlacedRecord

if TYPE_CHECKING:
    from perdure.memory.places import MemoryRoots
    from perdure.ports.memory import MemorySearch, MemoryStore
    from perdure.transcript.messages import BlobId
    from perdure.transcript.records import Header

Durability = Literal["commit", "process"]
OnDeleted = Callable[[str, int], None]  # told now and then what was deleted, and how many of it


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """One session of a listing. `messages` is None where its journal can't be read.

    `place` is where its journal stands, for people: a path, or the database and the session's id.
    """

    id: str
    place: str
    project: str
    modified: float
    bytes: int
    created: float | None = None
    title: str | None = None
    last_prompt: str | None = None
    messages: int | None = None
    tags: tuple[str, ...] = ()
    branch: str | None = None
    client: str | None = None
    folder: str | None = None
    problem: str | None = None


class StoredJournal(Journal, Protocol):
    """The journal of a session of a home, whose owner may let others write it while it stays open (SCL-3).

    `hold` says that the owner is at work, again or still: `JournalLost` when somebody else opened the session for
    writing meanwhile, so that what is known here may be old. An append holds it as well. `release` says that the owner
    rests, and gives whether somebody else may open it now, and finds all that was acknowledged. Where a session has one
    owner for as long as it is open, as on files, nobody may. `store` puts all that was acknowledged where a sudden end
    of this process can't take it; the power of a disk's machine still can, until `sync`.
    """

    async def hold(self) -> None: ...

    async def store(self) -> None: ...

    async def release(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession:
    """A session that was made or opened. Closing its journal lets go of it, so that anybody else can open it."""

    id: str
    header: Header
    journal: StoredJournal
    blobs: HomeBlobs
    notes: NotesFile
    place: str


class HomeBlobs(Blobs, Protocol):
    """Blobs of a session, or of none. `ids` are those of all; `JournalError` where that can't be told.

    `named` gives those whose ids begin so; `forget` deletes what was first put before a time. Neither raises: what
    can't be read isn't named, and what can't be deleted stays until the next time.
    """

    async def ids(self) -> Sequence[BlobId]: ...

    async def named(self, beginning: str) -> Sequence[BlobId]: ...

    async def forget(self, before: float) -> int: ...


class KeptDocument(NamedTuple):
    """A small text that is kept under a name; its `version` changes whenever it does."""

    data: bytes
    version: str
    modified: float


class Documents(Protocol):
    """Small texts by name, of one kind: conversations, usage, what was deleted. Failures are `JournalError`.

    `put` replaces one only while it is still at `instead_of` (None: there is none yet), and gives its new version; None
    when somebody else was faster. `among` says which of some names there are, in one question to the store. `forget`
    deletes those that nobody changed since a time.
    """

    async def get(self, name: str) -> KeptDocument | None: ...

    async def among(self, names: Collection[str]) -> set[str]: ...

    async def put(self, name: str, data: bytes, *, instead_of: str | None) -> str | None: ...

    async def delete(self, name: str) -> None: ...

    async def forget(self, before: float) -> int: ...


class KnownLink(NamedTuple):
    """A link of a session, after so many messages; and the id of an answer, or of an item of one, that ended there."""

    link: bytes
    session: str
    messages: int
    answer: str = ""


class Links(Protocol):
    """Which session knows which beginning of a history (GW-4). It can be made anew from the journals.

    What it can't tell at the moment is a `JournalError`, so that nothing known passes for unknown.

    `longest` gives the session that knows the longest of these beginnings, and how many messages that is. What is
    `enter`ed is found at the latest by the next question in this process, and after `flush` by all. The session that
    was there first keeps a link that several share.
    """

    async def longest(self, links: Sequence[bytes]) -> tuple[str, int] | None: ...

    async def of_answer(self, answer: str) -> KnownLink | None: ...

    async def named(self, name: str) -> list[str]: ...

    def enter(self, rows: Iterable[KnownLink]) -> None: ...

    def name(self, session: str, name: str) -> None: ...

    async def flush(self) -> None: ...

    async def forget(self, session: str) -> None: ...

    async def close(self) -> None: ...


class KeptMemories(NamedTuple):
    """A directory of memories of a home: what changes it, and what searches it."""

    store: MemoryStore
    search: MemorySearch


class Home(Protocol):
    """All that one person, or one tenant, keeps.

    Sessions: `open` takes an id, or a part of one that no other id has; ids that begin so are meant first. One owner
    writes a session at a time: `SessionBusy` for another while the first is at it; where owners rest in between, an
    open waits a moment first. An owner that was paused for so long that another took its place can't append any more:
    `JournalLost` (SCL-3). `load` reads a session whole, whoever writes it. `fork` makes a new session of records of
    another, with its blobs; whole or not at all. `delete` removes one for good.

    `sessions` lists them, the last written first: those of a project, of these ids, that were written since one time
    and not since another (`before`); at most `limit`, and those `behind` one that was listed, for a list in pages.

    `archive` searches the sessions of a project, None for all. `blobs` are those of no session.

    Memories: `memory_roots` says what the places of memories follow from, for a project; of one on another machine
    (`is_remote`) the path is only a name, and no disk is looked at because of it. `memories` gives the directory at
    such a place, which is made by the first change.
    """

    @property
    def name(self) -> str: ...

    async def create(
        self,
        session: str,
        *,
        project: str | Path,
        created: float,
        source: str | None = None,
        forked_from: str | None = None,
        durability: Durability = "commit",
    ) -> StoredSession: ...

    async def open(
        self, reference: str, *, durability: Durability = "commit", read_only: bool = False
    ) -> StoredSession: ...

    async def load(self, session: str) -> LoadedJournal: ...

    async def fork(
        self, reference: str, session: str, *, created: float, past: Sequence[PlacedRecord] | None = None
    ) -> None: ...

    async def delete(self, session: str) -> None: ...

    async def has(self, session: str) -> bool: ...

    async def sessions(
        self,
        project: str | None = None,
        *,
        ids: Collection[str] | None = None,
        since: float | None = None,
        before: float | None = None,
        behind: SessionInfo | None = None,
        limit: int | None = None,
    ) -> Sequence[SessionInfo]: ...

    def archive(self, project: str | None = None) -> Archive: ...

    @property
    def blobs(self) -> HomeBlobs: ...

    @property
    def links(self) -> Links: ...

    @property
    def calibrations(self) -> Calibrations: ...

    def documents(self, kind: str) -> Documents: ...

    def memory_roots(self, project: str, *, directory: str | None = None, is_remote: bool = False) -> MemoryRoots: ...

    def memories(self, place: str, *, durability: Durability = "commit") -> KeptMemories: ...

    async def secret_key(self) -> bytes: ...


class Claim(NamedTuple):
    """Work that a worker has taken: it may commit its effects while its `fence` stands, up to `want`.

    `attempts` counts those since the last one that succeeded, with this one.
    """

    tenant: str
    session: str
    kind: str
    done: int
    want: int
    fence: int
    attempts: int


class Backlog(NamedTuple):
    """What of a queue isn't done yet, by pieces. `seconds`: for how long the oldest that is due has waited.

    `waiting` are due, or will be when their pause is over; workers are at the `running`, and the `dead` were given up.
    """

    waiting: int
    seconds: float
    running: int
    dead: int


class WorkQueue(Protocol):
    """Background work, as one row for each session and kind: how far it is wanted, and how far it is done (SCL-2).

    `want` raises how far; it never lowers it, and many calls are one piece of work. `claim` takes up to so many pieces
    that nobody is at, for so many seconds by the store's clock; `renew` says that a worker is still at one, and whether
    it is still its own. What is written to the homes of this store within `finishing` is committed together with "done
    up to `Claim.want`": `ClaimLost` when the fence has gone, and in a database nothing of it is kept then. Nothing else
    is asked of the queue meanwhile.

    `fail` puts a piece off, longer each time. After several attempts without success, also those of workers that
    were lost, it is `dead`: it gets one more when somebody wants more of it, and all when it is `revive`d. `release`
    gives one back as if it had never been taken. `wanted` is all of a tenant that isn't done. A failure of the store is
    a `JournalError`: whether something was committed is then not known, and a lost claim is taken again by somebody
    when its time is over.
    """

    async def want(self, tenant: str, session: str, kind: str, upto: int) -> None: ...

    async def claim(self, owner: str, *, limit: int, seconds: float) -> Sequence[Claim]: ...

    async def renew(self, claim: Claim, *, seconds: float) -> bool: ...

    def finishing(self, claim: Claim) -> AbstractAsyncContextManager[None]: ...

    async def fail(self, claim: Claim, why: str) -> None: ...

    async def release(self, claim: Claim, *, seconds: float = 0.0) -> None: ...

    async def backlog(self) -> Backlog: ...

    async def dead(self) -> Sequence[tuple[Claim, str]]: ...

    async def wanted(self, tenant: str) -> Sequence[Claim]: ...

    async def revive(self, tenant: str, session: str, kind: str) -> None: ...

    async def close(self) -> None: ...


class StoreConnections(NamedTuple):
    """Connections of a process to its store: how many are open, are at work, and are waited for."""

    open: int = 0
    busy: int = 0
    waiting: int = 0


class Store(Protocol):
    """All homes: a folder, a database with its blobs, or this process's memory.

    `home` gives that of a tenant, empty for the person's own; nothing is made before something is kept. `tenants` names
    those that keep anything. `probe` really writes something durably, and says how many seconds that took;
    `JournalError` where it can't. `delete_tenant` removes a home for good (SCL-6); one that was broken off goes on with
    the next call. `finish_deletions` tries again what deletions couldn't delete, as an object store didn't answer; it
    is called now and then, and never raises.

    `connections` are those of this process to a database, and `watch` has somebody told how many seconds each
    transaction took there, with the wait for a connection.
    """

    @property
    def name(self) -> str: ...

    def home(self, tenant: str = "") -> Home: ...

    async def tenants(self) -> Collection[str]: ...

    async def delete_tenant(self, tenant: str, *, on_deleted: OnDeleted | None = None) -> None: ...

    async def finish_deletions(self) -> None: ...

    async def probe(self) -> float: ...

    @property
    def connections(self) -> StoreConnections: ...

    def watch(self, took: Callable[[float], None]) -> None: ...

    @property
    def work(self) -> WorkQueue: ...

    async def close(self) -> None: ...
