"""Compaction as a transaction (CMP-8): lease, strategies, restore, verify, commit as one record.

A crash or an error at any point leaves the old view or the new one, whole: until the boundary is in the journal nothing
has changed. An outcome is a value, not an exception.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, replace

from holdfast.context.compaction import Plan, Trigger, boundary_of, refusal, without_secrets
from holdfast.context.economics import move_price
from holdfast.engine.hooks import after, before
from holdfast.engine.restoring import with_restored
from holdfast.engine.session import Session
from holdfast.engine.strategies import focused, proposed, supplied
from holdfast.errors import CompactionRefused
from holdfast.events import CompactionAttemptFailed, CompactionBlocked, CompactionDone, PrefixMoved, SecretsRedacted
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


@dataclass(frozen=True, slots=True)
class Blocked(Failed):
    """A hook didn't want it. That is no failure of compaction, so the breaker doesn't count it (CMP-10)."""


Outcome = Done | Failed


@dataclass(frozen=True, slots=True)
class Proposal:
    """A boundary that passed its test, and the plan behind it; nothing is committed (CMP-11)."""

    plan: Plan
    boundary: Compacted


async def compact(
    session: Session, *, trigger: Trigger, source: str = "user", record: str | None = None, focus: str = ""
) -> Outcome:
    """Replace old history by a record of it. Raises `CompactionRefused` when compaction is off or already runs.

    `record` is a text to commit instead of what a strategy would write; it has to pass the same test.
    """
    if not session.settings.compact:
        raise CompactionRefused(
            "compaction is switched off (DISABLE_COMPACT or the setting compact); switch it on first"
        )
    if session.is_compacting:
        raise CompactionRefused("a compaction of this session is already running; wait for it to end")
    session.is_compacting = True
    try:
        found = await _hooked(session, trigger=trigger, source=source, record=record, focus=focus)
        if isinstance(found, Proposal):
            done = await _committed(session, found.boundary)
            await after(session, found.boundary)
            return done
        if isinstance(found, Blocked):
            return found
        await session.record(CompactionFailed(trigger=trigger, reason=found.reason))
        return found
    finally:
        session.is_compacting = False


async def _hooked(
    session: Session, *, trigger: Trigger, source: str, record: str | None, focus: str
) -> Proposal | Failed:
    """The proposal that the hooks agree with. One that they supply and that fails the test isn't the last word."""
    hooked = await before(session, trigger, focus)
    if hooked.blocked is not None:
        session.world.sink.emit(CompactionBlocked(trigger, hooked.blocked.split(":")[0]))
        return Blocked(f"blocked: {hooked.blocked}")
    if record is None and hooked.summary is not None:
        found = await proposal(session, trigger=trigger, source=source, record=hooked.summary, focus=focus)
        if isinstance(found, Proposal):
            return found
    wanted = hooked.instructions
    return await proposal(session, trigger=trigger, source=source, record=record, focus=focus, instructions=wanted)


async def proposal(
    session: Session,
    *,
    trigger: Trigger,
    source: str = "user",
    record: str | None = None,
    focus: str = "",
    instructions: str | None = None,
) -> Proposal | Failed:
    """What `compact` would commit now. Changes nothing. `instructions` are for a model, `focus` for the record, too."""
    facts = replace(session.facts(source), instructions=focus if instructions is None else instructions)
    view, emit = session.view, session.world.sink.emit
    reason = "nothing_to_compact: no message stands before the messages to keep"
    plans = proposed(session, facts) if record is None else supplied(session, facts, record)
    async with aclosing(plans) as proposals:
        async for name, plan in proposals:
            if isinstance(plan, Plan):
                has_text = bool(plan.record.strip())
                plan, families = without_secrets(view, focused(plan, focus), facts)
                if families:
                    emit(SecretsRedacted("summary", tuple(sorted(set(families))), len(families)))
                identity = session.world.ids.new("boundary")
                boundary = boundary_of(view, plan, facts, identity=identity, trigger=trigger)
                why = refusal(view, boundary, facts, plan.promised) if has_text else "empty: the record holds no text"
                if why is None:
                    return Proposal(plan, await with_restored(session, plan, facts, boundary))
            else:
                why = plan
            reason = why
            emit(CompactionAttemptFailed(trigger, name, why))
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
