"""Of memories that say the same of another value, the newest stands above (MEM-14, QLT-6).

Where one names what it supersedes, that decides (`memory.retrieval`). Here it is told from the words: two that fit a
question by much the same words of it, and share most of what they are about, differ in the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from perdure.memory.retrieval import MemoryCard, RankedMemory
from perdure.text.words import asked_terms, terms

SAME_WORDS: Final = 0.6  # of those of the question that either has
ALIKE: Final = 0.4  # shared terms of all that two are about
MOST_AHEAD: Final = 1.3  # times the score: what fits so much better stays above


def newest_first(found: Sequence[RankedMemory], query: str) -> tuple[RankedMemory, ...]:
    """The same memories; one that says what an older one above it says stands right before that, with its score."""
    asked = frozenset(asked_terms(query))
    order: list[RankedMemory] = []
    heads: list[frozenset[str]] = []
    for one in found:
        head = _about(one.card)
        older = (n for n, above in enumerate(order) if _is_older(above, one) and _is_same(heads[n], head, asked))
        place = next(older, len(order))
        moved = replace(one, score=max(one.score, order[place].score)) if place < len(order) else one
        order.insert(place, moved)
        heads.insert(place, head)
    return tuple(order)


def _is_older(above: RankedMemory, one: RankedMemory) -> bool:
    is_pinned = above.why == "pinned"
    return not is_pinned and above.card.modified < one.card.modified and above.score <= MOST_AHEAD * one.score


def _is_same(one: frozenset[str], other: frozenset[str], asked: frozenset[str]) -> bool:
    fitting, fits = one & asked, other & asked
    is_same = bool(fitting) and len(fitting & fits) >= SAME_WORDS * len(fitting | fits)
    return is_same and len(one & other) >= ALIKE * len(one | other)


def _about(card: MemoryCard) -> frozenset[str]:
    found = terms(f"{card.name} {card.description} {' '.join(card.keywords)}")
    return frozenset(term for term in found if term.isprintable())
