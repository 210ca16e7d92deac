"""Gateways, workers and a database under a storm, with clients that go on (SCL-3, SCL-4, GW-5).

    make scale, or python -m bench.scale [--minutes 5] [--kills 150] [--enqueues 10000]

Starts a PostgreSQL from its wheel, an object store and a model server with all their rules, three `perdure serve` and
two `perdure worker`, as a user would. Real clients' recordings are said over the three wires, each round at any of the
gateways. Meanwhile gateways and workers are killed and paused beyond their leases, connections are cut, answers of the
database get lost, it is restarted, crashes, and becomes slow. Then everything is held against everything: prints what
was done and what came of it; 1 when anything is not as it must be.

Slow disk: each commit waits 100 ms before its log is synced (`commit_delay`). Slow database: its answers are held back.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any, Final

import aiohttp
import anyio
import anyio.to_thread
import psycopg
from bench import _proxy, _scale_judge, chaos
from bench._scale_judge import Verdict
from bench._talks import (
    SUMMARIZER,
    WINDOW,
    WIRES,
    RecordedModel,
    RecordedServer,
    Refused,
    Round,
    Talk,
    Unanswered,
    made_talks,
    recorded_talks,
)
from bench.chaos import Chaos, Crew

from perdure.adapters.postgres.store import PostgresStore
from perdure.errors import JournalError
from perdure.testing.postgres import PostgresServer, why_there_is_no_server
from perdure.testing.s3 import FakeS3, S3Fault

GATEWAYS: Final = 3
WORKERS: Final = 2
LEASE_SECONDS: Final = 3.0  # of sessions; of work half of it
PAUSE_SECONDS: Final = (3.5, 5.0)
SLOW_SECONDS: Final = 4.0
CLIENTS: Final = 16  # conversations at a time
TALKS: Final = 24
ROUNDS: Final = 40
BUCKET: Final = "blobs"
KIND: Final = "session_memory:default"
SETTINGS: Final = {**chaos.SETTINGS, "max_connections": "200"}
FAULTS: Final[Sequence[S3Fault]] = ("slow-down", "internal-error", "cut-before", "cut-after")
FAULTS: Final[Sequence[S3Fault]] = ("slow-down", "internal-error", "cut-before", "cut-after")
# Out of a hundred.
STORM: Final = {
    "gateways killed": 25,
    "gateways paused": 20,
    "workers killed": 15,
    "workers paused": 14,
    "connections ended": 5,
    "connections cut": 4,
    "answers of the database lost": 4,
    "faults of the object store": 3,
    "restarts of the database": 3,
    "crashes of the database": 3,
    "times of a slow disk": 2,
    "times of a slow database": 2,
}


# --- what runs --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Served:
    """A process of a user's: `perdure serve` or `perdure worker`."""

    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, home: Path, given: Mapping[str, str], *words: str) -> Served:
        environ = {**os.environ, **given, "PERDURE_HOME": str(home), "SUMMARY_KEY": "summary-key"}
        command = [sys.executable, "-m", "perdure", *words]
        with (home / "said.txt").open("ab") as said:
            return cls(
                subprocess.Popen(command, env=environ, cwd=home, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
            )

    @property
    def pid(self) -> int | None:
        return self.process.pid

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()

    def join(self) -> None:
        self.process.wait()


@dataclass(slots=True)
class Cluster:
    """All processes, and where they are found."""

    server: PostgresServer
    url: str  # of the database, as its superuser and without the proxy
    served_url: str  # as gateways have it
    proxy: Connection
    ports: list[int]
    gateways: Crew[Served]
    workers: Crew[Served]

    def holders(self) -> set[int]:
        """The processes that hold a session or a piece of work now."""
        rows = self.server.execute(
            "SELECT substring(owner FROM 'process (\\d+) on') FROM perdure.sessions WHERE lease_until > now() "
            "UNION SELECT substring(owner FROM '\\d+$') FROM perdure.work WHERE lease_until > now()",
            url=self.url,
        )
        return {int(pid) for (pid,) in rows if pid}

    def mend(self) -> int:
        """Start anew what has ended by itself, as a supervisor does; how many that were."""
        ended = 0
        for crew in (self.gateways, self.workers):
            for place, member in enumerate(crew.members):
                if not member.is_alive():
                    crew.members[place] = crew.start(place)
                    ended += 1
        return ended


def config_of(port: int, model: str, store: str) -> str:
    """What stands in the config file of each gateway and worker."""
    return f"""window_tokens = {WINDOW}
summarizer_models = ["anthropic:{SUMMARIZER}@{model}#SUMMARY_KEY"]
notes_first_tokens = 2000
notes_growth_tokens = 1500

[gateway]
port = {port}
store = "{store}"
background = "workers"
lease_seconds = {LEASE_SECONDS}
drain_seconds = 5

[gateway.upstreams.anthropic]
url = "{model}"

[gateway.upstreams.openai]
url = "{model}"
"""


@contextlib.contextmanager
def cluster(
    folder: Path, server: PostgresServer, s3: FakeS3, model: str, chance: Random, *, breaks_fence: bool
) -> Iterator[Cluster]:
    """Everything but the model server, started."""
    with ExitStack() as stack:
        server.execute("CREATE ROLE perdure_owner LOGIN CREATEROLE")
        server.execute("CREATE DATABASE scale OWNER perdure_owner")
        url, proxy_port = server.url_of("scale"), free_port()
        home = folder / "owner"
        home.mkdir()
        owner, blobs = server.url_of("scale", "perdure_owner"), f"s3://{BUCKET}/home"
        migrated = Served.start(home, s3.environment, "store", "migrate", owner, "--blobs", blobs)
        if migrated.process.wait():
            raise RuntimeError((home / "said.txt").read_text())
        server.execute("CREATE ROLE gateway LOGIN IN ROLE perdure_serving")
        _scale_judge.watch(server, url, claims=chaos.CLAIMS, breaks_fence=breaks_fence)
        chaos.PROCESSES.set_forkserver_preload(["bench._proxy"])
        orders, end = chaos.PROCESSES.Pipe()
        proxy = chaos.PROCESSES.Process(target=_proxy.run, args=(proxy_port, server.port, end), daemon=True)
        proxy.start()
        stack.callback(proxy.kill)
        served_url = f"postgresql://gateway@127.0.0.1:{proxy_port}/scale"
        ports = [free_port() for _ in range(GATEWAYS)]
        homes = [folder / f"gateway-{n}" for n in range(GATEWAYS)], [folder / f"worker-{n}" for n in range(WORKERS)]
        for place, one in enumerate([*homes[0], *homes[1]]):
            one.mkdir()
            port = ports[place] if place < GATEWAYS else 0
            (one / "config.toml").write_text(config_of(port, model, served_url))
        gateways = Crew(
            lambda n: Served.start(homes[0][n], s3.environment, "serve", "--json"), GATEWAYS, chance, PAUSE_SECONDS
        )
        stack.callback(gateways.stop)
        workers = Crew(
            lambda n: Served.start(homes[1][n], s3.environment, "worker", "--json"), WORKERS, chance, PAUSE_SECONDS
        )
        stack.callback(workers.stop)
        yield Cluster(server, url, served_url, orders, ports, gateways, workers)


def free_port() -> int:
    import socket

    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# --- the storm --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Storm:
    """What is done to a cluster, in a thread of its own."""

    cluster: Cluster
    s3: FakeS3
    chance: Random
    kills: int
    seconds: float
    counts: Counter[str] = field(default_factory=Counter)
    is_over: bool = False

    def run(self) -> None:
        """Do all of it in about so many seconds; everything runs when it returns."""
        acts = [what for what, share in STORM.items() for _ in range(max(1, round(share * self.kills / 100)))]
        self.chance.shuffle(acts)
        began = time.monotonic()
        for number, what in enumerate(acts, 1):
            self._do(what)
            while True:
                self._tend()
                if time.monotonic() >= began + self.seconds * number / len(acts):
                    break
                time.sleep(0.05)
        self.s3.faults.clear()
        for crew in (self.cluster.gateways, self.cluster.workers):
            crew.wake(everyone=True)
        self.is_over = True

    def _tend(self) -> None:
        woken = self.cluster.gateways.wake() + self.cluster.workers.wake()
        if woken and self.chance.random() < 0.5:  # who was away for so long has no connections left
            self.cluster.proxy.send(("cut", 1_000))
            self.counts["connections cut at the end of a pause"] += 1
        self.counts["processes that ended by themselves"] += self.cluster.mend()

    def _do(self, what: str) -> None:
        server = self.cluster.server
        match what:
            case "gateways killed":
                self.cluster.gateways.kill()
            case "workers killed":
                self.cluster.workers.kill()
            case "gateways paused" | "workers paused":
                crew = self.cluster.gateways if what.startswith("gateways") else self.cluster.workers
                until = time.monotonic() + 3.0  # else whoever it is, at rest
                while not crew.pause(self.cluster.holders(), or_any=time.monotonic() > until):
                    self._tend()
                    time.sleep(0.02)
            case "connections ended":
                chaos.disconnect(server)
            case "connections cut":
                self.cluster.proxy.send(("cut", 6))
            case "answers of the database lost":
                self.cluster.proxy.send(("lose", 4))
            case "faults of the object store":
                self.s3.faults = deque(self.chance.choices(FAULTS, k=3))
            case "restarts of the database":
                server.stop()
                server.resume()
            case "crashes of the database":
                server.kill()
                server.resume()
            case "times of a slow disk":
                for name, value in (("commit_delay", 100_000), ("commit_siblings", 0)):
                    server.execute(f"ALTER SYSTEM SET {name} = {value}")
                server.execute("SELECT pg_reload_conf()")
                self._wait(SLOW_SECONDS)
                server.execute("ALTER SYSTEM RESET ALL")
                server.execute("SELECT pg_reload_conf()")
            case "times of a slow database":
                self.cluster.proxy.send(("hold", SLOW_SECONDS))
                self._wait(SLOW_SECONDS)
        self.counts[what] += 1

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._tend()
            time.sleep(0.05)


# --- the load ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Load:
    """Clients that go on whatever happens, each round at any of the gateways."""

    cluster: Cluster
    model: RecordedModel
    scripts: Sequence[Sequence[Round]]
    chance: Random
    talks: list[Talk] = field(default_factory=list)
    unanswered: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    async def run(self, storm: Storm) -> None:
        """Conversations until the storm is over; then each says one thing more."""
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector) as http:
            async with asyncio.TaskGroup() as group:
                for _ in range(CLIENTS):
                    group.create_task(self._client(http, storm))
            async with asyncio.TaskGroup() as group:
                places = asyncio.Semaphore(CLIENTS)
                for talk in self.talks:
                    group.create_task(self._last_word(http, talk, places))

    async def _client(self, http: aiohttp.ClientSession, storm: Storm) -> None:
        while not storm.is_over:
            number = len(self.talks)
            script = self.scripts[number % len(self.scripts)]
            wire = WIRES[number % len(WIRES)]
            thinks = wire == "anthropic" and number % 2 == 0
            talk = Talk(f"talk-{number:03}", wire, script, is_stream=self.chance.random() < 0.6, thinks=thinks)
            self.talks.append(talk)
            self.model.talks[talk.name] = talk
            while talk.done < len(script) and not storm.is_over:
                if not await self._round(http, talk):
                    break
                await asyncio.sleep(self.chance.uniform(0.0, 0.2))

    async def _last_word(self, http: aiohttp.ClientSession, talk: Talk, places: asyncio.Semaphore) -> None:
        async with places:
            while talk.name not in {one.partition(":")[0] for one in self.refused}:
                await self._round(http, talk)
                if not talk.attempts[-1].mode.startswith("passed"):  # else its session knows nothing of the answer yet
                    return

    async def _round(self, http: aiohttp.ClientSession, talk: Talk) -> bool:
        """Say something until it is answered; False where a gateway refuses it."""
        talk.say(talk.done)
        while True:
            gateway, patience = self.chance.randrange(GATEWAYS), self.chance.choice((3.0, 30.0))
            began = time.monotonic()
            try:
                answer = await talk.ask(http, gateway, f"http://127.0.0.1:{self.cluster.ports[gateway]}", patience)
            except Unanswered as e:
                self.unanswered[str(e)] += 1
                await asyncio.sleep(self.chance.uniform(0.05, 0.4))
                continue
            except Refused as e:
                self.refused.append(f"{talk.name}: round {talk.done} ({talk.wire}): {e}")
                return False
            self.seconds.append(time.monotonic() - began)
            talk.take(answer)
            talk.done += 1
            return True


@dataclass(slots=True)
class Wishes:
    """The notes of each line of each session are wanted, as gateways want them after answers."""

    cluster: Cluster
    enqueues: int  # at least
    done: int = 0  # that were acknowledged
    upto: dict[str, int] = field(default_factory=dict)  # how far, of each piece of work

    async def run(self, storm: Storm) -> None:
        """Until the storm is over, and there were enough: then what is wanted already is said again."""
        store = PostgresStore(self.cluster.served_url, connections=4)
        while not storm.is_over or self.done < self.enqueues:
            for tenant, session, lines in await asyncio.to_thread(sessions_in, self.cluster):
                known = self.upto.get(f"{KIND} of {session}", 0)
                first = lines if storm.is_over and lines == known else known + 1
                for upto in range(max(1, first), lines + 1):
                    await self._want(store, tenant, session, upto)
            await asyncio.sleep(0.0 if storm.is_over else 5.0)
        await store.close()

    async def _want(self, store: PostgresStore, tenant: str, session: str, upto: int) -> None:
        while True:
            try:
                await store.work.want(tenant, session, KIND, upto)
                break
            except JournalError:
                await asyncio.sleep(0.1)
        self.done += 1
        self.upto[f"{KIND} of {session}"] = upto


def sessions_in(cluster: Cluster) -> list[tuple[Any, ...]]:
    """Tenant, id and lines of each session; none while the database is away."""
    with contextlib.suppress(psycopg.OperationalError):
        return cluster.server.execute(
            "SELECT t.name, s.id, s.seq FROM perdure.sessions s JOIN perdure.tenants t ON t.id = s.tenant",
            url=cluster.url,
        )
    return []


async def ready(cluster: Cluster, patience: float = 120.0) -> None:
    """Wait until each gateway can answer."""
    until = time.monotonic() + patience
    async with aiohttp.ClientSession() as http:
        for port in cluster.ports:
            while True:
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    async with http.get(f"http://127.0.0.1:{port}/readyz", timeout=aiohttp.ClientTimeout(5)) as answer:
                        if answer.status == 200:
                            break
                if time.monotonic() > until:
                    raise RuntimeError(f"the gateway at {port} isn't ready")
                cluster.mend()
                await asyncio.sleep(0.2)


# --- all of it --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Outcome:
    """What was done, and what came of it."""

    storm: Storm
    load: Load
    queue: Chaos
    verdict: Verdict
    enqueues: int
    s3: FakeS3

    def problems(self) -> dict[str, list[str]]:
        """All that has to be empty."""
        queue = self.queue
        return {
            **self.verdict.wrong,
            "work lost": queue.lost,
            "work twice in effect": queue.twice,
            "overlapping work": queue.overlaps,
            "work of a paused worker": queue.zombies,
            "work left undone": queue.left,
            "requests refused": self.load.refused,
        }

    @property
    def is_right(self) -> bool:
        return not any(self.problems().values())


async def run(
    folder: Path,
    server: PostgresServer,
    scripts: Sequence[Sequence[Round]],
    *,
    kills: int,
    seconds: float,
    enqueues: int,
    seed: int,
    breaks_fence: bool = False,
) -> Outcome:
    """A cluster, its load and a storm; and what stands in the database afterwards."""
    chance, model = Random(seed), RecordedModel()
    async with AsyncExitStack() as stack:
        double = await stack.enter_async_context(RecordedServer(model, Random(seed)))
        s3 = await stack.enter_async_context(FakeS3(buckets={BUCKET: {}}))
        running = cluster(folder, server, s3, double.url, chance, breaks_fence=breaks_fence)
        made = await asyncio.to_thread(stack.enter_context, running)
        await ready(made)
        storm = Storm(made, s3, Random(seed), kills, seconds)
        load = Load(made, model, scripts, Random(seed))
        wishes = Wishes(made, enqueues)
        async with anyio.create_task_group() as group:
            group.start_soon(load.run, storm)
            group.start_soon(wishes.run, storm)
            await anyio.to_thread.run_sync(storm.run)
            await ready(made)
        queue = Chaos()
        await asyncio.to_thread(chaos.drain, made.url, server, queue, 180.0)
        verdict = await asyncio.to_thread(_scale_judge.judge, server, made.url, model, s3.buckets[BUCKET])
        await asyncio.to_thread(chaos.judge, server, made.url, wishes.upto, queue)
    return Outcome(storm, load, queue, verdict, wishes.done, s3)


def report(came: Outcome, seed: int) -> Iterator[str]:
    """Counts, one a line; then what has to be 0, and the first of what isn't."""

    def line(what: str, count: object) -> str:
        return f"  {what:62}{count:>10}"

    yield f"done to them (seed {seed})"
    for what, count in came.storm.counts.items():
        yield line(what, count)
    yield "the load"
    times = sorted(came.load.seconds)
    yield line("conversations", len(came.load.talks))
    yield line("answers that clients got whole", len(times))
    yield line("their median and p99, seconds", f"{times[len(times) // 2]:.2f} {times[len(times) * 99 // 100]:.2f}")
    yield line("requests that were asked again", came.load.unanswered.total())
    for what, count in came.load.unanswered.most_common():
        yield line(f"  {what}", count)
    yield "what came of it"
    for what, count in came.verdict.counts.items():
        yield line(what, count)
    yield line("summaries that workers or gateways had written", came.load.model.summaries)
    yield line("enqueues", came.enqueues)
    yield line("pieces of work that these became", came.queue.commits)
    yield line("revived, as their workers were killed too often", came.queue.dead)
    yield line("seconds until nothing was due any more", f"{came.queue.drained_seconds:.1f}")
    yield "what has to be 0"
    for what, found in came.problems().items():
        yield line(what, len(found))
        yield from (f"      {one}" for one in found[:4])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0, help="about how long the storm goes on")
    parser.add_argument("--kills", type=int, default=150, help="of all that is done to processes and connections")
    parser.add_argument("--enqueues", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--folder", type=Path, help="where the database keeps its data; else on a disk in memory")
    parser.add_argument("--break-fence", action="store_true", help="as if there were none: has to be found")
    args = parser.parse_args()
    if (reason := why_there_is_no_server()) is not None:
        print(f"no storm: {reason}", file=sys.stderr)
        return 2
    scripts = recorded_talks(TALKS, ROUNDS)
    if not scripts:
        print("no recordings beside the repository: conversations that never happened take their place")
        scripts = made_talks(TALKS, ROUNDS)
    if args.folder is not None:
        args.folder.mkdir(parents=True, exist_ok=True)
    chaos.PROCESSES.set_forkserver_preload(["bench.scale"])
    with (
        tempfile.TemporaryDirectory(prefix="perdure-scale-") as folder,
        PostgresServer.start(args.folder, is_durable=True, settings=SETTINGS) as server,
    ):
        came = asyncio.run(
            run(
                Path(folder), server, scripts, kills=args.kills, seconds=args.minutes * 60, enqueues=args.enqueues,
                seed=args.seed, breaks_fence=args.break_fence,
            )
        )  # fmt: skip
        for line in report(came, args.seed):
            print(line)
    return 0 if came.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
