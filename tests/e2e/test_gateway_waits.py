"""Who waits for whom at the gateway: a conversation only for itself (GW-3, SPD-8)."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, FrameType, FunctionType, ModuleType
from typing import Any
from weakref import ReferenceType

import anyio
import pytest
from tests.gateways import Running, fake, in_loop, lose_index, serving, store_of

from perdure.adapters.journal import links
from perdure.engine.background import Keepers
from perdure.gateway import turns
from perdure.gateway.requests import BodyCache
from perdure.ports.home import Links
from perdure.transcript.history import LinkCache

pytestmark = pytest.mark.e2e


async def ask(at: Running, *said: Any, key: str | None = None) -> str:
    client = at.claude(max_retries=0) if key is None else at.claude(max_retries=0).with_options(api_key=key)
    messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(said)]
    answer = await client.messages.create(model="fake-model", max_tokens=50, messages=messages)  # type: ignore[arg-type]
    return str(answer.content[0].text)  # type: ignore[union-attr]


@in_loop
async def test_only_a_sessions_own_requests_wait_for_it_to_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GW-3: while one session closes slowly, other conversations of its tenant are answered; its own goes on then."""
    may_close, is_closing, close = asyncio.Event(), asyncio.Event(), Keepers.close

    async def slow(self: Keepers, session: Any) -> None:
        is_closing.set()
        await may_close.wait()
        await close(self, session)

    async with fake() as server, serving(tmp_path, server) as at:
        first = await ask(at, "one")
        (held,) = at.gateway.tenants_open().popitem()[1]
        (sessions,) = at.gateway._sessions.values()
        monkeypatch.setattr(Keepers, "close", slow)
        async with asyncio.timeout(20):
            closing = asyncio.create_task(sessions.let_go(held))
            await is_closing.wait()
            own = asyncio.create_task(ask(at, "one", first, "and on"))
            for n in range(3):
                await ask(at, f"another {n}")
            assert not own.done()
            may_close.set()
            await closing
            await own
        (again,) = [one for one in sessions.open.values() if one.head.count == 4]
        assert again.id == held.id and at.metric("perdure_forks_total") == 0


@pytest.mark.only_on("files", "an index is made of journals; in a database it is entered with their lines")
@in_loop
async def test_an_index_that_is_read_together_again_holds_up_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPD-8: neither the loop nor another tenant waits for the file of one, however long that takes."""
    may_go, read, loop_thread = threading.Event(), links.links_at, threading.get_ident()
    threads: set[int] = set()

    def slow(home: Path) -> Iterator[tuple[bytes, str, int]]:
        is_first = not threads
        threads.add(threading.get_ident())
        if is_first:
            was_told.append(may_go.wait(10))
        return read(home)

    was_told: list[bool] = []
    monkeypatch.setattr(links, "links_at", slow)
    async with fake() as server, serving(tmp_path, server) as at, asyncio.timeout(30):
        waiting = asyncio.create_task(ask(at, "one", key="alice"))
        while not threads:  # noqa: ASYNC110 - a thread announces nothing to the loop
            await anyio.sleep(0.01)
        for n in range(3):
            await ask(at, f"hello {n}", key="bob")
        assert not waiting.done() and loop_thread not in threads
        may_go.set()
        await waiting
    assert was_told == [True]


@pytest.mark.only_on("files", "an index is made of journals; in a database it is entered with their lines")
@in_loop
async def test_an_index_that_was_only_begun_is_read_together_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """REL-12: a process that dies while it reads the journals together leaves no index that lacks the rest."""

    def breaks(home: Path) -> Iterator[tuple[bytes, str, int]]:
        yield from read(home)
        raise OSError("the machine stops here")

    read = links.links_at
    async with fake() as server, serving(tmp_path, server) as at:
        first = await ask(at, "one")
        (held,) = at.gateway.tenants_open().popitem()[1]
    lose_index(tmp_path)
    monkeypatch.setattr(links, "links_at", breaks)
    async with fake() as server, serving(tmp_path, server) as at:
        await ask(at, "something else")
    monkeypatch.setattr(links, "links_at", read)
    async with fake() as server, serving(tmp_path, server) as at:
        await ask(at, "one", first, "and on")
        (again,) = at.gateway.tenants_open().popitem()[1]
        assert again.id == held.id and again.head.count == 4


def empty_index(home: Path) -> None:
    (index,) = home.rglob("links.sqlite")
    with closing(sqlite3.connect(index)) as db, db:
        assert db.execute("DELETE FROM links").rowcount and db.execute("PRAGMA user_version").fetchone() != (0,)


@pytest.mark.only_on("files", "an index is made of journals; in a database it is entered with their lines")
@in_loop
async def test_an_index_that_a_kill_left_behind_catches_up_with_the_journals(tmp_path: Path) -> None:
    """GW-2, REL-1: what was entered last was never written, and the file says that it is whole."""
    async with fake() as server, serving(tmp_path, server) as at:
        first = await ask(at, "one")
        (held,) = at.gateway.tenants_open().popitem()[1]
    empty_index(tmp_path)
    async with fake() as server, serving(tmp_path, server) as at:
        await ask(at, "one", first, "and on")
        (again,) = at.gateway.tenants_open().popitem()[1]
        assert again.id == held.id and again.head.count == 4


# --- what a request leaves behind -----------------------------------------------------------------------------------


@pytest.mark.nightly
@in_loop
async def test_memory_doesnt_grow_with_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GW-3: once what is bounded is full, another conversation leaves nothing behind that the gateway can reach."""
    monkeypatch.setattr(turns, "LinkCache", partial(LinkCache, most=20))
    monkeypatch.setattr(turns, "BodyCache", partial(BodyCache, most=4))
    async with fake() as server, serving(tmp_path, server, open_sessions=3) as at:

        async def reached(conversations: range) -> int:
            for number in conversations:
                key = f"key {number % 2}"
                first = await ask(at, f"one {number}", key=key)
                await ask(at, f"one {number}", first, "and on", key=key)
            await at.gateway.jobs.drain()
            for tenant in at.gateway._sessions.values():
                await tenant.flush()
            at.sink.events.clear()
            return reachable(at.gateway)

        await reached(range(12))
        before = await reached(range(12, 24))
        after = await reached(range(24, 64))
        assert after - before < 40, "each conversation left something"


def reachable(root: object) -> int:
    """How many objects there are that something holds, what is the program's own left out."""
    code = (type, ModuleType, FunctionType, BuiltinFunctionType, FrameType)
    own = (*code, asyncio.AbstractEventLoop, asyncio.Future, ReferenceType)
    gc.collect()
    seen, todo = {id(root)}, [root]
    while todo:
        for one in gc.get_referents(todo.pop()):
            if id(one) not in seen and not isinstance(one, own):
                seen.add(id(one))
                todo.append(one)
    return len(seen)


@in_loop
async def test_the_index_is_asked_only_where_another_session_may_know_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GW-2, GW-3: of a conversation that nobody shares its session knows all; once it was forked, the index decides."""
    kind: Any = type(store_of(tmp_path).home().links)
    asked, longest = list[int](), kind.longest

    async def noted(self: Links, links: Sequence[bytes]) -> tuple[str, int] | None:
        asked.append(len(links))
        return await longest(self, links)

    monkeypatch.setattr(kind, "longest", noted)
    async with fake() as server, serving(tmp_path, server) as at:
        first = await ask(at, "one")
        second = await ask(at, "one", first, "and on")
        asked.clear()
        third = await ask(at, "one", first, "and on", second, "further")
        assert not asked
        await ask(at, "one", first, "elsewhere")  # forks it
        assert at.metric("perdure_forks_total") == 1
        asked.clear()
        await ask(at, "one", first, "and on", second, "further", third, "still")
        await ask(at, "one", first, "elsewhere", "x", "more")
        assert len(asked) == 2
        assert len(at.held) <= 3
