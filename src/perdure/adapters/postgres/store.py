"""A store in PostgreSQL: a home is the rows of one tenant (SCL-1, SCL-6)."""

from __future__ import annotations

import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from perdure.adapters.journal.store import (
    ID_PREFIX,
    KEY_BYTES,
    checked_id,
    copy_records,
    new_header,
    real_project,
)
from perdure.adapters.machine.repositories import memory_roots_in_rows
from perdure.adapters.memory.catalogue import FolderMemories
from perdure.adapters.memory.store import StoredMemories
from perdure.adapters.postgres.appends import APPEND, Appends, entered_values
from perdure.adapters.postgres.blobs import KEPT, NO_SESSION, TO_DELETE, BlobPlace, PostgresBlobs, TableBlobs
from perdure.adapters.postgres.database import Database, is_sayable
from perdure.adapters.postgres.deletion import delete_tenant
from perdure.adapters.postgres.journal import (
    LET_GO,
    JournalRow,
    ListedFacts,
    PostgresJournal,
    SessionHead,
    append_values,
    entered_by,
    listed_about,
)
from perdure.adapters.postgres.kept import (
    NOTES_CONFIG,
    PostgresCalibrations,
    PostgresDocuments,
    PostgresNotes,
)
from perdure.adapters.postgres.links import PostgresLinks
from perdure.adapters.postgres.memories import PostgresFolder
from perdure.adapters.postgres.search import FORGET, PostgresArchive
from perdure.adapters.postgres.work import PostgresWorkQueue
from perdure.errors import DamagedLine, JournalError, SessionBusy, SessionNotFound
from perdure.memory.places import MemoryRoots
from perdure.ports.home import Durability, KeptMemories, OnDeleted, SessionInfo, StoreConnections, StoredSession
from perdure.ports.session import LoadedJournal as Loaded
from perdure.ports.session import PlacedRecord as Placed
from perdure.ports.session import Receipt
from perdure.transcript.codec import FORMAT, VERSION, decode_header, encode_header
from perdure.transcript.messages import MessageId
from perdure.transcript.records import Header, Record

LEASE_SECONDS: Final = 60.0
BUSY_SECONDS: Final = 2.0  # that another owner is waited for
_LOOKS: Final = 0.05  # seconds between two looks
_BATCH_BYTES: Final = 4 * 1024 * 1024  # of lines that one statement of a fork writes
_COPY_SECONDS: Final = 3600.0  # that a fork has for its blobs; then they are deleted
_SHOWN: Final = 5
MOST_MEMORIES: Final = 256  # directories that a process knows; those that are left alone go first
_HEAD: Final = "number, id, header, seq, bytes, about, fence, project, created"


class PostgresStore:
    """`ports.Store` in one database. Nothing is connected to before something is asked or kept."""

    def __init__(
        self,
        url: str,
        *,
        connections: int = 8,
        patience: float = 5.0,
        lease_seconds: float = LEASE_SECONDS,
        waits: float = BUSY_SECONDS,
    ) -> None:
        """Name a database.

        Args:
            url: `postgresql://user@host/database`; the user has to be a member of `perdure_serving`.
            connections: How many of them may be open at a time.
            patience: For how many seconds a connection is waited for.
            lease_seconds: How long a session stays with an owner that says nothing.
            waits: For how many seconds an open waits for an owner to rest.

        Raises:
            JournalError: This is no such URL.
        """
        self.db = Database(url, connections=connections, patience=patience)
        self.appends = Appends(self.db)
        self.name = self.db.place
        self.blobs = BlobPlace(self.db)
        self.lease_seconds = lease_seconds
        self.waits = waits
        self._links: dict[str, PostgresLinks] = {}
        self._calibrations: dict[str, PostgresCalibrations] = {}
        self._memories: OrderedDict[tuple[str, str], KeptMemories] = OrderedDict()

    def home(self, tenant: str = "") -> PostgresHome:
        """The home of a tenant; empty for that of a person, or of a gateway without tenants."""
        if not is_sayable(tenant):
            raise JournalError(f"not the name of a tenant: {tenant[:80]!r}")
        return PostgresHome(self, tenant)

    def links_of(self, tenant: str) -> PostgresLinks:
        """The links of a tenant, with what was entered and isn't written yet."""
        return self._links.setdefault(tenant, PostgresLinks(self.db, tenant))

    def calibrations_of(self, tenant: str) -> PostgresCalibrations:
        """The calibrations of a tenant, as they were when one of its sessions was opened last."""
        return self._calibrations.setdefault(tenant, PostgresCalibrations(self.db, tenant))

    def memories_of(self, tenant: str, place: str) -> KeptMemories:
        """A directory of memories of a tenant. What is known of it stays here, and only changes are read again."""
        if (tenant, place) not in self._memories:
            folder = PostgresFolder(self.db, tenant, place)
            self._memories[tenant, place] = KeptMemories(StoredMemories(folder), FolderMemories(folder))
            if len(self._memories) > MOST_MEMORIES:
                self._memories.popitem(last=False)
        self._memories.move_to_end((tenant, place))
        return self._memories[tenant, place]

    async def tenants(self) -> Collection[str]:
        """The tenants that keep anything, also those whose deletion has begun."""
        rows = await self.db.ask(
            0, "SELECT DISTINCT coalesce(name, going) FROM perdure.tenants WHERE coalesce(name, going) <> '' ORDER BY 1"
        )
        return [row[0] for row in rows]

    async def delete_tenant(self, tenant: str, *, on_deleted: OnDeleted | None = None) -> None:
        """Remove a home for good, also under an owner that writes there: it is told with its next append.

        From the first step on nobody finds the tenant, nor can read or write what it kept, and its name is free; all
        of it is gone at the end. A deletion that was broken off goes on with the next call. What was deleted leaves
        the database's files with `deletion.vacuum`.
        """
        bucket = await self.blobs.bucket()
        await self.db.ask(0, "UPDATE perdure.tenants SET going = name, name = NULL WHERE name = %s", (tenant,))
        self.db.forget_tenant(tenant)
        self._links.pop(tenant, None)
        self._calibrations.pop(tenant, None)
        for known in [one for one in self._memories if one[0] == tenant]:
            del self._memories[known]
        for (number,) in await self.db.ask(0, "SELECT id FROM perdure.tenants WHERE going = %s ORDER BY id", (tenant,)):
            await delete_tenant(self.db, number, bucket, on_deleted)
        await self.blobs.finish_deletions()

    async def finish_deletions(self) -> None:
        """Delete from the bucket what deletions left there."""
        await self.blobs.finish_deletions()

    async def probe(self) -> float:
        """Write something durably, in the bucket as well if there is one; how many seconds that took."""
        began = time.monotonic()
        await self.db.ask(
            0,
            "INSERT INTO perdure.probes (id, at) VALUES (%s, now()) ON CONFLICT (id) DO UPDATE SET at = now()",
            (os.getpid() % 64,),
        )
        await self.blobs.probe()
        return time.monotonic() - began

    @property
    def connections(self) -> StoreConnections:
        """Those of this process."""
        return self.db.connections

    def watch(self, took: Callable[[float], None]) -> None:
        """Have somebody told how long each transaction took."""
        self.db.took = took

    @property
    def work(self) -> PostgresWorkQueue:
        """The background work of all tenants."""
        return PostgresWorkQueue(self.db)

    async def close(self) -> None:
        """Write what waits to be written, as far as that can be done, and close all connections."""
        for links in self._links.values():
            await links.flush()
        for calibrations in self._calibrations.values():
            await calibrations.exchange()
        await self.db.close()


@dataclass(frozen=True, slots=True)
class PostgresHome:
    """`ports.Home`: what a tenant keeps."""

    store: PostgresStore
    name: str

    # --- sessions

    async def create(
        self,
        session: str,
        *,
        project: str | Path,
        created: float,
        source: str | None = None,
        forked_from: str | None = None,
        durability: Durability = "commit",
    ) -> StoredSession:
        """A new session of a project, which nobody else can write while it is open."""
        header = new_header(session, project=project, created=created, source=source, forked_from=forked_from)
        made = await self.made(header, encode_header(header), durability=durability)
        await self.calibrations.exchange()
        return made

    async def made(
        self, header: Header, line: bytes, *, durability: Durability = "commit", number: int | None = None
    ) -> StoredSession:
        """A new session whose header stands in this line, open for writing. `number`: one that was `reserved`."""
        tenant, owner = await self._db.make_tenant(self.name), self._db.new_owner()
        values = _created(tenant, header, line, owner, self.store.lease_seconds, number=number)
        rows = await self._db.ask(tenant, f"{_CREATE} RETURNING {_HEAD}", values)
        if not rows:
            place = self._place(header.session)
            raise JournalError(f"{place}: there is a session of that id already; open it instead")
        return self._opened(tenant, rows[0], owner, durability)

    async def open(
        self, reference: str, *, durability: Durability = "commit", read_only: bool = False
    ) -> StoredSession:
        """What the port says."""
        tenant, session = await self.located(reference)
        if read_only:
            rows = await self._ask(
                tenant, f"SELECT {_HEAD} FROM perdure.sessions WHERE tenant = %s AND id = %s", (tenant, session)
            )
            if not rows:
                raise self._not_found(reference)
            return self._opened(tenant, rows[0], "", durability)
        owner, until = self._db.new_owner(), time.monotonic() + self.store.waits
        values = {"tenant": tenant, "id": session, "owner": owner, "lease": self.store.lease_seconds}
        while not (rows := await self._ask(tenant, f"{_CLAIM} RETURNING {_HEAD}", values)):
            busy = await self._busy(tenant, session)
            if not isinstance(busy, SessionBusy) or time.monotonic() >= until:
                raise busy
            await anyio.sleep(_LOOKS)
        await self.calibrations.exchange()
        return self._opened(tenant, rows[0], owner, durability)

    async def load(self, session: str) -> Loaded:
        """All records of a session, whoever writes it."""
        opened = await self.open(session, read_only=True)
        return await opened.journal.load(whole=True)

    async def fork(self, reference: str, session: str, *, created: float, past: Sequence[Placed] | None = None) -> None:
        """A new session that goes on from another, in one transaction."""
        source = await self.open(reference, read_only=True)
        placed = past if past is not None else (await source.journal.load(whole=True)).records
        header = msgspec.structs.replace(
            source.header, session=checked_id(session), created=created, forked_from=source.header.session,
            version=VERSION,
        )  # fmt: skip
        lines: list[JournalRow] = []
        end = len(encode_header(header))

        async def append(records: tuple[Record, ...]) -> Receipt:
            nonlocal end
            line = JournalRow.of(len(lines) + 1, end, records)
            lines.append(line)
            offset, end = end, end + len(line.data)
            return Receipt(len(lines), offset)

        await copy_records(placed, append)
        tenant, reserved = await self.reserved()
        owner, attempts = self._db.new_owner(), 0
        if reserved is not None and (bucket := await self.store.blobs.bucket()) is not None:
            await bucket.copy(str(tenant), str(_number_of(source)), str(reserved))

        async def write() -> None:
            nonlocal attempts
            attempts += 1
            if attempts > 1 and await self._is_there(tenant, header):
                return  # the first attempt was committed, and its answer lost
            async with self._db.transaction(tenant) as cursor:
                made = _created(tenant, header, encode_header(header), owner, 0.0, number=reserved)
                await cursor.execute(f"{_CREATE} RETURNING number".encode(), made)
                row = await cursor.fetchone()
                if row is None:
                    raise JournalError(f"{self._place(session)}: there is a session of that id")
                number, seq, offset, about = row[0], 0, len(encode_header(header)), b"{}"
                answers: dict[MessageId, tuple[str, ...]] = {}
                for batch in _batches(lines):
                    about = listed_about(about, batch)
                    values = append_values(
                        tenant, number, 1, seq, offset, batch, is_unsure=False, owner=owner, lease_seconds=0.0,
                        about=about,
                    )  # fmt: skip
                    await cursor.execute(APPEND, (*values, *entered_values(entered_by(session, batch, answers))))
                    seq, offset = seq + len(batch), offset + sum(len(line.data) for line in batch)
                if reserved is None:
                    await cursor.execute(_COPY_BLOBS, (tenant, number, tenant, _number_of(source)))
                else:
                    await cursor.execute(KEPT, (tenant, reserved))
                    self.check_kept(await cursor.fetchall(), session)
                if past is None:
                    await cursor.execute(_COPY_NOTES, (tenant, number, tenant, _number_of(source)))
                await cursor.execute(LET_GO.encode(), (tenant, number, 1))

        with anyio.CancelScope(shield=True):
            await self._db.again(write)

    async def reserved(self) -> tuple[int, int | None]:
        """The tenant's number, and that of a session whose blobs will be in a bucket before it is there itself.

        They are deleted some time later, unless the transaction that makes the session takes that back (`KEPT`). None
        where there is no bucket: blobs are in the same transaction then.
        """
        tenant = await self._db.make_tenant(self.name)
        if await self.store.blobs.bucket() is None:
            return tenant, None
        ((number,),) = await self._ask(tenant, "SELECT nextval('perdure.sessions_number_seq')", None)
        await self._ask(tenant, TO_DELETE, (tenant, number, _COPY_SECONDS))
        return tenant, number

    def check_kept(self, rows: Sequence[tuple[Any, ...]], session: str) -> None:
        """Raise unless `KEPT` was in time: the blobs may be gone otherwise."""
        if not rows or any(is_begun for (is_begun,) in rows):
            raise JournalError(f"{self._place(session)}: the blobs took too long to copy: try again")

    async def delete(self, session: str) -> None:
        """Remove the session of exactly this id with all that belongs to it. `SessionBusy` while someone writes it.

        Blobs in a bucket go right behind; those of one that doesn't answer, with `finish_deletions`.
        """
        if not await self.has(session):
            raise self._not_found(session)
        tenant, bucket = await self._db.make_tenant(self.name), await self.store.blobs.bucket()
        deletion = None
        async with self._db.transaction(tenant) as cursor:
            await cursor.execute(
                "SELECT number FROM perdure.sessions WHERE tenant = %s AND id = %s AND lease_until < now() FOR UPDATE",
                (tenant, session),
            )
            row = await cursor.fetchone()
            if row is not None:
                of_it = (tenant, row[0])
                await cursor.execute(
                    "DELETE FROM perdure.places WHERE tenant = %s AND session = %s RETURNING text", of_it
                )
                texts = sorted({text for (text,) in await cursor.fetchall()})
                await cursor.execute(FORGET, {"tenant": tenant, "texts": texts})
                await cursor.execute("DELETE FROM perdure.blobs WHERE tenant = %s AND session = %s", of_it)
                await cursor.execute("DELETE FROM perdure.sessions WHERE tenant = %s AND number = %s", of_it)
                if bucket is not None:
                    await cursor.execute(TO_DELETE, (*of_it, 0.0))
                    deletion = await cursor.fetchone()
        if row is None:
            raise await self._busy(tenant, session)
        if deletion is not None:
            await self.store.blobs.finish_deletions(only=deletion[0])

    async def has(self, session: str) -> bool:
        """Whether there is a session of exactly this id."""
        tenant = await self._db.tenant(self.name) if is_sayable(session) else None
        statement = "SELECT 1 FROM perdure.sessions WHERE tenant = %s AND id = %s"
        return tenant is not None and bool(await self._ask(tenant, statement, (tenant, session)))

    async def sessions(
        self,
        project: str | None = None,
        *,
        ids: Collection[str] | None = None,
        since: float | None = None,
        before: float | None = None,
        behind: SessionInfo | None = None,
        limit: int | None = None,
    ) -> Sequence[SessionInfo]:
        """What the port says."""
        if (tenant := await self._db.tenant(self.name)) is None:
            return ()
        values = {
            "tenant": tenant,
            "project": None if project is None else real_project(project),
            "ids": None if ids is None else [one for one in ids if is_sayable(one)],
            "since": since,
            "before": before,
            "behind": None if behind is None else behind.modified,
            "behind_id": None if behind is None else behind.id,
            "limit": limit,
        }
        return [_info(row, self._place(row[0])) for row in await self._ask(tenant, _SESSIONS, values)]

    # --- beside them

    def archive(self, project: str | None = None) -> PostgresArchive:
        """What was said in all sessions, or in those of a project."""
        return PostgresArchive(self, None if project is None else real_project(project))

    @property
    def blobs(self) -> PostgresBlobs:
        """Those of no session."""
        return self._blobs_of(NO_SESSION, self._db.place)

    def documents(self, kind: str) -> PostgresDocuments:
        """The documents of one kind."""
        return PostgresDocuments(self._db, self.name, kind)

    @property
    def links(self) -> PostgresLinks:
        """Which session knows which beginning of a history."""
        return self.store.links_of(self.name)

    @property
    def calibrations(self) -> PostgresCalibrations:
        """What was learned about models' counting."""
        return self.store.calibrations_of(self.name)

    def memory_roots(self, project: str, *, directory: str | None = None, is_remote: bool = False) -> MemoryRoots:
        """What the places of a project's memories follow from."""
        return memory_roots_in_rows(project, directory=directory, is_remote=is_remote)

    def memories(self, place: str, *, durability: Durability = "commit") -> KeptMemories:
        """The directory at a place. `JournalError` where it can't have that name."""
        if not is_sayable(place):
            raise JournalError(f"not the name of a project: {place[:80]!r}")
        return self.store.memories_of(self.name, place)

    async def secret_key(self, *, new: bytes = b"") -> bytes:
        """The home's key, made on the first use; `new` is taken if there is none yet."""
        tenant = await self._db.make_tenant(self.name)
        asked = "SELECT key FROM perdure.keys WHERE tenant = %s"
        if not (rows := await self._ask(tenant, asked, (tenant,))):
            await self._ask(
                tenant,
                "INSERT INTO perdure.keys (tenant, key) VALUES (%s, %b) ON CONFLICT (tenant) DO NOTHING",
                (tenant, new or secrets.token_bytes(KEY_BYTES)),
            )
            rows = await self._ask(tenant, asked, (tenant,))
        return bytes(rows[0][0])

    # --- how

    @property
    def _db(self) -> Database:
        return self.store.db

    async def _ask(self, tenant: int, statement: str, values: Any) -> list[tuple[Any, ...]]:
        return await self._db.ask(tenant, statement, values)

    def _place(self, session: str) -> str:
        return f"{self._db.place}#{session}"

    def _opened(self, tenant: int, row: tuple[Any, ...], owner: str, durability: Durability) -> StoredSession:
        number, session, header_line, seq, size, about, fence, project, created = row
        header, problem = _header(bytes(header_line), session, project, created)
        place = self._place(session)
        head = SessionHead(
            tenant=tenant,
            number=number,
            header=header,
            header_problem=problem,
            seq=seq,
            size=size,
            about=bytes(about),
            fence=fence if owner else None,
            owner=owner,
            place=place,
        )
        return StoredSession(
            id=session,
            header=header,
            journal=PostgresJournal(
                self._db,
                head,
                self.links,
                self.store.appends,
                durability=durability,
                lease_seconds=self.store.lease_seconds,
            ),
            blobs=self._blobs_of(number, place),
            notes=PostgresNotes(self._db, tenant, number, place, self.documents(NOTES_CONFIG)),
            place=place,
        )

    def _blobs_of(self, session: int, place: str) -> PostgresBlobs:
        return PostgresBlobs(self.store.blobs, TableBlobs(self._db, self.name, session, place))

    async def located(self, reference: str, *, project: str | None = None) -> tuple[int, str]:
        """The tenant's number, and the id of the session of this id, or of the only one that begins so or holds it."""
        tenant = await self._db.tenant(self.name)
        if tenant is None or not reference or not is_sayable(reference):
            raise self._not_found(reference)
        begun = reference.removeprefix(ID_PREFIX)
        values = {
            "tenant": tenant,
            "id": reference,
            "begun": begun,
            "ours": ID_PREFIX + begun,
            "project": project,
            "limit": _SHOWN + 1,
        }
        rows = await self._ask(tenant, _BEGINNING, values) or await self._ask(tenant, _HOLDING, values)
        if not rows:
            raise self._not_found(reference)
        if rows[0][0] != reference and len(rows) > 1:
            shown = ", ".join(row[0] for row in rows[:_SHOWN]) + (" and more" if len(rows) > _SHOWN else "")
            raise SessionNotFound(f"{reference!r} names several sessions: {shown}; give more of the id")
        return tenant, rows[0][0]

    async def _is_there(self, tenant: int, header: Header) -> bool:
        statement = "SELECT 1 FROM perdure.sessions WHERE tenant = %s AND id = %s AND header = %b"
        return bool(await self._ask(tenant, statement, (tenant, header.session, encode_header(header))))

    def _not_found(self, reference: str) -> SessionNotFound:
        return SessionNotFound(f"no session {reference[:80]!r} in {self._db.place}")

    async def _busy(self, tenant: int, session: str) -> JournalError:
        rows = await self._ask(
            tenant,
            "SELECT owner, to_char(lease_until AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') FROM perdure.sessions "
            "WHERE tenant = %s AND id = %s",
            (tenant, session),
        )
        if not rows:
            return self._not_found(session)
        return SessionBusy(
            f"{session} is being written by {rows[0][0] or 'another process'}: close it there first, or try again: "
            f"it is free at {rows[0][1]} UTC unless its owner writes to it"
        )


_CREATE: Final = """
INSERT INTO perdure.sessions AS s (tenant, number, id, project, created, header, seq, bytes, fence, owner, lease_until)
OVERRIDING SYSTEM VALUE VALUES (
  %(tenant)s, coalesce(%(number)s::bigint, nextval('perdure.sessions_number_seq')), %(id)s, %(project)s, %(created)s,
  %(header)b, 0, %(bytes)s, 1, %(owner)s, now() + make_interval(secs => %(lease)s))
ON CONFLICT (tenant, id) DO UPDATE SET owner = s.owner WHERE s.owner = excluded.owner
"""  # its own row is there already where the first attempt was lost on its way back
_CLAIM: Final = """
UPDATE perdure.sessions SET
  fence = fence + 1, owner = %(owner)s, lease_until = now() + make_interval(secs => %(lease)s)
WHERE tenant = %(tenant)s AND id = %(id)s AND (lease_until < now() OR owner = %(owner)s)
"""
_SESSIONS: Final = """
SELECT id, header, project, created, extract(epoch FROM modified)::float8, bytes, messages, about
FROM perdure.sessions
WHERE tenant = %(tenant)s AND (%(project)s::text IS NULL OR project = %(project)s)
  AND (%(ids)s::text[] IS NULL OR id = ANY (%(ids)s))
  AND (%(since)s::float8 IS NULL OR modified >= to_timestamp(%(since)s))
  AND (%(before)s::float8 IS NULL OR modified < to_timestamp(%(before)s))
  AND (%(behind)s::float8 IS NULL OR (modified, id) < (to_timestamp(%(behind)s), %(behind_id)s::text))
ORDER BY modified DESC, id DESC LIMIT %(limit)s
"""
_BEGINNING: Final = """
SELECT id FROM perdure.sessions WHERE tenant = %(tenant)s
  AND (id = %(id)s OR starts_with(id, %(begun)s) OR starts_with(id, %(ours)s))
  AND (%(project)s::text IS NULL OR project = %(project)s)
ORDER BY id <> %(id)s, id LIMIT %(limit)s
"""
_HOLDING: Final = """
SELECT id FROM perdure.sessions WHERE tenant = %(tenant)s AND strpos(id, %(id)s) > 0
  AND (%(project)s::text IS NULL OR project = %(project)s)
ORDER BY id LIMIT %(limit)s
"""  # looks at all ids of the tenant, which is for who types a part of one
_COPY_BLOBS: Final = (
    b"INSERT INTO perdure.blobs (tenant, session, hash, stored) "
    b"SELECT %s, %s, hash, stored FROM perdure.blobs WHERE tenant = %s AND session = %s"
)
_COPY_NOTES: Final = (
    b"INSERT INTO perdure.notes (tenant, session, name, data) "
    b"SELECT %s, %s, name, data FROM perdure.notes WHERE tenant = %s AND session = %s"
)


def _created(
    tenant: int, header: Header, line: bytes, owner: str, lease_seconds: float, *, number: int | None = None
) -> dict[str, Any]:
    return {
        "tenant": tenant,
        "number": number,
        "id": header.session,
        "project": header.project,
        "created": header.created,
        "header": line,
        "bytes": len(line),
        "owner": owner,
        "lease": lease_seconds,
    }


def _number_of(session: StoredSession) -> int:
    assert isinstance(session.blobs, PostgresBlobs)
    return session.blobs.session


def _header(line: bytes, session: str, project: str | None, created: float) -> tuple[Header, str]:
    """The header of a session, and what is wrong with it: then it is made from what else the row says."""
    try:
        return decode_header(line), ""
    except DamagedLine as e:
        made = Header(format=FORMAT, version=VERSION, session=session, created=created, project=project)
        return made, f"the header is damaged ({e.reason}): made from what else is known of the session"


def _batches(lines: Sequence[JournalRow]) -> list[list[JournalRow]]:
    batches: list[list[JournalRow]] = []
    size = _BATCH_BYTES
    for line in lines:
        if size >= _BATCH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(line)
        size += len(line.data)
    return batches


def _info(row: tuple[Any, ...], place: str) -> SessionInfo:
    session, header_line, project, created, modified, size, messages, about = row
    _, problem = _header(bytes(header_line), session, project, created)
    try:
        listed = msgspec.json.decode(bytes(about), type=ListedFacts)
    except msgspec.MsgspecError:
        listed = ListedFacts()
        problem = problem or "its title and what else a listing says of it are damaged"
    return SessionInfo(
        id=session,
        place=place,
        project=project or "",
        modified=modified,
        bytes=size,
        created=created,
        messages=messages,
        problem=problem or None,
        **msgspec.structs.asdict(listed),
    )
