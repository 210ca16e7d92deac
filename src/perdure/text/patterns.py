"""Patterns that a model or a person gives, on an engine whose time grows with the text alone (SEC-6).

That engine is RE2. What it doesn't understand (look-around, back-references), and everything where it isn't installed,
is looked for as it is written; the standard library's engine never sees a pattern that isn't ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MAX_CHARS = 1_000
_MAX_MEMORY_BYTES = 8_000_000
_SPECIAL = frozenset(r"\.^$*+?{}[]|()")


@dataclass(frozen=True, slots=True)
class LinePattern:
    """Finds the first match in a line: its span, or None. `note` says when it isn't what was asked for."""

    find: Callable[[str], tuple[int, int] | None]
    note: str = ""


def compile_pattern(pattern: str) -> LinePattern:
    """The pattern, upper and lower case apart unless it begins with (?i); a literal text where it has to be."""
    if len(pattern) > MAX_CHARS:
        return _literal(pattern[:MAX_CHARS], f"the pattern was cut to its first {MAX_CHARS:,} characters")
    if not _SPECIAL & set(pattern):
        return _literal(pattern)
    try:
        import re2
    except ImportError:
        return _literal(pattern, "taken as it is written: no linear-time engine is installed (google-re2)")
    options: Any = re2.Options()
    options.max_mem, options.log_errors = _MAX_MEMORY_BYTES, False
    try:
        search = re2.compile(pattern, options).search
    except (re2.error, UnicodeError, OverflowError):
        return _literal(pattern, "taken as it is written: not a pattern that RE2 understands")

    def find(line: str) -> tuple[int, int] | None:
        match = search(line)
        return (match.start(), match.end()) if match else None

    return LinePattern(find)


def _literal(text: str, note: str = "") -> LinePattern:
    def find(line: str) -> tuple[int, int] | None:
        at = line.find(text)
        return None if at < 0 else (at, at + len(text))

    return LinePattern(find, note)
