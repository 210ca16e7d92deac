"""What the gateway says of itself: health, readiness, metrics, and the sessions in memory (GW-4). Never any text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from holdfast.gateway.gateway import Gateway
from holdfast.gateway.sessions import Held
from holdfast.gateway.tenants import Tenant

Page = Callable[[Gateway, "Tenant | None"], Awaitable[tuple[int, str, bytes]]]
_JSON = "application/json"


async def health(gateway: Gateway, who: Tenant | None) -> tuple[int, str, bytes]:
    """The process answers."""
    return 200, _JSON, msgspec.json.encode({"status": "ok", "seconds": round(gateway.clock.now() - gateway.started, 1)})


async def ready(gateway: Gateway, who: Tenant | None) -> tuple[int, str, bytes]:
    """The disk took an append just now. Without that the gateway still proxies, and remembers nothing."""
    is_ready, seconds = await gateway.is_ready()
    told = {
        "status": "ready" if is_ready else "not ready: the disk takes no append",
        "append_ms": round(seconds * 1e3, 2),
    }
    return 200 if is_ready else 503, _JSON, msgspec.json.encode(told)


async def metrics(gateway: Gateway, who: Tenant | None) -> tuple[int, str, bytes]:
    """Prometheus' text format."""
    gateway.metrics.open_sessions.set(sum(map(len, gateway.tenants_open().values())))
    return 200, "text/plain; version=0.0.4; charset=utf-8", gateway.metrics.text()


async def status(gateway: Gateway, who: Tenant | None) -> tuple[int, str, bytes]:
    """The sessions in memory: their own tenant's, or all where nobody else could ask."""
    config = gateway.now.gateway
    shown = config.status or ("own" if gateway.now.tenants.is_closed else "all")
    held = gateway.tenants_open()
    mine = held if shown == "all" else {name: some for name, some in held.items() if who and name == who.id}
    told: dict[str, Any] = {
        "seconds": round(gateway.clock.now() - gateway.started, 1),
        "in_flight": gateway.in_flight,
        "tenants": {name: [_session(one) for one in some] for name, some in sorted(mine.items())},
    }
    return 200, _JSON, msgspec.json.encode(told)


def _session(held: Held) -> dict[str, Any]:
    session, limits = held.session, held.session.limits
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
        "recent": list(held.sink.recent),
    }


PAGES: dict[str, Page] = {"/healthz": health, "/readyz": ready, "/metrics": metrics, "/holdfast/status": status}
OPEN = ("/healthz", "/readyz", "/metrics")  # tell nothing of any tenant, so a probe needs no key
