"""The ladder of strategies of a compaction: tried in order, the ledger last, since it needs nobody (CMP-1)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, replace

from holdfast.context.compaction import Plan, ledger_plan
from holdfast.context.cuts import legal_cuts
from holdfast.context.keep import first_said, keep_from
from holdfast.context.policy import Facts
from holdfast.context.view import View
from holdfast.engine.session import Session

Propose = Callable[[Session, Facts], AsyncIterator["Plan | str"]]


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to compact. `propose` yields plans in the order in which they are to be tried, or why it has none (a
    reason that starts with a reason code). It changes nothing; what it raises is a reason as well.
    """

    name: str
    propose: Propose


async def proposed(session: Session, facts: Facts) -> AsyncGenerator[tuple[str, Plan | str], None]:
    """All proposals for the view as it is, each with its strategy's name; an exception ends only its own strategy."""
    with_model = (session.summarizing,) if session.summarizing else ()
    for strategy in (*session.strategies, *with_model, LEDGER):
        try:
            async for plan in strategy.propose(session, facts):
                yield strategy.name, plan
        except Exception as e:  # a named boundary: the next strategy is tried, and the reason is an event
            yield strategy.name, f"error: {type(e).__name__}"


async def _ledger(session: Session, facts: Facts) -> AsyncIterator[Plan | str]:
    for position in tails(session.view, facts):
        yield ledger_plan(session.view, facts, position)
        yield ledger_plan(session.view, facts, position, has_text=False)  # for when even the text is too much


def tails(view: View, facts: Facts) -> list[int]:
    """Where the kept messages may start: the usual raw tail, then none, for when even that doesn't fit."""
    last = legal_cuts(view, loops=False)[-1]  # not the end while a call is open
    starts = dict.fromkeys((min(keep_from(view, facts), last), last))
    return [position for position in starts if position > first_said(view)]


LEDGER = Strategy("ledger", _ledger)


async def supplied(session: Session, facts: Facts, record: str) -> AsyncGenerator[tuple[str, Plan | str], None]:
    """A record that a person wrote or edited, in the place of the ledger's; no model is asked (CMP-11)."""
    async for plan in _ledger(session, facts):
        if isinstance(plan, Plan):
            plan = replace(plan, strategy="supplied", record=record.strip(), how="and edited by hand")
        yield "supplied", plan


def focused(plan: Plan, focus: str) -> Plan:
    """The plan with what the user asked it to look at, in the user's words (CMP-6)."""
    focus = " ".join(focus.split())
    if not focus or focus in plan.record:
        return plan
    return replace(plan, record=f"## The user asked this record to focus on\n{focus}\n\n{plan.record}")
