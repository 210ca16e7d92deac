"""The anchor: the last size that the provider reported, and what was learned from it (TOK-3, TOK-4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from perdure.context.models import model_spec
from perdure.context.state import Calibration
from perdure.settings import Settings
from perdure.transcript.messages import Message, ResponseId, Usage
from perdure.transcript.records import Calibrated, Front
from perdure.transcript.tokens import NOTHING, Size, json_size

if TYPE_CHECKING:
    from perdure.context.view import ContextView

_DEFAULTS = Settings()
# TOK-4: a report teaches the ratio when the messages it held were estimated at this much or more …
CALIBRATION_MIN_TOKENS = 2_000
# … and what it says is believable at all; …
CALIBRATION_BELIEVED = (0.3, 3.0)
# … then the ratio moves towards it by at most this share, less for shorter contexts, and stays in its range.
CALIBRATION_STEP = 0.25
CALIBRATION_FULL_TOKENS = 20_000
CALIBRATION_RANGE = (0.5, 2.0)
# More than this in front of the first messages isn't a system prompt with tools but history said elsewhere (a log that
# goes on from another one), which a compaction leaves behind.
OVERHEAD_MAX_TOKENS = 60_000

# `Message.note` of an answer whose provider had read less than was sent: its usage doesn't tell how tokens count.
PROVIDER_EDITED = "provider edited"
# … and that of an answer in a log of another system, which sent more than its log shows.
LOGGED = "logged"


@dataclass(frozen=True, slots=True)
class UsageAnchor:
    """A known size. The view's size now is `tokens` plus what its estimate gained since `at` was taken.

    `is_reported`: the provider said it (else it was estimated from the calibration, after a boundary).
    """

    tokens: int
    at: Size
    response: ResponseId | None
    is_reported: bool


def set_anchor(view: ContextView, message: Message, before: Size, *, is_new: bool) -> None:
    """Set the anchor to the usage of a model message, and learn from it; `before` is the view's size without it."""
    usage = message.usage
    if usage is None or usage.total_tokens == 0:
        return
    last = view.anchor
    if not is_new and last is not None and last.is_reported and last.response == message.response_id:
        # Another message of the same response: its usage is counted once, and what came between stays behind it.
        own = view.size.minus(before)
        view.anchor = replace(last, tokens=max(last.tokens, usage.total_tokens), at=last.at.plus(own))
        return
    if is_new and message.note not in (PROVIDER_EDITED, LOGGED):
        calibration = _learned(view.state.calibration, usage, before, message.model)
        if calibration is not view.state.calibration:
            view.state = msgspec.structs.replace(view.state, calibration=calibration)
    view.anchor = UsageAnchor(usage.total_tokens, view.size, message.response_id, is_reported=True)


def _learned(old: Calibration, usage: Usage, before: Size, model: str | None) -> Calibration:
    """The calibration after a report on a request whose messages were estimated at `before`."""
    if model is not None and old.model != model:
        old = old if old.model is None else old.forgotten()
        old = msgspec.structs.replace(old, ratio=model_spec(model).tokens_ratio, model=model)
    if old.overhead_tokens is None:
        overhead = min(max(0, usage.prompt_tokens - round(old.ratio * before.live)), OVERHEAD_MAX_TOKENS)
        return msgspec.structs.replace(old, overhead_tokens=overhead)
    if before.live < CALIBRATION_MIN_TOKENS:
        return old
    observed = (usage.prompt_tokens - old.overhead_tokens) / before.live
    if not CALIBRATION_BELIEVED[0] < observed < CALIBRATION_BELIEVED[1]:
        return old
    low, high = CALIBRATION_RANGE
    share = CALIBRATION_STEP * min(1.0, before.live / CALIBRATION_FULL_TOKENS)
    ratio = old.ratio + share * (min(max(observed, low), high) - old.ratio)
    return msgspec.structs.replace(old, ratio=round(ratio, 4))


def apply_calibration(view: ContextView, record: Calibrated) -> None:
    """What a provider stated about a model, and maybe about the size of this very context (TOK-4)."""
    view.state = view.state.with_calibrated(record)
    if record.size_tokens is None:
        return
    if view.state.calibration.overhead_tokens is None:
        overhead = min(view.front_size.live, record.size_tokens)
        calibration = msgspec.structs.replace(view.state.calibration, overhead_tokens=overhead)
        view.state = msgspec.structs.replace(view.state, calibration=calibration)
    view.anchor = UsageAnchor(record.size_tokens, view.size, None, is_reported=True)


def estimated_anchor(view: ContextView) -> UsageAnchor | None:
    """The anchor of a view that changed as a whole: the calibrated estimate; None while nothing was ever reported."""
    calibration = view.state.calibration
    if calibration.overhead_tokens is None:
        return None
    tokens = round(calibration.ratio * view.size.live) + calibration.overhead_tokens
    return UsageAnchor(tokens, view.size, None, is_reported=False)


def front_size(front: Front | None) -> Size:
    """System prompt and tool definitions, estimated; nothing when they aren't known (TOK-2)."""
    total = NOTHING
    if front is not None:
        for raw in (*front.system, *front.tools):
            total = total.plus(json_size(bytes(raw)))
    return total


def apply_front(view: ContextView, front: Front) -> None:
    """A new front: the whole prefix moves, and the anchor by the difference in size."""
    size = front_size(front)
    gained = size.live - view.front_size.live
    calibration = view.state.calibration
    if calibration.overhead_tokens is not None:
        overhead = max(0, calibration.overhead_tokens + gained)
        calibration = msgspec.structs.replace(calibration, overhead_tokens=overhead)
    if view.anchor is not None:
        view.anchor = replace(view.anchor, tokens=max(0, view.anchor.tokens + gained))
    view.state = msgspec.structs.replace(view.state, front=front, calibration=calibration)
    view.front_size = size
    view.dirty = 0


def size_tokens(view: ContextView, settings: Settings = _DEFAULTS) -> int:
    """The view's size now (TOK-3): anchored, else the blind estimate of everything times 4/3, rounded up.

    What came after the last report counts by the live estimate at the learned ratio, or, as in the logs of the
    reference system, by the base rule as it is.
    """
    if view.anchor is None:
        blind = view.size.blind + view.front_size.blind
        return -(-blind * settings.margin_numerator // settings.margin_denominator)
    if settings.estimator == "base" and view.anchor.is_reported:
        return max(0, view.anchor.tokens + view.size.base - view.anchor.at.base)
    gained = view.size.live - view.anchor.at.live
    return max(0, view.anchor.tokens + round(view.state.calibration.ratio * gained))
