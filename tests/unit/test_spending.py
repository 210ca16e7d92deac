"""Caps on spending: what is written down, and when a call may not be made (OBS-2)."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.services import FixedClock

from perdure.adapters.journal.memory_home import MemoryDocuments, MemoryHomes
from perdure.adapters.machine.clock import RandomIds
from perdure.adapters.spending import FOLDER, CappedSpending, Caps, SharedSpending
from perdure.errors import JournalError, SpendingCapReached
from perdure.ports.home import Documents, Store
from perdure.ports.session import Ids, SpendingCaps
from perdure.testing.models import CountingIds
from perdure.wiring.stores import store_at

DAY = 86_400.0


class Home:
    """Sessions of one home, each with its caps: in files, in memory alone, or as documents that others share."""

    def __init__(self, path: Path | None, shared: Documents | None = None) -> None:
        self.path, self.shared, self.clock = path, shared, FixedClock()
        self.ids: Ids = CountingIds()

    def caps(
        self, session: str = "one", *, of_session: float | None = None, of_day: float | None = None
    ) -> SpendingCaps:
        caps = Caps(session=session, created=1_750_000_000.0, session_usd=of_session, day_usd=of_day)
        if self.shared is not None:
            return SharedSpending(self.shared, caps, clock=self.clock, ids=self.ids)
        return CappedSpending(self.path, caps, clock=self.clock, ids=self.ids)


@pytest.fixture(params=["home", "memory", "shared"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    if request.param == "shared":
        return Home(None, MemoryHomes().home("ann").documents(FOLDER))
    return Home(tmp_path if request.param == "home" else None)


async def pay(caps: SpendingCaps, usd: float, *, least: float = 0.01) -> None:
    await caps.settle(await caps.admit("claude-x", least), usd)


def test_a_session_stops_at_its_cap(home: Home) -> None:
    """OBS-2: what was spent counts, and a call that can't fit any more isn't made."""

    async def body() -> None:
        caps = home.caps(of_session=1.0)
        for _ in range(3):
            await pay(caps, 0.3)
        with pytest.raises(SpendingCapReached) as caught:
            await caps.admit("claude-x", 0.2)
        said = "the cap of $1.00 is reached: this session has cost $0.90, and the next call is expected to cost $0.30"
        assert str(caught.value) == f"{said}; raise session_cap_usd to go on"
        await pay(home.caps("two", of_session=1.0), 1.0)
        with pytest.raises(SpendingCapReached):
            await home.caps("three", of_session=0.0).admit("claude-x", 0.1)

    anyio.run(body)


def test_calls_under_way_count(home: Home) -> None:
    """OBS-2: a hundred calls at a time don't slip through together."""

    async def body() -> None:
        caps, admitted = home.caps(of_session=1.0), 0
        for _ in range(100):
            try:
                await caps.admit("claude-x", 0.3)
            except SpendingCapReached:
                continue
            admitted += 1
        assert admitted == 3

    anyio.run(body)


def test_first_calls_that_begin_together_are_taken_for_what_is_likely(home: Home) -> None:
    """OBS-2: nobody knows yet what calls cost; one alone may try, whatever it is likely to cost."""

    async def body() -> None:
        caps, admitted = home.caps(of_session=1.0), []
        for _ in range(100):
            try:
                admitted.append(await caps.admit("claude-x", 0.005, likely_usd=0.3))
            except SpendingCapReached:
                continue
        assert len(admitted) == 3
        await home.caps("two", of_session=0.1).admit("claude-x", 0.005, likely_usd=0.3)

    anyio.run(body)


def test_cheap_calls_open_no_door_for_many_dear_ones(home: Home) -> None:
    """OBS-2: what calls cost so far says little of those that begin together; near the cap, one alone goes on."""

    async def body() -> None:
        caps, admitted = home.caps(of_session=1.0), []
        for _ in range(20):
            await pay(caps, 0.001, least=0.001)
        for _ in range(100):
            try:
                admitted.append(await caps.admit("claude-x", 0.001, likely_usd=0.3))
            except SpendingCapReached:
                continue
        assert len(admitted) == 3
        for call in admitted:
            await caps.settle(call, 0.3)
        await caps.settle(await caps.admit("claude-x", 0.001, likely_usd=0.3), 0.05)

    anyio.run(body)


def test_a_call_that_failed_gives_its_room_back(home: Home) -> None:
    async def body() -> None:
        caps = home.caps(of_session=1.0)
        for _ in range(20):
            await pay(caps, 0.0, least=0.9)
        await caps.admit("claude-x", 0.9)

    anyio.run(body)


def test_a_model_without_a_price_is_refused(home: Home) -> None:
    """OBS-2: a cap that can't be counted is none, so the call is refused, with what to do."""

    async def body() -> None:
        with pytest.raises(SpendingCapReached, match=r'give input_usd and output_usd in \[models\."my-model"\]'):
            await home.caps(of_day=1.0).admit("my-model", None)

    anyio.run(body)


def test_the_day_is_of_all_sessions_and_processes(tmp_path: Path) -> None:
    """OBS-2: sessions of a home share the day's cap, each as if it were in a process of its own."""

    async def body() -> None:
        home = Home(tmp_path)
        one, two = home.caps("one", of_day=1.0), home.caps("two", of_day=1.0)
        await pay(one, 0.5)
        await pay(two, 0.4)
        for caps in (one, two, home.caps("three", of_day=1.0)):
            with pytest.raises(SpendingCapReached, match=r"today has cost \$0.90"):
                await caps.admit("claude-x", 0.2)
        home.clock.advance(DAY)
        await pay(one, 0.9)
        await pay(home.caps("two", of_session=1.0), 0.5)  # yesterday's 0.4 of it count for the session
        with pytest.raises(SpendingCapReached, match=r"this session has cost \$0.90"):
            await home.caps("two", of_session=1.0).admit("claude-x", 0.2)

    anyio.run(body)


def test_a_killed_process_leaves_what_its_call_was_expected_to_cost(tmp_path: Path) -> None:
    async def body() -> None:
        home = Home(tmp_path)
        await home.caps(of_session=1.0).admit("claude-x", 0.6)  # its process ends here
        with pytest.raises(SpendingCapReached):
            await home.caps(of_session=1.0).admit("claude-x", 0.6)

    anyio.run(body)


@pytest.mark.parametrize("kind", ["memory", "postgres"])
def test_the_day_is_of_all_machines_that_share_a_store(kind: str, request: pytest.FixtureRequest) -> None:
    """OBS-2, SCL-3: caps of the session and of the day hold, however many calls begin at once in other places."""
    place = request.getfixturevalue("postgres") if kind == "postgres" else ""

    async def body() -> None:
        stores: list[Store] = [store_at(place), store_at(place)] if place else [MemoryHomes()] * 2
        homes = [Home(None, store.home("ann").documents(FOLDER)) for store in stores]
        for home in homes:
            home.ids = RandomIds()
        made, refused = list[tuple[SpendingCaps, str]](), list[str]()

        async def begin(home: Home, session: str) -> None:
            caps = home.caps(session, of_session=0.5, of_day=0.9)
            try:
                made.append((caps, await caps.admit("claude-x", 0.1)))
            except SpendingCapReached as e:
                refused.append(str(e))

        async with anyio.create_task_group() as group:
            for number in range(12):
                group.start_soon(begin, homes[number % 2], "one" if number < 8 else "two")
        assert len(made) == 9 and len(refused) == 3
        async with anyio.create_task_group() as group:
            for caps, call in made:
                group.start_soon(caps.settle, call, 0.05)
        for home in homes:
            with pytest.raises(SpendingCapReached, match=r"this session has cost \$0.2[05]"):
                await home.caps("one", of_session=0.26).admit("claude-x", 0.1)
            await home.caps("two", of_session=0.6).admit("claude-x", 0.1)
            home.clock.advance(DAY)
            with pytest.raises(SpendingCapReached, match=r"this session has cost"):
                await home.caps("one", of_session=0.26).admit("claude-x", 0.1)
        for store in stores:
            await store.close()

    anyio.run(body)


def test_what_a_store_could_not_be_told_is_told_with_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """OBS-2: while it is away no call is made; what one cost that was under way then counts afterwards."""
    put, home = MemoryDocuments.put, Home(None, MemoryHomes().home("ann").documents(FOLDER))

    async def away(*_: Any, **__: Any) -> str:
        raise JournalError("the database is away")

    async def body() -> None:
        caps = home.caps(of_session=1.0)
        running = await caps.admit("claude-x", 0.1)
        monkeypatch.setattr(MemoryDocuments, "put", away)
        await caps.settle(running, 0.5)
        with pytest.raises(SpendingCapReached, match="the database is away; no call is made"):
            await caps.admit("claude-x", 0.1)
        monkeypatch.setattr(MemoryDocuments, "put", put)
        await caps.settle(await caps.admit("claude-x", 0.1), 0.0)
        with pytest.raises(SpendingCapReached, match=r"has cost \$0.50"):
            await home.caps(of_session=1.0).admit("claude-x", 0.6)

    anyio.run(body)


@pytest.mark.parametrize("torn", [b'{"call":"call-9","sess', b"\xff\xfe\n", b"[]\n", b'{"call":1}\n'])
def test_torn_and_strange_lines_hide_no_others(tmp_path: Path, torn: bytes) -> None:
    async def body() -> None:
        home = Home(tmp_path)
        await pay(home.caps(of_session=1.0), 0.5)
        file = next((tmp_path / "spending").iterdir())
        assert file.stat().st_mode & 0o777 == 0o600
        with file.open("ab") as out:
            out.write(torn)
        await pay(home.caps(of_session=1.0), 0.4)
        with pytest.raises(SpendingCapReached, match=r"has cost \$0.90"):
            await home.caps(of_session=1.0).admit("claude-x", 0.2)

    anyio.run(body)


def test_what_cannot_be_written_down_is_not_spent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OBS-2: on a full disk a cap couldn't be kept, so no call is made."""

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def body() -> None:
        caps = Home(tmp_path).caps(of_session=1.0)
        running = await caps.admit("claude-x", 0.1)
        monkeypatch.setattr(os, "write", full)
        await caps.settle(running, 0.5)  # says nothing, and knows it
        with pytest.raises(SpendingCapReached, match="No space left on device; no call is made"):
            await caps.admit("claude-x", 0.1)
        monkeypatch.undo()
        with pytest.raises(SpendingCapReached, match=r"has cost \$0.50"):
            await caps.admit("claude-x", 0.6)

    anyio.run(body)
