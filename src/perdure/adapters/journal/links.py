"""`ports.Links` as a table in SQLite beside the sessions, made from their journals alone (GW-4, REL-12)."""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from perdure.adapters.journal import JOURNAL
from perdure.adapters.journal.disk import DISK, check_database, make_private
from perdure.adapters.journal.reading import open_journal_reader
from perdure.adapters.journal.store import SessionStore
from perdure.errors import JournalError, PerdureError
from perdure.ports.home import KnownLink
from perdure.transcript.history import CLIENT, NAMED, RECALLED, HistoryPosition, begun_answer
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.records import Cursor, Record
from perdure.transcript.response_items import named_items

_LOG = logging.getLogger("perdure.gateway")
LINKS = "links.sqlite"
_BATCH = 400  # links in one question
_NAME, _BEHIND_NAMES = b"name:", b"name;"  # between these are the names of sessions in the index
_MOST_NAMED = 20  # sessions of one name, as a client begins a new history whenever it compacts its own
_IS_WHOLE = 1  # the version of a file that all journals were read into; what was begun only has none
_BEHIND_SECONDS = 30.0  # more than the index is behind the journals when a process is killed
_SCHEMA = """
PRAGMA journal_mode=WAL;
PRAGMA synchronous=OFF;
CREATE TABLE IF NOT EXISTS links (link BLOB PRIMARY KEY, session TEXT NOT NULL, count INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS answers (id TEXT PRIMARY KEY, link BLOB NOT NULL, count INTEGER NOT NULL) WITHOUT ROWID;
"""

T = TypeVar("T")


class FileLinks:
    """The links of one tenant. A damaged file is made anew.

    All work on the file is done in a thread, one piece at a time: a slow disk, or a tenant whose index is read together
    again, is nobody else's delay (SPD-8). What is entered waits for the next question or `flush`.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._path = home / LINKS
        self._db: sqlite3.Connection | None = None
        self._entered: list[KnownLink] = []
        self._renamed: list[str] = []
        self._turn = anyio.Lock()

    async def longest(self, links: Sequence[bytes]) -> tuple[str, int] | None:
        """The session that knows the longest beginning of a history, and how many messages of it."""
        return await self._aside(lambda: self._longest(links))

    def name(self, session: str, name: str) -> None:
        """Enter the name that a session has from now on, in the place of any before; empty for none."""
        self._renamed.append(session)
        if name:
            self._entered.append(KnownLink(_name_link(name, session), session, int(time.time())))

    async def named(self, name: str) -> list[str]:
        """The sessions of a name, the newest first."""
        return await self._aside(lambda: self._named(name))

    async def of_answer(self, answer: str) -> KnownLink | None:
        """Where an answer ended, or an item of one, by its id."""
        asked = "SELECT link, session, count, id FROM answers JOIN links USING (link, count) WHERE id = ?"
        rows = await self._aside(lambda: self._ask(asked, (_storable(answer),)))
        return KnownLink(*rows[0])._replace(answer=answer) if rows else None

    def enter(self, rows: Iterable[KnownLink]) -> None:
        """Enter links of sessions. The one that was there first keeps a link that several share."""
        self._entered += rows

    async def flush(self) -> None:
        """Write what was entered."""
        if self._entered or self._renamed:
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
            self._write(rows, renamed)
            return work()

        async with self._turn:
            rows, self._entered = self._entered, []
            renamed, self._renamed = self._renamed, []
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

    def _named(self, name: str) -> list[str]:
        first = _name_link(name, "")
        rows = self._ask(
            "SELECT session, count FROM links WHERE link >= ? AND link < ? ORDER BY count DESC LIMIT ?",
            (first, first + b"\xff", _MOST_NAMED),
        )
        return [session for session, _ in rows]

    def _closed(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _ask(self, statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        for is_again in (False, True):
            try:
                db = self._open()
                with db:
                    return list(db.execute(statement, values))
            except (sqlite3.Error, OSError) as e:
                if not self._broken(e) or is_again:
                    raise JournalError(f"{self._path}: {type(e).__name__}: the index can't be asked: try again") from e
        raise AssertionError("unreachable")

    def _write(self, rows: list[KnownLink], renamed: list[str]) -> None:
        if not (rows or renamed):
            return
        try:
            db = self._open()
            with db:
                _unname(db, renamed)
                _enter(db, rows)
        except (sqlite3.Error, OSError) as e:
            self._broken(e)

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            make_private(self._home)
            written = max((path.stat().st_mtime for path in self._home.glob(f"{self._path.name}*")), default=0.0)
            check_database(self._path)
            db = sqlite3.connect(self._path, timeout=1.0, check_same_thread=False)  # one thread at a time
            try:
                self._path.chmod(0o600)
                db.executescript(_SCHEMA)
                if db.execute("PRAGMA user_version").fetchone()[0] != _IS_WHOLE:
                    with db:
                        db.execute("BEGIN")
                        _enter(db, links_at(self._home))
                        db.execute(f"PRAGMA user_version = {_IS_WHOLE}")
                elif rows := list(links_at(self._home, since=written - _BEHIND_SECONDS)):
                    with db:  # a kill took what was entered last; the journals have it
                        _unname(db, {row.session for row in rows})
                        _enter(db, rows)
            except BaseException:
                db.close()
                raise
            self._db = db
        return self._db

    def _broken(self, error: Exception) -> bool:
        """Close the file, and remove a damaged one, so that the next use begins a new one; whether it was damaged."""
        self._closed()
        _LOG.warning("the index of sessions can't be used: %s", type(error).__name__)
        is_damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
        if is_damaged:
            for name in ("", "-wal", "-shm"):
                path = self._path.with_name(self._path.name + name)
                path.unlink(missing_ok=True)
        return is_damaged


def _unname(db: sqlite3.Connection, sessions: Iterable[str]) -> None:
    db.executemany(
        "DELETE FROM links WHERE link >= ? AND link < ? AND session = ?",
        [(_NAME, _BEHIND_NAMES, session) for session in sessions],
    )


def _enter(db: sqlite3.Connection, rows: Iterable[KnownLink]) -> None:
    for row in rows:
        db.execute("INSERT OR IGNORE INTO links VALUES (?, ?, ?)", row[:3])
        if row.answer:
            db.execute(
                "INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", (_storable(row.answer), row.link, row.messages)
            )


def _storable(answer: str) -> str:
    """An id that a client may have made up, as SQLite takes it."""
    return answer.encode("utf-8", "backslashreplace").decode()


def links_at(home: Path, *, since: float = 0.0) -> Iterator[KnownLink]:
    """All links and names that the journals of a tenant know, those written since then, oldest first (REL-12)."""
    found = list[tuple[float, Path]]()
    for directory in SessionStore(home).directories():
        with suppress(OSError):
            found.append(((directory / JOURNAL).stat().st_mtime, directory))
    for written, directory in sorted(one for one in found if one[0] >= since):
        try:
            with open_journal_reader(DISK, directory / JOURNAL) as reader:
                scan = reader.scan(reader.body)
        except (PerdureError, OSError):
            continue
        records = [placed.record for placed in scan.placed]
        yield from links_in(records, directory.name, {})
        name = name_in(records)
        if name:
            yield KnownLink(_name_link(name, directory.name), directory.name, int(written))


def links_in(records: Iterable[Record], session: str, answers: dict[MessageId, tuple[str, ...]]) -> Iterator[KnownLink]:
    """The links that records of a session make known, in their order.

    `answers` are the ids that its messages had in answers: those of before are looked up in it, and it gains the new.
    """
    for record in records:
        if isinstance(record, Message) and (record.model is not None or record.note == RECALLED):
            answers[record.id] = (record.response_id or "", *named_items(record))
        elif (place := HistoryPosition.of(record, CLIENT)) is not None:
            for identity in answers.get(place.message, ("",)):
                yield KnownLink(place.link, session, place.count, identity)
        elif (begun := begun_answer(record)) is not None:
            yield KnownLink(begun[0].link, session, begun[0].count, begun[1])


def name_in(records: Iterable[Record]) -> str | None:
    """The last name that records give their session: empty where it lost it, None where they don't say."""
    name = None
    for record in records:
        if isinstance(record, Cursor) and record.name == NAMED:
            name = record.digest or ""
    return name


def _name_link(name: str, session: str) -> bytes:
    """What stands in the index for a session's name, beside the links of its history, which are shorter."""
    return _NAME + hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest() + session.encode()
