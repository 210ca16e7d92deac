"""The picture of the house: its rooms in the order of the import contract, how large each is, and who imports whom.

A row is a room, and so is a column; the number where they meet says how many import statements of the row's room name
the column's. Since a room may import only what lies below it, every number lies right of the diagonal.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.house import House, Module

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "how" / "house.svg"
ROW, CELL, LEFT, BAR, HEAD = 22, 24, 96, 150, 92  # of the picture, in pixels
TOLERANCE = 0.2  # by how much a room's size may differ from the picture before that is stale
_LEAST = 200  # code lines that make no difference, however small a room is
_STYLE = """\
.name,.col{font:13px system-ui,sans-serif;fill:#1f2328}.num,.lines{font:11px system-ui,sans-serif;fill:#59636e}
.num{text-anchor:middle;fill:#1f2328}.bar{fill:#8fb3d9}.cell{fill:#3b76b8}.band{fill:#f3f5f7}.own{fill:#d1d9e0}
@media (prefers-color-scheme:dark){.name,.col,.num{fill:#e6edf3}.lines{fill:#9198a1}.bar{fill:#3d6288}
.cell{fill:#4c8fd6}.band{fill:#161b22}.own{fill:#3d444d}}"""


@dataclass(frozen=True, slots=True)
class RoomPlan:
    """What the picture shows. `layers` from the top, `lines` of code of each room, import statements by both rooms."""

    layers: tuple[tuple[str, ...], ...]
    lines: Mapping[str, int]
    imports: Mapping[tuple[str, str], int]

    @property
    def rooms(self) -> list[str]:
        return [room for layer in self.layers for room in layer]

    def differences(self, now: RoomPlan) -> list[str]:
        """In words, why a picture of this isn't one of `now`: rooms and arrows exactly, sizes about."""
        if self.layers != now.layers:
            return [f"layers: {self.layers} were drawn, and are {now.layers}"]
        new, gone = sorted(set(now.imports) - set(self.imports)), sorted(set(self.imports) - set(now.imports))
        found = [f"{a} imports {b} now" for a, b in new] + [f"{a} no longer imports {b}" for a, b in gone]
        for room in now.rooms:
            was, lines = self.lines[room], now.lines[room]
            if abs(was - lines) > max(_LEAST, TOLERANCE * lines):
                found.append(f"{room} has {lines:,} code lines, and was drawn with {was:,}")
        return found


def planned(house: House, pyproject: Path) -> RoomPlan:
    """The house as its sources and the import contract have it. Names with underlines are no rooms."""
    contract = tomllib.loads(pyproject.read_text())["tool"]["importlinter"]["contracts"][0]["layers"]
    room_of = {module.name: module.name.partition(".")[0] for module in house.modules}
    there = {room for room in room_of.values() if room and not room.startswith("_")}
    named = (tuple(name.strip("() ") for name in layer.split("|")) for layer in contract)
    layers = tuple(tuple(room for room in layer if room in there) for layer in named)
    lines, imports = Counter[str](), Counter[tuple[str, str]]()
    for module in house.modules:
        room = room_of[module.name]
        lines[room] += len(module.code)
        for other in _imported_rooms(module, house.root.name):
            if room in there and other in there and other != room:
                imports[room, other] += 1
    kept = tuple(layer for layer in layers if layer)
    return RoomPlan(kept, {room: lines[room] for layer in kept for room in layer}, dict(imports))


def _imported_rooms(module: Module, package: str) -> Iterator[str]:
    """The rooms that each import statement of a module names, each once for a statement."""
    for names in module.imports(package):
        yield from sorted({name.partition(".")[0] for name in names})


def drawn(plan: RoomPlan) -> str:
    """The picture as SVG, the same for the same plan; what it shows is also in it as data."""
    columns = [room for room in plan.rooms if any(other == room for _, other in plan.imports)]
    width, height = LEFT + BAR + CELL * len(columns) + 36, HEAD + ROW * len(plan.rooms) + 6
    biggest = max(plan.lines.values())
    most = math.log1p(max(plan.imports.values(), default=1))
    about = f"{len(plan.rooms)} rooms, and which of them import which"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img"><title>{about}</title>',
        f"<metadata>{escape(json.dumps(_told(plan), separators=(',', ':')), quote=False)}</metadata>",
        f"<style>{_STYLE}</style>",
    ]
    left_of = {room: LEFT + BAR + CELL * n for n, room in enumerate(columns)}
    top = HEAD
    for number, layer in enumerate(plan.layers):  # siblings share a band
        if number % 2 == 0:
            parts.append(f'<rect class="band" x="0" y="{top}" width="{width}" height="{ROW * len(layer)}"/>')
        top += ROW * len(layer)
    for room, left in left_of.items():
        place = f"translate({left + CELL // 2 + 5},{HEAD - 6}) rotate(-58)"
        parts.append(f'<text class="col" transform="{place}">{room}</text>')
    for number, room in enumerate(plan.rooms):
        top = HEAD + ROW * number
        middle, size = top + ROW // 2 + 4, max(2, round((BAR - 56) * plan.lines[room] / biggest))
        parts.append(f'<text class="name" x="6" y="{middle}">{room}</text>')
        parts.append(f'<rect class="bar" x="{LEFT}" y="{top + 5}" width="{size}" height="{ROW - 10}" rx="2"/>')
        parts.append(f'<text class="lines" x="{LEFT + size + 5}" y="{middle}">{_short(plan.lines[room])}</text>')
        if room in left_of:
            parts.append(f'<circle class="own" cx="{left_of[room] + CELL // 2}" cy="{top + ROW // 2}" r="3"/>')
        for other, left in left_of.items():
            if count := plan.imports.get((room, other), 0):
                shade = f"{0.12 + 0.5 * math.log1p(count) / most:.2f}"
                parts.append(
                    f'<rect class="cell" x="{left + 1}" y="{top + 1}" width="{CELL - 2}" height="{ROW - 2}" rx="3" '
                    f'fill-opacity="{shade}"/><text class="num" x="{left + CELL // 2}" y="{middle}">{count}</text>'
                )
    return "\n".join([*parts, "</svg>"]) + "\n"


def plan_in(svg: str) -> RoomPlan:
    """What a picture shows."""
    found = re.search(r"<metadata>(.*?)</metadata>", svg)
    told = json.loads(unescape(found[1])) if found else {"layers": [], "lines": {}, "imports": {}}
    imports = {(a, b): count for a, others in told["imports"].items() for b, count in others.items()}
    return RoomPlan(tuple(map(tuple, told["layers"])), told["lines"], imports)


def _told(plan: RoomPlan) -> dict[str, object]:
    imports: dict[str, dict[str, int]] = {room: {} for room in plan.rooms}
    for room in plan.rooms:
        for other in plan.rooms:
            if count := plan.imports.get((room, other), 0):
                imports[room][other] = count
    return {"layers": plan.layers, "lines": dict(plan.lines), "imports": imports}


def _short(lines: int) -> str:
    return str(lines) if lines < 1_000 else f"{lines / 1_000:.1f}k"
