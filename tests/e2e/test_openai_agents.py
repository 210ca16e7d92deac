"""LIB-4: `PerdureSession` in OpenAI's Agents SDK, through its own client, before a server that checks every request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perdure.testing import FakeServer, FakeUpstream, ModelRules, Statistics, UpstreamError, say, tool_use

pytest.importorskip("agents")
from agents.memory import Session as SessionProtocol
from agents.tool_context import ToolContext
from openai import APIError, AsyncOpenAI

from agents import (
    Agent,
    ModelBehaviorError,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from perdure.integrations.openai_agents import PerdureSession

pytestmark = [pytest.mark.e2e, pytest.mark.anyio]
WINDOW = 24_000
LONG = 1_000
set_tracing_disabled(True)


@function_tool
def read(path: str) -> str:
    """Read a file."""
    return f"a line of {path}\n" * 300


def reads(count: int, first: int = 0) -> list[Any]:
    return [say(tool_use("read", {"path": f"f{n}.py"})) for n in range(first, first + count)]


@asynccontextmanager
async def served(script: list[Any], window: int = WINDOW) -> AsyncIterator[Served]:
    """A server with this script, and the SDK's own client of it."""
    async with (
        FakeServer(FakeUpstream(script=script, rules=ModelRules(window_tokens=window))) as server,
        AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield Served(server, client)


@dataclass
class Served:
    server: FakeServer
    client: AsyncOpenAI

    @property
    def statistics(self) -> Statistics:
        return self.server.upstream.statistics

    def model(self, kind: Any = OpenAIResponsesModel) -> Any:
        return kind("fake", openai_client=self.client)


def agent_of(model: Any, *tools: Any) -> Agent[None]:
    given = ModelSettings(max_tokens=500, include_usage=True)
    return Agent(name="worker", instructions="You read files.", model=model, tools=[read, *tools], model_settings=given)


def memory_of(folder: Path, **more: Any) -> PerdureSession:
    settings = {"window_tokens": WINDOW, **more}
    return PerdureSession("conversation-1", folder, home=folder / "home", settings=settings)


@pytest.mark.parametrize("kind", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_run_goes_on_past_its_window(tmp_path: Path, kind: Any, *, streamed: bool) -> None:
    """LIB-4, GOAL: 40 results of 2,000 tokens go through a window of 24,000."""
    async with served([*reads(40), "Done."]) as one, memory_of(tmp_path) as memory:
        agent = agent_of(memory.model(one.model(kind)), memory.recall_tool)
        more: Any = {"session": memory, "run_config": memory.run_config(), "max_turns": LONG}
        if streamed:
            running = Runner.run_streamed(agent, "Read all.", **more)
            async for _ in running.stream_events():
                pass
            assert running.final_output == "Done."
        else:
            assert (await Runner.run(agent, "Read all.", **more)).final_output == "Done."
        statistics = one.statistics
        assert statistics.refused == 0 and statistics.requests == 41
        assert memory.session.view.anchor is not None and memory.session.view.anchor.is_reported


async def test_a_conversation_goes_on_in_another_process(tmp_path: Path) -> None:
    """LIB-4, ENG-5: what a run begins with is what the model would see; nothing is said twice."""
    async with served([*reads(12), "Done.", *reads(12, 12), "Done again.", "Fine."]) as one:
        for prompt, answer in (("Read.", "Done."), ("Read more.", "Done again.")):
            async with memory_of(tmp_path) as memory:
                run = await Runner.run(
                    agent_of(one.model()), prompt, session=memory, run_config=memory.run_config(), max_turns=LONG
                )
                assert run.final_output == answer
                said = memory.session.view.state.messages
        async with memory_of(tmp_path) as memory:
            items = await memory.get_items()
            assert memory.session.view.state.messages == said and len(str(items)) < WINDOW * 5
            assert [one for one in items if one.get("role") == "user"][-1]["content"][-1]["text"] == "Read more."
            limited = memory.run_config(session_settings=None)
            assert await memory.get_items(limit=2) == items[-2:]
            run = await Runner.run(agent_of(one.model()), "And?", session=memory, run_config=limited)
            assert run.final_output == "Fine."
        assert one.statistics.refused == 0


async def test_the_protocol_of_sessions(tmp_path: Path) -> None:
    """LIB-4: items in order, the newest few, the last taken back, and everything forgotten."""
    async with memory_of(tmp_path) as memory:
        assert isinstance(memory, SessionProtocol)
        assert await memory.get_items() == [] and await memory.pop_item() is None
        items: list[Any] = [{"role": "user", "content": f"{n}"} for n in range(3)]
        await memory.add_items(items[:1])
        await memory.add_items(items[1:])
        assert await memory.get_items() == items and await memory.get_items(2) == items[1:]
        assert await memory.pop_item() == items[2]
        assert await memory.get_items() == items[:2] and "2" not in str(memory.session.messages())
    async with memory_of(tmp_path) as memory:
        assert "".join(part["text"] for one in await memory.get_items() for part in one["content"]) == "01"
        assert await memory.pop_item() is not None and "1" not in str(memory.session.messages("responses"))
        await memory.clear_session()
        assert await memory.get_items() == [] and not memory.session.view.items
    with pytest.raises(RuntimeError, match="isn't open"):
        await memory.add_items(items)


async def test_the_filter_alone_serves_a_session_of_the_sdks_own(tmp_path: Path) -> None:
    """LIB-4: what another session stores stays whole, and what is sent fits."""
    async with served([*reads(30), "Done."]) as one, memory_of(tmp_path) as memory:
        plain = SQLiteSession("plain")
        run = await Runner.run(
            agent_of(one.model()), "Read.", session=plain, run_config=memory.run_config(), max_turns=LONG
        )
        assert run.final_output == "Done." and one.statistics.refused == 0
        assert len(await plain.get_items()) == 62


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_prompt_that_is_too_long_is_compacted_and_asked_again(tmp_path: Path, *, streamed: bool) -> None:
    """LIB-4, TURN-11: the window is smaller than anybody said; other errors are the run's."""
    async with served([*reads(20), "Done."], window=16_000) as one, memory_of(tmp_path, window_tokens=None) as memory:
        agent = agent_of(memory.model(one.model()))
        more: Any = {"session": memory, "run_config": memory.run_config(), "max_turns": LONG}
        if streamed:
            running = Runner.run_streamed(agent, "Read.", **more)
            async for _ in running.stream_events():
                pass
            assert running.final_output == "Done."
        else:
            assert (await Runner.run(agent, "Read.", **more)).final_output == "Done."
        assert 1 <= one.statistics.refused <= 2 and memory.session.limits.window < 17_000
    async with served([UpstreamError(401, "authentication_error", "no key")]) as one, memory_of(tmp_path) as memory:
        with pytest.raises((APIError, ModelBehaviorError)):
            await Runner.run(agent_of(memory.model(one.model())), "x", run_config=RunConfig())


async def test_what_was_cleared_is_recalled_by_the_tool(tmp_path: Path) -> None:
    """LIB-4, RCL-3."""
    script = [*reads(30), say(tool_use("recall", {"query": "f2.py"})), "Done."]
    async with served(script) as one, memory_of(tmp_path) as memory:
        agent = agent_of(one.model(), memory.recall_tool)
        run = await Runner.run(agent, "Read.", session=memory, run_config=memory.run_config(), max_turns=LONG)
        outputs = [str(item) for item in run.to_input_list() if item.get("type") == "function_call_output"]
        assert run.final_output == "Done." and "a line of f2.py" in outputs[-1]


@pytest.mark.parametrize("arguments", ["[]", "null", '{"id": ', '"x"'])
async def test_broken_arguments_of_recall_end_no_run(tmp_path: Path, arguments: str) -> None:
    """LIB-4, RCL-3: a model may write anything; it is told, and goes on."""
    async with memory_of(tmp_path) as memory:
        told = await memory.recall_tool.on_invoke_tool(ToolContext(None, None, "recall", "c1", arguments), arguments)
        assert told.startswith("recall failed: its arguments have to be a JSON object")


async def test_an_item_that_is_taken_back_can_be_said_again(tmp_path: Path) -> None:
    """LIB-4: the SDK takes items back when it repeats a turn; what it says then is kept, whatever the filter saw."""
    async with served([*reads(1), "Done."]) as one, memory_of(tmp_path) as memory:
        await Runner.run(agent_of(one.model()), "Read.", session=memory, run_config=memory.run_config())
        said = str(memory.session.messages("responses"))
        back = [await memory.pop_item() for _ in range(3)]
        assert "f0.py" not in str(memory.session.messages("responses"))
        await memory.add_items([item for item in reversed(back) if item is not None])
        assert str(memory.session.messages("responses")) == said
