"""What an edit changes, as lines of a diff: worked out before it is made, so that it can be shown with the question."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CONTEXT = 2
MOST_LINES = 40
_MOST_BYTES = 1_000_000


def edit_diff(tool: str, arguments: dict[str, Any], root: str, *, most: int = MOST_LINES) -> list[str]:
    """Lines that begin with `+`, `-`, ` ` or `@`; empty for what is no edit, or changes nothing that can be shown.

    It reads the file as it is now; where the edit doesn't fit that, only its own texts are compared.
    """
    name = arguments.get("file_path")
    if tool not in ("Write", "Edit", "MultiEdit") or not isinstance(name, str):
        return []
    before = _read(Path(root, name))
    if tool == "Write":
        after = arguments.get("content")
        return _cut(_lines(before or "", after if isinstance(after, str) else ""), most)
    given = arguments.get("edits") if tool == "MultiEdit" else [arguments]
    edits = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    after = None if before is None else _applied(before, edits)
    if before is not None and after is not None:
        return _cut(_lines(before, after), most)
    texts = ((str(one.get("old_string", "")), str(one.get("new_string", ""))) for one in edits)
    return _cut((line for old, new in texts for line in _lines(old, new)), most)


def _read(path: Path) -> str | None:
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return None
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError):
        return None


def _applied(text: str, edits: list[dict[str, Any]]) -> str | None:
    for one in edits:
        old, new = one.get("old_string"), one.get("new_string")
        if not isinstance(old, str) or not isinstance(new, str) or not old or old not in text:
            return None
        text = text.replace(old, new, -1 if one.get("replace_all") else 1)
    return text


def _lines(before: str, after: str) -> Iterator[str]:
    diff = difflib.unified_diff(before.splitlines(), after.splitlines(), n=CONTEXT, lineterm="")
    return (line for number, line in enumerate(diff) if number > 1)  # without the two names


def _cut(lines: Iterator[str], most: int) -> list[str]:
    found = list(lines)
    rest = len(found) - most
    return found if rest <= 1 else [*found[:most], f"@@ {rest} more lines @@"]
