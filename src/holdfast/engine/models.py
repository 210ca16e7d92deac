"""A model per job, with fall-backs (spec/00: users choose a model per job)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from holdfast.context.replies import About, Reply
from holdfast.context.requests import Request
from holdfast.engine.calling import Call, call
from holdfast.engine.ladder import Answered, Blank, Deliver, GiveUp, Ladder, Retry, Rungs, step
from holdfast.engine.session import LiveSession
from holdfast.errors import ModelError, ModelGaveUp
from holdfast.events import LadderGaveUp, ModelFellBack, RetryWaited
from holdfast.ports import Model

OFFLINE = "offline"  # the name of the model that says it is none
Job = Literal["main", "summarizer", "notes", "selector", "extractor"]
JOBS: tuple[Job, ...] = get_args(Job)

Asking = Callable[[About], tuple[Request, int]]
"""Makes the request of a job for the model that is asked, and says how many tokens it takes it for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
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


async def ask_job(session: LiveSession, models: Models, job: Job, asking: Asking) -> Reply | ModelError:
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
            session.world.sink.emit(ModelFellBack(job, models_left[0].about.id, said.reason))
    return last


async def _ask_one(session: LiveSession, model: Model, job: Job, asking: Asking) -> Reply | ModelError:
    request, tokens = asking(model.about)
    settings = session.settings
    rungs = Rungs(
        retries=settings.retry_attempts, seconds=settings.retry_budget_seconds, cuts=settings.cut_retries, compactions=0
    )
    ladder = Ladder(rungs=rungs)
    while True:
        said = await call(session, model, Call(request, tokens, job))
        outcome = said if isinstance(said, ModelError) else Blank() if said.is_empty else Answered()
        ladder, action = step(ladder, outcome)
        match action:
            case Retry():
                if action.seconds:
                    session.world.sink.emit(RetryWaited(model.about.id, action.reason, action.seconds))
                    await session.world.clock.sleep(action.seconds)
            case Deliver():
                return said
            case GiveUp() if action.tried:
                session.world.sink.emit(LadderGaveUp(model.about.id, action.last.reason, action.tried))
                return ModelGaveUp(action.last, action.tried)
            case _:
                assert isinstance(said, ModelError)
                return said
