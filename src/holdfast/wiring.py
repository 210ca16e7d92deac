"""The only place where adapters meet the engine: sessions on the files of this machine, or in memory.

session = await create_session(home, project=".")
session = await open_session(home, "3f2a")          # an id, the beginning of one, or a path
session = await memory_session()                    # nothing survives the process
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import takewhile
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING

from anyio import to_thread

from holdfast.adapters.config import home_of
from holdfast.adapters.connecting import OFFLINE, connect, default_names
from holdfast.adapters.files import SessionFiles, SessionStore, fork
from holdfast.adapters.files.calibrations import Calibrations
from holdfast.adapters.files.instructions import DiskInstructions, places_of
from holdfast.adapters.files.keys import secret_key
from holdfast.adapters.files.memories import file_memories
from holdfast.adapters.files.memory_index import cache_of
from holdfast.adapters.files.notes import FileNotes
from holdfast.adapters.files.recollected import FileMemories
from holdfast.adapters.files.roots import grounds_of
from holdfast.adapters.files.store import AGENTS, COMMANDS, JOURNAL, PROJECTS, open_beside
from holdfast.adapters.files.texts import ProjectFiles
from holdfast.adapters.hooks import hooks_of
from holdfast.adapters.jobs import TaskJobs
from holdfast.adapters.machine import RandomIds, SystemClock
from holdfast.adapters.memory import MemoryBlobs, MemoryJournal
from holdfast.adapters.search import JournalArchive, StoreArchive
from holdfast.adapters.sinks import TeeSink, sink_of
from holdfast.context.models import ModelFacts
from holdfast.context.restore.registry import Registry
from holdfast.context.restore.standard import STANDARD
from holdfast.engine.ahead import AheadOfTime
from holdfast.engine.instructions import with_instructions
from holdfast.engine.keepers import Keepers
from holdfast.engine.models import JOBS, Job, Models
from holdfast.engine.mounts import access
from holdfast.engine.notes import SessionNotes, offer_notes
from holdfast.engine.notes_compaction import from_notes
from holdfast.engine.recollection import with_memory
from holdfast.engine.remembered import OnTheUsersWord
from holdfast.engine.remembering import Memory
from holdfast.engine.session import Session, Window, World
from holdfast.memory.directory import MAIN_RIGHTS, Rights, allowed, project_directory
from holdfast.memory.instructions.places import Places
from holdfast.ports import Archive, Clock, Files, Ids, Journal, MemorySearch, Model, NotesFile, Sink
from holdfast.settings import Settings
from holdfast.transcript.codec import FORMAT, VERSION
from holdfast.transcript.records import Header

if TYPE_CHECKING:
    from holdfast.agent.desk import Machine
    from holdfast.agent.loop import Agent, Options


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a session is made with; each has a default that fits a person at a terminal.

    `model` and `window` are what is known for certain; without them the journal's own front decides.
    """

    settings: Settings = field(default_factory=Settings)
    model: ModelFacts | None = None
    window: Window | None = None
    sink: Sink | None = None  # None: as the setting `events` says
    also: Sink | None = None  # told as well, such as a screen
    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=RandomIds)
    files: Files | None = None  # None: the project's folder on this disk; in memory, no files at all
    is_remote: bool = False  # whoever speaks works on another machine: no file is read here (SEC-7)
    registry: Registry = STANDARD
    models: Models | None = None  # of helpers, such as the one that chooses memories; None: the ranking does
    places: Places | None = None  # of instruction files; None: those of this machine, if the settings want any
    memories: MemorySearch | None = None  # likewise of the project's memories


async def create_session(
    home: Path,
    *,
    project: str | Path,
    session: str | None = None,
    source: str | None = None,
    forked_from: str | None = None,
    parts: Parts | None = None,
) -> Session:
    """A new session of a project, locked for writing until it is closed."""
    parts = parts or Parts()
    files = await SessionStore(home).create(
        session or parts.ids.new("session"),
        project=project,
        created=parts.clock.now(),
        source=source,
        forked_from=forked_from,
        durability=parts.settings.durability,
    )
    return await _session(files, parts)


async def open_session(
    home: Path,
    reference: str | Path,
    *,
    read_only: bool = False,
    whole: bool = False,
    offers_notes: bool = False,
    parts: Parts | None = None,
) -> Session:
    """A session by id, unique beginning of one, or path. Raises `SessionBusy` when someone else writes it.

    With `read_only` nothing is locked or repaired, and committing anything raises `JournalError`. `whole` reads back
    behind the last boundary, too. `offers_notes`: the notes kept of it are said, where they hold what the view doesn't
    (SM-10); a person who goes on with a session wants that, a tool that looks at one doesn't.
    """
    parts = parts or Parts()
    files = await SessionStore(home).open(reference, durability=parts.settings.durability, read_only=read_only)
    session = await _session(files, parts, whole=whole, read_only=read_only)
    return await _offered(session) if offers_notes else session


async def _offered(session: Session) -> Session:
    try:
        await offer_notes(session)
    except BaseException:
        await session.close()
        raise
    return session


async def fork_session(home: Path, reference: str | Path, *, parts: Parts | None = None) -> Session:
    """A new session that goes on from another, which stays as it is; open for writing (SES-1)."""
    parts = parts or Parts()
    identity = parts.ids.new("session")
    directory = await fork(SessionStore(home), reference, identity, created=parts.clock.now())
    return await open_session(home, directory, parts=parts)


async def _session(
    files: SessionFiles, parts: Parts, *, whole: bool = False, read_only: bool = False, notes: bool = True
) -> Session:
    world = World(
        journal=files.journal,
        blobs=files.blobs,
        clock=parts.clock,
        ids=parts.ids,
        sink=_sink(parts, files.id),
        files=None if parts.is_remote else parts.files or ProjectFiles(files.journal.header.project or "."),
        archive=_archive(files),
        calibrations=_calibrations(files),
        secret_key=_secret_key(files),
    )
    try:
        opened = await Session.open(
            world, parts.settings, model=parts.model, window=parts.window, whole=whole, is_read_only=read_only
        )
    except BaseException:
        await files.journal.close()
        raise
    opened.registry = parts.registry
    project = files.journal.header.project
    opened.hooks = hooks_of(parts.settings, cwd=project)
    if parts.settings.instructions and not read_only:
        with_instructions(opened, DiskInstructions(parts.places or _places(files, parts.settings)))
    if parts.settings.memory and not read_only and parts.memories is not None:
        with_memory(opened, parts.memories, parts.models)
    elif parts.settings.memory and not read_only and notes:
        remember(files, parts, opened)
        opened.reminders = (*opened.reminders, OnTheUsersWord())
    return with_notes(opened, FileNotes(files.directory, _home(files))) if notes else opened


def remember(files: SessionFiles, parts: Parts, session: Session, rights: Rights = MAIN_RIGHTS) -> FileMemories | None:
    """Give a session the memories of the project, as far as `rights` go; returns the project's (MEM-1, MEM-13)."""
    if not parts.settings.memory:
        return None
    settings, sink, home = parts.settings, session.world.sink, _home(files) or home_of(os.environ)
    cwd = Path(files.journal.header.project or ".")
    open_to = allowed(grounds_of(home, cwd, directory=settings.memory_directory), rights)
    session.memories = access(
        open_to, rights, lambda one: Memory(file_memories(Path(one.path), settings), sink, settings.memory_mode)
    )
    path = next((Path(one.path) for one in open_to if one.what == "project"), None)
    search = FileMemories(path, cache=cache_of(home, path)) if path is not None else None
    with_memory(session, search, parts.models)
    return search


def project_memories(home: Path, cwd: Path, settings: Settings) -> FileMemories:
    """The memories of a project's folder, wherever its sessions are kept."""
    path = Path(project_directory(grounds_of(home, cwd, directory=settings.memory_directory)))
    return FileMemories(path, cache=cache_of(home, path))


def _places(files: SessionFiles, settings: Settings) -> Places:
    """Where this machine keeps instruction files for the project of a session."""
    cwd = Path(files.journal.header.project or ".")
    return places_of(settings, os.environ, cwd=cwd, home=_home(files) or home_of(os.environ))


def with_notes(session: Session, file: NotesFile) -> Session:
    """The session with notes in this file: a keeper that writes them, and a way to compact from them (CMP-1, SM-2)."""
    notes = SessionNotes(session, file)
    session.keepers = (*session.keepers, notes)
    session.strategies = (*session.strategies, from_notes(notes))
    return session


def background(session: Session) -> Keepers:
    """The session's keepers as tasks of this process, for `run_turn`; close them before the session."""
    return Keepers(TaskJobs(), (*session.keepers, AheadOfTime(session)))


async def agent(
    project: str | Path = ".",
    *,
    model: Model,
    home: Path | None = None,
    resume: str | Path | None = None,
    offers_notes: bool = False,
    options: Options | None = None,
    parts: Parts | None = None,
) -> Agent:
    """A coding agent for a folder: its session under `home`, a new one or (`resume`) an earlier one taken up again.

    Without a home the session lives in this process only. `offers_notes` is as for `open_session`. Close the agent when
    it is done; the model is yours to close. Raises what `open_session` raises.
    """
    from holdfast.agent.loop import Agent, Crew

    parts = parts or Parts()
    cleanup: Callable[[], object] = _nothing
    if home is None:
        folder = Path(mkdtemp(prefix="holdfast-"))
        cleanup = partial(rmtree, folder, ignore_errors=True)
        session, children = await memory_session(parts=parts), _memory_children(parts)
        remembers: Callable[..., object] = _nothing
    else:
        store, settings = SessionStore(home), parts.settings
        if resume is None:
            identity, now = parts.ids.new("session"), parts.clock.now()
            files = await store.create(identity, project=project, created=now, durability=settings.durability)
        else:
            files = await store.open(resume, durability=settings.durability)
        session, folder, children = await _session(files, parts), files.directory, _file_children(files, parts)
        remembers = partial(remember, files, parts)
        if resume is not None and offers_notes:
            await _offered(session)
    where = partial(_journal_of, folder)
    crew = Crew(jobs=TaskJobs, open_session=children, where=where, cleanup=cleanup, remember=remembers)
    machine = await to_thread.run_sync(_machine, project, folder, parts.clock)
    return Agent(session, model, machine, crew, options=options, keepers=background(session))


def _nothing(*_: object) -> None:
    pass


def _journal_of(folder: Path, name: str) -> str:
    return str(folder / AGENTS / name / JOURNAL)


def _machine(project: str | Path, folder: Path, clock: Clock) -> Machine:
    """This machine, as an agent in a project sees it; `folder` is where its session keeps its own."""
    from holdfast.adapters.finding import LocalFinder
    from holdfast.adapters.shell import LocalShell
    from holdfast.adapters.workspace import LocalWorkspace, documents, surroundings
    from holdfast.agent.desk import Machine

    workspace, user = LocalWorkspace(project), Path.home()
    root = Path(workspace.root)
    today = datetime.fromtimestamp(clock.now(), UTC).date().isoformat()
    return Machine(
        workspace=workspace,
        finder=LocalFinder(),
        shell=LocalShell(folder.resolve() / COMMANDS),
        plan_file=str(folder.resolve() / "plan.md"),
        home=str(user.resolve()),
        facts={**surroundings(root), "Today": today},
        skill_files={f: t for p in (user, root) for f, t in documents(p / ".claude" / "skills", "*/SKILL.md").items()},
        agent_files={f: t for p in (user, root) for f, t in documents(p / ".claude" / "agents", "*.md").items()},
    )


def _memory_children(parts: Parts) -> Callable[[str, bool], Awaitable[Session]]:
    journals: dict[str, Journal] = {}

    async def child(name: str, resumes: bool) -> Session:
        session = await memory_session(name, journal=journals.get(name) if resumes else None, parts=parts)
        journals[name] = session.world.journal
        return session

    return child


def _file_children(parent: SessionFiles, parts: Parts) -> Callable[[str, bool], Awaitable[Session]]:
    """Sessions of sub-agents, in the folder of the session that they belong to and with its notes apart (SES-3)."""

    async def child(name: str, resumes: bool) -> Session:
        files = await open_beside(parent, name, parts.clock.now(), is_new=not resumes)
        return await _session(files, parts, notes=False)

    return child


def _home(files: SessionFiles) -> Path | None:
    """The home of the store that a session stands in; None for one that stands outside."""
    folder = files.directory.parent
    return folder.parent.parent if folder.parent.name == PROJECTS else None


def _calibrations(files: SessionFiles) -> Calibrations | None:
    """What sessions of the same home learned; a session that stands outside a store starts from the table."""
    home = _home(files)
    return None if home is None else Calibrations(home)


def _secret_key(files: SessionFiles) -> bytes:
    """The home's key for the ids of secrets; a session that stands outside a store numbers them (SEC-5)."""
    home = _home(files)
    return b"" if home is None else secret_key(home)


def _archive(files: SessionFiles) -> Archive:
    """What was said in the session's project; of a session that stands outside a store, only its own."""
    folder = files.directory.parent
    if folder.parent.name == PROJECTS:
        return StoreArchive(folder.parent.parent, folder.name)
    return JournalArchive(files.journal, files.blobs)


def _sink(parts: Parts, session: str) -> Sink:
    sink = parts.sink or sink_of(parts.settings.events, session=session, now=parts.clock.now)
    return sink if parts.also is None else TeeSink(sink, parts.also)


async def memory_session(
    session: str = "memory", *, journal: Journal | None = None, parts: Parts | None = None
) -> Session:
    """A session that lives in this process only, for replays, tests and tries. `journal` goes on with an older one."""
    parts = parts or Parts()
    header = Header(format=FORMAT, version=VERSION, session=session, created=parts.clock.now())
    journal, blobs = journal or MemoryJournal(header), MemoryBlobs()
    world = World(
        journal=journal,
        blobs=blobs,
        archive=JournalArchive(journal, blobs),
        clock=parts.clock,
        ids=parts.ids,
        sink=_sink(parts, session),
        files=parts.files,
    )
    opened = await Session.open(world, parts.settings, model=parts.model, window=parts.window)
    opened.registry = parts.registry
    opened.hooks = hooks_of(parts.settings)
    if parts.settings.instructions and parts.places is not None:
        with_instructions(opened, DiskInstructions(parts.places))
    return opened


def connect_models(settings: Settings, environ: Mapping[str, str], *, known: tuple[ModelFacts, ...] = ()) -> Models:
    """The models of each job, as the settings name them; keys come from the environment, and stay there.

    A job without a list of its own uses that of `main`, and `main` without one whoever there is a key for, else the
    offline model. `offline` in the list of another job ends it: from there on the job is done without a model.
    """
    made: dict[str, Model] = {}

    def chain(names: tuple[str, ...]) -> tuple[Model, ...]:
        return tuple(made.setdefault(name, connect(name, environ, known=known)) for name in names)

    main = settings.main_models or default_names(environ)
    helpers: dict[Job, tuple[Model, ...]] = {}
    for job in JOBS[1:]:
        names: tuple[str, ...] = getattr(settings, f"{job}_models") or main
        helpers[job] = chain(tuple(takewhile(lambda name: name.strip() != OFFLINE, names)))
    return Models(main=chain(main or (OFFLINE,)), **helpers)


@asynccontextmanager
async def connected(names: Sequence[str], environ: Mapping[str, str]) -> AsyncIterator[tuple[Model, ...]]:
    """The models of these names, up to the first `offline`, closed afterwards."""
    models = tuple(connect(name, environ) for name in takewhile(lambda name: name.strip() != OFFLINE, names))
    try:
        yield models
    finally:
        for model in models:
            await model.close()
