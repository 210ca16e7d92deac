"""Globs of rules and excludes: `**`, `*`, `?`, `[…]`, `{a,b}` (INS-2, INS-5).

They come from files of a project, so they run on an engine that takes linear time whatever they say, and the patterns
that braces make are bounded: over the bound a pattern is taken literally (SEC-6).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

MAX_PATTERNS: Final = 1_000  # of one glob, once its braces are expanded
MAX_CHARS: Final = 2_000  # a longer pattern matches nothing
_ALL_CHARS: Final = 200_000  # of all patterns that one glob expands to


def expanded(glob: str) -> tuple[str, ...]:
    """The patterns that braces stand for; the glob itself when they would be too many, or don't close."""
    done: list[str] = []
    todo = [glob]
    while todo:
        pattern = todo.pop()
        inner = _innermost(pattern)
        if inner is None:
            done.append(pattern)
        else:
            start, end = inner
            parts = pattern[start + 1 : end].split(",")
            todo += [pattern[:start] + part + pattern[end + 1 :] for part in reversed(parts)]
        if len(done) + len(todo) > MAX_PATTERNS or (len(done) + len(todo)) * len(glob) > _ALL_CHARS:
            return (glob,)
    return tuple(dict.fromkeys(done))


def _innermost(pattern: str) -> tuple[int, int] | None:
    """The first pair of braces with none inside and a comma between them."""
    at = pattern.find("}")
    while at >= 0:
        start = pattern.rfind("{", 0, at)
        if start >= 0 and "," in pattern[start:at]:
            return start, at
        at = pattern.find("}", at + 1)
    return None


def matches(path: str, globs: Iterable[str]) -> bool:
    """Whether a path (with `/`) matches one of the globs, as a whole. A glob that ends in `/` means what is below."""
    return any(compiled.match(path) for glob in globs for compiled in _compiled(glob))


@lru_cache(maxsize=512)
def _compiled(glob: str) -> tuple[Any, ...]:
    import re2  # the engine takes 20 ms to import: not for those who have no globs

    options = re2.Options()
    options.log_errors = False
    patterns = (glob,) if len(glob) <= MAX_CHARS else ()
    found = []
    for pattern in (one for text in patterns for one in expanded(text)):
        try:
            found.append(re2.compile(_translated(pattern), options))
        except re2.error:  # `[` without an end, and the like: matches nothing
            continue
    return tuple(found)


def _translated(pattern: str) -> str:
    """The pattern as an expression that has to match the whole path."""
    pattern = pattern.removeprefix("./")
    if pattern.endswith("/"):
        pattern += "**"
    out, at = [r"(?s)\A"], 0
    while at < len(pattern):
        char = pattern[at]
        if pattern.startswith("**/", at) and (at == 0 or pattern[at - 1] == "/"):
            out.append("(?:[^/]*/)*")
            at += 3
        elif pattern.startswith("**", at):
            out.append(".*")
            at += 2
        elif char == "[":
            end = pattern.find("]", at + 2)
            if end < 0:
                return r"\A[\z"  # no expression at all
            out.append(_set(pattern[at + 1 : end]))
            at = end + 1
        else:
            out.append({"*": "[^/]*", "?": "[^/]"}.get(char, re.escape(char)))
            at += 1
    return "".join([*out, r"\z"])


def _set(inner: str) -> str:
    negated = inner[:1] in ("!", "^")
    body = inner[negated:].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
    return f"[{'^/' if negated else ''}{body}]"
