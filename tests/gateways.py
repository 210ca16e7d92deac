"""A gateway in this process, in front of a fake upstream, and clients that know nothing of either."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from holdfast.adapters.config import Config
from holdfast.events import Event
from holdfast.gateway.app import App
from holdfast.gateway.gateway import Gateway
from holdfast.gateway.serving import uvicorn_config
from holdfast.settings import Settings
from holdfast.testing import FakeServer, FakeUpstream, ModelRules

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

    @property
    def upstream(self) -> FakeUpstream:
        return self.server.upstream

    def metric(self, name: str, **labels: str) -> float:
        return self.gateway.metrics.registry.get_sample_value(name, labels) or 0.0

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """What went upstream, oldest first."""
        return [msgspec.json.decode(r.body) for r in self.server.received if r.body]

    def view_of(self, session: str) -> list[str]:
        """All text that a session of this gateway shows."""
        for sessions in self.gateway.tenants_open().values():
            for held in sessions:
                if held.id == session:
                    return [b.raw.decode() for item in held.session.view.items for b in item.visible]
        raise AssertionError(f"no session {session} in memory")


def config_of(home: Path, url: str, *, settings: Settings | None = None, **table: Any) -> Config:
    """A configuration whose upstreams are the fake one."""
    upstreams = {name: {"url": url} for name in ("anthropic", "openai")}
    return Config(
        settings=settings or Settings(window_tokens=WINDOW, durability="process"),
        values={},
        home=home,
        gateway={"port": 0, "upstreams": upstreams, **table},
    )


@asynccontextmanager
async def fake(upstream: FakeUpstream | None = None, **more: Any) -> AsyncIterator[FakeServer]:
    made = upstream or FakeUpstream(rules=ModelRules(window_tokens=WINDOW), binding="off", require_thinking=False)
    async with FakeServer(made, **more) as server:
        yield server


@asynccontextmanager
async def serving(
    home: Path, server: FakeServer, *, environ: dict[str, str] | None = None, config: Config | None = None, **table: Any
) -> AsyncIterator[Running]:
    """The gateway over a real socket, as uvicorn runs it."""
    sink = Noted()
    gateway = Gateway(config or config_of(home, server.url, **table), environ or {}, sink=sink)
    running = uvicorn.Server(uvicorn_config(App(gateway), "127.0.0.1", 0, 5))
    task = asyncio.create_task(running.serve())
    while not running.started:
        await asyncio.sleep(0.005)
        if task.done():
            task.result()
    port = running.servers[0].sockets[0].getsockname()[1]
    try:
        yield Running(gateway, server, f"http://127.0.0.1:{port}", sink)
    finally:
        running.should_exit = True
        await task


def in_loop(test: Callable[..., Any]) -> Callable[..., None]:
    """A coroutine function as a test."""

    @functools.wraps(test)
    def run(*args: Any, **named: Any) -> None:
        asyncio.run(test(*args, **named))

    return run


def settled(check: Callable[[], bool], seconds: float = 5.0) -> Any:
    """Wait until something holds."""

    async def wait() -> None:
        async with asyncio.timeout(seconds):
            while not check():
                await asyncio.sleep(0.005)

    return wait()


def texts(messages: Iterable[dict[str, Any]]) -> list[str]:
    """The text of each message."""
    return [
        m["content"] if isinstance(m["content"], str) else "".join(b.get("text", "") for b in m["content"])
        for m in messages
    ]
