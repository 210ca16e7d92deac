"""What hooks around a compaction are told, and what they can say: plain values (CMP-10)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PreCompact:
    """A compaction is about to start. `trigger` is manual or auto; sizes are in tokens."""

    trigger: str
    instructions: str
    session: str
    agent: str | None
    tokens: int
    window_tokens: int
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PostCompact:
    """A compaction was committed; `summary` is what stands for the older part now."""

    trigger: str
    strategy: str
    session: str
    agent: str | None
    summary: str
    tokens_before: int
    tokens_after: int
    kept: int


HookEvent = PreCompact | PostCompact


@dataclass(frozen=True, slots=True, kw_only=True)
class HookDecision:
    """What a hook wants. Before: block with a reason, replace or add instructions, or give the summary itself.

    After: `context` joins the conversation. What doesn't fit the moment is ignored.
    """

    block: str | None = None
    instructions: str | None = None
    add_instructions: str = ""
    summary: str | None = None
    context: str = ""


@dataclass(frozen=True, slots=True)
class Hook:
    """A named callable. One that raises, or takes longer than its time, is reported and otherwise as if it weren't."""

    name: str
    run: Callable[[HookEvent], Awaitable[HookDecision | None]]
    timeout_seconds: float = 60.0
