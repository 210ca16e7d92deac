"""The test that a boundary must pass before it is committed (CMP-9). Linear in what is kept."""

from __future__ import annotations

from holdfast.context.compaction import Made
from holdfast.context.items import THINKING
from holdfast.context.pins import missing_pins, summary_texts
from holdfast.context.policy import Facts
from holdfast.context.reminders import without_tags
from holdfast.context.view import View
from holdfast.transcript.edits import Compacted


def refusal(view: View, made: Made, facts: Facts, promised: tuple[str, ...] = ()) -> str | None:
    """Why a boundary must not be committed; None when it may (CMP-9).

    Strictly smaller (automatic: by at least 10 %), under the trigger, the laws of the view hold, and each pin and each
    promised word is in place.
    """
    boundary, new = made.boundary, made.view
    after, before = boundary.tokens_after, boundary.tokens_before
    least = facts.settings.min_reduction_percent if boundary.trigger != "manual" else 0
    if after >= before or (before - after) * 100 < before * least:
        return f"too_little: {before:,} to {after:,} tokens"
    if after >= facts.limits.trigger:
        return f"over_trigger: {after:,} tokens, trigger {facts.limits.trigger:,}"
    if (broken := broken_law(view, new, boundary)) is not None:
        return f"law: {broken}"
    if missing_pins(new):
        return "pins: a pinned text is missing"
    texts = summary_texts(new)
    if any(all(without_tags(words) not in text for text in texts) for words in promised):
        return "words: what the user said is not there word for word"
    return None


def broken_law(view: View, new: View, boundary: Compacted) -> str | None:
    """Which law of the view a boundary breaks: order, kept bytes, pairs; None when all hold."""
    front = boundary.kept[: boundary.in_front]
    if tuple(item.message.id for item in new.items) != boundary.order:
        return "a kept message is missing or out of its place"
    if front and [item.message.id for item in view.items[: len(front)]] != [*front]:
        return "what stays in front isn't the beginning"
    for number, identity in enumerate(boundary.kept):
        old, now = view.items[view.positions[identity]], new.items[new.positions[identity]]
        if old.is_hidden != now.is_hidden or any(
            (then.raw if then else None) != (shown.raw if shown else None)
            for then, shown in zip(old.shown, now.shown, strict=True)
            if then is not shown and not (shown is None and number >= boundary.in_front and _is_thinking(then))
        ):
            return "a kept message doesn't show as it did"
    return _broken_pair(view, new)


def _is_thinking(block: object) -> bool:
    return getattr(block, "kind", "") in THINKING


def _broken_pair(view: View, new: View) -> str | None:
    """Every call keeps its result, and every result its call."""
    for identity, call in new.calls.items():
        if (identity in view.results) != (identity in new.results) and call is not None:
            return "a call is parted from its result"
        if (identity in view.open_calls) != (identity in new.open_calls):
            return "a call is open that wasn't, or the other way round"
    for identity, result in view.results.items():
        message = view.items[result.position].message.id
        if message in new.positions and identity not in new.results:
            return "a result is parted from its call"
    return None
