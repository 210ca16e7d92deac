"""Where sessions stand at home, and how they are found: `<home>/projects/<slug>/<session-id>/` (ENG-4, ENG-5).

    journal.jsonl    what was said and decided; beside it what was set aside from it
    journal.mark     how far the journal was acknowledged, and its header: what tells that it was cut
    blobs/           what left the view
    lock             who writes
    agents/<id>/     the same of each sub-agent
    commands/        output of commands that ran in the background

Directories are 0700, files 0600. `create` and `open` wait for the disk; the rest blocks, shortly.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread

from holdfast.adapters.files.blobs import FileBlobs
from holdfast.adapters.files.disk import DISK, Disk, discard, make_private
from holdfast.adapters.files.journal import Durability, FileJournal
from holdfast.adapters.files.listing import SessionInfo, describe
from holdfast.adapters.files.lock import LOCK, SessionLock
from holdfast.errors import JournalError, SessionNotFound
from holdfast.memory.directory import MEMORY
from holdfast.memory.names import shown
from holdfast.transcript.codec import FORMAT, VERSION
from holdfast.transcript.records import Header

JOURNAL = "journal.jsonl"
PROJECTS = "projects"
AGENTS = "agents"
COMMANDS = "commands"
GATEWAY = "gateway"
TENANTS = "tenants"
SLUG_CHARS = 200

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_SHOWN = 5
_NOT_SESSIONS = frozenset({MEMORY})  # what else stands in a project's folder (MEM-1)


@dataclass(frozen=True, slots=True)
class SessionFiles:
    """An open session. Closing the journal lets go of the session's lock."""

    id: str
    directory: Path
    journal: FileJournal
    blobs: FileBlobs


def slug_of(project: str | Path) -> str:
    """A folder name for a project: its real path with every other character as a dash; long ones end in a hash."""
    path = unicodedata.normalize("NFC", os.path.realpath(project))
    slug = re.sub(r"[^a-zA-Z0-9]", "-", path)
    if len(slug) <= SLUG_CHARS:
        return slug
    return f"{slug[:SLUG_CHARS]}-{hashlib.sha256(path.encode(errors='surrogateescape')).hexdigest()[:12]}"


class SessionStore:
    """All sessions under one home directory."""

    def __init__(self, home: Path, *, disk: Disk = DISK) -> None:
        self._projects = Path(home) / PROJECTS
        self._disk = disk

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
        real = await anyio.to_thread.run_sync(os.path.realpath, project)
        if not _is_text(real):
            raise JournalError(f"{shown(real)}: the folder's name isn't UTF-8: rename it, or work in another one")
        directory = self.directory(session, project=real)
        header = Header(
            format=FORMAT,
            version=VERSION,
            session=session,
            created=created,
            project=real,
            source=source,
            forked_from=forked_from,
        )
        lock = await anyio.to_thread.run_sync(_make_and_lock, directory)
        try:
            journal = await FileJournal.create(
                directory / JOURNAL, header, durability=durability, disk=self._disk, lock=lock
            )
        except BaseException:
            self._abandon(directory)
            lock.release()
            raise
        return SessionFiles(session, directory, journal, FileBlobs(directory / "blobs", disk=self._disk))

    async def open(
        self,
        reference: str | Path,
        *,
        durability: Durability = "commit",
        read_only: bool = False,
        mend: bool = False,
    ) -> SessionFiles:
        """A session by id, unique beginning of one, or path. `SessionBusy` when someone else writes it.

        To `mend` it is to read its journal wholly, and to bring back what earlier repairs put aside (ENG-9).
        """
        directory = await anyio.to_thread.run_sync(self.locate, reference)
        lock = None if read_only else await anyio.to_thread.run_sync(SessionLock.acquire, directory)
        try:
            journal = await FileJournal.open(
                directory / JOURNAL,
                durability=durability,
                read_only=read_only,
                mend=mend,
                disk=self._disk,
                lock=lock,
            )
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        return SessionFiles(directory.name, directory, journal, FileBlobs(directory / "blobs", disk=self._disk))

    def directory(self, session: str, *, project: str | Path) -> Path:
        """Where a session of a project stands, or would stand."""
        if not _is_session(session):
            raise JournalError(f"not a session id (letters, digits, - and _, up to 128): {session[:150]!r}")
        return self._projects / slug_of(project) / session

    def _abandon(self, directory: Path) -> None:
        """Remove the folder of a session that could not be made (a full disk): it would be listed as a broken one."""
        if not (directory / JOURNAL).exists():
            discard(self._disk, directory / LOCK)
            with contextlib.suppress(OSError):
                directory.rmdir()  # refused where anything else is in it

    def list(self, project: str | Path | None = None) -> tuple[SessionInfo, ...]:
        """All sessions, or those of a project, last written first."""
        found = [describe(directory / JOURNAL) for directory in self.directories(project)]
        return tuple(sorted(found, key=lambda info: (info.modified, info.id), reverse=True))

    def locate(self, reference: str | Path) -> Path:
        """The directory of a session, by its id, a beginning that no other id has, or a path to it or its journal."""
        text = os.fspath(reference)
        if isinstance(reference, Path) or os.sep in text or text.endswith(".jsonl"):
            path = Path(text)
            directory = path.parent if path.name == JOURNAL else path
            if not (directory / JOURNAL).is_file():
                raise SessionNotFound(f"{path}: there is no session here")
            return directory.resolve()
        named = [d for d in self.directories(None) if d.name.startswith(text)] if text else []
        named = named or [d for d in self._through_gateway() if text and d.name.startswith(text)]
        exact = [d for d in named if d.name == text]
        match exact or named:
            case [directory]:
                return directory
            case []:
                raise SessionNotFound(f"no session {text!r} under {self._projects}: `holdfast sessions` lists them")
            case several:
                shown = ", ".join(f"{d.parent.name}/{d.name}" for d in several[:_SHOWN])
                more = f" and {len(several) - _SHOWN} more" if len(several) > _SHOWN else ""
                raise SessionNotFound(
                    f"{text!r} names {len(several)} sessions: {shown}{more}; give more of the id, or a path"
                )

    def _through_gateway(self) -> Iterator[Path]:
        """Sessions that the gateway keeps for its clients, apart from each other and from a person's own (GW-4)."""
        for tenant in _folders(self._projects.parent / GATEWAY / TENANTS):
            yield from SessionStore(tenant).directories()

    def delete(self, reference: str | Path) -> None:
        """Remove a session with its blobs for good. `SessionBusy` while someone writes it."""
        directory = self.locate(reference)
        if self._projects.resolve() not in directory.resolve().parents:
            raise JournalError(f"{directory}: not under {self._projects}; remove it by hand")
        lock = SessionLock.acquire(directory)
        try:
            # The new name is no session id, so a half removed session is never listed or opened.
            doomed = directory.with_name(f".deleted-{secrets.token_hex(8)}")
            self._disk.rename(directory, doomed)
            self._disk.sync_directory(directory.parent)
            shutil.rmtree(doomed)
        except OSError as e:
            raise JournalError(f"{directory}: {e.strerror or e}: the session can't be removed") from e
        finally:
            lock.release()

    def directories(self, project: str | Path | None = None, *, slug: str | None = None) -> Iterator[Path]:
        """The directories of all sessions, or those of a project, by its path or the name of its folder here."""
        slug = slug_of(project) if project is not None else slug
        projects = _folders(self._projects) if slug is None else [self._projects / slug]
        for folder in projects:
            yield from (d for d in _folders(folder) if _is_session(d.name))


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


async def open_beside(
    parent: SessionFiles, name: str, created: float, *, is_new: bool, durability: Durability = "commit"
) -> SessionFiles:
    """The session of a sub-agent, in the folder of the session it belongs to (SES-3). Listings don't show it."""
    if not _SESSION_ID.fullmatch(name):
        raise JournalError(f"not a session id: {name[:150]!r}")
    directory = parent.directory / AGENTS / name
    header = Header(
        format=FORMAT, version=VERSION, session=name, created=created, project=parent.journal.header.project
    )
    lock = await anyio.to_thread.run_sync(_make_and_lock, directory)
    try:
        if is_new:
            journal = await FileJournal.create(directory / JOURNAL, header, durability=durability, lock=lock)
        else:
            journal = await FileJournal.open(directory / JOURNAL, durability=durability, lock=lock)
    except BaseException:
        lock.release()
        raise
    return SessionFiles(name, directory, journal, FileBlobs(directory / "blobs"))


def _is_session(name: str) -> bool:
    return bool(_SESSION_ID.fullmatch(name)) and name not in _NOT_SESSIONS


def _make_and_lock(directory: Path) -> SessionLock:
    try:
        make_private(directory)
    except OSError as e:
        raise JournalError(f"{directory}: {e.strerror or e}: the session can't be made") from e
    return SessionLock.acquire(directory)


def _folders(parent: Path) -> list[Path]:
    """The directories in a directory; none when it can't be read."""
    try:
        with os.scandir(parent) as entries:
            return sorted(Path(e.path) for e in entries if e.is_dir(follow_symlinks=False))
    except OSError:
        return []
