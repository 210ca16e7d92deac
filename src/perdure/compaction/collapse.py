"""Collapse: finished ranges of the history fold into a short projection; reversible (TURN-6). And the order of all
cheap passes, of which it is the last: it alone needs the ledger.

A range is finished when the todo it worked on was closed. Prices decide (TURN-5): it acts when room is needed, or when
the shorter prefix pays for itself within the turns that are expected to come.
"""

from __future__ import annotations

from itertools import pairwise
from typing import cast

from perdure.context.cost import pays_back
from perdure.context.cuts import follows_results, legal_cuts
from perdure.context.passes import Pass, microcompact, neutralise, snip, tool_result_budget
from perdure.context.policy import Facts
from perdure.context.reminders import inline
from perdure.context.thinking import is_postponed, with_thinking
from perdure.context.view import ContextView, project
from perdure.transcript.blocks import ToolUse, text_block
from perdure.transcript.messages import Message, MessageId, content_of
from perdure.transcript.records import Collapsed, Record
from perdure.transcript.tokens import block_size
from perdure.transcript.tool_calls.actions import ToolTable

_PROJECTION_TOKENS = 800


def collapse(view: ContextView, facts: Facts) -> tuple[Collapsed, ...]:
    """Fold the finished ranges that are worth it, the oldest first, each judged by the view behind those before it.

    All at once, so that a request which is prepared again, as after a cut call, is the same one (REL-5).
    """
    edits: list[Collapsed] = []
    while facts.settings.collapse and (edit := _next(view, facts)) is not None:
        edits.append(edit)
        view = project(cast("tuple[Record, ...]", with_thinking(view, (edit,), facts)), onto=view)
    return tuple(edits)


def _next(view: ContextView, facts: Facts) -> Collapsed | None:
    """The oldest finished range that is worth it, folded."""
    settings = facts.settings
    for first, last, title in finished_ranges(view, ToolTable.of(settings.ledger_tools)):
        tokens = sum(item.size.base for item in view.items[first : last + 1])
        if tokens < facts.limits.scaled(settings.collapse_min_tokens) or is_postponed(view, first, facts):
            continue
        edit = _collapsed(view, (first, last), title, facts)
        if edit.tokens_saved <= 0 or _joins_loops(view, first, last):
            continue
        needs_room = facts.size(view) >= facts.limits.warning
        if needs_room or pays_back(view, (edit,), edit.tokens_saved, facts):
            return edit
    return None


def finished_ranges(view: ContextView, tools: ToolTable) -> list[tuple[int, int, str]]:
    """(first, last, todo) of each stretch of work on a todo that was closed, at legal cuts, not collapsed, all sent."""
    todo_tools = {name for name in {call.name for call in view.calls.values()} if tools.kind(name) == "todo"}
    if not todo_tools:
        return []
    from perdure.transcript.tool_calls.todos import todo_update  # most conversations keep no list of todos (LIB-6)

    cuts = legal_cuts(view, loops=False)
    ranges = []
    started: dict[str, int] = {}
    for call in view.calls.values():
        if call.name not in todo_tools or view.items[call.position].is_hidden:
            continue
        value = view.items[call.position].message.blocks[call.block].value
        update = todo_update("todo", call.name, value.input) if isinstance(value, ToolUse) else None
        for todo, status, _ in update.items if update is not None else ():
            if not todo:
                continue  # named by its id alone
            if status == "in_progress":
                started.setdefault(todo, call.position)
            elif status == "completed" and todo in started:
                first = next((cut for cut in cuts if cut > started[todo]), None)
                last = next((cut for cut in reversed(cuts) if cut <= call.position), None)
                del started[todo]
                if first is not None and last is not None and first < last <= view.sent:
                    ranges.append((first, last - 1, todo))
    return [r for r in ranges if not any(item.is_hidden for item in view.items[r[0] : r[1] + 1])]


def _joins_loops(view: ContextView, first: int, last: int) -> bool:
    """Whether a loop ends within the range and one before it would go on through the projection (TURN-7)."""
    if not follows_results(view, first):
        return False
    messages = [item.message for item in view.items[first : last + 2]]
    ends = messages[last - first].role == "assistant" and not messages[last - first].tool_uses
    turns = pairwise(messages)
    return ends or any(a.role == "assistant" and b.role == "user" and not b.tool_results for a, b in turns)


def _collapsed(view: ContextView, span: tuple[int, int], title: str, facts: Facts) -> Collapsed:
    items = view.items[span[0] : span[1] + 1]
    messages = [item.message for item in items]
    identity = f"collapse-{messages[0].id}"
    from perdure.compaction.ledger.render import digest  # few requests fold anything (LIB-6)

    text = digest(messages, facts.limits.scaled(_PROJECTION_TOKENS), ToolTable.of(facts.settings.ledger_tools))
    lead = f'[Finished work, folded: "{inline(title)}". The whole of it: recall with id {identity}]\n\n'
    block = text_block(lead + text)
    size, saved = block_size(block), sum(item.size.base for item in items)
    shrinks = size.live < sum(item.size.live for item in items)
    projection = Message(
        id=MessageId(identity),
        role="user",
        content=content_of([block]),
        origin="summary",
        at=messages[-1].at,
    )
    return Collapsed(
        id=identity,
        first=messages[0].id,
        last=messages[-1].id,
        projection=projection,
        tokens_saved=saved - size.base if shrinks else 0,
        reason="a finished task",
    )


CHEAP_PASSES: tuple[Pass, ...] = (
    tool_result_budget,  # TURN-2
    neutralise,  # SEC-4: what stays inline; a preview is made of neutral text
    snip,  # TURN-3
    microcompact,  # TURN-4, TURN-5
    collapse,  # TURN-6
)
