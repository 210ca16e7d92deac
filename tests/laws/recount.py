"""What a view's aggregates should be, counted anew from its items, with no code of the fold's."""

from __future__ import annotations

from typing import Any

from perdure.context.view import ContextView
from perdure.transcript.blocks import Block
from perdure.transcript.tokens import block_size

MEDIA = ("image", "document")


def recounted(view: ContextView) -> dict[str, Any]:
    """The aggregates, by a slow walk."""
    calls: dict[str, int] = {}
    results: dict[str, tuple[int, int]] = {}
    names: dict[str, str] = {}
    prompt = 0
    for position, item in enumerate(view.items):
        brings_results = False
        for index, block in enumerate(item.message.blocks):
            if block.type == "tool_use":
                calls[block.value.id] = position  # type: ignore[union-attr]
                names[block.value.id] = block.value.name  # type: ignore[union-attr]
            elif block.type == "tool_result":
                brings_results = True
                link = block.value.tool_use_id  # type: ignore[union-attr]
                if link in calls and link not in results and link not in view.settled:
                    results[link] = (position, index)
        if item.message.origin == "user" and not brings_results:
            prompt = position
    tokens: dict[str, int] = {}
    for link, (position, index) in results.items():
        shown = view.items[position].shown[index]
        if shown is not None and not view.items[position].is_hidden and link not in view.cleared:
            tokens[names[link]] = tokens.get(names[link], 0) + block_size(shown).base
    return {
        "positions": {item.message.id: position for position, item in enumerate(view.items)},
        "calls": calls,
        "results": results,
        "open_calls": {link for link in calls if link not in results and link not in view.settled},
        "result_tokens": {name: total for name, total in tokens.items() if total},
        "size": _size(view),
        "media": sum(_media(block) for item in view.items for block in item.visible),
        "prompt": prompt,
        "thoughtless": max((p for p, item in enumerate(view.items) if _lost_thinking(item)), default=-1),
        "sizes": [tuple(block_size(b) if b else (0, 0, 0) for b in item.shown) for item in view.items],
    }


def carried(view: ContextView) -> dict[str, Any]:
    """The same aggregates as the view carries them."""
    return {
        "positions": view.positions,
        "calls": {call.id: call.position for call in view.calls.values()},
        "results": {result.id: (result.position, result.block) for result in view.results.values()},
        "open_calls": set(view.open_calls),
        "result_tokens": {name: tokens for name, tokens in view.result_tokens.items() if tokens},
        "size": tuple(view.size),
        "media": view.media,
        "prompt": view.prompt,
        "thoughtless": view.thoughtless,
        "sizes": [item.sizes for item in view.items],
    }


def _size(view: ContextView) -> tuple[int, int, int]:
    total = [0, 0, 0]
    shown = [block for item in view.items for block in item.visible]
    shown += [block for collapse in view.collapses.values() for block in collapse.projection.blocks]
    for block in shown:
        for number, part in enumerate(block_size(block)):
            total[number] += part
    return total[0], total[1], total[2]


def _lost_thinking(item: Any) -> bool:
    pairs = zip(item.message.blocks, item.shown, strict=True)
    gone = [said for said, shown in pairs if shown is None and "thinking" in said.type]
    return any(block.type == "redacted_thinking" or b'"signature":""' not in block.raw for block in gone)


def _media(block: Block) -> int:
    if block.type in MEDIA:
        return 1
    content = getattr(block.value, "content", None)
    if block.type != "tool_result" or not isinstance(content, list):
        return 0
    return sum(part.type in MEDIA for part in block.value.parts())  # type: ignore[union-attr]
