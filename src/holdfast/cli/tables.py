"""Tables: drawn by rich on a terminal, aligned plain text everywhere else."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from holdfast.cli.door import clean, is_fancy, out

Cell = str | int | float | None
_FOLDED = 16


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]], *, indent: str = "") -> None:
    """A table with a head; columns that hold only numbers stand right."""
    texts = [[shown(cell) for cell in row] for row in rows]
    right = [bool(rows) and all(isinstance(row[n], int | float | None) for row in rows) for n in range(len(head))]
    if is_fancy():
        _draw(head, texts, right)
        return
    lines = [list(head), *texts]
    widths = [max(_width(line[n]) for line in lines) for n in range(len(head))]
    for line in lines:
        cells = [_padded(text, widths[n], is_right=right[n]) for n, text in enumerate(line)]
        out((indent + "  ".join(cells)).rstrip())


def shown(cell: Cell) -> str:
    """A cell as text: numbers with thousands apart, nothing for None."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:,.2f}" if isinstance(cell, float) else clean(cell)


def _draw(head: Sequence[str], texts: list[list[str]], right: list[bool]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if _needed(head, texts, right) > console.width:
        _stack(head, texts)
        return
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, is_right in zip(head, right, strict=True):
        drawn.add_column(name, justify="right" if is_right else "left", no_wrap=is_right, overflow="fold")
    for line in texts:
        drawn.add_row(*(Text(text) for text in line))
    console.print(drawn)


def _needed(head: Sequence[str], texts: list[list[str]], right: list[bool]) -> int:
    """Columns of a terminal that a table needs to be readable: numbers whole, texts folded at a word or so."""
    widths = [max(_width(line[n]) for line in [list(head), *texts]) for n in range(len(head))]
    return sum(w if is_right else min(w, _FOLDED) for w, is_right in zip(widths, right, strict=True)) + 3 * len(head)


def _stack(head: Sequence[str], texts: list[list[str]]) -> None:
    """On a narrow terminal: one line for each cell that says something, a blank line between rows."""
    label = max(map(_width, head))
    for line in texts:
        for name, text in zip(head, line, strict=True):
            if text:
                out(f"{_padded(name, label, is_right=False)}  {text}")
        out()


def _width(text: str) -> int:
    """Columns of a terminal: wide characters take two, combining ones none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _padded(text: str, width: int, *, is_right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if is_right else text + space


def tokens(count: int) -> str:
    """A token count for people: 940, 12.4k, 1.2M."""
    if count < 10_000:
        return f"{count:,}"
    return f"{count / 1000:.1f}k" if count < 1_000_000 else f"{count / 1_000_000:.2f}M"


def usd(amount: float | None) -> str:
    """Dollars, or that the price isn't known."""
    return "unknown" if amount is None else f"${amount:,.2f}"


def size(count: int) -> str:
    """A number of bytes for people."""
    value = float(count)
    for unit in ("B", "KB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


def plural(count: int, word: str) -> str:
    """`1 session`, `2 sessions`."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
