"""Microcompaction: old tool results are cleared, by size, by idleness, or by the provider (TURN-4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.context.economics import first_position, pays_back
from holdfast.context.items import Result
from holdfast.context.policy import Facts
from holdfast.context.replacements import stored, with_text
from holdfast.context.thinking import is_postponed
from holdfast.context.view import View
from holdfast.transcript.blocks import text_block
from holdfast.transcript.edits import Change, Cleared
from holdfast.transcript.messages import MessageId, ToolUseId
from holdfast.transcript.sizes import text_size

# Attachments that were true when they were shown and can be had again: recalled memories, nested instruction files.
OLD_ATTACHMENTS = ("memory", "nested_instructions")
ATTACHMENT_CLEARED = "[Old attachment cleared]"
_WORTH_TOKENS = 40  # attachments and images below this cost about what would stand in their place
IMAGE_CLEARED = "[Old image cleared; recall with id {id}]"


def cleared_text(identity: str) -> str:
    """What stands in the place of a cleared result (TURN-4)."""
    return f"[Old tool result content cleared; recall with id {identity}]"


def select_by_size(
    candidates: Sequence[tuple[ToolUseId, int]], *, keep_tokens: int, keep_last: int, min_saved: int
) -> tuple[list[ToolUseId], int]:
    """The rule of the recordings: oldest first while more than `keep_tokens` remain, never the last `keep_last`.

    `candidates` are (id, tokens by the base rule) in order. Returns the ids and the tokens saved; nothing when fewer
    than `min_saved` would be.
    """
    remaining = sum(tokens for _, tokens in candidates)
    chosen: list[ToolUseId] = []
    saved = 0
    for identity, tokens in candidates[: max(0, len(candidates) - keep_last)]:
        if remaining <= keep_tokens:
            break
        chosen.append(identity)
        remaining -= tokens
        saved += tokens
    return (chosen, saved) if saved >= min_saved else ([], 0)


def microcompact(view: View, facts: Facts) -> tuple[Cleared, ...]:
    """Clear old results when the cache is cold anyway, or when they are many and the window is nearly full."""
    settings = facts.settings
    if not settings.microcompact or settings.provider_clearing:
        return ()
    if settings.idle_clear and facts.is_cold(view):
        ids = [identity for identity, _ in candidates(view, facts)]
        ids = ids[: len(ids) - settings.idle_keep_last] if len(ids) > settings.idle_keep_last else []
        edit = _clear(view, ids, "idle", "the cache is cold")
        return (edit,) if _may_move(view, edit, facts) else ()
    return _by_size(view, facts)


def _by_size(view: View, facts: Facts) -> tuple[Cleared, ...]:
    settings, limits = facts.settings, facts.limits
    tools = frozenset(settings.microcompact_tools)
    keep_tokens = limits.scaled(settings.microcompact_keep_tokens)
    if sum(tokens for name, tokens in view.result_tokens.items() if name in tools) <= keep_tokens:
        return ()
    size = facts.size(view)
    if size < limits.trigger - facts.reach_tokens:
        return ()
    found, min_saved = candidates(view, facts), limits.scaled(settings.microcompact_min_saved_tokens)
    ids, saved = select_by_size(
        found, keep_tokens=keep_tokens, keep_last=settings.microcompact_keep_last, min_saved=min_saved
    )
    saved -= sum(tokens for i, tokens in found if i in ids and view.results[i].position >= view.sent)
    if saved < min_saved:
        return ()
    edit = _clear(view, ids, "size", "old results fill the window")
    if not _may_move(view, edit, facts):
        return ()
    if size < limits.trigger and not pays_back(view, (edit,), saved, facts):
        return ()
    return (edit,)


def _may_move(view: View, edit: Cleared, facts: Facts) -> bool:
    """Whether the edit changes anything, and no open loop behind what it changes holds bound thinking (TURN-7)."""
    first = first_position(view, (edit,))
    return first is not None and not is_postponed(view, first, facts)


def candidates(view: View, facts: Facts) -> list[tuple[ToolUseId, int]]:
    """Results of compactable tools still shown, in order, with their tokens by the base rule."""
    tools = frozenset(facts.settings.microcompact_tools)
    return [
        (identity, view.items[result.position].sizes[result.block].base)
        for identity, result in view.results.items()
        if view.calls[identity].name in tools and _is_candidate(view, result, facts)
    ]


def _is_candidate(view: View, result: Result, facts: Facts) -> bool:
    if result.id in view.cleared or result.id in view.snipped:
        return False
    item = view.items[result.position]
    if item.is_hidden or item.shown[result.block] is None:
        return False
    return not (facts.settings.microcompact_spare_errors and result.is_error)


def frontier(view: View, facts: Facts) -> int:
    """The position of the oldest result that clearing may still take; the end of the view when there is none."""
    tools = frozenset(facts.settings.microcompact_tools)
    for identity, result in view.results.items():
        if view.calls[identity].name in tools and _is_candidate(view, result, facts) and _saves(view, identity) > 0:
            return result.position
    return len(view.items)


def _clear(view: View, ids: list[ToolUseId], trigger: Literal["size", "idle"], reason: str) -> Cleared:
    """The edit that clears results, with the images and old attachments among what it passes."""
    changes: list[Change] = []
    saved = 0
    # What no answered request held is the model's to read first.
    ids = [i for i in ids if view.results[i].position < view.sent and _saves(view, i) > 0]
    for identity in ids:
        saved += _saves(view, identity)
        changes.append(with_text(view, identity, cleared_text(identity)))
    last = max((view.results[i].position for i in ids), default=-1)
    attachments, images = _passed_by(view, last, set(ids))
    changes += attachments
    changes += images
    return Cleared(
        trigger=trigger,
        tool_use_ids=tuple(ids),
        changes=tuple(changes),
        stored=tuple(stored(view, identity) for identity in ids),
        attachments=tuple(dict.fromkeys(MessageId(change.message) for change in attachments)),
        images=len(images),
        tokens_saved=saved + sum(_change_saves(view, change) for change in (*attachments, *images)),
        reason=reason,
    )


def _saves(view: View, identity: ToolUseId) -> int:
    """Tokens that clearing a result frees, by the base rule; none when the live estimate wouldn't fall as well."""
    result = view.results[identity]
    before, after = view.items[result.position].sizes[result.block], text_size(cleared_text(identity))
    return before.base - after.base if before.live > after.live else 0


def _change_saves(view: View, change: Change) -> int:
    return view.items[view.positions[change.message]].sizes[change.block].base


def _passed_by(view: View, last: int, cleared: set[ToolUseId]) -> tuple[list[Change], list[Change]]:
    """Old attachments and old images up to position `last` that are still shown."""
    attachments: list[Change] = []
    images: list[Change] = []
    for item in view.items[: last + 1]:
        message = item.message
        if item.is_hidden or message.role != "user":
            continue
        for index, block in enumerate(item.shown):
            if block is None:
                continue
            size = item.sizes[index]
            if min(size.base, size.live) <= _WORTH_TOKENS:
                continue
            if message.note in OLD_ATTACHMENTS and block.kind == "text":
                attachments.append(Change(message=message.id, block=index, to=_raw(ATTACHMENT_CLEARED)))
            elif block.kind == "image":
                images.append(Change(message=message.id, block=index, to=_raw(IMAGE_CLEARED.format(id=message.id))))
    return attachments, images


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text_block(text).raw)
