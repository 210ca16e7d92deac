"""Background work in PostgreSQL: `ports.home.WorkQueue` for any number of workers on any number of machines (SCL-2)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final

import psycopg

from perdure.adapters.postgres.database import Connection, Database
from perdure.adapters.work import ATTEMPTS, WORKER_LOST, pause_seconds, reason_of
from perdure.errors import ClaimLost
from perdure.ports.home import Backlog, Claim

_ALL: Final = 0  # the tenant of whoever works for all of them: it sees the rows of `work`, and no others
# One message, so one transaction and one round trip: who it is for, and what is done.
_SERVED: Final = "SELECT perdure.serve(%(number)s); "
_CLAIM: Final = "t.name, w.session, w.kind, w.done, w.want, w.fence, w.attempts"
_IS_FREE: Final = (
    "w.want > w.done AND (w.lease_until IS NULL OR w.lease_until <= now()) "
    "AND (SELECT name FROM perdure.tenants WHERE id = w.tenant) IS NOT NULL"  # it isn't being deleted
)
_IS_DEAD: Final = f"w.attempts >= {ATTEMPTS}"
_OF: Final = (
    "w.tenant = (SELECT id FROM perdure.tenants WHERE name = %(tenant)s) "
    "AND w.session = %(session)s AND w.kind = %(kind)s"
)
_IS_OWN: Final = f"{_OF} AND w.fence = %(fence)s AND w.owner IS NOT NULL"


class PostgresWorkQueue:
    """The table `perdure.work`. Times are the database's own, so that workers' clocks don't matter.

    Nobody is notified: a worker asks several times a second, which is a look at an index and no commit.
    """

    def __init__(self, db: Database, *, chance: Random | None = None) -> None:
        self._db, self._chance = db, chance or Random()

    async def want(self, tenant: str, session: str, kind: str, upto: int) -> None:
        await self._run(
            f"""INSERT INTO perdure.work AS w (tenant, session, kind, want)
            VALUES (%(number)s, %(session)s, %(kind)s, %(upto)s)
            ON CONFLICT (tenant, session, kind) DO UPDATE SET want = excluded.want,
              attempts = least(w.attempts, {ATTEMPTS - 1}),
              run_after = CASE WHEN w.want > w.done THEN w.run_after ELSE now() END
            WHERE w.want < excluded.want""",
            {"number": await self._db.make_tenant(tenant), "session": session, "kind": kind, "upto": upto},
        )

    async def claim(self, owner: str, *, limit: int, seconds: float) -> Sequence[Claim]:
        rows = await self._run(
            f"""WITH free AS MATERIALIZED (
              SELECT w.tenant, w.session, w.kind FROM perdure.work w
              WHERE {_IS_FREE} AND w.run_after <= now() AND w.attempts < {ATTEMPTS}
              ORDER BY w.run_after LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
            UPDATE perdure.work w SET owner = %(owner)s, lease_until = now() + make_interval(secs => %(seconds)s),
              fence = w.fence + 1, attempts = w.attempts + 1
            FROM free JOIN perdure.tenants t ON t.id = free.tenant
            WHERE (w.tenant, w.session, w.kind) = (free.tenant, free.session, free.kind)
            RETURNING {_CLAIM}""",
            {"owner": owner, "seconds": seconds, "limit": limit},
        )
        return [Claim(*row) for row in rows]

    async def renew(self, claim: Claim, *, seconds: float) -> bool:
        renewed = "UPDATE perdure.work w SET lease_until = now() + make_interval(secs => %(seconds)s)"
        return bool(await self._run(f"{renewed} WHERE {_IS_OWN} RETURNING 1", {**claim._asdict(), "seconds": seconds}))

    @asynccontextmanager
    async def finishing(self, claim: Claim) -> AsyncIterator[None]:
        async with self._db.together() as connection:
            yield
            # Last, so that whoever wants more waits for a commit at most, however much is written.
            done = await _executed(
                connection,
                f"""UPDATE perdure.work w SET done = %(want)s, fence = w.fence + 1, owner = NULL, lease_until = NULL,
                  attempts = 0, problem = NULL, run_after = now() WHERE {_IS_OWN} RETURNING 1""",
                claim._asdict(),
            )
            if not done:
                raise ClaimLost(f"{claim.kind} of session {claim.session}: another worker has taken it meanwhile")

    async def fail(self, claim: Claim, why: str) -> None:
        given = {"why": reason_of(why), "pause": pause_seconds(claim.attempts, self._chance)}
        await self._run(
            f"""UPDATE perdure.work w SET fence = w.fence + 1, owner = NULL, lease_until = NULL, problem = %(why)s,
              run_after = now() + make_interval(secs => %(pause)s) WHERE {_IS_OWN}""",
            {**claim._asdict(), **given},
        )

    async def release(self, claim: Claim, *, seconds: float = 0.0) -> None:
        await self._run(
            f"""UPDATE perdure.work w SET fence = w.fence + 1, owner = NULL, lease_until = NULL,
              attempts = greatest(w.attempts - 1, 0),
              run_after = now() + make_interval(secs => %(seconds)s) WHERE {_IS_OWN}""",
            {**claim._asdict(), "seconds": seconds},
        )

    async def backlog(self) -> Backlog:
        waits = f"{_IS_FREE} AND NOT {_IS_DEAD}"
        [row] = await self._run(
            f"""SELECT count(*) FILTER (WHERE {waits}),
              coalesce(extract(epoch FROM now() - min(w.run_after) FILTER (WHERE {waits} AND w.run_after <= now())), 0)
                ::double precision,
              count(*) FILTER (WHERE NOT ({_IS_FREE})), count(*) FILTER (WHERE {_IS_FREE} AND {_IS_DEAD})
            FROM perdure.work w WHERE w.want > w.done"""
        )
        return Backlog(*row)

    async def dead(self) -> Sequence[tuple[Claim, str]]:
        rows = await self._run(
            f"""SELECT {_CLAIM}, coalesce(CASE WHEN w.owner IS NULL THEN w.problem END, '{WORKER_LOST}')
            FROM perdure.work w JOIN perdure.tenants t ON t.id = w.tenant
            WHERE {_IS_FREE} AND {_IS_DEAD} ORDER BY t.name, w.session, w.kind"""
        )
        return [(Claim(*row[:-1]), row[-1]) for row in rows]

    async def wanted(self, tenant: str) -> Sequence[Claim]:
        rows = await self._run(
            f"""SELECT {_CLAIM} FROM perdure.work w JOIN perdure.tenants t ON t.id = w.tenant
            WHERE t.name = %(tenant)s AND w.want > w.done ORDER BY w.session, w.kind""",
            {"tenant": tenant},
        )
        return [Claim(*row) for row in rows]

    async def revive(self, tenant: str, session: str, kind: str) -> None:
        await self._run(
            f"""UPDATE perdure.work w SET attempts = 0, run_after = now(), owner = NULL, lease_until = NULL,
              fence = w.fence + 1
            WHERE {_OF} AND {_IS_FREE} AND {_IS_DEAD}""",
            {"tenant": tenant, "session": session, "kind": kind},
        )

    async def close(self) -> None:
        """The connections are the store's."""

    async def _run(self, statement: str, given: Mapping[str, object] | None = None) -> list[tuple[Any, ...]]:
        """One statement, committed. All of these may be made twice."""

        async def run() -> list[tuple[Any, ...]]:
            async with self._db.connection() as connection:
                return await _executed(connection, statement, given or {})

        return await self._db.again(run)


async def _executed(connection: Connection, statement: str, given: Mapping[str, object]) -> list[tuple[Any, ...]]:
    cursor = psycopg.AsyncClientCursor(connection)
    await cursor.execute((_SERVED + statement).encode(), {"number": _ALL, **given})
    cursor.nextset()
    return await cursor.fetchall() if cursor.description else []
