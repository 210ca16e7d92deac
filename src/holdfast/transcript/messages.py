"""A message: who said what, when, in which API response, and what it cost (ENG-2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NewType

import msgspec

from holdfast.errors import MalformedBlock
from holdfast.transcript.blocks import Block, ToolResult, ToolUse, block_of, one_line, text_block

MessageId = NewType("MessageId", str)
ToolUseId = NewType("ToolUseId", str)
ResponseId = NewType("ResponseId", str)
BlobId = NewType("BlobId", str)

Role = Literal["user", "assistant", "system"]
Origin = Literal["user", "model", "tool", "reminder", "restored", "summary", "system"]


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tokens that the provider reported for one API response. Cached and uncached input add up to the prompt.

    `cache_creation_1h_tokens` is the part of `cache_creation_input_tokens` that was written to live for an hour.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_creation_1h_tokens: int = 0

    @property
    def prompt_tokens(self) -> int:
        """The size of the request."""
        return self.input_tokens + self.cache_read_input_tokens + self.cache_creation_input_tokens

    @property
    def total_tokens(self) -> int:
        """What the context holds after the answer (TOK-3)."""
        return self.prompt_tokens + self.output_tokens


class Message(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True, tag_field="type", tag="message"
):
    """One message of the conversation; as a journal record, the statement that it was said.

    `content` holds the raw JSON of each block. `at` is in seconds since the epoch. `response_id` is the API response
    that the message came from: several messages may share it, and repeat its usage. `agent_id` is set for sub-agents,
    whose messages are kept but are not part of the main view.
    """

    id: MessageId
    role: Role
    content: tuple[msgspec.Raw, ...]
    origin: Origin
    at: float | None = None
    response_id: ResponseId | None = None
    model: str | None = None
    usage: Usage | None = None
    stop_reason: str | None = None
    agent_id: str | None = None
    note: str | None = None

    @classmethod
    def of(cls, role: Role, content: str | Sequence[Block | dict[str, Any]], **fields: Any) -> Message:
        """A message from a text, or from blocks and plain objects; `fields` are any others of a message.

        Without an origin, the user's tool results come from tools, other words of the user from a person, and the
        assistant's from the model. Without an id or a time, the session gives them when it is appended. A `usage` may
        be a plain object as the API reports it. A message of the role system is kept but not sent: the system prompt
        is part of the `Front`. Raises `MalformedBlock` for content that is no block, or no valid text.

        >>> Message.of("user", "Hello").blocks[0].value.text
        'Hello'
        """
        try:
            given = [text_block(content)] if isinstance(content, str) else content
            blocks = [one if isinstance(one, Block) else block_of(one) for one in given]
        except UnicodeEncodeError as e:
            raise MalformedBlock("text", f"half a surrogate pair at character {e.start}; replace it") from None
        if isinstance(fields.get("usage"), Mapping):
            fields["usage"] = msgspec.convert(fields["usage"], Usage, strict=False)
        if "origin" not in fields:
            answers = any(block.kind == "tool_result" for block in blocks)
            fields["origin"] = {"assistant": "model", "system": "system"}.get(role, "tool" if answers else "user")
        return cls(role=role, content=content_of(blocks), **{"id": MessageId(""), **fields})

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The content as blocks; each keeps its bytes."""
        return tuple(Block(bytes(raw)) for raw in self.content)

    @property
    def tool_uses(self) -> tuple[ToolUse, ...]:
        return tuple(b.value for b in self.blocks if b.kind == "tool_use" and isinstance(b.value, ToolUse))

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        return tuple(b.value for b in self.blocks if b.kind == "tool_result" and isinstance(b.value, ToolResult))

    def check(self) -> Message:
        """Raise `MalformedBlock` if any known block hasn't its shape; returns itself."""
        for block in self.blocks:
            block.check()
        return self


def content_of(blocks: Sequence[Block]) -> tuple[msgspec.Raw, ...]:
    """Blocks as message content."""
    return tuple(msgspec.Raw(one_line(block.raw)) for block in blocks)
