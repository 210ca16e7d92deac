"""TURN-15, GW-2: a client's loop of tools far beyond the window, under one prompt, whose model thinks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.gateways import WINDOW, fake, in_loop, serving
from tests.tiers import NIGHTLY

from perdure.events import CompactionDone
from perdure.settings import Settings
from perdure.testing import FakeUpstream, ModelRules, say, text, thinking, tool_use

pytestmark = pytest.mark.e2e
TOOLS: list[Any] = [{"name": "Read", "input_schema": {"type": "object"}}]
BY_HAND = {"type": "enabled", "budget_tokens": 1_024}
# Fewer calls fill a smaller window as often: those before and those after the gateway starts anew.
SIZE, LINES, CALLS = (WINDOW, 400, (70, 60)) if NIGHTLY else (WINDOW * 4 // 10, 240, (45, 40))

MODES = {"adaptive": {"type": "adaptive"}, "by hand": BY_HAND}
EACH = [
    pytest.param(model, mode, id=f"{name}-{model}")
    for number, model in enumerate(("claude-opus-5-5", "claude-opus-4-5", "nobody/knows-it"))
    for place, (name, mode) in enumerate(MODES.items())
    if NIGHTLY or number % 2 == place
]  # in CI each model in one of the modes


class Thinker(FakeUpstream):
    """Calls a tool each time. With thinking switched on by hand it thinks at the beginning of a turn only."""

    def respond(self, body: bytes, **more: Any) -> Any:
        asked = msgspec.json.decode(body)
        number = self.statistics.answered
        has_results = any(block["type"] == "tool_result" for block in asked["messages"][-1]["content"])
        is_silent = has_results and asked["thinking"]["type"] == "enabled"
        thought = [] if is_silent else [thinking(f"What does {number} hold?")]
        call = tool_use("Read", {"file_path": f"src/file_{number}.py"})
        return super().respond(body, reply=say(*thought, text(f"Reading {number}."), call), session="s", **more)


@pytest.mark.quick(1)
@pytest.mark.parametrize(("model", "mode"), EACH)
@in_loop
async def test_a_loop_beyond_the_window(tmp_path: Path, model: str, mode: dict[str, Any]) -> None:
    """TURN-15, GW-2: many calls for one prompt, and the gateway starts anew in the middle; nothing is refused."""
    is_bound = model != "claude-opus-4-5"
    upstream = Thinker(
        rules=ModelRules(window_tokens=SIZE), binding="error" if is_bound else "off", leading_may_go=False
    )
    messages: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "Read all files."}]}]
    settings, compactions = Settings(window_tokens=SIZE, durability="process"), 0
    async with fake(upstream) as server:
        for calls in CALLS:
            async with serving(tmp_path, server, settings=settings) as at:
                client = at.claude(max_retries=0)
                for n in range(calls):
                    said = await client.messages.create(
                        model=model, max_tokens=4_000, messages=messages, tools=TOOLS, thinking=mode
                    )
                    messages.append({"role": "assistant", "content": [block.to_dict() for block in said.content]})
                    result = f"line of file {n}: value_{n} = {n * 7}\n" * LINES
                    uses = [block for block in said.content if block.type == "tool_use"]
                    block = {"type": "tool_result", "tool_use_id": uses[0].id, "content": result}
                    messages.append({"role": "user", "content": [block]})
                compactions += sum(isinstance(event, CompactionDone) for event in at.sink.events)
    stats = upstream.statistics
    assert stats.refused == 0 and not stats.violations, stats.violations
    # Thinking that stands before all results holds when they are cleared.
    assert stats.answered == sum(CALLS) and stats.prefix_moves and (compactions > 0 or not is_bound or mode is BY_HAND)
