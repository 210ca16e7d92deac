"""The journal of a session in a database: one row a line, appended if nobody else was there (SCL-1, SCL-3).

A row holds the line as it would stand in the file. A group of appends is one statement that moves the session's head
from the number and offset where we left it, if our fence still stands, and inserts the lines in the same transaction.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec

from perdure.adapters.journal.journal import (
    LARGE_BYTES,
    GroupedAppends,
    PendingAppend,
    encoding_weight,
    repair_of,
    sealed_line,
)
from perdure.adapters.journal.links import links_in, name_in
from perdure.adapters.journal.reading import (
    JournalDamage,
    JournalLine,
    RecordedDamage,
    gap_of,
    last_boundary,
    missing_messages,
    records_since,
)
from perdure.adapters.journal.store import ListingFacts
from perdure.adapters.postgres.appends import Appends
from perdure.adapters.postgres.database import Database, is_lost
from perdure.adapters.postgres.links import EnteredLinks, PostgresLinks
from perdure.errors import DamagedLine, JournalError, JournalLost, NewerFormat, SessionNotFound
from perdure.ports.home import Durability
from perdure.ports.session import LoadedJournal as Loaded
from perdure.ports.session import PlacedRecord as Placed
from perdure.ports.session import Receipt
from perdure.transcript.codec import decode_line
from perdure.transcript.messages import MessageId
from perdure.transcript.records import Header, Record, Repaired

_MOST_ANSWERS: Final = 16  # messages whose ids in answers are kept until it is known where the answers ended
_OVER_SECONDS: Final = -1.0  # a lease that ended already
_MOST_WAITING_BYTES: Final = 4 * 1024 * 1024  # of lines that `durability="process"` keeps in memory
LET_GO: Final = (
    "UPDATE perdure.sessions SET owner = '', lease_until = '-infinity' WHERE tenant = %s AND number = %s AND fence = %s"
)
_HOLD: Final = (
    "UPDATE perdure.sessions SET owner = %s, lease_until = now() + make_interval(secs => %s) "
    "WHERE tenant = %s AND number = %s AND fence = %s RETURNING 1"
)
# A fence of our own, once it isn't known what became of an append. The second time, it is there already.
_RAISE: Final = (
    "UPDATE perdure.sessions SET fence = %(next)s, owner = %(owner)s WHERE tenant = %(tenant)s "
    "AND number = %(session)s AND (fence = %(fence)s OR (fence = %(next)s AND owner = %(owner)s)) RETURNING 1"
)
_BEHIND_ALL: Final = 2**62  # a sequence number that no line has
# How many lines the journal has, and those since the last boundary that stands before a line; all where there is none.
_ROWS: Final = """
WITH boundary AS (SELECT seq, needs FROM perdure.records
  WHERE tenant = %(tenant)s AND session = %(session)s AND needs IS NOT NULL AND seq < %(before)s
  ORDER BY seq DESC LIMIT 1)
SELECT s.seq, r.seq, r.at, r.line, b.seq FROM perdure.sessions s LEFT JOIN boundary b ON true
  LEFT JOIN perdure.records r ON r.tenant = %(tenant)s AND r.session = %(session)s AND r.seq >= coalesce(b.needs, 0)
  WHERE s.tenant = %(tenant)s AND s.number = %(session)s
  ORDER BY r.seq
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHead:
    """A session's row as it was claimed, or found. `fence` is None for one that is only read."""

    tenant: int
    number: int
    header: Header
    header_problem: str
    seq: int
    size: int
    about: bytes
    fence: int | None
    owner: str
    place: str


@dataclass(frozen=True, slots=True)
class JournalRow:
    """A line to be written. `kept_from`: of one with a boundary, the offset from which that one is read."""

    data: bytes
    kept_from: int | None
    records: tuple[Record, ...]

    @classmethod
    def of(cls, seq: int, offset: int, records: tuple[Record, ...]) -> JournalRow:
        """The records as a line. `JournalError` where they can't be written as one."""
        return cls.read(sealed_line(seq, records), offset, records)

    @classmethod
    def read(cls, line: bytes, offset: int, records: tuple[Record, ...]) -> JournalRow:
        """A line that was written elsewhere, and what is in it."""
        boundary = last_boundary(records)
        kept_from = None
        if boundary is not None:
            kept_from = boundary.kept_from or (0 if boundary.kept else offset)
        return cls(line, kept_from, records)


@dataclass(slots=True)
class _Reading:
    """What rows said. `boundary` is the line of the boundary that they were read from; None when they are all."""

    placed: tuple[Placed, ...] = ()
    boundary: int | None = None
    damage: list[JournalDamage] = field(default_factory=list)


class PostgresJournal(GroupedAppends):
    """`ports.StoredJournal` of a session that a home made or opened."""

    def __init__(
        self,
        db: Database,
        head: SessionHead,
        links: PostgresLinks,
        appends: Appends,
        *,
        durability: Durability,
        lease_seconds: float,
    ) -> None:
        super().__init__()
        self._db = db
        self._appends = appends
        self._links = links
        self._head = head
        self.header = head.header
        self._is_late = durability == "process"
        self._lease_seconds = lease_seconds
        self._about = head.about
        self._fence = head.fence
        self._seq, self._end = head.seq, head.size  # as acknowledged
        self._stored_seq, self._stored_end = head.seq, head.size  # as it stands in the database
        self._waiting: list[JournalRow] = []  # acknowledged under `durability="process"`, and not stored yet
        self._is_unsure = False  # whether a lost append may be there all the same
        self._answers: dict[MessageId, tuple[str, ...]] = {}  # the ids in answers of messages that were stored last
        self._repairs: tuple[Repaired, ...] = ()
        self._is_closed = False
        self._held_until = time.monotonic() + lease_seconds / 2  # until then the lease needn't be renewed

    @property
    def head(self) -> SessionHead:
        """The session's row as it was when it was opened."""
        return self._head

    # --- reading

    async def load(self, *, whole: bool = False) -> Loaded:
        """What the port says."""
        async with self._turn:
            if self._waiting:
                await self._store_waiting()
            reading = await self._read(whole)
            news = tuple(repair_of(d) for d in reading.damage)
            if news and self._fence is not None and not self._is_closed:
                with suppress(JournalError):  # else it is said again by the next load
                    reading.placed += await self._record_repairs(news)
                    self._repairs, news = self._repairs + news, ()
            return Loaded(
                header=self.header,
                records=reading.placed,
                whole=reading.boundary is None,
                repairs=self._repairs + news,
            )

    async def _read(self, whole: bool) -> _Reading:
        before = 0 if whole else _BEHIND_ALL
        while True:
            of_it = {"tenant": self._head.tenant, "session": self._head.number, "before": before}
            found = await self._db.ask(self._head.tenant, _ROWS, of_it)
            if not found:
                raise SessionNotFound(f"{self._head.place}: the session was deleted")
            seq, rows = found[0][0], [row[1:] for row in found if row[1] is not None]
            heavy = sum(len(row[2]) for row in rows) >= LARGE_BYTES
            read = partial(self._taken_apart, rows, seq)
            reading = await anyio.to_thread.run_sync(read) if heavy else read()
            if reading.boundary is None:
                return reading
            boundary = last_boundary([p.record for p in reading.placed if p.seq == reading.boundary])
            needed = boundary and records_since(boundary, reading.placed)
            if boundary and needed and not missing_messages(boundary, needed):
                if not any(gap_of(d.what) for d in reading.damage):
                    reading.placed = needed
                    return reading
                before = 0
            else:
                before = reading.boundary

    def _taken_apart(self, rows: Sequence[tuple[Any, ...]], seq: int) -> _Reading:
        """The records of rows, and what is wrong with them and not said in the journal yet."""
        reading = _Reading(boundary=rows[0][3] if rows else None)
        lines: list[JournalLine] = []
        damage: list[JournalDamage] = []
        if self._head.header_problem:
            damage.append(JournalDamage(1, self._head.header_problem, 0, 0))
        last = rows[0][0] - 1 if reading.boundary is not None else 0
        for number, at, line, _ in rows:
            if number > last + 1:
                what = f"sequence jumps from {last} to {number}: lines are missing before this one"
                damage.append(JournalDamage(number + 1, what, at, 0))
            last = number
            try:
                transaction = decode_line(line, self.header.version)
                if transaction.seq != number:
                    raise DamagedLine(f"the line of sequence number {transaction.seq} stands here")
                lines.append(JournalLine(number, at, len(line), transaction.records, number - 1))
            except DamagedLine as e:
                damage.append(JournalDamage(number + 1, e.reason, at, len(line), crc=f"{zlib.crc32(line):08x}"))
            except NewerFormat as e:
                raise NewerFormat(f"{self._head.place}: line {number + 1}: {e}") from None
        if last < seq:
            what = f"sequence jumps from {last} to {seq + 1}: lines that were acknowledged are missing at the end"
            damage.append(JournalDamage(last + 2, what, 0, 0))
        if damage:
            known = RecordedDamage(lines)
            reading.damage = [d for d in damage if not known.has(d)]
        reading.placed = tuple(Placed(record, line.seq, line.offset) for line in lines for record in line.records)
        return reading

    async def _record_repairs(self, repairs: tuple[Repaired, ...]) -> tuple[Placed, ...]:
        line = JournalRow.of(self._seq + 1, self._end, repairs)
        await self._store([line])
        seq, offset = self._seq + 1, self._end
        self._acknowledge([line])
        return tuple(Placed(record, seq, offset) for record in repairs)

    # --- writing

    async def store(self) -> None:
        """What the port says: what the database has is durable."""
        await self.sync()

    async def sync(self) -> None:
        """Make durable what was acknowledged so far under `durability="process"`; `JournalError` when it can't be."""
        async with self._turn:
            with anyio.CancelScope(shield=True):
                await self._store_waiting()

    async def hold(self) -> None:
        """What the port says: the lease is renewed, unless it was a moment ago."""
        async with self._turn:
            self._check_writable()
            if time.monotonic() < self._held_until:
                return
            values = (self._head.owner, self._lease_seconds, self._head.tenant, self._head.number, self._fence)
            if not await self._db.ask(self._head.tenant, _HOLD, values, is_lasting=False):
                raise self._lost("taken by another owner, or deleted,")
            self._held_until = time.monotonic() + self._lease_seconds / 2

    async def release(self) -> bool:
        """What the port says: once all is stored, the lease is let go of. Where that fails, it runs out by itself."""
        async with self._turn:
            self._check_writable()
            with anyio.CancelScope(shield=True):
                is_free = await self._let_go()
            return is_free

    async def _let_go(self) -> bool:
        """Store what waits, and with it say that nobody holds the session."""
        if self._waiting:
            await self._store_waiting(is_last=True)
            return True
        self._held_until = 0.0
        values = (self._head.tenant, self._head.number, self._fence)
        try:
            await self._db.ask(self._head.tenant, LET_GO, values, is_lasting=False)
        except JournalError:
            return False
        return True

    async def close(self) -> None:
        """Store what waits, and let the next owner in. May be called twice.

        Raises:
            JournalError: What waited under `durability="process"` couldn't be stored; it is lost.
        """
        with anyio.CancelScope(shield=True):
            async with self._turn:
                if self._is_closed:
                    return
                self._is_closed = True
                try:
                    if self._fence is not None:
                        await self._let_go()
                except JournalError:
                    self._waiting = []  # the next owner needn't wait for us all the same
                    await self._let_go()
                    raise

    async def _write(self, batch: list[PendingAppend]) -> None:
        """Store them, in as few statements as can be."""
        try:
            await self._commit(batch)
        except JournalError as e:
            for waiting in batch:
                waiting.error = waiting.error or e

    async def _commit(self, batch: list[PendingAppend]) -> None:
        self._check_writable()
        encode = partial(self._encoded, batch)
        is_heavy = sum(map(encoding_weight, batch)) >= LARGE_BYTES
        made = await anyio.to_thread.run_sync(encode) if is_heavy else encode()
        lines = [line for _, line in made]
        if not lines:
            return
        if not self._is_late:
            await self._store(lines)
        else:
            if sum(len(line.data) for line in (*self._waiting, *lines)) > _MOST_WAITING_BYTES:
                await self._store_waiting()
            self._waiting += lines
        for (waiting, _), receipt in zip(made, self._acknowledge(lines), strict=True):
            waiting.receipt = receipt

    def _encoded(self, batch: Sequence[PendingAppend]) -> list[tuple[PendingAppend, JournalRow]]:
        """The line of each append that can be written; the others are told why not."""
        made: list[tuple[PendingAppend, JournalRow]] = []
        end = self._end
        for waiting in batch:
            try:
                line = JournalRow.of(self._seq + len(made) + 1, end, waiting.records)
            except JournalError as e:
                waiting.error = e
                continue
            made.append((waiting, line))
            end += len(line.data)
        return made

    def _acknowledge(self, lines: Sequence[JournalRow]) -> list[Receipt]:
        receipts = []
        for line in lines:
            self._seq += 1
            receipts.append(Receipt(self._seq, self._end))
            self._end += len(line.data)
        return receipts

    def _check_writable(self) -> None:
        if self._is_closed:
            raise JournalError(f"{self._head.place}: the journal is closed")
        if self._fence is None:
            raise JournalError(f"{self._head.place}: the session was opened read-only")

    async def _store_waiting(self, *, is_last: bool = False) -> None:
        if self._waiting:
            await self._store(self._waiting, is_last=is_last)
            self._waiting = []

    async def _store(self, lines: Sequence[JournalRow], *, is_last: bool = False) -> None:
        """Have the database hold these lines behind what is there, in one transaction; with the last, let go.

        When the connection is lost meanwhile, nobody knows whether that was committed, or will be. It is done once more
        then, instead of what the first attempt may have left; and where the database stays away, by the next append.
        Before that the fence is raised: an attempt that arrives late would take off what was acknowledged since.
        """
        about = listed_about(self._about, lines)
        entered = entered_by(self._head.header.session, lines, self._answers)
        size = sum(len(line.data) for line in lines)
        for is_over in (False, True):
            try:
                if self._is_unsure:
                    await self._raise_fence()
                values = append_values(
                    self._head.tenant,
                    self._head.number,
                    self._fence,
                    self._stored_seq,
                    self._stored_end,
                    lines,
                    is_unsure=self._is_unsure,
                    owner="" if is_last else self._head.owner,
                    lease_seconds=_OVER_SECONDS if is_last else self._lease_seconds,
                    about=None if about == self._about else about,
                )
                status = await self._appends.append(self._head.tenant, values, entered, size)
                break
            except JournalLost:
                raise  # the tenant is being deleted
            except JournalError as e:
                if not is_lost(e):
                    raise JournalError(f"{e}: nothing was recorded") from e
                self._is_unsure = True
                if is_over:
                    raise JournalError(f"{e}: nothing was acknowledged; go on when it is back") from e
                await self._db.renew()
        if status != "done":
            raise self._lost(status)
        self._links.stored(entered)
        self._held_until = 0.0 if is_last else time.monotonic() + self._lease_seconds / 2
        self._is_unsure = False
        self._about = about
        self._answers = dict(list(self._answers.items())[-_MOST_ANSWERS:])
        self._stored_seq += len(lines)
        self._stored_end += size

    async def _raise_fence(self) -> None:
        """Let no append that we sent before have any effect from now on. Where it isn't ours, the next one says so."""
        assert self._fence is not None
        of_it = {"tenant": self._head.tenant, "session": self._head.number, "owner": self._head.owner}
        if await self._db.ask(self._head.tenant, _RAISE, {**of_it, "fence": self._fence, "next": self._fence + 1}):
            self._fence += 1

    def _lost(self, what: str) -> JournalLost:
        return JournalLost(
            f"{self._head.place}: the session was {what} while it was open here: nothing was recorded; "
            "open it again, or go on in a new one"
        )


class ListedFacts(msgspec.Struct, omit_defaults=True):
    """What listings say of a session, as JSON stands in its row. What a newer program adds is passed over."""

    title: str | None = None
    tags: tuple[str, ...] = ()
    branch: str | None = None
    last_prompt: str | None = None
    client: str | None = None
    folder: str | None = None


def listed_about(before: bytes, lines: Sequence[JournalRow]) -> bytes:
    """What listings say of a session once it has these lines, as JSON."""
    found, known = _facts(lines), dict[str, Any]()
    said = {name: value for name in ListedFacts.__struct_fields__ if (value := getattr(found, name)) is not None}
    with suppress(msgspec.MsgspecError):  # else it is damaged, and these are all that is known
        msgspec.json.decode(before, type=ListedFacts)
        known = msgspec.json.decode(before, type=dict[str, Any])
    return msgspec.json.encode({**known, **said}) if said else before


def append_values(
    tenant: int,
    session: int,
    fence: int | None,
    seq: int,
    offset: int,
    lines: Sequence[JournalRow],
    *,
    is_unsure: bool,
    owner: str,
    lease_seconds: float,
    about: bytes | None,
) -> tuple[Any, ...]:
    """What `APPEND` is given, but for what the index of links learns."""
    found = _facts(lines)
    data, kept_from = [line.data for line in lines], [line.kept_from for line in lines]
    head = (tenant, session, fence, seq, offset)
    listed = (found.counted, found.is_counted, about)
    return (*head, data, kept_from, is_unsure, owner, lease_seconds, *listed)


def entered_by(session: str, lines: Sequence[JournalRow], answers: dict[MessageId, tuple[str, ...]]) -> EnteredLinks:
    """What the index of links learns from lines of a session. `answers`: as for `links_in`."""
    records = [record for line in lines for record in line.records]
    return EnteredLinks(session, list(links_in(records, session, answers)), name_in(records))


def _facts(lines: Sequence[JournalRow]) -> ListingFacts:
    found = ListingFacts()
    for line in reversed(lines):
        for record in reversed(line.records):
            found.read_record(record)
    return found
