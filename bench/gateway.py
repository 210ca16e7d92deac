"""The gateway beside a direct connection and bare proxies: added latency and throughput, in one run (GW-3).

Usage: python bench/gateway.py [--rounds 60] [--sizes 10 1000]

Everything runs on this machine, each part in a process of its own: an upstream that answers at once (a stream of 50
events), the gateway as `perdure serve` runs it, and proxies of a few lines: one that passes bytes on and one that
decodes and encodes each body (orjson) over aiohttp, and the same two over httpx2, the client of the SDKs. A client has
a conversation through each of them in turn: the whole history with every request, one question and one answer longer
each time. In the row `shaped` the session holds an offloaded result, so that the view's bytes go upstream and not the
client's. Printed: milliseconds to the first byte and to the last, median and p99, what is added to the direct
connection, requests a second with 8 clients, and processor time per request of the middle process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

SAID = [f"word {n} of an answer " for n in range(44)]
ROLES = ("pass-aiohttp", "rewrite-aiohttp", "pass-httpx2", "rewrite-httpx2")
CLIENTS = 8


# --- the upstream ---------------------------------------------------------------------------------------------------


def stream(prompt_tokens: int) -> bytes:
    """A whole answer as chunked server-sent events."""
    usage = {"input_tokens": prompt_tokens, "output_tokens": 300}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "bench", "content": [], "usage": usage}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    events.append({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    delta = [{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": t}} for t in SAID]
    events += [*delta, {"type": "content_block_stop", "index": 0}]
    events.append({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 300}})
    events.append({"type": "message_stop"})
    parts = [b"event: %b\ndata: %b\n\n" % (e["type"].encode(), orjson.dumps(e)) for e in events]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


async def upstream() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                asked = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(asked.split(b"content-length:")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                writer.write(head + stream(length // 4))
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
        async for chunk in self.aiohttp(body) if self.is_aiohttp else self.httpx2(body):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def aiohttp(self, body: bytes) -> AsyncIterator[bytes]:
        import aiohttp

        self.client = self.client or aiohttp.ClientSession(auto_decompress=False)
        async with self.client.post(f"{self.url}/v1/messages", data=body) as answer:
            async for chunk, _ in answer.content.iter_chunks():
                yield chunk

    async def httpx2(self, body: bytes) -> AsyncIterator[bytes]:
        import httpx2

        self.client = self.client or httpx2.AsyncClient(timeout=60)
        async with self.client.stream("POST", f"{self.url}/v1/messages", content=body) as answer:
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
        size, number = sum(map(len, self.messages)), 0
        while size < self.kilobytes * 1_000 - 1_500:
            self.add("user", f"question {number}: " + "some words of a question, and some more. " * 20)
            self.add("assistant", f"answer {number}: " + "some words of an answer, and some more. " * 60)
            size, number = size + len(self.messages[-1]) + len(self.messages[-2]), number + 1
        self.add("user", "and now?")

    def add(self, role: str, content: Any) -> None:
        self.messages.append(orjson.dumps({"role": role, "content": content}))

    def body(self) -> bytes:
        return b'{"model":"bench","max_tokens":1000,"stream":true,"messages":[' + b",".join(self.messages) + b"]}"

    def goes_on(self) -> None:
        self.add("assistant", [{"type": "text", "text": "".join(SAID)}])
        self.add("user", "and then?")


class Wire:
    """One kept-alive connection, by hand, so that the client costs nothing."""

    def __init__(self, url: str) -> None:
        self.port = int(url.rpartition(":")[2])

    async def ask(self, body: bytes) -> tuple[float, float]:
        """Seconds to the first byte of the answer, and to its last."""
        if not hasattr(self, "reader"):
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=4_000_000)
        head = (
            b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\nx-api-key: bench\r\ncontent-type: application/json\r\n"
        )
        began = time.perf_counter()
        self.writer.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
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
    is_shaped: bool = False
    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    rate: float = 0.0
    cpu_ms: float = 0.0


def cpu_seconds(pid: int | None) -> float:
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(rows: list[Row], kilobytes: int, rounds: int) -> None:
    talks = {row.name: (Wire(row.url), Talk(kilobytes, row.is_shaped)) for row in rows}
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
    for row in rows:
        row.rate = await throughput(row, kilobytes, max(4, rounds // 6))


async def throughput(row: Row, kilobytes: int, each: int) -> float:
    async def client(number: int) -> None:
        wire, talk = Wire(row.url), Talk(kilobytes, row.is_shaped)
        talk.messages[0] = orjson.dumps({"role": "user", "content": f"client {number} of {row.name}"})
        for _ in range(each):
            await wire.ask(talk.body())
            talk.goes_on()

    began = time.perf_counter()
    await asyncio.gather(*(client(number) for number in range(CLIENTS)))
    return CLIENTS * each / (time.perf_counter() - began)


def show(rows: list[Row], kilobytes: int) -> None:
    direct = rows[0]
    base = statistics.median(direct.first), statistics.median(direct.whole)
    bare = next(statistics.median(row.first) for row in rows if row.name == "rewrite-aiohttp")
    print(f"\n{kilobytes} KB bodies, {len(direct.first)} requests each, milliseconds")
    print(f"{'':>22} {'first p50':>10} {'p99':>8} {'added':>8} {'last p50':>9} {'added':>8} {'cpu':>6} {'req/s':>7}")
    for row in rows:
        first, whole = statistics.median(row.first), statistics.median(row.whole)
        p99 = sorted(row.first)[min(len(row.first) - 1, round(len(row.first) * 0.99))]
        print(
            f"{row.name:>22} {first:10.2f} {p99:8.2f} {first - base[0]:8.2f} {whole:9.2f} {whole - base[1]:8.2f} "
            f"{row.cpu_ms:6.2f} {row.rate:7.0f}"
        )
    for row in rows:
        if row.name.startswith("gateway"):
            over = statistics.median(row.first) - bare
            print(f"{row.name}: first byte {over:+.2f} ms beside the bare rewriting proxy (goal: at most +3 ms)")


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
        process.wait(10)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--sizes", type=int, nargs="*", default=[10, 1_000], metavar="KB")
    parser.add_argument("--role", default="")
    parser.add_argument("--url", default="")
    told = parser.parse_args()
    if told.role:
        run_role(told.role, told.url)
        return
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url, _ = stack.enter_context(started(__file__, "--role", "upstream"))
        home.joinpath("config.toml").write_text(
            f'window_tokens = 4_000_000\n[gateway]\nusage = "upstream"\n[gateway.upstreams.anthropic]\nurl = "{url}"\n'
        )
        env = {**os.environ, "PERDURE_HOME": str(home)}
        gate = stack.enter_context(started("-m", "perdure", "serve", "--port", "0", "--json", env=env))
        proxies = {role: stack.enter_context(started(__file__, "--role", role, "--url", url)) for role in ROLES}
        for kilobytes in told.sizes:
            rows = [Row("direct", url, None), *(Row(role, *proxies[role]) for role in ROLES)]
            rows += [Row("gateway", *gate), Row("gateway, shaped", *gate, is_shaped=True)]
            asyncio.run(measure(rows, kilobytes, told.rounds))
            show(rows, kilobytes)


if __name__ == "__main__":
    main()
