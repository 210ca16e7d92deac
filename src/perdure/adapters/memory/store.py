"""A memory directory that is written to: edits, log, inbox and upkeep, over files or held in memory (MEM-8 to
MEM-11).
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

import anyio.to_thread
import msgspec

from perdure.adapters.machine.rooted import PlainFile, PlainListing
from perdure.errors import FileMissing, FileRefused, FileTooLarge, FolderBusy, MemoryChanged, MemoryRefused, NameTaken
from perdure.memory.changes import (
    Change,
    DeleteMemory,
    MemoryBatch,
    MemoryLogEntry,
    MemoryProposal,
    Provenance,
    RenameMemory,
    SaveMemory,
    Stamp,
    WriteResult,
    decoded,
    digest_of,
    encoded,
    provenance,
    resolve,
    to_undo,
)
from perdure.memory.places import MEMORY_NAMES, OWN, name_for_people, parts_of
from perdure.ports.memory import MemoryFile, MemoryListing, MemoryStat

T = TypeVar("T")


class OpenedFolder(Protocol):
    """What a directory is for a moment, as `adapters.machine.rooted.RootedFolder` has it."""

    def read(self, name: str, *, limit_bytes: int, offset: int = 0) -> bytes: ...

    def stat(self, name: str) -> PlainFile | None: ...

    def write(self, name: str, data: bytes, *, is_new: bool = False, is_durable: bool = True) -> None: ...

    def append(self, name: str, data: bytes, *, is_durable: bool = True) -> None: ...

    def remove(self, name: str, *, is_durable: bool = True) -> None: ...

    def rename(self, old: str, new: str, *, is_durable: bool = True) -> None: ...

    def listing(self, *, under: str = "", limit: int = 20_000, depth: int = 20) -> PlainListing: ...

    def lock(self, name: str, *, seconds: float) -> AbstractContextManager[None]: ...


class StoredFolder(Protocol):
    """Where a directory of memories is kept: on a disk, in this process, in a database. Failures are `FileRefused`.

    `run` opens it, making it when asked to, and gives it to a function that may block; `FileMissing` when it isn't
    there. Hidden names may be used in it. In a database all that the function does is one transaction: when it raises,
    nothing of it happened. `alone` is held for as long as somebody is at it: `FolderBusy` at once for anybody else.
    """

    async def run(self, do: Callable[[OpenedFolder], T], *, create: bool) -> T: ...

    async def is_there(self) -> bool: ...

    def alone(self) -> AbstractAsyncContextManager[None]: ...


@dataclass(frozen=True, slots=True)
class DiskFolder:
    """`StoredFolder` of a directory that `opened` opens."""

    opened: Callable[[bool], AbstractContextManager[OpenedFolder]]

    async def run(self, do: Callable[[OpenedFolder], T], *, create: bool) -> T:
        """What the port says."""

        def run() -> T:
            with self.opened(create) as folder:
                return do(folder)

        return await anyio.to_thread.run_sync(run)

    async def is_there(self) -> bool:
        """What the port says."""
        try:
            return await self.run(lambda _: True, create=False)
        except FileMissing:
            return False

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """What the port says."""
        held = ExitStack()

        def enter() -> None:
            folder = held.enter_context(self.opened(True))
            held.enter_context(folder.lock(ALONE, seconds=0.0))

        with held:
            await anyio.to_thread.run_sync(enter)
            yield


class MissingFolder:
    """A directory that isn't there."""

    def read(self, name: str, *, limit_bytes: int, offset: int = 0) -> bytes:
        raise FileMissing(f"{name_for_people(name)}: there is no such file")

    def stat(self, name: str) -> PlainFile | None:
        return None

    def listing(self, *, under: str = "", limit: int = 0, depth: int = 0) -> PlainListing:
        return PlainListing(())


NOTHING: OpenedFolder = MissingFolder()  # type: ignore[assignment]  # nothing is ever written there


class InMemoryFolder:
    """`StoredFolder` that goes with the process, and the same opened. Any number of threads may use it."""

    def __init__(self, *, clock: Callable[[], float] | None = None) -> None:
        """An empty one.

        Args:
            clock: When files change, in seconds since the epoch; None: their times only say in which order they did.
        """
        self._files: dict[str, tuple[int, int, bytes]] = {}  # how many changes that is, when (nanoseconds), and what
        self._clock = clock
        self._count = 0
        self._is_made = False
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.RLock()

    async def run(self, do: Callable[[OpenedFolder], T], *, create: bool) -> T:
        """What the port says."""
        self._is_made = self._is_made or create
        if not self._is_made:
            raise FileMissing("there is no such directory")
        return await anyio.to_thread.run_sync(do, self)

    async def is_there(self) -> bool:
        """What the port says."""
        return self._is_made

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in it."""
        return not self._files

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """What the port says."""
        with self.lock(ALONE, seconds=0.0):
            yield

    async def version(self) -> int | None:
        """How many changes there were; None while it isn't there."""
        return self._count if self._is_made else None

    def take(self, one: PlainFile, data: bytes) -> None:
        """Have a file that stands elsewhere, with its time."""
        with self._guard:
            self._is_made = True
            self._count += 1
            self._files[one.name] = (self._count, one.mtime_ns, data)

    def heads(self, names: Sequence[str], most_bytes: int) -> dict[str, bytes]:
        """The beginnings of files, of those that are there."""
        with self._guard:
            return {name: self._files[name][2][:most_bytes] for name in names if name in self._files}

    def read(self, name: str, *, limit_bytes: int, offset: int = 0) -> bytes:
        data = self._there(name)[2][offset:]
        if len(data) > limit_bytes:
            raise FileTooLarge(f"{name_for_people(name)}: has more than {limit_bytes:,} bytes")
        return data

    def stat(self, name: str) -> PlainFile | None:
        try:
            count, at, data = self._there(name)
        except FileMissing:
            return None
        return PlainFile(name, len(data), at, (0, len(data), count, count))

    def write(self, name: str, data: bytes, *, is_new: bool = False, is_durable: bool = True) -> None:
        parts_of(name, OWN)
        with self._guard:
            if is_new and name in self._files:
                raise NameTaken(f"{name_for_people(name)}: there is such a file already")
            self._count += 1
            at = self._count if self._clock is None else int(self._clock() * 1e9)
            self._files[name] = (self._count, at, data)

    def append(self, name: str, data: bytes, *, is_durable: bool = True) -> None:
        with self._guard:
            self.write(name, self._files.get(name, (0, 0, b""))[2] + data)

    def remove(self, name: str, *, is_durable: bool = True) -> None:
        with self._guard:
            self._there(name)
            self._count += 1
            del self._files[name]

    def rename(self, old: str, new: str, *, is_durable: bool = True) -> None:
        with self._guard:
            self.write(new, self._there(old)[2], is_new=True)
            self.remove(old)

    def listing(self, *, under: str = "", limit: int = 20_000, depth: int = 20) -> PlainListing:
        with self._guard:
            names = sorted(name for name in self._files if is_listed(name, under))
        return PlainListing(tuple(e for name in names[:limit] if (e := self.stat(name))), (), len(names) > limit)

    @contextmanager
    def lock(self, name: str, *, seconds: float) -> Iterator[None]:
        lock = self._locks.setdefault(name, threading.Lock())
        if not lock.acquire(timeout=seconds):
            raise FolderBusy("somebody else writes there: try again")
        try:
            yield
        finally:
            lock.release()

    def _there(self, name: str) -> tuple[int, int, bytes]:
        parts_of(name, OWN)
        try:
            return self._files[name]
        except KeyError:
            raise FileMissing(f"{name_for_people(name)}: there is no such file") from None


def is_listed(name: str, under: str) -> bool:
    if under:
        return name.startswith(f"{under}/")
    return not any(part.startswith(".") for part in name.split("/"))


STATE = ".perdure"
AUDIT, LOCK = f"{STATE}/audit.jsonl", f"{STATE}/lock"
BEFORE, INBOX = f"{STATE}/before", f"{STATE}/inbox"
IGNORED = f"{STATE}/.gitignore"
BATCH = f"{STATE}/batch.json"
MOST_FILE_BYTES = 4 << 20  # as instruction files (INS-5)
MOST_AUDIT_BYTES = 256 << 20
MOST_PENDING = 200
LOCK_SECONDS = 30.0
_TAIL_BYTES = 16 << 10
UPKEEP, ALONE = f"{STATE}/upkeep.json", f"{STATE}/upkeep.lock"  # when it was last put in order, and who is at it
MOST_SESSIONS = 200  # more than any setting asks for needn't be remembered


class _UpkeepRecord(msgspec.Struct, frozen=True):
    at: float
    sessions: list[str] = []


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file becomes something else, or gets another name: its line of the log, and its bytes before and after."""

    entry: MemoryLogEntry
    before: bytes | None
    after: bytes | None


@dataclass(slots=True)
class PlannedFiles:
    """What stands in the files, or will once the steps so far are done."""

    folder: OpenedFolder
    ahead: dict[str, bytes | None] = field(default_factory=dict)

    def bytes(self, name: str) -> bytes | None:
        return self.ahead[name] if name in self.ahead else _bytes(self.folder, name)

    def has(self, name: str) -> bool:
        return self.ahead[name] is not None if name in self.ahead else self.folder.stat(name) is not None

    def takes(self, step: FileChange) -> None:
        if step.entry.action == "rename":
            self.ahead |= {step.entry.name: None, step.entry.to: step.after}
        else:
            self.ahead[step.entry.name] = step.after


@dataclass(eq=False)
class StoredMemories:
    """One memory directory. Any number of these, in any number of processes, may share it."""

    folder: StoredFolder
    is_durable: bool = True
    _digests: dict[str, tuple[object, str]] = field(default_factory=dict, init=False)
    _entries: list[MemoryLogEntry] = field(default_factory=list, init=False)  # of the log, as far as it was read
    _read_to: int = field(default=0, init=False)
    _inode: int = field(default=0, init=False)
    _guard: threading.Lock = field(default_factory=threading.Lock, init=False)

    # --- the port ---------------------------------------------------------------------------------------------------

    async def is_there(self) -> bool:
        return await self.folder.is_there()

    async def listing(self) -> MemoryListing:
        return await self._in_thread(self._list)

    async def read(self, name: str) -> MemoryFile | None:
        return await self._in_thread(partial(self._read, name))

    async def write(self, change: Change, stamp: Stamp, *, mode: str) -> WriteResult:
        return await self._locked(lambda folder: self._make(folder, change, stamp, mode))

    async def entries(self, *, limit: int = 50, name: str | None = None) -> tuple[MemoryLogEntry, ...]:
        def wanted(folder: OpenedFolder) -> tuple[MemoryLogEntry, ...]:
            every = [e for e in self._history(folder) if name is None or name in (e.name, e.to, e.wanted)]
            return tuple(reversed(every[-limit:] if limit > 0 else []))

        return await self._in_thread(wanted)

    async def provenance(self) -> Mapping[str, Provenance]:
        return await self._in_thread(lambda folder: provenance(self._history(folder)))

    async def undo(self, entry: str | None, stamp: Stamp) -> tuple[WriteResult, ...]:
        return await self._locked(lambda folder: self._undo(folder, entry, stamp))

    async def pending(self) -> tuple[MemoryProposal, ...]:
        found = await self._in_thread(lambda folder: [self._proposal(folder, one) for one in self._waiting(folder)])
        return tuple(sorted((p for p in found if p is not None), key=lambda p: (p.stamp.at, p.id)))

    async def propose(self, change: Change, stamp: Stamp, why: str) -> MemoryProposal:
        return await self._locked(lambda folder: self._propose(folder, change, stamp, why))

    async def approve(self, proposal: str) -> WriteResult:
        return await self._locked(lambda folder: self._approve(folder, proposal))

    async def reject(self, proposal: str) -> None:
        await self._locked(lambda folder: self._settled(folder, proposal))

    async def is_due(self, session: str, now: float, *, seconds: float, sessions: int) -> bool:
        def look(folder: OpenedFolder) -> bool:
            with folder.lock(LOCK, seconds=LOCK_SECONDS):
                last = _last_upkeep(folder) or _UpkeepRecord(now)
                if session not in last.sessions and len(last.sessions) < MOST_SESSIONS:
                    last = _UpkeepRecord(last.at, [*last.sessions, session])
                    folder.write(UPKEEP, msgspec.json.encode(last), is_durable=False)
                return now - last.at >= seconds and len(last.sessions) >= sessions

        try:
            return await self.folder.run(look, create=False)
        except FileMissing:
            return False  # nothing to put in order: a look makes no directory

    async def done(self, now: float) -> None:
        def write(folder: OpenedFolder) -> None:
            folder.write(UPKEEP, msgspec.json.encode(_UpkeepRecord(now)), is_durable=False)

        await self._locked(write)

    def alone(self) -> AbstractAsyncContextManager[None]:
        return self.folder.alone()

    async def deferred(self) -> DeferredMemories:
        copy = InMemoryFolder()

        def read(folder: OpenedFolder) -> None:
            waiting = folder.listing(under=INBOX).entries if self._waiting(folder) else ()
            log = folder.stat(AUDIT)
            for one in (*folder.listing().entries, *waiting, *((log,) if log is not None else ())):
                with suppress(FileRefused):  # it went, or is none that can be read
                    most = MOST_AUDIT_BYTES if one is log else MOST_FILE_BYTES
                    copy.take(one, folder.read(one.name, limit_bytes=most))

        await self._in_thread(read)
        return DeferredMemories(copy, of=self)

    # --- reading ----------------------------------------------------------------------------------------------------

    async def _in_thread(self, do: Callable[[OpenedFolder], T]) -> T:
        """Without a lock; a directory that isn't there is an empty one."""

        def run(folder: OpenedFolder) -> T:
            if folder.stat(BATCH) is not None:
                with suppress(FileRefused), folder.lock(LOCK, seconds=LOCK_SECONDS):  # where it may be written
                    self._take_back(folder)
            return do(folder)

        try:
            return await self.folder.run(run, create=False)
        except FileMissing:
            return do(NOTHING)

    async def _locked(self, do: Callable[[OpenedFolder], T]) -> T:
        def run(folder: OpenedFolder) -> T:
            with folder.lock(LOCK, seconds=LOCK_SECONDS):
                self._take_back(folder)
                return do(folder)

        try:
            return await self.folder.run(run, create=True)
        except BaseException:
            with self._guard:  # a database takes back what was read of the log since
                self._entries, self._read_to, self._inode = [], 0, 0
            raise

    def _list(self, folder: OpenedFolder) -> MemoryListing:
        listed = folder.listing()
        digests = [(entry, self._digest_of(folder, entry)) for entry in listed.entries]
        files = tuple(MemoryStat(e.name, e.bytes, e.mtime_ns / 1e9, digest) for e, digest in digests if digest)
        self._digests = {file.name: self._digests[file.name] for file in files}
        return MemoryListing(files, listed.refused, listed.is_cut)

    def _digest_of(self, folder: OpenedFolder, entry: PlainFile) -> str | None:
        """Of the content, read again only when it may have changed."""
        known = self._digests.get(entry.name)
        if known is None or known[0] != entry.version:
            try:
                known = (entry.version, digest_of(folder.read(entry.name, limit_bytes=MOST_FILE_BYTES)))
            except FileRefused:  # gone, or became something else, since it was listed
                return None
            self._digests[entry.name] = known
        return known[1]

    def _read(self, name: str, folder: OpenedFolder) -> MemoryFile | None:
        parts_of(name, MEMORY_NAMES)  # our own state isn't a memory
        data = _bytes(folder, name)
        return None if data is None else MemoryFile(name, decoded(data), digest_of(data))

    # --- writing, under the lock ------------------------------------------------------------------------------------

    def _make(self, folder: OpenedFolder, change: Change, stamp: Stamp, mode: str) -> WriteResult:
        parts_of(change.name, MEMORY_NAMES)
        self._mend(folder)
        if isinstance(change, MemoryBatch):
            return self._make_all(folder, change, stamp, mode)
        step, written = self._planned(PlannedFiles(folder), change, stamp, mode)
        if step is not None:
            self._keep(folder, step)
            self._do(folder, step)
        return written

    def _make_all(self, folder: OpenedFolder, change: MemoryBatch, stamp: Stamp, mode: str) -> WriteResult:
        """All of them, when all still fit and can be done. What adds comes before what takes away."""
        for one in change.changes:
            parts_of(one.name, MEMORY_NAMES)
            current = _bytes(folder, one.name)
            base = None if one.base is None else encoded(one.base)
            fits = resolve(one, current).outcome != "conflict" if isinstance(one, SaveMemory) else current == base
            if not fits:
                raise MemoryChanged(
                    f"{name_for_people(one.name)}: says something else by now: nothing was changed, begin anew"
                )
        batch, there, steps = _new_id(), PlannedFiles(folder), list[FileChange]()
        pairs = list(zip(change.changes, change.stamps(stamp, batch), strict=True))
        for one, stamped in sorted(pairs, key=lambda pair: not isinstance(pair[0], SaveMemory)):
            step, _ = self._planned(there, one, stamped, mode)
            if step is not None:
                there.takes(step)
                steps.append(step)
        self._together(folder, steps)
        return WriteResult(outcome="written" if steps else "unchanged", name=change.name, digest=None, entry=batch)

    def _planned(
        self, there: PlannedFiles, change: SaveMemory | DeleteMemory | RenameMemory, stamp: Stamp, mode: str
    ) -> tuple[FileChange | None, WriteResult]:
        """What to do for a change, when anything is, and what will have come of it. Everything is checked here."""
        for name in (change.name, getattr(change, "to", change.name)):
            parts_of(name, MEMORY_NAMES)
        current = there.bytes(change.name)
        entry = MemoryLogEntry(id=_new_id(), action="save", name=change.name, stamp=stamp, mode=mode)
        if isinstance(change, SaveMemory):
            return self._saved(there, change, current, entry)
        if current is None:
            raise FileMissing(f"{name_for_people(change.name)}: there is no such memory")
        if current != encoded(change.base):
            raise MemoryChanged(f"{name_for_people(change.name)}: says something else by now: read it again")
        if isinstance(change, RenameMemory):
            return _moved(there, msgspec.structs.replace(entry, action="rename", to=change.to), current)
        return _write_step(msgspec.structs.replace(entry, action="delete", outcome="deleted"), current, None)

    def _saved(
        self, there: PlannedFiles, change: SaveMemory, current: bytes | None, entry: MemoryLogEntry
    ) -> tuple[FileChange | None, WriteResult]:
        done = resolve(change, current)
        size = len(done.data)
        if size > MOST_FILE_BYTES:
            raise FileTooLarge(
                f"{name_for_people(change.name)}: would have {size:,} bytes, at most {MOST_FILE_BYTES:,} are kept"
            )
        if done.outcome == "unchanged":
            return None, WriteResult(outcome="unchanged", name=done.name, digest=digest_of(done.data))
        entry = msgspec.structs.replace(entry, name=done.name, outcome=done.outcome)
        if done.outcome != "conflict":
            return _write_step(entry, done.expects, done.data)
        step = None
        if there.bytes(done.name) is None:
            step, _ = _write_step(msgspec.structs.replace(entry, wanted=change.name), None, done.data)
        digest = None if current is None else digest_of(current)
        return step, WriteResult(outcome="conflict", name=change.name, digest=digest, entry=entry.id, beside=done.name)

    def _do(self, folder: OpenedFolder, step: FileChange) -> None:
        """The log is written, and then the file; what stood there is kept already."""
        entry = step.entry
        self._log(folder, entry)
        if entry.action == "rename":
            folder.rename(entry.name, entry.to, is_durable=self.is_durable)
        elif step.after is not None:
            folder.write(entry.name, step.after, is_new=step.before is None, is_durable=self.is_durable)
        elif step.before is not None:
            folder.remove(entry.name, is_durable=self.is_durable)

    def _together(self, folder: OpenedFolder, steps: Sequence[FileChange]) -> None:
        """All steps, or none: what stood there is kept and the plan written before the first. Its removal commits."""
        for step in steps:
            self._keep(folder, step)
        if not steps:
            return
        plan = msgspec.json.encode([step.entry for step in steps])
        try:
            folder.write(BATCH, plan, is_durable=self.is_durable)
            for step in steps:
                self._do(folder, step)
            folder.remove(BATCH, is_durable=self.is_durable)
        except BaseException:
            with suppress(FileRefused):  # on a disk that fails whoever opens the directory next tries again
                self._take_back(folder)
            raise

    def _take_back(self, folder: OpenedFolder) -> None:
        """Undo what was done of a batch that was cut short, last first; the log says so. May be cut short itself."""
        data = _bytes(folder, BATCH)
        if data is None:
            return
        try:
            plan = msgspec.json.decode(data, type=list[MemoryLogEntry])
        except msgspec.MsgspecError:  # damaged: nobody knows what it was, and it must not close the directory
            folder.rename(BATCH, f"{BATCH}.damaged-{_new_id()}", is_durable=self.is_durable)
            return
        logged = {entry.id for entry in self._history(folder)}
        void = {entry.of for entry in self._history(folder) if entry.action == "void"}
        for entry in reversed(plan):
            self._restore(folder, entry)
            if entry.id in logged - void:
                self._void(folder, entry)
        folder.remove(BATCH, is_durable=self.is_durable)

    def _restore(self, folder: OpenedFolder, entry: MemoryLogEntry) -> None:
        """What stood there before an entry, where it says what the entry left; what somebody wrote since stays."""
        if entry.action == "rename":
            if folder.stat(entry.name) is None and _digest(_bytes(folder, entry.to)) == entry.after:
                folder.rename(entry.to, entry.name, is_durable=self.is_durable)
            return
        now = _bytes(folder, entry.name)
        if entry.before == entry.after or _digest(now) != entry.after:
            return
        if entry.before is None:
            folder.remove(entry.name, is_durable=self.is_durable)
            return
        before = _bytes(folder, f"{BEFORE}/{entry.before}")
        if before is not None:
            folder.write(entry.name, before, is_new=now is None, is_durable=self.is_durable)

    def _void(self, folder: OpenedFolder, entry: MemoryLogEntry) -> None:
        self._log(
            folder,
            MemoryLogEntry(
                id=_new_id(), action="void", name=entry.name, stamp=entry.stamp, mode=entry.mode, of=entry.id
            ),
        )

    def _keep(self, folder: OpenedFolder, step: FileChange) -> None:
        """The bytes that a step takes away."""
        data, digest = step.before, step.entry.before
        if data is None or digest is None or step.entry.action == "rename":
            return
        if folder.stat(IGNORED) is None:
            folder.write(IGNORED, b"*\n", is_durable=self.is_durable)
        if folder.stat(f"{BEFORE}/{digest}") is None:
            folder.write(f"{BEFORE}/{digest}", data, is_durable=self.is_durable)

    # --- the log ----------------------------------------------------------------------------------------------------

    def _log(self, folder: OpenedFolder, entry: MemoryLogEntry) -> None:
        last = self._tail(folder)
        torn = b"\n" if last and not last.endswith(b"\n") else b""
        folder.append(AUDIT, torn + msgspec.json.encode(entry) + b"\n", is_durable=self.is_durable)

    def _tail(self, folder: OpenedFolder) -> bytes:
        about = folder.stat(AUDIT)
        if about is None:
            return b""
        return folder.read(AUDIT, limit_bytes=_TAIL_BYTES, offset=max(0, about.bytes - _TAIL_BYTES))

    def _mend(self, folder: OpenedFolder) -> None:
        """A crash between the log and the file: the last entry didn't happen, and the log says so."""
        lines = [line for line in self._tail(folder).split(b"\n") if line]
        last = _entry(lines[-1]) if lines else None
        if last is None or last.action == "void":
            return
        there = _bytes(folder, last.name)
        digest = None if there is None else digest_of(there)
        is_done = digest == last.after if last.action != "rename" else folder.stat(last.to) is not None
        if not is_done and digest == last.before:
            self._void(folder, last)

    def _history(self, folder: OpenedFolder) -> list[MemoryLogEntry]:
        """All entries; only what was added since the last time is read. A line that can't be read is left out."""
        with self._guard:
            about = folder.stat(AUDIT)
            size, inode = (0, 0) if about is None else (about.bytes, about.version[0])
            if size < self._read_to or inode != self._inode:
                self._entries, self._read_to, self._inode = [], 0, inode
            if size > self._read_to:
                data = folder.read(AUDIT, limit_bytes=MOST_AUDIT_BYTES, offset=self._read_to)
                whole = data.rfind(b"\n") + 1
                self._entries += log_entries(data[:whole])
                self._read_to += whole
            return list(self._entries)

    def _undo(self, folder: OpenedFolder, wanted: str | None, stamp: Stamp) -> tuple[WriteResult, ...]:
        self._mend(folder)
        targets = to_undo(self._history(folder), wanted)
        if not targets:
            raise FileMissing(
                "there is nothing to undo" if wanted is None else f"{name_for_people(wanted)}: no change has this id"
            )
        there, steps, results = PlannedFiles(folder), list[FileChange](), list[WriteResult]()
        for target in targets:  # all of it can be taken back, or none of it is
            step, written = self._undoing(there, target, stamp)
            there.takes(step)
            steps.append(step)
            results.append(written)
        if len(steps) > 1:
            self._together(folder, steps)
        else:
            self._keep(folder, steps[0])
            self._do(folder, steps[0])
        return tuple(results)

    def _undoing(self, there: PlannedFiles, target: MemoryLogEntry, stamp: Stamp) -> tuple[FileChange, WriteResult]:
        new = MemoryLogEntry(id=_new_id(), action="save", name=target.name, stamp=stamp, mode="undo", of=target.id)
        current = there.bytes(target.to if target.action == "rename" else target.name)
        if _digest(current) != target.after:
            raise MemoryChanged(
                f"{name_for_people(target.to or target.name)}: was changed since: undo that first, or edit it by hand"
            )
        if target.action == "rename":
            back = msgspec.structs.replace(new, action="rename", name=target.to, to=target.name)
            return _moved(there, back, current or b"")
        if target.before is None:
            return _write_step(msgspec.structs.replace(new, action="delete", outcome="deleted"), current, None)
        before = there.bytes(f"{BEFORE}/{target.before}")
        if _digest(before) != target.before:
            raise FileMissing(f"{name_for_people(target.name)}: what it said before is no longer kept")
        return _write_step(new, current, before)

    # --- the inbox --------------------------------------------------------------------------------------------------

    def _waiting(self, folder: OpenedFolder) -> list[str]:
        names = [entry.name for entry in folder.listing(under=INBOX).entries]
        return [name[len(INBOX) + 1 : -len(".json")] for name in names if name.endswith(".json")]

    def _proposal(self, folder: OpenedFolder, proposal: str) -> MemoryProposal | None:
        try:
            data = _bytes(folder, f"{INBOX}/{proposal}.json")
            return None if data is None else msgspec.json.decode(data, type=MemoryProposal)
        except msgspec.MsgspecError:
            return None

    def _propose(self, folder: OpenedFolder, change: Change, stamp: Stamp, why: str) -> MemoryProposal:
        waiting = len(self._waiting(folder))
        if waiting >= MOST_PENDING:
            raise MemoryRefused(
                f"{waiting} changes wait in the inbox already: approve or reject some first", rule="inbox-full"
            )
        proposal = MemoryProposal(id=_new_id(), change=change, stamp=stamp, why=why)
        data = msgspec.json.encode(msgspec.structs.replace(proposal, change=_plain(change)))
        folder.write(f"{INBOX}/{proposal.id}.json", data, is_new=True, is_durable=self.is_durable)
        return proposal

    def _approve(self, folder: OpenedFolder, proposal: str) -> WriteResult:
        found = self._found(folder, proposal)
        written = self._make(folder, found.change, found.stamp, "approved")
        self._settled(folder, proposal)
        return written

    def _settled(self, folder: OpenedFolder, proposal: str) -> None:
        self._found(folder, proposal)
        folder.remove(f"{INBOX}/{proposal}.json", is_durable=self.is_durable)

    def _found(self, folder: OpenedFolder, proposal: str) -> MemoryProposal:
        found = self._proposal(folder, proposal) if proposal.isalnum() else None
        if found is None:
            raise FileMissing(f"{name_for_people(proposal)}: no change with this id waits in the inbox")
        return found


@dataclass(eq=False)
class DeferredMemories(StoredMemories):
    """A copy of a directory, in which changes wait for `commit`; what is no change is asked of the original."""

    of: StoredMemories = field(kw_only=True)
    _waits: list[Callable[[], Awaitable[object]]] = field(default_factory=list, init=False)

    async def write(self, change: Change, stamp: Stamp, *, mode: str) -> WriteResult:
        done = await super().write(change, stamp, mode=mode)
        self._waits.append(lambda: self.of.write(change, stamp, mode=mode))
        return done

    async def propose(self, change: Change, stamp: Stamp, why: str) -> MemoryProposal:
        made = await super().propose(change, stamp, why)
        self._waits.append(lambda: self.of.propose(change, stamp, why))
        return made

    async def done(self, now: float) -> None:
        self._waits.append(lambda: self.of.done(now))

    async def undo(self, entry: str | None, stamp: Stamp) -> tuple[WriteResult, ...]:
        return await self.of.undo(entry, stamp)

    async def approve(self, proposal: str) -> WriteResult:
        return await self.of.approve(proposal)

    async def reject(self, proposal: str) -> None:
        await self.of.reject(proposal)

    async def is_due(self, session: str, now: float, *, seconds: float, sessions: int) -> bool:
        return await self.of.is_due(session, now, seconds=seconds, sessions=sessions)

    def alone(self) -> AbstractAsyncContextManager[None]:
        return self.of.alone()

    async def commit(self) -> None:
        """Make the changes in the original, in their order, as it is by now."""
        for change in self._waits:
            await change()
        self._waits.clear()


def _bytes(folder: OpenedFolder, name: str) -> bytes | None:
    """What stands there; None when nothing does."""
    try:
        return folder.read(name, limit_bytes=MOST_FILE_BYTES)
    except FileMissing:
        return None


def log_entries(data: bytes) -> list[MemoryLogEntry]:
    """The entries of a log. A line that can't be read is left out."""
    return [entry for line in data.split(b"\n") if (entry := _entry(line)) is not None]


def _entry(line: bytes) -> MemoryLogEntry | None:
    try:
        return msgspec.json.decode(line, type=MemoryLogEntry) if line else None
    except msgspec.MsgspecError:
        return None


def _last_upkeep(folder: OpenedFolder) -> _UpkeepRecord | None:
    """A record that is damaged counts as none."""
    data = _bytes(folder, UPKEEP)
    try:
        return None if data is None else msgspec.json.decode(data, type=_UpkeepRecord)
    except msgspec.MsgspecError:
        return None


def _digest(data: bytes | None) -> str | None:
    return None if data is None else digest_of(data)


def _write_step(entry: MemoryLogEntry, before: bytes | None, after: bytes | None) -> tuple[FileChange, WriteResult]:
    entry = msgspec.structs.replace(entry, before=_digest(before), after=_digest(after))
    written = WriteResult(outcome=entry.outcome, name=entry.name, digest=entry.after, entry=entry.id)
    return FileChange(entry, before, after), written


def _moved(there: PlannedFiles, entry: MemoryLogEntry, data: bytes) -> tuple[FileChange, WriteResult]:
    if there.has(entry.to):
        raise NameTaken(f"{name_for_people(entry.to)}: there is such a memory already")
    digest = digest_of(data)
    entry = msgspec.structs.replace(entry, outcome="renamed", before=digest, after=digest)
    return FileChange(entry, data, data), WriteResult(outcome="renamed", name=entry.to, digest=digest, entry=entry.id)


def _plain(change: Change) -> Change:
    """As JSON can hold it: without halves of surrogate pairs."""
    if isinstance(change, MemoryBatch):
        return msgspec.structs.replace(change, changes=tuple(_plain(one) for one in change.changes))
    if not isinstance(change, SaveMemory):
        return change
    return msgspec.structs.replace(change, text=change.text.encode("utf-8", "replace").decode())


def _new_id() -> str:
    return secrets.token_hex(6)
