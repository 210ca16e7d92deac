"""Workers that are killed or paused, broken connections, a server that crashes: what comes of the work (SCL-2, SCL-5).

    python -m bench.chaos [--enqueues 10000] [--kills 150] [--folder build/chaos]

Starts a real PostgreSQL from its wheel that syncs what it commits. Six workers do what two processes want, each piece
with an effect that is committed together with it. Prints what was done to them and what came of it; 1 when anything was
lost, done twice, committed by a paused owner, or left. `bench.postgres rates` says how much a queue and a journal take.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Generic, Protocol, TypeVar

import anyio

from perdure.adapters.postgres.database import Database
from perdure.adapters.postgres.schema import migrate
from perdure.adapters.postgres.work import PostgresWorkQueue
from perdure.errors import ClaimLost, JournalError
from perdure.ports.home import Claim
from perdure.testing.postgres import PostgresServer, why_there_is_no_server
from perdure.wiring.worker import Commit, Worker

WORKERS, WISHERS, SESSIONS = 6, 2, 50
LEASE_SECONDS = 1.0
PAUSE_SECONDS = (1.5, 2.5)  # of a worker that is stopped: longer than its lease
KIND, TENANT = "notes", "chaos"
SETTINGS = {"track_commit_timestamp": "on", "autovacuum": "on"}
PROCESSES = multiprocessing.get_context("forkserver")
# Each claim is written down by the database itself, so that every commit can be compared with those before it.
CLAIMS = """
CREATE TABLE public.effects (session text, start bigint, until bigint, fence bigint);
CREATE TABLE public.claims (session text, fence bigint);
GRANT ALL ON public.claims TO perdure_serving;
CREATE FUNCTION public.claimed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO public.claims VALUES (new.kind || ' of ' || new.session, new.fence);
  RETURN new;
END $$;
CREATE TRIGGER claimed AFTER UPDATE ON perdure.work FOR EACH ROW
  WHEN (new.fence > old.fence AND new.owner IS NOT NULL) EXECUTE FUNCTION public.claimed();
"""
_REFUSED = "CREATE TABLE public.refused (fence bigint);"
_ZOMBIES = """SELECT DISTINCT e.session, e.fence FROM public.effects e JOIN public.claims c
  ON c.session = e.session AND c.fence > e.fence
  WHERE pg_xact_commit_timestamp(c.xmin) < pg_xact_commit_timestamp(e.xmin)"""
_EFFECT = "INSERT INTO public.effects (session, start, until, fence) VALUES (%s, %s, %s, %s)"


# --- processes of their own


class WatchedQueue(PostgresWorkQueue):
    """Writes down what it refuses."""

    def __init__(self, db: Database) -> None:
        super().__init__(db)
        self._watched = db

    @asynccontextmanager
    async def finishing(self, claim: Claim) -> AsyncIterator[None]:
        try:
            async with super().finishing(claim):
                yield
        except ClaimLost:
            async with self._watched.connection() as connection:
                await connection.execute("INSERT INTO public.refused VALUES (%s)", (claim.fence,))
            raise


def work(url: str, seed: int) -> None:
    """A worker, until it is killed. Each piece takes it up to 300 ms: it is often killed within one."""
    chance = Random(seed)

    async def main() -> None:
        db = Database(url, connections=4)

        @asynccontextmanager
        async def done(claim: Claim) -> AsyncIterator[Commit]:
            await anyio.sleep(chance.uniform(0, 0.3))
            yield lambda: commit(claim)

        async def commit(claim: Claim) -> None:
            async with db.connection() as connection:
                await connection.execute(_EFFECT, (f"{KIND} of {claim.session}", claim.done, claim.want, claim.fence))
            await anyio.sleep(chance.uniform(0, 0.01))

        name = f"worker {os.getpid()}"
        await Worker(
            WatchedQueue(db), name, {KIND: done}.get, places=3, lease_seconds=LEASE_SECONDS, chance=chance
        ).run()

    anyio.run(main)


def wish(url: str, sessions: list[str], each: int, seconds: float, acknowledged: str) -> None:
    """Want more of some sessions, one step at a time, in about so many seconds; write down what was acknowledged."""
    done = dict.fromkeys(sessions, 0)

    async def main() -> None:
        queue = PostgresWorkQueue(Database(url, connections=4))
        began, pace = time.monotonic(), seconds / each
        for step in range(1, each + 1):
            for session in sessions:
                while done[session] < step:
                    try:
                        await queue.want(TENANT, session, KIND, step)
                        done[session] = step
                    except JournalError:
                        await anyio.sleep(0.05)
            await anyio.sleep(max(0.0, began + step * pace - time.monotonic()))

    anyio.run(main)
    Path(acknowledged).write_text(json.dumps(done))


# --- what is done to them


@dataclass(slots=True)
class Chaos:
    """What was done, and what came of it."""

    kills: int = 0
    pauses: int = 0
    disconnections: int = 0
    crashes: int = 0
    enqueues: int = 0
    commits: int = 0
    refused: int = 0
    dead: int = 0
    drained_seconds: float = 0.0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    overlaps: list[str] = field(default_factory=list)
    zombies: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> int:
        return sum(map(len, (self.lost, self.twice, self.overlaps, self.zombies, self.left)))


class Started(Protocol):
    """A process that is to be killed or paused, as `multiprocessing` has it."""

    @property
    def pid(self) -> int | None: ...

    def is_alive(self) -> bool: ...

    def kill(self) -> None: ...

    def join(self) -> None: ...


P = TypeVar("P", bound=Started)


class Crew(Generic[P]):
    """So many processes; one that is killed is followed by another in its place."""

    def __init__(self, start: Callable[[int], P], count: int, chance: Random, pauses: tuple[float, float]) -> None:
        """`start` starts the one of a place; `pauses`: how long one is stopped."""
        self.start, self._chance, self._pauses = start, chance, pauses
        self.members = [start(number) for number in range(count)]
        self._paused: list[tuple[float, P]] = []

    def kill(self) -> None:
        number = self.members.index(self._chance.choice(self._awake()))
        self._end(self.members[number])
        self.members[number] = self.start(number)

    def _awake(self) -> list[P]:
        """Those that aren't paused: they are to come back late."""
        paused = [member for _, member in self._paused]
        return [member for member in self.members if member not in paused]

    def pause(self, wanted: Container[int | None] = (), *, or_any: bool = True) -> int:
        """Stop one, of these if there is one awake; how many that were. Half of them are stopped at most."""
        awake = self._awake()
        found = [member for member in awake if member.pid in wanted] or (awake if or_any else [])
        if len(self._paused) >= len(self.members) // 2 or not found:
            return 0
        member = self._chance.choice(found)
        assert member.pid is not None
        os.kill(member.pid, signal.SIGSTOP)
        self._paused.append((time.monotonic() + self._chance.uniform(*self._pauses), member))
        return 1

    def wake(self, *, everyone: bool = False) -> int:
        """Let those go on whose pause is over; how many that were."""
        due = [(until, member) for until, member in self._paused if everyone or until <= time.monotonic()]
        self._paused = [one for one in self._paused if one not in due]
        for _, member in due:
            if member.is_alive() and member.pid is not None:
                os.kill(member.pid, signal.SIGCONT)
        return len(due)

    def _end(self, member: P) -> None:
        member.kill()
        member.join()

    def stop(self) -> None:
        for member in self.members:
            self._end(member)


def run(server: PostgresServer, folder: Path, *, enqueues: int, kills: int, seconds: float, seed: int) -> Chaos:
    """All of it, and what the database holds afterwards."""
    chance, came = Random(seed), Chaos(enqueues=enqueues // SESSIONS * SESSIONS)
    url = server.database("chaos")
    anyio.run(migrate, url)
    server.execute(CLAIMS + _REFUSED, url=url)
    names = [f"s{number:02}" for number in range(SESSIONS)]
    told = [folder / f"acknowledged-{number}.json" for number in range(WISHERS)]
    wishers = [
        PROCESSES.Process(
            target=wish, args=(url, names[n::WISHERS], enqueues // SESSIONS, seconds, str(told[n])), daemon=True
        )
        for n in range(WISHERS)
    ]

    def started(_: int) -> BaseProcess:
        worker = PROCESSES.Process(target=work, args=(url, chance.randrange(2**32)), daemon=True)
        worker.start()
        return worker

    crew = Crew(started, WORKERS, chance, PAUSE_SECONDS)
    try:
        for wisher in wishers:
            wisher.start()
        _disturb(server, crew, came, chance, kills=kills, seconds=seconds)
        for wisher in wishers:
            wisher.join(seconds + 60)
        crew.wake(everyone=True)
        drain(url, server, came)
    finally:
        crew.stop()
        for wisher in wishers:
            wisher.kill()
    wanted = (one for path in told for one in json.loads(path.read_text()).items())
    judge(server, url, {f"{KIND} of {name}": upto for name, upto in wanted}, came)
    [(came.refused,)] = server.execute("SELECT count(*) FROM public.refused", url=url)
    return came


def _disturb(
    server: PostgresServer, crew: Crew[BaseProcess], came: Chaos, chance: Random, *, kills: int, seconds: float
) -> None:
    began = time.monotonic()
    crash_at = [kills // 3, 2 * kills // 3]
    while came.kills < kills:
        crew.kill()
        came.kills += 1
        if came.kills % 3 == 0:
            came.pauses += crew.pause()
        if came.kills % 10 == 0:
            came.disconnections += disconnect(server)
        if came.kills in crash_at:
            server.kill()
            server.resume()
            came.crashes += 1
        crew.wake()
        due = began + seconds * came.kills / kills * chance.uniform(0.98, 1.0)
        time.sleep(max(0.0, due - time.monotonic()))


def disconnect(server: PostgresServer, most: int = 3) -> int:
    """End connections of gateways or workers, whatever they are at; how many that were."""
    ended = server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'perdure' "
        "ORDER BY random() LIMIT %s",
        (most,),
    )
    return len(ended)


def drain(url: str, server: PostgresServer, came: Chaos, patience: float = 60.0) -> None:
    """Wait until all is done; what is dead by then because its workers were killed too often is revived."""
    began = time.monotonic()
    while time.monotonic() < began + patience:
        [(waiting,)] = server.execute("SELECT count(*) FROM perdure.work WHERE want > done", url=url)
        if not waiting:
            break
        came.dead += anyio.run(_revived, url)
        time.sleep(0.1)
    came.drained_seconds = time.monotonic() - began


async def _revived(url: str) -> int:
    db = Database(url, connections=1)
    queue = PostgresWorkQueue(db)
    dead = await queue.dead()
    for claim, _ in dead:
        await queue.revive(claim.tenant, claim.session, claim.kind)
    await db.close()
    return len(dead)


def judge(server: PostgresServer, url: str, acknowledged: dict[str, int], came: Chaos) -> None:
    """Ranges of a piece of work have to join, in the order in which they were committed, up to what was acknowledged.

    A piece is of a kind and a session.
    """
    effects: dict[str, list[tuple[int, int, int]]] = {piece: [] for piece in acknowledged}
    for session, start, until, fence in server.execute(
        "SELECT session, start, until, fence FROM public.effects ORDER BY session, fence", url=url
    ):
        effects.setdefault(session, []).append((start, until, fence))
        came.commits += 1
    for session, ranges in effects.items():
        came.lost += [f"{session}: {one[1]}..{two[0]}" for one, two in pairwise(ranges) if two[0] > one[1]]
        came.overlaps += [f"{session}: {one} {two}" for one, two in pairwise(ranges) if two[0] < one[1]]
        came.twice += [f"{session}: {one}" for one in sorted({r[:2] for r in ranges if _times(ranges, r) > 1})]
        wanted = acknowledged.get(session, 0)
        if not ranges or ranges[0][0] != 0 or ranges[-1][1] < wanted:
            came.lost.append(f"{session}: {wanted} acknowledged, {ranges[-1:]} done")
    came.zombies = [f"{session}: fence {fence}" for session, fence in server.execute(_ZOMBIES, url=url)]
    came.left = [
        str(row) for row in server.execute("SELECT session, done, want FROM perdure.work WHERE want > done", url=url)
    ]


def _times(ranges: Iterable[tuple[int, int, int]], one: tuple[int, int, int]) -> int:
    return sum(1 for other in ranges if other[:2] == one[:2])


# --- the command


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--enqueues", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=150)
    parser.add_argument("--seconds", type=float, default=45.0, help="about how long the accidents go on")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--folder", type=Path, help="where the server keeps its data; else on a disk in memory")
    args = parser.parse_args()
    if (reason := why_there_is_no_server()) is not None:
        print(f"no chaos: {reason}", file=sys.stderr)
        return 2
    PROCESSES.set_forkserver_preload(["perdure.adapters.postgres.work", "perdure.wiring.worker"])
    if args.folder is not None:
        args.folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="perdure-chaos-") as folder,
        PostgresServer.start(args.folder, is_durable=True, settings=SETTINGS) as server,
    ):
        came = run(server, Path(folder), enqueues=args.enqueues, kills=args.kills, seconds=args.seconds, seed=args.seed)
        for line in report(came, args.seed):
            print(line)
    return 1 if came.wrong else 0


def report(came: Chaos, seed: int) -> Iterator[str]:
    """The counts, and the first of what is wrong."""
    yield (
        f"done to them: {came.kills} workers killed, {came.pauses} paused beyond their lease, "
        f"{came.disconnections} connections broken, {came.crashes} crashes of the server (seed {seed})"
    )
    yield (
        f"{came.enqueues:,} enqueues became {came.commits:,} commits; {came.refused} late commits refused; "
        f"{came.dead} revived; drained in {came.drained_seconds:.1f} s"
    )
    for what, found in (
        ("lost", came.lost),
        ("twice in effect", came.twice),
        ("overlapping ranges", came.overlaps),
        ("commits of a paused owner", came.zombies),
        ("left undone", came.left),
    ):
        yield f"{what}: {len(found)}{'  ' + '; '.join(found[:3]) if found else ''}"


if __name__ == "__main__":
    sys.exit(main())
