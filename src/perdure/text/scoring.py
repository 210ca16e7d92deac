"""An inverted index with fields, ranked by BM25F, and what a question asks of it (MEM-4, MEM-12)."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from perdure.text.synonyms import LIKE_SHARE, similar_terms

K1 = 1.2
_SWEEP_SHARE = 0.2  # of the entries may be dead
_COMMON_SHARE = 0.4  # a term in more of the texts than that says nothing while others do …
_COMMON_LEAST = 5_000  # … in a corpus of at least so many


@dataclass(frozen=True, slots=True)
class IndexField:
    """What a part of a text counts: its weight, and how much of it being long is held against it (0 to 1)."""

    weight: float = 1.0
    length_share: float = 0.4


Fields = Mapping[str, IndexField]
Counts = Mapping[str, Mapping[str, float]]  # of a text: field, term, how often
Postings = tuple["array[int]", "array[float]"]


class TermWeights(Protocol):
    """What says how much a term tells: little for common ones, nothing for unknown ones."""

    def weight(self, term: str) -> float: ...


class PackedIndex(msgspec.Struct, frozen=True, array_like=True):
    """An index as bytes are made of it: the keys, the average lengths, and for each term its two arrays."""

    keys: list[str | None]
    lengths: dict[str, float]
    terms: dict[str, tuple[bytes, bytes]]


@dataclass(slots=True)
class TextIndex:
    """Texts by key. `fields` may not change once there are texts in it.

    `background` texts are thought beside them that hold nothing: else among three texts no term could be rare.
    """

    fields: Fields
    background: int = 0
    keys: list[str | None] = field(default_factory=list)  # by number; None: it went
    _numbers: dict[str, int] = field(default_factory=dict)
    _terms: dict[str, Postings | tuple[bytes, bytes]] = field(default_factory=dict)
    _averages: dict[str, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, key: str) -> bool:
        return key in self._numbers

    @property
    def numbers(self) -> Mapping[str, int]:
        """The number of each key: its place in what `scores` gives."""
        return self._numbers

    # --- in and out

    def fill(self, texts: Iterable[tuple[str, Counts]]) -> None:
        """Many texts at once, which sets the average lengths that weights are made with."""
        held = list(texts)
        for name in self.fields:
            sizes = [sum(counts[name].values()) for _, counts in held if counts.get(name)]
            self._averages[name] = sum(sizes) / len(sizes) if sizes else 1.0
        for key, counts in held:
            self.put(key, counts)

    def put(self, key: str, counts: Counts) -> None:
        """One text, in place of what its key had."""
        self.drop(key)
        number = len(self.keys)
        self.keys.append(key)
        self._numbers[key] = number
        posted = self._terms
        for term, weight in self._weights(counts).items():
            held = posted.get(term)
            if held is None:
                held = posted[term] = (array("I"), array("f"))
            elif held[0].__class__ is bytes:
                held = self._read(term, held)
            held[0].append(number)  # type: ignore[union-attr]  # both are arrays now
            held[1].append(weight * (K1 + 1) / (weight + K1))  # type: ignore[union-attr]

    def drop(self, key: str) -> None:
        """Forget a text; one that isn't there is none."""
        number = self._numbers.pop(key, None)
        if number is None:
            return
        self.keys[number] = None
        if len(self.keys) > 64 and len(self.keys) - len(self._numbers) > _SWEEP_SHARE * len(self.keys):
            self._sweep()

    def _weights(self, counts: Counts) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, terms in counts.items():
            form = self.fields[name]
            size = sum(terms.values()) / (self._averages.get(name) or 1.0)
            one = form.weight / (1 - form.length_share + form.length_share * size)
            for term, count in terms.items():
                found[term] = found.get(term, 0.0) + one * count
        return found

    def _sweep(self) -> None:
        new = {old: n for n, old in enumerate(n for n, key in enumerate(self.keys) if key is not None)}
        for term in list(self._terms):
            at, weights = self._posted(term) or (array("I"), array("f"))
            kept = [(new[n], w) for n, w in zip(at, weights, strict=True) if n in new]
            if kept:
                self._terms[term] = (array("I", [n for n, _ in kept]), array("f", [w for _, w in kept]))
            else:
                del self._terms[term]
        self.keys = [key for key in self.keys if key is not None]
        self._numbers = {key: n for n, key in enumerate(self.keys) if key is not None}

    # --- asking

    def weight(self, term: str) -> float:
        """How much it says that a text holds this term: little for common ones, nothing for unknown ones."""
        posted = self._posted(term)
        if posted is None:
            return 0.0
        holds = min(len(posted[0]), len(self.keys))
        return math.log(1 + (len(self.keys) + self.background - holds + 0.5) / (holds + 0.5))

    def knows(self, term: str) -> bool:
        """Whether any text holds this term, or did."""
        return term in self._terms

    @property
    def rare(self) -> float:
        """The weight that a term would have which a single text held."""
        return math.log(1 + (len(self.keys) + self.background + 0.5) / 1.5)

    def scores(self, asked: Mapping[str, float]) -> list[float]:
        """What each text scores, by its number; 0 for those that hold nothing of it, or went."""
        total = [0.0] * len(self.keys)
        found = [(term, count, posted) for term, count in asked.items() if (posted := self._posted(term)) is not None]
        if len(self.keys) >= _COMMON_LEAST:
            most = _COMMON_SHARE * len(self.keys)
            found = [one for one in found if len(one[2][0]) <= most] or found
        for term, count, (at, weights) in found:
            weight = self.weight(term) * count
            for number, share in zip(at, weights, strict=True):
                total[number] += weight * share
        for number, key in enumerate(self.keys) if len(self._numbers) < len(self.keys) else ():
            if key is None:
                total[number] = 0.0
        return total

    def share(self, term: str, number: int) -> float:
        """What a text scores for one term that is asked for once."""
        posted = self._posted(term)
        at = -1 if posted is None else _place(posted[0], number)
        return 0.0 if posted is None or at < 0 else self.weight(term) * posted[1][at]

    def matched(self, asked: Iterable[str], number: int) -> tuple[str, ...]:
        """Those terms of a question that a text holds, those that say most first."""
        held = []
        for term in asked:
            posted = self._posted(term)
            if posted is not None and _place(posted[0], number) >= 0:
                held.append((-self.weight(term), term))
        return tuple(term for _, term in sorted(held))

    def _posted(self, term: str) -> Postings | None:
        posted = self._terms.get(term)
        return None if posted is None else self._read(term, posted)

    def _read(self, term: str, posted: Postings | tuple[bytes, bytes]) -> Postings:
        """The arrays of a term, out of their bytes if nobody asked for it before."""
        numbers, weights = posted
        if isinstance(numbers, bytes) or isinstance(weights, bytes):
            found: Postings = (array("I"), array("f"))
            found[0].frombytes(bytes(numbers))
            found[1].frombytes(bytes(weights))
            self._terms[term] = found
            return found
        return (numbers, weights)

    # --- to bytes and back

    def packed(self) -> PackedIndex:
        """As it is, to be stored."""
        terms = {
            term: (n if isinstance(n, bytes) else n.tobytes(), w if isinstance(w, bytes) else w.tobytes())
            for term, (n, w) in self._terms.items()
        }
        return PackedIndex(list(self.keys), dict(self._averages), terms)

    @classmethod
    def unpacked(cls, fields: Fields, packed: PackedIndex, *, background: int = 0) -> TextIndex:
        """As it was. Arrays of a term are read when it is first asked for."""
        index = cls(fields, background, list(packed.keys))
        index._numbers = {key: n for n, key in enumerate(index.keys) if key is not None}
        index._terms = dict(packed.terms)
        index._averages = dict(packed.lengths)
        return index


def _place(numbers: Sequence[int], number: int) -> int:
    """Where a sorted array has a number; -1: nowhere."""
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < len(numbers) and numbers[low] == number else -1


SHORTEST_BEGINNING = 4  # `temporary` finds `temp`, …
LONGEST_REST = 5
BEGINNING_SHARE = 0.5
MOST_OF_ONE = 2.0  # a word that a question says ten times isn't ten times as wanted


def widen_terms(index: TermWeights, ask: Mapping[str, float]) -> dict[str, float]:
    """The terms of a question as asked, words used in their place, and shorter words that they begin with."""
    found = {term: min(MOST_OF_ONE, float(count)) for term, count in ask.items()}
    for term in ask:
        for other in similar_terms(term):
            if other not in found and index.weight(other):
                found[other] = LIKE_SHARE
        if (shorter := next((one for one in beginnings(term) if index.weight(one)), None)) is not None:
            found.setdefault(shorter, BEGINNING_SHARE)
    return found


def beginnings(term: str) -> list[str]:
    """The shorter words that a term may begin with, the longest first."""
    if not term.isalpha() or not term.isascii():
        return []
    return [term[:end] for end in range(len(term) - 1, max(SHORTEST_BEGINNING, len(term) - LONGEST_REST) - 1, -1)]
