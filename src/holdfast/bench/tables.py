"""The report as text: a table for people, Markdown for documents (QLT-1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from holdfast.bench.judge import Judged
from holdfast.bench.live_view import LIVE
from holdfast.bench.report import CHAIN_AXES, Chain, Lost, Report, Row
from holdfast.bench.scores import AXES

_PLACES = {"boundary": "real boundaries", "cut": "cuts"}


def as_table(report: Report, *, lost: int = 0) -> str:
    """Plain text in columns, intervals on a line of their own below the engine's rows."""
    blocks = []
    for (where, budget), rows in _grouped(report.rows):
        lines = [_heading(where, budget, rows), _line("strategy", ["tokens", *AXES, "CPU ms"])]
        for row in rows:
            cells = [f"{row.tokens:,}", *(_cell(row, axis) for axis in AXES), f"{row.cpu_ms:.0f}"]
            lines.append(_line(row.strategy, cells) + (f"  {row.over} over budget" if row.over else ""))
            if row.strategy in LIVE:
                lines.append(_line("  95 %", ["", *(_interval(row, axis) for axis in AXES), ""]))
                lines.append(_line("  by session", ["", *(_mean(row, axis) for axis in AXES), ""]))
        lines.append(_line("  of", ["", *(_of(rows[0], axis) for axis in AXES), ""]))
        blocks.append("\n".join(lines))
    blocks += [_chain(chain) for chain in report.chains]
    blocks += [_judged(report.judged)] if report.judged else []
    blocks += [_lost(report.lost, lost)] if lost and report.lost else []
    blocks += ["\n".join(f"left out: {file}: {why}" for file, why in report.skipped)] if report.skipped else []
    return "\n\n".join(blocks) if blocks else "nothing to measure: no session is long enough"


def as_markdown(report: Report, *, lost: int = 0) -> str:
    """The same as Markdown tables, each percentage of the engine's rows with its interval."""
    blocks = []
    for (where, budget), rows in _grouped(report.rows):
        lines = [f"### {_heading(where, budget, rows)}", ""]
        lines += ["| strategy | tokens | " + " | ".join(AXES) + " | CPU ms |", "|---" * (len(AXES) + 3) + "|"]
        for row in rows:
            cells = [_cell(row, axis) for axis in AXES]
            if row.strategy in LIVE:
                cells = [f"{_cell(row, axis)} ({_interval(row, axis)})" if axis in row.axes else "-" for axis in AXES]
            lines.append(f"| {row.strategy} | {row.tokens:,} | {' | '.join(cells)} | {row.cpu_ms:.0f} |")
        blocks.append("\n".join(lines))
    blocks += [f"```text\n{_chain(chain)}\n```" for chain in report.chains]
    blocks += [f"```text\n{_judged(report.judged)}\n```"] if report.judged else []
    blocks += [f"```text\n{_lost(report.lost, lost)}\n```"] if lost and report.lost else []
    return "\n\n".join(blocks)


def _grouped(rows: Sequence[Row]) -> Iterator[tuple[tuple[str, str], list[Row]]]:
    for key, some in groupby(rows, key=lambda row: (row.where, row.budget)):
        yield key, sorted(some, key=lambda row: (row.strategy not in LIVE, row.strategy != "real"))


def _heading(where: str, budget: str, rows: Sequence[Row]) -> str:
    most = max(rows, key=lambda row: row.places)
    return f"{_PLACES[where]}, budget {budget}: {most.places} places in {most.sessions} sessions, percent kept"


def _line(name: str, cells: Sequence[str]) -> str:
    return f"{name:<14}" + "".join(f"{cell:>9}" for cell in cells)


def _cell(row: Row, axis: str) -> str:
    found = row.axes.get(axis)
    return f"{found.percent:.1f}" if found else "-"


def _interval(row: Row, axis: str) -> str:
    found = row.axes.get(axis)
    return f"{found.low:.0f}-{found.high:.0f}" if found else ""


def _mean(row: Row, axis: str) -> str:
    found = row.axes.get(axis)
    return f"{found.mean:.1f}" if found else ""


def _of(row: Row, axis: str) -> str:
    found = row.axes.get(axis)
    return f"{found.of:,}" if found else "0"


def _chain(chain: Chain) -> str:
    lines = [
        f"{chain.length} compactions in a row, budget {chain.budget}, {chain.strategy}, {chain.places} sessions: "
        f"{chain.loss:.1f} points lost at most",
        _line("", list(CHAIN_AXES)),
    ]
    for name, percents in (("once", chain.once), ("chained", chain.chained), ("naive", chain.naive)):
        if percents:
            lines.append(_line(name, [f"{percents[axis]:.1f}" if axis in percents else "-" for axis in CHAIN_AXES]))
    return "\n".join(lines)


def _judged(judged: Sequence[Judged]) -> str:
    first = judged[0]
    columns = ["budget", "asked", "right", "unknown", "wrong", "false pos", "by luck", "held", "agreeing", "failed"]
    lines = [
        f"read by {first.model}: {first.replicates} answers to each question, and as many where the view says nothing",
        _line("strategy", columns),
    ]
    for one in judged:
        shares = (one.correct, one.unknown, one.wrong, one.false_positive, one.right_without_view)
        more = (one.held, one.agreeing)
        cells = [one.budget, str(one.questions), *(f"{share:.1f}" for share in (*shares, *more)), str(one.failed)]
        lines.append(_line(one.strategy, [cell[:11] for cell in cells]))
    return "\n".join(lines)


def _lost(lost: Sequence[Lost], most: int) -> str:
    lines = [f"lost facts ({len(lost):,}; the first {min(most, len(lost))})"]
    for one in lost[:most]:
        lines.append(
            f"{one.file}:{one.seen_line} last seen, :{one.needed_line} needed, {one.age_tokens:,} tokens before "
            f"the cut at :{one.cut_line} ({one.budget}, {one.strategy}): {one.kind} {one.key}"
        )
    return "\n".join(lines)
