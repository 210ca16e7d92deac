"""The keep window: which messages stay verbatim behind a summary (CMP-2)."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.context.cuts import legal_cuts
from holdfast.context.policy import Facts
from holdfast.context.view import View


class _Bounds(NamedTuple):
    least: int
    most: int
    texts: int
    after: int | None


def keep_from(view: View, facts: Facts, *, after: int | None = None) -> int:
    """The position from which messages are kept; `len(view.items)` keeps none.

    Without `after`, the latest legal cut behind which at least the minimum of tokens and of messages with text stand.
    With it (the position after what a summary covers already), the window starts there and widens backwards until both
    minimums hold. Never more than the maximum, nor than half of what may be filled; the cuts that leave thinking loops
    whole are preferred. Behind the last boundary's summary only.
    """
    limits, settings = facts.limits, facts.settings
    least = limits.scaled(settings.keep_min_tokens)
    most = min(limits.scaled(settings.keep_max_tokens), max(least, _room(view, facts)))
    start = first_said(view)
    bounds = _Bounds(least, most, settings.keep_min_texts, after)
    for loops in (True, False):
        cuts = [c for c in legal_cuts(view, loops=loops) if c >= start]
        cut = _choose(view, cuts, bounds)
        if cut is not None:
            return cut
    return len(view.items)


def _room(view: View, facts: Facts) -> int:
    """Tokens that kept messages may take so that at most half of the trigger is filled afterwards (PRS-2)."""
    limits, calibration = facts.limits, view.state.calibration
    overhead = view.front_size.live if calibration.overhead_tokens is None else calibration.overhead_tokens
    summary = summary_budget(facts)
    return round((limits.trigger // 2 - overhead) / calibration.ratio) - summary


def tail_tokens(view: View, facts: Facts) -> int:
    """Tokens of the latest messages that stand in a record as text when none of them can be kept whole."""
    return max(0, min(facts.limits.scaled(facts.settings.keep_min_tokens), _room(view, facts)))


def summary_budget(facts: Facts) -> int:
    """Tokens that a record may take in this window."""
    return min(facts.limits.scaled(facts.settings.summary_budget_tokens), facts.limits.trigger // 4)


def first_said(view: View) -> int:
    """The position of the first message that the checkpoint hasn't read: behind the last summary.

    A compaction that keeps the latest messages keeps none from before it, as a summary isn't summarised with what came
    after it unless it stands first (CMP-13).
    """
    boundary = view.boundary
    if boundary is None:
        return 0
    known = (*boundary.kept[boundary.read - 1 : boundary.read], *(message.id for message in boundary.summary))
    return max((view.positions[identity] + 1 for identity in known if identity in view.positions), default=0)


def can_leave(view: View, position: int) -> bool:
    """Whether anything that was said stands before a position, other than the last boundary's summary."""
    first = first_said(view)
    return position > first or (position == first and view.boundary is not None and view.boundary.read > 0)


def _choose(view: View, cuts: list[int], bounds: _Bounds) -> int | None:
    """The latest cut that keeps enough, else the one that keeps most within the maximum; None when none fits."""
    best: int | None = None
    tokens, spoken = 0, 0
    position = len(view.items)
    for cut in reversed(cuts):
        while position > cut:
            position -= 1
            item = view.items[position]
            tokens += 0 if item.is_hidden else item.size.base
            spoken += any(block.kind == "text" for block in item.visible)
        if tokens > bounds.most:
            break
        best = cut if cut < len(view.items) else best
        if tokens >= bounds.least and spoken >= bounds.texts and (bounds.after is None or cut <= bounds.after):
            return cut
    # Nothing within the maximum holds the minimum: a kept tail of a fifth of it is worth entering a loop for.
    return best if best is not None and tokens_from(view, best) >= bounds.least // 5 else None


def tokens_from(view: View, position: int) -> int:
    """Tokens shown from an item on, by the base rule."""
    return sum(item.size.base for item in view.items[position:] if not item.is_hidden)
