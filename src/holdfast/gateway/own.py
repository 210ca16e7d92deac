"""What the gateway says of itself: health, readiness, metrics, and the sessions in memory (GW-4). Never any text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.gateway import live
from holdfast.gateway.gateway import Gateway
from holdfast.gateway.sessions import Held
from holdfast.gateway.tenants import Tenant


@dataclass(frozen=True, slots=True)
class Told:
    """An answer of the gateway's own."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


Page = Callable[[Gateway, "Tenant | None"], Awaitable[Told]]


def _json(status: int, value: Any) -> Told:
    return Told(status, "application/json", msgspec.json.encode(value))


async def health(gateway: Gateway, who: Tenant | None) -> Told:
    """The process answers."""
    return _json(200, {"status": "ok", "seconds": round(gateway.clock.now() - gateway.started, 1)})


async def ready(gateway: Gateway, who: Tenant | None) -> Told:
    """The disk took an append just now. Without that the gateway still proxies, and remembers nothing."""
    is_ready, seconds = await gateway.is_ready()
    text = "ready" if is_ready else "not ready: the disk takes no append"
    return _json(200 if is_ready else 503, {"status": text, "append_ms": round(seconds * 1e3, 2)})


async def metrics(gateway: Gateway, who: Tenant | None) -> Told:
    """Prometheus' text format."""
    gateway.metrics.in_flight.set(gateway.admission.in_flight)
    gateway.metrics.open_sessions.set(sum(map(len, gateway.tenants_open().values())))
    return Told(200, "text/plain; version=0.0.4; charset=utf-8", gateway.metrics.text())


async def status(gateway: Gateway, who: Tenant | None) -> Told:
    """The sessions in memory: their own tenant's, or all where nobody else could ask."""
    return _json(200, seen(gateway, who))


async def page(gateway: Gateway, who: Tenant | None) -> Told:
    """The same for people, as a page that looks again by itself; a stranger is asked for a key."""
    is_stranger = who is None
    told = None if is_stranger else seen(gateway, who)
    body = live.page(told, gateway.clock.now(), asks_key=_shown(gateway) == "own").encode()
    return Told(401 if is_stranger else 200, "text/html; charset=utf-8", body, live.HEADERS)


def _shown(gateway: Gateway) -> str:
    return gateway.now.gateway.status or ("own" if gateway.now.tenants.is_closed else "all")


def seen(gateway: Gateway, who: Tenant | None) -> dict[str, Any]:
    """What a caller may see."""
    held = gateway.tenants_open()
    mine = held if _shown(gateway) == "all" else {name: some for name, some in held.items() if who and name == who.id}
    return {
        "seconds": round(gateway.clock.now() - gateway.started, 1),
        "in_flight": gateway.admission.in_flight,
        "tenants": {name: [_session(one) for one in some] for name, some in sorted(mine.items())},
    }


def _session(held: Held) -> dict[str, Any]:
    session, limits, spent = held.session, held.session.limits, held.spent
    state = session.view.state
    return {
        "session": held.id,
        "route": held.route,
        "model": session.view.front.model if session.view.front else None,
        "messages": held.head.count,
        "responses": state.responses,
        "view_tokens": held.tokens,
        "window_tokens": limits.window,
        "trigger_tokens": limits.trigger,
        "compactions": state.breaker.boundaries,
        "edits": held.sink.edits,
        "mode": "view" if held.is_shaped else "untouched",
        "is_busy": bool(held.users),
        "spared_tokens": spent.spared_tokens,
        "paid_usd": _usd(spent.paid_usd),
        "saved_usd": _usd(spent.saved_usd),
        "recent": list(held.sink.recent),
    }


def _usd(amount: float | None) -> float | None:
    return None if amount is None else round(amount, 6)


PAGES: dict[str, Page] = {"/healthz": health, "/readyz": ready, "/metrics": metrics, "/holdfast/status": status}
PAGES |= {"/holdfast": page, "/holdfast/": page}
# These tell nothing of any tenant, so a probe needs no key; the page asks for one itself.
OPEN = ("/healthz", "/readyz", "/metrics", "/holdfast", "/holdfast/")
