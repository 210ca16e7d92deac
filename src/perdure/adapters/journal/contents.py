"""`ports.HomeContents` of a home in files: what is copied out of it and into it (SCL-1).

A new session is written in a folder of its own, which is no session until it gets its name. One that exists gets
another journal in one step, which begins with the bytes that it has had.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import socket
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import anyio
import anyio.to_thread

from perdure.adapters.checkpoints.log import FOLDER as CHECKPOINTS
from perdure.adapters.journal import JOURNAL
from perdure.adapters.journal.append_file import (
    LOCK,
    JournalMark,
    MarkFile,
    SessionLock,
    line_checksum,
    read_holder,
    read_mark,
)
from perdure.adapters.journal.blobs import FileBlobs
from perdure.adapters.journal.disk import DISK, Disk, discard, make_private, write_all, write_new
from perdure.adapters.journal.home import FileHome
from perdure.adapters.journal.links import LINKS, links_in, name_in
from perdure.adapters.journal.projects import OWNER, PROJECTS, folder_of_name, folders_in
from perdure.adapters.journal.reading import LINE_NUMBER
from perdure.adapters.journal.store import (
    AGENTS,
    BLOBS,
    COPY_DRAFT,
    GATEWAY,
    KEY_BYTES,
    SECRET_KEY,
    checked_id,
    is_session_id,
    move_into_place,
    secret_key,
)
from perdure.adapters.machine.rooted import RootedFolder, why_refused
from perdure.adapters.machine.system import open_file, read_file
from perdure.adapters.memory.directory import left_out
from perdure.adapters.memory.notes import FOLDER as NOTES
from perdure.adapters.memory.notes import MOST_BYTES as MOST_NOTES_BYTES
from perdure.adapters.memory.store import ALONE, AUDIT, LOCK_SECONDS, MOST_AUDIT_BYTES, STATE
from perdure.adapters.memory.store import LOCK as MEMORY_LOCK
from perdure.adapters.stores import StoreRoot, files_below
from perdure.errors import DamagedLine, FileMissing, FileRefused, JournalError, PerdureError, SessionNotFound
from perdure.memory.places import AGENTS as AGENT_MEMORY
from perdure.memory.places import AGENTS_LOCAL, MEMORY, OWN, PROJECT
from perdure.memory.places import FOLDER as OWN_FOLDER
from perdure.ports.contents import JournalEnd, MemoryFiles
from perdure.ports.home import KnownLink
from perdure.transcript.codec import decode_header, decode_line
from perdure.transcript.messages import MessageId

_STEP_BYTES: Final = 4 * 1024 * 1024
_TAIL_BYTES: Final = 64 * 1024
_GROUP: Final = 200  # sessions that are looked at in one go
MOST_FILES: Final = 200_000  # of a directory of memories
_NOTES: Final = re.compile(r"summary(?:\.aside-\d+)?\.md")
_NAMES_ONLY: Final = "deleted-responses"
_USAGE: Final = "usage"
_CONFIG: Final = f"{NOTES}/config"


class MemoryFileFound(NamedTuple):
    """A file among memories: the folder of the home, its name there, its bytes or why there are none, and its time."""

    folder: str
    name: str
    data: bytes | str
    modified: float = 0.0


class FileSession:
    """`ports.SessionContents` of a session's folder."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self.directory, self.disk = directory, disk
        self.journal = directory / JOURNAL
        self.blobs = FileBlobs(directory / BLOBS, disk)

    async def lines(self) -> AsyncGenerator[Sequence[bytes], None]:
        """The lines of the journal, a few megabytes at a time."""
        mark, read = read_mark(self.disk, self.journal).mark, 0
        groups = _line_groups(self.disk, self.journal)
        try:
            while (group := await anyio.to_thread.run_sync(next, groups, None)) is not None:
                read += sum(len(line) for line in group if line.endswith(b"\n"))
                yield group
        finally:
            groups.close()
        if mark is not None and read < mark.bytes:
            raise DamagedLine(f"{mark.bytes - read:,} bytes that were acknowledged are missing at its end")

    async def notes(self) -> Mapping[str, bytes]:
        """The notes, and those that were set aside."""
        return await anyio.to_thread.run_sync(self._notes)

    async def is_held(self) -> bool:
        """Whether somebody has it open for writing, as far as the lock's file says: nothing is written there."""
        return await anyio.to_thread.run_sync(_is_held, self.directory)

    def _notes(self) -> Mapping[str, bytes]:
        if not (self.directory / NOTES).is_dir():
            return {}
        try:
            with RootedFolder.open(self.directory, is_theirs=True) as root:
                paths = [one.name for one in root.listing(under=NOTES).entries]
                found = {path.removeprefix(f"{NOTES}/"): path for path in paths}
                return {
                    name: root.read(path, limit_bytes=MOST_NOTES_BYTES)
                    for name, path in found.items()
                    if _NOTES.fullmatch(name)
                }
        except FileRefused as e:
            raise JournalError(f"{self.directory / NOTES}: the notes can't be read: {e}") from e


class FileSessionWriting(FileSession):
    """`ports.SessionWriting`: a journal that gets its name at the end. What takes no `await` is called in a thread."""

    def __init__(self, directory: Path, journal: Path, lock: SessionLock, disk: Disk) -> None:
        super().__init__(directory, disk)
        self.journal = journal
        self._lock, self._last = lock, b""
        self._fd = disk.open(journal, os.O_WRONLY | os.O_CREAT | os.O_EXCL)

    @classmethod
    def new(cls, target: Path, header: bytes, disk: Disk) -> FileSessionWriting:
        """One that isn't there yet, in a folder beside its own. What an attempt before left there goes."""
        if target.exists():
            raise JournalError(f"{target}: there is a session of that id already")
        folder = target.with_name(f"{COPY_DRAFT}{target.name}")
        make_private(folder)
        lock = SessionLock.acquire(folder)
        try:
            for left in folder.iterdir():
                if left.is_dir() and not left.is_symlink():
                    shutil.rmtree(left)
                elif left.name != LOCK:
                    left.unlink()
            return cls._with(folder, folder / JOURNAL, lock, disk, [[header]])
        except BaseException:
            lock.release()
            raise

    @classmethod
    def longer(cls, directory: Path, kept: int, disk: Disk) -> FileSessionWriting:
        """One that goes on behind the first bytes of a session that has no more than these."""
        lock, there = SessionLock.acquire(directory), directory / JOURNAL
        try:
            if (size := there.stat().st_size) != kept:
                raise JournalError(f"{there}: was written to meanwhile ({size - kept:+,} bytes): copy it again")
            draft = there.with_name(f"{JOURNAL}.new-{secrets.token_hex(8)}")
            return cls._with(directory, draft, lock, disk, _line_groups(disk, there))
        except BaseException:
            lock.release()
            raise

    @classmethod
    def _with(
        cls, directory: Path, journal: Path, lock: SessionLock, disk: Disk, groups: Iterable[Sequence[bytes]]
    ) -> FileSessionWriting:
        made = cls(directory, journal, lock, disk)
        try:
            for group in groups:
                made.take(group)
        except BaseException:
            made.drop()
            disk.close(made._fd)
            raise
        return made

    async def append(self, lines: Sequence[bytes]) -> None:
        """Write these lines behind those that are there."""
        await anyio.to_thread.run_sync(self.take, lines)

    async def write_notes(self, notes: Mapping[str, bytes]) -> None:
        """Put these in the place of those of the same names."""
        await anyio.to_thread.run_sync(self._write_notes, notes)

    # --- in a thread

    def take(self, lines: Sequence[bytes]) -> None:
        """Write these lines behind those that are there."""
        write_all(self.disk, self._fd, b"".join(lines))
        self._last = lines[-1]

    def _write_notes(self, notes: Mapping[str, bytes]) -> None:
        if wrong := [name for name in notes if not _NOTES.fullmatch(name)]:
            raise JournalError(f"{self.directory}: not the name of notes: {wrong[0][:80]!r}")
        try:
            with RootedFolder.open(self.directory) as root:
                for name, data in notes.items():
                    root.write(f"{NOTES}/{name}", data)
        except FileRefused as e:
            raise JournalError(f"{self.directory / NOTES}: the notes can't be written: {e}") from e

    def publish(self, target: Path, modified: float) -> None:
        """Let others see it: a folder gets its name, or the session its new journal."""
        size = self.disk.fstat(self._fd).st_size
        os.utime(self.journal, (modified, modified))
        if self.directory == target:
            self.disk.sync_data(self._fd)
            self.disk.rename(self.journal, target / JOURNAL)
            self.disk.sync_directory(target)
            self._remember(target / JOURNAL, size)
        else:
            self._remember(self.journal, size)
            move_into_place(self.directory, target, self.disk)

    def _remember(self, journal: Path, size: int) -> None:
        """Note beside the journal how far it goes (ENG-9)."""
        numbered = LINE_NUMBER.match(self._last)
        with journal.open("rb") as file:
            mark = MarkFile(self.disk, journal, file.readline().rstrip(b"\n"))
        seq, last = int(numbered[1]) if numbered else 0, line_checksum(self._last)
        mark.write(JournalMark(bytes=size, seq=seq, last=last, is_synced=True))
        mark.close(is_synced=False)

    def drop(self) -> None:
        """Keep nothing of what wasn't published."""
        if self.directory.name.startswith(COPY_DRAFT):
            shutil.rmtree(self.directory, ignore_errors=True)
        else:
            discard(self.disk, self.journal)

    def end(self) -> None:
        """Let go of the file and of the lock."""
        self.disk.close(self._fd)
        self._lock.release()


class FileContents:
    """`ports.HomeContents` of a folder."""

    def __init__(self, home: FileHome, *, disk: Disk = DISK) -> None:
        self.home, self._disk = home, disk
        self._projects: dict[str, str] | None = None  # their paths by their folders, once these were looked at

    # --- sessions

    async def ends(self) -> AsyncIterator[JournalEnd]:
        """Where each session's journal ends."""
        directories = iter(await anyio.to_thread.run_sync(lambda: list(self.home.files.directories())))
        while group := list(islice(directories, _GROUP)):
            for end in await anyio.to_thread.run_sync(lambda some: [_end_of(self._disk, one) for one in some], group):
                if end is not None:
                    yield end

    async def session(self, session: str) -> FileSession:
        """The session of exactly this id."""
        return FileSession(await anyio.to_thread.run_sync(self._directory, session), self._disk)

    @asynccontextmanager
    async def writing(
        self, session: str, header: bytes, *, kept: int, modified: float
    ) -> AsyncIterator[FileSessionWriting]:
        """A new session, or one that goes on."""
        with _told(self.home.path, "the session can't be written"):
            with anyio.CancelScope(shield=True):  # else nobody would end what was begun
                target, writing = await anyio.to_thread.run_sync(self._begun, session, header, kept)
            try:
                try:
                    yield writing
                    with anyio.CancelScope(shield=True):
                        await anyio.to_thread.run_sync(writing.publish, target, modified)
                except BaseException:
                    with anyio.CancelScope(shield=True):
                        await anyio.to_thread.run_sync(writing.drop)
                    raise
            finally:
                writing.end()
        if (self.home.path / LINKS).exists():  # else it is made from the journals when it is needed
            rows, name = await anyio.to_thread.run_sync(_known_from, self._disk, target / JOURNAL, session)
            self.home.links.enter(rows)
            if name is not None:
                self.home.links.name(session, name)
            await self.home.links.flush()

    def _begun(self, session: str, header: bytes, kept: int) -> tuple[Path, FileSessionWriting]:
        if kept:
            directory = self._directory(session)
            return directory, FileSessionWriting.longer(directory, kept, self._disk)
        project = decode_header(header).project or "."
        target = self.home.files.directory(checked_id(session), project=project)
        return target, FileSessionWriting.new(target, header, self._disk)

    def _directory(self, session: str) -> Path:
        found = self.home.files.found(session, project=self.home.path)
        if found is None:
            raise SessionNotFound(f"no session {session[:80]!r} under {self.home.path}")
        return found

    # --- beside them

    async def documents(self, kind: str) -> Mapping[str, tuple[float, bytes]]:
        """Each document of a kind: when it was written, and the SHA-256 of it."""
        return await anyio.to_thread.run_sync(self._documents, kind)

    async def document(self, kind: str, name: str) -> bytes | None:
        """One of them."""
        if kind == _CONFIG:
            return await anyio.to_thread.run_sync(_read, self._config(name))
        found = await self.home.documents(kind).get(name)
        return None if found is None else found.data

    async def keep_document(self, kind: str, name: str, data: bytes, modified: float) -> None:
        """Keep one in the place of any other."""
        if kind == _CONFIG:
            await anyio.to_thread.run_sync(self._keep_config, name, data)
            return
        documents = self.home.documents(kind)
        there = await documents.get(name)
        if await documents.put(name, data, instead_of=there and there.version) is None:
            raise JournalError(f"{self.home.path}: the document {kind}/{name} was written meanwhile: copy it again")
        if kind != _NAMES_ONLY:
            folder = self.home.path if kind == _USAGE else self.home.path / kind
            with _told(folder, "the document can't be kept"):
                await anyio.to_thread.run_sync(os.utime, folder / f"{name}.json", (modified, modified))

    async def learned(self) -> Mapping[str, float]:
        """What is known about models' counting."""
        return await anyio.to_thread.run_sync(self.home.calibrations.learned)

    async def keep_learned(self, ratios: Mapping[str, float]) -> None:
        """Keep what was learned elsewhere."""
        for model, ratio in ratios.items():
            await anyio.to_thread.run_sync(self.home.calibrations.learn, model, ratio)

    async def key(self) -> bytes:
        """The home's key; empty where there is none."""
        found = await anyio.to_thread.run_sync(_read, self.home.path / SECRET_KEY)
        return found if found is not None and len(found) == KEY_BYTES else b""

    async def keep_key(self, key: bytes) -> bytes:
        """Keep a key unless there is one; the home's."""
        return await anyio.to_thread.run_sync(partial(secret_key, self.home.path, new=key, disk=self._disk))

    async def memories(self) -> Sequence[str]:
        """The places of all directories of memories whose project is known."""
        return sorted(await anyio.to_thread.run_sync(self._memories))

    async def memory_files(self, place: str) -> MemoryFiles:
        """All files of a directory."""
        return await anyio.to_thread.run_sync(self._memory_files, place)

    def each_memory(self) -> Iterator[MemoryFileFound]:
        """Every Markdown file of every directory of memories, and what can't be read there. It blocks for the disk.

        Also of directories whose project nothing here names, as nobody had a session in it.
        """
        named = {folder_of_place(place): path for place, path in self._memories().items()}
        unnamed = {
            one.relative_to(self.home.path).as_posix(): one
            for folder in folders_in(self.home.path / PROJECTS)
            for one in _memories_below(folder)
            if one not in named.values()
        }
        for folder, path in sorted((named | unnamed).items()):
            yield from _each_in(folder, path)
        for parent in (self.home.path, *folders_in(self.home.path / PROJECTS)):
            if os.path.lexists(path := parent / MEMORY) and not path.is_dir():
                folder = path.relative_to(self.home.path).as_posix()
                yield MemoryFileFound(folder, "", f"{path}: is no folder, or a link that leads to none")

    async def keep_memories(self, place: str, files: MemoryFiles, *, instead_of: MemoryFiles) -> None:
        """Let a directory have these files alone: the log last, so that a copy that is broken off goes on."""
        await anyio.to_thread.run_sync(self._keep_memories, place, files, instead_of)

    async def only_here(self) -> Mapping[str, int]:
        """What is kept in files alone, and how many of each there are."""
        return await anyio.to_thread.run_sync(self._only_here)

    # --- in a thread

    def _documents(self, kind: str) -> Mapping[str, tuple[float, bytes]]:
        path = self.home.path / kind
        with _told(path, "the documents can't be read"):
            if kind == _NAMES_ONLY:
                names = (_read(path) or b"").decode(errors="replace").splitlines()
                return dict.fromkeys(names, (path.stat().st_mtime if names else 0.0, hashlib.sha256().digest()))
            if kind == _USAGE:
                return {one.stem: _dated(one) for one in [path.with_name(f"{_USAGE}.json")] if one.exists()}
            if kind == _CONFIG:
                return {one.name: _dated(one) for one in sorted(path.glob("*.md")) if one.is_file()}
            return {one.stem: _dated(one) for one in sorted(path.glob("*.json")) if one.is_file()}

    def _config(self, name: str) -> Path:
        if Path(name).name != name or name.startswith("."):
            raise JournalError(f"{self.home.path / _CONFIG}: not the name of a file: {name[:80]!r}")
        return self.home.path / _CONFIG / name

    def _keep_config(self, name: str, data: bytes) -> None:
        path = self._config(name)
        with _told(path, "it can't be written"):
            make_private(path.parent)
            draft = path.with_name(f"{name}.new-{secrets.token_hex(8)}")
            write_new(self._disk, draft, data)
            self._disk.rename(draft, path)
            self._disk.sync_directory(path.parent)

    def _memories(self) -> dict[str, Path]:
        """Where memories stand, by the names that their places have in a database."""
        found = {f"/{MEMORY}": self.home.path / MEMORY}
        found |= {f"/{AGENT_MEMORY}/{one.name}": one for one in folders_in(self.home.path / AGENT_MEMORY)}
        for folder in folders_in(self.home.path / PROJECTS):
            below = _memories_below(folder)
            if below and (project := self._project_of(folder)) is not None:
                found |= {f"/{PROJECTS}{project}/{one.relative_to(folder).as_posix()}": one for one in below}
        return {place: path for place, path in found.items() if path.is_dir()}

    def _project_of(self, folder: Path) -> str | None:
        """The path of the project that a folder is of, if anything in this home says it."""
        if self._projects is None:
            self._projects = {}
            for one in folders_in(self.home.path / PROJECTS):
                if (noted := _read(one / OWNER)) is not None:
                    self._projects[one.name] = os.fsdecode(noted).rstrip("\n")
                for path in filter(None, (_project_in(directory) for directory in folders_in(one))):
                    for above in (path, *map(str, Path(path).parents)):  # a repository's memories stand at its root
                        self._projects.setdefault(folder_of_name(above), above)
        return self._projects.get(folder.name)

    def _memory_path(self, place: str) -> Path:
        if (known := self._memories().get(place)) is not None:
            return known
        parts = folder_of_place(place).split("/")
        kind = parts[2] if parts[0] == PROJECTS else parts[0]
        if kind not in (MEMORY, AGENT_MEMORY, OWN_FOLDER) or ".." in parts:
            raise JournalError(f"{self.home.path}: not a place of memories in a home of files: {place[:150]!r}")
        return self.home.path.joinpath(*parts)

    def _memory_files(self, place: str) -> MemoryFiles:
        return _files_in(self._memory_path(place))

    def _keep_memories(self, place: str, files: MemoryFiles, instead_of: MemoryFiles) -> None:
        path = self._memory_path(place)
        try:
            with (
                RootedFolder.open(path, create=True, rules=OWN) as root,
                root.lock(MEMORY_LOCK, seconds=LOCK_SECONDS),
            ):
                if _all_in(root) != instead_of:
                    raise JournalError(f"{path}: the memories were changed meanwhile: copy them again")
                for name in instead_of.keys() - files.keys():
                    root.remove(name)
                for name in sorted(files, key=lambda name: (name == AUDIT, name)):
                    data, modified = files[name]
                    if instead_of.get(name) != files[name]:
                        root.write(name, data, mtime_ns=round(modified * 1e6) * 1000)
        except FileRefused as e:
            raise JournalError(str(e)) from e

    def _only_here(self) -> Mapping[str, int]:
        found: Counter[str] = Counter()
        known = frozenset(self._memories().values())
        for folder in folders_in(self.home.path / PROJECTS):
            for one in os.scandir(folder):
                if Path(one.path) in known or one.name == OWNER or one.name.startswith("."):
                    continue
                if not is_session_id(one.name) or not one.is_dir(follow_symlinks=False):
                    found[f"{one.name} of projects"] += 1
                    continue
                names = {inner.name for inner in os.scandir(one.path)}
                found["sessions' checkpoints"] += CHECKPOINTS in names
                found["sub-agents' sessions"] += len(folders_in(Path(one.path) / AGENTS)) if AGENTS in names else 0
        for path in self.home.path.iterdir() if self.home.path.is_dir() else ():
            if path.name not in (PROJECTS, GATEWAY) and not path.name.startswith("."):
                files = files_below(StoreRoot("home", path)) if path.is_dir() else (path,)
                kinds = map(StoreRoot("home", self.home.path).kind_of, files)
                found[path.name] += any(kind is None or not kind.is_copied for kind in kinds)
        return +found


# --- in a thread ------------------------------------------------------------------------------------------------------


def _line_groups(disk: Disk, path: Path) -> Generator[Sequence[bytes], None, None]:
    """The lines that are there now, with their ends, a few megabytes at a time; a longer one by itself."""
    with _told(path, "the journal can't be read"):
        fd = disk.open(path, os.O_RDONLY)
        try:
            at, size, parts = 0, disk.fstat(fd).st_size, list[bytes]()
            while at < size and (step := disk.read_at(fd, min(_STEP_BYTES, size - at), at)):
                at += len(step)
                lines = step.split(b"\n")
                parts.append(lines[0])
                if len(lines) > 1:
                    yield [b"".join(parts) + b"\n", *(line + b"\n" for line in lines[1:-1])]
                    parts = [lines[-1]]
            if rest := b"".join(parts):
                yield [rest]
        finally:
            disk.close(fd)


def folder_of_place(place: str) -> str:
    """The folder below a home of files in which a directory of memories stands, by its place's name in a database."""
    if not place.startswith(f"/{PROJECTS}/"):
        return place.removeprefix("/")
    project, _, rest = place.removeprefix(f"/{PROJECTS}").rpartition(f"/{OWN_FOLDER}/")
    if project:
        return f"{PROJECTS}/{folder_of_name(project)}/{OWN_FOLDER}/{rest}"
    return f"{PROJECTS}/{folder_of_name(rest.removesuffix(f'/{MEMORY}'))}/{MEMORY}"


def _memories_below(folder: Path) -> list[Path]:
    """The directories of memories in the folder of a project."""
    below = [folder / MEMORY]
    for kind in (AGENT_MEMORY, AGENTS_LOCAL):
        below += folders_in(folder / OWN_FOLDER / kind)
    return [one for one in below if one.is_dir()]


def _files_in(path: Path) -> MemoryFiles:
    """All files of a directory of memories; none where there is no such directory."""
    try:
        with RootedFolder.open(path, is_theirs=True, rules=OWN) as root:
            return _all_in(root)
    except FileMissing:
        return {}
    except FileRefused as e:
        raise JournalError(str(e)) from e


def _each_in(folder: str, path: Path) -> Iterator[MemoryFileFound]:
    """The Markdown files of a directory, and what isn't read there: links, and names of which nothing is known."""
    try:
        with RootedFolder.open(path, is_theirs=True, rules=PROJECT) as root:
            listed = root.listing(limit=MOST_FILES)
            for name, why in left_out(root, listed):
                yield MemoryFileFound(folder, name, f"{path / name}: {why}")
            if listed.is_cut:
                yield MemoryFileFound(folder, "", f"{path}: has more than {MOST_FILES:,} files; the rest is left out")
            for one in listed.entries:
                if not one.name.endswith(".md") or any(part.startswith(".") for part in one.name.split("/")):
                    continue
                try:
                    data = root.read(one.name, limit_bytes=MOST_AUDIT_BYTES)
                except FileMissing:
                    continue
                except FileRefused as e:
                    yield MemoryFileFound(folder, one.name, f"{path / one.name}: {why_refused(one.name, e)}")
                    continue
                yield MemoryFileFound(folder, one.name, data, one.mtime_ns // 1000 / 1e6)
    except FileMissing:
        return
    except FileRefused as e:
        yield MemoryFileFound(folder, "", str(e))


def _all_in(root: RootedFolder) -> dict[str, tuple[bytes, float]]:
    """All files of a directory of memories, but for those that only say who is at it."""
    entries = [*root.listing(limit=MOST_FILES).entries, *root.listing(under=STATE, limit=MOST_FILES).entries]
    return {
        one.name: (root.read(one.name, limit_bytes=MOST_AUDIT_BYTES), one.mtime_ns // 1000 / 1e6)
        for one in entries
        if one.name not in (MEMORY_LOCK, ALONE)
    }


def _project_in(directory: Path) -> str | None:
    """The project that the session in a folder is of."""
    try:
        with open(open_file(directory / JOURNAL, os.O_RDONLY), "rb") as file:
            return decode_header(file.readline()).project
    except (OSError, PerdureError):
        return None


def _end_of(disk: Disk, directory: Path) -> JournalEnd | None:
    """Where a journal ends; None where there is none. One that can't be read has no bytes, and says why when it is."""
    try:
        fd = disk.open(directory / JOURNAL, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError:
        return JournalEnd(directory.name, 0, b"", 0.0)
    try:
        about, tail, start = disk.fstat(fd), b"", 0
        length = _TAIL_BYTES
        while about.st_size and not start:
            before = max(0, about.st_size - length)
            tail = b"".join(
                disk.read_at(fd, min(_STEP_BYTES, about.st_size - at), at)
                for at in range(before, about.st_size, _STEP_BYTES)
            )
            start = tail.rfind(b"\n", 0, len(tail) - 1) + 1
            if before == 0:
                break
            length *= 8
        return JournalEnd(directory.name, about.st_size, hashlib.sha256(tail[start:]).digest(), about.st_mtime)
    except OSError:
        return JournalEnd(directory.name, 0, b"", 0.0)
    finally:
        disk.close(fd)


def _known_from(disk: Disk, journal: Path, session: str) -> tuple[list[KnownLink], str | None]:
    """The links that a journal says, and the session's name."""
    links: list[KnownLink] = []
    answers: dict[MessageId, tuple[str, ...]] = {}
    version, name = 0, None
    for group in _line_groups(disk, journal):
        for line in group:
            if not version:
                version = decode_header(line).version
                continue
            records = decode_line(line, version).records
            links += links_in(records, session, answers)
            said = name_in(records)
            name = name if said is None else said
    return links, name


def _is_held(directory: Path) -> bool:
    holder = read_holder(directory)
    if holder is None:
        return False
    if holder.host != socket.gethostname():
        return holder.lease_until > time.time()
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # somebody else's
    return True


def _dated(path: Path) -> tuple[float, bytes]:
    return path.stat().st_mtime, hashlib.sha256(read_file(path)).digest()


def _read(path: Path) -> bytes | None:
    with _told(path, "it can't be read"):
        try:
            return read_file(path)
        except FileNotFoundError:
            return None


@contextmanager
def _told(path: Path, what: str) -> Iterator[None]:
    """Failures of the disk as a `JournalError` of one line."""
    try:
        yield
    except OSError as e:
        raise JournalError(f"{path}: {e.strerror or e}: {what}") from e
