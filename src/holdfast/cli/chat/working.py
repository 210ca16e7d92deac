"""One prompt, worked on until it is done: by the model that comes first, or by the next one where that gives up."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.agent.loop import Agent
from holdfast.agent.progress import Said
from holdfast.cli.chat.opening import Place
from holdfast.errors import ModelGaveUp


async def work(agent: Agent, place: Place, prompt: str | None, tell: Callable[[str], None]) -> Said:
    """What the agent says to a prompt; None goes on with what is there. Raises what `Agent.say` raises.

    When a model gives up, the next of the setting main_models takes over, for the rest of this process.
    """
    while True:
        try:
            return await agent.say(prompt)
        except ModelGaveUp as e:
            models = place.models.main
            at = models.index(agent.model) if agent.model in models else len(models)
            if at + 1 >= len(models):
                raise
            agent.model, prompt = models[at + 1], None
            tell(f"{e}; going on with {agent.model.about.id}")
