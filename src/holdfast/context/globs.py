"""Patterns for paths: `*`, `?`, `[…]` within a name, `**` over folders, `{a,b}`. Never slow, whatever the pattern.

A pattern without a slash fits the last name of a path; any other fits the path from its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from typing import TypeVar

MOST_BRACES = 64  # alternatives of one pattern; one that has more is taken as it is written
_ANY = "*"
_P = TypeVar("_P")
_I = TypeVar("_I")


def fits(pattern: str, path: str) -> bool:
    """Whether a path fits a pattern; both with `/` between the names.

    >>> fits("src/**/*.{py,pyi}", "src/a/b.py"), fits("*.py", "src/a/b.py"), fits("src/*.py", "src/a/b.py")
    (True, True, False)
    """
    names = path.split("/")
    return any(_fits(parts, names) for parts in _parts(pattern))


def _fits(parts: tuple[str, ...], names: list[str]) -> bool:
    if len(parts) == 1 and parts[0] != "**":
        return _name_fits(parts[0], names[-1])
    return _wild(parts, names, lambda part: part == "**", _name_fits)


@lru_cache(maxsize=512)
def _parts(pattern: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(one.split("/")) for one in _without_braces(pattern))


def _name_fits(part: str, name: str) -> bool:
    return _wild(_tokens(part), name, lambda token: token == _ANY, _char_fits)


def _wild(
    pattern: Sequence[_P], items: Sequence[_I], is_wild: Callable[[_P], bool], fits_one: Callable[[_P, _I], bool]
) -> bool:
    """Whether the items fit the pattern, in which a wild part stands for any number of them. Never backs up further
    than to the last wild part, so the time is at most the product of the lengths.
    """
    at = done = 0
    wild, resume = -1, 0
    while done < len(items):
        if at < len(pattern) and is_wild(pattern[at]):
            wild, resume, at = at, done, at + 1
        elif at < len(pattern) and fits_one(pattern[at], items[done]):
            at, done = at + 1, done + 1
        elif wild >= 0:
            resume += 1
            at, done = wild + 1, resume
        else:
            return False
    return all(is_wild(part) for part in pattern[at:])


@lru_cache(maxsize=2_048)
def _tokens(part: str) -> tuple[str, ...]:
    """The characters of a part; a set such as `[a-z]` is one token."""
    tokens: list[str] = []
    at = 0
    while at < len(part):
        end = part.find("]", at + 2) if part[at] == "[" else -1
        tokens.append(part[at : end + 1] if end > 0 else part[at])
        at += len(tokens[-1])
    return tuple(tokens)


def _char_fits(token: str, char: str) -> bool:
    if len(token) == 1:
        return token in ("?", char)
    inner = token[1:-1]
    is_negated = inner[:1] in "!^" and len(inner) > 1
    inner = inner[1:] if is_negated else inner
    found = False
    at = 0
    while at < len(inner):
        if inner[at + 1 : at + 2] == "-" and at + 2 < len(inner):
            found = found or inner[at] <= char <= inner[at + 2]
            at += 3
        else:
            found = found or inner[at] == char
            at += 1
    return found is not is_negated


def _without_braces(pattern: str) -> tuple[str, ...]:
    """The patterns that `{a,b}` stands for, braces inside braces not being any."""
    pieces: list[list[str]] = []
    at, total = 0, 1
    while at < len(pattern):
        start = pattern.find("{", at)
        end = pattern.find("}", start) if start >= 0 else -1
        if end < 0:
            break
        choices = pattern[start + 1 : end].split(",")
        total *= len(choices)
        if total > MOST_BRACES or "{" in pattern[start + 1 : end]:
            return (pattern,)
        pieces += [[pattern[at:start]], choices]
        at = end + 1
    pieces.append([pattern[at:]])
    return tuple("".join(one) for one in product(*pieces))
