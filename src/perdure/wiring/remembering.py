"""The memories of a project in any home, and what a session does with them: shows, searches, writes and tidies them.

opened = memories_of(home, project, settings, sink)   # a folder, or a `ports.Home`
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

from perdure.adapters.journal.home import FileHome
from perdure.adapters.machine.repositories import git_root
from perdure.adapters.machine.trust import folder_trust
from perdure.adapters.memory.directory import FileMemories, JoinedMemories, are_any_there, file_memories
from perdure.engine.consolidate import ConsolidationKeeper
from perdure.engine.extraction import ExtractionKeeper
from perdure.engine.guarded_memory import GuardedMemory
from perdure.engine.memory_recall import with_memory
from perdure.engine.remember import MemoryAccess, UserMemoryRequests, memory_access
from perdure.engine.session import LiveSession, Services
from perdure.memory.changes import Origin
from perdure.memory.places import MAIN_RIGHTS, AllowedDirectory, MemoryRights, allowed_directories
from perdure.memory.scope import MAIN_AGENT, Work
from perdure.ports.home import Home, KeptMemories
from perdure.ports.memory import DeferredStore, MemorySearch
from perdure.ports.session import Sink
from perdure.settings import Settings
from perdure.wiring.parts import SessionOptions


def home_at(home: Path | Home) -> Home:
    """A home as the port has it, of a folder as well."""
    return FileHome(home) if isinstance(home, Path) else home


@dataclass(frozen=True, slots=True)
class OpenedMemories:
    """The memories that may be used in a project: how they are read and changed, and how they are searched.

    `own` are the project's alone; None where they aren't open. `is_missing`: these are known not to be there yet.
    `any_there` asks whether any of them are.
    """

    access: MemoryAccess
    search: MemorySearch | None
    own: GuardedMemory | None
    own_search: MemorySearch | None
    is_missing: bool
    any_there: Callable[[], Awaitable[bool]]


def memories_of(
    home: Path | Home,
    project: str | Path,
    settings: Settings,
    sink: Sink,
    rights: MemoryRights = MAIN_RIGHTS,
    *,
    is_remote: bool = False,
) -> OpenedMemories:
    """The memories of a project and of its user in a home, as far as `rights` go (MEM-1, MEM-13, SCL-1).

    A setting `memory_directory` names a folder of this machine, wherever the home is.

    Args:
        home: A folder, or any home.
        project: The folder that is worked in; its memories are those of its repository.
        settings: What holds.
        sink: Is told of every change.
        rights: What may be done with them.
        is_remote: The project is on another machine: its path is a name, and no disk is looked at because of it.
    """
    kept_in = home_at(home)
    roots = kept_in.memory_roots(os.fspath(project), directory=settings.memory_directory, is_remote=is_remote)
    found = allowed_directories(roots, rights)

    def kept(one: AllowedDirectory) -> KeptMemories:
        if one.what == "project" and settings.memory_directory and not isinstance(kept_in, FileHome):
            return KeptMemories(file_memories(Path(one.path), settings), FileMemories(Path(one.path)))
        return kept_in.memories(one.path, durability=settings.durability)

    known = {one.path: kept(one) for one in found}
    guarded = {path: GuardedMemory(one.store, sink, settings.memory_mode) for path, one in known.items()}
    places = {one.what: one.path for one in found if one.what != "agent"}
    own, user = places.get("project"), places.get("user")
    own_search = search = known[own].search if own is not None else None
    if search is not None and user is not None:
        search = JoinedMemories(search, {"user": known[user].search})

    async def any_there() -> bool:
        if isinstance(kept_in, FileHome):
            return await are_any_there(tuple(known))
        return any([await one.store.is_there() for one in known.values()])

    access = memory_access(found, rights, lambda one: guarded[one.path])
    return OpenedMemories(
        access,
        search,
        own=guarded[own] if own is not None else None,
        own_search=own_search,
        is_missing=own is not None and isinstance(kept_in, FileHome) and not os.path.isdir(own),
        any_there=any_there,
    )


def remembering(
    session: LiveSession, given: Services, opened: OpenedMemories, work: Work, *, origin: Origin | None = None
) -> Services:
    """The services with these memories, for whose work it is; `origin`: whose word the task of a sub-agent is."""
    given = replace(given, memories=replace(opened.access, inherited=origin))
    return with_memory(session, given, opened.search, opened.any_there, work)


def with_upkeep(session: LiveSession, given: Services, opened: OpenedMemories) -> Services:
    """The services with keepers of the memories; none where agents may not write them (MEM-6, MEM-11)."""
    settings = session.settings
    if opened.own is None or opened.own_search is None or settings.memory_mode in ("off", "read-only"):
        return given
    keepers = list(given.keepers)
    if settings.memory_extract:
        keepers.append(ExtractionKeeper(session, opened.own, opened.own_search))
    if settings.memory_consolidate and not opened.is_missing:
        keepers.append(ConsolidationKeeper(session, opened.own))
    return replace(given, keepers=tuple(keepers))


def work_in(project: str | None, agent: str = MAIN_AGENT) -> Work:
    """Whose work a session is, and where: the globs of scopes are relative to the work tree around its folder."""
    cwd = Path(os.path.abspath(project or "."))
    root = str(git_root(cwd) or cwd)
    return Work(agent, str(cwd), tuple(dict.fromkeys((root, os.path.realpath(root)))))


def trusts(parts: SessionOptions, home: Path, project: str | Path | None) -> bool:
    """Whether the folder of a project is trusted (SEC-8): as the host says, else as the user said earlier."""
    if parts.is_trusted is not None:
        return parts.is_trusted
    return folder_trust(home, Path(project or "."), listed=parts.settings.trusted_folders).is_trusted


def opened_to(
    rights: MemoryRights, session: LiveSession, parts: SessionOptions, home: Home, project: str | None
) -> OpenedMemories:
    """The memories that a session of a project may use. Those in the project's own folder came with it (SEC-8)."""
    if isinstance(home, FileHome) and not trusts(parts, home.path, project):
        rights = replace(rights, scopes=tuple(scope for scope in rights.scopes if scope == "user"))
    return memories_of(home, project or ".", parts.settings, session, rights)


def remembering_by_name(session: LiveSession, opened: OpenedMemories, project: str) -> Services:
    """The services of a session of a client elsewhere with these memories, of the project that it says it works in."""
    work = Work(MAIN_AGENT, project, (project,))
    given = remembering(session, session.services, opened, work)
    return with_upkeep(session, replace(given, reminders=(*given.reminders, UserMemoryRequests())), opened)


async def deferred(opened: OpenedMemories) -> tuple[OpenedMemories, DeferredStore | None]:
    """The memories, so that what keepers change of the project's waits for a `commit`."""
    if opened.own is None:
        return opened, None
    late = await opened.own.store.deferred()
    return replace(opened, own=replace(opened.own, store=late)), late
