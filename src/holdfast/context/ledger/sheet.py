"""The sheet that a rendering is written on: sections with a share of the budget, who hand on what they don't use.

Sizes are UTF-16 units, four to a token by the base rule, so that a sheet is never over its budget (TOK-1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from holdfast.context.quoting import name
from holdfast.transcript.tokens import utf16_units

_SHORT_ID = 12
_SHOWN_IDS = 20


class Line(NamedTuple):
    """A line that a section may have. The lowest `rank` goes in first; `short` is its form when room is scarce."""

    text: str
    rank: float
    id: str = ""
    short: str = ""


@dataclass(slots=True)
class Section:
    """A heading and its lines, as they stand on the sheet."""

    name: str
    text: str
    place: int


@dataclass(slots=True)
class Sheet:
    """Sections by place, and what is left of the budget; `kept` and `dropped` say what is on it and what isn't."""

    units: int
    sections: list[Section] = field(default_factory=list)
    kept: list[dict[str, Any]] = field(default_factory=list)
    dropped: dict[str, dict[str, Any]] = field(default_factory=dict)

    def put(self, section: str, place: int, heading: str, body: str) -> bool:
        """Add a section if it fits, whole."""
        text = f"## {heading}\n{body}" if heading else body
        cost = utf16_units(text) + 2
        if not body or cost > self.units:
            return False
        self.units -= cost
        self.sections.append(Section(section, text, place))
        return True

    def list(self, section: str, place: int, heading: str, lines: Sequence[Line], units: int) -> list[Line]:
        """Add a section with the lines that fit into `units`, by rank, shown in the order given; returns them."""
        room = min(units, self.units) - utf16_units(heading) - 6
        chosen = chosen_lines(lines, room)
        texts = [chosen[index] for index in sorted(chosen)]
        shown = (
            [lines[index] for index in sorted(chosen)] if self.put(section, place, heading, "\n".join(texts)) else []
        )
        self.tell(section, shown, [line for index, line in enumerate(lines) if index not in chosen or not shown])
        return shown

    def tell(self, section: str, shown: Iterable[Line], left: Iterable[Line]) -> None:
        """Note what a section holds and what had to go, with the ids to recall it by."""
        self.kept += [
            {"section": section, "id": line.id} if line.id else {"section": section, "text": line.text[:120]}
            for line in shown
        ]
        gone = list(left)
        if gone:
            ids = list(dict.fromkeys(line.id for line in gone if line.id))
            self.dropped[section] = {"count": len(gone), "recall": ids[:_SHOWN_IDS]}

    def text(self) -> str:
        """All sections in the order of their places."""
        return "\n\n".join(section.text for section in sorted(self.sections, key=lambda one: one.place))


def chosen_lines(lines: Sequence[Line], room: int) -> dict[int, str]:
    """The lines that fit, by index: first by rank; one that doesn't fit whole goes in short, or not at all."""
    chosen: dict[int, str] = {}
    for index in sorted(range(len(lines)), key=lambda i: (lines[i].rank, i)):
        for text in (lines[index].text, lines[index].short):
            cost = utf16_units(text) + 1
            if text and cost <= room:
                chosen[index] = text
                room -= cost
                break
        if room < 8:
            break
    return chosen


def short_id(identity: str) -> str:
    """An id as it is shown: whole when short, else its end, by which recall finds it too."""
    return name(identity if len(identity) <= _SHORT_ID else f"…{identity[-8:]}")


def clock(at: float | None) -> str:
    """A time for people: the hour and minute, UTC."""
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%H:%M")


def day(at: float | None) -> str:
    """The day of a time."""
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")


def clip(text: str, units: int) -> str:
    """A text that fits: its beginning and its end, with the gap marked."""
    if utf16_units(text) <= units:
        return text
    mark = " […] "
    room = units - len(mark)
    if room < 16:
        return _head(text, max(0, units))
    tail = room // 4
    return f"{_head(text, room - tail).rstrip()}{mark}{_end(text, tail).lstrip()}"


def _head(text: str, units: int) -> str:
    part = text[:units]
    while utf16_units(part) > units:
        part = part[: len(part) - max(1, (utf16_units(part) - units) // 2)]
    return part


def _end(text: str, units: int) -> str:
    part = text[-units:] if units else ""
    while utf16_units(part) > units:
        part = part[max(1, (utf16_units(part) - units) // 2) :]
    return part
