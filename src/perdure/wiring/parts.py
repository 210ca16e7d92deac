"""What any session is made with: listeners, caps, hooks, keepers, and the models of each job; and sessions that live in
this process only.

session = await memory_session()                    # nothing survives the process
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.adapters.journal.in_memory import MemoryBlobs, MemoryJournal
from perdure.adapters.machine.clock import RandomIds, SystemClock
from perdure.adapters.sinks import TeeSink, sinks_of
from perdure.context.cost import spent_by_forks
from perdure.context.models import ModelSpec, model_spec
from perdure.engine.ask import JOBS, Job, JobModels
from perdure.engine.session import LiveSession, ModelWindow, Services, SessionPorts
from perdure.ports.session import (
    Archive,
    Blobs,
    Clock,
    Files,
    FoundSessions,
    Ids,
    Journal,
    LoadedJournal,
    Model,
    SearchResults,
    Sink,
    SpendingCaps,
)
from perdure.settings import Settings
from perdure.transcript.codec import FORMAT, VERSION
from perdure.transcript.records import Header

if TYPE_CHECKING:  # what only some sessions have is imported where it is needed (LIB-6)
    from perdure.engine.background import Keepers
    from perdure.memory.instructions import InstructionPlaces
    from perdure.ports.home import Home, StoredJournal
    from perdure.ports.memory import MemorySearch
    from perdure.ports.session import NotesFile


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """What a session is made with; each has a default that fits a person at a terminal.

    `model` and `window` are what is known for certain; without them the journal's own front decides.
    """

    settings: Settings = field(default_factory=Settings)
    model: ModelSpec | None = None
    window: ModelWindow | None = None
    sink: Sink | None = None  # None: as the setting `events` says
    also: Sink | None = None  # told as well, such as a screen
    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=RandomIds)
    files: Files | None = None  # None: the project's folder on this disk; in memory, no files at all
    is_remote: bool = False  # whoever speaks works on another machine: no file is read here (SEC-7)
    services: Services = field(default_factory=Services)  # the host's own; what the settings want is added
    journal: Callable[[StoredJournal], Journal] | None = None  # what stands before the session's journal
    places: InstructionPlaces | None = (
        None  # of instruction files; None: those of this machine, if the settings want any
    )
    memories: MemorySearch | None = None  # likewise of the project's memories
    needs_folder: bool = False  # a new session on files is about a folder that is there
    kind: type[LiveSession] = LiveSession  # the face's has methods of its own
    is_trusted: bool | None = None  # SEC-8: whether the project's folder is; None: as its user said earlier


def sink_for(parts: SessionOptions, session: str) -> Sink | None:
    """Whom a session tells of its events; None when nobody listens. One that raises is left out from then on."""
    about = {"session": session}
    listeners = (
        [parts.sink] if parts.sink else sinks_of(parts.settings.events, about=lambda: about, now=parts.clock.now)
    )
    if parts.also is not None:
        listeners.append(parts.also)
    return TeeSink(*listeners) if listeners else None


def caps_of(parts: SessionOptions, home: Path | Home | None, header: Header) -> SpendingCaps | None:
    """The caps on what calls for a session cost, if the settings have any; without a home it counts alone."""
    session_usd, day_usd = parts.settings.session_cap_usd, parts.settings.day_cap_usd
    if session_usd is None and day_usd is None:
        return None
    from perdure.adapters.spending import FOLDER, CappedSpending, Caps, SharedSpending

    caps = Caps(session=header.session, created=header.created, session_usd=session_usd, day_usd=day_usd)
    if home is None or isinstance(home, Path):
        return CappedSpending(home, caps, clock=parts.clock, ids=parts.ids)
    return SharedSpending(home.documents(FOLDER), caps, clock=parts.clock, ids=parts.ids)


class LateArchive:
    """`ports.Archive` that is made when something is searched or brought back for the first time."""

    def __init__(self, make: Callable[[], Archive]) -> None:
        self._make: Callable[[], Archive] = make
        self._made: Archive | None = None

    async def search(
        self, query: str, *, limit: int = 10, sessions: Sequence[str] = (), since: float | None = None
    ) -> SearchResults:
        return await self._archive().search(query, limit=limit, sessions=sessions, since=since)

    async def sessions(
        self, prompt: str, *, limit: int = 5, since: float | None = None, without: Collection[str] = ()
    ) -> FoundSessions:
        return await self._archive().sessions(prompt, limit=limit, since=since, without=without)

    async def load(self, session: str) -> tuple[LoadedJournal, Blobs]:
        return await self._archive().load(session)

    def _archive(self) -> Archive:
        if self._made is None:
            self._made = self._make()
        return self._made


def with_hooks(given: Services, settings: Settings, *, project: str | None = None, transcript: str = "") -> Services:
    """The services with the hooks of the settings, if there are any, before the host's (CMP-10)."""
    if settings.hooks:
        from perdure.adapters.machine.hooks import hooks_of

        given = replace(given, hooks=(*hooks_of(settings, project=project, transcript=transcript), *given.hooks))
    if any(hook.is_async for hook in given.hooks):
        from perdure.adapters.machine.jobs import TaskJobs

        given = replace(given, hook_jobs=TaskJobs())
    return given


def _archive_of(journal: Journal, blobs: Blobs) -> Archive:
    from perdure.adapters.journal.search import JournalArchive

    return JournalArchive(journal, blobs)


async def memory_session(
    session: str = "memory",
    *,
    journal: Journal | None = None,
    notes: NotesFile | None = None,
    project: str | None = None,
    home: Path | None = None,
    parts: SessionOptions | None = None,
) -> LiveSession:
    """A session that lives in this process only, for replays, tests and tries.

    `journal` goes on with an older one. Notes are kept where there is a file for them. Hooks run in the
    `project`'s folder. With a `home`, its calls count within the cap for a day that holds there.
    """
    parts = parts or SessionOptions()
    header = Header(format=FORMAT, version=VERSION, session=session, created=parts.clock.now())
    journal, blobs = journal or MemoryJournal(header), MemoryBlobs()
    ports = SessionPorts(
        journal=journal,
        blobs=blobs,
        archive=LateArchive(partial(_archive_of, journal, blobs)),
        clock=parts.clock,
        ids=parts.ids,
        sink=sink_for(parts, session),
        files=parts.files,
        caps=caps_of(parts, home, header),
    )

    def services(session: LiveSession) -> Services:
        given = with_hooks(parts.services, parts.settings, project=project)
        from perdure.engine.reminders import RecallReminder

        given = replace(given, reminders=(*given.reminders, RecallReminder("recall_in_program")))
        if parts.settings.instructions and parts.places is not None:
            from perdure.adapters.memory.instructions import DiskInstructions
            from perdure.engine.instructions import with_instructions

            given = with_instructions(session, given, DiskInstructions(parts.places))
        if notes is not None:
            from perdure.wiring.sessions import with_notes

            given = with_notes(session, given, notes)
        return given

    return await parts.kind.load(ports, parts.settings, model=parts.model, window=parts.window, services=services)


@asynccontextmanager
async def command_session(
    home: Path, *, settings: Settings, known: tuple[ModelSpec, ...] = (), tell: Callable[[str], object]
) -> AsyncIterator[LiveSession]:
    """A session in memory for what one command asks models beside any conversation (OBS-2).

    Its calls count within the caps, and what they cost is written down in the home; `tell` hears why it can't be.
    """
    services = Services(facts_of=lambda model: model_spec(model, known))
    parts = SessionOptions(settings=settings, services=services)
    session = await memory_session(parts.ids.new("command"), home=home, parts=parts)
    try:
        yield session
    finally:
        loaded = await session.ports.journal.load(whole=True)
        spent = spent_by_forks((*(placed.record for placed in loaded.records), *session.owed))
        await session.close()
        if spent:
            from perdure.adapters.spending import write_of_command

            try:
                write_of_command(home, spent)
            except OSError as e:
                tell(f"what this cost can't be written down: {e.filename or home}: {e.strerror or e}")


def background(session: LiveSession) -> Keepers:
    """The session's keepers as tasks of this process, for `run_turn`; close them before the session."""
    from perdure.adapters.machine.jobs import TaskJobs
    from perdure.engine.background import Keepers
    from perdure.engine.compact import PrecomputedSummaryKeeper

    return Keepers(TaskJobs(), (*session.services.keepers, PrecomputedSummaryKeeper(session)))


# --- models by their names --------------------------------------------------------------------------------------------

UNASKED: frozenset[Job] = frozenset({"selector"})  # jobs that are done without a model until one is named


def connect_models(settings: Settings, environ: Mapping[str, str], *, known: tuple[ModelSpec, ...] = ()) -> JobModels:
    """The models of each job, as the settings name them; keys come from the environment, and stay there.

    A job without a list of its own uses that of `main`, and `main` without one whoever there is a key for, else the
    offline model. Only the choice of memories is done without a model then: it is asked at each prompt and waited for,
    which is for a small model that somebody names. `offline` in the list of another job ends it: from there on the job
    is done without a model.
    """
    from perdure.adapters.providers.connect import OFFLINE, connect, default_names

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
    from perdure.adapters.providers.connect import OFFLINE, connect

    models = tuple(connect(name, environ) for name in takewhile(lambda name: name.strip() != OFFLINE, names))
    try:
        yield models
    finally:
        for model in models:
            await model.close()
