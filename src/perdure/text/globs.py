"""The one matcher of patterns for paths: permission rules, searches, rules and excludes of instructions (INS-2, LIB-1).

As in .gitignore: `*`, `?` and `[…]` stand for characters within a name, `**` as a whole name for any number of folders,
`a/**` and `a/` for what is below `a`, a backslash takes the meaning from the next character; and `{a,b}`, also one in
another, for alternatives. A pattern fits a path from its beginning to its end: who wants it at any depth says `**/`.

Patterns come from files of a project and from models, so none takes long, whatever it says (SEC-6).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final, TypeVar

MAX_PATTERNS: Final = 1_000  # that the braces of one glob may stand for
MAX_CHARS: Final = 2_000  # a longer glob fits nothing
_ALL_CHARS: Final = 200_000  # of all patterns that one glob stands for
_ANY, _DEEP = "*", "**"
_P = TypeVar("_P")
_I = TypeVar("_I")


def matches_glob(glob: str, path: str) -> bool:
    """Whether a path fits a glob; both with `/` between the names.

    >>> matches_glob("src/**/*.{py,pyi}", "src/a/b.py"), matches_glob("*.py", "src/b.py")
    (True, False)
    """
    likely = [parts for parts, name in _with_names(glob) if name in path]
    if not likely:  # nearly always, where a rule is held against all files of a project
        return False
    names = path.split("/")
    return any(_wild(parts, names, _is_deep, _name_fits) for parts in likely)


def matches(path: str, globs: Iterable[str]) -> bool:
    """Whether a path fits one of several globs."""
    return any(matches_glob(glob, path) for glob in globs)


def may_overlap(glob: str, other: str) -> bool:
    """Whether some path may fit both; rather yes than no."""
    return any(_both(one, two) for one in _parts(glob) for two in _parts(other))


def problem(glob: str) -> str:
    """Why a glob would not be read as it is meant; empty when it is."""
    if len(glob) > MAX_CHARS:
        return f"it has more than {MAX_CHARS:,} characters"
    if _braces(glob) is not None and expand_braces(glob) == (glob,):
        return "its braces stand for too many patterns"
    return ""


def expand_braces(glob: str) -> tuple[str, ...]:
    """The patterns that braces stand for; the glob itself when they would be too many, or don't close."""
    done: list[str] = []
    todo = [glob]
    while todo:
        pattern = todo.pop()
        inner = _braces(pattern)
        if inner is None:
            done.append(pattern)
        else:
            start, end, commas = inner
            edges = [start, *commas, end]
            parts = [pattern[a + 1 : b] for a, b in itertools.pairwise(edges)]
            todo += [pattern[:start] + part + pattern[end + 1 :] for part in reversed(parts)]
        if len(done) + len(todo) > MAX_PATTERNS or (len(done) + len(todo)) * len(glob) > _ALL_CHARS:
            return (glob,)
    return tuple(dict.fromkeys(done))


def _braces(pattern: str) -> tuple[int, int, list[int]] | None:
    """The first pair of braces that closes and has a comma of its own: where it stands, and these commas."""
    opened: list[tuple[int, list[int]]] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif char == "{":
            opened.append((at, []))
        elif char == "," and opened:
            opened[-1][1].append(at)
        elif char == "}" and opened:
            start, commas = opened.pop()
            if commas:
                return start, at, commas
        at += 1
    return None


@lru_cache(maxsize=1_024)
def _parts(glob: str) -> tuple[tuple[str, ...], ...]:
    """The patterns of a glob, each as its names."""
    found: list[tuple[str, ...]] = []
    for pattern in expand_braces(glob) if len(glob) <= MAX_CHARS else ():
        names = pattern.removeprefix("./").split("/")
        if len(names) > 1 and not names[-1]:
            names[-1] = _DEEP
        if names[-1] == _DEEP:
            names.append(_ANY)  # what is below a folder isn't the folder itself
        found.append(tuple(names))
    return tuple(found)


@lru_cache(maxsize=1_024)
def _with_names(glob: str) -> tuple[tuple[tuple[str, ...], str], ...]:
    """The patterns of a glob, each with the longest name that a path has to hold as it is; empty when there is none."""
    plain = ([part for part in parts if not set(part) & set("*?[\\")] for parts in _parts(glob))
    return tuple(zip(_parts(glob), (max(names, key=len, default="") for names in plain), strict=True))


def _is_deep(part: str) -> bool:
    return part == _DEEP


def _is_any(token: str) -> bool:
    return token == _ANY


def _name_fits(part: str, name: str) -> bool:
    return _wild(_tokens(part), name, _is_any, _char_fits)


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


@lru_cache(maxsize=4_096)
def _tokens(part: str) -> tuple[str, ...]:
    """The characters of a name's pattern; a set as `[a-z]` is one token, and so is a character behind a backslash."""
    tokens: list[str] = []
    at = 0
    while at < len(part):
        size = 1
        if part[at] == "\\" and at + 1 < len(part):
            size = 2
        elif part[at] == "[" and (end := part.find("]", at + (3 if part[at + 1 : at + 2] in ("!", "^") else 2))) > 0:
            size = end + 1 - at
        tokens.append(part[at : at + size])
        at += size
    return tuple(tokens)


def _char_fits(token: str, char: str) -> bool:
    if len(token) == 1:
        return token in ("?", char)
    if token[0] == "\\":
        return token[1] == char
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


def _both(one: Sequence[str], two: Sequence[str]) -> bool:
    return _shared(one, two, _is_deep, lambda a, b: _shared(_tokens(a), _tokens(b), _is_any, _chars_meet))


def _shared(
    one: Sequence[_P], two: Sequence[_P], is_wild: Callable[[_P], bool], meet: Callable[[_P, _P], bool]
) -> bool:
    """Whether there is something that fits both patterns."""
    ends = [False] * len(two) + [True]
    for n in range(len(two) - 1, -1, -1):
        ends[n] = ends[n + 1] and is_wild(two[n])
    row = ends
    for part in reversed(one):
        new = [False] * (len(two) + 1)
        new[-1] = row[-1] and is_wild(part)
        for n in range(len(two) - 1, -1, -1):
            if is_wild(part) or is_wild(two[n]):
                new[n] = row[n] or new[n + 1]
            else:
                new[n] = row[n + 1] and meet(part, two[n])
        row = new
    return row[0]


def _chars_meet(one: str, two: str) -> bool:
    for first, second in ((one, two), (two, one)):
        if len(second) == 1 and second != "?":
            return _char_fits(first, second)
        if second[0] == "\\":
            return _char_fits(first, second[1])
    return True
