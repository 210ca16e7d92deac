"""Our record beside the log's own summary, wherever a log was compacted: both texts, and what each has (CMP-16, QLT-1).

What is needed later, and whether a text holds it, is decided by the probe, as for every strategy that is measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from perdure.adapters.logs import read_log
from perdure.errors import PerdureError
from perdure.lab.bench.baselines import keep_last
from perdure.lab.bench.fidelity import FidelityBudget, OnProgress, budget_of, ledger
from perdure.lab.bench.live_view import CompactionTarget, live_view
from perdure.lab.bench.places import BenchCut, cuts_of_recording
from perdure.lab.bench.probe import FactName, Utterance, gold_of, names_in, shown, utterances_of
from perdure.lab.bench.scores import AXES, GoldItem, KeptCount, ViewText, items_of, score
from perdure.logs.detect import read_recordings
from perdure.memory.trust.secrets import redact
from perdure.transcript.tokens import base_tokens

NAMES: Final = "names"  # an axis of its own here: what was said before and not needed later
_ORDER: Final = (*AXES, NAMES)
_SAME_ITEMS: Final = ("far", "first", "last")  # of other axes
_SPOKEN: Final = {"user": 4, "agent": 1, "environment": 0}  # a name counts so much each time that one of them says it


@dataclass(frozen=True, slots=True)
class BesideText:
    """One of the two texts, with secrets marked, and its size."""

    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class BesideAxis:
    """How much of an axis each text holds, and by name, the most important first, what only one holds, or none."""

    axis: str
    of: int
    record: int
    summary: int
    record_only: tuple[str, ...] = ()
    summary_only: tuple[str, ...] = ()
    neither: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BesidePlace:
    """A compaction that a log shows: the record that we would have made there, and the summary that the log has."""

    file: str
    session: str
    line: int
    tokens_before: int
    record: BesideText
    summary: BesideText
    axes: tuple[BesideAxis, ...]


@dataclass(frozen=True, slots=True)
class BesideReport:
    """All of a run: the places, where else a log was compacted, what can't be compared and why, unreadable files."""

    files: int
    places: tuple[BesidePlace, ...] = ()
    lines: tuple[tuple[str, int], ...] = ()  # of all compactions, also when only one was asked for
    left_out: tuple[tuple[str, int, str], ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()

    @property
    def totals(self) -> tuple[BesideAxis, ...]:
        """Each axis over all places, without names."""
        found: dict[str, list[BesideAxis]] = {}
        for place in self.places:
            for one in place.axes:
                found.setdefault(one.axis, []).append(one)
        return tuple(
            BesideAxis(axis, sum(o.of for o in some), sum(o.record for o in some), sum(o.summary for o in some))
            for axis, some in sorted(found.items(), key=lambda one: _ORDER.index(one[0]))
        )


@dataclass(slots=True)
class _Found:
    places: list[BesidePlace] = field(default_factory=list)
    lines: list[tuple[str, int]] = field(default_factory=list)
    left_out: list[tuple[str, int, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)


def compare(
    files: Sequence[Path], *, budget: str = "summary", at: int | None = None, on_progress: OnProgress | None = None
) -> BesideReport:
    """Every logged compaction of some logs, or only that at one line; the budget is written as for `bench fidelity`."""
    size = budget_of(budget)
    found = _Found()
    for done, path in enumerate(files, 1):
        for place in _places(path, found):
            found.lines.append((place.file, place.line))
            if at in (None, place.line):
                _compare(place, size, found)
        if on_progress is not None:
            on_progress(done, len(files), path.name)
    return BesideReport(
        files=len(files),
        places=tuple(found.places),
        lines=tuple(found.lines),
        left_out=tuple(found.left_out),
        skipped=tuple(found.skipped),
    )


def _places(path: Path, found: _Found) -> Iterator[BenchCut]:
    try:
        recordings = read_recordings(read_log(path)[0], path.name)
    except OSError as e:
        found.skipped.append((str(path), f"can't be read: {e.strerror or e}"))
        return
    except PerdureError as e:
        found.skipped.append((str(path), str(e).removeprefix(f"{path.name}: ")))
        return
    for recording in recordings:
        yield from cuts_of_recording(recording, str(path), shares=(), least_tokens=0)


def _compare(place: BenchCut, size: FidelityBudget, found: _Found) -> None:
    texts = _texts(place, size)
    if isinstance(texts, str):
        found.left_out.append((place.file, place.line, texts))
        return
    record, summary = texts
    before, after = utterances_of(place.before, place.lines), utterances_of(place.after, place.lines)
    found.places.append(
        BesidePlace(
            file=place.file,
            session=place.session,
            line=place.line,
            tokens_before=place.tokens,
            record=BesideText(redact(record).text, base_tokens(record)),
            summary=BesideText(redact(summary).text, base_tokens(summary)),
            axes=tuple(_axes(before, after, record, summary)),
        )
    )


def _texts(place: BenchCut, size: FidelityBudget) -> tuple[str, str] | str:
    """The record and the summary, each with the raw tail that the budget has; or why there are none."""
    if place.summary is None:
        return "the log doesn't show what its summary says"
    summary = shown(place.summary)
    tail = f"\n{keep_last(place.before, size.tail_tokens)}" if size.tail_tokens else ""
    if size.is_default:
        view = live_view(place.before, CompactionTarget(), "ledger")
        return "there is too little before it to compact" if view is None else (view.text, summary + tail)
    tokens = base_tokens(summary) if size.tokens is None else size.tokens
    if place.tokens <= tokens + size.tail_tokens:
        return "all that was said before it fits the budget"
    return ledger(place.before, tokens, size.tail_tokens), summary + tail


def _axes(before: Sequence[Utterance], after: Sequence[Utterance], record: str, summary: str) -> Iterator[BesideAxis]:
    gold = gold_of(before, after)
    ours, theirs = ViewText(record), ViewText(summary)
    our_items, their_items = items_of(gold, ours), items_of(gold, theirs)
    our_tallies, their_tallies = score(gold, record).tallies, score(gold, summary).tallies
    for axis in AXES:
        if not our_tallies[axis].of:
            continue
        lists = () if axis in _SAME_ITEMS else _apart(our_items.get(axis, []), their_items.get(axis, []))
        yield _axis(axis, our_tallies[axis], their_tallies[axis], *lists)
    needed = {fact.name for fact in gold.facts}
    names = [name for name in _said(before) if name not in needed]
    our_names = [GoldItem(name.key, name in ours.names) for name in names]
    their_names = [GoldItem(name.key, name in theirs.names) for name in names]
    only_ours, only_theirs, _ = _apart(our_names, their_names)  # neither has most of what tools showed
    yield _axis(NAMES, _tally(our_names), _tally(their_names), only_ours, only_theirs)


def _axis(axis: str, ours: KeptCount, theirs: KeptCount, *names: Iterable[str]) -> BesideAxis:
    marked = (tuple(redact(name).text for name in some) for some in names)
    return BesideAxis(axis, ours.of, ours.kept, theirs.kept, *marked)


def _tally(items: Sequence[GoldItem]) -> KeptCount:
    return KeptCount(sum(item.is_kept for item in items), len(items))


def _apart(ours: Sequence[GoldItem], theirs: Sequence[GoldItem]) -> tuple[list[str], list[str], list[str]]:
    """What only the record holds, only the summary, and neither of them; the same name once."""
    pairs = {our.name: (our.is_kept, their.is_kept) for our, their in zip(ours, theirs, strict=True)}
    return (
        [name for name, kept in pairs.items() if kept == (True, False)],
        [name for name, kept in pairs.items() if kept == (False, True)],
        [name for name, kept in pairs.items() if kept == (False, False)],
    )


def _said(before: Sequence[Utterance]) -> list[FactName]:
    """All names, first those that the user said most, then the agent; at a tie the latest."""
    weights: Counter[FactName] = Counter()
    last: dict[FactName, int] = {}
    for number, one in enumerate(before):
        for name in set(names_in(one.text)):
            weights[name] += _SPOKEN[one.who]
            last[name] = number
    return sorted(weights, key=lambda name: (-weights[name], -last[name], name))


def as_plain(report: BesideReport) -> dict[str, Any]:
    """Everything, as JSON has it."""
    return {
        "files": report.files,
        "places": [
            {**asdict(place), "axes": {one.axis: _plain_axis(one) for one in place.axes}} for place in report.places
        ],
        "totals": {one.axis: {"of": one.of, "record": one.record, "summary": one.summary} for one in report.totals},
        "left_out": [{"file": file, "line": line, "why": why} for file, line, why in report.left_out],
        "skipped": [{"file": file, "why": why} for file, why in report.skipped],
    }


def _plain_axis(one: BesideAxis) -> dict[str, Any]:
    return {name: value for name, value in asdict(one).items() if name != "axis"}
