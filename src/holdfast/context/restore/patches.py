"""Patches as agents write them: `apply_patch` envelopes, and SEARCH/REPLACE blocks (RST-10)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.context.restore.known import Edit

_FILE = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$")
_MOVE = "*** Move to: "
_BLOCK = re.compile(
    r"^[<-]{6,9} SEARCH[^\n]*\n(?::start_line:[^\n]*\n(?::end_line:[^\n]*\n)?-{5,}\n)?(.*?)^={6,9}[ \t]*\n(.*?)^[>+]{6,9} REPLACE",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Patched:
    """What a patch does to one file: `text` is all of a new one, `edits` replace parts, neither: it is deleted."""

    path: str
    text: str | None = None
    edits: tuple[Edit, ...] = ()
    moved_to: str | None = None
    is_deleted: bool = False


def patched_files(patch: str) -> list[Patched]:
    """The files of an `apply_patch` envelope, in order."""
    found: list[Patched] = []
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
    return found


def _file(head: tuple[str, str], rows: list[str]) -> Patched:
    what, path = head
    if what == "Delete":
        return Patched(path, is_deleted=True)
    if what == "Add":
        return Patched(path, text="".join(row[1:] + "\n" for row in rows if row.startswith("+")))
    moved = next((row.removeprefix(_MOVE).strip() for row in rows if row.startswith(_MOVE)), None)
    return Patched(path, edits=tuple(_hunks(rows)), moved_to=moved)


def _hunks(rows: list[str]) -> list[Edit]:
    """Each hunk as a replacement of whole lines; one that only names its place changes nothing."""
    edits: list[Edit] = []
    old: list[str] = []
    new: list[str] = []
    for row in [*rows, "@@"]:
        if row.startswith("@@"):
            if old != new:
                edits.append(("".join(line + "\n" for line in old), "".join(line + "\n" for line in new), False))
            old, new = [], []
        elif row.startswith("-"):
            old.append(row[1:])
        elif row.startswith("+"):
            new.append(row[1:])
        elif row.startswith(" ") or not row:
            old.append(row[1:])
            new.append(row[1:])
    return edits


def search_replace(diff: str) -> tuple[Edit, ...]:
    """The replacements of SEARCH/REPLACE blocks, as Cline, Roo and Aider write them."""
    return tuple((old, new, False) for old, new in _BLOCK.findall(diff))
