"""Which sessions matter to a prompt: what every store does with what it knows of them (MEM-15)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from perdure.ports.session import FoundSession, FoundSessions, PlacedRecord
from perdure.recall.sessions import MOST_SESSIONS, AskedSessions, SessionCard, SessionRanking
from perdure.text.words import terms
from perdure.transcript.messages import Message
from perdure.transcript.texts import pieces

NO_WORDS = FoundSessions((), "the prompt holds no words")


@dataclass(frozen=True, slots=True)
class KnownSession:
    """A session as a store knows it; `number` is what the store calls it."""

    number: int
    session: str
    project: str
    card: SessionCard


def eligible(known: Iterable[KnownSession], since: float | None, without: Collection[str]) -> list[KnownSession]:
    """Those that may be found, oldest first; of very many the newest."""
    found = [
        one
        for one in known
        if one.card.pieces and one.session not in without and (since is None or (one.card.ended or 0.0) >= since)
    ]
    return sorted(found, key=lambda one: (one.card.ended or 0.0, one.session))[-MOST_SESSIONS:]


def found_sessions(
    asked: AskedSessions,
    known: Sequence[KnownSession],
    held: Mapping[str, Mapping[int, float]],
    limit: int,
    note: str = "",
) -> FoundSessions:
    """The best of those that are eligible. `held`: by term and by the store's number, how many pieces hold it."""
    at = {one.number: n for n, one in enumerate(known)}
    by_place = {term: {at[n]: x for n, x in by_session.items() if n in at} for term, by_session in held.items()}
    ranking = SessionRanking(asked, [one.card for one in known], by_place)
    found = []
    for best in ranking.best(limit):
        one = known[best.number]
        found.append(
            FoundSession(
                session=one.session,
                project=one.project,
                title=one.card.title,
                at=one.card.ended,
                score=best.score,
                words=best.words,
                files=best.files,
            )
        )
    return FoundSessions(tuple(found), note)


def read_for(
    asked: AskedSessions, journals: Iterable[tuple[str, str, Sequence[PlacedRecord]]]
) -> tuple[list[KnownSession], dict[str, dict[int, float]]]:
    """What is known of whole sessions (id, project, records), without an index; and which hold the words."""
    known: list[KnownSession] = []
    held: dict[str, dict[int, float]] = {term: {} for term in asked.words}
    for number, (session, project, placed) in enumerate(journals):
        card = SessionCard()
        card.learn((one.record for one in placed), project)
        known.append(KnownSession(number, session, project, card))
        for one in placed:
            for piece in pieces(one.record, {}) if isinstance(one.record, Message) else ():
                for term in held.keys() & terms(piece.text).keys():
                    held[term][number] = held[term].get(number, 0.0) + 1
    return known, held


def sessions_read(
    prompt: str,
    journals: Iterable[tuple[str, str, Sequence[PlacedRecord]]],
    *,
    limit: int,
    since: float | None,
    without: Collection[str],
) -> FoundSessions:
    """Those of sessions that are read whole (id, project, records)."""
    asked = AskedSessions.of(prompt)
    if not asked.terms:
        return NO_WORDS
    known, held = read_for(asked, journals)
    return found_sessions(asked, eligible(known, since, without), held, limit)


def card_bytes(card: SessionCard) -> bytes:
    """A card as it is kept."""
    return _PACK.encode(card)


def card_of(data: bytes | None) -> SessionCard:
    """The same back, to go on with; an empty one where there is none."""
    return _UNPACK.decode(data) if data else SessionCard()


@lru_cache(maxsize=1_000)
def card_to_read(data: bytes | None) -> SessionCard:
    """The same, not to be changed: of sessions that gained nothing, a process that goes on has it already."""
    return card_of(data)


_PACK = msgspec.msgpack.Encoder()
_UNPACK = msgspec.msgpack.Decoder(SessionCard)
