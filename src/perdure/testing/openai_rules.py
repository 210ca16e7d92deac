"""An offline validator of OpenAI Chat Completions requests, and their translation for the fake upstream."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from perdure.testing.block_rules import Violation
from perdure.testing.upstream import FakeUpstream, UpstreamError, UpstreamReply

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_PARTS = {
    "system": {"text": "text"},
    "developer": {"text": "text"},
    "user": {"text": "text", "image_url": "image_url", "input_audio": "input_audio", "file": "file"},
    "assistant": {"text": "text", "refusal": "refusal"},
    "tool": {"text": "text"},
}
_FIELDS = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "refusal", "name", "audio", "tool_calls", "function_call"},
    "tool": {"role", "content", "tool_call_id"},
    "function": {"role", "content", "name"},
}


def check_openai(body: bytes | Mapping[str, Any], *, strict: bool = True) -> list[Violation]:
    """Every rule a Chat Completions request breaks; an empty list is a valid request.

    `strict` adds what many compatible servers demand: merged user and assistant messages, system messages first, and no
    field of a message that they don't know.
    """
    try:
        request = msgspec.json.decode(body) if isinstance(body, bytes) else dict(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return [Violation("json", "", f"We could not parse the JSON body of your request. ({error})")]
    if not isinstance(request, dict):
        return [Violation("json", "", "We could not parse the JSON body of your request.")]
    found: list[Violation] = []
    if not isinstance(request.get("model"), str):
        found.append(Violation("required_field", "model", "you must provide a model parameter"))
    found.extend(_tools(request.get("tools")))
    messages = request.get("messages")
    if not isinstance(messages, list):
        said = "Missing required parameter: 'messages'."
        return [*found, Violation("required_field", "messages", said)]
    if not messages:
        said = "Invalid 'messages': empty array. Expected an array with minimum length 1."
        return [*found, Violation("no_messages", "messages", said)]
    for index, message in enumerate(messages):
        found.extend(_message(message, f"messages.{index}"))
    shaped = [message for message in messages if isinstance(message, dict)]
    if len(shaped) == len(messages):
        found.extend(_pairs(shaped))
        if strict:
            found.extend(_strictly(shaped))
    return found


def _tools(tools: Any) -> Iterator[Violation]:
    if tools is not None and not (isinstance(tools, list) and tools):
        yield Violation("tools", "tools", "Invalid 'tools': expected an array with minimum length 1.")
        return
    for index, tool in enumerate(tools or ()):
        path, kind = f"tools[{index}]", tool.get("type") if isinstance(tool, dict) else None
        inner = tool.get(kind) if kind in ("function", "custom") else None
        if kind not in ("function", "custom"):
            said = f"Invalid value: '{kind}'. Supported values are: 'function' and 'custom'."
            yield Violation("tools", f"{path}.type", said)
        elif not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
            yield Violation("tools", path, f"Missing required parameter: '{path}.{kind}.name'.")


def _message(message: Any, path: str) -> Iterator[Violation]:
    role = message.get("role") if isinstance(message, dict) else None
    if role not in _ROLES:
        said = f"Invalid value: '{role}'. Supported values are: 'system', 'developer', 'user', 'assistant', and 'tool'."
        yield Violation("role", path, said)
        return
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        yield Violation("tool_call_id", path, f"Missing parameter 'tool_call_id': {path}.tool_call_id")
    if role == "assistant":
        yield from _calls(message, path)
    yield from _content(message, role, path)


def _content(message: Mapping[str, Any], role: str, path: str) -> Iterator[Violation]:
    content = message.get("content")
    if content is None:
        if role != "assistant" or not any(message.get(name) for name in ("tool_calls", "refusal", "audio")):
            said = f"Invalid value for 'content': expected a string, got null. ({path}.content)"
            yield Violation("content", path, said)
    elif isinstance(content, list):
        if not content:
            yield Violation("content", path, f"Invalid '{path}.content': empty array.")
        for index, part in enumerate(content):
            kind = part.get("type") if isinstance(part, dict) else None
            field = _PARTS.get(role, {}).get(str(kind))
            if field is None:
                said = f"Invalid value: '{kind}'. It is not supported in a message of role '{role}'."
                yield Violation("content_part", f"{path}.content.{index}", said)
            elif not isinstance(part.get(field), str if field in ("text", "refusal") else dict):
                said = f"Missing required parameter: '{path}.content.{index}.{field}'."
                yield Violation("content_part", f"{path}.content.{index}", said)
    elif not isinstance(content, str):
        yield Violation("content", path, f"Invalid type for '{path}.content': expected a string or an array.")


def _calls(message: Mapping[str, Any], path: str) -> Iterator[Violation]:
    calls = message.get("tool_calls")
    if calls is None:
        return
    if not isinstance(calls, list) or not calls:
        said = f"Invalid '{path}.tool_calls': empty array. Expected an array with minimum length 1."
        yield Violation("tool_calls", path, said)
        return
    seen: set[str] = set()
    for index, call in enumerate(calls):
        where = f"{path}.tool_calls.{index}"
        shape = call if isinstance(call, dict) else {}
        kind, link = shape.get("type"), shape.get("id")
        inner = shape.get(str(kind))
        if not isinstance(link, str) or not link or kind not in ("function", "custom") or not isinstance(inner, dict):
            yield Violation("tool_calls", where, f"Missing required parameter: '{where}' needs id, type and {kind}.")
            continue
        if link in seen:
            yield Violation("duplicate_tool_call", where, f"Duplicate value for 'tool_call_id' of '{link}'")
        seen.add(link)
        field = "arguments" if kind == "function" else "input"
        if not isinstance(inner.get(field), str):
            yield Violation("arguments", where, f"Invalid type for '{where}.{kind}.{field}': expected a string.")
        if not isinstance(inner.get("name"), str) or not inner["name"]:
            yield Violation("tool_calls", where, f"Missing required parameter: '{where}.{kind}.name'.")


def _pairs(messages: Sequence[Mapping[str, Any]]) -> Iterator[Violation]:
    """Each assistant message with calls is followed by one tool message per id before any other role."""
    asked, expected, answered = -1, list[str](), set[str]()
    for index, message in enumerate([*messages, {"role": ""}]):
        link = str(message.get("tool_call_id"))
        path = f"messages.{index}"
        if message.get("role") == "tool":
            if link in answered:
                said = f"Duplicate value for 'tool_call_id' of '{link}' in {path}"
                yield Violation("duplicate_result", path, said)
            elif link not in expected:
                said = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                yield Violation("orphan_result", path, f"{said}'tool_calls'.")
            answered.add(link)
            continue
        missing = [link for link in expected if link not in answered]
        if missing:
            said = "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            more = f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(missing)}"
            yield Violation("unanswered_tool_call", f"messages.{asked}", said + more)
        asked, answered = index, set()
        calls = message.get("tool_calls") if message.get("role") == "assistant" else None
        expected = [str(call.get("id")) for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []


def _strictly(messages: Sequence[Mapping[str, Any]]) -> Iterator[Violation]:
    before = ""
    for index, message in enumerate(messages):
        role = "system" if message.get("role") in ("system", "developer") else str(message.get("role"))
        path = f"messages.{index}"
        for name in sorted(set(message) - _FIELDS.get(str(message.get("role")), set(message))):
            yield Violation("message_field", path, f"Unrecognized request argument supplied: {path}.{name}")
        if role == "system" and before not in ("", "system"):
            yield Violation("system_first", path, "System message must be at the beginning.")
        if role == before and role in ("user", "assistant"):
            said = "Conversation roles must alternate user/assistant/user/assistant/..."
            yield Violation("alternation", path, said)
        before = role


_TOO_LONG = re.compile(r"prompt is too long: (\d+) tokens > (\d+) maximum")


def as_messages(chat: Mapping[str, Any]) -> dict[str, Any]:
    """The same request for `FakeUpstream`. Ids of calls are kept; images are. The cache is automatic there."""
    most = chat.get("max_completion_tokens") or chat.get("max_tokens") or 1_000
    request: dict[str, Any] = {"model": chat["model"], "max_tokens": most}
    system = [_text(m.get("content")) for m in chat["messages"] if m["role"] in ("system", "developer")]
    if system:
        request["system"] = [{"type": "text", "text": text} for text in system]
    if chat.get("tools"):
        request["tools"] = [_tool(tool[tool["type"]]) for tool in chat["tools"]]
    request["messages"] = list(_messages(chat["messages"]))
    request["cache_control"] = {"type": "ephemeral"}
    return request


def respond_to_chat(upstream: FakeUpstream, body: bytes, *, session: str | None = None) -> UpstreamReply:
    """The answer of `upstream` to a Chat Completions request. Raises `UpstreamError`, also for a broken rule."""
    if found := check_openai(body, strict=upstream.strict):
        upstream.statistics.requests += 1
        upstream.refuse([replace(one, text=f"{one.path}: {one.text}") for one in found])
    return upstream.respond(msgspec.json.encode(as_messages(msgspec.json.decode(body))), session=session)


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
        function = call[call["type"]]
        if call["type"] == "custom":
            given = {"input": function["input"]}
        else:
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
