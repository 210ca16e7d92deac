"""What keeps sessions in another process: a gateway says what is due, a worker does it (SCL-2, SCL-3).

A kind of work is a keeper of a route, such as `session_memory:default`. A worker has the gateway's own configuration,
so it has the same settings and models for it. It only reads the session while a model is asked, so no request of a
client ever waits for that, and opens it for a moment to commit.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
from prometheus_client import start_http_server

from perdure.adapters.config import Config
from perdure.engine.consolidate import NAME as CONSOLIDATION
from perdure.engine.extraction import NAME as EXTRACTION
from perdure.errors import BadSetting, JournalError, SessionBusy, SessionNotFound
from perdure.gateway.gateway import Gateway
from perdure.gateway.metrics import Metrics
from perdure.gateway.sessions import project_of, remembers
from perdure.ports.home import Claim, Home, Store
from perdure.ports.memory import DeferredStore
from perdure.ports.session import NotesFile
from perdure.wiring import SessionOptions as Parts
from perdure.wiring import background, memories_of, open_session
from perdure.wiring.remembering import deferred, remembering_by_name
from perdure.wiring.sessions import session_of
from perdure.wiring.worker import Commit, Work, WorkCounts, Worker

if TYPE_CHECKING:
    from perdure.engine.session import LiveSession

_TRIES: Final = 60  # to open a session that a request is using
_PAUSE_SECONDS: Final = 1.0
_WATCH_SECONDS: Final = 5.0
_OF_MEMORIES: Final = (EXTRACTION, CONSOLIDATION)


class LateNotes:
    """`ports.NotesFile` that keeps what is written until it is committed."""

    def __init__(self, notes: NotesFile) -> None:
        self._notes = notes
        self._written: list[tuple[bytes, bytes | None]] = []  # and what it takes the place of

    @property
    def path(self) -> str:
        return self._notes.path

    async def read(self) -> bytes | None:
        return self._written[-1][0] if self._written else await self._notes.read()

    async def write(self, data: bytes, *, instead_of: bytes | None) -> bool:
        if await self.read() != instead_of:
            return False
        self._written.append((data, instead_of))
        return True

    async def set_aside(self) -> str:
        return await self._notes.set_aside()

    async def custom(self, name: str) -> str | None:
        return await self._notes.custom(name)

    async def commit(self, notes: NotesFile) -> None:
        """Write it to where it belongs; `JournalError` when somebody else wrote there meanwhile."""
        if self._written:
            first, last = self._written[0][1], self._written[-1][0]
            if not await notes.write(last, instead_of=first):
                raise JournalError(f"{notes.path}: somebody else wrote the notes meanwhile")


@dataclass(frozen=True, slots=True)
class SessionUpkeep:
    """What a worker does for the sessions of a gateway that has this configuration and this store."""

    gateway: Gateway

    def work_of(self, kind: str) -> Work | None:
        """How work of a kind is done; None for a route that isn't configured here."""
        keeper, _, route = kind.partition(":")
        if not keeper or route not in ("default", *self.gateway.active.gateway.routes):
            return None
        return partial(self._kept, keeper, route)

    @asynccontextmanager
    async def _kept(self, keeper: str, route: str, claim: Claim) -> AsyncIterator[Commit]:
        home, sink = self.gateway.store.home(claim.tenant), self.gateway.session_sink(claim.tenant, route)
        sink.session = claim.session
        parts = self.gateway.parts(route, sink)
        parts = replace(parts, settings=replace(parts.settings, durability="commit"))
        try:
            stored = await home.open(claim.session, read_only=True)
        except SessionNotFound:
            yield _nothing  # it was deleted meanwhile
            return
        notes = LateNotes(stored.notes)
        read = await session_of(replace(stored, notes=notes), parts, home=home, read_only=True)
        late: DeferredStore | None = None
        if keeper in _OF_MEMORIES and remembers(parts):
            project = project_of(read)
            opened, late = await deferred(memories_of(home, project, read.settings, read, is_remote=True))
            read.works_with(remembering_by_name(read, opened, project))
        try:
            records = await background(read).kept(read, keeper)
        finally:
            await read.close()
        session = await _opened(home, claim.session, parts)

        async def commit() -> None:
            await notes.commit(stored.notes)
            if late is not None:
                await late.commit()
            await session.record(*records)

        try:
            yield commit
        finally:
            with anyio.CancelScope(shield=True), suppress(JournalError):
                await session.close()


async def _nothing() -> None:
    """There is nothing to commit."""


async def _opened(home: Home, name: str, parts: Parts) -> LiveSession:
    """A session for writing, as soon as no request is using it; `SessionBusy` if that is never so."""
    for _ in range(_TRIES):
        with suppress(SessionBusy):
            return await open_session(home, name, parts=parts)
        await anyio.sleep(_PAUSE_SECONDS)
    return await open_session(home, name, parts=parts)


async def work(
    config: Config,
    store: Store,
    environ: Mapping[str, str],
    *,
    until_idle: bool,
    on_note: Callable[[str], None],
    metrics: tuple[str, int] | None = None,
) -> WorkCounts:
    """Do what the gateways of a store want, until SIGINT or SIGTERM; what is under way then has `drain_seconds` to end.

    What takes longer is given back, and at once with a second signal. `on_note` hears what is wrong: that the store
    can't be reached, that work was given up. `until_idle` returns when nothing is due. Raises `BadSetting`, and
    `JournalError` where nothing can be kept there. `metrics` is the host and port where Prometheus may ask.
    """
    gateway = Gateway(config, environ, store=store)
    told = gateway.metrics
    worker = Worker(
        store.work,
        f"{socket.gethostname()} {os.getpid()}",
        SessionUpkeep(gateway).work_of,
        lease_seconds=gateway.active.gateway.lease_seconds * 6,
        on_end=lambda outcome: told.claims.labels(outcome).inc(),
    )
    try:
        told.store_append.set(await store.probe())
        told.store_ready.set(1)
        await store.finish_deletions()
        with nullcontext() if metrics is None else _exported(told, *metrics):
            async with anyio.create_task_group() as group:
                group.start_soon(_stopped, worker, group.cancel_scope, gateway.active.gateway.drain_seconds)
                group.start_soon(_watched, worker, told, on_note)
                await worker.run(until_idle=until_idle)
                group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await gateway.close()
    return worker.counts


async def _stopped(worker: Worker, scope: anyio.CancelScope, seconds: float) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            worker.stop()
            scope.deadline = min(scope.deadline, anyio.current_time() + seconds)
            seconds = 0.0  # whoever says it twice can't wait


@contextmanager
def _exported(told: Metrics, host: str, port: int) -> Iterator[None]:
    """Metrics for whoever asks there over HTTP, from a thread of their own."""
    try:
        server, thread = start_http_server(port, host, told.registry)
    except OSError as e:
        raise BadSetting(f"{host}:{port}: {os.strerror(e.errno) if e.errno else e}: give another address") from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


async def _watched(worker: Worker, metrics: Metrics, on_note: Callable[[str], None]) -> None:
    """Say what is wrong, each thing once for as long as it is so."""
    before, told = "", set[tuple[str, str, str, int]]()
    while True:
        metrics.store_ready.set(not worker.problem)
        if worker.problem != before:
            before = worker.problem
            on_note(before or "the store answers again")
        with suppress(JournalError):
            for claim, why in await worker.queue.dead():
                one = (claim.tenant, claim.session, claim.kind, claim.want)
                if one not in told:
                    told.add(one)
                    on_note(f"{claim.kind} of session {claim.session} was given up after {claim.attempts} tries: {why}")
        await anyio.sleep(_WATCH_SECONDS)
