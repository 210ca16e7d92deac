"""Whose models help: those of the session, or those that one turn was given (TURN-8, SM-3, MEM-4)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.engine.models import Models
    from holdfast.engine.session import LiveSession
    from holdfast.engine.strategies import Strategy


@dataclass(frozen=True, slots=True)
class Helping:
    """The models of jobs in the background, and how a model compacts; None for none.

    `is_given`: a turn was given the models, so a job that they have none for is done without one.
    """

    helpers: Models | None
    summarizing: Strategy | None
    is_given: bool = False


_given: ContextVar[tuple[LiveSession, Helping] | None] = ContextVar("holdfast-helping", default=None)


def helping(session: LiveSession) -> Helping:
    """What helps now: what the turn was given that this is part of, or that started this work; else the session's."""
    given = _given.get()
    if given is not None and given[0] is session:
        return given[1]
    return Helping(session.helpers, session.summarizing)


@contextmanager
def helped(session: LiveSession, by: Helping) -> Iterator[None]:
    """Within the block this helps the session, and whatever is started there for it; the session's own stay."""
    token = _given.set((session, by))
    try:
        yield
    finally:
        _given.reset(token)
