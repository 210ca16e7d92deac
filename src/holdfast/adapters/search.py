"""`ports.Archive`: finding what was said in the sessions of a project, by an index or without one (RCL-1, SES-2)."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio.to_thread

from holdfast.adapters.files.blobs import FileBlobs
from holdfast.adapters.files.disk import DISK, Disk
from holdfast.adapters.files.index import CANDIDATES, Candidate, Place, Unusable, discard, opened
from holdfast.adapters.files.journal import FileJournal
from holdfast.adapters.files.reading import reading
from holdfast.adapters.files.store import JOURNAL, SessionStore
from holdfast.context.query import Term, best_spot, terms_of, verbatim, weighed, word_scores
from holdfast.context.said import Piece, pieces, tools_called
from holdfast.errors import JournalError, SessionNotFound
from holdfast.ports import Blobs, Found, Hit, Journal, Loaded, Placed
from holdfast.transcript.codec import decode_line
from holdfast.transcript.messages import Message

INDEX = "index.db"
_About = tuple[str, str, str]  # directory, session, project
_READ = 40  # of the best are read for what stands in them as it was written
PLACES = 50  # of one text that are named
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_NOT_DAMAGE = ("locked", "readonly", "read-only", "full", "unable to open")
_ECHO_TOOLS = frozenset({"recall"})


@dataclass(frozen=True, slots=True)
class StoreArchive:
    """The sessions of one project of a store, by the name of its folder there; all of them when it is None."""

    home: Path
    slug: str | None = None
    has_index: bool = True
    disk: Disk = DISK

    async def search(self, query: str, *, limit: int = 10, sessions: Sequence[str] = ()) -> Found:
        """What the port says. Without an index, everything is read: slower, with much the same results."""
        return await anyio.to_thread.run_sync(partial(self._search, query, limit, tuple(sessions)))

    async def load(self, session: str) -> tuple[Loaded, Blobs]:
        """All records of another session of the project, and its blobs."""
        directory = await anyio.to_thread.run_sync(self._locate, session)
        journal = await FileJournal.open(directory / JOURNAL, read_only=True, disk=self.disk)
        try:
            return await journal.load(whole=True), FileBlobs(directory / "blobs", disk=self.disk)
        finally:
            await journal.close()

    def rebuild(self) -> int:
        """Make the index anew; returns how many pieces it holds."""
        path = self.home / INDEX
        discard(path)
        with opened(path, disk=self.disk) as index:
            return index.refresh([d / JOURNAL for d in SessionStore(self.home).directories()], forget_others=True)

    # --- finding

    def _search(self, query: str, limit: int, sessions: tuple[str, ...]) -> Found:
        terms = terms_of(query)
        if not terms:
            return Found((), "the query holds no words")
        journals = [self._locate(name) / JOURNAL for name in sessions] if sessions else self._journals()
        best, note = self._indexed(terms, journals, limit, is_all=not sessions and self.slug is None)
        if best is None:
            unreadable: list[Path] = []
            candidates, texts = _weighed(terms, _read(journals, self.disk, unreadable))
            note = "; ".join(filter(None, (note, _passed_over(len(unreadable)))))
            best = ranked(candidates, terms, texts.__getitem__)[:limit]
        return Found(tuple(hit for c, score in best if (hit := self._hit(c, score, terms)) is not None), note)

    def _indexed(
        self, terms: Sequence[Term], journals: list[Path], limit: int, *, is_all: bool
    ) -> tuple[list[tuple[Candidate, float]] | None, str]:
        """The best of the index, which is made anew once when it is damaged; None when there can't be one."""
        if not self.has_index:
            return None, "searched without an index"
        path, why = self.home / INDEX, ""
        for attempt in (1, 2):
            try:
                with opened(path, disk=self.disk) as index:
                    index.refresh(journals, forget_others=is_all)
                    directories = None if is_all else [str(journal.parent) for journal in journals]
                    best = ranked(index.candidates(terms, directories), terms, index.text)[:limit]
                    found = [(replace(c, places=index.places(c.text, PLACES)), score) for c, score in best]
                    return found, _passed_over(index.unreadable)
            except (Unusable, OSError) as e:
                return None, f"searched without an index ({e})"
            except sqlite3.Error as e:
                why = str(e)
                if attempt == 2 or any(word in why for word in _NOT_DAMAGE):
                    break
                discard(path)
        return None, f"searched without an index ({why})"

    def _hit(self, candidate: Candidate, score: float, terms: Sequence[Term]) -> Hit | None:
        """A result, with its text read back from the journal; None when that isn't there any more."""
        place = candidate.places[0]
        piece = _piece_at(place, self.disk)
        if piece is None:
            return None
        return _hit_of(candidate, score, piece.text, terms)

    # --- where

    def _journals(self) -> list[Path]:
        return [directory / JOURNAL for directory in SessionStore(self.home).directories(slug=self.slug)]

    def _locate(self, session: str) -> Path:
        """A session's directory, by id or unique beginning only: a path would lead out of the project."""
        if not _SESSION_ID.fullmatch(session):
            raise SessionNotFound(f"not a session id: {session[:80]!r}")
        named = [d for d in SessionStore(self.home).directories(slug=self.slug) if d.name.startswith(session)]
        exact = [d for d in named if d.name == session] or named
        if len(exact) != 1:
            what = "no session" if not exact else f"{len(exact)} sessions"
            raise SessionNotFound(f"{what} {session!r} in this project: search names them")
        return exact[0]


def _hit_of(candidate: Candidate, score: float, text: str, terms: Sequence[Term]) -> Hit:
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


def ranked(
    found: list[Candidate], terms: Sequence[Term], text_of: Callable[[int], str]
) -> list[tuple[Candidate, float]]:
    """Best first, newer before older where they fit alike; those near the top are read for what was asked verbatim."""
    found = [c for c in found if c.places]
    times = sorted({c.places[0].at or 0.0 for c in found})
    newness = {at: number / max(1, len(times) - 1) for number, at in enumerate(times)}
    asked = len({word for term in terms for word in term.words})
    scored: list[tuple[Candidate, float]] = []
    for c in found:
        new = newness[c.places[0].at or 0.0]
        scored.append((c, weighed(c.score, coverage=asked / max(1, c.words), newness=new)))
    scored.sort(key=_best_first)
    near = [(c, score * verbatim(text_of(c.text), terms)) for c, score in scored[:_READ]]
    return sorted(near, key=_best_first) + scored[_READ:]


def _best_first(one: tuple[Candidate, float]) -> tuple[bool, float, float]:
    """What only the recall tool gave back was said elsewhere first, so it comes last."""
    candidate, score = one
    is_echo = all(place.tool.rsplit("__")[-1] in _ECHO_TOOLS for place in candidate.places)
    return (is_echo, -score, -(candidate.places[0].at or 0.0))


def _piece_at(place: Place, disk: Disk) -> Piece | None:
    try:
        with reading(disk, Path(place.directory) / JOURNAL) as reader:
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

    async def search(self, query: str, *, limit: int = 10, sessions: Sequence[str] = ()) -> Found:
        loaded = await self.journal.load(whole=True)
        self._check(loaded, *sessions)
        terms = terms_of(query)
        if not terms:
            return Found((), "the query holds no words")
        about = (loaded.header.session, loaded.header.session, loaded.header.project or "")
        candidates, texts = _weighed(terms, [(about, loaded.records)])
        best = ranked(candidates, terms, texts.__getitem__)[:limit]
        return Found(tuple(_hit_of(c, score, texts[c.text], terms) for c, score in best))

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
    return f"{what} could not be read and may hold more: `holdfast doctor` names what is wrong" if unreadable else ""


def _read(journals: Iterable[Path], disk: Disk, unreadable: list[Path]) -> Iterator[tuple[_About, Sequence[Placed]]]:
    for journal in journals:
        try:
            with reading(disk, journal) as reader:
                scan = reader.scan(reader.body)
        except JournalError:
            unreadable.append(journal)
            continue
        yield (str(journal.parent), scan.header.session, scan.header.project or ""), scan.placed


def _weighed(
    terms: Sequence[Term], journals: Iterable[tuple[_About, Sequence[Placed]]]
) -> tuple[list[Candidate], dict[int, str]]:
    """The candidates of whole journals, without an index, and their texts."""
    places: dict[str, list[Place]] = {}
    for about, records in journals:
        calls: dict[str, str] = {}
        for placed in records:
            if isinstance(placed.record, Message):
                calls |= tools_called(placed.record)
                for number, p in enumerate(pieces(placed.record, calls)):
                    where = Place(*about, p.recall_id, p.message, number, p.role, p.tool, p.agent, p.at, placed.offset)
                    places.setdefault(p.text, []).append(where)
    scores = word_scores(list(places), terms)
    rows = [(*score, text) for score, text in zip(scores, places, strict=True) if score[0] > 0]
    rows.sort(key=lambda row: -row[0])
    candidates = [
        Candidate(number, score, words, tuple(_newest_first(places[text])[:PLACES]))
        for number, (score, words, text) in enumerate(rows[:CANDIDATES])
    ]
    return candidates, {number: row[2] for number, row in enumerate(rows[:CANDIDATES])}


def _newest_first(places: list[Place]) -> list[Place]:
    order = sorted(range(len(places)), key=lambda n: (-(places[n].at or 0.0), -n))
    return [places[n] for n in order]
