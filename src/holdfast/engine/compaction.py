"""Compaction as a transaction (CMP-8): lease, strategies, verify, commit as one record.

A crash or an error at any point leaves the old view or the new one, whole: until the boundary is in the journal nothing
has changed. An outcome is a value, not an exception.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.context.compaction import Plan, Trigger, boundary_of, ledger_plan, refusal
from holdfast.context.economics import move_price
from holdfast.context.cuts import legal_cuts
from holdfast.context.keep import keep_from
from holdfast.context.policy import Facts
from holdfast.engine.session import Session
from holdfast.errors import CompactionRefused
from holdfast.events import CompactionAttemptFailed, CompactionDone, PrefixMoved
from holdfast.transcript.edits import Compacted
from holdfast.transcript.records import CompactionFailed


@dataclass(frozen=True, slots=True)
class Done:
    """The view is now the boundary's."""

    boundary: Compacted


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing changed; `reason` starts with a reason code."""

    reason: str


Outcome = Done | Failed


async def compact(session: Session, *, trigger: Trigger, source: str = "user") -> Outcome:
    """Replace old history by a record of it. Raises `CompactionRefused` when compaction is off or already runs."""
    if not session.settings.compact:
        raise CompactionRefused(
            "compaction is switched off (DISABLE_COMPACT or the setting compact); switch it on first"
        )
    if session.is_compacting:
        raise CompactionRefused("a compaction of this session is already running; wait for it to end")
    session.is_compacting = True
    try:
        return await _run(session, trigger, session.facts(source))
    finally:
        session.is_compacting = False


async def _run(session: Session, trigger: Trigger, facts: Facts) -> Outcome:
    view, emit = session.view, session.world.sink.emit
    reason = "nothing_to_compact: no message stands before the messages to keep"
    for plan in _plans(session, facts):
        identity = session.world.ids.new("boundary")
        boundary = boundary_of(view, plan, facts, identity=identity, trigger=trigger)
        why = refusal(view, boundary, facts)
        if why is None:
            await session.commit_boundary(boundary)
            emit(_done(boundary))
            emit(PrefixMoved("compacted", 0, boundary.tokens_after, move_price(boundary.tokens_after, session.model)))
            return Done(boundary)
        reason = why
        emit(CompactionAttemptFailed(trigger, plan.strategy, why))
    await session.record(CompactionFailed(trigger=trigger, reason=reason))
    return Failed(reason)


def _plans(session: Session, facts: Facts) -> Iterator[Plan]:
    """Strategies, cheapest first (CMP-1): with the usual raw tail, then with none, when even that doesn't fit."""
    view = session.view
    start = len(view.boundary.summary) if view.boundary else 0
    last = legal_cuts(view, loops=False)[-1]  # not the end while a call is open
    tails = dict.fromkeys((min(keep_from(view, facts), last), last))
    for position in tails:
        if position > start:
            yield ledger_plan(view, facts, position)


def _done(boundary: Compacted) -> CompactionDone:
    return CompactionDone(
        boundary.trigger,
        boundary.strategy,
        boundary.tokens_before,
        boundary.tokens_after,
        boundary.summary_tokens,
        boundary.kept_tokens,
    )
