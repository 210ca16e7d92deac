"""Two changes of one text put together, line by line, when neither touches lines that the other changed (MEM-9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

_MOST_CELLS = 4_000_000  # lines against lines; beyond it, what differs counts as one change


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines `start` to `end` of the base give way to `lines`. An insertion has `start == end`."""

    start: int
    end: int
    lines: tuple[str, ...]


def merge(base: str, mine: str, theirs: str) -> str | None:
    """Both changes of `base` in one text; None when they change the same lines, or one cuts what the other extends.

    Lines that both insert at the same place are all kept, theirs first; the same change by both counts once.
    """
    if mine == theirs or theirs == base:
        return mine
    if mine == base:
        return theirs
    lines = base.split("\n")
    both = _combined(hunks(lines, theirs.split("\n")), hunks(lines, mine.split("\n")))
    if both is None:
        return None
    merged: list[str] = []
    at = 0
    for hunk in both:
        merged += lines[at : hunk.start]
        merged += hunk.lines
        at = hunk.end
    return "\n".join((*merged, *lines[at:]))


def hunks(base: Sequence[str], other: Sequence[str]) -> list[Hunk]:
    """What has to change in `base` to become `other`, in order."""
    head = 0
    while head < min(len(base), len(other)) and base[head] == other[head]:
        head += 1
    tail = 0
    while tail < min(len(base), len(other)) - head and base[-1 - tail] == other[-1 - tail]:
        tail += 1
    old, new = base[head : len(base) - tail], other[head : len(other) - tail]
    if not old and not new:
        return []
    if not old or not new or len(old) * len(new) > _MOST_CELLS:
        return [Hunk(head, head + len(old), tuple(new))]
    codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [Hunk(head + i, head + j, tuple(new[k:m])) for tag, i, j, k, m in codes if tag != "equal"]


def _combined(theirs: list[Hunk], mine: list[Hunk]) -> list[Hunk] | None:
    """Both in one order; None when two of them are about the same lines."""
    found = list(theirs)
    for hunk in mine:
        if hunk in theirs:
            continue
        if any(_collide(hunk, other) for other in theirs):
            return None
        found.append(hunk)
    return sorted(found, key=lambda hunk: (hunk.start, hunk.end))  # an insertion before what follows; theirs first


def _collide(one: Hunk, other: Hunk) -> bool:
    if one.start == one.end or other.start == other.end:
        first, second = (one, other) if one.start == one.end else (other, one)
        return second.start < first.start < second.end
    return one.start < other.end and other.start < one.end
