"""`ports.HomeContents` of a tenant's rows: what is copied out of the database and into it (SCL-1).

A session is written in one transaction, which reads back what was written: others see it when that was found right.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import anyio.to_thread

from perdure.adapters.journal.links import links_in
from perdure.adapters.postgres.appends import APPEND, entered_values
from perdure.adapters.postgres.blobs import KEPT
from perdure.adapters.postgres.journal import (
    JournalRow,
    PostgresJournal,
    append_values,
    entered_by,
    listed_about,
)
from perdure.adapters.postgres.store import PostgresHome
from perdure.errors import DamagedLine, JournalError, JournalLost, SessionNotFound
from perdure.ports.contents import JournalEnd, MemoryFiles
from perdure.ports.home import StoredSession
from perdure.transcript.codec import decode_header, decode_line
from perdure.transcript.messages import MessageId

_PAGE: Final = 500  # sessions
_GROUP_LINES: Final = 2_000
_GROUP_BYTES: Final = 4 * 1024 * 1024
_TAIL: Final = 16  # lines before the new ones, which may hold the answers that these end
_ENDS: Final = """
SELECT s.id, s.bytes, sha256(coalesce(r.line, s.header)), extract(epoch FROM s.modified)::float8
FROM perdure.sessions s LEFT JOIN perdure.records r ON (r.tenant, r.session, r.seq) = (s.tenant, s.number, s.seq)
WHERE s.tenant = %s AND s.id > %s ORDER BY s.id LIMIT %s
"""
_LINES: Final = """
SELECT seq, line FROM (
  SELECT seq, line, sum(octet_length(line)) OVER (ORDER BY seq) - octet_length(line) AS before FROM (
    SELECT seq, line FROM perdure.records WHERE tenant = %(tenant)s AND session = %(session)s
      AND seq > %(after)s AND seq <= %(upto)s ORDER BY seq LIMIT %(most)s) AS next) AS measured
WHERE before < %(bytes)s ORDER BY seq
"""
_LAST: Final = (
    "SELECT line FROM perdure.records WHERE tenant = %s AND session = %s AND seq > %s AND seq <= %s ORDER BY seq"
)
_HEAD: Final = "SELECT header, seq FROM perdure.sessions WHERE tenant = %s AND number = %s"
_IS_HELD: Final = "SELECT lease_until > now() FROM perdure.sessions WHERE tenant = %s AND number = %s"
_NOTES: Final = "SELECT name, data FROM perdure.notes WHERE tenant = %s AND session = %s ORDER BY name"
_WRITE_NOTES: Final = (
    "INSERT INTO perdure.notes (tenant, session, name, data) VALUES (%s, %s, %s, %b) "
    "ON CONFLICT (tenant, session, name) DO UPDATE SET data = excluded.data"
)
_PUBLISH: Final = (
    "UPDATE perdure.sessions SET modified = to_timestamp(%s), owner = '', lease_until = '-infinity' "
    "WHERE tenant = %s AND number = %s AND fence = %s RETURNING 1"
)
_MEMORIES: Final = (
    "SELECT m.name, m.data, extract(epoch FROM m.modified)::float8 FROM perdure.memory_folders f "
    "JOIN perdure.memory_files m ON (m.tenant, m.folder) = (f.tenant, f.number) "
    "WHERE f.tenant = %s AND f.place = %s ORDER BY m.name"
)
_MAKE_FOLDER: Final = b"INSERT INTO perdure.memory_folders (tenant, place) VALUES (%s, %s) ON CONFLICT DO NOTHING"
_CHANGE_FOLDER: Final = (
    b"UPDATE perdure.memory_folders SET version = DEFAULT WHERE tenant = %s AND place = %s RETURNING number"
)
_CLEAR_FOLDER: Final = b"DELETE FROM perdure.memory_files WHERE tenant = %s AND folder = %s"
_KEEP_MEMORY: Final = (
    b"INSERT INTO perdure.memory_files (tenant, folder, name, data, modified) VALUES (%s, %s, %s, %b, to_timestamp(%s))"
)
_LEARN: Final = (
    "INSERT INTO perdure.calibrations (tenant, model, ratio) SELECT %s, new.* "
    "FROM unnest(%s::text[], %s::float8[]) AS new (model, ratio) ON CONFLICT (tenant, model) DO NOTHING"
)
_KEEP: Final = """
INSERT INTO perdure.documents (tenant, kind, name, data, put_by, modified)
VALUES (%s, %s, %s, %b, ''::bytea, to_timestamp(%s)) ON CONFLICT (tenant, kind, name)
DO UPDATE SET data = excluded.data, version = DEFAULT, modified = excluded.modified, put_by = excluded.put_by
"""


class PostgresSession:
    """`ports.SessionContents` of a session's rows."""

    def __init__(self, home: PostgresHome, stored: StoredSession) -> None:
        self._home, self.blobs = home, stored.blobs
        assert isinstance(stored.journal, PostgresJournal)
        self.head = stored.journal.head

    async def lines(self) -> AsyncGenerator[Sequence[bytes], None]:
        """The header, and the lines that there are now, a few megabytes at a time."""
        if not (rows := await self._ask(_HEAD, self._key)):
            raise SessionNotFound(f"{self.head.place}: the session was deleted")
        header, upto = rows[0]
        yield [header]
        after = 0
        while after < upto:
            values = {
                "tenant": self.head.tenant,
                "session": self.head.number,
                "after": after,
                "upto": upto,
                "most": _GROUP_LINES,
                "bytes": _GROUP_BYTES,
            }
            rows = await self._ask(_LINES, values)
            if not rows:
                raise DamagedLine(f"lines that were acknowledged are missing behind line {after + 1}")
            yield [line for _, line in rows]
            after = rows[-1][0]

    async def notes(self) -> Mapping[str, bytes]:
        """The notes, and those that were set aside."""
        return dict(await self._ask(_NOTES, self._key))

    async def is_held(self) -> bool:
        """Whether an owner's lease runs."""
        rows = await self._ask(_IS_HELD, self._key)
        return bool(rows and rows[0][0])

    async def tail(self, count: int) -> Sequence[bytes]:
        """Its last lines."""
        return [row[0] for row in await self._ask(_LAST, (*self._key, self.head.seq - count, self.head.seq))]

    @property
    def _key(self) -> tuple[int, int]:
        return self.head.tenant, self.head.number

    async def _ask(self, statement: str, values: Any) -> list[tuple[Any, ...]]:
        return await self._home.store.db.ask(self.head.tenant, statement, values)


class PostgresSessionWriting(PostgresSession):
    """`ports.SessionWriting`: rows of a transaction that isn't committed yet."""

    def __init__(self, home: PostgresHome, stored: StoredSession, tail: Sequence[bytes]) -> None:
        super().__init__(home, stored)
        self._header, self._session = stored.header, stored.id
        self._seq, self._end, self._about = self.head.seq, self.head.size, self.head.about
        self._answers: dict[MessageId, tuple[str, ...]] = {}
        for line in tail:
            list(links_in(decode_line(line, self._header.version).records, "", self._answers))

    async def _ask(self, statement: str, values: Any) -> list[tuple[Any, ...]]:
        """The tenant was named when the session was made or opened, and what fails here fails the whole."""
        async with self._home.store.db.connection() as connection:
            cursor = connection.cursor(binary=True)
            await cursor.execute(statement.encode(), values)
            return await cursor.fetchall() if cursor.description else []

    async def append(self, lines: Sequence[bytes]) -> None:
        """Write these lines behind those that are there."""
        rows = await anyio.to_thread.run_sync(self._rows, lines)
        about = listed_about(self._about, rows)
        values = append_values(
            self.head.tenant, self.head.number, self.head.fence, self._seq, self._end, rows,
            is_unsure=False,
            owner=self.head.owner,
            lease_seconds=self._home.store.lease_seconds,
            about=about,
        )  # fmt: skip
        entered = entered_values(entered_by(self._session, rows, self._answers))
        async with self._home.store.db.connection() as connection:
            done = await (await connection.execute(APPEND, (*values, *entered))).fetchone()
        if not done or done[0] != "done":
            raise JournalLost(f"{self.head.place}: the session was {done and done[0]} meanwhile: copy it again")
        self._seq, self._end, self._about = self._seq + len(rows), self._end + sum(map(len, lines)), about

    def _rows(self, lines: Sequence[bytes]) -> list[JournalRow]:
        rows, offset = [], self._end
        for line in lines:
            rows.append(JournalRow.read(line, offset, decode_line(line, self._header.version).records))
            offset += len(line)
        return rows

    async def write_notes(self, notes: Mapping[str, bytes]) -> None:
        """Put these in the place of those of the same names."""
        for name, data in notes.items():
            await self._ask(_WRITE_NOTES, (*self._key, name, data))

    async def publish(self, modified: float) -> None:
        """Let go of it, as it was written at that time."""
        if not await self._ask(_PUBLISH, (modified, *self._key, self.head.fence)):
            raise JournalLost(f"{self.head.place}: the session was taken or deleted meanwhile: copy it again")


class PostgresContents:
    """`ports.HomeContents` of a tenant."""

    def __init__(self, home: PostgresHome) -> None:
        self.home = home
        self._db = home.store.db

    # --- sessions

    async def ends(self) -> AsyncIterator[JournalEnd]:
        """Where each session's journal ends."""
        tenant, after = await self._db.tenant(self.home.name), ""
        while tenant is not None and (rows := await self._db.ask(tenant, _ENDS, (tenant, after, _PAGE))):
            for row in rows:
                yield JournalEnd(*row)
            after = rows[-1][0]

    async def session(self, session: str) -> PostgresSession:
        """The session of this id."""
        return PostgresSession(self.home, await self.home.open(session, read_only=True))

    @asynccontextmanager
    async def writing(
        self, session: str, header: bytes, *, kept: int, modified: float
    ) -> AsyncIterator[PostgresSessionWriting]:
        """A new session, or one that goes on."""
        tenant, reserved = await self.home.reserved() if not kept else (0, None)  # not within what may be rolled back
        async with self._db.together():  # so that a lease, too, goes with a process that is killed
            if kept:
                stored = await self.home.open(session)
            else:
                stored = await self.home.made(decode_header(header), header, number=reserved)
            reading = PostgresSession(self.home, stored)
            if kept and (more := reading.head.size - kept) != 0:
                raise JournalError(f"{stored.place}: was written to meanwhile ({more:+,} bytes): copy it again")
            writing = PostgresSessionWriting(self.home, stored, await reading.tail(_TAIL) if kept else ())
            yield writing
            if not kept and reserved is not None:
                self.home.check_kept(await self._db.ask(tenant, KEPT, (tenant, reserved)), session)
            await writing.publish(modified)

    # --- beside them

    async def documents(self, kind: str) -> Mapping[str, tuple[float, bytes]]:
        """Each document of a kind: when it was written, and the SHA-256 of it."""
        rows = await self._ask(
            "SELECT name, extract(epoch FROM modified)::float8, sha256(data) FROM perdure.documents "
            "WHERE tenant = %s AND kind = %s",
            kind,
        )
        return {name: (modified, digest) for name, modified, digest in rows}

    async def document(self, kind: str, name: str) -> bytes | None:
        """One of them."""
        found = await self.home.documents(kind).get(name)
        return None if found is None else found.data

    async def keep_document(self, kind: str, name: str, data: bytes, modified: float) -> None:
        """Keep one in the place of any other."""
        tenant = await self._db.make_tenant(self.home.name)
        await self._db.ask(tenant, _KEEP, (tenant, kind, name, data, modified))

    async def learned(self) -> Mapping[str, float]:
        """What is known about models' counting."""
        return dict(await self._ask("SELECT model, ratio FROM perdure.calibrations WHERE tenant = %s"))

    async def keep_learned(self, ratios: Mapping[str, float]) -> None:
        """Keep what was learned elsewhere."""
        tenant = await self._db.make_tenant(self.home.name)
        await self._db.ask(tenant, _LEARN, (tenant, list(ratios), list(ratios.values())))

    async def key(self) -> bytes:
        """The home's key; empty where there is none."""
        rows = await self._ask("SELECT key FROM perdure.keys WHERE tenant = %s")
        return rows[0][0] if rows else b""

    async def keep_key(self, key: bytes) -> bytes:
        """Keep a key unless there is one; the home's."""
        return await self.home.secret_key(new=key)

    async def memories(self) -> Sequence[str]:
        """The places of all directories of memories."""
        rows = await self._ask("SELECT place FROM perdure.memory_folders WHERE tenant = %s ORDER BY place")
        return [place for (place,) in rows]

    async def memory_files(self, place: str) -> MemoryFiles:
        """All files of a directory."""
        return _files_of(await self._ask(_MEMORIES, place))

    async def keep_memories(self, place: str, files: MemoryFiles, *, instead_of: MemoryFiles) -> None:
        """Let a directory have these files alone, in one transaction."""
        tenant = await self._db.make_tenant(self.home.name)
        async with self._db.transaction(tenant) as cursor:
            await cursor.execute(_MAKE_FOLDER, (tenant, place))
            await cursor.execute(_CHANGE_FOLDER, (tenant, place))
            ((number,),) = await cursor.fetchall()
            await cursor.execute(_MEMORIES.encode(), (tenant, place))
            if _files_of(await cursor.fetchall()) != instead_of:
                raise JournalError(f"{self.home.store.name}: memories were changed meanwhile: copy them again")
            await cursor.execute(_CLEAR_FOLDER, (tenant, number))
            for name, (data, modified) in files.items():
                await cursor.execute(_KEEP_MEMORY, (tenant, number, name, data, modified))

    async def only_here(self) -> Mapping[str, int]:
        """Nothing: whatever a database keeps, files can keep as well."""
        return {}

    async def _ask(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        tenant = await self._db.tenant(self.home.name)
        return [] if tenant is None else await self._db.ask(tenant, statement, (tenant, *values))


def _files_of(rows: list[tuple[Any, ...]]) -> dict[str, tuple[bytes, float]]:
    return {name: (bytes(data), modified) for name, data, modified in rows}
