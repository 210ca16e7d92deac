"""What is counted: metrics for Prometheus, money, and what was done lately in each session (OBS-1)."""

from __future__ import annotations

from collections import Counter as Tally
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from perdure.adapters.sinks import event_data
from perdure.context.cost import usage_usd
from perdure.context.models import CACHE_SECONDS, CacheTtl, ModelSpec
from perdure.events import (
    CacheDropped,
    CompactionAttemptFailed,
    CompactionDone,
    Event,
    KeeperDeferred,
    KeeperDone,
    KeeperFailed,
    PrefixMoved,
    ResultOffloaded,
    ResultsCleared,
)
from perdure.gateway.access import CURRENT
from perdure.ports.session import Clock, Sink
from perdure.transcript.messages import Usage


@dataclass(slots=True)
class SessionSpending:
    """Since the session was opened here. Dollars are None as long as no model with a known price answered.

    `whole_usd` is a reckoning: each time the client's whole history, the part that the request before held read from
    the provider's cache while that is warm, whatever the window. `spared_tokens` are estimated from bytes.
    """

    answers: int = 0
    spared_tokens: int = 0
    paid_usd: float | None = None
    whole_usd: float | None = None
    _known_tokens: int = 0
    _at: float = 0.0

    def answered(
        self, usage: Usage, spared_tokens: int, model: ModelSpec, now: float, ttl: CacheTtl
    ) -> tuple[float, float] | None:
        """Count an answer to a request that left out `spared_tokens` of its client's history.

        Returns:
            What it cost and what the whole history would have cost, in dollars; None without a known price.
        """
        self.answers += 1
        self.spared_tokens += spared_tokens
        whole = usage.prompt_tokens + spared_tokens
        read = min(self._known_tokens, whole) if now - self._at <= CACHE_SECONDS[ttl] else 0
        self._known_tokens, self._at = whole, now
        if model.input_usd is None:
            return None
        told = Usage(
            cache_read_input_tokens=read, cache_creation_input_tokens=whole - read, output_tokens=usage.output_tokens
        )
        paid = usage_usd(usage, model, ttl)
        whole_price = usage_usd(told, model, ttl) if spared_tokens else paid
        self.paid_usd = (self.paid_usd or 0.0) + paid
        self.whole_usd = (self.whole_usd or 0.0) + whole_price
        return paid, whole_price

    @property
    def saved_usd(self) -> float | None:
        """What shorter requests saved; below zero right after a compaction, whose new prefix is written once."""
        return None if self.paid_usd is None or self.whole_usd is None else self.whole_usd - self.paid_usd


_RECENT = 20  # events kept of a session
_FAST = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0)


class Metrics:
    """The gateway's counters, in a registry of their own. Labels are bounded: routes, kinds, reasons; never ids."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"perdure_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str) -> Histogram:
            return Histogram(f"perdure_{name}_seconds", text, buckets=_FAST, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"perdure_{name}", text, registry=registry)

        self.requests = counter("requests", "Requests, by route, kind and what was done", "route", "kind", "mode")
        self.answers = counter("answers", "Answers to clients, by status class", "status")
        self.passed = counter("passed", "Requests let through unmodified, by reason (REL-15)", "reason")
        self.sockets = counter("sockets", "WebSockets that were opened")
        self.cancelled = counter("cancelled", "Requests whose client went away before the end")
        self.upstream_errors = counter("upstream_errors", "Upstreams that couldn't be reached, or broke off", "reason")
        self.recovered = counter("recovered", "Errors of an upstream that the client never saw", "reason")
        self.recalls = counter("recalls", "Answers that went on with what their model recalled, unseen by the client")
        self.unrecorded = counter("unrecorded", "Answers that were passed on but not recorded", "reason")
        self.forks = counter("forks", "Histories that left a session, and got one that shares its past")
        self.edited = counter(
            "edited", "Histories that their client had edited further up, and that stayed in their session"
        )
        self.compactions = counter("compactions", "Compactions", "trigger", "strategy")
        self.failed_compactions = counter(
            "failed_compactions", "Attempts to compact that changed nothing", "trigger", "strategy"
        )
        self.edits = counter("edits", "Edits of views", "kind")
        self.moves = counter("prefix_moves", "Moves of a cached prefix, by reason", "reason")
        self.cache_drops = counter("cache_drops", "Prefixes that the provider's cache should have had, and had not")
        self.tokens = counter("tokens", "Tokens that upstreams reported", "kind")
        self.saved = counter("saved_tokens", "Tokens of clients' histories that were not sent")
        self.usd = counter("usd", "Dollars by the list of prices: paid, and for whole histories instead", "kind")
        self.background = counter("background", "Background work on sessions", "keeper", "outcome")
        self.refused = counter("refused", "Requests refused at the door", "reason")
        self.overhead = histogram("overhead", "From the whole request to sending it on")
        self.first_byte = histogram("first_byte", "From the whole request to the first byte back")
        self.open_sessions = gauge("open_sessions", "Sessions in memory")
        self.stopped_sessions = gauge(
            "stopped_sessions", "Sessions in memory that no longer compact by themselves (PRS-5)"
        )
        self.in_flight = gauge("in_flight", "Requests under way")
        self.waiting = gauge("waiting", "Requests that wait for a place among those under way")
        self.store_ready = gauge("store_ready", "Whether the store took an append, when this was asked for: 1 or 0")
        self.store_append = gauge("store_append_seconds", "How long that append took")
        self.store_transaction = histogram(
            "store_transaction", "Transactions in the database, with the wait for a connection"
        )
        self.store_connections = gauge("store_connections", "Connections to the database that are open")
        self.store_connections_busy = gauge("store_connections_busy", "Those of them that are at work")
        self.store_connections_waiting = gauge("store_connections_waiting", "Who waits for one of them")
        self.reopened = counter("reopened", "Sessions that were read again, as another process went on with them")
        self.work_waiting = gauge("work_waiting", "Work for workers of the store that nobody is at yet")
        self.work_waiting_seconds = gauge("work_waiting_seconds", "How long the oldest of it that is due has waited")
        self.work_running = gauge("work_running", "Work that workers are at")
        self.work_dead = gauge("work_dead", "Work that was given up after several attempts")
        self.claims = counter("claims", "Work that this worker took, by what came of it", "outcome")

    def text(self) -> bytes:
        """In Prometheus' own format."""
        return generate_latest(self.registry)

    def emit(self, event: Event) -> None:
        """Count an event of any session."""
        match event:
            case CompactionDone():
                self.compactions.labels(event.trigger, event.strategy).inc()
            case CompactionAttemptFailed():
                self.failed_compactions.labels(event.trigger, event.strategy).inc()
            case CacheDropped():
                self.cache_drops.inc()
            case KeeperDone():
                self.background.labels(event.keeper, "done").inc()
            case KeeperFailed():
                self.background.labels(event.keeper, "failed").inc()
            case KeeperDeferred():
                self.background.labels(event.keeper, "deferred").inc()
            case ResultOffloaded():
                self.edits.labels("offloaded").inc()
            case ResultsCleared():
                self.edits.labels("cleared").inc(len(event.tool_use_ids))
            case PrefixMoved():
                self.moves.labels(event.reason).inc()
            case _:
                pass


_EDITS = (ResultOffloaded, ResultsCleared, PrefixMoved)


@dataclass(slots=True)
class SessionSink:
    """`ports.Sink` of one session: what was done is counted here, and passed on to whoever wants to know.

    `recent` holds no text.
    """

    metrics: Metrics
    clock: Clock
    tenant: str
    session: str = ""
    onward: Sink | None = None
    counts: Tally[str] = field(default_factory=Tally)
    recent: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_RECENT))
    compacted: str = ""  # how the last compaction came about

    def emit(self, event: Event) -> None:
        self.metrics.emit(event)
        self.counts[type(event).__name__] += 1
        if isinstance(event, CompactionDone):
            self.compacted = f"{event.trigger}/{event.strategy}"
        if isinstance(event, (*_EDITS, CompactionDone, CompactionAttemptFailed)):
            self.recent.append({"at": round(self.clock.now(), 3), **event_data(event)})
        if self.onward is not None:
            self.onward.emit(event)

    def about(self) -> dict[str, str]:
        """Whose events these are: the tenant, the session, and the request that is being served (GW-9)."""
        record = CURRENT.get()
        return {"tenant": self.tenant, "session": self.session, **(record.about() if record else {})}

    @property
    def edits(self) -> int:
        """How many edits were made so far."""
        return sum(self.counts[kind.__name__] for kind in _EDITS) + self.counts["CompactionDone"]
