"""Compaction as a decision: from a view and a record of what leaves it to a boundary, and the test it must pass.

Pure. The transaction around it (lease, strategies, commit) is the engine's (CMP-8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import msgspec

from holdfast import prompts
from holdfast.context.anchor import size_tokens
from holdfast.context.cuts import open_loop
from holdfast.context.indexing import index_of
from holdfast.context.items import THINKING, Item
from holdfast.context.keep import first_said, summary_budget, tail_tokens, tokens_from
from holdfast.context.ledger.checkpoint import Ledger, packed
from holdfast.context.ledger.compacted import TAIL_HEADING, Around, render
from holdfast.context.ledger.extract import block_text
from holdfast.context.ledger.memory import Memory, Spoken
from holdfast.context.ledger.tail import NO_TAIL, Tail, raw_tail
from holdfast.context.policy import Facts
from holdfast.context.quoting import fenced, indented, quoted
from holdfast.context.reminders import without_tags, without_tokens
from holdfast.context.restore.play import NOTHING_BACK, Back
from holdfast.context.state import State, to_checkpoint
from holdfast.context.trusted import least_trust
from holdfast.context.view import View, behind
from holdfast.memory.trust.redaction import redact_record
from holdfast.transcript.blocks import text_block
from holdfast.transcript.edits import Change, Compacted, Marks
from holdfast.transcript.messages import Message, MessageId, content_of
from holdfast.transcript.records import Cursor
from holdfast.transcript.sizes import text_size
from holdfast.transcript.spoken import spoken
from holdfast.transcript.tokens import UNITS_PER_TOKEN

Trigger = Literal["auto", "manual", "reactive", "model"]
Strategy = Literal["session_memory", "full", "ledger", "supplied"]
_BROUGHT = ("summary", "restored")
WHERE_TO_LOOK = (
    "What a preview, a cleared result or this record names can be had again with the recall tool, by its id."
)
BY_HAND = (
    "There is no tool to recall it with: what a preview, a cleared result or this record names, a person gets by its "
    "id with `holdfast recall`."
)
_LEAST_TEXT_TOKENS = 500  # less than that isn't worth a heading


class Left(NamedTuple):
    """What is known of what leaves, the ledger for the checkpoint, and where what leaves starts."""

    memory: Memory
    ledger: Ledger
    start: int
    latest: tuple[Spoken, ...] | None = None


@dataclass(frozen=True, slots=True)
class Made:
    """A boundary, and the view that it makes: what its test looks at, before anything is committed."""

    boundary: Compacted
    view: View


@dataclass(frozen=True, slots=True)
class Plan:
    """What a strategy proposes: a record of everything before `keep_from`, and where the kept messages start.

    With a `start`, the messages before it are kept as well, and the record is of those between (CMP-6). `ledger` is
    everything known up to `keep_from`, or up to where the last checkpoint had read.
    `promised` are words of the user that the record holds, byte for byte; `prompts` made it.
    """

    strategy: Strategy
    record: str
    how: str
    keep_from: int
    ledger: Ledger
    promised: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    latest: tuple[Spoken, ...] | None = None  # the latest words of a person; None: they are looked up in the ledger
    cursor: Cursor | None = None  # of the notes that the record is made of
    start: int = 0


def gathered(view: View, facts: Facts, keep_from: int) -> Memory:
    """What the ledger knows of everything that left so far and would leave now: from what was said, no summary."""
    first = first_said(view)
    return index_of(view, facts.settings).memory(Ledger.of(view.state), first, max(first, keep_from))


def left_of(view: View, facts: Facts, keep_from: int) -> Left:
    """What the ledger knows of what leaves now: of all that left so far, or of a part only (CMP-6).

    A part that holds an earlier summary has that summary's messages no more, so what is known of everything stands in.
    """
    if facts.span is None:
        whole = gathered(view, facts, keep_from)
        return Left(whole, packed(whole), 0, tuple(whole.words[-1:]))
    start, end = facts.span
    ledger = Ledger.of(view.state) if end <= first_said(view) else packed(gathered(view, facts, end))
    if any(item.message.origin == "summary" for item in view.items[start:end]):
        return Left(gathered(view, facts, end), ledger, start)
    return Left(index_of(view, facts.settings).memory(Ledger(), start, end), ledger, start)


def kept_items(view: View, start: int, keep_from: int) -> list[Item]:
    """The items that stay as they are: those before the part that leaves, and those behind it."""
    return [*view.items[:start], *view.items[keep_from:]]


def made(view: View, plan: Plan, facts: Facts, *, identity: str, trigger: Trigger, back: Back = NOTHING_BACK) -> Made:
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
    after = behind(view, boundary)
    return Made(msgspec.structs.replace(boundary, tokens_after=size_tokens(after, facts.settings)), after)


def _leaves(plan: Plan, position: int) -> bool:
    return plan.start <= position < plan.keep_from


def _carried(view: View, kept: Sequence[Item]) -> tuple[Message, ...]:
    """The kept messages that an earlier boundary brought, and no line of the journal holds."""
    if view.boundary is None or not kept:
        return ()
    brought = {message.id for message in (*view.boundary.summary, *view.boundary.carried)}
    return tuple(item.message for item in kept if item.message.id in brought)


def _marks(view: View, plan: Plan) -> Marks:
    results = [r.id for r in view.results.values() if not _leaves(plan, r.position)]
    return Marks(
        offloaded=tuple(i for i in results if i in view.frozen),
        cleared=tuple(i for i in results if i in view.cleared),
        snipped=tuple(i for i in results if i in view.snipped),
        settled=tuple(sorted(i for i in view.settled if not _leaves(plan, view.calls[i].position))),
        sent=min(view.sent, plan.start) + max(0, view.sent - plan.keep_from),
    )


def _frame(plan: Plan) -> str:
    """The prompt that tells what the record is."""
    return "continuation_part" if plan.start else "continuation"


def _summary_text(view: View, plan: Plan, kept: Sequence[Item], where: str) -> str:
    record = _with_pins(view, without_tags(plan.record), kept)  # SEC-4; pins stay as they are (REL-14)
    text = prompts.render(_frame(plan), how=plan.how, where=where, record=record)
    return text.encode("utf-8", "replace").decode("utf-8")  # a model can write half a surrogate pair; JSON can't


def without_secrets(view: View, plan: Plan, facts: Facts) -> tuple[Plan, tuple[str, ...]]:
    """The plan as it may be written: with the latest request in it, and no secrets; and their families (SEC-5).

    Nor has it special tokens, where the model's server may read them out of it (SEC-11). Pins stay as they are: they
    are the user's word on what stands there, byte for byte.
    """
    done = redact_record(_with_request(view, plan), plan.promised, facts.secret_key)
    text, promised = done.text, done.promised
    if facts.model.reads_tokens:
        text, promised = without_tokens(text), tuple(map(without_tokens, promised))
    return replace(plan, record=text, promised=promised), done.families


def _with_request(view: View, plan: Plan) -> str:
    """The latest request goes in whole, by code, when its message isn't kept: it decides what to do now."""
    latest = plan.ledger.spoken[-1:] if plan.latest is None else plan.latest
    is_kept = any(spoken(item.message) for item in view.items[plan.keep_from :])
    if is_kept or not latest or indented(latest[0].text) in plan.record:
        return plan.record
    if view.positions.get(MessageId(latest[0].id), plan.start) < plan.start:
        return plan.record  # it stands before the part that leaves
    return f"## The latest request of the user, word for word\n{quoted(latest[0].text)}\n\n{plan.record}"


def _with_pins(view: View, record: str, kept: Sequence[Item]) -> str:
    """Pins go in verbatim, by code, whatever the record says; unless an earlier summary that stays has them."""
    if not view.state.pins:
        return record
    told = [block_text(b) for item in kept if item.message.origin == "summary" for b in item.visible]
    pins = "\n".join(pin.text for pin in view.state.pins if not any(pin.text in text for text in told))
    return f"## Pinned by the user, word for word\n{fenced(pins)}\n\n{record}" if pins else record


def _kept_loop(view: View, facts: Facts) -> int:
    """From where thinking stays: an open tool loop needs it back, unless it is bound to what goes (TURN-7)."""
    if facts.model.thinking_is_bound and facts.settings.thinking == "drop":
        return len(view.items)
    loop = open_loop(view)
    return len(view.items) if loop is None else loop


def _changes(view: View, plan: Plan, facts: Facts) -> tuple[Change, ...]:
    """How the kept messages show. Before the part that leaves nothing moves, so that their thinking holds."""
    loop = _kept_loop(view, facts)
    positions = (*range(plan.start), *range(plan.keep_from, len(view.items)))
    return tuple(change for p in positions for change in _frozen(view, p, drops_thinking=plan.keep_from <= p < loop))


def _frozen(view: View, position: int, *, drops_thinking: bool) -> list[Change]:
    """The changes that show a kept message as it is shown now, its thinking gone where another prefix voids it."""
    item = view.items[position]
    changes = []
    for index, (said, shown) in enumerate(zip(item.message.blocks, item.shown, strict=True)):
        if shown is None or (drops_thinking and shown.kind in THINKING):
            changes.append(Change(message=item.message.id, block=index))
        elif shown is not said:
            changes.append(Change(message=item.message.id, block=index, to=msgspec.Raw(shown.raw)))
    return changes


def _state_after(view: View, plan: Plan, facts: Facts, back: Back, trigger: Trigger) -> State:
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


def ledger_plan(view: View, facts: Facts, keep_from: int, *, has_text: bool = True) -> Plan:
    """The plan that needs no model (CMP-5). What stands in the kept messages isn't said again.

    Where the kept messages are fewer than a raw tail holds at least, the record ends in text of those before them;
    without `has_text`, and none kept, in a tenth of its budget.
    """
    left = left_of(view, facts, keep_from)
    kept = kept_items(view, left.start, keep_from)
    tail = tail_of(view, facts, keep_from) if has_text else NO_TAIL
    around = Around(
        lead="",
        behind="\n".join((tail.text, *(block_text(block) for item in kept for block in item.visible))),
        known=frozenset(item.message.id for item in kept) | tail.whole,
        messages=() if kept or tail.text else _said(view, left.start, keep_from),
    )
    record = with_tail(render(left.memory, summary_budget(facts), around).text, tail)
    how = "without a model, from what was said and done"
    return Plan("ledger", record, how, keep_from, left.ledger, start=left.start, latest=left.latest)


def tail_of(view: View, facts: Facts, keep_from: int) -> Tail:
    """The latest messages that aren't kept, as text: as much as the kept ones lack of a raw tail (QLT-2).

    One long loop, or one answer's results, can be larger than all that may be kept; then few messages are kept, or
    none. As text they may be cut anywhere. Of a part that somebody chose, nothing is (CMP-6).
    """
    missing = tail_tokens(view, facts) - tokens_from(view, keep_from)
    if facts.span is not None or missing < facts.limits.scaled(_LEAST_TEXT_TOKENS):
        return NO_TAIL
    return raw_tail(_said(view, 0, keep_from), missing * UNITS_PER_TOKEN)


def with_tail(record: str, tail: Tail) -> str:
    """A record with text of the latest messages that aren't kept at its end."""
    return f"{record}\n\n## {TAIL_HEADING}\n{tail.text}".strip() if tail.text else record


def _said(view: View, start: int, end: int) -> list[Message]:
    """The messages of a part, without what a boundary brought."""
    return [item.message for item in view.items[start:end] if item.message.origin not in _BROUGHT]
