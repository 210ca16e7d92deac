"""Compaction as a transaction (CMP-8): lease, strategies, restore, verify, commit as one record.

A crash or an error at any point leaves the old view or the new one, whole: until the boundary is in the journal nothing
has changed. An outcome is a value, not an exception.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial

from holdfast.context.acceptance import refusal
from holdfast.context.compaction import Made, Plan, Trigger, made, without_secrets
from holdfast.context.economics import move_price
from holdfast.context.instructions import wishes
from holdfast.context.parts import Part, span_of
from holdfast.context.policy import Facts
from holdfast.context.view import View
from holdfast.engine.aside import aside_of
from holdfast.engine.hooks import after, before
from holdfast.engine.restoring import with_restored
from holdfast.engine.session import LiveSession
from holdfast.engine.strategies import AHEAD, focused, proposed, supplied
from holdfast.errors import CompactionRefused
from holdfast.events import (
    BoundaryListenerFailed,
    CompactionAttemptFailed,
    CompactionBlocked,
    CompactionDone,
    HeldSummaryUsed,
    PrefixMoved,
    SecretsRedacted,
)
from holdfast.transcript.edits import Compacted
from holdfast.transcript.records import CompactionFailed

_LOOKS = 3  # at a session that changes while it is looked at


@dataclass(frozen=True, slots=True)
class Done:
    """The view is now the boundary's."""

    boundary: Compacted


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing changed; `reason` starts with a reason code."""

    reason: str


@dataclass(frozen=True, slots=True)
class Blocked(Failed):
    """A hook didn't want it. That is no failure of compaction, so the breaker doesn't count it (CMP-10)."""


Outcome = Done | Failed


@dataclass(frozen=True, slots=True)
class Proposal:
    """A boundary that passed its test, and the plan behind it; nothing is committed (CMP-11)."""

    plan: Plan
    boundary: Compacted
    strategy: str  # whose plan it is; "precomputed" for one that a model wrote ahead of time


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is asked of a compaction. `record` is a text to commit instead of what a strategy would write.

    `focus` is what a person wants the record to look at; `part` is what to summarise, when not all that isn't recent.
    """

    trigger: Trigger
    source: str = "user"
    record: str | None = None
    focus: str = ""
    part: Part | None = None
    instructions: str | None = None  # for a model; None: the focus


async def compact(
    session: LiveSession,
    *,
    trigger: Trigger,
    source: str = "user",
    record: str | None = None,
    focus: str = "",
    part: Part | None = None,
) -> Outcome:
    """Replace old history, or a `part` of the view, by a record of it (CMP-6, CMP-8).

    `record` is a text to commit instead of what a strategy would write; it has to pass the same test. Raises
    `CompactionRefused` when compaction is off or already runs, or when nothing of the part can leave.
    """
    if not session.settings.compact:
        raise CompactionRefused(
            "compaction is switched off (DISABLE_COMPACT or the setting compact); switch it on first"
        )
    wish = Wish(trigger=trigger, source=source, record=record, focus=focus, part=part)
    with session.compacting():
        found = await _hooked(session, wish)
        if isinstance(found, Proposal):
            done = await _committed(session, found)
            await after(session, found.boundary)
            return done
        if isinstance(found, Blocked):
            return found
        await session.record(CompactionFailed(trigger=trigger, reason=found.reason))
        return found


async def compact_reactively(session: LiveSession, source: str = "user") -> str | None:
    """Compact because a model refused a request as too long. Returns why that changed nothing (TURN-11)."""
    try:
        outcome = await compact(session, trigger="reactive", source=source)
    except CompactionRefused as e:
        return str(e)
    return outcome.reason if isinstance(outcome, Failed) else None


async def _hooked(session: LiveSession, wish: Wish) -> Proposal | Failed:
    """The proposal that the hooks agree with. One that they supply and that fails the test isn't the last word."""
    hooked = await before(session, wish.trigger, wish.focus)
    if hooked.blocked is not None:
        session.world.sink.emit(CompactionBlocked(wish.trigger, hooked.blocked.split(":")[0]))
        return Blocked(f"blocked: {hooked.blocked}")
    if wish.record is None and hooked.summary is not None:
        found = await proposal(session, replace(wish, record=hooked.summary))
        if isinstance(found, Proposal):
            return found
    return await proposal(session, replace(wish, instructions=hooked.instructions))


async def proposal(session: LiveSession, wish: Wish) -> Proposal | Failed:
    """What `compact` would commit now. Changes nothing."""
    view, emit = session.view, session.world.sink.emit
    asked = wish.focus if wish.instructions is None else wish.instructions
    wanted = "\n\n".join(part for part in (wishes(view), asked) if part)
    span = span_of(view, wish.part) if wish.part is not None else None
    facts = replace(session.facts(wish.source), instructions=wanted, span=span)
    reason = ""  # the last one that was given: that of the strategy that needs nobody
    plans = proposed(session, facts) if wish.record is None else supplied(session, facts, wish.record)
    async with aclosing(plans) as proposals:
        async for name, plan in proposals:
            found = await _found(session, wish, facts, plan) if isinstance(plan, Plan) else plan
            if not isinstance(found, str):
                return Proposal(*found, name)
            reason = found
            emit(CompactionAttemptFailed(wish.trigger, name, reason))
    return Failed(reason)


async def _found(session: LiveSession, wish: Wish, facts: Facts, plan: Plan) -> tuple[Plan, Compacted] | str:
    """The boundary of a plan, with what comes back; or why it must not be committed.

    The work is done aside, so the session may have been changed meanwhile; then it is done again (CMP-8).
    """
    for _ in range(_LOOKS):
        seen = session.changes
        judge = partial(_judged, plan, facts, wish, session.world.ids.new("boundary"))
        clean, families, bare, why = await aside_of(session.view, judge)
        if families:
            session.world.sink.emit(SecretsRedacted("summary", tuple(sorted(set(families))), len(families)))
        if why is not None:
            return why
        boundary = await with_restored(session, clean, facts, bare)
        if session.changes == seen:
            return clean, boundary
    return "changed: the session was changed again and again while its record was made"


def _judged(
    plan: Plan, facts: Facts, wish: Wish, identity: str, view: View
) -> tuple[Plan, tuple[str, ...], Made, str | None]:
    """The plan as it may be written, the families of secrets that were in it, its boundary, and why it may not be."""
    has_text = bool(plan.record.strip())
    plan = focused(plan, wish.focus, "model" if wish.trigger == "model" else "user")
    plan, families = without_secrets(view, plan, facts)
    bare = made(view, plan, facts, identity=identity, trigger=wish.trigger)
    why = refusal(view, bare, facts, plan.promised) if has_text else "empty: the record holds no text"
    return plan, families, bare, why


async def _committed(session: LiveSession, found: Proposal) -> Done:
    boundary, emit, held = found.boundary, session.world.sink.emit, session.view.state.held
    rewritten = _rewritten_tokens(session.view, boundary)
    boundary = await session.commit_boundary(boundary)
    emit(_done(boundary))
    if held is not None and found.strategy == AHEAD.name:
        emit(HeldSummaryUsed(held.model))
    price = move_price(rewritten, session.model, session.facts().cache_ttl(session.view))
    emit(PrefixMoved("compacted", boundary.in_front, rewritten, price))
    for tell in session.services.on_boundary:
        try:
            tell(boundary)
        except Exception as e:  # a named boundary: whoever forgets what was loaded must not fail the compaction
            emit(BoundaryListenerFailed(type(e).__name__))
    return Done(boundary)


def _rewritten_tokens(view: View, boundary: Compacted) -> int:
    """The tokens that are written to the cache again: all, but what stays in front."""
    items = view.items[: boundary.in_front]
    front = sum(item.size.live for item in items if not item.is_hidden) if items else 0
    stays = view.front_size.live + front if items else 0
    return max(0, boundary.tokens_after - round(stays * view.state.calibration.ratio))


def _done(boundary: Compacted) -> CompactionDone:
    return CompactionDone(
        boundary.trigger,
        boundary.strategy,
        boundary.tokens_before,
        boundary.tokens_after,
        boundary.summary_tokens,
        boundary.kept_tokens,
    )
