"""Thresholds and pressure, and `Facts`: everything that a decision may depend on (PRS-1 to PRS-8)."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal

from holdfast.context.anchor import size_tokens
from holdfast.context.items import item_has_results
from holdfast.context.models import UNKNOWN, ModelFacts
from holdfast.context.view import View
from holdfast.settings import Settings

# PRS-2: budgets reach their full size at this much usable window (both threshold eras of a 200k window lie above it).
FULL_USABLE_TOKENS = 160_000
# PRS-5: helpers must not compact themselves.
HELPER_SOURCES = frozenset({"compact", "session_memory", "memory"})

WindowSource = Literal["setting", "provider", "log", "model", "default", "flag"]


class Pressure(enum.Enum):
    """How full the window is, in rising order."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    COMPACT = "compact"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Where pressure rises, in tokens. `limit` is L of PRS-7: what "percent left" counts down to."""

    window: int
    window_source: WindowSource
    reserve: int
    usable: int
    trigger: int
    block: int
    warning: int
    error: int
    limit: int
    auto: bool
    by_hand: bool = False  # compaction is there, but only when somebody asks for it (CMP-7)

    @property
    def scale(self) -> float:
        """The share of its full size that every budget has in this window (PRS-2)."""
        return min(1.0, self.usable / FULL_USABLE_TOKENS)

    def scaled(self, budget: int, *, floor: int = 1) -> int:
        """A budget cut to this window."""
        return max(floor, round(budget * self.scale))


def thresholds(settings: Settings, model: ModelFacts, window: int, source: WindowSource) -> Thresholds:
    """The thresholds of a window (PRS-1 to PRS-4).

    For 200,000 tokens: usable 180,000, trigger 167,000, block 177,000, warning and error 147,000 (160,000 with
    auto-compaction off).
    """
    usable = window - _reserve(settings, model, window)
    counted = min(window, settings.auto_compact_window or window)
    counted_usable = counted - _reserve(settings, model, counted)
    trigger = counted_usable - min(settings.trigger_offset_tokens, counted_usable // 10)
    percent = settings.auto_compact_percent
    if percent is not None and 0 < percent <= 100:
        trigger = min(int(counted_usable * percent / 100), trigger)
    is_manual = settings.compact_timing == "manual"
    auto = settings.compact and settings.auto_compact and not is_manual
    high = trigger if auto else usable
    block = usable - min(settings.block_offset_tokens, usable // 50)
    return Thresholds(
        window=window,
        window_source=source,
        reserve=window - usable,
        usable=usable,
        trigger=trigger,
        block=block,
        warning=high - min(settings.warning_offset_tokens, high * 15 // 100),
        error=high - min(settings.error_offset_tokens, high * 15 // 100),
        limit=trigger if auto else block,
        auto=auto,
        by_hand=settings.compact and is_manual,
    )


def _reserve(settings: Settings, model: ModelFacts, window: int) -> int:
    output = settings.max_output_tokens or model.max_output_tokens
    return min(output, settings.reserve_cap_tokens, window // 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything beside the view that a pass may look at; a decision can be reproduced from the two.

    `now` is in seconds since the epoch (None: unknown, so nothing is idle). `source` says who asks: user, or a helper.
    `instructions` are what a person, or a hook, wants a record to look at. `span` is the part of the view to summarise,
    from one position to before another; None for all that isn't kept (CMP-6).
    """

    settings: Settings
    limits: Thresholds
    model: ModelFacts = UNKNOWN
    now: float | None = None
    source: str = "user"
    instructions: str = ""
    span: tuple[int, int] | None = None
    secret_key: bytes = b""  # SEC-5: what the ids of secrets are made with; empty: they are numbered

    def size(self, view: View) -> int:
        """The view's size in tokens (TOK-3)."""
        return size_tokens(view, self.settings)

    @property
    def reach_tokens(self) -> int:
        """How far below the trigger the cheap passes begin to act (TURN-3, TURN-4)."""
        reach = self.limits.scaled(self.settings.microcompact_reach_tokens)
        return min(reach, self.limits.trigger * 15 // 100)

    def is_cold(self, view: View) -> bool:
        """Whether the provider's cache has expired since the last answer (TURN-4)."""
        answered = view.state.answered_at
        if self.now is None or answered is None:
            return False
        return self.now - answered > self.settings.cache_lifetime_seconds


def pressure(view: View, facts: Facts) -> Pressure:
    """How full the window is (PRS-1)."""
    return pressure_at(facts.size(view), facts.limits)


def pressure_at(size: int, limits: Thresholds) -> Pressure:
    """The level of a size. With auto-compaction off there is no compact level: the next one is blocked (PRS-4)."""
    if size >= limits.block:
        return Pressure.BLOCKED
    if limits.auto and size >= limits.trigger:
        return Pressure.COMPACT
    if size >= max(limits.warning, limits.error):
        return Pressure.ERROR
    return Pressure.WARNING if size >= limits.warning else Pressure.OK


def percent_left(size: int, limits: Thresholds) -> float:
    """How much of the way to L is left, 0 to 100 (PRS-7)."""
    return max(0.0, (limits.limit - size) / limits.limit * 100)


def low_line(size: int, limits: Thresholds) -> str | None:
    """The line that tells a person the context is low; None while it isn't (PRS-7)."""
    if size < limits.warning:
        return None
    left = int(percent_left(size, limits))
    if limits.auto or limits.by_hand:
        return f"Context low ({left}% left): run /compact to compact and continue"
    return f"Context low ({left}% left): compaction is off; use /clear, or trim the conversation by hand"


@dataclass(frozen=True, slots=True)
class Need:
    """Automatic compaction is due."""

    size: int
    trigger: Literal["auto"] = "auto"


def compaction_need(view: View, facts: Facts) -> Need | None:
    """Whether automatic compaction has to start now (TURN-8, PRS-4, PRS-5, PRS-6, CMP-7)."""
    if not facts.limits.auto or facts.source in HELPER_SOURCES:
        return None
    breaker = view.state.breaker
    if breaker.failures >= facts.settings.breaker_failures or breaker.refills >= facts.settings.thrash_refills:
        return None
    size = facts.size(view)
    due = facts.limits.block if breaker.waits else facts.limits.trigger  # CMP-11: not what was just undone
    if size < due or (facts.settings.compact_timing == "boundary" and size < facts.limits.block and in_tool_loop(view)):
        return None
    return Need(size)


def in_tool_loop(view: View) -> bool:
    """Whether the model owes an answer to results of its calls, or results are still to come (CMP-7)."""
    if view.open_calls:
        return True
    for item in reversed(view.items):
        if item.message.role == "assistant":
            return False
        if item_has_results(item):
            return True
    return False
