"""TURN-17: a client with a large system prompt in a small window, and tools that no list of names knows (G8, G9)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.gateways import CodingClient, config_of, fake, in_loop, serving

from perdure.events import CompactionDone, ResultsCleared
from perdure.settings import Settings
from perdure.testing import FakeUpstream, ModelRules, say, tool_use

pytestmark = pytest.mark.e2e
CALLS, WINDOW = 98, 60_000
FRONT = "Rules for all that you do here, and why. " * 1_900  # about 19,000 tokens


@pytest.mark.quick(1)
@pytest.mark.parametrize("tool", ["shell_command", "Task"])
@in_loop
async def test_a_small_window_with_a_large_front(tmp_path: Path, tool: str) -> None:
    """TURN-17: old results give room, as far as they can be had again; what is compacted keeps more than a stub."""
    tools: list[Any] = [{"name": tool, "input_schema": {"type": "object"}}]
    script = [say(tool_use(tool, {"n": n}, id=f"t{n}")) for n in range(CALLS)]
    upstream = FakeUpstream(rules=ModelRules(window_tokens=WINDOW), script=script)
    config = partial(config_of, tmp_path, settings=Settings(window_tokens=WINDOW, durability="process"))
    async with fake(upstream) as server, serving(tmp_path, server, config=config(server.url)) as at:
        client = at.claude(max_retries=0)
        messages: list[Any] = [{"role": "user", "content": "Fix all of it."}]
        for n in range(CALLS):
            answer = await client.messages.create(
                model="fake-model", max_tokens=500, messages=messages, tools=tools, system=FRONT
            )
            messages.append({"role": "assistant", "content": [block.model_dump() for block in answer.content]})
            output = "\n".join(f"{n} line {line}: value {line * 7919 % 10_007}" for line in range(150))
            result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": output}
            messages.append({"role": "user", "content": [result]})
        compactions = [event for event in at.sink.events if isinstance(event, CompactionDone)]
        clearings = [event for event in at.sink.events if isinstance(event, ResultsCleared)]
        assert not upstream.statistics.violations and len(at.held) == 1
        if tool == "Task":
            assert not clearings and compactions and all(event.kept_tokens >= 2_500 for event in compactions)
        else:
            assert len(clearings) > 3 and not compactions


@pytest.mark.quick(1)
@pytest.mark.parametrize("wire", ["anthropic", "openai"])  # Responses' refusal states no number
@in_loop
async def test_a_window_that_is_set_too_large_is_put_right_by_the_first_refusal(tmp_path: Path, wire: str) -> None:
    """PRS-8, TOK-4: the setting says 400,000, the server refuses with its 20,000; the client sees neither."""
    upstream = FakeUpstream(rules=ModelRules(window_tokens=20_000))
    settings = Settings(window_tokens=400_000, durability="process")
    async with fake(upstream) as server:
        config = config_of(tmp_path, server.url, settings=settings)
        async with serving(tmp_path, server, config=config) as at:
            client = CodingClient(at, wire, is_stream=False)
            for n in range(40):
                assert (await client.say(f"Remark {n}: keep it short. " * 250))[0] == "ok"
            limits = at.held[0].session.limits
            assert (limits.window, limits.window_source) == (20_000, "provider")
            assert upstream.statistics.violations == {"window": 1}, "it was learned from one"
