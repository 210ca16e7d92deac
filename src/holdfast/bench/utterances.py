"""A conversation as the probe reads it: who put which text into the context, and where that stood (QLT-1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.transcript.blocks import Block, Text, ToolResult, ToolUse
from holdfast.transcript.messages import Message, MessageId
from holdfast.transcript.sizes import block_size
from holdfast.transcript.spoken import spoken_blocks

Who = Literal["user", "agent", "environment"]


@dataclass(frozen=True, slots=True)
class Utterance:
    """One block of a message. `start_tokens` counts from the first one; `line` is its place in the recording."""

    who: Who
    text: str
    start_tokens: int
    tokens: int
    line: int
    use: ToolUse | None = None
    tool: str = ""  # whose result it is
    answers: str = ""  # the call that it is the result of
    is_error: bool = False


def utterances_of(messages: Sequence[Message], lines: Mapping[MessageId, int]) -> list[Utterance]:
    """All that was said, block by block, without sub-agents' own talk and without thinking."""
    said: list[Utterance] = []
    tools: dict[str, str] = {}
    at = 0
    for message in messages:
        if message.agent_id is not None:
            continue
        line = lines.get(message.id, 0)
        words = dict(spoken_blocks(message))
        for index, block in enumerate(message.blocks):
            tokens = block_size(block).base
            value = block.value
            if isinstance(value, ToolUse):
                tools[value.id] = value.name
                said.append(Utterance("agent", input_text(value), at, tokens, line, use=value))
            elif isinstance(value, ToolResult):
                tool = tools.get(value.tool_use_id, "")
                is_error = bool(value.is_error)
                said.append(
                    Utterance(
                        "environment",
                        value.text(),
                        at,
                        tokens,
                        line,
                        tool=tool,
                        answers=value.tool_use_id,
                        is_error=is_error,
                    )
                )
            elif isinstance(value, Text):
                said.append(Utterance(_who(message, index in words), words.get(index, value.text), at, tokens, line))
            at += tokens
    return said


def _who(message: Message, is_spoken: bool) -> Who:
    if message.role == "assistant":
        return "agent"
    return "user" if is_spoken else "environment"


def input_text(use: ToolUse) -> str:
    """The values of a call's input, one below the other; its keys are the tool's words, not the agent's."""
    return "\n".join(_values(use.arguments()))


def _values(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _values(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _values(inner)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield str(value)


def shown(messages: Sequence[Message]) -> str:
    """Messages as plain text, in order: how a view that is made of messages is read by the probe."""
    return "\n".join(text for text in (shown_message(message) for message in messages) if text)


def shown_message(message: Message) -> str:
    """One message as plain text: its text, the values of its calls, the text of its results."""
    if message.agent_id is not None:
        return ""
    return "\n".join(text for text in (shown_block(block) for block in message.blocks) if text)


def shown_block(block: Block) -> str:
    value = block.value
    if isinstance(value, Text):
        return value.text
    if isinstance(value, ToolUse):
        return f"[{value.name}] {input_text(value)}"
    return value.text() if isinstance(value, ToolResult) else ""
