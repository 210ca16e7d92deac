"""Dates that follow from when something was said, as dates that stay true: `tomorrow` becomes `2026-11-23` (MEM-11).

Days are those of UTC. Only what names one day is changed; `last week` becomes the day that its week began on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_COUNTS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_DAY = "|".join(_DAYS)
_COUNT = rf"(\d{{1,3}}|an?|{'|'.join(_COUNTS)})"
_NEAR = {"today": 0, "tonight": 0, "this morning": 0, "this afternoon": 0, "this evening": 0, "yesterday": -1}
_NEAR |= {"last night": -1, "tomorrow": 1, "the day after tomorrow": 2, "the day before yesterday": -2}
_NEAR_WORDS = "|".join(sorted(_NEAR, key=len, reverse=True)).replace(" ", r"\s+")

_PARTS = re.compile(r"(```.*?```|`[^`\n]*`|\"[^\"\n]*\"|“[^”\n]*”|(?<=[.!?])\s+|\n)", re.DOTALL)
_KEPT = frozenset('`"“')  # code, and what somebody said word for word
# `in two weeks` may be a span, too: it is a day where something is to happen then.
_TO_COME = re.compile(
    r"\b(?:will|due|deadline|ships?|launch\w*|releas\w+|freez\w+|going to|starts?|ends?|expires?)\b", re.I
)
_EVERY = re.compile(rf"\b(?:every|each|{'|'.join(f'{one}s' for one in _DAYS)})\b", re.I)


def day_of(at: float) -> date:
    """The day of a time in seconds since the epoch."""
    return datetime.fromtimestamp(at, UTC).date()


def absolute(text: str, at: float) -> str:
    """The text with its relative dates as dates, as of a time in seconds; code in backquotes stays as it is.

    A sentence about what is done every day or on Fridays is about no date, so it stays.
    """
    parts = _PARTS.split(text)
    return "".join(part if not part.strip() or part[0] in _KEPT else _dated(part, day_of(at)) for part in parts)


def _dated(sentence: str, day: date) -> str:
    if _EVERY.search(sentence):
        return sentence
    for pattern, written in _RULES:
        if written is _ahead and not _TO_COME.search(sentence):
            continue
        sentence = pattern.sub(lambda found, say=written: say(found, day), sentence)  # type: ignore[misc]
    return sentence


def _count(word: str) -> int:
    low = word.lower()
    return 1 if low in ("a", "an") else int(low) if low.isdigit() else _COUNTS.index(low) + 1


def _near(found: re.Match[str], day: date) -> str:
    return (day + timedelta(days=_NEAR[" ".join(found[1].lower().split())])).isoformat()


def _ahead(found: re.Match[str], day: date) -> str:
    return f"on {day + timedelta(days=_count(found[1]) * (7 if found[2].lower() == 'week' else 1))}"


def _ago(found: re.Match[str], day: date) -> str:
    return f"on {day - timedelta(days=_count(found[1]) * (7 if found[2].lower() == 'week' else 1))}"


def _weekday(found: re.Match[str], day: date) -> str:
    """`next Friday` and `by Friday` are the one that comes; `last` and `since` the one that was."""
    which, word = (found[1] or "").lower(), (found[2] or "").lower()
    wanted = _DAYS.index(found[3].lower())
    if which == "last" or word == "since":
        return f"{word} {day - timedelta(days=(day.weekday() - wanted - 1) % 7 + 1)}".strip()
    ahead = day + timedelta(days=(wanted - day.weekday() - 1) % 7 + 1)
    return f"{word} {ahead}".strip()


def _span(found: re.Match[str], day: date) -> str:
    step, unit = {"next": 1, "last": -1, "this": 0}[found[1].lower()], found[2].lower()
    if unit == "week":
        return f"the week of {day - timedelta(days=day.weekday()) + timedelta(days=7 * step)}"
    if unit == "year":
        return f"{day.year + step}"
    months = day.year * 12 + day.month - 1 + step
    return f"{months // 12}-{months % 12 + 1:02}"


_RULES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], date], str]], ...] = (
    (re.compile(rf"\b(?:earlier\s+|later\s+)?({_NEAR_WORDS})\b(?!['’]s\b)", re.I), _near),
    (re.compile(rf"\bin\s+{_COUNT}\s+(day|week)s?(?:['’]\s+time)?\b", re.I), _ahead),
    (re.compile(rf"\b{_COUNT}\s+(day|week)s?\s+ago\b", re.I), _ago),
    (re.compile(rf"\b(?:(next|last|this|coming)\s+|(on|by|until|before|due|since)\s+)({_DAY})\b", re.I), _weekday),
    (re.compile(r"(?<!the )\b(next|last|this)\s+(week|month|year)\b(?!\s*(?:end|of)\b)", re.I), _span),
)
