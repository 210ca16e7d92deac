"""What was said, as text to search and to read: the pieces of a message, each with the id by which it is recalled
(RCL-1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from perdure.errors import MalformedBlock
from perdure.transcript.blocks import Block, Document, ServerToolUse, Text, Thinking, ToolResult, ToolUse
from perdure.transcript.messages import Message, is_of_person, spoken_text

_DATA_KEYS = frozenset({"data", "signature", "encrypted_content", "encrypted_index", "type", "tool_use_id", "id"})
_DATA_CHARS = 4_000  # a longer string without a single blank is data, not words
_DEPTH = 40
_TITLE_CHARS = 80
_READ_CHARS = 100_000  # of each text in which a title is looked for
_WRAPS = ("task", "user_query", "user_message")  # in which some clients wrap what was typed
_NOT_SAID = ("# AGENTS.md instructions", "Caveat: The messages below")


@dataclass(frozen=True, slots=True)
class SpokenPiece:
    """Something that was said. `recall_id` brings it back whole; `tool` names the tools that it is about."""

    recall_id: str
    message: str
    role: str
    text: str
    tool: str = ""
    at: float | None = None
    agent: str | None = None


def pieces(message: Message, calls: Mapping[str, str]) -> list[SpokenPiece]:
    """The pieces of a message, in its order; `calls` names the tool of each tool_use id said so far."""
    words: list[str] = []
    tools: dict[str, None] = {}
    results: list[SpokenPiece] = []
    for block in message.blocks:
        try:
            value = block.value
        except MalformedBlock:
            words.append(block.raw.decode("utf-8", "replace"))
            continue
        if isinstance(value, ToolResult):
            identity, text = value.tool_use_id, result_text(value)
            tool = calls.get(identity, "")
            results.append(SpokenPiece(identity, message.id, "tool", text, tool, message.at, message.agent_id))
            continue
        if isinstance(value, ToolUse | ServerToolUse):
            tools[value.name] = None
        words.append(block_text(block))
    text = "\n".join(word for word in words if word)
    if not text and results:
        return results
    said = SpokenPiece(message.id, message.id, message.role, text, " ".join(tools), message.at, message.agent_id)
    return [said, *results]


def tools_called(message: Message) -> dict[str, str]:
    """The tool of each tool_use id in a message."""
    return {use.id: use.name for use in message.tool_uses} if message.role == "assistant" else {}


def result_text(result: ToolResult) -> str:
    """Everything in a result that is text, parts on lines of their own."""
    if result.content is None or isinstance(result.content, str):
        return result.content or ""
    return "\n".join(text for text in (block_text(part) for part in result.parts()) if text)


def block_text(block: Block) -> str:
    """What a block says in words."""
    try:
        value = block.value
    except MalformedBlock:
        return block.raw.decode("utf-8", "replace")
    match value:
        case Text():
            return value.text
        case Thinking():
            return value.thinking
        case ToolResult():
            return result_text(value)
        case ToolUse() | ServerToolUse():
            return "\n".join([value.name, *_leaves(_decoded(value.raw_input))])
        case Document():
            return "\n".join(_leaves([value.title, _document(value.source)]))
        case _:
            return "\n".join(_leaves(_decoded(block.raw)))


def _document(source: dict[str, Any]) -> Any:
    return source.get("data") if source.get("type") == "text" else source.get("content")


def _decoded(raw: bytes | msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return bytes(raw).decode("utf-8", "replace")


def _leaves(value: Any, depth: int = 0) -> Iterator[str]:
    """Every text in a JSON value, with the name it goes by; data is left out."""
    if isinstance(value, str):
        if value and (len(value) < _DATA_CHARS or " " in value or "\n" in value):
            yield value
    elif isinstance(value, dict) and depth < _DEPTH:
        for key, inner in value.items():
            if depth == 0 and key in _DATA_KEYS:
                continue
            if isinstance(inner, dict | list):
                yield str(key)
                yield from (leaf for leaf in _leaves(inner, depth + 1))
            elif key not in ("data", "signature", "encrypted_content"):
                yield from (f"{key}: {leaf}" for leaf in _leaves(inner, depth + 1))
    elif isinstance(value, list) and depth < _DEPTH:
        for inner in value:
            yield from _leaves(inner, depth + 1)
    elif value is not None and not isinstance(value, dict | list):
        yield str(value)


def first_words(messages: Iterable[Message]) -> str | None:
    """The first real words of a person, as the title of a conversation that has no other; None when there are none."""
    for message in messages:
        for text in texts_of(message.blocks) if is_of_person(message) else ():
            wrapped = _wrapped(text)
            words = " ".join((spoken_text(text) if wrapped is None else wrapped).split())
            if words and not words.startswith(_NOT_SAID):
                return words if len(words) <= _TITLE_CHARS else f"{words[: _TITLE_CHARS - 1].rstrip()}…"
    return None


def _wrapped(text: str) -> str | None:
    """What stands in the first wrap of a text that is closed; None where there is none. Each tag is looked for once."""
    opened = ((text.find(f"<{name}>"), name) for name in _WRAPS)
    for at, name in sorted(one for one in opened if one[0] >= 0):
        begin = at + len(name) + 2
        if (end := text.find(f"</{name}>", begin)) >= 0:
            return text[begin:end]
    return None


def texts_of(blocks: Iterable[Block]) -> Iterator[str]:
    """The texts of blocks, each as far as anybody would look; what can't be read is left out."""
    for block in blocks:
        try:
            if block.type == "text" and isinstance(value := block.value, Text):
                yield value.text[:_READ_CHARS]
        except MalformedBlock:
            continue
