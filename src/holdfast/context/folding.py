"""How a record changes a view in place, and the sums that a view carries with it (TURN-14).

The steps of the fold in `view`, which alone decides when each is taken; nothing else may call them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.context import anchor as anchors
from holdfast.context.items import (
    Call,
    Item,
    Result,
    call_of,
    changed,
    has_lost_thinking,
    is_new_response,
    item_has_results,
    item_of,
    media_of,
)
from holdfast.transcript.blocks import ToolResult, ToolUse
from holdfast.transcript.edits import Change, Cleared, Collapsed, Edit, Offloaded, Settled, Snipped, Undone
from holdfast.transcript.messages import Message, MessageId, ToolUseId

if TYPE_CHECKING:
    from holdfast.context.view import View


def said(view: View, message: Message) -> None:
    if message.agent_id is not None or message.id in view.positions:
        return
    before = view.size
    item = item_of(message)
    position = len(view.items)
    place(view, item, position)
    if message.role == "assistant" and message.origin == "model":
        is_new = is_new_response(view.items, message, position)
        asked_at = view.items[position - 1].message.at if position else None
        view.state = view.state.with_answer(message.at, is_new=is_new, asked_at=asked_at)
        anchors.anchored(view, message, before, is_new=is_new)
        if is_new:
            view.sent, view.moved = position, None
    else:
        view.state = view.state.with_message()
    if message.origin == "user" and not item_has_results(item):
        view.prompt = position


def place(view: View, item: Item, position: int) -> None:
    """Append an item and enter what it brings into the aggregates."""
    view.items.append(item)
    view.positions[item.message.id] = position
    view.size = view.size.plus(item.size)
    view.worth.said(item.message, position)
    view.media += media_of(item)
    for index, block in enumerate(item.message.blocks):
        if block.kind == "tool_use" and isinstance(block.value, ToolUse):
            called(view, call_of(block.value, position, index))
        elif block.kind == "tool_result" and isinstance(block.value, ToolResult):
            answered(view, block.value, position, index)


def called(view: View, call: Call) -> None:
    view.calls[call.id] = call
    if call.id not in view.settled:
        view.open_calls[call.id] = None


def answered(view: View, value: ToolResult, position: int, index: int) -> None:
    """A result arrived: it closes its call, and may supersede an older read of the same part of a file."""
    identity = ToolUseId(value.tool_use_id)
    call = view.calls.get(identity)
    if call is None or identity in view.results or identity in view.settled:
        return
    view.open_calls.pop(identity, None)
    view.results[identity] = Result(identity, position, index, bool(value.is_error))
    count_result(view, identity, +1)
    view.worth.answered(call, value)


def count_result(view: View, identity: ToolUseId, sign: int) -> None:
    """Add or take away the shown size of a result in the sum of its tool."""
    result, call = view.results[identity], view.calls[identity]
    item = view.items[result.position]
    if item.is_hidden or identity in view.cleared:
        return
    tokens = item.sizes[result.block].base
    view.result_tokens[call.name] = view.result_tokens.get(call.name, 0) + sign * tokens


def edited(view: View, edit: Edit) -> None:
    if isinstance(edit, Settled):
        for identity in edit.tool_use_ids:
            view.open_calls.pop(identity, None)
            view.settled.add(identity)
    if isinstance(edit, Collapsed):
        hide(view, edit)
    change(view, edit.changes)
    ids = {ToolUseId(stored.tool_use_id) for stored in edit.stored}
    if isinstance(edit, Offloaded):
        view.frozen |= ids
    elif isinstance(edit, Cleared):
        for identity in edit.tool_use_ids:
            if identity in view.results:
                count_result(view, identity, -1)
            view.cleared.add(identity)
        view.worth.taken(edit.tool_use_ids)
    elif isinstance(edit, Snipped):
        view.snipped |= ids
        view.worth.taken(ids)


def change(view: View, changes: tuple[Change, ...]) -> None:
    """Show some blocks as other bytes from now on, and keep the sums right."""
    by_message: dict[MessageId, list[Change]] = {}
    for change in changes:
        by_message.setdefault(change.message, []).append(change)
    for message, some in by_message.items():
        position = view.positions.get(message)
        if position is None:
            continue
        touched = results_at(view, position, {change.block for change in some})
        for identity in touched:
            count_result(view, identity, -1)
        replace_item(view, position, changed(view.items[position], some))
        for identity in touched:
            count_result(view, identity, +1)


def results_at(view: View, position: int, blocks: Iterable[int] | None = None) -> list[ToolUseId]:
    found = []
    for block in range(len(view.items[position].message.blocks)) if blocks is None else blocks:
        if 0 <= block < len(view.items[position].message.blocks):
            value = view.items[position].message.blocks[block].value
            if isinstance(value, ToolResult):
                result = view.results.get(ToolUseId(value.tool_use_id))
                if result and (result.position, result.block) == (position, block):
                    found.append(result.id)
    return found


def replace_item(view: View, position: int, item: Item) -> None:
    old = view.items[position]
    view.items[position] = item
    if not old.is_hidden:
        view.size = view.size.minus(old.size)
        view.media -= media_of(old)
    if not item.is_hidden:
        view.size = view.size.plus(item.size)
        view.media += media_of(item)
    if has_lost_thinking(item):
        view.thoughtless = max(view.thoughtless, position)
    view.dirty = min(view.dirty, position)
    if position < view.sent:
        view.moved = position if view.moved is None else min(view.moved, position)


def hide(view: View, edit: Collapsed) -> None:
    """A finished range gives way to its projection, which takes the place of the range's first message."""
    first, last = view.positions.get(edit.first), view.positions.get(edit.last)
    if first is None or last is None:
        return
    for position in range(first, last + 1):
        for result in results_at(view, position):
            count_result(view, result, -1)
        replace_item(view, position, replace(view.items[position], is_hidden=True))
    view.collapses[edit.id] = edit
    projection = item_of(edit.projection)
    view.size = view.size.plus(projection.size)


def undone(view: View, record: Undone) -> None:
    collapse = view.collapses.pop(record.id, None)
    if collapse is None:
        return
    view.size = view.size.minus(item_of(collapse.projection).size)
    for position in range(view.positions[collapse.first], view.positions[collapse.last] + 1):
        replace_item(view, position, replace(view.items[position], is_hidden=False))
        for result in results_at(view, position):
            count_result(view, result, +1)


def restore(view: View, items: list[Item]) -> None:
    """Place items that were in a view before, with their blocks as shown then."""
    for item in items:
        position = len(view.items)
        place(view, replace(item, shown=item.message.blocks), position)
        view.items[position] = item
        if item.is_hidden:
            view.size = view.size.minus(item.size)
        if has_lost_thinking(item):
            view.thoughtless = position
        if item.message.origin == "user" and not item_has_results(item):
            view.prompt = position
    view.result_tokens = {}
    for identity in view.results:
        count_result(view, identity, +1)
    view.media = sum(media_of(item) for item in view.items)
