"""Snip: old history that policy calls worthless leaves the view (TURN-3).

Superseded reads, repeated identical results and progress chatter give way to one line; aborted turns keep the person's
words only. It moves the prefix like any edit, so it acts only when the prefix moves anyway, when the cache is cold, or
when the window is nearly full.
"""

from __future__ import annotations

from holdfast.context.cuts import follows_results
from holdfast.context.economics import first_position, pays_back
from holdfast.context.microcompact import microcompact
from holdfast.context.policy import Facts
from holdfast.context.replacements import stored, with_text
from holdfast.context.thinking import is_postponed
from holdfast.context.view import View
from holdfast.context.worth import WORTH_CHARS, progress_lines
from holdfast.transcript.blocks import ToolResult
from holdfast.transcript.edits import Change, Snipped
from holdfast.transcript.messages import ToolUseId
from holdfast.transcript.sizes import text_size

_WORTH_TOKENS = WORTH_CHARS // 4
_LEAD = {
    "superseded": "[Superseded by a later read of the same file; recall with id {id}]",
    "repeated": "[The same result came again later; recall with id {id}]",
    "chatter": "[Progress output left out; recall with id {id}. It ended with:]\n{last}",
}


def snip(view: View, facts: Facts) -> tuple[Snipped, ...]:
    """One edit with everything that is worthless now, or none."""
    worth = view.worth
    if not facts.settings.snip or not (worth.worthless or worth.interruptions):
        return ()
    if not facts.is_cold(view) and facts.size(view) < facts.limits.trigger - facts.reach_tokens:
        return ()
    edit = _from(view, 0)
    if edit is not None and not _pays(view, edit, facts):
        # What lies behind another edit of this turn is rewritten anyway, and costs nothing more (TURN-16).
        moved = [at for at in (first_position(view, microcompact(view, facts)), view.moved) if at is not None]
        edit = _from(view, min(moved)) if moved else None
    if edit is None or is_postponed(view, min(view.positions[change.message] for change in edit.changes), facts):
        return ()
    return (edit,)


def _from(view: View, position: int) -> Snipped | None:
    """The edit that takes everything worthless from a position on; None when nothing is."""
    takeable = [i for i in view.worth.worthless if _is_takeable(view, i) and view.results[i].position >= position]
    ids = [identity for identity in takeable if _saves(view, identity) > 0]
    aborted, aborted_tokens = _aborted(view, position)
    changes = [*(with_text(view, identity, _text(view, identity)) for identity in ids), *aborted]
    if not changes:
        return None
    return Snipped(
        changes=tuple(changes),
        stored=tuple(stored(view, identity) for identity in ids),
        tokens_saved=sum(_saves(view, identity) for identity in ids) + aborted_tokens,
        reason="worthless history",
    )


def _pays(view: View, edit: Snipped, facts: Facts) -> bool:
    """Whether it is worth a rewritten prefix of its own; in a dead cache anything is."""
    least = facts.limits.scaled(facts.settings.snip_min_saved_tokens)
    is_enough = edit.tokens_saved >= least and pays_back(view, (edit,), edit.tokens_saved, facts)
    return facts.is_cold(view) or is_enough


def _tokens(view: View, identity: ToolUseId) -> int:
    result = view.results[identity]
    return view.items[result.position].sizes[result.block].base


def _saves(view: View, identity: ToolUseId) -> int:
    """Tokens saved by the base rule; none when the estimate wouldn't fall by both."""
    result = view.results[identity]
    before, after = view.items[result.position].sizes[result.block], text_size(_text(view, identity))
    return before.base - after.base if before.live > after.live else 0


def _is_takeable(view: View, identity: ToolUseId) -> bool:
    """Whether a result is shown as it came and was sent already (what is new is the model's to read first)."""
    result = view.results.get(identity)
    if result is None or result.position >= view.sent or view.items[result.position].is_hidden:
        return False
    if identity in view.cleared or identity in view.snipped or identity in view.frozen:
        return False
    return _tokens(view, identity) >= _WORTH_TOKENS


def _text(view: View, identity: ToolUseId) -> str:
    last = ""
    if view.worth.worthless[identity] == "chatter":
        result = view.results[identity]
        value = view.items[result.position].message.blocks[result.block].value
        last = "\n".join(progress_lines(value.text())[-5:]) if isinstance(value, ToolResult) else ""
    return _LEAD[view.worth.worthless[identity]].format(id=identity, last=last)


def _aborted(view: View, position: int) -> tuple[list[Change], int]:
    """Turns that the person interrupted before any tool had run: the model's unfinished words go, theirs stay."""
    changes: list[Change] = []
    tokens = 0
    for end in view.worth.interruptions:
        if end >= view.sent:
            break
        start = end
        while start > 0 and view.items[start - 1].message.role == "assistant":
            start -= 1
        between = view.items[start:end]
        if any(item.message.tool_uses or item.is_hidden for item in between) or follows_results(view, start):
            continue
        worth = sum(item.size.base for item in between)
        if worth < _WORTH_TOKENS or start < position:
            continue
        tokens += worth
        for item in between:
            changes += [Change(message=item.message.id, block=i) for i, b in enumerate(item.shown) if b is not None]
    return changes, tokens
