"""A worker of background work: what it commits, gives back, and leaves to others (SCL-2, SCL-3)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import anyio
import pytest

from perdure.adapters.work import SqliteWorkQueue
from perdure.errors import JournalError, SessionBusy
from perdure.ports.home import Claim
from perdure.wiring.worker import Commit, Worker


class Soon(Random):
    """Neither rests nor pauses are long."""

    def uniform(self, a: float, b: float) -> float:
        return 0.001


class Effects:
    """A kind of work that takes a moment; what it writes is `written`."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.begun, self.may_end = error, anyio.Event(), anyio.Event()
        self.may_end.set()
        self.written: list[tuple[str, int, int]] = []

    @asynccontextmanager
    async def __call__(self, claim: Claim) -> AsyncIterator[Commit]:
        self.begun.set()
        await self.may_end.wait()
        if self.error is not None:
            raise self.error

        async def commit() -> None:
            self.written.append((claim.session, claim.done, claim.want))

        yield commit


def run(body: Callable[[SqliteWorkQueue], Awaitable[None]]) -> None:
    async def main() -> None:
        with anyio.fail_after(30):
            queue = SqliteWorkQueue(chance=Soon())
            await body(queue)
            await queue.close()

    anyio.run(main)


def worker(queue: SqliteWorkQueue, *, seconds: float = 60.0, places: int = 4, **kinds: Any) -> Worker:
    return Worker(queue, "w", kinds.get, places=places, lease_seconds=seconds, chance=Soon())


async def until(is_so: Callable[[], object]) -> None:
    while not is_so():  # noqa: ASYNC110  (what is waited for is state of the worker)
        await anyio.sleep(0.001)


def test_what_is_due_is_done_and_committed() -> None:
    """SCL-2: all of it, more than it has places for, each up to what was wanted."""

    async def body(queue: SqliteWorkQueue) -> None:
        notes = Effects()
        for number in range(9):
            await queue.want("", f"s{number}", "notes", number + 1)
        one = worker(queue, notes=notes)
        await one.run(until_idle=True)
        assert sorted(notes.written) == [(f"s{number}", 0, number + 1) for number in range(9)]
        assert one.counts.done == 9

    run(body)


def test_what_fails_is_tried_again_and_ends_no_worker() -> None:
    """SCL-2: why is kept; other work goes on."""

    async def body(queue: SqliteWorkQueue) -> None:
        bad, good = Effects(ValueError("no such\nmodel")), Effects()
        await queue.want("", "a", "bad", 1)
        await queue.want("", "b", "good", 1)
        one = worker(queue, bad=bad, good=good)
        while not await queue.dead():
            await one.run(until_idle=True)
            await anyio.sleep(0.002)
        [(claim, why)] = await queue.dead()
        assert (claim.session, why) == ("a", "ValueError: no such model")
        assert one.counts.failed == claim.attempts and good.written == [("b", 0, 1)] and not bad.written

    run(body)


def test_a_commit_that_fails_leaves_the_work_to_do() -> None:
    """SCL-2: nothing is done when its effects can't be written."""

    async def body(queue: SqliteWorkQueue) -> None:
        failures = [OSError("disk full")]

        @asynccontextmanager
        async def kind(claim: Claim) -> AsyncIterator[Commit]:
            async def commit() -> None:
                if failures:
                    raise failures.pop()

            yield commit

        await queue.want("", "s", "notes", 1)
        one = worker(queue, notes=kind)
        while not one.counts.done:
            await one.run(until_idle=True)
            await anyio.sleep(0.002)
        assert (one.counts.failed, one.counts.done) == (1, 1)

    run(body)


@pytest.mark.parametrize("why", ["busy", "unknown"])
def test_what_others_will_do_is_given_back(why: str) -> None:
    """SCL-3: a session that somebody is at, and a kind that only newer programs know, are no failed attempts."""

    async def body(queue: SqliteWorkQueue) -> None:
        await queue.want("", "s", "notes", 1)
        kinds: dict[str, Any] = {"notes": Effects(SessionBusy("at work"))} if why == "busy" else {}
        one = worker(queue, **kinds)
        await one.run(until_idle=True)
        assert (one.counts.released, one.counts.failed) == (1, 0) and await queue.dead() == []

    run(body)


def test_work_that_takes_longer_than_its_lease_stays_with_its_worker() -> None:
    """SCL-2: it says that it is at it."""

    async def body(queue: SqliteWorkQueue) -> None:
        notes = Effects()
        notes.may_end = anyio.Event()
        await queue.want("", "s", "notes", 1)
        one = worker(queue, seconds=0.3, notes=notes)
        async with anyio.create_task_group() as group:
            group.start_soon(one.run)
            await notes.begun.wait()
            await anyio.sleep(0.6)
            assert await queue.claim("other", limit=1, seconds=60) == []
            notes.may_end.set()
            one.stop()
        assert notes.written == [("s", 0, 1)]

    run(body)


def test_a_worker_whose_claim_was_taken_ends_its_work_without_an_effect() -> None:
    """SCL-3: as after a pause of the whole process."""

    async def body(unused: SqliteWorkQueue) -> None:
        notes = Effects()
        notes.may_end = anyio.Event()
        now = [0.0]
        queue = SqliteWorkQueue(clock=lambda: now[0])
        await queue.want("", "s", "notes", 1)
        one = worker(queue, seconds=0.3, places=1, notes=notes)
        async with anyio.create_task_group() as group:
            group.start_soon(one.run)
            await notes.begun.wait()
            now[0] = 1000.0  # the pause
            [_] = await queue.claim("other", limit=1, seconds=60)
            await until(lambda: one.counts.lost)
            one.stop()
        assert notes.written == [] and one.counts.done == 0
        await queue.close()

    run(body)


def test_a_worker_that_is_stopped_ends_what_is_under_way() -> None:
    """SCL-3: and takes nothing more."""

    async def body(queue: SqliteWorkQueue) -> None:
        notes = Effects()
        notes.may_end = anyio.Event()
        await queue.want("", "a", "notes", 1)
        one = worker(queue, notes=notes)
        async with anyio.create_task_group() as group:
            group.start_soon(one.run)
            await notes.begun.wait()
            one.stop()
            await queue.want("", "b", "notes", 1)
            notes.may_end.set()
        assert notes.written == [("a", 0, 1)]
        assert [claim.session for claim in await queue.claim("w", limit=9, seconds=60)] == ["b"]

    run(body)


def test_a_worker_that_is_cancelled_gives_its_work_back() -> None:
    """SCL-3: for the next one to begin at once, and as no attempt."""

    async def body(queue: SqliteWorkQueue) -> None:
        notes = Effects()
        notes.may_end = anyio.Event()
        await queue.want("", "s", "notes", 1)
        async with anyio.create_task_group() as group:
            group.start_soon(worker(queue, notes=notes).run)
            await notes.begun.wait()
            group.cancel_scope.cancel()
        [claim] = await queue.claim("other", limit=1, seconds=60)
        assert claim.attempts == 1 and notes.written == []

    run(body)


def test_a_queue_that_is_down_is_asked_again() -> None:
    """SCL-2: polling is the truth; the worker outlives the database's restart, and says what is wrong meanwhile."""

    async def body(queue: SqliteWorkQueue) -> None:
        down, notes, ask = [True], Effects(), queue.claim

        async def claim(*given: Any, **named: Any) -> Any:
            if down[0]:
                raise JournalError("the database can't be reached")
            return await ask(*given, **named)

        queue.claim = claim  # type: ignore[method-assign]
        await queue.want("", "s", "notes", 1)
        one = worker(queue, notes=notes)
        async with anyio.create_task_group() as group:
            group.start_soon(one.run)
            await until(lambda: one.problem)
            down[0] = False
            await until(lambda: one.counts.done)
            one.stop()
        assert one.problem == "" and notes.written == [("s", 0, 1)]

    run(body)
