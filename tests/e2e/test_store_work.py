"""What is seen of background work: the queue, the connections, what was given up and is tried again (SCL-2, OBS-1)."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.commands import command
from tests.e2e.test_drain import configured, get
from tests.e2e.test_gateway_workers import talked
from tests.gateways import fake, in_loop, serving, upstream

from perdure.adapters.postgres.store import PostgresStore
from perdure.adapters.work import ATTEMPTS
from perdure.testing.postgres import PostgresServer

pytestmark = [pytest.mark.e2e, pytest.mark.only_on("files", "these name their stores themselves")]


@pytest.fixture
def queue(postgres: str, postgres_server: PostgresServer) -> str:
    """A database that nothing is to be done for."""
    postgres_server.execute("TRUNCATE perdure.work", url=postgres.replace("gateway@", "postgres@"))
    return postgres


def samples(text: str) -> dict[str, float]:
    """Metrics as Prometheus reads them."""
    return {name: float(value) for name, value in re.findall(r"^(perdure_[^ ]+) ([-+.e0-9]+)$", text, re.M)}


def work(url: str, folder: Path, *words: str) -> Any:
    env = {"PERDURE_HOME": str(folder), "HOME": str(folder), "PATH": os.environ["PATH"]}
    return command("store", "work", url, *words, cwd=folder, env=env)


@in_loop
async def test_a_gateway_tells_of_its_queue_and_its_connections(tmp_path: Path, queue: str) -> None:
    """OBS-1, SCL-2: how much waits, for how long, how long transactions take, and over how many connections."""
    store = PostgresStore(queue)
    async with (
        fake(upstream(*[f"done {n}" for n in range(9)])) as server,
        serving(tmp_path, server, store=store, background="workers") as at,
    ):
        before = samples((await asyncio.to_thread(get, at.url, "/metrics"))[2].decode())
        assert before["perdure_work_waiting"] == 0
        messages: list[Any] = []
        await talked(at, messages, 8)
        await asyncio.sleep(0.2)
        told = samples((await asyncio.to_thread(get, at.url, "/metrics"))[2].decode())
        assert told["perdure_work_waiting"] == 1 and told["perdure_work_waiting_seconds"] > 0
        assert (told["perdure_work_running"], told["perdure_work_dead"]) == (0, 0)
        assert told["perdure_store_transaction_seconds_count"] > before["perdure_store_transaction_seconds_count"] > 0
        assert 1 <= told["perdure_store_connections"] <= 8 and told["perdure_store_connections_waiting"] == 0
        assert told["perdure_reopened_total"] == 0
        (tenant,) = (name for name, some in at.gateway.tenants_open().items() if some)
        other = PostgresStore(queue)
        (info,) = await other.home(tenant).sessions()
        opened = await other.home(tenant).open(info.id)
        await opened.journal.close()
        await other.close()
        await talked(at, messages, 1)
        assert at.metric("perdure_reopened_total") == 1, "somebody else had it meanwhile"


@pytest.mark.nightly
def test_a_worker_lets_prometheus_ask(tmp_path: Path, queue: str) -> None:
    """OBS-1, CLI-5: what came of its claims; an address that is taken, or none, is one line."""
    home = configured(tmp_path / "home", "http://127.0.0.1:9")

    async def wanted() -> None:
        store = PostgresStore(queue)
        await store.work.want("t", "deleted", "session_memory:default", 3)
        await store.close()

    anyio.run(wanted)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "perdure", "worker", "--store", queue, "--metrics"]
    env = {**os.environ, "PERDURE_HOME": str(home)}
    with subprocess.Popen([*words, f"127.0.0.1:{port}"], env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told: dict[str, float] = {}
        while told.get('perdure_claims_total{outcome="done"}') != 1:
            assert process.poll() is None
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                    told = samples(answer.read().decode())
            except OSError:
                pass
        assert told["perdure_store_ready"] == 1 and told["perdure_store_transaction_seconds_count"] > 0
        taken = subprocess.run([*words, f"127.0.0.1:{port}"], env=env, capture_output=True, check=False)
        assert taken.returncode == 2 and b"Address already in use" in taken.stderr and taken.stderr.count(b"\n") == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0 and "1 done" in process.stdout.read()
    for nonsense in ("9464", "127.0.0.1:", "127.0.0.1:99999"):
        refused = subprocess.run([*words, nonsense], env=env, capture_output=True, check=False)
        assert refused.returncode == 2 and b"--metrics" in refused.stderr


def test_what_was_given_up_is_shown_and_tried_again(tmp_path: Path, queue: str) -> None:
    """SCL-2, CLI-3: of one tenant or of all; what it was and why."""

    async def failed() -> None:
        store = PostgresStore(queue)
        for tenant in ("alice", "bob"):
            await store.work.want(tenant, "s1", "notes:default", 3)
        for _ in range(ATTEMPTS):
            while claims := await store.work.claim("w", limit=9, seconds=60.0):
                for claim in claims:
                    await store.work.fail(claim, "the model has no quota")
            await store.db.renew()
            postgres_now(queue)
        await store.close()

    anyio.run(failed)
    shown = work(queue, tmp_path)
    assert shown.returncode == 0 and "0 waiting; 0 under way; 2 given up" in shown.stdout
    assert (
        f"notes:default of session s1 of alice: given up after {ATTEMPTS} attempts: the model has no q" in shown.stdout
    )
    told = json.loads(work(queue, tmp_path, "--tenant", "bob", "--json").stdout)
    assert [one["tenant"] for one in told["given_up"]] == ["bob"] and told["dead"] == 2
    revived = work(queue, tmp_path, "--revive", "--tenant", "bob")
    assert "1 waiting" in revived.stdout and "1 given up" in revived.stdout and "bob: will be tried" in revived.stdout
    again = json.loads(work(queue, tmp_path, "--json").stdout)
    assert [one["tenant"] for one in again["given_up"]] == ["alice"] and again["waiting"] == 1
    away = work("postgresql://a@127.0.0.1:9/b", tmp_path)
    assert away.returncode == 1 and away.stderr.count("\n") == 1


def postgres_now(url: str) -> None:
    """What rests after a failure is due at once."""
    import psycopg

    with psycopg.connect(url.replace("gateway@", "postgres@"), autocommit=True) as db:
        db.execute("UPDATE perdure.work SET run_after = now()")
