"""Compaction as a decision: from a view and a record of what leaves it to a boundary, and the test it must pass.

Pure. The transaction around it (lease, strategies, commit) is the engine's (CMP-8).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from holdfast import prompts
from holdfast.context.anchor import size_tokens
from holdfast.context.cuts import THINKING, open_loop
from holdfast.context.indexing import index_of
from holdfast.context.items import item_has_results
from holdfast.context.keep import first_said, summary_budget
from holdfast.context.ledger.checkpoint import Ledger, packed
from holdfast.context.ledger.compacted import Around, render
from holdfast.context.ledger.extract import block_text
from holdfast.context.ledger.memory import Memory
from holdfast.context.pins import missing_pins, summary_texts
from holdfast.context.policy import Facts
from holdfast.context.restore.play import NOTHING_BACK, Back
from holdfast.context.state import State, to_checkpoint
from holdfast.context.view import View, project
from holdfast.memory.trust.redaction import redact_record
from holdfast.transcript.blocks import text_block
from holdfast.transcript.edits import Change, Compacted, Marks
from holdfast.transcript.messages import Message, MessageId, content_of
from holdfast.transcript.records import Cursor
from holdfast.transcript.sizes import text_size

Trigger = Literal["auto", "manual", "reactive", "model"]
Strategy = Literal["session_memory", "full", "ledger", "supplied"]
WHERE_TO_LOOK = (
    "What a preview, a cleared result or this record names can be had again with the recall tool, by its id."
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a strategy proposes: a record of everything before `keep_from`, and where the kept messages start.

    `promised` are words of the user that the record holds, byte for byte; `prompts` made it.
    """

    strategy: Strategy
    record: str
    how: str
    keep_from: int
    ledger: Ledger
    promised: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    cursor: Cursor | None = None  # of the notes that the record is made of


def gathered(view: View, facts: Facts, keep_from: int) -> Memory:
    """What the ledger knows of everything that left so far and would leave now: from what was said, no summary."""
    return index_of(view, facts.settings).memory(view.state.ledger, first_said(view), keep_from)


def boundary_of(
    view: View, plan: Plan, facts: Facts, *, identity: str, trigger: Trigger, back: Back = NOTHING_BACK
) -> Compacted:
    """The boundary record that a plan makes, with what comes back and the checkpoint of the fold (CMP-14)."""
    kept = view.items[plan.keep_from :]
    record = _with_pins(view, plan.record)
    text = prompts.render("continuation", how=plan.how, where=WHERE_TO_LOOK, record=record)
    text = text.encode("utf-8", "replace").decode("utf-8")  # a model can write half a surrogate pair; JSON can't
    summary = Message(
        id=MessageId(f"summary-{identity}"),
        role="user",
        content=content_of([text_block(text)]),
        origin="summary",
        at=facts.now,
    )
    ids = {item.message.id for item in kept}
    results = [r.id for r in view.results.values() if view.items[r.position].message.id in ids]
    loop = _kept_loop(view, facts)
    changes = tuple(
        change
        for position in range(plan.keep_from, len(view.items))
        for change in _frozen(view, position, drops_thinking=position < loop)
    )
    boundary = Compacted(
        id=identity,
        trigger=trigger,
        strategy=plan.strategy,
        summary=(summary, *back.messages),
        kept=tuple(item.message.id for item in kept),
        changes=changes,
        collapses=tuple(c for c in view.collapses.values() if c.first in ids),
        marks=Marks(
            offloaded=tuple(i for i in results if i in view.frozen),
            cleared=tuple(i for i in results if i in view.cleared),
            snipped=tuple(i for i in results if i in view.snipped),
            settled=tuple(sorted(i for i in view.settled if view.items[view.calls[i].position].message.id in ids)),
            sent=max(0, view.sent - plan.keep_from),
        ),
        state=to_checkpoint(_state_after(view, plan, facts, back)),
        at=facts.now,
        tokens_before=facts.size(view),
        summary_tokens=text_size(text).base,
        kept_tokens=sum(item.size.base for item in kept if not item.is_hidden),
        prompts={name: prompts.version(name) for name in ("continuation", *plan.prompts, *back.prompts)},
        restored=back.rows,
    )
    after = size_tokens(project([boundary], onto=view), facts.settings)
    return msgspec.structs.replace(boundary, tokens_after=after)


def without_secrets(view: View, plan: Plan, facts: Facts) -> tuple[Plan, tuple[str, ...]]:
    """The plan as it may be written: with the latest request in it, and no secrets; and their families (SEC-5).

    Pins stay as they are: they are the user's word on what stands there, byte for byte.
    """
    done = redact_record(_with_request(view, plan), plan.promised, facts.secret_key)
    return replace(plan, record=done.text, promised=done.promised), done.families


def _with_request(view: View, plan: Plan) -> str:
    """The latest request goes in whole, by code, when its message isn't kept: it decides what to do now."""
    words = plan.ledger.words[-1:]
    is_kept = any(item.message.origin == "user" and not item_has_results(item) for item in view.items[plan.keep_from :])
    if is_kept or not words or words[0] in plan.record:
        return plan.record
    return f"## The latest request of the user, word for word\n{words[0]}\n\n{plan.record}"


def _with_pins(view: View, record: str) -> str:
    """Pins go in verbatim, by code, whatever the record says."""
    if not view.state.pins:
        return record
    pins = "\n".join(pin.text for pin in view.state.pins)
    return f"## Pinned by the user, word for word\n{pins}\n\n{record}"


def _kept_loop(view: View, facts: Facts) -> int:
    """From where thinking stays: an open tool loop needs it back, unless it is bound to what goes (TURN-7)."""
    if facts.model.thinking_is_bound and facts.settings.thinking == "drop":
        return len(view.items)
    loop = open_loop(view)
    return len(view.items) if loop is None else loop


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


def _state_after(view: View, plan: Plan, facts: Facts, back: Back) -> State:
    """The state behind the boundary: the breaker closes, unless the window refilled too soon again (PRS-5, PRS-6)."""
    state = view.state
    soon = state.breaker.boundaries > 0 and state.breaker.responses_since_boundary <= facts.settings.thrash_turns
    breaker = msgspec.structs.replace(
        state.breaker,
        failures=0,
        refills=state.breaker.refills + 1 if soon else 0,
        responses_since_boundary=0,
        boundaries=state.breaker.boundaries + 1,
        waits=False,
    )
    in_play = state.in_play if back.in_play is None else back.in_play
    if plan.cursor is not None:
        state = state.after(plan.cursor)
    return msgspec.structs.replace(state, breaker=breaker, ledger=plan.ledger, in_play=in_play)


def refusal(view: View, boundary: Compacted, facts: Facts, promised: tuple[str, ...] = ()) -> str | None:
    """Why a boundary must not be committed; None when it may (CMP-9).

    Strictly smaller (automatic: by at least 10 %), under the trigger, and with each pin, kept message and promised word
    in place.
    """
    after = boundary.tokens_after
    before = facts.size(view)
    least = facts.settings.min_reduction_percent if boundary.trigger != "manual" else 0
    if after >= before or (before - after) * 100 < before * least:
        return f"too_little: {before:,} to {after:,} tokens"
    if after >= facts.limits.trigger:
        return f"over_trigger: {after:,} tokens, trigger {facts.limits.trigger:,}"
    new = project([boundary], onto=view)
    if len(new.items) != len(boundary.summary) + len(boundary.kept):
        return "law: a kept message is missing"
    if missing_pins(new):
        return "pins: a pinned text is missing"
    if any(words not in text for words in promised for text in summary_texts(new)[:1]):
        return "words: what the user said is not there word for word"
    return None


def ledger_plan(view: View, facts: Facts, keep_from: int) -> Plan:
    """The plan that needs no model (CMP-5). What stands in the kept messages isn't said again."""
    memory = gathered(view, facts, keep_from)
    kept = view.items[keep_from:]
    left = [item.message for item in view.items[first_said(view) : keep_from]]
    around = Around(
        lead="",
        behind="\n".join(block_text(block) for item in kept for block in item.visible),
        known=frozenset(item.message.id for item in kept),
        messages=() if kept else left,
    )
    record = render(memory, summary_budget(facts), around).text
    return Plan("ledger", record, "without a model, from what was said and done", keep_from, packed(memory))
