"""When notes are updated: a frozen value and one pure step; all transitions stand here (SM-2, SM-9).

Answered     the model of the main loop answered: start, wait (a follow-up), or skip with a reason
PutOff       a run found a compaction in its way: it is wanted, and starts at the next answer
Ended        a run ended: a follow-up starts if one is wanted; one that changed nothing makes the next ones rarer
Failed       a run failed: nothing is wanted any more, and the next ones are rarer
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

HOUR_SECONDS = 3_600.0
MOST_DOUBLINGS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateTriggers:
    """The three settings that trigger an update, and the quiet budget of an hour (0: none)."""

    first_tokens: int = 5_000
    growth_tokens: int = 5_000
    calls: int = 10
    runs_per_hour: int = 30
    tokens_per_hour: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatePace:
    """What the machine knows. `base` is the size at the last update, `calls` the tool calls since then.

    `idle` are the runs in a row that brought nothing; `spent` the times and tokens of the runs of the last hour.
    """

    is_running: bool = False
    is_wanted: bool = False
    has_begun: bool = False
    seen: str = ""
    tokens: int = 0
    base: int = 0
    calls: int = 0
    idle: int = 0
    spent: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerGiven:
    """An answer: its id, the size of the conversation with it, its tool calls, who asked, and what else runs."""

    message: str
    tokens: int
    calls: int
    at: float = 0.0
    is_main: bool = True
    is_compacting: bool = False


@dataclass(frozen=True, slots=True)
class UpdatePutOff:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateEnded:
    at: float = 0.0
    tokens: int = 0
    is_changed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateFailed:
    at: float = 0.0
    tokens: int = 0


Event = AnswerGiven | UpdatePutOff | UpdateEnded | UpdateFailed
Reason = Literal[
    "not_main", "seen", "too_small", "not_grown", "backing_off", "no_pause", "quiet_budget", "compacting", "over"
]


@dataclass(frozen=True, slots=True)
class StartUpdate:
    """Update now; without a model when those of this hour have read and written enough (SM-9)."""

    may_ask: bool = True


@dataclass(frozen=True, slots=True)
class WaitForUpdate:
    """One runs: another follows when it is done."""


@dataclass(frozen=True, slots=True)
class SkipUpdate:
    reason: Reason


Action = StartUpdate | WaitForUpdate | SkipUpdate


def step(pace: UpdatePace, event: Event, limits: UpdateTriggers) -> tuple[UpdatePace, Action]:
    """The one transition."""
    match event:
        case AnswerGiven():
            return _answered(pace, event, limits)
        case UpdatePutOff():
            return replace(pace, is_running=False, is_wanted=True), SkipUpdate("compacting")
        case UpdateEnded():
            idle = 0 if event.is_changed else pace.idle + 1
            done = replace(pace, is_running=False, is_wanted=False, idle=idle, spent=_paid(pace, event))
            return _started(done, event.at, limits) if pace.is_wanted else (done, SkipUpdate("over"))
        case UpdateFailed():
            done = replace(pace, is_running=False, is_wanted=False, idle=pace.idle + 1, spent=_paid(pace, event))
            return done, SkipUpdate("over")


def _answered(pace: UpdatePace, event: AnswerGiven, limits: UpdateTriggers) -> tuple[UpdatePace, Action]:
    if not event.is_main:
        return pace, SkipUpdate("not_main")
    if event.message == pace.seen:
        return pace, SkipUpdate("seen")
    pace = replace(
        pace,
        seen=event.message,
        tokens=event.tokens,
        base=min(pace.base, event.tokens),  # a compaction or a cleared result made it smaller
        calls=pace.calls + event.calls,
        has_begun=pace.has_begun or event.tokens >= limits.first_tokens,
        spent=tuple(one for one in pace.spent if event.at - one[0] < HOUR_SECONDS),
    )
    why = None if pace.is_wanted and not pace.is_running else _why_not(pace, event, limits)
    if why is not None:
        return pace, SkipUpdate(why)
    if pace.is_running:
        return replace(pace, is_wanted=True), WaitForUpdate()
    if event.is_compacting:
        return replace(pace, is_wanted=True), SkipUpdate("compacting")
    return _started(pace, event.at, limits)


def _why_not(pace: UpdatePace, event: AnswerGiven, limits: UpdateTriggers) -> Reason | None:
    grown = pace.tokens - pace.base
    if not pace.has_begun:
        return "too_small"
    if grown < limits.growth_tokens:
        return "not_grown"
    if grown < limits.growth_tokens * 2 ** min(pace.idle, MOST_DOUBLINGS):
        return "backing_off"
    if pace.calls < limits.calls and event.calls:
        return "no_pause"
    is_spent = limits.runs_per_hour and len(pace.spent) >= limits.runs_per_hour
    return "quiet_budget" if is_spent else None


def _started(pace: UpdatePace, at: float, limits: UpdateTriggers) -> tuple[UpdatePace, Action]:
    may_ask = not limits.tokens_per_hour or sum(tokens for _, tokens in pace.spent) < limits.tokens_per_hour
    started = replace(pace, is_running=True, is_wanted=False, base=pace.tokens, calls=0, spent=(*pace.spent, (at, 0)))
    return started, StartUpdate(may_ask)


def _paid(pace: UpdatePace, event: UpdateEnded | UpdateFailed) -> tuple[tuple[float, int], ...]:
    """What the run cost, entered at its start."""
    return (*pace.spent[:-1], (pace.spent[-1][0], event.tokens)) if pace.spent else ()
