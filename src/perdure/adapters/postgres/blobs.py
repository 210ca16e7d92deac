"""The blobs of a store in PostgreSQL: in a table of its database, or in a bucket that it names (SCL-1, SCL-6).

In the bucket, a database has a folder of its own, and in it a tenant and a session have the numbers that their rows
have, which nobody else ever has again. So what is deleted there late deletes nothing of whoever took the name.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import psycopg

from perdure.adapters.journal.blobs import HASH_NAME, packed, unpacked
from perdure.adapters.postgres.address import place_of
from perdure.adapters.postgres.database import Database
from perdure.adapters.postgres.schema import SERVING, one_line_of
from perdure.errors import BadSetting, JournalError, JournalLost
from perdure.transcript.messages import BlobId

if TYPE_CHECKING:
    from perdure.adapters.object_store import Bucket, BucketBlobs

_LOG = logging.getLogger("perdure.store")
NO_SESSION: Final = 0  # the number of the session of blobs that belong to none
_PROBE_SECONDS: Final = 60.0  # the bucket isn't asked again so soon after it answered
_ID_BEGINS: Final = re.compile(r"[0-9a-f]{1,64}")
_WHERE: Final = "SELECT address, folder FROM perdure.blob_store"
# Whoever has begun one is given ten minutes, and may be late. An hour after the first time it is done once more: a put
# that was under way may have ended behind it.
_BEGIN: Final = """
UPDATE perdure.blob_deletions SET is_begun = true, due = now() + interval '10 minutes' WHERE id = (
  SELECT id FROM perdure.blob_deletions WHERE due <= now() AND (%(id)s::bigint IS NULL OR id = %(id)s)
  ORDER BY due LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, tenant, session, is_done_once
"""
_DONE_ONCE: Final = (
    "UPDATE perdure.blob_deletions SET is_done_once = true, due = now() + interval '1 hour' WHERE id = %s"
)
_DONE: Final = "DELETE FROM perdure.blob_deletions WHERE id = %s"
TO_DELETE: Final = (
    "INSERT INTO perdure.blob_deletions (tenant, session, due) "
    "VALUES (%s, %s, now() + make_interval(secs => %s)) RETURNING id"
)
KEPT: Final = "DELETE FROM perdure.blob_deletions WHERE tenant = %s AND session = %s RETURNING is_begun"


class BlobPlace:
    """Where the blobs of a database are, and what is still to be deleted there."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._where: tuple[str | None, str | None] | None = None
        self._bucket: Bucket | None = None
        self._answered = -_PROBE_SECONDS

    async def bucket(self) -> Bucket | None:
        """The bucket, or None: the table. `JournalError` where it can't be used as things are here."""
        if self._where is None:
            ((address, folder),) = await self._db.ask(0, _WHERE)
            self._bucket = None if address is None else self._bucket_at(f"{address}/{folder}")
            self._where = address, folder
        return self._bucket

    async def check_owner(self, bucket: Bucket, tenant: int, session: int) -> None:
        """Raise, after something was put, when that belongs to nobody any more: then it goes again."""
        owner = "perdure.tenants WHERE id = %(tenant)s"
        if session != NO_SESSION:
            owner = "perdure.sessions WHERE tenant = %(tenant)s AND number = %(session)s"
        statement = f"SELECT EXISTS (SELECT FROM {owner}), address, folder FROM perdure.blob_store"
        try:
            ((is_there, *where),) = await self._db.ask(tenant, statement, {"tenant": tenant, "session": session})
        except JournalLost:  # the tenant is being deleted
            is_there, where = False, list(self._where or ())
        if is_there and tuple(where) == self._where:
            return
        await bucket.delete(str(tenant), str(session))
        if is_there:
            raise self.moved()
        raise JournalError(f"{self._db.place}: the session or its tenant was deleted: nothing was stored")

    def moved(self) -> JournalError:
        """Blobs belong somewhere else than was thought here, as an empty store was given another place for them."""
        self._where = None
        return JournalError(f"{self._db.place}: blobs were given another place meanwhile: try again")

    async def probe(self) -> None:
        """Write to the bucket, read from it and delete there, if there is one and that wasn't done a moment ago."""
        bucket = await self.bucket()
        if bucket is not None and time.monotonic() >= self._answered + _PROBE_SECONDS:
            await bucket.probe()
            self._answered = time.monotonic()

    async def finish_deletions(self, only: int | None = None) -> None:
        """Delete from the bucket what is due; what can't be deleted now is due again later. Never raises."""
        try:
            if (bucket := await self.bucket()) is None:
                return
            while rows := await self._db.ask(0, _BEGIN, {"id": only}):
                ((deletion, tenant, session, is_done_once),) = rows
                await bucket.delete(str(tenant), None if session is None else str(session))
                await self._db.ask(0, _DONE if is_done_once else _DONE_ONCE, (deletion,))
        except JournalError as e:
            _LOG.warning("blobs of what was deleted are still there, and will be deleted later: %s", e)

    def _bucket_at(self, address: str) -> Bucket:
        try:
            from perdure.adapters.object_store import Bucket

            return Bucket.at(address)
        except BadSetting as e:
            raise JournalError(f"{self._db.place} keeps its blobs in an object store: {e}") from e


@dataclass(frozen=True, slots=True)
class PostgresBlobs:
    """`ports.Blobs` of a session, and `ports.HomeBlobs` of a tenant, wherever the database's blobs are."""

    where: BlobPlace
    rows: TableBlobs

    async def put(self, contents: tuple[bytes, ...]) -> tuple[BlobId, ...]:
        """Store each of them. All are there on return, in a session that is there."""
        if not contents:
            return ()
        if (bucket := await self.where.bucket()) is None:
            try:
                return await self.rows.put(contents)
            except JournalError as e:  # the table takes no more once blobs are in a bucket
                if isinstance(e.__cause__, psycopg.errors.InsufficientPrivilege):
                    raise self.where.moved() from e
                raise
        tenant = await self.rows.db.make_tenant(self.rows.tenant)
        names = await bucket.blobs(str(tenant), str(self.session)).put(contents)
        try:
            await self.where.check_owner(bucket, tenant, self.session)
        except JournalError:
            self.rows.db.forget_tenant(self.rows.tenant)  # it may have been made anew
            raise
        return names

    async def get(self, blob: BlobId) -> bytes:
        """The bytes that were put; `JournalError` when they are missing or are no longer the same."""
        return await (await self._blobs()).get(blob)

    async def ids(self) -> Sequence[BlobId]:
        """All blobs that are there; `JournalError` where that can't be told."""
        return await (await self._blobs()).ids()

    async def named(self, beginning: str) -> Sequence[BlobId]:
        """The blobs whose ids begin so; none where they can't be read."""
        try:
            return await (await self._blobs()).named(beginning)
        except JournalError:
            return ()

    async def forget(self, before: float) -> int:
        """Delete those that were first put before a time; how many that were."""
        try:
            return await (await self._blobs()).forget(before)
        except JournalError:
            return 0  # the next time tries again

    @property
    def session(self) -> int:
        return self.rows.session

    async def _blobs(self) -> TableBlobs | BucketBlobs:
        bucket, tenant = await self.where.bucket(), await self.rows.db.tenant(self.rows.tenant)
        return self.rows if bucket is None or tenant is None else bucket.blobs(str(tenant), str(self.session))


@dataclass(frozen=True, slots=True)
class TableBlobs:
    """Blobs as rows, packed as in files. Copies with other bytes are put right by a `put`."""

    db: Database
    tenant: str
    session: int
    place: str

    async def put(self, contents: tuple[bytes, ...]) -> tuple[BlobId, ...]:
        """Store each of them, in one transaction. All are there on return."""
        names = tuple(BlobId(hashlib.sha256(content).hexdigest()) for content in contents)
        if not names:
            return ()
        tenant = await self.db.make_tenant(self.tenant)
        wanted = dict(zip(names, contents, strict=True))
        session = "SELECT 1" if self.session == NO_SESSION else _SESSION
        rows = await self.db.ask(
            tenant,
            f"WITH session AS ({session}), stored AS (INSERT INTO perdure.blobs AS b (tenant, session, hash, stored) "
            "SELECT %(tenant)s, %(session)s, new.* FROM session, unnest(%(hashes)b::bytea[], %(stored)b::bytea[]) new "
            "ON CONFLICT (tenant, session, hash) DO UPDATE SET stored = excluded.stored "
            "WHERE b.stored <> excluded.stored) SELECT 1 FROM session",
            {
                "tenant": tenant,
                "session": self.session,
                "hashes": [bytes.fromhex(name) for name in wanted],
                "stored": [packed(content) for content in wanted.values()],
            },
        )
        if not rows:
            raise JournalError(f"{self.place}: the session was deleted: nothing was stored")
        return names

    async def ids(self) -> tuple[BlobId, ...]:
        """All blobs that are there."""
        tenant = await self.db.tenant(self.tenant)
        statement = "SELECT encode(hash, 'hex') FROM perdure.blobs WHERE tenant = %s AND session = %s ORDER BY hash"
        rows = [] if tenant is None else await self.db.ask(tenant, statement, (tenant, self.session))
        return tuple(BlobId(row[0]) for row in rows)

    async def named(self, beginning: str) -> tuple[BlobId, ...]:
        """The blobs whose ids begin so; none where they can't be read."""
        if not _ID_BEGINS.fullmatch(beginning):
            return ()
        try:
            rows = await self._ask(
                "SELECT encode(hash, 'hex') FROM perdure.blobs WHERE tenant = %s AND session = %s "
                "AND starts_with(encode(hash, 'hex'), %s) ORDER BY hash",
                beginning,
            )
        except JournalError:
            return ()
        return tuple(BlobId(row[0]) for row in rows)

    async def forget(self, before: float) -> int:
        """Delete those that were first put before a time; how many that were."""
        try:
            rows = await self._ask(
                "DELETE FROM perdure.blobs WHERE tenant = %s AND session = %s AND first_put < to_timestamp(%s) "
                "RETURNING 1",
                before,
            )
        except JournalError:
            return 0  # the next time tries again
        return len(rows)

    async def _ask(self, statement: str, value: object) -> list[tuple[Any, ...]]:
        tenant = await self.db.tenant(self.tenant)
        return [] if tenant is None else await self.db.ask(tenant, statement, (tenant, self.session, value))

    async def get(self, blob: BlobId) -> bytes:
        """The bytes that were put; `JournalError` when they are missing or are no longer the same."""
        if not HASH_NAME.fullmatch(blob):
            raise JournalError(f"not the id of a blob (64 hex digits): {blob[:80]!r}")
        rows = await self._ask(
            "SELECT stored FROM perdure.blobs WHERE tenant = %s AND session = %s AND hash = %s", bytes.fromhex(blob)
        )
        if not rows:
            raise JournalError(f"{self.place}: there is no blob {blob}")
        content = unpacked(rows[0][0])
        if content is None or hashlib.sha256(content).hexdigest() != blob:
            raise JournalError(f"{self.place}: the blob {blob} is damaged: its bytes are not those that were stored")
        return content


_SESSION: Final = "SELECT FROM perdure.sessions WHERE tenant = %(tenant)s AND number = %(session)s FOR KEY SHARE"


async def choose_bucket(url: str, address: str) -> str:
    """Have a database keep its blobs in a bucket, as its owner; where in the bucket. May be called again.

    Raises:
        BadSetting: The address or the environment can't be used.
        JournalError: Blobs are kept elsewhere already; the bucket can't be written to, read or deleted from, or keeps
            what is deleted; the database can't be reached, or refuses.
    """
    from perdure.adapters.object_store import Bucket

    address = Bucket.at(address).address
    try:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=None) as db:
            before, former = await _row_of(db, _WHERE)
            folder = former if before == address else str(uuid.uuid4())
            bucket = Bucket.at(f"{address}/{folder}")
            await bucket.probe()
            if await bucket.is_versioned():
                raise JournalError(
                    f"{address}: the bucket keeps former versions, so nothing that is deleted would be gone: name one "
                    "that doesn't"
                )
            if before == address:
                return bucket.address
            if before is not None and not await Bucket.at(f"{before}/{former}").is_empty():
                raise JournalError(f"blobs are kept in {before}/{former} already: {_NOT_MOVED}")
            async with db.transaction():
                await db.execute("SET LOCAL lock_timeout = '10s'")
                # Its owner sees no row of it either, but for that; nobody writes there before this has ended.
                await db.execute("ALTER TABLE perdure.blobs NO FORCE ROW LEVEL SECURITY")
                (has_rows,) = await _row_of(db, "SELECT EXISTS (SELECT FROM perdure.blobs)")
                await db.execute("ALTER TABLE perdure.blobs FORCE ROW LEVEL SECURITY")
                if has_rows:
                    raise JournalError(f"blobs are kept in the database already: {_NOT_MOVED}")
                await db.execute("UPDATE perdure.blob_store SET address = %s, folder = %s", (address, folder))
                await db.execute(f"REVOKE INSERT, UPDATE ON perdure.blobs FROM {SERVING}".encode())
            return bucket.address
    except psycopg.Error as e:
        raise JournalError(f"{place_of(url)}: the place of blobs can't be written down: {one_line_of(e)}") from e


_NOT_MOVED: Final = (
    "they aren't moved. Make a new database with this --blobs, and copy the store there (perdure store copy)"
)


async def _row_of(db: psycopg.AsyncConnection, statement: str) -> tuple[Any, ...]:
    row = await (await db.execute(statement.encode())).fetchone()
    assert row is not None
    return row
