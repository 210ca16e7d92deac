"""Readers of foreign logs take anything (ENG-1, ENG-6)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import ForeignFormat
from perdure.logs import claude_code, codex, openai, swe_agent
from perdure.logs.detect import detect, read_recordings
from perdure.logs.recording import RecordedMessage, Recording

pytestmark = pytest.mark.laws

USE = {"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": "ls"}}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "x"}]}
SIDE = {"sessionId": "s", "isSidechain": False, "timestamp": "2026-01-02T03:04:05Z"}
CLAUDE: list[Any] = [
    {"type": "user", "uuid": "a", "parentUuid": None, "message": {"role": "user", "content": "hi"}, **SIDE},
    {
        "type": "assistant",
        "uuid": "b",
        "parentUuid": "a",
        "message": {"id": "m", "content": [USE], "usage": {}},
        **SIDE,
    },
    {"type": "user", "uuid": "c", "parentUuid": "b", "message": {"role": "user", "content": [RESULT]}, **SIDE},
    {
        "type": "attachment",
        "uuid": "d",
        "parentUuid": "c",
        "attachment": {"type": "todo", "content": [{"content": "x"}]},
    },
    {"type": "system", "subtype": "compact_boundary", "uuid": "e", "compactMetadata": {"preservedSegment": {}}, **SIDE},
]
CODEX: list[Any] = [
    {"type": "session_meta", "payload": {"id": "i", "base_instructions": {"text": "x"}, "git": {}}},
    {"type": "response_item", "payload": {"type": "message", "role": "user", "content": [{"text": "x"}]}},
    {"type": "response_item", "payload": {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}},
    {"type": "response_item", "payload": {"type": "function_call_output", "call_id": "c", "output": "x"}},
    {"type": "event_msg", "payload": {"type": "token_count", "info": {"last_token_usage": {"input_tokens": 1}}}},
    {"type": "compacted", "payload": {"message": "", "replacement_history": [{"type": "message", "content": "x"}]}},
]
CALL = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
CHAT: list[Any] = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "u"}}]},
    {"role": "assistant", "content": "```bash\nls\n```", "tool_calls": [CALL], "extra": {"response": {"usage": {}}}},
    {"role": "tool", "tool_call_id": "c", "content": "x"},
]
STEPS = [{"thought": "t", "action": "ls", "observation": "x"}]
SWE: Any = {"history": CHAT, "trajectory": STEPS, "info": {"config": {}}, "replay_config": {"agent": {"model": {}}}}
READERS = (claude_code.read, codex.read, openai.read, swe_agent.read)
NAME = "any.json"

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, part in inner for place in places(part, (*at, key)))]


def put(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    if not at:
        return new
    copy = value.copy()
    copy[at[0]] = put(value[at[0]], at[1:], new)
    return copy


def files(value: Any) -> list[bytes]:
    whole = json.dumps(value).encode()
    return [whole, b"\n".join(json.dumps(v).encode() for v in value)] if isinstance(value, list) else [whole]


def take(data: bytes) -> None:
    for read in READERS:
        for recording in read(data, NAME):
            hold(recording)
    detect(data[:100], NAME)
    try:
        for recording in read_recordings(data, NAME):
            hold(recording)
    except ForeignFormat as e:
        assert "\n" not in str(e)


def hold(recording: Recording) -> None:
    """What every recording keeps to: readable messages, unique ids, unique calls."""
    said = [s.message for s in recording.steps if isinstance(s, RecordedMessage)]
    assert len({m.id for m in said}) == len(said)
    calls = [use.id for m in said for use in m.check().tool_uses]
    assert len(set(calls)) == len(calls)
    assert all(m.content for m in said)


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    take(data)


@given(st.lists(json_values, max_size=4))
def test_any_json(values: list[Any]) -> None:
    for data in files(values):
        take(data)


@given(st.data(), st.sampled_from([CLAUDE, CODEX, CHAT, [{"traj": CHAT}], SWE]))
def test_a_log_with_a_value_changed(data: st.DataObject, log: Any) -> None:
    changed = put(log, data.draw(st.sampled_from(places(log))), data.draw(json_values))
    for file in files(changed):
        take(file)


@given(st.data(), st.sampled_from([file for log in (CLAUDE, CODEX, CHAT, SWE) for file in files(log)]))
def test_a_log_with_bytes_changed(data: st.DataObject, file: bytes) -> None:
    start = data.draw(st.integers(0, len(file)))
    end = data.draw(st.integers(start, min(len(file), start + 40)))
    take(file[:start] + data.draw(st.binary(max_size=20)) + file[end:])


@given(st.lists(st.sampled_from(CLAUDE), max_size=12))
def test_lines_repeated_and_out_of_order(entries: list[Any]) -> None:
    take(b"\n".join(json.dumps(e).encode() for e in entries))


@given(st.dictionaries(st.text(max_size=8).filter(lambda k: k != "type"), json_values, max_size=4), st.booleans())
def test_unknown_blocks_survive_byte_for_byte(members: dict[str, Any], is_ascii: bool) -> None:
    block = json.dumps({"type": "from_the_future", **members}, ensure_ascii=is_ascii).encode("utf-8", "replace")
    for line in (
        b'{"type":"user","uuid":"u","message":{"role":"user","content":[%b]}}',
        b'[{"role":"user","content":[%b]}]',
    ):
        (got,) = read_recordings(line % block, NAME)
        (message,) = got.messages
        assert bytes(message.content[0]) == block


@pytest.mark.parametrize("depth", [150, 450, 900, 990, 5_000])
def test_nesting_of_any_depth(depth: int) -> None:
    deep = b'{"content":' * depth + b"1" + b"}" * depth
    quoted = json.dumps(deep.decode()).encode()
    take(b'{"type":"user","uuid":"u","sessionId":"s","message":{"content":[{"type":"x","y":%b}]}}' % deep)
    take(b'{"type":"attachment","uuid":"u","sessionId":"s","attachment":{"type":"file","content":%b}}' % deep)
    take(b'{"type":"response_item","payload":{"type":"function_call","name":"f","arguments":%b}}' % quoted)
    take(b'[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":%b}}],"content":null}]' % quoted)
    take(b'{"history":[{"role":"user","content":%b}],"info":{}}' % deep)
