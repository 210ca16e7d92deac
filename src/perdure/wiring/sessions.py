"""Sessions that are kept: on the files of this machine, or in any other home.

session = await create_session(home, project=".")   # a folder, or a `ports.Home`
session = await open_session(home, "3f2a")          # an id, the beginning of one, or of files a path
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from os.path import isdir
from pathlib import Path

import anyio.to_thread

from perdure.adapters.config import home_of
from perdure.adapters.journal.home import FileHome
from perdure.adapters.journal.store import SessionFiles, id_for, open_subagent
from perdure.adapters.machine.workspace import ProjectFiles
from perdure.adapters.memory.instructions import DiskInstructions, places_of
from perdure.engine.background import RetentionKeeper, VerificationKeeper
from perdure.engine.compact import from_notes
from perdure.engine.instructions import with_instructions
from perdure.engine.memory_recall import with_memory
from perdure.engine.notes import SessionNotes, offer_notes
from perdure.engine.remember import UserMemoryRequests
from perdure.engine.reminders import RecallReminder
from perdure.engine.session import LiveSession, Services, SessionPorts
from perdure.errors import BadSetting, JournalError, SessionBusy, SessionNotFound
from perdure.events import JournalRepaired
from perdure.memory.changes import Origin
from perdure.memory.places import MAIN_RIGHTS, MemoryRights, name_for_people
from perdure.memory.scope import MAIN_AGENT
from perdure.ports.home import Home, StoredSession
from perdure.ports.session import Archive, NotesFile
from perdure.settings import Settings
from perdure.transcript.records import Repaired, Titled
from perdure.wiring.parts import LateArchive, SessionOptions, caps_of, sink_for, with_hooks
from perdure.wiring.remembering import home_at, opened_to, remembering, trusts, with_upkeep, work_in

_TITLE_CHARS = 200
_DAY_SECONDS = 86_400.0
_IN_A_STORE = "in which PERDURE_STORE and PERDURE_TENANT say where it is kept"


async def create_session(
    home: Path | Home,
    *,
    project: str | Path,
    session: str | None = None,
    source: str | None = None,
    forked_from: str | None = None,
    parts: SessionOptions | None = None,
) -> LiveSession:
    """A new session of a project, locked for writing until it is closed."""
    parts = parts or SessionOptions()
    kept_in = home_at(home)
    if not parts.is_remote:
        check_retention(kept_in, parts.settings)
    if parts.needs_folder and isinstance(kept_in, FileHome) and not await anyio.to_thread.run_sync(isdir, project):
        raise BadSetting(f"project must be a folder that is there, got {str(project)!r:.80}: create it first")
    stored = await kept_in.create(
        session or parts.ids.new("session"),
        project=project,
        created=parts.clock.now(),
        source=source,
        forked_from=forked_from,
        durability=parts.settings.durability,
    )
    return await session_of(stored, parts, home=kept_in)


async def open_session(
    home: Path | Home,
    reference: str | Path,
    *,
    read_only: bool = False,
    whole: bool = False,
    offers_notes: bool = False,
    parts: SessionOptions | None = None,
) -> LiveSession:
    """A session by id, unique beginning of one, or path. Raises `SessionBusy` when someone else writes it.

    With `read_only` nothing is locked or repaired, and committing anything raises `JournalError`. `whole` reads back
    behind the last boundary, too. `offers_notes`: the notes kept of it are said, where they hold what the view doesn't
    (SM-10); a person who goes on with a session wants that, a tool that looks at one doesn't.
    """
    parts = parts or SessionOptions()
    kept_in, durability = home_at(home), parts.settings.durability
    if not (read_only or parts.is_remote):
        check_retention(kept_in, parts.settings)
    told: tuple[Repaired, ...] = ()
    if isinstance(kept_in, FileHome):
        stored: StoredSession = await kept_in.open(reference, durability=durability, read_only=read_only)
        assert isinstance(stored, SessionFiles)
        if stored.journal.repairs:
            from perdure.wiring.restoring import with_lines_of_source  # knows all kinds of logs, which few need

            stored, told = await with_lines_of_source(kept_in.files, stored, parts.settings)
    else:
        stored = await kept_in.open(os.fspath(reference), durability=durability, read_only=read_only)
    session = await session_of(stored, parts, home=kept_in, whole=whole, read_only=read_only)
    for repair in told:
        session.emit(JournalRepaired(repair.line, repair.what))
    return await offered_session(session) if offers_notes else session


async def offered_session(session: LiveSession) -> LiveSession:
    try:
        await offer_notes(session)
    except BaseException:
        await session.close()
        raise
    return session


async def named_session(
    home: Path | Home, name: str, *, project: str | Path, owner: str = "", parts: SessionOptions | None = None
) -> LiveSession:
    """The session of a conversation that somebody else named, which is begun where there is none (LIB-4).

    A name that can't be an id is kept as the session's title.
    """
    identity, kept_in = id_for(name, owner=owner), home_at(home)

    async def found() -> str | Path | None:
        if isinstance(kept_in, FileHome):  # the project's own, else another's
            return await anyio.to_thread.run_sync(partial(kept_in.files.found, identity, project=project))
        return identity if await kept_in.has(identity) else None

    if (there := await found()) is not None:
        session = await open_session(kept_in, there, parts=parts)
    else:
        try:
            session = await create_session(kept_in, project=project, session=identity, parts=parts)
        except JournalError:
            if (there := await found()) is None:
                raise
            session = await open_session(kept_in, there, parts=parts)  # another process was faster
    if identity != name and session.view.state.title.title is None:
        try:
            await session.record(Titled(title=name_for_people(name, limit=_TITLE_CHARS)))
        except BaseException:
            await session.close()
            raise
    return session


async def fork_session(home: Path | Home, reference: str | Path, *, parts: SessionOptions | None = None) -> LiveSession:
    """A new session that goes on from another, which stays as it is; open for writing (SES-1)."""
    parts = parts or SessionOptions()
    identity = parts.ids.new("session")
    kept_in, now = home_at(home), parts.clock.now()
    if isinstance(kept_in, FileHome):
        await kept_in.fork(reference, identity, created=now)
    else:
        await kept_in.fork(os.fspath(reference), identity, created=now)
    return await open_session(kept_in, identity, parts=parts)


async def session_of(
    stored: StoredSession,
    parts: SessionOptions,
    *,
    home: Home | None = None,
    whole: bool = False,
    read_only: bool = False,
) -> LiveSession:
    """A session of its own, with its notes and memories; one that is only read has no memories.

    `home` is where it is kept; files know theirs, as a path may lead to another one, or out of any. What is done for a
    folder of sessions is done on files alone.
    """
    project, files = stored.header.project, stored if isinstance(stored, SessionFiles) else None
    remembers_in = home if files is None else FileHome(files.home or home_of(os.environ))

    def services(session: LiveSession) -> Services:
        given, opened = _services_of(session, stored, parts), None
        if read_only:
            return with_notes(session, given, stored.notes)
        if parts.settings.memory and parts.memories is not None:
            given = with_memory(session, given, parts.memories, work=work_in(project))
        elif parts.settings.memory and remembers_in is not None and not parts.is_remote:
            opened = opened_to(MAIN_RIGHTS, session, parts, remembers_in, project)
            given = remembering(session, given, opened, work_in(project))
            given = replace(given, reminders=(*given.reminders, UserMemoryRequests()))
        given = _with_care(session, given, stored, home, parts)
        given = with_notes(session, given, stored.notes)
        return given if opened is None else with_upkeep(session, given, opened)

    return await _opened(stored, parts, services, home=home, whole=whole, read_only=read_only)


def _with_care(
    session: LiveSession, given: Services, stored: StoredSession, home: Home | None, parts: SessionOptions
) -> Services:
    """The services with what is done beside: to verify what an opening of files didn't read, to delete what is old."""
    days, most_bytes = kept = parts.settings.retention_days, parts.settings.max_home_bytes
    if isinstance(stored, SessionFiles):
        if stored.journal.has_past:
            given = replace(given, keepers=(*given.keepers, VerificationKeeper(stored.journal, session)))
        if stored.home is not None and kept != (None, None):
            expire = partial(_expire, stored.home, parts, days, most_bytes)
            given = replace(given, keepers=(*given.keepers, RetentionKeeper(expire, session)))
    elif home is not None and days is not None and not parts.is_remote:  # a gateway has `keep_days`
        before = parts.clock.now() - days * _DAY_SECONDS
        given = replace(
            given, keepers=(*given.keepers, RetentionKeeper(partial(_expire_before, home, before), session))
        )
    return given


def check_retention(home: Home, settings: Settings) -> None:
    """Refuse what can't be kept of the settings in a home that is no folder. Raises `BadSetting`."""
    if settings.max_home_bytes is not None and not isinstance(home, FileHome):
        what = f"how large a home is isn't known in {home.name or 'a database'}"
        raise BadSetting(f"max_home_bytes = {settings.max_home_bytes}: {what}: leave it out, and set retention_days")


async def _expire_before(home: Home, before: float) -> tuple[int, int]:
    """Delete the sessions of a home that nobody wrote to since a time, unless they are to stay or can't be read."""
    from perdure.adapters.care.collect import KEEP_TAG

    count = size = 0
    for one in await home.sessions(before=before):
        if KEEP_TAG not in one.tags and not one.problem:
            with suppress(SessionBusy, SessionNotFound):  # somebody is at work on it, or was faster
                await home.delete(one.id)
                count, size = count + 1, size + one.bytes
    return count, size


async def _expire(home: Path, parts: SessionOptions, days: float | None, most_bytes: int | None) -> tuple[int, int]:
    """Delete the sessions that needn't be kept any more: how many, and their bytes."""
    from perdure.adapters.care.collect import HomeCollection  # most sessions are kept for ever

    done = await anyio.to_thread.run_sync(HomeCollection(home, parts.clock.now(), days, most_bytes).expire)
    gone = [one for one in done.gone if one.path.suffix != ".db"]
    return len(gone), sum(one.bytes for one in gone)


async def subagent_session(
    parent: SessionFiles,
    parts: SessionOptions,
    name: str,
    *,
    is_new: bool,
    rights: MemoryRights | None,
    origin: Origin | None,
) -> LiveSession:
    """The session of a sub-agent, in the folder of the one that it belongs to; its notes are kept apart (SES-3).

    `rights` are what it may do with memories, None for nothing, and `origin` whose word its task is (MEM-13).
    """
    files = await open_subagent(parent, name, parts.clock.now(), is_new=is_new)

    def services(session: LiveSession) -> Services:
        given = replace(_services_of(session, files, parts), agent=name, parent=parent.id)
        if not parts.settings.memory or rights is None:
            return given
        home, project = FileHome(parent.home or home_of(os.environ)), parent.journal.header.project
        opened = opened_to(rights, session, parts, home, project)
        return remembering(session, given, opened, work_in(project, rights.agent or MAIN_AGENT), origin=origin)

    return await _opened(files, parts, services, payer=parent)


async def _opened(
    stored: StoredSession,
    parts: SessionOptions,
    services: Callable[[LiveSession], Services],
    *,
    home: Home | None = None,
    payer: StoredSession | None = None,
    whole: bool = False,
    read_only: bool = False,
) -> LiveSession:
    payer, key, project = payer or stored, b"", stored.header.project  # without a key, secrets are numbered (SEC-5)
    if isinstance(stored, SessionFiles):
        home = FileHome(stored.home) if stored.home is not None else None
    if home is not None:
        with anyio.CancelScope(shield=True):  # the journal is open: nothing may come in between
            key = await home.secret_key()  # a new home syncs it (SPD-8)
    ports = SessionPorts(
        journal=stored.journal if parts.journal is None else parts.journal(stored.journal),
        blobs=stored.blobs,
        clock=parts.clock,
        ids=parts.ids,
        sink=sink_for(parts, stored.id),
        files=None if parts.is_remote else parts.files or ProjectFiles(project or "."),
        archive=LateArchive(partial(_archive, stored, home)),
        calibrations=home.calibrations if home is not None else None,  # outside of a store, the table holds
        caps=caps_of(parts, payer.home if isinstance(payer, SessionFiles) else home, payer.header),
        secret_key=key,
    )
    try:
        return await parts.kind.load(
            ports,
            parts.settings,
            model=parts.model,
            window=parts.window,
            services=services,
            whole=whole,
            is_read_only=read_only,
        )
    except BaseException:
        await stored.journal.close()
        raise


def _services_of(session: LiveSession, stored: StoredSession, parts: SessionOptions) -> Services:
    """The host's services, with the hooks of the settings before the host's, and the instruction files."""
    given = with_hooks(parts.services, parts.settings, project=stored.header.project, transcript=stored.place)
    recall = RecallReminder("recall_by_request" if parts.is_remote else "recall_by_command")
    if not isinstance(stored, SessionFiles):
        recall = replace(recall, where=_IN_A_STORE)
    given = replace(given, reminders=(*given.reminders, recall))
    if not parts.settings.instructions or session.is_read_only:
        return given
    places = parts.places
    if places is None:
        files = stored if isinstance(stored, SessionFiles) else None
        cwd, home = Path(stored.header.project or "."), (files and files.home) or home_of(os.environ)
        is_trusted = trusts(parts, home, cwd)
        places = places_of(parts.settings, os.environ, cwd=cwd, home=home, is_trusted=is_trusted)
    return with_instructions(session, given, DiskInstructions(places))


def with_notes(session: LiveSession, given: Services, file: NotesFile) -> Services:
    """The services with notes in this file: a keeper that writes them, and a way to compact from them (CMP-1, SM-2)."""
    notes = SessionNotes(session, file)
    return replace(given, keepers=(*given.keepers, notes), strategies=(*given.strategies, from_notes(notes)))


def _archive(stored: StoredSession, home: Home | None) -> Archive:
    """What was said in the session's project; of a session that stands outside a store, only its own."""
    if home is not None:
        return home.archive(stored.header.project or ".")
    from perdure.adapters.journal.search import JournalArchive

    return JournalArchive(stored.journal, stored.blobs)
