"""The sheet that a record is written on: sections by place inside one budget, how ids and times are shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from perdure.context.reminders import name
from perdure.transcript.tokens import utf16_units

_SHORT_ID = 12
_SHOWN_IDS = 20


class SheetLine(NamedTuple):
    """A line that a section may have. The lowest `rank` goes in first; `short` is its form when room is scarce."""

    text: str
    rank: float
    id: str = ""
    short: str = ""


@dataclass(slots=True)
class SheetSection:
    """A heading and its lines, as they stand on the sheet."""

    name: str
    text: str
    place: int


@dataclass(slots=True)
class Sheet:
    """Sections by place, and what is left of the budget; `kept` and `dropped` say what is on it and what isn't."""

    units: int
    sections: list[SheetSection] = field(default_factory=list)
    kept: list[dict[str, Any]] = field(default_factory=list)
    dropped: dict[str, dict[str, Any]] = field(default_factory=dict)

    def put(self, section: str, place: int, heading: str, body: str) -> bool:
        """Add a section if it fits, whole."""
        text = f"## {heading}\n{body}" if heading else body
        cost = utf16_units(text) + 2
        if not body or cost > self.units:
            return False
        self.units -= cost
        self.sections.append(SheetSection(section, text, place))
        return True

    def list(self, section: str, place: int, heading: str, lines: Sequence[SheetLine], units: int) -> list[SheetLine]:
        """Add a section with the lines that fit into `units`, by rank, shown in the order given; returns them."""
        room = min(units, self.units) - utf16_units(heading) - 6
        chosen = chosen_lines(lines, room)
        texts = [chosen[index] for index in sorted(chosen)]
        shown = (
            [lines[index] for index in sorted(chosen)] if self.put(section, place, heading, "\n".join(texts)) else []
        )
        self.tell(section, shown, [line for index, line in enumerate(lines) if index not in chosen or not shown])
        return shown

    def tell(self, section: str, shown: Iterable[SheetLine], left: Iterable[SheetLine]) -> None:
        """Note what a section holds and what had to go, with the ids to recall it by."""
        self.kept += [
            {"section": section, "id": line.id} if line.id else {"section": section, "text": line.text[:120]}
            for line in shown
        ]
        gone = list(left)
        if gone:
            ids = list(dict.fromkeys(line.id for line in gone if line.id))
            self.dropped[section] = {"count": len(gone), "recall": ids[:_SHOWN_IDS]}

    def text(self, parts: Mapping[int, str]) -> str:
        """All sections in the order of their places; `parts`: headings of what stands from a place on."""
        lines: list[str] = []
        left = sorted(parts.items(), reverse=True)
        for section in sorted(self.sections, key=lambda one: one.place):
            while len(left) > 1 and section.place >= left[-2][0]:
                left.pop()
            if left and section.place >= left[-1][0]:
                lines.append(f"# {left.pop()[1]}")
            lines.append(section.text)
        return "\n\n".join(lines)


def chosen_lines(lines: Sequence[SheetLine], room: int) -> dict[int, str]:
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
    return _shown(at, "%H:%M")


def day(at: float | None) -> str:
    """The day of a time."""
    return _shown(at, "%Y-%m-%d")


def _shown(at: float | None, form: str) -> str:
    """Nothing of a time that no calendar has: a log may claim any."""
    try:
        return "" if at is None else datetime.fromtimestamp(at, UTC).strftime(form)
    except (OverflowError, ValueError, OSError):
        return ""
