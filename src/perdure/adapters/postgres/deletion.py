"""Deleting a tenant so that no byte of it is found again (SCL-6).

Rows go in batches, as a statement may take 30 s and a tenant may have millions. While they do, the tenant has no name:
nobody finds it, and PostgreSQL refuses whoever knows its number (`perdure.serve`).

Their bytes stay in the database's files: a plain `VACUUM` frees the room that rows took, and writes nothing over it.
They also stand in the statistics of columns, and in the write-ahead log. `vacuum` sees to all of it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import psycopg

from perdure.adapters.postgres.address import place_of
from perdure.adapters.postgres.database import Database, Values
from perdure.adapters.postgres.schema import one_line_of
from perdure.errors import JournalError
from perdure.ports.home import OnDeleted

if TYPE_CHECKING:
    from perdure.adapters.object_store import Bucket

_SECONDS: Final = 0.5  # that a batch should take
_FIRST: Final = 200
_MOST: Final = 20_000
_PASSES: Final = 5
# Whoever refers to a table stands before it. By this column of its primary key each is gone through, so that no batch
# looks again at what others left there for vacuum.
TABLES: Final = {
    "work": "session",
    "places": "session",
    "texts": "number",
    "indexed": "session",
    "records": "session",
    "notes": "session",
    "blobs": "session",
    "sessions": "number",
    "documents": "kind",
    "links": "link",
    "answers": "answer",
    "names": "session",
    "memory_files": "folder",
    "memory_folders": "number",
    "calibrations": "model",
    "keys": "tenant",
}


async def delete_tenant(db: Database, tenant: int, bucket: Bucket | None, on_deleted: OnDeleted | None) -> None:
    """Delete all that a tenant without a name keeps: rows, then blobs in a bucket, and itself at last.

    A statement that was under way when it lost its name may still have written something. Then its own row can't be
    deleted yet, as others refer to it.

    Raises:
        JournalError: Not all could be deleted; the next call goes on.
    """
    for attempt in range(_PASSES):
        try:
            for table, column in TABLES.items():
                await _empty(db, tenant, table, column, on_deleted)
            if bucket is not None:
                told = None if on_deleted is None else partial(on_deleted, "objects")
                await bucket.delete(str(tenant), on_deleted=told)
            async with db.transaction(0) as cursor:
                await cursor.execute("DELETE FROM perdure.blob_deletions WHERE tenant = %s", (tenant,))
                if bucket is not None:  # once more when puts that were under way have ended
                    await cursor.execute(_LATER, (tenant,))
                await cursor.execute("DELETE FROM perdure.tenants WHERE id = %s", (tenant,))
            return
        except JournalError as e:
            if not isinstance(e.__cause__, psycopg.errors.ForeignKeyViolation) or attempt == _PASSES - 1:
                raise


_LATER: Final = "INSERT INTO perdure.blob_deletions (tenant, due) VALUES (%s, now() + interval '1 hour')"


async def _empty(db: Database, tenant: int, table: str, column: str, on_deleted: OnDeleted | None) -> None:
    """Delete a tenant's rows of a table, in batches that take half a second each."""
    limit, last = _FIRST, None
    while True:
        values, began = {"tenant": tenant, "last": last, "limit": limit}, time.monotonic()
        statement = BATCH.format(table=table, column=column, behind="" if last is None else f"AND {column} >= %(last)s")
        count, last = await db.again(partial(_deleted, db, tenant, statement, values))
        if last is None:
            return
        if on_deleted is not None:
            on_deleted(table, count)
        limit = max(1, min(_MOST, 4 * limit, int(limit * _SECONDS / max(time.monotonic() - began, 0.001))))


BATCH: Final = """
WITH batch AS MATERIALIZED (
  SELECT ctid AS at, {column} AS key FROM perdure.{table} WHERE tenant = %(tenant)s {behind}
  ORDER BY {column} LIMIT %(limit)s),
gone AS (DELETE FROM perdure.{table} WHERE ctid = ANY (ARRAY (SELECT at FROM batch)) RETURNING 1)
SELECT (SELECT count(*) FROM gone), (SELECT key FROM batch ORDER BY key DESC LIMIT 1)
"""


async def _deleted(db: Database, tenant: int, statement: str, values: Values) -> tuple[int, Any]:
    """How many rows a batch had, and the last of their keys; None if there were none."""
    async with db.transaction(0) as cursor:  # the tenant itself is served no more
        await cursor.execute("SELECT set_config('perdure.tenant', %s, true)", (str(tenant),))
        await cursor.execute(statement.encode(), values)
        row = await cursor.fetchone()
        assert row is not None
        return row[0], row[1]


# --- afterwards -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """How many tables were written anew, and why the write-ahead log isn't written over; empty when it is."""

    tables: int
    why_log_stays: str


async def vacuum(url: str, on_table: Callable[[int, int, str], None] | None = None) -> Vacuumed:
    """Have the files of a database hold nothing any more that was deleted: its tables, indexes and statistics.

    Each table is written anew, and can't be used meanwhile. Whoever may do so has the write-ahead log written over.

    Args:
        url: The database, for its owner, or for a superuser: then the log is written over, too.
        on_table: Told how many tables are done, of how many, and which is next.

    Raises:
        JournalError: A deletion isn't finished yet, something that is open still needs what was deleted, or the
            database can't be reached, or refuses.
    """
    left: list[str] = []

    def hear(notice: psycopg.errors.Diagnostic) -> None:
        found = _HELD.match(notice.message_detail or "")
        if found is not None and int(found[1]):
            left.append(f"{found[0].rstrip('.')}: end the transactions that may still read them, and run this again")
        elif notice.severity_nonlocalized == "WARNING":
            left.append(f"{notice.message_primary}: run this as the owner of the database")

    try:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=None) as db:
            db.add_notice_handler(hear)
            if (going := await _rows(db, "SELECT count(*) FROM perdure.tenants WHERE name IS NULL")) != [(0,)]:
                raise JournalError(
                    f"the deletion of {going[0][0]} tenants isn't finished: run `perdure store delete-tenant` again"
                )
            tables = [f"perdure.{name}" for (name,) in await _rows(db, _ALL_TABLES)] + ["pg_catalog.pg_statistic"]
            for done, table in enumerate(tables):
                if on_table is not None:
                    on_table(done, len(tables), table)
                if done == len(tables) - 1:  # the statistics, when all are made anew
                    for (statement,) in await _rows(db, _STALE_STATISTICS):
                        await db.execute(statement.encode())
                await db.execute(f"VACUUM (FULL, ANALYZE, VERBOSE) {table}".encode())
                if left:
                    raise JournalError(f"{table}: {left[0]}")
            return Vacuumed(len(tables), await _write_log_over(db))
    except psycopg.Error as e:
        is_bare = isinstance(e, psycopg.errors.UndefinedTable)
        what = "there are no tables of Perdure in it" if is_bare else one_line_of(e)
        raise JournalError(f"{place_of(url)} can't be vacuumed: {what}") from e


_HELD: Final = re.compile(r"(\d+) [^\n]+")  # "N dead row versions cannot be removed yet", in any language
_ALL_TABLES: Final = (
    "SELECT relname FROM pg_class WHERE relnamespace = 'perdure'::regnamespace AND relkind = 'r' ORDER BY 1"
)
# ANALYZE leaves what it knew of a table that is empty now. A change of a column's type takes it away, also to the same.
_STALE_STATISTICS: Final = """
SELECT format('ALTER TABLE %s ALTER COLUMN %I TYPE %s%s', c.oid::regclass, a.attname, a.atttypid::regtype,
              CASE WHEN a.attcollation <> 0 THEN ' COLLATE ' || a.attcollation::regcollation END)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = 'perdure'::regnamespace AND c.relkind = 'r' AND c.relpages = 0
  AND a.atttypid IN ('text'::regtype, 'bytea'::regtype, 'tsvector'::regtype) AND NOT a.attisdropped
"""


async def _write_log_over(db: psycopg.AsyncConnection) -> str:
    """Have all files of the write-ahead log hold new bytes; why that couldn't be done.

    An old file is kept under the name of a later one until that is written, so each is gone through twice: those that
    are there, then those that the first round was still written into.
    """
    try:
        [(begin,)] = await _rows(db, "SELECT pg_walfile_name(pg_current_wal_lsn())")
        for _ in range(2):
            await db.execute("CHECKPOINT")
            [(files,)] = await _rows(db, f"SELECT count(*) {_LOG_FILES}")
            for _ in range(files + 1):
                await db.execute("SELECT pg_logical_emit_message(true, 'perdure', '')")
                await db.execute("SELECT pg_switch_wal()")
        await db.execute("CHECKPOINT")
        [(left,)] = await _rows(db, f"SELECT count(*) {_LOG_FILES} AND name <= '{begin}'")
    except psycopg.errors.InsufficientPrivilege:
        return "only a superuser may have it written over"
    return f"{left} of its files are kept for a standby or an archive" if left else ""


_LOG_FILES: Final = "FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$'"


async def _rows(db: psycopg.AsyncConnection, statement: str) -> list[tuple[Any, ...]]:
    return await (await db.execute(statement.encode())).fetchall()
