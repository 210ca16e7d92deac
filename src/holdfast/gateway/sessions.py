"""The sessions of one tenant: found by their history, opened, forked, kept warm for a while (GW-2, GW-4).

A history that goes on where a session stands belongs to it. One that leaves it earlier forks there: a new session with
the same past. Only when nothing but our last answer is in the way, and nobody waits for it, the answer is rewound: the
client asks again, or has its own words for what it was told.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
import msgspec

from holdfast.adapters.files import SessionStore
from holdfast.adapters.files.forking import drafted
from holdfast.adapters.files.journal import FileJournal
from holdfast.context.reminders import neutralised_result
from holdfast.engine.keepers import Keepers
from holdfast.engine.session import LiveSession
from holdfast.errors import JournalError, SessionNotFound
from holdfast.gateway.durable import LateJournal
from holdfast.gateway.forking import copied, share_blobs, until
from holdfast.gateway.index import ASKED, CLIENT, LinkIndex, mark, marked
from holdfast.gateway.spent import Spent
from holdfast.gateway.watching import SessionSink
from holdfast.gateway.whereabouts import Whereabouts
from holdfast.transcript.blocks import ToolUse
from holdfast.transcript.codec import VERSION
from holdfast.transcript.edits import Rewound
from holdfast.transcript.messages import Message, MessageId
from holdfast.transcript.records import Cursor
from holdfast.wiring import Parts, background, create_session, open_session

SOURCE = "gateway"
_TRIES = 3
_AGAIN = re.compile(r"__hf\d+\Z")


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a client's history: how many messages, the link there, and the last of them in the journal."""

    count: int
    link: bytes
    message: MessageId = MessageId("")  # noqa: RUF009 - a NewType of str, immutable


@dataclass(slots=True, eq=False)
class Held:
    """A session in memory. `head` is how far the client's history goes in it; `asked` where our last answer began.

    `is_shaped`: the view isn't what the client has any more, so the view is what goes upstream.
    """

    session: LiveSession
    journal: LateJournal
    keepers: Keepers
    sink: SessionSink
    head: Place
    asked: Place | None = None
    route: str = "default"
    is_shaped: bool = False
    users: int = 0
    used: float = field(default_factory=time.monotonic)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_corrected: bool = False  # answers as long as the client wants are refused: a shorter one is asked for
    spent: Spent = field(default_factory=Spent)
    names: dict[str, str] = field(default_factory=dict)  # ids of calls that a client used twice, and ours for the last

    @property
    def id(self) -> str:
        return self.session.name

    @property
    def tokens(self) -> int:
        return self.session.facts().size(self.session.view)


PartsOf = Callable[[SessionSink], Parts]


class Sessions:
    """All sessions of one tenant, under a home of their own."""

    def __init__(self, home: Path, sink: Callable[[], SessionSink], *, is_durable: bool = True) -> None:
        self.home = home
        self.open: dict[str, Held] = {}
        self.forks = 0
        self._sink = sink
        self._is_durable = is_durable
        self._index = LinkIndex(home)
        self._heads: dict[bytes, Held] = {}
        self._opening: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        self._entering = 0
        self._closing: dict[str, asyncio.Event] = {}

    @property
    def is_idle(self) -> bool:
        """Whether nothing of this tenant's is open or looked for."""
        return not (self.open or self._entering or self._index.is_busy)

    @asynccontextmanager
    async def entered(self, links: Sequence[bytes], route: str, parts: PartsOf) -> AsyncIterator[Held]:
        """The session of a history, locked, with its head at the longest beginning that it knows."""
        for _ in range(_TRIES):
            self._entering += 1
            try:
                held = await self._found(links, route, parts)
                held.users += 1
            finally:
                self._entering -= 1
            with _used(held):
                async with held.lock:
                    if await self._stands(held, links):
                        yield held
                        return
                    forked = await self._forked(held, links, route, parts)
                    forked.users += 1
            with _used(forked):
                async with forked.lock:
                    if _is_on(forked.head, links):
                        yield forked
                        return
        raise JournalError("the session kept changing while it was looked for")

    def known(self, links: Sequence[bytes]) -> Held | None:
        """The session in memory that a history goes on from; nothing is opened or changed."""
        found = (self._heads.get(links[n]) for n in range(len(links) - 1, 0, -1))
        return next((held for held in found if held is not None and _is_on(held.head, links)), None)

    async def _found(self, links: Sequence[bytes], route: str, parts: PartsOf) -> Held:
        """The session that knows the longest beginning, hot or from the index; else a new one.

        Histories that begin with the same message wait for each other, since they may be of one session; no others do.
        """
        first = links[1] if len(links) > 1 else links[0]
        opening = self._opening.get(first)
        if opening is None:
            opening = self._opening[first] = asyncio.Lock()
        async with opening:
            hot = next((n for n in range(len(links) - 1, 0, -1) if links[n] in self._heads), 0)
            known = await self._index.longest(links[hot + 1 :]) if hot + 1 < len(links) else None
            if known is not None:
                await self._closed(known[0])
                held = self.open.get(known[0]) or await self._opened(known[0], route, parts)
                if held is not None:
                    return held
            if hot and (held := self._heads.get(links[hot])) is not None:
                return held
            return await self._created(links[0], route, parts)

    async def _closed(self, session: str) -> None:
        """Wait until a session that is being closed can be opened again."""
        while (closing := self._closing.get(session)) is not None:
            await closing.wait()

    async def _opened(self, session: str, route: str, parts: PartsOf) -> Held | None:
        sink = self._sink()
        try:
            opened = await open_session(self.home, session, parts=self._parts(parts(sink)))
        except SessionNotFound:
            await self._index.forget(session)
            return None
        return self._hold(opened, sink, route)

    async def _created(self, start: bytes, route: str, parts: PartsOf) -> Held:
        sink = self._sink()
        made = await create_session(self.home, project=self.home, source=SOURCE, parts=self._parts(parts(sink)))
        return self._hold(made, sink, route, Place(0, start))

    def _parts(self, parts: Parts) -> Parts:
        """What any session here is made with beside what its route gives."""
        services = replace(parts.services, reminders=(*parts.services.reminders, Whereabouts()))
        return replace(parts, services=services, journal=partial(LateJournal, is_durable=self._is_durable))

    def _hold(self, session: LiveSession, sink: SessionSink, route: str, head: Place | None = None) -> Held:
        cursors = session.view.state.cursors
        head = head or _place(cursors.get(CLIENT)) or Place(0, b"")
        journal = session.world.journal
        assert isinstance(journal, LateJournal)
        held = Held(session, journal, background(session), sink, head, _place(cursors.get(ASKED)), route)
        held.is_shaped = is_shaped(session)
        held.names = {original(str(call)): str(call) for call in session.view.calls if original(str(call)) != call}
        self.open[session.name] = held
        self._heads[head.link] = held
        return held

    # --- where a history stands in a session ------------------------------------------------------------------------

    async def _stands(self, held: Held, links: Sequence[bytes]) -> bool:
        """Whether the history goes on at the session's head, if need be once our last answer is rewound."""
        if _is_on(held.head, links):
            return True
        asked = held.asked
        is_answer = asked is not None and asked.count == held.head.count - 1
        if asked is None or not is_answer or not _is_on(asked, links) or held.users > 1:
            return False
        if asked.message not in held.session.view.positions:
            return False
        cursor = Cursor(name=CLIENT, message=asked.message, digest=mark(asked.count, asked.link))
        await held.session.record(Rewound(to=asked.message, reason="asked again"), cursor)
        self.moved(held, asked)
        return True

    async def _forked(self, parent: Held, links: Sequence[bytes], route: str, parts: PartsOf) -> Held:
        """A session with the past that both share; without any when the parent has no such place after all."""
        loaded = await parent.session.world.journal.load(whole=True)
        known = {at[1] for p in loaded.records if isinstance(p.record, Cursor) and (at := marked(p.record))}
        count = next((n for n in range(len(links) - 1, 0, -1) if links[n] in known), 0)
        records = until(loaded.records, links[count]) if count else []
        store, world = SessionStore(self.home), parent.session.world
        header = msgspec.structs.replace(
            loaded.header,
            session=world.ids.new("session"),
            created=world.clock.now(),
            source=SOURCE,
            forked_from=parent.id,
            version=VERSION,
        )

        async def fill(journal: FileJournal, draft: Path) -> None:
            await copied(records or (), journal)
            await share_blobs(store.locate(parent.id), draft)

        with anyio.CancelScope(shield=True):
            await drafted(store, header, fill)
            sink = self._sink()
            try:
                opened = await open_session(self.home, header.session, parts=self._parts(parts(sink)))
            except BaseException:  # nobody was told of it: the client asks again, and forks again
                with suppress(JournalError, SessionNotFound):
                    await anyio.to_thread.run_sync(store.delete, header.session)
                raise
        self.forks += 1
        return self._hold(opened, sink, route, None if count else Place(0, links[0]))

    def moved(self, held: Held, head: Place) -> None:
        """The head of a session is somewhere else now."""
        if self._heads.get(held.head.link) is held:
            del self._heads[held.head.link]
        held.head = head
        self._heads[head.link] = held

    def entered_links(self, held: Held, links: Sequence[bytes], start: int) -> None:
        """The index learns the links from message `start` + 1 on."""
        self._index.put(held.id, [(count, links[count]) for count in range(start + 1, len(links))])

    def entered_link(self, held: Held, place: Place) -> None:
        self._index.put(held.id, [(place.count, place.link)])

    # --- keeping them in bounds ---------------------------------------------------------------------------------------

    async def let_go(self, held: Held) -> None:
        """Close a session that nobody uses; a failing disk doesn't keep it in memory (GW-3)."""
        self.open.pop(held.id, None)
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
        await self.rest()

    async def flush(self) -> None:
        """Write what the index was told, unless it is at work: whoever asks it next does then."""
        if not self._index.is_busy:
            await self._index.flush()

    async def rest(self) -> None:
        """Let go of the index until it is asked again."""
        await self._index.close()


@contextmanager
def _used(held: Held) -> Iterator[None]:
    """While a request uses a session, which it counted itself in for already, nobody lets go of it."""
    try:
        yield
    finally:
        held.users -= 1
        held.used = time.monotonic()


def _place(cursor: Cursor | None) -> Place | None:
    at = marked(cursor) if cursor is not None else None
    return None if at is None or cursor is None else Place(at[0], at[1], cursor.message)


def _is_on(place: Place, links: Sequence[bytes]) -> bool:
    return place.count < len(links) and links[place.count] == place.link


def is_shaped(session: LiveSession) -> bool:
    """Whether the view shows anything else than what the client has."""
    view = session.view
    if view.boundary is not None or view.collapses:
        return True
    return any(item.is_hidden or item.shown != item.message.blocks or not is_plain(item.message) for item in view.items)


def is_plain(message: Message) -> bool:
    """Whether a message goes upstream as it came. Text of tools that imitates a reminder doesn't (SEC-4)."""
    if message.origin == "reminder":
        return False
    for block in message.blocks:
        if block.kind == "tool_result" and neutralised_result(block.raw) is not block.raw:
            return False
        if block.kind == "tool_use" and isinstance(block.value, ToolUse) and original(block.value.id) != block.value.id:
            return False
    return True


def original(call: str) -> str:
    """The id that a client knows a call by."""
    return _AGAIN.sub("", call)


def again(call: str, number: int) -> str:
    """Another id for a call whose own was used before."""
    return f"{original(call)}__hf{number}"
