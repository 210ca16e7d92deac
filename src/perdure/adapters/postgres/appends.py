"""Appends of sessions that wait at the same time are stored together, in one transaction and one round trip (SCL-5).

What PostgreSQL takes for an append is for the most part the transaction around it, so a process that serves many
sessions gets more than twice as many through. An append that nobody else is at waits for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg

from perdure.adapters.postgres.database import SERVE, Database, is_lost
from perdure.adapters.postgres.links import ENTER, EnteredLinks, entering, key_of
from perdure.errors import JournalError

APPEND: Final = (
    b"SELECT perdure.append(%s, %s, %s, %s, %s, %b::bytea[], %s::bigint[], %s, %s, %s, %s, %s, %b, "
    b"%b::bytea[], %s::bigint[], %b::bytea[], %b)"
)
# For none whose session somebody else has locked: who waits for that lets all the others wait as well.
_APPEND_IF_FREE: Final = (
    APPEND + b" FROM (SELECT FROM perdure.sessions WHERE tenant = %s AND number = %s FOR NO KEY UPDATE SKIP LOCKED) s"
)
_AT_ONCE: Final = 2  # groups of a tenant that are under way
_MOST: Final = 16  # appends of a group
_MOST_BYTES: Final = 512 * 1024  # of lines in one, but for a single append
_NO_LINKS: Final[tuple[Any, ...]] = ([], [], [], None)


@dataclass(slots=True, eq=False)
class _Waiting:
    """An append that waits for its turn. `status` is what came of it; None when it has to be made by itself."""

    values: tuple[Any, ...]
    entered: EnteredLinks
    size: int
    turn: asyncio.Future[list[_Waiting]]  # the group that it is to store; none when it was stored with another's
    status: str | None = None
    error: JournalError | None = None


@dataclass(slots=True)
class _Queue:
    """The appends of one tenant that wait, and how many groups are under way."""

    waiting: list[_Waiting] = field(default_factory=list)
    at_work: int = 0

    def go_on(self) -> None:
        """A group may be stored: the first that waits stores it."""
        self.waiting = [one for one in self.waiting if not one.turn.done()]  # others were cancelled
        if not self.waiting:
            self.at_work -= 1
            return
        size = count = 0
        for one in self.waiting[:_MOST]:
            size += one.size
            if count and size > _MOST_BYTES:
                break
            count += 1
        group, self.waiting = self.waiting[:count], self.waiting[count:]
        group[0].turn.set_result(group)


class Appends:
    """The appends of a process to one database, a queue for each tenant: none waits for what another tenant does."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._queues: dict[int, _Queue] = {}

    async def append(self, tenant: int, values: tuple[Any, ...], entered: EnteredLinks, size: int) -> str:
        """Store lines, given as `APPEND` takes them, with their links: 'done', or why not.

        `JournalError` where the database can't, or doesn't answer.
        """
        if self._db.is_joined:
            return await self._alone(values, entered)
        queue = self._queues.setdefault(tenant, _Queue())
        one = _Waiting(values, entered, size, asyncio.get_running_loop().create_future())
        queue.waiting.append(one)
        if queue.at_work < _AT_ONCE:
            queue.at_work += 1
            queue.go_on()
        try:
            group = await one.turn
        except asyncio.CancelledError:
            if one.turn.done() and not one.turn.cancelled() and (group := one.turn.result()):
                queue.waiting[:0] = group[1:]
                queue.go_on()
            raise
        if group:
            try:
                await self._store(tenant, group)
            finally:
                for other in group[1:]:
                    if not other.turn.done():
                        other.turn.set_result([])
                group.clear()  # the first holds it by its turn: a cycle, in which the lines would stay
                queue.go_on()
                if not queue.at_work:
                    self._queues.pop(tenant, None)
        if one.error is not None:
            raise one.error
        return await self._alone(values, entered) if one.status is None else one.status

    async def _store(self, tenant: int, group: Sequence[_Waiting]) -> None:
        """Give each its status or its error. Where one that was refused took the others with it, neither."""
        unknown = JournalError(f"{self._db.place}: it isn't known whether that was stored")
        unknown.__cause__ = psycopg.OperationalError("who stored it was stopped")
        for one in group:
            one.error = unknown
        error: JournalError | None = None
        try:
            if len(group) == 1:
                group[0].status = await self._alone(group[0].values, group[0].entered)
            else:
                await self._together(tenant, group)
        except JournalError as e:
            error = e if len(group) == 1 or is_lost(e) else None
        for one in group:
            one.error = error

    async def _together(self, tenant: int, group: Sequence[_Waiting]) -> None:
        """Their lines, and then all their links in the order of their keys, so that no two groups wait for each other.

        The links of one that isn't stored are entered as well: who follows them finds what the session has.
        """
        links = [link for one in group for link in one.entered.links]
        names = {one.entered.session: one.entered.name for one in group if one.entered.name is not None}
        async with self._db.connection() as connection:
            cursors = []
            async with connection.pipeline():
                await connection.execute(SERVE, (tenant,))
                for one in group:
                    values = (*one.values, *_NO_LINKS, *one.values[:2])
                    cursors.append(await connection.execute(_APPEND_IF_FREE, values))
                if links or names:
                    await connection.execute(ENTER, entering(tenant, links, names))
            for one, cursor in zip(group, cursors, strict=True):
                row = await cursor.fetchone()
                one.status = None if row is None else str(row[0])

    async def _alone(self, values: tuple[Any, ...], entered: EnteredLinks) -> str:
        async with self._db.connection() as connection:
            row = await (await connection.execute(APPEND, (*values, *entered_values(entered)))).fetchone()
        return str(row[0]) if row else "deleted"


def entered_values(entered: EnteredLinks) -> tuple[Any, ...]:
    """The end of what `APPEND` is given: what the index of links learns."""
    links, name = entered.links, None if entered.name is None else key_of(entered.name)
    return [one.link for one in links], [one.messages for one in links], [key_of(one.answer) for one in links], name
