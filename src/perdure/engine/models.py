"""A model per job with fall-backs, and whose models help in a turn (TURN-8, SM-3, MEM-4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, get_args

from perdure.context.replies import ModelInfo, Reply
from perdure.context.request import ModelRequest
from perdure.engine.ask import (
    DeliverAnswer,
    EmptyAnswer,
    GiveUp,
    GoodAnswer,
    ModelCall,
    RecoveryLadder,
    RemedyLimits,
    Retry,
    call,
    step,
)
from perdure.engine.session import LiveSession
from perdure.errors import ModelError, ModelGaveUp
from perdure.events import LadderGaveUp, ModelFellBack, RetryWaited
from perdure.ports import Model

OFFLINE = "offline"  # the name of the model that says it is none
Job = Literal["main", "summarizer", "notes", "selector", "extractor"]
JOBS: tuple[Job, ...] = get_args(Job)

Asking = Callable[[ModelInfo], tuple[ModelRequest, int]]
"""Makes the request of a job for the model that is asked, and says how many tokens it takes it for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobModels:
    """The models of each job, the first choice first. A job without any is done without a model."""

    main: tuple[Model, ...] = ()
    summarizer: tuple[Model, ...] = ()
    notes: tuple[Model, ...] = ()
    selector: tuple[Model, ...] = ()
    extractor: tuple[Model, ...] = ()

    def of(self, job: Job) -> tuple[Model, ...]:
        """The models to ask for a job, in order."""
        chain: tuple[Model, ...] = getattr(self, job)
        return chain

    async def close(self) -> None:
        """Close every model, each once."""
        for model in dict.fromkeys(model for job in JOBS for model in self.of(job)):
            await model.close()


async def ask_job(session: LiveSession, models: JobModels, job: Job, asking: Asking) -> Reply | ModelError:
    """Ask the models of a job one after the other until one answers; else the last error, for the caller's own rung.

    Waits and cut streams are retried as in a turn; what would need another request (a prompt that is too long, a
    medium) is the caller's to change, so it comes back at once, and so does a cancelled call.
    """
    last: ModelError = ModelError(f"no model is set for the job {job}")
    models_left = list(models.of(job))
    while models_left:
        model = models_left.pop(0)
        said = await _ask_one(session, model, job, asking)
        if isinstance(said, Reply):
            return said
        last = said
        if models_left:
            session.ports.sink.emit(ModelFellBack(job, models_left[0].about.id, said.reason))
    return last


async def _ask_one(session: LiveSession, model: Model, job: Job, asking: Asking) -> Reply | ModelError:
    request, tokens = asking(model.about)
    settings = session.settings
    rungs = RemedyLimits(
        retries=settings.retry_attempts, seconds=settings.retry_budget_seconds, cuts=settings.cut_retries, compactions=0
    )
    ladder = RecoveryLadder(rungs=rungs)
    while True:
        said = await call(session, model, ModelCall(request, tokens, job))
        outcome = said if isinstance(said, ModelError) else EmptyAnswer() if said.is_empty else GoodAnswer()
        ladder, action = step(ladder, outcome)
        match action:
            case Retry():
                if action.seconds:
                    session.ports.sink.emit(RetryWaited(model.about.id, action.reason, action.seconds))
                    await session.ports.clock.sleep(action.seconds)
            case DeliverAnswer():
                return said
            case GiveUp() if action.tried:
                session.ports.sink.emit(LadderGaveUp(model.about.id, action.last.reason, action.tried))
                return ModelGaveUp(action.last, action.tried)
            case _:
                assert isinstance(said, ModelError)
                return said


@dataclass(frozen=True, slots=True)
class BackgroundModels:
    """The models of the jobs beside the conversation, and those that write records; code does a job without any."""

    helpers: JobModels
    summarizer: tuple[Model, ...]


_given: ContextVar[tuple[LiveSession, BackgroundModels] | None] = ContextVar("perdure-helping", default=None)


def background_models(session: LiveSession) -> BackgroundModels:
    """What helps now: what the turn was given that this is part of, or that started this work; else the session's."""
    given = _given.get()
    if given is not None and given[0] is session:
        return given[1]
    return own(session)


def own(
    session: LiveSession, *, summarizer: Sequence[Model] | None = None, helpers: JobModels | None = None
) -> BackgroundModels:
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
        helpers = JobModels(notes=chain(settings.notes_models), extractor=chain(settings.extractor_models))
    return BackgroundModels(helpers, tuple(model for model in summarizer if model.about.id != OFFLINE))


@contextmanager
def with_background_models(session: LiveSession, by: BackgroundModels) -> Iterator[None]:
    """Within the block this helps the session, and whatever is started there for it; the session's own stay."""
    token = _given.set((session, by))
    try:
        yield
    finally:
        _given.reset(token)
