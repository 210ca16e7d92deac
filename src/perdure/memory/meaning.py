"""What nearness in meaning adds to a ranking of memories by words, where something can tell it (MEM-15).

It has a small share in the order, on one scale with the words, and brings in what shares no word with a question that
somebody asked. Unasked it brings in nothing: rather nothing than noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from perdure.memory.retrieval import (
    SEARCH_FLOOR,
    MemoryCard,
    MemoryQuery,
    RankedMemory,
    current_memories,
    is_left_out,
    rank_memories,
)
from perdure.text.scoring import TextIndex

MEANING_SHARE: Final = 0.3  # of the best score by words
LEAST_NEAR: Final = 0.15  # a cosine: what shares no word has to be as near …
LEAST_BEYOND: Final = 0.06  # … and so much nearer than the middle of all
MOST_BROUGHT: Final = 2  # of those
WIDER: Final = 4  # times as many are ranked by words, as order may change
ABOUT_CHARS: Final = 500  # of a memory that are looked at


def compared_text(card: MemoryCard) -> str:
    """What of a memory is compared by meaning."""
    return f"{card.name} {card.description} {' '.join(card.keywords)}"[:ABOUT_CHARS]


def rank_by_meaning(
    index: TextIndex, cards: Mapping[str, MemoryCard], wanted: MemoryQuery, near: Mapping[str, float]
) -> tuple[RankedMemory, ...]:
    """The memories for a question by words and by meaning. `near`: how near each is to the question, -1 to 1."""
    found = rank_memories(index, cards, replace(wanted, limit=wanted.limit * WIDER))
    if not near:
        return found[: wanted.limit]
    held = current_memories(cards, wanted.work)
    nearness: dict[str, float] = {}
    for file, value in near.items():  # where one that was superseded is near, the one that holds now is
        now = held.get(file, file)
        nearness[now] = max(value, nearness.get(now, -1.0))
    lowest, highest = min(nearness.values()), max(nearness.values())
    best = max((one.score for one in found if one.why != "pinned"), default=0.0)
    share = MEANING_SHARE * best / ((highest - lowest) or 1.0)
    first = [one for one in found if one.why == "pinned"]
    others = [
        replace(one, score=round(one.score + share * (nearness.get(one.card.file, lowest) - lowest), 4))
        for one in found
        if one.why != "pinned"
    ]
    others.sort(key=lambda one: (-one.score, one.card.file))
    is_asked = wanted.floor <= SEARCH_FLOOR and not wanted.is_unasked
    brought = _brought(cards, wanted, nearness, {one.card.file for one in found}) if is_asked else []
    return (*first, *others, *brought)[: wanted.limit]


def _brought(
    cards: Mapping[str, MemoryCard], wanted: MemoryQuery, nearness: Mapping[str, float], taken: set[str]
) -> list[RankedMemory]:
    """Those that share no word with the question and still stand out by their meaning."""
    values = sorted(nearness.values())
    least = max(LEAST_NEAR, values[len(values) // 2] + LEAST_BEYOND if len(values) > 1 else 0.0)
    near = (file for file, value in nearness.items() if value >= least)
    order = sorted(near, key=lambda file: (-nearness[file], file))
    fitting = (file for file in order if file not in taken and file in cards and not is_left_out(cards[file], wanted))
    return [
        RankedMemory(cards[file], round(min(SEARCH_FLOOR, nearness[file]), 4), "near in meaning")
        for file in list(fitting)[:MOST_BROUGHT]
    ]
