"""The anchor: the last size that the provider reported, and what was learned from it (TOK-3, TOK-4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from holdfast.context.state import Calibration
from holdfast.transcript.messages import Message, ResponseId, Usage
from holdfast.transcript.records import Front
from holdfast.transcript.sizes import NOTHING, Size, json_size

if TYPE_CHECKING:
    from holdfast.context.view import View

# TOK-4: a step is believed only when enough new text stood between two reports …
CALIBRATION_MIN_TOKENS = 500
# … when it is believable at all …
CALIBRATION_BELIEVED = (0.3, 3.0)
# … and it moves the ratio by at most this share, more for longer text.
CALIBRATION_STEP = 0.25
CALIBRATION_FULL_TOKENS = 10_000
CALIBRATION_RANGE = (0.5, 2.0)


@dataclass(frozen=True, slots=True)
class Anchor:
    """A known size. The view's size now is `tokens` plus what its estimate gained since `at` was taken.

    `is_reported`: the provider said it (else it was estimated from the calibration, after a boundary). `is_clean`:
    nothing shown before it changed since, so the next report can be compared with it. `counts_output`: the reported
    output tokens are plausible (logs often hold a placeholder).
    """

    tokens: int
    at: Size
    response: ResponseId | None
    is_reported: bool
    is_clean: bool = True
    counts_output: bool = True


def anchored(view: View, message: Message, before: Size, *, is_new: bool) -> None:
    """Set the anchor to the usage of a model message, and learn from it; `before` is the view's size without it."""
    usage = message.usage
    if usage is None or usage.total_tokens == 0:
        return
    own = view.size.minus(before)
    last = view.anchor
    if not is_new and last is not None and last.is_reported and last.response == message.response_id:
        total = max(last.tokens, usage.total_tokens)
        view.anchor = replace(last, tokens=total, at=last.at.plus(own))
        return
    if is_new:
        calibration = _learned(view, usage, before, message.model)
        if calibration is not view.state.calibration:
            view.state = msgspec.structs.replace(view.state, calibration=calibration)
    counts = usage.output_tokens * 2 >= own.live
    view.anchor = Anchor(usage.total_tokens, view.size, message.response_id, is_reported=True, counts_output=counts)


def _learned(view: View, usage: Usage, before: Size, model: str | None) -> Calibration:
    old = view.state.calibration
    if old.model not in (None, model) and model is not None:
        old = msgspec.structs.replace(old, ratio=1.0, model=model)
    if old.overhead_tokens is None:
        overhead = max(0, usage.prompt_tokens - round(old.ratio * before.live))
        return msgspec.structs.replace(old, overhead_tokens=overhead, model=model or old.model)
    last = view.anchor
    if last is None or not (last.is_reported and last.is_clean and last.counts_output):
        return old
    estimated = before.live - last.at.live
    if estimated < CALIBRATION_MIN_TOKENS:
        return old
    observed = (usage.prompt_tokens - last.tokens) / estimated
    if not CALIBRATION_BELIEVED[0] < observed < CALIBRATION_BELIEVED[1]:
        return old
    share = CALIBRATION_STEP * min(1.0, estimated / CALIBRATION_FULL_TOKENS)
    low, high = CALIBRATION_RANGE
    ratio = old.ratio + share * (min(max(observed, low), high) - old.ratio)
    return msgspec.structs.replace(old, ratio=round(ratio, 4), model=model or old.model)


def estimated(view: View) -> Anchor | None:
    """The anchor of a view that changed as a whole: the calibrated estimate; None while nothing was ever reported."""
    calibration = view.state.calibration
    if calibration.overhead_tokens is None:
        return None
    tokens = round(calibration.ratio * view.size.live) + calibration.overhead_tokens
    return Anchor(tokens, view.size, None, is_reported=False)


def front_size(front: Front | None) -> Size:
    """System prompt and tool definitions, estimated; nothing when they aren't known (TOK-2)."""
    total = NOTHING
    if front is not None:
        for raw in (*front.system, *front.tools):
            total = total.plus(json_size(bytes(raw)))
    return total


def fronted(view: View, front: Front) -> None:
    """A new front: the whole prefix moves, and the anchor by the difference in size."""
    size = front_size(front)
    gained = size.live - view.front_size.live
    calibration = view.state.calibration
    if calibration.overhead_tokens is not None:
        overhead = max(0, calibration.overhead_tokens + gained)
        calibration = msgspec.structs.replace(calibration, overhead_tokens=overhead)
    if view.anchor is not None:
        view.anchor = replace(view.anchor, tokens=max(0, view.anchor.tokens + gained), is_clean=False)
    view.state = msgspec.structs.replace(view.state, front=front, calibration=calibration)
    view.front_size = size
    view.dirty = 0


def size_tokens(view: View, *, numerator: int = 4, denominator: int = 3) -> int:
    """The view's size now (TOK-3): anchored, else the blind estimate of everything times 4/3, rounded up."""
    if view.anchor is None:
        blind = view.size.blind + view.front_size.blind
        return -(-blind * numerator // denominator)
    gained = view.size.live - view.anchor.at.live
    return max(0, view.anchor.tokens + round(view.state.calibration.ratio * gained))
