"""`MEMORY.md`, the index of a memory directory: one line for each memory, and what is wrong with a directory (MEM-2,
MEM-3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from perdure.memory.files import INDEX
from perdure.settings import Settings
from perdure.text.cleaning import controls_removed
from perdure.text.frontmatter import front_matter
from perdure.text.markdown import without_comments

MAX_LINES = 200
MAX_BYTES = 25_000
TIDY_LINES = 140  # what a writer is told to come down to

_ENTRY = re.compile(r"\s{0,8}(?:[-*+]|\d{1,3}[.)])\s+\[(?P<title>[^\]\n]*)\]\((?P<file>[^)\s]+)\)(?P<hook>.*)$")
_LINK = re.compile(r"\[([^\]\n]*)\]\(([^)\s]+\.md)(?:#[^)\s]*)?\)")
_HEADING = re.compile(r"#{1,6}\s+(\S.*?)\s*#*$")
_HOOK = re.compile(r"^\s*(?:—|–|--|-|:|\|)\s*")


@dataclass(frozen=True, slots=True)
class IndexLimits:
    """How much of the index is always in context: lines, and bytes of UTF-8."""

    lines: int = MAX_LINES
    bytes: int = MAX_BYTES

    @classmethod
    def of(cls, settings: Settings) -> IndexLimits:
        """As the settings have them."""
        return cls(settings.memory_index_lines, settings.memory_index_bytes)


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A line of the index that names a memory. `line` counts from 1 in the normalised text."""

    title: str
    file: str
    hook: str
    section: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class IndexExcerpt:
    """The index as it goes into the context; `left_out` lines of it don't."""

    text: str
    lines: int
    bytes: int
    left_out: int = 0


def normalised_index(text: str) -> str:
    """The index as it counts: without front matter, comments and control characters, and blanks at the ends."""
    body = controls_removed(without_comments(front_matter(text).body))
    return "\n".join(line.rstrip() for line in body.strip().split("\n")).strip()


def index_entries(text: str) -> tuple[IndexEntry, ...]:
    """The entries of a normalised index, in their order. A line may link to more files: each is an entry."""
    found: list[IndexEntry] = []
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        heading = _HEADING.match(line)
        if heading:
            section = heading[1]
            continue
        entry = _ENTRY.match(line)
        if entry:
            hook = _HOOK.sub("", entry["hook"]).strip()
            found.append(IndexEntry(entry["title"].strip(), _file(entry["file"]), hook, section, number, line))
        for title, file in _LINK.findall(entry["hook"] if entry else line):
            found.append(IndexEntry(title.strip(), _file(file), "", section, number, line))
    return tuple(found)


def _file(link: str) -> str:
    return link.removeprefix("./").split("#", 1)[0]


def index_hooks(text: str) -> dict[str, str]:
    """What a normalised index says of each file: titles and hooks of all its entries."""
    said: dict[str, list[str]] = {}
    for entry in index_entries(text):
        said.setdefault(entry.file, []).append(f"{entry.title} {entry.hook}".strip())
    return {file: "\n".join(lines) for file, lines in said.items()}


# --- into the context -----------------------------------------------------------------------------------------------


def index_excerpt(
    text: str,
    limits: IndexLimits,
    *,
    modified: Mapping[str, float],
    uses: Mapping[str, int],
    marks: Mapping[str, str] | None = None,
) -> IndexExcerpt:
    """The index for the context, within the limits (MEM-2).

    When it is too long, headings stay, and of the entries those of the newest and most used files (`modified` in
    seconds, `uses` a count); nothing is known of them: the first. A last line says so, and how to mend it. `marks` are
    said of files at the ends of their lines (MEM-14).
    """
    text = _marked(normalised_index(text), marks or {})
    lines = text.split("\n") if text else []
    if fits_limits(text, limits):
        return IndexExcerpt(text, len(lines), _size(text))
    warning = _warning(len(lines), _size(text), limits)
    room = IndexLimits(limits.lines - 2, limits.bytes - _size(warning) - 2)
    kept = _chosen(lines, index_entries(text), room, _rank(modified, uses)) if modified or uses else _first(lines, room)
    body = "\n".join(lines[n] for n in kept)
    whole = f"{body}\n\n{warning}" if body else warning
    return IndexExcerpt(whole, whole.count("\n") + 1, _size(whole), len(lines) - len(kept))


def _marked(text: str, marks: Mapping[str, str]) -> str:
    """The index with marks at its lines; where a line leads to several files, each mark says of which it is."""
    if not marks:
        return text
    lines = text.split("\n")
    files: dict[int, list[str]] = {}
    for entry in index_entries(text):
        files.setdefault(entry.line - 1, []).append(entry.file)
    for at, named in files.items():
        said = [f"{file}: {marks[file]}" if len(named) > 1 else marks[file] for file in named if file in marks]
        lines[at] += f" [{'; '.join(said)}]" if said else ""
    return "\n".join(lines)


def fits_limits(text: str, limits: IndexLimits) -> bool:
    """Whether a normalised index is within both limits."""
    return not text or (text.count("\n") + 1 <= limits.lines and _size(text) <= limits.bytes)


def too_large(text: str, limits: IndexLimits, *, name: str = "MEMORY.md") -> str | None:
    """What a writer is told whose write left the index over its limits: the numbers, and what to do; else None."""
    text = normalised_index(text)
    if fits_limits(text, limits):
        return None
    lines, size = text.count("\n") + 1, _size(text)
    over = []
    if lines > limits.lines:
        over.append(f"{lines:,} lines, over its limit of {limits.lines:,}")
    if size > limits.bytes:
        over.append(f"{size:,} bytes, over its limit of {limits.bytes:,}")
    goal = min(TIDY_LINES, limits.lines * 7 // 10)
    return (
        f"The write was saved, but it left the memory index {name} at {' and '.join(over)}: what is over them isn't "
        f"read when the index is loaded. Shorten it now to under {goal:,} lines and {limits.bytes * 7 // 10:,} bytes: "
        "one line for each memory, details in the files they link to, and merge or remove entries that are out of date."
    )


def index_changes(before: str, after: str) -> str:
    """The lines that came (+) and went (-) between two texts of the index, in their order; nothing for the same."""
    old, new = before.split("\n"), after.split("\n")
    gone, came = set(old) - set(new), set(new) - set(old)
    lines = [f"- {line}" for line in old if line in gone and line.strip()]
    return "\n".join((*lines, *(f"+ {line}" for line in new if line in came and line.strip())))


def _warning(lines: int, size: int, limits: IndexLimits) -> str:
    return (
        f"[The memory index is cut here: it has {lines:,} lines and {size:,} bytes, and {limits.lines:,} lines and "
        f"{limits.bytes:,} bytes are read. Move details into topic files, and merge or remove old entries.]"
    )


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _first(lines: Sequence[str], room: IndexLimits) -> list[int]:
    """The numbers of the first lines that fit."""
    kept: list[int] = []
    left = room.bytes
    for number, line in enumerate(lines[: max(0, room.lines)]):
        left -= _size(line) + 1
        if left < 0:
            break
        kept.append(number)
    return kept


def _rank(modified: Mapping[str, float], uses: Mapping[str, int]) -> Mapping[str, float]:
    """How early each file comes: by the better one of its places among the newest and among the most used."""
    files = sorted({*modified, *uses})
    newest = {f: n for n, f in enumerate(sorted(files, key=lambda f: (-modified.get(f, 0.0), f)))}
    used = [f for f in sorted(files, key=lambda f: (-uses.get(f, 0), f)) if uses.get(f, 0)]
    most_used = {f: n for n, f in enumerate(used)}
    return {f: min(newest[f], most_used.get(f, len(files))) + newest[f] / (len(files) + 1) for f in files}


def _chosen(
    lines: Sequence[str], found: Sequence[IndexEntry], room: IndexLimits, rank: Mapping[str, float]
) -> list[int]:
    """The headings, then entries in the order of their rank, then other lines, while they fit; in the file's order."""
    best: dict[int, float] = {}
    for entry in found:
        at = entry.line - 1
        best[at] = min(best.get(at, float("inf")), rank.get(entry.file, float("inf")))
    heads = [n for n, line in enumerate(lines) if _HEADING.match(line)]
    others = [n for n, line in enumerate(lines) if n not in best and n not in set(heads) and line.strip()]
    kept: list[int] = []
    left_lines, left = room.lines, room.bytes
    for number in (*heads, *sorted(best, key=lambda n: (best[n], n)), *others):
        size = _size(lines[number]) + 1
        if left_lines < 1:
            break
        if size <= left:
            kept.append(number)
            left_lines, left = left_lines - 1, left - size
    return sorted(kept)


MAX_ENTRY_CHARS = 150  # an entry is a line to choose by; more of it is paid in every request

Weight = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class MemoryFinding:
    """`error`: a memory isn't found or read as meant; `warning`: it costs more than it has to, or is read leniently;
    `note`: nothing is wrong, and a person should know.
    """

    file: str
    line: int | None
    weight: Weight
    text: str


def memory_findings(
    files: Mapping[str, Sequence[str]],
    indexes: Mapping[str, str | None],
    limits: IndexLimits,
    hidden: Mapping[str, str] | None = None,
) -> tuple[MemoryFinding, ...]:
    """What is wrong: `files` are the memories with their problems, `indexes` the text of each `MEMORY.md` by folder.

    A folder without an index is said when it holds memories; `hidden` says of memories what stands in their place.
    """
    found = [MemoryFinding(file, None, "warning", problem) for file, problems in files.items() for problem in problems]
    found += [MemoryFinding(file, None, "note", by) for file, by in (hidden or {}).items()]
    for folder, text in indexes.items():
        own = {file for file in files if file.rpartition("/")[0] == folder}
        name = f"{folder}/{INDEX}" if folder else INDEX
        if text is None:
            if own:
                found.append(MemoryFinding(name, None, "warning", f"missing: {len(own):,} memories are in no index"))
            continue
        found += _of_index(name, folder, normalised_index(text), files, limits)
    return tuple(found)


def _of_index(
    name: str, folder: str, text: str, files: Mapping[str, Sequence[str]], limits: IndexLimits
) -> list[MemoryFinding]:
    found: list[MemoryFinding] = []
    lines, size = text.count("\n") + 1 if text else 0, len(text.encode("utf-8", "replace"))
    if not fits_limits(text, limits):
        found.append(
            MemoryFinding(
                name,
                None,
                "error",
                f"{lines:,} lines and {size:,} bytes: only {limits.lines:,} lines and {limits.bytes:,} bytes are read",
            )
        )
    linked: dict[str, int] = {}
    for entry in index_entries(text):
        if "://" in entry.file or entry.file.startswith(("#", "/", "../")):
            continue
        file = f"{folder}/{entry.file}" if folder else entry.file
        if not file.endswith(".md") or file.endswith(f"/{INDEX}") or file == INDEX:
            continue
        if file not in files and file not in linked:
            found.append(MemoryFinding(name, entry.line, "error", f"names {entry.file}, which isn't there"))
        elif linked.get(file, entry.line) != entry.line and entry.hook:
            found.append(MemoryFinding(name, entry.line, "warning", f"names {entry.file} again (line {linked[file]})"))
        linked.setdefault(file, entry.line)
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > MAX_ENTRY_CHARS and line.lstrip().startswith(("-", "*", "+")):
            found.append(MemoryFinding(name, number, "warning", f"{len(line):,} characters: over {MAX_ENTRY_CHARS}"))
    for file in sorted(file for file in files if file.rpartition("/")[0] == folder and file not in linked):
        found.append(MemoryFinding(file, None, "warning", f"in no line of {name}: found by search only"))
    return found
