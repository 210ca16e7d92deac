"""What stands beside the journals in a database: notes, documents, models' calibrations (SCL-1)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from perdure.adapters.postgres.database import Database, is_sayable
from perdure.errors import BadSetting, JournalError
from perdure.ports.home import KeptDocument

NOTES_CONFIG: Final = "session-memory/config"  # the kind of documents that hold the user's template and prompt
_SUMMARY: Final = "summary.md"
_MOST_BYTES: Final = 4_000_000
_CALIBRATION_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class PostgresNotes:
    """`ports.NotesFile` of a session; `custom` are documents of its home."""

    db: Database
    tenant: int
    session: int
    place: str
    config: PostgresDocuments

    @property
    def path(self) -> str:
        return f"{self.place}/session-memory/{_SUMMARY}"

    async def read(self) -> bytes | None:
        rows = await self.db.ask(
            self.tenant,
            "SELECT data FROM perdure.notes WHERE tenant = %s AND session = %s AND name = %s",
            (self.tenant, self.session, _SUMMARY),
        )
        return rows[0][0] if rows else None

    async def write(self, data: bytes, *, instead_of: bytes | None) -> bool:
        if len(data) > _MOST_BYTES:
            raise JournalError(f"{self.path}: larger than {_MOST_BYTES:,} bytes: shorten it")
        if instead_of is None:
            statement = (
                "INSERT INTO perdure.notes AS n (tenant, session, name, data) "
                "VALUES (%(tenant)s, %(session)s, %(name)s, %(data)b) "
                "ON CONFLICT (tenant, session, name) DO UPDATE SET data = n.data WHERE n.data = excluded.data "
                "RETURNING 1"  # our own, where the first attempt was lost on its way back
            )
        else:
            statement = (
                "UPDATE perdure.notes SET data = %(data)b WHERE tenant = %(tenant)s AND session = %(session)s "
                "AND name = %(name)s AND data IN (%(old)b, %(data)b) RETURNING 1"
            )
        values = {
            "tenant": self.tenant, "session": self.session, "name": _SUMMARY, "data": data, "old": instead_of or b"",
        }  # fmt: skip
        return bool(await self.db.ask(self.tenant, statement, values))

    async def set_aside(self) -> str:
        number = 1
        while True:
            aside = f"summary.aside-{number}.md"
            rows = await self.db.ask(
                self.tenant,
                "UPDATE perdure.notes SET name = %(aside)s WHERE tenant = %(tenant)s AND session = %(session)s "
                "AND name = %(name)s AND NOT EXISTS (SELECT FROM perdure.notes WHERE tenant = %(tenant)s "
                "AND session = %(session)s AND name = %(aside)s) RETURNING 1",
                {"tenant": self.tenant, "session": self.session, "name": _SUMMARY, "aside": aside},
            )
            if rows:
                return f"{self.place}/session-memory/{aside}"
            if await self.read() is None:
                raise JournalError(f"{self.path}: there are no notes to set aside")
            number += 1

    async def custom(self, name: str) -> str | None:
        found = await self.config.get(name)
        try:
            return found.data.decode("utf-8") if found else None
        except UnicodeDecodeError as e:
            raise BadSetting(f"{self.config.place}/{name}: not UTF-8 at byte {e.start}: save it as UTF-8") from None


@dataclass(frozen=True, slots=True)
class PostgresDocuments:
    """`ports.Documents`: rows with a version that no other state of them ever had."""

    db: Database
    tenant: str
    kind: str

    @property
    def place(self) -> str:
        return f"{self.db.place}#{self.kind}"

    async def get(self, name: str) -> KeptDocument | None:
        if (tenant := await self.db.tenant(self.tenant)) is None:
            return None
        rows = await self.db.ask(
            tenant,
            "SELECT data, version::text, extract(epoch FROM modified)::float8 FROM perdure.documents "
            "WHERE tenant = %s AND kind = %s AND name = %s",
            (tenant, self.kind, name),
        )
        return KeptDocument(*rows[0]) if rows else None

    async def among(self, names: Collection[str]) -> set[str]:
        if not names or (tenant := await self.db.tenant(self.tenant)) is None:
            return set()
        statement = "SELECT name FROM perdure.documents WHERE tenant = %s AND kind = %s AND name = ANY (%s::text[])"
        return {row[0] for row in await self.db.ask(tenant, statement, (tenant, self.kind, list(names)))}

    async def put(self, name: str, data: bytes, *, instead_of: str | None) -> str | None:
        tenant = await self.db.make_tenant(self.tenant)
        if instead_of is None:
            statement = (
                "INSERT INTO perdure.documents AS d (tenant, kind, name, data, put_by) "
                "VALUES (%(tenant)s, %(kind)s, %(name)s, %(data)b, %(put)b) ON CONFLICT (tenant, kind, name) "
                "DO UPDATE SET data = d.data WHERE d.put_by = excluded.put_by RETURNING version::text"
            )
        else:
            statement = (
                "UPDATE perdure.documents SET data = %(data)b, version = DEFAULT, modified = DEFAULT, put_by = %(put)b "
                "WHERE tenant = %(tenant)s AND kind = %(kind)s AND name = %(name)s "
                "AND (version = %(version)s::bigint OR put_by = %(put)b) RETURNING version::text"
            )
        put = secrets.token_bytes(8)
        values = {"tenant": tenant, "kind": self.kind, "name": name, "data": data, "version": instead_of, "put": put}
        rows = await self.db.ask(tenant, statement, values)
        return rows[0][0] if rows else None

    async def delete(self, name: str) -> None:
        if (tenant := await self.db.tenant(self.tenant)) is not None:
            statement = "DELETE FROM perdure.documents WHERE tenant = %s AND kind = %s AND name = %s"
            await self.db.ask(tenant, statement, (tenant, self.kind, name))

    async def forget(self, before: float) -> int:
        if (tenant := await self.db.tenant(self.tenant)) is None:
            return 0
        statement = (
            "DELETE FROM perdure.documents WHERE tenant = %s AND kind = %s AND modified < to_timestamp(%s) RETURNING 1"
        )
        return len(await self.db.ask(tenant, statement, (tenant, self.kind, before)))


class PostgresCalibrations:
    """`ports.Calibrations`: a copy of a tenant's rows, which is made to agree with them when a session is opened."""

    def __init__(self, db: Database, tenant: str) -> None:
        self._db = db
        self._tenant = tenant
        self._known: dict[str, float] = {}
        self._learned: dict[str, float] = {}
        self._again_at = 0.0

    def ratio(self, model: str) -> float | None:
        return self._known.get(model)

    def learn(self, model: str, ratio: float) -> None:
        if self._known.get(model) != ratio and 0.1 < ratio < 10 and is_sayable(model):
            self._known[model] = self._learned[model] = ratio

    async def exchange(self) -> None:
        """Write what was learned here, and read what others learned, unless that was a moment ago. Never raises."""
        if not self._learned and time.monotonic() < self._again_at:
            return
        learned, self._learned = self._learned, {}
        self._again_at = time.monotonic() + _CALIBRATION_SECONDS
        try:
            if (tenant := await self._db.tenant(self._tenant)) is None:
                return
            if learned:
                await self._db.ask(
                    tenant,
                    "INSERT INTO perdure.calibrations AS c (tenant, model, ratio) SELECT %(tenant)s, new.* "
                    "FROM unnest(%(models)s::text[], %(ratios)s::float8[]) AS new (model, ratio) ORDER BY model "
                    "ON CONFLICT (tenant, model) DO UPDATE SET ratio = excluded.ratio",
                    {"tenant": tenant, "models": list(learned), "ratios": list(learned.values())},
                )
            rows = await self._db.ask(
                tenant, "SELECT model, ratio FROM perdure.calibrations WHERE tenant = %s", (tenant,)
            )
            self._known = {**dict(rows), **self._learned}
        except JournalError:
            pass  # it is a cache
