"""The gateway as one object: configuration in force, tenants, their sessions, and how much is let in (GW-3, GW-4)."""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import anyio
import anyio.to_thread

from perdure.adapters.config import Config
from perdure.adapters.extras import install
from perdure.adapters.journal.home import FileStore
from perdure.adapters.journal.store import GATEWAY
from perdure.adapters.lines import LineFiles
from perdure.adapters.machine.clock import RandomIds, SystemClock
from perdure.adapters.machine.jobs import TaskJobs
from perdure.adapters.machine.trust import folder_trust
from perdure.adapters.memory.instructions import places_of
from perdure.adapters.sinks import About, NullSink, TeeSink, sinks_of
from perdure.context.models import model_spec
from perdure.engine.session import Services, run_aside
from perdure.errors import BadSetting, JournalError, ModelDown, PerdureError
from perdure.gateway.admission import Admission, HeldPlaces, Refusal
from perdure.gateway.anthropic import AnthropicProtocol
from perdure.gateway.background import BackgroundResponses
from perdure.gateway.compactions import PlaceSeal
from perdure.gateway.compress import CompressedMessages, compressed, model_in
from perdure.gateway.config import (
    OWNER,
    GatewayConfig,
    RouteConfig,
    Tenant,
    Tenants,
    credential_of,
    gateway_config,
    page_key_at,
    secret_at,
    settings_of,
)
from perdure.gateway.conversations import CONVERSATIONS
from perdure.gateway.metrics import Metrics, SessionSink
from perdure.gateway.openai import OpenAIProtocol
from perdure.gateway.quotas import UsageBook
from perdure.gateway.reports import SessionReports
from perdure.gateway.requests import LARGE_BODY_BYTES, ClientProtocol
from perdure.gateway.responses import ResponsesProtocol
from perdure.gateway.sessions import CachedSession, TenantSessions, Want
from perdure.gateway.sockets import ConnectionMemory
from perdure.gateway.turns import TurnMaker
from perdure.gateway.upstream import Headers, UpstreamClient
from perdure.memory.instructions import InstructionPlaces
from perdure.ports.home import Store
from perdure.ports.memory import MemorySearch
from perdure.ports.session import Model, Sink
from perdure.settings import Settings
from perdure.transcript.history import DigestLimits
from perdure.wiring import SessionOptions as Parts
from perdure.wiring import connect_models, memories_of

if TYPE_CHECKING:
    from perdure.adapters.otlp import OtlpExport

_LOG = logging.getLogger("perdure.gateway")
_MOST_TOLD = 1_000  # lines that are logged once
OWN_LARGE_BODIES, MOST_LARGE_BODIES = 2, 8  # as large as may be that a tenant may have in memory, and all together
MOST_TENANTS = 256  # in memory; those that are left alone go first
SYNC_SECONDS = 1.0  # what a power cut may take of the journal; clients say it again
USAGE_SECONDS = 5.0  # what a kill may take of the day's count
RETENTION_SECONDS = 3_600.0
EXPIRED_AT_ONCE = 500  # sessions of a home that are looked at
SETTLE_SECONDS = 5.0  # for what follows answers, at shutdown
RETIRE_SECONDS = 600.0  # longer than a model takes for a summary
SIDES: dict[str, ClientProtocol] = {
    side.protocol: side for side in (AnthropicProtocol(), OpenAIProtocol(), ResponsesProtocol())
}


class ProjectContext(NamedTuple):
    """What the project of a route knows: where its instruction files are, and its memories. None without them."""

    places: InstructionPlaces | None
    memories: MemorySearch | None


@dataclass(frozen=True, slots=True)
class ActiveConfig:
    """What a configuration comes to; replaced as a whole when it is read again."""

    config: Config
    gateway: GatewayConfig
    tenants: Tenants
    turns: TurnMaker
    summarizers: Mapping[str, tuple[Model, ...]]
    recall_tools: Mapping[str, bool | None]  # of each route, as its settings say
    access: Callable[[bytes], None] | None  # takes the lines of the access log, where one is kept
    projects: dict[str, ProjectContext] = field(default_factory=dict)


class Gateway:
    """Everything that outlives a request."""

    def __init__(
        self,
        config: Config,
        environ: Mapping[str, str],
        *,
        sink: Sink | None = None,
        store: Store | None = None,
        secret: bytes | None = None,
    ) -> None:
        """A gateway over a store, by default that of the home.

        Args:
            config: what holds at first.
            environ: where keys are looked for.
            sink: hears of all events, whatever the settings say.
            store: where sessions are kept; it is closed with the gateway.
            secret: what tenants are told apart by, which gateways of one store share; by default that of the home.
        """
        self.store = store or FileStore(config.home)
        self.metrics = Metrics()
        self.store.watch(self.metrics.store_transaction.observe)
        self.client = UpstreamClient()
        self.jobs = TaskJobs()
        self._background = TaskJobs()
        self.clock = SystemClock()
        self.admission = Admission()
        self.bodies = Admission()  # of large bodies: a place is a megabyte
        self.remembered = ConnectionMemory()
        self.usage = UsageBook(self.store)
        self.reports = SessionReports()
        self.background = BackgroundResponses()
        self.responding = TaskJobs()  # makes them
        self._ends_at = 0.0
        self.started = self.clock.now()
        self._environ = environ
        self._sink = sink
        self._ids = RandomIds()
        self._files = LineFiles()
        self._down: set[str] = set()  # upstreams that can't be reached
        self._sessions: dict[str, TenantSessions] = {}
        self._told: set[str] = set()
        self._secret = secret_at(config.home / GATEWAY) if secret is None else secret
        self._page_key = b""
        self.active = self._in_force(config)
        for name in ("retention_days", "max_home_bytes"):
            if getattr(config.settings, name) is not None and not isinstance(self.store, FileStore):
                self.tell_once(f"{name} isn't followed in {self.store.name}: keep_days under [gateway] is")
        self.otlp = None if self.active.gateway.otlp is None else _export(self.active.gateway.otlp)

    def _in_force(self, config: Config) -> ActiveConfig:
        gateway = gateway_config(config.gateway)
        limits = DigestLimits(gateway.max_depth, gateway.max_blocks)
        names = ("default", *gateway.routes)
        summarizers = {name: self._summarizers(config, gateway, name) for name in names}
        routes = {name: gateway.route(name) or RouteConfig() for name in names}
        tools = {name: settings_of(route, config.settings, name).recall_tool for name, route in routes.items()}
        tenants = Tenants(gateway, self._environ, self._secret)
        for name, route in routes.items():
            self._listeners(settings_of(route, config.settings, name).events, dict)  # to say what is wrong with them
        access = None if gateway.access_log is None else self._files.writer(gateway.access_log)
        turns = TurnMaker(limits, gateway.max_messages)
        return ActiveConfig(config, gateway, tenants, turns, summarizers, tools, access)

    def _summarizers(self, config: Config, gateway: GatewayConfig, name: str) -> tuple[Model, ...]:
        """The models that write records for a route; without any named, the ledger does (CMP-1)."""
        route = gateway.route(name) or RouteConfig()
        settings = settings_of(route, config.settings, name)
        if not settings.summarizer_models:
            return ()
        return connect_models(settings, self._environ, known=config.models).of("summarizer")

    def reload(self, config: Config) -> None:
        """Use another configuration from the next request on; sessions that are open keep their settings' values new.

        Raises `BadSetting`, and everything stays as it was.
        """
        before, active, former = self.active, self._in_force(config), self.otlp
        if active.gateway.otlp != before.gateway.otlp:
            self.otlp = None if active.gateway.otlp is None else _export(active.gateway.otlp)
            if former is not None:
                self._background.start("export", partial(anyio.to_thread.run_sync, former.close))
        self.active = active
        self._background.start("retire", lambda: self._retire(before))
        for sessions in self._sessions.values():
            for held in sessions.open.values():
                held.session.configure(
                    self._settings(held.route), summarizer=self.active.summarizers.get(held.route, ())
                )
                self._listen(held.sink, held.route)

    async def _retire(self, before: ActiveConfig) -> None:
        """Close the models of a configuration once nobody can be asking them any more."""
        await anyio.sleep(RETIRE_SECONDS)
        await _close_models(before)

    def tell_once(self, line: str) -> None:
        """Log what holds for many requests, with the first of them."""
        if line not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(line)
            _LOG.warning("%s", line)

    def upstream_is(self, name: str, error: ModelDown | None) -> None:
        """Log that an upstream can't be reached, and that it can again; once each."""
        if error is not None and name not in self._down:
            self._down.add(name)
            _LOG.warning("the upstream %s can't be reached (%s)", name, error.detail)
        elif error is None and name in self._down:
            self._down.discard(name)
            _LOG.warning("the upstream %s answers again", name)

    def looks_on(self, who: Tenant | None, headers: Headers, query: bytes) -> Tenant | None:
        """Return who looks at our own pages: the owner of the home, where there are no tenants and its key is said."""
        said = credential_of(headers, query).encode("utf-8", "surrogateescape")
        is_owner = bool(self._page_key) and hmac.compare_digest(said, self._page_key)
        return OWNER if is_owner and not self.active.tenants.is_closed else who

    # --- sessions -----------------------------------------------------------------------------------------------------

    def sessions(self, tenant: str) -> TenantSessions:
        """The sessions of a tenant, in a home of their own."""
        found = self._sessions.get(tenant)
        if found is None:
            self._forget_idle()
            found = self._sessions[tenant] = TenantSessions(
                self.store.home(tenant),
                lambda route: self.session_sink(tenant, route),
                self.parts,
                is_durable=self.active.config.settings.durability == "commit",
                seal=PlaceSeal(self._secret, tenant),
                want=lambda: self._want_of(tenant),
            )
        return found

    def _want_of(self, tenant: str) -> Want | None:
        """Where workers learn what is due for a tenant's sessions; None where it is done here."""
        is_here = self.active.gateway.background == "gateway"
        return None if is_here else partial(self.store.work.want, tenant)

    def session_sink(self, tenant: str, route: str) -> SessionSink:
        """What a session's events go to: the metrics, and where its settings say (OBS-1)."""
        sink = SessionSink(self.metrics, self.clock, tenant)
        self._listen(sink, route)
        return sink

    def _listen(self, sink: SessionSink, route: str) -> None:
        """Pass a session's events on to where the configuration in force says."""
        onward = self._listeners(self._settings(route).events, sink.about)
        also = (self._sink, self.otlp and self.otlp.sink(sink.about))
        sink.onward = TeeSink(*onward, *(one for one in also if one))

    def _listeners(self, names: Sequence[str], about: About) -> list[Sink]:
        return sinks_of(names, about=about, now=self.clock.now, writer=self._files.writer)

    async def enter_body(self, tenant: str, size: int, seconds: float | None = None) -> HeldPlaces:
        """Take places for a body of so many bytes, for as long as it is in memory: there is room for two of the largest
        of each tenant, and for eight of all. Raises `Refusal` when there is none for so long, or `queue_seconds`."""
        config = self.active.gateway
        largest = max(1, config.max_body_bytes // LARGE_BODY_BYTES)
        most, own = MOST_LARGE_BODIES * largest, OWN_LARGE_BODIES * largest
        weight = max(1, min(size // LARGE_BODY_BYTES, own))
        try:
            wait = config.queue_seconds if seconds is None else seconds
            return await self.bodies.enter(tenant, most, own=own, seconds=wait, weight=weight)
        except Refusal:
            text = (
                f"more than {own:,} MB of large requests at a time, or {most:,} of all clients; come back in a second"
            )
            raise Refusal("large_bodies", 503, text) from None

    async def compressed(self, tenant: str, route: str, body: bytes) -> bytes:
        """What is answered to a body of messages that are to be compressed (GW-10).

        Where the originals can't be kept, they are what is answered. Raises `Unmanageable`.
        """
        settings, known = self._settings(route), self.active.config.models

        def made() -> CompressedMessages:
            return compressed(body, settings, model_spec(model_in(body), known))

        done = await run_aside(len(body), made)
        try:
            await self.sessions(tenant).compressed.put(done.originals)
        except JournalError as e:
            self.metrics.unrecorded.labels("compress").inc()
            _LOG.warning("messages aren't compressed: %s", e)
            return done.untouched().body()
        self.metrics.saved.inc(done.before_tokens - done.after_tokens)
        return done.body()

    def _forget_idle(self) -> None:
        """Strangers come and go: what they leave behind is on disk, and keeps no file open here."""
        if len(self._sessions) >= MOST_TENANTS:
            for name, sessions in list(self._sessions.items()):
                if sessions.is_idle:
                    del self._sessions[name]
                    self._background.start("rest", sessions.close_index)

    async def trim(self) -> None:
        """Close what was not used for longest, whoever's it is, until the rest fits (GW-3)."""
        config, held = self.active.gateway, [*self._sessions.values()]
        count = sum(len(sessions.open) for sessions in held)
        tokens = sum(one.size for sessions in held for one in sessions.open.values())
        if count <= config.open_sessions and tokens <= config.open_tokens:
            return
        each = ((one, sessions) for sessions in held for one in sessions.open.values())
        for one, sessions in sorted(each, key=lambda pair: pair[0].used):
            if count <= config.open_sessions and tokens <= config.open_tokens:
                return
            if not one.users and not one.lock.locked():
                count, tokens = count - 1, tokens - one.size
                await sessions.let_go(one)

    def tenants_open(self) -> dict[str, list[CachedSession]]:
        """The sessions in memory, by tenant."""
        return {name: list(sessions.open.values()) for name, sessions in self._sessions.items()}

    def parts(self, route: str, sink: SessionSink) -> Parts:
        """What a session of a route is made with. Of files it reads those of the route's project, and no others."""
        project = self._project(route)
        return Parts(
            settings=self._settings(route),
            services=Services(
                facts_of=lambda model: model_spec(model, self.active.config.models),
                summarizer=self.active.summarizers.get(route, ()),
            ),
            sink=sink,
            clock=self.clock,
            ids=self._ids,
            is_remote=True,
            places=project.places,
            memories=project.memories,
        )

    def _project(self, name: str) -> ProjectContext:
        """What a route's project gives to its sessions; looked for once, when the first of them begins."""
        found = self.active.projects.get(name)
        if found is None:
            route, settings = self.active.gateway.route(name) or RouteConfig(), self._settings(name)
            home = self.active.config.home
            folder = None if route.project is None else Path(route.project).expanduser()
            places = memories = None
            if folder is not None and settings.instructions:
                is_trusted = folder_trust(home, folder, listed=settings.trusted_folders).is_trusted
                places = places_of(settings, self._environ, cwd=folder, home=home, is_trusted=is_trusted)
            if folder is not None and settings.memory:
                # The operator's, not a tenant's, and only to be read: whoever may use the route gets them.
                memories = memories_of(self.store.home(), folder, settings, NullSink()).own_search
            found = self.active.projects[name] = ProjectContext(places, memories)
        return found

    def _settings(self, name: str) -> Settings:
        route = self.active.gateway.route(name) or RouteConfig()
        # The client's own fields stand in its requests, so nothing asks the provider to drop thinking.
        return replace(settings_of(route, self.active.config.settings, name), durability="process", thinking="drop")

    # --- life ---------------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        with suppress(JournalError):  # a home that can't be written to has none: then nobody sees all
            self._page_key = page_key_at(self.active.config.home / GATEWAY)
        await self.client.open()
        self._background.start("sync", self._sync)
        self._background.start("usage", self._save_usage)
        self._background.start("retention", self._retention)

    async def _sync(self) -> None:
        """Make durable what was said since the last time: one sync for all the exchanges of a second (GW-3)."""
        while True:
            await anyio.sleep(SYNC_SECONDS)
            for sessions in list(self._sessions.values()):
                await sessions.flush()
                for held in list(sessions.open.values()):
                    try:
                        await held.journal.sync()
                        if held.users and not held.journal.is_lost:
                            await held.journal.hold()
                    except JournalError:
                        self.metrics.unrecorded.labels("sync").inc()  # it is in the file; the next time tries again
                    await sessions.rest(held)

    async def _save_usage(self) -> None:
        while True:
            await anyio.sleep(USAGE_SECONDS)
            await self.usage.save(self.clock.now())

    async def _retention(self) -> None:
        while True:
            try:
                if gone := await self._expired(self.active.gateway, self.clock.now()):
                    _LOG.info("%d sessions were deleted for their age", gone)
                await self.store.finish_deletions()
            except PerdureError as e:  # a database may be away for a while; what is too old has to go all the same
                _LOG.warning("what is kept for too long can't be deleted now, and is looked for again: %s", e)
            await anyio.sleep(RETENTION_SECONDS)

    async def _expired(self, config: GatewayConfig, now: float) -> int:
        """Delete sessions left untouched for longer than their tenant's are kept; how many that were."""
        gone = 0
        for tenant in sorted(await self.store.tenants()):
            known = config.tenants.get(tenant)
            if (days := config.keep_days if known is None else known.keep_days) is None:
                continue
            before, home = now - days * 86_400, self.store.home(tenant)
            await home.blobs.forget(before)
            await home.documents(CONVERSATIONS).forget(before)
            page = await home.sessions(before=before, limit=EXPIRED_AT_ONCE)
            while page:
                for one in page:
                    try:
                        await home.delete(one.id)  # what is open here or elsewhere is locked, and stays
                        gone += 1
                    except PerdureError as e:
                        _LOG.info("%s stays: %s", one.id, type(e).__name__)
                page = await home.sessions(before=before, behind=page[-1], limit=EXPIRED_AT_ONCE)
        return gone

    def ends(self) -> None:
        """From now on answers have `drain_seconds` to end, whoever waits for them."""
        self._ends_at = self._ends_at or self.clock.now() + self.active.gateway.drain_seconds

    @property
    def is_ending(self) -> bool:
        """Whether it begins nothing new."""
        return self._ends_at > 0

    async def close(self) -> None:
        """Let work under way end, and close every session with its metadata."""
        self.ends()
        await self.responding.drain(max(0.0, self._ends_at - self.clock.now()))
        await self.responding.close()
        await self.jobs.drain(SETTLE_SECONDS)
        await self.jobs.close()
        await self._background.close()
        for sessions in self._sessions.values():
            await sessions.close()
        await self.usage.save(self.clock.now())
        await self.store.close()
        await _close_models(self.active)
        await self.client.close()
        await anyio.to_thread.run_sync(self._files.close)
        if self.otlp is not None:
            await anyio.to_thread.run_sync(self.otlp.close)

    async def is_ready(self) -> tuple[bool, float]:
        """Whether something can be kept: really keeps it durably, and says how many seconds that took."""
        began = time.perf_counter()
        try:
            return True, await self.store.probe()
        except JournalError:
            return False, time.perf_counter() - began


def _export(url: str) -> OtlpExport:
    try:
        from perdure.adapters.otlp import OtlpExport
    except ImportError as e:
        raise BadSetting(f"gateway: otlp needs another package ({e.name}): {install('otel')}") from e
    return OtlpExport(url)


async def _close_models(former: ActiveConfig) -> None:
    for models in former.summarizers.values():
        for model in models:
            await model.close()
