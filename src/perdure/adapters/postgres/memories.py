"""Memories in a database: a directory of them is rows, and each change of it one transaction (MEM-8, MEM-9, SCL-1).

What is in a directory, and how it is changed, is the same as in a folder (`adapters.memory.store`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread
import psycopg
from psycopg.rows import TupleRow

from perdure.adapters.machine.rooted import PlainFile, PlainListing
from perdure.adapters.memory.store import OpenedFolder, is_listed
from perdure.adapters.postgres.database import Database
from perdure.errors import FileMissing, FileRefused, FileTooLarge, FolderBusy, JournalError, NameTaken
from perdure.memory.places import OWN, name_for_people, parts_of

T = TypeVar("T")

_ALONE_SECONDS: Final = 900.0  # longer than models take for a directory; who was lost keeps nobody away for longer
_LOOKS: Final = 20  # whether a transaction was committed, whose answer was lost
_PAUSE_SECONDS: Final = 0.1
_ROW: Final = "tenant = %(tenant)s AND number = %(folder)s"
_OF: Final = "tenant = %(tenant)s AND folder = %(folder)s"
_SEEN: Final = "name, octet_length(data), version, (extract(epoch FROM modified) * 1000000)::bigint"


class OpenedRows:
    """`OpenedFolder` in a transaction. It is used in a thread, and asks in the loop that it comes from."""

    def __init__(self, cursor: psycopg.AsyncCursor[TupleRow], tenant: int, folder: int) -> None:
        self._cursor, self._tenant, self._folder = cursor, tenant, folder
        self._known: dict[str, PlainFile] | None = None  # None until it is asked for
        self.is_written = False
        self._is_listing_changed = False

    def read(self, name: str, *, limit_bytes: int, offset: int = 0) -> bytes:
        """What the port says."""
        parts_of(name, OWN)
        rows = self._ask(
            "SELECT substring(data FROM %(from)s FOR %(most)s) FROM perdure.memory_files "
            f"WHERE {_OF} AND name = %(name)s",
            {"name": name, "from": offset + 1, "most": limit_bytes + 1},
        )
        if not rows:
            raise FileMissing(f"{name_for_people(name)}: there is no such file")
        if len(rows[0][0]) > limit_bytes:
            raise FileTooLarge(f"{name_for_people(name)}: has more than {limit_bytes:,} bytes")
        return bytes(rows[0][0])

    def heads(self, names: Sequence[str], most_bytes: int) -> dict[str, bytes]:
        """The beginnings of files, of those that are there."""
        rows = self._ask(
            "SELECT name, substring(data FROM 1 FOR %(most)s) FROM perdure.memory_files "
            f"WHERE {_OF} AND name = ANY (%(names)s)",
            {"names": list(names), "most": most_bytes},
        )
        return {name: bytes(data) for name, data in rows}

    def stat(self, name: str) -> PlainFile | None:
        """What the port says."""
        parts_of(name, OWN)
        return self._files().get(name)

    def write(self, name: str, data: bytes, *, is_new: bool = False, is_durable: bool = True) -> None:
        """What the port says. All is durable with the transaction."""
        parts_of(name, OWN)
        if is_new and name in self._files():
            raise NameTaken(f"{name_for_people(name)}: there is such a file already")
        self._put(name, data, "excluded.data")

    def append(self, name: str, data: bytes, *, is_durable: bool = True) -> None:
        """What the port says."""
        parts_of(name, OWN)
        self._put(name, data, "f.data || excluded.data")

    def remove(self, name: str, *, is_durable: bool = True) -> None:
        """What the port says."""
        if self.stat(name) is None:
            raise FileMissing(f"{name_for_people(name)}: there is no such file")
        self._ask(f"DELETE FROM perdure.memory_files WHERE {_OF} AND name = %(name)s", {"name": name})
        del self._files()[name]
        self._changed(name)

    def rename(self, old: str, new: str, *, is_durable: bool = True) -> None:
        """What the port says."""
        parts_of(new, OWN)
        if self.stat(old) is None:
            raise FileMissing(f"{name_for_people(old)}: there is no such file")
        if new in self._files():
            raise NameTaken(f"{name_for_people(new)}: there is such a file already")
        renamed = f"UPDATE perdure.memory_files SET name = %(new)s, version = DEFAULT WHERE {_OF} AND name = %(name)s"
        self._saw(self._ask(f"{renamed} RETURNING {_SEEN}", {"name": old, "new": new}))
        del self._files()[old]
        self._changed(new)

    def listing(self, *, under: str = "", limit: int = 20_000, depth: int = 20) -> PlainListing:
        """What the port says."""
        found = sorted((one for one in self._files().values() if is_listed(one.name, under)), key=lambda one: one.name)
        return PlainListing(tuple(found[:limit]), (), len(found) > limit)

    @contextmanager
    def lock(self, name: str, *, seconds: float) -> Iterator[None]:
        """Nobody else changes the directory until the end of the transaction."""
        self._ask(f"SELECT FROM perdure.memory_folders WHERE {_ROW} FOR UPDATE", {})
        self._known = None
        yield

    def close(self) -> str:
        """Give the directory a new version, if need be; which transaction this is, to ask whether it was committed."""
        if self._is_listing_changed:
            self._ask(f"UPDATE perdure.memory_folders SET version = DEFAULT WHERE {_ROW}", {})
        return str(self._ask("SELECT pg_current_xact_id()::text", {})[0][0])

    # --- how

    def _files(self) -> dict[str, PlainFile]:
        if self._known is None:
            self._known = {}
            self._saw(self._ask(f"SELECT {_SEEN} FROM perdure.memory_files WHERE {_OF}", {}))
        return self._known

    def _put(self, name: str, data: bytes, becomes: str) -> None:
        self._saw(
            self._ask(
                "INSERT INTO perdure.memory_files AS f (tenant, folder, name, data) "
                "VALUES (%(tenant)s, %(folder)s, %(name)s, %(data)b) ON CONFLICT (tenant, folder, name) "
                f"DO UPDATE SET data = {becomes}, version = DEFAULT, modified = DEFAULT RETURNING {_SEEN}",
                {"name": name, "data": data},
            )
        )
        self._changed(name)

    def _saw(self, rows: list[TupleRow]) -> None:
        files = self._files()
        for name, size, version, modified in rows:
            files[name] = PlainFile(name, size, modified * 1_000, (self._folder, size, version, version))

    def _changed(self, name: str) -> None:
        self.is_written = True
        self._is_listing_changed = self._is_listing_changed or is_listed(name, "")

    def _ask(self, statement: str, values: Mapping[str, Any]) -> list[TupleRow]:
        return anyio.from_thread.run(self._asked, statement, {"tenant": self._tenant, "folder": self._folder, **values})

    async def _asked(self, statement: str, values: Mapping[str, Any]) -> list[TupleRow]:
        await self._cursor.execute(statement.encode(), values)
        return await self._cursor.fetchall() if self._cursor.description else []


@dataclass(frozen=True, slots=True)
class PostgresFolder:
    """`StoredFolder`: a directory of a tenant. It joins a transaction of this task, if there is one."""

    db: Database
    tenant: str
    place: str

    async def run(self, do: Callable[[OpenedFolder], T], *, create: bool) -> T:
        """What the port says; done once, also where the connection is lost as it is committed."""
        done: list[tuple[str, T]] = []  # what came of it in which transaction

        async def attempt() -> T:
            if done and await self._is_committed(done[-1][0]):
                return done[-1][1]
            tenant = await (self.db.make_tenant if create else self.db.tenant)(self.tenant)
            if tenant is None:
                raise self._missing()
            async with self.db.transaction(tenant) as cursor:
                opened = OpenedRows(cursor, tenant, await self._number(cursor, tenant, create=create))

                def run() -> T:
                    result = do(opened)
                    if opened.is_written:
                        done.append((opened.close(), result))
                    return result

                return await anyio.to_thread.run_sync(run)

        with _as_refusals(self.place), anyio.CancelScope(shield=True):  # else a statement may be cut off in its middle
            result = await self.db.again(attempt)
        return result

    async def is_there(self) -> bool:
        """What the port says."""
        return await self.version() is not None

    async def version(self) -> int | None:
        """Another one after each change of a file that is listed; None while the directory isn't there."""
        with _as_refusals(self.place):
            rows = await self._ask("SELECT version FROM perdure.memory_folders WHERE {of}")
        return rows[0][0] if rows else None

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """What the port says, for a quarter of an hour: whoever was lost doesn't keep others away for ever."""
        await self.run(lambda _: None, create=True)
        owner = self.db.new_owner()
        values = {"owner": owner, "seconds": _ALONE_SECONDS}
        with _as_refusals(self.place):
            taken = await self._ask(
                "UPDATE perdure.memory_folders SET kept_by = %(owner)s, "
                "kept_until = now() + make_interval(secs => %(seconds)s) "
                "WHERE {of} AND (kept_until IS NULL OR kept_until < now() OR kept_by = %(owner)s) RETURNING 1",
                values,
            )
        if not taken:
            raise FolderBusy("somebody else is at it")
        try:
            yield
        finally:
            given = "UPDATE perdure.memory_folders SET kept_until = NULL WHERE {of} AND kept_by = %(owner)s"
            with anyio.CancelScope(shield=True), suppress(JournalError):  # else its time runs out
                await self._ask(given, values)

    # --- how

    async def _ask(self, statement: str, values: Mapping[str, Any] | None = None) -> list[TupleRow]:
        tenant = await self.db.tenant(self.tenant)
        if tenant is None:
            return []
        of = "tenant = %(tenant)s AND place = %(place)s"
        given = {"tenant": tenant, "place": self.place, **(values or {})}
        return await self.db.ask(tenant, statement.replace("{of}", of), given)

    async def _number(self, cursor: psycopg.AsyncCursor[TupleRow], tenant: int, *, create: bool) -> int:
        values = {"tenant": tenant, "place": self.place}
        found = b"SELECT number FROM perdure.memory_folders WHERE tenant = %(tenant)s AND place = %(place)s"
        row = await (await cursor.execute(found, values)).fetchone()
        if row is None and create:
            made = b"INSERT INTO perdure.memory_folders (tenant, place) VALUES (%(tenant)s, %(place)s)"
            await cursor.execute(made + b" ON CONFLICT DO NOTHING", values)
            row = await (await cursor.execute(found, values)).fetchone()
        if row is None:
            raise self._missing()
        return int(row[0])

    def _missing(self) -> FileMissing:
        return FileMissing(f"{name_for_people(self.place)}: there is no such directory")

    async def _is_committed(self, transaction: str) -> bool:
        """Whether a transaction was, whose end nobody saw."""
        for _ in range(_LOOKS):
            rows = await self.db.ask(0, "SELECT pg_xact_status(%s::xid8)", (transaction,))
            if rows[0][0] != "in progress":
                return bool(rows[0][0] == "committed")
            await anyio.sleep(_PAUSE_SECONDS)
        raise JournalError(f"{self.db.place}: it isn't known whether a memory was changed: look before you try again")


@contextmanager
def _as_refusals(place: str) -> Iterator[None]:
    """What a database refuses, as it is said of a directory."""
    try:
        yield
    except JournalError as e:
        if isinstance(e.__cause__, psycopg.errors.LockNotAvailable):
            raise FolderBusy(f"{name_for_people(place)}: somebody else writes there: try again") from e
        raise FileRefused(str(e)) from e
