"""What the gateway says of itself: health, metrics, sessions in memory, and the live page (GW-4)."""

from __future__ import annotations

import logging
import sys
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

import anyio.to_thread
import msgspec

from perdure.context.policy import has_given_up
from perdure.engine.tools import original_in
from perdure.errors import JournalError, PerdureError, SessionNotFound
from perdure.gateway.config import ANYONE, OWNER, PAGE_KEY, Tenant
from perdure.gateway.gateway import Gateway
from perdure.gateway.reports import place_of
from perdure.gateway.sessions import CachedSession
from perdure.lab.report.page import POLICY
from perdure.recall.queries import RecallRequest, range_of, recalled_part

_LOG = logging.getLogger("perdure.gateway")


@dataclass(frozen=True, slots=True)
class GatewayResponse:
    """An answer of the gateway's own."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


Page = Callable[[Gateway, "Tenant | None"], Awaitable[GatewayResponse]]


def _json(status: int, value: Any) -> GatewayResponse:
    return GatewayResponse(status, "application/json", msgspec.json.encode(value))


async def health(gateway: Gateway) -> GatewayResponse:
    """The process answers, and says whose it is: `perdure setup` asks before it sends a client here."""
    return _json(
        200, {"service": "perdure", "status": "ok", "seconds": round(gateway.clock.now() - gateway.started, 1)}
    )


async def ready(gateway: Gateway) -> GatewayResponse:
    """The disk took an append just now. Without that the gateway still proxies, and remembers nothing.

    One that is about to end isn't ready for anybody new.
    """
    if gateway.is_ending:
        return _json(503, {"status": "draining"})
    is_ready, seconds = await gateway.is_ready()
    text = "ready" if is_ready else "not ready: nothing can be recorded"
    return _json(200 if is_ready else 503, {"status": text, "append_ms": round(seconds * 1e3, 2)})


async def metrics(gateway: Gateway, who: Tenant | None) -> GatewayResponse:
    """Prometheus' text format."""
    told, held = gateway.metrics, [one for some in gateway.tenants_open().values() for one in some]
    is_ready, seconds = await gateway.is_ready()
    told.in_flight.set(gateway.admission.in_flight)
    told.waiting.set(gateway.admission.waiting)
    told.open_sessions.set(len(held))
    told.stopped_sessions.set(sum(has_given_up(one.session.view, one.session.settings) for one in held))
    told.store_ready.set(is_ready)
    told.store_append.set(seconds)
    connections = gateway.store.connections
    told.store_connections.set(connections.open)
    told.store_connections_busy.set(connections.busy)
    told.store_connections_waiting.set(connections.waiting)
    if gateway.active.gateway.background == "workers" and is_ready:
        with suppress(JournalError):
            backlog = await gateway.store.work.backlog()
            told.work_waiting.set(backlog.waiting)
            told.work_waiting_seconds.set(backlog.seconds)
            told.work_running.set(backlog.running)
            told.work_dead.set(backlog.dead)
    return GatewayResponse(200, "text/plain; version=0.0.4; charset=utf-8", told.text())


async def status(gateway: Gateway, who: Tenant | None) -> GatewayResponse:
    """The sessions in memory that a caller may see; who brings no key is told which one it needs."""
    if _is_stranger(gateway, who):
        return _json(401, {"error": _NO_KEY})
    return _json(200, await visible_status(gateway, who))


async def page(gateway: Gateway, who: Tenant | None) -> GatewayResponse:
    """The same for people, as a page that looks again by itself; a stranger is asked for a key."""
    is_stranger = _is_stranger(gateway, who)
    told = None if is_stranger else await visible_status(gateway, who)
    body = live_page(told, gateway.clock.now(), is_closed=gateway.active.tenants.is_closed).encode()
    return GatewayResponse(401 if is_stranger else 200, "text/html; charset=utf-8", body, _headers(_POLICY))


async def recalled(gateway: Gateway, who: Tenant, place: str, query: str) -> GatewayResponse:
    """An original, for clients whose model has no recall tool: `SESSION/ID`, with `lines`, `chars` or `pattern`.

    Only what the tenant itself said is there (RCL-3, GW-8).
    """
    session, _, identity = place.partition("/")
    asked = {name: values[-1] for name, values in parse_qs(query).items()}
    try:
        wanted = RecallRequest(
            id=identity,
            lines=range_of(asked["lines"], what="lines") if "lines" in asked else None,
            chars=range_of(asked["chars"], what="chars") if "chars" in asked else None,
            pattern=asked.get("pattern"),
            limit_chars=sys.maxsize,
        )
        loaded, blobs = await gateway.sessions(who.id).home.archive().load(session)
        original = await original_in(loaded, blobs, identity)
        text = (await anyio.to_thread.run_sync(recalled_part, original, wanted)).body
    except JournalError as e:
        return _unread(e)
    except PerdureError as e:
        return GatewayResponse(404, "text/plain; charset=utf-8", f"{e}\n".encode(), _OWN_TEXT)
    return GatewayResponse(200, "text/plain; charset=utf-8", text.encode("utf-8", "replace"), _OWN_TEXT)


async def report(gateway: Gateway, who: Tenant | None, path: str, query: str) -> GatewayResponse:
    """A session as a page, for whoever may read its tenant's words, or has a ticket for it (GW-9)."""
    asked = {name: values[-1] for name, values in parse_qs(query).items()}
    place, now, config = place_of(path), gateway.clock.now(), gateway.active.config
    is_ones = place is not None and _is_readable(gateway, who, place[0])
    is_shown = is_ones or ("open" not in asked and gateway.reports.takes(asked.get("ticket", ""), path, now))
    if place is None or not is_shown:  # a ticket gets nobody another one
        return GatewayResponse(404, "text/plain; charset=utf-8", b"there is no such report for you\n", _OWN_TEXT)
    if "open" in asked:
        return _json(200, {"at": f"{REPORT}{path}?ticket={gateway.reports.ticket(path, now)}"})
    tenant, session = place
    held = next((one for one in gateway.tenants_open().get(tenant, ()) if one.id == session), None)
    settings = config.settings if held is None else held.session.settings
    try:
        body = await gateway.reports.made(gateway.store.home(tenant), session, settings, config.models, now)
    except JournalError as e:
        return _unread(e)
    except PerdureError as e:
        return GatewayResponse(404, "text/plain; charset=utf-8", f"{e}\n".encode(), _OWN_TEXT)
    return GatewayResponse(200, "text/html; charset=utf-8", body, _headers(f"{POLICY}; frame-ancestors 'none'"))


def _unread(error: JournalError) -> GatewayResponse:
    """What is told of a session that isn't there or can't be read: nothing of this machine's folders."""
    if isinstance(error, SessionNotFound):
        return GatewayResponse(404, "text/plain; charset=utf-8", b"you have no such session here\n", _OWN_TEXT)
    _LOG.warning("a session can't be read: %s", error)
    return GatewayResponse(503, "text/plain; charset=utf-8", b"the session can't be read at the moment\n", _OWN_TEXT)


def _is_stranger(gateway: Gateway, who: Tenant | None) -> bool:
    """Whether nothing is shown to a caller; whoever brings no key sees at most that there are sessions."""
    return who is None or (_is_anyone(gateway, who) and gateway.active.gateway.status != "all")


def _is_anyone(gateway: Gateway, who: Tenant) -> bool:
    """Whether a caller can't be told from others: without tenants, all who bring no key are one."""
    return who.id == ANYONE and not gateway.active.tenants.is_closed


async def visible_status(gateway: Gateway, who: Tenant | None) -> dict[str, Any]:
    """What a caller may see."""
    mine, now = gateway.tenants_open(), gateway.clock.now()
    sees_all = who is OWNER or gateway.active.gateway.status == "all"
    if not sees_all:
        mine = {name: some for name, some in mine.items() if who and name == who.id}
    own = () if who is None or who is OWNER else (who.id,)
    usage = {name: await _usage(gateway, name, now) for name in sorted({*mine, *own})}
    return {
        "seconds": round(gateway.clock.now() - gateway.started, 1),
        "in_flight": gateway.admission.in_flight,
        "usage": usage,
        "tenants": {
            name: [_session(one, name, is_readable=_is_readable(gateway, who, name)) for one in some]
            for name, some in sorted(mine.items())
        },
    }


async def _usage(gateway: Gateway, tenant: str, now: float) -> dict[str, Any]:
    """What a tenant used today, beside what it may."""
    used, limits = (await gateway.usage.of(tenant, now)).today(now), gateway.active.gateway.limits_of(tenant)
    return {
        "requests": used.requests,
        "tokens": used.tokens,
        "usd": round(used.usd, 6),
        "limits": {name: most for name, most in msgspec.structs.asdict(limits).items() if most is not None},
    }


def _is_readable(gateway: Gateway, who: Tenant | None, tenant: str) -> bool:
    """Whether a caller may read words of a tenant's: its own; where none are set up, the home's owner all."""
    is_own = who is not None and who.id == tenant and not _is_anyone(gateway, who)
    return is_own or who is OWNER


def _session(held: CachedSession, tenant: str, *, is_readable: bool) -> dict[str, Any]:
    known = held.session.view.state.title
    session, limits, spent = held.session, held.session.limits, held.spending
    state = session.view.state
    return {
        "session": held.id,
        "title": known.title if is_readable else None,
        "client": known.client,
        "folder": known.folder if is_readable else None,
        "report": f"{REPORT}{tenant}/{held.id}" if is_readable else None,
        "used": round(held.sink.clock.now() - (time.monotonic() - held.used), 3),
        "route": held.route,
        "model": session.view.front.model if session.view.front else None,
        "messages": held.head.count,
        "responses": state.responses,
        "view_tokens": held.tokens,
        "window_tokens": limits.window,
        "trigger_tokens": limits.trigger,
        "compactions": state.breaker.boundaries,
        "has_stopped_compacting": has_given_up(session.view, session.settings),
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


_NO_KEY = f"Sessions are shown to their own user: enter the key in gateway/{PAGE_KEY} of Perdure's home."
RECALL = "/perdure/recall/"
REPORT = "/perdure/report/"
_OWN_TEXT = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; sandbox"),
    (b"x-content-type-options", b"nosniff"),
)
# What kubelets and load balancers ask, by an address that is nobody's name; it tells nothing of anybody.
PROBES: dict[str, Callable[[Gateway], Awaitable[GatewayResponse]]] = {"/healthz": health, "/readyz": ready}
METRICS = "/metrics"
PAGES: dict[str, Page] = {METRICS: metrics, "/perdure/status": status}
PAGES |= {"/perdure": page, "/perdure/": page}
OPEN = (METRICS, "/perdure", "/perdure/")  # the first tells nothing of any tenant; the page asks for a key itself


Data = Mapping[str, Any]

_STYLE = "".join((files(where) / name).read_text(encoding="utf-8") for where, name in (
    ("perdure.lab.report", "page.css"), ("perdure.gateway", "live.css"))
)  # fmt: skip
_SCRIPT = (files("perdure.gateway") / "live.js").read_text(encoding="utf-8")


def _allowed(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


_POLICY = (
    f"default-src 'none'; style-src {_allowed(_STYLE)}; script-src {_allowed(_SCRIPT)}; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def _headers(policy: str) -> tuple[tuple[bytes, bytes], ...]:
    """Of a page with that policy: it loads nothing from elsewhere, and nobody keeps it."""
    return (
        (b"content-security-policy", policy.encode()),
        (b"cache-control", b"no-store"),
        (b"referrer-policy", b"no-referrer"),
        (b"x-content-type-options", b"nosniff"),
    )


def live_page(told: Data | None, now: float, *, is_closed: bool) -> str:
    """The whole page; `told` is None for a caller that nothing may be shown to. `now` is the time in seconds.

    `is_closed`: there are tenants, and each sees its own.
    """
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<noscript><meta http-equiv="refresh" content="5"></noscript>'
        f"<title>Perdure gateway</title><style>{_STYLE}</style></head><body><h1>Perdure gateway</h1>"
        f"{_KEY}<main>{''.join(_main(told, now, is_closed=is_closed))}</main>"
        '<footer id="state">The figures hold since the gateway was started; dollars are what the providers charge by '
        "the list. Nothing is loaded from elsewhere.</footer>"
        f"<script>{_SCRIPT}</script></body></html>\n"
    )


_KEY = (
    '<form id="key"><label>Key <input type="password" autocomplete="off" required></label> '
    "<button>Show its sessions</button> "
    '<span class="soft">It stays in this page, and is forgotten with it.</span></form>'
)


def _main(told: Data | None, now: float, *, is_closed: bool) -> Iterator[str]:
    if told is None and is_closed:
        yield "<p>Sessions are shown to their own tenant: enter its key.</p>"
        return
    if told is None:
        yield f"<p>{escape(_NO_KEY)}</p>"
        return
    tenants: Mapping[str, Sequence[Data]] = told["tenants"]
    every = [session for some in tenants.values() for session in some]
    yield from _facts(told, every)
    if not every:
        yield "<p>No session is in memory. One appears with its first request.</p>"
    for name, sessions in tenants.items():
        if sessions and len(tenants) > 1:
            yield f"<h2>{escape(name)}</h2>"
        if sessions:
            yield f'<p class="soft">{escape(_today(told["usage"][name]))}</p>'
        for session in sorted(sessions, key=lambda one: -one["used"]):
            yield from _live_session(session, now)


def _facts(told: Data, every: Sequence[Data]) -> Iterator[str]:
    saved = [one["saved_usd"] for one in every if one["saved_usd"] is not None]
    facts = [
        ("up", _span(told["seconds"])),
        ("requests under way", f"{told['in_flight']:,}"),
        ("sessions in memory", f"{len(every):,}"),
        ("compactions", f"{sum(one['compactions'] for one in every):,}"),
        ("tokens not sent", _k(sum(one["spared_tokens"] for one in every))),
        ("price saved", _live_usd(sum(saved)) if saved else "no price known"),
    ]
    cells = "".join(f'<div class="fact">{escape(name)}<b>{escape(value)}</b></div>' for name, value in facts)
    yield f'<div class="facts">{cells}</div>'


def _today(usage: Data) -> str:
    """What a tenant used today, and of how much."""
    limits = usage["limits"]
    tokens, usd = _k(usage["tokens"]) + " tokens", _live_usd(usage["usd"])
    if "tokens_per_day" in limits:
        tokens += f" of {_k(limits['tokens_per_day'])}"
    if "usd_per_day" in limits:
        usd += f" of {_live_usd(limits['usd_per_day'])}"
    return f"today: {_count(usage['requests'], 'request')}, {tokens}, {usd}"


def _live_session(one: Data, now: float) -> Iterator[str]:
    identity = escape(one["session"])
    busy = '<span class="busy">answering</span>' if one["is_busy"] else ""
    title = escape(one["title"] or "") or f"<code>{identity}</code>"
    yield f'<section id="s-{identity}"><h3>{title} {busy}</h3>'
    ago = f"{_span(now - one['used'])} ago"
    whose = [part for part in (one["client"], one["folder"], ago) if part]
    link = f'<a class="report" href="{escape(one["report"])}">its report</a> · ' if one["report"] else ""
    made = f"<code>perdure report {identity} -o report.html</code>"
    yield f'<p class="soft">{escape(" · ".join(whose))} · {link}{made}</p>'
    what = [one["model"] or "no model yet", f"route {one['route']}", f"{one['messages']:,} messages"]
    what.append("goes upstream as its view" if one["mode"] == "view" else "untouched")
    yield f'<p class="soft">{escape(" · ".join(what))}</p>{_bar(one)}'
    said = [
        _count(one["compactions"], "compaction"),
        _count(one["edits"], "edit"),
        f"{_k(one['spared_tokens'])} tokens not sent",
    ]
    if one["saved_usd"] is not None:
        said.append(f"{_live_usd(one['paid_usd'])} paid, {_live_usd(one['saved_usd'])} saved")
    yield f"<p>{escape(' · '.join(said))}</p>"
    recent = one["recent"]
    if recent:
        rows = "".join(_event(event, now) for event in reversed(recent))
        head = f"what was done lately: {_name(recent[-1])}, {_span(now - recent[-1]['at'])} ago"
        yield f'<details id="d-{identity}"><summary>{escape(head)}</summary><div class="scroll"><table><thead>'
        yield f"<tr><th>ago</th><th>what</th><th>how</th></tr></thead><tbody>{rows}</tbody></table></div></details>"
    yield "</section>"


def _bar(one: Data) -> str:
    """How full the window is, and where compaction is due."""
    size, window, trigger = one["view_tokens"], max(one["window_tokens"], 1), one["trigger_tokens"]
    share = min(size / window, 1.0)
    css = "near" if size >= trigger * 0.8 else "far"
    text = f"{size:,} of {window:,} tokens, compaction at {trigger:,}"
    return (
        f'<svg class="bar" viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label="{escape(text)}">'
        f'<rect class="room" width="1000" height="10"/><rect class="{css}" width="{share * 1000:.0f}" height="10"/>'
        f'<line class="trigger" x1="{trigger / window * 1000:.0f}" x2="{trigger / window * 1000:.0f}" y1="0" y2="10"/>'
        f'</svg><p class="soft">{share:.0%} · {escape(text)}</p>'
    )


def _event(event: Data, now: float) -> str:
    how = ", ".join(f"{name.replace('_', ' ')} {_value(v)}" for name, v in event.items() if name not in ("at", "event"))
    cells = (_span(now - event["at"]), _name(event), how)
    return f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>"


_NAMES = {
    "CompactionDone": "compacted",
    "CompactionAttemptFailed": "a compaction failed",
    "ResultsCleared": "old results cleared",
    "ResultOffloaded": "large result offloaded",
    "PrefixMoved": "prefix moved",
}


def _name(event: Data) -> str:
    return _NAMES.get(event["event"], str(event["event"]))


def _value(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"{len(value):,}"
    if isinstance(value, float):
        return f"{value:,.4f}"
    return f"{value:,}" if isinstance(value, int) else "unknown" if value is None else str(value)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _live_usd(amount: float) -> str:
    return f"{'-' if amount < 0 else ''}${abs(amount):,.2f}"


def _k(tokens: int) -> str:
    if tokens < 10_000:
        return f"{tokens:,}"
    return f"{tokens / 1e3:,.0f}k" if tokens < 1_000_000 else f"{tokens / 1e6:,.2f}M"


def _span(seconds: float) -> str:
    """A time span as people say it."""
    whole = max(0, round(seconds))
    if whole < 100:
        return f"{whole} s"
    if whole < 6_000:
        return f"{whole // 60} min"
    return f"{whole // 3600} h" if whole < 172_800 else f"{whole // 86_400} days"
