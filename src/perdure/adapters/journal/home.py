"""`ports.Home` and `ports.Store` on files: a home is a folder, and those of tenants stand in it (SCL-1, GW-4)."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread

from perdure.adapters.journal import JOURNAL
from perdure.adapters.journal.blobs import FileBlobs
from perdure.adapters.journal.disk import DISK, Disk, discard, make_private, write_new
from perdure.adapters.journal.projects import PROJECTS, folder_of_name, folders_in
from perdure.adapters.journal.reading import open_journal_reader
from perdure.adapters.journal.store import (
    BLOBS,
    GATEWAY,
    TENANTS,
    FileCalibrations,
    ListedSession,
    SessionFiles,
    SessionStore,
    describe,
    fork,
    secret_key,
)
from perdure.errors import JournalError, SessionNotFound
from perdure.ports.home import StoreConnections
from perdure.ports.session import LoadedJournal, PlacedRecord
from perdure.text.cleaning import is_utf8

if TYPE_CHECKING:  # what only some homes are asked for (LIB-6)
    from perdure.adapters.journal.documents import FileDocuments, FileNames
    from perdure.adapters.journal.links import FileLinks
    from perdure.adapters.journal.search import StoreArchive
    from perdure.adapters.work import SqliteWorkQueue
    from perdure.memory.places import MemoryRoots
    from perdure.ports.home import Durability, KeptMemories, OnDeleted, SessionInfo

_NAMES_ONLY = "deleted-responses"
_USAGE = "usage"


class FileHome:
    """`ports.Home` in a folder, which is made when something is kept."""

    def __init__(self, path: Path, *, disk: Disk = DISK) -> None:
        self.path = Path(path)
        self.name = str(path)
        self.files = SessionStore(self.path, disk=disk)
        self._disk = disk
        self._links: FileLinks | None = None

    async def create(
        self,
        session: str,
        *,
        project: str | Path,
        created: float,
        source: str | None = None,
        forked_from: str | None = None,
        durability: Durability = "commit",
    ) -> SessionFiles:
        """A new session of a project, locked for writing."""
        return await self.files.create(
            session,
            project=project,
            created=created,
            source=source,
            forked_from=forked_from,
            durability=durability,
        )

    async def open(
        self, reference: str | Path, *, durability: Durability = "commit", read_only: bool = False
    ) -> SessionFiles:
        """A session by id, unique beginning of one, or path."""
        return await self.files.open(reference, durability=durability, read_only=read_only)

    async def load(self, session: str) -> LoadedJournal:
        """All that can be read of a session, whoever writes it."""
        return await anyio.to_thread.run_sync(self._load, session)

    async def fork(
        self, reference: str | Path, session: str, *, created: float, past: Sequence[PlacedRecord] | None = None
    ) -> None:
        """A new session that goes on from another, or from a part of its records."""
        await fork(self.files, reference, session, created=created, past=past, disk=self._disk)

    async def delete(self, session: str) -> None:
        """Remove the session of exactly this id. `SessionBusy` while somebody writes it."""
        await anyio.to_thread.run_sync(lambda: self.files.delete(self._directory(session)))

    async def has(self, session: str) -> bool:
        """Whether there is a session of exactly this id."""
        return await anyio.to_thread.run_sync(self._found, session) is not None

    async def sessions(
        self,
        project: str | None = None,
        *,
        ids: Collection[str] | None = None,
        since: float | None = None,
        before: float | None = None,
        behind: SessionInfo | None = None,
        limit: int | None = None,
    ) -> Sequence[ListedSession]:
        """What the port says. Of each that is listed, the ends of the journal are read."""

        def listed() -> Sequence[ListedSession]:
            found: list[ListedSession] = []
            for modified, directory in self.by_time(project):
                if len(found) == limit or (since is not None and modified < since):
                    break
                is_early = behind is not None and (modified, directory.name) >= (behind.modified, behind.id)
                is_late = before is not None and modified >= before
                if not (is_early or is_late) and (ids is None or directory.name in ids):
                    found.append(describe(directory / JOURNAL))
            return tuple(found)

        return await anyio.to_thread.run_sync(listed)

    def by_time(self, project: str | None = None) -> list[tuple[float, Path]]:
        """List folders of sessions with the time of the last write, the last one first; those without a journal last.

        No journal is opened, and the call blocks for the disk.
        """
        found = []
        for directory in self.files.directories(project):
            try:
                found.append((os.stat(f"{directory}/{JOURNAL}").st_mtime, directory))
            except OSError:
                found.append((0.0, directory))
        return sorted(found, key=lambda one: (one[0], one[1].name), reverse=True)

    def archive(self, project: str | None = None) -> StoreArchive:
        """What was said in all sessions, or in those of a project."""
        from perdure.adapters.journal.search import StoreArchive

        return StoreArchive(self.path, project, disk=self._disk)

    @property
    def blobs(self) -> FileBlobs:
        """Blobs that are of no session."""
        return FileBlobs(self.path / BLOBS, self._disk)

    @property
    def links(self) -> FileLinks:
        """The index of histories."""
        if self._links is None:
            from perdure.adapters.journal.links import FileLinks

            self._links = FileLinks(self.path)
        return self._links

    @property
    def calibrations(self) -> FileCalibrations:
        """What was learned about models' counting."""
        return FileCalibrations(self.path, disk=self._disk)

    def documents(self, kind: str) -> FileDocuments | FileNames:
        """Those of a kind: in a folder of its name, but for the two that have always stood in the home itself."""
        from perdure.adapters.journal.documents import FileDocuments, FileNames

        if kind == _NAMES_ONLY:
            return FileNames(self.path / kind, self._disk)
        if kind == _USAGE:
            return FileDocuments(self.path, f"{kind}.json", self._disk)
        return FileDocuments(self.path / kind, disk=self._disk)

    def memory_roots(self, project: str, *, directory: str | None = None, is_remote: bool = False) -> MemoryRoots:
        """What the places of a project's memories follow from: its repository, unless it is on another machine."""
        from perdure.adapters.machine.repositories import memory_roots
        from perdure.memory.places import MEMORY, MemoryRoots

        if not is_remote:
            return memory_roots(self.path, Path(project), directory=directory)
        home, root = self.path.absolute(), self.path.absolute() / PROJECTS / folder_of_name(project)
        return MemoryRoots(
            home=home.as_posix(),
            kept=(root / MEMORY).as_posix(),
            root=root.as_posix(),
            user_home=Path.home().as_posix(),
            directory=directory,
        )

    def memories(self, place: str, *, durability: Durability = "commit") -> KeptMemories:
        """The directory at a path. Its index stands in this home."""
        from perdure.adapters.memory.directory import FileMemories, cache_of, file_memories
        from perdure.ports.home import KeptMemories
        from perdure.settings import Settings

        path = Path(place)
        store = file_memories(path, Settings(durability=durability))
        return KeptMemories(store, FileMemories(path, cache=cache_of(self.path, path)))

    async def secret_key(self) -> bytes:
        """The home's key, made on the first use; empty where it can't be had."""
        return await anyio.to_thread.run_sync(partial(secret_key, self.path, disk=self._disk))

    # --- in a thread

    def _found(self, session: str) -> Path | None:
        return self.files.found(session, project=self.path)  # a tenant's sessions are all of its home

    def _directory(self, session: str) -> Path:
        found = self._found(session)
        if found is None:
            raise SessionNotFound(f"no session {session[:80]!r} under {self.path}")
        return found

    def _load(self, session: str) -> LoadedJournal:
        with open_journal_reader(self._disk, self._directory(session) / JOURNAL) as reader:
            scan = reader.scan(reader.body)
        return LoadedJournal(header=scan.header, records=scan.placed, whole=True)


class FileStore:
    """`ports.Store` in a folder: the person's own home, and in `gateway/tenants` one for each tenant."""

    def __init__(self, path: Path, *, disk: Disk = DISK) -> None:
        self.path = Path(path)
        self.name = str(path)
        self._disk = disk
        self._work: SqliteWorkQueue | None = None

    def home(self, tenant: str = "") -> FileHome:
        """That of a tenant, whose name has to be one for a folder, or of the person."""
        if tenant.startswith(".") or not is_utf8(tenant) or any(mark in tenant for mark in "/\\:\0"):
            raise JournalError(f"not the name of a tenant, as it can't be that of a folder: {tenant[:80]!r}")
        return FileHome(self._tenants / tenant if tenant else self.path, disk=self._disk)

    async def tenants(self) -> Collection[str]:
        """The tenants that keep anything."""
        return await anyio.to_thread.run_sync(self._names)

    async def delete_tenant(self, tenant: str, *, on_deleted: OnDeleted | None = None) -> None:
        """Remove all that a tenant keeps. `SessionBusy` while one of its sessions is written."""
        if tenant in await self.tenants():
            await anyio.to_thread.run_sync(self._delete, self._tenants / tenant)

    async def finish_deletions(self) -> None:
        """What is deleted is gone at once."""

    async def probe(self) -> float:
        """How many seconds it took to write and sync a few bytes. Raises `JournalError` where that can't be done."""
        return await anyio.to_thread.run_sync(self._probe)

    @property
    def connections(self) -> StoreConnections:
        """There are none."""
        return StoreConnections()

    def watch(self, took: Callable[[float], None]) -> None:
        """There are no transactions to tell of."""

    @property
    def work(self) -> SqliteWorkQueue:
        """What is to be done for the sessions of all homes."""
        if self._work is None:
            from perdure.adapters.work import SqliteWorkQueue

            self._work = SqliteWorkQueue(self.path / "work.db")
        return self._work

    async def close(self) -> None:
        """Let go of the work; of the homes nothing is held."""
        if self._work is not None:
            await self._work.close()

    @property
    def _tenants(self) -> Path:
        return self.path / GATEWAY / TENANTS

    # --- in a thread

    def _names(self) -> tuple[str, ...]:
        return tuple(sorted(folder.name for folder in folders_in(self._tenants)))

    def _delete(self, folder: Path) -> None:
        store = SessionStore(folder, disk=self._disk)
        for directory in list(store.directories()):
            store.delete(directory)
        try:
            shutil.rmtree(folder)
        except OSError as e:
            raise JournalError(f"{folder}: {e.strerror or e}: the tenant can't be removed") from e

    def _probe(self) -> float:
        began, folder = time.perf_counter(), self.path / GATEWAY
        path = folder / f".probe-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            make_private(folder)
            try:
                write_new(self._disk, path, b"probe\n")
            finally:
                discard(self._disk, path)
        except OSError as e:
            raise JournalError(f"{folder}: {e.strerror or e}: nothing can be kept there") from e
        return time.perf_counter() - began
