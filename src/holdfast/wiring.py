"""The only place where adapters meet the engine: sessions on the files of this machine, or in memory.

session = await create_session(home, project=".")
session = await open_session(home, "3f2a")          # an id, the beginning of one, or a path
session = await memory_session()                    # nothing survives the process
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from holdfast.adapters.connecting import OFFLINE, connect, default_names
from holdfast.adapters.files import SessionFiles, SessionStore
from holdfast.adapters.files.calibrations import Calibrations
from holdfast.adapters.files.notes import FileNotes
from holdfast.adapters.files.store import PROJECTS
from holdfast.adapters.files.texts import ProjectFiles
from holdfast.adapters.jobs import TaskJobs
from holdfast.adapters.machine import RandomIds, SystemClock
from holdfast.adapters.memory import MemoryBlobs, MemoryJournal
from holdfast.adapters.search import JournalArchive, StoreArchive
from holdfast.adapters.sinks import NullSink
from holdfast.context.models import ModelFacts
from holdfast.context.restore.registry import Registry
from holdfast.context.restore.standard import STANDARD
from holdfast.engine.keepers import Keepers
from holdfast.engine.models import JOBS, Job, Models
from holdfast.engine.notes import SessionNotes, from_notes
from holdfast.engine.session import Session, Window, World
from holdfast.ports import Archive, Clock, Files, Ids, Journal, Model, NotesFile, Sink
from holdfast.settings import Settings
from holdfast.transcript.codec import FORMAT, VERSION
from holdfast.transcript.records import Header


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a session is made with; each has a default that fits a person at a terminal.

    `model` and `window` are what is known for certain; without them the journal's own front decides.
    """

    settings: Settings = field(default_factory=Settings)
    model: ModelFacts | None = None
    window: Window | None = None
    sink: Sink = field(default_factory=NullSink)
    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=RandomIds)
    files: Files | None = None  # None: the project's folder on this disk; in memory, no files at all
    is_remote: bool = False  # whoever speaks works on another machine: no file is read here (SEC-7)
    registry: Registry = STANDARD


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
    home: Path, reference: str | Path, *, read_only: bool = False, whole: bool = False, parts: Parts | None = None
) -> Session:
    """A session by id, unique beginning of one, or path. Raises `SessionBusy` when someone else writes it.

    With `read_only` nothing is locked or repaired, and committing anything raises `JournalError`. `whole` reads back
    behind the last boundary, too.
    """
    parts = parts or Parts()
    files = await SessionStore(home).open(reference, durability=parts.settings.durability, read_only=read_only)
    return await _session(files, parts, whole=whole, read_only=read_only)


async def _session(files: SessionFiles, parts: Parts, *, whole: bool = False, read_only: bool = False) -> Session:
    world = World(
        journal=files.journal,
        blobs=files.blobs,
        clock=parts.clock,
        ids=parts.ids,
        sink=parts.sink,
        files=None if parts.is_remote else parts.files or ProjectFiles(files.journal.header.project or "."),
        archive=_archive(files),
        calibrations=_calibrations(files),
    )
    try:
        opened = await Session.open(
            world, parts.settings, model=parts.model, window=parts.window, whole=whole, is_read_only=read_only
        )
    except BaseException:
        await files.journal.close()
        raise
    opened.registry = parts.registry
    return with_notes(opened, FileNotes(files.directory, _home(files)))


def with_notes(session: Session, file: NotesFile) -> Session:
    """The session with notes in this file: a keeper that writes them, and a way to compact from them (CMP-1, SM-2)."""
    notes = SessionNotes(session, file)
    session.keepers = (*session.keepers, notes)
    session.strategies = (*session.strategies, from_notes(notes))
    return session


def background(session: Session) -> Keepers:
    """The session's keepers as tasks of this process, for `run_turn`; close them before the session."""
    return Keepers(TaskJobs(), session.keepers)


def _home(files: SessionFiles) -> Path | None:
    """The home of the store that a session stands in; None for one that stands outside."""
    folder = files.directory.parent
    return folder.parent.parent if folder.parent.name == PROJECTS else None


def _calibrations(files: SessionFiles) -> Calibrations | None:
    """What sessions of the same home learned; a session that stands outside a store starts from the table."""
    home = _home(files)
    return None if home is None else Calibrations(home)


def _archive(files: SessionFiles) -> Archive:
    """What was said in the session's project; of a session that stands outside a store, only its own."""
    folder = files.directory.parent
    if folder.parent.name == PROJECTS:
        return StoreArchive(folder.parent.parent, folder.name)
    return JournalArchive(files.journal, files.blobs)


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
        sink=parts.sink,
        files=parts.files,
    )
    opened = await Session.open(world, parts.settings, model=parts.model, window=parts.window)
    opened.registry = parts.registry
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
