"""The index for searching what was said: SQLite FTS5 in `<home>/index.db`, made from the journals alone (REL-12).

Losing it loses nothing: it is filled from where it stopped before each search, made anew when it is damaged or of
another version, and forgets the sessions that are gone. Equal texts are kept once, with every place they were said at.
Blocking; `adapters.search` runs it in a worker thread.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.adapters.files.disk import DISK, Disk, make_private
from holdfast.adapters.files.reading import Reader, reading
from holdfast.context.query import Term, camel_parts, spaced, words_of
from holdfast.context.said import pieces, tools_called
from holdfast.errors import JournalError
from holdfast.transcript.messages import Message

VERSION = 1  # of the tables and of how texts are taken apart; another one is made anew
BUSY_SECONDS = 5.0
CANDIDATES = 200  # texts that are weighed for one search
_COMMON_SHARE = 0.2  # a word in more of the texts than this finds nothing by itself
_PART_CHARS = 3  # a shorter word isn't looked for inside others
_PARTS = 50  # words that hold it
_TAIL_BYTES = 256  # of the journal before where indexing stopped: whether it is still the same file
_WAL_SINCE = (3, 51, 3)  # before, a WAL reset could lose a commit
_TABLES = """
CREATE TABLE meta(version INTEGER NOT NULL);
CREATE TABLE sessions(id INTEGER PRIMARY KEY, directory TEXT UNIQUE, name TEXT, project TEXT,
  end INTEGER, size INTEGER, device INTEGER, inode INTEGER, tail BLOB);
CREATE TABLE calls(session INTEGER, id TEXT, tool TEXT, PRIMARY KEY(session, id)) WITHOUT ROWID;
CREATE TABLE texts(id INTEGER PRIMARY KEY, digest BLOB UNIQUE, words INTEGER);
CREATE TABLE places(id INTEGER PRIMARY KEY, text INTEGER, session INTEGER, recall TEXT, message TEXT, piece INTEGER,
  role TEXT, tool TEXT, agent TEXT, at REAL, offset INTEGER);
CREATE INDEX places_text ON places(text);
CREATE INDEX places_session ON places(session);
CREATE VIRTUAL TABLE said USING fts5(text, parts, tokenize='porter unicode61 remove_diacritics 2');
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a text was said. `offset` is that of its line in the journal, `piece` its number within the message."""

    directory: str
    session: str
    project: str
    recall_id: str
    message: str
    piece: int
    role: str
    tool: str
    agent: str | None
    at: float | None
    offset: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text that fits, how well (BM25, more is better), its number of different words, and where it was said."""

    text: int
    score: float
    words: int
    places: tuple[Place, ...]


class Unusable(Exception):
    """There is no index to be had here: no FTS5, no room, or nobody lets go of it."""


class SearchIndex:
    """`<home>/index.db`. Open it with `opened`."""

    def __init__(self, db: sqlite3.Connection, disk: Disk) -> None:
        self._db = db
        self._disk = disk
        self.unreadable = 0  # journals that the last refresh could not read

    # --- filling

    def refresh(self, journals: Iterable[Path], *, forget_others: bool) -> int:
        """Take in what the journals gained; returns how many pieces that were. Unreadable journals are counted."""
        wanted = {str(path.parent): path for path in journals}
        known = {row[0]: row for row in self._db.execute("SELECT directory, id, size, device, inode FROM sessions")}
        stale = [d for d, path in wanted.items() if d not in known or not _is_same(path, known[d][2:])]
        gone = [d for d in known if d not in wanted and (forget_others or not Path(d).exists())]
        self.unreadable = 0
        if not stale and not gone:
            return 0
        before = self._db.total_changes
        with self._transaction():
            for directory in gone:
                self._forget(known[directory][1])
            if gone:  # else their words would stay in the index until it is merged
                self._db.execute("INSERT INTO said(said) VALUES('optimize')")
            added = sum(self._take_in(wanted[directory]) for directory in stale)
        return added if self._db.total_changes > before else 0

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _take_in(self, journal: Path) -> int:
        try:
            with reading(self._disk, journal) as reader:
                row = self._db.execute(
                    "SELECT id, end, device, inode, tail FROM sessions WHERE directory = ?", (str(journal.parent),)
                ).fetchone()
                if row is not None and not _goes_on(reader, row[1:]):
                    self._forget(row[0])
                    row = None
                session, start = (row[0], row[1]) if row else (self._added_session(journal, reader), reader.body)
                scan = reader.scan(start)
                added = sum(
                    self._add(session, p.record, p.offset) for p in scan.placed if isinstance(p.record, Message)
                )
                end, tail = scan.end, _tail(reader, scan.end)
                self._db.execute(
                    "UPDATE sessions SET end = ?, size = ?, tail = ? WHERE id = ?", (end, reader.size, tail, session)
                )
                return added
        except JournalError:
            self.unreadable += 1
            return 0

    def _added_session(self, journal: Path, reader: Reader) -> int:
        header = reader.header
        cursor = self._db.execute(
            "INSERT INTO sessions(directory, name, project, end, size, device, inode, tail) VALUES(?,?,?,?,?,?,?,?)",
            (str(journal.parent), header.session, header.project or "", 0, 0, *reader.identity, b""),
        )
        return int(cursor.lastrowid or 0)

    def _add(self, session: int, message: Message, offset: int) -> int:
        """The pieces of a message; texts that are there already only get another place."""
        if tools := tools_called(message):
            self._db.executemany(
                "INSERT OR IGNORE INTO calls VALUES(?,?,?)", [(session, i, name) for i, name in tools.items()]
            )
        results = [result.tool_use_id for result in message.tool_results] if message.role == "user" else []
        calls = {i: name for i in results if (name := self._tool(session, i))}
        rows = []
        for number, piece in enumerate(pieces(message, calls)):
            if not piece.text.strip():
                continue
            where = (piece.role, piece.tool, piece.agent, piece.at, offset)
            rows.append((self._text(piece.text), session, piece.recall_id, message.id, number, *where))
        self._db.executemany(
            "INSERT INTO places(text, session, recall, message, piece, role, tool, agent, at, offset) "
            "VALUES(?,?,?,?,?,?,?,?,?,?)",
            rows,
        )
        return len(rows)

    def _tool(self, session: int, identity: str) -> str:
        row = self._db.execute("SELECT tool FROM calls WHERE session = ? AND id = ?", (session, identity)).fetchone()
        return row[0] if row else ""

    def _text(self, text: str) -> int:
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        row = self._db.execute("SELECT id FROM texts WHERE digest = ?", (digest,)).fetchone()
        if row:
            return int(row[0])
        words = len(set(words_of(text)))
        identity = self._db.execute("INSERT INTO texts(digest, words) VALUES(?,?)", (digest, words)).lastrowid
        safe = text.encode("utf-8", "replace").decode() if not text.isascii() else text
        said = (identity, spaced(safe), camel_parts(safe))
        self._db.execute("INSERT INTO said(rowid, text, parts) VALUES(?,?,?)", said)
        return int(identity or 0)

    def _forget(self, session: int) -> None:
        """Take out a session, and the texts that nobody else said."""
        texts = [row[0] for row in self._db.execute("SELECT DISTINCT text FROM places WHERE session = ?", (session,))]
        for table in ("places", "calls"):
            self._db.execute(f"DELETE FROM {table} WHERE session = ?", (session,))
        self._db.execute("DELETE FROM sessions WHERE id = ?", (session,))
        for text in texts:
            if self._db.execute("SELECT 1 FROM places WHERE text = ? LIMIT 1", (text,)).fetchone() is None:
                self._db.execute("DELETE FROM said WHERE rowid = ?", (text,))
                self._db.execute("DELETE FROM texts WHERE id = ?", (text,))

    # --- finding

    def candidates(self, terms: Sequence[Term], directories: Sequence[str] | None) -> list[Candidate]:
        """The texts that fit best: those with all the terms, then those with some. `directories` narrows the search."""
        self._narrow(directories)
        expressions = [e for term in terms if (e := self._expression(term))]
        found = self._matching(" AND ".join(expressions), is_narrow=directories is not None)
        if len(found) < CANDIDATES and len(expressions) > 1:
            telling = self._telling(expressions)
            for text, row in self._matching(" OR ".join(telling), is_narrow=directories is not None).items():
                found.setdefault(text, row)
        return [Candidate(text, score, words, self.places(text, 1)) for text, (score, words) in found.items()]

    def places(self, text: int, limit: int) -> tuple[Place, ...]:
        """Where a text was said within the search, newest first."""
        rows = self._db.execute(
            "SELECT s.directory, s.name, s.project, p.recall, p.message, p.piece, p.role, p.tool, p.agent, p.at, "
            "p.offset FROM places p JOIN wanted w ON w.session = p.session JOIN sessions s ON s.id = p.session "
            "WHERE p.text = ? ORDER BY p.at DESC, p.id DESC LIMIT ?",
            (text, limit),
        )
        return tuple(Place(*row) for row in rows)

    def text(self, text: int) -> str:
        """A text, as it was taken in."""
        row = self._db.execute("SELECT text FROM said WHERE rowid = ?", (text,)).fetchone()
        return str(row[0]) if row else ""

    def _narrow(self, directories: Sequence[str] | None) -> None:
        self._db.execute("CREATE TEMP TABLE IF NOT EXISTS wanted(session INTEGER PRIMARY KEY)")
        self._db.execute("DELETE FROM wanted")
        if directories is None:
            self._db.execute("INSERT INTO wanted SELECT id FROM sessions")
        else:
            ids = [
                self._db.execute("SELECT id FROM sessions WHERE directory = ?", (d,)).fetchone() for d in directories
            ]
            self._db.executemany("INSERT OR IGNORE INTO wanted VALUES(?)", [row for row in ids if row])

    def _matching(self, expression: str, *, is_narrow: bool) -> dict[int, tuple[float, int]]:
        if not expression:
            return {}
        inside = "EXISTS(SELECT 1 FROM places p JOIN wanted w ON w.session = p.session WHERE p.text = said.rowid)"
        rows = self._db.execute(
            "SELECT said.rowid, -bm25(said), texts.words FROM said JOIN texts ON texts.id = said.rowid "
            f"WHERE said MATCH ? {f'AND {inside}' if is_narrow else ''} ORDER BY rank LIMIT ?",
            (expression, CANDIDATES),
        )
        return {text: (score, words) for text, score, words in rows}

    def _telling(self, expressions: list[str]) -> list[str]:
        """The terms that aren't in a large share of all texts; all of them when none is rare."""
        total = self._db.execute("SELECT count(*) FROM texts").fetchone()[0]
        most = max(100, int(total * _COMMON_SHARE))
        rare = [e for e in expressions if self._holding(e, most) < most]
        return rare or expressions

    def _holding(self, expression: str, most: int) -> int:
        """How many texts an expression matches, counted up to `most`."""
        count = "SELECT count(*) FROM (SELECT 1 FROM said WHERE said MATCH ? LIMIT ?)"
        return int(self._db.execute(count, (expression, most)).fetchone()[0])

    def _expression(self, term: Term) -> str:
        """A term for FTS5: its words as a phrase, and as a name in parts when it is written in camelCase.

        What is nowhere as it stands is looked for by its words apart, and a word as a part of longer ones.
        """
        phrase = f'"{" ".join(term.words)}"'
        parts = " ".join(words_of(camel_parts(term.written)))
        whole = f'({phrase} OR "{parts}")' if parts and parts != " ".join(term.words) else phrase
        if self._holding(whole, 1):
            return whole
        apart = [e for word in term.words if (e := self._within(word))]
        return f"({' AND '.join(apart)})" if apart else ""

    def _within(self, word: str) -> str:
        if self._holding(f'"{word}"', 1):
            return f'"{word}"'
        if len(word) < _PART_CHARS:
            return ""
        self._db.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.vocabulary USING fts5vocab(main, said, row)")
        rows = self._db.execute("SELECT term FROM temp.vocabulary WHERE instr(term, ?) LIMIT ?", (word, _PARTS))
        longer = [f'"{row[0]}"' for row in rows]
        return f"({' OR '.join(longer)})" if longer else ""


def _is_same(journal: Path, seen: tuple[int, int, int]) -> bool:
    try:
        about = os.stat(journal)
    except OSError:
        return True  # nothing can be taken in
    return (about.st_size, about.st_dev, about.st_ino) == seen


def _goes_on(reader: Reader, seen: tuple[int, int, int, bytes]) -> bool:
    """Whether the journal still is what was indexed, with something behind it."""
    end, device, inode, tail = seen
    return reader.identity == (device, inode) and reader.size >= end and _tail(reader, end) == tail


def _tail(reader: Reader, end: int) -> bytes:
    start = max(0, end - _TAIL_BYTES)
    return hashlib.blake2b(reader.read(start, end - start), digest_size=16).digest()


@contextmanager
def opened(path: Path, *, disk: Disk = DISK) -> Iterator[SearchIndex]:
    """The index at `path`, made when it isn't there or has another version. Raises `Unusable` or `sqlite3.Error`."""
    try:
        make_private(path.parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600))
    except OSError as e:
        raise Unusable(f"{path}: {e.strerror or e}") from e
    with closing(sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)) as db:
        mode = "WAL" if sqlite3.sqlite_version_info >= _WAL_SINCE else "TRUNCATE"
        db.execute(f"PRAGMA journal_mode = {mode}")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA secure_delete = ON")  # what is forgotten leaves the file as well
        db.execute("PRAGMA cache_size = -65536")
        _prepare(db)
        yield SearchIndex(db, disk)


def _prepare(db: sqlite3.Connection) -> None:
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
    version = db.execute("SELECT version FROM meta").fetchone() if "meta" in tables else None
    if version == (VERSION,):
        return
    if tables:
        raise sqlite3.DatabaseError("an index of another version")
    try:
        db.execute("BEGIN IMMEDIATE")
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone():
            for statement in _TABLES.split(";\n"):
                db.execute(statement)
            db.execute("INSERT INTO meta VALUES(?)", (VERSION,))
        db.execute("COMMIT")
    except sqlite3.OperationalError as e:
        if "fts5" in str(e) or "no such module" in str(e):
            raise Unusable(f"this SQLite ({sqlite3.sqlite_version}) has no FTS5") from e
        raise


def discard(path: Path) -> None:
    """Remove an index with what SQLite keeps beside it."""
    for suffix in ("", "-journal", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
