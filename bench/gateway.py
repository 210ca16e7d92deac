"""The gateway beside a direct connection and bare proxies: added latency and throughput, in one run (GW-3).

Usage: python bench/gateway.py [--rounds 60] [--sizes 10 1000] [--wires messages chat responses] [--httpx2] [--parts]

Everything runs on this machine, each part in a process of its own: an upstream that answers at once (a stream of some
50 events), the gateway as `perdure serve` runs it, and proxies of a few lines: one that passes bytes on and one that
decodes and encodes each body (orjson), both over aiohttp; with `--httpx2` the same two over httpx2, the client of the
SDKs. A client has a conversation through each of them in turn: the whole history with every request, one question and
one answer longer each time. In the row `shaped` the session holds an offloaded result, so that the view's bytes go
upstream and not the client's.

Printed for each wire: milliseconds to the first byte and to the last, median and p99, what is added to the direct
connection, and processor time per request of the middle process; requests a second with 8 clients whose conversations
it knows already, and processor time for each of them, which others at work on the machine change less; and what the
first request of a history costs that nobody knows.

parts: where the processor time goes in a gateway of this process, by function, for the first request of a history and
for those that follow; the client's part in it is a few sockets.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import cProfile
import itertools
import math
import os
import pstats
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
import orjson

SAID = [f"word {n} of an answer " for n in range(44)]
PATHS = {"messages": "/v1/messages", "chat": "/v1/chat/completions", "responses": "/v1/responses"}
CLIENTS = 8


# --- the upstream ---------------------------------------------------------------------------------------------------


def stream(wire: str, prompt_tokens: int, number: int) -> bytes:
    """A whole answer as chunked server-sent events."""
    parts = [b"%bdata: %b\n\n" % head_and_data for head_and_data in EVENTS[wire](prompt_tokens, f"{number}")]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def named(events: list[dict[str, Any]]) -> list[tuple[bytes, bytes]]:
    return [(b"event: %b\n" % event["type"].encode(), orjson.dumps(event)) for event in events]


def messages_events(prompt_tokens: int, number: str) -> list[tuple[bytes, bytes]]:
    usage = {"input_tokens": prompt_tokens, "output_tokens": 300}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "bench", "content": []}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {**message, "usage": usage}}]
    events.append({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    delta = [{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": t}} for t in SAID]
    events += [*delta, {"type": "content_block_stop", "index": 0}]
    events.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 300}})
    return named([*events, {"type": "message_stop"}])


def chat_events(prompt_tokens: int, number: str) -> list[tuple[bytes, bytes]]:
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": text} for text in SAID)]
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": 300, "total_tokens": prompt_tokens + 300}
    chunks.append({**head, "choices": [], "usage": usage})
    return [*((b"", orjson.dumps(chunk)) for chunk in chunks), (b"", b"[DONE]")]


def responses_events(prompt_tokens: int, number: str) -> list[tuple[bytes, bytes]]:
    part = {"type": "output_text", "text": "".join(SAID), "annotations": [], "logprobs": []}
    item = {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    usage = {"input_tokens": prompt_tokens, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 300}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": prompt_tokens + 300}
    response = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": "bench", "output": []}
    response |= {"status": "in_progress", "error": None, "incomplete_details": None, "tools": [], "usage": None}
    at = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    begun = {**item, "status": "in_progress", "content": []}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": response}]
    events.append({"type": "response.output_item.added", "output_index": 0, "item": begun})
    events.append({"type": "response.content_part.added", **at, "part": {**part, "text": ""}})
    events += [{"type": "response.output_text.delta", **at, "delta": text, "logprobs": []} for text in SAID]
    events.append({"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []})
    events.append({"type": "response.content_part.done", **at, "part": part})
    events.append({"type": "response.output_item.done", "output_index": 0, "item": item})
    done = {**response, "status": "completed", "output": [item], "usage": usage}
    events.append({"type": "response.completed", "response": done})
    return named([{**event, "sequence_number": n} for n, event in enumerate(events)])


EVENTS = {"messages": messages_events, "chat": chat_events, "responses": responses_events}


async def upstream() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

    numbers, wires = itertools.count(), {path.encode(): wire for wire, path in PATHS.items()}

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                asked = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(asked.split(b"content-length:")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                wire = wires[asked.split(b" ", 2)[1]]
                writer.write(head + stream(wire, length // 4, next(numbers)))
                await writer.drain()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=4_000_000)
    say_url(server.sockets[0].getsockname()[1])
    await asyncio.Event().wait()


def say_url(port: int) -> None:
    sys.stdout.write(f"http://127.0.0.1:{port}\n")
    sys.stdout.flush()


# --- bare proxies ---------------------------------------------------------------------------------------------------


class Proxy:
    """An ASGI application of a few lines: what the gateway would cost if it did nothing."""

    def __init__(self, url: str, role: str) -> None:
        self.url, self.is_rewriting, self.is_aiohttp = url, role.startswith("rewrite"), role.endswith("aiohttp")
        self.client: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        parts = []
        while (message := await receive()).get("body") is not None:
            parts.append(message["body"])
            if not message.get("more_body"):
                break
        body = b"".join(parts)
        if self.is_rewriting:
            body = orjson.dumps(orjson.loads(body))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        url = self.url + scope["path"]
        async for chunk in self.aiohttp(url, body) if self.is_aiohttp else self.httpx2(url, body):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def aiohttp(self, url: str, body: bytes) -> AsyncIterator[bytes]:
        import aiohttp

        self.client = self.client or aiohttp.ClientSession(auto_decompress=False)
        async with self.client.post(url, data=body) as answer:
            async for chunk, _ in answer.content.iter_chunks():
                yield chunk

    async def httpx2(self, url: str, body: bytes) -> AsyncIterator[bytes]:
        import httpx2

        self.client = self.client or httpx2.AsyncClient(timeout=60)
        async with self.client.stream("POST", url, content=body) as answer:
            async for chunk in answer.aiter_raw():
                yield chunk


async def proxy(role: str, url: str) -> None:
    import uvicorn

    app: Any = Proxy(url, role)
    config = uvicorn.Config(app, port=0, http="httptools", lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    say_url(server.servers[0].sockets[0].getsockname()[1])
    await task


def run_role(role: str, url: str) -> None:
    import uvloop

    uvloop.run(upstream() if role == "upstream" else proxy(role, url))


# --- the client -----------------------------------------------------------------------------------------------------


@dataclass
class Talk:
    """A conversation that grows: its history as encoded messages."""

    wire: str
    kilobytes: int
    is_shaped: bool = False
    messages: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.is_shaped:
            call = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"file_path": "big.txt"}}
            result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a line of a long file\n" * 2_400}
            self.add("user", "read it")
            self.add("assistant", [call])
            self.add("user", [result])
            self.add("assistant", "read")
        self.add("user", f"conversation {next(TALKS)}")
        self.add("assistant", "yes?")
        size, number = sum(map(len, self.messages)), 0
        while size < self.kilobytes * 1_000 - 1_500:
            self.add("user", f"question {number}: " + "some words of a question, and some more. " * 20)
            self.add("assistant", f"answer {number}: " + "some words of an answer, and some more. " * 60)
            size, number = size + len(self.messages[-1]) + len(self.messages[-2]), number + 1
        self.add("user", "and now?")

    def add(self, role: str, content: Any) -> None:
        if self.wire == "responses":
            kind = "output_text" if role == "assistant" else "input_text"
            item = {"type": "message", "role": role, "content": [{"type": kind, "text": content}]}
            self.messages.append(orjson.dumps(item))
        else:
            self.messages.append(orjson.dumps({"role": role, "content": content}))

    def body(self) -> bytes:
        head = {
            "messages": b'{"model":"bench","max_tokens":1000,"stream":true,"messages":[',
            "chat": b'{"model":"bench","stream":true,"stream_options":{"include_usage":true},"messages":[',
            "responses": b'{"model":"bench","stream":true,"store":false,"input":[',
        }
        return head[self.wire] + b",".join(self.messages) + b"]}"

    def goes_on(self) -> None:
        self.add("assistant", "".join(SAID))
        self.add("user", "and then?")


TALKS = itertools.count()


class Wire:
    """One kept-alive connection, by hand, so that the client costs nothing."""

    def __init__(self, url: str, wire: str) -> None:
        self.port, self.path = int(url.rpartition(":")[2]), PATHS[wire].encode()

    async def ask(self, body: bytes) -> tuple[float, float]:
        """Seconds to the first byte of the answer, and to its last."""
        if not hasattr(self, "reader"):
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=4_000_000)
        head = b"POST %b HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer bench\r\n" % self.path
        head += b"anthropic-version: 2023-06-01\r\n" if self.path.endswith(b"messages") else b""
        began = time.perf_counter()
        self.writer.write(head + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        first = await self.reader.readuntil(b"\r\n\r\n")
        got = await self.reader.readuntil(b"data: ")
        at = time.perf_counter()
        if b" 200 " not in first[:20]:
            raise SystemExit(f"an error: {first[:200]!r} {got[:300]!r}")
        await self.reader.readuntil(b"0\r\n\r\n")
        return at - began, time.perf_counter() - began


@dataclass
class Row:
    name: str
    url: str
    pid: int | None
    wire: str
    is_shaped: bool = False
    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    rate: float = 0.0
    busy_ms: float = math.inf
    cpu_ms: float = 0.0
    import_ms: float = 0.0
    import_cpu_ms: float = 0.0

    def talk(self, kilobytes: int) -> tuple[Wire, Talk]:
        return Wire(self.url, self.wire), Talk(self.wire, kilobytes, self.is_shaped)

    @property
    def median(self) -> float:
        return statistics.median(self.first)


def cpu_seconds(pid: int | None) -> float:
    """Processor time of a process by the kernel's own clock of it: /proc counts in steps of ten requests of a proxy."""
    return 0.0 if pid is None else time.clock_gettime((~pid << 3) | 2)


async def measure(rows: list[Row], kilobytes: int, rounds: int) -> None:
    talks = {row.name: row.talk(kilobytes) for row in rows}
    spent = {row.name: 0.0 for row in rows}
    for number in range(rounds + 3):
        for row in rows:  # one request each in turn, so that noise meets all of them
            wire, talk = talks[row.name]
            before = cpu_seconds(row.pid)
            first, whole = await wire.ask(talk.body())
            talk.goes_on()
            if number < 3:
                continue  # the history is new to everybody, and connections are
            await asyncio.sleep(0.005)
            row.first.append(first * 1e3)
            row.whole.append(whole * 1e3)
            spent[row.name] += cpu_seconds(row.pid) - before
    for row in rows:
        row.cpu_ms = spent[row.name] / rounds * 1e3
        await imports(row, kilobytes)
    for _ in range(2):  # the better of two, since others are at work on the machine
        for row in rows:
            rate, busy_ms = await throughput(row, kilobytes, max(4, rounds // 4))
            row.rate, row.busy_ms = max(row.rate, rate), min(row.busy_ms, busy_ms)


async def imports(row: Row, kilobytes: int, times: int = 6) -> None:
    """The first request of histories that nobody knows."""
    taken, before = [], cpu_seconds(row.pid)
    for _ in range(times):
        wire, talk = row.talk(kilobytes)
        taken.append((await wire.ask(talk.body()))[0] * 1e3)
    await asyncio.sleep(0.2)  # for what is done behind the answer
    row.import_ms, row.import_cpu_ms = statistics.median(taken), (cpu_seconds(row.pid) - before) / times * 1e3


async def throughput(row: Row, kilobytes: int, each: int) -> tuple[float, float]:
    """Requests a second of clients that go on with a conversation, and what one takes of the processor."""
    talks = [row.talk(kilobytes)[1] for _ in range(CLIENTS)]

    async def client(talk: Talk, times: int) -> None:
        wire = Wire(row.url, row.wire)
        for _ in range(times):
            await wire.ask(talk.body())
            talk.goes_on()

    await asyncio.gather(*(client(talk, 2) for talk in talks))
    await asyncio.sleep(0.3)  # for what is done behind the answers
    began, before = time.perf_counter(), cpu_seconds(row.pid)
    await asyncio.gather(*(client(talk, each) for talk in talks))
    done = CLIENTS * each
    return done / (time.perf_counter() - began), (cpu_seconds(row.pid) - before) / done * 1e3


def show(rows: list[Row], wire: str, kilobytes: int) -> None:
    direct, bare = rows[0], next(row for row in rows if row.name == "rewrite-aiohttp")
    base = direct.median, statistics.median(direct.whole)
    print(f"\n{wire}, {kilobytes} KB bodies, {len(direct.first)} requests each, milliseconds but for req/s")
    names = ("first p50", "p99", "added", "last p50", "added", "cpu", "req/s", "cpu", "import", "cpu")
    print(f"{'':>16}" + "".join(f"{name:>10}" for name in names))
    for row in rows:
        whole = statistics.median(row.whole)
        p99 = sorted(row.first)[min(len(row.first) - 1, round(len(row.first) * 0.99))]
        figures = [row.median, p99, row.median - base[0], whole, whole - base[1], row.cpu_ms]
        figures += [row.rate, row.busy_ms, row.import_ms, row.import_cpu_ms]
        print(f"{row.name:>16}" + "".join(f"{figure:>10.2f}" for figure in figures))
    for row in rows:
        if row.name.startswith("gateway"):
            print(
                f"{row.name}: first byte {row.median - bare.median:+.2f} ms beside the bare rewriting proxy (goal: at "
                f"most +3 ms); {row.rate / bare.rate:.2f} of its requests a second, by processor time "
                f"{bare.busy_ms / row.busy_ms:.2f} (goal: 0.5)"
            )
    sys.stdout.flush()


async def parts(home: Path, url: str, cases: Iterable[tuple[str, int]]) -> None:
    """Profiles of the loop's thread and of those beside it, added up."""

    from perdure import Settings
    from perdure.adapters.config import Config
    from perdure.adapters.machine.trust import FolderTrust
    from perdure.gateway.app import GatewayApp
    from perdure.gateway.gateway import Gateway
    from perdure.gateway.serving import GatewayServer

    config = Config(
        settings=Settings(window_tokens=4_000_000),
        values={},
        home=home,
        folder=FolderTrust(root=home),
        gateway={"port": 0, "usage": "upstream", "upstreams": {n: {"url": url} for n in ("anthropic", "openai")}},
    )
    gateway = Gateway(config, {})
    server = GatewayServer(GatewayApp(gateway), "127.0.0.1", 0)
    serving = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    row = Row("gateway", f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", None, "")

    async def shown(what: str, talks: list[Talk], times: int) -> None:
        loop, aside, work = cProfile.Profile(time.thread_time), list[cProfile.Profile](), anyio.to_thread.run_sync

        async def run_sync(func: Any, *args: Any, **more: Any) -> Any:
            aside.append(cProfile.Profile(time.thread_time))
            return await work(partial(aside[-1].runcall, func, *args), **more)

        wires = [Wire(row.url, row.wire) for _ in talks]
        for _ in range(times):
            bodies = [talk.body() for talk in talks]
            anyio.to_thread.run_sync = run_sync  # type: ignore[assignment]
            loop.enable()
            for wire, body in zip(wires, bodies, strict=True):
                await wire.ask(body)
            await gateway.jobs.drain()
            loop.disable()
            anyio.to_thread.run_sync = work
            for talk in talks:
                talk.goes_on()
        total = pstats.Stats(loop, stream=sys.stdout)
        for profile in filter(cProfile.Profile.getstats, aside):  # one of them may have been cut short
            total.add(profile)
        here, there = (sum(map(own_ms, some)) / len(talks) / times for some in ([loop], aside))
        print(f"\n--- {what}: {here:.2f} ms of each on the loop, {there:.2f} ms in {len(aside)} threads (profiled)")
        total.sort_stats("tottime").print_stats(40)
        total.sort_stats("cumulative").print_stats("perdure", 60)

    for row.wire, kilobytes in cases:
        await Wire(row.url, row.wire).ask(row.talk(10)[1].body())  # imports of modules are nobody's
        talks = [row.talk(kilobytes)[1] for _ in range(6)]
        await shown(f"{row.wire}, {kilobytes} KB: the first request of a history", talks, 1)
        await shown(f"{row.wire}, {kilobytes} KB: the requests that follow", talks, 20)
    server.should_exit = True
    await serving


def own_ms(profile: cProfile.Profile) -> float:
    return sum(entry.inlinetime for entry in profile.getstats()) * 1e3


@contextlib.contextmanager
def started(*arguments: str, env: dict[str, str] | None = None) -> Iterator[tuple[str, int]]:
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        url = orjson.loads(line)["url"] if line.startswith("{") else line.strip()
        yield url, process.pid
    finally:
        process.terminate()
        process.wait(60)  # a gateway closes its sessions, and there may be thousands


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--sizes", type=int, nargs="*", default=[10, 1_000], metavar="KB")
    parser.add_argument("--wires", nargs="*", default=list(PATHS), choices=list(PATHS))
    parser.add_argument("--httpx2", action="store_true", help="bare proxies over httpx2, too")
    parser.add_argument("--parts", action="store_true", help="where the processor time goes")
    parser.add_argument("--role", default="")
    parser.add_argument("--url", default="")
    told = parser.parse_args()
    if told.role:
        run_role(told.role, told.url)
        return
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url, _ = stack.enter_context(started(__file__, "--role", "upstream"))
        if told.parts:
            asyncio.run(parts(home, url, itertools.product(told.wires, told.sizes)))
            return
        upstreams = "".join(f'[gateway.upstreams.{name}]\nurl = "{url}"\n' for name in ("anthropic", "openai"))
        home.joinpath("config.toml").write_text(
            f'window_tokens = 4_000_000\n[gateway]\nusage = "upstream"\n{upstreams}'
        )
        env = {**os.environ, "PERDURE_HOME": str(home)}
        gate = stack.enter_context(started("-m", "perdure", "serve", "--port", "0", "--json", env=env))
        roles = [f"{what}-{how}" for how in ("aiohttp", *(["httpx2"] * told.httpx2)) for what in ("pass", "rewrite")]
        proxies = {role: stack.enter_context(started(__file__, "--role", role, "--url", url)) for role in roles}
        for wire, kilobytes in itertools.product(told.wires, told.sizes):
            rows = [Row("direct", url, None, wire), *(Row(role, *proxies[role], wire) for role in roles)]
            rows += [Row("gateway", *gate, wire)]
            rows += [Row("gateway, shaped", *gate, wire, is_shaped=True)] if wire == "messages" else []
            asyncio.run(measure(rows, kilobytes, told.rounds))
            show(rows, wire, kilobytes)


if __name__ == "__main__":
    main()
