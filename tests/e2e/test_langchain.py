"""LIB-4: `PerdureMiddleware` in LangChain's own agent, before a server that checks every request."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import SessionBusy
from perdure.sync import Session
from perdure.testing import FakeUpstream, ModelRules, UpstreamError, say, tool_use

pytest.importorskip("langchain")
from bench.frameworks.langchain_server import ServerModel
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from perdure.integrations.langchain import PerdureMiddleware

pytestmark = pytest.mark.e2e
WINDOW = 24_000


def read(path: str) -> str:
    """Read a file."""
    return f"a line of {path}\n" * 300


def model(script: list[Any], window: int = WINDOW, **more: Any) -> ServerModel:
    upstream = FakeUpstream(script=script, rules=ModelRules(window_tokens=window))
    return ServerModel(upstream=upstream, **more)


def reads(count: int, first: int = 0) -> list[Any]:
    return [say(tool_use("read", {"path": f"f{n}.py"})) for n in range(first, first + count)]


def agent_of(server: ServerModel, *middleware: Any, **more: Any) -> Any:
    return create_agent(server, tools=[read], system_prompt="You read files.", middleware=middleware, **more)


ASKED = {"messages": [HumanMessage("Read all of them.")]}
LONG = {"recursion_limit": 1_000}


@pytest.mark.parametrize("persistent", [False, True], ids=["request-only", "persistent"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_an_agent_goes_on_past_its_window(tmp_path: Path, *, persistent: bool, is_async: bool) -> None:
    """LIB-4, GOAL: 60 results of 2,000 tokens go through a window of 24,000."""
    server = model([*reads(60), "Done."])
    middleware = PerdureMiddleware(
        tmp_path, home=tmp_path / "home", settings={"window_tokens": WINDOW}, persistent=persistent
    )
    agent = agent_of(server, middleware)
    said = asyncio.run(agent.ainvoke(ASKED, LONG)) if is_async else agent.invoke(ASKED, LONG)
    assert said["messages"][-1].content == "Done."
    assert server.upstream.statistics.refused == 0 and server.upstream.statistics.requests == 61
    whole = "".join(str(message.content) for message in said["messages"])
    assert ("a line of f3.py\n" * 300 in whole) is not persistent
    assert len(said["messages"]) == 122 or persistent
    ids = [message.id for message in said["messages"]]
    assert None not in ids and len(set(ids)) == len(ids)


def test_what_was_cleared_is_recalled_by_the_tool(tmp_path: Path) -> None:
    """LIB-4, RCL-3: what stands in the place of a result names the tool that the model has, and it answers."""
    server = model([*reads(30), say(tool_use("recall", {"query": "f2.py"})), "Done."])
    agent = agent_of(server, PerdureMiddleware(tmp_path, home=tmp_path / "home", settings={"window_tokens": WINDOW}))
    said = agent.invoke(ASKED, LONG)
    assert "a line of f2.py" in said["messages"][-2].content and said["messages"][-2].name == "recall"
    assert "perdure_session" not in said


def test_a_thread_goes_on_with_its_session(tmp_path: Path) -> None:
    """LIB-4, ENG-5: with a checkpointer, another run, also of another process, says nothing twice."""
    saver, script = InMemorySaver(), [*reads(10), "Done.", *reads(10, 10), "Done again."]
    server, config = model(script), {"configurable": {"thread_id": "t"}, **LONG}
    for prompt in ("Read ten.", "Read ten more."):
        middleware = PerdureMiddleware(tmp_path, home=tmp_path / "home", settings={"window_tokens": WINDOW})
        agent = agent_of(server, middleware, checkpointer=saver)
        said = agent.invoke({"messages": [HumanMessage(prompt)]}, config)
    assert said["messages"][-1].content == "Done again."
    (state,) = [agent.get_state(config).values["perdure_session"]]
    with Session.open(state, home=tmp_path / "home") as session:
        prompts = [one for one in session.messages("openai") if one["role"] == "user"]
        assert session.view.state.messages >= 44
    assert [one["content"] for one in prompts][-1].startswith("Read ten more.")
    assert server.upstream.statistics.refused == 0


def test_an_edited_thread_goes_back(tmp_path: Path) -> None:
    """LIB-4: a state that was edited in the checkpointer is what counts."""
    saver, server = InMemorySaver(), model([*reads(3), "Done.", "Gone back."])
    config = {"configurable": {"thread_id": "t"}, **LONG}
    agent = agent_of(server, PerdureMiddleware(tmp_path, home=tmp_path / "home"), checkpointer=saver)
    agent.invoke(ASKED, config)
    early = next(one for one in agent.get_state_history(config) if len(one.values.get("messages", [])) == 3)
    agent.invoke({"messages": [HumanMessage("Stop there.")]}, early.config)
    with Session.open(agent.get_state(config).values["perdure_session"], home=tmp_path / "home") as session:
        assert [one["role"] for one in session.messages("openai")][-4:] == ["assistant", "tool", "user", "assistant"]


@pytest.mark.parametrize("overflow", [ContextOverflowError, RuntimeError])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_prompt_that_is_too_long_is_compacted_and_asked_again(
    tmp_path: Path, overflow: type[Exception], *, is_async: bool
) -> None:
    """LIB-4, TURN-11: the window is smaller than anybody said; other errors are the agent's."""
    server = model([*reads(20), "Done."], window=16_000, overflow=overflow)
    agent = agent_of(server, PerdureMiddleware(tmp_path, home=tmp_path / "home"))
    said = asyncio.run(agent.ainvoke(ASKED, LONG)) if is_async else agent.invoke(ASKED, LONG)
    assert said["messages"][-1].content == "Done." and 1 <= server.upstream.statistics.refused <= 2
    broken = model([UpstreamError(401, "authentication_error", "no key")])
    middleware = PerdureMiddleware(tmp_path, home=tmp_path / "home")
    with pytest.raises(UpstreamError, match="no key"):
        agent_of(broken, middleware).invoke(ASKED, LONG)
    middleware.close()  # a run that failed keeps its session open, to go on


def test_messages_keep_what_only_langchain_knows(tmp_path: Path) -> None:
    """LIB-4, GW-7: a result that is shortened keeps its name, id and artifact; images go as they came."""
    pixel = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    history = [
        HumanMessage([{"type": "text", "text": "Look."}, pixel], id="h1"),
        AIMessage([{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "So."}], id="a1"),
        HumanMessage("Go on.", id="h2"),
        AIMessage("", tool_calls=[{"id": "c1", "name": "read", "args": {}}], id="a2"),
        ToolMessage("x" * 200_000, tool_call_id="c1", name="read", artifact={"raw": 1}, id="r1"),
    ]
    seen = list[list[BaseMessage]]()

    class Spy(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            seen.append(list(request.messages))
            return AIMessage("Done.")

    middleware = PerdureMiddleware(tmp_path, home=tmp_path / "home", settings={"window_tokens": WINDOW})
    agent_of(model([]), middleware, Spy()).invoke({"messages": history})
    (sent,) = seen
    assert [message.id for message in sent] == ["h1", "a1", "h2", "a2", "r1"]
    assert sent[0].content == history[0].content and sent[1].content == history[1].content
    result = sent[-1]
    assert isinstance(result, ToolMessage) and len(str(result.content)) < 20_000 and "recall" in str(result.content)
    assert result.name == "read" and result.artifact == {"raw": 1}


def test_calls_whose_ids_begin_anew_keep_their_results(tmp_path: Path) -> None:
    """LIB-4: small servers count their calls anew with each answer; a copy of either side names the other."""
    history: list[BaseMessage] = [HumanMessage("Read.")]
    for number in range(2):
        call: Any = {"id": "call_0", "name": "read", "args": {"path": f"f{number}.py"}}
        history += [AIMessage("", tool_calls=[call]), ToolMessage(read(f"f{number}.py"), tool_call_id="call_0")]
    server = model(["Done."])
    agent_of(server, PerdureMiddleware(tmp_path, home=tmp_path / "home")).invoke({"messages": history})
    assert server.upstream.statistics.refused == 0


@pytest.mark.parametrize("persistent", [False, True], ids=["request-only", "persistent"])
@pytest.mark.parametrize("begins_anew", [False, True])
def test_ids_that_not_every_api_takes_are_those_of_their_calls(
    tmp_path: Path, *, persistent: bool, begins_anew: bool
) -> None:
    """LIB-4, GW-7: such as Kimi's; a result that was shortened still names its call."""
    ids = [f"functions.read:{0 if begins_anew else number}" for number in range(40)]
    script = [say(tool_use("read", {"path": f"f{n}.py"}, id=id)) for n, id in enumerate(ids)]
    server = model([*script, "Done."])
    settings = {"window_tokens": WINDOW}
    middleware = PerdureMiddleware(tmp_path, home=tmp_path / "home", settings=settings, persistent=persistent)
    assert agent_of(server, middleware).invoke(ASKED, LONG)["messages"][-1].content == "Done."
    assert server.upstream.statistics.refused == 0 and server.upstream.statistics.requests == 41


def test_nothing_that_is_said_ends_a_run(tmp_path: Path) -> None:
    """LIB-4, SEC-1: what a model makes of a call, what a tool finds on disk, pictures that only some models take."""
    svg: Any = {"type": "image", "base64": "AAAA", "mime_type": "image/svg+xml"}
    broken: Any = {"type": "invalid_tool_call", "id": None, "name": None, "args": None, "error": "no JSON"}
    unnamed: Any = [{"id": "", "name": "read", "args": {"path": "a"}}, {"id": "c1", "name": "", "args": {}}]
    history: list[BaseMessage] = [
        HumanMessage([svg, {"type": "text", "text": "Look."}]),
        AIMessage("", invalid_tool_calls=[broken]),
        HumanMessage("Once more, \ud83d."),
        AIMessage("", tool_calls=unnamed),
        ToolMessage("caf\udce9.txt", tool_call_id=""),
        ToolMessage("unknown tool", tool_call_id="c1"),
    ]
    said = FakeMessagesListChatModel(responses=[AIMessage("Done.")])
    run = create_agent(said, middleware=[PerdureMiddleware(tmp_path, home=tmp_path / "home", recall=False)])
    messages = run.invoke({"messages": history})["messages"]
    assert messages[-1].content == "Done." and messages[-3].content == "caf\udce9.txt"


def test_a_run_that_was_interrupted_is_resumed(tmp_path: Path) -> None:
    """LIB-4: stopped before its tools, and gone on with by another middleware, as in another process."""
    saver, server = InMemorySaver(), model([*reads(2), "Done."])
    config = {"configurable": {"thread_id": "t"}, **LONG}
    given: Any = {"home": tmp_path / "home"}
    first = PerdureMiddleware(tmp_path, **given)
    agent = agent_of(server, first, checkpointer=saver, interrupt_before=["tools"])
    agent.invoke(ASKED, config)
    id = agent.get_state(config).values["perdure_session"]
    with pytest.raises(SessionBusy):
        Session.open(id, home=tmp_path / "home")
    first.close()
    agent = agent_of(server, PerdureMiddleware(tmp_path, **given), checkpointer=saver)
    assert agent.invoke(None, config)["messages"][-1].content == "Done."
    with Session.open(id, home=tmp_path / "home") as session:
        assert [one["role"] for one in session.messages("openai")] == [
            *("system", "user", "assistant", "tool", "assistant", "tool", "assistant")
        ]


def test_several_conversations_and_an_event_loop_at_once(tmp_path: Path) -> None:
    """LIB-4: one middleware serves many conversations, in threads, and where a loop runs as it does in notebooks."""
    middleware = PerdureMiddleware(tmp_path, home=tmp_path / "home", settings={"window_tokens": WINDOW})

    def held(number: int) -> str:
        agent = agent_of(model([*reads(14, number), "Done."]), middleware)
        said = agent.invoke({"messages": [HumanMessage(f"Conversation {number}.")]}, LONG)["messages"]
        assert [one.content for one in said if one.type == "human"] == [f"Conversation {number}."]
        return str(said[-1].content)

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(held, range(4))) == ["Done."] * 4

    async def in_a_notebook() -> str:
        return held(9)

    assert asyncio.run(in_a_notebook()) == "Done."
