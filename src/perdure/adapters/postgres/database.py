"""The way to a database: connections that are opened when the first is needed, and transactions of one tenant.

No state of a session and no prepared statement outlives a transaction, so that a transaction pooler may stand in
between (SCL-1).
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import TupleRow

from perdure.adapters.postgres.address import place_of
from perdure.adapters.postgres.schema import GOING, SERVING, check_version, one_line_of
from perdure.errors import JournalError, JournalLost, WrongLoop
from perdure.ports.home import StoreConnections
from perdure.text.cleaning import is_utf8


class Connection(psycopg.AsyncConnection[TupleRow]):
    """A connection that is given up when the server says nothing for longer than it gives any statement.

    A server that is paused, or waits for its disk, breaks off nothing by itself: whoever asks would wait for ever.
    """

    async def wait(self, *given: Any, **more: Any) -> Any:
        """What psycopg does while it waits, whoever asks."""
        late = asyncio.get_running_loop().call_later(SILENT_SECONDS, self._hang_up)
        try:
            return await super().wait(*given, **more)
        finally:
            late.cancel()

    def _hang_up(self) -> None:
        """Whoever waits finds the connection lost."""
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self.fileno())) as there:
            there.shutdown(socket.SHUT_RDWR)


Values = Sequence[Any] | Mapping[str, Any] | None
T = TypeVar("T")

logging.getLogger("psycopg").setLevel(logging.ERROR)  # of a connection that was lost, we say ourselves what matters

_TENANT_SECONDS: Final = 30.0
_PATIENCE: Final = 5.0  # seconds that a connection is waited for
SILENT_SECONDS: Final = 40.0  # until a server is given up that doesn't answer; it ends statements itself after 30
AWAY_SECONDS: Final = 2.0  # after a connection that wasn't answered in time, others aren't tried for so long

SERVE: Final = b"SELECT perdure.serve(%s)"
# Whoever is paused within a transaction keeps its rows locked no longer than that (SCL-3).
_BOUND: Final = b"SELECT set_config('idle_in_transaction_session_timeout', '30s', true)"
_SERVE_BOUND: Final = _BOUND + b", perdure.serve(%s)"
_SERVE_UNSYNCED: Final = b"SELECT perdure.serve(%s), set_config('synchronous_commit', 'off', true)"

# Unless the URL says otherwise: of several hosts the one that takes writes, wherever that is after a failover; and a
# host that has gone without a word is given up after a quarter of a minute instead of after hours.
_WAY: Final[Mapping[str, Any]] = {
    "target_session_attrs": "read-write",
    "keepalives_idle": 5,
    "keepalives_interval": 5,
    "keepalives_count": 2,
    "tcp_user_timeout": 15_000,
}

# What a user is told who isn't a member of it: of the schema with the first statement, of the role with any other.
_IS_NO_MEMBER: Final = re.compile(rf"\b(?:{SERVING}|schema perdure)\b")

_JOINED: ContextVar[tuple[Database, Connection] | None] = ContextVar("joined", default=None)  # see `Database.together`


class Database:
    """Connections to one database, and who we are there."""

    def __init__(self, url: str, *, connections: int = 8, patience: float = _PATIENCE) -> None:
        self.place = place_of(url)
        ours = {"connect_timeout": max(2, int(patience)), "application_name": "perdure"}
        self._url = make_conninfo(**{**_WAY, **conninfo_to_dict(url), **ours})
        self._patience = patience
        self._connections = connections
        self._free = asyncio.Semaphore(connections)
        self._idle: list[Connection] = []
        self._busy = self._waiting = 0
        self.took: Callable[[float], None] | None = None  # is told of each use of a connection how long it took
        self._is_checked = self._is_closed = False
        self._away_until = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None  # whose connections these are
        self._tenants: dict[str, tuple[int, float]] = {}  # their numbers, and until when those are taken for right

    def new_owner(self) -> str:
        """A name for who opens a session: nobody else has it, nor has another opening."""
        return f"process {os.getpid()} on {socket.gethostname()} ({secrets.token_hex(4)})"

    @property
    def is_joined(self) -> bool:
        """Whether what this task asks is part of a transaction (`together`)."""
        joined = _JOINED.get()
        return joined is not None and joined[0] is self

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection, each statement its own transaction but in `together`. What it refuses is a `JournalError`."""
        if (joined := _JOINED.get()) is not None and joined[0] is self:
            yield joined[1]
            return
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if loop is not self._loop:
            raise WrongLoop(
                f"{self.place}: the store was opened in another event loop; sessions of perdure.sync, which LangChain "
                "and Hermes use as well, take a store of perdure.sync, or the URL"
            )
        began = time.monotonic()
        self._waiting += 1
        try:
            await asyncio.wait_for(self._free.acquire(), self._patience)
        except TimeoutError:
            what = f"all {self._connections} connections were at work for {self._patience:g} s"
            raise JournalError(f"{self.place}: {what}: try again") from None
        finally:
            self._waiting -= 1
        self._busy += 1
        try:
            if self._is_closed:
                raise JournalError(f"{self.place}: the store is closed")
            connection = self._idle.pop() if self._idle else await self._connect()
            try:
                yield connection
            finally:
                if _is_at_rest(connection) and not self._is_closed:
                    self._idle.append(connection)
                else:  # lost, or left in the middle of something
                    await connection.close()
        except psycopg.Error as e:
            what = one_line_of(e)
            if e.sqlstate == GOING or isinstance(e, psycopg.errors.ForeignKeyViolation):
                self._tenants.clear()  # by all likelihood, the tenant was deleted
            if isinstance(e, psycopg.errors.InsufficientPrivilege) and _IS_NO_MEMBER.search(what):
                what += f": GRANT {SERVING} TO the user of the URL"
            raise (JournalLost if e.sqlstate == GOING else JournalError)(f"{self.place}: {what}") from e
        finally:
            self._busy -= 1
            self._free.release()
            if self.took is not None:
                self.took(time.monotonic() - began)

    @property
    def connections(self) -> StoreConnections:
        """How many there are, and how many are wanted."""
        return StoreConnections(self._busy + len(self._idle), self._busy, self._waiting)

    @asynccontextmanager
    async def together(self) -> AsyncIterator[Connection]:
        """One transaction of all that this task asks of the database within, whoever it asks: all of it, or nothing."""
        begun, connection = await self.again(self._begun)
        async with begun:
            joined = _JOINED.set((self, connection))
            try:
                yield connection
            finally:
                _JOINED.reset(joined)

    async def _begun(self) -> tuple[AsyncExitStack, Connection]:
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(self.connection())
            await stack.enter_async_context(connection.transaction())
            await connection.execute(_BOUND)
            return stack.pop_all(), connection

    @asynccontextmanager
    async def transaction(self, tenant: int) -> AsyncIterator[psycopg.AsyncCursor[TupleRow]]:
        """A transaction of a tenant; it sees and writes the rows of that one only. Values are read as binary."""
        async with self.connection() as connection, connection.transaction():
            cursor = connection.cursor(binary=True)
            await cursor.execute(_SERVE_BOUND, (tenant,))
            yield cursor

    async def ask(
        self, tenant: int, statement: str, values: Values = None, *, is_lasting: bool = True
    ) -> list[TupleRow]:
        """The rows of one statement in a transaction of its own. Made again, once, where the connection was dead.

        It takes one round trip: what is sent in one pipeline is one transaction. What need not be `lasting`, such as a
        lease, isn't synced to the server's disk.
        """

        async def asked() -> list[TupleRow]:
            async with self.connection() as connection, _at_once(connection):
                cursor = connection.cursor(binary=True)
                await connection.execute(SERVE if is_lasting else _SERVE_UNSYNCED, (tenant,))
                await cursor.execute(statement.encode(), values)
            return await cursor.fetchall() if cursor.description else []

        return await self.again(asked)

    async def again(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do something that may be done twice; a second time when the connection was lost, as after a restart."""
        try:
            return await work()
        except JournalError as e:
            if not is_lost(e):
                raise
            await self.renew()
            return await work()

    async def renew(self) -> None:
        """Close the connections that nobody uses: when one is dead, others are."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    async def tenant(self, name: str) -> int | None:
        """The number of a tenant; None for one that nothing was kept for yet."""
        number, until = self._tenants.get(name, (0, 0.0))
        if time.monotonic() >= until:  # it may have been deleted elsewhere, and made anew
            rows = await self.ask(0, "SELECT id FROM perdure.tenants WHERE name = %s", (name,))
            if not rows:
                return None
            number = rows[0][0]
            self._tenants[name] = number, time.monotonic() + _TENANT_SECONDS
        return number

    async def make_tenant(self, name: str) -> int:
        """The number of a tenant, which is made if need be."""
        if (known := await self.tenant(name)) is not None:
            return known
        await self.ask(0, "INSERT INTO perdure.tenants (name) VALUES (%s) ON CONFLICT (name) DO NOTHING", (name,))
        made = await self.tenant(name)
        assert made is not None
        return made

    def forget_tenant(self, name: str) -> None:
        """Ask anew for its number: it was deleted."""
        self._tenants.pop(name, None)

    async def close(self) -> None:
        """Close all connections; there are none afterwards."""
        self._is_closed = True
        await self.renew()

    async def _connect(self) -> Connection:
        """A new connection. Before the first one is used, what is there is checked."""
        if time.monotonic() < self._away_until:  # else a request that asks many things waits for each
            raise psycopg.errors.ConnectionTimeout("the server didn't answer a moment ago")
        try:
            connection = await Connection.connect(self._url, autocommit=True, prepare_threshold=None)
        except psycopg.errors.ConnectionTimeout:
            self._away_until = time.monotonic() + AWAY_SECONDS
            raise
        if not self._is_checked:
            try:
                check_version(self.place, await _version(connection))
            except BaseException:
                await connection.close()
                raise
            self._is_checked = True
        return connection


def _at_once(connection: Connection) -> AbstractAsyncContextManager[object]:
    """One transaction in one round trip; within another transaction, a part of that."""
    return connection.pipeline() if _is_at_rest(connection) else connection.transaction()


def _is_at_rest(connection: Connection) -> bool:
    is_out_of_pipeline = connection.info.pipeline_status == PipelineStatus.OFF
    return is_out_of_pipeline and connection.info.transaction_status == TransactionStatus.IDLE


async def _version(connection: Connection) -> int:
    found = await (await connection.execute("SELECT to_regclass('perdure.migrations') IS NOT NULL")).fetchone()
    if not found or not found[0]:
        return 0
    found = await (await connection.execute("SELECT max(version) FROM perdure.migrations")).fetchone()
    return found[0] or 0 if found else 0


def is_lost(error: BaseException) -> bool:
    """Whether it isn't known what came of a statement, or there was no connection for it that leads to where it can be
    done: what takes no writes any more (25006) was the primary once, and another one is now.
    """
    cause = error.__cause__
    if isinstance(cause, psycopg.errors.ReadOnlySqlTransaction):
        return True
    return isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError) and (
        cause.sqlstate is None or cause.sqlstate.startswith(("08", "57P"))
    )


def is_sayable(text: str) -> bool:
    """Whether PostgreSQL can be told this text."""
    return is_utf8(text) and "\0" not in text
