"""OpenAI's Agents SDK: a session that keeps everything, and an input filter by which each request fits (LIB-4).

    from perdure.integrations.openai_agents import PerdureSession

    async with PerdureSession("conversation-1", home="home") as memory:
        agent = Agent(name="worker", tools=[…, memory.recall_tool])
        await Runner.run(agent, "…", session=memory, run_config=memory.run_config())

The session is what the SDK begins a run with; the filter, which sees the history before each call of the model, is what
keeps a run of any length within the window.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from agents.items import ModelResponse, TResponseInputItem, TResponseStreamEvent
from agents.memory import SessionSettings
from agents.models.interface import Model
from agents.run import CallModelData, ModelInputData

from agents import FunctionTool, RunConfig
from perdure.engine.tools import recall_tool
from perdure.face.session import Session
from perdure.ports.home import Home
from perdure.settings import Settings
from perdure.transcript.messages import Usage


class PerdureSession:
    """A session of the Agents SDK, and what belongs to it: `run_config`, `recall_tool` and `model`.

    Enter it with `async with`, which opens the session on disk, or goes on with it; one run at a time may use it.

    Args:
        session_id: the conversation's name, any text.
        project: the folder that the conversation is about.
        home: where sessions are kept, as `Session.create` takes it; by default where the `perdure` command does.
        settings: `Settings`, or an object with some of them, such as `{"window_tokens": 60_000}`.

    Attributes:
        session_id: the conversation's name.
        session: Perdure's own session of it, while it is open.
        recall_tool: a tool for the agent, by which its model gets back what left its context.

    Example:
        async with PerdureSession("conversation-1", home="home") as memory:
            assert await memory.get_items() == []
    """

    session_settings: SessionSettings | None = None

    def __init__(
        self,
        session_id: str,
        project: str | Path = ".",
        *,
        home: str | Path | Home | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
    ) -> None:
        self.session_id = session_id
        self._project, self._home, self._settings = project, home, settings
        self._opened: Session | None = None
        self._items: list[TResponseInputItem] = []  # what the SDK has stored here, or was given in its place
        self._before: list[TResponseInputItem] = []  # of these, what a run wasn't given
        self._seen: list[TResponseInputItem] = []  # by the filter, which may be ahead of what is stored
        self._usage: Usage | None = None
        definition = recall_tool.definition
        self.recall_tool = FunctionTool(
            name=definition["name"],
            description=definition["description"],
            params_json_schema=definition["input_schema"],
            on_invoke_tool=self._recall,
            strict_json_schema=False,
        )

    async def __aenter__(self) -> PerdureSession:
        opened = await Session.named(self.session_id, self._project, home=self._home, settings=self._settings)
        self._opened = opened
        if opened.view.items:  # what the model would see is the history from now on
            self._items = (await opened.shown("responses", asking=False)).data
            await opened.rebase(self._items)
        return self

    async def __aexit__(self, *error: object) -> None:
        opened, self._opened = self.session, None
        await opened.close()

    @property
    def session(self) -> Session:
        """The session that keeps it, while it is open."""
        if self._opened is None:
            raise RuntimeError(f"the session {self.session_id} isn't open: write `async with PerdureSession(…) as …`")
        return self._opened

    # --- the SDK's protocol of sessions -------------------------------------------------------------------------------

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """What a run begins with: the history, or its newest items."""
        start = 0 if limit is None else max(0, len(self._items) - limit)
        self._before = self._items[:start]
        return self._items[start:]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Keep what was said."""
        self._items = [*self._items, *items]
        if self._seen[: len(self._items)] != self._items:
            await self._follow(self._items)

    async def pop_item(self) -> TResponseInputItem | None:
        """Take back the newest item."""
        if not self._items:
            return None
        *self._items, last = self._items
        await self._follow(self._items)
        self._seen = []
        return last

    async def clear_session(self) -> None:
        """Begin anew. What was said can still be recalled."""
        self._items, self._seen = [], []
        await self._follow(self._items)

    # --- what makes requests fit --------------------------------------------------------------------------------------

    def run_config(self, **more: Any) -> RunConfig:
        """The configuration of a run whose requests fit.

        Args:
            **more: anything else that `RunConfig` takes.

        Returns:
            One with `filter` as its `call_model_input_filter`.

        Example:
            config = memory.run_config(tracing_disabled=True)
        """
        return RunConfig(call_model_input_filter=self.filter, **more)

    async def filter(self, data: CallModelData[Any]) -> ModelInputData:
        """What the model is to see; a `call_model_input_filter`."""
        asked, session = data.model_data, self.session
        tools = [_definition(tool) for tool in data.agent.tools if isinstance(tool, FunctionTool)]
        model = data.agent.model if isinstance(data.agent.model, str) else None
        await session.set_prefix(model=model, system=asked.instructions or "", tools=tools)
        self._seen = [*self._before, *asked.input]
        await self._follow(self._seen)
        shown = await session.shown("responses")
        return ModelInputData(input=shown.data, instructions=asked.instructions)

    def model(self, model: Model) -> Model:
        """A model whose prompts, where it finds one too long all the same, are compacted and asked again.

        It also tells the session what prompts really take, so that sizes are the provider's own.

        Args:
            model: the model that is asked.

        Returns:
            The same for an agent's `model`.

        Example:
            agent = Agent(name="worker", model=memory.model(OpenAIResponsesModel("gpt-5.5", openai_client=client)))
        """
        return _RecoveringModel(model, self)

    async def refused(self, error: Exception) -> list[TResponseInputItem] | None:
        """What to ask instead after this error of a model; None where it isn't for the prompt's length."""
        return (await self.session.shown("responses")).data if await self.session.refused(error) else None

    def used(self, usage: Any) -> None:
        """What the answer to what was shown last took: the SDK's own usage, or the API's."""
        if usage is None or not (usage.input_tokens or usage.output_tokens):
            return
        details = getattr(usage, "input_tokens_details", None)
        read = getattr(details, "cached_tokens", None) or 0
        self._usage = Usage(usage.input_tokens - read, usage.output_tokens, cache_read_input_tokens=read)

    async def _follow(self, items: list[TResponseInputItem]) -> None:
        usage, self._usage = self._usage, None
        await self.session.follow(items, usage=usage)

    async def _recall(self, context: Any, arguments: str) -> str:
        return await recall_tool.run(self.session, arguments)


class _RecoveringModel(Model):
    """A model that is asked once more with less where its window was met."""

    def __init__(self, model: Model, memory: PerdureSession) -> None:
        self._model, self._memory = model, memory

    async def get_response(
        self, system_instructions: str | None, input: str | list[TResponseInputItem], *more: Any, **named: Any
    ) -> ModelResponse:
        try:
            response = await self._model.get_response(system_instructions, input, *more, **named)
        except Exception as e:
            if (less := await self._memory.refused(e)) is None:
                raise
            response = await self._model.get_response(system_instructions, less, *more, **named)
        self._memory.used(response.usage)
        return response

    async def stream_response(
        self, system_instructions: str | None, input: str | list[TResponseInputItem], *more: Any, **named: Any
    ) -> AsyncIterator[TResponseStreamEvent]:
        has_begun = False
        try:
            async for event in self._model.stream_response(system_instructions, input, *more, **named):
                has_begun = True
                self._heard(event)
                yield event
            return
        except Exception as e:
            less = None if has_begun else await self._memory.refused(e)
            if less is None:
                raise
        async for event in self._model.stream_response(system_instructions, less, *more, **named):
            self._heard(event)
            yield event

    def _heard(self, event: TResponseStreamEvent) -> None:
        if event.type == "response.completed":
            self._memory.used(event.response.usage)

    async def close(self) -> None:
        await self._model.close()

    def get_retry_advice(self, request: Any) -> Any:
        return self._model.get_retry_advice(request)


def _definition(tool: FunctionTool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.params_json_schema}
    return {"type": "function", "function": function}
