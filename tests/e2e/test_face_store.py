"""The library on a store: a URL as `home`, and one store that many sessions share (LIB-1, LIB-4, SCL-1, SCL-6)."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

import perdure
from perdure import Agent, Session, SharedStore
from perdure.engine.session import LiveSession
from perdure.errors import BadSetting, JournalError, SessionBusy, SessionNotFound, WrongLoop
from perdure.face.session import _opened
from perdure.testing import ScriptedModel

if TYPE_CHECKING:
    from perdure.testing.postgres import PostgresServer

pytestmark = pytest.mark.e2e


@pytest.fixture(params=("files", "postgres"))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store is, as a program writes it."""
    return str(tmp_path / "store") if request.param == "files" else str(request.getfixturevalue("postgres"))


@pytest.fixture
def prefix() -> str:
    """What makes the names of a test its own: all tests of this module share a database."""
    return secrets.token_hex(4)


@pytest.fixture
def connected(postgres_server: PostgresServer, postgres: str) -> Iterator[Any]:
    """How many connections to the database are open."""

    def count() -> int:
        name = postgres.rpartition("/")[2]
        rows = postgres_server.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND application_name = 'perdure'", (name,)
        )
        return int(rows[0][0])

    yield count


def test_a_session_is_kept_where_its_home_says(place: str, prefix: str, tmp_path: Path) -> None:
    """LIB-1, SCL-1: made, opened by its whole id, searched and recalled, on files and in a database alike."""

    async def body() -> None:
        name = f"{prefix}-letters"
        async with Session.create(tmp_path, home=place, id=name) as session:
            await session.append(perdure.Message.of("user", "The walrus sings.", id="m1"))
            with pytest.raises(SessionBusy):
                await Session.open(name, home=place)
        with pytest.raises(JournalError, match="open it instead"):
            await Session.create(tmp_path, home=place, id=name)
        with pytest.raises(SessionNotFound):
            await Session.open(name[:-1], home=place)
        async with Session.open(name, home=place) as again:
            assert "The walrus sings." in str(again.messages())
            assert await again.recall("m1") == "The walrus sings."
            assert [hit.session for hit in (await again.search("walrus")).hits] == [name]
            await again.append("And again.")
        async with Session.open(name, home=place, read_only=True) as reader:
            assert len(reader.view.items) == 2

    anyio.run(body)


def test_a_name_has_one_session_in_any_home(place: str, prefix: str, tmp_path: Path) -> None:
    """LIB-4: begun once, gone on with afterwards, also when several begin it at once; another owner's is another."""

    async def body() -> None:
        async def say(text: str) -> None:
            while True:
                try:
                    async with Session.named(f"{prefix}@example.org", tmp_path, home=place) as session:
                        await session.append(text)
                    return
                except SessionBusy:
                    await anyio.sleep(0.02)

        async with anyio.create_task_group() as group:
            for number in range(4):
                group.start_soon(say, f"message {number}")
        async with Session.named(f"{prefix}@example.org", tmp_path, home=place) as session:
            said = sorted(one["content"] for one in session.messages())
            assert "".join(str(one) for one in said).count("message") == 4
            assert session.view.state.title.title == f"{prefix}@example.org"
        async with Session.named(f"{prefix}@example.org", tmp_path, owner="bob", home=place) as other:
            assert not other.view.items

    anyio.run(body)


def test_many_sessions_share_one_store(place: str, prefix: str, tmp_path: Path) -> None:
    """SCL-1, SCL-6: hundreds of open sessions of several tenants, none of which sees another's."""
    people = [f"{prefix}-{name}" for name in ("alice", "bob", "carol")]

    async def body() -> None:
        async with SharedStore.at(place) as store:
            opened = [
                await Session.create(tmp_path, home=store.home(people[number % 3]), id=f"chat-{number // 3}")
                for number in range(150)
            ]
            async with anyio.create_task_group() as group:
                for number, session in enumerate(opened):
                    group.start_soon(session.append, f"secret {people[number % 3]} {number // 3}")
            assert all(len(session.view.items) == 1 for session in opened)
            for session in opened:
                await session.close()
            assert set(people) <= set(await store.tenants())
            listed = await store.sessions(people[0], limit=10)
            assert len(listed) == 10 and all(f"secret {people[0]}" in (one.last_prompt or "") for one in listed)
            assert len(await store.sessions(people[0], project=tmp_path)) == 50
            assert await store.sessions(people[0], project=tmp_path / "elsewhere") == []
            await store.delete("chat-0", people[0])
            with pytest.raises(SessionNotFound):
                await Session.open("chat-0", home=store.home(people[0]))
            async with Session.open("chat-0", home=store.home(people[1])) as theirs:
                assert str(people[1]) in str(theirs.messages())
            await store.delete_tenant(people[0])
            assert people[0] not in await store.tenants() and people[1] in await store.tenants()

    anyio.run(body)


def test_connections_are_shared_and_go_with_their_store(postgres: str, connected: Any, tmp_path: Path) -> None:
    """SCL-1: a session holds no connection; the store of a URL goes with its session, however that ends."""

    async def body() -> None:
        async with SharedStore.at(postgres, connections=2) as store:
            sessions = [await Session.create(tmp_path, home=store.home("many")) for _ in range(20)]
            async with anyio.create_task_group() as group:
                for session in sessions:
                    group.start_soon(session.append, "hello")
            assert 1 <= connected() <= 2
            for session in sessions:
                await session.close()
        async with Session.create(tmp_path, home=postgres, id="own-store"):
            assert connected() >= 1
        for failing in (
            Session.open("nobody-has-this", home=postgres),
            Session.create(tmp_path, home=postgres, id="own-store"),
            Session.create(tmp_path, home=postgres, id="not an id"),
        ):
            with pytest.raises(perdure.PerdureError):
                await failing
        with anyio.move_on_after(10):
            while connected():  # noqa: ASYNC110 - the server notices a closed connection by itself
                await anyio.sleep(0.02)
        assert connected() == 0

    anyio.run(body)


def test_the_face_without_a_loop_shares_a_store_too(place: str, prefix: str, tmp_path: Path) -> None:
    """LIB-5, SCL-1: `perdure.sync.SharedStore`, whose homes its sessions take; and a URL."""
    from perdure import sync

    with sync.SharedStore.at(place) as store:
        with (
            sync.Session.create(tmp_path, home=store.home(prefix), id="one") as one,
            sync.Session.named("two of them", tmp_path, home=store.home(prefix)) as two,
        ):
            one.append("hello")
            two.append("there")
        assert {info.last_prompt for info in store.sessions(prefix)} == {"hello", "there"}
        assert prefix in store.tenants()
        store.delete("one", prefix)
        assert len(store.sessions(prefix)) == 1
    with sync.Session.create(tmp_path, home=place, id=f"{prefix}-sync") as session:
        session.append("hello")
    with sync.Session.open(f"{prefix}-sync", home=place) as session:
        assert len(session.view.items) == 1


def test_a_store_of_another_loop_is_refused(postgres: str, tmp_path: Path) -> None:
    """SCL-1, LIB-5: LangChain's and Hermes's sessions live in the loop of `perdure.sync`."""
    from perdure import sync

    async def body() -> None:
        async with SharedStore.at(postgres) as store:
            with pytest.raises(WrongLoop, match="another event loop"):
                await anyio.to_thread.run_sync(lambda: sync.Session.create(tmp_path, home=store.home("x")))

    anyio.run(body)


def test_an_agent_works_and_goes_on_in_a_store(place: str, prefix: str, tmp_path: Path) -> None:
    """LIB-1, SCL-1: its conversation is in the store, and is taken up again; nothing is left of it on this disk."""
    (tmp_path / "app").mkdir()

    async def body() -> None:
        async with SharedStore.at(place) as store:
            home = store.home(prefix)
            async with Agent.create(tmp_path / "app", model=ScriptedModel(["Done."]), home=home) as agent:
                assert (await agent.run("Tidy up.")).text == "Done."
                name = agent.session.id
            async with Agent.create(tmp_path / "app", model=ScriptedModel(["Yes."]), home=home, resume=name) as agent:
                assert (await agent.run("Is it tidy?")).text == "Yes."
                assert "Tidy up." in str(agent.session.messages())
            (info,) = await store.sessions(prefix)
            assert info.id == name
        async with Agent.create(tmp_path / "app", model=ScriptedModel(["Hi."]), home=place) as agent:
            assert (await agent.run("Hello")).text == "Hi."

    anyio.run(body)


def test_an_integration_takes_a_home_of_a_store(postgres: str, prefix: str) -> None:
    """SCL-1: as `Session.named` takes it, without code of its own."""
    openai_agents = pytest.importorskip("perdure.integrations.openai_agents")

    async def body() -> None:
        async with SharedStore.at(postgres) as store:
            for _ in range(2):
                async with openai_agents.PerdureSession("talk", home=store.home(prefix)) as memory:
                    await memory.add_items([{"role": "user", "content": "hello"}])
            assert [one.messages for one in await store.sessions(prefix)] == [2]

    anyio.run(body)


def test_a_home_that_cannot_be_is_one_clear_line(
    postgres: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """LIB-5, SCL-1: no such store, one that doesn't answer, a password nobody may read, a store for a home."""
    port = postgres_server.port
    unknown = f"postgresql://nobody:s3cret-word@127.0.0.1:{port}/perdure"
    tried: list[tuple[Any, type[Exception], str]] = [
        ("mysql://db/perdure", BadSetting, "isn't known"),
        ("postgresql://user:s3cret-word@h/db?nothing=1", BadSetting, "not the URL of a PostgreSQL database"),
        ("postgresql://user:s3cret-word@[h/db", BadSetting, "not the URL of a PostgreSQL database"),
        (unknown, JournalError, "nobody"),
        ("postgresql://user:s3cret-/word@h/db", BadSetting, "%2F"),
        ("postgresql://user:12/s3cret-word@h/db", BadSetting, "%2F"),
        ("postgresql://user:s3cret-word@127.0.0.1:1/db", JournalError, "127.0.0.1:1/db"),
        (postgres_server.url_of("postgres", "perdure_owner"), JournalError, "perdure store migrate"),
        ("", BadSetting, "the path of a folder"),
        (7, BadSetting, "store.home("),
    ]

    async def body() -> None:
        for given, kind, said in tried:
            for opening in (Session.create, Session.named):
                with pytest.raises(kind, match=re.escape(said)) as refused:
                    await opening("name", home=given)
                told = str(refused.value)
                assert "\n" not in told and "s3cret" not in told, told
                assert "s3cret-word" not in str(refused.value.__cause__)
        async with SharedStore.at(tmp_path / "store") as store:
            with pytest.raises(BadSetting, match="home for each tenant"):
                Session.create(".", home=store)  # type: ignore[arg-type]
            for odd in ("../x", "a\0b"):
                with pytest.raises(perdure.PerdureError):
                    await Session.create(".", home=store.home(odd))
        for given in (unknown, "postgresql://user@127.0.0.1:1/db"):
            with pytest.raises(JournalError):
                await SharedStore.at(given)

    anyio.run(body)


def test_what_fails_after_opening_closes_its_store(tmp_path: Path) -> None:
    """SCL-1: also where the opening is cancelled."""

    class Counted:
        closed = 0

        async def close(self) -> None:
            await anyio.lowlevel.checkpoint()
            self.closed += 1

    async def never(home: Any) -> LiveSession:
        await anyio.sleep_forever()
        raise AssertionError

    async def body() -> None:
        own: Any = Counted()
        with anyio.move_on_after(0.01):
            await _opened(never, tmp_path, own)
        assert own.closed == 1

    anyio.run(body)
