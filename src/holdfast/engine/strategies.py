"""The ladder of strategies of a compaction: tried in order, the ledger last, since it needs nobody (CMP-1)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, replace
from functools import partial

from holdfast.context.compaction import Plan, ledger_plan
from holdfast.context.cuts import legal_cuts
from holdfast.context.held import held_plan
from holdfast.context.keep import can_leave, keep_from
from holdfast.context.policy import Facts
from holdfast.context.view import View
from holdfast.engine.aside import aside_of
from holdfast.engine.helping import helping
from holdfast.engine.session import LiveSession

Propose = Callable[[LiveSession, Facts], AsyncIterator["Plan | str"]]


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to compact. `propose` yields plans in the order in which they are to be tried, or why it has none (a
    reason that starts with a reason code). It changes nothing; what it raises is a reason as well.
    """

    name: str
    propose: Propose


async def proposed(session: LiveSession, facts: Facts) -> AsyncGenerator[tuple[str, Plan | str], None]:
    """All proposals for the view as it is, each with its strategy's name; an exception ends only its own strategy."""
    from holdfast.engine.full import full  # which is made of what stands here

    by_model = (full(models),) if (models := helping(session).summarizer) else ()
    own = session.services.strategies if facts.span is None else ()  # those choose for themselves what leaves
    for strategy in (*own, AHEAD, *by_model, LEDGER):
        try:
            async for plan in strategy.propose(session, facts):
                yield strategy.name, plan
        except Exception as e:  # a named boundary: the next strategy is tried, and the reason is an event
            yield strategy.name, f"error: {type(e).__name__}"


async def _ahead(session: LiveSession, facts: Facts) -> AsyncIterator[Plan | str]:
    held = session.view.state.held
    if held is not None and facts.span is None:
        yield await aside_of(session.view, lambda view: held_plan(view, facts, held))


AHEAD = Strategy("precomputed", _ahead)


async def _ledger(session: LiveSession, facts: Facts) -> AsyncIterator[Plan | str]:
    positions = tails(session.view, facts)
    if not positions:
        yield "nothing_to_compact: no message stands before the messages to keep"
    for position in positions:
        for has_text in (True, False):  # without, for when even the text is too much
            yield await aside_of(session.view, partial(_ledger_plan, facts, position, has_text))


def _ledger_plan(facts: Facts, position: int, has_text: bool, view: View) -> Plan:
    return ledger_plan(view, facts, position, has_text=has_text)


def tails(view: View, facts: Facts) -> list[int]:
    """Where the kept messages may start: the usual raw tail, then none, for when even that doesn't fit.

    Where only a part is to be summarised, they start behind it (CMP-6).
    """
    if facts.span is not None:
        return [facts.span[1]]
    last = legal_cuts(view, loops=False)[-1]  # not the end while a call is open
    starts = dict.fromkeys((min(keep_from(view, facts), last), last))
    return [position for position in starts if can_leave(view, position)]


LEDGER = Strategy("ledger", _ledger)


async def supplied(session: LiveSession, facts: Facts, record: str) -> AsyncGenerator[tuple[str, Plan | str], None]:
    """A record that a person wrote or edited, in the place of the ledger's; no model is asked (CMP-11)."""
    async for plan in _ledger(session, facts):
        if isinstance(plan, Plan):
            plan = replace(plan, strategy="supplied", record=record.strip(), how="and edited by hand")
        yield "supplied", plan


def focused(plan: Plan, focus: str, who: str = "user") -> Plan:
    """The plan with what somebody asked it to look at, in their own words (CMP-6)."""
    focus = " ".join(focus.split())
    if not focus or focus in plan.record:
        return plan
    return replace(plan, record=f"## The {who} asked this record to focus on\n{focus}\n\n{plan.record}")
