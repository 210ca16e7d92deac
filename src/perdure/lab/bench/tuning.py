"""Leave one session out: what the record keeps by settings that were chosen without the session that is scored (QLT-7).

A small grid of ideas, each with a reason to be right: more room for names or for excerpts, a shorter or a longer raw
tail, what is old counts less or more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

from perdure.compaction.ledger.facts import FactWeights
from perdure.compaction.ledger.render import SectionShares, compact_memory, memory_of_messages
from perdure.errors import BadSetting
from perdure.lab.bench.fidelity import FidelityBudget, FidelityOptions, OnProgress, budget_of, places_of_file
from perdure.lab.bench.places import BenchCut
from perdure.lab.bench.probe import Gold, shown
from perdure.lab.bench.report import BEST_ON_ALL, LEFT_OUT, FidelityReport, RowSums, drawn_sessions
from perdure.lab.bench.scores import KeptCount, score
from perdure.transcript.tokens import base_tokens

TODAY: Final = "ledger"
_NAMES = (0.25, 0.35, 0.45)
_TAILS = (0.05, 0.10, 0.15)
_FLOORS = (0.2, 0.4, 0.6)
_SOUGHT = ("facts", "far", "context")  # the settings with the highest sum of these, over all budgets, are chosen …
_HELD = ("edited", "words", "failing", "todos")  # … of those that keep no less of these than today's
BUDGETS: Final = ("10k", "12k+10k", "summary+10k")


class RecordTuning(NamedTuple):
    """Settings of the record that could be others."""

    shares: SectionShares = SectionShares()
    weights: FactWeights = FactWeights()

    def __str__(self) -> str:
        return f"names {self.shares.names}, tail {self.shares.tail}, old {self.weights.floor}"


def grid() -> tuple[RecordTuning, ...]:
    """All that is tried, today's settings first: of equals the first is chosen."""
    today = RecordTuning()
    plenty = today.shares.names_in_plenty - today.shares.names
    tried = (
        RecordTuning(replace(today.shares, names=names, names_in_plenty=names + plenty, tail=tail), FactWeights(floor))
        for names, tail, floor in product(_NAMES, _TAILS, _FLOORS)
    )
    return tuple(dict.fromkeys((today, *tried)))


class Tried(NamedTuple):
    """What one setting kept at one place and budget."""

    where: str
    budget: str
    session: str
    setting: int
    tallies: Mapping[str, KeptCount]
    tokens: int


@dataclass(frozen=True, slots=True)
class LeftOutReport:
    """The rows of today's settings, of those chosen without each session, and of the best on all, as one report."""

    report: FidelityReport
    chosen: Mapping[str, str]  # by session
    best: str
    settings: int


def leave_one_out(
    files: Sequence[Path], options: FidelityOptions, *, processes: int = 2, on_progress: OnProgress | None = None
) -> LeftOutReport:
    """Choose for each session on all others and score it by that; a file with a session is read by one process."""
    found: list[Tried] = []
    skipped: list[tuple[str, str]] = []
    with ProcessPoolExecutor(processes) as pool:
        for done, (path, (tried, left_out)) in enumerate(
            zip(files, pool.map(partial(_tried, options), files), strict=True), 1
        ):
            found += tried
            skipped += left_out
            if on_progress is not None:
                on_progress(done, len(files), path.name)
    if len({tried.session for tried in found}) == 1:
        raise BadSetting("--leave-one-out: only one session here can be measured; its settings are chosen on others")
    return chosen_rows(found, options, files=len(files), skipped=tuple(skipped))


def _tried(options: FidelityOptions, path: Path) -> tuple[list[Tried], list[tuple[str, str]]]:
    skipped: list[tuple[str, str]] = []
    found: list[Tried] = []
    for places in places_of_file(path, options, skipped):
        for place, gold in places:
            found += _at(place, gold, [budget_of(text) for text in options.budgets])
    return found, skipped


def _at(place: BenchCut, gold: Gold, budgets: Sequence[FidelityBudget]) -> Iterator[Tried]:
    """Every setting at every budget at one place; the messages are read once."""
    memory = memory_of_messages(place.before)
    for number, setting in enumerate(grid()):
        memory.weigh(setting.weights)
        for budget in budgets:
            tokens = base_tokens(shown(place.summary)) if place.summary is not None else None
            tokens = tokens if budget.tokens is None else budget.tokens
            if tokens is None or budget.is_default or place.tokens <= tokens + budget.tail_tokens:
                continue
            text = compact_memory(memory, place.before, (tokens, budget.tail_tokens), shares=setting.shares).text
            yield Tried(place.where, budget.name, place.session, number, score(gold, text).tallies, base_tokens(text))


def chosen_rows(
    found: Iterable[Tried], options: FidelityOptions, *, files: int = 0, skipped: tuple[tuple[str, str], ...] = ()
) -> LeftOutReport:
    """The rows by what was tried: for each session those of the setting that is best on all others."""
    settings = grid()
    by_session: dict[str, list[Tried]] = {}
    for tried in found:
        by_session.setdefault(tried.session, []).append(tried)
    sums = {session: _sums(some, len(settings)) for session, some in by_session.items()}
    chosen = {session: _best([one for other, one in sums.items() if other != session]) for session in sums}
    best = _best(list(sums.values()))
    pools: dict[tuple[str, str, str], RowSums] = {}
    for session, some in by_session.items():
        for tried in some:
            for name, setting in ((TODAY, 0), (LEFT_OUT, chosen[session]), (BEST_ON_ALL, best)):
                if tried.setting == setting:
                    pool = pools.setdefault((tried.where, tried.budget, name), RowSums())
                    pool.add(session, tried.tallies)
                    pool.tokens.append(tried.tokens)
    draws = drawn_sessions(sorted(by_session), options.draws, options.seed)
    order = {budget: number for number, budget in enumerate(options.budgets)}
    keys = sorted(pools, key=lambda key: (key[0], order[key[1]]))
    report = FidelityReport(rows=tuple(pools[key].row(key, draws) for key in keys), files=files, skipped=skipped)
    names = {session: str(settings[setting]) for session, setting in chosen.items()}
    return LeftOutReport(report, names, str(settings[best]), len(settings))


Sums = Sequence[Mapping[tuple[str, str, str], KeptCount]]
"""For each setting the tallies by place, budget and axis."""


def _sums(some: Iterable[Tried], settings: int) -> Sums:
    sums: list[dict[tuple[str, str, str], KeptCount]] = [{} for _ in range(settings)]
    for tried in some:
        mine = sums[tried.setting]
        for axis in (*_SOUGHT, *_HELD):
            key = (tried.where, tried.budget, axis)
            mine[key] = mine.get(key, KeptCount(0, 0)).plus(tried.tallies[axis])
    return sums


def _best(sessions: Sequence[Sums]) -> int:
    """The setting that is best on some sessions, pooled; today's where there is none to choose on."""
    worth: list[float] = []
    held: list[tuple[int, ...]] = []
    for setting in range(len(grid())):
        total: dict[tuple[str, str, str], KeptCount] = {}
        for sums in sessions:
            for key, tally in sums[setting].items():
                total[key] = total.get(key, KeptCount(0, 0)).plus(tally)
        worth.append(sum(tally.percent or 0.0 for key, tally in total.items() if key[2] in _SOUGHT))
        held.append(tuple(sum(tally.kept for key, tally in total.items() if key[2] == axis) for axis in _HELD))
    fit = [n for n, kept in enumerate(held) if all(now >= today for now, today in zip(kept, held[0], strict=True))]
    return max(fit, key=lambda setting: (worth[setting], -setting))


def as_text(done: LeftOutReport) -> str:
    """What was chosen, as lines to stand below the tables."""
    counts = Counter(done.chosen.values())
    lines = [f"settings tried: {done.settings}; best on all sessions: {done.best}; chosen without a session:"]
    lines += [f"  {count:>3} × {setting}" for setting, count in counts.most_common()]
    return "\n".join(lines)


def as_plain(done: LeftOutReport) -> dict[str, Any]:
    """What was chosen, for JSON."""
    return {"tried": done.settings, "best_on_all": done.best, "chosen": dict(done.chosen)}
