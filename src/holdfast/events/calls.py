"""Calls of models, and what went wrong with them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelCalled:
    """A model answered. `estimated_tokens` is what we took the request for; None: the provider reported nothing."""

    model: str
    job: str
    response_id: str
    stop_reason: str
    seconds: float
    estimated_tokens: int
    prompt_tokens: int | None
    cache_read_tokens: int | None
    output_tokens: int | None
    usd: float | None


@dataclass(frozen=True, slots=True)
class ModelFailed:
    model: str
    job: str
    reason: str
    status: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class RetryWaited:
    model: str
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class LadderStepped:
    """A remedy was tried after a failed call; `helped` is False when there was nothing it could change."""

    remedy: str
    reason: str
    helped: bool


@dataclass(frozen=True, slots=True)
class LadderGaveUp:
    model: str
    reason: str
    tried: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelFellBack:
    """A job went on with its next model."""

    job: str
    model: str
    reason: str


@dataclass(frozen=True, slots=True)
class WindowLearned:
    """A provider stated, or showed, a window other than the one we reckoned with (PRS-8)."""

    model: str
    window_tokens: int
    before_tokens: int
    reason: str


@dataclass(frozen=True, slots=True)
class PromptCutByServer:
    """The server left out the beginning of the prompt and said nothing: it reported far less than was sent."""

    model: str
    estimated_tokens: int
    reported_tokens: int
    window_tokens: int


@dataclass(frozen=True, slots=True)
class ProviderEdited:
    """The provider itself changed what its model saw: cleared tool uses or thinking, or made a summary (TURN-4c)."""

    kind: str
    cleared: int
    cleared_tokens: int


@dataclass(frozen=True, slots=True)
class AnswerInterrupted:
    """A call was cancelled while it answered; whole blocks were kept, the rest was dropped."""

    model: str
    response_id: str
    kept_blocks: int
    dropped_blocks: int


@dataclass(frozen=True, slots=True)
class CacheDropped:
    """The provider read far less of a prompt from its cache than it held, and no move of the prefix explains it."""

    model: str
    expected_tokens: int
    read_tokens: int
