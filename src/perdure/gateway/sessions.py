"""The sessions of one tenant: found by their history, opened, forked, kept warm for a while (GW-2, GW-4)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
import msgspec

from perdure.context.models import CacheTtl
from perdure.context.reminders import neutralised_result
from perdure.context.view import advance
from perdure.engine.background import Keepers
from perdure.engine.session import LiveSession
from perdure.errors import JournalError, JournalLost, SessionNotFound
from perdure.events import KeeperFailed
from perdure.gateway.compactions import SEALED, PlaceSeal
from perdure.gateway.compress import CompressedOriginals
from perdure.gateway.conversations import CONVERSATIONS, Conversations
from perdure.gateway.metrics import SessionSink, SessionSpending
from perdure.gateway.recall import without_tool
from perdure.gateway.responses import ResponsesProtocol
from perdure.gateway.stored import DELETED, StoredResponse, stored_response
from perdure.gateway.titles import folder_of
from perdure.ports.home import Home, KnownLink, StoredJournal
from perdure.ports.session import LoadedJournal as Loaded
from perdure.ports.session import PlacedRecord as Placed
from perdure.ports.session import Receipt
from perdure.transcript.blocks import ToolUse
from perdure.transcript.history import ASKED, CLIENT, NAMED, RECALLED, HistoryPosition, chain
from perdure.transcript.messages import Message, call_id_as_said
from perdure.transcript.records import (
    Calibrated,
    Compacted,
    CompactionFailed,
    Cursor,
    Edit,
    Front,
    Noted,
    Record,
    Rewound,
    Titled,
    Worded,
)
from perdure.transcript.response_items import named_items
from perdure.wiring import SessionOptions as Parts
from perdure.wiring import background, create_session, memories_of, open_session
from perdure.wiring.remembering import remembering_by_name

SOURCE = "gateway"
_PROJECTS = "/gateway"
_TRIES = 3
_MOST_ITEM_BYTES = 4 * 1024 * 1024  # of items that are kept in memory for a tenant's references
# The client says them again, or we do.
_MAY_WAIT = (Message, Worded, Cursor, Titled, Calibrated, CompactionFailed, Noted)

TracesFrom = Callable[[int], Awaitable["AnswerTraces"]]
Want = Callable[[str, str, int], Awaitable[None]]  # `WorkQueue.want` of a tenant


def _is_ours(record: Record) -> bool:
    """Whether a message is one that no client says again."""
    is_reminder = isinstance(record, Message) and record.origin == "reminder" and record.wire is None
    return is_reminder or (isinstance(record, Message) and record.note == RECALLED)


class LateSyncJournal:
    """`ports.Journal` over one that doesn't sync by itself; `commit` does, when there is reason to.

    `is_lost`: what stands there isn't what is known here any more, so nothing can be written before it is opened again.
    """

    def __init__(self, journal: StoredJournal, *, is_durable: bool) -> None:
        self._journal, self._is_durable = journal, is_durable
        self.is_lost = False
        self.seq = 0  # of the last line that was written here
        self._is_at_work = True  # whoever opens a session holds it
        self.is_behind = self._is_owed = False  # something isn't durable yet; something has to be before it is sent
        self.has_edits = False  # the view shows something else than what was said

    async def append(self, records: tuple[Record, ...]) -> Receipt:
        with self._noticing_loss():
            receipt = await self._journal.append(records)
        self.seq, self.is_behind, self._is_at_work = receipt.seq, True, True
        self.has_edits = self.has_edits or any(isinstance(r, Edit | Compacted) or _is_ours(r) for r in records)
        self._is_owed = self._is_owed or not all(isinstance(r, _MAY_WAIT) and not _is_ours(r) for r in records)
        return receipt

    async def load(self, *, whole: bool = False) -> Loaded:
        return await self._journal.load(whole=whole)

    async def sync(self) -> None:
        await self._commit(is_due=self.is_behind)

    async def store(self) -> None:
        """Put what was said where a sudden end of this process can't take it. Raises `JournalError`."""
        with self._noticing_loss():
            await self._journal.store()

    async def close(self) -> None:
        try:
            await self.sync()
        finally:
            await self._journal.close()

    async def commit(self) -> None:
        """Before a request goes on: make edits durable, if there are any; `sync` makes everything."""
        await self._commit(is_due=self._is_owed)

    async def _commit(self, *, is_due: bool) -> None:
        if is_due and self._is_durable:
            self.is_behind = self._is_owed = False
            try:
                with self._noticing_loss():
                    await self._journal.sync()
            except BaseException:
                self.is_behind = self._is_owed = True
                raise

    async def hold(self) -> bool:
        """Say that a request is under way; False where the session has to be opened again. Raises `JournalError`."""
        self._is_at_work = True
        with suppress(JournalLost), self._noticing_loss():
            await self._journal.hold()
        return not self.is_lost

    async def release(self) -> bool:
        """Say that none is any more; whether another process may go on with the session from now on.

        Raises `JournalError`.
        """
        if not self._is_at_work:
            return False
        self._is_at_work = False
        try:
            with self._noticing_loss():
                return await self._journal.release()
        except BaseException:
            self._is_at_work = True
            raise

    @contextmanager
    def _noticing_loss(self) -> Iterator[None]:
        try:
            yield
        except JournalLost:
            self.is_lost = True
            raise


class AnswerTraces(NamedTuple):
    """By what an answer is found in a history: the digests of its messages, and the ids of the calls in them."""

    digests: list[bytes]
    calls: set[str]


@dataclass(slots=True, eq=False)
class CachedSession:
    """A session in memory. `head` is how far the client's history goes in it; `asked` where our last answer began.

    `is_shaped`: the view isn't what the client has any more, so the view is what goes upstream.
    """

    session: LiveSession
    journal: LateSyncJournal
    keepers: Keepers
    sink: SessionSink
    head: HistoryPosition
    asked: HistoryPosition | None = None
    route: str = "default"
    is_shaped: bool = False
    is_rewound: bool = False  # its client has edited its history: the view ends where both agree
    users: int = 0
    used: float = field(default_factory=time.monotonic)
    size: int = 0  # its tokens when it was last used: all sessions are added up after each answer
    is_alone: bool = False  # no other session has any message of its history, so the index needn't be asked
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_corrected: bool = False  # answers as long as the client wants are refused: a shorter one is asked for
    front_ttl: CacheTtl | None = None  # how long the client wants its system prompt and tools cached
    wants_own: bool = False  # the upstream refused the view and took the client's own bytes
    spending: SessionSpending = field(default_factory=SessionSpending)
    ours: str = ""  # the name of our recall tool in the last request; empty where it wasn't offered
    tool_name: str = ""  # the name that it has whenever it is offered
    fronted: tuple[bytes, Front | None] = b"", None  # the digest of the front that came last, and what it made then
    awaits_memories: bool = False  # it gets those of the folder that its client names, once that is known

    @property
    def id(self) -> str:
        return self.session.id

    @property
    def tokens(self) -> int:
        return self.session.facts().size(self.session.view)


class TenantSessions:
    """All sessions of one tenant, in a home of their own. `parts` says what a session of a route is made with, and
    `sink` makes what its events go to. `want` gives how workers are told what is due after answers, if they are."""

    def __init__(
        self,
        home: Home,
        sink: Callable[[str], SessionSink],
        parts: Callable[[str, SessionSink], Parts],
        *,
        is_durable: bool = True,
        seal: PlaceSeal,
        want: Callable[[], Want | None] = lambda: None,
    ) -> None:
        self.home, self.seal, self._want = home, seal, want
        self.open: dict[str, CachedSession] = {}
        self._sink, self._parts_of = sink, parts
        self._is_durable = is_durable
        self._index = home.links
        self._asking = 0
        self._deleted = home.documents(DELETED)
        self._items: dict[str, bytes] = {}
        self._item_bytes = 0
        self.compressed = CompressedOriginals(home.blobs)
        self.conversations = Conversations(home.documents(CONVERSATIONS))
        self._heads: dict[bytes, CachedSession] = {}
        self.under_way: set[str] = set()  # ids of answers that clients know and that aren't over
        self._opening: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        self._entering = 0
        self._closing: dict[str, asyncio.Event] = {}

    @property
    def is_idle(self) -> bool:
        """Whether nothing of this tenant's is open or looked for."""
        return not (self.open or self._entering or self._asking)

    @asynccontextmanager
    async def entered(self, links: Sequence[bytes], route: str, traces: TracesFrom) -> AsyncIterator[CachedSession]:
        """The session of a history, locked, with its head at the longest beginning that it knows.

        `traces` reads the messages behind so many.
        """
        for _ in range(_TRIES):
            self._entering += 1
            try:
                held = await self._found(links, route)
                held.users += 1
            finally:
                self._entering -= 1
            async with self._used(held), held.lock:
                forked = None
                if await held.journal.hold():
                    if await self._stands(held, links):
                        yield held
                        return
                    known = (await held.session.ports.journal.load(whole=True)).records
                    if await self._is_edited(held, links, known, traces):
                        yield held
                        return
                    forked = await self._forked(held, links, known, route)
                    forked.users += 1
            if forked is None:  # another process went on with it: it is looked for again
                held.sink.metrics.reopened.inc()
                await self.let_go(held)
                continue
            async with self._used(forked), forked.lock:
                if forked.head.is_on(links):
                    yield forked
                    return
        raise JournalError("the session kept changing while it was looked for")

    async def place(self, continues: str, *, even_deleted: bool = False) -> HistoryPosition | None:
        """The place in a history that a client goes on from, by the id of the answer that ended there, or as it was
        sealed; None for one that isn't known here. Raises `JournalError` where that can't be told yet."""
        if continues in self.under_way:
            raise JournalError(f"the response {continues[:80]!r} isn't over: ask again behind its end")
        if not continues.startswith(SEALED):
            known = None if not even_deleted and await self.is_deleted(continues) else await self._ended(continues)
            return known and HistoryPosition(known.messages, known.link)
        count, link = self.seal.opened(continues) or (0, b"")
        return HistoryPosition(count, link) if count and await self._longest([link]) else None

    async def stored(self, response: str, *, even_deleted: bool = False) -> StoredResponse | None:
        """An answer by its id, from the journal of its session; None for one that isn't known, or was deleted."""
        known = None if not even_deleted and await self.is_deleted(response) else await self._ended(response)
        if known is None:
            return None
        records = await self._records(known.session)
        found = await anyio.to_thread.run_sync(stored_response, records, response, RECALLED)
        if found is None or found.front is None:
            return found
        return replace(found, front=without_tool(found.front, ResponsesProtocol()))

    async def _records(self, session: str) -> list[Record]:
        """All records of a session, whether it is open or not; none where it is gone. Raises `JournalError`."""
        try:
            return [placed.record for placed in (await self.home.load(session)).records]
        except SessionNotFound:
            return []

    async def _longest(self, links: Sequence[bytes]) -> tuple[str, int] | None:
        with self._at_index():
            return await self._index.longest(links)

    async def _ended(self, answer: str) -> KnownLink | None:
        """Where an answer ended, by its id; where it began, if it broke off."""
        with self._at_index():
            known = await self._index.of_answer(answer)
            bare = self.seal.name_in(answer) if known is None else ""
            return await self._index.of_answer(bare) if bare else known

    @contextmanager
    def _at_index(self) -> Iterator[None]:
        """While the index is asked, nobody has to write what it was told: it does so first."""
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1

    async def is_deleted(self, response: str) -> bool:
        """Whether the client had this answer deleted."""
        return await self._deleted.get(response) is not None

    async def delete_response(self, response: str) -> None:
        """Nobody gets this answer again, or goes on from it; its session stays what it is. Raises `JournalError`."""
        await self._deleted.put(response, b"", instead_of=None)
        self._items.clear()
        self._item_bytes = 0

    def cached(self, links: Sequence[bytes]) -> CachedSession | None:
        """The session in memory that a history goes on from; nothing is opened or changed."""
        found = (self._heads.get(links[n]) for n in range(len(links) - 1, 0, -1))
        return next((held for held in found if held is not None and held.head.is_on(links)), None)

    async def _found(self, links: Sequence[bytes], route: str) -> CachedSession:
        """The session that knows the longest beginning, hot or from the index; else a new one.

        Histories that begin with the same message wait for each other, since they may be of one session; no others do.
        """
        async with self._one_at_a_time(next((link for link in links[1:] if link), links[0])):
            hot = next((n for n in range(len(links) - 1, 0, -1) if links[n] in self._heads), 0)
            if hot and self._heads[links[hot]].is_alone:
                return self._heads[links[hot]]
            known = await self._longest(links[hot + 1 :]) if hot + 1 < len(links) else None
            if known is None and hot and links[hot] not in self._heads:  # somebody went on from there meanwhile
                known = await self._longest(links[: hot + 1])
            if known is not None:
                async with self._one_at_a_time(known[0].encode()):
                    await self._closed(known[0])
                    held = self.open.get(known[0]) or await self._opened(known[0], route)
                if held is not None:
                    return held
            if hot and (held := self._heads.get(links[hot])) is not None:
                return held
            made = await self._created(links[0], route)
            made.is_alone = known is None and bool(links[0])  # without a start it goes on from another's answer
            return made

    def _one_at_a_time(self, name: bytes) -> asyncio.Lock:
        lock = self._opening.get(name)
        if lock is None:
            lock = self._opening[name] = asyncio.Lock()
        return lock

    async def _closed(self, session: str) -> None:
        """Wait until a session that is being closed can be opened again."""
        while (closing := self._closing.get(session)) is not None:
            await closing.wait()

    async def _opened(self, session: str, route: str) -> CachedSession | None:
        sink = self._sink(route)
        sink.session = session
        try:
            opened = await open_session(self.home, session, parts=(parts := self._parts(route, sink)))
        except SessionNotFound:
            await self._index.forget(session)
            return None
        return self._hold(opened, parts, sink, route)

    async def _created(self, start: bytes, route: str) -> CachedSession:
        sink = self._sink(route)
        parts = self._parts(route, sink)
        sink.session = parts.ids.new("session")
        # Of files it is their folder. In a database a tenant's name, which no gateway's own folder may change.
        project = os.path.join(_PROJECTS, self.home.name)
        made = await create_session(self.home, project=project, session=sink.session, source=SOURCE, parts=parts)
        return self._hold(made, parts, sink, route, HistoryPosition(0, start))

    def _parts(self, route: str, sink: SessionSink) -> Parts:
        """What any session here is made with beside what its route gives."""
        parts = self._parts_of(route, sink)
        return replace(parts, journal=partial(LateSyncJournal, is_durable=self._is_durable))

    @asynccontextmanager
    async def read(self, links: Sequence[bytes], route: str) -> AsyncIterator[CachedSession | None]:
        """The session that a history goes on from as it stands in the store, while somebody else has it; None for none.

        It is the caller's alone, and nothing can be recorded there.
        """
        opened: LiveSession | None = None
        held: CachedSession | None = None
        sink = self._sink(route)
        with suppress(JournalError):
            known = await self._longest(links[1:])
            if known is not None:
                sink.session = known[0]
                parts = self._parts(route, sink)
                opened = await open_session(self.home, known[0], parts=parts, read_only=True)
                held = _cached(opened, parts, sink, route)
        try:
            if held is not None and not held.head.is_on(links):
                asked, view = held.asked, held.session.view  # our last answer may not have reached the client
                if asked is None or not asked.is_on(links) or asked.message not in view.positions:
                    held = None
                else:
                    advance(view, Rewound(to=asked.message, reason="asked again"))
                    held.head = asked
            yield held
        finally:
            if opened is not None:
                await opened.close()

    def _hold(
        self,
        session: LiveSession,
        parts: Parts,
        sink: SessionSink,
        route: str,
        head: HistoryPosition | None = None,
    ) -> CachedSession:
        held = _cached(session, parts, sink, route, head)
        self.open[session.id] = held
        self._heads[held.head.link] = held
        return held

    # --- where a history stands in a session ------------------------------------------------------------------------

    async def _stands(self, held: CachedSession, links: Sequence[bytes]) -> bool:
        """Whether the history goes on at the session's head, if need be once our last answer is rewound."""
        if held.head.is_on(links):
            return True
        asked, view = held.asked, held.session.view
        if asked is None or not asked.is_on(links) or held.users > 1 or asked.message not in view.positions:
            return False
        behind = view.items[view.positions[asked.message] + 1 :]
        if sum(item.message.model is not None for item in behind) != held.head.count - asked.count:
            return False  # the client has said something since our answer
        await held.session.record(Rewound(to=asked.message, reason="asked again"), asked.cursor(CLIENT))
        self.moved(held, asked)
        return True

    async def _is_edited(
        self, held: CachedSession, links: Sequence[bytes], known: Sequence[Placed], traces: TracesFrom
    ) -> bool:
        """Whether a history is the session's own that its client has edited further up: our last answer still stands
        in it, or one of its calls does. Then the session goes on from where both agree, and the rest is said anew.

        A history without that is another branch. One whose answers were given here was known before it got so far.
        """
        places = [place for placed in known if (place := HistoryPosition.of(placed.record, CLIENT)) is not None]
        by_link, by_count = ({place.link: place for place in places}, {place.count: place.link for place in places})
        shared = next((by_link[link] for link in reversed(links[1:]) if link in by_link), None)
        before = by_count.get(held.head.count - 1)
        if shared is None or before is None or held.users > 1:
            return False
        said = await traces(shared.count)
        calls = {use.id for use in _last_answer(held).tool_uses if call_id_as_said(use.id) == use.id}
        if calls.isdisjoint(said.calls) and all(chain(before, [one])[1] != held.head.link for one in said.digests):
            return False
        await held.session.record(Rewound(to=shared.message, reason="edited by its client"), shared.cursor(CLIENT))
        self.moved(held, shared)
        held.asked, held.is_rewound = None, True
        held.sink.metrics.edited.inc()
        return True

    async def _forked(
        self, parent: CachedSession, links: Sequence[bytes], known: Sequence[Placed], route: str
    ) -> CachedSession:
        """A session with the past that both share; without any when the parent has no such place after all."""
        parent.is_alone = False
        ends: dict[bytes, int] = {}  # where the records of each beginning end that the parent knows
        for number, placed in enumerate(known):
            if (place := HistoryPosition.of(placed.record, CLIENT)) is not None:
                ends.setdefault(place.link, number)
        count = next((n for n in range(len(links) - 1, 0, -1) if links[n] in ends), 0)
        past = records_until(known, ends[links[count]]) if count else []
        ports = parent.session.ports
        session = ports.ids.new("session")
        with anyio.CancelScope(shield=True):
            await self.home.fork(parent.id, session, created=ports.clock.now(), past=past)
            sink = self._sink(route)
            sink.session = session
            try:
                opened = await open_session(self.home, session, parts=(parts := self._parts(route, sink)))
            except BaseException:  # nobody was told of it: the client asks again, and forks again
                with suppress(JournalError, SessionNotFound):
                    await self.home.delete(session)
                raise
        sink.metrics.forks.inc()
        return self._hold(opened, parts, sink, route, None if count else HistoryPosition(0, links[0]))

    @asynccontextmanager
    async def _used(self, held: CachedSession) -> AsyncIterator[None]:
        """While a request uses a session, which it counted itself in for already, nobody lets go of it."""
        try:
            yield
        finally:
            held.used, held.size = time.monotonic(), held.tokens
            await self.left(held)

    async def left(self, held: CachedSession) -> None:
        """A request that used a session is over. Between two of them another process may go on with it (SCL-3)."""
        held.users -= 1
        with anyio.CancelScope(shield=True):
            await self.rest(held)

    async def rest(self, held: CachedSession) -> None:
        """Where nobody uses a session, let another process have it; what the index was told of it goes with it.

        A failure is nobody's here: the next append says it, or the lease ends by itself.
        """
        with suppress(JournalError):
            if not held.users and await held.journal.release():
                await self.flush()

    async def secure(self, held: CachedSession) -> None:
        """Put what was said where a sudden end of this process can't take it; where nobody else uses the session, let
        go of it in the same step. Raises `JournalError`."""
        if held.users > 1 or not await held.journal.release():
            await held.journal.store()
        else:
            await self.flush()

    async def give_memories(self, held: CachedSession, system: Sequence[msgspec.Raw], said: list[Message]) -> None:
        """Give a session the memories of its tenant, of the project that its client says it works in.

        That folder is on another machine: its path is a name here, and nothing of this disk is read for it (SEC-7).
        """
        held.awaits_memories, session = False, held.session
        if session.view.state.title.folder is None and (folder := folder_of(system, said)) is not None:
            await session.record(Titled(folder=folder))
        project = project_of(session)
        opened = memories_of(self.home, project, session.settings, session, is_remote=True)
        session.works_with(remembering_by_name(session, opened, project))
        held.keepers = background(session)

    async def keep(self, held: CachedSession) -> None:
        """Start what is due after an answer, or have workers do it (TURN-12, SCL-2)."""
        if (want := self._want()) is None:
            held.keepers.after_reply(held.session)
            return
        for name in held.keepers.due(held.session):
            try:
                await want(held.id, f"{name}:{held.route}", held.journal.seq)  # as `upkeep` reads it
            except JournalError as e:
                held.session.emit(KeeperFailed(name, type(e).__name__, 0.0))

    def moved(self, held: CachedSession, head: HistoryPosition) -> None:
        """The head of a session is somewhere else now."""
        if self._heads.get(held.head.link) is held:
            del self._heads[held.head.link]
        held.head = head
        self._heads[head.link] = held

    async def call(self, held: CachedSession, name: str) -> None:
        """Record whose session it is now, by the name that the client gives it; who goes on with one has it."""
        named = held.session.view.state.cursors.get(NAMED)
        before = named.digest or "" if isinstance(named, Cursor) else ""
        if name != before:
            await held.session.record(Cursor(name=NAMED, message=held.head.message, digest=name))
            self._index.name(held.id, name)

    async def linked(self, held: CachedSession, name: str) -> list[str]:
        """The other sessions of the same name, the newest first, as far as they are still there."""
        if not name:
            return []
        with self._at_index():
            found = await self._index.named(name)
        return [one for one in found if one != held.id and await self.home.has(one)]

    def enter(self, held: CachedSession, links: Iterable[tuple[int, bytes]], ids: Iterable[str] = ()) -> None:
        """The index learns links of a session, with how many messages each comes after, and what ended at the last:
        the answer, and the items of it, that have these ids."""
        rows = [KnownLink(link, held.id, count) for count, link in links]
        self._index.enter([*rows, *(rows[-1]._replace(answer=one) for one in ids if one)])

    async def items(self, ids: Iterable[str]) -> dict[str, bytes]:
        """Items of answers that were given here, by their ids; those that aren't known are left out."""
        missing = [one for one in ids if one not in self._items]
        while missing and (known := await self._ended(missing.pop())) is not None:
            self.remember(await self._items_in(known.session))
            missing = [one for one in missing if one not in self._items]
        return {one: self._items[one] for one in ids if one in self._items}

    def remember(self, items: Mapping[str, bytes]) -> None:
        """Keep items for clients that name them instead of saying them; the oldest go."""
        new = {name: item for name, item in items.items() if name not in self._items}
        self._items |= new
        self._item_bytes += sum(map(len, new.values()))
        while self._item_bytes > _MOST_ITEM_BYTES and len(self._items) > len(items):
            self._item_bytes -= len(self._items.pop(next(iter(self._items))))

    async def _items_in(self, session: str) -> dict[str, bytes]:
        """All items of the answers in a session's journal that weren't deleted."""
        said = [one for one in await self._records(session) if isinstance(one, Message) and one.model is not None]
        deleted = await self._deleted.among({one.response_id for one in said if one.response_id})
        return {name: item for one in said if one.response_id not in deleted for name, item in named_items(one).items()}

    # --- keeping them in bounds ---------------------------------------------------------------------------------------

    async def let_go(self, held: CachedSession) -> None:
        """Close a session that nobody uses; a failing disk doesn't keep it in memory (GW-3)."""
        if self.open.pop(held.id, None) is None:
            return  # somebody else is at it: many requests may end at once
        if self._heads.get(held.head.link) is held:
            del self._heads[held.head.link]
        done = self._closing[held.id] = asyncio.Event()
        try:
            async with held.lock:
                await held.keepers.close(held.session)
        finally:
            try:
                await held.session.close()
            except JournalError:
                pass  # what was acknowledged is in the file; only the closing metadata isn't
            finally:
                del self._closing[held.id]
                done.set()

    async def close(self) -> None:
        for held in list(self.open.values()):
            await self.let_go(held)
        await self.close_index()

    async def flush(self) -> None:
        """Write what the index was told, unless it is at work: whoever asks it next does then."""
        if not self._asking:
            await self._index.flush()

    async def close_index(self) -> None:
        """Let go of the index until it is asked again."""
        await self._index.close()


def remembers(parts: Parts) -> bool:
    """Whether a session has its tenant's own memories; those of a route's project are given to it."""
    return parts.settings.memory and parts.memories is None


def project_of(session: LiveSession) -> str:
    """The name of the project whose memories a session has; without a folder, what its tenant has for all of these."""
    return session.view.state.title.folder or ""


def _cached(
    session: LiveSession, parts: Parts, sink: SessionSink, route: str, head: HistoryPosition | None = None
) -> CachedSession:
    """A session as it was opened or made; its head is where its journal says, unless that is given."""
    cursors = session.view.state.cursors
    head = head or HistoryPosition.of(cursors.get(CLIENT), CLIENT) or HistoryPosition(0, b"")
    asked = HistoryPosition.of(cursors.get(ASKED), ASKED)
    journal = session.ports.journal
    assert isinstance(journal, LateSyncJournal)
    held = CachedSession(session, journal, background(session), sink, head, asked, route)
    held.is_shaped, held.awaits_memories = is_shaped(session), remembers(parts)
    return held


def records_until(placed: Sequence[Placed], end: int) -> list[Placed]:
    """The records up to a client's cursor, without the messages that came along with it and are behind its own."""
    last = placed[end]
    assert isinstance(last.record, Cursor)
    start = next(n for n, p in enumerate(placed) if p.seq == last.seq)
    own = placed[start : end + 1]  # messages that came together stand ahead of all their cursors
    said = last.record.message
    at = next((n for n, p in enumerate(own) if isinstance(p.record, Message) and p.record.id == said), end)
    return [*placed[:start], *(p for n, p in enumerate(own) if n <= at or not isinstance(p.record, Message))]


def _last_answer(held: CachedSession) -> Message:
    answers = (item.message for item in reversed(held.session.view.items) if item.message.role == "assistant")
    return next(answers, Message.of("assistant", ()))


def is_shaped(session: LiveSession) -> bool:
    """Whether the view shows anything else than what the client has."""
    view = session.view
    if view.boundary is not None or view.collapses:
        return True
    return any(item.is_hidden or item.shown != item.message.blocks or not is_plain(item.message) for item in view.items)


def is_plain(message: Message) -> bool:
    """Whether a message goes upstream as it came. Text of tools that imitates a reminder doesn't (SEC-4)."""
    if _is_ours(message):
        return False
    for block in message.blocks:
        if block.type == "tool_result" and neutralised_result(block.raw) is not block.raw:
            return False
        if isinstance(block.value, ToolUse) and call_id_as_said(block.value.id) != block.value.id:
            return False
    return True
