"""Compaction as a transaction (CMP-8): lease, strategies, restore, verify, commit as one record.

A crash or an error at any point leaves the old view or the new one, whole: until the boundary is in the journal nothing
has changed. An outcome is a value, not an exception.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass

from holdfast.context.compaction import Plan, Trigger, boundary_of, refusal
from holdfast.context.economics import move_price
from holdfast.context.policy import Facts
from holdfast.engine.restoring import with_restored
from holdfast.engine.session import Session
from holdfast.engine.strategies import proposed
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
    async with aclosing(proposed(session, facts)) as proposals:
        async for name, plan in proposals:
            if isinstance(plan, Plan):
                identity = session.world.ids.new("boundary")
                boundary = boundary_of(view, plan, facts, identity=identity, trigger=trigger)
                why = refusal(view, boundary, facts) if plan.record.strip() else "empty: the record holds no text"
                if why is None:
                    return await _committed(session, await with_restored(session, plan, facts, boundary))
            else:
                why = plan
            reason = why
            emit(CompactionAttemptFailed(trigger, name, why))
    await session.record(CompactionFailed(trigger=trigger, reason=reason))
    return Failed(reason)


async def _committed(session: Session, boundary: Compacted) -> Done:
    emit = session.world.sink.emit
    await session.commit_boundary(boundary)
    emit(_done(boundary))
    emit(PrefixMoved("compacted", 0, boundary.tokens_after, move_price(boundary.tokens_after, session.model)))
    return Done(boundary)


def _done(boundary: Compacted) -> CompactionDone:
    return CompactionDone(
        boundary.trigger,
        boundary.strategy,
        boundary.tokens_before,
        boundary.tokens_after,
        boundary.summary_tokens,
        boundary.kept_tokens,
    )
