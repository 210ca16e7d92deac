"""Signed thinking: what leaves with an edit, which edits wait, and a loop that lost its own (TURN-7, TURN-15).

While a loop of tools is open, the API wants its thinking back as it was; and on newer models a signature holds only
behind the exact prefix it was made after. So the cheap passes wait while a loop with bound thinking is open. What can't
wait (a compaction, another system prompt, refused media) takes the thinking behind it along, and if the open loop is
among what loses it, two recorded lines end that loop and start another: of a finished turn no API wants thinking back.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.context.cost import first_position
from perdure.context.cuts import open_loop, open_loop_in
from perdure.context.groups import MessageGroup, RequiredThinking, WireBlock, flatten
from perdure.context.policy import Facts
from perdure.context.view import THINKING, ContextView, has_lost_thinking, thoughts
from perdure.transcript.blocks import text_block
from perdure.transcript.messages import Message
from perdure.transcript.records import BlockChange, Edit, ThinkingDropped

LOOP_CLOSED = "loop_closed"  # the note of both lines
CLOSES = "[The results above were read; the thinking between them is no longer shown]"
GOES_ON = "[The conversation continues: go on from there, with what was asked last]"


def is_postponed(view: ContextView, position: int, facts: Facts) -> bool:
    """Whether an edit at `position` must wait, since an open loop after it holds bound thinking.

    At the trigger a compaction acts, which doesn't wait. Only above the block threshold, where the call would not be
    made at all, the edit acts, too.
    """
    if facts.settings.thinking == "provider" or not facts.model.thinking_is_bound:
        return False
    loop = open_loop(view)
    if loop is None or facts.size(view) >= facts.limits.block:
        return False
    return any(block.type in THINKING for item in view.items[max(position, loop) :] for block in item.visible)


def dropped_thinking(view: ContextView, position: int, facts: Facts) -> ThinkingDropped | None:
    """The edit that goes with another edit at `position`: thinking after it leaves the view.

    Thinking of the open tool loop stays where signatures aren't bound to the prefix: the API wants it back.
    """
    if facts.settings.thinking == "provider":
        return None
    loop = None if facts.model.thinking_is_bound else open_loop(view)
    end = len(view.items) if loop is None else loop
    changes = tuple(
        BlockChange(message=item.message.id, block=index)
        for item in view.items[position:end]
        if not item.is_hidden
        for index, block in enumerate(item.shown)
        if block is not None and block.type in THINKING
    )
    return ThinkingDropped(changes=changes, reason="thinking after an edit") if changes else None


def is_broken(view: ContextView, wanted: RequiredThinking) -> bool:
    """Whether the open loop lacks thinking that the API wants back, so that it refuses the next request."""
    if wanted == "none":
        return False
    groups = flatten(view)
    number = open_loop_in(groups)
    if number is None:
        return False
    was_cut = view.boundary is not None or bool(view.collapses)
    if wanted == "first" and was_cut and next(groups[number].parts()).kind not in THINKING:
        return True
    start = _start(view, groups[number])
    return view.thoughtless >= start and any(_has_lost(view, p) for p in range(start, len(view.items)))


def closing_lines() -> tuple[Message, Message]:
    """The words that nobody said which end an open loop, and pass the turn to the model again (TURN-15)."""
    return (
        Message.of("assistant", CLOSES, origin="reminder", note=LOOP_CLOSED),
        Message.of("user", GOES_ON, origin="reminder", note=LOOP_CLOSED),
    )


def closed_groups(view: ContextView, groups: Sequence[MessageGroup], upto: int, *, is_bare: bool) -> list[MessageGroup]:
    """The groups of the first `upto` items, in a request that is made once: ended where their open loop is broken.

    `is_bare`: thinking was left out of all of them. Words of ours have to follow.
    """
    kept, number = [*groups], open_loop_in(groups)
    if number is None:
        return kept
    items = range(_start(view, groups[number]), upto)
    if not any(_has_lost(view, p) or (is_bare and thoughts(view.items[p])) for p in items):
        return kept
    return [*kept, MessageGroup("assistant", kept[-1].first, [WireBlock(text_block(CLOSES).raw, "text")])]


def _start(view: ContextView, group: MessageGroup) -> int:
    """Where an answer begins, with messages of it that show nothing any more."""
    start = group.first
    while start > 0 and view.items[start - 1].message.role == "assistant":
        start -= 1
    return start


def _has_lost(view: ContextView, position: int) -> bool:
    item = view.items[position]
    return not item.is_hidden and has_lost_thinking(item)


def with_thinking(view: ContextView, edits: tuple[Edit, ...], facts: Facts) -> tuple[Edit, ...]:
    """The edits, and what thinking has to go with them (TURN-7)."""
    position = first_position(view, edits)
    if position is None or position >= view.sent or all(isinstance(edit, ThinkingDropped) for edit in edits):
        return edits
    dropped = dropped_thinking(view, position, facts)
    return (*edits, dropped) if dropped else edits
