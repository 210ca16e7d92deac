"""What the bench found: rows with intervals, gates over them, and tables for people (QLT-1)."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, Literal

from perdure.errors import BadSetting
from perdure.lab.bench.live_view import LIVE
from perdure.lab.bench.scores import AXES, KeptCount

Sessions = Mapping[str, Mapping[str, KeptCount]]
"""Tallies by session and axis."""

LEFT_OUT, BEST_ON_ALL = "left_out", "best_on_all"  # the ledger by settings that `tuning` chose
OURS: Final = (*LIVE, LEFT_OUT, BEST_ON_ALL)  # rows that show their interval, and stand first
_CHAINS: Final = {"chain": 3, "chain5": 5}
CHAIN_AXES: Final = ("facts", "far", "context", "edited", "user")
_INTERVAL: Final = (0.025, 0.975)
_GATE: Final = re.compile(r"(?:(cut|boundary):)?(?:(\w+)/)?(\w+)@([\w+]+)=(?:([a-z][a-z-]*?)([+-]))?(\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class MeasuredShare:
    """A share in percent with its 95 % interval, and what it is a share of; `mean` counts every session alike."""

    percent: float
    low: float
    high: float
    kept: int
    of: int
    mean: float


@dataclass(frozen=True, slots=True)
class FidelityRow:
    """One strategy at one budget, over all places of one kind. `over` counts views that broke their budget."""

    where: str
    budget: str
    strategy: str
    places: int
    sessions: int
    tokens: int
    axes: Mapping[str, MeasuredShare]
    cpu_ms: float
    cpu_ms_75k: float  # scaled to 75,000 tokens compacted
    over: int = 0


@dataclass(frozen=True, slots=True)
class CompactionChain:
    """So many compactions in a row: what one alone keeps, what the chain keeps, what compacting the compacted keeps.

    All are pooled over the same places; `naive` is empty where it was not run.
    """

    budget: str
    strategy: str
    length: int
    places: int
    once: Mapping[str, float]
    chained: Mapping[str, float]
    naive: Mapping[str, float]

    @property
    def loss(self) -> float:
        """The most points that the chain loses on any axis against a single compaction (QLT-3)."""
        return max((self.once[axis] - self.chained[axis] for axis in CHAIN_AXES if axis in self.once), default=0.0)


@dataclass(frozen=True, slots=True)
class LostFact:
    """A fact that a view lost, where it was last seen and where it was needed (lines of the file)."""

    file: str
    session: str
    where: str
    cut_line: int
    budget: str
    strategy: str
    kind: str
    key: str
    seen_line: int
    needed_line: int
    age_tokens: int


@dataclass(frozen=True, slots=True)
class FidelityReport:
    """All of a run. `skipped` says which files were left out, and why."""

    rows: tuple[FidelityRow, ...] = ()
    chains: tuple[CompactionChain, ...] = ()
    lost: tuple[LostFact, ...] = ()
    files: int = 0
    skipped: tuple[tuple[str, str], ...] = ()

    def row(self, budget: str, strategy: str, where: str | None = None) -> FidelityRow | None:
        """The row of a strategy at a budget; at cuts, unless only boundaries were measured or asked for."""
        found = {row.where: row for row in self.rows if (row.budget, row.strategy) == (budget, strategy)}
        return found.get(where) if where else found.get("cut") or found.get("boundary")

    def chain(self, budget: str, strategy: str, length: int = 3) -> CompactionChain | None:
        key = (budget, strategy, length)
        return next((one for one in self.chains if (one.budget, one.strategy, one.length) == key), None)


def measure_axis(sessions: Sessions, axis: str, draws: Sequence[Sequence[str]]) -> MeasuredShare | None:
    """An axis pooled over sessions, its interval from drawn sessions; None when there is nothing to measure."""
    some = {name: tallies[axis] for name, tallies in sessions.items() if tallies[axis].of}
    total = KeptCount(sum(one.kept for one in some.values()), sum(one.of for one in some.values()))
    if total.percent is None:
        return None
    percents = []
    for draw in draws:
        drawn = [some[name] for name in draw if name in some]
        of = sum(one.of for one in drawn)
        if of:
            percents.append(100 * sum(one.kept for one in drawn) / of)
    percents.sort()
    ends = [percents[int(share * len(percents))] if percents else total.percent for share in _INTERVAL]
    mean = sum(100 * one.kept / one.of for one in some.values()) / len(some)
    return MeasuredShare(total.percent, ends[0], ends[1], *total, mean)


def drawn_sessions(names: Sequence[str], draws: int, seed: int) -> list[list[str]]:
    """Sessions drawn with replacement, so many times; the same for the same names and seed in any process."""
    order = sorted(names)
    dice = random.Random(f"{seed}/{len(order)}")
    return [dice.choices(order, k=len(order)) for _ in range(draws)] if order else []


@dataclass(frozen=True, slots=True)
class QualityGate:
    """A bar that a strategy must reach: an axis at a budget against a number, or against a baseline plus points.

    `chain`, `chain5` and `cpu` are bars from above: points lost by a chain of three or five, milliseconds for 75,000
    tokens.
    """

    text: str
    axis: str
    budget: str
    points: float
    baseline: str | None = None
    where: Literal["cut", "boundary"] | None = None
    strategy: str = "ledger"

    def failure(self, report: FidelityReport) -> str | None:
        """What is missing; None when the gate holds. Nothing measured is a failure: it would hide a broken run."""
        strategy = self.strategy
        if self.axis in _CHAINS:
            chain = report.chain(self.budget, strategy, _CHAINS[self.axis])
            return self._said(None if chain is None else chain.loss, self.points, at_most=True)
        row = report.row(self.budget, strategy, self.where)
        if self.axis == "cpu":
            return self._said(None if row is None else row.cpu_ms_75k, self.points, at_most=True)
        bar: float | None = self.points
        if self.baseline is not None:
            other = _percent(report.row(self.budget, self.baseline, self.where), self.axis)
            bar = None if other is None else other + self.points
        return self._said(_percent(row, self.axis), bar, at_most=False)

    def _said(self, value: float | None, bar: float | None, *, at_most: bool) -> str | None:
        if value is None or bar is None:
            return f"{self.text}: nothing to measure"
        if value > bar + 1e-9 if at_most else value < bar - 1e-9:
            return f"{self.text}: {value:.1f} {'is above' if at_most else 'is below'} {bar:.1f}"
        return None


def _percent(row: FidelityRow | None, axis: str) -> float | None:
    found = row.axes.get(axis) if row is not None else None
    return None if found is None else found.percent


def gates_of(text: str) -> list[QualityGate]:
    """Gates as they are written: `facts@10k=92,boundary:facts@summary+10k=real+8,chain@10k=1`."""
    gates = []
    for part in (one.strip() for one in text.split(",")):
        if not part:
            continue
        match = _GATE.fullmatch(part)
        if match is None or (match[3] not in AXES and match[3] not in (*_CHAINS, "cpu")):
            raise BadSetting(
                f"gate {part!r}: write AXIS@BUDGET=PERCENT, such as facts@10k=92 or facts@summary+10k=real+8; axes: "
                f"{', '.join((*AXES, *_CHAINS))}, cpu"
            )
        where, strategy, axis, budget, baseline, sign, number = match.groups()
        points = -float(number) if sign == "-" else float(number)
        gates.append(QualityGate(part, axis, budget, points, baseline, where, strategy or "ledger"))  # type: ignore[arg-type]
    return gates


def chained_in(gates: Sequence[QualityGate]) -> list[str]:
    """The budgets at which gates want chains."""
    return [gate.budget for gate in gates if gate.axis in _CHAINS]


def failures(report: FidelityReport, gates: Sequence[QualityGate]) -> list[str]:
    """What each gate that does not hold is missing."""
    return [said for gate in gates if (said := gate.failure(report)) is not None]


@dataclass(slots=True)
class RowSums:
    """The running sums of one row."""

    sessions: dict[str, dict[str, KeptCount]] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)
    compacted_tokens: int = 0
    cpu_seconds: float = 0.0
    over: int = 0

    def add(self, session: str, tallies: Mapping[str, KeptCount]) -> None:
        mine = self.sessions.setdefault(session, dict.fromkeys(AXES, KeptCount(0, 0)))
        for axis, tally in tallies.items():
            mine[axis] = mine[axis].plus(tally)

    def row(self, key: tuple[str, str, str], draws: Sequence[Sequence[str]]) -> FidelityRow:
        axes = {axis: found for axis in AXES if (found := measure_axis(self.sessions, axis, draws)) is not None}
        count = len(self.tokens)
        return FidelityRow(
            *key,
            places=count,
            sessions=len(self.sessions),
            tokens=round(sum(self.tokens) / max(1, count)),
            axes=axes,
            cpu_ms=1000 * self.cpu_seconds / max(1, count),
            cpu_ms_75k=1000 * self.cpu_seconds * 75_000 / max(1, self.compacted_tokens),
            over=self.over,
        )

    def percents(self) -> dict[str, float]:
        found = {axis: measure_axis(self.sessions, axis, ()) for axis in AXES}
        return {axis: one.percent for axis, one in found.items() if one is not None}


def as_plain(report: FidelityReport) -> dict[str, Any]:
    """The report as plain values, for JSON."""
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(report)
    for chain, one in zip(plain["chains"], report.chains, strict=True):
        chain["loss"] = one.loss
    return plain


_PLACES = {"boundary": "real boundaries", "cut": "cuts"}


def as_table(report: FidelityReport, *, lost: int = 0) -> str:
    """Plain text in columns, intervals on a line of their own below the engine's rows."""
    blocks = []
    for (where, budget), rows in _grouped(report.rows):
        lines = [_heading(where, budget, rows), _line("strategy", ["tokens", *AXES, "CPU ms"])]
        for row in rows:
            cells = [f"{row.tokens:,}", *(_cell(row, axis) for axis in AXES), f"{row.cpu_ms:.0f}"]
            lines.append(_line(row.strategy, cells) + (f"  {row.over} over budget" if row.over else ""))
            if row.strategy in OURS:
                lines.append(_line("  95 %", ["", *(_interval(row, axis) for axis in AXES), ""]))
                lines.append(_line("  by session", ["", *(_mean(row, axis) for axis in AXES), ""]))
        lines.append(_line("  of", ["", *(_of(rows[0], axis) for axis in AXES), ""]))
        blocks.append("\n".join(lines))
    blocks += [_chain(chain) for chain in report.chains]
    blocks += [_lost(report.lost, lost)] if lost and report.lost else []
    blocks += ["\n".join(f"left out: {file}: {why}" for file, why in report.skipped)] if report.skipped else []
    return "\n\n".join(blocks) if blocks else "nothing to measure: no session is long enough"


def as_markdown(report: FidelityReport, *, lost: int = 0) -> str:
    """The same as Markdown tables, each percentage of the engine's rows with its interval."""
    blocks = []
    for (where, budget), rows in _grouped(report.rows):
        lines = [f"### {_heading(where, budget, rows)}", ""]
        lines += ["| strategy | tokens | " + " | ".join(AXES) + " | CPU ms |", "|---" * (len(AXES) + 3) + "|"]
        for row in rows:
            cells = [_cell(row, axis) for axis in AXES]
            if row.strategy in OURS:
                cells = [f"{_cell(row, axis)} ({_interval(row, axis)})" if axis in row.axes else "-" for axis in AXES]
            lines.append(f"| {row.strategy} | {row.tokens:,} | {' | '.join(cells)} | {row.cpu_ms:.0f} |")
        blocks.append("\n".join(lines))
    blocks += [f"```text\n{_chain(chain)}\n```" for chain in report.chains]
    blocks += [f"```text\n{_lost(report.lost, lost)}\n```"] if lost and report.lost else []
    return "\n\n".join(blocks)


def _grouped(rows: Sequence[FidelityRow]) -> Iterator[tuple[tuple[str, str], list[FidelityRow]]]:
    for key, some in groupby(rows, key=lambda row: (row.where, row.budget)):
        yield key, sorted(some, key=lambda row: (row.strategy not in OURS, row.strategy != "real"))


def _heading(where: str, budget: str, rows: Sequence[FidelityRow]) -> str:
    most = max(rows, key=lambda row: row.places)
    return f"{_PLACES[where]}, budget {budget}: {most.places} places in {most.sessions} sessions, percent kept"


def _line(name: str, cells: Sequence[str]) -> str:
    return f"{name:<14}" + "".join(f"{cell:>9}" for cell in cells)


def _cell(row: FidelityRow, axis: str) -> str:
    found = row.axes.get(axis)
    return f"{found.percent:.1f}" if found else "-"


def _interval(row: FidelityRow, axis: str) -> str:
    found = row.axes.get(axis)
    return f"{found.low:.0f}-{found.high:.0f}" if found else ""


def _mean(row: FidelityRow, axis: str) -> str:
    found = row.axes.get(axis)
    return f"{found.mean:.1f}" if found else ""


def _of(row: FidelityRow, axis: str) -> str:
    found = row.axes.get(axis)
    return f"{found.of:,}" if found else "0"


def _chain(chain: CompactionChain) -> str:
    lines = [
        f"{chain.length} compactions in a row, budget {chain.budget}, {chain.strategy}, {chain.places} sessions: "
        f"{chain.loss:.1f} points lost at most",
        _line("", list(CHAIN_AXES)),
    ]
    for name, percents in (("once", chain.once), ("chained", chain.chained), ("naive", chain.naive)):
        if percents:
            lines.append(_line(name, [f"{percents[axis]:.1f}" if axis in percents else "-" for axis in CHAIN_AXES]))
    return "\n".join(lines)


def _lost(lost: Sequence[LostFact], most: int) -> str:
    lines = [f"lost facts ({len(lost):,}; the first {min(most, len(lost))})"]
    for one in lost[:most]:
        lines.append(
            f"{one.file}:{one.seen_line} last seen, :{one.needed_line} needed, {one.age_tokens:,} tokens before "
            f"the cut at :{one.cut_line} ({one.budget}, {one.strategy}): {one.kind} {one.key}"
        )
    return "\n".join(lines)
