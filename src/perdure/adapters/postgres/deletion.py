"""Deleting a tenant so that no byte of it is found again (SCL-6).

Rows go in batches, as a statement may take 30 s and a tenant may have millions. While they do, the tenant has no name:
nobody finds it, and PostgreSQL refuses whoever knows its number (`perdure.serve`).
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import psycopg

from perdure.adapters.postgres.database import Database, Values
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
        statement = _BATCH.format(
            table=table, column=column, behind="" if last is None else f"AND {column} >= %(last)s"
        )
        count, last = await db.again(partial(_deleted, db, tenant, statement, values))
        if last is None:
            return
        if on_deleted is not None:
            on_deleted(table, count)
        limit = max(1, min(_MOST, 4 * limit, int(limit * _SECONDS / max(time.monotonic() - began, 0.001))))


_BATCH: Final = """
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
