"""Whose models help: those of the session, or those that one turn was given (TURN-8, SM-3, MEM-4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.engine.models import OFFLINE, Models

if TYPE_CHECKING:
    from holdfast.engine.session import LiveSession
    from holdfast.ports import Model


@dataclass(frozen=True, slots=True)
class Helping:
    """The models of the jobs beside the conversation, and those that write records; code does a job without any."""

    helpers: Models
    summarizer: tuple[Model, ...]


_given: ContextVar[tuple[LiveSession, Helping] | None] = ContextVar("holdfast-helping", default=None)


def helping(session: LiveSession) -> Helping:
    """What helps now: what the turn was given that this is part of, or that started this work; else the session's."""
    given = _given.get()
    if given is not None and given[0] is session:
        return given[1]
    return own(session)


def own(session: LiveSession, *, summarizer: Sequence[Model] | None = None, helpers: Models | None = None) -> Helping:
    """What helps where these are given; else what the session was given, else the model that it is held with.

    That one does only what runs on its cached prefix, and no job that the settings want done without a model.
    """
    settings, services, asked = session.settings, session.services, session.asked

    def chain(names: tuple[str, ...]) -> tuple[Model, ...]:
        return () if asked is None or names[:1] == (OFFLINE,) or asked.about.id == OFFLINE else (asked,)

    summarizer = services.summarizer if summarizer is None else summarizer
    if summarizer is None:
        summarizer = chain(settings.summarizer_models)
    helpers = helpers or services.helpers
    if helpers is None:
        helpers = Models(notes=chain(settings.notes_models), extractor=chain(settings.extractor_models))
    return Helping(helpers, tuple(model for model in summarizer if model.about.id != OFFLINE))


@contextmanager
def helped(session: LiveSession, by: Helping) -> Iterator[None]:
    """Within the block this helps the session, and whatever is started there for it; the session's own stay."""
    token = _given.set((session, by))
    try:
        yield
    finally:
        _given.reset(token)
