"""What a failed call means, from any provider's status and words, and what to change in the view after it (TURN-11,
TURN-12, TOK-4).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from perdure.context.cuts import open_loop
from perdure.context.groups import MessageGroup, WireBlock
from perdure.context.passes import shown_media, without_media
from perdure.context.policy import Facts
from perdure.context.state import CALIBRATION_MIN_TOKENS, CALIBRATION_RANGE
from perdure.context.view import THINKING, ContextView
from perdure.errors import (
    BadRequest,
    BodyTooLarge,
    KeyRefused,
    MediaRefused,
    ModelDown,
    ModelError,
    ModelUnknown,
    OutputTooLong,
    Overloaded,
    PromptTooLong,
    RateLimited,
    ThinkingRefused,
)
from perdure.transcript.messages import Usage
from perdure.transcript.records import BlockChange, Calibrated, MediaReplaced, ThinkingDropped

# Words of an overflow, and its numbers. The first that fits decides, so those with numbers stand before those without.
_TOO_LONG = (
    r"prompt is too long: <tokens> tokens > <maximum> maximum",  # Anthropic, Vertex, Bedrock
    r"input length and .?max_tokens.? exceed context limit: <tokens> \+ <output> > <maximum>",  # Anthropic, older
    r"maximum context length is <maximum> tokens.*?messages resulted in <tokens> tokens",  # OpenAI
    # vLLM, OpenRouter, llama-cpp-python: what the messages take, apart from what the answer may
    r"maximum context length is <maximum> tokens.*?\(<tokens> (?:in the messages|of text input|in your prompt)"
    r"(?:[^)]*?, <output> in the (?:completion|output))?",
    r"maximum context length is <maximum> tokens and your request has <tokens> input tokens",  # vLLM
    r"maximum context length is <maximum> tokens.*?(?:resulted in|requested about|requested|has) <tokens>",
    r"passed <tokens> input tokens.*?context length is only <maximum>",  # vLLM
    r"request \(<tokens> tokens\) exceeds the available context size \(<maximum>",  # llama.cpp
    r"requested tokens \(<tokens>\) exceed context window of <maximum>",  # llama-cpp-python
    r"keep the first <tokens> tokens.*?context length of only <maximum>",  # LM Studio
    r"prompt contains <tokens> tokens.*?<maximum> maximum context length",  # Mistral
    r"token count \(<tokens>\) exceeds the maximum number of tokens allowed \(<maximum>\)",  # Gemini
    r"prompt tokens \(<tokens>\) exceed model maximum \(<maximum>\)",  # Bedrock mantle
    r"must be <= <maximum>\. given: <tokens> .?inputs.? tokens and <output>",  # TGI
    r"current length is <tokens>.*?while limit is <maximum>",
    r"maximum input length is <maximum> tokens",
    r"(?:prompt|input) is too long",
    r"exceeds? (?:the )?context (?:limit|window|length)",
    r"maximum context l(?:ength|imit)",
    r"is longer than the model's context length",
    r"input tokens exceed the configured limit",
    r"inputs.? tokens \+ .?max_new_tokens.? must be",
    r"exceeds the available context size",
    r"exceeds the maximum number of tokens allowed",
    r"tokens to keep from the initial prompt is greater than the context length",
    r"length limit exceeded|input text length should not exceed|request payload size exceeds",
    r"context[_ ]length[_ ]exceeded|exceed_context_size",
)


@cache
def _overflow_patterns() -> tuple[re.Pattern[str], ...]:
    """`_TOO_LONG` with its numbers as the groups `tokens`, `maximum` and `output`; most programs never need it."""
    numbered = (re.sub(r"<(\w+)>", r"(?P<\1>[\\d,_]+)", words) for words in _TOO_LONG)
    return tuple(re.compile(words, re.I | re.S) for words in numbered)


_NOT_TOO_LONG = re.compile(r"string_above_max_length", re.I)

_OUTPUT_TOO_LONG = re.compile(
    r"max_tokens: [\d,]+ > ([\d,]+), which is the maximum allowed number of output tokens|"  # Anthropic
    r"supports at most ([\d,]+) completion tokens",  # OpenAI
    re.I,
)

_PATH = re.compile(r"messages[.\[](\d+)\]?((?:\.content[.\[]\d+\]?)*)")
_INDEX = re.compile(r"\d+")
_THINKING = re.compile(
    r"invalid .?signature.? in .?thinking|(?:thinking|redacted_thinking).? blocks in the latest assistant message "
    r"cannot be modified|bound to a different conversation|thinking.{0,40}signature|"
    r"expected .?thinking.? or .?redacted_thinking|must start with a thinking block",
    re.I | re.S,
)
_MEDIA_THING = re.compile(r"\b(?:images?|pdfs?|documents?|media|mmproj|multimodal)\b|image_url|input_audio", re.I)
_MEDIA_FAULT = re.compile(
    r"could not (?:be )?(?:process|pars|download)|exceed|invalid|not valid|not supported|unsupported|not support|"
    r"too (?:large|many|big|small)|at most|maximum|media type|password|corrupt|unable to|cannot|failed to",
    re.I,
)
_OVERLOADED = re.compile(
    r"overloaded|over capacity|engine is currently|try again later|at capacity|no slots? avail", re.I
)
_NO_CREDIT = re.compile(r"insufficient_quota|credit balance is too low|billing|exceeded your current quota", re.I)
_WAIT = re.compile(r"(?:try again|retry) (?:in|after)\s+(?:(\d+)m(?!s))?\s*(?:([\d.]+)\s*(ms|s))?", re.I)

_OVERLOADED_TYPES = frozenset({"overloaded_error", "overloaded", "unavailable", "compaction_unavailable"})
_DOWN_STATUSES = frozenset({408, 499, 500, 502, 504, 520, 521, 522, 523, 524})


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorResponse:
    """What came back from a call that failed. `status` 200: an error inside a stream, or in the body of a success.

    `extra` are other fields of the error object (llama.cpp puts its numbers there); `retry_after_seconds` is the
    header's.
    """

    status: int | None
    message: str
    kind: str = ""
    code: str = ""
    retry_after_seconds: float | None = None
    extra: Mapping[str, Any] | None = None


def classify(said: ErrorResponse) -> ModelError:
    """The error that a provider's answer means."""
    text = f"{said.message} {said.kind} {said.code}"
    status = said.status
    if status in (401, 402, 403) or _NO_CREDIT.search(text):
        return KeyRefused(said.message, status=status)
    if status == 429 or said.kind == "rate_limit_error" or said.code == "rate_limit_exceeded":
        return RateLimited(said.message, status=status, retry_after_seconds=_wait(said))
    if status in (503, 529) or said.kind.lower() in _OVERLOADED_TYPES or said.code in _OVERLOADED_TYPES:
        return Overloaded(said.message, status=status, retry_after_seconds=_wait(said))
    if (output := _OUTPUT_TOO_LONG.search(said.message)) is not None:
        return OutputTooLong(said.message, status=status, maximum=_number(output[1] or output[2]) or 1)
    if (too_long := _too_long(said, text)) is not None:
        return too_long
    if status == 413:
        return BodyTooLarge(said.message, status=status)
    if _THINKING.search(said.message):
        return ThinkingRefused(said.message, status=status, path=path_in(said.message))
    if _is_media(said.message):
        return MediaRefused(said.message, status=status, path=path_in(said.message))
    if status == 404:
        return ModelUnknown(said.message, status=status)
    if _OVERLOADED.search(text) and (status is None or status == 200 or status >= 500):
        return Overloaded(said.message, status=status, retry_after_seconds=_wait(said))
    if said.kind == "invalid_request_error" and (status is None or status == 200):
        return BadRequest(said.message, status=status)
    if status is None or status == 200 or status >= 500 or status in _DOWN_STATUSES:
        return ModelDown(said.message, status=status)
    return BadRequest(said.message, status=status)


def _too_long(said: ErrorResponse, text: str) -> PromptTooLong | None:
    extra = said.extra or {}
    if _is_count(extra.get("n_prompt_tokens")) and _is_count(extra.get("n_ctx")):
        tokens, maximum = int(extra["n_prompt_tokens"]), int(extra["n_ctx"])
        return PromptTooLong(said.message, status=said.status, tokens=tokens, maximum=maximum)
    if _NOT_TOO_LONG.search(text):
        return None
    for pattern in _overflow_patterns():
        found = pattern.search(text)
        if found is None:
            continue
        numbers = {name: _number(value) for name, value in found.groupdict().items()}
        return PromptTooLong(
            said.message,
            status=said.status,
            tokens=numbers.get("tokens"),
            maximum=numbers.get("maximum"),
            output_tokens=numbers.get("output") or 0,
        )
    return None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _number(text: str | None) -> int | None:
    digits = (text or "").replace(",", "").replace("_", "")
    return int(digits) if digits else None


def _is_media(message: str) -> bool:
    return bool(_MEDIA_THING.search(message) and _MEDIA_FAULT.search(message))


def path_in(message: str) -> str | None:
    """The place that an error names, as `messages.3.content.0`; None when it names none."""
    found = _PATH.search(message)
    if found is None:
        return None
    return ".".join([f"messages.{found[1]}", *(f"content.{index}" for index in _INDEX.findall(found[2]))])


def _wait(said: ErrorResponse) -> float | None:
    """The server's delay in seconds: the header's, else what its words say."""
    if said.retry_after_seconds is not None:
        return max(0.0, said.retry_after_seconds)
    found = _WAIT.search(said.message)
    if found is None or not (found[1] or found[2]):
        return None
    try:
        rest = float(found[2] or 0)
    except ValueError:
        return None
    return int(found[1] or 0) * 60 + (rest / 1000 if found[3] and found[3].lower() == "ms" else rest)


MEDIA_REFUSED = "[{kind} left out: the provider refused it; recall with id {id}]"
# Below this share of the window, an overflow without numbers tells of a smaller window, not of a wrong estimate.
_ESTIMATE_HOLDS = 0.8
# A report below this share of what was sent is no error of estimating: the server cut the prompt …
_CUT_SHARE = 0.4
# … if there was this much to cut. Servers that do so have windows from 2,048 tokens on, in powers of two.
_CUT_MIN_TOKENS = 2_500
_SMALLEST_WINDOW = 2_048


def correction(view: ContextView, facts: Facts, error: PromptTooLong, model: str) -> Calibrated:
    """What an overflow teaches about the window, the size of this context, and how tokens are counted (TOK-4).

    Without numbers it still tells something: far below the window as we know it, the window must be smaller, unless
    a person set it; near it, the context must be larger than we think.
    """
    estimated, window = facts.size(view), facts.limits.window
    maximum, tokens = error.maximum, error.tokens
    if maximum is None and tokens is None:
        if estimated < window * _ESTIMATE_HOLDS:
            maximum = None if facts.limits.window_source == "setting" else estimated
        else:
            tokens = max(estimated, window + 1)
    return Calibrated(
        model=model,
        ratio=_ratio(view, tokens),
        window_tokens=maximum if maximum != window else None,
        size_tokens=tokens,
    )


def _ratio(view: ContextView, tokens: int | None) -> float:
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


def locate_block(groups: Sequence[MessageGroup], path: str | None) -> tuple[WireBlock, int | None] | None:
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


def without_refused_media(
    view: ContextView, groups: Sequence[MessageGroup], path: str | None
) -> tuple[MediaReplaced, ...]:
    """Replace the medium that the path names; else those that no answered request held yet; else all (TURN-11)."""
    shown = [(position, block, part) for position, block, part, _ in shown_media(view)]
    place = locate_block(groups, path)
    named = [one for one in shown if place and one[:2] == (place[0].position, place[0].block)]
    if place and place[1] is not None:
        named = [one for one in named if one[2] in (place[1], -1)] or named
    drop = named or [one for one in shown if one[0] >= view.sent] or shown
    by_block: dict[tuple[int, int], set[int]] = {}
    for position, block, part in drop:
        by_block.setdefault((position, block), set()).add(part)
    changes = tuple(without_media(view, *at, parts, MEDIA_REFUSED) for at, parts in by_block.items())
    return (MediaReplaced(changes=changes, reason="refused by the provider"),) if changes else ()


def without_refused_thinking(
    view: ContextView, groups: Sequence[MessageGroup], path: str | None
) -> tuple[ThinkingDropped, ...]:
    """Drop the thinking block that the path names and every later one, which falls with it; else all (TURN-7).

    Nothing where it names something else in an open loop: thinking is missing there, and none that stands is wrong. If
    the loop isn't whole afterwards, it has to be closed (TURN-15).
    """
    place = locate_block(groups, path)
    names_thinking = place is not None and place[0].kind in THINKING
    if place is not None and not names_thinking and open_loop(view) is not None:
        return ()
    start = (place[0].position, place[0].block) if place and names_thinking else (0, 0)
    changes = tuple(
        BlockChange(message=item.message.id, block=index)
        for position, item in enumerate(view.items)
        if not item.is_hidden
        for index, block in enumerate(item.shown)
        if block is not None and block.type in THINKING and (position, index) >= start
    )
    return (ThinkingDropped(changes=changes, reason="refused by the provider"),) if changes else ()
