"""What a question costs with 100 to 100,000 memories, in a corpus made up for it (SPD-4).

Words are drawn as they are in text (Zipf), so that there are terms which a fifth of all memories hold. Ratios between
the sizes say more than the milliseconds of one machine.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.bench.retrieval import quantile
from holdfast.memory.retrieval.memories import Card, Wanted, empty_index, ranked

SIZES = (100, 1_000, 10_000, 100_000)
QUESTIONS = 60
_VOCABULARY = 30_000
_BODY_TERMS, _HEAD_TERMS = 80, 8


@dataclass(frozen=True, slots=True)
class Timed:
    """Of one size: milliseconds of a question at the median and at the worst, and seconds to make the index."""

    memories: int
    p50_ms: float
    p99_ms: float
    build_seconds: float


def timed(sizes: Sequence[int] = SIZES, *, seed: int = 7) -> list[Timed]:
    """Measure each size with the same questions."""
    return [_timed(size, seed) for size in sizes]


def _timed(size: int, seed: int) -> Timed:
    chance = random.Random(seed)
    words = [f"word{_letters(n)}" for n in range(_VOCABULARY)]
    weights = list(itertools.accumulate(1 / (n + 10) for n in range(_VOCABULARY)))

    def drawn(count: int) -> list[str]:
        return chance.choices(words, cum_weights=weights, k=count)

    index = empty_index()
    cards: dict[str, Card] = {}

    def made() -> list[tuple[str, dict[str, Counter[str]]]]:
        texts = []
        for number in range(size):
            file = f"note_{number}.md"
            head = drawn(_HEAD_TERMS)
            cards[file] = Card(file=file, name=" ".join(head[:3]), description=" ".join(head), modified=float(number))
            texts.append(
                (file, {"name": Counter(head[:3]), "description": Counter(head), "body": Counter(drawn(_BODY_TERMS))})
            )
        return texts

    texts = made()
    began = time.perf_counter()
    index.fill(texts)
    build = time.perf_counter() - began
    spent = []
    for _ in range(QUESTIONS):
        query = " ".join(drawn(chance.randrange(3, 14)))
        began = time.perf_counter()
        ranked(index, cards, Wanted(query=query, now=float(size)))
        spent.append(1000 * (time.perf_counter() - began))
    spent.sort()
    return Timed(size, quantile(spent, 0.5), quantile(spent, 0.99), build)


def _letters(number: int) -> str:
    """A number in letters, so that it is a word."""
    found = ""
    while True:
        number, digit = divmod(number, 20)
        found = "bcdfghjklmnpqrtvwxza"[digit] + found
        if not number:
            return found
