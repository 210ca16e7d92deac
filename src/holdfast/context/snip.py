"""Snip: old history that policy calls worthless leaves the view (TURN-3).

Superseded reads, repeated identical results and progress chatter give way to one line; aborted turns keep the person's
words only. It moves the prefix like any edit, so it acts only when the prefix moves anyway, when the cache is cold, or
when the window is nearly full.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.context.microcompact import microcompact
from holdfast.context.policy import Facts
from holdfast.context.replacements import stored, with_text
from holdfast.context.thinking import is_postponed
from holdfast.context.view import View
from holdfast.transcript.blocks import ToolResult
from holdfast.transcript.edits import Change, Snipped
from holdfast.transcript.messages import ToolUseId

# Below this a replacement saves nothing worth a record.
_WORTH_TOKENS = 60
_INTERRUPTED = "[Request interrupted by user"
_PROGRESS = re.compile(r"(?:\d{1,3}(?:\.\d+)?\s?%|\b\d+/\d+\b|[#=█▏▎▍▌▋▊▉>-]{8,}|\bETA\b|\b[\d.]+\s?[kMG]i?B/s)")


def snip(view: View, facts: Facts) -> tuple[Snipped, ...]:
    """One edit with everything that is worthless now, or none."""
    if not facts.settings.snip or not _may_act(view, facts):
        return ()
    ids = list(dict.fromkeys((*_superseded(view), *_repeated(view))))
    changes = [with_text(view, identity, _text(view, identity)) for identity in ids]
    saved = sum(_tokens(view, identity) for identity in ids)
    chatter = [i for i in _chatter(view) if i not in ids]
    changes += [with_text(view, i, _quiet(view, i)) for i in chatter]
    aborted, aborted_tokens = _aborted(view)
    changes += aborted
    if not changes:
        return ()
    first = min(view.positions[change.message] for change in changes)
    if is_postponed(view, first, facts):
        return ()
    return (
        Snipped(
            changes=tuple(changes),
            stored=tuple(stored(view, identity) for identity in (*ids, *chatter)),
            tokens_saved=saved + aborted_tokens,
            reason="worthless history",
        ),
    )


def _may_act(view: View, facts: Facts) -> bool:
    if not view.items:
        return False
    limits = facts.limits
    reach = min(limits.scaled(facts.settings.microcompact_reach_tokens), limits.trigger * 15 // 100)
    if facts.size(view) >= limits.trigger - reach or facts.is_cold(view):
        return True
    return bool(microcompact(view, facts))


def _tokens(view: View, identity: ToolUseId) -> int:
    result = view.results[identity]
    return view.items[result.position].sizes[result.block].base


def _is_open(view: View, identity: ToolUseId) -> bool:
    """Whether a result is shown as it came and was sent already (what is new is the model's to read first)."""
    result = view.results.get(identity)
    if result is None or result.position >= view.sent or view.items[result.position].is_hidden:
        return False
    return identity not in view.cleared and identity not in view.snipped and _tokens(view, identity) >= _WORTH_TOKENS


def _said(view: View, identity: ToolUseId) -> str:
    """The text of a result as it came."""
    result = view.results[identity]
    value = view.items[result.position].message.blocks[result.block].value
    return value.text() if isinstance(value, ToolResult) else ""


def _superseded(view: View) -> Iterator[ToolUseId]:
    for identity in view.superseded:
        if _is_open(view, identity):
            yield identity


def _repeated(view: View) -> Iterator[ToolUseId]:
    """Results whose exact text came again later from the same tool: the older ones."""
    newest: dict[tuple[str, str], ToolUseId] = {}
    for identity in view.results:
        if not _is_open(view, identity):
            continue
        key = (view.calls[identity].name, _said(view, identity))
        if key in newest:
            yield newest[key]
        newest[key] = identity


def _text(view: View, identity: ToolUseId) -> str:
    newer = view.superseded.get(identity)
    what = "Superseded by a later read of the same file" if newer else "The same result came again later"
    return f"[{what}; recall with id {identity}]"


def _chatter(view: View) -> Iterator[ToolUseId]:
    """Results that are mostly progress lines."""
    for identity in view.results:
        if not _is_open(view, identity) or identity in view.frozen or _tokens(view, identity) < 4 * _WORTH_TOKENS:
            continue
        lines = _lines(_said(view, identity))
        if len(lines) >= 20 and sum(bool(_PROGRESS.search(line[:200])) for line in lines) >= 0.7 * len(lines):
            yield identity


def _lines(text: str) -> list[str]:
    return [line for line in re.split(r"[\r\n]+", text) if line.strip()]


def _quiet(view: View, identity: ToolUseId) -> str:
    last = _lines(_said(view, identity))[-5:]
    return f"[Progress output left out; recall with id {identity}. It ended with:]\n" + "\n".join(last)


def _aborted(view: View) -> tuple[list[Change], int]:
    """Turns that the person interrupted before any tool had run: the model's unfinished words go, theirs stay."""
    changes: list[Change] = []
    tokens = 0
    start: int | None = None
    for position, item in enumerate(view.items[: view.sent]):
        is_person = item.message.origin == "user" and not any(b.kind == "tool_result" for b in item.message.blocks)
        if not is_person:
            continue
        text = b"".join(block.raw[:120] for block in item.message.blocks[:1]).decode("utf-8", "replace")
        if start is not None and _INTERRUPTED in text:
            for index in _unfinished(view, start + 1, position):
                message = view.items[index].message
                shown = [i for i, block in enumerate(view.items[index].shown) if block is not None]
                changes += [Change(message=message.id, block=i) for i in shown]
                tokens += view.items[index].size.base
        start = position
    return changes, tokens


def _unfinished(view: View, first: int, last: int) -> range:
    """The model's messages between two of the person's, when none of them called a tool; else nothing."""
    between = view.items[first:last]
    ok = all(item.message.role == "assistant" and not item.message.tool_uses for item in between)
    worth = sum(item.size.base for item in between) >= _WORTH_TOKENS
    return range(first, last) if between and ok and worth else range(0)
