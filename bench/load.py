"""What one client of the gateway feels of the others, and whether its memory stays flat (GW-3, GW-9, SPD-8).

    python -m bench.load [--requests 10000] [--streams 300] [--seconds 8]
    python -m bench.load --live 5000 [--store postgres] [--open 5000] [--requests 2000]

stalls: a stream with an event every 10 ms goes through the gateway to a process of its own, while others do each of
these: nothing, 300 streams at once, 600 bodies that are sent by half, an event of 20 MB, a history of 200,000 tokens
that is compacted for its next request, a body of 20 MB. Shown is the longest time without an event, beside that of the
same stream without the gateway at the same time: what the machine itself takes, which is much when it is busy.

memory: resident memory of the gateway after a tenth of the requests, half of them, and all.

--live: so many conversations of 12 KB at one gateway (SCL-5). All are begun, then gone on with at random, then left
alone: what the gateway takes of memory, of files or connections and of the processor, and what PostgreSQL is asked.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import psycopg
from bench.gateway import cpu_seconds, started
from bench.postgres import asked_since, forget, served

from perdure.testing.postgres import PostgresServer, why_there_is_no_server

TICK_SECONDS = 0.01
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def event(kind: str, **fields: object) -> bytes:
    data = f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


def opening() -> list[bytes]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    message["usage"] = {"input_tokens": 10, "output_tokens": 1}
    return [
        event("message_start", message=message),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    ]


def delta(text: str) -> bytes:
    return event("content_block_delta", index=0, delta={"type": "text_delta", "text": text})


CLOSING = [
    event("content_block_stop", index=0),
    event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 5}),
    event("message_stop"),
    b"0\r\n\r\n",
]


async def upstream() -> None:
    """Answers as the header `x-app` says: `drip SECONDS EVERY`, `event MB`, or at once."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
                what = head.split(b"x-app:")[1].split(b"\r\n")[0].split() if b"x-app:" in head else [b""]
                writer.write(_HEAD + b"".join(opening()))
                if what[0] == b"drip":
                    until = time.perf_counter() + float(what[1])
                    while time.perf_counter() < until:
                        writer.write(delta("word "))
                        await writer.drain()
                        await asyncio.sleep(float(what[2]))
                else:
                    writer.write(delta("word and line " * (int(what[1]) * 70_000) if what[0] == b"event" else "fine"))
                writer.write(b"".join(CLOSING))
                await writer.drain()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=1_000_000, backlog=1024)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await asyncio.Event().wait()


async def ask(
    url: str, body: bytes, *, key: str, app: str = "", route: str = "", each: Callable[[], None] | None = None
) -> bytes:
    """One request on a connection of its own; the answer as it came, or where `each` is told of its parts, its head."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]), limit=1_000_000)
    head = f"POST {route}/v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\nx-api-key: {key}\r\nconnection: close\r\n"
    head += f"x-app: {app}\r\n" if app else ""
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    got = b""
    while data := await reader.read(1_000_000):
        if each is not None:
            each()
        got = got + data if each is None else got or data
        if data.endswith(b"0\r\n\r\n"):
            break
    writer.close()
    if b" 200 " not in got[:20]:
        raise SystemExit(f"{app or 'a request'}: {got[:300]!r}")
    return got


def said(words: str, *, history: int = 0) -> bytes:
    messages = [
        {"role": ("user", "assistant")[n % 2], "content": f"{n} {words} " + "word and line\n" * 140}
        for n in range(history)
    ]
    messages.append({"role": "user", "content": words})
    return json.dumps({"model": "m", "max_tokens": 10, "stream": True, "messages": messages}).encode()


async def probe(gateway: str, direct: str, seconds: float) -> None:
    """The longest time without an event, in milliseconds: through the gateway, and without it."""

    async def watched(url: str, route: str) -> float:
        last, longest = 0.0, 0.0

        def each() -> None:
            nonlocal last, longest
            now = time.perf_counter()
            longest, last = max(longest, now - last if last else 0.0), now

        app = f"drip {seconds} {TICK_SECONDS}"
        await ask(url, said(f"{os.getpid()}"), key="probe", app=app, route=route, each=each)
        return longest * 1e3

    print("began", flush=True)
    print(json.dumps(await asyncio.gather(watched(gateway, "/probe"), watched(direct, ""))), flush=True)


async def stalls(gateway: str, direct: str, streams: int, seconds: float) -> None:
    async def crowd() -> None:
        app = f"drip {seconds} 0.25"
        await asyncio.gather(
            *(ask(gateway, said(f"stream {n}"), key=f"k{n % 10}", app=app, each=int) for n in range(streams))
        )

    async def halves() -> None:
        writers = []
        for n in range(600):
            _, writer = await asyncio.open_connection("127.0.0.1", int(gateway.rpartition(":")[2]))
            head = f"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\nx-api-key: h{n}\r\ncontent-length: 99999\r\n\r\n"
            writer.write(head.encode() + b'{"model":"m","messages":[{"role":"user","content":"' + b"x" * 20_000)
            writers.append(writer)
        await asyncio.sleep(seconds / 2)
        for writer in writers:
            writer.close()

    async def compaction() -> None:
        answer = await ask(gateway, said("compact me", history=440), key="c")
        if b"x-perdure-compacted" not in answer:
            raise SystemExit(f"nothing was compacted: {answer[:400]!r}")

    cases: dict[str, Callable[[], Awaitable[object]]] = {
        "nothing else": lambda: asyncio.sleep(0),
        f"{streams} streams of others": crowd,
        "600 half-sent bodies": halves,
        "an event of 20 MB": lambda: ask(gateway, said("event"), key="e", app="event 20", each=int),
        "an import of 0.9 MB that is compacted": compaction,
        "a body of 20 MB": lambda: ask(gateway, said("word and line\n" * 1_430_000), key="b"),
    }
    print(f"\n{'longest stall of a stream, ms':44}{'gateway':>10}{'direct':>10}")
    for name, work in cases.items():
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.load", "--role", "probe", "--url", gateway, "--direct", direct,
            "--seconds", str(seconds), stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        await process.stdout.readline()
        await asyncio.sleep(1.0)
        await work()
        through, without = json.loads(await process.stdout.readline())
        await process.wait()
        print(f"{name:44}{through:>10.1f}{without:>10.1f}", flush=True)


def resident_mb(pid: int) -> float:
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


async def memory(gateway: str, pid: int, requests: int) -> None:
    """Requests of twenty tenants, each conversation of ten turns."""
    print(f"\n{'requests':>10}{'resident MB':>14}{'seconds':>10}", flush=True)
    began, done = time.perf_counter(), 0

    async def client(number: int) -> None:
        nonlocal done
        talk = 0
        while done < requests:
            talk, messages = talk + 1, [{"role": "user", "content": f"{number} {talk} " + "words of a question " * 20}]
            for turn in range(10):
                body = json.dumps({"model": "m", "max_tokens": 10, "stream": True, "messages": messages}).encode()
                await ask(gateway, body, key=f"m{number}")
                messages += [{"role": "assistant", "content": "fine"}, {"role": "user", "content": f"and {turn}?"}]
                done += 1
                if done in (requests // 10, requests // 2, requests):
                    took = time.perf_counter() - began
                    print(f"{done:>10,}{resident_mb(pid):>14.1f}{took:>10.0f}", flush=True)

    await asyncio.gather(*(client(number) for number in range(20)))


@dataclass
class Live:
    """Conversations at a gateway, and what the gateway and a database are seen to do."""

    url: str
    pid: int
    db: psycopg.Connection | None
    bodies: list[list[dict[str, str]]]

    async def turns(self, numbers: Iterable[int]) -> list[float]:
        """A turn of each of these conversations, 16 at a time; how many milliseconds each took."""
        queue, took = iter(numbers), list[float]()

        async def client() -> None:
            for number in queue:
                messages = self.bodies[number]
                body = json.dumps({"model": "m", "max_tokens": 10, "stream": True, "messages": messages}).encode()
                began = time.perf_counter()
                await ask(self.url, body, key="live")
                took.append((time.perf_counter() - began) * 1e3)
                messages += [{"role": "assistant", "content": "fine"}, {"role": "user", "content": "and now?"}]

        await asyncio.gather(*(client() for _ in range(16)))
        return took

    async def during(self, what: str, work: Callable[[], Awaitable[list[float]]]) -> None:
        """Do something, and say what it took."""
        if self.db is not None:
            forget(self.db)
        began, busy = time.perf_counter(), cpu_seconds(self.pid)
        took = await work()
        await asyncio.sleep(1.5)  # what is written behind the answers
        seconds, busy = time.perf_counter() - began - 1.5, cpu_seconds(self.pid) - busy
        parts = [f"{what:26}"]
        if took:
            p99 = sorted(took)[int(len(took) * 0.99)]
            parts.append(
                f"{len(took) / seconds:,.0f} a second, median {statistics.median(took):.0f} ms, p99 {p99:.0f} ms"
            )
        parts.append(
            f"{busy / (len(took) or seconds) * 1e3:.1f} ms of the processor each"
            if took
            else f"{100 * busy / (seconds + 1.5):.1f} % of a processor"
        )
        if self.db is not None:
            for name, count in asked_since(self.db).items():
                parts.append(f"{count / (len(took) or seconds + 1.5):.1f} {name}")
        print(", ".join(parts) + ("" if took else " a second" * (self.db is not None)))
        print(f"{'':26}{self.held()}", flush=True)

    def held(self) -> str:
        """What the gateway has of the machine and of the database."""
        files = len(os.listdir(f"/proc/{self.pid}/fd"))
        told = f"{resident_mb(self.pid):,.0f} MB resident, {files} files and sockets open"
        if self.db is not None:
            row = self.db.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'perdure'").fetchone()
            told += f", {row[0] if row else 0} connections to PostgreSQL"
        return told


async def live(at: Live, requests: int, rest: float) -> None:
    chance, count = random.Random(5), len(at.bodies)
    print(f"{'before':26}{at.held()}")
    await at.during(f"{count:,} conversations begin", lambda: at.turns(range(count)))
    await at.during(f"{requests:,} turns at random", lambda: at.turns(chance.randrange(count) for _ in range(requests)))

    async def nothing() -> list[float]:
        await asyncio.sleep(rest)
        return []

    await at.during(f"{rest:.0f} s at rest", nothing)


def live_sessions(told: argparse.Namespace) -> None:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        upstream, _ = stack.enter_context(started("-m", "bench.load", "--role", "upstream"))
        db, store = None, list[str]()
        if told.store == "postgres":
            if why := why_there_is_no_server():
                sys.exit(why)
            settings = {"shared_preload_libraries": "pg_stat_statements"}
            server = PostgresServer.start(Path(tempfile.gettempdir()), is_durable=True, settings=settings)
            url, db = stack.enter_context(served(stack.enter_context(server)))
            store = ["--store", url]
        kept = f"open_sessions = {told.open or told.live}\nopen_tokens = 1_000_000_000\n"
        folder.joinpath("config.toml").write_text(
            f'window_tokens = 200_000\n[gateway]\n{kept}[gateway.upstreams.anthropic]\nurl = "{upstream}"\n'
        )
        env = {**os.environ, "PERDURE_HOME": str(folder)}
        gate, pid = stack.enter_context(started("-m", "perdure", "serve", "--port", "0", "--json", *store, env=env))
        print(f"\n{told.live:,} live sessions in {told.store}, {told.open or told.live:,} of them kept in memory")
        bodies = [json.loads(said(f"live {n}", history=6))["messages"] for n in range(told.live)]
        asyncio.run(live(Live(gate, pid, db, bodies), told.requests, told.seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--requests", type=int, default=10_000, help="0 measures no memory")
    parser.add_argument("--streams", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--live", type=int, default=0, metavar="N", help="so many conversations, and nothing else")
    parser.add_argument("--store", choices=["files", "postgres"], default="files", help="where those are kept")
    parser.add_argument("--open", type=int, default=0, metavar="N", help="of them kept in memory; else all")
    for name in ("--role", "--url", "--direct"):
        parser.add_argument(name, default="", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.role:
        asyncio.run(upstream() if told.role == "upstream" else probe(told.url, told.direct, told.seconds))
        return
    if told.live:
        live_sessions(told)
        return
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url, _ = stack.enter_context(started("-m", "bench.load", "--role", "upstream"))
        direct, _ = stack.enter_context(started("-m", "bench.load", "--role", "upstream"))
        home.joinpath("config.toml").write_text(
            f'window_tokens = 200_000\n[gateway.upstreams.anthropic]\nurl = "{url}"\n[gateway.upstreams.probe]\n'
            f'url = "{direct}"\n[gateway.routes.probe]\nanthropic = "probe"\n'
        )
        env = {**os.environ, "PERDURE_HOME": str(home)}
        gate, pid = stack.enter_context(started("-m", "perdure", "serve", "--port", "0", "--json", env=env))
        if told.seconds:
            asyncio.run(stalls(gate, direct, told.streams, told.seconds))
        if told.requests:
            asyncio.run(memory(gate, pid, told.requests))


if __name__ == "__main__":
    main()
