"""Finding what was said in the sessions of a project: an index in SQLite, made from the journals alone, or none
(RCL-1, SES-2, REL-12).
"""

from __future__ import annotations

import hashlib
import mmap
import os
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import anyio.to_thread
import msgspec

from perdure.adapters.journal import JOURNAL
from perdure.adapters.journal.blobs import FileBlobs
from perdure.adapters.journal.disk import DISK, Disk, check_database, make_private, sqlite_journal_mode
from perdure.adapters.journal.journal import FileJournal
from perdure.adapters.journal.reading import JournalReader, open_journal_reader
from perdure.adapters.journal.session_search import (
    NO_WORDS,
    KnownSession,
    card_bytes,
    card_of,
    card_to_read,
    eligible,
    found_sessions,
    read_for,
    sessions_read,
)
from perdure.adapters.journal.store import BLOBS, SessionStore
from perdure.adapters.machine.system import open_file
from perdure.errors import JournalError, SessionNotFound
from perdure.ports.session import Blobs, FoundSessions, Journal
from perdure.ports.session import LoadedJournal as Loaded
from perdure.ports.session import PlacedRecord as Placed
from perdure.ports.session import SearchHit as Hit
from perdure.ports.session import SearchResults as Found
from perdure.recall.queries import (
    CountedWords,
    QueryTerm,
    best_spot,
    camel_parts,
    is_in_words,
    join_unspaced_scripts,
    space_unspaced_scripts,
    terms_apart,
    terms_of,
    verbatim,
    weighted_score,
    words_of,
)
from perdure.recall.sessions import AskedSessions
from perdure.recall.turns import BeyondTurns, DialogueIndex, DialogueTurn, TurnLengths
from perdure.text.synonyms import similar_terms
from perdure.text.words import asked_terms, counts_of
from perdure.text.words import terms as text_terms
from perdure.transcript.codec import decode_line
from perdure.transcript.messages import Message
from perdure.transcript.texts import SpokenPiece, pieces, tools_called

T = TypeVar("T")

VERSION = 2  # of the tables and of how texts are taken apart; another one is made anew
BUSY_SECONDS = 5.0
CANDIDATES = 200  # texts that are weighed for one search
_COUNTED = 5_000  # texts that hold a word; more say the same
_COMMON_SHARE = 0.2  # a word in more of the texts than this finds nothing by itself
_PART_CHARS = 3  # a shorter word isn't looked for inside others
_PARTS = 50  # words that hold it
_TAIL_BYTES = 256  # of the journal before where indexing stopped: whether it is still the same file
_TABLES = """
CREATE TABLE meta(version INTEGER NOT NULL);
CREATE TABLE sessions(id INTEGER PRIMARY KEY, directory TEXT UNIQUE, name TEXT, project TEXT,
  end INTEGER, size INTEGER, device INTEGER, inode INTEGER, tail BLOB, card BLOB);
CREATE TABLE calls(session INTEGER, id TEXT, tool TEXT, PRIMARY KEY(session, id)) WITHOUT ROWID;
CREATE TABLE texts(id INTEGER PRIMARY KEY, digest BLOB UNIQUE, words INTEGER);
CREATE TABLE places(id INTEGER PRIMARY KEY, text INTEGER, session INTEGER, recall TEXT, message TEXT, piece INTEGER,
  role TEXT, tool TEXT, agent TEXT, at REAL, offset INTEGER);
CREATE INDEX places_text ON places(text);
CREATE INDEX places_session ON places(session);
CREATE VIRTUAL TABLE said USING fts5(text, parts, tokenize='porter unicode61 remove_diacritics 2');
"""


@dataclass(frozen=True, slots=True)
class TextLocation:
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
    number: int = -1  # among all places; those of a message and the next follow each other. -1: nobody counted


@dataclass(frozen=True, slots=True)
class SearchCandidate:
    """A text that fits, how well (BM25, more is better), its number of different words, and where it was said."""

    text: int
    score: float
    words: int
    places: tuple[TextLocation, ...]


_LOCATION = (
    "s.directory, s.name, s.project, p.recall, p.message, p.piece, p.role, p.tool, p.agent, p.at, p.offset, p.id"
)


class IndexUnusable(Exception):
    """There is no index to be had here: no FTS5, no room, or nobody lets go of it."""


class SearchIndex:
    """`<home>/index.db`. Open it with `opened`."""

    def __init__(self, db: sqlite3.Connection, disk: Disk) -> None:
        self._db = db
        self._disk = disk
        self.unreadable = 0  # journals that the last refresh could not read
        self._later = ""  # the condition on the time of what is looked for

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

    def shrink(self) -> None:
        """Give back the room of what was taken out."""
        self._db.execute("VACUUM")
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

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
            with open_journal_reader(self._disk, journal) as reader:
                row = self._db.execute(
                    "SELECT id, end, device, inode, tail, card FROM sessions WHERE directory = ?",
                    (str(journal.parent),),
                ).fetchone()
                if row is not None and not _goes_on(reader, row[1:5]):
                    self._forget(row[0])
                    row = None
                session, start = (row[0], row[1]) if row else (self._added_session(journal, reader), reader.body)
                scan = reader.scan(start)
                added = sum(
                    self._add(session, p.record, p.offset) for p in scan.placed if isinstance(p.record, Message)
                )
                end, tail = scan.end, _tail(reader, scan.end)
                card = card_of(row[5] if row else None)
                card.learn((p.record for p in scan.placed), reader.header.project or "")
                self._db.execute(
                    "UPDATE sessions SET end = ?, size = ?, tail = ?, card = ? WHERE id = ?",
                    (end, reader.size, tail, card_bytes(card), session),
                )
                return added
        except JournalError:
            self.unreadable += 1
            return 0

    def _added_session(self, journal: Path, reader: JournalReader) -> int:
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
        said = (identity, space_unspaced_scripts(safe), camel_parts(safe))
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

    def candidates(
        self, terms: Sequence[QueryTerm], directories: Sequence[str] | None, since: float | None = None
    ) -> list[SearchCandidate]:
        """The texts that fit best: those with all the terms, then those with some.

        `directories` narrows the search, and so does `since`: what has no time is left out then.
        """
        self._narrow(directories, since)
        is_narrow = directories is not None or since is not None
        expressions = [e for term in terms if (e := self._expression(term))]
        found = self._matching(" AND ".join(expressions), is_narrow=is_narrow)
        if len(found) < CANDIDATES and len(expressions) > 1:
            telling = self._telling(expressions)
            for text, row in self._matching(" OR ".join(telling), is_narrow=is_narrow).items():
                found.setdefault(text, row)
        return [SearchCandidate(text, score, words, self.places(text, 1)) for text, (score, words) in found.items()]

    def known_sessions(self, directories: Collection[str]) -> list[KnownSession]:
        """What is known of the sessions in these folders."""
        rows = self._db.execute("SELECT id, directory, project, card FROM sessions")
        return [
            KnownSession(n, Path(d).name, project, card_to_read(card))
            for n, d, project, card in rows
            if d in directories
        ]

    def holding_sessions(self, words: Mapping[str, str]) -> dict[str, dict[int, float]]:
        """Of each word, by its term, how many texts of which sessions hold it. One that is everywhere says nothing."""
        expressions = {term: f'"{" ".join(words_of(word))}"' for term, word in words.items()}
        telling = set(self._telling(list(expressions.values())))
        asked = (
            "SELECT p.session, count(*) FROM said CROSS JOIN places p ON p.text = said.rowid "
            "WHERE said MATCH ? GROUP BY p.session"
        )
        return {
            term: {number: float(count) for number, count in self._db.execute(asked, (expression,))}
            for term, expression in expressions.items()
            if expression in telling
        }

    def places(self, text: int, limit: int) -> tuple[TextLocation, ...]:
        """Where a text was said within the search, newest first."""
        rows = self._db.execute(
            f"SELECT {_LOCATION} FROM places p JOIN wanted w ON w.session = p.session "
            "JOIN sessions s ON s.id = p.session "
            f"WHERE p.text = ? {self._later} ORDER BY p.at DESC, p.id DESC LIMIT ?",
            (text, limit),
        )
        return tuple(TextLocation(*row) for row in rows)

    def around(self, places: Collection[int], reach: int) -> list[SearchCandidate]:
        """What was said next to these places, within the search."""
        wanted = {place + step for place in places for step in range(-reach, reach + 1)} - set(places)
        rows = self._db.execute(
            f"SELECT p.text, {_LOCATION} FROM places p JOIN wanted w ON w.session = p.session "
            f"JOIN sessions s ON s.id = p.session WHERE p.id IN ({','.join(map(str, sorted(wanted)))}) {self._later}"
        )
        return [SearchCandidate(text, 0.0, 1, (TextLocation(*place),)) for text, *place in rows]

    def holding(self, terms: Sequence[QueryTerm]) -> tuple[int, list[int]]:
        """How many texts there are, and how many of them hold each term, counted up to a limit."""
        total = self._db.execute("SELECT count(*) FROM texts").fetchone()[0]
        return total, [self._holding(f'"{" ".join(term.words)}"', _COUNTED) for term in terms]

    def text(self, text: int) -> str:
        """A text, as it was taken in."""
        row = self._db.execute("SELECT text FROM said WHERE rowid = ?", (text,)).fetchone()
        return join_unspaced_scripts(row[0]) if row else ""

    def _narrow(self, directories: Sequence[str] | None, since: float | None) -> None:
        self._later = "" if since is None else f"AND p.at >= {since!r}"
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
        wanted = "SELECT 1 FROM places p JOIN wanted w ON w.session = p.session"
        inside = f"EXISTS({wanted} WHERE p.text = said.rowid {self._later})"
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

    def _expression(self, term: QueryTerm) -> str:
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


def _goes_on(reader: JournalReader, seen: tuple[int, int, int, bytes]) -> bool:
    """Whether the journal still is what was indexed, with something behind it."""
    end, device, inode, tail = seen
    return reader.identity == (device, inode) and reader.size >= end and _tail(reader, end) == tail


def _tail(reader: JournalReader, end: int) -> bytes:
    start = max(0, end - _TAIL_BYTES)
    return hashlib.blake2b(reader.read(start, end - start), digest_size=16).digest()


@contextmanager
def open_search_index(path: Path, *, disk: Disk = DISK) -> Iterator[SearchIndex]:
    """The index at `path`, made if it is missing or has another version. Raises `IndexUnusable` or `sqlite3.Error`."""
    try:
        make_private(path.parent)
        os.close(open_file(path, os.O_RDWR | os.O_CREAT))
        check_database(path)
    except OSError as e:
        raise IndexUnusable(f"{path}: {e.strerror or e}") from e
    with closing(sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)) as db:
        db.execute(f"PRAGMA journal_mode = {sqlite_journal_mode()}")
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
            raise IndexUnusable(f"this SQLite ({sqlite3.sqlite_version}) has no FTS5") from e
        raise


def discard_index(path: Path) -> None:
    """Remove an index with what SQLite keeps beside it."""
    for suffix in ("", "-journal", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


INDEX = "index.db"
_About = tuple[str, str, str]  # directory, session, project
_AS_TURNS = 100  # of the likeliest are ranked as turns
_NEAR = 0.35  # how short turns have to be for those around them to be read as well
_READ = 40  # of the best are read for what stands in them as it was written
PLACES = 50  # of one text that are named
_TAKEN_AT_ONCE = 8  # sessions, which nobody else can write to the index meanwhile
_NOT_DAMAGE = ("locked", "readonly", "read-only", "full", "unable to open")
_ECHO_TOOLS = frozenset({"recall", "session_search"})


@dataclass(frozen=True, slots=True)
class StoreArchive:
    """The sessions of one project of a store; all of them when it is None."""

    home: Path
    project: str | Path | None = None
    has_index: bool = True
    disk: Disk = DISK

    async def search(
        self, query: str, *, limit: int = 10, sessions: Sequence[str] = (), since: float | None = None
    ) -> Found:
        """What the port says. Without an index, everything is read: slower, with much the same results."""
        return await anyio.to_thread.run_sync(partial(self._search, query, limit, tuple(sessions), since))

    async def sessions(
        self, prompt: str, *, limit: int = 5, since: float | None = None, without: Collection[str] = ()
    ) -> FoundSessions:
        """What the port says. Without an index, everything is read."""
        return await anyio.to_thread.run_sync(partial(self._sessions, prompt, limit, since, without))

    async def load(self, session: str) -> tuple[Loaded, Blobs]:
        """All records of another session of the project, and its blobs."""
        directory = await anyio.to_thread.run_sync(
            partial(SessionStore(self.home).named, session, project=self.project)
        )
        journal = await FileJournal.open(directory / JOURNAL, read_only=True, disk=self.disk)
        try:
            return await journal.load(whole=True), FileBlobs(directory / BLOBS, disk=self.disk)
        finally:
            await journal.close()

    async def holding(self, text: str) -> tuple[str, ...]:
        """The sessions whose journals hold a text to the letter, such as an id or a part of one; last written first."""
        return await anyio.to_thread.run_sync(self._holding, text.encode())

    def rebuild(self) -> int:
        """Make the index anew; returns how many pieces it holds."""
        path = self.home / INDEX
        discard_index(path)
        with open_search_index(path, disk=self.disk) as index:
            return index.refresh([d / JOURNAL for d in SessionStore(self.home).directories()], forget_others=True)

    def take_in(self, told: Callable[[int, int], None]) -> None:
        """Have the index hold what the sessions gained, so that the next search needn't wait for it.

        A few sessions at a time: what is in stays when the rest is given up. Where there can't be an index, searching
        says so. `told` hears how many sessions are done, and of how many.
        """
        journals = [directory / JOURNAL for directory in self._directories()]
        with (
            suppress(IndexUnusable, OSError, sqlite3.Error, msgspec.DecodeError),
            open_search_index(self.home / INDEX, disk=self.disk) as index,
        ):
            for start in range(0, len(journals), _TAKEN_AT_ONCE):
                told(start, len(journals))
                index.refresh(journals[start : start + _TAKEN_AT_ONCE], forget_others=False)

    # --- finding

    def _directories(self) -> Iterator[Path]:
        return SessionStore(self.home).directories(self.project)

    def _holding(self, text: bytes) -> tuple[str, ...]:
        found = []
        for directory in self._directories():
            with suppress(OSError, ValueError), ExitStack() as held:  # ValueError: an empty one
                file = held.enter_context(open(directory / JOURNAL, "rb"))
                journal = held.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
                if journal.find(text) >= 0:
                    found.append((os.fstat(file.fileno()).st_mtime, directory.name))
        return tuple(name for _, name in sorted(found, reverse=True))

    def _search(self, query: str, limit: int, sessions: tuple[str, ...], since: float | None) -> Found:
        terms = terms_of(query)
        if not terms:
            return Found((), "the query holds no words")
        store = SessionStore(self.home)
        found = [store.named(name, project=self.project) for name in sessions] or self._directories()
        journals = [directory / JOURNAL for directory in found]
        asked = Asked.of(query, terms)
        best, note = self._indexed(asked, journals, limit, since, is_all=not sessions and self.project is None)
        if best is None:
            unreadable: list[Path] = []
            candidates, texts = weighed(asked, _read(journals, self.disk, unreadable), since)
            note = "; ".join(filter(None, (note, _passed_over(len(unreadable)))))
            best = asked.best(candidates, texts)[:limit]
        terms = asked.terms
        return Found(tuple(hit for c, score in best if (hit := self._hit(c, score, terms)) is not None), note)

    def _indexed(
        self, asked: Asked, journals: list[Path], limit: int, since: float | None, *, is_all: bool
    ) -> tuple[list[tuple[SearchCandidate, float]] | None, str]:
        """The best of the index; None when there can't be one."""

        def found(index: SearchIndex) -> list[tuple[SearchCandidate, float]]:
            directories = None if is_all else [str(journal.parent) for journal in journals]
            best = asked.best(index.candidates(asked.terms, directories, since), index)[:limit]
            return [(replace(c, places=index.places(c.text, PLACES)), score) for c, score in best]

        return self._by_index(journals, found, is_all=is_all)

    def _by_index(self, journals: list[Path], ask: Callable[[SearchIndex], T], *, is_all: bool) -> tuple[T | None, str]:
        """What the index says, once it holds what these journals gained; None when there can't be one.

        It is made anew once when it is damaged.
        """
        if not self.has_index:
            return None, "searched without an index"
        path, why = self.home / INDEX, ""
        for attempt in (1, 2):
            try:
                with open_search_index(path, disk=self.disk) as index:
                    index.refresh(journals, forget_others=is_all)
                    return ask(index), _passed_over(index.unreadable)
            except (IndexUnusable, OSError) as e:
                return None, f"searched without an index ({e})"
            except (sqlite3.Error, msgspec.DecodeError) as e:
                why = str(e)
                if attempt == 2 or any(word in why for word in _NOT_DAMAGE):
                    break
                discard_index(path)
        return None, f"searched without an index ({why})"

    def _sessions(self, prompt: str, limit: int, since: float | None, without: Collection[str]) -> FoundSessions:
        asked = AskedSessions.of(prompt)
        if not asked.terms:
            return NO_WORDS
        journals = [directory / JOURNAL for directory in self._directories()]
        directories = {str(journal.parent) for journal in journals}

        def found(index: SearchIndex) -> FoundSessions:
            known = eligible(index.known_sessions(directories), since, without)
            return found_sessions(asked, known, index.holding_sessions(asked.words), limit)

        best, note = self._by_index(journals, found, is_all=self.project is None)
        if best is not None:
            return replace(best, note=note)
        unreadable: list[Path] = []
        read = ((Path(about[0]).name, about[2], placed) for about, placed in _read(journals, self.disk, unreadable))
        every, held = read_for(asked, read)
        note = "; ".join(filter(None, (note, _passed_over(len(unreadable)))))
        return found_sessions(asked, eligible(every, since, without), held, limit, note)

    def _hit(self, candidate: SearchCandidate, score: float, terms: Sequence[QueryTerm]) -> Hit | None:
        """A result, with its text read back from the journal; None when that isn't there any more."""
        place = candidate.places[0]
        piece = _piece_at(place, self.disk)
        if piece is None:
            return None
        return hit_of(candidate, score, piece.text, terms)


def _day(at: float | None) -> str:
    """The day of a time; nothing of one that no calendar has, as a log may claim any."""
    try:
        return "" if at is None else datetime.fromtimestamp(at, UTC).date().isoformat()
    except (OverflowError, ValueError, OSError):
        return ""


def hit_of(candidate: SearchCandidate, score: float, text: str, terms: Sequence[QueryTerm]) -> Hit:
    """A result, whose text says this."""
    place, spot = candidate.places[0], best_spot(text, terms)
    return Hit(
        id=place.recall_id,
        session=Path(place.directory).name,
        project=place.project,
        message=place.message,
        role=place.role,
        tool=place.tool,
        agent=place.agent,
        at=place.at,
        journal_offset=place.offset,
        line=spot.line,
        offset=spot.offset,
        snippet=spot.snippet,
        score=round(score, 4),
        also=tuple((Path(p.directory).name, p.recall_id, p.message) for p in candidate.places[1:]),
    )


class SearchTexts(Protocol):
    """The texts of candidates, and what else is known of all that is searched."""

    def text(self, text: int) -> str: ...

    def around(self, places: Collection[int], reach: int) -> list[SearchCandidate]: ...

    def holding(self, terms: Sequence[QueryTerm]) -> tuple[int, list[int]]: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """What is looked for: a question in words, ranked as turns that may answer it (MEM-15), or words as they stand."""

    query: str
    terms: tuple[QueryTerm, ...]
    is_in_words: bool

    @classmethod
    def of(cls, query: str, terms: Sequence[QueryTerm]) -> Asked:
        """What a query with these terms asks for."""
        in_words = is_in_words(query, terms)
        return cls(query, terms_apart(terms) if in_words else tuple(terms), in_words)

    def best(self, found: list[SearchCandidate], texts: SearchTexts) -> list[tuple[SearchCandidate, float]]:
        """The candidates with what they score, best first."""
        if not self.is_in_words:
            return ranked(found, self.terms, texts.text)
        return _ranked_turns(self.query, found, self.terms, texts)


def _ranked_turns(
    query: str, found: list[SearchCandidate], terms: Sequence[QueryTerm], texts: SearchTexts
) -> list[tuple[SearchCandidate, float]]:
    """Those that fit best by their words are ranked as turns of conversations, with what stands around them."""
    scored = ranked(found, (), texts.text)
    likely = [candidate for candidate, _ in scored[:_AS_TURNS]]
    said = {one.text: texts.text(one.text) for one in likely}
    lengths = TurnLengths()
    for one in likely:
        lengths.add(one.places[0].role, len(said[one.text]))
    if lengths.shortness >= _NEAR:
        likely += texts.around({c.places[0].number for c in likely if c.places[0].number >= 0}, 2)
    likely.sort(key=lambda c: (c.places[0].at or 0.0, c.places[0].directory, c.places[0].offset, c.places[0].piece))
    total, holding = texts.holding(terms)
    holds = {key: count for term, count in zip(terms, holding, strict=True) if (key := _key(term)) and count}
    index = DialogueIndex([], BeyondTurns(max(total, len(likely)), holds, lengths))
    wanted = asked_terms(query)
    wanted.update(other for term in list(wanted) for other in similar_terms(term))
    last: dict[str, int] = {}
    for candidate in likely:
        place = candidate.places[0]
        text = said[candidate.text] if candidate.text in said else texts.text(candidate.text)
        is_next = place.number >= 0 and last.get(place.directory) == place.number - 1
        last[place.directory] = place.number
        day = _day(place.at)
        turn = DialogueTurn(id=place.message, text=text, session=place.directory, speaker=place.role, time=day)
        index.add(turn, counts_of(text, wanted), is_next=is_next)
    best = [(c, score) for c, score in zip(likely, index.scores(query), strict=True) if score > 0]
    seen = {candidate.text for candidate, _ in best}
    least = min((score for _, score in best), default=0.0)
    rest = [(c, least * score / scored[0][1]) for c, score in scored if c.text not in seen]
    return sorted(best, key=_best_first) + rest


def _key(term: QueryTerm) -> str:
    """A term of a query as the index of turns has it; nothing for names, which are several there."""
    found = list(text_terms("".join(term.words)))
    return found[0] if len(found) == 1 else ""


def ranked(
    found: list[SearchCandidate], terms: Sequence[QueryTerm], text_of: Callable[[int], str]
) -> list[tuple[SearchCandidate, float]]:
    """Best first, newer before older where they fit alike; those near the top are read for what was asked verbatim."""
    found = [c for c in found if c.places]
    times = sorted({c.places[0].at or 0.0 for c in found})
    newness = {at: number / max(1, len(times) - 1) for number, at in enumerate(times)}
    asked = len({word for term in terms for word in term.words})
    scored: list[tuple[SearchCandidate, float]] = []
    for c in found:
        new = newness[c.places[0].at or 0.0]
        scored.append((c, weighted_score(c.score, coverage=asked / max(1, c.words), newness=new)))
    scored.sort(key=_best_first)
    near = [(c, score * verbatim(text_of(c.text), terms)) for c, score in scored[:_READ]]
    return sorted(near, key=_best_first) + scored[_READ:]


def _best_first(one: tuple[SearchCandidate, float]) -> tuple[bool, float, float]:
    """What only a tool of ours gave back was said elsewhere first, so it comes last."""
    candidate, score = one
    is_echo = all(place.tool.rsplit("__")[-1] in _ECHO_TOOLS for place in candidate.places)
    return (is_echo, -score, -(candidate.places[0].at or 0.0))


def _piece_at(place: TextLocation, disk: Disk) -> SpokenPiece | None:
    try:
        with open_journal_reader(disk, Path(place.directory) / JOURNAL) as reader:
            line = next((line for _, line, _ in reader.lines(place.offset)), b"")
            records = decode_line(line, reader.header.version).records
    except JournalError:
        return None
    for record in records:
        if isinstance(record, Message) and record.id == place.message:
            found = pieces(record, {})
            return found[place.piece] if place.piece < len(found) else None
    return None


@dataclass(frozen=True, slots=True)
class JournalArchive:
    """One session that stands alone: in memory, or outside any store."""

    journal: Journal
    blobs: Blobs

    async def search(
        self, query: str, *, limit: int = 10, sessions: Sequence[str] = (), since: float | None = None
    ) -> Found:
        loaded = await self.journal.load(whole=True)
        self._check(loaded, *sessions)
        terms = terms_of(query)
        if not terms:
            return Found((), "the query holds no words")
        about = (loaded.header.session, loaded.header.session, loaded.header.project or "")
        asked = Asked.of(query, terms)
        candidates, texts = weighed(asked, [(about, loaded.records)], since)
        best = asked.best(candidates, texts)[:limit]
        return Found(tuple(hit_of(c, score, texts.text(c.text), asked.terms) for c, score in best))

    async def sessions(
        self, prompt: str, *, limit: int = 5, since: float | None = None, without: Collection[str] = ()
    ) -> FoundSessions:
        loaded = await self.journal.load(whole=True)
        return sessions_read(
            prompt,
            [(loaded.header.session, loaded.header.project or "", loaded.records)],
            limit=limit,
            since=since,
            without=without,
        )

    async def load(self, session: str) -> tuple[Loaded, Blobs]:
        loaded = await self.journal.load(whole=True)
        self._check(loaded, session)
        return loaded, self.blobs

    def _check(self, loaded: Loaded, *sessions: str) -> None:
        for session in sessions:
            if session != loaded.header.session:
                raise SessionNotFound(f"no session {session[:80]!r} here: only {loaded.header.session}")


def _passed_over(unreadable: int) -> str:
    what = "1 session" if unreadable == 1 else f"{unreadable} sessions"
    return f"{what} could not be read and may hold more: `perdure doctor` names what is wrong" if unreadable else ""


def _read(journals: Iterable[Path], disk: Disk, unreadable: list[Path]) -> Iterator[tuple[_About, Sequence[Placed]]]:
    for journal in journals:
        try:
            with open_journal_reader(disk, journal) as reader:
                scan = reader.scan(reader.body)
        except JournalError:
            unreadable.append(journal)
            continue
        yield (str(journal.parent), scan.header.session, scan.header.project or ""), scan.placed


@dataclass(frozen=True, slots=True)
class ReadTexts:
    """All texts of whole journals, by number, each with its places, and where each place is."""

    texts: Sequence[str]
    places: Sequence[Sequence[TextLocation]]
    by_number: Sequence[int]  # of a place, its text
    holds: Mapping[tuple[str, ...], int]

    def text(self, text: int) -> str:
        return self.texts[text]

    def around(self, places: Collection[int], reach: int) -> list[SearchCandidate]:
        wanted = {place + step for place in places for step in range(-reach, reach + 1)} - set(places)
        return [
            SearchCandidate(text, 0.0, 1, (next(p for p in self.places[text] if p.number == number),))
            for number in sorted(wanted)
            if 0 <= number < len(self.by_number)
            for text in [self.by_number[number]]
        ]

    def holding(self, terms: Sequence[QueryTerm]) -> tuple[int, list[int]]:
        return len(self.texts), [self.holds.get(term.words, 0) for term in terms]


def weighed(
    asked: Asked, journals: Iterable[tuple[_About, Sequence[Placed]]], since: float | None = None
) -> tuple[list[SearchCandidate], ReadTexts]:
    """The candidates of whole journals, without an index, and their texts."""
    places: dict[str, list[TextLocation]] = {}
    spoken: list[str] = []
    for about, records in journals:
        calls: dict[str, str] = {}
        for placed in records:
            if isinstance(placed.record, Message):
                calls |= tools_called(placed.record)
                for number, p in enumerate(pieces(placed.record, calls)):
                    if since is not None and (p.at is None or p.at < since):
                        continue
                    where = (*about, p.recall_id, p.message, number, p.role, p.tool, p.agent, p.at, placed.offset)
                    places.setdefault(p.text, []).append(TextLocation(*where, len(spoken)))
                    spoken.append(p.text)
    numbers = {text: number for number, text in enumerate(places)}
    counted = CountedWords.of(list(places), asked.terms)
    rows = [(*score, number) for number, score in enumerate(counted.scores()) if score[0] > 0]
    rows.sort(key=lambda row: -row[0])
    at = [_newest_first(found) for found in places.values()]
    candidates = [
        SearchCandidate(number, score, words, tuple(at[number][:PLACES])) for score, words, number in rows[:CANDIDATES]
    ]
    held = {term.words: count for term, count in zip(asked.terms, counted.holding, strict=False)}
    return candidates, ReadTexts(list(places), at, [numbers[text] for text in spoken], held)


def _newest_first(places: list[TextLocation]) -> list[TextLocation]:
    order = sorted(range(len(places)), key=lambda n: (-(places[n].at or 0.0), -n))
    return [places[n] for n in order]
