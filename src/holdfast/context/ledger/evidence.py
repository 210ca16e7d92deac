"""Choosing evidence: a budgeted maximum cover of weighted facts by pieces of text, word for word (CMP-5)."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import repeat

from holdfast.context.ledger.extract import SAID, USER
from holdfast.context.ledger.memory import Kept
from holdfast.transcript.tokens import utf16_units

_HEADER_UNITS = 30  # what it costs to open an excerpt of another call
_GAP_UNITS = 3
_LEAST_UNITS = 60
_OLDER = 0.5  # a fact that stands here, but stood elsewhere later
_LISTED = 0.6  # a fact that a list names already, without what it stood among
_AGAIN = 0.3  # what another place says of a fact that an excerpt holds already
_GOAL_WORD = 0.06
_GOAL_MOST = 4
_WORD = re.compile(r"[A-Za-z_]{5,}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What evidence is to cover: weights of facts, where each stood last, what lists name, and words of the goal."""

    weights: Mapping[str, float]
    lasts: Mapping[str, int]
    listed: frozenset[str]
    shown: frozenset[str]  # stands in full elsewhere in the view: worth nothing here
    goal: frozenset[str] = frozenset()


def most_pieces(units: int) -> int:
    """How many pieces are worth looking at to fill so many units: several times what fits."""
    return 500 + units // 20


def goal_words(texts: Iterable[str]) -> frozenset[str]:
    """The words by which a piece is about the current goal."""
    return frozenset(word.lower() for text in texts for word in _WORD.findall(text[:2_000]))


@dataclass(slots=True)
class _Candidate:
    piece: Kept
    gains: dict[str, float]
    extra: float
    units: int


class Cover:
    """Greedy choice of the pieces that together say most for their size; `take` may be called again for more.

    No more than `most` pieces are looked at: those that would be worth most if they stood alone.
    """

    def __init__(self, pieces: list[Kept], wanted: Wanted, *, most: int) -> None:
        self.chosen: list[Kept] = []
        self._candidates = [c for piece in _best(pieces, wanted, most) if (c := _candidate(piece, wanted)) is not None]
        self._covered: dict[str, float] = {}
        self._opened: set[str] = set()
        self._heap = [(-self._ratio(c), index) for index, c in enumerate(self._candidates)]
        heapq.heapify(self._heap)

    def take(self, units: int) -> int:
        """Choose pieces for at most `units` more; returns what is left of them."""
        heap = self._heap
        too_large: list[tuple[float, int]] = []
        while heap and units > _LEAST_UNITS:
            stale, index = heapq.heappop(heap)
            candidate = self._candidates[index]
            ratio = self._ratio(candidate)
            if heap and -heap[0][0] > ratio and -stale > ratio:
                heapq.heappush(heap, (-ratio, index))
                continue
            cost = self._cost(candidate)
            if cost > units:
                too_large.append((-ratio, index))
                continue
            units -= cost
            self._covered.update((key, self._covered.get(key, 1.0) * _AGAIN) for key in candidate.gains)
            self._opened.add(candidate.piece.source)
            self.chosen.append(candidate.piece)
        for entry in too_large:
            heapq.heappush(heap, entry)
        return units

    def _cost(self, candidate: _Candidate) -> int:
        return candidate.units + (_GAP_UNITS if candidate.piece.source in self._opened else _HEADER_UNITS)

    def _ratio(self, candidate: _Candidate) -> float:
        """The new weight that a piece brings for each unit; the bonus only sharpens what it brings."""
        covered = self._covered
        gain = sum(worth * covered.get(key, 1.0) for key, worth in candidate.gains.items())
        return gain * (1 + candidate.extra) / self._cost(candidate)


def _best(pieces: list[Kept], wanted: Wanted, most: int) -> list[Kept]:
    if len(pieces) <= most:
        return pieces
    get = {key: worth for key, worth in wanted.weights.items() if key not in wanted.shown}.get
    alone = [sum(map(get, piece.keys, repeat(0.0))) / (len(piece.text) + _HEADER_UNITS) for piece in pieces]
    least = heapq.nlargest(most, alone)[-1]
    return [piece for piece, worth in zip(pieces, alone, strict=True) if worth >= least and worth > 0][:most]


def _candidate(piece: Kept, wanted: Wanted) -> _Candidate | None:
    gains: dict[str, float] = {}
    for key in piece.keys:
        worth = wanted.weights.get(key, 0.0)
        if not worth or key in wanted.shown:
            continue
        if key in wanted.listed:
            worth *= _LISTED
        if wanted.lasts.get(key, -1) != piece.last:
            worth *= _OLDER
        gains[key] = worth
    if not gains:
        return None
    words = {word.lower() for word in _WORD.findall(piece.text)} & wanted.goal if wanted.goal else ()
    extra = _GOAL_WORD * min(len(words), _GOAL_MOST) + (0.02 if piece.voice in (SAID, USER) else 0.0)
    return _Candidate(piece, gains, extra, utf16_units(piece.text) + 2 + piece.text.count("\n"))
