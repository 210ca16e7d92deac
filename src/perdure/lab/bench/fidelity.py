"""Running the fidelity bench over recordings, at single places and over chains of compactions (QLT-1, QLT-3)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from perdure.adapters.logs import read_log
from perdure.compaction.ledger import compact_messages as engine_ledger
from perdure.errors import BadSetting, PerdureError
from perdure.lab.bench.baselines import BASELINES, Strategy, keep_last
from perdure.lab.bench.live_view import LIVE, CompactionTarget, live_view, parts_of
from perdure.lab.bench.places import BenchCut, Where, cuts_of_recording, is_one_project
from perdure.lab.bench.probe import Gold, gold_of, shown, utterances_of
from perdure.lab.bench.report import CompactionChain, FidelityReport, LostFact, RowSums, drawn_sessions
from perdure.lab.bench.scores import Score, score
from perdure.logs.detect import read_recordings
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.tokens import base_tokens


@dataclass(slots=True)
class Chains:
    """All chains of a run: for each budget, strategy and length the pools of `once`, `chained` and `naive`."""

    lengths: Sequence[int] = (3, 5)
    pools: dict[tuple[str, str, int], dict[str, RowSums]] = field(default_factory=dict)

    def measure(
        self, place: BenchCut, gold: Gold, budget: tuple[str, CompactionTarget], naive: Strategy | None = None
    ) -> None:
        """Every strategy and length at one place; a chain that can't be done there counts on neither side.

        `naive` is also run on its own results, as a compaction that forgets its journal would be.
        """
        name, shape = budget
        for strategy in LIVE if shape.memory_tokens is None else LIVE[:1]:
            once = live_view(place.before, shape, strategy)
            for length in self.lengths if once is not None else ():
                chained = live_view(place.before, shape, strategy, times=length)
                if once is None or chained is None:
                    continue
                views = {"once": once.text, "chained": chained.text}
                if naive is not None and shape.memory_tokens is not None:
                    views["naive"] = compacted_again(parts_of(place.before, length), naive, shape)
                pools = self.pools.setdefault((name, strategy, length), {})
                for how, text in views.items():
                    pools.setdefault(how, RowSums()).add(place.session, score(gold, text).tallies)

    def rows(self) -> tuple[CompactionChain, ...]:
        def percents(pools: Mapping[str, RowSums], how: str) -> Mapping[str, float]:
            return pools[how].percents() if how in pools else {}

        return tuple(
            CompactionChain(
                budget,
                strategy,
                length,
                len(pools["once"].sessions),
                *(percents(pools, how) for how in ("once", "chained", "naive")),
            )
            for (budget, strategy, length), pools in self.pools.items()
        )


def compacted_again(parts: Sequence[Sequence[Message]], strategy: Callable[..., str], shape: CompactionTarget) -> str:
    """Each compaction sees only the view that the last one left, and what was said since."""
    before: list[Message] = []
    text = ""
    for number, part in enumerate(parts):
        text = strategy([*before, *part], shape.memory_tokens or 0, shape.tail_tokens)
        before = [Message.of("user", text, id=MessageId(f"bench-summary-{number}"), origin="reminder")]
    return text


OnProgress = Callable[[int, int, str], None]

DEFAULT = "default"  # the shape of the product: what a session really compacts to
DEFAULT_BUDGETS: Final = ("summary", "summary+10k", "10k", "20k", "12k+10k", DEFAULT)
CHAINED: Final = ("10k", DEFAULT)
REAL: Final = "real"  # the summary in the log
_BUDGET: Final = re.compile(r"(summary|\d+k?)(?:\+(\d+k?))?")
_LEAST_GOLD: Final = 1
_DEFAULT_TAIL: Final = 10_000  # of the baselines that have one


def ledger(messages: Sequence[Message], budget_tokens: int, tail_tokens: int = 0) -> str:
    """The engine's compaction without a model, as `perdure compact` prints it."""
    return engine_ledger(messages, budget_tokens, tail_tokens).text


STRATEGIES: Final[dict[str, Strategy]] = {"ledger": ledger, **BASELINES}


@dataclass(frozen=True, slots=True)
class FidelityBudget:
    """How large a view may be: so many tokens (None: as many as the summary in the log), and a raw tail beside them.

    `is_default`: as large as the view of a session that compacts with the product's own settings.
    """

    name: str
    tokens: int | None
    tail_tokens: int = 0
    is_default: bool = False


def budget_of(text: str) -> FidelityBudget:
    """A budget as it is written: 10k, 12k+10k (memory and raw tail), summary, summary+10k, default."""
    if text == DEFAULT:
        return FidelityBudget(DEFAULT, None, _DEFAULT_TAIL, is_default=True)
    match = _BUDGET.fullmatch(text)
    if match is None:
        raise BadSetting(f"budget {text!r}: write 10k, 12k+10k, summary, summary+10k or default")
    size, tail = match[1], match[2] or "0"
    return FidelityBudget(text, None if size == "summary" else _count(size), _count(tail))


def _count(text: str) -> int:
    return int(text[:-1]) * 1000 if text.endswith("k") else int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class FidelityOptions:
    """What to measure. Places with less than `least_tokens` before them, or no more than the budget, are left out."""

    budgets: tuple[str, ...] = DEFAULT_BUDGETS
    strategies: Mapping[str, Strategy] = field(default_factory=lambda: STRATEGIES)
    where: tuple[Where, ...] = ("cut", "boundary")
    shares: tuple[float, ...] = (0.5, 0.8)  # of a session's tokens: where it is cut
    least_tokens: int = 20_000
    chain_budgets: tuple[str, ...] = ()  # at these, sessions are also compacted several times in a row
    lengths: tuple[int, ...] = (3, 5)
    lost_of: tuple[str, ...] = LIVE
    draws: int = 500
    seed: int = 0
    cpu_seconds: Callable[[], float] = time.process_time


def run(
    files: Sequence[Path], options: FidelityOptions | None = None, *, on_progress: OnProgress | None = None
) -> FidelityReport:
    """Measure recordings; a file that can't be read, or holds two projects, is left out and said."""
    bench = _FidelityRun(options or FidelityOptions())
    for done, path in enumerate(files, 1):
        bench.file(path)
        if on_progress is not None:
            on_progress(done, len(files), path.name)
    return bench.report(len(files))


def places_of_file(
    path: Path, options: FidelityOptions, skipped: list[tuple[str, str]]
) -> Iterator[list[tuple[BenchCut, Gold]]]:
    """The places of each recording of a file with what was needed there; a file that can't be used is `skipped`."""
    try:
        data = read_log(path)[0]
        recordings = read_recordings(data, path.name)
    except OSError as e:
        skipped.append((str(path), f"can't be read: {e.strerror or e}"))
        return
    except PerdureError as e:
        skipped.append((str(path), str(e).removeprefix(f"{path.name}: ")))
        return
    if not is_one_project(data):
        skipped.append((str(path), "its working directories belong to more than one project"))
        return
    for recording in recordings:
        cuts = cuts_of_recording(
            recording,
            str(path),
            shares=options.shares if "cut" in options.where else (),
            least_tokens=options.least_tokens,
            boundaries="boundary" in options.where,
        )
        golds = (
            (cut, gold_of(utterances_of(cut.before, cut.lines), utterances_of(cut.after, cut.lines))) for cut in cuts
        )
        yield [(cut, gold) for cut, gold in golds if len(gold.facts) >= _LEAST_GOLD]


class _FidelityRun:
    def __init__(self, options: FidelityOptions) -> None:
        self.options = options
        self.budgets = [budget_of(text) for text in options.budgets]
        self.pools: dict[tuple[str, str, str], RowSums] = {}
        self.chains = Chains(self.options.lengths)
        self.lost: list[LostFact] = []
        self.skipped: list[tuple[str, str]] = []

    def file(self, path: Path) -> None:
        for places in places_of_file(path, self.options, self.skipped):
            for place, gold in places:
                self.place(place, gold)
            cuts = [(place, gold) for place, gold in places if place.where == "cut"]
            if cuts:
                self.chain(*cuts[-1])

    def place(self, place: BenchCut, gold: Gold) -> None:
        summary = shown(place.summary) if place.summary is not None else None
        for budget in self.budgets:
            if budget.is_default:
                self.default(place, gold, budget, summary)
                continue
            tokens = budget.tokens
            if tokens is None:
                if summary is None:
                    continue
                tokens = base_tokens(summary)
                tail = f"\n{keep_last(place.before, budget.tail_tokens)}" if budget.tail_tokens else ""
                self.view(place, gold, (budget.name, REAL), summary + tail, 0.0)
            if place.tokens <= tokens + budget.tail_tokens:
                continue
            for name, strategy in self.options.strategies.items():
                started = self.options.cpu_seconds()
                text = strategy(place.before, tokens, budget.tail_tokens)
                spent = self.options.cpu_seconds() - started
                pool = self.view(place, gold, (budget.name, name), text, spent)
                pool.over += base_tokens(text) > tokens + budget.tail_tokens

    def view(self, place: BenchCut, gold: Gold, key: tuple[str, str], text: str, cpu_seconds: float) -> RowSums:
        """Score one view and enter it."""
        pool = self.pools.setdefault((place.where, *key), RowSums())
        scored = score(gold, text)
        pool.add(place.session, scored.tallies)
        pool.tokens.append(base_tokens(text))
        pool.compacted_tokens += place.tokens
        pool.cpu_seconds += cpu_seconds
        if key[1] in self.options.lost_of:
            self.lost.extend(_lost(place, scored, key))
        return pool

    def default(self, place: BenchCut, gold: Gold, budget: FidelityBudget, summary: str | None) -> None:
        """The shape of the product, by a session; then everything else at the tokens that it took."""
        if "ledger" not in self.options.strategies:
            return
        tokens = 0
        for name in LIVE:
            view = live_view(place.before, CompactionTarget(), name, cpu_seconds=self.options.cpu_seconds)
            if view is not None:
                tokens = tokens or view.tokens
                self.view(place, gold, (budget.name, name), view.text, view.cpu_seconds)
        if not tokens:
            return
        if summary is not None:
            text = f"{summary}\n{keep_last(place.before, budget.tail_tokens)}"
            self.view(place, gold, (budget.name, REAL), text, 0.0)
        for name, strategy in self.options.strategies.items():
            if name not in LIVE:
                text = strategy(place.before, max(0, tokens - budget.tail_tokens), min(tokens, budget.tail_tokens))
                self.view(place, gold, (budget.name, name), text, 0.0)

    def chain(self, place: BenchCut, gold: Gold) -> None:
        """Several compactions in a row, ending at a place (CMP-13)."""
        naive = self.options.strategies.get("ledger")
        for budget in map(budget_of, self.options.chain_budgets if naive is not None else ()):
            if budget.is_default:
                self.chains.measure(place, gold, (budget.name, CompactionTarget()))
            elif budget.tokens is not None and place.tokens > (budget.tokens + budget.tail_tokens) * 2:
                shape = CompactionTarget(memory_tokens=budget.tokens, tail_tokens=budget.tail_tokens)
                self.chains.measure(place, gold, (budget.name, shape), naive)

    def report(self, files: int) -> FidelityReport:
        names = {session for pool in self.pools.values() for session in pool.sessions}
        draws = drawn_sessions(sorted(names), self.options.draws, self.options.seed)
        order = {budget.name: number for number, budget in enumerate(self.budgets)}
        keys = sorted(self.pools, key=lambda key: (key[0], order[key[1]]))
        return FidelityReport(
            rows=tuple(self.pools[key].row(key, draws) for key in keys),
            chains=self.chains.rows(),
            lost=tuple(self.lost),
            files=files,
            skipped=tuple(self.skipped),
        )


def _lost(place: BenchCut, scored: Score, key: tuple[str, str]) -> Iterator[LostFact]:
    for fact in scored.lost:
        yield LostFact(
            file=place.file,
            session=place.session,
            where=place.where,
            cut_line=place.line,
            budget=key[0],
            strategy=key[1],
            kind=fact.name.kind,
            key=fact.name.key,
            seen_line=fact.seen_line,
            needed_line=fact.needed_line,
            age_tokens=fact.age_tokens,
        )
