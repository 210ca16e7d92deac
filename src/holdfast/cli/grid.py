"""The window as a grid of a hundred cells, each a hundredth of it (CLI-2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.cli.door import is_fancy, out

if TYPE_CHECKING:
    from holdfast.context.accounting import Accounting

CELLS = 100
ROW = 10
_FULL, _EMPTY = "■", "□"


@dataclass(frozen=True, slots=True)
class Share:
    """One kind of cell: what it stands for, its letter in plain text, its colour on a terminal."""

    name: str
    tokens: int
    letter: str
    colour: str


# Letter and colour of each category; what isn't listed is "?".
_LOOK: dict[str, tuple[str, str]] = {
    "system prompt": ("S", "grey62"),
    "tools": ("T", "grey50"),
    "system prompt and tools (measured)": ("P", "grey62"),
    "instructions": ("N", "orange1"),
    "memory index": ("X", "orange3"),
    "recalled memories": ("M", "dark_orange"),
    "human messages": ("H", "green"),
    "assistant text": ("A", "cyan"),
    "thinking": ("K", "deep_sky_blue3"),
    "tool requests": ("Q", "magenta"),
    "tool results": ("R", "blue"),
    "duplicate file reads": ("D", "red"),
    "attachments": ("C", "yellow"),
    "images": ("I", "bright_magenta"),
    "summary": ("Y", "purple"),
    "synthetic": ("Z", "white"),
    "other": ("O", "white"),
    "free": (".", "grey30"),
    "reserve": ("x", "grey42"),
}


def shares(accounting: Accounting) -> list[Share]:
    """Every category in its order, then what is free, then the reserve."""
    found = [Share(c.name, c.tokens, *_LOOK.get(c.name, ("?", "white"))) for c in accounting.categories]
    found.append(Share("free", accounting.free, *_LOOK["free"]))
    reserve = max(0, min(accounting.reserve, accounting.window - accounting.size))
    return [*found, Share("reserve", reserve, *_LOOK["reserve"])]


def cells(accounting: Accounting) -> list[Share]:
    """A hundred cells by largest remainder; whatever holds tokens has at least one when there is room for it."""
    found = [share for share in shares(accounting) if share.tokens > 0]
    total = sum(share.tokens for share in found)
    if not total:
        return [Share("free", 0, *_LOOK["free"])] * CELLS
    counts = [max(1, share.tokens * CELLS // total) for share in found]
    while sum(counts) > CELLS:
        counts[counts.index(max(counts))] -= 1
    by_rest = sorted(range(len(found)), key=lambda n: counts[n] * total - found[n].tokens * CELLS)
    for number in by_rest[: CELLS - sum(counts)]:
        counts[number] += 1
    counts[-1] += CELLS - sum(counts)
    return [share for share, count in zip(found, counts, strict=True) for _ in range(count)]


def draw(accounting: Accounting) -> None:
    """The grid, with its legend beside it in the order of the window."""
    grid = cells(accounting)
    legend = list(dict.fromkeys(grid))
    if is_fancy():
        _draw_coloured(grid, legend)
        return
    for start in range(0, CELLS, ROW):
        out("  " + " ".join(share.letter for share in grid[start : start + ROW]))
    out("  " + ", ".join(f"{share.letter} {share.name}" for share in legend))


def _draw_coloured(grid: list[Share], legend: list[Share]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for row in range(max(CELLS // ROW, len(legend))):
        line = Text("  ")
        for share in grid[row * ROW : (row + 1) * ROW]:
            line.append(f"{_EMPTY if share.name == 'free' else _FULL} ", style=share.colour)
        line.pad_right(2 + 2 * ROW + 2 - len(line))
        if row < len(legend):
            line.append(f"{_EMPTY if legend[row].name == 'free' else _FULL} ", style=legend[row].colour)
            line.append(legend[row].name)
        console.print(line)
