"""LIB-3: from the events of either wire to a reply, also from servers that are only nearly compatible."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.adapters.providers import anthropic as anthropic_events
from perdure.adapters.providers import openai
from perdure.context.replies import (
    BlockDone,
    PartialReply,
    ProviderEdit,
    Reply,
    ReplyStarted,
    TextDelta,
    ToolInputDelta,
)
from perdure.errors import StreamCut
from perdure.transcript.messages import Usage

pytestmark = pytest.mark.unit


# --- Anthropic ------------------------------------------------------------------------------------------------------


def start(**usage: Any) -> dict[str, Any]:
    return {"type": "message_start", "message": {"id": "msg_1", "model": "m", "content": [], "usage": usage}}


def block(index: int, block: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def end(reason: str = "end_turn", **more: Any) -> list[dict[str, Any]]:
    usage = more.pop("usage", {"output_tokens": 7})
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage, **more},
        {"type": "message_stop"},
    ]


def anthropic(*events: dict[str, Any]) -> Reply:
    assembly = anthropic_events.AnthropicReplyBuilder()
    for event in events:
        list(assembly.feed(event))
    return assembly.reply()


def raws(reply: Reply) -> list[Any]:
    return [msgspec.json.decode(block.raw) for block in reply.blocks]


def test_blocks_are_assembled_and_keep_unknown_fields() -> None:
    reply = anthropic(
        start(input_tokens=10, cache_read_input_tokens=5),
        {"type": "ping"},
        {"type": "an_event_of_next_year", "x": 1},
        *block(
            0,
            {"type": "thinking", "thinking": "", "signature": "", "new": [1]},
            {"type": "thinking_delta", "thinking": "hm"},
            {"type": "signature_delta", "signature": "sig"},
        ),
        *block(
            1,
            {"type": "text", "text": ""},
            {"type": "text_delta", "text": "he"},
            {"type": "text_delta", "text": "llo"},
            {"type": "citations_delta", "citation": {"url": "u"}},
        ),
        *block(
            2,
            {"type": "tool_use", "id": "t", "name": "Read", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"b": 1,'},
            {"type": "input_json_delta", "partial_json": ' "a": 2.50}'},
        ),
        *block(3, {"type": "redacted_thinking", "data": "xyz"}),
        *end("tool_use"),
    )
    assert raws(reply) == [
        {"type": "thinking", "thinking": "hm", "signature": "sig", "new": [1]},
        {"type": "text", "text": "hello", "citations": [{"url": "u"}]},
        {"type": "tool_use", "id": "t", "name": "Read", "input": {"b": 1, "a": 2.5}},
        {"type": "redacted_thinking", "data": "xyz"},
    ]
    assert b'{"b": 1, "a": 2.50}' in reply.blocks[2].raw, "the input as the model wrote it"
    assert reply.usage == Usage(10, 7, 5, 0) and reply.billed is None and reply.stop_reason == "tool_use"


def test_a_call_cut_at_the_output_limit_is_left_out() -> None:
    call = block(
        1,
        {"type": "tool_use", "id": "t", "name": "Write", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"content": "half'},
    )
    text = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "so"})
    assert len(anthropic(start(), *text, *call, *end("max_tokens")).blocks) == 1
    kept = raws(anthropic(start(), *text, *call, *end("tool_use")))
    assert kept[1]["input"] == {"_raw": '{"content": "half'}


def test_a_compaction_block_arrives_whole_and_is_no_part_of_the_size() -> None:
    steps = [
        {"type": "compaction", "input_tokens": 150_000, "output_tokens": 3_000},
        {"type": "message", "input_tokens": 20_000, "output_tokens": 500, "cache_read_input_tokens": 100},
    ]
    reply = anthropic(
        start(input_tokens=20_000),
        *block(
            0,
            {"type": "compaction", "content": None},
            {"type": "compaction_delta", "content": "the story so far", "encrypted_content": "e"},
        ),
        *block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "on"}),
        *end(usage={"output_tokens": 500, "iterations": steps}),
    )
    assert raws(reply)[0] == {"type": "compaction", "content": "the story so far", "encrypted_content": "e"}
    assert reply.usage == Usage(20_000, 500, 100, 0)
    assert reply.billed == Usage(170_000, 3_500, 100, 0)


def test_what_the_provider_cleared_is_told() -> None:
    applied = [
        {"type": "clear_thinking_20251015", "cleared_thinking_turns": 2, "cleared_input_tokens": 50},
        {"type": "clear_tool_uses_20250919", "cleared_tool_uses": 3, "cleared_input_tokens": 900},
    ]
    reply = anthropic(start(), *end(context_management={"applied_edits": applied}))
    assert reply.edits == (
        ProviderEdit("clear_thinking_20251015", 2, 50),
        ProviderEdit("clear_tool_uses_20250919", 3, 900),
    )


def test_a_stream_without_its_end_is_cut() -> None:
    with pytest.raises(StreamCut):
        anthropic(start(), *block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "so"}))


# --- Chat Completions -----------------------------------------------------------------------------------------------


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **more}


def call(arguments: str | None, **more: Any) -> dict[str, Any]:
    name = more.pop("name", None)
    function: dict[str, Any] = {} if arguments is None else {"arguments": arguments}
    return chunk({"tool_calls": [{**more, "function": {**function, **({"name": name} if name else {})}}]})


def chat(*chunks: dict[str, Any], **more: Any) -> Reply:
    assembly = openai.OpenAIReplyBuilder("asked", **more)
    for one in chunks:
        list(assembly.feed(one))
    reply = list(assembly.finish())[-1]
    assert isinstance(reply, Reply)
    return reply


def test_a_chat_answer_is_assembled() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
    }
    reply = chat(
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "hm"}),
        chunk({"content": "he"}),
        chunk({"content": "llo"}),
        call("", index=0, id="a", name="Read"),
        call('{"p":', index=0),
        call(" 1}", index=0),
        call("{}", index=1, id="b", name="Ls"),
        chunk(finish="tool_calls"),
        {"id": "c1", "choices": [], "usage": usage},
    )
    assert raws(reply) == [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "text", "text": "hello"},
        {"type": "tool_use", "id": "a", "name": "Read", "input": {"p": 1}},
        {"type": "tool_use", "id": "b", "name": "Ls", "input": {}},
    ]
    assert reply.usage == Usage(30, 9, 60, 10) and reply.usage.prompt_tokens == 100
    assert reply.stop_reason == "tool_use"


@pytest.mark.parametrize("arguments", ["{'a': 1}", "[1]", "read the file", '{"a": 1'])
def test_arguments_that_are_no_object_are_kept_raw(arguments: str) -> None:
    reply = chat(call(arguments, index=0, id="a", name="Read"), chunk(finish="tool_calls"))
    assert raws(reply)[0]["input"] == {"_raw": arguments}


def test_no_arguments_are_an_empty_object() -> None:
    assert raws(chat(call(None, index=0, id="a", name="Ls"), chunk(finish="stop")))[0]["input"] == {}


def test_ids_that_are_missing_or_repeated_become_unique() -> None:
    reply = chat(
        call("{}", index=0, id="", name="A"),
        call("{}", index=1, id="call_0", name="B"),
        call("{}", index=2, id="call_1", name="C"),
        call("{}", index=3, id="call_1", name="D"),
        chunk(finish="tool_calls"),
        taken=lambda: {"call_0"},
    )
    ids = [one["id"] for one in raws(reply)]
    assert len(set(ids)) == 4 and ids[2] == "call_1" and "call_0" not in ids and "" not in ids
    again = chat(call("{}", index=0, id="", name="A"), chunk(finish="tool_calls"), taken=lambda: {"call_0"})
    assert raws(again)[0]["id"] == ids[0], "the same stream gives the same ids"


def test_calls_that_all_have_the_index_zero_or_none_are_told_apart() -> None:
    zero = chat(
        call('{"a":1}', index=0, id="x", name="A"), call('{"b":2}', index=0, id="y", name="B"), chunk(finish="stop")
    )
    none = chat(call('{"a":', id="x", name="A"), call("1}"), call('{"b":2}', id="y", name="B"), chunk(finish="stop"))
    for reply in (zero, none):
        assert [(one["id"], one["input"]) for one in raws(reply)] == [("x", {"a": 1}), ("y", {"b": 2})]
        assert reply.stop_reason == "tool_use", "calls, whatever the server says"


def test_a_call_cut_by_the_length_is_left_out() -> None:
    reply = chat(
        chunk({"content": "so"}),
        call("{}", index=0, id="a", name="A"),
        call('{"half', index=1, id="b", name="B"),
        chunk(finish="length"),
    )
    assert [one["type"] for one in raws(reply)] == ["text", "tool_use"] and reply.stop_reason == "max_tokens"


def test_the_end_of_the_window_is_told_from_the_output_limit() -> None:
    usage = {"prompt_tokens": 4_000, "completion_tokens": 96}
    last = chunk({"content": "x"}, finish="length", usage=usage)
    assert chat(last, window_tokens=4_096).stop_reason == "model_context_window_exceeded"
    assert chat(last, window_tokens=8_192).stop_reason == "max_tokens"
    assert chat(last).stop_reason == "max_tokens"


def test_no_usage_is_no_usage() -> None:
    assert chat(chunk({"content": "x"}, finish="stop")).usage is None


def test_a_chat_without_a_finish_reason_is_cut() -> None:
    with pytest.raises(StreamCut):
        chat(chunk({"content": "x"}))


# --- what an interruption leaves ------------------------------------------------------------------------------------


def test_whole_blocks_are_kept_but_never_thinking_at_the_end() -> None:
    from perdure.transcript.blocks import block_of, text_block
    from perdure.transcript.messages import ResponseId

    partial, thought = PartialReply(), block_of({"type": "thinking", "thinking": "a", "signature": "s"})
    partial.feed(ReplyStarted(ResponseId("r1")))
    partial.feed(BlockDone(0, text_block("lost")))
    partial.feed(ReplyStarted(ResponseId("r2")))
    partial.feed(BlockDone(0, thought))
    partial.feed(TextDelta(1, "he"))
    assert partial.kept() == () and partial.begun == {0, 1} and partial.response == "r2"
    partial.feed(BlockDone(1, text_block("hello")))
    partial.feed(BlockDone(2, thought))
    partial.feed(ToolInputDelta(3, "Read", '{"p'))
    assert [one.type for one in partial.kept()] == ["thinking", "text"]
