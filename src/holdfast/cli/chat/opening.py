"""What a chat starts with: settings, models, and the session that is meant (CLI-1, SES-1)."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from holdfast.adapters.connecting import OFFLINE, default_names
from holdfast.adapters.demonstration import DemonstrationModel
from holdfast.adapters.files import SessionStore
from holdfast.adapters.files.listing import describe
from holdfast.adapters.files.store import JOURNAL
from holdfast.adapters.folders import ground_of
from holdfast.agent.loop import Agent, Options
from holdfast.cli.door import configured
from holdfast.context.models import model_facts
from holdfast.engine.models import Models
from holdfast.engine.session import Services
from holdfast.errors import BadSetting, ModelError, SessionNotFound
from holdfast.ports import Model, Sink
from holdfast.wiring import Parts, agent, connect_models, fork_session

if TYPE_CHECKING:
    from holdfast.adapters.config import Config
    from holdfast.agent.progress import Ask, OnProgress

_URLS = ("http://", "https://")
DISCOVER_SECONDS = 3.0  # for a server to tell its window; then the table decides


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a person asked for on the command line."""

    resume: str | None = None
    last: bool = False
    fork: bool = False
    model: str | None = None
    mode: str | None = None
    trust: bool = False  # SEC-8: of the folder, for this process
    sets: tuple[str, ...] = ()
    max_turns: int | None = None

    def check(self) -> None:
        """Raises `BadSetting` for what can't be meant together."""
        if self.resume is not None and self.last:
            raise BadSetting("--resume: goes without --last; each of them names a session")
        if self.fork and self.resume is None and not self.last:
            raise BadSetting("--fork: which session? Add --resume ID or --last")


@dataclass(slots=True, kw_only=True)
class Place:
    """Where agents of this process are made: the settings that hold, the models, and who hears what they do."""

    config: Config
    project: Path
    models: Models
    is_trusted: bool | None = None  # of `project`; None, and of any other folder: as was said earlier
    told: tuple[str, ...] = ()  # what a person should know before they begin
    ask: Ask | None = None
    on_progress: OnProgress | None = None
    also: Sink | None = None

    @property
    def home(self) -> Path:
        return self.config.home

    async def agent(self, *, resume: Path | None = None, fork: bool = False) -> Agent:
        """An agent on a new session, or on an earlier one. Raises what `wiring.agent` raises."""
        main, project = self.models.main[0], self.project
        if resume is not None:
            project = project_of(resume) or project
            if not await anyio.to_thread.run_sync(project.is_dir):
                raise SessionNotFound(f"{project}: the folder of this session is gone; make it, or start a new session")
        is_here = ground_of(project) == ground_of(self.project)  # --trust was said of one folder
        parts = Parts(
            settings=self.config.settings,
            also=self.also,
            services=Services(
                facts_of=lambda model: model_facts(model or main.about.id, self.config.models),
                summarizer=self.models.of("summarizer"),
                helpers=self.models,
            ),
            is_trusted=self.is_trusted if is_here else None,
        )
        if resume is not None and fork:
            forked = await fork_session(self.home, resume, parts=parts)
            await forked.close()
            resume = SessionStore(self.home).directory(forked.name, project=project)
        options = Options(ask=self.ask, on_progress=self.on_progress)
        return await agent(
            project, model=main, home=self.home, resume=resume, offers_notes=True, options=options, parts=parts
        )

    def located(self, wanted: Wanted) -> Path | None:
        """The directory of the session to go on with; None for a new one."""
        if wanted.resume is not None:
            return located(self.home, wanted.resume)
        if not wanted.last:
            return None
        found = SessionStore(self.home).list(self.project)
        if not found:
            raise SessionNotFound(f"{self.project}: no session here yet; `holdfast chat` starts one")
        return found[0].directory


def located(home: Path, resume: str) -> Path:
    """The directory of the session that a person named. Raises `SessionNotFound`."""
    path = Path(resume)
    return SessionStore(home).locate(path if path.exists() else resume)


async def place_of(wanted: Wanted) -> Place:
    """Read the settings, find the models, ask them for their windows. Close the models when all is done."""
    wanted.check()
    config = configured(_flags(wanted), trusts=wanted.trust)
    if config.values["instructions"].source == "default":  # a program for people reads their instructions (INS-1)
        config = replace(config, settings=replace(config.settings, instructions=True))
    unboxed = await anyio.to_thread.run_sync(_unboxed, config.settings.sandbox)
    models, told = await _models(config)
    told = (*unboxed, *told)
    return Place(config=config, project=Path.cwd(), models=models, told=told, is_trusted=True if wanted.trust else None)


def _unboxed(setting: str) -> tuple[str, ...]:
    """SEC-10: where commands run without a sandbox though one was wanted, that is said. Raises `BadSetting`."""
    from holdfast.adapters.sandbox import chosen, found

    if setting == "off" or chosen(setting) is not None:
        return ()
    return (f"commands run without a sandbox: {found().why} (sandbox = off says no more of it)",)


def settled(wanted: Wanted) -> None:
    """Ask a person at a terminal about the folders that they are about to work in, unless they said already (SEC-8)."""
    from holdfast.cli.door import home
    from holdfast.cli.trusting import settle

    if wanted.trust:
        return
    wanted.check()
    folders = [Path.cwd()]
    if wanted.resume is not None:
        project = project_of(located(home(), wanted.resume))
        folders += [project] if project is not None and project.is_dir() else []
    settle(folders, tuple(_flags(wanted)))


def _flags(wanted: Wanted) -> Iterable[str]:
    yield from wanted.sets
    if wanted.model is not None:
        yield f"main_models={wanted.model}"
    if wanted.mode is not None:
        yield f"permission_mode={wanted.mode}"
    if wanted.max_turns is not None:
        yield f"agent_turns={wanted.max_turns}"


async def _models(config: Config) -> tuple[Models, tuple[str, ...]]:
    """The models of each job; without any named and without a key, one on this machine, else the demonstration."""
    settings, told = config.settings, list[str]()
    if not settings.main_models and not default_names(os.environ):
        from holdfast.adapters.local_servers import local_models

        found = await local_models()
        if found:
            settings = replace(settings, main_models=found[:1])
            others = f"; also there: {', '.join(found[1:4])}" if len(found) > 1 else ""
            told.append(f"no key is set; using {found[0]} on this machine{others} (--model takes another)")
    if any(name.startswith(_URLS) for name in settings.main_models):
        settings = replace(settings, main_models=await _by_url(settings.main_models))
        told.append(f"using {settings.main_models[0]}")
    models = connect_models(settings, os.environ, known=config.models)
    if models.main[0].about.id == OFFLINE:
        models = replace(models, main=(DemonstrationModel(),))
        told.append(
            "no language model is set up, and no model server answers on this machine: this is a demonstration. "
            "Set ANTHROPIC_API_KEY or OPENAI_API_KEY, or name one: --model ollama:qwen3"
        )
    async with anyio.create_task_group() as tasks:
        for model in dict.fromkeys(models.main):
            tasks.start_soon(_discover, model)
    return models, tuple(told)


async def _by_url(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names, with the first model of a server in the place of its bare URL."""
    from holdfast.adapters.local_servers import models_at

    return tuple([(await models_at(name))[0] if name.startswith(_URLS) else name for name in names])


async def _discover(model: Model) -> None:
    discover: Callable[[], Awaitable[object]] | None = getattr(model, "discover", None)
    is_known = model.about.protocol == "anthropic" and model_facts(model.about.id).prefix
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
