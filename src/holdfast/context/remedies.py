"""What to change in a view after a call failed, as records (TURN-11, TOK-4), from view, facts and error.

Nothing here talks to a model; the engine commits what is proposed and asks again.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.context.anchor import CALIBRATION_MIN_TOKENS, CALIBRATION_RANGE
from holdfast.context.cuts import open_loop
from holdfast.context.items import THINKING
from holdfast.context.policy import Facts
from holdfast.context.settle import shown_media, without_media
from holdfast.context.view import View
from holdfast.context.wire import Group, Part
from holdfast.errors import PromptTooLong
from holdfast.transcript.edits import Change, MediaReplaced, ThinkingDropped
from holdfast.transcript.messages import Usage
from holdfast.transcript.records import Calibrated

MEDIA_REFUSED = "[{kind} left out: the provider refused it; recall with id {id}]"
# Below this share of the window, an overflow without numbers tells of a smaller window, not of a wrong estimate.
_ESTIMATE_HOLDS = 0.8
# A report below this share of what was sent is no error of estimating: the server cut the prompt …
_CUT_SHARE = 0.4
# … if there was this much to cut. Servers that do so have windows from 2,048 tokens on, in powers of two.
_CUT_MIN_TOKENS = 2_500
_SMALLEST_WINDOW = 2_048


def correction(view: View, facts: Facts, error: PromptTooLong, model: str) -> Calibrated:
    """What an overflow teaches about the window, the size of this context, and how tokens are counted (TOK-4).

    Without numbers it still tells something: far below the window as we know it, the window must be smaller; near it,
    the context must be larger than we think.
    """
    estimated, window = facts.size(view), facts.limits.window
    maximum, tokens = error.maximum, error.tokens
    if maximum is None and tokens is None:
        if estimated < window * _ESTIMATE_HOLDS:
            maximum = estimated
        else:
            tokens = max(estimated, window + 1)
    return Calibrated(
        model=model,
        ratio=_ratio(view, tokens),
        window_tokens=maximum if maximum != window else None,
        size_tokens=tokens,
    )


def _ratio(view: View, tokens: int | None) -> float:
    """Stated tokens for each estimated one; as it was when nothing was stated, or too little to learn from."""
    old, live = view.state.calibration, view.size.live
    if tokens is None or live < CALIBRATION_MIN_TOKENS:
        return old.ratio
    overhead = view.front_size.live if old.overhead_tokens is None else old.overhead_tokens
    low, high = CALIBRATION_RANGE
    return round(min(max((tokens - overhead) / live, low), high), 4)


def fits_already(error: PromptTooLong) -> bool:
    """Whether the prompt itself fits, and only the room asked for the answer does not."""
    return error.tokens is not None and error.maximum is not None and error.tokens < error.maximum * 0.95


def window_after_cut(estimated_tokens: int, usage: Usage | None) -> int | None:
    """The window of a server that cut the prompt without a word; None when nothing tells that it did (LIB-3)."""
    if usage is None or estimated_tokens < _CUT_MIN_TOKENS or not usage.prompt_tokens:
        return None
    reported = usage.prompt_tokens
    if reported >= estimated_tokens * _CUT_SHARE:
        return None
    window = _SMALLEST_WINDOW
    while window < reported:
        window *= 2
    return window


def located(groups: Sequence[Group], path: str | None) -> tuple[Part, int | None] | None:
    """The block of the view that a path of a request names, and the index of the part inside it, if any."""
    if path is None:
        return None
    numbers = [int(word) for word in path.split(".") if word.isdigit()]
    if len(numbers) < 2 or numbers[0] >= len(groups):
        return None
    parts = list(groups[numbers[0]].parts())
    if numbers[1] >= len(parts) or parts[numbers[1]].position < 0:
        return None
    return parts[numbers[1]], numbers[2] if len(numbers) > 2 else None


def without_refused_media(view: View, groups: Sequence[Group], path: str | None) -> tuple[MediaReplaced, ...]:
    """Replace the medium that the path names; else those that no answered request held yet; else all (TURN-11)."""
    shown = [(position, block, part) for position, block, part, _ in shown_media(view)]
    place = located(groups, path)
    named = [one for one in shown if place and one[:2] == (place[0].position, place[0].block)]
    if place and place[1] is not None:
        named = [one for one in named if one[2] in (place[1], -1)] or named
    drop = named or [one for one in shown if one[0] >= view.sent] or shown
    by_block: dict[tuple[int, int], set[int]] = {}
    for position, block, part in drop:
        by_block.setdefault((position, block), set()).add(part)
    changes = tuple(without_media(view, *at, parts, MEDIA_REFUSED) for at, parts in by_block.items())
    return (MediaReplaced(changes=changes, reason="refused by the provider"),) if changes else ()


def without_refused_thinking(view: View, groups: Sequence[Group], path: str | None) -> tuple[ThinkingDropped, ...]:
    """Drop the thinking block that the path names and every later one, which falls with it; else all (TURN-7).

    Nothing where it names something else in an open loop: thinking is missing there, and none that stands is wrong. If
    the loop isn't whole afterwards, it has to be closed (TURN-15).
    """
    place = located(groups, path)
    names_thinking = place is not None and place[0].kind in THINKING
    if place is not None and not names_thinking and open_loop(view) is not None:
        return ()
    start = (place[0].position, place[0].block) if place and names_thinking else (0, 0)
    changes = tuple(
        Change(message=item.message.id, block=index)
        for position, item in enumerate(view.items)
        if not item.is_hidden
        for index, block in enumerate(item.shown)
        if block is not None and block.kind in THINKING and (position, index) >= start
    )
    return (ThinkingDropped(changes=changes, reason="refused by the provider"),) if changes else ()
