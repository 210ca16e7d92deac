"""Finding what was said in the sessions of a home, by an index of stems that is made from the journals (RCL-1, SES-2).

The index finds the texts that may fit; how well they do is scored by what stands in them, as it is on files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread

from perdure.adapters.journal.search import CANDIDATES, PLACES, Asked, SearchCandidate, TextLocation, hit_of
from perdure.adapters.journal.session_search import (
    NO_WORDS,
    KnownSession,
    card_bytes,
    card_of,
    card_to_read,
    eligible,
    found_sessions,
)
from perdure.adapters.postgres.database import Database
from perdure.adapters.postgres.links import key_of
from perdure.errors import DamagedLine
from perdure.ports.session import Blobs, FoundSessions, SearchResults
from perdure.ports.session import LoadedJournal as Loaded
from perdure.recall.queries import CountedWords, QueryTerm, camel_parts, stems_of, term_weight, terms_of, words_of
from perdure.recall.sessions import MOST_SESSIONS, AskedSessions, SessionCard
from perdure.text.stems import stem
from perdure.transcript.codec import decode_line
from perdure.transcript.messages import Message
from perdure.transcript.records import Record
from perdure.transcript.texts import SpokenPiece, pieces, tools_called

if TYPE_CHECKING:
    from perdure.adapters.postgres.store import PostgresHome

_STEM_CHARS: Final = 64  # of a longer one, the beginning is what is compared
_STEMS_BYTES: Final = 500_000  # of one text: PostgreSQL takes a megabyte with what it adds
_COUNTED: Final = 20_000  # texts that hold a term; more say the same
_COMMON_SHARE: Final = 0.2  # a term in more of the texts than this, or in `_COUNTED`, finds nothing by itself
_LINES: Final = 500  # of a session that are taken in at a time
_OLDER: Final = 10  # as many candidates of which some may have been said before the time that is asked for
_CALLED_LINES: Final = 40  # before them, in which tools were called whose results these lines may hold


@dataclass(frozen=True, slots=True)
class PostgresArchive:
    """`ports.Archive` of a home: the sessions of one project, or all."""

    home: PostgresHome
    project: str | None = None

    async def search(
        self, query: str, *, limit: int = 10, sessions: Sequence[str] = (), since: float | None = None
    ) -> SearchResults:
        """What the port says."""
        terms = terms_of(query)
        if not terms:
            return SearchResults((), "the query holds no words")
        db = self.home.store.db
        named = [await self.home.located(session, project=self.project) for session in sessions]
        tenant = await db.tenant(self.home.name)
        if tenant is None:
            return SearchResults(())
        of_it = self._scope(tenant, since, [identity for _, identity in named])
        for number, indexed, project, card in await db.ask(tenant, _BEHIND, of_it):
            await _take_in(db, tenant, number, indexed, project or "", card)
        is_all = not named and self.project is None and since is None
        within = None if is_all else [row[0] for row in await db.ask(tenant, _WITHIN, of_it)]
        asked = Asked.of(query, terms)
        found = await _candidates(db, tenant, asked.terms, within, since)
        said_in = {place[0] for places in found.places.values() for place in places}
        rows = await db.ask(tenant, _ABOUT, (tenant, list(said_in)))
        about = {number: (identity, project or "") for number, identity, project in rows}
        return await anyio.to_thread.run_sync(_results, asked, found, about, limit)

    async def sessions(
        self, prompt: str, *, limit: int = 5, since: float | None = None, without: Collection[str] = ()
    ) -> FoundSessions:
        """What the port says."""
        asked = AskedSessions.of(prompt)
        if not asked.terms:
            return NO_WORDS
        db = self.home.store.db
        tenant = await db.tenant(self.home.name)
        if tenant is None:
            return FoundSessions(())
        of_it = self._scope(tenant, since, [])
        for number, indexed, project, card in await db.ask(tenant, _BEHIND, of_it):
            await _take_in(db, tenant, number, indexed, project or "", card)
        for number, indexed, project in await db.ask(tenant, _CARDLESS, of_it):
            await _make_card(db, tenant, number, indexed, project or "")
        rows = await db.ask(tenant, _CARDS, of_it | {"most": MOST_SESSIONS})
        held = await _holding_sessions(db, tenant, asked.words, None if self.project is None else [r[0] for r in rows])

        def found() -> FoundSessions:
            known = [
                KnownSession(number, one, project or "", card_to_read(card)) for number, one, project, card in rows
            ]
            return found_sessions(asked, eligible(known, since, without), held, limit)

        return await anyio.to_thread.run_sync(found)

    def _scope(self, tenant: int, since: float | None, ids: list[str]) -> dict[str, Any]:
        """Which sessions are meant, for `_SESSIONS`."""
        return {"tenant": tenant, "project": self.project, "narrow": bool(ids), "ids": ids, "since": since}

    async def load(self, session: str) -> tuple[Loaded, Blobs]:
        """All records of another session of the project, and its blobs."""
        _, identity = await self.home.located(session, project=self.project)
        opened = await self.home.open(identity, read_only=True)
        return await opened.journal.load(whole=True), opened.blobs


_SESSIONS: Final = """
FROM perdure.sessions s LEFT JOIN perdure.indexed i ON (i.tenant, i.session) = (s.tenant, s.number)
WHERE s.tenant = %(tenant)s AND (%(project)s::text IS NULL OR project = %(project)s)
  AND (NOT %(narrow)s OR id = ANY (%(ids)s::text[]))
  AND (%(since)s::float8 IS NULL OR modified >= to_timestamp(%(since)s) - interval '1 day')
"""
_WITHIN: Final = f"SELECT number {_SESSIONS}"
_BEHIND: Final = f"SELECT number, coalesce(i.seq, 0), project, card {_SESSIONS} AND coalesce(i.seq, 0) < s.seq"
_CARDLESS: Final = (
    f"SELECT number, i.seq, project {_SESSIONS} AND i.seq > 0 AND card IS NULL"  # of before there were any
)
_CARDS: Final = (
    f"SELECT number, id, project, card {_SESSIONS} AND card IS NOT NULL ORDER BY modified DESC LIMIT %(most)s"
)
_ABOUT: Final = "SELECT number, id, project FROM perdure.sessions WHERE tenant = %s AND number = ANY (%s::bigint[])"

# --- filling ----------------------------------------------------------------------------------------------------------


async def _take_in(db: Database, tenant: int, session: int, indexed: int, project: str, card: bytes | None) -> None:
    """Have the index hold what a journal gained. Whoever does the same at the same time does the rest.

    A card isn't begun in the middle: `_make_card` makes it when it is asked for.
    """
    known = card_of(card) if card is not None or not indexed else None
    while True:
        rows = await db.ask(
            tenant,
            "SELECT seq, at, line FROM perdure.records WHERE tenant = %s AND session = %s AND seq > %s "
            "ORDER BY seq LIMIT %s",
            (tenant, session, max(0, indexed - _CALLED_LINES), _LINES + _CALLED_LINES),
        )
        if not rows or rows[-1][0] <= indexed:
            return
        said = await anyio.to_thread.run_sync(indexed_pieces, rows, indexed, tenant)
        if known is not None:
            await anyio.to_thread.run_sync(
                known.learn, list(_records(row for row in rows if row[0] > indexed)), project
            )
        values = {
            "tenant": tenant, "session": session, "before": indexed, "after": rows[-1][0],
            "card": None if known is None else card_bytes(known),
            "digests": [one.digest for one in said],
            "texts": [key_of(one.piece.text) for one in said],
            "stems": [" ".join(one.stems) for one in said],
            "at": [one.at for one in said],
            "recall": [key_of(one.piece.recall_id) for one in said],
            "message": [key_of(one.piece.message) for one in said],
            "number": [one.number for one in said],
            "role": [one.piece.role for one in said],
            "tool": [key_of(one.piece.tool) for one in said],
            "agent": [None if one.piece.agent is None else key_of(one.piece.agent) for one in said],
            "said": [one.piece.at for one in said],
        }  # fmt: skip
        async with db.transaction(tenant) as cursor:
            await cursor.execute(_MOVE, values)
            if await cursor.fetchone() is None:
                return  # somebody else took these lines in, and goes on
            await cursor.execute(_TEXTS, values)
            await cursor.execute(_PLACES, values)
        indexed = rows[-1][0]


_MOVE: Final = b"""
INSERT INTO perdure.indexed AS i (tenant, session, seq, card)
SELECT tenant, number, %(after)s, %(card)b FROM perdure.sessions WHERE tenant = %(tenant)s AND number = %(session)s
ON CONFLICT (tenant, session) DO UPDATE SET seq = excluded.seq, card = excluded.card WHERE i.seq = %(before)s
RETURNING 1
"""
_TEXTS: Final = b"""
INSERT INTO perdure.texts (tenant, digest, text, stems)
SELECT DISTINCT ON (digest) %(tenant)s::bigint, digest, text, array_to_tsvector(string_to_array(stems, ' '))
FROM unnest(%(digests)b::bytea[], %(texts)b::bytea[], %(stems)s::text[]) AS new (digest, text, stems) ORDER BY digest
ON CONFLICT (tenant, digest) DO UPDATE SET digest = excluded.digest
"""  # also of one that is there: so it is locked until a place of it is, and isn't taken out meanwhile
_PLACES: Final = b"""
INSERT INTO perdure.places (tenant, session, at, text, recall, message, piece, role, tool, agent, said)
SELECT %(tenant)s, %(session)s, new.at, t.number, recall, message, piece, role, tool, agent, said
FROM unnest(%(digests)b::bytea[], %(at)s::bigint[], %(recall)b::bytea[], %(message)b::bytea[], %(number)s::int[],
  %(role)s::text[], %(tool)b::bytea[], %(agent)b::bytea[], %(said)s::float8[])
  AS new (digest, at, recall, message, piece, role, tool, agent, said)
JOIN perdure.texts t ON t.tenant = %(tenant)s AND t.digest = new.digest
"""


async def _make_card(db: Database, tenant: int, session: int, indexed: int, project: str) -> None:
    """The card of a session that was taken in before there were cards."""
    card, at = SessionCard(), 0
    while rows := await db.ask(
        tenant,
        "SELECT seq, at, line FROM perdure.records WHERE tenant = %s AND session = %s AND seq > %s AND seq <= %s "
        "ORDER BY seq LIMIT %s",
        (tenant, session, at, indexed, _LINES),
    ):
        await anyio.to_thread.run_sync(card.learn, list(_records(rows)), project)
        at = rows[-1][0]
    await db.ask(
        tenant,
        "UPDATE perdure.indexed SET card = %b WHERE tenant = %s AND session = %s AND seq = %s AND card IS NULL",
        (card_bytes(card), tenant, session, indexed),
    )


def _records(rows: Iterable[tuple[Any, ...]]) -> Iterator[Record]:
    for _, _, line in rows:
        with suppress(DamagedLine):
            yield from decode_line(bytes(line)).records


@dataclass(frozen=True, slots=True)
class IndexedPiece:
    """A piece of a message, its number within that, the offset of its line, and what the index holds of it."""

    piece: SpokenPiece
    number: int
    at: int
    digest: bytes
    stems: tuple[str, ...]


def indexed_pieces(rows: Iterable[tuple[Any, ...]], indexed: int, tenant: int) -> list[IndexedPiece]:
    """What the lines behind `indexed` say; those before it only name tools."""
    calls: dict[str, str] = {}
    found: list[IndexedPiece] = []
    for seq, at, line in rows:
        try:
            records = decode_line(bytes(line)).records
        except DamagedLine:
            continue
        for record in records:
            if isinstance(record, Message):
                calls |= tools_called(record)
                for number, piece in enumerate(pieces(record, calls) if seq > indexed else ()):
                    if stems := tuple(_keys(stems_of(piece.text), tenant)):
                        found.append(
                            IndexedPiece(piece, number, at, hashlib.sha256(key_of(piece.text)).digest(), stems)
                        )
    return found


def _keys(stems: Iterable[str], tenant: int) -> Iterator[str]:
    """Each stem once, as the index of a tenant has it; of an endless text those that come first."""
    room = _STEMS_BYTES
    for one in dict.fromkeys(stems):
        key = f"{tenant}:{one[:_STEM_CHARS]}"
        room -= len(key.encode("utf-8", "replace")) + 4
        if room < 0:
            return
        yield key


# --- finding ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _TextsFound:
    """The texts that may fit, where they were said, and how many texts hold each term, of how many."""

    terms: tuple[QueryTerm, ...]
    texts: dict[int, str]
    places: dict[int, list[tuple[Any, ...]]]
    holding: tuple[int, ...]
    total: int


async def _candidates(
    db: Database, tenant: int, terms: Sequence[QueryTerm], sessions: Sequence[int] | None, since: float | None
) -> _TextsFound:
    """What the index finds. A term that is nowhere as it stands is looked for by its words apart."""
    async with db.transaction(tenant) as cursor:

        async def held(term: QueryTerm) -> int:
            await cursor.execute(b"SELECT perdure.holding(%s::tsquery, %s)", (_query(term, tenant), _COUNTED))
            row = await cursor.fetchone()
            return row[0] if row else 0

        holding: dict[QueryTerm, int] = {}
        for term in terms:
            if count := await held(term):
                holding[term] = count
            else:
                for word in term.words if len(term.words) > 1 else ():
                    apart = QueryTerm(word, (word,))
                    if count := await held(apart):
                        holding[apart] = count
        if not holding:
            return _TextsFound((), {}, {}, (), 0)
        await cursor.execute(
            b"SELECT count(*) FROM (SELECT FROM perdure.texts WHERE tenant = %s LIMIT %s) AS texts",
            (tenant, int(_COUNTED / _COMMON_SHARE)),
        )
        row = await cursor.fetchone()
        total = row[0] if row else 0
        most = max(100, int(total * _COMMON_SHARE))
        telling = [term for term, count in holding.items() if count < most] or list(holding)
        await cursor.execute(
            b"SELECT t.number, t.text FROM perdure.matching(%s::tsquery, %s::tsquery[], %s::float8[], %s::bigint[], %s)"
            b" m JOIN perdure.texts t ON t.tenant = %s AND t.number = m.number",
            (
                " | ".join(f"({_query(term, tenant)})" for term in telling),
                [_query(term, tenant) for term in holding],
                [term_weight(count, total) for count in holding.values()],
                sessions,
                CANDIDATES if since is None else CANDIDATES * _OLDER,
                tenant,
            ),
        )
        texts = {number: bytes(text).decode("utf-8", "surrogatepass") for number, text in await cursor.fetchall()}
        values = {"tenant": tenant, "texts": list(texts), "sessions": sessions, "since": since, "most": PLACES}
        await cursor.execute(_WHERE, values)
        places: dict[int, list[tuple[Any, ...]]] = {}
        for number, *place in await cursor.fetchall():
            places.setdefault(number, []).append(tuple(place))
    return _TextsFound(tuple(holding), texts, places, tuple(holding.values()), total)


async def _holding_sessions(
    db: Database, tenant: int, words: Mapping[str, str], sessions: Sequence[int] | None
) -> dict[str, dict[int, float]]:
    """Of each word, by its term, how many texts of which sessions hold it; of very many the newest."""
    found: dict[str, dict[int, float]] = {}
    async with db.transaction(tenant) as cursor:
        for term, word in words.items():
            query = _query(QueryTerm(word, tuple(words_of(word))), tenant)
            await cursor.execute(_HOLDING, (query, [query], sessions, _COUNTED_OF_SESSIONS, tenant))
            found[term] = {number: float(count) for number, count in await cursor.fetchall()}
    return found


_COUNTED_OF_SESSIONS: Final = 2_000  # texts that hold a word
_HOLDING: Final = b"""
SELECT p.session, count(*) FROM perdure.matching(%s::tsquery, %s::tsquery[], '{1.0}', %s::bigint[], %s) m
JOIN perdure.places p ON p.tenant = %s AND p.text = m.number GROUP BY p.session
"""
_WHERE: Final = b"""
SELECT text, session, recall, message, piece, role, tool, agent, said, at FROM (
  SELECT p.*, row_number() OVER (PARTITION BY text ORDER BY said DESC NULLS LAST, session DESC, at DESC, piece) AS place
  FROM perdure.places p WHERE tenant = %(tenant)s AND text = ANY (%(texts)s::bigint[])
    AND (%(sessions)s::bigint[] IS NULL OR session = ANY (%(sessions)s))
    AND (%(since)s::float8 IS NULL OR said >= %(since)s)) AS newest
WHERE place <= %(most)s ORDER BY text, place
"""


def _query(term: QueryTerm, tenant: int) -> str:
    """The texts that hold a term's words, or the parts of the name in camelCase that it is, in PostgreSQL's words."""

    def every(words: Iterable[str]) -> str:
        return " & ".join(f"'{key}'" for key in _keys((stem(word) for word in words), tenant))

    whole, parts = every(term.words), every(words_of(camel_parts(term.written)))
    return f"({whole}) | ({parts})" if parts and parts != whole else whole


def _results(asked: Asked, found: _TextsFound, about: dict[int, tuple[str, str]], limit: int) -> SearchResults:
    """The texts scored by what stands in them, best first."""
    numbers = [number for number in found.texts if any(place[0] in about for place in found.places.get(number, ()))]
    texts = [found.texts[number] for number in numbers]
    scores = CountedWords.of(texts, found.terms).scores(holding=found.holding, total=found.total)
    candidates = [
        SearchCandidate(
            at, score, words, tuple(_location(place, about) for place in found.places[number] if place[0] in about)
        )
        for at, (number, (score, words)) in enumerate(zip(numbers, scores, strict=True))
        if score > 0
    ]
    known = _KnownTexts(
        texts, {term.words: count for term, count in zip(found.terms, found.holding, strict=True)}, found.total
    )
    best = replace(asked, terms=found.terms).best(candidates, known)[:limit]
    return SearchResults(tuple(hit_of(c, score, texts[c.text], found.terms) for c, score in best))


@dataclass(frozen=True, slots=True)
class _KnownTexts:
    """`SearchTexts` of what was read. What stands around a text isn't among it."""

    texts: Sequence[str]
    holds: Mapping[tuple[str, ...], int]
    total: int

    def text(self, text: int) -> str:
        return self.texts[text]

    def around(self, places: Collection[int], reach: int) -> list[SearchCandidate]:
        return []

    def holding(self, terms: Sequence[QueryTerm]) -> tuple[int, list[int]]:
        return self.total, [self.holds.get(term.words, 0) for term in terms]


def _location(place: tuple[Any, ...], about: dict[int, tuple[str, str]]) -> TextLocation:
    session, recall, message, piece, role, tool, agent, said, at = place
    identity, project = about[session]
    names = (bytes(one).decode("utf-8", "surrogatepass") for one in (recall, message, tool))
    recall_id, message_id, tool_name = names
    by = None if agent is None else bytes(agent).decode("utf-8", "surrogatepass")
    return TextLocation(identity, identity, project, recall_id, message_id, piece, role, tool_name, by, said, at)


FORGET: Final = b"""
DELETE FROM perdure.texts t WHERE tenant = %(tenant)s AND number = ANY (%(texts)s::bigint[])
  AND NOT EXISTS (SELECT FROM perdure.places p WHERE p.tenant = %(tenant)s AND p.text = t.number)
"""  # the texts among these that nobody says any more
