"""A pooler in transaction mode in front of a real PostgreSQL, stricter than those that people run (SCL-1).

    with TransactionPooler(to=server.url) as pooler:
        url = pooler.in_front_of(url)

A client has a server's connection for as long as a transaction lasts, and then another one: whoever comes next has the
one that was just left. What a transaction leaves behind in its connection (settings, prepared statements, what is
listened to, locks, temporary tables, a role) is written down in `leaks` and thrown away, so that nobody can rely on it.
Passwords and TLS aren't spoken: it is for the servers of tests.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Final
from urllib.parse import urlsplit

from perdure.testing.server import LocalServer

_PLAIN: Final = 196_608  # the version of the protocol
_CANCEL: Final = 80_877_102
_ENCRYPT: Final = (80_877_103, 80_877_104)  # TLS, GSSAPI
_STARTS: Final = frozenset({"user", "database", "client_encoding", "application_name"})  # what a client may ask for
_NO_STATE: Final = "in a transaction pooler this isn't there any more with the next transaction"
# What stays with a connection, as PostgreSQL itself knows it; a row each.
_LEFT: Final = """
SELECT 'prepared statement ' || name FROM pg_prepared_statements
UNION ALL SELECT 'listening to ' || channel FROM pg_listening_channels() AS channel
UNION ALL SELECT 'advisory lock ' || objid FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
UNION ALL SELECT 'setting ' || name FROM pg_settings WHERE source = 'session'
UNION ALL SELECT 'cursor ' || name FROM pg_cursors WHERE is_holdable
UNION ALL SELECT 'temporary table ' || relname FROM pg_class WHERE relnamespace = pg_my_temp_schema()
UNION ALL SELECT 'role ' || current_user WHERE current_user <> session_user
"""


@dataclass(slots=True, eq=False)
class PooledConnection:
    """A connection to the server, with what cancels a statement there and what it said of itself at the start."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    key: bytes = b""
    parameters: list[bytes] = field(default_factory=list)

    async def message(self) -> tuple[bytes, bytes]:
        return await _message(self.reader)

    async def asked(self, statement: str) -> list[str]:
        """The first column of what a statement gives."""
        self.writer.write(_framed(b"Q", statement.encode() + b"\0"))
        rows: list[str] = []
        while True:
            kind, body = await self.message()
            if kind == b"E":
                raise ConnectionError(body.decode(errors="replace"))
            if kind == b"D":
                (length,) = struct.unpack_from("!i", body, 2)
                rows.append(body[6 : 6 + length].decode())
            if kind == b"Z":
                return rows


@dataclass(slots=True)
class TransactionPooler(LocalServer):
    """A pooler on a local port.

    to          the URL of the server
    servers     how many of its connections each user has, of each database
    leaks       what transactions left behind, as soon as they did
    lent        how many transactions there were
    """

    to: str = ""
    servers: int = 3
    leaks: list[str] = field(default_factory=list)
    lent: int = 0
    _idle: dict[tuple[str, str], deque[PooledConnection]] = field(default_factory=dict)
    _places: dict[tuple[str, str], asyncio.Semaphore] = field(default_factory=dict)
    _keys: Iterator[int] = field(default_factory=lambda: count(1))
    _clients: dict[bytes, PooledConnection | None] = field(default_factory=dict)  # by the key that each was told

    def in_front_of(self, url: str) -> str:
        """The same database and user, by way of this pooler."""
        parts = urlsplit(url)
        user, _, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{user}@{self.url.removeprefix('http://')}").geturl()

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None
    ) -> None:
        await LocalServer.__aexit__(self, kind, e, t)
        for idle in self._idle.values():
            for server in idle:
                server.writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            (length,) = struct.unpack("!i", await reader.readexactly(4))
            (code,) = struct.unpack("!i", await reader.readexactly(4))
            rest = await reader.readexactly(length - 8)
            if code == _CANCEL:
                await self._cancel(rest)
                return
            if code == _PLAIN:
                break
            if code not in _ENCRYPT:
                writer.write(_refusal("0A000", "this protocol isn't spoken here"))
                return
            writer.write(b"N")
        texts = rest.rstrip(b"\0").decode().split("\0")
        asked = dict(zip(texts[::2], texts[1::2], strict=False))
        if unknown := asked.keys() - _STARTS:
            writer.write(_refusal("08P01", f"unsupported startup parameter: {', '.join(sorted(unknown))}"))
            return
        who = asked["user"], asked.get("database", asked["user"])
        key = struct.pack("!ii", next(self._keys), 0)
        self._clients[key] = None
        try:
            async with self._lent(who) as first:
                told = b"".join(first.parameters)
            writer.write(_framed(b"R", struct.pack("!i", 0)) + told + _framed(b"K", key) + _READY)
            await self._transactions(who, key, reader, writer)
        except ServerGone as e:
            writer.write(_refusal(e.code, e.said))
        finally:
            del self._clients[key]

    async def _transactions(
        self, who: tuple[str, str], key: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Lend the client a connection for each transaction, until it leaves."""
        while (begun := await _message(reader))[0] != b"X":
            async with self._lent(who) as server:
                self._clients[key] = server
                try:
                    await self._relayed(begun, server, reader, writer)
                finally:
                    self._clients[key] = None
                self.lent += 1
                self.leaks += await server.asked(_LEFT)
            writer.write(_READY)  # once anybody else may have the connection

    async def _relayed(
        self,
        begun: tuple[bytes, bytes],
        server: PooledConnection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Pass on what both say, until the server is ready and in no transaction, which the client isn't told yet.

        Raises where one of them leaves.
        """
        owed = 0  # answers to what the client waits for

        async def forward() -> None:
            nonlocal owed
            kind, body = begun
            while True:
                if kind == b"X":
                    raise ConnectionError("the client left in the middle of a transaction")
                if kind == b"P" and not body.startswith(b"\0"):
                    writer.write(_refusal("0A000", f"a named prepared statement: {_NO_STATE}"))
                    raise ConnectionError("refused")
                owed += kind in (b"Q", b"S", b"F")
                server.writer.write(_framed(kind, body))
                kind, body = await _message(reader)

        forwarding = asyncio.ensure_future(forward())
        try:
            while True:
                answering = asyncio.ensure_future(server.message())
                await asyncio.wait((answering, forwarding), return_when=asyncio.FIRST_COMPLETED)
                if not answering.done():
                    answering.cancel()
                    forwarding.result()
                try:
                    kind, body = answering.result()
                except (ConnectionError, asyncio.IncompleteReadError):
                    raise ServerGone("08006", "the server's connection was lost") from None
                owed -= kind == b"Z"
                if kind == b"Z" and body == b"I" and owed == 0:
                    return
                writer.write(_framed(kind, body))
        finally:
            forwarding.cancel()
            with suppress(asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
                await forwarding

    @asynccontextmanager
    async def _lent(self, who: tuple[str, str]) -> AsyncIterator[PooledConnection]:
        """A connection for a transaction: that which was left last, so that clients get each other's."""
        idle = self._idle.setdefault(who, deque())
        async with self._places.setdefault(who, asyncio.Semaphore(self.servers)):
            while idle:
                server = idle.pop()
                try:
                    await server.asked("DISCARD ALL")
                    break
                except (ConnectionError, asyncio.IncompleteReadError):  # the server ended it meanwhile
                    server.writer.close()
            else:
                server = await self._connected_as(*who)
            try:
                yield server
            except BaseException:
                server.writer.close()
                raise
            idle.append(server)

    async def _connected_as(self, user: str, database: str) -> PooledConnection:
        parts = urlsplit(self.to)
        try:
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            server = PooledConnection(reader, writer)
            start = f"user\0{user}\0database\0{database}\0client_encoding\0UTF8\0\0".encode()
            writer.write(struct.pack("!ii", len(start) + 8, _PLAIN) + start)
            while True:
                kind, body = await server.message()
                if kind == b"E":
                    raise ServerGone(*_said(body))
                if kind == b"S":
                    server.parameters.append(_framed(kind, body))
                elif kind == b"K":
                    server.key = body
                elif kind == b"Z":
                    return server
        except (OSError, asyncio.IncompleteReadError) as e:
            raise ServerGone("08006", f"the server can't be reached: {e}") from None

    async def _cancel(self, key: bytes) -> None:
        if (server := self._clients.get(key)) is not None:
            parts = urlsplit(self.to)
            _, writer = await asyncio.open_connection(parts.hostname, parts.port)
            writer.write(struct.pack("!ii", 8 + len(server.key), _CANCEL) + server.key)
            await writer.drain()
            writer.close()


class ServerGone(Exception):
    """The server ended a connection, or takes none: what the client is told."""

    def __init__(self, code: str, said: str) -> None:
        super().__init__(said)
        self.code, self.said = code, said


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)


def _framed(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


_READY: Final = _framed(b"Z", b"I")


def _refusal(code: str, said: str) -> bytes:
    return _framed(b"E", f"SFATAL\0VFATAL\0C{code}\0M{said}\0\0".encode())


def _said(body: bytes) -> tuple[str, str]:
    """The code of an error, and what it says."""
    parts = {part[:1]: part[1:].decode(errors="replace") for part in body.split(b"\0") if part}
    return parts.get(b"C", "08006"), parts.get(b"M", "refused")
