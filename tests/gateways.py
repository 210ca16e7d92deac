"""A gateway in this process, in front of a fake upstream, and clients that know nothing of either.

A test that starts one is run twice: on files, and on PostgreSQL (`kept_on` in tests/e2e/conftest.py). `store_of`
says where it keeps what it keeps.
"""

from __future__ import annotations

import asyncio
import functools
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anthropic
import msgspec
import openai

from perdure.adapters.config import Config
from perdure.adapters.journal import JOURNAL
from perdure.adapters.journal.home import FileHome
from perdure.adapters.machine.trust import FolderTrust
from perdure.events import Event
from perdure.gateway.app import GatewayApp
from perdure.gateway.config import WIRES
from perdure.gateway.gateway import Gateway
from perdure.gateway.serving import GatewayServer
from perdure.ports.home import Home, Store
from perdure.settings import Settings
from perdure.testing import FakeServer, FakeUpstream, ModelRules
from perdure.wiring.stores import store_at

WINDOW = 100_000
KEY = "canary-key-0123456789"
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # each client would read the system's certificates, for 25 ms


@dataclass(frozen=True)
class StoresOfTest:
    """Where the gateways of a test keep what they keep: each of their homes is a store of its own."""

    kind: str = "files"
    place: Callable[[Path], str] = str  # of a home's store, as `store_at` takes it
    contents: Callable[[Path], dict[str, bytes]] = lambda home: contents(home)

    def open(self, home: Path) -> Store:
        """The store of a home, as another process would open it."""
        return store_at(self.place(home))

    async def age(self, home: Path, session: str, days: float) -> None:
        """Have a session be as if nobody had written to it for so long."""
        from perdure.adapters.postgres.store import PostgresHome

        store, seconds = self.open(home), days * 86_400
        for tenant in await store.tenants():
            kept = store.home(tenant)
            if isinstance(kept, FileHome) and await kept.has(session):
                then = time.time() - seconds
                os.utime(kept.files.found(session, project=kept.path) / JOURNAL, (then, then))
            elif isinstance(kept, PostgresHome):
                number = await kept.store.db.tenant(tenant)
                assert number is not None
                statement = "UPDATE perdure.sessions SET modified = now() - make_interval(secs => %s) WHERE id = %s"
                await kept.store.db.ask(number, statement, (seconds, session))
        await store.close()


ON_FILES = StoresOfTest()
_STORES: ContextVar[StoresOfTest] = ContextVar("stores", default=ON_FILES)


@contextmanager
def kept_at(stores: StoresOfTest) -> Iterator[None]:
    """Gateways that are started meanwhile keep what they keep there."""
    token = _STORES.set(stores)
    try:
        yield
    finally:
        _STORES.reset(token)


def store_of(home: Path) -> Store:
    """The store of a gateway that was or is started with this home, opened as another process would."""
    return _STORES.get().open(home)


@asynccontextmanager
async def kept_by(home: Path, tenant: str | None = None) -> AsyncIterator[Home]:
    """The home of a tenant of such a gateway; of the only one, if none is named."""
    store = store_of(home)
    try:
        yield store.home(next(iter(await store.tenants())) if tenant is None else tenant)
    finally:
        await store.close()


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder, by path."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def lose_index(home: Path) -> None:
    """Take the index of histories away, which stands beside the journals of files; a database can't lose it alone."""
    found = list(home.rglob("links.sqlite*"))
    assert found or _STORES.get().kind != "files"
    for path in found:
        path.unlink()


@dataclass(slots=True)
class Noted:
    """A sink that keeps everything."""

    events: list[Event] = field(default_factory=list)

    def emit(self, event: Event) -> None:
        self.events.append(event)


@dataclass(slots=True)
class Running:
    """A gateway that serves."""

    gateway: Gateway
    server: FakeServer
    url: str
    sink: Noted
    clients: list[Any] = field(default_factory=list)  # closed at the end
    said: str = ""  # by a coding client, last

    def claude(self, **more: Any) -> anthropic.AsyncAnthropic:
        """Anthropic's SDK, unmodified."""
        http = anthropic.DefaultAsyncHttpxClient(verify=_NO_TLS)
        self.clients.append(anthropic.AsyncAnthropic(api_key=KEY, base_url=self.url, http_client=http, **more))
        return self.clients[-1]

    def gpt(self, **more: Any) -> openai.AsyncOpenAI:
        """OpenAI's SDK, unmodified."""
        http = openai.DefaultAsyncHttpxClient(verify=_NO_TLS)
        self.clients.append(openai.AsyncOpenAI(api_key=KEY, base_url=f"{self.url}/v1", http_client=http, **more))
        return self.clients[-1]

    @property
    def upstream(self) -> FakeUpstream:
        return self.server.upstream

    def metric(self, name: str, **labels: str) -> float:
        return self.gateway.metrics.registry.get_sample_value(name, labels) or 0.0

    @property
    def held(self) -> list[Any]:
        """The sessions that are open, of all tenants."""
        return [held for some in self.gateway.tenants_open().values() for held in some]

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """What went upstream, oldest first."""
        return [msgspec.json.decode(r.body) for r in self.server.received if r.body]


def config_of(home: Path, url: str, *, settings: Settings | None = None, **table: Any) -> Config:
    """A configuration whose upstreams are the fake one."""
    upstreams = {name: {"url": url} for name in WIRES}
    return Config(
        settings=settings or Settings(window_tokens=WINDOW, durability="process"),
        values={},
        home=home,
        folder=FolderTrust(root=home),
        gateway={"port": 0, "upstreams": upstreams, "drain_seconds": 5, **table},
    )


def upstream(*script: Any) -> FakeUpstream:
    """A provider with these answers."""
    return FakeUpstream(rules=ModelRules(window_tokens=WINDOW), script=list(script))


@asynccontextmanager
async def fake(upstream: FakeUpstream | None = None, **more: Any) -> AsyncIterator[FakeServer]:
    made = upstream or FakeUpstream(rules=ModelRules(window_tokens=WINDOW))
    async with FakeServer(made, **more) as server:
        yield server


@asynccontextmanager
async def serving(
    home: Path,
    server: FakeServer,
    *,
    environ: dict[str, str] | None = None,
    config: Config | None = None,
    store: Store | None = None,
    **table: Any,
) -> AsyncIterator[Running]:
    """The gateway over a real socket, as uvicorn runs it."""
    sink = Noted()
    store = store or store_of(home)
    gateway = Gateway(config or config_of(home, server.url, **table), environ or {}, sink=sink, store=store)
    running = GatewayServer(GatewayApp(gateway), "127.0.0.1", 0)
    task = asyncio.create_task(running.serve())
    while not running.started:
        await asyncio.sleep(0.005)
        if task.done():
            task.result()
    port = running.servers[0].sockets[0].getsockname()[1]
    made = Running(gateway, server, f"http://127.0.0.1:{port}", sink)
    try:
        yield made
    finally:
        for client in made.clients:
            await client.close()
        running.should_exit = True
        await task


def vault_codes() -> str:
    """Return 400 lines of one shape, which no record quotes; one has the code of the vault of Lisbon, QX-1333."""
    cities = ["Lisbon" if n == 333 else f"{chr(65 + n // 20)}{chr(97 + n % 20)}ton" for n in range(400)]
    return "".join(f"entry code: of the vault of {city} it is QX-{1000 + n}\n" for n, city in enumerate(cities))


def history(items: list[Any]) -> dict[str, Any]:
    """The arguments by which OpenAI's client sends these items as they are.

    As `input` it holds each of them against all types that an item may have, at every request: of a long conversation
    that was nine tenths of a test's time.
    """
    return {"input": [], "extra_body": {"input": items}}


class CodingClient:
    """A coding agent that knows nothing of the gateway, over either wire."""

    def __init__(self, at: Running, wire: str, *, is_stream: bool, tools: tuple[str, ...] = ("Read",)) -> None:
        self.at, self.wire, self.is_stream, self.messages = at, wire, is_stream, list[Any]()
        self.tools: list[Any] = [{"name": name, "input_schema": {"type": "object"}} for name in tools]
        if wire == "openai":
            self.tools = [
                {"type": "function", "function": {"name": t["name"], "parameters": t["input_schema"]}}
                for t in self.tools
            ]
        if wire == "responses":
            self.tools = [
                {"type": "function", "name": t["name"], "parameters": t["input_schema"], "strict": False}
                for t in self.tools
            ]
        self.answers: list[Any] = []

    async def say(self, text: str, **more: Any) -> tuple[str, list[Any]]:
        self.messages.append({"role": "user", "content": text})
        self.at.said = text
        return await self.go_on(**more)

    async def go_on(self, **more: Any) -> tuple[str, list[Any]]:
        """Ask; the answer's text and the calls in it, by name and id."""
        asked = {"model": "fake-model", "messages": self.messages, "tools": self.tools, **more}
        if self.wire == "anthropic":
            client = self.at.claude(max_retries=0)
            if self.is_stream:
                async with client.messages.stream(max_tokens=500, **asked) as stream:
                    said = await stream.get_final_message()
            else:
                said = await client.messages.create(max_tokens=500, **asked)
            self.answers.append(said)
            blocks = [block.model_dump(exclude_none=True) for block in said.content]
            self.messages.append({"role": "assistant", "content": blocks})
            text = "\n\n".join(block["text"] for block in blocks if block["type"] == "text")
            return text, [(b["name"], b["id"]) for b in blocks if b["type"] == "tool_use"]
        if self.wire == "responses":
            return await self._respond(asked)
        chat = self.at.gpt(max_retries=0).chat.completions
        if self.is_stream:
            async with chat.stream(stream_options={"include_usage": True}, **asked) as stream:
                answer = await stream.get_final_completion()
        else:
            answer = await chat.create(**asked)
        self.answers.append(answer)
        said = answer.choices[0].message
        self.messages.append(said.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True))
        return said.content or "", [(call.function.name, call.id) for call in said.tool_calls or ()]

    async def _respond(self, asked: dict[str, Any]) -> tuple[str, list[Any]]:
        asked |= history(asked.pop("messages"))
        responses = self.at.gpt(max_retries=0).responses
        if self.is_stream:
            async with responses.stream(store=False, **asked) as stream:
                events = [event async for event in stream]
                said = await stream.get_final_response()
            assert [event.sequence_number for event in events] == list(range(len(events)))
            added = [event.output_index for event in events if event.type == "response.output_item.added"]
            assert added == list(range(len(said.output)))
        else:
            said = await responses.create(store=False, **asked)
        self.answers.append(said)
        self.messages += [item.model_dump(exclude_none=True) for item in said.output]
        texts = [part.text for item in said.output if item.type == "message" for part in item.content]
        calls = [(item.name, item.call_id) for item in said.output if item.type == "function_call"]
        return "\n\n".join(texts), calls

    async def answer(self, *results: tuple[str, str], **more: Any) -> tuple[str, list[Any]]:
        """Say what calls gave, by id."""
        if self.wire == "anthropic":
            blocks = [{"type": "tool_result", "tool_use_id": call, "content": text} for call, text in results]
            self.messages.append({"role": "user", "content": blocks})
        elif self.wire == "responses":
            outputs = [{"type": "function_call_output", "call_id": call, "output": text} for call, text in results]
            self.messages += outputs
        else:
            self.messages += [{"role": "tool", "tool_call_id": call, "content": text} for call, text in results]
        return await self.go_on(**more)

    async def work(self, turns: int) -> None:
        """Turns that fill the window."""
        for n in range(turns):
            _, calls = await self.say(f"Look at {n}. " + f"Remark {n}: keep it short. " * 500)
            assert [name for name, _ in calls] == ["Read"]
            await self.answer((calls[0][1], f"line of file {n}: value {n * 7}\n" * 300))


def in_loop(test: Callable[..., Any]) -> Callable[..., None]:
    """A coroutine function as a test."""

    @functools.wraps(test)
    def run(*args: Any, **named: Any) -> None:
        asyncio.run(test(*args, **named))

    return run
