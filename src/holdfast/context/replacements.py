"""Making the bytes that stand in the place of a result: stable text, the block's other fields kept."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from holdfast.context.view import View
from holdfast.transcript.blocks import ToolResult, encode
from holdfast.transcript.edits import Change, Stored
from holdfast.transcript.messages import BlobId, ToolUseId


def blob_id(content: bytes) -> BlobId:
    """The address of some bytes in the blob store: their SHA-256 in hex."""
    return BlobId(hashlib.sha256(content).hexdigest())


def original(view: View, identity: ToolUseId) -> bytes:
    """The bytes of a result's block as it was said."""
    result = view.results[identity]
    return view.items[result.position].message.blocks[result.block].raw


def stored(view: View, identity: ToolUseId) -> Stored:
    """The address under which a result's original is kept."""
    raw = original(view, identity)
    return Stored(tool_use_id=identity, blob=blob_id(raw), bytes=len(raw))


def with_text(view: View, identity: ToolUseId, text: str, *, keep_media: bool = False) -> Change:
    """The change that shows `text` in place of a result's content; every other field of the block stays.

    With `keep_media`, images and documents of the result stay behind the text.
    """
    result = view.results[identity]
    item = view.items[result.position]
    block = item.message.blocks[result.block]
    fields: dict[str, Any] = msgspec.json.decode(block.raw, type=dict[str, msgspec.Raw])
    media: list[Any] = []
    if keep_media and isinstance(block.value, ToolResult):
        media = [msgspec.Raw(part.raw) for part in block.value.parts() if part.kind != "text"]
    fields["content"] = [{"type": "text", "text": text}, *media] if media else text
    return Change(message=item.message.id, block=result.block, to=msgspec.Raw(encode(fields)))
