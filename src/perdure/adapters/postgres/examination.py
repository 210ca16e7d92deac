"""What is to be known of a database before sessions are entrusted to it, or when something is slow (CLI-3, SCL-6)."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from perdure.adapters.postgres.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """A database as whoever serves sees it.

    `may_all` are the ways in which that user stands above row-level security; `unprotected` the tables of tenants that
    it isn't forced for. `ahead_seconds` is how far its clock is ahead of this machine's. `due` counts pieces of
    background work that may be taken, the oldest for so many seconds.
    """

    server: str
    schema: int
    answers_seconds: float
    user: str
    may_all: tuple[str, ...]
    protected: int
    unprotected: tuple[str, ...]
    is_replica: bool
    ahead_seconds: float
    connections: int
    most_connections: int
    sessions: int
    bytes: int
    due: int
    due_seconds: float


async def examined(db: Database) -> DatabaseFacts:
    """Ask a database about itself; as the user of the URL, since that is who can do what it shouldn't.

    Raises:
        JournalError: It can't be reached, refuses, or isn't of this version's schema.
    """

    async def asked(statement: str) -> tuple[Any, ...]:
        async with db.connection() as connection:
            row = await (await connection.execute(statement.encode())).fetchone()
        assert row is not None
        return row

    await asked("SELECT 1")
    began = time.monotonic()
    sent = time.time()
    (clock,) = await asked("SELECT extract(epoch FROM clock_timestamp())::float8")
    took = time.monotonic() - began
    server, user, is_super, bypasses, owns, is_replica, most = await asked(_WHO)
    protected, unprotected = await asked(_TABLES)
    connections, sessions, size, schema = await asked(_SIZES)
    ((due, due_seconds),) = await db.ask(0, _DUE)
    ways = ((is_super, "is a superuser"), (bypasses, "has BYPASSRLS"), (owns, "owns the tables"))
    return DatabaseFacts(
        server=server,
        schema=schema,
        answers_seconds=took,
        user=user,
        may_all=tuple(way for holds, way in ways if holds),
        protected=protected,
        unprotected=tuple(unprotected),
        is_replica=is_replica,
        ahead_seconds=clock - (sent + took / 2),
        connections=connections,
        most_connections=most,
        sessions=max(0, int(sessions)),
        bytes=size,
        due=due,
        due_seconds=due_seconds,
    )


_WHO: Final = """
SELECT current_setting('server_version'), session_user::text, rolsuper, rolbypassrls,
  EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'perdure' AND c.relkind IN ('r', 'p') AND pg_has_role(session_user, c.relowner, 'MEMBER')),
  pg_is_in_recovery(), current_setting('max_connections')::int
FROM pg_roles WHERE rolname = session_user
"""
_TABLES: Final = """
SELECT count(*) FILTER (WHERE relrowsecurity AND relforcerowsecurity),
  coalesce(array_agg(relname::text ORDER BY relname) FILTER (WHERE NOT (relrowsecurity AND relforcerowsecurity)), '{}')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'perdure' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
  AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant' AND NOT a.attisdropped)
"""
_SIZES: Final = """
SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
  (SELECT coalesce(sum(reltuples) FILTER (WHERE relname = 'sessions'), 0)::bigint FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'perdure' AND c.relkind IN ('r', 'p')),
  (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'perdure' AND c.relkind = 'r'),
  (SELECT max(version) FROM perdure.migrations)
"""
_DUE: Final = """
SELECT count(*), coalesce(extract(epoch FROM now() - min(run_after)), 0)::float8 FROM perdure.work
WHERE want > done AND run_after <= now() AND (lease_until IS NULL OR lease_until < now())
"""
