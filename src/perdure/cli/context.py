"""`perdure context`: what fills the window, and what is left of it (TOK-6, TOK-7, PRS-7)."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.arguments import Json, OneOfFile, Reference, Sets, complete_models, configured, examples, family
from perdure.cli.kept import KeptIn, StoreUrl, TenantName
from perdure.cli.loop import in_loop
from perdure.cli.output import Cell, clean, is_fancy, out, out_json, table, tokens
from perdure.errors import BadSetting, PerdureError

if TYPE_CHECKING:
    from perdure.cli.opened import ReadSession
    from perdure.context.accounting import Accounting
    from perdure.context.policy import Facts
    from perdure.context.view import ContextView
    from perdure.transcript.blocks import Block


app = family()
_ROWS = 5  # tools or files shown under a category
_NAME_CHARS = 40


@app.command(
    epilog=examples(
        "perdure context @last",
        "perdure context 7k2q9x --exact anthropic:claude-sonnet-5-5",
        "perdure context session.jsonl --set window_tokens=200k",
    )
)
def context(
    session: Reference,
    *,
    which: OneOfFile = None,
    exact: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL|FILE",
            help="Also count exactly: by a model's provider, or with a tokenizer.json.",
            autocompletion=complete_models,
        ),
    ] = None,
    store: StoreUrl = None,
    tenant: TenantName = None,
    sets: Sets = None,
    json: Json = False,
) -> None:
    """Show what fills the window, and what is left.

    A grid of a hundred cells and a table of what the model sees now.
    """
    from perdure.cli.opened import read_session
    from perdure.context.accounting import account

    one = read_session(session, configured(sets or ()), session=which, kept=KeptIn(store, tenant))
    accounting = account(one.view, one.facts)
    counted = None if exact is None else exact_tokens(one, exact)
    if json:
        told = {} if counted is None else {"exact_tokens": counted, "exact_by": exact}
        about = {"file": one.name, "session": one.session, "format": one.format}
        out_json({**about, **window_data(one, accounting), **told})
        return
    name = shlex.quote(session)
    show_window(one.session, one.view, one.facts, compact=f"`perdure compact {name}`", trim=_TRIM)
    if counted is not None:
        difference = (accounting.size - counted) * 100 / max(1, counted)
        out(f"  {counted:,} tokens as {clean(str(exact))} counts them; our estimate is {difference:+.1f}% off")


_TRIM = "switch on the setting compact, or start a new session"


def show_window(name: str, view: ContextView, facts: Facts, **advice: str) -> None:
    """Grid, table and thresholds of a view, for people; `advice` is as for `low_line`."""
    from perdure.cli.room import room_lines, used_line
    from perdure.context.accounting import account

    accounting = account(view, facts)
    out(f"{clean(name)}: {used_line(view, facts)}\n")
    draw(accounting)
    out()
    category_table(accounting)
    out()
    for line in room_lines(view, facts, **advice):
        out(f"  {line}")


def window_data(one: ReadSession, accounting: Accounting) -> dict[str, Any]:
    """The accounting and thresholds of a session, for programs."""
    from perdure.context.accounting import trust_tokens
    from perdure.context.policy import percent_left, pressure_at

    limits = one.facts.limits
    return {
        "tokens": accounting.size,
        "is_measured": accounting.is_measured,
        "window": limits.window,
        "window_source": limits.window_source,
        "reserve": limits.reserve,
        "usable": limits.usable,
        "trigger": limits.trigger,
        "warning": limits.warning,
        "error": limits.error,
        "block": limits.block,
        "auto_compact": limits.auto,
        "pressure": pressure_at(accounting.size, limits).value,
        "percent_left": round(percent_left(accounting.size, limits), 1),
        "free": accounting.free,
        "categories": [
            {
                "name": c.name,
                "tokens": c.tokens,
                "count": c.count,
                "parts": c.parts,
                "rows": [{"name": r.name, "tokens": r.tokens, "count": r.count} for r in c.rows],
            }
            for c in accounting.categories
        ],
        "trust": trust_tokens(one.view),
    }


def category_table(accounting: Accounting, *, indent: str = "  ") -> None:
    """Categories with the largest tools or files under each; free space and reserve at the end."""
    window = max(1, accounting.window)
    rows: list[tuple[Cell, ...]] = []
    for category in accounting.categories:
        rows.append((category.name, category.tokens, _percent(category.tokens, window), category.count))
        for row in category.rows[:_ROWS]:
            rows.append((f"    {_end(row.name)}", row.tokens, _percent(row.tokens, window), row.count))
        if len(category.rows) > _ROWS:
            rest = category.rows[_ROWS:]
            more = sum(r.tokens for r in rest)
            rows.append((f"    {len(rest)} more", more, _percent(more, window), sum(r.count for r in rest)))
    rows.append(("free", accounting.free, _percent(accounting.free, window), None))
    rows.append(("reserve for the answer", accounting.reserve, _percent(accounting.reserve, window), None))
    table(("what", "tokens", "% of window", "count"), rows, indent=indent)


def _end(name: str) -> str:
    """The end of a path or name that is too long for a table."""
    return name if len(name) <= _NAME_CHARS else "…" + name[1 - _NAME_CHARS :]


def _percent(tokens: int, window: int) -> float:
    return tokens * 100 / window


# --- the grid: a hundred cells, each a hundredth of the window --------------------------------------------------------

CELLS = 100
ROW = 10
_FULL, _EMPTY = "■", "□"


@dataclass(frozen=True, slots=True)
class GridCell:
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
    "placeholders": ("Z", "white"),
    "other": ("O", "white"),
    "free": (".", "grey30"),
    "reserve": ("x", "grey42"),
}


def shares(accounting: Accounting) -> list[GridCell]:
    """Every category in its order, then what is free, then the reserve."""
    found = [GridCell(c.name, c.tokens, *_LOOK.get(c.name, ("?", "white"))) for c in accounting.categories]
    found.append(GridCell("free", accounting.free, *_LOOK["free"]))
    reserve = max(0, min(accounting.reserve, accounting.window - accounting.size))
    return [*found, GridCell("reserve", reserve, *_LOOK["reserve"])]


def cells(accounting: Accounting) -> list[GridCell]:
    """A hundred cells by largest remainder; whatever holds tokens has at least one when there is room for it."""
    found = [share for share in shares(accounting) if share.tokens > 0]
    total = sum(share.tokens for share in found)
    if not total:
        return [GridCell("free", 0, *_LOOK["free"])] * CELLS
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
    else:
        for start in range(0, CELLS, ROW):
            out("  " + " ".join(share.letter for share in grid[start : start + ROW]))
        out("  " + ", ".join(f"{share.letter} {share.name}" for share in legend))
    cell = max(1, accounting.window) / CELLS
    if any(0 < share.tokens < cell / 2 for share in legend):
        out(f"  (a cell is {tokens(round(cell))} tokens; anything smaller still has a cell of its own)")


def _draw_coloured(grid: list[GridCell], legend: list[GridCell]) -> None:
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


# --- the size by someone who knows: the provider, or a tokenizer in a file --------------------------------------------


def exact_tokens(one: ReadSession, by: str) -> int:
    """Tokens of the request that would be sent next, by a model's provider (which is sent it) or a tokenizer file."""

    path = Path(by).expanduser()
    if path.suffix == ".json":
        return _local(one, path)
    counted = in_loop(_asked, one, by)
    if counted is None:
        raise PerdureError(f"{by}: its server counts no tokens; name another model, or a tokenizer.json")
    return counted


async def _asked(one: ReadSession, name: str) -> int | None:
    from perdure.context.request import to_request
    from perdure.wiring import connected

    async with connected((name,), os.environ) as models:
        if not models:
            raise BadSetting(f"--exact {name}: no model that counts; name one, or a tokenizer.json")
        (model,) = models
        request = to_request(one.view, one.facts, protocol=model.about.protocol, model=model.about.id)
        return await model.count(request)


def _local(one: ReadSession, path: Path) -> int:
    """Every text of the request by a Hugging Face tokenizer; what the provider adds around them isn't in it."""
    try:
        from tokenizers import Tokenizer
    except ImportError as e:
        raise BadSetting(f"--exact {path}: needs the package tokenizers: pip install tokenizers") from e
    try:
        tokenizer: Any = Tokenizer.from_file(str(path))
    except Exception as e:  # the library raises plain Exception for a file that is none
        raise PerdureError(f"{path}: no tokenizer can be read from it: {e}") from e
    texts = list(_texts(one))
    return sum(len(found.ids) for found in tokenizer.encode_batch(texts, add_special_tokens=False))


def _texts(one: ReadSession) -> Iterator[str]:
    from perdure.context.groups import flatten
    from perdure.transcript.blocks import Block

    front = one.view.front
    for raw in (*front.system, *front.tools) if front else ():
        yield bytes(raw).decode("utf-8", "replace")
    for group in flatten(one.view):
        for part in group.parts():
            yield from _text(Block(part.raw))


def _text(block: Block) -> Iterator[str]:

    from perdure.transcript.blocks import Text, Thinking, ToolResult

    value = block.value
    if isinstance(value, Text):
        yield value.text
    elif isinstance(value, Thinking):
        yield value.thinking
    elif isinstance(value, ToolResult) and isinstance(value.content, str):
        yield value.content
    elif isinstance(value, ToolResult):
        for part in value.parts():
            yield from _text(part)
    elif block.type not in ("image", "document"):
        yield block.raw.decode("utf-8", "replace")
