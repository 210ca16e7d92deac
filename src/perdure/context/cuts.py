"""Where the history may be cut: the intersection of the laws of a valid request.

Every reducer chooses from `legal_cuts`; nothing cuts first and repairs later.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.context.groups import MessageGroup, flatten
from perdure.context.view import THINKING, ContextView


def legal_cuts(view: ContextView, *, loops: bool = True) -> list[int]:
    """Positions p, ascending, such that the items from p on can stand without those before.

    No tool call is parted from its result, no API response from its other messages (so no parallel batch either), no
    collapsed range is split, and with `loops` no tool loop that holds thinking is entered in the middle. What a loop
    entered at a cut found only with `loops=False` may keep of its thinking, `thinking` decides (TURN-15).
    """
    blocked = [0] * (len(view.items) + 2)
    for first, last in _spans(view):
        blocked[first + 1] += 1  # cuts at first + 1 … last would split the span
        blocked[last + 1] -= 1
    if loops:
        for first, last in thinking_loops(view):
            blocked[first + 1] += 1
            blocked[last + 1] -= 1
    cuts, depth = [], 0
    for position in range(len(view.items) + 1):
        depth += blocked[position]
        if depth == 0:
            cuts.append(position)
    return cuts


def _spans(view: ContextView) -> list[tuple[int, int]]:
    """Pairs of positions that must stay together, with all between."""
    end = len(view.items)
    spans = []
    for call in view.calls.values():
        result = view.results.get(call.id)
        if result is not None:
            spans.append((call.position, result.position))
        elif call.id in view.open_calls:
            spans.append((call.position, end))
    first = 0
    for position in range(1, end):
        response = view.items[position].message.response_id
        if response is None or view.items[position].message.role != "assistant":
            continue
        if view.items[first].message.response_id == response:
            spans.append((first, position))
        else:
            first = position
    for collapse in view.collapses.values():
        spans.append((view.positions[collapse.first], view.positions[collapse.last]))
    return spans


def thinking_loops(view: ContextView) -> list[tuple[int, int]]:
    """Tool loops that hold thinking: from the person's prompt to the last message before the next one."""
    loops = []
    start, holds = 0, False
    for position, item in enumerate(view.items):
        if item.message.origin == "user" and not _answers(view, position):
            if holds and position - 1 > start:
                loops.append((start, position - 1))
            start, holds = position, False
        elif not holds:
            holds = any(block.type in THINKING for block in item.visible)
    if holds and len(view.items) - 1 > start:
        loops.append((start, len(view.items) - 1))
    return loops


def _answers(view: ContextView, position: int) -> bool:
    return any(block.type == "tool_result" for block in view.items[position].message.blocks)


def follows_results(view: ContextView, position: int) -> bool:
    """Whether results stand just before: a user message put here is part of theirs, so that their loop goes on."""
    while position > 0 and view.items[position - 1].message.role != "assistant":
        position -= 1
        if _answers(view, position):
            return True
    return False


def open_loop(view: ContextView) -> int | None:
    """Where the tool loop begins that the next request goes on with; None when the model owes no results an answer.

    As the provider sees it, on API messages: a person's words behind the results of a call don't end the loop.
    """
    groups = flatten(view)
    number = open_loop_in(groups)
    return None if number is None else groups[number].first


def open_loop_in(groups: Sequence[MessageGroup]) -> int | None:
    """The number of the API message with which the open tool loop begins; None when none is open."""
    start, has_results = None, False
    for number in range(len(groups) - 1, -1, -1):
        group = groups[number]
        if group.role == "user":
            has_results = has_results or bool(group.results)
        elif any(block.kind not in THINKING for block in group.blocks):  # else it would be gone without its thinking
            if not has_results:
                break
            start, has_results = number, False
    return start
