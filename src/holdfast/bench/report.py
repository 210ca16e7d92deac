"""What the bench found: rows of percentages with intervals, chains, lost facts; and gates over them (QLT-1, QLT-2)."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from holdfast.bench.judge import Judged
from holdfast.bench.scores import AXES, Tally
from holdfast.errors import BadSetting

Sessions = Mapping[str, Mapping[str, Tally]]
"""Tallies by session and axis."""

_CHAINS: Final = {"chain": 3, "chain5": 5}
CHAIN_AXES: Final = ("facts", "far", "context", "edited", "user")
_INTERVAL: Final = (0.025, 0.975)
_GATE: Final = re.compile(r"(?:(cut|boundary):)?(?:(\w+)/)?(\w+)@([\w+]+)=(?:([a-z][a-z-]*?)([+-]))?(\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True)
class Measured:
    """A share in percent with its 95 % interval, and what it is a share of; `mean` counts every session alike."""

    percent: float
    low: float
    high: float
    kept: int
    of: int
    mean: float


@dataclass(frozen=True, slots=True)
class Row:
    """One strategy at one budget, over all places of one kind. `over` counts views that broke their budget."""

    where: str
    budget: str
    strategy: str
    places: int
    sessions: int
    tokens: int
    axes: Mapping[str, Measured]
    cpu_ms: float
    cpu_ms_75k: float  # scaled to 75,000 tokens compacted
    over: int = 0


@dataclass(frozen=True, slots=True)
class Chain:
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
class Lost:
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
class Report:
    """All of a run. `skipped` says which files were left out, and why."""

    rows: tuple[Row, ...] = ()
    chains: tuple[Chain, ...] = ()
    lost: tuple[Lost, ...] = ()
    files: int = 0
    skipped: tuple[tuple[str, str], ...] = ()
    judged: tuple[Judged, ...] = ()

    def row(self, budget: str, strategy: str, where: str | None = None) -> Row | None:
        """The row of a strategy at a budget; at cuts, unless only boundaries were measured or asked for."""
        found = {row.where: row for row in self.rows if (row.budget, row.strategy) == (budget, strategy)}
        return found.get(where) if where else found.get("cut") or found.get("boundary")

    def chain(self, budget: str, strategy: str, length: int = 3) -> Chain | None:
        key = (budget, strategy, length)
        return next((one for one in self.chains if (one.budget, one.strategy, one.length) == key), None)


def measured(sessions: Sessions, axis: str, draws: Sequence[Sequence[str]]) -> Measured | None:
    """An axis pooled over sessions, its interval from drawn sessions; None when there is nothing to measure."""
    some = {name: tallies[axis] for name, tallies in sessions.items() if tallies[axis].of}
    total = Tally(sum(one.kept for one in some.values()), sum(one.of for one in some.values()))
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
    return Measured(total.percent, ends[0], ends[1], *total, mean)


def drawn_sessions(names: Sequence[str], draws: int, seed: int) -> list[list[str]]:
    """Sessions drawn with replacement, so many times; the same for the same names and seed in any process."""
    order = sorted(names)
    dice = random.Random(f"{seed}/{len(order)}")
    return [dice.choices(order, k=len(order)) for _ in range(draws)] if order else []


@dataclass(frozen=True, slots=True)
class Gate:
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

    def failure(self, report: Report) -> str | None:
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


def _percent(row: Row | None, axis: str) -> float | None:
    found = row.axes.get(axis) if row is not None else None
    return None if found is None else found.percent


def gates_of(text: str) -> list[Gate]:
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
        gates.append(Gate(part, axis, budget, points, baseline, where, strategy or "ledger"))  # type: ignore[arg-type]
    return gates


def chained_in(gates: Sequence[Gate]) -> list[str]:
    """The budgets at which gates want chains."""
    return [gate.budget for gate in gates if gate.axis in _CHAINS]


def failures(report: Report, gates: Sequence[Gate]) -> list[str]:
    """What each gate that does not hold is missing."""
    return [said for gate in gates if (said := gate.failure(report)) is not None]


@dataclass(slots=True)
class Pooled:
    """The running sums of one row."""

    sessions: dict[str, dict[str, Tally]] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)
    compacted_tokens: int = 0
    cpu_seconds: float = 0.0
    over: int = 0

    def add(self, session: str, tallies: Mapping[str, Tally]) -> None:
        mine = self.sessions.setdefault(session, dict.fromkeys(AXES, Tally(0, 0)))
        for axis, tally in tallies.items():
            mine[axis] = mine[axis].plus(tally)

    def row(self, key: tuple[str, str, str], draws: Sequence[Sequence[str]]) -> Row:
        axes = {axis: found for axis in AXES if (found := measured(self.sessions, axis, draws)) is not None}
        count = len(self.tokens)
        return Row(
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
        found = {axis: measured(self.sessions, axis, ()) for axis in AXES}
        return {axis: one.percent for axis, one in found.items() if one is not None}


def as_plain(report: Report) -> dict[str, Any]:
    """The report as plain values, for JSON."""
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(report)
    for chain, one in zip(plain["chains"], report.chains, strict=True):
        chain["loss"] = one.loss
    return plain
