"""What keeps a gateway's sessions, done by a worker: notes and summaries ahead of time (SCL-2, SCL-3)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.gateways import Running, config_of, fake, in_loop, serving, upstream

from perdure.adapters.journal.memory_home import MemoryHomes
from perdure.adapters.postgres.store import PostgresStore
from perdure.engine.notes import CURSOR
from perdure.errors import ClaimLost, JournalError
from perdure.gateway.gateway import Gateway
from perdure.gateway.upkeep import LateNotes, SessionUpkeep
from perdure.ports.home import Claim, Home, Store
from perdure.testing.server import FakeServer
from perdure.transcript.records import Cursor
from perdure.wiring.worker import Worker

pytestmark = [pytest.mark.e2e, pytest.mark.only_on("files", "these name their stores themselves")]

LONG = "Remark: keep it short. " * 1_500


async def talked(at: Running, messages: list[Any], turns: int) -> None:
    for n in range(turns):
        messages.append({"role": "user", "content": f"Part {n}. {LONG}"})
        said = await at.claude(max_retries=0).messages.create(model="fake-model", max_tokens=50, messages=messages)
        messages.append({"role": "assistant", "content": said.content[0].text})  # type: ignore[union-attr]


async def home_of(store: Store) -> Home:
    (tenant,) = await store.tenants()
    return store.home(tenant)


async def notes_of(store: Store) -> tuple[bytes | None, list[Cursor]]:
    """The notes of the only session, and what its journal says of how far they go."""
    home = await home_of(store)
    (info,) = await home.sessions()
    stored = await home.open(info.id, read_only=True)
    loaded = await stored.journal.load(whole=True)
    cursors = [one.record for one in loaded.records if isinstance(one.record, Cursor) and one.record.name == CURSOR]
    return await stored.notes.read(), cursors


def worker_of(tmp_path: Path, server: FakeServer, store: MemoryHomes, **table: Any) -> Worker:
    gateway = Gateway(config_of(tmp_path / "worker", server.url, **table), {}, store=store)
    return Worker(store.work, "w", SessionUpkeep(gateway).work_of)


async def waits(store: MemoryHomes) -> list[Claim]:
    """What a worker would be given now; it is given back."""
    claims = list(await store.work.claim("test", limit=9, seconds=60.0))
    for claim in claims:
        await store.work.release(claim)
    return claims


@in_loop
async def test_a_worker_keeps_the_notes_of_a_gateways_sessions(tmp_path: Path) -> None:
    """SCL-2, SCL-3: the gateway only says that they are due; the session goes on in it afterwards, unforked."""
    store, turns = MemoryHomes(waits=2.0), 8
    async with (
        fake(upstream(*[f"done {n}" for n in range(2 * turns)])) as server,
        serving(tmp_path, server, store=store, background="workers") as at,
    ):
        messages: list[Any] = []
        await talked(at, messages, turns)
        await asyncio.sleep(0.2)
        assert await notes_of(store) == (None, [])
        (claim,) = await waits(store)
        assert claim.kind == "session_memory:default" and claim.want > 0
        worker = worker_of(tmp_path, server, store)
        await worker.run(until_idle=True)
        assert (worker.counts.done, worker.counts.failed) == (1, 0) and await waits(store) == []
        notes, cursors = await notes_of(store)
        assert notes is not None and b"Part 0" in notes and len(cursors) == 1
        await talked(at, messages, 2)
        home = await home_of(store)
        assert len(await home.sessions()) == 1 and at.metric("perdure_forks_total") == 0
        assert at.metric("perdure_passed_total", reason="journal") == 0
        assert not server.upstream.statistics.violations


@pytest.mark.nightly
@in_loop
async def test_the_command_works_for_gateways_of_a_database(tmp_path: Path, postgres: str) -> None:
    """CLI-3, SCL-3: `perdure worker` in a process of its own, until nothing is due; then the gateway goes on."""
    store = PostgresStore(postgres)
    async with (
        fake(upstream(*[f"done {n}" for n in range(10)])) as server,
        serving(tmp_path, server, store=store, background="workers") as at,
    ):
        messages: list[Any] = []
        await talked(at, messages, 8)
        await asyncio.sleep(0.2)
        words = [sys.executable, "-m", "perdure", "worker", "--store", postgres, "--once", "--json"]
        words += ["--set", "window_tokens=100000"]
        environ = {**os.environ, "PERDURE_HOME": str(tmp_path / "worker")}
        done = await asyncio.to_thread(
            subprocess.run, words, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout) == {"done": 1, "failed": 0, "released": 0, "lost": 0}
        (tenant,) = await store.tenants()
        home = store.home(tenant)
        (info,) = await home.sessions()
        stored = await home.open(info.id, read_only=True)
        assert b"Part 0" in (await stored.notes.read() or b"")
        await talked(at, messages, 2)
        assert len(await home.sessions()) == 1 and at.metric("perdure_passed_total", reason="journal") == 0


@pytest.fixture(params=["memory", "postgres"])
def database(request: pytest.FixtureRequest) -> str | None:
    """The URL of a database; None for a store in memory. A server is started before there is a loop."""
    return request.getfixturevalue("postgres") if request.param == "postgres" else None


@in_loop
async def test_a_worker_that_lost_its_claim_leaves_no_notes(tmp_path: Path, database: str | None) -> None:
    """SCL-2: what it made is dropped, and whoever has the claim now makes it."""
    store: Any = MemoryHomes(waits=2.0) if database is None else PostgresStore(database)
    for tenant in await store.tenants():
        await store.delete_tenant(tenant)
    async with (
        fake(upstream(*[f"done {n}" for n in range(8)])) as server,
        serving(tmp_path, server, store=store, background="workers") as at,
    ):
        await talked(at, [], 8)
        await asyncio.sleep(0.2)
        (late,) = await store.work.claim("late", limit=1, seconds=0.0)
        upkeep = SessionUpkeep(Gateway(config_of(tmp_path / "worker", server.url), {}, store=store))
        work = upkeep.work_of(late.kind)
        assert work is not None
        async with work(late) as commit:
            assert await notes_of(store) == (None, [])  # nothing is written before it is committed
            (claim,) = await store.work.claim("other", limit=1, seconds=60.0)
            with pytest.raises(ClaimLost):
                async with store.work.finishing(late):
                    await commit()
        assert await notes_of(store) == (None, [])
        again = upkeep.work_of(claim.kind)
        assert again is not None
        async with again(claim) as commit, store.work.finishing(claim):
            await commit()
        notes, cursors = await notes_of(store)
        assert notes is not None and len(cursors) == 1


@in_loop
async def test_work_for_what_is_gone_or_unknown_here_does_no_harm(tmp_path: Path) -> None:
    """SCL-2: a session that was deleted meanwhile needs nothing; a route that only others know is left to them."""
    store = MemoryHomes()
    async with fake(upstream()) as server:
        await store.work.want("t", "deleted", "session_memory:default", 3)
        await store.work.want("t", "s", "session_memory:other", 3)
        worker = worker_of(tmp_path, server, store)
        await worker.run(until_idle=True)
        assert (worker.counts.done, worker.counts.released, worker.counts.failed) == (1, 1, 0)
        assert await store.work.dead() == []


@in_loop
async def test_notes_that_somebody_else_wrote_are_not_overwritten(tmp_path: Path) -> None:
    """SM-6, SCL-2: a person's edit while a model writes; the work is tried again on what stands there."""
    home = MemoryHomes().home("t")
    stored = await home.create("s", project="/p", created=1.0)
    late = LateNotes(stored.notes)
    assert await late.write(b"one", instead_of=None) and not await late.write(b"x", instead_of=None)
    assert await late.write(b"two", instead_of=b"one") and await late.read() == b"two"
    assert await stored.notes.read() is None
    assert await stored.notes.write(b"a person's", instead_of=None)
    with pytest.raises(JournalError, match="somebody else wrote the notes"):
        await late.commit(stored.notes)
    assert await stored.notes.read() == b"a person's"
