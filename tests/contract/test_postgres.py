"""What is PostgreSQL's own of a store: migrations, tenants apart by the database, lost connections, damaged rows."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.contract.test_homes import begun, boundary, names, new_name, said

from perdure.adapters.postgres import database, deletion, schema
from perdure.adapters.postgres.address import place_of
from perdure.adapters.postgres.database import Database
from perdure.adapters.postgres.store import PostgresHome, PostgresStore
from perdure.errors import FileRefused, JournalError, JournalLost, NewerFormat
from perdure.memory.changes import SaveMemory, Stamp
from perdure.ports.home import KnownLink, StoredSession
from perdure.testing.postgres import PostgresServer
from perdure.transcript.codec import encode_line
from perdure.transcript.history import CLIENT, HistoryPosition
from perdure.transcript.messages import BlobId, MessageId
from perdure.transcript.records import Repaired, Titled

pytestmark = pytest.mark.contract


def as_superuser(url: str) -> str:
    """The URL of the same database, for the superuser of its server."""
    return re.sub(r"//\w+@", "//postgres@", url)


def with_homes(url: str, body: Callable[[PostgresHome, PostgresHome], Awaitable[None]], **more: Any) -> None:
    """Run it with a new tenant's home, as two processes have it."""

    async def main() -> None:
        tenant = new_name()
        stores = PostgresStore(url, **more), PostgresStore(url, **more)
        try:
            await body(stores[0].home(tenant), stores[1].home(tenant))
        finally:
            for store in stores:
                await store.close()

    anyio.run(main)


# --- owners -----------------------------------------------------------------------------------------------------------


def test_a_paused_owner_cannot_append(postgres: str) -> None:
    """SCL-3: once its lease ran out and another one opened the session; it is told so, and its line isn't there."""

    async def body(first: PostgresHome, second: PostgresHome) -> None:
        made = await begun(first, "s1", said("a"))
        await anyio.sleep(0.15)
        other = await second.open("s1")
        await other.journal.append((said("b"),))
        for _ in range(2):
            with pytest.raises(JournalLost, match="taken by process"):
                await made.journal.append((said("late"),))
        await made.journal.close()
        await other.journal.append((said("c"),))
        assert names(await first.load("s1")) == ["a", "b", "c"]
        await other.journal.close()

    with_homes(postgres, body, lease_seconds=0.1)


def test_what_waits_is_lost_with_the_lease_and_said(postgres: str) -> None:
    """SCL-3: also what was acknowledged under `durability="process"`, at `sync` and `close`."""

    async def body(first: PostgresHome, second: PostgresHome) -> None:
        made = await begun(first, "s1", said("late"), durability="process")
        await anyio.sleep(0.15)
        other = await second.open("s1")
        for end in (made.journal.sync, made.journal.close):
            with pytest.raises(JournalLost, match="taken by"):
                await end()
        assert (await other.journal.load()).records == ()
        await other.journal.close()

    with_homes(postgres, body, lease_seconds=0.1)


def test_an_owner_that_is_slow_goes_on_if_nobody_was_there(postgres: str) -> None:
    """SCL-3: a lease that ran out takes nothing away by itself."""

    async def body(first: PostgresHome, second: PostgresHome) -> None:
        made = await begun(first, "s1", said("a"))
        await anyio.sleep(0.15)
        await made.journal.append((said("b"),))
        assert names(await second.load("s1")) == ["a", "b"]
        await made.journal.close()

    with_homes(postgres, body, lease_seconds=0.1)


def test_a_session_that_is_deleted_under_its_owner_is_lost(postgres: str) -> None:
    """REL-9: what was acknowledged isn't there any more."""

    async def body(first: PostgresHome, second: PostgresHome) -> None:
        made = await begun(first, "s1", said("a"))
        await anyio.sleep(0.15)
        await second.delete("s1")
        with pytest.raises(JournalLost, match="deleted"):
            await made.journal.append((said("b"),))
        with pytest.raises(JournalError, match="deleted"):
            await made.journal.load()
        with pytest.raises(JournalError, match="deleted"):
            await made.blobs.put((b"x",))
        await made.journal.close()

    with_homes(postgres, body, lease_seconds=0.1)


# --- lost connections -------------------------------------------------------------------------------------------------


def killed(server: PostgresServer) -> None:
    """End every connection of ours, in whatever it is."""
    server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'perdure'")


def test_connections_that_are_killed_lose_nothing_and_write_nothing_twice(
    postgres: str, postgres_server: PostgresServer
) -> None:
    """SCL-3, REL-1: while many sessions append, again and again; all that was acknowledged is there once, in order."""

    async def body(home: PostgresHome, _: PostgresHome) -> None:
        acknowledged: dict[str, list[str]] = {}
        refused: list[str] = []
        is_over = anyio.Event()

        async def write(session: str, made: Any) -> None:
            done = acknowledged.setdefault(session, [])
            number = 0
            while not is_over.is_set():
                number += 1
                try:
                    await made.journal.append((said(f"{session}-{number}", "x" * 500),))
                    done.append(f"{session}-{number}")
                except JournalError as e:
                    refused.append(str(e))
            await made.journal.close()

        sessions = [(f"s{number}", await begun(home, f"s{number}")) for number in range(6)]
        async with anyio.create_task_group() as group:
            for session in sessions:
                group.start_soon(write, *session)
            for _ in range(25):
                await anyio.sleep(0.04)
                await anyio.to_thread.run_sync(killed, postgres_server)
            is_over.set()
        for session, done in acknowledged.items():
            loaded = await home.load(session)
            assert names(loaded) == done and loaded.repairs == ()
            assert len(done) > 20
            assert [p.seq for p in loaded.records] == list(range(1, len(done) + 1))

    with_homes(postgres, body)


def test_an_append_whose_answer_was_lost_is_there_once(postgres: str) -> None:
    """SCL-3: committed or not when the connection went, the same line stands there once, and others may follow."""

    async def body(home: PostgresHome, _: PostgresHome) -> None:
        made = await begun(home, "s1", said("a"))
        whole = await made.journal.append((said("b"),))
        made.journal._is_unsure = True  # as after an answer that never came
        made.journal._seq = made.journal._stored_seq = 1
        made.journal._end = made.journal._stored_end = whole.offset
        assert await made.journal.append((said("b"),)) == whole
        made.journal._is_unsure = True
        assert (await made.journal.append((said("c"),))).seq == 3
        assert names(await home.load("s1")) == ["a", "b", "c"]
        await made.journal.close()

    with_homes(postgres, body)


def test_an_append_that_arrives_late_takes_nothing_back(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SCL-3, REL-1: an attempt that was given up reaches the database behind lines that were acknowledged since."""
    import psycopg

    from perdure.adapters.postgres.appends import Appends

    real, on_their_way = Appends.append, list[tuple[Any, ...]]()

    async def held_up(self: Appends, tenant: int, *given: Any) -> str:
        if len(on_their_way) == 2:
            return await real(self, tenant, *given)
        on_their_way.append((tenant, *given))
        raise JournalError("the connection is lost") from psycopg.OperationalError("the connection is lost")

    async def body(home: PostgresHome, _: PostgresHome) -> None:
        made = await begun(home, "s1", said("a"))
        monkeypatch.setattr(Appends, "append", held_up)
        with pytest.raises(JournalError, match="nothing was acknowledged"):
            await made.journal.append((said("x"),))
        for name in "bcd":
            await made.journal.append((said(name),))
        for tenant, *given in on_their_way:  # as where the server, or a pooler, had stood still
            assert await real(home.store.appends, tenant, *given) != "done"
        await made.journal.append((said("e"),))
        assert names(await home.load("s1")) == ["a", "b", "c", "d", "e"]
        await made.journal.close()
        assert await home.open("s1")

    with_homes(postgres, body)


def test_whatever_is_committed_without_an_answer_is_done_once(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SCL-3: a session that is made, opened or forked, a document and notes: the second attempt finds the first."""
    import psycopg

    real, lost = Database.connection, list[str]()

    @asynccontextmanager
    async def losing(self: Database) -> AsyncIterator[Any]:
        async with real(self) as connection:
            yield connection
        if lost:
            lost.pop()
            try:
                raise psycopg.OperationalError("the connection is lost")
            except psycopg.OperationalError as e:
                raise JournalError("the connection is lost") from e

    monkeypatch.setattr(Database, "connection", losing)

    async def body(home: PostgresHome, other: PostgresHome) -> None:
        async def once(ask: Callable[[], Awaitable[Any]]) -> Any:
            """What it gives though the answer of its last statement doesn't come, and isn't waited for twice."""
            lost.append("")
            given = await ask()
            assert not lost
            return given

        await home.store.db.make_tenant(home.name)
        made = await once(lambda: home.create("s1", project="/p", created=1.0))
        await made.journal.append((said("a"),))
        assert await once(lambda: made.notes.write(b"one", instead_of=None))
        assert await once(lambda: made.notes.write(b"two", instead_of=b"one"))
        documents = home.documents("d")
        first = await once(lambda: documents.put("n", b"1", instead_of=None))
        second = await once(lambda: documents.put("n", b"2", instead_of=first))
        assert first and second and await documents.put("n", b"3", instead_of=first) is None
        assert await documents.put("n", b"2", instead_of=None) is None
        source = await home.open("s1", read_only=True)
        past = (await source.journal.load(whole=True)).records
        await home.fork("s1", "s2", created=2.0, past=past)
        monkeypatch.setattr(home.store.db.__class__, "again", losing_once(lost, home.store.db.__class__.again))
        await home.fork("s1", "s3", created=2.0, past=past)
        assert not lost and names(await home.load("s3")) == ["a"] == names(await home.load("s2"))
        with pytest.raises(JournalError, match="there is a session"):
            await home.fork("s1", "s3", created=3.0, past=past)
        await made.journal.close()

    def losing_once(lost: list[str], again: Any) -> Any:
        async def asked(self: Database, work: Any) -> Any:
            if work.__qualname__.endswith("fork.<locals>.write"):
                lost.append("")
            return await again(self, work)

        return asked

    with_homes(postgres, body)


@pytest.fixture
def own_server(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """A server that a test may stop."""
    with PostgresServer.start() as server:
        anyio.run(schema.migrate, server.url)
        yield server


def test_a_database_that_is_away_is_said_in_a_line_and_nothing_is_lost(own_server: PostgresServer) -> None:
    """REL-10, SCL-3: nothing is acknowledged meanwhile; the session goes on as soon as it is back."""

    async def body(home: PostgresHome, _: PostgresHome) -> None:
        made = await begun(home, "s1", said("a"))
        await anyio.to_thread.run_sync(own_server.kill)
        for ask in (
            lambda: made.journal.append((said("x"),)),
            lambda: home.load("s1"),
            lambda: home.documents("d").put("n", b"x", instead_of=None),
            home.store.probe,
        ):
            with pytest.raises(JournalError) as caught:
                await ask()
            assert str(own_server.port) in str(caught.value) and "\n" not in str(caught.value)
        await anyio.to_thread.run_sync(own_server.resume)
        assert (await made.journal.append((said("b"),))).seq == 2
        assert names(await home.load("s1")) == ["a", "b"]
        await made.journal.close()

    with_homes(own_server.url, body, patience=1.0)


@pytest.mark.nightly
def test_a_database_that_stands_still_is_given_up(own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """REL-10, REL-15: whoever asks isn't kept waiting; what was sent before is there once, when it goes on."""
    monkeypatch.setattr(database, "SILENT_SECONDS", 0.5)

    async def body(home: PostgresHome, other: PostgresHome) -> None:
        made = await begun(home, "s1", said("a"))
        memories = other.memories("/memory").store
        await memories.write(SaveMemory(name="a.md", text="x"), BY, mode="auto")
        with own_server.paused():
            for ask in (
                lambda: made.journal.append((said("x"),)),
                lambda: home.load("s1"),
                lambda: home.delete("s1"),
                lambda: memories.write(SaveMemory(name="b.md", text="x"), BY, mode="auto"),
            ):
                with pytest.raises((JournalError, FileRefused)) as caught:
                    await ask()
                assert str(own_server.port) in str(caught.value) and "\n" not in str(caught.value)
            for patience in (10.0, 1.0):  # one looks whether it is back, and nobody else waits for that
                with anyio.fail_after(patience), pytest.raises(JournalError, match="a moment ago"):
                    await home.load("s1")
        await anyio.sleep(database.AWAY_SECONDS)
        assert [one.name for one in (await memories.listing()).files] == ["a.md"]
        assert (await made.journal.append((said("b"),))).seq == 2
        assert names(await home.load("s1")) == ["a", "b"]
        await made.journal.close()

    with_homes(own_server.url, body, patience=1.0)


def test_who_is_paused_within_a_transaction_keeps_nothing_locked(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCL-3: the database ends it by itself; nothing of it is committed when it goes on."""
    monkeypatch.setattr(database, "_SERVE_BOUND", database._SERVE_BOUND.replace(b"'30s'", b"'200ms'"))

    async def body(home: PostgresHome, other: PostgresHome) -> None:
        made = await begun(home, "s1", said("a"))
        tenant = await home.store.db.make_tenant(home.name)
        with pytest.raises(JournalError, match="idle-in-transaction"):
            async with home.store.db.transaction(tenant) as cursor:
                await cursor.execute("UPDATE perdure.sessions SET fence = 77 WHERE tenant = %s", (tenant,))
                with anyio.fail_after(5.0):
                    await other.store.db.ask(
                        tenant, "SELECT FROM perdure.sessions WHERE tenant = %s FOR UPDATE", (tenant,)
                    )
                await cursor.execute("UPDATE perdure.sessions SET fence = 78 WHERE tenant = %s", (tenant,))
        await made.journal.append((said("b"),))
        assert names(await home.load("s1")) == ["a", "b"]
        await made.journal.close()

    with_homes(postgres, body)


NEWEST = "session = (SELECT max(number) FROM perdure.sessions)"  # of the session that a test made last

# --- damage -----------------------------------------------------------------------------------------------------------


def test_a_damaged_row_is_passed_over_and_said_once(postgres: str, postgres_server: PostgresServer) -> None:
    """ENG-3, REL-2: what can be read is read; a record in the journal says what can't, and its bytes stay."""

    async def body(home: PostgresHome, other: PostgresHome) -> None:
        made = await begun(home, "s1", *(said(name) for name in "abcdef"))
        await made.journal.close()
        edit = f"UPDATE perdure.records SET line = %s WHERE seq = %s AND {NEWEST}"
        for line, seq in ((b"not a line\n", 2), (encode_line(9, (said("x"),)), 4)):
            postgres_server.execute(edit, (line, seq), url=as_superuser(postgres))
        gone = f"DELETE FROM perdure.records WHERE seq = %s AND {NEWEST}"
        for seq in (5, 6):
            postgres_server.execute(gone, (seq,), url=as_superuser(postgres))
        read = await other.load("s1")
        assert names(read) == ["a", "c"]
        assert [(r.line, r.what.partition(":")[0].partition(" (")[0]) for r in read.repairs] == [
            (3, "no checksum at the end of the line"),
            (5, "the line of sequence number 9 stands here"),
            (6, "sequence jumps from 4 to 7"),
        ]
        opened = await home.open("s1")
        loaded = await opened.journal.load()
        assert loaded.repairs == read.repairs
        assert [p.record for p in loaded.records[2:]] == list(read.repairs) and loaded.records[2].seq == 7
        assert (await opened.journal.append((said("g"),))).seq == 8
        await opened.journal.close()
        again = await home.load("s1")
        assert again.repairs == () and names(again) == ["a", "c", *["Repaired"] * 3, "g"]
        assert sum(isinstance(p.record, Repaired) for p in again.records) == 3

    with_homes(postgres, body)


def test_a_damaged_header_is_made_from_the_session_s_row(postgres: str, postgres_server: PostgresServer) -> None:
    """ENG-3: a session opens whatever happened to its header; listings say that it is damaged."""

    async def body(home: PostgresHome, _: PostgresHome) -> None:
        made = await begun(home, "s1", said("a"))
        await made.journal.close()
        edit = "UPDATE perdure.sessions SET header = %s WHERE number = (SELECT max(number) FROM perdure.sessions)"
        postgres_server.execute(edit, (b"{}",), url=as_superuser(postgres))
        opened = await home.open("s1")
        assert opened.header == made.header
        loaded = await opened.journal.load()
        assert names(loaded) == ["a", "Repaired"] and "header is damaged" in loaded.repairs[0].what
        await opened.journal.close()
        [listed] = await home.sessions()
        assert "header is damaged" in (listed.problem or "")

    with_homes(postgres, body)


@pytest.mark.parametrize("about", [b"", b"no JSON", b"[1]", b'{"title": 5}', b'{"tags": 7}', b'{"tags": [null]}'])
def test_what_is_wrong_with_a_session_s_listing_hides_no_other(
    postgres: str, postgres_server: PostgresServer, about: bytes
) -> None:
    """ENG-3: it is listed with its problem, goes on, and is right again once there is something to list."""

    async def body(home: PostgresHome, _: PostgresHome) -> None:
        for session in ("s1", "s2"):
            made = await begun(home, session, Titled(title="before"))
            await made.journal.close()
        edit = "UPDATE perdure.sessions SET about = %s WHERE number = (SELECT max(number) FROM perdure.sessions)"
        postgres_server.execute(edit, (about,), url=as_superuser(postgres))
        listed = {one.id: one for one in await home.sessions()}
        assert (listed["s1"].title, listed["s1"].problem) == ("before", None)
        assert listed["s2"].title is None and "damaged" in (listed["s2"].problem or "")
        opened = await home.open("s2")
        await opened.journal.append((Titled(title="after"),))
        await opened.journal.close()
        assert {one.id: (one.title, one.problem) for one in await home.sessions()}["s2"] == ("after", None)

    with_homes(postgres, body)


def test_what_a_newer_program_lists_is_passed_over_and_stays(postgres: str, postgres_server: PostgresServer) -> None:
    """SCL-3: while gateways are brought to a new version one by one."""

    async def body(home: PostgresHome, _: PostgresHome) -> None:
        made = await begun(home, "s1", Titled(title="before"))
        await made.journal.close()
        newest = "WHERE number = (SELECT max(number) FROM perdure.sessions)"
        edit = f"UPDATE perdure.sessions SET about = %s {newest}"
        postgres_server.execute(edit, (b'{"title": "before", "later": [1]}',), url=as_superuser(postgres))
        [listed] = await home.sessions()
        assert (listed.title, listed.problem) == ("before", None)
        opened = await home.open("s1")
        await opened.journal.append((Titled(title="after"),))
        await opened.journal.close()
        [(about,)] = postgres_server.execute(f"SELECT about FROM perdure.sessions {newest}", url=as_superuser(postgres))
        assert json.loads(about) == {"title": "after", "later": [1]}

    with_homes(postgres, body)


def test_a_damaged_boundary_does_not_hide_what_stands_before(postgres: str, postgres_server: PostgresServer) -> None:
    """CMP-14, REL-2: where one can't be read, the one before it holds, or everything does."""

    async def body(home: PostgresHome, _: PostgresHome) -> None:
        made = await begun(home, "s1", said("a"), boundary("b1"), said("b"), boundary("b2"), said("c"))
        await made.journal.close()
        edit = f"UPDATE perdure.records SET line = %s WHERE seq = %s AND {NEWEST}"
        postgres_server.execute(edit, (b"broken", 4), url=as_superuser(postgres))
        assert names(await (await home.open("s1", read_only=True)).journal.load()) == ["b1", "b", "c"]
        postgres_server.execute(edit, (b"broken", 2), url=as_superuser(postgres))
        assert names(await (await home.open("s1", read_only=True)).journal.load()) == ["a", "b", "c"]

    with_homes(postgres, body)


def test_a_damaged_blob_is_said_and_put_right_by_the_next_put(postgres: str, postgres_server: PostgresServer) -> None:
    """ENG-9, RCL-2: never other bytes than those that were stored."""

    async def body(home: PostgresHome, _: PostgresHome) -> None:
        made = await begun(home)
        [blob] = await made.blobs.put((b"contents",))
        for damaged in (b"=other", b"zno", b"?"):
            edit = "UPDATE perdure.blobs SET stored = %s WHERE hash = %s"
            postgres_server.execute(edit, (damaged, bytes.fromhex(blob)), url=as_superuser(postgres))
            with pytest.raises(JournalError, match="damaged"):
                await made.blobs.get(blob)
        assert await made.blobs.put((b"contents",)) == (blob,)
        assert await made.blobs.get(blob) == b"contents"
        await made.journal.close()

    with_homes(postgres, body)


# --- tenants ----------------------------------------------------------------------------------------------------------

TABLES = (*deletion.TABLES, "blob_deletions")  # those with a tenant
FILLED = ("sessions", "records", "blobs", "notes", "documents", "keys", "memory_files", "memory_folders")
BY = Stamp(origin="user", at=1.0)


def test_the_role_that_serves_sees_one_tenant_s_rows_only(postgres: str, postgres_server: PostgresServer) -> None:
    """SCL-6: in each table with a tenant, by plain SQL: none without a tenant, none of another one's, and it can't
    write any for another one."""
    import psycopg

    async def body(home: PostgresHome, _: PostgresHome) -> None:
        made = await begun(home, "s1", said("a"))
        await made.blobs.put((b"x",))
        await made.notes.write(b"n", instead_of=None)
        await home.documents("d").put("n", b"x", instead_of=None)
        await home.secret_key()
        await home.memories("/memory").store.write(SaveMemory(name="a.md", text="x"), BY, mode="auto")
        await made.journal.close()
        mine = await home.store.db.tenant(home.name)
        other = await home.store.db.make_tenant(new_name())
        for table in TABLES:
            for tenant, sees in ((None, False), ("", False), (other, False), (mine, table in FILLED)):
                with psycopg.connect(postgres) as db:
                    if tenant is not None:
                        db.execute("SELECT set_config('perdure.tenant', %s, true)", (str(tenant),))
                    counted = db.execute(f"SELECT count(*) FROM perdure.{table}".encode()).fetchone()
                    assert counted is not None and bool(counted[0]) == sees, (table, tenant)
        with psycopg.connect(postgres) as db, pytest.raises(psycopg.errors.InsufficientPrivilege):
            db.execute("SELECT set_config('perdure.tenant', %s, true)", (str(other),))
            db.execute("INSERT INTO perdure.documents (tenant, kind, name, data) VALUES (%s, 'd', 'x', '')", (mine,))

    with_homes(postgres, body)


def test_every_table_with_a_tenant_is_behind_forced_row_security(
    postgres: str, postgres_server: PostgresServer
) -> None:
    """SCL-6: also for its owner; and whoever serves owns nothing, and can't take it off."""
    import psycopg

    rows = postgres_server.execute(
        "SELECT c.relname, c.relrowsecurity AND c.relforcerowsecurity, pg_get_userbyid(c.relowner) FROM pg_class c "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant' "
        "WHERE c.relnamespace = 'perdure'::regnamespace AND c.relkind = 'r'",
        url=as_superuser(postgres),
    )
    assert sorted(row[0] for row in rows) == sorted(TABLES)
    assert all(is_forced for _, is_forced, _ in rows) and {owner for *_, owner in rows} == {"perdure_owner"}
    owners = postgres.replace("//gateway@", "//perdure_owner@")
    assert postgres_server.execute("SELECT count(*) FROM perdure.sessions", url=owners) == [(0,)]
    for statement in (
        "ALTER TABLE perdure.sessions DISABLE ROW LEVEL SECURITY",
        "DROP TABLE perdure.records",
        "CREATE TABLE perdure.mine (x int)",
        "UPDATE perdure.migrations SET version = 7",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            postgres_server.execute(statement, url=postgres)


def test_an_append_changes_no_index_of_sessions(postgres: str, postgres_server: PostgresServer) -> None:
    """SCL-7: else each one leaves a dead entry in every index, for vacuum to find; ids are found by how they begin."""
    asked = (
        "SELECT DISTINCT a.attname, a.attcollation::regcollation::text FROM pg_index i JOIN pg_attribute a "
        "ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) WHERE i.indrelid = 'perdure.sessions'::regclass"
    )
    found = dict(postgres_server.execute(asked, url=as_superuser(postgres)))
    assert found == {"tenant": "-", "number": "-", "id": '"C"'}


def test_a_tenant_that_was_deleted_elsewhere_is_made_anew(postgres: str) -> None:
    """SCL-6: a gateway that knew its number is told so once, and keeps nothing under the old one."""

    async def body(first: PostgresHome, second: PostgresHome) -> None:
        made = await begun(first, "s1", said("a"))
        assert await second.has("s1")
        await first.store.delete_tenant(first.name)
        with pytest.raises(JournalLost, match="deleted"):
            await made.journal.append((said("b"),))
        await made.journal.close()
        with pytest.raises(JournalError, match="foreign key"):
            await begun(second, "s2")
        again = await begun(second, "s2", said("b"))
        await again.journal.close()
        assert names(await first.load("s2")) == ["b"] and not await first.has("s1")

    with_homes(postgres, body)


def test_nothing_of_a_session_stays_with_a_connection(postgres: str) -> None:
    """SCL-1: a transaction pooler may hand the connection to anybody next: no role, no tenant, nothing prepared."""

    async def body(home: PostgresHome, _: PostgresHome) -> None:
        made = await begun(home, "s1", *(said(f"m{n}") for n in range(12)))
        for _ in range(12):
            await made.journal.load()
        async with home.store.db.connection() as connection:
            asked = await connection.execute(
                "SELECT current_user::text, coalesce(current_setting('perdure.tenant', true), ''), "
                "(SELECT count(*) FROM pg_prepared_statements), current_setting('statement_timeout')"
            )
            assert await asked.fetchone() == ("gateway", "", 0, "0")
        await made.journal.close()

    with_homes(postgres, body, connections=1)


@pytest.fixture
def uses(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each time that a connection was taken."""
    real, taken = Database.connection, list[None]()

    @asynccontextmanager
    async def counted(self: Database) -> AsyncIterator[Any]:
        taken.append(None)
        async with real(self) as connection:
            yield connection

    monkeypatch.setattr(Database, "connection", counted)
    return taken


def test_a_turn_asks_the_database_twice(postgres: str, uses: list[None]) -> None:
    """SCL-7, GW-3: to hold the session, and to store what was said with its links and let go of it, in one."""

    async def body(home: PostgresHome, other: PostgresHome) -> None:
        made = await home.create("s1", project="/p", created=1.0, durability="process")
        assert await made.journal.release()
        place = HistoryPosition(1, b"l" * 16, MessageId("a"))
        assert await home.links.longest([place.link]) is None
        uses.clear()
        await made.journal.hold()
        await made.journal.append((said("a"), place.cursor(CLIENT)))
        home.links.enter([KnownLink(place.link, "s1", 1)])
        assert await made.journal.release()
        await home.links.flush()
        assert len(uses) == 2
        assert await other.links.longest([place.link]) == ("s1", 1)
        taken = await other.open("s1")  # at once: nobody holds it
        assert names(await taken.journal.load()) == ["a", "Cursor"]
        await taken.journal.close()

    with_homes(postgres, body)


def test_sessions_that_append_at_the_same_time_share_a_transaction(postgres: str, uses: list[None]) -> None:
    """SCL-5: 40 of them take five; one that has been taken by another owner is told so, and spoils it for nobody."""

    async def body(home: PostgresHome, other: PostgresHome) -> None:
        made = [await begun(home, f"s{n}") for n in range(40)]
        await made[7].journal.release()
        taken = await other.open("s7")
        told: list[int] = []

        async def write(number: int) -> None:
            try:
                assert (await made[number].journal.append((said(f"m{number}"),))).seq == 1
            except JournalLost:
                told.append(number)

        uses.clear()
        async with anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(write, number)
        assert told == [7] and len(uses) <= 5
        for number in range(40):
            assert names(await home.load(f"s{number}")) == ([] if number == 7 else [f"m{number}"])
        await taken.journal.close()

    with_homes(postgres, body)


def test_nobody_waits_for_a_session_that_somebody_else_has_locked(
    postgres: str, postgres_server: PostgresServer
) -> None:
    """SCL-5, SEC-9: its append waits, those of other sessions go through; and where it is refused, it alone is."""

    async def body(home: PostgresHome, _: PostgresHome) -> None:
        import psycopg

        made = [await begun(home, f"s{n}") for n in range(20)]
        done: list[int] = []

        async def write(number: int) -> None:
            await made[number].journal.append((said("a"),))
            done.append(number)

        async with await psycopg.AsyncConnection.connect(as_superuser(postgres)) as db:
            await db.execute("SELECT 1 FROM perdure.sessions WHERE id = 's5' FOR UPDATE")
            async with anyio.create_task_group() as group:
                for number in range(20):
                    group.start_soon(write, number)
                with anyio.fail_after(5.0):
                    while len(done) < 19:  # noqa: ASYNC110 - there is no event for it
                        await anyio.sleep(0.01)
                assert 5 not in done
                await db.rollback()
        assert sorted(done) == list(range(20))

        postgres_server.execute(
            "CREATE FUNCTION public.refused() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "IF new.line LIKE '%poison%'::bytea THEN RAISE 'not this one'; END IF; RETURN new; END $$;"
            "CREATE TRIGGER refused BEFORE INSERT ON perdure.records FOR EACH ROW EXECUTE FUNCTION public.refused()",
            url=as_superuser(postgres),
        )
        refused: list[int] = []

        async def poison(number: int) -> None:
            try:
                await made[number].journal.append((said("poison" if number == 9 else "b"),))
            except JournalError as e:
                assert "not this one" in str(e)
                refused.append(number)

        try:
            async with anyio.create_task_group() as group:
                for number in range(20):
                    group.start_soon(poison, number)
        finally:
            postgres_server.execute("DROP FUNCTION public.refused CASCADE", url=as_superuser(postgres))
        assert refused == [9]
        for number in range(20):
            assert names(await home.load(f"s{number}")) == ["a"] + ["b"] * (number != 9)

    with_homes(postgres, body)


def test_sessions_that_share_links_never_wait_for_each_other_in_a_circle(
    postgres: str, postgres_server: PostgresServer
) -> None:
    """SCL-5, GW-4: groups of two processes that enter the same links, and the index that writes them as well."""
    asked = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"

    async def body(home: PostgresHome, other: PostgresHome) -> None:
        chance, pairs = Random(5), list[tuple[PostgresHome, StoredSession]]()
        for number in range(24):
            where = (home, other)[number % 2]
            pairs.append((where, await where.create(f"s{number}", project="/p", created=1.0)))

        async def write(where: PostgresHome, stored: StoredSession, step: int) -> None:
            talk = chance.randrange(4)  # one of those that several sessions have
            links = [bytes([step, talk, number, 0]) * 4 for number in range(6)]
            places = [HistoryPosition(n, link, MessageId("m")) for n, link in enumerate(links)]
            where.links.enter(KnownLink(place.link, stored.id, place.count) for place in places[:3])
            await stored.journal.append((said(f"m{step}"), *(place.cursor(CLIENT) for place in places)))
            await where.links.flush()

        for step in range(15):
            async with anyio.create_task_group() as group:
                for pair in pairs:
                    group.start_soon(write, *pair, step)
        for _, stored in pairs:
            await stored.journal.close()

    before = postgres_server.execute(asked, url=as_superuser(postgres))
    with_homes(postgres, body)
    assert postgres_server.execute(asked, url=as_superuser(postgres)) == before


def test_appends_that_are_cancelled_hold_up_no_others(postgres: str) -> None:
    """SCL-3: whoever stores a group may be stopped in the middle of it; the others find out, and go on."""

    async def body(home: PostgresHome, _: PostgresHome) -> None:
        made = [await begun(home, f"s{n}") for n in range(24)]
        chance, done = Random(3), [0] * 24

        async def write(number: int) -> None:
            for step in range(12):
                receipt = await made[number].journal.append((said(f"m{step}"),))
                done[number] = receipt.seq

        tasks = [asyncio.create_task(write(number)) for number in range(24)]
        for number in range(0, 24, 2):
            await asyncio.sleep(chance.uniform(0, 0.01))
            tasks[number].cancel()
        with anyio.fail_after(30.0):
            await asyncio.gather(*tasks, return_exceptions=True)
        assert done[1::2] == [12] * 12
        for number in range(24):
            kept = names(await home.load(f"s{number}"))
            assert kept == [f"m{step}" for step in range(len(kept))] and len(kept) >= done[number]

    with_homes(postgres, body)


def test_a_question_that_is_refused_ends_its_transaction_in_one_line(postgres: str) -> None:
    """REL-10: also within a transaction of several; the connection serves on, with nothing of it left."""

    async def body(home: PostgresHome, _: PostgresHome) -> None:
        db = home.store.db
        tenant = await db.make_tenant(home.name)
        with pytest.raises(JournalError, match="division by zero"):
            await db.ask(tenant, "SELECT 1 / 0")
        with pytest.raises(JournalError, match="division by zero"):
            async with db.together():
                await db.ask(tenant, "SELECT 1 / 0")
        with anyio.move_on_after(0.1) as scope:
            await db.ask(tenant, "SELECT pg_sleep(30)")
        assert scope.cancelled_caught
        asked = "SELECT pg_backend_pid(), current_setting('perdure.tenant')"
        assert [row[1] for row in await db.ask(tenant, asked)] == [str(tenant)]

    with_homes(postgres, body, connections=1)


def test_it_works_on_uvloop_as_well(postgres: str) -> None:
    """SCL-1: the loop of the gateway."""
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        store = PostgresStore(postgres)
        home = store.home(new_name())
        made = await begun(home, "s1", said("a"))
        await made.journal.close()
        assert names(await home.load("s1")) == ["a"]
        await store.close()

    uvloop.run(main())


# --- migrations -------------------------------------------------------------------------------------------------------


@pytest.fixture
def empty(postgres_server: PostgresServer) -> Iterator[str]:
    """A database of its owner's with nothing in it."""
    name = new_name()
    postgres_server.execute(f"CREATE DATABASE {name} OWNER perdure_owner")
    yield postgres_server.url_of(name, "perdure_owner")
    postgres_server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_migrations_run_once_also_when_several_start_them(empty: str) -> None:
    """SCL-1: whoever comes later waits, and finds it done."""
    done: list[int] = []

    async def main() -> None:
        async def one() -> None:
            done.append(await schema.migrate(empty))

        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(one)
        assert await schema.migrate(empty) == 0

    anyio.run(main)
    assert sum(done) == len(schema.MIGRATIONS)


def test_a_migration_that_fails_leaves_nothing(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SCL-1: each is a transaction; what went before it stays."""
    last = len(schema.MIGRATIONS)
    broken = "CREATE TABLE perdure.half (x int); SELECT 1 / 0;"
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, broken))
    with pytest.raises(JournalError, match="division by zero"):
        anyio.run(schema.migrate, empty)
    monkeypatch.undo()

    async def main() -> None:
        assert await schema.migrate(empty) == 0
        store = PostgresStore(empty)
        found = await store.db.ask(0, "SELECT max(version), to_regclass('perdure.half') FROM perdure.migrations")
        await store.close()
        assert found == [(last, None)]

    anyio.run(main)


def test_another_schema_is_refused_in_a_line(empty: str, postgres_server: PostgresServer) -> None:
    """SCL-1: a newer one says to upgrade, an older one or none to migrate; nothing is touched."""

    def said_by(ask: Callable[[], Awaitable[Any]]) -> str:
        with pytest.raises(JournalError) as caught:
            anyio.run(ask)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    async def use() -> None:
        await PostgresStore(empty).tenants()

    where = f"{place_of(empty)}: the database has schema version"
    assert said_by(use).startswith(f"{where} 0 and not") and "perdure store migrate" in said_by(use)

    async def vacuumed() -> None:
        await deletion.vacuum(empty)

    assert said_by(vacuumed) == f"{place_of(empty)} can't be vacuumed: there are no tables of Perdure in it"
    anyio.run(schema.migrate, empty)
    postgres_server.execute("INSERT INTO perdure.migrations (version) VALUES (99)", url=empty)

    async def migrate() -> None:
        await schema.migrate(empty)

    assert "newer than this Perdure knows" in said_by(use) and said_by(migrate).startswith(f"{where} 99, newer")
    with pytest.raises(NewerFormat):
        anyio.run(migrate)


def test_who_isnt_a_member_is_told_what_to_grant(empty: str, postgres_server: PostgresServer) -> None:
    """SCL-6, CLI-5: a user whom nobody granted the role that serves can't even see the schema's version."""
    anyio.run(schema.migrate, empty)
    postgres_server.execute("CREATE ROLE stranger LOGIN")

    async def use() -> None:
        await PostgresStore(postgres_server.url_of(str(conninfo_to_dict(empty)["dbname"]), "stranger")).tenants()

    try:
        with pytest.raises(JournalError, match=r"permission denied .*: GRANT perdure_serving TO the user of the URL$"):
            anyio.run(use)
    finally:
        postgres_server.execute("DROP ROLE stranger")


@pytest.mark.parametrize("url", ["nonsense", "postgresql://127.0.0.1:1/x", "postgresql://[::1/x"])
def test_a_url_that_leads_nowhere_is_said_in_a_line(url: str) -> None:
    """CLI-1: what, and where; a password in it isn't."""

    async def main() -> None:
        await PostgresStore(url, patience=1.0).tenants()

    with pytest.raises(JournalError) as caught:
        anyio.run(main)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://h/db?password=very%zzsecret",
        "postgresql://h/db?password=very=secret",
        "postgresql://h/db?sslpassword=very-secret%",
        "postgresql://me:very%zzsecret@h/db",
        "postgresql://me:very/secret@h/db",
        "postgresql://h/db?password=very-secret&nothing=1",
    ],
)
def test_a_password_of_a_url_that_is_none_is_never_shown(url: str) -> None:
    """SEC-5, CLI-5: what is wrong there isn't quoted."""
    with pytest.raises(JournalError, match="not the URL of a PostgreSQL database") as caught:
        PostgresStore(url)
    assert "secret" not in str(caught.value) and "very" not in str(caught.value)


@pytest.mark.nightly
def test_a_wrong_password_or_none_says_where_it_belongs(own_server: PostgresServer) -> None:
    """CLI-5, SEC-5: in a line, and without the password."""
    own_server.execute("CREATE ROLE asked LOGIN PASSWORD 'right-one' IN ROLE perdure_serving")
    (own_server.folder / "data" / "pg_hba.conf").write_text(
        "host all postgres 127.0.0.1/32 trust\nhost all asked 127.0.0.1/32 scram-sha-256\n"
    )
    own_server.execute("SELECT pg_reload_conf()")

    async def use(user: str) -> None:
        store = PostgresStore(own_server.url_of("postgres", user))
        await store.tenants()
        await store.close()

    for user in ("asked", "asked:wrong-one"):
        with pytest.raises(JournalError, match=r"\$PGPASSWORD or in ~/\.pgpass$") as caught:
            anyio.run(use, user)
        assert "\n" not in str(caught.value) and "wrong-one" not in str(caught.value)
    anyio.run(use, "asked:right-one")


def test_a_password_is_never_shown() -> None:
    """SEC-5: places and errors name the host and the database only."""
    store = PostgresStore("postgresql://me:very-secret@127.0.0.1:1/x", patience=1.0)
    assert store.name == "postgresql://127.0.0.1:1/x"

    async def main() -> None:
        await store.tenants()

    with pytest.raises(JournalError) as caught:
        anyio.run(main)
    assert "very-secret" not in str(caught.value) and "127.0.0.1" in str(caught.value)


# --- searching --------------------------------------------------------------------------------------------------------


def test_a_search_uses_the_index_and_finds_its_own_tenant_s_texts_only(
    postgres: str, postgres_server: PostgresServer
) -> None:
    """SCL-6, RCL-1: the one function that row security doesn't hold back says itself whose texts they are."""
    import psycopg

    async def body(home: PostgresHome, _: PostgresHome) -> None:
        for number in range(2):
            made = await begun(home, f"s{number}", *(said(f"m{n}", f"zebra {number} {n}") for n in range(20)))
            await made.journal.close()
        other = home.store.home(new_name())
        theirs = await begun(other, "s1", said("x", "zebra of somebody else"))
        await theirs.journal.close()
        assert [hit.message for hit in (await other.archive().search("zebra")).hits] == ["x"]
        assert len((await home.archive().search("zebra", limit=100)).hits) == 40
        mine = await home.store.db.tenant(home.name)
        theirs_number = await home.store.db.tenant(other.name)
        asked = "SELECT perdure.serve(%s), perdure.holding(%s::tsquery, 100)"
        for tenant, query, count in (
            (mine, f"'{mine}:zebra'", 40),
            (mine, f"'{theirs_number}:zebra'", 0),
            (theirs_number, f"'{theirs_number}:zebra'", 1),
        ):
            with psycopg.connect(postgres) as db:
                row = db.execute(asked, (tenant, query)).fetchone()
                assert row is not None and row[1] == count
        with psycopg.connect(as_superuser(postgres)) as db:
            db.execute("SELECT set_config('perdure.tenant', %s, true)", (str(mine),))
            db.execute("SET LOCAL ROLE perdure_search")
            db.execute("SET LOCAL enable_seqscan = off")
            plan = db.execute(
                f"EXPLAIN SELECT number FROM perdure.texts WHERE stems @@ '''{mine}:zebra'''::tsquery"
            ).fetchall()
            assert any("texts_stems" in row[0] for row in plan), plan

    with_homes(postgres, body)


def test_searches_at_once_take_each_line_in_once(postgres: str) -> None:
    """RCL-1: whoever is slower leaves the lines to who was faster; long sessions are taken in by parts."""

    async def body(first: PostgresHome, second: PostgresHome) -> None:
        made = await first.create("s1", project="/p", created=1.0, durability="process")
        for number in range(1200):
            await made.journal.append((said(f"m{number}", f"quagga number{number}"),))
        await made.journal.close()
        async with anyio.create_task_group() as group:
            for home in (first, second, first, second):
                group.start_soon(home.archive().search, "quagga")
        tenant = await first.store.db.tenant(first.name)
        assert tenant is not None
        counted = await first.store.db.ask(tenant, "SELECT count(*), count(DISTINCT text) FROM perdure.places")
        assert counted == [(1200, 1200)]
        [hit] = (await second.archive().search("number1100")).hits
        assert hit.message == "m1100"
        await first.delete("s1")
        assert await first.store.db.ask(tenant, "SELECT count(*) FROM perdure.texts") == [(0,)]

    with_homes(postgres, body)


# --- upgrades ---------------------------------------------------------------------------------------------------------

DUMPS = Path(__file__).parents[1] / "golden" / "postgres"


async def kept(home: PostgresHome) -> dict[str, Any]:
    """What a home of a dump holds, as one reads it."""
    opened = await home.open("s1")
    loaded = await opened.journal.load(whole=True)
    blobs = [await opened.blobs.get(BlobId(hashlib.sha256(text).hexdigest())) for text in (b"stored", b"x" * 9000)]
    document = await home.documents("conversations").get("one")
    link = await home.links.longest([b"l" * 32])
    found = await home.archive().search("quagga")
    await opened.journal.close()
    return {
        "names": names(loaded),
        "sessions": [(one.id, one.title, one.messages) for one in await home.sessions()],
        "blobs": blobs,
        "notes": await opened.notes.read(),
        "document": document and document.data,
        "link": link,
        "found": [hit.message for hit in found.hits],
        "key": len(await home.secret_key()),
        "memories": [one.name for one in (await home.memories("/memory").store.listing()).files],
    }


KEPT = {
    "names": ["a", "b1", "b", "Titled"],
    "sessions": [("s1", "A title", 2)],
    "blobs": [b"stored", b"x" * 9000],
    "notes": b"# notes",
    "document": b"{}",
    "link": ("s1", 2),
    "found": ["b"],
    "key": 32,
    "memories": ["deploy.md"],
}


async def filled(url: str) -> None:
    """Keep something of each kind."""
    store = PostgresStore(url)
    home = store.home("acme")
    made = await begun(home, "s1", said("a"), boundary("b1"), said("b", "a quagga"), Titled(title="A title"))
    await made.blobs.put((b"stored", b"x" * 9000))
    await made.notes.write(b"# notes", instead_of=None)
    await home.documents("conversations").put("one", b"{}", instead_of=None)
    home.links.enter([KnownLink(b"l" * 32, "s1", 2, "resp_1")])
    await home.secret_key()
    await home.archive().search("quagga")
    await store.work.want("acme", "s1", "notes", 3)
    remembered = SaveMemory(name="deploy.md", text="Anna deploys.")
    await home.memories("/memory").store.write(remembered, BY, mode="auto")
    await made.journal.close()
    await store.close()


def test_a_dump_of_the_newest_schema_is_kept(empty: str, postgres_server: PostgresServer, rewrite_golden: bool) -> None:
    """SCL-1: so that a later version is tested on it. A dump is made once, and never edited."""
    path = DUMPS / f"version-{len(schema.MIGRATIONS)}.sql"
    if rewrite_golden and not path.exists():
        anyio.run(schema.migrate, empty)
        anyio.run(filled, empty)
        path.parent.mkdir(exist_ok=True)
        path.write_text(postgres_server.dump(as_superuser(empty)))
    assert path.is_file(), f"make golden writes {path.name}"


@pytest.mark.parametrize("dump", sorted(DUMPS.glob("*.sql")), ids=lambda path: str(path.stem))
def test_a_database_of_each_version_is_brought_to_the_newest(
    dump: Path, empty: str, postgres_server: PostgresServer
) -> None:
    """SCL-1: with all that it kept, and may be written to afterwards."""
    text = dump.read_text()
    postgres_server.execute(text, url=as_superuser(empty))
    anyio.run(schema.migrate, empty)

    async def main() -> None:
        store = PostgresStore(empty)
        home = store.home("acme")
        expected = KEPT if "perdure.memory_files" in text else {**KEPT, "memories": []}
        assert await kept(home) == expected
        [claim] = await store.work.claim("w", limit=5, seconds=5.0)
        assert (claim.tenant, claim.session, claim.kind, claim.want) == ("acme", "s1", "notes", 3)
        opened = await home.open("s1")
        assert (await opened.journal.append((said("c"),))).seq == 5
        await opened.journal.close()
        await store.close()

    anyio.run(main)
