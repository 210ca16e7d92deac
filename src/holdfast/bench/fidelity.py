"""Running the bench over recordings: every place, every budget, every strategy, scored by one probe (QLT-1, QLT-3)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio

from holdfast.bench.baselines import BASELINES, Strategy, keep_last
from holdfast.bench.chains import Chains
from holdfast.bench.judge import Judge, Judged, Question, judge_all, questions_of
from holdfast.bench.live_view import LIVE, Shape, live_view
from holdfast.bench.places import Place, Where, is_one_project, places_of_recording
from holdfast.bench.probe import Gold, gold_of
from holdfast.bench.report import Lost, Pooled, Report, drawn_sessions
from holdfast.bench.scores import Score, score
from holdfast.bench.utterances import shown, utterances_of
from holdfast.context.ledger import compacted as engine_ledger
from holdfast.errors import BadSetting, HoldfastError
from holdfast.transcript.foreign.detect import read_recordings
from holdfast.transcript.messages import Message
from holdfast.transcript.tokens import base_tokens

OnProgress = Callable[[int, int, str], None]

DEFAULT = "default"  # the shape of the product: what a session really compacts to
DEFAULT_BUDGETS: Final = ("summary", "summary+10k", "10k", "20k", "12k+10k", DEFAULT)
CHAINED: Final = ("10k", DEFAULT)
REAL: Final = "real"  # the summary in the log
_BUDGET: Final = re.compile(r"(summary|\d+k?)(?:\+(\d+k?))?")
_LEAST_GOLD: Final = 1
_DEFAULT_TAIL: Final = 10_000  # of the baselines that have one


def ledger(messages: Sequence[Message], budget_tokens: int, tail_tokens: int = 0) -> str:
    """The engine's compaction without a model, as `holdfast compact` prints it."""
    return engine_ledger(messages, budget_tokens, tail_tokens).text


STRATEGIES: Final[dict[str, Strategy]] = {"ledger": ledger, **BASELINES}


@dataclass(frozen=True, slots=True)
class Budget:
    """How large a view may be: so many tokens (None: as many as the summary in the log), and a raw tail beside them.

    `is_default`: as large as the view of a session that compacts with the product's own settings.
    """

    name: str
    tokens: int | None
    tail_tokens: int = 0
    is_default: bool = False


def budget_of(text: str) -> Budget:
    """A budget as it is written: 10k, 12k+10k (memory and raw tail), summary, summary+10k, default."""
    if text == DEFAULT:
        return Budget(DEFAULT, None, _DEFAULT_TAIL, is_default=True)
    match = _BUDGET.fullmatch(text)
    if match is None:
        raise BadSetting(f"budget {text!r}: write 10k, 12k+10k, summary, summary+10k or default")
    size, tail = match[1], match[2] or "0"
    return Budget(text, None if size == "summary" else _count(size), _count(tail))


def _count(text: str) -> int:
    return int(text[:-1]) * 1000 if text.endswith("k") else int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to measure. Places with less than `least_tokens` before them, or no more than the budget, are left out."""

    budgets: tuple[str, ...] = DEFAULT_BUDGETS
    strategies: Mapping[str, Strategy] = field(default_factory=lambda: STRATEGIES)
    where: tuple[Where, ...] = ("cut", "boundary")
    shares: tuple[float, ...] = (0.5, 0.8)  # of a session's tokens: where it is cut
    least_tokens: int = 20_000
    chain_budgets: tuple[str, ...] = ()  # at these, sessions are also compacted several times in a row
    lengths: tuple[int, ...] = (3, 5)
    lost_of: tuple[str, ...] = LIVE
    judge: Judge | None = None  # a model that reads the views, too
    draws: int = 500
    seed: int = 0
    cpu_seconds: Callable[[], float] = time.process_time


def run(files: Sequence[Path], options: Options | None = None, *, on_progress: OnProgress | None = None) -> Report:
    """Measure recordings; a file that can't be read, or holds two projects, is left out and said."""
    bench = _Bench(options or Options())
    for done, path in enumerate(files, 1):
        bench.file(path)
        if on_progress is not None:
            on_progress(done, len(files), path.name)
    return bench.report(len(files), bench.judged(on_progress))


class _Bench:
    def __init__(self, options: Options) -> None:
        self.options = options
        self.budgets = [budget_of(text) for text in options.budgets]
        self.pools: dict[tuple[str, str, str], Pooled] = {}
        self.chains = Chains(self.options.lengths)
        self.lost: list[Lost] = []
        self.skipped: list[tuple[str, str]] = []
        self.questions: dict[tuple[str, str], list[Question]] = {}

    def file(self, path: Path) -> None:
        try:
            data = path.read_bytes()
            recordings = read_recordings(data, path.name)
        except OSError as e:
            self.skipped.append((str(path), f"can't be read: {e.strerror or e}"))
            return
        except HoldfastError as e:
            self.skipped.append((str(path), str(e)))
            return
        if not is_one_project(data):
            self.skipped.append((str(path), "its working directories belong to more than one project"))
            return
        options = self.options
        for recording in recordings:
            last_cut: tuple[Place, Gold] | None = None
            for place in places_of_recording(
                recording,
                str(path),
                shares=options.shares if "cut" in options.where else (),
                least_tokens=options.least_tokens,
                boundaries="boundary" in options.where,
            ):
                gold = gold_of(utterances_of(place.before, place.lines), utterances_of(place.after, place.lines))
                if len(gold.facts) < _LEAST_GOLD:
                    continue
                self.place(place, gold)
                last_cut = (place, gold) if place.where == "cut" else last_cut
            if last_cut is not None:
                self.chain(*last_cut)

    def place(self, place: Place, gold: Gold) -> None:
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

    def view(self, place: Place, gold: Gold, key: tuple[str, str], text: str, cpu_seconds: float) -> Pooled:
        """Score one view and enter it."""
        pool = self.pools.setdefault((place.where, *key), Pooled())
        scored = score(gold, text)
        pool.add(place.session, scored.tallies)
        pool.tokens.append(base_tokens(text))
        pool.compacted_tokens += place.tokens
        pool.cpu_seconds += cpu_seconds
        if self.options.judge is not None and key[1] in (*LIVE, REAL):
            self.questions.setdefault(key, []).extend(questions_of(place, gold, text))
        if key[1] in self.options.lost_of:
            self.lost.extend(_lost(place, scored, key))
        return pool

    def default(self, place: Place, gold: Gold, budget: Budget, summary: str | None) -> None:
        """The shape of the product, by a session; then everything else at the tokens that it took."""
        if "ledger" not in self.options.strategies:
            return
        tokens = 0
        for name in LIVE:
            view = live_view(place.before, Shape(), name, cpu_seconds=self.options.cpu_seconds)
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

    def chain(self, place: Place, gold: Gold) -> None:
        """Several compactions in a row, ending at a place (CMP-13)."""
        naive = self.options.strategies.get("ledger")
        for budget in map(budget_of, self.options.chain_budgets if naive is not None else ()):
            if budget.is_default:
                self.chains.measure(place, gold, (budget.name, Shape()))
            elif budget.tokens is not None and place.tokens > (budget.tokens + budget.tail_tokens) * 2:
                shape = Shape(memory_tokens=budget.tokens, tail_tokens=budget.tail_tokens)
                self.chains.measure(place, gold, (budget.name, shape), naive)

    def judged(self, on_progress: OnProgress | None) -> tuple[Judged, ...]:
        """What a model reads out of the views, when one is asked (QLT-5)."""
        judge = self.options.judge
        return () if judge is None else anyio.run(judge_all, judge, self.questions, on_progress)

    def report(self, files: int, judged: tuple[Judged, ...] = ()) -> Report:
        names = {session for pool in self.pools.values() for session in pool.sessions}
        draws = drawn_sessions(sorted(names), self.options.draws, self.options.seed)
        order = {budget.name: number for number, budget in enumerate(self.budgets)}
        keys = sorted(self.pools, key=lambda key: (key[0], order[key[1]]))
        return Report(
            rows=tuple(self.pools[key].row(key, draws) for key in keys),
            chains=self.chains.rows(),
            lost=tuple(self.lost),
            files=files,
            skipped=tuple(self.skipped),
            judged=judged,
        )


def _lost(place: Place, scored: Score, key: tuple[str, str]) -> Iterator[Lost]:
    for fact in scored.lost:
        yield Lost(
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
