"""What PostgreSQL costs, beside the same load on files and in memory, in one run (SCL-5, SCL-7).

    python -m bench.postgres [rates] [library] [gateway] [--folder FOLDER] [--sizes 10 800] [--turns 40] [--delay 1.0]

A real PostgreSQL from its wheel, and the files, stand in a folder on the same disk; both sync what they acknowledge
(--folder /dev/shm: no disk). Server, clients and all else share the machine; what is compared takes turns.

rates: appends a second of 2 KB by 1, 8 and 32 writers, each with a session of its own, and pieces of background work
that are wanted, then claimed and finished. library: what recording a prompt and an answer takes in a session of so many
KB (800 are 200,000 tokens), each acknowledged when it is durable, beside the whole turn. gateway: the same requests
through a gateway on files and one on PostgreSQL, beside the upstream itself. Both also through a proxy that makes each
round trip to the database take a millisecond more, as from another machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import secrets
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from bench import gateway

from perdure import Message
from perdure.adapters.journal.home import FileStore
from perdure.adapters.journal.memory_home import MemoryHomes
from perdure.adapters.postgres.schema import SERVING, migrate
from perdure.adapters.postgres.store import PostgresStore
from perdure.engine.session import LiveSession, ModelWindow
from perdure.engine.turn import prepare
from perdure.ports.home import Store, WorkQueue
from perdure.testing.postgres import PostgresServer, why_there_is_no_server
from perdure.wiring import SessionOptions, create_session

WRITERS, GOAL_APPENDS = (1, 8, 32), 2_500
WORKERS, GOAL_JOBS = 8, 900
ROUNDS = 3  # of which the median counts
SETTINGS = {"shared_preload_libraries": "pg_stat_statements"}


# --- how much it takes ------------------------------------------------------------------------------------------------


async def appends_per_second(store: Store, writers: int, each: int) -> tuple[float, list[float]]:
    """Records of 2 KB, each acknowledged before the next; and how many seconds each took."""
    home, took = store.home(f"a{secrets.token_hex(4)}"), list[float]()
    made = [await home.create(f"s{number}", project="/p", created=1.0) for number in range(writers)]

    async def write(number: int) -> None:
        for _ in range(each):
            said = Message.of("user", secrets.token_hex(900))
            began = time.perf_counter()
            await made[number].journal.append((said,))
            took.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(write(number) for number in range(writers)))
    seconds = time.perf_counter() - began
    for one in made:
        await one.journal.close()
    return len(took) / seconds, took


async def jobs_per_second(queue: WorkQueue, jobs: int) -> tuple[float, float]:
    """How many are wanted a second, one by one of eight; and claimed, ten at a time of eight, and finished."""
    kind, left, done = secrets.token_hex(4), list(range(jobs)), 0

    async def wish() -> None:
        while left:
            await queue.want("jobs", f"s{left.pop()}", kind, 1)

    async def work() -> None:
        nonlocal done
        while done < jobs:
            for claim in await queue.claim(kind, limit=10, seconds=60.0):
                async with queue.finishing(claim):
                    pass
                done += 1

    began = time.perf_counter()
    await asyncio.gather(*(wish() for _ in range(WORKERS)))
    wanted = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(WORKERS)))
    return jobs / (wanted - began), jobs / (time.perf_counter() - wanted)


async def rates(stores: dict[str, Store], appends: int, jobs: int) -> None:
    print(f"\n{'appends a second of 2 KB':>30}" + "".join(f"{name:>22}" for name in stores) + "   PostgreSQL / files")
    for writers in WRITERS:
        each, found = max(8, appends // writers), {name: list[tuple[float, list[float]]]() for name in stores}
        for _ in range(ROUNDS):
            for name, store in stores.items():
                found[name].append(await appends_per_second(store, writers, each))
        rate = {name: statistics.median(one for one, _ in runs) for name, runs in found.items()}
        print(f"{f'{writers} writers':>30}" + "".join(f"{one:>22,.0f}" for one in rate.values()) + ratio(rate))
        for what, part in (("median, ms", 0.5), ("p99, ms", 0.99)):
            times = [at(part, [one * 1e3 for _, run in runs for one in run]) for runs in found.values()]
            print(f"{what:>30}" + "".join(f"{one:>22.2f}" for one in times), flush=True)
    print(f"{'goal of PostgreSQL':>30}  {GOAL_APPENDS:,} by {WRITERS[-1]} writers: {rate['PostgreSQL']:,.0f}")
    runs = {name: [await jobs_per_second(store.work, jobs) for _ in range(ROUNDS)] for name, store in stores.items()}
    for number, what in enumerate(("jobs wanted a second", "jobs finished a second")):
        rate = {name: statistics.median(run[number] for run in some) for name, some in runs.items()}
        print(f"{what:>30}" + "".join(f"{one:>22,.0f}" for one in rate.values()) + ratio(rate), flush=True)
    print(f"{'goal of PostgreSQL':>30}  {GOAL_JOBS:,} finished: {rate['PostgreSQL']:,.0f}")


def ratio(rate: dict[str, float]) -> str:
    return f"{rate['PostgreSQL'] / rate['files']:>16.2f}"


def at(part: float, values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def beside(some: Sequence[float], others: Sequence[float]) -> tuple[float, float]:
    """How much more these take, turn by turn: the median, and the 99th percentile."""
    more = [one - other for one, other in zip(some, others, strict=True)]
    return at(0.5, more), at(0.99, more)


# --- a turn -----------------------------------------------------------------------------------------------------------


async def library(stores: dict[str, Store], kilobytes: int, turns: int, db: psycopg.Connection) -> None:
    """Turns of sessions of that size, by themselves and what of them is recording."""
    sessions: dict[str, LiveSession] = {}
    parts = SessionOptions(window=ModelWindow(1_000_000, "setting"))
    for name, store in stores.items():
        sessions[name] = await create_session(store.home("library"), project="/p", parts=parts)
        for number in range(max(1, kilobytes // 4)):
            await sessions[name].append(
                Message.of(("user", "assistant")[number % 2], f"{number} " + "words of it " * 330)
            )
        await prepare(sessions[name])
    whole, recording = ({name: list[float]() for name in stores} for _ in range(2))
    forget(db)
    for number in range(turns):
        for name, session in sessions.items():
            began = time.perf_counter()
            await session.append(Message.of("user", f"and {number}? " + "some words of a question " * 20))
            asked = time.perf_counter()
            await prepare(session)
            prepared = time.perf_counter()
            await session.append(Message.of("assistant", f"so {number}: " + "some words of an answer " * 60, model="m"))
            recorded = time.perf_counter()
            session.rest()
            whole[name].append((recorded - began) * 1e3)
            recording[name].append((asked - began + recorded - prepared) * 1e3)
    print(f"\nthe library, a session of {kilobytes} KB, {turns} turns, milliseconds")
    print(f"{'':>30}{'recording p50':>16}{'p99':>10}{'added p50':>12}{'p99':>10}{'whole p50':>12}")
    for name in stores:
        added = beside(recording[name], recording["files"])
        figures = [at(0.5, recording[name]), at(0.99, recording[name]), *added, at(0.5, whole[name])]
        print(f"{name:>30}" + "".join(f"{one:>{w}.2f}" for one, w in zip(figures, (16, 10, 12, 10, 12), strict=True)))
    show_asked(db, turns * sum(isinstance(store, PostgresStore) for store in stores.values()))
    for session in sessions.values():
        await session.close()


async def through_gateways(rows: list[gateway.Row], kilobytes: int, turns: int, db: psycopg.Connection) -> None:
    """The same requests through each, one after the other."""
    await gateway.measure(rows, kilobytes, turns)
    files = next(row for row in rows if row.name == "files")
    print(f"\nthrough the gateway, {kilobytes} KB bodies, {turns} turns, milliseconds but for req/s")
    names = ("first p50", "p99", "added", "p99", "last p50", "added", "p99", "cpu", "req/s", "first turn")
    print(f"{'':>30}" + "".join(f"{name:>11}" for name in names))
    for row in rows:
        figures = [row.median, at(0.99, row.first), *beside(row.first, files.first)]
        figures += [at(0.5, row.whole), *beside(row.whole, files.whole)]
        print(f"{row.name:>30}" + "".join(f"{one:>11.2f}" for one in (*figures, row.cpu_ms, row.rate, row.import_ms)))
    slow = rows[-1]
    for what, is_new in (("a turn", False), ("the first turn of a conversation", True)):
        wire, talk = slow.talk(kilobytes)
        await wire.ask(talk.body())
        await asyncio.sleep(1.5)  # what is written behind the answers
        forget(db)
        for _ in range(10):
            talk.goes_on()
            talk = slow.talk(kilobytes)[1] if is_new else talk
            await wire.ask(talk.body())
        await asyncio.sleep(1.5)
        show_asked(db, 10, what)


def forget(db: psycopg.Connection) -> None:
    db.execute("SELECT pg_stat_statements_reset()")


def asked_since(db: psycopg.Connection) -> dict[str, float]:
    """What was asked of the database since its statements were last forgotten.

    Each transaction begins by saying whom it is for; an append, which is one by itself, does so within.
    """
    row = db.execute(
        "SELECT sum(calls), sum(calls) FILTER (WHERE query ~* '^select perdure.(append|serve)'), "
        "sum(calls) FILTER (WHERE query ~* '^select perdure.append'), sum(total_exec_time) "
        "FROM pg_stat_statements WHERE query NOT LIKE '%pg_stat_statements%'"
    ).fetchone()
    names = ("statements", "transactions", "appends", "ms in the server")
    return dict(zip(names, map(float, (one or 0 for one in row or ())), strict=True))


def show_asked(db: psycopg.Connection, turns: int, what: str = "a turn") -> None:
    told = ", ".join(f"{count / turns:.1f} {name}" for name, count in asked_since(db).items())
    print(f"{what} asks PostgreSQL: {told}", flush=True)


# --- a database that is further away ----------------------------------------------------------------------------------


def delay(url: str, seconds: float) -> None:
    """Pass connections on to a server, what is asked of it so much later: a round trip takes that much longer."""
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    gateway.say_url(listening.getsockname()[1])

    def passed(source: socket.socket, target: socket.socket, wait: float) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                time.sleep(wait)
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    while True:
        client, _ = listening.accept()
        server = socket.create_connection(("127.0.0.1", urlsplit(url).port or 5432))
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, target, wait in ((client, server, seconds), (server, client, 0.0)):
            threading.Thread(target=passed, args=(source, target, wait), daemon=True).start()


def round_trip_ms(url: str) -> float:
    """The median of a question that takes no time."""
    with closing(psycopg.connect(url, autocommit=True)) as db:
        took = []
        for _ in range(50):
            began = time.perf_counter()
            db.execute("SELECT 1")
            took.append((time.perf_counter() - began) * 1e3)
    return statistics.median(took)


# --- the command ------------------------------------------------------------------------------------------------------


def serving_gateway(stack: contextlib.ExitStack, home: Path, upstream: str, store: str = "") -> tuple[str, int]:
    """A gateway as `perdure serve` runs it: its URL, and its process."""
    home.mkdir()
    upstreams = "".join(f'[gateway.upstreams.{name}]\nurl = "{upstream}"\n' for name in ("anthropic", "openai"))
    home.joinpath("config.toml").write_text(f'window_tokens = 4_000_000\n[gateway]\nusage = "upstream"\n{upstreams}')
    command = ["-m", "perdure", "serve", "--port", "0", "--json", *(["--store", store] if store else [])]
    return stack.enter_context(gateway.started(*command, env={**os.environ, "PERDURE_HOME": str(home)}))


@contextlib.contextmanager
def served(server: PostgresServer) -> Iterator[tuple[str, psycopg.Connection]]:
    """The URL of a new database for who serves, and a connection of its superuser, who sees what is asked."""
    server.execute("CREATE ROLE perdure_owner LOGIN CREATEROLE")
    server.execute("CREATE DATABASE cost OWNER perdure_owner")
    asyncio.run(_migrated(server.url_of("cost", "perdure_owner")))
    server.execute(f"CREATE ROLE gateway LOGIN IN ROLE {SERVING}")
    with closing(psycopg.connect(server.url_of("cost"), autocommit=True)) as db:
        db.execute("CREATE EXTENSION pg_stat_statements")
        yield server.url_of("cost", "gateway"), db


@contextlib.contextmanager
def also_further(url: str, delay_ms: float) -> Iterator[dict[str, str]]:
    """URLs of a database by what it is called: direct, and from further away."""
    command = ("-m", "bench.postgres", "--role", "delay", "--url", url, "--delay", str(delay_ms))
    with gateway.started(*command) as (proxy, _):
        further = url.replace(f":{urlsplit(url).port}", f":{urlsplit(proxy).port}")
        trips = round_trip_ms(url), round_trip_ms(further)
        print(f"a round trip to PostgreSQL: {trips[0]:.2f} ms, from further away {trips[1]:.2f} ms")
        yield {"PostgreSQL": url, f"PostgreSQL, {delay_ms:g} ms away": further}


async def _migrated(url: str) -> None:
    await migrate(url)


async def with_stores(
    folder: Path, urls: dict[str, str], work: Callable[[dict[str, Store]], Awaitable[None]], *, is_fast: bool
) -> None:
    """Do something with stores in memory, in files and in the database."""
    stores: dict[str, Store] = {"memory": MemoryHomes(), "files": FileStore(folder)}
    stores |= {name: PostgresStore(url, connections=max(WRITERS)) for name, url in urls.items()}
    await work({name: stores[name] for name in ("memory", "files", "PostgreSQL")} if is_fast else stores)
    for store in stores.values():
        await store.close()


def measure(options: argparse.Namespace, folder: Path, server: PostgresServer) -> None:
    what = options.what or ["rates", "library", "gateway"]
    with served(server) as (url, db), also_further(url, options.delay) as urls:
        if "rates" in what:
            rated = lambda stores: rates(stores, options.appends, options.jobs)  # noqa: E731
            asyncio.run(with_stores(folder / "rates", urls, rated, is_fast=True))
        for kilobytes in options.sizes if "library" in what else ():
            turned = lambda stores, size=kilobytes: library(stores, size, options.turns, db)  # noqa: E731
            asyncio.run(with_stores(folder / f"library-{kilobytes}", urls, turned, is_fast=False))
        if "gateway" not in what:
            return
        with contextlib.ExitStack() as stack:
            upstream, _ = stack.enter_context(gateway.started(gateway.__file__, "--role", "upstream"))
            places = {"files": "", **urls}
            serving = {
                name: serving_gateway(stack, folder / f"gateway-{number}", upstream, place)
                for number, (name, place) in enumerate(places.items())
            }
            for kilobytes in options.sizes:
                rows = [gateway.Row("the upstream itself", upstream, None, "messages")]
                rows += [gateway.Row(name, *where, "messages") for name, where in serving.items()]
                asyncio.run(through_gateways(rows, kilobytes, options.turns, db))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", nargs="*", choices=["rates", "library", "gateway", []])
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="where all that is kept stands"
    )
    parser.add_argument("--sizes", type=int, nargs="*", default=[10, 800], metavar="KB", help="of a conversation")
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--appends", type=int, default=1_600, help="of each run")
    parser.add_argument("--jobs", type=int, default=800, help="of each run")
    parser.add_argument("--delay", type=float, default=1.0, metavar="MS", help="that a round trip takes longer")
    parser.add_argument("--role", default="", help=argparse.SUPPRESS)
    parser.add_argument("--url", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        delay(options.url, options.delay / 1e3)
    if why := why_there_is_no_server():
        sys.exit(why)
    with (
        tempfile.TemporaryDirectory(prefix="perdure-cost-", dir=options.folder) as folder,
        PostgresServer.start(options.folder, is_durable=True, settings=SETTINGS) as server,
    ):
        measure(options, Path(folder), server)


if __name__ == "__main__":
    main()
