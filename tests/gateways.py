"""A gateway in this process, in front of a fake upstream, and clients that know nothing of either."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anthropic
import msgspec
import openai
import uvicorn

from perdure.adapters.config import Config
from perdure.adapters.machine.trust import FolderTrust
from perdure.events import Event
from perdure.gateway.app import GatewayApp
from perdure.gateway.config import WIRES
from perdure.gateway.gateway import Gateway
from perdure.gateway.serving import uvicorn_config
from perdure.settings import Settings
from perdure.testing import FakeServer, FakeUpstream, ModelRules

WINDOW = 100_000
KEY = "canary-key-0123456789"


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

    def claude(self, **more: Any) -> anthropic.AsyncAnthropic:
        """Anthropic's SDK, unmodified."""
        self.clients.append(anthropic.AsyncAnthropic(api_key=KEY, base_url=self.url, **more))
        return self.clients[-1]

    def gpt(self, **more: Any) -> openai.AsyncOpenAI:
        """OpenAI's SDK, unmodified."""
        self.clients.append(openai.AsyncOpenAI(api_key=KEY, base_url=f"{self.url}/v1", **more))
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
        gateway={"port": 0, "upstreams": upstreams, **table},
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
    home: Path, server: FakeServer, *, environ: dict[str, str] | None = None, config: Config | None = None, **table: Any
) -> AsyncIterator[Running]:
    """The gateway over a real socket, as uvicorn runs it."""
    sink = Noted()
    gateway = Gateway(config or config_of(home, server.url, **table), environ or {}, sink=sink)
    running = uvicorn.Server(uvicorn_config(GatewayApp(gateway), "127.0.0.1", 0, 5))
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


def in_loop(test: Callable[..., Any]) -> Callable[..., None]:
    """A coroutine function as a test."""

    @functools.wraps(test)
    def run(*args: Any, **named: Any) -> None:
        asyncio.run(test(*args, **named))

    return run
