"""Chat Completions in the words of the Messages API, so that one upstream stands behind both doors; and its errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from .replies import UpstreamError

_TOO_LONG = re.compile(r"prompt is too long: (\d+) tokens > (\d+) maximum")


def as_messages(chat: Mapping[str, Any]) -> dict[str, Any]:
    """The same request for `FakeUpstream`. Ids of calls are kept; images are. The cache is automatic there."""
    most = chat.get("max_completion_tokens") or chat.get("max_tokens") or 1_000
    request: dict[str, Any] = {"model": chat["model"], "max_tokens": most}
    system = [_text(m.get("content")) for m in chat["messages"] if m["role"] in ("system", "developer")]
    if system:
        request["system"] = [{"type": "text", "text": text} for text in system]
    if chat.get("tools"):
        request["tools"] = [_tool(tool["function"]) for tool in chat["tools"]]
    request["messages"] = list(_messages(chat["messages"]))
    request["cache_control"] = {"type": "ephemeral"}
    return request


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    tool = {"name": function["name"], "input_schema": function.get("parameters") or {"type": "object"}}
    return {**tool, "description": function["description"]} if function.get("description") else tool


def _messages(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Results and what the user says behind them are one message there."""
    pending: list[dict[str, Any]] = []
    for message in messages:
        match message["role"]:
            case "tool":
                content = _text(message.get("content"))
                block = {"type": "tool_result", "tool_use_id": _identity(message["tool_call_id"])}
                pending.append({**block, "content": content} if content else block)
            case "user":
                pending += list(_parts(message.get("content")))
            case "assistant":
                if pending:
                    yield {"role": "user", "content": pending}
                    pending = []
                yield {"role": "assistant", "content": list(_assistant(message))}
            case _:
                pass
    if pending:
        yield {"role": "user", "content": pending}


def _identity(call: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", call)


def _assistant(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if text := _text(message.get("content")):
        yield {"type": "text", "text": text}
    for call in message.get("tool_calls") or ():
        function = call["function"]
        try:
            given = msgspec.json.decode(function["arguments"] or "{}")
        except msgspec.DecodeError:
            given = {"_raw": function["arguments"]}
        yield {"type": "tool_use", "id": _identity(call["id"]), "name": function["name"], "input": given}


def _parts(content: Any) -> Iterator[dict[str, Any]]:
    if isinstance(content, str):
        if content:
            yield {"type": "text", "text": content}
        return
    for part in content or ():
        if part["type"] == "text":
            yield {"type": "text", "text": part["text"]}
        elif part["type"] == "image_url":
            yield {"type": "image", "source": {"type": "url", "url": part["image_url"]["url"]}}
        else:
            yield {"type": "text", "text": f"[{part['type']}]"}


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())


def openai_error(error: UpstreamError) -> dict[str, Any]:
    """An error as OpenAI's servers word it."""
    message, code, kind = error.message, None, error.type
    if found := _TOO_LONG.search(message):
        message = f"This model's maximum context length is {found[2]} tokens. However, your messages resulted in "
        message += f"{found[1]} tokens. Please reduce the length of the messages."
        code = "context_length_exceeded"
    elif error.status == 429:
        kind, code = "requests", "rate_limit_exceeded"
    elif error.status >= 500:
        kind = "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
