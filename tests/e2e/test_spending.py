"""A cap of one dollar stops whatever runs away: the conversation, its sub-agents, the work beside it (OBS-2)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agents import bench, calls
from tests.commands import command
from tests.terminals import environment

from perdure import Session, Settings
from perdure.context.replies import Delta, Reply
from perdure.context.request import ModelRequest
from perdure.engine.ask import JobModels
from perdure.engine.session import Services
from perdure.errors import SpendingCapReached
from perdure.events import ModelCalled, ModelFailed
from perdure.testing import FakeServer, FakeUpstream, ModelRules, ScriptedModel, say, text, tool_use
from perdure.transcript.messages import Usage

pytestmark = pytest.mark.e2e

PRICED = "claude-sonnet-4-5"  # 3 and 15 dollars for a million tokens
DEAR = Usage(input_tokens=20_000, output_tokens=1_000)  # $0.075


class DearModel(ScriptedModel):
    """Says what it is told by a function, and every answer costs 7.5 cents."""

    def __init__(self, answer: Any, *, id: str = PRICED) -> None:
        super().__init__(upstream=FakeUpstream(rules=ModelRules(window_tokens=200_000)), id=id)
        self.answer = answer

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        self.upstream.script.append(self.answer(request))
        async for delta in super().stream(request):
            yield replace(delta, billed=DEAR) if isinstance(delta, Reply) else delta


def paid(events: list[Any]) -> float:
    return sum(event.usd or 0.0 for event in events if isinstance(event, ModelCalled))


def test_a_conversation_that_runs_away_stops_at_its_cap(tmp_path: Path) -> None:
    """OBS-2: a model that calls tools for ever; the error says so, and the session goes on once the cap is raised."""

    async def body() -> None:
        model = DearModel(lambda request: calls(("Bash", {"command": "true"})))
        made = await bench(tmp_path / "p", model=model, home=tmp_path / "home", settings={"session_cap_usd": 1.0})
        with pytest.raises(SpendingCapReached, match=r"the cap of \$1.00 is reached: this session has cost \$0.98"):
            await made.agent.say("go on for ever")
        with pytest.raises(SpendingCapReached):
            await made.agent.say("and once more")
        assert 0.9 < paid(made.sink.events) <= 1.0
        identity = made.agent.session.id
        await made.agent.close()
        again = await bench(
            tmp_path / "p",
            model=DearModel(lambda request: "done"),
            home=tmp_path / "home",
            resume=identity,
            settings={"session_cap_usd": 2.0},
        )
        assert (await again.agent.say("is it still there?")).stopped == "done"
        await again.agent.close()

    anyio.run(body)


def test_sub_agents_that_run_away_stop_at_the_cap_of_their_session(tmp_path: Path) -> None:
    """OBS-2: sub-agents count with the session that they belong to, in front and in the background."""

    def answer(request: ModelRequest) -> Any:
        task = {"description": "more", "prompt": "go on for ever", "subagent_type": "general-purpose"}
        if b'"name":"Task"' in request.body:
            return calls(("Task", task), ("Task", {**task, "run_in_background": True}))
        return calls(("Bash", {"command": "true"}))

    async def body() -> None:
        model = DearModel(answer)
        made = await bench(tmp_path / "p", model=model, home=tmp_path / "home", settings={"session_cap_usd": 1.0})
        with pytest.raises(SpendingCapReached):
            await made.agent.say("have it done")
        await anyio.sleep(1)  # what still runs in the background meets the cap as well
        await made.agent.close()
        assert 0.9 < len(model.requests) * 0.075 <= 1.0  # though several run at a time

    anyio.run(body)


def test_helpers_that_run_away_stop_at_the_cap(tmp_path: Path) -> None:
    """OBS-2: notes and extraction by a model stop at the cap; the conversation with a free model goes on."""

    async def body() -> None:
        helper = DearModel(lambda request: say(text("I look."), tool_use("Read", {"file_path": "x"})))
        settings = {"session_cap_usd": 1.0, "notes_first_tokens": 1, "notes_growth_tokens": 1, "notes_calls": 0}
        free = ScriptedModel(id="offline")
        given = Services(helpers=JobModels(notes=(helper,), extractor=(helper,)))
        async with Session.create(tmp_path, home=tmp_path / "home", settings=settings, services=given) as session:
            for n in range(40):
                await session.run(f"prompt {n} " + "word " * 3_000, free)
        assert 0.9 < len(helper.requests) * 0.075 <= 1.0

    anyio.run(body)


def test_a_cap_and_a_model_without_a_price(tmp_path: Path) -> None:
    """OBS-2: what can't be counted isn't called, in one line that says what to do; in memory as on disk."""

    async def body() -> None:
        async with Session.in_memory(settings={"day_cap_usd": 5}) as session:
            with pytest.raises(SpendingCapReached, match="the prices of scripted aren't known"):
                await session.run("Hello", ScriptedModel())

    anyio.run(body)


def test_without_a_cap_nothing_is_written(tmp_path: Path) -> None:
    async def body() -> None:
        made = await bench(tmp_path / "p", model=DearModel(lambda request: "done"), home=tmp_path / "home")
        await made.agent.say("hello")
        await made.agent.close()
        assert not (tmp_path / "home" / "spending").exists()
        assert Settings().session_cap_usd is None

    anyio.run(body)


def test_background_work_that_is_refused_is_told(tmp_path: Path) -> None:
    """OBS-2: a stop is an event, with its job."""

    async def body() -> None:
        model = DearModel(lambda request: "done")
        made = await bench(tmp_path / "p", model=model, home=tmp_path / "home", settings={"session_cap_usd": 0.05})
        await made.agent.say("hello")
        with pytest.raises(SpendingCapReached):
            await made.agent.say("hello again")
        (failed,) = made.events(ModelFailed)
        assert (failed.job, failed.reason) == ("main", "spending_cap")
        await made.agent.close()

    anyio.run(body)


def test_a_command_says_the_stop_in_one_line(tmp_path: Path) -> None:
    """OBS-2: `run` ends with what was spent and what to do; once the cap is raised, it answers."""
    with FakeServer() as server:
        words = ("run", "hello", "--trust", "--model", f"anthropic:claude-sonnet-4-6@{server.url}")
        env = environment(tmp_path, ANTHROPIC_API_KEY="k")
        stopped = command(*words, "--set", "session_cap_usd=0.00001", cwd=tmp_path, env=env)
        assert stopped.returncode == 1 and stopped.stderr.count("\n") == 1 and not server.received
        assert "the cap of $1e-05 is reached: this session has cost $0.00" in stopped.stderr
        assert stopped.stderr.endswith("raise session_cap_usd to go on\n")
        assert command(*words, "--set", "session_cap_usd=1", cwd=tmp_path, env=env).stdout == "ok\n"
