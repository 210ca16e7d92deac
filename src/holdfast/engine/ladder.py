"""The ladder of a call: what to do after each outcome, until there is an answer or nothing is left to try (TURN-11).

A frozen state and one pure `step`. Every remedy has a number of times that it may be tried and no outcome gives one
back, so every sequence of outcomes ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.context.remedies import fits_already
from holdfast.errors import (
    BodyTooLarge,
    MediaRefused,
    ModelDown,
    ModelError,
    OutputTooLong,
    Overloaded,
    PromptTooLong,
    StreamCut,
    ThinkingRefused,
)

# --- what can come out of a call ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answered:
    """There is an answer."""


@dataclass(frozen=True, slots=True)
class Blank:
    """The answer says nothing: no text, no call."""


@dataclass(frozen=True, slots=True)
class WindowStop:
    """The answer was cut by the end of the window; what came of it was kept."""


@dataclass(frozen=True, slots=True)
class NoHelp:
    """The last remedy found nothing to change."""

    reason: str


Outcome = Answered | Blank | WindowStop | NoHelp | ModelError

# --- what can be done -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Deliver:
    """The answer is the turn's."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Ask again, after a time."""

    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Correct:
    """The prompt fits, the length of the answer doesn't: learn the limit from the error, and ask again."""

    error: PromptTooLong | OutputTooLong


@dataclass(frozen=True, slots=True)
class Compact:
    """Compact, seeded with what the error states, and ask again."""

    error: PromptTooLong | None
    reason: str


@dataclass(frozen=True, slots=True)
class DropMedia:
    path: str | None
    reason: str = "media_refused"


@dataclass(frozen=True, slots=True)
class DropThinking:
    path: str | None
    reason: str = "thinking_refused"


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Nothing is left to try."""

    last: ModelError
    tried: tuple[str, ...]


Action = Deliver | Retry | Correct | Compact | DropMedia | DropThinking | GiveUp
Remedy = Retry | Correct | Compact | DropMedia | DropThinking

# --- the machine ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Rungs:
    """How often each remedy may be tried in one turn. `seconds` is all the waiting together."""

    retries: int = 8
    seconds: float = 300.0
    cuts: int = 2
    blanks: int = 1
    compactions: int = 1
    window_stops: int = 1
    media: int = 4
    thinking: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """How much of each was used. `last` is the error that the remedy under way answers."""

    rungs: Rungs = Rungs()
    retries: int = 0
    seconds: float = 0.0
    cuts: int = 0
    blanks: int = 0
    corrections: int = 0
    compactions: int = 0
    window_stops: int = 0
    media: int = 0
    thinking: int = 0
    last: ModelError | None = None
    tried: tuple[str, ...] = ()

    @property
    def used(self) -> int:
        """Remedies tried; grows with every action but the last."""
        return len(self.tried)


def step(ladder: Ladder, outcome: Outcome) -> tuple[Ladder, Action]:
    """The next thing to do. Exceptions are values here: nothing is raised."""
    rungs = ladder.rungs
    match outcome:
        case Answered():
            return ladder, Deliver()
        case Blank():
            if ladder.blanks < rungs.blanks:
                return _tried(ladder, "asked again after an empty answer", blanks=1), Retry(0.0, "empty_answer")
            return ladder, Deliver()
        case WindowStop():
            if ladder.window_stops < rungs.window_stops:
                done = _tried(ladder, "compacted when the answer met the window", window_stops=1)
                return replace(done, last=_WINDOW_STOP), Compact(None, "context_window_stop")
            return _give_up(ladder, _WINDOW_STOP)
        case NoHelp():
            tried = (*ladder.tried[:-1], f"{ladder.tried[-1]} (no use: {outcome.reason})") if ladder.tried else ()
            return _give_up(replace(ladder, tried=tried), ladder.last or ModelError(outcome.reason))
        case Overloaded() | ModelDown():
            return _later(ladder, outcome)
        case StreamCut():
            if ladder.cuts < rungs.cuts:
                return _tried(ladder, "asked again after a cut stream", outcome, cuts=1), Retry(0.0, outcome.reason)
        case OutputTooLong() if not ladder.corrections:
            return _tried(ladder, "asked for a shorter answer", outcome, corrections=1), Correct(outcome)
        case PromptTooLong() if fits_already(outcome) and not ladder.corrections:
            return _tried(ladder, "asked for a shorter answer", outcome, corrections=1), Correct(outcome)
        case PromptTooLong() | BodyTooLarge():
            if ladder.compactions < rungs.compactions:
                error = outcome if isinstance(outcome, PromptTooLong) else None
                return _tried(ladder, "compacted", outcome, compactions=1), Compact(error, outcome.reason)
        case MediaRefused():
            if ladder.media < rungs.media:
                path = outcome.path if ladder.media < rungs.media - 1 else None
                return _tried(ladder, "left media out", outcome, media=1), DropMedia(path)
        case ThinkingRefused():
            if ladder.thinking < rungs.thinking:
                path = outcome.path if not ladder.thinking else None
                return _tried(ladder, "dropped thinking", outcome, thinking=1), DropThinking(path)
        case _:
            pass
    return _give_up(ladder, outcome)


_WINDOW_STOP = ModelError("the answer met the end of the context window again")


def _later(ladder: Ladder, error: Overloaded | ModelDown) -> tuple[Ladder, Action]:
    """Wait as long as the server says, else 1, 2, 4, … seconds; all waiting together has an end."""
    stated = error.retry_after_seconds if isinstance(error, Overloaded) else None
    seconds = float(min(2**ladder.retries, 60)) if stated is None else stated
    left = ladder.rungs.seconds - ladder.seconds
    if ladder.retries >= ladder.rungs.retries or seconds > left:
        return _give_up(ladder, error)
    done = _tried(ladder, f"waited {seconds:g} s ({error.reason})", error, retries=1)
    return replace(done, seconds=ladder.seconds + seconds), Retry(seconds, error.reason)


def _tried(ladder: Ladder, what: str, error: ModelError | None = None, **used: int) -> Ladder:
    counts = {name: getattr(ladder, name) + more for name, more in used.items()}
    return replace(ladder, tried=(*ladder.tried, what), last=error or ladder.last, **counts)


def _give_up(ladder: Ladder, error: ModelError) -> tuple[Ladder, GiveUp]:
    return ladder, GiveUp(error, ladder.tried)
