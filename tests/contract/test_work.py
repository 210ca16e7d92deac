"""What every `ports.home.WorkQueue` does (SCL-2, SCL-4): in this process, in a file, in PostgreSQL."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Awaitable, Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from random import Random

import anyio
import anyio.to_thread
import pytest

from perdure.adapters.postgres.database import Database
from perdure.adapters.postgres.store import PostgresStore
from perdure.adapters.postgres.work import PostgresWorkQueue
from perdure.adapters.work import ATTEMPTS, WORKER_LOST, SqliteWorkQueue, pause_seconds
from perdure.errors import ClaimLost, JournalError, NewerFormat
from perdure.ports.home import Claim, WorkQueue
from perdure.testing.postgres import PostgresServer
from perdure.transcript.records import Titled

pytestmark = pytest.mark.contract

LONG = 3600.0  # a lease that doesn't end within a test
KINDS = ("memory", "file", "postgres", "pooled")


class NoPause(Random):
    """What failed is due again at once."""

    def uniform(self, a: float, b: float) -> float:
        return 0.0


class Queues:
    """The same queue for several workers, which share nothing but the store; in memory it is one object."""

    def __init__(self, kind: str, path: Path, url: str = "") -> None:
        self.kind, self.path, self.url = kind, path / "home" / "work.db", url
        self._databases: list[Database] = []
        self._opened: list[WorkQueue] = []

    def __call__(self, chance: Random | None = None) -> WorkQueue:
        if self.url:
            self._databases.append(Database(self.url, connections=2))
            queue: WorkQueue = PostgresWorkQueue(self._databases[-1], chance=chance or NoPause())
        elif self.kind == "file" or not self._opened:
            queue = SqliteWorkQueue(self.path if self.kind == "file" else None, chance=chance or NoPause())
        else:
            queue = self._opened[0]
        self._opened.append(queue)
        return queue

    def run(self, body: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            try:
                await body()
            finally:
                for queue in self._opened:
                    await queue.close()
                for database in self._databases:
                    await database.close()

        anyio.run(main)


@pytest.fixture(params=KINDS)
def queues(request: pytest.FixtureRequest, tmp_path: Path) -> Queues:
    url = request.getfixturevalue("empty_queue") if request.param in ("postgres", "pooled") else ""
    url = request.getfixturevalue("pooled") if request.param == "pooled" else url
    return Queues(request.param, tmp_path, url)


@pytest.fixture
def empty_queue(postgres: str, postgres_server: PostgresServer) -> str:
    """A database that nothing is to be done for."""
    postgres_server.execute("TRUNCATE perdure.work", url=postgres.replace("gateway@", "postgres@"))
    return postgres


async def taken(queue: WorkQueue, limit: int = 100, seconds: float = LONG) -> list[Claim]:
    return sorted(await queue.claim("worker", limit=limit, seconds=seconds))


async def the_one(queue: WorkQueue, seconds: float = LONG) -> Claim:
    [claim] = await taken(queue, seconds=seconds)
    return claim


async def finish(queue: WorkQueue, claim: Claim) -> None:
    async with queue.finishing(claim):
        pass


async def is_lost(queue: WorkQueue, claim: Claim) -> bool:
    try:
        await finish(queue, claim)
    except ClaimLost as e:
        assert str(e).count("\n") == 0 and claim.session in str(e)
        return True
    return False


def test_many_wishes_are_one_piece_of_work(queues: Queues) -> None:
    """SCL-2: what is wanted only grows, and is one piece for each tenant, session and kind."""

    async def body() -> None:
        queue = queues()
        for upto in (3, 7, 5):
            await queue.want("t", "s", "notes", upto)
        await queue.want("t", "s", "memories", 1)
        await queue.want("u", "s", "notes", 2)
        claims = await taken(queue)
        assert [(c.tenant, c.session, c.kind, c.done, c.want, c.attempts) for c in claims] == [
            ("t", "s", "memories", 0, 1, 1),
            ("t", "s", "notes", 0, 7, 1),
            ("u", "s", "notes", 0, 2, 1),
        ]

    queues.run(body)


def test_what_is_done_is_no_work_until_more_is_wanted(queues: Queues) -> None:
    """SCL-2: the next piece begins where the last one ended."""

    async def body() -> None:
        queue = queues()
        await queue.want("", "s", "notes", 4)
        await finish(queue, await the_one(queue))
        await queue.want("", "s", "notes", 4)
        assert await taken(queue) == []
        assert await queue.wanted("") == []
        await queue.want("", "s", "notes", 9)
        assert [(one.session, one.done, one.want) for one in await queue.wanted("")] == [("s", 4, 9)]
        assert await queue.wanted("another") == []
        claim = await the_one(queue)
        assert (claim.done, claim.want, claim.attempts) == (4, 9, 1)
        assert len(await queue.wanted("")) == 1  # not done yet, whoever is at it

    queues.run(body)


def test_a_piece_of_work_has_one_worker(queues: Queues) -> None:
    """SCL-2: while a claim holds nobody else gets it, also when more is wanted; that is work once it is finished."""

    async def body() -> None:
        one, other = queues(), queues()
        for session in "abc":
            await one.want("", session, "notes", 1)
        first = await taken(one, limit=2)
        rest = await taken(other)
        assert len(first) == 2 and len(rest) == 1 and not set(first) & set(rest)
        await other.want("", first[0].session, "notes", 5)
        assert await taken(other) == []
        await finish(one, first[0])
        again = await the_one(other)
        assert (again.session, again.done, again.want) == (first[0].session, 1, 5)

    queues.run(body)


def test_the_oldest_work_goes_first(queues: Queues) -> None:
    """SCL-2: a session that is always wanted doesn't keep others from their turn."""

    async def body() -> None:
        queue = queues()
        for upto, session in enumerate("abcd", 1):
            await queue.want("", session, "notes", upto)
        [first] = await queue.claim("w", limit=1, seconds=LONG)
        await finish(queue, first)
        await queue.want("", first.session, "notes", 10)
        later = [(await queue.claim("w", limit=1, seconds=LONG))[0].session for _ in range(4)]
        assert first.session == "a" and later == ["b", "c", "d", "a"]

    queues.run(body)


@pytest.mark.both_stores
def test_a_worker_that_was_paused_commits_nothing(queues: Queues) -> None:
    """SCL-2, SCL-3: who lost its claim can't finish, fail, release or renew it, and changes nothing by trying."""

    async def body() -> None:
        paused, other = queues(), queues()
        await paused.want("", "s", "notes", 3)
        old = await the_one(paused, seconds=0.0)
        new = await the_one(other)
        assert new.fence > old.fence and (new.done, new.want) == (0, 3)
        assert await is_lost(paused, old)
        assert not await paused.renew(old, seconds=LONG)
        await paused.fail(old, "too late")
        await paused.release(old)
        assert await taken(paused) == []
        assert await other.renew(new, seconds=LONG)
        await finish(other, new)
        assert await taken(paused) == []

    queues.run(body)


def test_a_late_worker_may_finish_while_nobody_else_came(queues: Queues) -> None:
    """SCL-2: the fence decides, not the time."""

    async def body() -> None:
        queue = queues()
        await queue.want("", "s", "notes", 3)
        claim = await the_one(queue, seconds=0.0)
        await finish(queue, claim)
        assert await taken(queue) == []

    queues.run(body)


def test_a_claim_is_kept_by_renewing_it(queues: Queues) -> None:
    """SCL-2: for as long as its worker says so."""

    async def body() -> None:
        one, other = queues(), queues()
        await one.want("", "s", "notes", 3)
        claim = await the_one(one, seconds=0.0)
        assert await one.renew(claim, seconds=LONG)
        assert await taken(other) == []
        assert await one.renew(claim, seconds=0.0)
        assert (await the_one(other)).fence > claim.fence

    queues.run(body)


def test_a_claim_is_finished_once(queues: Queues) -> None:
    """SCL-2: who doesn't know whether its commit arrived, and tries again, has no effect twice."""

    async def body() -> None:
        queue = queues()
        await queue.want("", "s", "notes", 3)
        claim = await the_one(queue)
        await finish(queue, claim)
        assert await is_lost(queue, claim)

    queues.run(body)


def test_nothing_is_done_when_its_effects_fail(queues: Queues) -> None:
    """SCL-2: the claim stands, so that its worker can say why."""

    async def body() -> None:
        queue = queues()
        await queue.want("", "s", "notes", 3)
        claim = await the_one(queue)
        with pytest.raises(ZeroDivisionError):
            async with queue.finishing(claim):
                raise ZeroDivisionError
        assert await taken(queue) == []
        await queue.fail(claim, "divided by zero")
        assert (await the_one(queue))[3:5] == (0, 3)

    queues.run(body)


def test_what_fails_rests_longer_each_time(queues: Queues) -> None:
    """SCL-2: back-off with jitter; another session's work isn't held up."""
    pauses = [pause_seconds(attempts, Random(1)) for attempts in range(1, ATTEMPTS)]
    assert all(later == pytest.approx(2 * earlier) for earlier, later in pairwise(pauses))
    assert len({pause_seconds(1, Random(seed)) for seed in range(9)}) == 9 and pause_seconds(99, Random(1)) < 1000

    async def body() -> None:
        queue = queues(Random(1))
        for session in "ab":
            await queue.want("", session, "notes", 1)
        bad, good = await taken(queue)
        await queue.fail(bad, "no model")
        await queue.want("", bad.session, "notes", 2)  # who wants more doesn't shorten its rest
        await finish(queue, good)
        await queue.want("", good.session, "notes", 2)
        assert [claim.session for claim in await taken(queue)] == [good.session]

    queues.run(body)


def test_what_always_fails_is_dead(queues: Queues) -> None:
    """SCL-2: after so many attempts nobody tries any more, and why is said; it can be revived."""

    async def body() -> None:
        queue = queues()
        await queue.want("t", "s", "notes", 3)
        for attempt in range(1, ATTEMPTS + 1):
            assert await queue.dead() == []
            claim = await the_one(queue)
            assert claim.attempts == attempt
            await queue.fail(claim, f"no model\n(attempt {attempt})")
        assert await taken(queue) == []
        [(dead, why)] = await queue.dead()
        assert (dead.session, dead.done, dead.want, why) == ("s", 0, 3, f"no model (attempt {ATTEMPTS})")
        await queue.revive("t", "s", "notes")
        assert await queue.dead() == []
        claim = await the_one(queue)
        assert claim.attempts == 1
        await finish(queue, claim)
        await queue.want("t", "s", "notes", 4)
        assert (await the_one(queue)).attempts == 1

    queues.run(body)


def test_more_work_gives_a_dead_one_another_attempt(queues: Queues) -> None:
    """SCL-2: one, since what failed so often costs something each time."""

    async def body() -> None:
        queue = queues()
        await queue.want("", "s", "notes", 1)
        for _ in range(ATTEMPTS):
            await queue.fail(await the_one(queue), "no")
        await queue.want("", "s", "notes", 1)
        assert await taken(queue) == []
        await queue.want("", "s", "notes", 2)
        await queue.fail(await the_one(queue), "no")
        assert await taken(queue) == [] and len(await queue.dead()) == 1

    queues.run(body)


def test_work_that_kills_its_workers_is_dead_too(queues: Queues) -> None:
    """SCL-2: nobody is left to say that it failed."""

    async def body() -> None:
        queue = queues()
        await queue.want("", "s", "notes", 1)
        for _ in range(ATTEMPTS):
            await the_one(queue, seconds=0.0)
        assert await taken(queue) == []
        [(_, why)] = await queue.dead()
        assert why == WORKER_LOST

    queues.run(body)


def test_what_is_given_back_was_no_attempt(queues: Queues) -> None:
    """SCL-2: a worker that stops, or finds a session in use, leaves it to others, now or later."""

    async def body() -> None:
        queue = queues()
        await queue.want("", "s", "notes", 1)
        for _ in range(ATTEMPTS + 2):
            claim = await the_one(queue)
            assert claim.attempts == 1
            await queue.release(claim)
        await queue.release(await the_one(queue), seconds=LONG)
        assert await taken(queue) == [] and await queue.dead() == []

    queues.run(body)


def test_each_range_is_done_once_by_workers_that_race(queues: Queues) -> None:
    """SCL-2: all that was wanted is done, in ranges that join, while more is wanted all the time."""

    async def body() -> None:
        done: dict[str, list[tuple[int, int]]] = {session: [] for session in "abcdef"}
        is_over = anyio.Event()

        async def wants(queue: WorkQueue, session: str) -> None:
            for upto in range(1, 31):
                await queue.want("", session, "notes", upto)

        async def work(queue: WorkQueue) -> None:
            while True:
                claims = await queue.claim("w", limit=3, seconds=LONG)
                for claim in claims:
                    async with queue.finishing(claim):
                        done[claim.session].append((claim.done, claim.want))
                if not claims:
                    if is_over.is_set():
                        return
                    await anyio.sleep(0.001)

        async with anyio.create_task_group() as workers:
            for _ in range(4):
                workers.start_soon(work, queues())
            async with anyio.create_task_group() as wishes:
                for session in done:
                    wishes.start_soon(wants, queues(), session)
            is_over.set()
        for ranges in done.values():
            assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])] and ranges[-1][1] == 30

    queues.run(body)


# --- of those that last


def test_a_queue_is_there_after_a_restart(tmp_path: Path) -> None:
    """SCL-2, ENG-4: in a file that is its owner's alone."""
    path = tmp_path / "home" / "work.db"

    async def body() -> None:
        first, second = SqliteWorkQueue(path), SqliteWorkQueue(path)
        await first.want("", "s", "notes", 3)
        claim = await the_one(first)
        await first.close()
        await finish(second, claim)
        await second.want("", "s", "notes", 5)
        assert (await the_one(first))[3:5] == (3, 5)
        await first.close()
        await second.close()

    anyio.run(body)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_queue_that_cant_be_read_is_said_in_a_line(tmp_path: Path) -> None:
    """SCL-2, CLI-5: a damaged file, and one of a newer program; it stays as it is."""
    damaged, newer = tmp_path / "damaged.db", tmp_path / "newer.db"
    damaged.write_bytes(b"no database at all, but long enough to look like one" * 40)
    with closing(sqlite3.connect(newer)) as db:
        db.execute("PRAGMA user_version = 99")
    before = damaged.read_bytes()
    for path, error, words in ((damaged, JournalError, "not a database"), (newer, NewerFormat, "newer Perdure")):
        with pytest.raises(error, match=words) as told:
            anyio.run(SqliteWorkQueue(path).want, "", "s", "notes", 1)
        assert str(path) in str(told.value) and "\n" not in str(told.value)
    assert damaged.read_bytes() == before


# --- of PostgreSQL alone


def with_store(url: str, body: Callable[[PostgresStore], Awaitable[None]]) -> None:
    async def main() -> None:
        store = PostgresStore(url, connections=4)
        try:
            await body(store)
        finally:
            await store.close()

    anyio.run(main)


def test_effects_commit_with_done_or_not_at_all(empty_queue: str) -> None:
    """SCL-2: whatever the homes of a store are told within `finishing`: records of a session, documents."""

    async def body(store: PostgresStore) -> None:
        home, work = store.home("t"), store.work
        stored = await home.create("s1", project="/p", created=1.0)
        await work.want("t", "s1", "notes", 1)
        late = await the_one(work, seconds=0.0)
        claim = await the_one(work)
        with pytest.raises(ClaimLost):
            async with work.finishing(late):
                await home.documents("d").put("x", b"late", instead_of=None)
                await stored.journal.append((Titled(title="late"),))
        assert await home.documents("d").get("x") is None
        assert (await home.load("s1")).records == ()
        with pytest.raises(ZeroDivisionError):
            async with work.finishing(claim):
                await home.documents("d").put("x", b"broken off", instead_of=None)
                raise ZeroDivisionError
        assert await home.documents("d").get("x") is None
        async with work.finishing(claim):
            await home.documents("d").put("x", b"done", instead_of=None)
        kept = await home.documents("d").get("x")
        assert kept is not None and kept.data == b"done" and await taken(work) == []

    with_store(empty_queue, body)


def test_another_task_has_its_own_transactions_meanwhile(empty_queue: str) -> None:
    """SCL-2: only what the task that finishes asks is joined."""

    async def body(store: PostgresStore) -> None:
        home, work = store.home("t"), store.work
        inside, told = anyio.Event(), anyio.Event()

        async def other() -> None:
            await inside.wait()
            await home.documents("d").put("other", b"kept", instead_of=None)
            told.set()

        await work.want("t", "s", "notes", 1)
        claim = await the_one(work)
        async with anyio.create_task_group() as group:
            group.start_soon(other)
            with pytest.raises(ZeroDivisionError):
                async with work.finishing(claim):
                    await home.documents("d").put("mine", b"lost", instead_of=None)
                    inside.set()
                    await told.wait()
                    raise ZeroDivisionError
        assert await home.documents("d").get("mine") is None
        assert await home.documents("d").get("other") is not None

    with_store(empty_queue, body)


def test_more_can_be_wanted_while_effects_are_written(empty_queue: str) -> None:
    """SCL-2: the gateway waits for no worker, and what it wants isn't taken for done."""

    async def body(store: PostgresStore) -> None:
        work, gateway = store.work, PostgresStore(empty_queue)
        await work.want("t", "s", "notes", 1)
        claim = await the_one(work)
        async with work.finishing(claim):
            await store.home("t").documents("d").put("x", b"1", instead_of=None)
            with anyio.fail_after(5):
                await gateway.work.want("t", "s", "notes", 2)
        assert (await the_one(work))[3:5] == (1, 2)
        await gateway.close()

    with_store(empty_queue, body)


def test_a_worker_that_is_paused_while_it_commits_locks_its_row_for_a_while_only(empty_queue: str) -> None:
    """SCL-3: the server ends its transaction, and nothing of that stays with the connection."""

    async def body(store: PostgresStore) -> None:
        asked = "SELECT current_setting('idle_in_transaction_session_timeout')"
        await store.work.want("t", "s", "notes", 1)
        async with store.work.finishing(await the_one(store.work)), store.db.connection() as connection:
            assert await (await connection.execute(asked)).fetchone() == ("30s",)
        async with store.db.connection() as connection:
            assert await (await connection.execute(asked)).fetchone() == ("0",)

    with_store(empty_queue, body)


@pytest.mark.nightly
def test_broken_connections_and_a_crash_lose_no_work(empty_queue: str, postgres_server: PostgresServer) -> None:
    """SCL-2: what was acknowledged is there, and the next call finds a connection again."""
    broken = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'gateway'"

    async def body(store: PostgresStore) -> None:
        work = store.work
        await work.want("t", "s", "notes", 1)
        await anyio.to_thread.run_sync(postgres_server.execute, broken)
        claim = await the_one(work)
        await anyio.to_thread.run_sync(postgres_server.execute, broken)
        await finish(work, claim)
        await work.want("t", "s", "notes", 2)
        claim = await the_one(work)
        with pytest.raises(JournalError) as told:
            async with work.finishing(claim):
                await anyio.to_thread.run_sync(postgres_server.execute, broken)
        assert "\n" not in str(told.value)
        assert await work.renew(claim, seconds=LONG)  # it is still ours, and not done
        await anyio.to_thread.run_sync(postgres_server.kill)
        with pytest.raises(JournalError):
            await work.want("t", "s", "notes", 3)
        await anyio.to_thread.run_sync(postgres_server.resume)
        await finish(work, claim)
        assert await taken(work) == []

    with_store(empty_queue, body)


def test_rows_of_work_are_their_tenant_s(empty_queue: str) -> None:
    """SCL-6: a tenant's transaction sees its own; who works for all sees all of these, and nothing else of anybody."""

    async def body(store: PostgresStore) -> None:
        work, db = store.work, store.db
        for tenant in "ab":
            await work.want(tenant, "s", "notes", 1)
            await store.home(tenant).documents("d").put("x", b"1", instead_of=None)
        mine = await db.tenant("a")
        assert mine is not None
        asked = "SELECT DISTINCT tenant FROM perdure.work"
        assert await db.ask(mine, asked) == [(mine,)] and len(await db.ask(0, asked)) == 2
        assert await db.ask(0, "SELECT tenant FROM perdure.documents") == []
        assert await db.ask(mine, "UPDATE perdure.work SET want = 9 WHERE tenant <> %s RETURNING 1", (mine,)) == []
        await store.delete_tenant("a")
        assert [claim.tenant for claim in await taken(work)] == ["b"]

    with_store(empty_queue, body)


def test_a_backlog_says_what_waits_and_what_was_given_up(queues: Queues) -> None:
    """SCL-2, OBS-1: by pieces; what is done isn't in it, and what rests after a failure isn't due."""

    async def body() -> None:
        queue = queues()
        assert await queue.backlog() == (0, 0.0, 0, 0)
        for n in range(4):
            await queue.want("t", f"s{n}", "k", 1)
        await anyio.sleep(0.05)
        waiting, seconds, running, dead = await queue.backlog()
        assert (waiting, running, dead) == (4, 0, 0) and 0.04 < seconds < 30
        first, *_ = await taken(queue, limit=2)
        async with queue.finishing(first):
            pass
        waiting, _, running, dead = await queue.backlog()
        assert (waiting, running, dead) == (2, 1, 0)
        resting = queues(Random(0))
        for claim in await taken(queue):
            await resting.fail(claim, "not now")
        waiting, seconds, running, dead = await queue.backlog()
        assert (waiting, running, dead) == (2, 1, 0)
        assert queues.kind == "memory" or seconds == 0, "nothing of it is due before its pause is over"

    queues.run(body)


def test_what_was_given_up_is_no_longer_waiting(queues: Queues) -> None:
    """SCL-2, OBS-1."""

    async def body() -> None:
        queue = queues()
        await queue.want("t", "s", "k", 1)
        for _ in range(ATTEMPTS):
            await queue.fail(await the_one(queue), "no")
        assert await queue.backlog() == (0, 0.0, 0, 1)
        await queue.revive("t", "s", "k")
        assert (await queue.backlog())[::3] == (1, 0)

    queues.run(body)
