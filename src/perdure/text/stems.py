"""English words without their endings, after Porter's rules in a short form (MEM-4).

Two words that mean the same should meet (`painted`, `painting`, `paints`; `deployment`, `deploys`), and it matters
little what the common part looks like. Words of other languages rarely have these endings, and lose nothing.
"""

from __future__ import annotations

import re
from functools import lru_cache

_VOWEL = re.compile(r"[aeiouy]")
_MEASURE = re.compile(r"[aeiouy][^aeiouy]")
_DOUBLED = re.compile(r"([bdfgkmnprt])\1\Z")
_SHORT = re.compile(r"[^aeiouy]*[aeiouy][^aeiouywx]\Z")

# Ending, what stands in its place, and how many vowel-consonant pairs have to stay in front of it.
_LATE: tuple[tuple[str, str, int], ...] = (
    ("ization", "", 1),
    ("isation", "", 1),
    ("ational", "", 1),
    ("fulness", "", 1),
    ("iveness", "", 1),
    ("ousness", "", 1),
    ("ability", "", 1),
    ("ibility", "", 1),
    ("ically", "ic", 1),
    ("ation", "", 1),
    ("ators", "", 1),
    ("ator", "", 1),
    ("ition", "it", 1),
    ("ement", "", 1),
    ("ance", "", 1),
    ("ence", "", 1),
    ("ment", "", 1),
    ("ness", "", 1),
    ("able", "", 1),
    ("ible", "", 1),
    ("less", "", 1),
    ("ical", "ic", 1),
    ("ious", "i", 1),
    ("ize", "", 1),
    ("ise", "", 2),
    ("ful", "", 1),
    ("ive", "", 2),
    ("ous", "", 1),
    ("ist", "", 1),
    ("ism", "", 1),
    ("ity", "", 1),
    ("ate", "", 1),
    ("ant", "", 2),
    ("ent", "", 2),
    ("ion", "", 1),
    ("al", "", 1),
    ("er", "", 1),
    ("or", "", 2),
    ("ic", "", 2),
    ("ly", "", 1),
)


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """The stem of a lower-case word."""
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    found = _without_ed_ing(_singular(word))
    for _ in range(2):  # `carefully`, `hopelessness`: an ending behind an ending
        shorter = _without_late(found)
        if shorter == found:
            break
        found = shorter
    if found.endswith("e") and _measure(found[:-1]) >= 1 and len(found) > 4:
        found = found[:-1]
    if found.endswith("y") and len(found) > 3 and _VOWEL.search(found[:-1]):
        found = found[:-1] + "i"
    return found


def _measure(word: str) -> int:
    return len(_MEASURE.findall(word))


def _singular(word: str) -> str:
    if word.endswith("sses") or word.endswith("xes") or word.endswith("ches") or word.endswith("shes"):
        return word[:-2]
    if word.endswith("ies"):
        return word[:-3] + ("y" if len(word) > 4 else "ie")
    if word.endswith("s") and word[-2] not in "sui":
        return word[:-1]
    return word


def _without_ed_ing(word: str) -> str:
    if word.endswith("ied") and len(word) > 4:
        return word[:-3] + "y"
    for ending in ("ing", "ed"):
        if not word.endswith(ending):
            continue
        front = word[: -len(ending)]
        if word.endswith("eed") or len(front) < 2 or not _VOWEL.search(front):
            return word
        if _DOUBLED.search(front) and len(front) > 3:
            return front[:-1]
        if front.endswith(("at", "bl", "iz")) or (len(front) <= 4 and _measure(front) == 1 and _SHORT.search(front)):
            return front + "e"
        return front
    return word


def _without_late(word: str) -> str:
    for ending, instead, least in _LATE:
        if word.endswith(ending):
            front = word[: -len(ending)]
            if _measure(front) < least or len(front) < 3:
                return word
            if ending == "ion" and front[-1] not in "st":
                return word
            return front + instead
    return word
