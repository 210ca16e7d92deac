"""Blobs of a store in PostgreSQL that are kept in a bucket, and deletions of them (SCL-1, SCL-6)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest
from tests.contract.test_homes import begun, names, new_name, said
from tests.contract.test_postgres import as_superuser

from perdure.adapters.postgres.store import PostgresHome, PostgresStore
from perdure.engine.turn import prepare
from perdure.errors import BadSetting, JournalError, JournalLost
from perdure.testing.postgres import PostgresServer
from perdure.transcript.messages import Message
from perdure.wiring.sessions import open_session

pytest.importorskip("obstore", reason="the package of the extra `s3` isn't installed")

from perdure.adapters.object_store import Bucket
from perdure.adapters.postgres.blobs import choose_bucket
from perdure.adapters.postgres.schema import migrate
from perdure.testing.s3 import FakeS3

pytestmark = pytest.mark.contract

Database = tuple[str, FakeS3]


def with_homes(database: Database, body: Callable[[PostgresHome, PostgresHome], Awaitable[None]], **more: Any) -> None:
    """Run it with a new tenant's home, as two processes have it."""

    async def main() -> None:
        tenant = new_name()
        stores = PostgresStore(database[0], **more), PostgresStore(database[0], **more)
        try:
            await body(stores[0].home(tenant), stores[1].home(tenant))
        finally:
            for store in stores:
                await store.close()

    anyio.run(main)


@pytest.fixture
def retried_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the object store refuses is refused at once."""
    at = Bucket.at
    monkeypatch.setattr(Bucket, "at", staticmethod(lambda address: at(address, retries=0)))


async def objects_of(s3: FakeS3, home: PostgresHome) -> list[str]:
    """The keys below the folder of a tenant."""
    number = await home.store.db.tenant(home.name)
    return sorted(key.partition(f"/tenant/{number}/")[2] for key in s3.buckets["blobs"] if f"/tenant/{number}/" in key)


async def due(home: PostgresHome) -> list[tuple[Any, ...]]:
    """What is still to be deleted of a tenant, whose deletion need not wait any longer."""
    tenant = await home.store.db.tenant(home.name)
    assert tenant is not None
    asked = "UPDATE perdure.blob_deletions SET due = now() WHERE tenant = %s RETURNING session, is_done_once"
    return await home.store.db.ask(tenant, asked, (tenant,))


# --- where they are ---------------------------------------------------------------------------------------------------


def test_a_bucket_holds_the_blobs_and_the_database_none(
    postgres_with_bucket: Database, postgres_server: PostgresServer
) -> None:
    """SCL-1: in a folder of the database's own, by the numbers of tenant and session; no name of a tenant is there."""
    url, s3 = postgres_with_bucket

    async def body(home: PostgresHome, other: PostgresHome) -> None:
        made = await begun(home, "s1", said("a"))
        [blob] = await made.blobs.put((b"of the session",))
        [of_none] = await home.blobs.put((b"of none",))
        [folder] = [row[0] for row in await home.store.db.ask(0, "SELECT folder FROM perdure.blob_store")]
        assert await objects_of(s3, home) == sorted([f"{made.blobs.session}/{blob}", f"0/{of_none}"])
        assert all(key.startswith(f"tests/{folder}/tenant/") for key in s3.buckets["blobs"])
        assert home.name.encode() not in s3.bytes_held()
        assert postgres_server.execute("SELECT count(*) FROM perdure.blobs", url=as_superuser(url)) == [(0,)]
        assert await (await other.open("s1", read_only=True)).blobs.get(blob) == b"of the session"
        assert await other.blobs.get(of_none) == b"of none"
        await made.journal.close()

    with_homes(postgres_with_bucket, body)


def test_a_blob_that_cannot_be_put_leaves_no_record_of_it(
    postgres_with_bucket: Database, retried_at_once: None
) -> None:
    """SCL-1: what a record refers to is there before it; the session goes on when the bucket answers again."""
    _, s3 = postgres_with_bucket

    async def body(home: PostgresHome, _: PostgresHome) -> None:
        await (await begun(home, "s1")).journal.close()
        session = await open_session(home, "s1")
        try:
            call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {}}
            result = {"type": "tool_result", "tool_use_id": "t1", "content": "a line\n" * 40_000}
            for message in (said("m1"), Message.of("assistant", [call]), Message.of("user", [result])):
                await session.append(message)
            s3.faults.extend(["access-denied"] * 3)
            with pytest.raises(JournalError, match="refuses the key"):
                await prepare(session)
            s3.faults.clear()
            assert await objects_of(s3, home) == [] and "Offloaded" not in names(await home.load("s1"))
            await prepare(session)
            assert len(await objects_of(s3, home)) == 1 and "Offloaded" in names(await home.load("s1"))
        finally:
            await session.close()

    with_homes(postgres_with_bucket, body)


def test_a_bucket_that_cannot_be_used_is_told_by_the_probe(
    postgres_with_bucket: Database, retried_at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCL-1, CLI-1: in a line: that it refuses, that there is no key for it; it is asked until it works."""
    _, s3 = postgres_with_bucket

    async def body(home: PostgresHome, other: PostgresHome) -> None:
        for _ in range(2):
            s3.faults.append("access-denied")
            with pytest.raises(JournalError, match="refuses the key"):
                await home.store.probe()
        assert 0 < await home.store.probe() < 30
        before = len(s3.received)
        await home.store.probe()
        assert len(s3.received) == before, "it isn't asked again at once"
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        with pytest.raises(
            JournalError, match=r"keeps its blobs in an object store: s3://blobs/.*AWS_SECRET_ACCESS_KEY"
        ) as told:
            await other.store.probe()
        assert "\n" not in str(told.value)

    with_homes(postgres_with_bucket, body)


# --- choosing the bucket ----------------------------------------------------------------------------------------------


@pytest.fixture
def owned(postgres_server: PostgresServer) -> Iterator[str]:
    """A migrated database of its owner's, whose blobs are in itself."""
    name = new_name()
    postgres_server.execute(f"CREATE DATABASE {name} OWNER perdure_owner")
    url = postgres_server.url_of(name, "perdure_owner")
    anyio.run(migrate, url)
    yield url
    postgres_server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    with FakeS3(buckets={"blobs": {}, "others": {}}) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


def test_a_bucket_is_written_down_once(owned: str, s3: FakeS3, postgres_server: PostgresServer) -> None:
    """SCL-1: again it is what was said; who serves can't change it; a test of it leaves nothing there."""
    import psycopg

    place = anyio.run(choose_bucket, owned, "s3://blobs/home/")
    assert re.fullmatch(r"s3://blobs/home/[0-9a-f-]{36}", place)
    assert anyio.run(choose_bucket, owned, "s3://blobs/home") == place and s3.buckets["blobs"] == {}
    moved = anyio.run(choose_bucket, owned, "s3://others")
    assert re.fullmatch(r"s3://others/[0-9a-f-]{36}", moved), "as nothing is kept there"
    for statement in ("UPDATE perdure.blob_store SET address = 's3://mine'", "DELETE FROM perdure.blob_store"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            postgres_server.execute(statement, url=owned.replace("//perdure_owner@", "//gateway@"))


def test_a_bucket_is_not_changed_once_blobs_are_kept(owned: str, s3: FakeS3) -> None:
    """SCL-1: neither those in the table nor those in another bucket; it is said what to do."""
    serving = owned.replace("//perdure_owner@", "//gateway@")

    async def put(content: bytes) -> None:
        store = PostgresStore(serving)
        await store.home("acme").blobs.put((content,))
        await store.close()

    async def forget() -> None:
        store = PostgresStore(serving)
        assert await store.home("acme").blobs.forget(1e12) == 1
        await store.close()

    anyio.run(put, b"x")
    with pytest.raises(JournalError, match=r"kept in the database already.*store copy"):
        anyio.run(choose_bucket, owned, "s3://blobs/home")
    anyio.run(put, b"x")
    anyio.run(forget)
    anyio.run(choose_bucket, owned, "s3://blobs/home")
    anyio.run(put, b"x")
    with pytest.raises(JournalError, match=r"kept in s3://blobs/home/\S+ already.*store copy"):
        anyio.run(choose_bucket, owned, "s3://others")
    assert s3.buckets["others"] == {}
    anyio.run(forget)
    anyio.run(choose_bucket, owned, "s3://others")


def test_a_bucket_that_will_not_do_is_refused_and_nothing_written(owned: str, s3: FakeS3) -> None:
    """SCL-1, SCL-6: no address of one, none of that name, none to be written to, one that keeps what is deleted."""
    for address, error, why in (
        ("s3://nowhere", JournalError, "no such bucket"),
        ("s3://blobs/..", BadSetting, "prefix"),
        ("https://blobs", BadSetting, "s3://BUCKET"),
    ):
        with pytest.raises(error, match=why):
            anyio.run(choose_bucket, owned, address)
    s3.faults.append("access-denied")
    with pytest.raises(JournalError, match="refuses the key"):
        anyio.run(choose_bucket, owned, "s3://blobs")
    s3.keeps_versions = True
    with pytest.raises(JournalError, match="keeps former versions"):
        anyio.run(choose_bucket, owned, "s3://blobs")
    with pytest.raises(JournalError, match="must be owner of table blobs"):
        s3.keeps_versions = False
        anyio.run(choose_bucket, owned.replace("//perdure_owner@", "//gateway@"), "s3://blobs")

    async def put() -> None:
        store = PostgresStore(owned.replace("//perdure_owner@", "//gateway@"))
        await store.home("acme").blobs.put((b"x",))
        await store.close()

    anyio.run(put)
    assert s3.buckets["blobs"] == {}, "blobs are still in the database"


@pytest.mark.parametrize("before", [None, "s3://others"])
def test_whoever_serves_meanwhile_puts_nothing_at_the_old_place(owned: str, s3: FakeS3, before: str | None) -> None:
    """SCL-1: a gateway that knew the old place is told so once, and goes on at the new one."""

    async def main() -> None:
        if before is not None:
            await choose_bucket(owned, before)
        store = PostgresStore(owned.replace("//perdure_owner@", "//gateway@"))
        home = store.home("acme")
        made = await begun(home, "s1")
        await store.probe()
        await choose_bucket(owned, "s3://blobs")
        with pytest.raises(JournalError, match="given another place meanwhile"):
            await made.blobs.put((b"x",))
        assert s3.buckets == {"blobs": {}, "others": {}}
        [blob] = await made.blobs.put((b"x",))
        assert [key.endswith(blob) for key in s3.buckets["blobs"]] == [True]
        await made.journal.close()
        await store.close()

    anyio.run(main)


# --- deletions --------------------------------------------------------------------------------------------------------


def test_a_deleted_session_takes_its_blobs_along(postgres_with_bucket: Database) -> None:
    """SCL-6: others keep theirs; an hour later it is done once more, and then nothing is left to do."""
    _, s3 = postgres_with_bucket

    async def body(home: PostgresHome, _: PostgresHome) -> None:
        for name in ("s1", "s2"):
            made = await begun(home, name)
            await made.blobs.put((b"one", b"two"))
            await made.journal.close()
        await home.delete("s1")
        assert len(await objects_of(s3, home)) == 2
        again = await begun(home, "s1")
        [blob] = await again.blobs.put((b"one",))
        before = len(s3.received)
        await home.store.finish_deletions()
        assert len(s3.received) == before, "it isn't time yet"
        [(_, is_done_once)] = await due(home)
        assert is_done_once
        await home.store.finish_deletions()
        assert await due(home) == [] and await again.blobs.get(blob) == b"one"
        assert len(await objects_of(s3, home)) == 3
        await again.journal.close()

    with_homes(postgres_with_bucket, body)


def test_blobs_of_a_bucket_that_does_not_answer_are_deleted_later(
    postgres_with_bucket: Database, retried_at_once: None, caplog: pytest.LogCaptureFixture
) -> None:
    """SCL-6: the session is gone at once; a process that ends in between, too, leaves what is to be done."""
    _, s3 = postgres_with_bucket

    async def body(home: PostgresHome, other: PostgresHome) -> None:
        made = await begun(home, "s1")
        await made.blobs.put((b"one",))
        await made.journal.close()
        s3.faults.append("access-denied")
        await home.delete("s1")
        assert not await home.has("s1") and len(await objects_of(s3, home)) == 1
        assert "will be deleted later" in caplog.text
        assert [is_done_once for _, is_done_once in await due(home)] == [False]
        await other.store.finish_deletions()
        assert await objects_of(s3, home) == []

    with_homes(postgres_with_bucket, body)


def test_a_blob_that_is_put_behind_a_deletion_goes_again(postgres_with_bucket: Database) -> None:
    """SCL-3, SCL-6: an owner was paused until its session was deleted; of one that is lost then, too, nothing stays."""
    _, s3 = postgres_with_bucket

    async def body(first: PostgresHome, second: PostgresHome) -> None:
        late, lost = await begun(first, "s1"), await begun(first, "s2")
        await anyio.sleep(0.15)
        await second.delete("s1")
        await second.delete("s2")
        with pytest.raises(JournalError, match="deleted: nothing was stored"):
            await late.blobs.put((b"late",))
        assert await objects_of(s3, first) == []
        bucket = await first.store.blobs.bucket()
        assert bucket is not None
        number = await first.store.db.tenant(first.name)
        await bucket.blobs(str(number), str(lost.blobs.session)).put((b"and then it was killed",))
        assert len(await due(first)) == 2
        await second.store.finish_deletions()
        assert await objects_of(s3, first) == [] == await due(first)

    with_homes(postgres_with_bucket, body, lease_seconds=0.1)


def test_a_fork_that_is_broken_off_leaves_no_copies(
    postgres_with_bucket: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCL-1, SCL-6: its blobs are there before it is; those of one that never came are deleted an hour later."""
    _, s3 = postgres_with_bucket

    async def body(home: PostgresHome, _: PostgresHome) -> None:
        made = await begun(home, "s1", said("a"))
        await made.blobs.put((b"one", b"two"))
        await home.fork("s1", "s2", created=2.0)
        assert len(await objects_of(s3, home)) == 4 and await due(home) == []
        with pytest.raises(JournalError, match="there is a session of that id"):
            await home.fork("s1", "s2", created=2.0)
        assert len(await objects_of(s3, home)) == 6 and [once for _, once in await due(home)] == [False]
        await home.store.finish_deletions()
        assert len(await objects_of(s3, home)) == 4 and await due(home) != []
        await home.store.finish_deletions()
        copy = Bucket.copy

        async def slow(self: Bucket, *names: str) -> None:
            await copy(self, *names)
            await due(home)  # an hour later
            await home.store.finish_deletions()

        monkeypatch.setattr(Bucket, "copy", slow)
        with pytest.raises(JournalError, match="took too long to copy"):
            await home.fork("s1", "s3", created=3.0)
        assert not await home.has("s3") and len(await objects_of(s3, home)) == 4
        await made.journal.close()

    with_homes(postgres_with_bucket, body)


def test_a_deletion_of_a_tenant_that_is_broken_off_goes_on_with_the_next(
    postgres_with_bucket: Database, postgres_server: PostgresServer, retried_at_once: None
) -> None:
    """SCL-6: from its begin on nobody reads or writes there, and the name is free; all of it is gone at the end."""
    url, s3 = postgres_with_bucket

    async def body(home: PostgresHome, other: PostgresHome) -> None:
        made = await begun(home, "s1", said("a"))
        await made.blobs.put((b"one",))
        assert await other.has("s1")
        number = await home.store.db.tenant(home.name)
        s3.faults.append("access-denied")
        with pytest.raises(JournalError, match="refuses the key"):
            await home.store.delete_tenant(home.name)
        assert home.name in await home.store.tenants() and len(s3.buckets["blobs"])
        with pytest.raises(JournalLost, match="being deleted"):
            await made.journal.append((said("b"),))
        with pytest.raises(JournalLost, match="being deleted"):
            await other.has("s1")  # which knew its number
        with pytest.raises(JournalError, match="deleted"):
            await made.blobs.put((b"late",))
        await made.journal.close()
        again = await begun(other, "s1", said("c"))
        await again.blobs.put((b"one",))
        told: list[tuple[str, int]] = []
        await home.store.delete_tenant(home.name, on_deleted=lambda *what: told.append(what))
        with pytest.raises(JournalError, match="deleted"):
            await again.blobs.put((b"two",))  # the new one as well: it has the name
        assert ("sessions", 1) in told and home.name not in await home.store.tenants()
        assert not any("/tenant/" in key for key in s3.buckets["blobs"] if f"/tenant/{number}/" in key)
        rows = postgres_server.execute("SELECT tenant, session FROM perdure.blob_deletions", url=as_superuser(url))
        assert (number, None) in rows, "it is done once more, when puts that were under way have ended"
        await again.journal.close()

    with_homes(postgres_with_bucket, body)
