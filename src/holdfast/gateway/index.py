"""Which session a history belongs to: an index of links, on disk beside a tenant's sessions (GW-2, REL-12).

The journal is the truth: each message of a client stands there beside a cursor with its link, in one transaction. The
index can be lost at any time; it is read together again from the journals.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from holdfast.adapters.files.disk import DISK, make_private
from holdfast.adapters.files.reading import reading
from holdfast.adapters.files.store import JOURNAL, SessionStore
from holdfast.errors import HoldfastError
from holdfast.transcript.records import Cursor

T = TypeVar("T")
_LOG = logging.getLogger("holdfast.gateway")
CLIENT = "client"  # the cursor of the last message that the client knows
ASKED = "asked"  # the one of the last message before an answer of ours
_BATCH = 400
_IS_WHOLE = 1  # the version of a file that all journals were read into; what was begun only has none
_SCHEMA = """
PRAGMA journal_mode=WAL;
PRAGMA synchronous=OFF;
CREATE TABLE IF NOT EXISTS links (link BLOB PRIMARY KEY, session TEXT NOT NULL, count INTEGER NOT NULL) WITHOUT ROWID;
"""


def mark(count: int, link: bytes) -> str:
    """How a cursor carries a place in a client's history."""
    return f"{count}:{link.hex()}"


def marked(cursor: Cursor) -> tuple[int, bytes] | None:
    """What `mark` wrote; None for anything else."""
    count, _, link = (cursor.digest or "").partition(":")
    try:
        return int(count), bytes.fromhex(link)
    except ValueError:
        return None


class LinkIndex:
    """The links of one tenant. Nothing here raises for what is wrong with the file: it is made anew.

    All work on the file is done in a thread, one piece at a time: a slow disk, or a tenant whose index is read together
    again, is nobody else's delay (SPD-8). What is entered waits for the next question or `flush`.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._path = home / "links.sqlite"
        self._db: sqlite3.Connection | None = None
        self._entered: list[tuple[bytes, str, int]] = []
        self._turn = anyio.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether a thread is at work on the file."""
        return self._turn.locked()

    async def longest(self, links: Sequence[bytes]) -> tuple[str, int] | None:
        """The session that knows the longest beginning of a history, and how many messages of it."""
        return await self._aside(lambda: self._longest(links))

    def put(self, session: str, links: Iterable[tuple[int, bytes]]) -> None:
        """Enter links of a session. The one that was there first keeps a link that several share."""
        self._entered += [(link, session, count) for count, link in links]

    async def flush(self) -> None:
        """Write what was entered."""
        if self._entered:
            await self._aside(lambda: None)

    async def forget(self, session: str) -> None:
        """Take out what names a session, as it can't be opened any more."""
        await self._aside(lambda: self._ask("DELETE FROM links WHERE session = ?", (session,)))

    async def close(self) -> None:
        """Let go of the file until the next question."""
        await self._aside(self._closed)

    async def _aside(self, work: Callable[[], T]) -> T:
        """Write what was entered, and do something with the file then."""

        def done() -> T:
            self._write(rows)
            return work()

        async with self._turn:
            rows, self._entered = self._entered, []
            with anyio.CancelScope(shield=True):  # what was taken is written
                result = await anyio.to_thread.run_sync(done)
            return result

    # --- in a thread

    def _longest(self, links: Sequence[bytes]) -> tuple[str, int] | None:
        for start in range(len(links), 0, -_BATCH):
            batch = links[max(0, start - _BATCH) : start]
            rows = self._ask(f"SELECT session, count FROM links WHERE link IN ({','.join('?' * len(batch))})", batch)
            if rows:
                session, count = max(rows, key=lambda row: row[1])
                return str(session), int(count)
        return None

    def _closed(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _ask(self, statement: str, values: Sequence[object]) -> list[tuple[str, int]]:
        try:
            db = self._open()
            with db:
                return list(db.execute(statement, values))
        except (sqlite3.Error, OSError) as e:
            self._broken(e)
            return []

    def _write(self, rows: list[tuple[bytes, str, int]]) -> None:
        if not rows:
            return
        try:
            db = self._open()
            with db:
                db.executemany("INSERT OR IGNORE INTO links VALUES (?, ?, ?)", rows)
        except (sqlite3.Error, OSError) as e:
            self._broken(e)

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            make_private(self._home)
            db = sqlite3.connect(self._path, timeout=1.0, check_same_thread=False)  # one thread at a time
            try:
                self._path.chmod(0o600)
                db.executescript(_SCHEMA)
                if db.execute("PRAGMA user_version").fetchone()[0] != _IS_WHOLE:
                    with db:
                        db.execute("BEGIN")
                        db.executemany("INSERT OR IGNORE INTO links VALUES (?, ?, ?)", links_at(self._home))
                        db.execute(f"PRAGMA user_version = {_IS_WHOLE}")
            except BaseException:
                db.close()
                raise
            self._db = db
        return self._db

    def _broken(self, error: Exception) -> None:
        """A damaged file is put aside, so that the next use begins a new one; a full disk is nobody's damage."""
        self._closed()
        _LOG.warning("the index of sessions can't be used: %s", type(error).__name__)
        is_damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
        if is_damaged:
            for name in ("", "-wal", "-shm"):
                path = self._path.with_name(self._path.name + name)
                path.unlink(missing_ok=True)


def links_at(home: Path) -> Iterator[tuple[bytes, str, int]]:
    """All links that the journals of a tenant know, oldest session first (REL-12)."""
    store = SessionStore(home)
    for directory in sorted((d for d in store.directories() if (d / JOURNAL).is_file()), key=_written):
        try:
            with reading(DISK, directory / JOURNAL) as reader:
                scan = reader.scan(reader.body)
        except (HoldfastError, OSError):
            continue
        for placed in scan.placed:
            if isinstance(placed.record, Cursor) and placed.record.name == CLIENT and (at := marked(placed.record)):
                yield at[1], directory.name, at[0]


def _written(directory: Path) -> float:
    return (directory / JOURNAL).stat().st_mtime
