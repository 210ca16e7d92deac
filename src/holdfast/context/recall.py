"""A recall: what is asked for, and how much of it is given back, with a note of what is left out (RCL-1).

What comes back is bounded, so it is never offloaded again. Lines and characters count from 1, both ends included.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.context.originals import Original
from holdfast.context.patterns import compiled
from holdfast.errors import HoldfastError

TOOL = "recall"
LIMIT_CHARS = 20_000  # below every tool's limit for a result (TURN-2)
MATCH_CHARS = 400  # of one matching line
_RANGE = re.compile(r"\s*(\d{1,12})\s*(?:(-|\.\.|:|,)\s*(\d{1,12})?\s*)?")


class BadRecall(HoldfastError):
    """What was asked for can't be given; the message says what can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a recall asks for: an id, and a part of what it stands for; without one, its beginning."""

    id: str
    lines: tuple[int, int | None] | None = None
    chars: tuple[int, int | None] | None = None
    pattern: str | None = None
    limit_chars: int = LIMIT_CHARS


@dataclass(frozen=True, slots=True)
class Shown:
    """What a recall gives: exact text (`body`), where it stands in the whole, and what to ask for the rest.

    `lines` and `chars` are the ranges that `body` covers; None for matching lines, which `matches` counts.
    """

    original: Original
    body: str
    total_lines: int
    lines: tuple[int, int] | None = None
    chars: tuple[int, int] | None = None
    matches: int | None = None
    left_out: str = ""

    @property
    def is_whole(self) -> bool:
        return self.body == self.original.text

    def framed(self) -> str:
        """The result of the tool: what this is, the text, and what is left out."""
        original = self.original
        size = f"{self.total_lines:,} lines, {len(original.text):,} characters"
        lead = f"[recalled {original.id}: {original.what}; {size}{'' if self.is_whole else '; ' + self._part()}]"
        note = f"\n[{self.left_out}]" if self.left_out else ""
        return f"{lead}\n{self.body}{note}"

    def _part(self) -> str:
        if self.matches is not None:
            return f"{self.matches:,} matching lines"
        if self.chars is not None:
            return f"characters {self.chars[0]}-{self.chars[1]}"
        return f"lines {self.lines[0]}-{self.lines[1]}" if self.lines else "nothing of it"


def range_of(text: str, *, what: str) -> tuple[int, int | None]:
    """A range as it is written: `7`, `10-20`, `10-` (to the end)."""
    found = _RANGE.fullmatch(text)
    if found is None:
        raise BadRecall(f"{what} {text[:40]!r}: write 10-20, 10- or 7")
    first = int(found[1])
    last = first if found[2] is None else (int(found[3]) if found[3] else None)
    if first < 1 or (last is not None and last < first):
        raise BadRecall(f"{what} {text[:40]!r}: they count from 1, the first no greater than the last")
    return first, last


def shown(original: Original, wanted: Wanted) -> Shown:
    """The part of an original that was asked for, as far as the limit allows."""
    text = original.text
    total = text.count("\n") + 1
    if wanted.pattern is not None:
        return _matching(original, wanted, total)
    if wanted.chars is not None:
        first, last = wanted.chars
        return _characters(original, (first, min(last or len(text), len(text))), total, wanted.limit_chars)
    first, last = wanted.lines or (1, None)
    if first > total:
        raise BadRecall(f"{original.id} has {total:,} lines: there is no line {first:,}")
    return _lines(original, (first, min(last or total, total)), total, wanted.limit_chars)


def _lines(original: Original, span: tuple[int, int], total: int, limit: int) -> Shown:
    first, last = span
    if (first, last) == (1, total) and len(original.text) <= limit:
        return Shown(original, original.text, total, lines=span)
    rows = original.text.split("\n")
    end, room = first - 1, limit
    while end < last and len(rows[end]) <= room:
        room -= len(rows[end]) + 1
        end += 1
    if end < first:  # not even one line fits
        start = sum(len(row) + 1 for row in rows[: first - 1]) + 1
        return _characters(original, (start, start + len(rows[first - 1]) - 1), total, limit)
    left = f'left out: lines {end + 1}-{last}; ask for them with lines "{end + 1}-{last}", or with a pattern'
    body = "\n".join(rows[first - 1 : end])
    return Shown(original, body, total, lines=(first, end), left_out=left if end < last else "")


def _characters(original: Original, span: tuple[int, int], total: int, limit: int) -> Shown:
    text = original.text
    first, last = span
    if first > max(1, len(text)):
        raise BadRecall(f"{original.id} has {len(text):,} characters: there is no character {first:,}")
    end = min(last, first + limit - 1)
    after = f"{end + 1}-{min(len(text), end + limit)}"
    left = f'left out: characters {end + 1}-{len(text)}; ask for them with chars "{after}", or with a pattern'
    return Shown(original, text[first - 1 : end], total, chars=(first, end), left_out=left if end < len(text) else "")


def _matching(original: Original, wanted: Wanted, total: int) -> Shown:
    """Lines that match, each behind its number."""
    pattern = compiled(wanted.pattern or "")
    first, last = wanted.lines or (1, None)
    found: list[str] = []
    matches, room, stopped = 0, wanted.limit_chars, 0
    for number, line in enumerate(original.text.split("\n")[first - 1 : last], first):
        span = pattern.find(line)
        if span is None:
            continue
        matches += 1
        row = f"{number}: {_around(line, span)}"
        if stopped or len(row) > room:
            stopped = stopped or number
            continue
        room -= len(row) + 1
        found.append(row)
    notes = [pattern.note] if pattern.note else []
    if stopped:
        notes.append(
            f"{matches - len(found):,} of {matches:,} matching lines left out, from line {stopped} on: "
            f'ask again with lines "{stopped}-" and the same pattern'
        )
    if not matches:
        notes.append(f"no line matches {wanted.pattern!r}")
    return Shown(original, "\n".join(found), total, matches=matches, left_out="; ".join(notes))


def _around(line: str, span: tuple[int, int]) -> str:
    """A line, or the part of a long one around the match."""
    if len(line) <= MATCH_CHARS:
        return line
    start = max(0, min(span[0] - MATCH_CHARS // 4, len(line) - MATCH_CHARS))
    end = start + MATCH_CHARS
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''} (from character {start + 1})"
