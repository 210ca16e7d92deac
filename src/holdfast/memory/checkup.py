"""Everything that is wrong with a directory of memories, in lines for people (MEM-2, MEM-3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from holdfast.memory.contents import Limits, entries, fits, normalised
from holdfast.memory.topics import INDEX

MAX_ENTRY_CHARS = 150  # an entry is a line to choose by; more of it is paid in every request

Weight = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`error`: a memory isn't found or read as meant; `warning`: it costs more than it has to, or is read leniently."""

    file: str
    line: int | None
    weight: Weight
    text: str


def findings(
    files: Mapping[str, Sequence[str]], indexes: Mapping[str, str | None], limits: Limits
) -> tuple[Finding, ...]:
    """What is wrong: `files` are the memories with their problems, `indexes` the text of each `MEMORY.md` by folder.

    A folder without an index is said when it holds memories.
    """
    found = [Finding(file, None, "warning", problem) for file, problems in files.items() for problem in problems]
    for folder, text in indexes.items():
        own = {file for file in files if file.rpartition("/")[0] == folder}
        name = f"{folder}/{INDEX}" if folder else INDEX
        if text is None:
            if own:
                found.append(Finding(name, None, "warning", f"missing: {len(own):,} memories are in no index"))
            continue
        found += _of_index(name, folder, normalised(text), files, limits)
    return tuple(found)


def _of_index(name: str, folder: str, text: str, files: Mapping[str, Sequence[str]], limits: Limits) -> list[Finding]:
    found: list[Finding] = []
    lines, size = text.count("\n") + 1 if text else 0, len(text.encode("utf-8", "replace"))
    if not fits(text, limits):
        found.append(
            Finding(
                name,
                None,
                "error",
                f"{lines:,} lines and {size:,} bytes: only {limits.lines:,} lines and {limits.bytes:,} bytes are read",
            )
        )
    linked: dict[str, int] = {}
    for entry in entries(text):
        if "://" in entry.file or entry.file.startswith(("#", "/", "../")):
            continue
        file = f"{folder}/{entry.file}" if folder else entry.file
        if not file.endswith(".md") or file.endswith(f"/{INDEX}") or file == INDEX:
            continue
        if file not in files and file not in linked:
            found.append(Finding(name, entry.line, "error", f"names {entry.file}, which isn't there"))
        elif linked.get(file, entry.line) != entry.line and entry.hook:
            found.append(Finding(name, entry.line, "warning", f"names {entry.file} again (line {linked[file]})"))
        linked.setdefault(file, entry.line)
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > MAX_ENTRY_CHARS and line.lstrip().startswith(("-", "*", "+")):
            found.append(Finding(name, number, "warning", f"{len(line):,} characters: over {MAX_ENTRY_CHARS}"))
    for file in sorted(file for file in files if file.rpartition("/")[0] == folder and file not in linked):
        found.append(Finding(file, None, "warning", f"in no line of {name}: found by search only"))
    return found
