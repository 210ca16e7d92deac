"""Live sessions in any home: made, opened, forked and searched alike (SCL-1, SCL-4)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.adapters.journal.home import FileHome
from perdure.adapters.journal.memory_home import MemoryHomes
from perdure.adapters.machine.clock import SystemClock
from perdure.adapters.sinks import ListSink
from perdure.engine.session import LiveSession
from perdure.engine.turn import run_turn
from perdure.errors import BadSetting, SessionBusy, SessionNotFound
from perdure.events import SessionsExpired
from perdure.ports.home import Home, Store
from perdure.settings import Settings
from perdure.testing import ScriptedModel
from perdure.transcript.messages import Message
from perdure.transcript.records import Titled
from perdure.transcript.texts import texts_of
from perdure.wiring import SessionOptions, background, create_session, fork_session, open_session
from perdure.wiring.stores import store_at

pytestmark = pytest.mark.contract


@pytest.fixture(params=("files", "memory", "postgres"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return MemoryHomes()
    return store_at(tmp_path if request.param == "files" else request.getfixturevalue("postgres"))


def in_home(test: Callable[[Home], Awaitable[None]]) -> Callable[[Store], None]:
    """A test of a new home of each store."""

    def run(store: Store) -> None:
        async def main() -> None:
            try:
                await test(store.home(secrets.token_hex(8)))
            finally:
                await store.close()

        asyncio.run(main())

    run.__doc__ = test.__doc__
    return run


class Later(SystemClock):
    """Some seconds ahead."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def now(self) -> float:
        return super().now() + self._seconds


def words(session: LiveSession) -> list[str]:
    return ["".join(texts_of(item.message.blocks)) for item in session.view.items]


async def begun(home: Home, session: str, *said: str, **more: Any) -> LiveSession:
    made = await create_session(home, project="/srv/project", session=session, **more)
    for text in said:
        await made.append(Message.of("user", text))
    return made


@in_home
async def test_a_session_goes_on_where_it_was_left(home: Home) -> None:
    """SCL-1: by its id or the beginning of it; one owner at a time, any number of readers."""
    session = await begun(home, "session-one", "the first thing", "the second")
    with pytest.raises(SessionBusy):
        await open_session(home, "session-one")
    reader = await open_session(home, "session-one", read_only=True)
    assert words(reader) == ["the first thing", "the second"]
    await reader.close()
    await session.close()
    again = await open_session(home, "session-o")
    await again.append(Message.of("user", "the third"))
    assert words(again) == ["the first thing", "the second", "the third"]
    await again.close()
    with pytest.raises(SessionNotFound):
        await open_session(home, "nothing")


@in_home
async def test_a_fork_leaves_its_parent_as_it_is(home: Home) -> None:
    """SES-1, SCL-1: it has an id of its own, and says where it comes from."""
    session = await begun(home, "one", "the first thing")
    fork = await fork_session(home, "one")
    await fork.append(Message.of("user", "elsewhere"))
    await session.append(Message.of("user", "here"))
    assert (words(fork), words(session)) == (["the first thing", "elsewhere"], ["the first thing", "here"])
    (info,) = [one for one in await home.sessions() if one.id == fork.id]
    assert info.project == "/srv/project" and (await home.load(fork.id)).header.forked_from == "one"
    await fork.close()
    await session.close()


@in_home
async def test_a_session_finds_what_others_of_its_project_said(home: Home) -> None:
    """RCL-1, SES-2, SCL-1: and nothing of another project."""
    for name, text in (("one", "the walrus sleeps"), ("two", "a walrus and an oyster")):
        await (await begun(home, name, text)).close()
    other = await create_session(home, project="/srv/other", session="three")
    await other.append(Message.of("user", "no walrus of yours"))
    await other.close()
    session = await open_session(home, "one")
    archive = session.ports.archive
    assert archive is not None
    found = await archive.search("walrus")
    assert {hit.session for hit in found.hits} == {"one", "two"} and not found.note
    assert [hit.session for hit in (await archive.search("walrus", sessions=("two",))).hits] == ["two"]
    assert (await archive.search("walrus", limit=1)).hits[0].snippet
    assert not (await archive.search("§")).hits
    loaded, _ = await archive.load("two")
    assert loaded.whole and loaded.header.session == "two"
    with pytest.raises(SessionNotFound):
        await archive.load("three")
    assert {hit.session for hit in (await home.archive().search("walrus")).hits} == {"one", "two", "three"}
    await session.close()


@in_home
async def test_what_nobody_wrote_to_for_long_goes_behind_the_first_answer(home: Home) -> None:
    """SEC-12, SCL-1: but for what has the tag that keeps it, and what somebody is writing; it is said."""
    sink = ListSink()
    await (await begun(home, "old", "the first thing")).close()
    kept = await begun(home, "kept", "the second thing")
    await kept.record(Titled(tags=("keep",)))
    await kept.close()
    at_work = await begun(home, "busy", "the third thing")
    parts = SessionOptions(settings=Settings(retention_days=2.0), sink=sink, clock=Later(4 * 86_400.0))
    session = await create_session(home, project="/srv/project", session="new", parts=parts)
    keepers = background(session)
    await run_turn(session, "Go on.", ScriptedModel(["Well."]), keepers)
    await keepers.drain(session)
    assert {one.id for one in await home.sessions()} == {"kept", "busy", "new"}
    assert [one.sessions for one in sink.events if isinstance(one, SessionsExpired)] == [1]
    for one in (session, at_work):
        await one.close()


@in_home
async def test_a_size_that_is_not_known_is_refused_in_a_line(home: Home) -> None:
    """SEC-12, CLI-5: only of a folder it is known how large it is."""
    parts = SessionOptions(settings=Settings(max_home_bytes=1_000_000))
    if isinstance(home, FileHome):
        await (await create_session(home, project="/srv/project", session="one", parts=parts)).close()
        return
    with pytest.raises(BadSetting, match=r"max_home_bytes = 1000000.*retention_days"):
        await create_session(home, project="/srv/project", session="one", parts=parts)
    assert not await home.has("one")
