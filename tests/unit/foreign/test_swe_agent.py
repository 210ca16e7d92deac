"""SWE-agent and mini-swe-agent runs become recordings (ENG-6)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.logs.recording import Recording
from perdure.logs.swe_agent import read
from perdure.transcript.messages import Usage

pytestmark = pytest.mark.unit


def one(value: Any) -> Recording:
    (recording,) = read(json.dumps(value).encode(), "run.traj")
    return recording


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def mini(*messages: dict[str, Any]) -> Recording:
    return one({"info": {}, "messages": list(messages), "trajectory_format": "mini-swe-agent-1", "instance_id": "x-1"})


ASK = (said("system", "You act."), said("user", "Fix it."))
ACT = "THOUGHT: look\n\n```bash\nls -l\n```"


def test_a_mini_observation_is_a_result() -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 60}}
    extra = {"response": {"id": "gen-1", "model": "gem", "usage": usage}}
    got = mini(
        *ASK, said("assistant", ACT, extra=extra), said("user", "<returncode>1</returncode>\n<output>x</output>")
    )
    assert (got.format, got.session, got.model, len(got.front.system)) == ("mini-swe-agent", "x-1", "gem", 1)
    prompt, act, seen = got.messages
    assert [prompt.origin, act.origin, seen.origin] == ["user", "model", "tool"]
    assert act.blocks[0].value.text == "THOUGHT: look"  # type: ignore[union-attr]
    (use,) = act.tool_uses
    assert (use.id, use.name, use.input) == ("call-3", "Bash", {"command": "ls -l"})
    assert seen.tool_results[0].tool_use_id == "call-3" and seen.tool_results[0].is_error
    assert act.usage == Usage(input_tokens=40, output_tokens=7, cache_read_input_tokens=60)
    assert act.response_id == "gen-1"


def test_two_commands_are_none_and_the_complaint_is_no_prompt() -> None:
    got = mini(
        *ASK, said("assistant", ACT + ACT), said("user", "EXACTLY ONE"), said("assistant", ACT), said("user", "diff")
    )
    assert [m.origin for m in got.messages] == ["user", "model", "reminder", "model", "tool"]
    assert not got.messages[1].tool_uses
    assert got.messages[4].tool_results[0].is_error is None


def test_text_commands_of_swe_agent() -> None:
    acted = said("assistant", "Look.\n```\nls\n```", thought="Look.\n", action="ls\n")
    got = one({"trajectory": [{"action": "ls"}], "history": [*ASK, acted, said("user", "a b")], "info": {}})
    assert got.format == "swe-agent" and got.session == "run"
    assert got.messages[1].tool_uses[0].input == {"command": "ls\n"}
    assert got.messages[2].tool_results[0].content == "a b"


@pytest.mark.parametrize("content", ["Look.\n```\nls\n```", "Look.\n<command>\nls\n</command>"])
def test_commands_in_the_words_alone(content: str) -> None:
    got = one({"history": [*ASK, said("assistant", content), said("user", "a b")], "info": {}})
    assert [b.type for b in got.messages[1].blocks] == ["text", "tool_use"]
    assert got.messages[1].tool_uses[0].input == {"command": "ls"}


def test_tool_calls_of_swe_agent() -> None:
    calls = [{"function": {"name": "open", "arguments": '{"path":"a"}'}, "id": "c1", "type": "function"}]
    acted = said("assistant", "Open it.", action="open a", tool_calls=calls)
    got = one({"history": [*ASK, acted, said("tool", "text", tool_call_ids=["c1"])], "trajectory": [], "info": {}})
    assert (got.messages[1].tool_uses[0].id, got.messages[1].tool_uses[0].name) == ("c1", "open")
    assert got.messages[2].tool_results[0].tool_use_id == "c1"


def test_demonstrations_are_no_prompts() -> None:
    got = one({"history": [ASK[0], said("user", "Here is a demo", is_demo=True), ASK[1]], "info": {}})
    assert [m.origin for m in got.messages] == ["reminder", "user"]


def test_a_trajectory_without_history() -> None:
    steps = [{"thought": "t", "action": "ls", "observation": "a"}, {"thought": "u", "action": "", "observation": ""}]
    for value in ({"trajectory": steps}, steps):
        assert [m.origin for m in one(value).messages] == ["model", "tool", "model"]


def test_several_runs_in_a_list() -> None:
    runs = [{"history": list(ASK), "info": {}}, {"history": list(ASK), "info": {}, "instance_id": "b"}]
    assert [r.session for r in read(json.dumps(runs).encode(), "runs.json")] == ["runs#1", "b"]


def test_the_model_that_the_configuration_names() -> None:
    config = {"agent": {"model": {"name": "gpt-x"}}}
    for replay in (config, json.dumps(config)):
        assert one({"history": list(ASK), "info": {}, "replay_config": replay}).model == "gpt-x"
    assert one({"history": list(ASK), "replay_config": {"agent": {"model": {"name": "replay"}}}}).model is None
