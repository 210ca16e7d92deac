"""The sessions of one tenant: found by their history, opened, forked, kept warm for a while (GW-2, GW-4)."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread

from perdure.adapters.journal import JOURNAL
from perdure.adapters.journal.disk import DISK, make_private
from perdure.adapters.journal.journal import FileJournal
from perdure.adapters.journal.reading import open_journal_reader
from perdure.adapters.journal.store import SessionStore, fork
from perdure.context.models import CacheTtl
from perdure.context.reminders import neutralised_result
from perdure.engine.background import Keepers
from perdure.engine.session import LiveSession
from perdure.errors import JournalError, PerdureError, SessionNotFound
from perdure.gateway.compactions import SEALED, PlaceSeal
from perdure.gateway.compress import CompressedOriginals
from perdure.gateway.conversations import Conversations
from perdure.gateway.metrics import SessionSink, SessionSpending
from perdure.gateway.stored import DeletedResponses, StoredResponse, stored_response
from perdure.ports.home import KnownLink
from perdure.ports.session import Journal, Receipt
from perdure.ports.session import LoadedJournal as Loaded
from perdure.ports.session import PlacedRecord as Placed
from perdure.transcript.blocks import ToolUse
from perdure.transcript.history import HistoryPosition, chain
from perdure.transcript.messages import Message, MessageId, call_id_as_said
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
from perdure.wiring import background, create_session, open_session

SOURCE = "gateway"
CLIENT = "client"  # the cursor of the last message that the client knows
RECALLED = "recalled"  # the note of a message with results of calls that the client never sees (GW-8)
ASKED = "asked"  # the one of the last message before an answer of ours
NAMED = "named"  # the one that holds the client's own name for the session, where it has one (GW-8)
_LOG = logging.getLogger("perdure.gateway")
_TRIES = 3
_MOST_ITEM_BYTES = 4 * 1024 * 1024  # of items that are kept in memory for a tenant's references
# The client says them again, or we do.
_MAY_WAIT = (Message, Worded, Cursor, Titled, Calibrated, CompactionFailed, Noted)
_BATCH = 400  # links in one question
_NAME, _BEHIND_NAMES = b"name:", b"name;"  # between these are the names of sessions in the index
_MOST_NAMED = 20  # sessions of one name, as a client begins a new history whenever it compacts its own
_IS_WHOLE = 1  # the version of a file that all journals were read into; what was begun only has none
_BEHIND_SECONDS = 30.0  # more than the index is behind the journals when a process is killed
_SCHEMA = """
PRAGMA journal_mode=WAL;
PRAGMA synchronous=OFF;
CREATE TABLE IF NOT EXISTS links (link BLOB PRIMARY KEY, session TEXT NOT NULL, count INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS answers (id TEXT PRIMARY KEY, link BLOB NOT NULL, count INTEGER NOT NULL) WITHOUT ROWID;
"""

T = TypeVar("T")
TracesFrom = Callable[[int], Awaitable["AnswerTraces"]]


def _is_ours(record: Record) -> bool:
    """Whether a message is one that no client says again."""
    is_reminder = isinstance(record, Message) and record.origin == "reminder" and record.wire is None
    return is_reminder or (isinstance(record, Message) and record.note == RECALLED)


class LateSyncJournal:
    """`ports.Journal` over one that doesn't sync by itself; `commit` does, when there is reason to."""

    def __init__(self, journal: Journal, *, is_durable: bool) -> None:
        self._journal, self._is_durable = journal, is_durable
        self.is_behind = self._is_owed = False  # something isn't durable yet; something has to be before it is sent
        self.has_edits = False  # the view shows something else than what was said

    async def append(self, records: tuple[Record, ...]) -> Receipt:
        receipt = await self._journal.append(records)
        self.is_behind = True
        self.has_edits = self.has_edits or any(isinstance(r, Edit | Compacted) or _is_ours(r) for r in records)
        self._is_owed = self._is_owed or not all(isinstance(r, _MAY_WAIT) and not _is_ours(r) for r in records)
        return receipt

    async def load(self, *, whole: bool = False) -> Loaded:
        return await self._journal.load(whole=whole)

    async def close(self) -> None:
        try:
            await self.commit(everything=True)
        finally:
            await self._journal.close()

    async def commit(self, *, everything: bool = False) -> None:
        """Before a request goes on: make edits durable, if there are any; afterwards, everything."""
        is_due = self._is_owed or (everything and self.is_behind)
        if is_due and self._is_durable and isinstance(self._journal, FileJournal):
            self.is_behind = self._is_owed = False
            try:
                await self._journal.sync()
            except BaseException:
                self.is_behind = self._is_owed = True
                raise


class LinkIndex:
    """The links of one tenant. Nothing here raises for what is wrong with the file: it is made anew.

    All work on the file is done in a thread, one piece at a time: a slow disk, or a tenant whose index is read together
    again, is nobody else's delay (SPD-8). What is entered waits for the next question or `flush`.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._path = home / "links.sqlite"
        self._db: sqlite3.Connection | None = None
        self._entered: list[KnownLink] = []
        self._renamed: list[str] = []
        self._turn = anyio.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether a thread is at work on the file."""
        return self._turn.locked()

    async def longest(self, links: Sequence[bytes]) -> tuple[str, int] | None:
        """The session that knows the longest beginning of a history, and how many messages of it."""
        return await self._aside(lambda: self._longest(links))

    def name(self, session: str, name: str) -> None:
        """Enter the name that a session has from now on, in the place of any before; empty for none."""
        self._renamed.append(session)
        if name:
            self._entered.append(KnownLink(_name_link(name, session), session, int(time.time())))

    async def named(self, name: str) -> list[str]:
        """The sessions of a name, the newest first."""
        return await self._aside(lambda: self._named(name))

    async def place(self, answer: str) -> HistoryPosition | None:
        """Where an answer ended, by its id."""
        asked = "SELECT link, count FROM answers JOIN links USING (link, count) WHERE id = ?"
        rows = await self._aside(lambda: self._ask(asked, (answer,)))
        return HistoryPosition(rows[0][1], rows[0][0]) if rows else None

    async def session_of(self, answer: str) -> str | None:
        """The session that an answer was given in, by its id."""
        asked = "SELECT session, count FROM answers JOIN links USING (link, count) WHERE id = ?"
        rows = await self._aside(lambda: self._ask(asked, (answer,)))
        return rows[0][0] if rows else None

    def put(self, session: str, links: Iterable[tuple[int, bytes]], ids: Iterable[str] = ()) -> None:
        """Enter links of a session. The one that was there first keeps a link that several share.

        What has one of these `ids`, an answer or an item of it, ended at the last of them.
        """
        rows = [KnownLink(link, session, count) for count, link in links]
        self._entered += rows
        self._entered += [rows[-1]._replace(answer=one) for one in ids if one]

    async def flush(self) -> None:
        """Write what was entered."""
        if self._entered or self._renamed:
            await self._aside(lambda: None)

    async def forget(self, session: str) -> None:
        """Take out what names a session, as it can't be opened any more."""
        await self._aside(lambda: self._ask("DELETE FROM links WHERE session = ?", (session,)))

    async def close(self) -> None:
        """Let go of the file until the next question."""
        await self._aside(self._closed)

    async def _aside(self, work: Callable[[], T]) -> T:
        """Write what was entered, and do something with the file then."""

        def done() -> T:
            self._write(rows, renamed)
            return work()

        async with self._turn:
            rows, self._entered = self._entered, []
            renamed, self._renamed = self._renamed, []
            with anyio.CancelScope(shield=True):  # what was taken is written
                result = await anyio.to_thread.run_sync(done)
            return result

    # --- in a thread

    def _longest(self, links: Sequence[bytes]) -> tuple[str, int] | None:
        for start in range(len(links), 0, -_BATCH):
            batch = links[max(0, start - _BATCH) : start]
            rows = self._ask(f"SELECT session, count FROM links WHERE link IN ({','.join('?' * len(batch))})", batch)
            if rows:
                session, count = max(rows, key=lambda row: row[1])
                return str(session), int(count)
        return None

    def _named(self, name: str) -> list[str]:
        first = _name_link(name, "")
        rows = self._ask(
            "SELECT session, count FROM links WHERE link >= ? AND link < ? ORDER BY count DESC LIMIT ?",
            (first, first + b"\xff", _MOST_NAMED),
        )
        return [session for session, _ in rows]

    def _closed(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _ask(self, statement: str, values: Sequence[object]) -> list[tuple[Any, int]]:
        try:
            db = self._open()
            with db:
                return list(db.execute(statement, values))
        except (sqlite3.Error, OSError) as e:
            self._broken(e)
            return []

    def _write(self, rows: list[KnownLink], renamed: list[str]) -> None:
        if not (rows or renamed):
            return
        try:
            db = self._open()
            with db:
                _unname(db, renamed)
                _enter(db, rows)
        except (sqlite3.Error, OSError) as e:
            self._broken(e)

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            make_private(self._home)
            written = max((path.stat().st_mtime for path in self._home.glob(f"{self._path.name}*")), default=0.0)
            db = sqlite3.connect(self._path, timeout=1.0, check_same_thread=False)  # one thread at a time
            try:
                self._path.chmod(0o600)
                db.executescript(_SCHEMA)
                if db.execute("PRAGMA user_version").fetchone()[0] != _IS_WHOLE:
                    with db:
                        db.execute("BEGIN")
                        _enter(db, links_at(self._home))
                        db.execute(f"PRAGMA user_version = {_IS_WHOLE}")
                elif rows := list(links_at(self._home, since=written - _BEHIND_SECONDS)):
                    with db:  # a kill took what was entered last; the journals have it
                        _unname(db, {row.session for row in rows})
                        _enter(db, rows)
            except BaseException:
                db.close()
                raise
            self._db = db
        return self._db

    def _broken(self, error: Exception) -> None:
        """A damaged file is put aside, so that the next use begins a new one; a full disk is nobody's damage."""
        self._closed()
        _LOG.warning("the index of sessions can't be used: %s", type(error).__name__)
        is_damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
        if is_damaged:
            for name in ("", "-wal", "-shm"):
                path = self._path.with_name(self._path.name + name)
                path.unlink(missing_ok=True)


def _unname(db: sqlite3.Connection, sessions: Iterable[str]) -> None:
    db.executemany(
        "DELETE FROM links WHERE link >= ? AND link < ? AND session = ?",
        [(_NAME, _BEHIND_NAMES, session) for session in sessions],
    )


def _enter(db: sqlite3.Connection, rows: Iterable[KnownLink]) -> None:
    for row in rows:
        db.execute("INSERT OR IGNORE INTO links VALUES (?, ?, ?)", row[:3])
        if row.answer:
            db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", (row.answer, row.link, row.messages))


def links_at(home: Path, *, since: float = 0.0) -> Iterator[KnownLink]:
    """All links and names that the journals of a tenant know, those written since then, oldest first (REL-12)."""
    found = list[tuple[float, Path]]()
    for directory in SessionStore(home).directories():
        with suppress(OSError):
            found.append(((directory / JOURNAL).stat().st_mtime, directory))
    for written, directory in sorted(one for one in found if one[0] >= since):
        try:
            with open_journal_reader(DISK, directory / JOURNAL) as reader:
                scan = reader.scan(reader.body)
        except (PerdureError, OSError):
            continue
        name, answers = "", dict[MessageId, tuple[str, ...]]()
        for placed in scan.placed:
            record = placed.record
            if isinstance(record, Message) and (record.model is not None or record.note == RECALLED):
                answers[record.id] = (record.response_id or "", *named_items(record))
            elif (place := HistoryPosition.of(record, CLIENT)) is not None:
                for identity in answers.get(place.message, ("",)):
                    yield KnownLink(place.link, directory.name, place.count, identity)
            elif isinstance(record, Cursor) and record.name == NAMED:
                name = record.digest or ""
        if name:
            yield KnownLink(_name_link(name, directory.name), directory.name, int(written))


def _name_link(name: str, session: str) -> bytes:
    """What stands in the index for a session's name, beside the links of its history, which are shorter."""
    return _NAME + hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest() + session.encode()


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

    @property
    def id(self) -> str:
        return self.session.id

    @property
    def tokens(self) -> int:
        return self.session.facts().size(self.session.view)


class TenantSessions:
    """All sessions of one tenant, under a home of their own. `parts` says what a session of a route is made with, and
    `sink` makes what its events go to."""

    def __init__(
        self,
        home: Path,
        sink: Callable[[str], SessionSink],
        parts: Callable[[str, SessionSink], Parts],
        *,
        is_durable: bool = True,
        seal: PlaceSeal,
    ) -> None:
        self.home, self.seal = home, seal
        self.open: dict[str, CachedSession] = {}
        self._sink, self._parts_of = sink, parts
        self._is_durable = is_durable
        self._index = LinkIndex(home)
        self._deleted = DeletedResponses(home)
        self._items: dict[str, bytes] = {}
        self._item_bytes = 0
        self.compressed = CompressedOriginals(home)
        self.conversations = Conversations(home)
        self._heads: dict[bytes, CachedSession] = {}
        self._opening: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        self._entering = 0
        self._closing: dict[str, asyncio.Event] = {}

    @property
    def is_idle(self) -> bool:
        """Whether nothing of this tenant's is open or looked for."""
        return not (self.open or self._entering or self._index.is_busy)

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
            with _used(held):
                async with held.lock:
                    if await self._stands(held, links):
                        yield held
                        return
                    known = (await held.session.ports.journal.load(whole=True)).records
                    if await self._is_edited(held, links, known, traces):
                        yield held
                        return
                    forked = await self._forked(held, links, known, route)
                    forked.users += 1
            with _used(forked):
                async with forked.lock:
                    if forked.head.is_on(links):
                        yield forked
                        return
        raise JournalError("the session kept changing while it was looked for")

    async def place(self, continues: str, *, even_deleted: bool = False) -> HistoryPosition | None:
        """The place in a history that a client goes on from, by the id of the answer that ended there, or as it was
        sealed; None for one that isn't known here."""
        if not continues.startswith(SEALED):
            is_gone = continues in self._deleted and not even_deleted
            return None if is_gone else await self._index.place(continues)
        count, link = self.seal.opened(continues) or (0, b"")
        known = count and await self._index.longest([link])
        return HistoryPosition(count, link) if known else None

    async def stored(self, response: str, *, even_deleted: bool = False) -> StoredResponse | None:
        """An answer by its id, from the journal of its session; None for one that isn't known, or was deleted."""
        is_gone = response in self._deleted and not even_deleted
        session = None if is_gone else await self._index.session_of(response)

        def read(name: str) -> StoredResponse | None:
            return stored_response(self._records(name), response, RECALLED)

        return None if session is None else await anyio.to_thread.run_sync(read, session)

    def _records(self, session: str) -> list[Record | None]:
        """All records of a session, whether it is open or not; none when it can't be read."""
        try:
            journal = SessionStore(self.home).directory(session, project=self.home) / JOURNAL
            with open_journal_reader(DISK, journal) as reader:
                return [placed.record for placed in reader.scan(reader.body).placed]
        except (PerdureError, OSError):
            return []

    def is_deleted(self, response: str) -> bool:
        """Whether the client had this answer deleted."""
        return response in self._deleted

    async def delete_response(self, response: str) -> None:
        """Nobody gets this answer again, or goes on from it; its session stays what it is."""
        await anyio.to_thread.run_sync(self._deleted.add, response)
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
            known = await self._index.longest(links[hot + 1 :]) if hot + 1 < len(links) else None
            if known is None and hot and links[hot] not in self._heads:  # somebody went on from there meanwhile
                known = await self._index.longest(links[: hot + 1])
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
            opened = await open_session(self.home, session, parts=self._parts(route, sink))
        except SessionNotFound:
            await self._index.forget(session)
            return None
        return self._hold(opened, sink, route)

    async def _created(self, start: bytes, route: str) -> CachedSession:
        sink = self._sink(route)
        parts = self._parts(route, sink)
        sink.session = parts.ids.new("session")
        made = await create_session(self.home, project=self.home, session=sink.session, source=SOURCE, parts=parts)
        return self._hold(made, sink, route, HistoryPosition(0, start))

    def _parts(self, route: str, sink: SessionSink) -> Parts:
        """What any session here is made with beside what its route gives."""
        parts = self._parts_of(route, sink)
        return replace(parts, journal=partial(LateSyncJournal, is_durable=self._is_durable))

    def _hold(
        self, session: LiveSession, sink: SessionSink, route: str, head: HistoryPosition | None = None
    ) -> CachedSession:
        cursors = session.view.state.cursors
        head = head or HistoryPosition.of(cursors.get(CLIENT), CLIENT) or HistoryPosition(0, b"")
        asked = HistoryPosition.of(cursors.get(ASKED), ASKED)
        journal = session.ports.journal
        assert isinstance(journal, LateSyncJournal)
        held = CachedSession(session, journal, background(session), sink, head, asked, route)
        held.is_shaped = is_shaped(session)
        self.open[session.id] = held
        self._heads[head.link] = held
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
        store, ports = SessionStore(self.home), parent.session.ports
        session = ports.ids.new("session")
        with anyio.CancelScope(shield=True):
            await fork(store, parent.id, session, created=ports.clock.now(), past=past)
            sink = self._sink(route)
            sink.session = session
            try:
                opened = await open_session(self.home, session, parts=self._parts(route, sink))
            except BaseException:  # nobody was told of it: the client asks again, and forks again
                with suppress(JournalError, SessionNotFound):
                    await anyio.to_thread.run_sync(store.delete, session)
                raise
        sink.metrics.forks.inc()
        return self._hold(opened, sink, route, None if count else HistoryPosition(0, links[0]))

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
        store = SessionStore(self.home)
        found = await self._index.named(name) if name else []
        return [
            one for one in found if one != held.id and (store.directory(one, project=self.home) / JOURNAL).is_file()
        ]

    def enter(self, held: CachedSession, links: Iterable[tuple[int, bytes]], ids: Iterable[str] = ()) -> None:
        """The index learns links of a session, with how many messages each comes after, and what ended at the last."""
        self._index.put(held.id, links, ids)

    async def items(self, ids: Iterable[str]) -> dict[str, bytes]:
        """Items of answers that were given here, by their ids; those that aren't known are left out."""
        missing = [one for one in ids if one not in self._items]
        while missing and (session := await self._index.session_of(missing.pop())) is not None:
            self.remember(await anyio.to_thread.run_sync(self._items_in, session))
            missing = [one for one in missing if one not in self._items]
        return {one: self._items[one] for one in ids if one in self._items}

    def remember(self, items: Mapping[str, bytes]) -> None:
        """Keep items for clients that name them instead of saying them; the oldest go."""
        new = {name: item for name, item in items.items() if name not in self._items}
        self._items |= new
        self._item_bytes += sum(map(len, new.values()))
        while self._item_bytes > _MOST_ITEM_BYTES and len(self._items) > len(items):
            self._item_bytes -= len(self._items.pop(next(iter(self._items))))

    def _items_in(self, session: str) -> dict[str, bytes]:
        """All items of the answers in a session's journal that weren't deleted."""
        found: dict[str, bytes] = {}
        for record in self._records(session):
            if (
                isinstance(record, Message)
                and record.model is not None
                and (record.response_id or "") not in self._deleted
            ):
                found |= named_items(record)
        return found

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
        if not self._index.is_busy:
            await self._index.flush()

    async def close_index(self) -> None:
        """Let go of the index until it is asked again."""
        await self._index.close()


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


@contextmanager
def _used(held: CachedSession) -> Iterator[None]:
    """While a request uses a session, which it counted itself in for already, nobody lets go of it."""
    try:
        yield
    finally:
        held.users -= 1
        held.used, held.size = time.monotonic(), held.tokens


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
