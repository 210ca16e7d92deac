"""What `perdure doctor --store` looks at: the database, who asks it, and the sessions written last (CLI-3, SCL-1)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from perdure.cli.doctor import Finding, version_of
from perdure.cli.output import plural, size
from perdure.errors import PerdureError

if TYPE_CHECKING:
    from perdure.adapters.postgres.examination import DatabaseFacts
    from perdure.cli.kept import KeptIn
    from perdure.ports.home import Home, SessionInfo, Store

_MOST_READ = 1_000  # sessions, which are read whole
_SHOWN = 3
_SKEW_SECONDS = 5.0
_WAIT_SECONDS = 600.0
_FULL_SHARE = 0.8


async def store_findings(kept: KeptIn) -> AsyncIterator[Finding]:
    """Look at all of it, as far as it can be looked at."""
    from perdure.adapters.postgres.examination import examined
    from perdure.adapters.postgres.store import PostgresStore

    async with kept.opened() as store:
        assert isinstance(store, PostgresStore)
        yield Finding("packages", "ok", ", ".join(f"{name} {version_of(name)}" for name in ("perdure", "psycopg")))
        try:
            facts = await examined(store.db)
        except PerdureError as e:
            yield Finding("database", "problem", str(e))
            return
        for finding in _of_database(store.name, facts):
            yield finding
        try:
            bucket = await store.blobs.bucket()
            yield Finding("blobs", "ok", "in the database" if bucket is None else f"in {bucket.address}")
            took = await store.probe()
            yield Finding("storage", "ok", f"a write is durable after {took * 1000:.1f} ms")
        except PerdureError as e:
            yield Finding("storage", "problem", str(e))
        async for finding in _of_work(store, facts):
            yield finding
        try:
            homes: list[Home] = [await kept.home_in(store)]
            tenants = sorted(await store.tenants())
        except PerdureError as e:
            yield Finding("tenants", "problem", str(e))
            return
        about = f"about {plural(facts.sessions, 'session')}, {size(facts.bytes)} with indexes"
        yield Finding("tenants", "ok", f"{len(tenants):,}; {about}")
        if not kept.tenant:
            homes += [store.home(tenant) for tenant in tenants]
        async for finding in _of_sessions(homes):
            yield finding


def _of_database(name: str, facts: DatabaseFacts) -> list[Finding]:
    took = f"{facts.answers_seconds * 1000:.1f} ms"
    found = [
        Finding("database", "ok", f"{name}: PostgreSQL {facts.server}, answers in {took}"),
        Finding("schema", "ok", f"version {facts.schema}"),
    ]
    if facts.is_replica:
        found.append(Finding("database", "problem", "it is a replica that takes no writes: name the primary"))
    if facts.may_all:
        what = f"{facts.user} {' and '.join(facts.may_all)}, so tenants aren't kept apart: serve as another user"
        found.append(Finding("role", "problem", f"{what}, a member of perdure_serving"))
    else:
        found.append(Finding("role", "ok", f"{facts.user} owns nothing and is held to row-level security"))
    if facts.unprotected:
        off = f"row-level security isn't forced for {', '.join(facts.unprotected)}"
        found.append(Finding("tables", "problem", f"{off}: ALTER TABLE … FORCE ROW LEVEL SECURITY, as the owner"))
    else:
        found.append(Finding("tables", "ok", f"row-level security is forced for {facts.protected}"))
    skew = abs(facts.ahead_seconds)
    side = "ahead of" if facts.ahead_seconds > 0 else "behind"
    words = f"the database's is {skew:.1f} s {side} this machine's" if skew >= 0.05 else "agree"
    found.append(Finding("clocks", "ok" if skew < _SKEW_SECONDS else "note", words))
    is_full = facts.connections > _FULL_SHARE * facts.most_connections
    words = f"{facts.connections:,} of {facts.most_connections:,} are open"
    found.append(Finding("connections", "note" if is_full else "ok", words))
    return found


async def _of_work(store: Store, facts: DatabaseFacts) -> AsyncIterator[Finding]:
    is_late = facts.due_seconds > _WAIT_SECONDS
    words = f"{facts.due:,} due, the oldest for {facts.due_seconds:,.0f} s" if facts.due else "nothing is due"
    late = ": is a `perdure worker` running?" if is_late else ""
    yield Finding("work", "note" if is_late else "ok", words + late)
    try:
        dead = await store.work.dead()
    except PerdureError as e:
        yield Finding("work", "problem", str(e))
        return
    for claim, why in dead[:_SHOWN]:
        whose = f" of {claim.tenant}" if claim.tenant else ""
        what = f"{claim.kind} of session {claim.session}{whose} was given up after {plural(claim.attempts, 'attempt')}"
        yield Finding("work", "problem", f"{what}: {why}")
    if len(dead) > _SHOWN:
        yield Finding("work", "problem", f"and {len(dead) - _SHOWN:,} more were given up")


async def _of_sessions(homes: list[Home]) -> AsyncIterator[Finding]:
    """Read the sessions that were written last in each home, and look whether each of their blobs is there."""
    read = sound = 0
    is_all = True
    for home in homes:
        try:
            listed = await home.sessions(limit=_MOST_READ - read + 1)
        except PerdureError as e:
            yield Finding("sessions", "problem", str(e))
            return
        is_all = is_all and len(listed) <= _MOST_READ - read
        for info in listed[: _MOST_READ - read]:
            read += 1
            troubles = await _troubles(home, info)
            sound += not troubles
            name = f"session {info.id}" + (f" of {home.name}" if home.name else "")
            for what in troubles[:_SHOWN]:
                yield Finding(name, "problem", what)
            if len(troubles) > _SHOWN:
                yield Finding(name, "problem", f"and {len(troubles) - _SHOWN:,} more")
        if not is_all:
            break
    last = "" if is_all else " that were looked at, the last written of each tenant first"
    yield Finding("sessions", "ok", f"{sound:,} of {read:,} are sound{last}" if read else "none yet")


async def _troubles(home: Home, info: SessionInfo) -> list[str]:
    from perdure.adapters.journal.blobs import blobs_named_in

    found = [info.problem] if info.problem else []
    try:
        stored = await home.open(info.id, read_only=True)
        try:
            loaded = await stored.journal.load(whole=True)
        finally:
            await stored.journal.close()
    except PerdureError as e:
        return [*found, str(e)]
    found += [f"line {repair.line}: {repair.what}" for repair in loaded.repairs]
    named = {blob: what for placed in loaded.records for blob, what in blobs_named_in(placed.record)}
    for blob, what in named.items():
        try:
            await stored.blobs.get(blob)
        except PerdureError as e:
            found.append(f"blob {blob[:12]} ({what}): {e}")
    return found
