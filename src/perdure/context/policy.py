"""Thresholds and pressure, and `Facts`: everything that a decision may depend on (PRS-1 to PRS-8)."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from perdure.context.models import CACHE_SECONDS, UNKNOWN, CacheTtl, ModelSpec, model_spec
from perdure.context.view import ContextView, item_has_results, size_tokens, tokens_from
from perdure.settings import LEAST_WINDOW_TOKENS, Settings
from perdure.transcript.response_items import front_tools
from perdure.transcript.tool_calls.actions import ToolTable, plain_name

# PRS-2: budgets reach their full size at this much usable window (both threshold eras of a 200k window lie above it).
FULL_USABLE_TOKENS = 160_000
_FRONT_SHARE = 8  # TURN-17: a front takes one part in so many of a window; what is more is missing behind it
_WINDOW_STEP = 1_000
_LEAST_EXPECTED_CALLS = 10  # a session is young for some calls, and over for none of them
# PRS-5: helpers must not compact themselves.
HELPER_SOURCES = frozenset({"compact", "session_memory", "memory"})

WindowSource = Literal["setting", "provider", "log", "model", "default", "flag"]


def window_in_force(
    view: ContextView, settings: Settings, model: ModelSpec, given: tuple[int, WindowSource] | None = None
) -> tuple[int, WindowSource]:
    """The window of a session and who said it: the user, else a provider, else the table (PRS-8).

    A provider that refused what it says is too long has the last word: no setting makes its window larger. `given`
    stands in the place of what the table says.
    """
    calibration, asked = view.state.calibration, settings.window_tokens
    stated = calibration.window_tokens
    if asked:
        is_of_this = view.front is not None and view.front.model == calibration.model
        return (stated, "provider") if stated and stated < asked and is_of_this else (asked, "setting")
    tokens, source = given or (model.window_tokens, "model" if model.prefix else "default")
    return (stated, "provider") if stated and source in ("model", "default") else (tokens, source)


class Pressure(enum.Enum):
    """How full the window is, in rising order."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    COMPACT = "compact"
    BLOCKED = "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Where pressure rises, in tokens. Nothing is left at `full` (PRS-7)."""

    window: int
    window_source: WindowSource
    reserve: int
    usable: int
    trigger: int
    block: int
    warning: int
    error: int
    full: int
    auto: bool
    by_hand: bool = False  # compaction is there, but only when somebody asks for it (CMP-7)

    @property
    def scale(self) -> float:
        """The share of its full size that every budget has in this window (PRS-2)."""
        return min(1.0, self.usable / FULL_USABLE_TOKENS)

    def scaled(self, budget: int, *, floor: int = 1) -> int:
        """A budget cut to this window."""
        return max(floor, round(budget * self.scale))


def thresholds(settings: Settings, model: ModelSpec, window: int, source: WindowSource) -> Thresholds:
    """The thresholds of a window (PRS-1 to PRS-4).

    For 200,000 tokens: usable 180,000, trigger 167,000, block 177,000, warning 147,000 and error 157,000 (160,000
    and 170,000 with auto-compaction off).
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
    limit = trigger if auto else usable
    block = usable - min(settings.block_offset_tokens, usable // 50)
    return Thresholds(
        window=window,
        window_source=source,
        reserve=window - usable,
        usable=usable,
        trigger=trigger,
        block=block,
        warning=limit - min(settings.warning_offset_tokens, limit * 15 // 100),
        error=limit - min(settings.error_offset_tokens, limit * 8 // 100),
        full=trigger if auto else block,
        auto=auto,
        by_hand=settings.compact and not auto,
    )


def least_window(settings: Settings, model: ModelSpec, fixed: int) -> int:
    """The smallest window that auto-compaction can count with, where so many tokens stay whatever it does (PRS-3).

    What stays may fill half of the way to the trigger, as after any compaction (PRS-2); the rest is for what is said.
    """
    window = LEAST_WINDOW_TOKENS
    alone = replace(settings, auto_compact_window=None, auto_compact_percent=None)
    while thresholds(alone, model, window, "setting").trigger < 2 * fixed:
        window += _WINDOW_STEP
    return window


def _reserve(settings: Settings, model: ModelSpec, window: int) -> int:
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
    model: ModelSpec = UNKNOWN
    now: float | None = None
    source: str = "user"
    instructions: str = ""
    span: tuple[int, int] | None = None
    secret_key: bytes = b""  # SEC-5: what the ids of secrets are made with; empty: they are numbered

    def size(self, view: ContextView) -> int:
        """The view's size in tokens (TOK-3)."""
        return size_tokens(view, self.settings)

    @property
    def reach_tokens(self) -> int:
        """How far below the trigger the cheap passes begin to act (TURN-3, TURN-4)."""
        reach = self.limits.scaled(self.settings.microcompact_reach_tokens)
        return min(reach, self.limits.trigger * 15 // 100)

    def scaled(self, view: ContextView, budget: int, *, floor: int = 1) -> int:
        """A budget cut to what this window holds behind the front (TURN-17)."""
        behind = self.limits.usable - view.front_size.live
        full = FULL_USABLE_TOKENS - FULL_USABLE_TOKENS // _FRONT_SHARE
        share = min(self.limits.scale, max(0.0, behind / full))
        return max(floor, round(budget * share))

    def half_tokens(self, view: ContextView) -> int:
        """How large a view may be after a compaction: half of the trigger (PRS-2). Behind a front that takes more than
        the usual, the same part of what it leaves is filled as behind a usual one (TURN-17)."""
        trigger, front = self.limits.trigger, view.front_size.live
        behind = (trigger - front) * (_FRONT_SHARE - 2) // (2 * _FRONT_SHARE - 2)
        return max(trigger // 2, min(trigger, front + behind))

    def is_cold(self, view: ContextView) -> bool:
        """Whether the provider's cache has expired since the last answer, so that moving the prefix costs nothing."""
        return self._pause_seconds(view) > CACHE_SECONDS[self.held_ttl(view)]

    def held_ttl(self, view: ContextView) -> CacheTtl:
        """How long the provider keeps what the last request wrote (TURN-16)."""
        if self.model.provider != "anthropic":
            return "1h"  # others name no time; an hour is the longest that they keep a prefix for nothing
        asked = self.settings.cache_ttl
        if asked == "auto":
            return "1h" if view.state.has_paused else "5m"
        return asked

    def cache_ttl(self, view: ContextView) -> CacheTtl:
        """How long what the next request writes is to be kept: what it says on its breakpoints.

        Left to us, five minutes, until a pause outlived them. Then everything has to be written again anyway, and it is
        written for an hour, since whoever paused once pauses again (ADR 0033). Other providers sell no hour.
        """
        if self.model.provider != "anthropic":
            return "1h" if self.settings.cache_ttl == "1h" else "5m"
        is_changing = self.settings.cache_ttl == "auto" and self.is_cold(view)
        return "1h" if is_changing else self.held_ttl(view)

    def rewrite_usd(self, view: ContextView, tokens: int) -> float | None:
        """Dollars that moving so many tokens costs above reading them from the cache; None without a price."""
        if self.model.input_usd is None:
            return None
        factor = self.model.factor_to_write(self.cache_ttl(view)) - self.model.read_factor
        return tokens * self.model.input_price() * factor

    def _pause_seconds(self, view: ContextView) -> float:
        """How long ago the model last answered; 0 while that isn't known."""
        answered = view.state.answered_at
        return 0.0 if self.now is None or answered is None else self.now - answered


def pressure(view: ContextView, facts: Facts) -> Pressure:
    """How full the window is (PRS-1)."""
    return pressure_at(facts.size(view), facts.limits)


def pressure_at(size: int, limits: Thresholds) -> Pressure:
    """The level of a size. With auto-compaction off there is no compact level: the next one is blocked (PRS-4)."""
    if size >= limits.block:
        return Pressure.BLOCKED
    if limits.auto and size >= limits.trigger:
        return Pressure.COMPACT
    if size >= limits.error:
        return Pressure.ERROR
    return Pressure.WARNING if size >= limits.warning else Pressure.OK


def percent_left(size: int, limits: Thresholds) -> float:
    """How much of the way to `full` is left, 0 to 100 (PRS-7)."""
    return max(0.0, (limits.full - size) / limits.full * 100)


def low_line(
    size: int,
    limits: Thresholds,
    *,
    compact: str = "/compact",
    trim: str = "use /clear, or trim the conversation by hand",
) -> str | None:
    """The line that tells a person the context is low, or almost full; None while it is neither (PRS-1, PRS-7).

    `compact` is the command that compacts where the line is shown; `trim` is what helps where compaction is off.
    """
    if size < limits.warning:
        return None
    how = "Context almost full" if size >= limits.error else "Context low"
    left = int(percent_left(size, limits))
    if limits.auto or limits.by_hand:
        return f"{how} ({left}% left): run {compact} to compact and continue"
    return f"{how} ({left}% left): compaction is off; {trim}"


@dataclass(frozen=True, slots=True)
class CompactionNeed:
    """Automatic compaction is due."""

    size: int
    trigger: Literal["auto"] = "auto"


def has_given_up(view: ContextView, settings: Settings) -> bool:
    """Whether automatic compaction stopped, as it failed too often, or the window refills at once (PRS-5, PRS-6)."""
    breaker = view.state.breaker
    return breaker.failures >= settings.breaker_failures or breaker.refills >= settings.thrash_refills


def begins_at(view: ContextView, limits: Thresholds) -> int:
    """The size at which the next automatic compaction begins: later than usual when the last was undone (CMP-11)."""
    return limits.block if view.state.breaker.waits else limits.trigger


def compaction_need(view: ContextView, facts: Facts) -> CompactionNeed | None:
    """Whether automatic compaction has to start now (TURN-8, PRS-4, PRS-5, PRS-6, CMP-7)."""
    if not facts.limits.auto or facts.source in HELPER_SOURCES:
        return None
    breaker = view.state.breaker
    if has_given_up(view, facts.settings):
        return None
    size, due = facts.size(view), begins_at(view, facts.limits)
    may_come_early = not breaker.waits and view.state.put_off != view.state.responses
    if may_come_early and size < due and (comes_in_pause(view, facts) or _compaction_pays(view, size, facts)):
        due = size  # TURN-16: it costs less than to go on
    if size < due or (facts.settings.compact_timing == "boundary" and size < facts.limits.block and in_tool_loop(view)):
        return None
    return CompactionNeed(size)


def expected_calls(view: ContextView) -> int:
    """How many more calls will be made before the prefix moves for another reason: as many as since the last boundary.

    The rest of a session is expected to be as long as what there was of it, in calls (TURN-16, ADR 0033).
    """
    return max(_LEAST_EXPECTED_CALLS, view.state.breaker.responses_since_boundary)


def comes_in_pause(view: ContextView, facts: Facts) -> bool:
    """Whether the next automatic compaction comes below the trigger, since the cache is dead (TURN-16, ADR 0090).

    All of the prompt is written again in any case then, so it costs nothing but detail: it has to spare much, and it
    keeps as much as it may word for word (`pause_facts`).
    """
    settings, is_below = facts.settings, facts.size(view) < facts.limits.trigger
    if not settings.idle_compact or settings.policy != "balanced" or not is_below or not facts.is_cold(view):
        return False
    return _is_enough(view, _spared(view, facts, settings.keep_max_tokens), facts)


def pause_facts(facts: Facts) -> Facts:
    """What a compaction in a pause is decided by: at least as much is kept word for word as one at the trigger may."""
    return replace(facts, settings=replace(facts.settings, keep_min_tokens=facts.settings.keep_max_tokens))


def _front_tokens(view: ContextView) -> int:
    overhead = view.state.calibration.overhead_tokens
    return view.front_size.live if overhead is None else overhead


def _spared(view: ContextView, facts: Facts, kept_tokens: int) -> int:
    """Tokens that a compaction would take out of each prompt, about; at least `kept_tokens` are kept word for word.

    The latest request stays whatever its size: among the kept messages, or else in the record.
    """
    kept = max(facts.limits.scaled(kept_tokens), tokens_from(view, view.sent))
    left = facts.limits.scaled(facts.settings.summary_budget_tokens) + kept
    if tokens_from(view, view.prompt) > kept:
        left += view.items[view.prompt].size.base
    return facts.size(view) - _front_tokens(view) - round(left * view.state.calibration.ratio)


def _is_enough(view: ContextView, spared: int, facts: Facts) -> bool:
    """Whether a compaction below the trigger spares enough for the detail that it costs."""
    breaker = view.state.breaker
    if breaker.boundaries and not breaker.responses_since_boundary:
        return False  # what was just compacted is asked with first; else a request prepared again is another one
    if tokens_from(view, view.sent) > facts.limits.scaled(facts.settings.keep_max_tokens):
        return False  # what no answered request held is the model's to read first, and it wouldn't be kept
    return spared >= facts.limits.scaled(facts.settings.thrifty_least_tokens)


def _compaction_pays(view: ContextView, size: int, facts: Facts) -> bool:
    """Whether `thrifty` compacts: what is spared in the expected rest of the session is more than what is written.

    The price of a compaction is that of its new prefix; what it costs in detail has none, so it has to spare enough
    (TURN-16).
    """
    settings, model = facts.settings, facts.model
    if settings.policy != "thrifty":
        return False
    spared = _spared(view, facts, settings.keep_min_tokens)
    if not _is_enough(view, spared, facts):
        return False
    if facts.is_cold(view):
        return True
    write = model.factor_to_write(facts.cache_ttl(view))
    # What is spared grows again from nothing, so on the average half of it is read for nothing in each of these calls.
    return spared / 2 * model.read_factor * expected_calls(view) >= (size - spared) * (write - model.read_factor)


def tool_table(settings: Settings) -> ToolTable:
    """What tools do by their names, and which of them bring a person's own words, as the settings say (SEC-1)."""
    return ToolTable.of(settings.ledger_tools, settings.user_tools)


def has_recall_tool(view: ContextView, settings: Settings) -> bool:
    """Whether the model can recall by itself what left its view; else it has to be told who can (RCL-3)."""
    if settings.recall_tool is not None:
        return settings.recall_tool
    front = view.state.front
    return front is not None and any(_is_recall(tool) for tool in front_tools(front))


def _is_recall(raw: bytes) -> bool:
    if b"recall" not in bytes(raw):
        return False
    tool = msgspec.json.decode(raw)
    name = tool.get("name") or (tool.get("function") or {}).get("name")
    return isinstance(name, str) and plain_name(name) == "recall"


def in_tool_loop(view: ContextView) -> bool:
    """Whether the model owes an answer to results of its calls, or results are still to come (CMP-7)."""
    if view.open_calls:
        return True
    for item in reversed(view.items):
        if item.message.role == "assistant":
            return False
        if item_has_results(item):
            return True
    return False


def facts_at(view: ContextView, settings: Settings, known: tuple[ModelSpec, ...] = ()) -> Facts:
    """The facts of a session that isn't open, from its view; `known` are the user's own models."""
    named = view.front.model if view.front else None
    model = model_spec(named or view.state.calibration.model, known)
    return Facts(
        settings=settings, limits=thresholds(settings, model, *window_in_force(view, settings, model)), model=model
    )
