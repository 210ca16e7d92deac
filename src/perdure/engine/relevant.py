"""Asking for the facts that matter to a task: a model where there is one, else code, from the same sources (CMP-17)."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.compaction.ledger.render import digest
from perdure.compaction.relevant import FactSource, RelevantFacts, facts_by_code, facts_in, facts_prompt
from perdure.compaction.side_requests import side_request
from perdure.context.policy import tool_table
from perdure.context.replies import ModelInfo, Reply
from perdure.context.request import ModelRequest
from perdure.context.view import ContextView
from perdure.engine.ask import JobModels, ask_job
from perdure.engine.session import LiveSession
from perdure.ports.session import Model
from perdure.settings import Settings

ANSWER_TOKENS = 2_000


def record_source(view: ContextView, settings: Settings, name: str) -> FactSource:
    """What the ledger says of a session, as a source of facts."""
    messages = [item.message for item in view.items]
    return FactSource(name, digest(messages, settings.summary_budget_tokens, tool_table(settings)))


async def relevant_facts(
    session: LiveSession,
    task: str,
    *,
    sources: Sequence[FactSource] | None = None,
    models: Sequence[Model] = (),
    limit: int = 12,
) -> RelevantFacts:
    """The facts that matter to a task, of a session or of any sources.

    Args:
        session: whose settings, caps and clock hold for the call.
        task: what is to be done, in plain words.
        sources: where to look; None: in what the ledger says of the session.
        models: who is asked, in this order; without any, and when none gives a usable answer, code picks.
        limit: the most facts.

    Returns:
        The facts, the most important first, each with the name of its source.

    Example:
        await session.append("We deploy from the branch release, never from main.")
        found = await relevant_facts(session, "deploy the site")
        assert found.by == "code" and "branch release" in found.facts[0].text
    """
    if sources is None:
        sources = (record_source(session.view, session.settings, session.id),)
    if not models or not sources:
        return facts_by_code(task, sources, limit)
    system, text = facts_prompt(task, sources, limit)
    facts = session.facts("memory")

    def asking(about: ModelInfo) -> tuple[ModelRequest, int]:
        return side_request(about, facts, system=system, text=text, output_tokens=ANSWER_TOKENS)

    said = await ask_job(session, JobModels(extractor=tuple(models)), "extractor", asking, billed_as="facts")
    if isinstance(said, Reply):
        found = facts_in(said.text, task, sources, limit, said.model)
        if found is not None:
            return found
        why = f"the answer of {said.model} can't be read"
    else:
        why = f"no model answered: {said.reason}"
    return RelevantFacts(task, facts_by_code(task, sources, limit).facts, why=why)
