"""An answer as server-sent events, in the order of the real wire."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from .replies import Block, Reply, UpstreamError

_FINISH = {
    "end_turn": "stop", "stop_sequence": "stop", "pause_turn": "stop", "tool_use": "tool_calls",
    "max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "content_filter",
    "compaction": "stop",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class EventStream:
    """Iterate to get the events of a reply as bytes, one event at a time.

    `dialect` chooses Anthropic events or OpenAI chunks; `chars` is the size of a delta.
    """

    reply: Reply
    dialect: Literal["anthropic", "openai"] = "anthropic"
    chars: int = 40
    include_usage: bool = False  # openai: stream_options.include_usage

    def __iter__(self) -> Iterator[bytes]:
        if self.dialect == "openai":
            for chunk in _openai_chunks(self.reply, self.chars, self.include_usage):
                yield b"data: " + msgspec.json.encode(chunk) + b"\n\n"
            yield b"data: [DONE]\n\n"
            return
        for payload in _anthropic_events(self.reply, self.chars):
            yield encode_event(payload)

    @property
    def body(self) -> bytes:
        return b"".join(self)


def encode_event(payload: Mapping[str, Any]) -> bytes:
    return b"event: " + str(payload["type"]).encode() + b"\ndata: " + msgspec.json.encode(payload) + b"\n\n"


def error_event(error: UpstreamError) -> bytes:
    """An error that arrives after the stream has begun."""
    return encode_event({"type": "error", "error": error.payload["error"]})


def _anthropic_events(reply: Reply, chars: int) -> Iterator[dict[str, Any]]:
    usage = reply.usage.as_json()
    start = {**reply.message, "content": [], "stop_reason": None, "stop_sequence": None}
    start.pop("stop_details", None)
    yield {"type": "message_start", "message": {**start, "usage": {**usage, "output_tokens": 1}}}
    yield {"type": "ping"}
    for index, block in enumerate(reply.content):
        opened, deltas = _opened(block, chars)
        yield {"type": "content_block_start", "index": index, "content_block": opened}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": reply.stop_reason, "stop_sequence": reply.stop_sequence}
    if reply.stop_details is not None:
        delta["stop_details"] = reply.stop_details
    yield {"type": "message_delta", "delta": delta, "usage": usage}
    yield {"type": "message_stop"}


def _opened(block: Block, chars: int) -> tuple[Block, list[dict[str, Any]]]:
    """The block as it is announced, and the deltas that fill it."""
    kind = block["type"]
    if kind == "text":
        deltas = [{"type": "text_delta", "text": part} for part in _slices(block["text"], chars)]
        return {**block, "text": ""}, deltas
    if kind == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": part} for part in _slices(block["thinking"], chars)]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {**block, "thinking": "", "signature": ""}, deltas
    if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
        parts = ["", *_slices(msgspec.json.encode(block["input"]).decode(), chars)] if block["input"] else [""]
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in parts]
    if kind == "compaction":
        fields: Block = {name: block[name] for name in ("content", "encrypted_content") if name in block}
        return {**block, "content": None}, [{"type": "compaction_delta", **fields}]
    return block, []


def _slices(words: str, chars: int) -> list[str]:
    return [words[at : at + chars] for at in range(0, len(words), chars)]


def openai_completion(reply: Reply) -> dict[str, Any]:
    """The same answer as a `chat.completion` object (thinking has no place there and is left out)."""
    words = "".join(block["text"] for block in reply.content if block["type"] == "text")
    message: dict[str, Any] = {"role": "assistant", "content": words or None, "refusal": None}
    if calls := _openai_calls(reply):
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _FINISH[reply.stop_reason]}
    base = {"id": f"chatcmpl-{reply.id}", "object": "chat.completion", "created": 0, "model": reply.model}
    return {**base, "choices": [choice], "usage": _openai_usage(reply)}


def _openai_calls(reply: Reply) -> list[dict[str, Any]]:
    return [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": msgspec.json.encode(block["input"]).decode()},
        }
        for block in reply.content
        if block["type"] == "tool_use"
    ]


def _openai_usage(reply: Reply) -> dict[str, Any]:
    usage = reply.usage
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read_input_tokens,
            "cache_write_tokens": usage.cache_creation_input_tokens,
        },
    }


def _openai_chunks(reply: Reply, chars: int, include_usage: bool) -> Iterator[dict[str, Any]]:
    base = {"id": f"chatcmpl-{reply.id}", "object": "chat.completion.chunk", "created": 0, "model": reply.model}
    if include_usage:
        base["usage"] = None
    for delta in _openai_deltas(reply, chars):
        yield {**base, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]}
    end = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": _FINISH[reply.stop_reason]}
    yield {**base, "choices": [end]}
    if include_usage:
        yield {**base, "choices": [], "usage": _openai_usage(reply)}


def _openai_deltas(reply: Reply, chars: int) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for block in reply.content:
        if block["type"] == "text":
            for part in _slices(block["text"], chars):
                yield {"content": part}
    for index, call in enumerate(_openai_calls(reply)):
        function = {"name": call["function"]["name"], "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": function}]}
        for part in _slices(call["function"]["arguments"], chars):
            yield {"tool_calls": [{"index": index, "function": {"arguments": part}}]}
