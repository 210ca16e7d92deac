"""What is known of a file's text: runs of its lines, from what reads showed and edits said.

Knowledge is kept only while it is certain. An edit whose place isn't in a known run, or could be in several, makes the
file unknown, and it stays so until it is read or written again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Span = tuple[int, int]  # first and last line, from 1
Edit = tuple[str, str, bool]  # old, new, everywhere

# How agents number the lines of a file: "   12→text", "12<tab>text", "00012| text", "12 | text", SWE-agent "12:text".
_NUMBERED = re.compile(r"^ {0,8}(\d{1,7})(?:→|\t|\| ?| \| ?)(.*)$", re.MULTILINE)
_COLON = re.compile(r"^(\d{1,7}):(.*)$", re.MULTILINE)
_LEAD_LINES = 12  # a header of at most this many lines may stand before the first number
_CUT = ("tokens truncated…", "characters truncated", "output_head>", "<truncated", "[truncated", "lines truncated")


@dataclass(frozen=True, slots=True)
class Run:
    """Lines that stand together; `first` is the number of the first one."""

    first: int
    lines: tuple[str, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1


@dataclass(frozen=True, slots=True)
class Known:
    """The known runs of a file, in order, apart from each other; `is_whole` when they are all of it."""

    runs: tuple[Run, ...] = ()
    is_whole: bool = False

    @classmethod
    def whole(cls, text: str) -> Known:
        """All of a file."""
        lines = text.split("\n")
        if lines and not lines[-1]:
            lines.pop()
        return cls((Run(1, tuple(lines)),) if lines else (), is_whole=True)

    @property
    def lines(self) -> dict[int, str]:
        return {run.first + i: line for run in self.runs for i, line in enumerate(run.lines)}

    @property
    def last(self) -> int:
        return self.runs[-1].last if self.runs else 0

    def seen(self, run: Run, *, is_whole: bool = False) -> Known:
        """With the lines of a newer read, which win where they differ from older ones."""
        if is_whole or not run.lines:
            return Known((run,) if run.lines else (), is_whole=True) if is_whole else self
        lines = self.lines | {run.first + i: line for i, line in enumerate(run.lines)}
        return Known(runs_of(lines), is_whole=self.is_whole and run.last <= self.last)

    def edited(self, edits: Iterable[Edit]) -> Known | None:
        """After replacements, one after the other; None when it isn't certain what it says now."""
        known: Known | None = self
        for edit in edits:
            known = known._replaced(edit) if known is not None else None
        return known

    def _replaced(self, edit: Edit) -> Known | None:
        old, new, everywhere = edit
        if not old or old == new:
            return self if old == new else None
        texts = ["\n".join(run.lines) + "\n" for run in self.runs]
        hits = [text.count(old) for text in texts]
        shift = new.count("\n") - old.count("\n")
        if not sum(hits) or (sum(hits) > 1 and not everywhere):
            return None
        if everywhere and not self.is_whole and shift:
            return None  # the places that aren't known may have moved the lines as well
        if not self.is_whole and any(text.find(old, 0, 2 * len(old)) >= 0 for text in texts) and _overlaps_itself(old):
            return None  # it may have been found a little earlier, where the lines aren't known
        runs, moved = [], 0
        for run, text, count in zip(self.runs, texts, hits, strict=True):
            changed = text.replace(old, new) if count else text
            if changed and not changed.endswith("\n") and not self.is_whole:
                return None  # it joins a line that isn't known
            lines = tuple(changed.removesuffix("\n").split("\n")) if changed.strip("\n") or count == 0 else ()
            if lines:
                runs.append(Run(run.first + moved, lines))
            moved += shift * count
        return Known(tuple(runs), self.is_whole)

    def agrees(self, text: str) -> bool:
        """Whether every known run still stands in a text, wherever."""
        haystack = "\n" + text.rstrip("\n") + "\n"
        if self.is_whole:
            return "\n".join(line for run in self.runs for line in run.lines).rstrip("\n") == text.rstrip("\n")
        return all("\n" + "\n".join(run.lines).rstrip("\n") + "\n" in haystack for run in self.runs)


def _overlaps_itself(text: str) -> bool:
    """Whether a text ends as it begins, so that two places of it can overlap.

    Knuth, Morris and Pratt's table of borders: one look at each character, whatever the text (SPD-8).
    """
    borders = [0] * len(text)
    border = 0
    for at in range(1, len(text)):
        while border and text[at] != text[border]:
            border = borders[border - 1]
        border += text[at] == text[border]
        borders[at] = border
    return border > 0


def runs_of(lines: dict[int, str]) -> tuple[Run, ...]:
    """Lines by number as runs."""
    runs: list[Run] = []
    start, some = 0, list[str]()
    for number in sorted(lines):
        if some and number == start + len(some):
            some.append(lines[number])
            continue
        if some:
            runs.append(Run(start, tuple(some)))
        start, some = number, [lines[number]]
    if some:
        runs.append(Run(start, tuple(some)))
    return tuple(runs)


def numbered(text: str, *, colon: bool = False) -> Run | None:
    """The lines of a listing with numbers; None when it isn't one. What stands behind the listing is left out."""
    rows, shape = text.split("\n"), _COLON if colon else _NUMBERED
    start = next((i for i, row in enumerate(rows[:_LEAD_LINES]) if shape.match(row)), None)
    if start is None:
        return None
    if (whole := _all_numbered(rows[start:], shape)) is not None:
        return whole
    match, following, lines = shape.match, -1, list[str]()
    for row in rows[start:]:
        found = match(row)
        if found is None:
            break
        number, text = found.group(1, 2)
        if following >= 0 and int(number) != following:
            break
        following = int(number) + 1
        lines.append(text)
    return Run(following - len(lines), tuple(lines))


def _all_numbered(rows: list[str], shape: re.Pattern[str]) -> Run | None:
    """The run when every row is numbered, as it nearly always is: one call for all of them."""
    while rows and not rows[-1]:
        rows.pop()
    found = shape.findall("\n".join(rows))
    if len(found) != len(rows):
        return None
    first = int(found[0][0])
    is_run = [int(number) for number, _ in found] == list(range(first, first + len(found)))
    return Run(first, tuple(text for _, text in found)) if is_run else None


def is_cut(text: str) -> bool:
    """Whether a tool left something out of its own output."""
    return any(mark in text for mark in _CUT)


def listing(runs: Sequence[Run]) -> str:
    """Runs as numbered lines, with a mark where lines are missing; `numbered_runs` reads it back."""
    rows: list[str] = []
    for index, run in enumerate(runs):
        if index:
            rows.append("…")
        rows += [f"{run.first + i}\t{line}" for i, line in enumerate(run.lines)]
    return "\n".join(rows)


def numbered_runs(text: str) -> tuple[Run, ...]:
    """The runs of a listing made by `listing`."""
    lines: dict[int, str] = {}
    for row in text.split("\n"):
        number, tab, line = row.partition("\t")
        if tab and number.isdigit():
            lines[int(number)] = line
    return runs_of(lines)


def chosen(known: Known, focus: Sequence[Span], fits: int, price: float) -> tuple[tuple[Run, ...], int]:
    """The lines to show within `fits` units, at `price` units a character: all, else the spans in focus, then the
    head. Gives the runs and how many known lines were left out.
    """
    lines = known.lines
    cost = {number: (len(line) + len(str(number)) + 2) * price for number, line in lines.items()}
    if sum(cost.values()) <= fits:
        return known.runs, 0
    taken: dict[int, str] = {}
    room = fits - 4.0
    order = [number for first, last in focus for number in range(first, min(last, known.last) + 1)]
    for number in dict.fromkeys((*order, *sorted(lines))):
        if number not in lines:
            continue
        room -= cost[number] + (0 if number - 1 in taken or number + 1 in taken else 4 * price)
        if room < 0:
            break
        taken[number] = lines[number]
    return runs_of(taken), len(lines) - len(taken)
