"""Memories in any home: shown, found and changed alike, apart for each tenant (SCL-1, SCL-4, SCL-6, MEM-1)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.contract.test_homes import Place, in_home, kind, new_name, place, run

from perdure.adapters.machine.repositories import project_root
from perdure.adapters.memory.catalogue import FolderMemories
from perdure.adapters.memory.store import BATCH, StoredMemories
from perdure.adapters.postgres.database import Database
from perdure.adapters.postgres.memories import OpenedRows, PostgresFolder
from perdure.adapters.sinks import ListSink
from perdure.engine.reminders import remind
from perdure.errors import FileRefused, FolderBusy, JournalError, MemoryChanged
from perdure.memory.changes import DeleteMemory, MemoryBatch, RenameMemory, SaveMemory, Stamp
from perdure.memory.retrieval import MemoryQuery
from perdure.ports.home import Home, KeptMemories
from perdure.settings import Settings
from perdure.testing.postgres import PostgresServer
from perdure.transcript.messages import Message
from perdure.transcript.texts import texts_of
from perdure.wiring import SessionOptions, create_session, memories_of
from perdure.wiring.remembering import OpenedMemories

pytestmark = pytest.mark.contract
assert kind and place  # fixtures

BY = Stamp(origin="user", at=1.0, session="s1", message="m1")
DEPLOYS = "---\nname: Deploys\ndescription: who deploys to staging and when\ntype: project\n---\nAnna, on Fridays.\n"


def project_of(home: Home) -> KeptMemories:
    """The memories of a project on another machine."""
    return home.memories(home.memory_roots("/srv/shop", is_remote=True).kept)


async def save(memories: KeptMemories, name: str, text: str, base: str | None = None) -> str:
    return (await memories.store.write(SaveMemory(name=name, text=text, base=base), BY, mode="auto")).outcome


async def found(memories: KeptMemories, query: str = "who deploys to staging?") -> list[str]:
    return [one.card.file for one in (await memories.search.find(MemoryQuery(query=query, now=2.0))).chosen]


def test_what_one_process_saves_the_next_question_of_another_finds(place: Place) -> None:
    """MEM-12, SCL-1: a memory that came, was changed, renamed or went; nothing is made by looking."""

    async def body() -> None:
        tenant = new_name()
        mine, theirs = (project_of(place.store().home(tenant)) for _ in range(2))
        assert await found(theirs) == [] and await theirs.search.is_empty() and not await theirs.store.is_there()
        assert await save(mine, "deploy.md", DEPLOYS) == "written"
        assert await found(theirs) == ["deploy.md"] and not await theirs.search.is_empty()
        (topic,) = await theirs.search.read(("deploy.md", "gone.md", "../x.md"))
        assert (topic.name, topic.type) == ("Deploys", "project")
        assert await save(mine, "MEMORY.md", "- [Deploys](deploy.md) — staging") == "written"
        index = await theirs.search.index()
        assert index.text == "- [Deploys](deploy.md) — staging" and set(index.modified) == {"deploy.md"}
        now = DEPLOYS.replace("deploys to staging", "waters the plants").replace("Deploys", "Plants")
        assert await save(mine, "deploy.md", now, DEPLOYS) == "written"
        assert await found(theirs, "who waters the plants?") == ["deploy.md"]
        await mine.store.write(RenameMemory(name="deploy.md", to="team/plants.md", base=now), BY, mode="auto")
        assert await found(theirs, "who waters the plants?") == ["team/plants.md"]
        await mine.store.write(DeleteMemory(name="team/plants.md", base=now), BY, mode="auto")
        assert await found(theirs, "who waters the plants?") == []
        await mine.store.undo(None, BY)
        assert await found(theirs, "who waters the plants?") == ["team/plants.md"]

    run(place, body)


def test_how_often_a_memory_was_shown_is_counted_and_is_no_change(place: Place) -> None:
    """MEM-12: beside the memories, for all that share them; a log of changes knows nothing of it."""

    async def body() -> None:
        tenant = new_name()
        mine, theirs = (project_of(place.store().home(tenant)) for _ in range(2))
        await save(mine, "deploy.md", DEPLOYS)
        assert await mine.search.used(("deploy.md",)) == {"deploy.md": 1}
        assert await theirs.search.used(("deploy.md",)) == {"deploy.md": 2}
        assert await project_of(place.store().home(tenant)).search.used() == {"deploy.md": 2}
        assert len(await mine.store.entries()) == 1 and len((await mine.store.listing()).files) == 1

    run(place, body)


def test_a_tenant_has_memories_of_its_own_and_they_go_with_it(place: Place) -> None:
    """SCL-6: another tenant's project of the same name is another one; nothing of a deleted one is found again."""

    async def body() -> None:
        store, mine, other = place.store(), new_name(), new_name()
        await save(project_of(store.home(mine)), "deploy.md", DEPLOYS)
        theirs = project_of(store.home(other))
        assert await found(theirs) == [] and await theirs.store.read("deploy.md") is None
        assert await theirs.store.entries() == () and not await theirs.store.is_there()
        assert mine in await store.tenants() and other not in await store.tenants()
        await save(theirs, "deploy.md", DEPLOYS)
        await store.delete_tenant(mine)
        assert mine not in await store.tenants() and await found(theirs) == ["deploy.md"]
        again = project_of(store.home(mine))
        assert await found(again) == [] and await again.store.read("deploy.md") is None
        assert await again.store.entries() == ()

    run(place, body)


def test_only_one_puts_a_directory_in_order(place: Place) -> None:
    """MEM-11: whoever comes second is told at once; afterwards it is free."""

    async def body() -> None:
        tenant = new_name()
        mine, theirs = (project_of(place.store().home(tenant)) for _ in range(2))
        assert not await mine.store.is_due("s1", 0.0, seconds=0.0, sessions=1)
        await save(mine, "deploy.md", DEPLOYS)
        assert not await mine.store.is_due("s1", 10.0, seconds=5.0, sessions=2)
        assert await theirs.store.is_due("s2", 20.0, seconds=5.0, sessions=2)
        async with mine.store.alone():
            with pytest.raises(FolderBusy):
                async with theirs.store.alone():
                    raise AssertionError
        async with theirs.store.alone():
            await theirs.store.done(30.0)
        assert not await mine.store.is_due("s3", 40.0, seconds=5.0, sessions=2)

    run(place, body)


def test_a_project_on_another_machine_is_a_name(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SEC-7: whatever this disk has at that path, nothing of it is looked at; here, it is the repository's."""
    real, link = tmp_path / "real", tmp_path / "link"
    (real / ".git").mkdir(parents=True)
    (real / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (real / "sub").mkdir()
    link.symlink_to(real)

    async def body() -> None:
        home = place.store().home(new_name())
        here = home.memory_roots(str(link / "sub"))
        assert here.kept == home.memory_roots(str(real)).kept and project_root(link / "sub") == real
        touched: list[Any] = []
        for name in ("stat", "lstat", "readlink", "scandir", "listdir", "open"):
            monkeypatch.setattr(os, name, lambda path, *_, name=name, **__: touched.append((name, path)))
        there = home.memory_roots(str(link / "sub"), is_remote=True)
        other = home.memory_roots("~/shop", is_remote=True)
        monkeypatch.undo()
        assert not touched and len({there.kept, other.kept, here.kept}) == 3

    run(place, body)


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_a_session_keeps_what_its_user_says_and_the_next_one_knows_it(place: Place, mode: Any, tmp_path: Path) -> None:
    """MEM-2, MEM-4, MEM-7: in any home; a session that may not write doesn't."""

    async def body(home: Home) -> None:
        sink = ListSink()
        parts = SessionOptions(settings=Settings(memory_mode=mode), sink=sink)

        async def talk(name: str, text: str) -> str:
            session = await create_session(home, project=tmp_path / "shop", session=name, parts=parts)
            await session.append(Message.of("user", text))
            for moment in ("before", "behind"):
                await remind(session, moment)  # type: ignore[arg-type]
            said = "".join(text for item in session.view.items for text in texts_of(item.message.blocks))
            await session.close()
            return said

        first = await talk("one", "Remember that Anna deploys to staging on Fridays.")
        assert ("Remembered as" in first) == (mode == "auto")
        second = await talk("two", "Who deploys to staging?")
        assert ("Anna deploys to staging on Fridays" in second) == (mode == "auto")
        opened: OpenedMemories = memories_of(home, tmp_path / "shop", Settings(), sink)
        assert len((await opened.access.mounts[0].memory.store.listing()).files) == (2 if mode == "auto" else 0)

    in_home(place, body)


def test_the_setting_for_a_folder_holds_in_any_home(place: Place, tmp_path: Path) -> None:
    """MEM-1: `memory_directory` names a folder of this machine; the user's own memories stay in the home."""

    async def body(home: Home) -> None:
        settings = Settings(memory_directory=str(tmp_path / "notes"))
        opened = memories_of(home, tmp_path / "shop", settings, ListSink())
        for mount in opened.access.mounts:
            await mount.memory.store.write(SaveMemory(name="deploy.md", text=DEPLOYS), BY, mode="auto")
        assert (tmp_path / "notes" / "deploy.md").read_text() == DEPLOYS
        assert opened.search is not None
        asked = await opened.search.find(MemoryQuery(query="who deploys to staging?", now=2.0))
        assert {one.card.file for one in asked.chosen} == {"deploy.md", "user/deploy.md"}

    in_home(place, body)


# --- PostgreSQL's own -------------------------------------------------------------------------------------------------

FIRST = {"a.md": "a", "b.md": "b", "c.md": "c"}
AFTER = {"a.md": "merged", "t/n.md": "new", "d.md": "c"}
TOGETHER = MemoryBatch(
    name="tidy",
    changes=(
        SaveMemory(name="a.md", text="merged", base="a"),
        SaveMemory(name="t/n.md", text="new"),
        DeleteMemory(name="b.md", base="b"),
        RenameMemory(name="c.md", to="d.md", base="c"),
    ),
)


async def texts(store: StoredMemories) -> dict[str, str]:
    read = [(one.name, await store.read(one.name)) for one in (await store.listing()).files]
    return {name: one.text for name, one in read if one is not None}


@asynccontextmanager
async def folders(url: str, count: int = 2) -> AsyncIterator[list[StoredMemories]]:
    """One directory, as several processes have it."""
    databases, tenant = [Database(url) for _ in range(count)], new_name()
    try:
        yield [StoredMemories(PostgresFolder(db, tenant, "/projects/p/memory")) for db in databases]
    finally:
        for db in databases:
            await db.close()


async def first_of(stores: list[StoredMemories]) -> None:
    for name, text in FIRST.items():
        await stores[0].write(SaveMemory(name=name, text=text), BY, mode="auto")


def test_a_connection_that_is_cut_anywhere_in_a_batch_leaves_all_of_it_or_nothing(
    postgres: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REL-7, MEM-11, SCL-4: at each of its statements; it is tried again, and is done and logged once."""

    async def body() -> None:
        real, count, cut_at = OpenedRows._asked, 0, 1

        async def asked(self: OpenedRows, statement: str, values: Any) -> Any:
            nonlocal count
            count += 1
            if count == cut_at:
                pid = self._cursor.connection.info.backend_pid
                ended = "SELECT pg_terminate_backend(%s)"
                await anyio.to_thread.run_sync(lambda: postgres_server.execute(ended, (pid,)))
            return await real(self, statement, values)

        while True:
            async with folders(postgres) as stores:
                await first_of(stores)
                monkeypatch.setattr(OpenedRows, "_asked", asked)
                count = 0
                done = await stores[0].write(TOGETHER, BY, mode="auto")
                monkeypatch.undo()
                assert done.outcome == "written" and await texts(stores[1]) == AFTER, cut_at
                logged = [one.action for one in await stores[1].entries() if one.stamp.batch == done.entry]
                assert sorted(logged) == ["delete", "rename", "save", "save"], cut_at
                await stores[1].undo(done.entry, BY)
                assert await texts(stores[0]) == FIRST
            if count < cut_at:
                break
            cut_at += 1
        assert cut_at > 12

    anyio.run(body)


@pytest.mark.nightly
def test_a_process_that_is_lost_in_a_batch_leaves_nothing_of_it(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """REL-7: at each of its statements: nobody tries again, and nobody has to take anything back."""

    class Lost(BaseException):
        pass

    async def body() -> None:
        real, count, cut_at = OpenedRows._asked, 0, 1

        async def asked(self: OpenedRows, statement: str, values: Any) -> Any:
            nonlocal count
            count += 1
            if count >= cut_at:
                await self._cursor.connection.close()
                raise Lost
            return await real(self, statement, values)

        is_over = False
        while not is_over:
            async with folders(postgres) as stores:
                await first_of(stores)
                monkeypatch.setattr(OpenedRows, "_asked", asked)
                count = 0
                try:
                    await stores[0].write(TOGETHER, BY, mode="auto")
                    is_over = True
                except Lost:
                    pass
                monkeypatch.undo()
                assert await texts(stores[1]) == (AFTER if is_over else FIRST), cut_at
                assert len(await stores[1].entries()) == (7 if is_over else 3)
                assert len(await stores[0].entries()) == (7 if is_over else 3)  # what it had read is forgotten
                cut_at += 1
        assert cut_at > 12

    anyio.run(body)


def test_what_is_committed_without_an_answer_is_done_once(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """SCL-3: a change, a batch, a proposal, an undo; whoever asked hears what came of the first attempt."""
    import psycopg

    real, lost = Database.transaction, list[str]()

    @asynccontextmanager
    async def losing(self: Database, tenant: int) -> AsyncIterator[Any]:
        async with real(self, tenant) as cursor:
            yield cursor
        if lost:
            lost.pop()
            try:
                raise psycopg.OperationalError("the connection is lost")
            except psycopg.OperationalError as e:
                raise JournalError("the connection is lost") from e

    monkeypatch.setattr(Database, "transaction", losing)

    async def body() -> None:
        async with folders(postgres) as stores:
            mine, theirs = stores

            async def once(ask: Callable[[], Awaitable[Any]]) -> Any:
                lost.append("")
                given = await ask()
                assert not lost
                return given

            await first_of(stores)
            done = await once(lambda: mine.write(TOGETHER, BY, mode="auto"))
            assert done.outcome == "written" and len(await theirs.entries()) == 7
            change = SaveMemory(name="a.md", text="again", base="merged")
            proposal = await once(lambda: mine.propose(change, BY, "it has to wait"))
            assert await theirs.pending() == (proposal,)
            assert (await once(lambda: mine.approve(proposal.id))).outcome == "written"
            assert await theirs.pending() == () and len(await theirs.entries()) == 8
            (back,) = await once(lambda: mine.undo(None, BY))
            assert back.outcome == "written" and (await texts(theirs))["a.md"] == "merged"
            assert len(await theirs.entries()) == 9
            with pytest.raises(MemoryChanged):
                await once(lambda: mine.write(DeleteMemory(name="a.md", base="other"), BY, mode="auto"))

    anyio.run(body)


WRITER = """
import anyio, sys
from perdure.adapters.memory.store import StoredMemories
from perdure.adapters.postgres.database import Database
from perdure.adapters.postgres.memories import PostgresFolder
from perdure.memory.changes import SaveMemory, Stamp

async def main(url, tenant, number):
    db = Database(url)
    store = StoredMemories(PostgresFolder(db, tenant, "/projects/p/memory"))
    for count in range(25):
        read = await store.read("a.md")
        line = f"{number}-{count}\\n"
        change = SaveMemory(name="a.md", text=read.text + line, base=read.text)
        done = await store.write(change, Stamp(origin="user", at=1.0), mode="auto")
        print(done.outcome, flush=True)
    await db.close()

anyio.run(main, *sys.argv[1:])
"""


@pytest.mark.nightly
def test_two_processes_that_write_one_memory_at_once_lose_no_line(postgres: str) -> None:
    """REL-7, MEM-9: each reads, adds a line and writes; what met another's line was merged with it."""
    tenant = new_name()

    async def begin() -> None:
        db = Database(postgres)
        store = StoredMemories(PostgresFolder(db, tenant, "/projects/p/memory"))
        await store.write(SaveMemory(name="a.md", text="begin\n"), BY, mode="auto")
        await db.close()

    async def end() -> tuple[str, int]:
        db = Database(postgres)
        store = StoredMemories(PostgresFolder(db, tenant, "/projects/p/memory"))
        read, logged = await store.read("a.md"), await store.entries(limit=1_000)
        await db.close()
        assert read is not None
        return read.text, len(logged)

    anyio.run(begin)
    words = [sys.executable, "-c", WRITER, postgres, tenant]
    writers = [subprocess.Popen([*words, str(n)], stdout=subprocess.PIPE, text=True) for n in range(2)]
    outcomes = [line for one in writers for line in one.communicate()[0].split()]
    assert len(outcomes) == 50 and set(outcomes) <= {"written", "merged"}
    text, logged = anyio.run(end)
    assert sorted(text.split()) == sorted(["begin", *(f"{n}-{c}" for n in range(2) for c in range(25))])
    assert logged == 51


def test_a_directory_that_somebody_holds_for_long_is_busy(postgres: str) -> None:
    """SCL-3: whoever waits for its lock is told, as of a folder, and nothing is lost."""

    async def body() -> None:
        async with folders(postgres, 1) as (store,):
            await store.write(SaveMemory(name="a.md", text="one"), BY, mode="auto")
            folder = store.folder
            assert isinstance(folder, PostgresFolder)
            number = await folder.db.tenant(folder.tenant)
            async with folder.db.transaction(number or 0) as cursor:
                await cursor.execute(b"SELECT FROM perdure.memory_folders FOR UPDATE")
                real = Database.transaction

                @asynccontextmanager
                async def hasty(self: Database, tenant: int) -> AsyncIterator[Any]:
                    async with real(self, tenant) as inner:
                        await inner.execute(b"SET LOCAL lock_timeout = '50ms'")
                        yield inner

                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(Database, "transaction", hasty)
                    with pytest.raises(FolderBusy, match="try again"):
                        await store.write(SaveMemory(name="a.md", text="two", base="one"), BY, mode="auto")
                    assert (await store.read("a.md")) is not None
            done = await store.write(SaveMemory(name="a.md", text="two", base="one"), BY, mode="auto")
            assert done.outcome == "written"

    anyio.run(body)


def test_a_database_that_is_away_is_said_as_a_refusal(postgres: str) -> None:
    """REL-10: in one line, also where memories are only shown: a session goes on without them."""

    async def body() -> None:
        away = Database("postgresql://127.0.0.1:1/x", patience=1.0)
        folder = PostgresFolder(away, "t", "/memory")
        with pytest.raises(FileRefused) as caught:
            await StoredMemories(folder).listing()
        assert "\n" not in str(caught.value) and "127.0.0.1" in str(caught.value)
        assert await FolderMemories(folder).is_empty()

    anyio.run(body)


def test_nothing_of_a_plan_stays_behind_a_batch(postgres: str) -> None:
    """REL-7: the plan that makes a batch whole on a disk isn't needed here, and is never seen."""

    async def body() -> None:
        async with folders(postgres) as stores:
            await first_of(stores)
            await stores[0].write(TOGETHER, BY, mode="auto")
            assert await stores[1].folder.run(lambda folder: folder.stat(BATCH), create=False) is None

    anyio.run(body)
