"""A coding agent for a folder: its session, its machine, its sub-agents, its checkpoints."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from anyio import to_thread

from perdure.adapters.config import home_of
from perdure.adapters.journal import JOURNAL
from perdure.adapters.journal.home import FileHome
from perdure.adapters.journal.store import AGENTS, COMMANDS, SessionFiles
from perdure.adapters.machine.clients import CLAUDE
from perdure.adapters.machine.jobs import TaskJobs
from perdure.adapters.machine.system import NO_AGENT, needs_unix
from perdure.adapters.stores import DRAFTS
from perdure.engine.session import LiveSession
from perdure.memory.changes import Origin
from perdure.memory.places import MemoryRights
from perdure.ports.home import Home, StoredSession
from perdure.ports.machine import FileCall, FileDifference, FileRewind
from perdure.ports.session import Journal, Model
from perdure.wiring.parts import SessionOptions, background, memory_session, sink_for
from perdure.wiring.remembering import home_at, trusts
from perdure.wiring.sessions import check_retention, offered_session, session_of, subagent_session

if TYPE_CHECKING:
    from perdure.adapters.checkpoints.checkpoints import SessionCheckpoints
    from perdure.adapters.machine.sandbox import SandboxSupport
    from perdure.agent.loop import AgentLoop, AgentOptions, OpenChild
    from perdure.agent.tool_context import Machine


async def agent(
    project: str | Path = ".",
    *,
    model: Model,
    home: Path | Home | None = None,
    resume: str | Path | None = None,
    offers_notes: bool = False,
    options: AgentOptions | None = None,
    parts: SessionOptions | None = None,
) -> AgentLoop:
    """A coding agent for a folder: its session under `home`, a new one or (`resume`) an earlier one taken up again.

    Without a home the session lives in this process only. Of one that isn't on files, what is about files of this
    machine (checkpoints, outputs of commands, the sessions of sub-agents) lives as long as the agent. `offers_notes` is
    as for `open_session`. Close the agent when it is done; the model is yours to close. Raises what `open_session`
    raises.
    """
    from perdure.adapters.machine.sandbox import choose_sandbox
    from perdure.agent.loop import AgentLoop, AgentOptions, AgentServices
    from perdure.agent.progress import HookMessage, MemoryUpdated
    from perdure.agent.tool_context import CheckpointObserver

    parts = parts or SessionOptions()
    if options is not None and (heard := options.on_progress) is not None:
        told = (*parts.services.on_remembered, lambda line: heard(MemoryUpdated(line)))
        hooks = (*parts.services.on_hook, lambda name, text: heard(HookMessage(name, text)))
        parts = replace(parts, services=replace(parts.services, on_remembered=told, on_hook=hooks))
    needs_unix("the agent", NO_AGENT)
    box = await to_thread.run_sync(choose_sandbox, parts.settings.sandbox)  # before anything is made
    cleanup = ExitStack()
    stored: StoredSession | None = None
    if home is None:
        session = await memory_session(project=str(project), parts=parts)
    else:
        kept_in, durability = home_at(home), parts.settings.durability
        check_retention(kept_in, parts.settings)
        if resume is None:
            identity, now = parts.ids.new("session"), parts.clock.now()
            stored = await kept_in.create(identity, project=project, created=now, durability=durability)
        elif isinstance(kept_in, FileHome):
            stored = await kept_in.open(resume, durability=durability)
        else:
            stored = await kept_in.open(os.fspath(resume), durability=durability)
        session = await session_of(stored, parts, home=kept_in)
        if resume is not None and offers_notes:
            await offered_session(session)
    if isinstance(stored, SessionFiles):
        folder, children = stored.directory, _file_children(stored, parts)
    else:
        folder = Path(mkdtemp(prefix=DRAFTS))
        cleanup.callback(rmtree, folder, ignore_errors=True)
        children = _memory_children(parts, str(project), session.id)
    saved = file_checkpoints(folder, project, parts) if parts.settings.checkpoints else None
    if saved is not None:
        options = options or AgentOptions()
        options = replace(options, observers=(CheckpointObserver(saved), *options.observers))
        cleanup.callback(saved.close)
    services = AgentServices(
        jobs=TaskJobs,
        open_session=children,
        where=lambda name: str(folder / AGENTS / name / JOURNAL),
        files=saved,
        cleanup=cleanup.close,
    )
    local = home if isinstance(home, Path) else None
    is_trusted = trusts(parts, local or home_of(os.environ), project)
    machine = await to_thread.run_sync(_machine, project, folder, parts, local, is_trusted, box)
    return AgentLoop(session, model, machine, services, options=options, keepers=background(session))


def file_checkpoints(
    folder: Path, project: str | Path, parts: SessionOptions, *, is_looking: bool = False
) -> LateCheckpoints:
    """The checkpoints of files of the session in this folder (CKP-1 to CKP-6); close them when done.

    `is_looking`: what a killed rewind left is left alone, for those who don't hold the session's lock.
    """

    def make() -> SessionCheckpoints:
        from perdure.adapters.checkpoints.checkpoints import SessionCheckpoints  # with the store of objects: 50 ms
        from perdure.adapters.checkpoints.log import FOLDER
        from perdure.adapters.sinks import NullSink

        sink = sink_for(parts, folder.name) or NullSink()
        return SessionCheckpoints(
            str(project), folder / FOLDER, parts.settings, parts.clock, sink, is_looking=is_looking
        )

    return LateCheckpoints(make)


class LateCheckpoints:
    """`ports.Checkpoints` and `ports.FileRewinder`: those of a session, opened on first use; they work in threads."""

    def __init__(self, make: Callable[[], SessionCheckpoints]) -> None:
        self._make = make
        self._made: SessionCheckpoints | None = None
        self._lock = threading.Lock()

    def _opened(self) -> SessionCheckpoints:
        with self._lock:
            if self._made is None:
                self._made = self._make()
            return self._made

    async def begin(self, call: FileCall) -> None:
        await to_thread.run_sync(lambda: self._opened().begin(call))

    async def save(self, paths: tuple[str, ...], call: FileCall) -> None:
        await to_thread.run_sync(lambda: self._opened().save(paths, call))

    async def end(self, call: FileCall) -> None:
        await to_thread.run_sync(lambda: self._opened().end(call))

    async def differences(self) -> tuple[FileDifference, ...]:
        return await to_thread.run_sync(lambda: self._opened().differences())

    async def rewind(self, prompts: AbstractSet[str], *, is_forced: bool = False, is_dry: bool = False) -> FileRewind:
        return await to_thread.run_sync(lambda: self._opened().rewind(prompts, is_forced=is_forced, is_dry=is_dry))

    async def undo(self, *, is_forced: bool = False, is_dry: bool = False) -> FileRewind:
        return await to_thread.run_sync(lambda: self._opened().undo(is_forced=is_forced, is_dry=is_dry))

    def close(self) -> None:
        with self._lock:
            if self._made is not None:
                self._made.close()
                self._made = None


def _machine(
    project: str | Path,
    folder: Path,
    parts: SessionOptions,
    home: Path | None,
    is_trusted: bool,
    box: SandboxSupport | None,
) -> Machine:
    """This machine, as an agent in a project sees it; `folder` is where its session keeps its own.

    Skills and kinds of agents of a project give orders, so they wait until its folder is trusted (SEC-8).
    """
    from perdure.adapters.machine.hooks import SCRIPT
    from perdure.adapters.machine.sandbox import Sandbox
    from perdure.adapters.machine.shell import LocalShell
    from perdure.adapters.machine.workspace import LocalFinder, LocalWorkspace, documents, surroundings
    from perdure.agent.tool_context import Machine

    workspace, user = LocalWorkspace(project), Path.home()
    root = Path(workspace.root)
    today = datetime.fromtimestamp(parts.clock.now(), UTC).date().isoformat()

    commands, settings = folder.resolve() / COMMANDS, parts.settings
    sandbox = None
    if box is not None:
        own = tuple({str(one.resolve()) for one in (home or folder, home_of(os.environ))})
        network, shown = settings.sandbox_network, (str(commands),)
        sandbox = Sandbox(box, root=workspace.root, user=str(user.resolve()), own=own, network=network, shown=shown)

    def files(name: str, pattern: str) -> Mapping[str, str]:
        theirs = documents(root / CLAUDE / name, pattern, within=root) if is_trusted else {}
        return {**documents(user / CLAUDE / name, pattern), **theirs}

    script = folder.resolve() / SCRIPT
    script.unlink(missing_ok=True)  # written by hooks of an earlier opening, which may not be allowed any more
    return Machine(
        workspace=workspace,
        finder=LocalFinder(root=workspace.root),
        shell=LocalShell(commands, workspace.root, sandbox, script if settings.hooks else None),
        plan_file=str(folder.resolve() / "plan.md"),
        home=str(user.resolve()),
        surroundings={**surroundings(root), "Today": today},
        skill_files=files("skills", "*/SKILL.md"),
        agent_files=files("agents", "*.md"),
    )


def _memory_children(parts: SessionOptions, project: str, parent: str) -> OpenChild:
    journals: dict[str, Journal] = {}

    async def child(name: str, resumes: bool, rights: MemoryRights | None, origin: Origin | None) -> LiveSession:
        own = replace(parts, services=replace(parts.services, agent=name, parent=parent))
        journal = journals.get(name) if resumes else None
        session = await memory_session(name, journal=journal, project=project, parts=own)
        journals[name] = session.ports.journal
        return session

    return child


def _file_children(parent: SessionFiles, parts: SessionOptions) -> OpenChild:
    async def child(name: str, resumes: bool, rights: MemoryRights | None, origin: Origin | None) -> LiveSession:
        return await subagent_session(parent, parts, name, is_new=not resumes, rights=rights, origin=origin)

    return child
