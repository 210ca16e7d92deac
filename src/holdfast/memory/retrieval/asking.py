"""What a question asks an index for: its terms, and at less weight those that may stand in their place (MEM-4)."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.memory.retrieval.index import Index
from holdfast.memory.retrieval.likes import LIKE_SHARE, likes

SHORTEST_BEGINNING = 4  # `temporary` finds `temp`, …
LONGEST_REST = 5
BEGINNING_SHARE = 0.5
MOST_OF_ONE = 2.0  # a word that a question says ten times isn't ten times as wanted


def widened(index: Index, ask: Mapping[str, float]) -> dict[str, float]:
    """The terms of a question as asked, words used in their place, and shorter words that they begin with."""
    found = {term: min(MOST_OF_ONE, float(count)) for term, count in ask.items()}
    for term in ask:
        for other in likes(term):
            if other not in found and index.weight(other):
                found[other] = LIKE_SHARE
        if not term.isalpha() or not term.isascii():
            continue
        for end in range(len(term) - 1, max(SHORTEST_BEGINNING, len(term) - LONGEST_REST) - 1, -1):
            if index.weight(term[:end]):
                found.setdefault(term[:end], BEGINNING_SHARE)
                break
    return found
