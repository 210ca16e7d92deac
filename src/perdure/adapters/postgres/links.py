"""`ports.Links` in a database (GW-4).

The links of a journal's lines are entered with these, by the append that stores them. What the gateway enters is
known here at once, also of lines that wait to be stored; it is written by itself only if it is asked for before them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import anyio

from perdure.adapters.postgres.database import Database
from perdure.errors import JournalError
from perdure.ports.home import KnownLink

_LOG = logging.getLogger("perdure.gateway")
_MOST_NAMED: Final = 20  # sessions of one name, as a client begins a new history whenever it compacts its own
_MOST_ENTERED: Final = 10_000  # that wait for a database which doesn't answer; the journals have them
ENTER: Final = "SELECT perdure.enter(%s, %b::bytea[], %s::text[], %s::bigint[], %b::bytea[], %s::text[], %b::bytea[])"


@dataclass(frozen=True, slots=True)
class EnteredLinks:
    """What the index learns of a session: links, and its name; None where that stays what it is."""

    session: str
    links: Sequence[KnownLink]
    name: str | None = None


def entering(tenant: int, links: Sequence[KnownLink], names: Mapping[str, str]) -> tuple[Any, ...]:
    """What `ENTER` is given."""
    return (
        tenant,
        [row.link for row in links],
        [row.session for row in links],
        [row.messages for row in links],
        [key_of(row.answer) for row in links],
        list(names),
        [key_of(name) for name in names.values()],
    )


class PostgresLinks:
    """The links of a tenant."""

    def __init__(self, db: Database, tenant: str) -> None:
        self._db = db
        self._tenant = tenant
        self._entered: list[KnownLink] = []
        self._names: dict[str, str] = {}
        self._turn = anyio.Lock()

    async def longest(self, links: Sequence[bytes]) -> tuple[str, int] | None:
        """The session that knows the longest beginning of a history, and how many messages of it."""
        rows = await self._ask(
            "SELECT session, messages FROM perdure.links WHERE tenant = %s AND link = ANY (%b::bytea[]) "
            "ORDER BY messages DESC LIMIT 1",
            list(links),
        )
        return (rows[0][0], rows[0][1]) if rows else None

    async def of_answer(self, answer: str) -> KnownLink | None:
        """Where an answer ended, or an item of one, by its id."""
        rows = await self._ask(
            "SELECT link, session, messages FROM perdure.answers JOIN perdure.links USING (tenant, link, messages) "
            "WHERE tenant = %s AND answer = %b",
            key_of(answer),
        )
        return KnownLink(rows[0][0], rows[0][1], rows[0][2], answer) if rows else None

    async def named(self, name: str) -> list[str]:
        """The sessions of a name, the newest first."""
        rows = await self._ask(
            "SELECT session FROM perdure.names WHERE tenant = %s AND name = %b "
            f"ORDER BY named DESC, session DESC LIMIT {_MOST_NAMED}",
            key_of(name),
        )
        return [row[0] for row in rows]

    def enter(self, rows: Iterable[KnownLink]) -> None:
        """Enter links of sessions. The one that was there first keeps a link that several share."""
        self._entered = (self._entered + list(rows))[-_MOST_ENTERED:]

    def name(self, session: str, name: str) -> None:
        """Enter the name that a session has from now on, in the place of any before; empty for none."""
        self._names[session] = name

    def stored(self, entered: EnteredLinks) -> None:
        """An append of a session has written these: where they were entered as well, they needn't be written again."""
        if self._entered and (links := entered.links):
            written = {*links, *(row._replace(answer="") for row in links)}  # of a link alone any answer says it
            self._entered = [row for row in self._entered if row not in written]
        if entered.name is not None and self._names.get(entered.session) == entered.name:
            del self._names[entered.session]

    async def flush(self) -> None:
        """Write what was entered, and no append has written."""
        if self._entered or self._names:
            async with self._turn:
                with anyio.CancelScope(shield=True):
                    await self._write()

    async def forget(self, session: str) -> None:
        """Take out what names a session, as it can't be opened any more."""
        for statement in (
            "DELETE FROM perdure.answers a USING perdure.links l WHERE l.tenant = %s AND l.session = %s "
            "AND (a.tenant, a.link) = (l.tenant, l.link)",
            "DELETE FROM perdure.links WHERE tenant = %s AND session = %s",
            "DELETE FROM perdure.names WHERE tenant = %s AND session = %s",
        ):
            await self._ask(statement, session)

    async def close(self) -> None:
        """Write what was entered; of the database nothing is held."""
        await self.flush()

    async def _write(self) -> None:
        rows, self._entered = self._entered, []
        names, self._names = self._names, {}
        try:
            tenant = await self._db.make_tenant(self._tenant)
            await self._db.ask(tenant, ENTER, entering(tenant, rows, names))
        except JournalError as e:
            _LOG.warning("the index of sessions can't be written: %s", e)
            self._entered = (rows + self._entered)[-_MOST_ENTERED:]
            self._names = {**names, **self._names}

    async def _ask(self, statement: str, value: object) -> list[tuple[Any, ...]]:
        await self.flush()
        tenant = await self._db.tenant(self._tenant)
        return [] if tenant is None else await self._db.ask(tenant, statement, (tenant, value))


def key_of(text: str) -> bytes:
    """A name that a client made up, as a key: any characters may be in it."""
    return text.encode("utf-8", "surrogatepass")
