"""Markdown, as far as instruction files and quotations need it: code, comments, imports, sections (INS-3, INS-5).

Line by line and in linear time. A fence is a line of at least three backticks or tildes, also inside lists and quotes;
a code span ends at a run of as many backticks as began it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MAX_IMPORTS: Final = 200  # of one file; a text with more `@` words is not a list of imports

_FENCE = re.compile(r"[ \t>]*(?:[-*+][ \t]+|\d{1,9}[.)][ \t]+)?(?P<run>`{3,}|~{3,})(?P<info>[^\n]*)")
_COMMENT = re.compile(r" {0,3}<!--")
_IMPORT = re.compile(r"(?:^|(?<=[\s(]))@((?:\\ |[^\s\\`])+)", re.MULTILINE)
_RUN = re.compile(r"`+")
_STARTS = re.compile(r"[\w.~/-]")
_TRAILING = ".,;:!?)]}'\""
_HEADING = re.compile(r" {0,3}(?P<marks>#{1,6})(?:[ \t]+(?P<title>[^\n]*))?$")
_COMPACT = re.compile(r"(?:compact|compaction|summary)\s+instructions?\W*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MarkdownSection:
    """A heading with the text up to the next one; the text in front of the first heading has `level` 0."""

    level: int
    title: str
    text: str


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Each line with its end, and whether it belongs to a fence."""
    fence = ""
    for line in text.splitlines(keepends=True):
        found = _FENCE.match(line)
        if fence:
            rest = line.strip().lstrip("> \t")
            yield line, True
            if found is not None and rest[: len(fence)] == fence and not rest.strip(fence[0]):
                fence = ""
        elif found is not None and not (found["run"][0] == "`" and "`" in found["info"]):
            fence = found["run"]
            yield line, True
        else:
            yield line, False


def without_comments(text: str) -> str:
    """The text without HTML comments that begin a line; those in code stay, and so does one that never ends."""
    if "<!--" not in text:
        return text
    kept: list[str] = []
    held: list[str] = []  # of a comment that isn't closed yet
    for line, is_code in _lines(text):
        if held:
            _, end, after = line.partition("-->")
        elif not is_code and _COMMENT.match(line):
            _, end, after = line.split("<!--", 1)[1].partition("-->")
        else:
            kept.append(line)
            continue
        if not end:
            held.append(line)
            continue
        held = []
        if after.strip():
            kept.append(after)
    return "".join(kept + held)


def imports(text: str) -> tuple[str, ...]:
    """The paths that `@path` words name, in order, each once; not those in code spans or fences (INS-3)."""
    if "@" not in text:
        return ()
    plain = _without_spans("".join("\n" if is_code else line for line, is_code in _lines(text)))
    found: dict[str, None] = {}
    for match in _IMPORT.finditer(plain):
        path = match[1].split("#", 1)[0].replace("\\ ", " ").rstrip(_TRAILING)
        if path and _STARTS.match(path) and path not in ("/", "~", "~/"):
            found.setdefault(path)
        if len(found) == MAX_IMPORTS:
            break
    return tuple(found)


def _without_spans(text: str) -> str:
    """The text with code spans blanked; an unpaired run of backticks is just backticks."""
    runs = [(found.start(), found.end()) for found in _RUN.finditer(text)]
    if not runs:
        return text
    later: dict[int, list[int]] = {}  # by length: the runs still to come, the nearest last
    for number in range(len(runs) - 1, -1, -1):
        start, end = runs[number]
        later.setdefault(end - start, []).append(number)
    parts: list[str] = []
    at, number = 0, 0
    while number < len(runs):
        start, end = runs[number]
        same = later[end - start]
        while same and same[-1] <= number:
            same.pop()
        if not same:
            number += 1
            continue
        close = same[-1]
        parts += [text[at:start], "`"]
        at, number = runs[close][1], close + 1
    return "".join([*parts, text[at:]])


def sections(text: str) -> tuple[MarkdownSection, ...]:
    """The text in its sections; joined, they are the text."""
    found: list[tuple[int, str, list[str]]] = [(0, "", [])]
    for line, is_code in _lines(text):
        heading = None if is_code else _HEADING.match(line.rstrip("\r\n"))
        if heading is not None:
            title = (heading["title"] or "").strip().rstrip("#").strip()
            found.append((len(heading["marks"]), title, [line]))
        else:
            found[-1][2].append(line)
    return tuple(MarkdownSection(level, title, "".join(lines)) for level, title, lines in found if lines)


def compact_instructions(text: str) -> str:
    """What a section `Compact Instructions` says, with the sections under it (CMP-3); empty when there is none."""
    kept: list[str] = []
    level = 0
    for section in sections(text):
        if level and section.level > level:
            kept.append(section.text)
            continue
        level = section.level if section.level and _COMPACT.match(section.title) else 0
        if level:
            kept.append(section.text.partition("\n")[2])
    return "".join(kept).strip()


def cut_at_section(text: str, fits: int) -> str:
    """At most `fits` characters of the text, cut where a section ends, else a paragraph, else a line."""
    if len(text) <= fits:
        return text
    kept = 0
    for section in sections(text):
        if kept + len(section.text) > fits:
            break
        kept += len(section.text)
    if not kept:
        head = text[:fits]
        kept = max(head.rfind("\n\n") + 1, 0) or head.rfind("\n") + 1
    return text[:kept].rstrip()


_TICKS = re.compile("`+")


def fenced(text: str) -> str:
    """A text byte for byte, between fences longer than any in it: for pins, which nothing may change (REL-14)."""
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"
