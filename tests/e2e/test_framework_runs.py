"""LIB-4: the same script in each framework, with and without Perdure, as `bench/adapters.py` measures it."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from bench.adapters import AGENTS, APART, run

from perdure.errors import BadSetting
from perdure.sync import Session

# In one worker: each framework takes seconds to import, which happens in the test.
pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("frameworks")]
TURNS, TOKENS, WINDOW = 24, 900, 12_000
PACKAGES = {"LangChain": "langchain", "OpenAI Agents": "agents", "Pydantic AI": "pydantic_ai"}
OURS = [name for name in AGENTS if not name.startswith(APART) and "Perdure" in name]
THEIRS = [name for name in AGENTS if not name.startswith(APART) and "Perdure" not in name]


def needs_framework(name: str) -> None:
    """Skip the test where the framework isn't installed."""
    for framework, package in PACKAGES.items():
        if name.startswith(framework):
            pytest.importorskip(package)


@pytest.mark.parametrize("name", OURS)
def test_a_script_ends_with_us(name: str) -> None:
    """LIB-4, GOAL: no request is refused, none exceeds the window, and all is priced."""
    needs_framework(name)
    outcome = run(name, TURNS, TOKENS, WINDOW, "claude-sonnet-5-5")
    assert outcome.invalid == 0 and outcome.usd > 0 and outcome.largest < WINDOW
    assert outcome.ended == "done" and outcome.turns == outcome.requests == TURNS + 1


@pytest.mark.nightly
@pytest.mark.parametrize("name", THEIRS)
def test_a_script_dies_at_the_window_without(name: str) -> None:
    """LIB-4, GOAL: without Perdure the same script meets the window."""
    needs_framework(name)
    outcome = run(name, TURNS, TOKENS, WINDOW, "claude-sonnet-5-5")
    assert outcome.invalid == 0 and outcome.usd > 0 and outcome.largest < WINDOW
    assert outcome.ended.startswith("died at the window") and outcome.turns < TURNS


def test_the_name_of_a_conversation_is_no_path(tmp_path: Path) -> None:
    """LIB-4, SEC-7: names may come from a request: none leads to what somebody else said (OpenAI Agents)."""
    pytest.importorskip("agents")
    from perdure.integrations.openai_agents import PerdureSession

    def memory_of(name: str) -> PerdureSession:
        return PerdureSession(name, tmp_path, home=tmp_path / "home")

    async def body() -> None:
        async with memory_of("conversation-1") as memory:
            await memory.add_items([{"role": "user", "content": "secret"}])
        (journal,) = (tmp_path / "home").rglob("journal.jsonl")
        odd = (str(journal.parent), str(journal), "../conversation-1", "conversation", "Conversation-1", "ann@x.org")
        for name in odd:
            for times in (0, 1):
                async with memory_of(name) as memory:
                    said = await memory.get_items()
                    assert len(said) == times and "secret" not in str(said) and str(said).count(f"'{name}'") == times
                    await memory.add_items([] if said else [{"role": "user", "content": name}])
        with pytest.raises(BadSetting, match="is empty"):
            await memory_of("").__aenter__()
        found = [*(tmp_path / "home").rglob("journal.jsonl")]
        assert len(found) == 7 == len([*journal.parents[1].glob("*/journal.jsonl")])

    asyncio.run(body())


def test_runs_of_one_thread_at_once_dont_mix(tmp_path: Path) -> None:
    """LIB-4: a web server may begin a second run of a conversation while the first is at work; each asks its own
    (LangChain)."""
    pytest.importorskip("langchain")
    from langchain.agents.middleware import ModelRequest, ModelResponse
    from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

    from perdure.integrations.langchain import PerdureMiddleware

    middleware = PerdureMiddleware(tmp_path, home=tmp_path / "home")
    state: Any = {"perdure_session": "shared"}
    asked: list[tuple[int, list[Any]]] = []

    def run(number: int) -> None:
        history: list[BaseMessage] = []
        for turn in range(8):
            history.append(HumanMessage(f"run {number}, turn {turn}"))
            request: Any = ModelRequest(model=FakeMessagesListChatModel(responses=[]), messages=[*history], state=state)
            history += middleware.wrap_model_call(request, lambda sent: answered(number, sent)).result  # type: ignore[union-attr]
            middleware.after_agent({**state, "messages": history}, None)

    def answered(number: int, sent: Any) -> ModelResponse[Any]:
        asked.append((number, [message.content for message in sent.messages]))
        return ModelResponse([AIMessage(f"answer to run {number}")])

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(run, number) for number in range(4)]:
            done.result()
    assert len(asked) == 32
    for number, said in asked:
        assert said[-1].startswith(f"run {number}, turn ") and all(f"run {number}" in one for one in said)
    with Session.open("shared", home=tmp_path / "home"):
        pass  # the last run let go of it
