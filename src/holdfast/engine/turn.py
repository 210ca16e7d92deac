"""The turn up to the call: passes in their order, the compaction check, the request (TURN-1 to TURN-9, TURN-13)."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.context.passes import CHEAP_PASSES, CLOSING_PASSES
from holdfast.context.policy import Facts, Pressure, compaction_need, pressure_at
from holdfast.context.requests import Protocol, Request, to_request
from holdfast.context.wire import CONTINUES, lacks_turn
from holdfast.engine.compaction import Done, Outcome, compact
from holdfast.engine.session import Session
from holdfast.errors import ContextBlocked
from holdfast.events import CompactionChecked
from holdfast.transcript.messages import Message


@dataclass(frozen=True, slots=True)
class Prepared:
    """A turn that is ready to be sent: the request, its size, and what compaction had to say, if it was due."""

    request: Request
    tokens: int
    outcome: Outcome | None = None


async def prepare(session: Session, *, source: str = "user", protocol: Protocol = "anthropic") -> Prepared:
    """Bring the view in shape for the next model call and make the request.

    Raises `ContextBlocked` when the view stays above the block threshold; nothing was sent then, and nothing is lost.
    """
    await _pass_turn(session)
    facts = session.facts(source)
    for shrink in CHEAP_PASSES + CLOSING_PASSES:
        await session.commit(shrink(session.view, facts), facts)
    outcome = await _compact_if_due(session, facts)
    size = facts.size(session.view)
    if pressure_at(size, facts.limits) is Pressure.BLOCKED:
        raise ContextBlocked(blocked_text(session, facts, size))
    return Prepared(to_request(session.view, facts, protocol=protocol), size, outcome)


async def _pass_turn(session: Session) -> None:
    """A request has to end with the user; when the model spoke last, a recorded line passes it the turn."""
    if not session.view.items or not lacks_turn(session.view):
        return
    line = Message.of("user", CONTINUES, origin="reminder")
    await session.append(line)


async def _compact_if_due(session: Session, facts: Facts) -> Outcome | None:
    size = facts.size(session.view)
    level = pressure_at(size, facts.limits)
    session.world.sink.emit(CompactionChecked(size, level.value, facts.limits.usable, facts.source))
    if compaction_need(session.view, facts) is None:
        return None
    outcome = await compact(session, trigger="auto", source=facts.source)
    if isinstance(outcome, Done):
        for shrink in CLOSING_PASSES:
            await session.commit(shrink(session.view, facts), facts)
    return outcome


def blocked_text(session: Session, facts: Facts, size: int) -> str:
    """What to say when no call can be made: how much must go, what it consists of, and what helps (TURN-13, PRS-6)."""
    limits, view = facts.limits, session.view
    ratio = view.state.calibration.ratio
    overhead = view.state.calibration.overhead_tokens
    front = view.front_size.live if overhead is None else overhead
    last = round(view.items[-1].size.live * ratio) if view.items else 0
    pins = sum(len(pin.text) for pin in view.state.pins) // 4
    parts = f"system prompt and tools {front:,}, pins {pins:,}, last message {last:,}"
    if front + pins + last >= limits.trigger:
        advice = f"what can't be reduced ({parts}) is itself above the trigger of {limits.trigger:,}: make it smaller"
    elif not limits.auto:
        advice = "auto-compaction is off: run /compact, or /clear, or switch it on"
    elif view.state.breaker.refills >= facts.settings.thrash_refills:
        advice = (
            "auto-compaction stopped because the window refilled at once three times: "
            "read less at a time, or run /compact or /clear"
        )
    elif view.state.breaker.failures >= facts.settings.breaker_failures:
        advice = f"auto-compaction stopped after {view.state.breaker.failures} failures: run /compact or /clear"
    else:
        advice = f"compaction could not reduce it ({parts}): run /compact with a focus, or /clear"
    gap, limit = size - limits.block, f"the limit of {limits.block:,} (window {limits.window:,})"
    return f"context is full: {size:,} tokens, {gap:,} over {limit}; {advice}"
