"""The table of the front page, out of docs/measured/peers.md: of each package the setting that fares best.

That is the one with the fewest requests that a provider would have refused, then the cheapest; ours is the default.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

NAMES: Final = {
    "perdure": "Perdure",
    "langchain": "LangChain",
    "openai-agents": "OpenAI Agents",
    "pydantic-ai-harness": "pydantic-ai-harness",
    "litellm": "LiteLLM",
    "openhands-sdk": "OpenHands",
}
HEAD: Final = ("", "refused", "price", "facts in view", "longer session: price", "facts in view", "ms a turn")
ALIGNED: Final = ("---", *("---:",) * 6)

Rows = dict[str, dict[str, str]]


def front_table(page: str) -> str:
    """The table in Markdown; what is best of a column is bold."""
    three, long = (_rows(page, heading) for heading in ("## Three recordings", "## One long recording"))
    others = sorted((_best(three, package) for package in NAMES if package != "perdure"), key=lambda n: _rank(three[n]))
    best = [_best(three, "perdure"), *others]
    cells = [_cells(three[name], long.get(name, {})) for name in best]
    columns = [_bold(column, most=n in (2, 4)) for n, column in enumerate(zip(*cells, strict=True))]
    rows = [(_named(name), *figures) for name, figures in zip(best, zip(*columns, strict=True), strict=True)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (HEAD, ALIGNED, *rows))


def _rows(page: str, heading: str) -> Rows:
    """The figures below a heading by row and column, of one or several tables. Raises `ValueError` without any."""
    part = page.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    found: Rows = {}
    head: list[str] = []
    for line in part.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []
        if cells and not cells[0]:
            head = cells
        elif cells and not cells[0].startswith("---"):
            row = found.setdefault(cells[0], {})
            for name, cell in zip(head[1:], cells[1:], strict=True):
                row.setdefault(name, cell)
    if not found:
        raise ValueError(f"no table below {heading!r}")
    return found


def _best(rows: Rows, package: str) -> str:
    names = [name for name in rows if name.startswith(f"{package}:")]
    return names[0] if package == "perdure" else min(names, key=lambda name: _rank(rows[name]))


def _refused(row: dict[str, str]) -> int:
    return int(row["invalid"]) + int(row["beyond"])


def _rank(row: dict[str, str]) -> tuple[int, float]:
    return _refused(row), float(row["USD"])


def _cells(row: dict[str, str], long: dict[str, str]) -> list[str]:
    later = (f"${long['USD']}", f"{long['facts']} %") if long else ("–", "–")
    return [f"{_refused(row)} of {row['calls']}", f"${row['USD']}", f"{row['facts']} %", *later, row["ms at 200k"]]


def _bold(column: Sequence[str], *, most: bool) -> Iterable[str]:
    figures = [float(match[0]) if (match := re.search(r"\d+(\.\d+)?", cell)) else None for cell in column]
    there = [figure for figure in figures if figure is not None]
    best = max(there) if most else min(there)
    return [f"**{cell}**" if figure == best else cell for cell, figure in zip(column, figures, strict=True)]


def _named(name: str) -> str:
    package, _, setting = name.partition(": ")
    return f"{NAMES[package]}, {setting}"
