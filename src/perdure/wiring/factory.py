"""Agents for programs that people work with: settings and models of a folder, one model after the other (CLI-1, ACP-1).

Chat, run and editors make their agents here; `perdure.wiring.agent` makes one of parts that are given.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from perdure.adapters.journal import JOURNAL, SessionStore
from perdure.adapters.journal.store import describe
from perdure.adapters.machine.repositories import trust_root
from perdure.adapters.providers.connect import OFFLINE, default_names
from perdure.adapters.providers.offline import DemonstrationModel
from perdure.context.models import ModelSpec, model_spec
from perdure.engine.ask import JobModels
from perdure.engine.session import Services
from perdure.errors import ModelError, ModelGaveUp, SessionBusy, SessionNotFound
from perdure.ports.session import Model, Sink
from perdure.wiring.agents import agent
from perdure.wiring.parts import SessionOptions, connect_models
from perdure.wiring.sessions import fork_session

if TYPE_CHECKING:
    from perdure.adapters.config import Config
    from perdure.agent.loop import AgentLoop
    from perdure.agent.progress import Ask, OnProgress, RunResult
    from perdure.hooks import EndReason, StartSource
    from perdure.settings import Settings
    from perdure.transcript.messages import Message


_URLS = ("http://", "https://")
DISCOVER_SECONDS = 3.0  # for a server to tell its window; then the table decides


@dataclass(slots=True, kw_only=True)
class AgentFactory:
    """Makes the agents of this process: with which settings and models, and who hears what they do."""

    config: Config
    project: Path
    models: JobModels
    is_trusted: bool | None = None  # of `project`; None, and of any other folder: as was said earlier
    told: tuple[str, ...] = ()  # what a person should know before they begin
    ask: Ask | None = None
    on_progress: OnProgress | None = None
    also: Sink | None = None
    _left: list[JobModels] = field(default_factory=list, init=False)

    @property
    def is_demonstration(self) -> bool:
        """Whether no language model answers."""
        return isinstance(self.models.main[0], DemonstrationModel)

    @property
    def home(self) -> Path:
        return self.config.home

    async def agent(
        self, *, resume: Path | None = None, fork: bool = False, source: StartSource | None = None
    ) -> AgentLoop:
        """An agent on a new session, or on an earlier one. Raises what `wiring.agent` raises."""
        main, project = self.models.main[0], self.project
        if resume is not None:
            project = project_of(resume) or project
            if not await anyio.to_thread.run_sync(project.is_dir):
                raise SessionNotFound(f"{project}: the folder of this session is gone; make it, or start a new session")
        is_here = trust_root(project) == trust_root(self.project)  # --trust was said of one folder
        parts = SessionOptions(
            settings=self.config.settings,
            also=self.also,
            services=Services(
                facts_of=lambda model: model_spec(model or main.about.id, self.config.models),
                summarizer=self.models.of("summarizer"),
                helpers=self.models,
            ),
            is_trusted=self.is_trusted if is_here else None,
        )
        if resume is not None and fork:
            forked = await fork_session(self.home, resume, parts=parts)
            await forked.close()
            resume = SessionStore(self.home).directory(forked.id, project=project)
        from perdure.agent.loop import AgentOptions

        options = AgentOptions(ask=self.ask, on_progress=self.on_progress, source=source)
        try:
            return await agent(
                project, model=main, home=self.home, resume=resume, offers_notes=True, options=options, parts=parts
            )
        except SessionBusy as e:
            if resume is None:
                raise
            raise SessionBusy(str(e).replace(resume.name, SessionStore(self.home).short_name(resume))) from None

    async def take_model(self, name: str) -> Model:
        """Ask this model from now on, also for jobs that have none of their own. Raises what connecting it raises."""
        (name,) = await _by_url((name,)) if name.startswith(_URLS) else (name,)
        settings = self.config.settings
        names = (name, *(one for one in settings.main_models if one != name))
        models = await _connected(replace(settings, main_models=names), self.config.models)
        self._left.append(self.models)
        self.config = replace(self.config, settings=replace(settings, main_models=names))
        self.models = models
        return models.main[0]

    async def close(self) -> None:
        """Close all models that were ever asked."""
        for models in (*self._left, self.models):
            await models.close()


@asynccontextmanager
async def agent_factory(config: Config, project: Path, *, trusts: bool) -> AsyncIterator[AgentFactory]:
    """Find the models that the settings name, and ask them for their windows; they are closed at the end."""
    if config.values["instructions"].source == "default":  # a program for people reads their instructions (INS-1)
        config = replace(config, settings=replace(config.settings, instructions=True))
    unboxed = await anyio.to_thread.run_sync(_unboxed, config.settings.sandbox)
    models, told = await _models(config)
    factory = AgentFactory(
        config=config,
        project=project,
        models=models,
        told=(*unboxed, *told),
        is_trusted=True if trusts else None,
    )
    try:
        yield factory
    finally:
        with anyio.CancelScope(shield=True):
            await factory.close()


def _unboxed(setting: str) -> tuple[str, ...]:
    """SEC-10: where commands run without a sandbox though one was wanted, that is said. Raises `BadSetting`."""
    from perdure.adapters.machine.sandbox import choose_sandbox, find_sandbox

    if setting == "off" or choose_sandbox(setting) is not None:
        return ()
    return (f"commands run without a sandbox: {find_sandbox().why} (set sandbox to off to hide this)",)


async def _models(config: Config) -> tuple[JobModels, tuple[str, ...]]:
    """The models of each job; without any named and without a key, one on this machine, else the demonstration."""
    settings, told = config.settings, list[str]()
    if not settings.main_models and not default_names(os.environ):
        from perdure.adapters.providers.connect import local_models

        found = await local_models()
        if found:
            settings = replace(settings, main_models=found[:1])
            others = f"; also there: {', '.join(found[1:4])}" if len(found) > 1 else ""
            told.append(f"no key is set; using {found[0]} on this machine{others} (--model takes another)")
    if any(name.startswith(_URLS) for name in settings.main_models):
        settings = replace(settings, main_models=await _by_url(settings.main_models))
        told.append(f"using {settings.main_models[0]}")
    models = await _connected(settings, config.models)
    if isinstance(models.main[0], DemonstrationModel):
        told.append(
            "a demonstration, without a language model"
            if OFFLINE in settings.main_models
            else "no language model is set up, and no model server answers on this machine: this is a demonstration. "
            "Set ANTHROPIC_API_KEY or OPENAI_API_KEY, or name one: --model ollama:qwen3"
        )
    return models, tuple(told)


async def _connected(settings: Settings, known: tuple[ModelSpec, ...]) -> JobModels:
    """The models that settings name, with what their servers tell of them; the demonstration where there is none."""
    models = connect_models(settings, os.environ, known=known)
    if models.main[0].about.id == OFFLINE:
        models = replace(models, main=(DemonstrationModel(),))
    async with anyio.create_task_group() as tasks:
        for model in dict.fromkeys(models.main):
            tasks.start_soon(discover_window, model)
    return models


async def _by_url(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names, with the first model of a server in the place of its bare URL."""
    from perdure.adapters.providers.connect import models_at

    return tuple([(await models_at(name))[0] if name.startswith(_URLS) else name for name in names])


async def discover_window(model: Model) -> None:
    """Ask a model's server for its window, where neither the model nor the table knows it."""
    discover: Callable[[], Awaitable[object]] | None = getattr(model, "discover", None)
    is_known = model.about.protocol == "anthropic" and model_spec(model.about.id).prefix
    if discover is None or model.about.window_tokens is not None or is_known:
        return
    with anyio.move_on_after(DISCOVER_SECONDS):
        try:
            await discover()
        except ModelError:
            pass  # the table decides then; why the server can't be asked, the first call will tell


def project_of(directory: Path) -> Path | None:
    """The folder that a session works in."""
    project = describe(directory / JOURNAL).project
    return Path(project) if project else None


# --- one prompt, and the end ------------------------------------------------------------------------------------------


async def work(
    agent: AgentLoop,
    factory: AgentFactory,
    prompt: str | Message | None,
    tell: Callable[[ModelGaveUp, Model], None],
    attached: Sequence[Message] = (),
) -> RunResult:
    """What the agent says to a prompt; None goes on with what is there. Raises what `AgentLoop.say` raises.

    When a model gives up, the next of the setting main_models takes over, for the rest of this process; `tell` hears
    why, and which one it is.
    """
    while True:
        try:
            return await agent.say(prompt, attached=attached)
        except ModelGaveUp as e:
            models = factory.models.main
            at = models.index(agent.model) if agent.model in models else len(models)
            if at + 1 >= len(models):
                raise
            agent.model, prompt, attached = models[at + 1], None, ()
            tell(e, agent.model)


async def close_session(agent: AgentLoop, home: Path, reason: EndReason = "other") -> bool:
    """Close a session; one in which nothing was said leaves nothing behind. True when it is kept."""
    session = agent.session
    with anyio.CancelScope(shield=True):
        await agent.close(reason)
        if not session.view.state.messages:
            store = SessionStore(home)
            store.delete(store.locate(session.id))
            return False
    return True
