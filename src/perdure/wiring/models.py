"""Models by their names, for each job."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import takewhile

from perdure.adapters.providers.connect import OFFLINE, connect, default_names
from perdure.context.models import ModelSpec
from perdure.engine.ask import JOBS, Job, JobModels
from perdure.ports.session import Model
from perdure.settings import Settings

UNASKED: frozenset[Job] = frozenset({"selector"})  # jobs that are done without a model until one is named


def connect_models(settings: Settings, environ: Mapping[str, str], *, known: tuple[ModelSpec, ...] = ()) -> JobModels:
    """The models of each job, as the settings name them; keys come from the environment, and stay there.

    A job without a list of its own uses that of `main`, and `main` without one whoever there is a key for, else the
    offline model. Only the choice of memories is done without a model then: it is asked at each prompt and waited for,
    which is for a small model that somebody names. `offline` in the list of another job ends it: from there on the job
    is done without a model.
    """
    made: dict[str, Model] = {}

    def chain(names: tuple[str, ...]) -> tuple[Model, ...]:
        return tuple(made.setdefault(name, connect(name, environ, known=known)) for name in names)

    main = settings.main_models or default_names(environ)
    helpers: dict[Job, tuple[Model, ...]] = {}
    for job in JOBS[1:]:
        names: tuple[str, ...] = getattr(settings, f"{job}_models") or (() if job in UNASKED else main)
        helpers[job] = chain(tuple(takewhile(lambda name: name.strip() != OFFLINE, names)))
    return JobModels(main=chain(main or (OFFLINE,)), **helpers)


@asynccontextmanager
async def connected(names: Sequence[str], environ: Mapping[str, str]) -> AsyncIterator[tuple[Model, ...]]:
    """The models of these names, up to the first `offline`, closed afterwards."""
    models = tuple(connect(name, environ) for name in takewhile(lambda name: name.strip() != OFFLINE, names))
    try:
        yield models
    finally:
        for model in models:
            await model.close()
