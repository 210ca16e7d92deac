"""Deleting a tenant of PostgreSQL with many rows: in batches, under whoever writes, whatever breaks it off (SCL-6)."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from itertools import pairwise

import anyio
import pytest
from tests.contract.test_homes import begun, names, new_name, said
from tests.contract.test_postgres import as_superuser

from perdure.adapters.postgres.deletion import BATCH, TABLES
from perdure.adapters.postgres.store import PostgresStore
from perdure.errors import JournalError, JournalLost
from perdure.testing.postgres import PostgresServer

pytestmark = pytest.mark.contract

ROWS = 50_000


class Stopped(Exception):
    """The process that deletes was killed."""


async def fill(store: PostgresStore, server: PostgresServer, url: str, tenant: str) -> int:
    """A tenant with a session of many lines and many links, and something of other kinds; its number."""
    home = store.home(tenant)
    made = await begun(home, "s1", said("a"))
    await made.blobs.put((b"x",))
    await home.documents("d").put("n", b"x", instead_of=None)
    await store.work.want(tenant, "s1", "notes", 1)
    await made.journal.close()
    number = await store.db.tenant(tenant)
    assert number is not None
    for statement in (
        "INSERT INTO perdure.records (tenant, session, seq, at, line) "
        f"SELECT {number}, {made.blobs.session}, n, n, n::text::bytea FROM generate_series(2, {ROWS}) n",
        "INSERT INTO perdure.links (tenant, link, session, messages) "
        f"SELECT {number}, sha256(n::text::bytea), 's1', n FROM generate_series(1, {ROWS}) n",
    ):
        server.execute(statement, url=as_superuser(url))
    return number


def rows_of(server: PostgresServer, url: str, number: int) -> int:
    counted = " + ".join(f"(SELECT count(*) FROM perdure.{table} WHERE tenant = {number})" for table in TABLES)
    [(count,)] = server.execute(f"SELECT {counted}", url=as_superuser(url))
    return int(count)


def test_many_rows_go_in_batches_that_are_short(postgres: str, postgres_server: PostgresServer) -> None:
    """SCL-6: no statement comes near the time that one may take, nor does one scan the table; all is gone."""

    async def main() -> None:
        store, tenant = PostgresStore(postgres), new_name()
        other = await begun(store.home(new_name()), "s1", said("kept"))
        number = await fill(store, postgres_server, postgres, tenant)
        told = [("", 0, time.monotonic())]
        await store.delete_tenant(tenant, on_deleted=lambda what, rows: told.append((what, rows, time.monotonic())))
        counts = Counter[str]()
        for what, rows, _ in told:
            counts[what] += rows
        assert (counts["records"], counts["links"], counts["sessions"]) == (ROWS, ROWS, 1)
        assert all(rows <= 20_000 for _, rows, _ in told) and len(told) > 10
        assert max(after[2] - before[2] for before, after in pairwise(told)) < 10
        assert rows_of(postgres_server, postgres, number) == 0
        assert (
            postgres_server.execute(f"SELECT 1 FROM perdure.tenants WHERE id = {number}", url=as_superuser(postgres))
            == []
        )
        assert names(await other.journal.load()) == ["kept"]
        await other.journal.close()
        await store.close()

    anyio.run(main)


def test_a_deletion_that_is_killed_goes_on_where_it_was(postgres: str, postgres_server: PostgresServer) -> None:
    """SCL-6: after any batch; what it had deleted isn't there, and nobody gets at the rest."""

    async def main() -> None:
        store, tenant = PostgresStore(postgres), new_name()
        number = await fill(store, postgres_server, postgres, tenant)
        before = rows_of(postgres_server, postgres, number)

        def stop(what: str, _: int) -> None:
            if what == "records":
                raise Stopped

        with pytest.raises(Stopped):
            await store.delete_tenant(tenant, on_deleted=stop)
        left = rows_of(postgres_server, postgres, number)
        assert ROWS < left < before - 3
        assert not list(await store.home(tenant).sessions()) and tenant in await store.tenants()
        again = PostgresStore(postgres)
        await again.delete_tenant(tenant)
        assert rows_of(postgres_server, postgres, number) == 0 and tenant not in await again.tenants()
        await store.close()
        await again.close()

    anyio.run(main)


def test_nothing_is_left_of_an_owner_that_writes_meanwhile(postgres: str, postgres_server: PostgresServer) -> None:
    """SCL-3, SCL-6: it is refused from the first step on; what a transaction that had begun before writes goes too."""
    import psycopg

    async def main() -> None:
        store, tenant, writes = PostgresStore(postgres), new_name(), PostgresStore(postgres)
        number = await fill(store, postgres_server, postgres, tenant)
        with closing(psycopg.connect(postgres)) as late:
            late.execute("SELECT perdure.serve(%s)", (number,))  # it may write, and has not yet
            owner = await begun(writes.home(tenant), "s2")
            calls = 0

            def write(*_: object) -> None:
                nonlocal calls
                calls += 1
                if calls == 1:  # the first table is empty already
                    late.execute(
                        "INSERT INTO perdure.work (tenant, session, kind, want) VALUES (%s, 'late', 'k', 1)", (number,)
                    )
                    late.commit()

            async def append() -> None:
                with pytest.raises(JournalLost, match="deleted"):
                    for n in range(10_000):
                        await owner.journal.append((said(f"m{n}"),))

            async with anyio.create_task_group() as group:
                group.start_soon(append)
                await anyio.sleep(0.1)
                await store.delete_tenant(tenant, on_deleted=write)
        assert calls > 1 and rows_of(postgres_server, postgres, number) == 0
        with pytest.raises(JournalError):
            await owner.blobs.put((b"late",))
        assert [one for one in await store.work.claim("w", limit=9, seconds=1) if one.tenant == tenant] == []
        await owner.journal.close()
        await store.close()
        await writes.close()

    anyio.run(main)


def test_work_of_a_tenant_that_is_being_deleted_is_nobodys(postgres: str) -> None:
    """SCL-2, SCL-6: no worker gets it, nor is it among what is dead."""

    async def main() -> None:
        store, tenant = PostgresStore(postgres), new_name()
        await store.work.want(tenant, "s1", "notes", 1)

        def stop(*_: object) -> None:
            raise Stopped

        await store.db.ask(0, "UPDATE perdure.tenants SET going = name, name = NULL WHERE name = %s", (tenant,))
        assert await store.work.claim("w", limit=9, seconds=1) == [] == list(await store.work.dead())
        with pytest.raises(Stopped):
            await store.delete_tenant(tenant, on_deleted=stop)
        await store.delete_tenant(tenant)
        assert tenant not in await store.tenants()
        await store.close()

    anyio.run(main)


def plan(url: str, tenant: int, table: str, *settings: str) -> str:
    """How PostgreSQL finds a batch of a tenant's rows, as the role that serves, under row security."""
    import psycopg

    column = TABLES[table]
    with closing(psycopg.connect(url)) as db:
        db.execute("SELECT perdure.serve(0), set_config('perdure.tenant', %s, true)", (str(tenant),))
        for one in settings:
            db.execute(f"SET LOCAL {one}".encode())
        found = db.execute(f"SELECT {column} FROM perdure.{table} LIMIT 0".encode())
        assert found.description is not None
        last = {17: "'a'::bytea", 25: "'a'"}.get(found.description[0].type_code, "1")
        statement = BATCH.format(table=table, column=column, behind=f"AND {column} >= {last}")
        statement = statement.replace("%(tenant)s", str(tenant)).replace("%(limit)s", "100")
        return "\n".join(row[0] for row in db.execute(f"EXPLAIN {statement}".encode()).fetchall())


def test_a_batch_never_reads_a_whole_table(postgres: str, postgres_server: PostgresServer) -> None:
    """SCL-6: each is found by an index, from where the one before ended; what it found is deleted by its place."""

    async def main() -> None:
        store = PostgresStore(postgres)
        number = await fill(store, postgres_server, postgres, new_name())
        postgres_server.execute("ANALYZE", url=as_superuser(postgres))
        for table in ("records", "links"):
            told = plan(postgres, number, table)
            assert "Tid Scan" in told and "Seq Scan" not in told, told
        for table, column in TABLES.items():
            told = plan(postgres, number, table, "enable_seqscan = off", "enable_bitmapscan = off")
            assert "Seq Scan" not in told and (f"{column} >= " in told or table == "keys"), told
        await store.close()

    anyio.run(main)
