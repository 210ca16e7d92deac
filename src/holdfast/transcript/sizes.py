"""How big a block is, in tokens: the base rule and the live estimate side by side (TOK-1, TOK-2).

The base rule (characters over four) is what logs are compared with and what budgets mean; the live estimate is what the
engine adds to the last reported usage. Both are taken once per block and kept with it (TOK-5).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.transcript.blocks import Block, Document, Image, Text, Thinking, ToolResult
from holdfast.transcript.tokens import (
    IMAGE_TOKENS_DEFAULT,
    base_tokens,
    base_tokens_of_units,
    document_tokens,
    image_size_base64,
    image_tokens,
    live_tokens,
    live_tokens_bytes,
)

# TOK-1: a dense result (base64, hex, CJK) of this size makes characters over four wrong by half of the whole view.
DENSE_BYTES = 50_000


class Size(NamedTuple):
    """Tokens of something by three rules.

    `base`: characters over four. `live`: the class-aware estimate. `blind`: what counts when nothing was ever
    reported: the base rule, but the live estimate for results over 50 KB (TOK-1, TOK-3).
    """

    base: int
    live: int
    blind: int

    def plus(self, other: Size) -> Size:
        return Size(self.base + other.base, self.live + other.live, self.blind + other.blind)

    def minus(self, other: Size) -> Size:
        return Size(self.base - other.base, self.live - other.live, self.blind - other.blind)


NOTHING = Size(0, 0, 0)


def text_size(text: str) -> Size:
    """A text by both rules."""
    base = base_tokens(text)
    return Size(base, live_tokens(text), base)


def block_size(block: Block) -> Size:
    """A block by every rule. Images count 2,000 by the base rule, live by their dimensions; thinking, its text."""
    value = block.value
    if isinstance(value, Text):
        return text_size(value.text)
    if isinstance(value, ToolResult):
        return _result_size(value)
    if isinstance(value, Thinking):
        return text_size(value.thinking)
    if isinstance(value, Image):
        return Size(IMAGE_TOKENS_DEFAULT, _image_live(value.source), IMAGE_TOKENS_DEFAULT)
    if isinstance(value, Document):
        tokens = _document(value.source)
        return Size(tokens, tokens, tokens)
    return json_size(block.raw)


def json_size(raw: bytes) -> Size:
    """Compact JSON by both rules, taken as the text it is."""
    if raw.isascii():
        base = base_tokens_of_units(len(raw))
        return Size(base, live_tokens_bytes(raw), base)
    return text_size(raw.decode("utf-8", "replace"))


def _result_size(result: ToolResult) -> Size:
    if isinstance(result.content, str):
        size = text_size(result.content)
        return size._replace(blind=size.live) if len(result.content) > DENSE_BYTES else size
    total = NOTHING
    for part in result.parts():
        total = total.plus(block_size(part))
    return total


def image_edge(block: Block) -> int:
    """The longer edge of an image in pixels; 0 when the block is none, or its size can't be told (TURN-9)."""
    value = block.value
    return max(_pixels(value.source) or (0,)) if isinstance(value, Image) else 0


def _pixels(source: dict[str, Any]) -> tuple[int, int] | None:
    data = source.get("data")
    return image_size_base64(data) if isinstance(data, str) else None


def _image_live(source: dict[str, Any]) -> int:
    size = _pixels(source)
    return image_tokens(*size) if size else IMAGE_TOKENS_DEFAULT


def _document(source: dict[str, Any]) -> int:
    data = source.get("data")
    if source.get("type") == "text" and isinstance(data, str):
        return document_tokens(text=data)
    if isinstance(data, str):
        return document_tokens(pdf_base64=data)
    content = source.get("content")
    return document_tokens(text=content if isinstance(content, str) else None)
