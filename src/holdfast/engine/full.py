"""Full compact: one call of a model, on the conversation's own cached prefix where it is the conversation's (CMP-3).

The models are asked one after the other; each has to answer with a summary, else it says why not and the next is asked.
Waits and cut streams are retried as for every job; a prompt that is too long loses its oldest rounds (CMP-4).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial

from holdfast.context.compaction import Plan
from holdfast.context.full import Summary, fault_of, full_plan, instruction, summary_in, too_little
from holdfast.context.full_request import Ask, is_own, overflow_tokens, rounds_to_drop, summary_ask
from holdfast.context.policy import Facts
from holdfast.context.replies import About, Reply
from holdfast.context.requests import Request
from holdfast.context.view import View
from holdfast.engine.aside import aside_of
from holdfast.engine.models import Models, ask_job
from holdfast.engine.session import LiveSession
from holdfast.engine.strategies import Strategy, tails
from holdfast.errors import BodyTooLarge, ModelError, ModelGaveUp, PromptTooLong
from holdfast.events import SummaryInputDropped
from holdfast.ports import Model

DROPS = 3  # CMP-4: how often a request may lose its oldest rounds


def full(models: Sequence[Model]) -> Strategy:
    """The strategy that lets a model write the record; `models` in the order in which they are asked."""

    async def propose(session: LiveSession, facts: Facts) -> AsyncIterator[Plan | str]:
        starts = tails(session.view, facts)
        if not starts:
            return
        if (why := await aside_of(session.view, lambda view: too_little(view, facts, starts))) is not None:
            yield why
            return
        for model in models:
            said = await written(session, session.view, facts, model)
            if isinstance(said, str):
                yield said
                continue
            for keep_from in starts:
                yield await aside_of(session.view, partial(_plan, facts, keep_from, said))

    return Strategy("full", propose)


def _plan(facts: Facts, keep_from: int, said: Summary, view: View) -> Plan:
    return full_plan(view, facts, keep_from, said)


async def written(session: LiveSession, view: View, facts: Facts, model: Model) -> Summary | str:
    """What a model writes of a view, or why it doesn't. One answer is asked for; only the request is made smaller."""
    about, text, dropped = model.about, instruction(facts, view), 0
    fitting = summary_ask(view, facts, about, text)
    if not is_own(view, about) and (gap := overflow_tokens(facts, about, fitting)):
        dropped = _dropped(session, about, fitting, gap)
    for attempt in range(DROPS + 1):
        ask = summary_ask(view, facts, about, text, dropped)
        said = await _asked(session, model, ask)
        if isinstance(said, Reply):
            fault = fault_of(said, facts)
            return fault or Summary(summary_in(said) or "", ask.dropped)
        if not isinstance(said, PromptTooLong | BodyTooLarge) or attempt == DROPS:
            return f"model_failed: {said.reason}"
        dropped = _dropped(session, about, ask, said.gap_tokens if isinstance(said, PromptTooLong) else None)
        if dropped == ask.dropped:
            return f"model_failed: {said.reason}, and nothing more can be left out"
    raise AssertionError("the last attempt returns")


def _dropped(session: LiveSession, about: About, ask: Ask, gap_tokens: int | None) -> int:
    dropped = rounds_to_drop(ask.rounds, ask.dropped, gap_tokens)
    if dropped > ask.dropped:
        session.world.sink.emit(SummaryInputDropped(about.id, dropped, len(ask.rounds), gap_tokens))
    return dropped


async def _asked(session: LiveSession, model: Model, ask: Ask) -> Reply | ModelError:
    def asking(about: About) -> tuple[Request, int]:
        return ask.request, ask.tokens

    said = await ask_job(session, Models(summarizer=(model,)), "summarizer", asking)
    return said.last if isinstance(said, ModelGaveUp) else said
