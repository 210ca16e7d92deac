"""LIB-4: `PerdureCapability` in Pydantic AI's agent, before a server that checks each request."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from perdure import Session, sync
from perdure.testing import FakeServer, FakeUpstream, ModelRules, Statistics, UpstreamError, say, tool_use

pytest.importorskip("pydantic_ai")
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai import Agent, UsageLimits, exceptions
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from perdure.integrations.pydantic_ai import PerdureCapability

pytestmark = [pytest.mark.e2e, pytest.mark.anyio]
WINDOW = 24_000
SMALL = {"window_tokens": WINDOW}
ANY = UsageLimits(request_limit=None)
Api = Literal["anthropic", "chat", "responses"]


def read(path: str) -> str:
    """Read a file."""
    return f"a line of {path}\n" * 300


def reads(count: int, first: int = 0) -> list[Any]:
    return [say(tool_use("read", {"path": f"f{n}.py"})) for n in range(first, first + count)]


@asynccontextmanager
async def served(script: list[Any], api: Api = "chat", window: int = WINDOW) -> AsyncIterator[tuple[Any, Statistics]]:
    """A model of Pydantic AI's whose server has this script, and what the server counts."""
    async with FakeServer(FakeUpstream(script=script, rules=ModelRules(window_tokens=window))) as server:
        if api == "anthropic":
            async with AsyncAnthropic(base_url=server.url, api_key="none", max_retries=0) as anthropic:
                provider = AnthropicProvider(anthropic_client=anthropic)
                yield AnthropicModel("claude-sonnet-5-5", provider=provider), server.upstream.statistics
            return
        kind = OpenAIChatModel if api == "chat" else OpenAIResponsesModel
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as openai:
            yield kind("fake", provider=OpenAIProvider(openai_client=openai)), server.upstream.statistics


def agent_of(model: Any, *capabilities: Any) -> Agent[None, str]:
    return Agent(
        model,
        instructions="You read files.",
        tools=[read],
        capabilities=list(capabilities),
        model_settings={"max_tokens": 500},
    )


@pytest.mark.parametrize("api", ["anthropic", "chat", "responses"])
@pytest.mark.parametrize("persistent", [False, True], ids=["request-only", "persistent"])
async def test_a_run_goes_on_past_its_window(api: Api, *, persistent: bool) -> None:
    """LIB-4, GOAL: 40 results of 2,000 tokens go through a window of 24,000."""
    async with served([*reads(40), "Done."], api) as (model, statistics), Session.in_memory(settings=SMALL) as session:
        agent = agent_of(model, PerdureCapability(session, persistent=persistent))
        result = await agent.run("Read all.", usage_limits=ANY)
        assert result.output == "Done." and statistics.refused == 0 and statistics.requests == 41
        assert session.view.anchor is not None and session.view.anchor.is_reported
        whole = str(result.all_messages())
        assert (whole.count("a line of f3.py") >= 300) is not persistent
        assert len(result.all_messages()) == 82 or persistent


@pytest.mark.parametrize("persistent", [False, True], ids=["request-only", "persistent"])
@pytest.mark.parametrize("begins_anew", [False, True])
async def test_ids_that_not_every_api_takes_are_those_of_their_calls(*, persistent: bool, begins_anew: bool) -> None:
    """LIB-4, GW-7: such as Kimi's; a result that was shortened still names its call."""
    ids = [f"functions.read:{0 if begins_anew else number}" for number in range(40)]
    script = [say(tool_use("read", {"path": f"f{n}.py"}, id=id)) for n, id in enumerate(ids)]
    async with served([*script, "Done."]) as (model, statistics), Session.in_memory(settings=SMALL) as session:
        agent = agent_of(model, PerdureCapability(session, persistent=persistent))
        assert (await agent.run("Read all.", usage_limits=ANY)).output == "Done."
        assert statistics.refused == 0 and statistics.requests == 41


async def test_nothing_that_is_said_ends_a_run() -> None:
    """LIB-4, SEC-1: what a model makes of a call, what a tool finds on disk, pictures that only some models take."""
    script: list[Any] = [
        ToolCallPart("find", '{"depth": NaN}', "c|1"),
        ToolCallPart("recall", "[]", "c2"),
        ToolCallPart("x" * 300, "{", ""),
        ToolCallPart("find", {}, "c4"),
    ]

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([script.pop(0) if script else TextPart("Done.")])

    def find(depth: float = 1) -> str:
        return "caf\udce9.txt"

    svg = BinaryContent(b"<svg/>", media_type="image/svg+xml")
    async with Session.in_memory() as session:
        agent = Agent(FunctionModel(answer), tools=[find], capabilities=[PerdureCapability(session)], retries=5)
        result = await agent.run([svg, "Look, \ud83d."])
        said = str(session.messages("anthropic"))
        assert result.output == "Done." and "caf?.txt" in said and "[a picture: image/svg+xml]" in said
        assert "'depth': 'NaN'" in said


async def test_a_run_is_streamed() -> None:
    """LIB-4: as a stream, too."""
    async with served([*reads(30), "Done."]) as (model, statistics), Session.in_memory(settings=SMALL) as session:
        agent = agent_of(model, PerdureCapability(session))
        async with agent.run_stream("Read all.", usage_limits=ANY) as result:
            assert await result.get_output() == "Done."
        assert statistics.refused == 0


async def test_a_conversation_goes_on_in_another_run(tmp_path: Path) -> None:
    """LIB-4, ENG-5: the history that one run gave the next, or another process, is known: nothing is said twice."""
    history: list[ModelMessage] = []
    async with served([*reads(12), "Done.", *reads(12, 12), "Done again."]) as (model, statistics):
        for number, prompt in enumerate(("Read.", "Read more.")):
            make = Session.open if number else Session.create
            given: Any = {"home": tmp_path / "home", "settings": SMALL}
            opening = make("thread", **given) if number else Session.create(tmp_path, id="thread", **given)
            async with opening as session:
                agent = agent_of(model, PerdureCapability(session, persistent=True))
                result = await agent.run(prompt, message_history=history, usage_limits=ANY)
                history, said = result.all_messages(), session.view.state.messages
        assert result.output == "Done again." and statistics.refused == 0
        assert said <= 54


@pytest.mark.parametrize("api", ["anthropic", "chat", "responses"])
async def test_a_prompt_that_is_too_long_is_compacted_and_asked_again(api: Api) -> None:
    """LIB-4, TURN-11: the window is smaller than anybody said; other errors are the run's."""
    async with served([*reads(20), "Done."], api, 16_000) as (model, statistics), Session.in_memory() as session:
        result = await agent_of(model, PerdureCapability(session)).run("Read.", usage_limits=ANY)
        assert result.output == "Done." and 1 <= statistics.refused <= 2 and session.limits.window < 17_000
    broken = [UpstreamError(401, "authentication_error", "no key")]
    async with served(broken, api) as (model, _), Session.in_memory() as session:
        with pytest.raises(ModelHTTPError, match="no key"):
            await agent_of(model, PerdureCapability(session)).run("Read.")


async def test_what_was_cleared_is_recalled_by_the_tool() -> None:
    """LIB-4, RCL-3."""
    script = [*reads(30), say(tool_use("recall", {"query": "f2.py"})), "Done."]
    async with served(script) as (model, _), Session.in_memory(settings=SMALL) as session:
        result = await agent_of(model, PerdureCapability(session)).run("Read.", usage_limits=ANY)
        returns = [
            part for message in result.all_messages() for part in message.parts if part.part_kind == "tool-return"
        ]
        assert returns[-1].tool_name == "recall" and "a line of f2.py" in returns[-1].content


def test_an_agent_without_an_event_loop() -> None:
    """LIB-4, LIB-5: `run_sync`, with a session of `perdure.sync`."""
    calls = 0

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        nonlocal calls
        calls += 1
        assert len(str(messages)) < 4 * WINDOW and {tool.name for tool in info.function_tools} == {"read", "recall"}
        if calls == 40:
            return ModelResponse([ToolCallPart("recall", {"query": "f2.py"})])
        return ModelResponse([TextPart("Done.") if calls > 40 else ToolCallPart("read", {"path": f"f{calls}.py"})])

    with asyncio.Runner() as runner, sync.Session.in_memory(settings=SMALL) as session:
        asyncio.set_event_loop(runner.get_loop())  # else `run_sync` makes one that nobody closes
        try:
            result = agent_of(FunctionModel(answer), PerdureCapability(session)).run_sync("Read.", usage_limits=ANY)
        finally:
            asyncio.set_event_loop(None)
        assert result.output == "Done." and "a line of f2.py" in str(result.all_messages()[-2])


async def test_messages_keep_what_only_the_framework_knows() -> None:
    """LIB-4, GW-7: a result that is shortened keeps its name, metadata and call; all else goes as it came."""
    pixel = BinaryContent(b"\x89PNG\r\n", media_type="image/png")
    history: list[ModelMessage] = [
        ModelRequest([SystemPromptPart("Be brief."), UserPromptPart(["Look.", pixel])]),
        ModelResponse([ThinkingPart("hm", signature="s"), TextPart("So.")]),
        ModelRequest([UserPromptPart("Go on.")]),
        ModelResponse([ToolCallPart("read", {"path": "a"}, "c1"), ToolCallPart("read", {"path": "b"}, "c2")]),
        ModelRequest(
            [
                ToolReturnPart("read", "x" * 200_000, "c1", metadata={"raw": 1}),
                ToolReturnPart("read", {"short": True}, "c2"),
            ]
        ),
    ]
    seen = list[list[ModelMessage]]()

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(messages)
        return ModelResponse([TextPart("Done.")])

    async with Session.in_memory(settings=SMALL) as session:
        agent = agent_of(FunctionModel(answer), PerdureCapability(session))
        await agent.run(message_history=history)
        (sent,) = seen
        assert [one.parts for one in sent[:4]] == [one.parts for one in history[:4]]
        cut, short = (part for part in sent[4].parts if isinstance(part, ToolReturnPart))
        assert len(str(cut.content)) < 20_000 and "recall" in str(cut.content)
        assert (cut.tool_name, cut.tool_call_id, cut.metadata) == ("read", "c1", {"raw": 1})
        assert short.content == {"short": True}
        assert session.view.front is not None and b"Be brief." in bytes(session.view.front.system[-1])


@pytest.mark.parametrize("persistent", [False, True])
async def test_a_pydantic_ai_that_asks_nothing_again(*, persistent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding L4: 2.62 has no `RetryModelRequest`, and prepares a request once: the adapter asks again by itself."""
    found = importlib.util.find_spec("perdure.integrations.pydantic_ai")
    assert found is not None and found.origin is not None and found.loader is not None
    spec = importlib.util.spec_from_file_location("older_adapter", found.origin)
    assert spec is not None and spec.loader is not None
    older = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "older_adapter", older)
    with monkeypatch.context() as patched:
        patched.delattr(exceptions, "RetryModelRequest")
        spec.loader.exec_module(older)
    refused = UpstreamError(400, "invalid_request_error", f"prompt is too long: {WINDOW * 2} tokens > {WINDOW} maximum")
    async with (
        served([*reads(30), refused, "Done."]) as (model, statistics),
        Session.in_memory(settings=SMALL) as session,
    ):
        agent = Agent(model, capabilities=[older.PerdureCapability(session, persistent=persistent)], tools=[read])
        result = await agent.run("Read all the files.", usage_limits=ANY)
        assert result.output == "Done."
        assert not statistics.violations
