"""How long one conversation holds the event loop, and how work on one message grows with it (SPD-8).

    python bench/holds.py [--only holds|growth|ways] [--mb 20]

holds: the longest hold of the loop while each of these is done on it: the CPU time of the loop's own thread between
two ticks of a task that wakes each millisecond, and the time on the clock between them, which also holds what other
threads, other processes and the machine took; beside both, those of an idle loop right before. A thread that keeps the
interpreter's lock in one long call (decoding 20 MB of JSON) is seen on the clock, not in the CPU time.

growth: CPU milliseconds for one message of 0.1 and 1 MB, in shapes that have hurt, through each piece that looks at
messages: the worst shape of each, and how its time grew with the tenfold size. 10 is linear.

ways: the same pure work (a record of 200,000 tokens, from cold) on the loop, in a thread and in a process: the longest
hold, and how many of its wakings each millisecond the loop still had (ADR 0032).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio.to_thread

from ledger import made, up_to
from perdure import Message, Settings
from perdure.adapters.memory.notes import FileNotes
from perdure.compaction.plan import ledger_plan
from perdure.engine.compact import compact
from perdure.engine.notes import SessionNotes
from perdure.engine.session import LiveSession
from perdure.transcript.blocks import text_block
from perdure.wiring import SessionOptions, create_session, memory_session, open_session

TOKENS = 200_000
TICK_SECONDS = 0.001


@dataclass
class Held:
    """The longest time between two ticks, in milliseconds."""

    cpu: float = 0.0
    wall: float = 0.0


@contextlib.asynccontextmanager
async def watched() -> AsyncIterator[Held]:
    """Ticks while the block runs."""
    held, is_over = Held(), False

    async def tick() -> None:
        cpu, wall = time.thread_time(), time.perf_counter()
        while not is_over:
            await asyncio.sleep(TICK_SECONDS)
            now_cpu, now_wall = time.thread_time(), time.perf_counter()
            held.cpu = max(held.cpu, (now_cpu - cpu) * 1e3)
            held.wall = max(held.wall, (now_wall - wall - TICK_SECONDS) * 1e3)
            cpu, wall = now_cpu, now_wall

    task = asyncio.create_task(tick())
    await asyncio.sleep(0)
    try:
        yield held
        await asyncio.sleep(2 * TICK_SECONDS)
    finally:
        is_over = True
        await task


async def shown(name: str, work: Callable[[], Awaitable[Any]]) -> None:
    gc.collect()
    async with watched() as idle:
        await asyncio.sleep(0.5)
    began = time.perf_counter()
    async with watched() as held:
        await work()
    took = time.perf_counter() - began
    print(
        f"{name:44}{held.cpu:>9.1f}{held.wall:>9.1f}{idle.cpu:>11.1f}{idle.wall:>9.1f}{took * 1e3:>11.0f}", flush=True
    )


# --- sessions -------------------------------------------------------------------------------------------------------


async def session_of(messages: list[Message], **settings: Any) -> LiveSession:
    session = await memory_session(parts=SessionOptions(settings=Settings(window_tokens=1_000_000, **settings)))
    for message in messages:
        message.__dict__.clear()  # nothing is decoded yet
        await session.append(message)
    session.configure(Settings(window_tokens=220_000, **settings))
    return session


async def compacted(messages: list[Message], *, is_rested: bool) -> None:
    session = await session_of(messages)
    if is_rested:
        session.rest()
    await shown(
        f"compaction of {TOKENS:,} tokens, {'rested' if is_rested else 'cold'}",
        lambda: compact(session, trigger="manual"),
    )


async def noted(messages: list[Message]) -> None:
    session = await session_of(messages)
    with tempfile.TemporaryDirectory() as folder:
        notes = SessionNotes(session, FileNotes(Path(folder), None))

        async def update() -> None:
            await session.record(*await notes.keep(session.view.copy(), session.facts()))

        await shown("notes update", update)


async def resumed(messages: list[Message]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        session = await create_session(
            home, project="/p", parts=SessionOptions(settings=Settings(window_tokens=1_000_000))
        )
        for message in messages:
            await session.append(message)
        name = session.id
        await session.close()

        async def resume() -> None:
            opened = await open_session(home, name, parts=SessionOptions(settings=Settings(window_tokens=1_000_000)))
            await opened.close()

        await shown(f"resume of {TOKENS:,} tokens without a boundary", resume)


async def appended(mb: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        session = await create_session(
            Path(folder), project="/p", parts=SessionOptions(settings=Settings(window_tokens=1_000_000))
        )
        message = Message.of("user", "word and line\n" * (mb * 1_000_000 // 14))

        await shown(f"a message of {mb} MB said to a session", lambda: session.append(message))
        await session.close()


# --- the gateway ----------------------------------------------------------------------------------------------------

EVENT_HEAD = (
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"'
)


def answer(mb: int) -> bytes:
    """A streamed answer; with one event of so many megabytes, where any."""
    usage = b'"usage":{"input_tokens":10,"output_tokens":1}'
    text = b"word and line " * (mb * 1_000_000 // 14) if mb else b"fine"
    events = [
        b'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_1","type":"message",'
        b'"role":"assistant","model":"m","content":[],' + usage + b"}}\n\n",
        EVENT_HEAD + text + b'"}}\n\n',
        b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n',
        b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},' + usage + b"}\n\n",
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    ]
    return b"".join(events)


async def half_sent(port: int, number: int) -> None:
    """A client that sends a fifth of what it announced, and gives up."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\nx-api-key: h{number}\r\ncontent-length: 99999\r\n\r\n"
    writer.write(head.encode() + b'{"model":"m","messages":[{"role":"user","content":"' + b"x" * 20_000)
    await asyncio.sleep(2.0)
    writer.close()


async def slow_stream(port: int, number: int) -> None:
    """A client of one of ten tenants, whose answer takes two seconds."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = b'{"model":"m","max_tokens":10,"stream":true,"messages":[{"role":"user","content":"stream %d"}]}' % number
    head = f"host: 127.0.0.1\r\nx-api-key: k{number % 10}\r\nconnection: close\r\nx-app: slow\r\n"
    head = f"POST /v1/messages HTTP/1.1\r\n{head}content-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    answered = await reader.read()
    assert b" 200 " in answered[:20], answered[:200]
    writer.close()


async def peer(mb: int) -> None:
    """The other process: an upstream that answers a stream, and a client that asks what it is told on its input."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.split(b"content-length:")[1].split(b"\r\n")[0]))
                body = answer(mb if b"x-app: large" in head else 0)
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                for _ in range(20 if b"x-app: slow" in head else 0):
                    writer.write(b"9\r\n: wait\n\n\r\n")
                    await writer.drain()
                    await asyncio.sleep(0.1)
                writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
                await writer.drain()

    upstream = await asyncio.start_server(connected, "127.0.0.1", 0, limit=1_000_000)
    sys.stdout.write(f"{upstream.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        port, what, chars = line.split()
        size = int(chars)
        if what in ("halves", "streams"):
            one = half_sent if what == "halves" else slow_stream
            await asyncio.gather(*(one(int(port), n) for n in range(size)))
            sys.stdout.write("200 0\n")
            sys.stdout.flush()
            continue
        if what == "history":
            said = [
                {"role": ("user", "assistant")[n % 2], "content": f"{n} " + "word and line\n" * 140}
                for n in range(size // 2_000 | 1)
            ]
        else:
            said = [{"role": "user", "content": f"{what} " + "word and line\n" * (size // 14)}]
        body = json.dumps({"model": "m", "max_tokens": 10, "stream": True, "messages": said}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        app = b"x-app: large\r\n" if what == "event" else b""
        writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\nx-api-key: k\r\nconnection: close\r\n" + app)
        writer.write(b"content-length: %d\r\n\r\n" % len(body) + body)
        answered = await reader.read()
        writer.close()
        sys.stdout.write(f"{answered[9:12].decode()} {len(answered)}\n")
        sys.stdout.flush()


async def gateway(mb: int) -> None:

    from perdure.adapters.config import Config
    from perdure.adapters.machine.trust import FolderTrust
    from perdure.gateway.app import GatewayApp
    from perdure.gateway.gateway import Gateway
    from perdure.gateway.serving import GatewayServer

    other = subprocess.Popen(  # noqa: ASYNC220 - before anything is measured
        [sys.executable, __file__, "--peer", "--mb", str(mb)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdin is not None and other.stdout is not None
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as folder:
        upstream = f"http://127.0.0.1:{other.stdout.readline().strip()}"
        config = Config(
            settings=Settings(window_tokens=200_000),
            values={},
            home=Path(folder),
            folder=FolderTrust(root=Path(folder)),
            gateway={"port": 0, "upstreams": {"anthropic": {"url": upstream}}},
        )
        gc.collect()
        gc.freeze()  # as `serve` does: what the bench made so far is no part of a gateway
        made_gateway = Gateway(config, {})
        server = GatewayServer(GatewayApp(made_gateway), "127.0.0.1", 0)
        serving = asyncio.create_task(server.serve())
        while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]

        async def ask(what: str, size: int) -> None:
            other.stdin.write(f"{port} {what} {size}\n")
            other.stdin.flush()
            told = await loop.run_in_executor(None, other.stdout.readline)
            assert told.startswith("200"), told
            await made_gateway.jobs.drain()

        await ask("warm", 100)
        await shown("gateway: 300 streams of ten tenants", lambda: ask("streams", 300))
        await shown("gateway: 600 half-sent bodies", lambda: ask("halves", 600))
        await shown(f"gateway: one event of {mb} MB", lambda: ask("event", 100))
        await shown(f"gateway: a body of {mb} MB", lambda: ask("body", mb * 1_000_000))
        await shown("gateway: first import of a history of 1 MB", lambda: ask("history", 1_000_000))
        await shown("gateway: the same history once more", lambda: ask("history", 1_000_000))
        await shown("gateway: first import of a history of 4 MB", lambda: ask("history", 4_000_000))
        server.should_exit = True
        await serving
    other.stdin.close()
    other.wait()


async def rebuilt(mb: int) -> None:
    """The index of a tenant whose journals hold so many megabytes."""
    from perdure.adapters.journal.links import FileLinks
    from perdure.transcript.history import CLIENT, HistoryPosition

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        session = await create_session(
            home, project=home, parts=SessionOptions(settings=Settings(durability="process"))
        )
        text = Message.of("user", "word and line\n" * 700)
        for n in range(mb * 100):
            message = replace_id(text, f"m{n}")
            await session.ports.journal.append((message, HistoryPosition(n, os.urandom(32), message.id).cursor(CLIENT)))
        await session.close()
        index = FileLinks(home)
        await shown(f"gateway: index of {mb} MB of journals", lambda: index.longest([b"x" * 32]))
        await index.close()


def replace_id(message: Message, name: str) -> Message:
    import msgspec

    return msgspec.structs.replace(message, id=name, at=1.0)


async def searched(messages: list[Message]) -> None:
    from perdure.adapters.journal.search import StoreArchive

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        session = await create_session(
            home, project="/p", parts=SessionOptions(settings=Settings(window_tokens=1_000_000))
        )
        for message in messages:
            await session.append(message)
        await session.close()
        await shown("first search, which writes the index", lambda: StoreArchive(home, None).search("journal lines"))


# --- growth with the size of one message ----------------------------------------------------------------------------

LINES = "def one(line): return {'of': 1, \"code\": [2, 3]}  # and /a/path.py:12\n"
SHAPES: dict[str, str] = {
    "words on one line": "word and more ",
    "lines": "word and line\n",
    "lines of code": LINES,
    "one letter": "a",
    "digits": "0123456789",
    "base64": "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo0NTY3",
    "spaces": " ",
    "line ends": "\n",
    "angles": "<",
    "open tags": "<system-reminder>",
    "closed tags": "<system-reminder>x</system-reminder>",
    "analysis tags": "<analysis>",
    "brackets": "[{(",
    "quotes": "\"'",
    "backslashes": "\\",
    "equals": "key=",
    "colons": "a:b:",
    "dashes": "-",
    "underscores": "_",
    "dots": "a.",
    "slashes": "/a",
    "at signs": "a@",
    "stars": "* ",
    "hashes": "# ",
    "pipes": "| a ",
    "backticks": "`",
    "fences": "```\n",
    "numbered lines": "     1\tline\n",
    "carets": "^~ ",
    "urls": "https://a.example/b?c=d&e=f ",
    "tokens": "sk-ant-api03-abcdefghij ",
    "accents": "é",
    "errors": "Error: it failed\n",
    "tests": "FAILED tests/test_a.py::test_b - E\n",
    "commands": "cd /a && b | c; ",
    "heads": "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n",
    "camel": "camelCaseWord",
    "tabs": "\t",
    "returns": "\r",
    "percents": "50% ",
    "notices": "<task-id>a</task-id>",
    "open boxes": "[",
    "summaries": "<summary>",
    "quoted quotes": '\\"',
}


def pieces() -> dict[str, Callable[[str], Any]]:
    """What looks at a message, each as a function of its text."""
    from perdure.compaction.ledger.reader import ExtractIndex
    from perdure.compaction.restore.files import numbered_runs
    from perdure.compaction.summary import fault_of
    from perdure.context.passes import neutral
    from perdure.context.reminders import neutralised, neutralised_result, restored
    from perdure.context.replies import Reply
    from perdure.context.view import is_chatter
    from perdure.engine.session import _read
    from perdure.memory.remarks import memory_requests
    from perdure.memory.trust.secrets import redact
    from perdure.recall.queries import words_of
    from perdure.transcript import texts
    from perdure.transcript.blocks import block_of
    from perdure.transcript.checks import MessageLimits
    from perdure.transcript.messages import ResponseId
    from perdure.transcript.tokens import live_tokens
    from perdure.transcript.tool_calls.files import KnownLines, numbered_lines

    facts = anyio.run(memory_session).facts()

    def result(text: str) -> Message:
        return Message.of("user", [{"type": "tool_result", "tool_use_id": "c", "content": text}])

    def exchange(tool: str, **arguments: Any) -> Callable[[str], Any]:
        def take(text: str) -> None:
            index = ExtractIndex()
            given = {name: text if value is None else value for name, value in arguments.items()}
            index.take(Message.of("assistant", [{"type": "tool_use", "id": "c", "name": tool, "input": given}]))
            index.take(result(text))

        return take

    def reply(text: str) -> Reply:
        return Reply(response=ResponseId("r"), model="m", blocks=(text_block(text),), stop_reason="end_turn")

    return {
        "ingest": lambda text: _read((Message.of("user", text),), Settings(), MessageLimits(), b""),
        "tokens": live_tokens,
        "neutralise": lambda text: (neutralised(text), restored(text)),
        "results": lambda text: neutralised_result(result(text).blocks[0].raw),
        "blocks": lambda text: neutral(block_of({"type": "text", "text": text}).raw),
        "secrets": redact,
        "ledger: words": lambda text: ExtractIndex().take(Message.of("user", text)),
        "ledger: answer": lambda text: ExtractIndex().take(Message.of("assistant", text)),
        "ledger: Bash": exchange("Bash", command="pytest -q"),
        "ledger: command": exchange("Bash", command=None),
        "ledger: Read": exchange("Read", file_path="/a/b.py"),
        "ledger: Edit": exchange("Edit", file_path="/a/b.py", old_string=None, new_string=None),
        "ledger: Write": exchange("Write", file_path="/a/b.py", content=None),
        "ledger: Grep": exchange("Grep", pattern="x"),
        "ledger: todos": exchange("update_plan", plan=None, todos=None),
        "restore: edit": lambda text: KnownLines.whole(text + "\nend\n").edited([(text, text + "b", False)]),
        "restore: part": lambda text: KnownLines(KnownLines.whole(text + "\nend\n").runs).edited(
            [(text, text + "b", False)]
        ),
        "restore: lines": lambda text: (numbered_lines(text), numbered_runs(text)),
        "summary": lambda text: fault_of(reply(text), facts),
        "chatter": is_chatter,
        "remembering": memory_requests,
        "search": lambda text: [words_of(piece.text) for piece in texts.pieces(Message.of("user", text), {})],
    }


def growth(small: int = 100_000, times: int = 10) -> None:
    """The worst shape of each piece."""
    print(f"{'CPU ms of one message':20}{'0.1 MB':>10}{'1 MB':>10}{'ratio':>8}  shape of the highest ratio")
    for name, piece in pieces().items():
        rows = []
        for shape, unit in SHAPES.items():
            text = unit * (small // len(unit))
            least = min(_cpu_ms(piece, text) for _ in range(2))
            most = min(_cpu_ms(piece, text * times) for _ in range(2))
            rows.append((most / max(least, 0.2), least, most, shape))
        ratio, least, most, shape = max(rows)
        print(f"{name:20}{least:>10.1f}{most:>10.1f}{ratio:>8.1f}  {shape}", flush=True)


def _cpu_ms(piece: Callable[[str], Any], text: str) -> float:
    began = time.process_time()
    piece(text)
    return (time.process_time() - began) * 1e3


# --- ways off the loop ----------------------------------------------------------------------------------------------


def planned(messages: list[tuple[Any, ...]], facts: Any) -> Any:
    """The work, where messages have to be sent to another process."""
    from perdure.context.view import project

    view = project(Message(id=i, role=r, content=c, origin=o, at=1.0) for i, r, c, o in messages)
    return ledger_plan(view, facts, len(view.items) - 3)


def resident_mb(_: Any = None) -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


async def ways() -> None:
    loop, messages = asyncio.get_running_loop(), up_to(made(TOKENS), TOKENS)
    await anyio.to_thread.run_sync(int)

    async def row(name: str, work: Callable[[Any, Any], Awaitable[Any]]) -> None:
        session = await session_of(messages)
        session.view.index, facts, wakings, is_over = None, session.facts(), 0, False

        async def wake() -> None:
            nonlocal wakings
            while not is_over:
                await asyncio.sleep(TICK_SECONDS)
                wakings += 1

        gc.collect()
        task, began = asyncio.create_task(wake()), time.perf_counter()
        async with watched() as held:
            await work(session.view, facts)
        took, is_over = time.perf_counter() - began, True
        await task
        share = wakings * TICK_SECONDS / took
        print(f"{name:34}{held.cpu:>9.1f}{held.wall:>9.1f}{took * 1e3:>9.0f}{share:>9.0%}", flush=True)

    async def here(view: Any, facts: Any) -> None:
        ledger_plan(view, facts, len(view.items) - 3)

    async def in_a_thread(view: Any, facts: Any) -> None:
        copy = view.copy()
        copy.index = view.index
        await anyio.to_thread.run_sync(lambda: ledger_plan(copy, facts, len(copy.items) - 3))

    print(f"{'longest hold, ms':34}{'CPU':>9}{'clock':>9}{'whole':>9}{'wakings':>9}")
    await row("on the loop", here)
    for switch_ms in (5.0, 1.0):
        sys.setswitchinterval(switch_ms / 1e3)
        await row(f"in a thread, switched each {switch_ms:g} ms", in_a_thread)
    sys.setswitchinterval(0.005)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        began = time.perf_counter()
        await loop.run_in_executor(pool, resident_mb, None)
        start_ms = (time.perf_counter() - began) * 1e3

        async def in_a_process(view: Any, facts: Any) -> None:
            said = [(i.message.id, i.message.role, tuple(i.message.content), i.message.origin) for i in view.items]
            await loop.run_in_executor(pool, planned, said, facts)

        await row("in a process, the first time", in_a_process)
        await row("in a process", in_a_process)
        print(
            f"a process starts in {start_ms:.0f} ms and takes {await loop.run_in_executor(pool, resident_mb, None)} MB"
        )


async def holds(mb: int) -> None:
    await anyio.to_thread.run_sync(int)  # what is imported with the first thread is nobody's hold
    print(f"{'longest hold of the loop, ms':44}{'CPU':>9}{'clock':>9}{'idle: CPU':>11}{'clock':>9}{'whole':>11}")
    messages = up_to(made(TOKENS), TOKENS)
    await compacted(messages, is_rested=True)
    await compacted(messages, is_rested=False)
    await noted(messages)
    await resumed(messages)
    await appended(mb)
    await searched(messages)
    await gateway(mb)
    await rebuilt(40)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only", choices=("holds", "growth", "ways"))
    parser.add_argument("--mb", type=int, default=20)
    given = parser.parse_args()
    if given.peer:
        asyncio.run(peer(given.mb))
        return
    if given.only in (None, "holds"):
        asyncio.run(holds(given.mb))
    if given.only in (None, "growth"):
        growth()
    if given.only in (None, "ways"):
        asyncio.run(ways())


if __name__ == "__main__":
    main()
