"""Watching the provider's prompt cache: a drop that nothing of ours explains is said (CMP-8, TURN-5).

Moves of the prefix are announced as they are made (`PrefixMoved`), so they are expected here; so is a cache that has
expired, or whose model, system prompt or tools are others now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.context.models import CACHE_SECONDS
from holdfast.context.replies import Reply
from holdfast.events import CacheDropped
from holdfast.transcript.records import Front

if TYPE_CHECKING:
    from holdfast.engine.session import LiveSession

_MOST_LOST = 0.5  # a breakpoint may fall short of the end of the prompt, but not by half of it


@dataclass(frozen=True, slots=True)
class Cached:
    """What a provider's cache holds of a session since its last answer: so many tokens, behind this front."""

    tokens: int
    at: float
    model: str
    front: Front | None
    boundary: str | None


def watch(session: LiveSession, reply: Reply) -> None:
    """Look at an answer before it joins the conversation: whether its prompt was read from the cache as expected."""
    usage, before = reply.usage, session.cached
    if usage is None:
        return
    view, now = session.view, session.world.clock.now()
    here = Cached(
        tokens=usage.prompt_tokens if usage.cache_read_input_tokens or usage.cache_creation_input_tokens else 0,
        at=now,
        model=reply.model,
        front=view.front,
        boundary=view.boundary.id if view.boundary else None,
    )
    session.cache_holds(here)
    if before is None or before.tokens < session.model.cache_minimum_tokens or view.moved is not None:
        return
    is_same = (before.model, before.front, before.boundary) == (here.model, here.front, here.boundary)
    is_warm = now - before.at < CACHE_SECONDS[session.facts().held_ttl(view)]
    if is_same and is_warm and usage.cache_read_input_tokens < before.tokens * _MOST_LOST:
        session.world.sink.emit(CacheDropped(reply.model, before.tokens, usage.cache_read_input_tokens))
