"""A compaction as a decision: what stays verbatim, what leaves, pins, and the test that a boundary must pass (CMP-2,
CMP-6, CMP-9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import msgspec

from perdure import prompts
from perdure.compaction.ledger.checkpoint import PackedLedger, index_of, pack_ledger
from perdure.compaction.ledger.compacted import TAIL_HEADING, RecordSurroundings, render
from perdure.compaction.ledger.evidence import NO_TAIL, RawTail, raw_tail
from perdure.compaction.ledger.memory import LedgerMemory, SpokenText
from perdure.compaction.ledger.reader import block_text
from perdure.compaction.restore.calls import NOTHING_BACK, RestoredMessages
from perdure.context.accounting import least_trust
from perdure.context.anchor import size_tokens
from perdure.context.cuts import legal_cuts, open_loop
from perdure.context.items import THINKING, ViewItem
from perdure.context.policy import HELPER_SOURCES, Facts
from perdure.context.reminders import fenced, indented, quoted, without_tags, without_tokens
from perdure.context.state import SessionState, to_checkpoint
from perdure.context.view import ContextView, view_behind
from perdure.errors import CompactionRefused
from perdure.memory.trust.secrets import redact_record
from perdure.transcript.blocks import Text, text_block
from perdure.transcript.messages import Message, MessageId, content_of
from perdure.transcript.records import BlockChange, Compacted, Cursor, Pinned, ResultMarks
from perdure.transcript.spoken import spoken
from perdure.transcript.tokens import UNITS_PER_TOKEN, base_tokens, text_size


class _KeepBounds(NamedTuple):
    least: int
    most: int
    texts: int
    after: int | None


def keep_from(view: ContextView, facts: Facts, *, after: int | None = None) -> int:
    """The position from which messages are kept; `len(view.items)` keeps none.

    Without `after`, the latest legal cut behind which at least the minimum of tokens and of messages with text stand.
    With it (the position after what a summary covers already), the window starts there and widens backwards until both
    minimums hold. Never more than the maximum, nor than half of what may be filled; the cuts that leave thinking loops
    whole are preferred. Behind the last boundary's summary only.
    """
    limits, settings = facts.limits, facts.settings
    least = limits.scaled(settings.keep_min_tokens)
    most = min(limits.scaled(settings.keep_max_tokens), max(least, _room(view, facts)))
    start = first_said(view)
    bounds = _KeepBounds(least, most, settings.keep_min_texts, after)
    for loops in (True, False):
        cuts = [c for c in legal_cuts(view, loops=loops) if c >= start]
        cut = _choose(view, cuts, bounds)
        if cut is not None:
            return cut
    return len(view.items)


def _room(view: ContextView, facts: Facts) -> int:
    """Tokens that kept messages may take so that at most half of the trigger is filled afterwards (PRS-2)."""
    limits, calibration = facts.limits, view.state.calibration
    overhead = view.front_size.live if calibration.overhead_tokens is None else calibration.overhead_tokens
    summary = summary_budget(facts)
    return round((limits.trigger // 2 - overhead) / calibration.ratio) - summary


def tail_tokens(view: ContextView, facts: Facts) -> int:
    """Tokens of the latest messages that stand in a record as text when none of them can be kept whole."""
    return max(0, min(facts.limits.scaled(facts.settings.keep_min_tokens), _room(view, facts)))


def summary_budget(facts: Facts) -> int:
    """Tokens that a record may take in this window."""
    return min(facts.limits.scaled(facts.settings.summary_budget_tokens), facts.limits.trigger // 4)


def first_said(view: ContextView) -> int:
    """The position of the first message that the checkpoint hasn't read: behind the last summary.

    A compaction that keeps the latest messages keeps none from before it, as a summary isn't summarised with what came
    after it unless it stands first (CMP-13).
    """
    boundary = view.boundary
    if boundary is None:
        return 0
    known = (*boundary.kept[boundary.read - 1 : boundary.read], *(message.id for message in boundary.summary))
    return max((view.positions[identity] + 1 for identity in known if identity in view.positions), default=0)


def can_leave(view: ContextView, position: int) -> bool:
    """Whether anything that was said stands before a position, other than the last boundary's summary."""
    first = first_said(view)
    return position > first or (position == first and view.boundary is not None and view.boundary.read > 0)


def _choose(view: ContextView, cuts: list[int], bounds: _KeepBounds) -> int | None:
    """The latest cut that keeps enough, else the one that keeps most within the maximum; None when none fits."""
    best: int | None = None
    tokens, spoken = 0, 0
    position = len(view.items)
    for cut in reversed(cuts):
        while position > cut:
            position -= 1
            item = view.items[position]
            tokens += 0 if item.is_hidden else item.size.base
            spoken += any(block.type == "text" for block in item.visible)
        if tokens > bounds.most:
            break
        best = cut if cut < len(view.items) else best
        if tokens >= bounds.least and spoken >= bounds.texts and (bounds.after is None or cut <= bounds.after):
            return cut
    # Nothing within the maximum holds the minimum: a kept tail of a fifth of it is worth entering a loop for.
    return best if best is not None and tokens_from(view, best) >= bounds.least // 5 else None


def tokens_from(view: ContextView, position: int) -> int:
    """Tokens shown from an item on, by the base rule."""
    return sum(item.size.base for item in view.items[position:] if not item.is_hidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPart:
    """What to summarise: `start` and what follows it ("from here"), or what stands before `end` ("up to here").

    Both are ids of messages in the view, or unique beginnings of ids; both together are the part between. Everything
    else stays word for word.
    """

    start: str | None = None
    end: str | None = None


def span_of(view: ContextView, part: CompactionPart) -> tuple[int, int]:
    """The positions of a part: never more than was chosen, and less where a cut would break a law.

    A chosen message in the middle of a tool call, of an API response or of the last summary moves the cut to the next
    place that is legal. Raises `CompactionRefused` when there is no such message, or nothing is left of the part.
    """
    size = len(view.items)
    first = 0 if part.start is None else _position(view, part.start)
    last = size if part.end is None else _position(view, part.end)
    cuts = [cut for cut in legal_cuts(view, loops=False) if not _splits_summary(view, cut)]
    start = 0 if part.start is None else min((cut for cut in cuts if cut >= first), default=size)
    end = max((cut for cut in cuts if cut <= last), default=0)
    if start >= end or all(item.message.origin == "summary" for item in view.items[start:end]):
        raise CompactionRefused(
            "nothing stands in the part to be summarised that could leave: choose another message (a call and its "
            "result, and the messages of one answer, stay together)"
        )
    return start, end


def _splits_summary(view: ContextView, cut: int) -> bool:
    """Whether a cut would part the last boundary's record from what was restored with it."""
    return view.boundary is not None and any(view.positions.get(m.id) == cut for m in view.boundary.summary[1:])


def _position(view: ContextView, identity: str) -> int:
    exact = view.positions.get(MessageId(identity))
    if exact is not None:
        return exact
    found = [position for known, position in view.positions.items() if known.startswith(identity)] if identity else []
    if len(found) == 1:
        return found[0]
    what = "is no message of" if not found else "begins the ids of several messages in"
    raise CompactionRefused(
        f"{identity!r} {what} the view: `perdure compact SESSION --dry-run --json` lists them with ids"
    )


@dataclass(frozen=True, slots=True)
class PinBudget:
    """How many tokens the pins take, and how many they may."""

    used: int
    limit: int


def pin_budget(view: ContextView, facts: Facts) -> PinBudget:
    """The budget of pins in this window (PRS-2), and what of it is taken."""
    used = sum(base_tokens(pin.text) for pin in view.state.pins)
    return PinBudget(used, facts.limits.scaled(facts.settings.pins_tokens))


def pin_refusal(view: ContextView, text: str, facts: Facts) -> str | None:
    """Why a text can't be pinned; None when it can."""
    if not text.strip():
        return "there is nothing to pin: the text is empty"
    if not text.isascii() and text != text.encode("utf-8", "replace").decode("utf-8"):
        return "the text isn't valid Unicode, so it can't be kept byte for byte"
    if any(pin.text == text for pin in view.state.pins):
        return "this text is pinned already"
    budget, needed = pin_budget(view, facts), base_tokens(text)
    if budget.used + needed <= budget.limit:
        return None
    return (
        f"the pin takes {needed:,} tokens, and {budget.used:,} of the {budget.limit:,} for pins are taken: "
        "shorten it, remove another, or raise pins_tokens"
    )


def summary_texts(view: ContextView) -> list[str]:
    """The texts of all summaries in the view."""
    blocks = [block for item in view.items if item.message.origin == "summary" for block in item.visible]
    return [block.value.text for block in blocks if isinstance(block.value, Text)]


def missing_pins(view: ContextView) -> tuple[Pinned, ...]:
    """Pins that no summary holds word for word, behind a boundary; those set since it are in none yet."""
    if view.boundary is None:
        return ()
    texts = summary_texts(view)
    return tuple(pin for pin in view.state.pins if not any(pin.text in text for text in texts))


Trigger = Literal["auto", "manual", "reactive", "model"]
StrategyName = Literal["session_memory", "full", "ledger", "supplied"]
_BROUGHT = ("summary", "restored")
WHERE_TO_LOOK = (
    "What a preview, a cleared result or this record names can be had again with the recall tool, by its id."
)
BY_HAND = (
    "There is no tool to recall it with: what a preview, a cleared result or this record names, a person gets by its "
    "id with `perdure recall`."
)
_LEAST_TEXT_TOKENS = 500  # less than that isn't worth a heading


class LeavingHistory(NamedTuple):
    """What is known of what leaves, the ledger for the checkpoint, and where what leaves starts."""

    memory: LedgerMemory
    ledger: PackedLedger
    start: int
    latest: tuple[SpokenText, ...] | None = None


@dataclass(frozen=True, slots=True)
class Boundary:
    """A boundary, and the view that it makes: what its test looks at, before anything is committed."""

    boundary: Compacted
    view: ContextView


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """What a strategy proposes: a record of everything before `keep_from`, and where the kept messages start.

    With a `start`, the messages before it are kept as well, and the record is of those between (CMP-6). `ledger` is
    everything known up to `keep_from`, or up to where the last checkpoint had read.
    `promised` are words of the user that the record holds, byte for byte; `prompts` made it.
    """

    strategy: StrategyName
    record: str
    how: str
    keep_from: int
    ledger: PackedLedger
    promised: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    latest: tuple[SpokenText, ...] | None = None  # the latest words of a person; None: they are looked up in the ledger
    cursor: Cursor | None = None  # of the notes that the record is made of
    start: int = 0


def ledger_memory(view: ContextView, facts: Facts, keep_from: int) -> LedgerMemory:
    """What the ledger knows of everything that left so far and would leave now: from what was said, no summary."""
    first = first_said(view)
    return index_of(view, facts.settings).memory(PackedLedger.of(view.state), first, max(first, keep_from))


def leaving_history(view: ContextView, facts: Facts, keep_from: int) -> LeavingHistory:
    """What the ledger knows of what leaves now: of all that left so far, or of a part only (CMP-6).

    A part that holds an earlier summary has that summary's messages no more, so what is known of everything stands in.
    """
    if facts.span is None:
        whole = ledger_memory(view, facts, keep_from)
        return LeavingHistory(whole, pack_ledger(whole), 0, tuple(whole.words[-1:]))
    start, end = facts.span
    ledger = PackedLedger.of(view.state) if end <= first_said(view) else pack_ledger(ledger_memory(view, facts, end))
    if any(item.message.origin == "summary" for item in view.items[start:end]):
        return LeavingHistory(ledger_memory(view, facts, end), ledger, start)
    return LeavingHistory(index_of(view, facts.settings).memory(PackedLedger(), start, end), ledger, start)


def kept_items(view: ContextView, start: int, keep_from: int) -> list[ViewItem]:
    """The items that stay as they are: those before the part that leaves, and those behind it."""
    return [*view.items[:start], *view.items[keep_from:]]


def make_boundary(
    view: ContextView,
    plan: CompactionPlan,
    facts: Facts,
    *,
    identity: str,
    trigger: Trigger,
    back: RestoredMessages = NOTHING_BACK,
) -> Boundary:
    """The boundary that a plan makes, with what comes back and the checkpoint of the fold (CMP-14)."""
    kept = kept_items(view, plan.start, plan.keep_from)
    text = _summary_text(view, plan, kept, WHERE_TO_LOOK if facts.settings.recall_tool else BY_HAND)
    summary = Message(
        id=MessageId(f"summary-{identity}"),
        role="user",
        content=content_of([text_block(text)]),
        origin="summary",
        at=facts.now,
    )
    names = (_frame(plan), *plan.prompts, *back.prompts)
    first = first_said(view)
    boundary = Compacted(
        id=identity,
        trigger=trigger,
        strategy=plan.strategy,
        summary=(summary, *back.messages),
        kept=tuple(item.message.id for item in kept),
        in_front=plan.start,
        read=plan.start + max(0, first - plan.keep_from),
        carried=_carried(view, kept),
        changes=_changes(view, plan, facts),
        collapses=tuple(c for c in view.collapses.values() if not _leaves(plan, view.positions[c.first])),
        marks=_marks(view, plan),
        state=to_checkpoint(_state_after(view, plan, facts, back, trigger)),
        at=facts.now,
        tokens_before=facts.size(view),
        summary_tokens=text_size(text).base,
        kept_tokens=sum(item.size.base for item in kept if not item.is_hidden),
        prompts={name: prompts.version(name) for name in names},
        restored=back.rows,
        trust=least_trust(view, plan.keep_from).name.lower(),
    )
    after = view_behind(view, boundary)
    return Boundary(msgspec.structs.replace(boundary, tokens_after=size_tokens(after, facts.settings)), after)


def _leaves(plan: CompactionPlan, position: int) -> bool:
    return plan.start <= position < plan.keep_from


def _carried(view: ContextView, kept: Sequence[ViewItem]) -> tuple[Message, ...]:
    """The kept messages that an earlier boundary brought, and no line of the journal holds."""
    if view.boundary is None or not kept:
        return ()
    brought = {message.id for message in (*view.boundary.summary, *view.boundary.carried)}
    return tuple(item.message for item in kept if item.message.id in brought)


def _marks(view: ContextView, plan: CompactionPlan) -> ResultMarks:
    results = [r.id for r in view.results.values() if not _leaves(plan, r.position)]
    return ResultMarks(
        offloaded=tuple(i for i in results if i in view.frozen),
        cleared=tuple(i for i in results if i in view.cleared),
        snipped=tuple(i for i in results if i in view.snipped),
        settled=tuple(sorted(i for i in view.settled if not _leaves(plan, view.calls[i].position))),
        sent=min(view.sent, plan.start) + max(0, view.sent - plan.keep_from),
    )


def _frame(plan: CompactionPlan) -> str:
    """The prompt that tells what the record is."""
    return "continuation_part" if plan.start else "continuation"


def _summary_text(view: ContextView, plan: CompactionPlan, kept: Sequence[ViewItem], where: str) -> str:
    record = _with_pins(view, without_tags(plan.record), kept)  # SEC-4; pins stay as they are (REL-14)
    text = prompts.render(_frame(plan), how=plan.how, where=where, record=record)
    return text.encode("utf-8", "replace").decode("utf-8")  # a model can write half a surrogate pair; JSON can't


def without_secrets(view: ContextView, plan: CompactionPlan, facts: Facts) -> tuple[CompactionPlan, tuple[str, ...]]:
    """The plan as it may be written: with the latest request in it, and no secrets; and their families (SEC-5).

    Nor has it special tokens, where the model's server may read them out of it (SEC-11). Pins stay as they are: they
    are the user's word on what stands there, byte for byte.
    """
    done = redact_record(_with_request(view, plan), plan.promised, facts.secret_key)
    text, promised = done.text, done.promised
    if facts.model.reads_tokens:
        text, promised = without_tokens(text), tuple(map(without_tokens, promised))
    return replace(plan, record=text, promised=promised), done.families


def _with_request(view: ContextView, plan: CompactionPlan) -> str:
    """The latest request goes in whole, by code, when its message isn't kept: it decides what to do now."""
    latest = plan.ledger.spoken[-1:] if plan.latest is None else plan.latest
    is_kept = any(spoken(item.message) for item in view.items[plan.keep_from :])
    if is_kept or not latest or indented(latest[0].text) in plan.record:
        return plan.record
    if view.positions.get(MessageId(latest[0].id), plan.start) < plan.start:
        return plan.record  # it stands before the part that leaves
    return f"## The latest request of the user, word for word\n{quoted(latest[0].text)}\n\n{plan.record}"


def _with_pins(view: ContextView, record: str, kept: Sequence[ViewItem]) -> str:
    """Pins go in verbatim, by code, whatever the record says; unless an earlier summary that stays has them."""
    if not view.state.pins:
        return record
    told = [block_text(b) for item in kept if item.message.origin == "summary" for b in item.visible]
    pins = "\n".join(pin.text for pin in view.state.pins if not any(pin.text in text for text in told))
    return f"## Pinned by the user, word for word\n{fenced(pins)}\n\n{record}" if pins else record


def _kept_loop(view: ContextView, facts: Facts) -> int:
    """From where thinking stays: an open tool loop needs it back, unless it is bound to what goes (TURN-7)."""
    if facts.model.thinking_is_bound and facts.settings.thinking == "drop":
        return len(view.items)
    loop = open_loop(view)
    return len(view.items) if loop is None else loop


def _changes(view: ContextView, plan: CompactionPlan, facts: Facts) -> tuple[BlockChange, ...]:
    """How the kept messages show. Before the part that leaves nothing moves, so that their thinking holds."""
    loop = _kept_loop(view, facts)
    positions = (*range(plan.start), *range(plan.keep_from, len(view.items)))
    return tuple(change for p in positions for change in _frozen(view, p, drops_thinking=plan.keep_from <= p < loop))


def _frozen(view: ContextView, position: int, *, drops_thinking: bool) -> list[BlockChange]:
    """The changes that show a kept message as it is shown now, its thinking gone where another prefix voids it."""
    item = view.items[position]
    changes = []
    for index, (said, shown) in enumerate(zip(item.message.blocks, item.shown, strict=True)):
        if shown is None or (drops_thinking and shown.type in THINKING):
            changes.append(BlockChange(message=item.message.id, block=index))
        elif shown is not said:
            changes.append(BlockChange(message=item.message.id, block=index, to=msgspec.Raw(shown.raw)))
    return changes


def _state_after(
    view: ContextView, plan: CompactionPlan, facts: Facts, back: RestoredMessages, trigger: Trigger
) -> SessionState:
    """The state behind the boundary: the breaker closes, unless the window refilled too soon again (PRS-5, PRS-6)."""
    state = view.state
    soon = state.breaker.boundaries > 0 and state.breaker.responses_since_boundary <= facts.settings.thrash_turns
    breaker = msgspec.structs.replace(
        state.breaker,
        failures=0,
        refills=state.breaker.refills + 1 if soon and trigger in ("auto", "reactive") else 0,
        responses_since_boundary=0,
        boundaries=state.breaker.boundaries + 1,
        waits=False,
    )
    in_play = state.in_play if back.in_play is None else back.in_play.encoded()
    if plan.cursor is not None:
        state = state.after(plan.cursor)
    return msgspec.structs.replace(
        state, breaker=breaker, ledger=plan.ledger.encoded(), in_play=in_play, held=None, requested=None
    )


def ledger_plan(view: ContextView, facts: Facts, keep_from: int, *, has_text: bool = True) -> CompactionPlan:
    """The plan that needs no model (CMP-5). What stands in the kept messages isn't said again.

    Where the kept messages are fewer than a raw tail holds at least, the record ends in text of those before them;
    without `has_text`, and none kept, in a tenth of its budget.
    """
    left = leaving_history(view, facts, keep_from)
    kept = kept_items(view, left.start, keep_from)
    tail = tail_of(view, facts, keep_from) if has_text else NO_TAIL
    around = RecordSurroundings(
        lead="",
        behind="\n".join((tail.text, *(block_text(block) for item in kept for block in item.visible))),
        known=frozenset(item.message.id for item in kept) | tail.whole,
        messages=() if kept or tail.text else _messages_of_part(view, left.start, keep_from),
    )
    record = with_tail(render(left.memory, summary_budget(facts), around).text, tail)
    how = "without a model, from what was said and done"
    return CompactionPlan("ledger", record, how, keep_from, left.ledger, start=left.start, latest=left.latest)


def tail_of(view: ContextView, facts: Facts, keep_from: int) -> RawTail:
    """The latest messages that aren't kept, as text: as much as the kept ones lack of a raw tail (QLT-2).

    One long loop, or one answer's results, can be larger than all that may be kept; then few messages are kept, or
    none. As text they may be cut anywhere. Of a part that somebody chose, nothing is (CMP-6).
    """
    missing = tail_tokens(view, facts) - tokens_from(view, keep_from)
    if facts.span is not None or missing < facts.limits.scaled(_LEAST_TEXT_TOKENS):
        return NO_TAIL
    return raw_tail(_messages_of_part(view, 0, keep_from), missing * UNITS_PER_TOKEN)


def with_tail(record: str, tail: RawTail) -> str:
    """A record with text of the latest messages that aren't kept at its end."""
    return f"{record}\n\n## {TAIL_HEADING}\n{tail.text}".strip() if tail.text else record


def _messages_of_part(view: ContextView, start: int, end: int) -> list[Message]:
    """The messages of a part, without what a boundary brought."""
    return [item.message for item in view.items[start:end] if item.message.origin not in _BROUGHT]


def refusal(view: ContextView, made: Boundary, facts: Facts, promised: tuple[str, ...] = ()) -> str | None:
    """Why a boundary must not be committed; None when it may (CMP-9).

    Strictly smaller (automatic: by at least 10 %), under the trigger, the laws of the view hold, and each pin and each
    promised word is in place.
    """
    boundary, new = made.boundary, made.view
    after, before = boundary.tokens_after, boundary.tokens_before
    least = facts.settings.min_reduction_percent if boundary.trigger != "manual" else 0
    if after >= before or (before - after) * 100 < before * least:
        return f"too_little: {before:,} to {after:,} tokens"
    if after >= facts.limits.trigger:
        return f"over_trigger: {after:,} tokens, trigger {facts.limits.trigger:,}"
    if (broken := broken_law(view, new, boundary)) is not None:
        return f"law: {broken}"
    if missing_pins(new):
        return "pins: a pinned text is missing"
    texts = summary_texts(new)
    if any(all(without_tags(words) not in text for text in texts) for words in promised):
        return "words: what the user said is not there word for word"
    return None


def broken_law(view: ContextView, new: ContextView, boundary: Compacted) -> str | None:
    """Which law of the view a boundary breaks: order, kept bytes, pairs; None when all hold."""
    front = boundary.kept[: boundary.in_front]
    if tuple(item.message.id for item in new.items) != boundary.order:
        return "a kept message is missing or out of its place"
    if front and [item.message.id for item in view.items[: len(front)]] != [*front]:
        return "what stays in front isn't the beginning"
    for number, identity in enumerate(boundary.kept):
        old, now = view.items[view.positions[identity]], new.items[new.positions[identity]]
        if old.is_hidden != now.is_hidden or any(
            (then.raw if then else None) != (shown.raw if shown else None)
            for then, shown in zip(old.shown, now.shown, strict=True)
            if then is not shown
            and not (shown is None and number >= boundary.in_front and (then is not None and then.type in THINKING))
        ):
            return "a kept message doesn't show as it did"
    return _broken_pair(view, new)


def _broken_pair(view: ContextView, new: ContextView) -> str | None:
    """Every call keeps its result, and every result its call."""
    for identity, call in new.calls.items():
        if (identity in view.results) != (identity in new.results) and call is not None:
            return "a call is parted from its result"
        if (identity in view.open_calls) != (identity in new.open_calls):
            return "a call is open that wasn't, or the other way round"
    for identity, result in view.results.items():
        message = view.items[result.position].message.id
        if message in new.positions and identity not in new.results:
            return "a result is parted from its call"
    return None


def is_too_early(view: ContextView, facts: Facts) -> bool:
    """Whether so much room is left that a compaction now would lose more than it gains."""
    return facts.size(view) * 100 < facts.limits.trigger * facts.settings.request_floor_percent


def is_due(view: ContextView, facts: Facts) -> bool:
    """Whether an accepted request can be done now: not in a tool loop whose thinking the API wants back (TURN-7)."""
    wanted = view.state.requested
    if wanted is None or not wanted.is_accepted or not facts.settings.compact or facts.source in HELPER_SOURCES:
        return False
    loop = open_loop(view)
    return loop is None or not any(block.type in THINKING for item in view.items[loop:] for block in item.visible)
