"""How full the window is and what is left of it, in words that mean the same wherever they stand (PRS-7, TOK-6).

*Used* is what the next request holds. *Left* is how far that is from auto-compaction, or, where that is off, from the
size at which calls stop. *Free* is what the window could hold beside the answer, for which a part is reserved.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from perdure.cli.output import about
from perdure.context.policy import begins_at, compaction_need, has_given_up, low_line
from perdure.context.view import is_measured

if TYPE_CHECKING:
    from perdure.context.policy import Facts, Thresholds
    from perdure.context.view import ContextView

_SOURCES = {
    "setting": "set by window_tokens",
    "provider": "as its provider says",
    "log": "as the log says",
    "model": "as the table of models has it",
    "default": "assumed, as the model's own isn't known",
    "flag": "as was given",
}


def window_line(limits: Thresholds) -> str:
    """How large the window is, and how that is known."""
    return f"{limits.window:,} tokens, {_SOURCES[limits.window_source]}"


def used_line(view: ContextView, facts: Facts) -> str:
    """How full the window is, and whether that is estimated. Until a size was reported the estimate has a margin."""
    size = facts.size(view)
    if view.anchor is None:
        used = f"up to {about(size, rounds='up')}"
    else:
        used = f"{size:,}" if is_measured(view) else about(size)
    return f"{used} of {facts.limits.window:,} tokens used"


def room_line(view: ContextView, facts: Facts) -> str:
    """How full the window is, and how far it is to what comes next: a compaction, or the end of all calls."""
    return f"{used_line(view, facts)}{_next(view, facts)}"


def _next(view: ContextView, facts: Facts) -> str:
    limits = facts.limits
    if limits.auto and has_given_up(view, facts.settings):
        return f"; auto-compaction has given up: /compact makes room, and calls stop at {limits.block:,}"
    left = _left(view, facts)
    if compaction_need(view, facts) is not None or (limits.auto and not left):
        return "; auto-compaction is due before the next call"
    if not left:
        return "; no call is made before there is room"
    if view.anchor is None:
        shown = f"at least {about(left, rounds='down')}"
    else:
        shown = f"{left:,}" if is_measured(view) else about(left)
    return f", {shown} left until {'auto-compaction' if limits.auto else 'calls stop'}"


def _end(view: ContextView, facts: Facts) -> int:
    compacts = facts.limits.auto and not has_given_up(view, facts.settings)
    return begins_at(view, facts.limits) if compacts else facts.limits.block


def _left(view: ContextView, facts: Facts) -> int:
    return max(0, _end(view, facts) - facts.size(view))


def room_lines(view: ContextView, facts: Facts, **advice: str) -> Iterator[str]:
    """The same at length, with every size at which something happens; `advice` is as for `low_line`."""
    limits, size, end = facts.limits, facts.size(view), _end(view, facts)
    yield f"window: {window_line(limits)}"
    if is_measured(view):
        yield "used: as the provider counted it"
    elif view.anchor is not None and view.anchor.is_reported:
        yield "used: as the provider counted it up to its last answer, and estimated since"
    else:
        yield "used: estimated" + ", with a margin, until a provider counts it" * (view.anchor is None)
    left = _left(view, facts)
    if not limits.auto:
        what = f"calls stop at {end:,}, as auto-compaction is off"
    elif has_given_up(view, facts.settings):
        what = f"calls stop at {end:,}, as auto-compaction has given up"
    else:
        what = f"auto-compaction at {end:,}"
    yield f"left: {left:,} tokens ({left * 100 / end:.0f}%) until {what}"
    free = f"free: {max(0, limits.usable - size):,} tokens beside the {limits.reserve:,} reserved for the answer"
    yield free + f", {max(0, limits.block - size):,} of them until calls stop at {limits.block:,}" * limits.auto
    yield f"context low: from {limits.warning:,}; almost full: from {limits.error:,}"
    if (line := low_line(size, limits, **advice)) is not None:
        yield line
    if size >= limits.block:
        yield "no call is made before there is room"
