"""Items: messages as the view shows them, with what was counted once (TOK-5)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from perdure.transcript.blocks import Block, Thinking, ToolResult, ToolUse
from perdure.transcript.messages import Message, ToolUseId
from perdure.transcript.records import BlockChange
from perdure.transcript.tokens import NOTHING, Size, block_size
from perdure.transcript.tool_calls.actions import path_of

THINKING = ("thinking", "redacted_thinking")


@dataclass(frozen=True, slots=True)
class ViewItem:
    """One message as shown: `shown[i]` stands for block i of the message, None where it left the view."""

    message: Message
    shown: tuple[Block | None, ...]
    sizes: tuple[Size, ...]
    size: Size
    is_hidden: bool = False

    @property
    def visible(self) -> tuple[Block, ...]:
        """The blocks that the model sees."""
        return () if self.is_hidden else tuple(block for block in self.shown if block is not None)


def item_of(message: Message) -> ViewItem:
    """A message as it first enters the view; counts its blocks."""
    return ViewItem(message, message.blocks, message.sizes, _sum(message.sizes))


def changed_item(item: ViewItem, changes: list[BlockChange]) -> ViewItem:
    """The item after some of its blocks changed; counts only those."""
    shown, sizes = list(item.shown), list(item.sizes)
    for change in changes:
        if not 0 <= change.block < len(shown):
            continue
        block = None if change.is_gone else Block(bytes(change.to))
        shown[change.block] = block
        sizes[change.block] = block_size(block) if block else NOTHING
    return replace(item, shown=tuple(shown), sizes=tuple(sizes), size=_sum(tuple(sizes)))


def is_new_response(items: list[ViewItem], message: Message, position: int) -> bool:
    """One API response may span several messages, with results between them; only its first marks what was sent."""
    if message.response_id is None:
        return True
    for before in range(position - 1, -1, -1):
        said = items[before].message
        if said.role == "assistant":
            return said.response_id != message.response_id
    return True


def media_of(item: ViewItem) -> int:
    """Images and documents that an item shows, also inside results."""
    total = 0
    for block in item.visible:
        if block.type in ("image", "document"):
            total += 1
        elif isinstance(block.value, ToolResult) and not isinstance(block.value.content, str):
            total += sum(part.type in ("image", "document") for part in block.value.parts())
    return total


def _sum(sizes: tuple[Size, ...]) -> Size:
    if len(sizes) == 1:
        return sizes[0]
    return Size(sum(s.base for s in sizes), sum(s.live for s in sizes), sum(s.blind for s in sizes))


@dataclass(frozen=True, slots=True)
class CallInView:
    """A tool call and where it stands: item position and block index; `path` when the input names a file."""

    id: ToolUseId
    name: str
    position: int
    block: int
    path: str | None = None
    span: str = ""  # which part of the file was asked for


@dataclass(frozen=True, slots=True)
class ResultInView:
    """A tool result and where it stands."""

    id: ToolUseId
    position: int
    block: int
    is_error: bool = False


def call_of(use: ToolUse, position: int, block: int) -> CallInView:
    """The call with the file it names, if any."""
    arguments = use.input
    path = path_of(arguments) or None
    span = _span(arguments) if path else ""
    return CallInView(ToolUseId(use.id), use.name, position, block, path, span)


def _span(arguments: dict[str, Any]) -> str:
    keys = ("offset", "limit", "view_range", "start_line", "end_line", "pages")
    return ",".join(f"{key}={arguments[key]}" for key in keys if arguments.get(key) is not None)


def last_response(items: list[ViewItem]) -> int:
    """Where the last API response begins: its calls may still be answered; those before it never again."""
    start, response = len(items), None
    for position in range(len(items) - 1, -1, -1):
        message = items[position].message
        if message.role == "assistant":
            if start < len(items) and (response is None or message.response_id != response):
                break
            start, response = position, message.response_id
    return start


def thoughts(item: ViewItem) -> list[int]:
    """The blocks of the message as said that hold signed thinking: what a provider wants back in an open loop."""
    blocks = enumerate(item.message.blocks)
    return [index for index, block in blocks if block.type in THINKING and is_signed(block)]


def is_signed(block: Block) -> bool:
    """Whether thinking goes into a request at all: without a signature, no provider takes it back."""
    return not (isinstance(block.value, Thinking) and not block.value.signature)


def has_lost_thinking(item: ViewItem) -> bool:
    """Whether signed thinking that was said isn't shown any more."""
    return None in item.shown and any(item.shown[index] is None for index in thoughts(item))


def item_has_results(item: ViewItem) -> bool:
    """Whether the message brings tool results, so that nobody spoke in it."""
    return any(block.type == "tool_result" for block in item.message.blocks)
