"""The page of a session: one HTML file that needs nothing else, with drawings that stretch (CLI-4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import pairwise
from pathlib import PurePath

import msgspec

from perdure.lab.report.timeline import (
    CompactedMessage,
    Timeline,
    TimelineCompaction,
    TimelineTurn,
    output_warning,
    totals,
)
from perdure.transcript.messages import Usage

WIDE, HIGH = 1000, 300


def areas(series: Sequence[tuple[str, Sequence[int]]], xs: Sequence[float], top: int) -> str:
    """Areas on top of each other, the first at the bottom: (css class, value at each x). `top` is the height."""
    base = [0.0] * len(xs)
    drawn: list[str] = []
    for name, values in series:
        upper = [low + value for low, value in zip(base, values, strict=True)]
        if any(values):
            there = [f"{x:.1f},{_y(value, top):.1f}" for x, value in zip(xs, upper, strict=True)]
            back = [f"{x:.1f},{_y(value, top):.1f}" for x, value in zip(reversed(xs), reversed(base), strict=True)]
            drawn.append(f'<polygon class="{name}" points="{" ".join(there + back)}"/>')
        base = upper
    return "".join(drawn)


def line(values: Sequence[float], xs: Sequence[float], top: float, name: str) -> str:
    """One line over the width."""
    points = " ".join(f"{x:.1f},{_y(value, top):.1f}" for x, value in zip(xs, values, strict=True))
    return f'<polyline class="{name}" points="{points}"/>'


def level(value: float, top: float, name: str) -> str:
    """A horizontal line at a value."""
    y = _y(value, top)
    return f'<line class="{name}" x1="0" x2="{WIDE}" y1="{y:.1f}" y2="{y:.1f}"/>'


def post(x: float, name: str) -> str:
    """A vertical line at a place."""
    return f'<line class="{name}" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{HIGH}"/>'


def svg(shapes: str, label: str, *, high: int = HIGH) -> str:
    """The drawing; `label` is what a screen reader says."""
    return (
        f'<svg viewBox="0 0 {WIDE} {HIGH}" preserveAspectRatio="none" role="img" aria-label="{label}" '
        f'style="height:{high}px">{shapes}</svg>'
    )


def places(count: int) -> list[float]:
    """Where so many turns stand; a single one fills the width."""
    if count == 1:
        return [0.0, float(WIDE)]
    return [n * WIDE / (count - 1) for n in range(count)]


def _y(value: float, top: float) -> float:
    return HIGH - min(1.0, value / top) * HIGH if top else float(HIGH)


def scale(most: float) -> tuple[float, float]:
    """The height of a chart and the step of its marks: round numbers, four to eight marks."""
    step = 1.0
    while most / step > 8:
        step *= 2.5 if str(step)[0] == "2" else 2
    return max(step, -(-most // step) * step), step


MOST_PIECES = 200  # of the messages that a compaction kept or dropped
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)

# Categories that are drawn together, in the order of the window: name, css class, which.
GROUPS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("system prompt and tools", "k0", ("system prompt", "tools", "system prompt and tools (measured)")),
    ("instructions and memory", "k1", ("instructions", "memory index", "recalled memories")),
    ("human messages", "k2", ("human messages",)),
    ("assistant text", "k3", ("assistant text",)),
    ("thinking", "k4", ("thinking",)),
    ("tool requests", "k5", ("tool requests",)),
    ("tool results", "k6", ("tool results", "duplicate file reads")),
    ("images", "k7", ("images",)),
    ("summary", "k8", ("summary",)),
    ("everything else", "k9", ("attachments", "placeholders", "other")),
)


@dataclass(frozen=True, slots=True)
class Price:
    """What somebody paid, or would have: tokens by how they are paid for, dollars if there is a price."""

    who: str
    uncached: int
    cache_write: int
    cache_read: int
    output: int
    usd: float | None
    note: str = ""  # what makes it doubtful


@dataclass(frozen=True, slots=True, kw_only=True)
class PageHeader:
    """What the page says of the session beside its timeline. `is_kept`: recall finds its messages here."""

    session: str
    title: str | None
    source: str
    how: str
    is_kept: bool
    made: str
    prices: tuple[Price, ...] = ()
    logged: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def header_of(
    told: Timeline, *, session: str, title: str | None, source: str, made: str, problems: tuple[str, ...] = ()
) -> PageHeader:
    """What a page says of a session of ours, as it happened."""
    used = told.usage
    read, written = used.cache_read_input_tokens, used.cache_creation_input_tokens
    note = output_warning(used.output_tokens, told.written)
    paid = Price("paid", used.input_tokens, written, read, used.output_tokens, told.usd, note)
    return PageHeader(
        session=session,
        title=title,
        source=source,
        how="as it happened",
        is_kept=True,
        made=made,
        prices=(paid,) if used != Usage() else (),
        problems=problems,
    )


def page(about: PageHeader, told: Timeline) -> str:
    """The whole file."""
    body = "".join((*_head(about, told), *_chart(told), *_events(told), *_prices(about)))
    body += "".join((*_compactions(about, told), *_notes(about)))
    turns = msgspec.json.encode([_line(turn) for turn in told.turns]).decode().replace("<", "\\u003c")
    title = escape(about.title or about.session)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title} · Perdure</title><style>{_file('page.css')}</style></head><body>{body}"
        f'<script type="application/json" id="turns">{turns}</script><script>{_file("page.js")}</script></body>'
        "</html>\n"
    )


def _file(name: str) -> str:
    return (files("perdure.lab.report") / name).read_text(encoding="utf-8")


def _head(about: PageHeader, told: Timeline) -> Iterator[str]:
    limits, last = told.facts.limits, told.turns[-1] if told.turns else None
    yield f"<h1>{escape(about.title or about.session)}</h1>"
    where = (about.session if about.title else "", about.source, about.how)
    yield f'<p class="soft">{escape(" · ".join(filter(None, where)))}</p>'
    model = told.view.front.model if told.view.front and told.view.front.model else "unknown model"
    facts = [
        ("turns", f"{told.all_turns:,}"),
        ("tokens in the last request", f"{last.size:,}" if last else "none"),
        ("window", f"{limits.window:,}"),
        ("compaction at", f"{limits.trigger:,}" if limits.auto else "off"),
        ("compactions", f"{len(told.compactions):,}"),
        ("model", model),
    ]
    cells = "".join(f'<div class="fact">{escape(name)}<b>{escape(value)}</b></div>' for name, value in facts)
    yield f'<div class="facts">{cells}</div>'


def _line(turn: TimelineTurn) -> str:
    """What the pointer shows of a turn."""
    parts = [(name, sum(turn.categories.get(c, 0) for c in which)) for name, _, which in GROUPS]
    said = ", ".join(f"{name} {tokens:,}" for name, tokens in sorted(parts, key=lambda p: -p[1]) if tokens)
    usd = f", ${turn.usd:,.2f} so far" if turn.usd is not None else ""
    return f"turn {turn.number}: {turn.size:,} tokens{usd} — {said}"


def _chart(told: Timeline) -> Iterator[str]:
    yield "<h2>Tokens over turns</h2>"
    if not told.turns:
        yield "<p>No request was made in this session.</p>"
        return
    limits = told.facts.limits
    turns = told.turns * 2 if len(told.turns) == 1 else told.turns
    xs = places(len(told.turns))
    near = max(turn.size for turn in turns) > limits.trigger * 0.25
    top, step = scale(max(*(turn.size for turn in turns), limits.trigger * 1.05 if near else 0))
    series = [(css, [sum(t.categories.get(c, 0) for c in which) for t in turns]) for _, css, which in GROUPS]
    shapes = "".join(level(n * step, top, "grid") for n in range(1, round(top / step)))
    shapes += areas(series, xs, int(top))
    levels = [("trigger", limits.trigger, "compaction"), ("warning", limits.warning, "warning")] if near else []
    shapes += "".join(level(value, top, css) for css, value, _ in levels)
    shapes += "".join(post(_place(told, one.turn, xs), "compacted") for one in told.compactions)
    marks = "".join(_mark(n * step, top) for n in range(round(top / step) + 1))
    named = "".join(f'<span class="level" style="bottom:{v / top:.2%}">{n} {_k(v)}</span>' for _, v, n in levels)
    drawn = svg(shapes, "tokens of each request by category")
    yield f'<div class="chart" id="chart" tabindex="0">{drawn}{marks}{named}</div>'
    yield f'<div class="turns"><span>turn {told.turns[0].number}</span><span>{told.turns[-1].number}</span></div>'
    yield f'<p class="told" id="told">{escape(_line(told.turns[-1]))}</p>'
    yield f'<div class="legend">{"".join(_legend(told))}</div>'
    yield from _spent(told, xs)


def _legend(told: Timeline) -> Iterator[str]:
    there = set(told.categories)
    for name, css, which in GROUPS:
        if there & set(which):
            yield _key("0 0 1 1", f'<rect class="{css}" width="1" height="1"/>', name)
    if told.compactions:
        yield _key("0 0 4 4", '<line class="compacted" x1="2" x2="2" y1="0" y2="4"/>', "compaction")


def _key(box: str, shape: str, name: str) -> str:
    return f'<span><svg viewBox="{box}" aria-hidden="true">{shape}</svg>{name}</span>'


def _spent(told: Timeline, xs: Sequence[float]) -> Iterator[str]:
    spent = [turn.usd for turn in told.turns]
    if spent[-1] is None or len(spent) < 2:
        return
    values = [usd or 0.0 for usd in spent]
    cents, step = scale(max(values) * 100)
    top = cents / 100
    digits = 2 if step < 100 else 0  # a mark has to fit beside the chart, on a phone too
    dollars = [n * step / 100 for n in range(round(cents / step) + 1)]
    marks = "".join(_mark_text(value, top, f"${value:,.{digits}f}") for value in dollars)
    drawn = svg(line(values, xs, top, "usd"), "dollars paid so far", high=110)
    yield f'<h2>Paid so far</h2><div class="chart">{drawn}{marks}</div>'


def _mark(value: float, top: float) -> str:
    return _mark_text(value, top, _k(value))


def _mark_text(value: float, top: float, text: str) -> str:
    return f'<span class="mark" style="bottom:{value / top:.2%}">{text}</span>' if top else ""


def _k(value: float) -> str:
    return f"{value / 1_000_000:g}M" if value >= 1_000_000 else f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def _place(told: Timeline, turn: int, xs: Sequence[float]) -> float:
    """Between the request before a compaction and the one after it."""
    for n, (before, after) in enumerate(pairwise(told.turns)):
        if before.number < turn <= after.number:
            return (xs[n] + xs[n + 1]) / 2
    return xs[-1] if told.turns and turn > told.turns[-1].number else xs[0]


def _events(told: Timeline) -> Iterator[str]:
    yield "<h2>What fired</h2>"
    if not told.happenings:
        yield "<p>Nothing: the view was the whole conversation at every turn.</p>"
        return
    rows = [(kind, count, tokens) for kind, (count, tokens) in totals(told.happenings).items()]
    yield _table(("what", "times", "tokens that left the view"), [(k, f"{c:,}", f"{t:,}") for k, c, t in rows])
    every = [(f"{one.turn:,}", one.kind, one.what, f"{one.tokens:,}" if one.tokens else "") for one in told.happenings]
    inner = _table(("turn", "what", "details", "tokens"), every[:1000])
    more = f'<p class="soft">and {len(every) - 1000:,} more</p>' if len(every) > 1000 else ""
    yield f"<details><summary>All {len(every):,}, in order</summary><div>{inner}{more}</div></details>"


def _prices(about: PageHeader) -> Iterator[str]:
    if not about.prices:
        return
    yield "<h2>Price</h2>"
    head = ("", "dollars", "uncached input", "cache written", "cache read", "output")
    rows = [
        (p.who, _usd(p.usd), f"{p.uncached:,}", f"{p.cache_write:,}", f"{p.cache_read:,}", f"{p.output:,}")
        for p in about.prices
    ]
    yield _table(head, rows)
    yield from (f"<p>{escape(note)}</p>" for note in dict.fromkeys(p.note for p in about.prices if p.note))


def _usd(amount: float | None) -> str:
    return "no price known" if amount is None else f"${amount:,.2f}"


def _compactions(about: PageHeader, told: Timeline) -> Iterator[str]:
    if not told.compactions:
        return
    yield "<h2>Compactions</h2>"
    if about.is_kept:
        command = f"perdure recall {about.session} ID"
        yield f"<p>Nothing is lost: <code>{escape(command)}</code> shows the original of any id below.</p>"
    else:
        yield "<p>What Perdure would have done. To recall from it, import it: <code>perdure import FILE</code>.</p>"
    for one in told.compactions:
        yield _compaction(one)


def _compaction(one: TimelineCompaction) -> str:
    head = (
        f"turn {one.turn:,}: {one.tokens_before:,} → {one.tokens_after:,} tokens ({escape(one.strategy)}, "
        f"{escape(one.trigger)})"
    )
    inner = f"<details><summary>the record</summary><div><pre>{escape(one.record)}</pre></div></details>"
    for name, pieces in (("dropped", one.dropped), ("kept word for word", one.kept), ("brought back", one.restored)):
        if pieces:
            tokens = sum(piece.tokens for piece in pieces)
            label = f"{name}: {len(pieces):,}, {tokens:,} tokens"
            inner += f"<details><summary>{label}</summary><div>{_pieces(pieces)}</div></details>"
    if one.left_out:
        left = escape(", ".join(one.left_out))
        inner += f'<p class="soft">not brought back, for lack of room: {left}</p>'
    return f"<details><summary>{head}</summary><div>{inner}</div></details>"


def _pieces(pieces: Sequence[CompactedMessage]) -> str:
    rows = [(p.id, p.what, f"{p.tokens:,}", p.line) for p in pieces[:MOST_PIECES]]
    more = len(pieces) - MOST_PIECES
    note = f'<p class="soft">and {more:,} more</p>' if more > 0 else ""
    return _table(("id", "what", "tokens", "begins with"), rows) + note


def _notes(about: PageHeader) -> Iterator[str]:
    for name, lines in (("What the log's own system did", about.logged), ("Problems", about.problems)):
        if lines:
            entries = "".join(f"<li>{escape(line)}</li>" for line in lines)
            yield f"<h2>{escape(name)}</h2><ul>{entries}</ul>"
    source = escape(PurePath(about.source).name)
    made = f"Made of {source} by Perdure, {escape(about.made)}"
    yield f"<footer>{made}. This page loads nothing and sends nothing.</footer>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of numbers stand right, ids in a fixed width. On a phone, more than three columns are stacked."""
    stacks = len(head) > 3
    kinds = [_kind(name, [row[n] for row in rows]) for n, name in enumerate(head)]
    top = "".join(f"<th{css}>{escape(name)}</th>" for name, css in zip(head, kinds, strict=True))
    body = "".join(
        "<tr>"
        + "".join(
            f'<td{css} data-name="{escape(name)}">{escape(cell)}</td>' if stacks else f"<td{css}>{escape(cell)}</td>"
            for name, cell, css in zip(head, row, kinds, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    style = "scroll stacks" if stacks else "scroll"
    return f'<div class="{style}"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _kind(name: str, cells: Sequence[str]) -> str:
    if name == "id":
        return ' class="id"'
    is_number = all(not cell or cell.lstrip("$").replace(",", "").replace(".", "").isdigit() for cell in cells)
    return ' class="n"' if is_number and any(cells) else ""
