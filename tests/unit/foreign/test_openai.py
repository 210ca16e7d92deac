"""Lists of chat messages become recordings (ENG-1, ENG-6)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.logs.openai import read
from perdure.logs.recording import Recording
from perdure.transcript.blocks import Image

pytestmark = pytest.mark.unit

TALK = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]


def one(value: Any) -> Recording:
    (recording,) = read(json.dumps(value).encode(), "list.json")
    return recording


@pytest.mark.parametrize(
    "data",
    [
        json.dumps(TALK).encode(),
        json.dumps(TALK, indent=1).encode(),
        json.dumps({"messages": TALK}).encode(),
        b"\n".join(json.dumps(m).encode() for m in TALK),
        json.dumps([{"traj": TALK}]).encode(),
        json.dumps({"results": [{"conversation": TALK}]}).encode(),
        json.dumps({"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yes"}]}).encode(),
    ],
)
def test_shapes_of_files(data: bytes) -> None:
    (got,) = read(data, "list.json")
    assert [m.origin for m in got.messages] == ["user", "model"]
    assert [m.blocks[0].value.text for m in got.messages] == ["hi", "yes"]  # type: ignore[union-attr]
    assert got.session == "list" and not got.problems


def test_many_runs_are_many_sessions() -> None:
    runs = [{"task_id": 4, "traj": TALK}, {"task_id": 4, "traj": TALK}, {"traj": TALK}, {"task_id": "t", "traj": TALK}]
    assert [r.session for r in read(json.dumps(runs).encode(), "tau.json")] == ["tau#4", "tau#4#2", "tau#3", "t"]
    lines = b"\n".join(json.dumps({"messages": TALK}).encode() for _ in range(2))
    assert [r.session for r in read(lines, "d/many.jsonl")] == ["many#1", "many#2"]


def test_calls_and_results() -> None:
    calls = [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
        {"id": "d", "type": "function", "function": {"name": "g", "arguments": '{"a":'}},
    ]
    got = one(
        [
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "d", "content": "D"},
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "C"}]},
            {"role": "assistant", "content": "", "tool_calls": calls[:1]},
            {"role": "tool", "tool_call_id": "c", "content": "again"},
        ]
    )
    uses = [u for m in got.messages for u in m.tool_uses]
    assert [u.input for u in uses] == [{"a": 1}, {"_raw": '{"a":'}, {"a": 1}]
    assert [u.id for u in uses] == ["c", "d", "c-2"]
    assert [(r.tool_use_id, r.text()) for m in got.messages for r in m.tool_results] == [
        ("d", "D"),
        ("c", "C"),
        ("c-2", "again"),
    ]
    assert not got.problems


def test_the_deprecated_function_call() -> None:
    got = one(
        [
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "x"},
        ]
    )
    assert got.messages[0].tool_uses[0].id == got.messages[1].tool_results[0].tool_use_id == "call-1"


def test_a_result_without_a_call_is_a_problem() -> None:
    got = one([{"role": "user", "content": "x"}, {"role": "tool", "content": "y"}])
    assert "result without a call" in got.problems[0].what


def test_content_parts() -> None:
    parts = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]
    blocks = one([{"role": "user", "content": parts}]).messages[0].blocks
    assert [b.type for b in blocks] == ["text", "image", "image"]
    assert isinstance(blocks[1].value, Image)
    assert blocks[1].value.source == {"type": "base64", "media_type": "image/png", "data": "AAAA"}


def test_anthropic_blocks_are_verbatim() -> None:
    use = b'{"type":"tool_use", "id":"t","name":"Read","input":{ "a":1 }}'
    novel = b'{"type":"novel","x":[1 ,2]}'
    result = b'{"type":"tool_result","tool_use_id":"t","content":"x" }'
    said = b'[{"role":"assistant","content":[' + use + b"," + novel + b']},{"role":"user","content":[' + result + b"]}]"
    (got,) = read(said, "x.json")
    assert [bytes(raw) for m in got.messages for raw in m.content] == [use, novel, result]
    assert [m.origin for m in got.messages] == ["model", "tool"]


def test_front() -> None:
    tools = [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}},
        {"name": "g", "input_schema": {"type": "object"}},
    ]
    later = {"role": "system", "content": "later"}
    got = one(
        {"model": "m", "system": "S", "tools": tools, "messages": [{"role": "system", "content": "T"}, *TALK, later]}
    )
    assert [json.loads(bytes(s))["text"] for s in got.front.system] == ["S", "T"]
    assert json.loads(bytes(got.front.tools[0])) == {
        "name": "f",
        "description": "d",
        "input_schema": {"type": "object"},
    }
    assert json.loads(bytes(got.front.tools[1])) == tools[1]
    assert got.model == "m" and got.messages[-1].origin == "system"


def test_strange_messages_are_problems() -> None:
    got = one([*TALK, 5, {"role": "narrator", "content": "x"}, {"role": "user", "content": [{"type": "text"}, 7]}])
    assert len(got.problems) == 4 and len(got.messages) == 2
