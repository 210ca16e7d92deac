"""A family of secrets: how one is known (SEC-5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Check = Literal[
    "none",
    "given",
    "literal",
    "named",
    "assigned",
    "option",
    "mixed",
    "spoken",
    "said",
    "cookie",
    "lines",
    "password",
    "random",
]


@dataclass(frozen=True, slots=True)
class SecretFamily:
    """A pattern and what tells a value from what only stands where one could.

    Attributes:
        name: Its name in marks.
        source: The page that says how such a secret looks, or why it is one.
        words: One of these patterns, which are cheap, has to be in a text before the family's own is tried.
        pattern: The first of its groups that matches is the secret.
        check: What the value has to look like besides: nothing more, no stand-in where its place tells what it is
            (`given`), nor a label or a type (`literal`), with a letter and a digit where people talk (`spoken`), chosen
            by somebody, drawn by chance. `secrets.py` has them all.
        is_marked: The value tells by a mark of its own what it is, so it is known also where something splits it
            (SEC-11).
    """

    name: str
    source: str
    words: tuple[str, ...]
    pattern: str
    check: Check = "none"
    is_marked: bool = False
