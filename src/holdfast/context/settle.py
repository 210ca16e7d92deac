"""Settling what a request can't leave open (TURN-9, TURN-9b): calls without a result, and media over the limits.

Both are recorded, so that a result which arrives too late, or a limit that changes, doesn't move what was sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.context.policy import Facts
from holdfast.context.view import View
from holdfast.transcript.blocks import Block, ToolResult, encode, text_block
from holdfast.transcript.edits import Change, MediaReplaced, Settled
from holdfast.transcript.sizes import image_edge

MEDIA_REPLACED = "[{kind} left out: more or larger media than a request may hold; recall with id {id}]"
_MEDIA = ("image", "document")
Medium = tuple[int, int, int, int]  # item, block, part (-1: the block itself), bytes
# Replacing a few more at once moves the prefix once instead of at every new image (TURN-9b: in chunks).
_CHUNK = 10


def settle(view: View, facts: Facts) -> tuple[Settled, ...]:
    """Answer for good, with a synthetic error, every call that has no result when a request is made."""
    if not view.open_calls:
        return ()
    return (Settled(tool_use_ids=tuple(view.open_calls), reason="no result when the request was made"),)


def media_limits(view: View, facts: Facts) -> tuple[MediaReplaced, ...]:
    """Replace what a request may not hold: images whose edges are too long, and the oldest media while
    there are too many, or too many bytes of them."""
    if not view.media:
        return ()
    limit = facts.model.max_image_edge_pixels
    edges = {place: image_edge(_medium(view, place)) for place in shown_media(view)}
    dropped = [place for place, edge in edges.items() if limit is not None and edge > limit]
    for place in dropped:
        del edges[place]
    dropped += _oldest(list(edges), max(edges.values(), default=0), facts)
    if not dropped:
        return ()
    replaced: dict[tuple[int, int], set[int]] = {}
    for position, block, part, _ in dropped:
        replaced.setdefault((position, block), set()).add(part)
    changes = tuple(without_media(view, position, block, parts) for (position, block), parts in replaced.items())
    return (MediaReplaced(changes=changes, reason="media over the limits of a request"),)


def _oldest(shown: list[Medium], edge: int, facts: Facts) -> list[Medium]:
    """Those that are over the limits of count and bytes, and a few more at once. A request with many images takes only
    small ones: with a larger one among them, fewer are kept, the newest."""
    model = facts.model
    most = facts.settings.max_images or model.max_images
    if model.max_image_edge_pixels is not None and edge > model.many_image_edge_pixels:
        most = min(most, model.many_images)
    left = sum(size for _, _, _, size in shown)
    if len(shown) <= most and left <= facts.settings.max_media_bytes:
        return []
    drop = 0
    while len(shown) - drop > most or left > facts.settings.max_media_bytes:
        left -= shown[drop][3]
        drop += 1
    return shown[: drop + min(_CHUNK, most // 4)]


def _medium(view: View, place: Medium) -> Block:
    position, index, part, _ = place
    block = view.items[position].shown[index]
    assert block is not None
    if part < 0:
        return block
    assert isinstance(block.value, ToolResult)
    return block.value.parts()[part]


def shown_media(view: View) -> Iterator[Medium]:
    """(item, block, part, bytes) of each image or document shown, oldest first; part -1: the block itself."""
    for position, item in enumerate(view.items):
        if item.is_hidden:
            continue
        for index, block in enumerate(item.shown):
            if block is None:
                continue
            if block.kind in _MEDIA:
                yield position, index, -1, len(block.raw)
            elif isinstance(block.value, ToolResult) and not isinstance(block.value.content, str):
                for number, part in enumerate(block.value.parts()):
                    if part.kind in _MEDIA:
                        yield position, index, number, len(part.raw)


def without_media(view: View, position: int, index: int, parts: set[int], words: str = MEDIA_REPLACED) -> Change:
    """The change that shows `words` in place of some media of a block (part -1: the block itself)."""
    item = view.items[position]
    block = item.shown[index]
    assert block is not None
    if -1 in parts:
        raw = _placeholder(block, item.message.id, words).raw
    else:
        raw = _result_without(block, parts, words)
    return Change(message=item.message.id, block=index, to=msgspec.Raw(raw))


def _placeholder(block: Block, identity: str, words: str) -> Block:
    return text_block(words.format(kind=block.kind.capitalize(), id=identity))


def _result_without(block: Block, parts: set[int], words: str) -> bytes:
    fields: dict[str, Any] = msgspec.json.decode(block.raw, type=dict[str, msgspec.Raw])
    value = block.value
    assert isinstance(value, ToolResult)
    fields["content"] = [
        msgspec.Raw(_placeholder(part, value.tool_use_id, words).raw if number in parts else part.raw)
        for number, part in enumerate(value.parts())
    ]
    return encode(fields)
