"""The same groups in the words of OpenAI's Chat Completions (TURN-9).

Results become `tool` messages directly behind their calls; media of results, which a tool message can't hold, follow in
the user message. Thinking isn't part of this protocol and stays away.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.context.wire import Group
from holdfast.transcript.blocks import Block, Document, Image, Text, ToolResult, ToolUse, encode
from holdfast.transcript.records import Front

NO_TEXT = "(no text)"
_OWN_PARTS = ("file", "input_audio")  # came in this protocol's own words, and go out in them


def body(head: dict[str, Any], front: Front, groups: list[Group], *, stream: bool) -> bytes:
    """The request body; each group is encoded once."""
    if stream:
        head = {**head, "stream": True, "stream_options": {"include_usage": True}}
    pieces = [encode(head)[:-1]]
    tools = [_tool(msgspec.json.decode(raw)) for raw in front.tools]
    if tools:
        pieces.append(b',"tools":' + encode([tool for tool in tools if tool]))
    messages = []
    system = "\n\n".join(text for raw in front.system if (text := _system_text(bytes(raw))))
    if system:
        messages.append(encode({"role": "system", "content": system}))
    for group in groups:
        done = group.encoded.get("openai")
        if done is None:
            done = b",".join(encode(message) for message in _messages(group))
            group.encoded["openai"] = done
        messages.append(done)
    pieces.append(b',"messages":[' + b",".join(messages) + b"]}")
    return b"".join(pieces)


def _tool(tool: dict[str, Any]) -> dict[str, Any] | None:
    """A tool definition; None for tools that only Anthropic's servers run."""
    if "function" in tool or "custom" in tool:
        return tool
    if "input_schema" not in tool:
        return None
    function = {"name": tool["name"], "parameters": tool["input_schema"]}
    if tool.get("description"):
        function["description"] = tool["description"]
    return {"type": "function", "function": function}


def _system_text(raw: bytes) -> str:
    value = Block(raw).value
    return value.text if isinstance(value, Text) else ""


def _messages(group: Group) -> list[dict[str, Any]]:
    blocks = [Block(part.raw) for part in group.parts()]
    if group.role == "assistant":
        return [_assistant(blocks)]
    results = [b.value for b in blocks if isinstance(b.value, ToolResult)]
    messages = [_tool_message(value) for value in results]
    content = [part for value in results for part in _media(value)]
    content += [part for b in blocks if b.kind != "tool_result" for part in _user_part(b)]
    if content:
        only = content[0]["text"] if len(content) == 1 and content[0]["type"] == "text" else None
        messages.append({"role": "user", "content": only or content})
    return messages


def _assistant(blocks: list[Block]) -> dict[str, Any]:
    text = "\n\n".join(b.value.text for b in blocks if isinstance(b.value, Text))
    calls = [
        {
            "id": b.value.id,
            "type": "function",
            "function": {"name": b.value.name, "arguments": _arguments(b.value)},
        }
        for b in blocks
        if isinstance(b.value, ToolUse)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else NO_TEXT)}
    if calls:
        message["tool_calls"] = calls
    return message


def _arguments(use: ToolUse) -> str:
    """The arguments as the string they came as; `_raw` holds one that was no JSON."""
    arguments = use.arguments()
    if set(arguments) == {"_raw"}:
        return str(arguments["_raw"])
    return bytes(use.input).decode("utf-8", "replace")


def _tool_message(value: ToolResult) -> dict[str, Any]:
    text = value.text()
    if value.is_error:
        text = f"[error] {text}"
    return {"role": "tool", "tool_call_id": value.tool_use_id, "content": text}


def _media(value: ToolResult) -> list[dict[str, Any]]:
    if isinstance(value.content, str):
        return []
    return [part for block in value.parts() if block.kind != "text" for part in _user_part(block)]


def _user_part(block: Block) -> list[dict[str, Any]]:
    value = block.value
    if isinstance(value, Text):
        return [{"type": "text", "text": value.text}]
    if isinstance(value, Image):
        source = value.source
        url = source.get("url") or f"data:{source.get('media_type', 'image/png')};base64,{source.get('data', '')}"
        return [{"type": "image_url", "image_url": {"url": url}}]
    if isinstance(value, Document):
        if value.source.get("type") == "text":
            return [{"type": "text", "text": str(value.source.get("data", ""))}]
        data = f"data:{value.source.get('media_type', 'application/pdf')};base64,{value.source.get('data', '')}"
        return [{"type": "file", "file": {"filename": value.title or "document.pdf", "file_data": data}}]
    if block.kind in _OWN_PARTS:
        return [msgspec.json.decode(block.raw)]
    return [{"type": "text", "text": block.raw.decode("utf-8", "replace")}]
