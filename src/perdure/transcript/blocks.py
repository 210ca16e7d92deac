"""Content blocks: the bytes that came, and a typed reading of them (ENG-1).

A `Block` owns the exact JSON bytes of one content block. Its `value` is a reading, made on first use, and never the
source for encoding: whatever a provider, a tool or a newer version put into the block goes out again byte for byte.
Types that we know must have their shape (`MalformedBlock` otherwise); types and fields that we don't know are kept.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from perdure.errors import MalformedBlock


class Text(msgspec.Struct, frozen=True):
    text: str


class Image(msgspec.Struct, frozen=True):
    source: dict[str, Any]


class Document(msgspec.Struct, frozen=True):
    source: dict[str, Any]
    title: str | None = None


class Thinking(msgspec.Struct, frozen=True):
    thinking: str
    signature: str = ""


class RedactedThinking(msgspec.Struct, frozen=True):
    data: str


class ToolUse(msgspec.Struct, frozen=True):
    id: str
    name: str
    raw_input: msgspec.Raw = msgspec.field(name="input")

    def __repr__(self) -> str:
        return f"ToolUse(id={self.id!r}, name={self.name!r}, input={bytes(self.raw_input).decode('utf-8', 'replace')})"

    @property
    def input(self) -> dict[str, Any]:
        """The input as an object; {} when it isn't one (a model can send anything)."""
        try:
            value = msgspec.json.decode(self.raw_input)
        except msgspec.MsgspecError:  # valid JSON that no number type holds, such as 1e999
            return {}
        return value if isinstance(value, dict) else {}


class ToolResult(msgspec.Struct, frozen=True):
    tool_use_id: str
    content: str | list[msgspec.Raw] | None = None
    is_error: bool | None = None

    def parts(self) -> tuple[Block, ...]:
        """Nested blocks; a string content is one text block, no content is none."""
        if self.content is None:
            return ()
        if isinstance(self.content, str):
            return (text_block(self.content),) if self.content else ()
        return tuple(Block(bytes(part)) for part in self.content)

    def text(self) -> str:
        """All text of the result, parts joined by newlines; media left out."""
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return "\n".join(v.text for v in (part.value for part in self.parts()) if isinstance(v, Text))


class ServerToolUse(msgspec.Struct, frozen=True):
    """A call that the provider ran itself; it is answered inside the same assistant message."""

    id: str
    name: str
    raw_input: msgspec.Raw = msgspec.field(name="input")


class ServerToolResult(msgspec.Struct, frozen=True):
    tool_use_id: str
    content: msgspec.Raw = msgspec.Raw(b"null")


class CompactionBlock(msgspec.Struct, frozen=True):
    """A summary made by the provider itself; everything before it is ignored upstream."""

    content: str | None = None


class UnknownBlock(msgspec.Struct, frozen=True):
    """A block type we don't know; only its bytes matter."""


Value = (
    Text
    | Image
    | Document
    | Thinking
    | RedactedThinking
    | ToolUse
    | ToolResult
    | ServerToolUse
    | ServerToolResult
    | CompactionBlock
    | UnknownBlock
)
BlockKind = Literal[
    "text",
    "image",
    "document",
    "thinking",
    "redacted_thinking",
    "tool_use",
    "tool_result",
    "server_tool_use",
    "compaction",
]

_SHAPES: dict[str, type[Value]] = {
    "text": Text,
    "image": Image,
    "document": Document,
    "thinking": Thinking,
    "redacted_thinking": RedactedThinking,
    "tool_use": ToolUse,
    "tool_result": ToolResult,
    "server_tool_use": ServerToolUse,
    "mcp_tool_use": ServerToolUse,
    "compaction": CompactionBlock,
}
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {kind: msgspec.json.Decoder(shape) for kind, shape in _SHAPES.items()}
_SERVER_RESULT = msgspec.json.Decoder(ServerToolResult)


class _Tag(msgspec.Struct):
    type: str


_TAG = msgspec.json.Decoder(_Tag)
_ENCODE = msgspec.json.Encoder().encode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Block:
    """One content block: `raw` bytes, `type`, and `value`, the typed reading.

    Two blocks are equal when their bytes are. Construction checks only that there is a type; `check()` or the first
    use of `value` raises `MalformedBlock` when a known type hasn't its shape.
    """

    __slots__ = ("_value", "raw", "type")

    raw: bytes
    type: str

    def __init__(self, raw: bytes) -> None:
        try:
            self.type = _TAG.decode(raw).type
        except _UNREADABLE as e:
            raise MalformedBlock("content", str(e)) from None
        self.raw = raw
        self._value: Value | None = None

    @property
    def value(self) -> Value:
        if self._value is None:
            self._value = self._read()
        return self._value

    def check(self) -> Block:
        """Raise `MalformedBlock` if a known type hasn't its shape; returns itself."""
        _ = self.value
        return self

    def _read(self) -> Value:
        decoder = _DECODERS.get(self.type)
        if decoder is None:
            if not self.type.endswith("_tool_result"):
                return UnknownBlock()
            decoder = _SERVER_RESULT
        try:
            value: Value = decoder.decode(self.raw)
        except _UNREADABLE as e:
            raise MalformedBlock(self.type, str(e)) from None
        return value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Block) and other.raw == self.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return f"Block({self.raw[:80]!r}{'…' if len(self.raw) > 80 else ''})"


def encode(value: Any) -> bytes:
    """Compact JSON of a plain value; the one way in which Perdure makes JSON of its own."""
    return _ENCODE(value)


def text_block(text: str) -> Block:
    """A text block with the given text."""
    return Block(_ENCODE({"type": "text", "text": text}))


def block_of(value: dict[str, Any]) -> Block:
    """A block from a plain object, encoded once; from then on its bytes are what counts."""
    return Block(_ENCODE(value))


def one_line(raw: bytes) -> bytes:
    """The same JSON without line breaks between tokens, so that it fits a line of the journal.

    Inside a JSON string a line break is always escaped, so every literal one is insignificant whitespace.
    """
    if b"\n" in raw or b"\r" in raw:
        return raw.replace(b"\n", b" ").replace(b"\r", b" ")
    return raw
