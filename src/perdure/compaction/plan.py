"""A compaction as a decision: what stays verbatim, what leaves, pins, and the test that a boundary must pass (CMP-2,
CMP-6, CMP-9).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from perdure.compaction.ledger.memory import LedgerMemory, PackedLedger, SpokenText, pack_ledger
from perdure.compaction.ledger.reader import block_text, index_of
from perdure.compaction.ledger.render import NO_TAIL, TAIL_HEADING, RawTail, RecordSurroundings, raw_tail, render
from perdure.context.cuts import legal_cuts, open_loop
from perdure.context.policy import HELPER_SOURCES, Facts
from perdure.context.view import THINKING, ContextView, ViewItem, tokens_from
from perdure.errors import CompactionRefused
from perdure.transcript.blocks import Text
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.records import Cursor, Pinned
from perdure.transcript.tokens import UNITS_PER_TOKEN, base_tokens


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
    whole are preferred. Behind the last boundary's summary only, and never so that nothing would leave: a loop that
    has gone on since then is entered.
    """
    limits, settings = facts.limits, facts.settings
    least = limits.scaled(settings.keep_min_tokens)
    most = min(limits.scaled(settings.keep_max_tokens), max(least, _room(view, facts)))
    start = first_said(view)
    bounds = _KeepBounds(least, most, settings.keep_min_texts, after)
    for loops in (True, False):
        cuts = [c for c in legal_cuts(view, loops=loops) if c >= start and can_leave(view, c)]
        cut = _choose(view, cuts, bounds)
        if cut is not None:
            return cut
    return len(view.items)


def _room(view: ContextView, facts: Facts) -> int:
    """Tokens that kept messages may take so that no more than half is filled afterwards (PRS-2, TURN-17)."""
    calibration = view.state.calibration
    overhead = view.front_size.live if calibration.overhead_tokens is None else calibration.overhead_tokens
    return round((facts.half_tokens(view) - overhead) / calibration.ratio) - summary_budget(facts)


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
_LEAST_TEXT_TOKENS = 500  # less than that isn't worth a heading


class LeavingHistory(NamedTuple):
    """What is known of what leaves, the ledger for the checkpoint, and where what leaves starts."""

    memory: LedgerMemory
    ledger: PackedLedger
    start: int
    latest: tuple[SpokenText, ...] | None = None


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
    index = index_of(view, facts.settings, facts.secret_key)
    return PackedLedger.of(view.state).memory(index.extracts(first, max(first, keep_from)))


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
    index = index_of(view, facts.settings, facts.secret_key)
    return LeavingHistory(PackedLedger().memory(index.extracts(start, end)), ledger, start)


def kept_items(view: ContextView, start: int, keep_from: int) -> list[ViewItem]:
    """The items that stay as they are: those before the part that leaves, and those behind it."""
    return [*view.items[:start], *view.items[keep_from:]]


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
