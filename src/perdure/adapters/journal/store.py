"""A home: its sessions, and what it keeps for all of them, its key and what was learned about models (ENG-4, SEC-5,
TOK-4).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shlex
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, groupby
from pathlib import Path

import anyio.to_thread
import msgspec

from perdure.adapters.journal import JOURNAL
from perdure.adapters.journal.append_file import LOCK, SessionLock
from perdure.adapters.journal.blobs import FileBlobs
from perdure.adapters.journal.disk import DISK, Disk, discard, make_private, write_new
from perdure.adapters.journal.journal import FileJournal
from perdure.adapters.journal.projects import PROJECTS, ProjectFolders, folders_in
from perdure.adapters.journal.reading import header_at, open_journal_reader
from perdure.adapters.machine.system import RENAMES_OPEN, open_file, read_at, read_file
from perdure.adapters.memory.notes import FOLDER as NOTES
from perdure.adapters.memory.notes import FileNotes
from perdure.errors import (
    BadSetting,
    JournalError,
    MalformedBlock,
    PerdureError,
    SessionNotFound,
)
from perdure.memory.places import MEMORY, name_for_people
from perdure.ports.home import Durability, SessionInfo, StoredSession
from perdure.ports.session import PlacedRecord as Placed
from perdure.ports.session import Receipt
from perdure.text.cleaning import is_utf8
from perdure.transcript.codec import FORMAT, VERSION, decode_line
from perdure.transcript.messages import Message, spoken
from perdure.transcript.records import Compacted, Header, Record, Repaired, Titled

EDGE_BYTES = 64 * 1024
PROMPT_CHARS = 200

_TITLED = b'{"type":"titled"'
_USER = b'"origin":"user"'
_TOOL = b'"origin":"tool"'
_TEXT = b'"type":"text"'
_NESTING = (b'{"type":"compacted"', b'{"type":"collapsed"')  # records that hold messages of their own
_MESSAGE = b'{"type":"message","id":'


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSession(SessionInfo):
    """A session of a listing, with its folder."""

    directory: Path


@dataclass(slots=True)
class ListingFacts:
    """What was found so far, going from the newest line to the oldest: what is found first holds."""

    title: str | None = None
    tags: tuple[str, ...] | None = None
    branch: str | None = None
    last_prompt: str | None = None
    client: str | None = None
    folder: str | None = None
    counted: int = 0
    is_counted: bool = False
    damaged: int = 0

    @property
    def is_complete(self) -> bool:
        return self.is_counted and None not in (self.title, self.tags, self.branch, self.last_prompt)

    def read_lines(self, lines: list[bytes], version: int) -> None:
        """The lines, newest first, but for what follows the last line end: it is torn, or nothing."""
        for line in reversed(lines[:-1]):
            if self.is_complete:
                return
            self._read_line(line, version)

    def _read_line(self, line: bytes, version: int) -> None:
        wants_titled = _TITLED in line
        may_be_said = _USER in line or (_TOOL in line and _TEXT in line)
        wants_prompt = self.last_prompt is None and may_be_said
        wants_count = not self.is_counted and any(tag in line for tag in _NESTING)
        if wants_titled or wants_prompt or wants_count:
            try:
                records = decode_line(line, version).records
            except PerdureError:
                self.damaged += 1
                return
            for record in reversed(records):
                self.read_record(record)
        elif not self.is_counted:
            self.counted += line.count(_MESSAGE)

    def read_record(self, record: Record) -> None:
        """A record, which is older than what was read before."""
        if isinstance(record, Message):
            self.counted += not self.is_counted
            if self.last_prompt is None:
                self.last_prompt = _text(record)
        elif isinstance(record, Titled):
            self.title = record.title if self.title is None else self.title
            self.tags = record.tags if self.tags is None else self.tags
            self.branch = record.branch if self.branch is None else self.branch
            self.client = record.client if self.client is None else self.client
            self.folder = record.folder if self.folder is None else self.folder
            self.last_prompt = record.last_prompt if self.last_prompt is None else self.last_prompt
            if record.messages is not None and not self.is_counted:
                self.counted, self.is_counted = self.counted + record.messages, True


def _text(message: Message) -> str | None:
    """The start of what a person wrote."""
    try:
        words = spoken(message)
    except MalformedBlock:
        return None
    return " ".join(words[: PROMPT_CHARS * 4].split())[:PROMPT_CHARS] or None


def describe(journal: Path) -> ListedSession:
    """What a journal says of itself for a listing; its problem when it says nothing."""
    directory = journal.parent
    modified, size, header = 0.0, 0, None
    found, problem = ListingFacts(), None
    try:
        fd = open_file(journal, os.O_RDONLY)
        try:
            about = os.fstat(fd)
            modified, size = about.st_mtime, about.st_size
            header = header_at(fd)
            _search_lines(fd, size, header.version, found)
        finally:
            os.close(fd)
    except OSError as e:
        problem = f"{journal.name}: {e.strerror or e}"
    except PerdureError as e:
        problem = f"{journal.name}: {e}"
    if problem is None and found.damaged:
        problem = f"{journal.name}: {found.damaged} damaged lines near its ends"
    return ListedSession(
        id=directory.name,
        place=str(journal),
        directory=directory,
        project=(header and header.project) or directory.parent.name,
        modified=modified,
        bytes=size,
        created=header.created if header else None,
        title=found.title,
        last_prompt=found.last_prompt,
        messages=found.counted if found.is_counted else None,
        tags=found.tags or (),
        branch=found.branch,
        client=found.client,
        folder=found.folder,
        problem=problem,
    )


def _search_lines(fd: int, size: int, version: int, found: ListingFacts) -> None:
    """Go through the complete lines, newest first, until one says how many messages there were and what they are about.

    A session that was closed or compacted says so near its end; one that is being written, or whose writer was killed,
    is read as far back as its last compaction. What is missing then may stand in its first lines.
    """
    end, width = size, EDGE_BYTES
    while not found.is_counted:
        start = max(0, end - width)
        cut, *lines = read_at(fd, end - start, start).split(b"\n")
        found.read_lines(lines, version)
        end = start + len(cut) + 1 if lines else end
        width *= 2
        if start == 0:
            found.is_counted = True
    if start > 0 and not found.is_complete:
        _, *head = read_at(fd, min(EDGE_BYTES, end), 0).split(b"\n")
        found.read_lines(head, version)


BLOBS = "blobs"
AGENTS = "agents"
COMMANDS = "commands"
GATEWAY = "gateway"
TENANTS = "tenants"

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_PLAIN_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,127}")  # upper case isn't told apart everywhere
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_DIGEST_CHARS = 20
_WITH_DIGEST = re.compile(rf"(?:.*-)?[0-9a-f]{{{_DIGEST_CHARS}}}")
_SHOWN = 5
_SHORT_CHARS = 6
ID_PREFIX = "session-"  # how the ids that we make begin
_NOT_SESSIONS = frozenset({MEMORY})  # what else stands in a project's folder (MEM-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFiles(StoredSession):
    """An open session, with its folder. Closing the journal lets go of the session's lock."""

    journal: FileJournal
    blobs: FileBlobs
    directory: Path

    @classmethod
    def of(cls, session: str, directory: Path, journal: FileJournal, *, disk: Disk = DISK) -> SessionFiles:
        """The session whose journal was opened in this folder."""
        return cls(
            id=session,
            header=journal.header,
            journal=journal,
            blobs=FileBlobs(directory / BLOBS, disk=disk),
            notes=FileNotes(directory, home_around(directory)),
            place=str(directory / JOURNAL),
            directory=directory,
        )

    @property
    def home(self) -> Path | None:
        """The home of the store that the session stands in; None for one that stands outside of any."""
        return home_around(self.directory)


def home_around(session: Path) -> Path | None:
    """The home that a session's folder stands in; None for one outside of any."""
    folder = session.parent
    return folder.parent.parent if folder.parent.name == PROJECTS else None


class SessionStore:
    """All sessions under one home directory."""

    def __init__(self, home: Path, *, disk: Disk = DISK) -> None:
        self._home = Path(home)
        self._projects = self._home / PROJECTS
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
        is_draft: bool = False,
    ) -> SessionFiles:
        """A new session of a project, locked for writing. A draft is none until `publish` makes it one."""
        make = partial(new_header, session, project=project, created=created, source=source, forked_from=forked_from)
        header = await anyio.to_thread.run_sync(make)
        directory = self.directory(session, project=header.project or "")
        if is_draft:
            directory = directory.with_name(f"{IMPORT_DRAFT}{secrets.token_hex(8)}")
        lock = await anyio.to_thread.run_sync(_make_and_lock, directory)
        try:
            journal = await FileJournal.create(
                directory / JOURNAL, header, durability=durability, disk=self._disk, lock=lock
            )
        except BaseException:
            if is_draft:  # also one that was made, of which nobody is told any more
                shutil.rmtree(directory, ignore_errors=True)
            else:
                self._abandon(directory)
            lock.release()
            raise
        return SessionFiles.of(session, directory, journal, disk=self._disk)

    async def publish(self, draft: SessionFiles) -> bool:
        """Make a session of a draft that is closed: whole and durable from this moment on, and nothing before.

        False where a session of that id was made in the meantime; the draft is still there then.
        """
        target = draft.directory.with_name(draft.id)
        try:
            await anyio.to_thread.run_sync(move_into_place, draft.directory, target, self._disk)
        except (OSError, JournalError) as e:
            if target.exists():
                return False
            raise JournalError(f"{target}: {getattr(e, 'strerror', None) or e}: the session can't be made") from e
        return True

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
        return SessionFiles.of(directory.name, directory, journal, disk=self._disk)

    def directory(self, session: str, *, project: str | Path) -> Path:
        """Where a session of a project stands, or would stand."""
        return ProjectFolders(self._home, project).session(checked_id(session))

    def _abandon(self, directory: Path) -> None:
        """Remove the folder of a session that could not be made (a full disk): it would be listed as a broken one."""
        if not (directory / JOURNAL).exists():
            discard(self._disk, directory / LOCK)
            with contextlib.suppress(OSError):
                directory.rmdir()  # refused where anything else is in it

    def list(self, project: str | Path | None = None) -> tuple[ListedSession, ...]:
        """All sessions, or those of a project, last written first."""
        found = [describe(directory / JOURNAL) for directory in self.directories(project)]
        return tuple(sorted(found, key=lambda info: (info.modified, info.id), reverse=True))

    def newest(self, project: str | Path | None = None) -> tuple[Path, ...]:
        """The directories of all sessions, or those of a project, last written first."""
        found = []
        for directory in self.directories(project):
            with contextlib.suppress(OSError):
                found.append(((directory / JOURNAL).stat().st_mtime, directory.name, directory))
        return tuple(directory for _, _, directory in sorted(found, reverse=True))

    def short_name(self, directory: Path) -> str:
        """A part of a session's id that is enough to name it here."""
        names = {one.name for one in self.newest()} | {directory.name}
        return short_ids(names, only=(directory.name,))[directory.name]

    def locate(self, reference: str | Path) -> Path:
        """The directory of a session, by its id, a part of it that no other id has, or a path to it or its journal."""
        text = os.fspath(reference)
        if isinstance(reference, Path) or os.sep in text or text.endswith(".jsonl"):
            path = Path(text)
            directory = path.parent if path.name == JOURNAL else path
            if not (directory / JOURNAL).exists():  # what it is, opening it says
                raise SessionNotFound(f"{path}: there is no session here")
            return directory.resolve()
        return self.named(text)

    def found(self, session: str, *, project: str | Path) -> Path | None:
        """The directory of the session of exactly this id: of a project, else of any other; None where there is none.

        Raises:
            SessionNotFound: Several other projects have one.
        """
        own = self.directory(session, project=project)
        if (own / JOURNAL).exists():
            return own
        others = [one for folder in folders_in(self._projects) if ((one := folder / session) / JOURNAL).exists()]
        return self._the_only(session, others) if others else None

    def named(self, text: str, *, project: str | Path | None = None) -> Path:
        """The directory of the session that an id or a part of one names: of any project, or of the one given.

        An id that begins with the part is meant before one that only holds it (CLI-6).
        """
        found = _matching(text, self.directories(project))
        if not found and project is None:
            found = _matching(text, chain.from_iterable(store.directories() for store in self.of_clients().values()))
        match found:
            case [directory]:
                return directory
            case [] if project is not None:  # told to a model
                raise SessionNotFound(f"no session {text[:80]!r} in this project: search names them")
            case []:
                raise SessionNotFound(
                    f"no session {text[:80]!r} under {self._projects}: `{self._listing()}` lists them"
                )
            case several:
                return self._the_only(text, several)

    def _the_only(self, text: str, found: Sequence[Path]) -> Path:
        if len(found) == 1:
            return found[0]
        shown = ", ".join(f"{d.parent.name}/{d.name}" for d in found[:_SHOWN])
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise SessionNotFound(f"{text!r} names {len(found)} sessions: {shown}{more}; give more of the id, or a path")

    def _listing(self) -> str:
        """The command that lists what is kept here, which for a program's own home isn't where the command looks."""
        from perdure.adapters.config import home_of  # which finds projects by what is here

        home = self._home.absolute()
        with contextlib.suppress(BadSetting):  # there is no other than the one that was given
            if home_of(os.environ) == home:
                return "perdure sessions"
        return f"PERDURE_HOME={shlex.quote(str(home))} perdure sessions"

    def of_clients(self) -> dict[str, SessionStore]:
        """What the gateway keeps for its clients, apart from each other and from a person's own, by tenant (GW-4)."""
        tenants = folders_in(self._home / GATEWAY / TENANTS)
        return {tenant.name: SessionStore(tenant) for tenant in tenants}

    def delete(self, reference: str | Path, *, lock: SessionLock | None = None) -> None:
        """Remove a session with its blobs for good. `SessionBusy` while someone writes it.

        Args:
            reference: as for `locate`.
            lock: the session's, of a caller that holds it already and lets go of it afterwards.
        """
        directory = self.locate(reference)
        if self._projects.resolve() not in directory.resolve().parents:
            raise JournalError(f"{directory}: not under {self._projects}; remove it by hand")
        held = SessionLock.acquire(directory) if lock is None else lock
        try:
            # The new name is no session id, so a half removed session is never listed or opened.
            doomed = directory.with_name(f".deleted-{secrets.token_hex(8)}")
            if not RENAMES_OPEN:
                held.drop()  # whoever opens it now keeps it from being renamed
            self._disk.rename(directory, doomed)
            self._disk.sync_directory(directory.parent)
            with contextlib.suppress(FileNotFoundError):  # `perdure gc` may remove it as well
                shutil.rmtree(doomed)
        except OSError as e:
            raise JournalError(f"{directory}: {e.strerror or e}: the session can't be removed") from e
        finally:
            if lock is None:
                held.release()

    def directories(self, project: str | Path | None = None) -> Iterator[Path]:
        """The directories of all sessions, or those of a project."""
        if project is None:
            found: Iterator[Path] = chain.from_iterable(map(folders_in, folders_in(self._projects)))
        else:
            found = ProjectFolders(self._home, project).directories()
        return (one for one in found if is_session_id(one.name))


def id_for(name: str, *, owner: str = "") -> str:
    """The id of the session of a conversation that somebody else named (LIB-4).

    A name of lower-case letters, digits, `-` and `_` is the id itself. Any other gets a digest, which tells it from
    those that look alike, such as `a/b` from `a-b`, and from the same name of another `owner`; so does one that looks
    as if it had a digest. Two names never have the same id.
    """
    is_plain = _PLAIN_NAME.fullmatch(name) and name not in _NOT_SESSIONS and not _WITH_DIGEST.fullmatch(name)
    if is_plain and not owner:
        return name
    digest = hashlib.sha256(json.dumps([owner, name]).encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{_NOT_IN_NAMES.sub('-', name.lower())[:40].strip('-')}-{digest}".strip("-")


def homes_of(home: Path) -> list[Path]:
    """A home, and those that the gateway keeps in it for its tenants."""
    return [home, *folders_in(home / GATEWAY / TENANTS)]


def session_journals(directory: Path) -> list[Path]:
    """The journal of a session, and those of its sub-agents."""
    return [directory / JOURNAL, *sorted((directory / AGENTS).glob(f"*/{JOURNAL}"))]


def every_journal(home: Path) -> Iterator[Path]:
    """Every journal at a home: the sessions, those of their sub-agents, and those that the gateway keeps."""
    for one in homes_of(home):
        for directory in SessionStore(one).newest():
            yield from session_journals(directory)


def _matching(text: str, directories: Iterable[Path]) -> list[Path]:
    """The sessions that a part of an id names: the one that is called so, else those it begins, else those it is in."""
    held = [directory for directory in directories if text and text in directory.name]
    exact = [directory for directory in held if directory.name == text]
    begun = [
        directory
        for directory in held
        if directory.name.removeprefix(ID_PREFIX).startswith(text.removeprefix(ID_PREFIX))
    ]
    return exact or begun or held


def short_ids(ids: Iterable[str], *, only: Iterable[str] | None = None) -> dict[str, str]:
    """For each id, or `only` some, a part of it that no other one holds, short enough to be typed (CLI-6).

    Our own ids begin with the time, which those of a day share: their end is taken. Of others it is the beginning.
    """
    names = Counter(ids)
    found = {name: name for name in (names if only is None else only)}
    waiting = list(found)
    for length in count(_SHORT_CHARS):
        parts = {name: part for name in waiting if (part := _short_part(name, length)) is not None}
        if not parts:
            return found
        wanted, held = set(parts.values()), Counter[str]()
        for name, times in names.items():
            for part in wanted.intersection(name[at : at + length] for at in range(len(name) - length + 1)):
                held[part] += times
        found |= {name: part for name, part in parts.items() if held[part] == 1}
        waiting = [name for name, part in parts.items() if held[part] > 1]
    return found


def _short_part(name: str, length: int) -> str | None:
    """So many characters of an id that may stand for it; None where that would be all of it."""
    rest = name.removeprefix(ID_PREFIX)
    if length >= len(rest):
        return None
    return rest[-length:] if rest != name else rest[:length]


async def open_subagent(
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
    return SessionFiles.of(name, directory, journal)


def new_header(
    session: str, *, project: str | Path, created: float, source: str | None = None, forked_from: str | None = None
) -> Header:
    """The header of a new session. Asks the file system where the project's folder really is.

    Raises:
        JournalError: It can't be the id of a session, or the folder's name can't be written down.
    """
    return Header(
        format=FORMAT,
        version=VERSION,
        session=checked_id(session),
        created=created,
        project=real_project(project),
        source=source,
        forked_from=forked_from,
    )


def real_project(project: str | Path) -> str:
    """A project's folder by its one real path. `JournalError` where that isn't UTF-8."""
    real = os.path.realpath(project)
    if not is_utf8(real):
        raise JournalError(f"{name_for_people(real)}: the folder's name isn't UTF-8: rename it, or work in another one")
    return real


def checked_id(session: str) -> str:
    """The id of a session, for a name that comes from elsewhere: it could be a path, which leads anywhere.

    Raises:
        JournalError: It is none.
    """
    if not is_session_id(session):
        raise JournalError(f"not a session id (letters, digits, - and _, up to 128): {session[:150]!r}")
    return session


def is_session_id(name: str) -> bool:
    """Whether a folder of this name can be a session."""
    return bool(_SESSION_ID.fullmatch(name)) and name not in _NOT_SESSIONS


def _make_and_lock(directory: Path) -> SessionLock:
    try:
        make_private(directory)
    except OSError as e:
        raise JournalError(f"{directory}: {e.strerror or e}: the session can't be made") from e
    return SessionLock.acquire(directory)


DRAFT = ".forking-"  # no session id, so a half made fork is never listed or opened
IMPORT_DRAFT = ".importing-"  # nor is half an import
COPY_DRAFT = ".copying-"  # nor half a session of another store
UNFINISHED = (
    ("a deleted session", ".deleted-*"),
    ("a fork that was never finished", f"{DRAFT}*"),
    ("an import that was never finished", f"{IMPORT_DRAFT}*"),
    ("a copy that was never finished", f"{COPY_DRAFT}*"),
)  # what stands beside sessions when a process was killed: what it is, and how it is called


async def fork(
    store: SessionStore,
    reference: str | Path,
    session: str,
    *,
    created: float,
    past: Sequence[Placed] | None = None,
    disk: Disk = DISK,
) -> Path:
    """A new session that goes on from another, which is only read; its directory.

    It has an id of its own and names the one it came from; messages keep theirs, so what recall, pins and cursors name
    holds in both. It appears whole or not at all: whatever fails, nothing is left, and what a killed process leaves is
    no session, and `perdure doctor` names it.

    Args:
        store: Where the session is looked for, and where the new one is made.
        reference: The session, as `SessionStore.locate` takes one.
        session: The id of the new one.
        created: When that is.
        past: What of its records to go on from; without it everything that can be read, and the notes as well.
        disk: Where the new journal is written.

    Raises:
        SessionNotFound: There is no such session.
        JournalError: The fork can't be written, or the id is taken.
    """
    source = await anyio.to_thread.run_sync(store.locate, reference)
    header, found = await anyio.to_thread.run_sync(_read_source, source / JOURNAL, disk, past)
    header = msgspec.structs.replace(
        header, session=session, created=created, forked_from=header.session, version=VERSION
    )
    target = store.directory(session, project=header.project or ".")
    draft = target.with_name(f"{DRAFT}{session}")
    try:
        await anyio.to_thread.run_sync(make_private, draft)
        journal = await FileJournal.create(draft / JOURNAL, header, durability="process", disk=disk)
        try:
            await copy_records(found, journal.append)
        finally:
            await journal.close()
        await anyio.to_thread.run_sync(partial(_copy_folders, source, draft, has_notes=past is None))
        await anyio.to_thread.run_sync(move_into_place, draft, target, disk)
    except BaseException as e:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(partial(shutil.rmtree, draft, ignore_errors=True))
        if isinstance(e, OSError):
            raise JournalError(f"{target}: {e.strerror or e}: the fork can't be made") from e
        raise
    return target


def _read_source(journal: Path, disk: Disk, past: Sequence[Placed] | None) -> tuple[Header, Sequence[Placed]]:
    """The header, and the records to go on from. Damage is passed over, as opening the session would."""
    with open_journal_reader(disk, journal) as reader:
        return reader.header, reader.scan(reader.body).placed if past is None else past


async def copy_records(placed: Sequence[Placed], append: Callable[[tuple[Record, ...]], Awaitable[Receipt]]) -> None:
    """Every transaction as one line again. Boundaries point to offsets, which are others in the new journal."""
    moved: dict[int, int] = {}
    for offset, line in groupby(placed, key=lambda one: one.offset):
        records = tuple(_with_own_offsets(one.record, moved) for one in line if not isinstance(one.record, Repaired))
        if records:
            moved[offset] = (await append(records)).offset


def _with_own_offsets(record: Record, moved: dict[int, int]) -> Record:
    if not isinstance(record, Compacted) or not record.kept_from:
        return record
    return msgspec.structs.replace(record, kept_from=moved.get(record.kept_from, 0))


def _copy_folders(source: Path, target: Path, *, has_notes: bool) -> None:
    """What left the view; and the notes, where they tell of nothing that the fork doesn't know."""
    FileBlobs(source / BLOBS).share_with(target / BLOBS)
    if has_notes and (source / NOTES).is_dir():
        make_private(target / NOTES)
        shutil.copytree(source / NOTES, target / NOTES, symlinks=True, dirs_exist_ok=True)


def move_into_place(draft: Path, target: Path, disk: Disk) -> None:
    """Make a session of a folder. One sync of the journal is enough: until now nobody was told of it."""
    fd = disk.open(draft / JOURNAL, os.O_RDWR)
    try:
        disk.sync_data(fd)
    finally:
        disk.close(fd)
    if target.exists():
        raise JournalError(f"{target.name}: there is a session of that id")
    disk.rename(draft, target)
    disk.sync_directory(target.parent)


SECRET_KEY = "secret-ids.key"
KEY_BYTES = 32


def secret_key(home: Path, *, new: bytes = b"", disk: Disk = DISK) -> bytes:
    """The key under a home, made on the first use, 0600; empty where it can't be had: then ids are mere numbers.

    It opens nothing: who has it can only try values against ids. `new` is taken if there is none yet.
    """
    path = home / SECRET_KEY
    try:
        if not path.exists():
            make_private(home)
            draft = path.with_name(f"{SECRET_KEY}.new-{secrets.token_hex(8)}")
            write_new(disk, draft, new or secrets.token_bytes(KEY_BYTES))
            try:
                disk.link(draft, path)
            except FileExistsError:
                pass  # somebody else made it
            finally:
                discard(disk, draft)
            disk.sync_directory(home)
        key = read_file(path)
    except OSError:
        return b""
    return key if len(key) == KEY_BYTES else b""


CALIBRATION = "calibration.json"
_MOST_MODELS = 200


class FileCalibrations:
    """`ports.Calibrations` as a file; it never raises: a home that can't be read or written just teaches nothing."""

    def __init__(self, home: Path, *, disk: Disk = DISK) -> None:
        self._path = home / CALIBRATION
        self._disk = disk

    def ratio(self, model: str) -> float | None:
        return self.learned().get(model)

    def learned(self) -> dict[str, float]:
        """All that is known, by model."""
        known = self._read().items()
        return {model: float(value) for model, value in known if isinstance(value, int | float) and 0.1 < value < 10}

    def learn(self, model: str, ratio: float) -> None:
        known = self._read()
        if known.pop(model, None) == ratio:
            return
        known[model] = ratio
        data = json.dumps(dict(list(known.items())[-_MOST_MODELS:]), indent=1).encode()
        draft = self._path.with_suffix(".new")
        try:
            make_private(self._path.parent)
            discard(self._disk, draft)
            write_new(self._disk, draft, data)
            self._disk.rename(draft, self._path)
        except OSError:
            return

    def _read(self) -> dict[str, object]:
        try:
            known = json.loads(read_file(self._path))
        except (OSError, ValueError, RecursionError):
            return {}
        return known if isinstance(known, dict) else {}
