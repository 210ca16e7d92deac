"""What one tenant of a gateway can take from the others: memory, connections, time (GW-12).

    python -m bench.bounds [memory] [sockets] [shapes] [--megabytes 30] [--only WORDS]

memory: 25 WebSockets of one tenant with a message of 30 MB each, which asks nobody (`generate: false`), and then which
asks for an answer: resident memory of the gateway before, at its highest, and afterwards.

sockets: 600 WebSockets of one tenant that say nothing: how many are let in, and whether another tenant's is.

shapes: requests that are dear for their size, from one tenant. Meanwhile another one has a stream with an event every
10 ms, and makes requests of 60 KB one after the other. Shown are the longest time without an event, beside that of the
same stream without the gateway, the longest and the median request, and how long the request itself took. The first row
is a quiet gateway: what the machine itself takes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
from bench.gateway import cpu_seconds, started
from bench.load import TICK_SECONDS, ask, resident_mb, said

KEYS = {"GREEDY": "greedy-key", "OTHER": "other-key"}
ITEMS, TOOLS = 400_000, 10_000
_LOOK_SECONDS = 0.02


def encoded(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "stream": True, **fields}).encode()


def user(content: object) -> list[dict[str, object]]:
    return [{"role": "user", "content": content}]


def tools(count: int) -> bytes:
    pad, schema = "x" * 970, {"type": "object", "properties": {"a": {"type": "string"}}}
    offered = [{"name": f"tool_{n}", "description": pad, "input_schema": schema} for n in range(count)]
    return encoded(max_tokens=10, tools=offered, messages=user("hi"))


def result(text: str) -> bytes:
    call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {}}
    answer = {"type": "tool_result", "tool_use_id": "t1", "content": text}
    return encoded(max_tokens=10, messages=[*user("read"), {"role": "assistant", "content": [call]}, *user([answer])])


def items() -> list[dict[str, str]]:
    return [{"role": "user", "content": "a"}] * ITEMS


def shapes(size: int) -> dict[str, tuple[str, Callable[[], bytes]]]:
    """What is asked, at which path, by what it is called."""
    texts = {"<": "<", "words": "word and line\n", "no blanks": "a", "blanks": " ", "underscores": "<_", "braces": "{"}
    texts |= {"quotes": '"', "control characters": "\x01", "line feeds": "\n", "slashes": "</", "secrets": "key=sk-"}
    texts |= {"tags": "<a>", "dots": ". ", "digits": "1", "wide letters": "\u00e9", "emoji": "\U0001f600"}
    found: dict[str, tuple[str, Callable[[], bytes]]] = {}
    for count in (TOOLS, 1_000):
        found[f"{count:,} tools"] = "/v1/messages", lambda count=count: tools(count)
    for name, text in texts.items():
        written = len(json.dumps(text)) - 2
        many = text * (size // written)
        found[f"user: {name}"] = "/v1/messages", lambda many=many: encoded(max_tokens=10, messages=user(many))
    for name in ("<", "words", "line feeds", "no blanks", "secrets"):
        many = texts[name] * (size // (len(json.dumps(texts[name])) - 2))
        found[f"result: {name}"] = "/v1/messages", lambda many=many: result(many)
    many = "<" * size
    found["chat: <"] = "/v1/chat/completions", lambda: encoded(messages=user(many))
    found["responses: <"] = "/v1/responses", lambda: encoded(input=user(many))
    found[f"{ITEMS:,} items"] = "/v1/responses", lambda: encoded(input=items())
    found[f"{ITEMS // 2:,} messages"] = "/v1/chat/completions", lambda: encoded(messages=items()[: ITEMS // 2])
    parts = [{"type": "text", "text": "a"}] * ITEMS
    found[f"{ITEMS:,} parts"] = "/v1/messages", lambda: encoded(max_tokens=10, messages=user(parts))
    found["deep"] = (
        "/v1/messages",
        lambda: encoded(max_tokens=10, messages=user("x")).replace(b'"x"', b"[" * (size // 2) + b"]" * (size // 2)),
    )
    found["many fields"] = (
        "/v1/messages",
        lambda: b"{" + b",".join(b'"f%d":1' % n for n in range(size // 12)) + b',"messages":[]}',
    )
    found[f"socket: {ITEMS:,} items"] = "", lambda: encoded(type="response.create", input=items())
    found["socket: <"] = "", lambda: encoded(type="response.create", input=many)
    found["socket: < remembered"] = "", lambda: encoded(type="response.create", input=many, generate=False)
    return found


@contextlib.contextmanager
def gateway() -> Iterator[tuple[str, int, str]]:
    """A gateway with two tenants, its process, and the model server of the one that looks on."""
    with contextlib.ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url, _ = stack.enter_context(started("-m", "bench.load", "--role", "upstream"))
        direct, _ = stack.enter_context(started("-m", "bench.load", "--role", "upstream"))
        wires = "".join(f'[gateway.upstreams.{name}]\nurl = "{url}"\n' for name in ("anthropic", "openai"))
        tenants = "".join(f'[gateway.tenants.{name.lower()}]\nkey_env = "{name}"\n' for name in KEYS)
        home.joinpath("config.toml").write_text(
            f'window_tokens = 200_000\n{wires}[gateway.upstreams.probe]\nurl = "{direct}"\n'
            f'[gateway.routes.probe]\nanthropic = "probe"\n{tenants}'
        )
        env = {**os.environ, "PERDURE_HOME": str(home), **KEYS}
        gate, pid = stack.enter_context(started("-m", "perdure", "serve", "--port", "0", "--json", env=env))
        yield gate, pid, direct


def headers(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[name]}"}


async def answered(ws: aiohttp.ClientWebSocketResponse, raw: bytes) -> str:
    """The type of the last message that a client gets for its own."""
    try:
        await ws.send_bytes(raw)
    except ConnectionError:
        return "closed while it was sent"
    while True:
        message = await ws.receive()
        if message.type != aiohttp.WSMsgType.TEXT:
            return f"closed with {ws.close_code}"
        told = json.loads(message.data)
        if told["type"] in ("response.completed", "error"):
            return str(told.get("error", {}).get("message") or told["type"])


async def memory(gate: str, pid: int, size: int) -> None:
    before = highest = resident_mb(pid)
    is_over = False

    async def watched() -> None:
        nonlocal highest
        while not is_over:
            highest = max(highest, resident_mb(pid))
            await asyncio.sleep(_LOOK_SECONDS)

    watch = asyncio.create_task(watched())
    async with aiohttp.ClientSession(headers=headers("GREEDY")) as http:
        for what, more in (("that ask nobody", {"generate": False}), ("that ask for an answer", {})):
            raw = json.dumps({"type": "response.create", "model": "m", "input": "a" * size, **more}).encode()
            sockets = [await http.ws_connect(f"{gate}/v1/responses", max_msg_size=0) for _ in range(25)]
            told = await asyncio.gather(*(answered(ws, raw) for ws in sockets))
            kinds = ", ".join(f"{told.count(kind)} × {kind}" for kind in dict.fromkeys(told))
            print(f"\n25 messages of {size / 1e6:.0f} MB {what}: {kinds}")
            print(
                f"  resident MB: {before:.0f} before, {highest:.0f} at most, {resident_mb(pid):.0f} with all connected"
            )
            for ws in sockets:
                await ws.close()
            await asyncio.sleep(1.0)
            print(f"  {resident_mb(pid):.0f} when they have left; grown by at most {highest - before:.0f}", flush=True)
            before = highest = resident_mb(pid)
    is_over = True
    await watch


async def sockets(gate: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        connector = aiohttp.TCPConnector(limit=0)
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        held, refused = [], 0
        for _ in range(600):
            try:
                held.append(await http.ws_connect(f"{gate}/v1/responses", headers=headers("GREEDY")))
            except aiohttp.WSServerHandshakeError:
                refused += 1
        print(f"\n600 connections of one tenant: {len(held)} let in, {refused} refused")
        took = []
        for _ in range(20):
            began = time.perf_counter()
            other = await http.ws_connect(f"{gate}/v1/responses", headers=headers("OTHER"))
            took.append((time.perf_counter() - began) * 1e3)
            kind = await answered(other, b'{"type":"response.create","model":"m","input":"a","generate":false}')
        print(f"20 of another tenant: let in, {max(took):.0f} ms at most, and answered: {kind}", flush=True)


# --- stalls -----------------------------------------------------------------------------------------------------------


async def probe(gate: str, direct: str) -> None:
    """What another tenant feels, until the standard input ends."""
    is_over = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), is_over.set)
    gaps = {gate: 0.0, direct: 0.0}
    took: list[float] = []

    async def stream(url: str, route: str) -> None:
        last = 0.0

        def each() -> None:
            nonlocal last
            now = time.perf_counter()
            gaps[url], last = max(gaps[url], now - last if last else 0.0), now

        await ask(url, said("hello"), key=KEYS["OTHER"], app=f"drip 1000 {TICK_SECONDS}", route=route, each=each)

    async def asks() -> None:
        number = 0
        while not is_over.is_set():
            number, began = number + 1, time.perf_counter()
            body = said(f"{number} " + "word and line\n" * 4_300)
            began = time.perf_counter()
            await ask(gate, body, key=KEYS["OTHER"], route="/probe")
            took.append(time.perf_counter() - began)
            await asyncio.sleep(TICK_SECONDS)

    streams = [asyncio.create_task(stream(gate, "/probe")), asyncio.create_task(stream(direct, ""))]
    print("began", flush=True)
    await asks()
    for one in streams:
        one.cancel()
    told = [gaps[gate], gaps[direct], max(took), statistics.median(took)]
    print(json.dumps([seconds * 1e3 for seconds in told]), flush=True)


async def asked(gate: str, path: str, raw: bytes) -> str:
    """What the greedy tenant's request is answered."""
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(headers=headers("GREEDY"), timeout=timeout) as http:
        if not path:
            async with http.ws_connect(f"{gate}/v1/responses", max_msg_size=0) as ws:
                return await answered(ws, raw)
        async with http.post(f"{gate}{path}", data=raw) as answer:
            await answer.read()
            mode, why = (answer.headers.get(f"x-perdure-{name}", "") for name in ("mode", "reason"))
            return f"{answer.status} {mode} {why}"


async def stalls(gate: str, direct: str, pid: int, size: int, only: str) -> None:
    async def nothing() -> str:
        await asyncio.sleep(3.0)
        return ""

    def case(path: str, raw: bytes) -> Callable[[], Awaitable[str]]:
        return lambda: asked(gate, path, raw)

    print(f"\n{'ms':28}{'event':>8}{'direct':>8}{'request':>9}{'median':>8}{'own s':>8}{'cpu s':>8}  its answer")
    for name, (path, made) in {"quiet": ("quiet", lambda: b""), **shapes(size)}.items():
        if only not in name and name != "quiet":
            continue
        raw = made()
        work = nothing if name == "quiet" else case(path, raw)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.bounds", "--role", "probe", "--url", gate, "--direct", direct,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        await process.stdout.readline()
        await asyncio.sleep(1.0)
        began, busy = time.perf_counter(), cpu_seconds(pid)
        try:
            told = await work()
        except (TimeoutError, aiohttp.ClientError) as e:
            told = type(e).__name__
        took, busy = time.perf_counter() - began, cpu_seconds(pid) - busy
        await asyncio.sleep(1.0)  # what follows the answer
        process.stdin.close()
        event, without, longest, median = json.loads(await process.stdout.readline())
        await process.wait()
        row = f"{name:28}{event:>8.1f}{without:>8.1f}{longest:>9.1f}{median:>8.1f}{took:>8.2f}{busy:>8.2f}  {told}"
        print(row, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("what", nargs="*", default=["memory", "sockets", "shapes"], help="all of them by default")
    parser.add_argument("--megabytes", type=float, default=30.0, help="of a message")
    parser.add_argument("--only", default="", metavar="WORDS", help="shapes whose name has these words")
    for name in ("--role", "--url", "--direct"):
        parser.add_argument(name, default="", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.role:
        asyncio.run(probe(told.url, told.direct))
        return
    size = int(told.megabytes * 1e6)
    for what in told.what:
        with gateway() as (gate, pid, direct):
            if what == "memory":
                asyncio.run(memory(gate, pid, size))
            elif what == "sockets":
                asyncio.run(sockets(gate))
            elif what == "shapes":
                asyncio.run(stalls(gate, direct, pid, size, told.only))


if __name__ == "__main__":
    main()
