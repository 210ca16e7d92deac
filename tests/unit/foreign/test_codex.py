"""Codex rollouts become recordings (ENG-2, ENG-6)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.unit.foreign.lines import jsonl

from perdure.logs.codex import read
from perdure.logs.recording import LoggedCompaction, LoggedRewind, RecordedMessage, Recording
from perdure.transcript.blocks import Image
from perdure.transcript.messages import Usage

pytestmark = pytest.mark.unit


def line(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-01-02T03:04:05.500Z", "type": kind, "payload": payload}


def item(kind: str, **more: Any) -> dict[str, Any]:
    return line("response_item", type=kind, **more)


def spoke(role: str, words: str) -> dict[str, Any]:
    return item("message", role=role, content=[{"type": "input_text", "text": words}])


def tokens(prompt: int, cached: int, output: int, total: int) -> dict[str, Any]:
    last = {
        "input_tokens": prompt,
        "cached_input_tokens": cached,
        "output_tokens": output,
        "total_tokens": prompt + output,
    }
    info = {"total_token_usage": {"total_tokens": total}, "last_token_usage": last, "model_context_window": 258_400}
    return line("event_msg", type="token_count", info=info)


def one(*entries: Any) -> Recording:
    (recording,) = read(jsonl(*entries), "stem.jsonl")
    return recording


def test_front_and_facts_of_the_session() -> None:
    meta = line("session_meta", id="abc", cwd="/p", base_instructions={"text": "Be good."}, git={"branch": "main"})
    got = one(meta, line("turn_context", model="gpt-x"), tokens(1, 0, 1, 2))
    assert (got.session, got.cwd, got.branch, got.model, got.window_tokens) == ("abc", "/p", "main", "gpt-x", 258_400)
    assert json.loads(bytes(got.front.system[0])) == {"type": "text", "text": "Be good."}


def test_a_fork_is_itself_and_what_it_copied_has_the_ids_of_the_original() -> None:
    """ENG-6: its own session_meta stands first; behind it are the lines that it was forked from, with theirs."""
    said = [spoke("user", "do it"), spoke("assistant", "done"), line("compacted", message="")]
    root, parent = line("session_meta", id="root", cwd="/r"), line("session_meta", id="p", forked_from_id="root")
    first, second = one(root, *said), one(parent, root, *said, spoke("user", "more"))
    third = one(line("session_meta", id="f", cwd="/f", forked_from_id="p", git={"branch": "b"}), parent, root, *said)
    assert [(got.session, got.root) for got in (first, second, third)] == [
        ("root", "root"),
        ("p", "root"),
        ("f", "root"),
    ]
    assert (third.cwd, third.branch) == ("/f", "b")
    assert [m.id for m in third.messages] == [m.id for m in first.messages] == [m.id for m in second.messages[:2]]
    boundaries = {step.message_id for got in (first, second, third) for step in got.steps if hasattr(step, "trigger")}
    assert len(boundaries) == 1
    helper = line("session_meta", id="s", forked_from_id="p", source={"subagent": {"thread_spawn": {}}})
    assert (got := one(helper, parent, *said)).is_sub_agent and got.root is None


def test_origins() -> None:
    got = one(
        spoke("developer", "<permissions>"),
        spoke("user", "# AGENTS.md instructions for /p"),
        spoke("user", "<environment_context>…"),
        spoke("user", "do it"),
        spoke("assistant", "done"),
    )
    assert [m.origin for m in got.messages] == ["system", "reminder", "reminder", "user", "model"]
    assert [m.role for m in got.messages] == ["user", "user", "user", "user", "assistant"]


def test_usage_of_the_response_that_ends_with_a_token_count() -> None:
    got = one(
        item("reasoning", summary=[], encrypted_content="x"),
        spoke("assistant", "I look"),
        item("function_call", name="exec", arguments='{"cmd":"ls"}', call_id="c1"),
        item("function_call_output", call_id="c1", output="a b"),
        tokens(100, 60, 9, 109),
        tokens(100, 60, 9, 109),
        item("function_call", name="exec", arguments="{", call_id="c2"),
        item("function_call_output", call_id="c2", output="Process exited with code 2\nOutput:\n"),
        tokens(120, 100, 4, 233),
    )
    said = got.messages
    assert [m.response_id for m in said] == ["response-1", "response-1", None, "response-2", None]
    assert said[0].usage == said[1].usage == Usage(input_tokens=40, output_tokens=9, cache_read_input_tokens=60)
    assert said[3].usage == Usage(input_tokens=20, output_tokens=4, cache_read_input_tokens=100)
    assert said[1].tool_uses[0].input == {"cmd": "ls"}
    assert said[3].tool_uses[0].input == {"input": "{"}
    assert [m.tool_results[0].is_error for m in said if m.tool_results] == [None, True]
    assert not got.problems


@pytest.mark.parametrize(
    ("entry", "name", "arguments"),
    [
        (
            item("custom_tool_call", name="apply_patch", input="*** Begin", call_id="c"),
            "apply_patch",
            {"input": "*** Begin"},
        ),
        (item("local_shell_call", action={"command": ["ls"]}, call_id="c"), "local_shell", {"command": ["ls"]}),
        (item("tool_search_call", arguments={"query": "q"}, call_id="c"), "tool_search", {"query": "q"}),
        (item("web_search_call", action={"query": "q"}), "web_search", {"query": "q"}),
    ],
)
def test_every_kind_of_call(entry: dict[str, Any], name: str, arguments: dict[str, Any]) -> None:
    (use,) = one(entry).messages[0].tool_uses
    assert (use.name, use.input) == (name, arguments)


def test_a_search_of_the_provider_is_answered_at_once() -> None:
    call, result = one(item("web_search_call", action={"query": "q"})).messages
    assert call.tool_uses[0].id == result.tool_results[0].tool_use_id


def test_results_of_other_shapes() -> None:
    picture = [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]
    got = one(
        item("function_call", name="f", arguments="{}", call_id="1"),
        item("function_call_output", call_id="1", output=picture),
        item("function_call", name="f", arguments="{}", call_id="2"),
        item("function_call_output", call_id="2", output='{"output":"x","metadata":{"exit_code":1}}'),
        item("tool_search_output", call_id="3", tools=[{"name": "t"}]),
    )
    results = [r for m in got.messages for r in m.tool_results]
    assert isinstance(results[0].parts()[0].value, Image)
    assert (results[1].content, results[1].is_error) == ("x", True)
    assert results[2].content == '[{"name":"t"}]' and "without a call" in got.problems[0].what


def test_compaction() -> None:
    kept = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "first"}]},
        {"type": "compaction"},
    ]
    emptied = tokens(0, 0, 0, 7)
    emptied["payload"]["info"]["last_token_usage"]["total_tokens"] = 23_658
    got = one(spoke("user", "hi"), line("compacted", message="", replacement_history=kept), emptied)
    assert got.steps[1] == LoggedCompaction("line-2", 2, "auto", None, 23_658)
    assert (
        isinstance(got.steps[2], RecordedMessage)
        and got.steps[2].logged_only
        and got.steps[2].message.origin == "summary"
    )
    assert len(got.messages) == 1


def test_rolled_back_turns() -> None:
    back = line("event_msg", type="thread_rolled_back", num_turns=1)
    got = one(spoke("user", "1"), spoke("assistant", "a"), spoke("user", "2"), spoke("assistant", "b"), back)
    assert got.steps[-1] == LoggedRewind(to=got.messages[1].id, line=5)


def test_bare_items_of_the_first_versions() -> None:
    meta = {"id": "abc", "timestamp": "2025-01-02T03:04:05Z", "instructions": "Be good."}
    got = one(meta, {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]})
    assert got.session == "abc" and len(got.messages) == 1 and len(got.front.system) == 1
