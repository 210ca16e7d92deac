"""What a model reads out of views: the product's, by code and by a model, and the log's own summary (QLT-5).

First a plan, which costs nothing: places, questions, the views that code makes, and an estimate. Then the run: views
that a model writes, and every question asked of every view of its place. The same questions go to all strategies.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from perdure.adapters.logs import read_log
from perdure.context.models import ModelSpec
from perdure.engine.session import LiveSession
from perdure.errors import BadSetting, PerdureError, SpendingCapReached
from perdure.lab.bench.answers import KeptAnswers, PaidModel
from perdure.lab.bench.baselines import keep_last
from perdure.lab.bench.fidelity import REAL, FidelityBudget, OnProgress, budget_of
from perdure.lab.bench.judge import (
    REPLICATES,
    ClozeQuestion,
    QuestionAnswers,
    ask_one,
    held_in,
    prompts_of,
    question_tokens,
    questions_of,
    sample_questions,
)
from perdure.lab.bench.live_view import BY_MODEL, LIVE, CompactionTarget, live_view, view_by_model
from perdure.lab.bench.places import BenchCut, Where, cuts_of_recording, is_one_project
from perdure.lab.bench.probe import gold_of, shown, utterances_of
from perdure.lab.bench.report import drawn_sessions
from perdure.logs.detect import read_recordings
from perdure.memory.trust.secrets import redact_log
from perdure.ports.session import Model
from perdure.settings import Settings
from perdure.transcript.tokens import base_tokens
from perdure.wiring import SessionOptions as Parts
from perdure.wiring import memory_session

READ: Final = (*LIVE, "full", REAL)  # what is read unless something else is asked for
ALL: Final = (*LIVE, *BY_MODEL, REAL)
_SUMMARY_TOKENS: Final = 6_000  # what a model writes for a record, its analysis included
_NOTES_TOKENS: Final = 1_000  # and for an update of the notes, which comes every 5,000 tokens
_NOTES_GROWTH: Final = 5_000
_ANSWER_TOKENS: Final = 20
_INTERVAL: Final = (0.025, 0.975)
_DRAWS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingOptions:
    """What is read: `questions` in all, each of the views of these strategies at the place where it was needed.

    `where` None: at the boundaries in the logs that show their summary, and where there are none, at cuts.
    """

    strategies: tuple[str, ...] = READ
    where: Where | None = None
    budget: str = "default"
    questions: int = 20
    replicates: int = REPLICATES
    shares: tuple[float, ...] = (0.5, 0.8)
    least_tokens: int = 20_000
    seed: int = 0

    def check(self) -> None:
        """Raises `BadSetting`."""
        for name in self.strategies:
            if name not in ALL:
                raise BadSetting(f"--strategy {name}: there are {', '.join(ALL)}")
        if self.replicates < REPLICATES:
            raise BadSetting(f"--replicates {self.replicates}: fewer than {REPLICATES} tell nothing of how sure it is")


@dataclass(slots=True)
class _Place:
    """A cut with its questions, and the views that are known."""

    cut: BenchCut
    questions: list[ClozeQuestion] = field(default_factory=list)
    views: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What a run will ask for. `most_usd` is the list price without any cache, None where it isn't known.

    `likely_usd` counts what questions about the same view share as read from the cache.
    """

    calls: int
    input_tokens: int
    output_tokens: int
    most_usd: float | None
    likely_usd: float | None


@dataclass(slots=True)
class ReadingPlan:
    """What is to be asked; nothing of it was paid for."""

    options: ReadingOptions
    where: Where
    places: list[_Place] = field(default_factory=list)
    files: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)

    @property
    def questions(self) -> int:
        return sum(len(place.questions) for place in self.places)

    @property
    def sessions(self) -> int:
        return len({place.cut.session for place in self.places})

    @property
    def shape(self) -> CompactionTarget:
        return _shape(budget_of(self.options.budget))

    def estimate(self, spec: ModelSpec) -> CostEstimate:
        """What the run costs with this model, by list price."""
        calls = shared = fresh = written = 0
        ratio, prompts = spec.tokens_ratio, self.options.replicates * 2
        for place in self.places:
            base = next(iter(place.views.values()), "")
            for name in self.options.strategies:
                if name in BY_MODEL:
                    updates = max(1, place.cut.tokens // _NOTES_GROWTH) if name == "model_notes" else 1
                    calls += updates
                    fresh += place.cut.tokens if name == "full" else place.cut.tokens * updates // 2
                    written += _SUMMARY_TOKENS if name == "full" else _NOTES_TOKENS * updates
                view = place.views.get(name) if name not in BY_MODEL else base
                if view is None or not place.questions:
                    continue
                first = 0
                for question in place.questions:
                    whole, rest = question_tokens(question, view)
                    first = whole
                    calls += prompts
                    # Each view is written to the cache once, and so is what the controls of a question read.
                    shared += whole * (prompts - 1)
                    fresh += whole + rest * prompts
                    written += _ANSWER_TOKENS * prompts
                fresh, shared = fresh + first, shared - first
        if spec.input_usd is None or spec.output_usd is None:
            return CostEstimate(calls, round((shared + fresh) * ratio), written, None, None)
        price, out = spec.input_usd / 1e6, written * spec.output_usd / 1e6
        most = (shared + fresh) * ratio * price * spec.write_factor + out
        likely = (shared * spec.read_factor + fresh * spec.write_factor) * ratio * price + out
        return CostEstimate(calls, round((shared + fresh) * ratio), written, most, min(most, likely))

    def signature(self, model: str) -> str:
        """What names the answers of this run: model, options, and what is asked."""
        asked = [(q.session, q.line, q.name.key) for place in self.places for q in place.questions]
        told = msgspec.json.encode([model, msgspec.to_builtins(self.options), self.where, asked])
        return hashlib.sha256(told).hexdigest()[:16]


def plan_reading(
    files: Sequence[Path], options: ReadingOptions, *, on_progress: OnProgress | None = None
) -> ReadingPlan:
    """Look for places and questions, and make the views that need no model."""
    options.check()
    found: dict[Where, list[_Place]] = {"boundary": [], "cut": []}
    plan = ReadingPlan(options, options.where or "boundary", files=len(files))
    for done, path in enumerate(files, 1):
        for place in _places(path, options, plan.skipped):
            found[place.cut.where].append(place)
        if on_progress is not None:
            on_progress(done, len(files), path.name)
    if options.where is None and not any(place.questions for place in found["boundary"]):
        plan.where = "cut"
    places = found[plan.where]
    for number, place in enumerate(places):
        place.questions = [_placed(question, number) for question in place.questions]
    chosen = sample_questions((one for place in places for one in place.questions), options.questions, options.seed)
    for number, place in enumerate(places):
        place.questions = [one for one in chosen if one.place == number]
    plan.places = [place for place in places if place.questions]
    budget = budget_of(options.budget)
    for done, place in enumerate(plan.places, 1):
        place.views = dict(_views_by_code(place.cut, budget, options.strategies))
        if on_progress is not None:
            on_progress(done, len(plan.places), "views by code")
    return plan


def _placed(question: ClozeQuestion, place: int) -> ClozeQuestion:
    return ClozeQuestion(question.session, question.line, question.name, place)


def _places(path: Path, options: ReadingOptions, skipped: list[tuple[str, str]]) -> Iterator[_Place]:
    """The places of a log with their questions. What a model reads has no secrets in it (SEC-5)."""
    try:
        data = redact_log(read_log(path)[0])
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
        for cut in cuts_of_recording(
            recording,
            str(path),
            shares=options.shares if options.where != "boundary" else (),
            least_tokens=options.least_tokens,
            boundaries=options.where != "cut",
        ):
            if cut.where == "boundary" and cut.summary is None and options.where is None:
                continue  # there is nothing to compare with
            gold = gold_of(utterances_of(cut.before, cut.lines), utterances_of(cut.after, cut.lines))
            yield _Place(cut, questions_of(cut, gold))


def _shape(budget: FidelityBudget) -> CompactionTarget:
    if budget.is_default:
        return CompactionTarget()
    if budget.tokens is None:
        raise BadSetting(f"--budget {budget.name}: write default, 10k, or 12k+10k")
    return CompactionTarget(memory_tokens=budget.tokens, tail_tokens=budget.tail_tokens)


def _views_by_code(cut: BenchCut, budget: FidelityBudget, strategies: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The views that cost nothing; a strategy that another took over from has none."""
    for name in LIVE:
        if name in strategies:
            view = live_view(cut.before, _shape(budget), name)
            if view is not None:
                yield name, view.text
    if REAL in strategies and cut.summary is not None:
        tail = keep_last(cut.before, budget.tail_tokens) if budget.tail_tokens else ""
        yield REAL, f"{shown(cut.summary)}\n{tail}".rstrip("\n")


# --- the run --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadShare:
    """A share in percent, and its 95 % interval over drawn sessions."""

    percent: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ReadRow:
    """What a model made of the views of one strategy; shares are in percent of answers.

    Attributes:
        right: the name itself, from the view. `unknown` and `wrong` are the rest.
        false_positive: anything but UNKNOWN where the view says nothing of it.
        by_luck: the right name there, where it can't have been read.
        net: `right` less `by_luck`: what the view itself gave.
        held: questions whose name the view holds at all; `line`: whose line it holds word for word.
        agreeing: questions whose replicates were all right or all wrong.
        thirds: of the questions whose name stands in one third of the view alone, how many, and how many answers right.
        against_ledger: `net` less the ledger's, over the questions that both were asked.
        fell_back: places where a model's record was none, by the reason.
    """

    strategy: str
    places: int
    questions: int
    tokens: int
    answers: int
    failed: int
    right: ReadShare | None = None
    unknown: float | None = None
    wrong: float | None = None
    false_positive: ReadShare | None = None
    by_luck: float | None = None
    net: ReadShare | None = None
    held: float | None = None
    line: float | None = None
    agreeing: float | None = None
    thirds: tuple[tuple[int, float | None], ...] = ()
    against_ledger: ReadShare | None = None
    fell_back: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadingReport:
    """All of a run. `stopped` says why it ended early; then rows hold what was answered until then."""

    model: str
    where: str
    budget: str
    questions: int
    sessions: int
    replicates: int
    rows: tuple[ReadRow, ...]
    calls: int
    reused: int
    input_tokens: int
    output_tokens: int
    usd: float | None
    skipped: tuple[tuple[str, str], ...] = ()
    stopped: str = ""


@dataclass(slots=True)
class _Read:
    """What one strategy got."""

    answers: list[QuestionAnswers] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    fell_back: Counter[str] = field(default_factory=Counter)


async def read_views(
    plan: ReadingPlan,
    model: Model,
    payer: LiveSession,
    answers: KeptAnswers,
    *,
    on_progress: OnProgress | None = None,
) -> ReadingReport:
    """Let a model write its records and answer the questions. `payer` pays for calls, nobody for known answers."""
    paid, read, stopped = PaidModel(model, payer, answers), dict[str, _Read](), ""
    settings = Settings(max_output_tokens=payer.settings.max_output_tokens)  # its caps hold at the model
    asker = await memory_session("bench", parts=Parts(settings=settings, services=payer.services))
    done, of = 0, sum(len(place.questions) for place in plan.places) * len(plan.options.strategies)
    try:
        for name in plan.options.strategies:
            for place in plan.places:
                await _read_place(plan, place, name, paid, asker, read.setdefault(name, _Read()))
                done += len(place.questions)
                if on_progress is not None:
                    on_progress(done, of, name)
    except SpendingCapReached as e:
        stopped = str(e)
    finally:
        await asker.close()
    if not stopped:
        answers.forget()
    return _report(plan, paid, read, stopped)


async def _read_place(
    plan: ReadingPlan, place: _Place, name: str, paid: PaidModel, asker: LiveSession, into: _Read
) -> None:
    view = place.views.get(name)
    if name in BY_MODEL:
        most = asker.settings.max_output_tokens
        written = await view_by_model(place.cut.before, plan.shape, name, paid, max_output_tokens=most)
        if paid.capped is not None:
            raise paid.capped
        view = written.text
        if view is None:
            code, _, why = written.reason.partition(":")
            into.fell_back[written.reason if code == "model_failed" and why else code] += 1
    if view is None:
        return
    into.tokens.append(base_tokens(view))
    for question in place.questions:
        told = QuestionAnswers(question, held_in(view, question))
        into.answers.append(told)
        for text, is_control in prompts_of(question, view, plan.options.replicates):
            told.add(await ask_one(asker, paid, question, text), is_control=is_control)


def _report(plan: ReadingPlan, paid: PaidModel, read: Mapping[str, _Read], stopped: str) -> ReadingReport:
    names = sorted({place.cut.session for place in plan.places})
    draws = drawn_sessions(names, _DRAWS, plan.options.seed)
    ledger = read.get("ledger")
    return ReadingReport(
        model=paid.about.id,
        where=plan.where,
        budget=plan.options.budget,
        questions=plan.questions,
        sessions=plan.sessions,
        replicates=plan.options.replicates,
        rows=tuple(_row(name, one, draws, ledger if name != "ledger" else None) for name, one in read.items()),
        calls=paid.called,
        reused=paid.reused,
        input_tokens=paid.paid.prompt_tokens,
        output_tokens=paid.paid.output_tokens,
        usd=paid.usd,
        skipped=tuple(plan.skipped),
        stopped=stopped,
    )


Counted = Callable[[QuestionAnswers], tuple[float, float]]
"""Of one question, so many of so many."""


def _row(name: str, one: _Read, draws: Sequence[Sequence[str]], ledger: _Read | None) -> ReadRow:
    some = [told for told in one.answers if told.asked]
    asked = sum(told.asked for told in some)

    def percent(part: Callable[[QuestionAnswers], float], of: Callable[[QuestionAnswers], float]) -> float | None:
        total = sum(map(of, some))
        return 100 * sum(map(part, some)) / total if total else None

    thirds = []
    for third in range(3):
        there = [told for told in some if told.held.third == third]
        answers = sum(told.asked for told in there)
        thirds.append((len(there), 100 * sum(told.right for told in there) / answers if answers else None))
    return ReadRow(
        strategy=name,
        places=len(one.tokens),
        questions=len(one.answers),
        tokens=round(sum(one.tokens) / max(1, len(one.tokens))),
        answers=asked + sum(told.controls for told in some),
        failed=sum(told.failed for told in one.answers),
        right=_share(one.answers, draws, lambda told: (told.right, told.asked)),
        unknown=percent(lambda told: told.unknown, lambda told: told.asked),
        wrong=percent(lambda told: told.wrong, lambda told: told.asked),
        false_positive=_share(one.answers, draws, lambda told: (told.claimed, told.controls)),
        by_luck=percent(lambda told: told.lucky, lambda told: told.controls),
        net=_share(one.answers, draws, _net),
        held=percent(lambda told: told.held.name, lambda told: 1),
        line=percent(lambda told: told.held.line, lambda told: 1),
        agreeing=percent(lambda told: told.is_agreed, lambda told: 1),
        thirds=tuple(thirds),
        against_ledger=None if ledger is None else _against(one, ledger, draws),
        fell_back=dict(one.fell_back),
    )


def _net(told: QuestionAnswers) -> tuple[float, float]:
    """The share of right answers less that of lucky ones, of one question; none where either is missing."""
    if not told.asked or not told.controls:
        return 0.0, 0.0
    return told.right / told.asked - told.lucky / told.controls, 1.0


def _against(one: _Read, ledger: _Read, draws: Sequence[Sequence[str]]) -> ReadShare | None:
    theirs = {(told.question.place, told.question.line): told for told in ledger.answers}

    def difference(told: QuestionAnswers) -> tuple[float, float]:
        other = theirs.get((told.question.place, told.question.line))
        mine, of = _net(told)
        if other is None or not of or not _net(other)[1]:
            return 0.0, 0.0
        return mine - _net(other)[0], 1.0

    return _share(one.answers, draws, difference)


def _share(answers: Sequence[QuestionAnswers], draws: Sequence[Sequence[str]], count: Counted) -> ReadShare | None:
    sums: dict[str, tuple[float, float]] = {}
    for told in answers:
        part, of = count(told)
        before = sums.get(told.question.session, (0.0, 0.0))
        sums[told.question.session] = before[0] + part, before[1] + of
    total = sum(of for _, of in sums.values())
    if not total:
        return None
    percents = []
    for draw in draws:
        of = sum(sums[name][1] for name in draw if name in sums)
        if of:
            percents.append(100 * sum(sums[name][0] for name in draw if name in sums) / of)
    percents.sort()
    low, high = (percents[min(len(percents) - 1, int(share * len(percents)))] for share in _INTERVAL)
    return ReadShare(100 * sum(part for part, _ in sums.values()) / total, low, high)


# --- for people -----------------------------------------------------------------------------------------------------


def as_plain(report: ReadingReport) -> dict[str, Any]:
    """The report as plain values, for JSON."""
    return {"measured": True, **msgspec.to_builtins(report)}


_PLACES: Final = {"boundary": "real boundaries", "cut": "cuts"}
_COLUMNS: Final = (
    "tokens", "asked", "right", "unknown", "wrong", "false pos", "by luck", "net", "held", "line", "agreeing", "failed",
)  # fmt: skip
UNMEASURED: Final = "unmeasured"


def as_table(report: ReadingReport) -> str:
    """Plain text in columns, intervals on a line of their own."""
    lines = [
        f"views read by {report.model} at {_PLACES[report.where]}, budget {report.budget}, in percent of answers:",
        f"{report.questions} questions from {report.sessions} sessions, {report.replicates} answers to each, "
        "and as many where the view says nothing",
        _line("strategy", _COLUMNS),
    ]
    for row in report.rows:
        shares = (row.right, row.unknown, row.wrong, row.false_positive, row.by_luck, row.net)
        more = (row.held, row.line, row.agreeing)
        cells = [f"{row.tokens:,}", str(row.questions), *map(_cell, (*shares, *more)), str(row.failed)]
        lines.append(_line(row.strategy, cells))
        if row.right is not None:
            bounds = ["", "", _bounds(row.right), "", "", _bounds(row.false_positive), "", _bounds(row.net)]
            lines.append(_line("  95 %", bounds).rstrip())
        if any(count for count, _ in row.thirds):
            told = (f"{_cell(percent)} of {count}" for count, percent in row.thirds)
            lines.append("  right by third of the view (questions): " + ", ".join(told))
        if row.against_ledger is not None:
            lines.append(f"  net beyond the ledger's, same questions: {_signed(row.against_ledger)}")
        for reason, count in row.fell_back.items():
            lines.append(f"  no record of the model at {count} of the places: {reason}")
    lines += [f"left out: {file}: {why}" for file, why in report.skipped]
    return "\n".join(lines)


def as_unmeasured(strategies: Sequence[str], command: str) -> str:
    """What is printed where no model is asked: each line says so, and what would measure it."""
    lines = ["views read by a model (right answers, false positives, by strategy):"]
    lines += [f"{name:<16}{UNMEASURED}" for name in strategies]
    return "\n".join((*lines, f"to measure: {command}"))


def estimate_words(plan: ReadingPlan, estimate: CostEstimate, model: str) -> str:
    """What a run will ask for and cost, in one sentence each."""
    asked = (
        f"{plan.questions} questions at {len(plan.places)} {_PLACES[plan.where]} in {plan.sessions} sessions, of "
        f"{len(plan.options.strategies)} strategies, {plan.options.replicates * 2} answers each: up to "
        f"{estimate.calls:,} calls of {model}, {estimate.input_tokens:,} tokens in and {estimate.output_tokens:,} out"
    )
    if estimate.most_usd is None or estimate.likely_usd is None:
        return f"{asked}. Its price isn't known here (docs/use/models.md: input_usd, output_usd)"
    return f"{asked}. By list price at most ${estimate.most_usd:,.2f}, about ${estimate.likely_usd:,.2f} with its cache"


def _line(name: str, cells: Sequence[str]) -> str:
    return f"{name:<16}" + "".join(f"{cell:>10}" for cell in cells)


def _cell(share: ReadShare | float | None) -> str:
    if share is None:
        return "-"
    return f"{share.percent if isinstance(share, ReadShare) else share:.1f}"


def _bounds(share: ReadShare | None) -> str:
    return "" if share is None else f"{share.low:.0f}-{share.high:.0f}"


def _signed(share: ReadShare) -> str:
    return f"{share.percent:+.1f} points (95 %: {share.low:+.1f} to {share.high:+.1f})"
