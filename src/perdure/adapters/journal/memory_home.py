"""`ports.Home` and `ports.Store` in this process: what a database does, for tests and replays (SCL-1, SCL-4).

Owners rest between requests here, and one whose lease has ended may find that another has taken its place.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import msgspec

from perdure.adapters.journal.in_memory import MemoryBlobs, MemoryJournal, MemoryNotes
from perdure.adapters.journal.search import Asked, hit_of, weighed
from perdure.adapters.journal.session_search import sessions_read
from perdure.adapters.journal.store import (
    KEY_BYTES,
    ListingFacts,
    checked_id,
    copy_records,
    new_header,
    real_project,
)
from perdure.adapters.machine.repositories import memory_roots_in_rows
from perdure.adapters.memory.catalogue import FolderMemories
from perdure.adapters.memory.store import InMemoryFolder, StoredMemories
from perdure.adapters.work import SqliteWorkQueue
from perdure.errors import JournalError, JournalLost, SessionBusy, SessionNotFound
from perdure.memory.places import MemoryRoots
from perdure.ports.home import (
    Durability,
    KeptDocument,
    KeptMemories,
    KnownLink,
    OnDeleted,
    SessionInfo,
    StoreConnections,
    StoredSession,
)
from perdure.ports.session import Blobs, FoundSessions, LoadedJournal, PlacedRecord, Receipt, SearchResults
from perdure.recall.queries import terms_of
from perdure.transcript.codec import VERSION, encode_header, encode_line
from perdure.transcript.messages import BlobId
from perdure.transcript.records import Header, Record

LEASE_SECONDS = 60.0
_MOST_NAMED = 20
_PAUSE_SECONDS = 0.01  # between two looks at whether an owner rests by now


@dataclass(slots=True, eq=False)
class KeptSession:
    """What is kept of a session, and whose it is. An owner with an older fence has lost it."""

    log: MemoryJournal
    header: Header
    blobs: TimedMemoryBlobs
    notes: MemoryNotes
    written: float
    fence: int = 0
    held_until: float = 0.0
    is_deleted: bool = False
    lines: list[bytes] = field(default_factory=list)

    @property
    def about(self) -> tuple[str, str, str]:
        """Where what is said in it was said: its place, its id, its project."""
        return self.header.session, self.header.session, self.header.project or ""

    @property
    def bytes(self) -> int:
        """How long its file would be."""
        return len(encode_header(self.header)) + sum(map(len, self.lines))


class OwnedJournal:
    """`ports.StoredJournal`: a session as one of its owners, or its readers, has it; a reader has no fence.

    With the durability of a process, an owner keeps what is appended to itself until it syncs, as on a database.
    """

    def __init__(self, kept: KeptSession, home: MemoryHome, fence: int | None, durability: Durability) -> None:
        self._kept, self._home, self._fence, self._durability = kept, home, fence, durability
        self._log = kept.log if fence is None else kept.log.copy()
        self._unwritten: list[tuple[Record, ...]] = []
        self._is_closed = False

    async def append(self, records: tuple[Record, ...]) -> Receipt:
        """What the port says."""
        if self._is_closed:
            raise JournalError("the journal is closed")
        if self._fence is None:
            raise JournalError("the journal was opened read-only")
        if self._durability == "commit":
            await self.hold()
        receipt = await self._log.append(records)
        self._unwritten.append(records)
        if self._durability == "commit":
            await self.sync()
        return receipt

    async def load(self, *, whole: bool = False) -> LoadedJournal:
        """What the port says."""
        return await self._log.load(whole=whole)

    async def sync(self) -> None:
        """What the port says."""
        if self._unwritten:
            await self.hold()
            unwritten, self._unwritten = self._unwritten, []
            for records in unwritten:
                receipt = await self._kept.log.append(records)
                self._kept.lines.append(encode_line(receipt.seq, records))
            self._kept.written = self._home.clock()

    async def hold(self) -> None:
        """Be at work, unless another owner has come."""
        if not self._is_owner:
            raise JournalLost(f"{self._kept.header.session}: another process has opened the session meanwhile")
        self._kept.held_until = self._home.clock() + self._home.lease_seconds

    async def store(self) -> None:
        """What the port says."""
        await self.sync()

    async def release(self) -> bool:
        """Rest: another owner may come."""
        await self.sync()
        if self._is_owner:
            self._kept.held_until = 0.0
        return True

    async def close(self) -> None:
        """Let go of the session. May be called twice."""
        if not self._is_closed:
            self._is_closed = True
            await self.release()

    @property
    def _is_owner(self) -> bool:
        return not self._kept.is_deleted and self._kept.fence == self._fence


class TimedMemoryBlobs(MemoryBlobs):
    """`ports.HomeBlobs`: with the time when each was first put."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._put_at: dict[BlobId, float] = {}

    async def put(self, contents: tuple[bytes, ...]) -> tuple[BlobId, ...]:
        """What the port says."""
        blobs = await super().put(contents)
        for blob in blobs:
            self._put_at.setdefault(blob, self._clock())
        return blobs

    @property
    def is_empty(self) -> bool:
        """Whether there is none."""
        return not self._contents

    def take_all(self, other: TimedMemoryBlobs) -> None:
        """Have all that another has."""
        self._contents |= other._contents
        self._put_at |= other._put_at

    async def ids(self) -> Sequence[BlobId]:
        """What the port says."""
        return sorted(self._contents)

    async def named(self, beginning: str) -> Sequence[BlobId]:
        """What the port says."""
        return [blob for blob in self._contents if blob.startswith(beginning)]

    async def forget(self, before: float) -> int:
        """What the port says."""
        old = [blob for blob, at in self._put_at.items() if at < before]
        for blob in old:
            del self._contents[blob], self._put_at[blob]
        return len(old)


class MemoryDocuments:
    """`ports.Documents` as a dictionary."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[str, KeptDocument] = {}
        self._versions = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is none."""
        return not self._kept

    async def get(self, name: str) -> KeptDocument | None:
        """What the port says."""
        return self._kept.get(name)

    async def among(self, names: Collection[str]) -> set[str]:
        """What the port says."""
        return self._kept.keys() & names

    async def put(self, name: str, data: bytes, *, instead_of: str | None) -> str | None:
        """What the port says."""
        there = self._kept.get(name)
        if instead_of != (there and there.version):
            return None
        self._versions += 1
        self._kept[name] = KeptDocument(data, str(self._versions), self._clock())
        return self._kept[name].version

    async def delete(self, name: str) -> None:
        """What the port says."""
        self._kept.pop(name, None)

    async def forget(self, before: float) -> int:
        """What the port says."""
        old = [name for name, kept in self._kept.items() if kept.modified < before]
        for name in old:
            del self._kept[name]
        return len(old)


class MemoryLinks:
    """`ports.Links` as dictionaries."""

    def __init__(self) -> None:
        self._links: dict[bytes, KnownLink] = {}
        self._answers: dict[str, tuple[bytes, int]] = {}
        self._names: dict[str, str] = {}  # of each session, the one that was named last at the end

    async def longest(self, links: Sequence[bytes]) -> tuple[str, int] | None:
        """What the port says."""
        found = [self._links[link] for link in links if link in self._links]
        last = max(found, key=lambda one: one.messages, default=None)
        return last and (last.session, last.messages)

    async def of_answer(self, answer: str) -> KnownLink | None:
        """What the port says."""
        link, messages = self._answers.get(answer, (b"", 0))
        known = self._links.get(link)
        return known._replace(answer=answer) if known is not None and known.messages == messages else None

    async def named(self, name: str) -> list[str]:
        """What the port says."""
        return [session for session, one in reversed(self._names.items()) if one == name][:_MOST_NAMED]

    def enter(self, rows: Iterable[KnownLink]) -> None:
        """What the port says."""
        for row in rows:
            self._links.setdefault(row.link, row._replace(answer=""))
            if row.answer:
                self._answers[row.answer] = row.link, row.messages

    def name(self, session: str, name: str) -> None:
        """What the port says."""
        self._names.pop(session, None)
        if name:
            self._names[session] = name

    async def flush(self) -> None:
        """Nothing: whoever shares this home has it already."""

    async def forget(self, session: str) -> None:
        """What the port says."""
        self._names.pop(session, None)
        self._links = {link: one for link, one in self._links.items() if one.session != session}

    async def close(self) -> None:
        """Nothing is held."""


class MemoryCalibrations:
    """`ports.Calibrations` as a dictionary."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    def ratio(self, model: str) -> float | None:
        """What the port says."""
        return self._ratios.get(model)

    def learn(self, model: str, ratio: float) -> None:
        """What the port says."""
        self._ratios[model] = ratio


@dataclass(frozen=True, slots=True)
class MemoryArchive:
    """`ports.Archive` of a home, or of one of its projects."""

    home: MemoryHome
    project: str | None

    async def search(
        self, query: str, *, limit: int = 10, sessions: Sequence[str] = (), since: float | None = None
    ) -> SearchResults:
        """What the port says."""
        terms = terms_of(query)
        if not terms:
            return SearchResults((), "the query holds no words")
        wanted = [self.home.named(name, self.project) for name in sessions] or self.home.listed(self.project)
        read = [(one.about, (await one.log.load(whole=True)).records) for one in wanted]
        asked = Asked.of(query, terms)
        candidates, texts = weighed(asked, read, since)
        best = asked.best(candidates, texts)[:limit]
        return SearchResults(tuple(hit_of(c, score, texts.text(c.text), asked.terms) for c, score in best))

    async def sessions(
        self, prompt: str, *, limit: int = 5, since: float | None = None, without: Collection[str] = ()
    ) -> FoundSessions:
        """What the port says."""
        read = [
            (one.header.session, one.header.project or "", (await one.log.load(whole=True)).records)
            for one in self.home.listed(self.project)
        ]
        return sessions_read(prompt, read, limit=limit, since=since, without=without)

    async def load(self, session: str) -> tuple[LoadedJournal, Blobs]:
        """What the port says."""
        found = self.home.named(session, self.project)
        return await found.log.load(whole=True), found.blobs


class MemoryHome:
    """`ports.Home` as dictionaries. An owner that is at work is waited for `waits` seconds."""

    def __init__(
        self,
        name: str,
        *,
        clock: Callable[[], float] = time.time,
        lease_seconds: float = LEASE_SECONDS,
        waits: float = 0.0,
    ) -> None:
        self.name, self.clock, self.lease_seconds, self._waits = name, clock, lease_seconds, waits
        self.blobs = TimedMemoryBlobs(clock)
        self.links = MemoryLinks()
        self.calibrations = MemoryCalibrations()
        self._sessions: dict[str, KeptSession] = {}
        self._documents: dict[str, MemoryDocuments] = {}
        self._memories: dict[str, tuple[InMemoryFolder, KeptMemories]] = {}
        self._key = b""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept."""
        documents = all(one.is_empty for one in self._documents.values())
        memories = all(folder.is_empty for folder, _ in self._memories.values())
        return documents and memories and self.blobs.is_empty and not (self._sessions or self._key)

    async def create(
        self,
        session: str,
        *,
        project: str | Path,
        created: float,
        source: str | None = None,
        forked_from: str | None = None,
        durability: Durability = "commit",
    ) -> StoredSession:
        """A new session of a project."""
        header = new_header(session, project=project, created=created, source=source, forked_from=forked_from)
        return self._owned(self._made(header), durability)

    async def open(
        self, reference: str, *, durability: Durability = "commit", read_only: bool = False
    ) -> StoredSession:
        """What the port says."""
        session = self.named(reference)
        if read_only:
            return self._opened(session, None, durability)
        with anyio.move_on_after(self._waits):
            while session.held_until > self.clock():  # noqa: ASYNC110 - an owner may be in another loop
                await anyio.sleep(_PAUSE_SECONDS)
        if session.held_until > self.clock():
            raise SessionBusy(f"{session.header.session} is being written by another owner")
        return self._owned(session, durability)

    async def load(self, session: str) -> LoadedJournal:
        """What the port says."""
        return await self._exactly(session).log.load(whole=True)

    async def fork(
        self, reference: str, session: str, *, created: float, past: Sequence[PlacedRecord] | None = None
    ) -> None:
        """What the port says."""
        source = self.named(reference)
        header = msgspec.structs.replace(
            source.header,
            session=checked_id(session),
            created=created,
            forked_from=source.header.session,
            version=VERSION,
        )
        records = (await source.log.load(whole=True)).records if past is None else past
        made = self._made(header)
        journal = OwnedJournal(made, self, made.fence, "process")
        try:
            await copy_records(records, journal.append)
            await journal.close()
        except BaseException:
            del self._sessions[session]
            raise
        made.blobs.take_all(source.blobs)
        made.notes.data = source.notes.data if past is None else None

    async def delete(self, session: str) -> None:
        """What the port says."""
        found = self._exactly(session)
        if found.held_until > self.clock():
            raise SessionBusy(f"{session} is being written by another owner")
        found.is_deleted = True
        del self._sessions[session]

    async def has(self, session: str) -> bool:
        """What the port says."""
        return session in self._sessions

    async def sessions(
        self,
        project: str | None = None,
        *,
        ids: Collection[str] | None = None,
        since: float | None = None,
        before: float | None = None,
        behind: SessionInfo | None = None,
        limit: int | None = None,
    ) -> Sequence[SessionInfo]:
        """What the port says."""
        found = [
            one
            for one in self.listed(project)
            if (ids is None or one.header.session in ids)
            and (since is None or one.written >= since)
            and (before is None or one.written < before)
            and (behind is None or (one.written, one.header.session) < (behind.modified, behind.id))
        ]
        return [self._info(one) for one in found[:limit]]

    def archive(self, project: str | None = None) -> MemoryArchive:
        """What was said in all sessions, or in those of a project."""
        return MemoryArchive(self, project)

    def documents(self, kind: str) -> MemoryDocuments:
        """Those of a kind."""
        return self._documents.setdefault(kind, MemoryDocuments(self.clock))

    def memory_roots(self, project: str, *, directory: str | None = None, is_remote: bool = False) -> MemoryRoots:
        """What the places of a project's memories follow from."""
        return memory_roots_in_rows(project, directory=directory, is_remote=is_remote)

    def memories(self, place: str, *, durability: Durability = "commit") -> KeptMemories:
        """The directory at a place."""
        if place not in self._memories:
            folder = InMemoryFolder(clock=self.clock)
            self._memories[place] = folder, KeptMemories(StoredMemories(folder), FolderMemories(folder))
        return self._memories[place][1]

    async def secret_key(self) -> bytes:
        """The home's key, made on the first use."""
        self._key = self._key or secrets.token_bytes(KEY_BYTES)
        return self._key

    # --- what its archive asks, too

    def listed(self, project: str | None = None) -> list[KeptSession]:
        """All sessions, or those of a project, last written first."""
        where = None if project is None else real_project(project)
        found = [one for one in self._sessions.values() if where in (None, one.header.project)]
        return sorted(found, key=lambda one: (one.written, one.header.session), reverse=True)

    def named(self, text: str, project: str | None = None) -> KeptSession:
        """The session that an id, or a part of one, names. Raises `SessionNotFound`."""
        ids = [one.header.session for one in self.listed(project)]
        held = [one for one in ids if text and text in one]
        found = [one for one in held if one == text] or [one for one in held if one.startswith(text)] or held
        if len(found) != 1:
            what = f"names {len(found)} sessions: give more of the id" if found else "names no session here"
            raise SessionNotFound(f"{text[:80]!r} {what}")
        return self._sessions[found[0]]

    def _exactly(self, session: str) -> KeptSession:
        found = self._sessions.get(session)
        if found is None:
            raise SessionNotFound(f"no session {session[:80]!r} here")
        return found

    def _made(self, header: Header) -> KeptSession:
        if header.session in self._sessions:
            raise JournalError(f"{header.session}: there is a session of that id already; open it instead")
        log = MemoryJournal(header, encode=True)
        notes = MemoryNotes(f"{self.name}/{header.session}/summary.md")
        made = KeptSession(log, header, TimedMemoryBlobs(self.clock), notes, self.clock())
        self._sessions[header.session] = made
        return made

    def _owned(self, kept: KeptSession, durability: Durability) -> StoredSession:
        kept.fence += 1
        kept.held_until = self.clock() + self.lease_seconds
        return self._opened(kept, kept.fence, durability)

    def _opened(self, kept: KeptSession, fence: int | None, durability: Durability) -> StoredSession:
        identity = kept.header.session
        return StoredSession(
            id=identity,
            header=kept.header,
            journal=OwnedJournal(kept, self, fence, durability),
            blobs=kept.blobs,
            notes=kept.notes,
            place=f"{self.name}/{identity}",
        )

    def _info(self, session: KeptSession) -> SessionInfo:
        facts = ListingFacts()
        facts.read_lines([*session.lines, b""], VERSION)
        return SessionInfo(
            id=session.header.session,
            place=f"{self.name}/{session.header.session}",
            project=session.header.project or "",
            modified=session.written,
            bytes=session.bytes,
            created=session.header.created,
            title=facts.title,
            last_prompt=facts.last_prompt,
            messages=facts.counted,
            tags=facts.tags or (),
            branch=facts.branch,
            client=facts.client,
            folder=facts.folder,
        )


class MemoryHomes:
    """`ports.Store`: the homes of this process. Whoever has the same store shares them."""

    name = "memory"

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        lease_seconds: float = LEASE_SECONDS,
        waits: float = 0.0,
    ) -> None:
        self._home = partial(MemoryHome, clock=clock, lease_seconds=lease_seconds, waits=waits)
        self._homes: dict[str, MemoryHome] = {}
        self.work = SqliteWorkQueue(clock=clock)

    def home(self, tenant: str = "") -> MemoryHome:
        """That of a tenant, or of the person."""
        return self._homes.setdefault(tenant, self._home(f"memory/{tenant}"))

    async def tenants(self) -> Collection[str]:
        """Those that keep anything."""
        return sorted(name for name, home in self._homes.items() if name and not home.is_empty)

    async def delete_tenant(self, tenant: str, *, on_deleted: OnDeleted | None = None) -> None:
        """What the port says."""
        if (home := self._homes.get(tenant)) is not None:
            for one in await home.sessions():
                await home.delete(one.id)
            del self._homes[tenant]

    async def finish_deletions(self) -> None:
        """What is deleted is gone at once."""

    async def probe(self) -> float:
        """There is always room."""
        return 0.0

    @property
    def connections(self) -> StoreConnections:
        """There are none."""
        return StoreConnections()

    def watch(self, took: Callable[[float], None]) -> None:
        """There are no transactions to tell of."""

    async def close(self) -> None:
        """What is kept stays as long as the store."""
        await self.work.close()
