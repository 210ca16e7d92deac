"""The permit of the fork that writes notes: Edit, on one file, and nothing else (SM-3)."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.memory.notes import Notes, parse, whole

EDIT = "Edit"
_PATHS = ("file_path", "path", "filename", "file")

Canonical = Callable[[str], str]


def lexical(path: str, *, folder: str = "/") -> str:
    """One spelling for all of a path, without asking a disk: no `.`, `..` or double slashes, from a folder."""
    return posixpath.normpath("/" + posixpath.join(folder, path).lstrip("/"))


@dataclass(frozen=True, slots=True)
class EditPermit:
    """`path` in its one spelling. `canonical` gives that spelling for any other; where there is a disk, links too."""

    path: str
    canonical: Canonical = lexical

    @property
    def refusal(self) -> str:
        return f"only Edit on {self.path} is allowed"

    def denial(self, tool: str, arguments: Mapping[str, Any]) -> str | None:
        """Why a call is denied; None when it is the one thing that is allowed."""
        named = [arguments[name] for name in _PATHS if name in arguments]
        if tool != EDIT or not named or not all(self._is_ours(path) for path in named):
            return self.refusal
        return None

    def _is_ours(self, path: object) -> bool:
        if not isinstance(path, str) or not path or "\0" in path:
            return False
        try:
            return self.canonical(path) == self.path
        except (OSError, ValueError):  # a name that the disk refuses is no spelling of ours
            return False


def edits_in(answer: str) -> list[dict[str, str]]:
    """The edits that an answer holds as text, in their order; what is no whole edit is none.

    The tags stand on lines of their own, so that a text may hold them inside a line.
    """
    found: list[dict[str, str]] = []
    old: list[str] | None = None
    new: list[str] | None = None
    part: list[str] | None = None
    for line in answer.replace("\r\n", "\n").split("\n"):
        tag = line.strip()
        if tag == "<edit>" and part is None:
            old = new = None
        elif tag in ("<old>", "<new>") and part is None:
            part = []
        elif tag == "</old>" and part is not None:
            old, part = part, None
        elif tag == "</new>" and part is not None:
            new, part = part, None
        elif tag == "</edit>" and part is None:
            if old is not None and new is not None:
                found.append({"old_string": "\n".join(old), "new_string": "\n".join(new)})
            old = new = None
        elif part is not None:
            part.append(line)
    return found


def edited(text: str, arguments: Mapping[str, Any], form: Notes) -> tuple[str, str | None]:
    """The text after one edit, or as it was with what was wrong. Headings and descriptions can't be edited away."""
    old, new = arguments.get("old_string"), arguments.get("new_string")
    if not isinstance(old, str) or not isinstance(new, str):
        return text, "old_string and new_string have to be texts"
    times = text.count(old) if old else 0
    if times == 0:
        return text, "old_string isn't in the file"
    if times > 1 and arguments.get("replace_all") is not True:
        return text, f"old_string is {times} times in the file: give more of it, or replace_all"
    after = text.replace(old, new)
    lost = set(whole(parse(after), form)[1]) - set(whole(parse(text), form)[1])
    if lost:
        return text, f"headings and their italic lines have to stay: {', '.join(sorted(lost))}"
    return after, None
