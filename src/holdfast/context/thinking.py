"""Signed thinking and edits: what is dropped with an edit, and which edits have to wait (TURN-7).

On newer models a thinking block's signature holds only for the exact prefix it was made after. So an edit at a position
takes with it the thinking of finished turns from there on; and inside an open tool loop, where the API wants the
thinking back, nothing before it is edited unless the call would otherwise fail.
"""

from __future__ import annotations

from holdfast.context.cuts import THINKING, open_loop
from holdfast.context.policy import Facts
from holdfast.context.view import View
from holdfast.transcript.edits import Change, ThinkingDropped


def is_postponed(view: View, position: int, facts: Facts) -> bool:
    """Whether an edit at `position` must wait, since an open loop after it holds bound thinking.

    It no longer waits from the trigger on: then the alternative is a compaction, which rewrites everything, or no call.
    """
    if facts.settings.thinking == "provider" or not facts.model.thinking_is_bound:
        return False
    loop = open_loop(view)
    if loop is None or facts.size(view) >= facts.limits.trigger:
        return False
    return any(block.kind in THINKING for item in view.items[max(position, loop) :] for block in item.visible)


def dropped_thinking(view: View, position: int, facts: Facts) -> ThinkingDropped | None:
    """The edit that goes with another edit at `position`: thinking after it leaves the view.

    Thinking of the open tool loop stays where signatures aren't bound to the prefix: the API wants it back.
    """
    if facts.settings.thinking == "provider":
        return None
    loop = None if facts.model.thinking_is_bound else open_loop(view)
    end = len(view.items) if loop is None else loop
    changes = tuple(
        Change(message=item.message.id, block=index)
        for item in view.items[position:end]
        if not item.is_hidden
        for index, block in enumerate(item.shown)
        if block is not None and block.kind in THINKING
    )
    return ThinkingDropped(changes=changes, reason="thinking after an edit") if changes else None
