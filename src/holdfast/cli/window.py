"""`holdfast context`: what the window is filled with, as the view is (TOK-6, PRS-7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.cli.door import clean, out, out_json
from holdfast.cli.grid import draw
from holdfast.cli.opened import Opened, opened_one
from holdfast.cli.tables import Cell, table
from holdfast.context.accounting import Accounting, account
from holdfast.context.policy import Facts, Thresholds, low_line, percent_left, pressure_at
from holdfast.context.trusted import trust_tokens
from holdfast.context.view import View

if TYPE_CHECKING:
    from holdfast.adapters.config import Config

_ROWS = 5  # tools or files shown under a category
_NAME_CHARS = 40


def context_command(reference: str, config: Config, *, session: str | None, exact: str | None, is_json: bool) -> None:
    """Grid, table, thresholds and what is left of one session; with `exact`, the size by someone who counts."""
    one = opened_one(reference, config, session=session)
    accounting = account(one.view, one.facts)
    counted = None if exact is None else _exact(one, exact)
    if is_json:
        told = {} if counted is None else {"exact_tokens": counted, "exact_by": exact}
        about = {"file": one.name, "session": one.session, "format": one.format}
        out_json({**about, **window_data(one, accounting), **told})
        return
    show_window(one.session, one.view, one.facts)
    if counted is not None:
        difference = (accounting.size - counted) * 100 / max(1, counted)
        out(f"  {counted:,} tokens as {clean(str(exact))} counts them; ours is {difference:+.1f}% off")


def show_window(name: str, view: View, facts: Facts) -> None:
    """Grid, table and thresholds of a view, for people."""
    accounting = account(view, facts)
    out(f"{clean(name)}: {accounting.size:,} of {accounting.window:,} tokens\n")
    draw(accounting)
    out()
    category_table(accounting)
    out()
    _thresholds(facts.limits, accounting)


def _exact(one: Opened, by: str) -> int:
    from holdfast.cli.counting import exact_tokens

    return exact_tokens(one, by)


def window_data(one: Opened, accounting: Accounting) -> dict[str, Any]:
    """The accounting and thresholds of a session, for programs."""
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


def _thresholds(limits: Thresholds, accounting: Accounting) -> None:
    size = accounting.size
    how = "reported by the provider, and estimated since" if accounting.is_measured else "estimated"
    out(f"  size {how}; window from: {limits.window_source}")
    auto = f"auto-compaction at {limits.trigger:,}" if limits.auto else "auto-compaction is off"
    out(f"  {auto}; warning at {limits.warning:,}; no calls above {limits.block:,}")
    out(f"  {percent_left(size, limits):.0f}% left; pressure: {pressure_at(size, limits).value}")
    if (line := low_line(size, limits)) is not None:
        out(f"  {line}")
