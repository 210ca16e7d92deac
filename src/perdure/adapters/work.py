"""Background work of homes on this machine, or of this process: `ports.home.WorkQueue` over SQLite (SCL-2)."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread

from perdure.adapters.journal.disk import check_database, make_private, sqlite_journal_mode
from perdure.errors import ClaimLost, JournalError, NewerFormat
from perdure.ports.home import Backlog, Claim

ATTEMPTS: Final = 8  # of one piece of work; then it is dead
WORKER_LOST: Final = "its worker was lost"  # why an attempt failed that nobody says anything of
_FIRST_PAUSE_SECONDS: Final = 2.0
_LONGEST_PAUSE_SECONDS: Final = 600.0
_MOST_CHARS: Final = 500  # of why an attempt failed
_BUSY_SECONDS: Final = 5.0
_VERSION: Final = 1
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS work(
  tenant TEXT NOT NULL, session TEXT NOT NULL, kind TEXT NOT NULL,
  want INTEGER NOT NULL, done INTEGER NOT NULL DEFAULT 0, fence INTEGER NOT NULL DEFAULT 0,
  owner TEXT, lease_until REAL, run_after REAL NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, problem TEXT,
  PRIMARY KEY(tenant, session, kind));
CREATE INDEX IF NOT EXISTS work_due ON work(run_after) WHERE want > done;
"""
_CLAIM: Final = "tenant, session, kind, done, want, fence, attempts"
_IS_FREE: Final = "want > done AND (lease_until IS NULL OR lease_until <= :now)"
_IS_OWN: Final = "tenant = :tenant AND session = :session AND kind = :kind AND fence = :fence AND owner IS NOT NULL"

T = TypeVar("T")


def pause_seconds(attempts: int, chance: Random) -> float:
    """How long a piece of work rests after so many attempts failed: twice as long each time, and not all at once."""
    return min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** (attempts - 1)) * chance.uniform(0.5, 1.5)


def reason_of(why: str) -> str:
    """Why an attempt failed, as it is kept: one line of some length."""
    return " ".join(why.split())[:_MOST_CHARS]


class SqliteWorkQueue:
    """`<home>/work.db`, or without a path a queue of this process alone. All that is acknowledged is on the disk.

    Processes of one machine may share it. Files can't be rolled back: within `finishing` nobody else can take the work,
    and what is written there stays when the process dies before its end.
    """

    def __init__(
        self, path: Path | None = None, *, clock: Callable[[], float] = time.time, chance: Random | None = None
    ) -> None:
        self._path, self._clock, self._chance = path, clock, chance or Random()
        self._db: sqlite3.Connection | None = None
        self._turn = anyio.Lock()

    async def want(self, tenant: str, session: str, kind: str, upto: int) -> None:
        await self._write(
            f"""INSERT INTO work(tenant, session, kind, want, run_after) VALUES(:tenant, :session, :kind, :upto, :now)
            ON CONFLICT(tenant, session, kind) DO UPDATE SET want = excluded.want,
              attempts = min(attempts, {ATTEMPTS - 1}), run_after = iif(want > done, run_after, excluded.run_after)
            WHERE want < excluded.want""",
            {"tenant": tenant, "session": session, "kind": kind, "upto": upto},
        )

    async def claim(self, owner: str, *, limit: int, seconds: float) -> Sequence[Claim]:
        rows = await self._write(
            f"""UPDATE work SET owner = :owner, lease_until = :now + :seconds, fence = fence + 1,
              attempts = attempts + 1
            WHERE rowid IN (SELECT rowid FROM work WHERE {_IS_FREE} AND run_after <= :now AND attempts < {ATTEMPTS}
              ORDER BY run_after LIMIT :limit)
            RETURNING {_CLAIM}""",
            {"owner": owner, "seconds": seconds, "limit": limit},
        )
        return [Claim(*row) for row in rows]

    async def renew(self, claim: Claim, *, seconds: float) -> bool:
        renewed = f"UPDATE work SET lease_until = :now + :seconds WHERE {_IS_OWN} RETURNING fence"
        return bool(await self._write(renewed, {**claim._asdict(), "seconds": seconds}))

    @asynccontextmanager
    async def finishing(self, claim: Claim) -> AsyncIterator[None]:
        async with self._turn:
            await anyio.to_thread.run_sync(partial(self._begin_to_finish, claim))
            try:
                yield
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(partial(self._in_file, lambda db: db.execute("ROLLBACK")))
                raise
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(partial(self._in_file, lambda db: db.execute("COMMIT")))

    def _begin_to_finish(self, claim: Claim) -> None:
        def begin(db: sqlite3.Connection) -> bool:
            db.execute("BEGIN IMMEDIATE")
            done = db.execute(
                f"""UPDATE work SET done = :want, fence = fence + 1, owner = NULL, lease_until = NULL, attempts = 0,
                  problem = NULL, run_after = :now WHERE {_IS_OWN}""",
                {**claim._asdict(), "now": self._clock()},
            )
            if not done.rowcount:
                db.execute("ROLLBACK")
            return bool(done.rowcount)

        if not self._in_file(begin):
            raise ClaimLost(f"{claim.kind} of session {claim.session}: another worker has taken it meanwhile")

    async def fail(self, claim: Claim, why: str) -> None:
        given = {"why": reason_of(why), "pause": pause_seconds(claim.attempts, self._chance)}
        await self._write(
            f"""UPDATE work SET fence = fence + 1, owner = NULL, lease_until = NULL, problem = :why,
              run_after = :now + :pause WHERE {_IS_OWN}""",
            {**claim._asdict(), **given},
        )

    async def release(self, claim: Claim, *, seconds: float = 0.0) -> None:
        await self._write(
            f"""UPDATE work SET fence = fence + 1, owner = NULL, lease_until = NULL, attempts = max(attempts - 1, 0),
              run_after = :now + :seconds WHERE {_IS_OWN}""",
            {**claim._asdict(), "seconds": seconds},
        )

    async def backlog(self) -> Backlog:
        is_free, is_dead = f"({_IS_FREE})", f"attempts >= {ATTEMPTS}"
        [row] = await self._write(
            f"""SELECT count(*) FILTER (WHERE {is_free} AND NOT {is_dead}),
              coalesce(:now - min(run_after) FILTER (WHERE {is_free} AND NOT {is_dead} AND run_after <= :now), 0.0),
              count(*) FILTER (WHERE NOT {is_free}), count(*) FILTER (WHERE {is_free} AND {is_dead})
            FROM work WHERE want > done""",
            {},
        )
        return Backlog(*row)

    async def dead(self) -> Sequence[tuple[Claim, str]]:
        rows = await self._write(
            f"""SELECT {_CLAIM}, coalesce(iif(owner IS NULL, problem, NULL), '{WORKER_LOST}') FROM work
            WHERE {_IS_FREE} AND attempts >= {ATTEMPTS} ORDER BY tenant, session, kind""",
            {},
        )
        return [(Claim(*row[:-1]), row[-1]) for row in rows]

    async def wanted(self, tenant: str) -> Sequence[Claim]:
        if self._path is not None and not self._path.exists():
            return []  # and none is made by being asked
        rows = await self._write(
            f"SELECT {_CLAIM} FROM work WHERE tenant = :tenant AND want > done ORDER BY session, kind",
            {"tenant": tenant},
        )
        return [Claim(*row) for row in rows]

    async def revive(self, tenant: str, session: str, kind: str) -> None:
        await self._write(
            f"""UPDATE work SET attempts = 0, run_after = :now, owner = NULL, lease_until = NULL, fence = fence + 1
            WHERE tenant = :tenant AND session = :session AND kind = :kind AND {_IS_FREE}
              AND attempts >= {ATTEMPTS}""",
            {"tenant": tenant, "session": session, "kind": kind},
        )

    async def close(self) -> None:
        async with self._turn:
            await anyio.to_thread.run_sync(self._close)

    # --- in a thread, one at a time

    async def _write(self, statement: str, given: dict[str, object]) -> list[tuple[Any, ...]]:
        """One statement, which is a transaction of its own; `:now` is the time."""

        def run(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
            return db.execute(statement, {**given, "now": self._clock()}).fetchall()

        async with self._turn:
            return await anyio.to_thread.run_sync(partial(self._in_file, run))

    def _in_file(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return work(self._db or self._open())
        except (sqlite3.Error, OSError) as e:
            self._close()
            raise JournalError(f"the queue of background work, {self._path}, can't be used: {e}") from e

    def _open(self) -> sqlite3.Connection:
        if self._path is not None:
            make_private(self._path.parent)
            check_database(self._path)
        db = sqlite3.connect(
            self._path or ":memory:", timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            if self._path is not None:
                self._path.chmod(0o600)
            if (version := db.execute("PRAGMA user_version").fetchone()[0]) > _VERSION:
                raise NewerFormat(f"{self._path} was written by a newer Perdure (version {version}): update this one")
            db.execute(f"PRAGMA journal_mode = {sqlite_journal_mode()}")
            db.execute("PRAGMA synchronous = FULL")
            if version < _VERSION:
                db.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {_VERSION}; COMMIT;")
        except BaseException:
            db.close()
            raise
        self._db = db
        return db

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
