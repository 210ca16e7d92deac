"""What an edit would make of a file, for a person's eyes, before it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MOST_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class ProposedEdit:
    """A text of a file, and what it becomes. `before` is None for a file that isn't there, or can't be shown."""

    path: str
    before: str | None
    after: str


def proposed_edits(tool: str, arguments: Mapping[str, Any], root: str) -> tuple[ProposedEdit, ...]:
    """What a call would change, by the file as it is now; nothing for what is no edit.

    Where an edit doesn't fit the file, its own texts stand there, each piece on its own.
    """
    name = arguments.get("file_path")
    if tool not in ("Write", "Edit", "MultiEdit") or not isinstance(name, str):
        return ()
    path = str(Path(root, name))
    before = _read(path)
    if tool == "Write":
        content = arguments.get("content")
        return (ProposedEdit(path, before, content if isinstance(content, str) else ""),)
    given = arguments.get("edits") if tool == "MultiEdit" else [arguments]
    edits = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    after = None if before is None else _applied(before, edits)
    if after is not None:
        return (ProposedEdit(path, before, after),)
    return tuple(ProposedEdit(path, str(one.get("old_string", "")), str(one.get("new_string", ""))) for one in edits)


def _read(path: str) -> str | None:
    file = Path(path)
    try:
        if not file.is_file() or file.stat().st_size > _MOST_BYTES:
            return None
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, ValueError):
        return None


def _applied(text: str, edits: Sequence[Mapping[str, Any]]) -> str | None:
    for one in edits:
        old, new = one.get("old_string"), one.get("new_string")
        if not isinstance(old, str) or not isinstance(new, str) or not old or old not in text:
            return None
        text = text.replace(old, new, -1 if one.get("replace_all") else 1)
    return text
