"""Patches as agents write them: `apply_patch` envelopes, SEARCH/REPLACE blocks, and unified diffs (RST-10)."""

from __future__ import annotations

import re
from dataclasses import dataclass

TextEdit = tuple[str, str, bool]
"""What stood there, what stands there now, and whether that holds for every place."""

_FILE = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$")
_MOVE = "*** Move to: "
_SEARCH = re.compile(r"[<-]{6,9} SEARCH")
_DIVIDER = re.compile(r"={6,9}[ \t]{0,9}\Z")
_REPLACE = re.compile(r"[>+]{6,9} REPLACE")
_RULE = re.compile(r"-{5,}\Z")
_DIFFED = re.compile(r"^\+\+\+ (?:b/)?(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PatchedFile:
    """What a patch does to one file: `text` is all of a new one, `edits` replace parts, neither: nobody knows."""

    path: str
    text: str | None = None
    edits: tuple[TextEdit, ...] = ()
    moved_to: str | None = None
    is_deleted: bool = False


def patched_files(patch: str) -> list[PatchedFile]:
    """The files of an `apply_patch` envelope, in order; without one, those that a unified diff names."""
    found: list[PatchedFile] = []
    rows: list[str] = []
    head: tuple[str, str] | None = None
    for row in [*patch.split("\n"), "*** End Patch"]:
        start = _FILE.match(row)
        if (start or row.startswith("*** End Patch")) and head is not None:
            found.append(_file(head, rows))
            head = None
        if start:
            head, rows = (start[1], start[2].strip()), []
        elif head is not None:
            rows.append(row)
    return found or [PatchedFile(path) for path in dict.fromkeys(_DIFFED.findall(patch)) if path != "/dev/null"]


def is_patch(text: str) -> bool:
    """Whether a text is a patch that names its files."""
    return "*** Begin Patch" in text or ("\n+++ " in text and "--- " in text)


def _file(head: tuple[str, str], rows: list[str]) -> PatchedFile:
    what, path = head
    if what == "Delete":
        return PatchedFile(path, is_deleted=True)
    if what == "Add":
        return PatchedFile(path, text="".join(row[1:] + "\n" for row in rows if row.startswith("+")))
    moved = next((row.removeprefix(_MOVE).strip() for row in rows if row.startswith(_MOVE)), None)
    return PatchedFile(path, edits=tuple(_hunks(rows)), moved_to=moved)


def _hunks(rows: list[str]) -> list[TextEdit]:
    """Each hunk as a replacement of whole lines; one that only names its place changes nothing."""
    edits: list[TextEdit] = []
    old: list[str] = []
    new: list[str] = []
    for row in [*rows, "@@"]:
        if row.startswith("@@"):
            if old != new:
                edits.append((_lines(old), _lines(new), False))
            old, new = [], []
        elif row.startswith("-"):
            old.append(row[1:])
        elif row.startswith("+"):
            new.append(row[1:])
        elif row.startswith(" ") or not row:
            old.append(row[1:])
            new.append(row[1:])
    return edits


def search_replace(diff: str) -> tuple[TextEdit, ...]:
    """The replacements of SEARCH/REPLACE blocks, as Cline, Roo and Aider write them."""
    edits: list[TextEdit] = []
    old: list[str] = []
    new: list[str] = []
    into: list[str] | None = None
    for row in diff.split("\n"):
        if _SEARCH.match(row):
            old, new = [], []
            into = old
        elif into is old and _DIVIDER.match(row):
            into = new
        elif into is new and _REPLACE.match(row):
            edits.append((_lines(_without_place(old)), _lines(new), False))
            into = None
        elif into is not None:
            into.append(row)
    return tuple(edits)


def _without_place(rows: list[str]) -> list[str]:
    """Roo writes `:start_line:7` and a rule before the text that it looks for."""
    if not rows or not rows[0].startswith(":start_line:"):
        return rows
    rest = [row for row in rows[1:3] if not row.startswith(":end_line:") and not _RULE.match(row)]
    return rest + rows[3:]


def _lines(rows: list[str]) -> str:
    return "".join(row + "\n" for row in rows)
