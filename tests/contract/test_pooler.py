"""The double of a transaction pooler keeps to the rules of real ones; what a store does behind it (SCL-1, SCL-4)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import anyio
import psycopg
import pytest
from tests.contract.test_homes import begun, names, new_name, said

from perdure.adapters.postgres.store import PostgresStore
from perdure.testing.pooler import TransactionPooler

pytestmark = pytest.mark.contract


@pytest.fixture
def pooler(postgres: str) -> Iterator[TransactionPooler]:
    with TransactionPooler(to=postgres, servers=2) as made:
        yield made


def connected(url: str) -> psycopg.Connection:
    return psycopg.connect(url, autocommit=True, prepare_threshold=None)


def backend(db: psycopg.Connection) -> int:
    row = db.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    return int(row[0])


def test_a_connection_is_lent_for_a_transaction(postgres: str, pooler: TransactionPooler) -> None:
    """SCL-1: within one a client keeps it; without one it goes to whoever asks next."""
    url = pooler.in_front_of(postgres)
    with connected(url) as one, connected(url) as other:
        with one.transaction():
            first = backend(one)
            second = backend(other)
            assert backend(one) == first != second, "nobody else has it meanwhile"
        assert backend(other) == first and backend(one) == first, "the one that was left last"
        one.execute("CREATE TEMP TABLE t ON COMMIT DROP AS SELECT 1")
        with pytest.raises(psycopg.errors.UndefinedColumn):
            one.execute("SELECT nothing")
        assert backend(one) in (first, second), "an error ends a statement, and no connection"
    assert pooler.leaks == []


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ("SET lock_timeout = '1s'", "setting lock_timeout"),
        ("LISTEN news", "listening to news"),
        ("PREPARE one AS SELECT 1", "prepared statement one"),
        ("SELECT pg_advisory_lock(7)", "advisory lock 7"),
        ("CREATE TEMP TABLE mine (a int)", "temporary table mine"),
        ("DECLARE mine CURSOR WITH HOLD FOR SELECT 1", "cursor mine"),
        ("SET ROLE perdure_serving", "role perdure_serving"),
    ],
)
def test_what_is_left_in_a_connection_is_seen_and_thrown_away(
    postgres: str, pooler: TransactionPooler, statement: str, left: str
) -> None:
    """SCL-1: else the tests through it would prove nothing."""
    with connected(pooler.in_front_of(postgres)) as db:
        db.execute(statement.encode())
        assert pooler.leaks and left in pooler.leaks[0], pooler.leaks
        before = list(pooler.leaks)
        db.execute("SELECT 1")
        assert pooler.leaks == before, "it is gone with the next transaction"


def test_a_prepared_statement_of_the_protocol_is_refused(postgres: str, pooler: TransactionPooler) -> None:
    """SCL-1: as by PgBouncer before 1.21, and by others still."""
    with (
        psycopg.connect(pooler.in_front_of(postgres), prepare_threshold=0) as db,
        pytest.raises(psycopg.errors.FeatureNotSupported, match="named prepared"),
    ):
        db.execute("SELECT %s", (1,))
    with pytest.raises(psycopg.OperationalError, match="unsupported startup parameter: options"):
        connected(pooler.in_front_of(postgres) + "?options=-c%20lock_timeout%3D1s")


def test_a_client_waits_for_a_connection_and_gives_it_back_when_it_is_cut_off(
    postgres: str, pooler: TransactionPooler
) -> None:
    """SCL-1: two connections for all; one that was left in a transaction isn't given to anybody."""
    url = pooler.in_front_of(postgres)
    left = [connected(url) for _ in range(2)]
    for db in left:
        db.execute("BEGIN")
    held = {backend(db) for db in left}

    async def waiting() -> None:
        async def freed() -> None:
            await anyio.sleep(0.3)
            for db in left:
                await asyncio.to_thread(db.close)

        async with anyio.create_task_group() as group:
            group.start_soon(freed)
            began = time.monotonic()
            async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
                found = await (await db.execute("SELECT pg_backend_pid()")).fetchone()
            assert time.monotonic() - began > 0.2 and found is not None and found[0] not in held

    anyio.run(waiting)


def test_many_owners_share_few_connections(postgres: str, pooler: TransactionPooler) -> None:
    """SCL-1, SCL-3: sixteen sessions of four stores at once over two connections of the server; nothing is mixed."""

    async def main() -> None:
        stores = [PostgresStore(pooler.in_front_of(postgres), connections=4) for _ in range(4)]
        tenants = [new_name() for _ in range(4)]

        async def one(number: int) -> None:
            home = stores[number % 4].home(tenants[number // 4])
            made = await begun(home, f"s{number}")
            for line in range(8):
                await made.journal.append((said(f"{number}-{line}"),))
            await made.journal.close()

        async with anyio.create_task_group() as group:
            for number in range(16):
                group.start_soon(one, number)
        for number in range(16):
            home = stores[(number + 1) % 4].home(tenants[number // 4])
            assert names(await home.load(f"s{number}")) == [f"{number}-{line}" for line in range(8)]
            assert len(await home.sessions()) == 4
        for store in stores:
            await store.close()

    anyio.run(main)
    assert pooler.leaks == [] and pooler.lent > 200


def test_a_server_that_ends_is_told_and_found_again(postgres: str, pooler: TransactionPooler) -> None:
    """SCL-1: the pooler stays, the server's connections go, as when it fails over behind it."""

    async def main() -> None:
        store = PostgresStore(pooler.in_front_of(postgres))
        home = store.home(new_name())
        made = await begun(home, "s1", said("a"))
        with connected(postgres.replace("gateway@", "postgres@")) as db:
            db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'gateway'")
        await made.journal.append((said("b"),))
        await made.journal.close()
        assert names(await home.load("s1")) == ["a", "b"]
        await store.close()

    anyio.run(main)
    assert pooler.leaks == []
