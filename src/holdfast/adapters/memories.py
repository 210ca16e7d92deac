"""A memory directory as `ports.Memories`, `MemoryLog` and `MemoryInbox`, over files or held here (MEM-8 to MEM-10).

    <directory>/MEMORY.md, *.md …         what people and models read and write
    <directory>/.holdfast/audit.jsonl     every change: written before the change itself, never rewritten
    <directory>/.holdfast/before/<digest> what stood there before, for undo
    <directory>/.holdfast/inbox/<id>.json changes that wait for a person
    <directory>/.holdfast/batch.json      changes that are being made together: all of them, or none
    <directory>/.holdfast/lock            one writer at a time, for the moment of a write

The log is beside the files and not in them, so an existing directory stays as it is. Readers need no lock, unless a
batch was cut short: whoever comes next, reader or writer, takes back what was done of it, and the log says so.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import anyio.to_thread
import msgspec

from holdfast.adapters.files.plain import Entry as FileEntry
from holdfast.adapters.memory_box import NOTHING, Box, Opened, bytes_of
from holdfast.errors import FileMissing, FileRefused, FileTooLarge, MemoryChanged, MemoryRefused, NameTaken
from holdfast.memory.changes import (
    Batch,
    Change,
    Delete,
    Entry,
    Proposal,
    Provenance,
    Rename,
    Save,
    Stamp,
    Written,
    decoded,
    digest_of,
    encoded,
    last_to_undo,
    provenance,
    resolve,
    to_undo,
)
from holdfast.memory.names import MEMORY, parts_of, shown
from holdfast.ports import MemoryFile, MemoryListing, MemoryStat

STATE = ".holdfast"
AUDIT, LOCK = f"{STATE}/audit.jsonl", f"{STATE}/lock"
BEFORE, INBOX = f"{STATE}/before", f"{STATE}/inbox"
IGNORED = f"{STATE}/.gitignore"
BATCH = f"{STATE}/batch.json"
MOST_FILE_BYTES = 4 << 20  # as instruction files (INS-5)
MOST_AUDIT_BYTES = 256 << 20
MOST_PENDING = 200
LOCK_SECONDS = 30.0
_TAIL_BYTES = 16 << 10
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Step:
    """One file becomes something else, or gets another name: its line of the log, and its bytes before and after."""

    entry: Entry
    before: bytes | None
    after: bytes | None


@dataclass(slots=True)
class There:
    """What stands in the files, or will once the steps so far are done."""

    box: Box
    ahead: dict[str, bytes | None] = field(default_factory=dict)

    def bytes(self, name: str) -> bytes | None:
        return self.ahead[name] if name in self.ahead else _bytes(self.box, name)

    def has(self, name: str) -> bool:
        return self.ahead[name] is not None if name in self.ahead else self.box.stat(name) is not None

    def takes(self, step: Step) -> None:
        if step.entry.action == "rename":
            self.ahead |= {step.entry.name: None, step.entry.to: step.after}
        else:
            self.ahead[step.entry.name] = step.after


class StoredMemories:
    """One memory directory. Any number of these, in any number of processes, may share it."""

    def __init__(self, opened: Opened, *, is_durable: bool = True) -> None:
        self._opened, self._is_durable = opened, is_durable
        self._digests: dict[str, tuple[object, str]] = {}
        self._entries: list[Entry] = []
        self._read_to = self._inode = 0
        self._guard = threading.Lock()

    # --- the ports --------------------------------------------------------------------------------------------------

    async def listing(self) -> MemoryListing:
        return await self._in_thread(self._list)

    async def read(self, name: str) -> MemoryFile | None:
        return await self._in_thread(partial(self._read, name))

    async def write(self, change: Change, stamp: Stamp, *, mode: str) -> Written:
        return await self._locked(lambda box: self._make(box, change, stamp, mode))

    async def entries(self, *, limit: int = 50, name: str | None = None) -> tuple[Entry, ...]:
        def wanted(box: Box) -> tuple[Entry, ...]:
            every = [e for e in self._history(box) if name is None or name in (e.name, e.to, e.wanted)]
            return tuple(reversed(every[-limit:] if limit > 0 else []))

        return await self._in_thread(wanted)

    async def provenance(self) -> Mapping[str, Provenance]:
        return await self._in_thread(lambda box: provenance(self._history(box)))

    async def undo(self, entry: str | None, stamp: Stamp) -> Written:
        return await self._locked(lambda box: self._undo(box, entry, stamp))

    async def pending(self) -> tuple[Proposal, ...]:
        found = await self._in_thread(lambda box: [self._proposal(box, one) for one in self._waiting(box)])
        return tuple(sorted((p for p in found if p is not None), key=lambda p: (p.stamp.at, p.id)))

    async def propose(self, change: Change, stamp: Stamp, why: str) -> Proposal:
        return await self._locked(lambda box: self._propose(box, change, stamp, why))

    async def approve(self, proposal: str) -> Written:
        return await self._locked(lambda box: self._approve(box, proposal))

    async def reject(self, proposal: str) -> None:
        await self._locked(lambda box: self._settled(box, proposal))

    # --- reading ----------------------------------------------------------------------------------------------------

    async def _in_thread(self, do: Callable[[Box], T]) -> T:
        """Without a lock; a directory that isn't there is an empty one."""

        def run() -> T:
            try:
                with self._opened(False) as box:
                    if box.stat(BATCH) is not None:
                        with suppress(FileRefused), box.lock(LOCK, seconds=LOCK_SECONDS):  # where it may be written
                            self._take_back(box)
                    return do(box)
            except FileMissing:
                return do(NOTHING)

        return await anyio.to_thread.run_sync(run)

    async def _locked(self, do: Callable[[Box], T]) -> T:
        def run() -> T:
            with self._opened(True) as box, box.lock(LOCK, seconds=LOCK_SECONDS):
                self._take_back(box)
                return do(box)

        return await anyio.to_thread.run_sync(run)

    def _list(self, box: Box) -> MemoryListing:
        listed = box.listing()
        digests = [(entry, self._digest_of(box, entry)) for entry in listed.entries]
        files = tuple(MemoryStat(e.name, e.bytes, e.mtime_ns / 1e9, digest) for e, digest in digests if digest)
        self._digests = {file.name: self._digests[file.name] for file in files}
        return MemoryListing(files, listed.refused, listed.is_cut)

    def _digest_of(self, box: Box, entry: FileEntry) -> str | None:
        """Of the content, read again only when it may have changed."""
        known = self._digests.get(entry.name)
        if known is None or known[0] != entry.version:
            try:
                known = (entry.version, digest_of(box.read(entry.name, limit_bytes=MOST_FILE_BYTES)))
            except FileRefused:  # gone, or became something else, since it was listed
                return None
            self._digests[entry.name] = known
        return known[1]

    def _read(self, name: str, box: Box) -> MemoryFile | None:
        parts_of(name, MEMORY)  # our own state isn't a memory
        data = _bytes(box, name)
        return None if data is None else MemoryFile(name, decoded(data), digest_of(data))

    # --- writing, under the lock ------------------------------------------------------------------------------------

    def _make(self, box: Box, change: Change, stamp: Stamp, mode: str) -> Written:
        parts_of(change.name, MEMORY)
        self._mend(box)
        if isinstance(change, Batch):
            return self._make_all(box, change, stamp, mode)
        step, written = self._planned(There(box), change, stamp, mode)
        if step is not None:
            self._keep(box, step)
            self._do(box, step)
        return written

    def _make_all(self, box: Box, change: Batch, stamp: Stamp, mode: str) -> Written:
        """All of them, when all still fit and can be done. What adds comes before what takes away."""
        for one in change.changes:
            parts_of(one.name, MEMORY)
            current = _bytes(box, one.name)
            base = None if one.base is None else encoded(one.base)
            fits = resolve(one, current).outcome != "conflict" if isinstance(one, Save) else current == base
            if not fits:
                raise MemoryChanged(f"{shown(one.name)}: says something else by now: nothing was changed, begin anew")
        batch, there, steps = _new_id(), There(box), list[Step]()
        pairs = list(zip(change.changes, change.stamps(stamp, batch), strict=True))
        for one, stamped in sorted(pairs, key=lambda pair: not isinstance(pair[0], Save)):
            step, _ = self._planned(there, one, stamped, mode)
            if step is not None:
                there.takes(step)
                steps.append(step)
        self._together(box, steps)
        return Written(outcome="written" if steps else "unchanged", name=change.name, digest=None, entry=batch)

    def _planned(
        self, there: There, change: Save | Delete | Rename, stamp: Stamp, mode: str
    ) -> tuple[Step | None, Written]:
        """What to do for a change, when anything is, and what will have come of it. Everything is checked here."""
        for name in (change.name, getattr(change, "to", change.name)):
            parts_of(name, MEMORY)
        current = there.bytes(change.name)
        entry = Entry(id=_new_id(), action="save", name=change.name, stamp=stamp, mode=mode)
        if isinstance(change, Save):
            return self._saved(there, change, current, entry)
        if current is None:
            raise FileMissing(f"{shown(change.name)}: there is no such memory")
        if current != encoded(change.base):
            raise MemoryChanged(f"{shown(change.name)}: says something else by now: read it again")
        if isinstance(change, Rename):
            return _moved(there, msgspec.structs.replace(entry, action="rename", to=change.to), current)
        return _put(msgspec.structs.replace(entry, action="delete", outcome="deleted"), current, None)

    def _saved(self, there: There, change: Save, current: bytes | None, entry: Entry) -> tuple[Step | None, Written]:
        done = resolve(change, current)
        size = len(done.data)
        if size > MOST_FILE_BYTES:
            raise FileTooLarge(f"{shown(change.name)}: would have {size:,} bytes, at most {MOST_FILE_BYTES:,} are kept")
        if done.outcome == "unchanged":
            return None, Written(outcome="unchanged", name=done.name, digest=digest_of(done.data))
        entry = msgspec.structs.replace(entry, name=done.name, outcome=done.outcome)
        if done.outcome != "conflict":
            return _put(entry, done.expects, done.data)
        step = None
        if there.bytes(done.name) is None:
            step, _ = _put(msgspec.structs.replace(entry, wanted=change.name), None, done.data)
        digest = None if current is None else digest_of(current)
        return step, Written(outcome="conflict", name=change.name, digest=digest, entry=entry.id, beside=done.name)

    def _do(self, box: Box, step: Step) -> None:
        """The log is written, and then the file; what stood there is kept already."""
        entry = step.entry
        self._log(box, entry)
        if entry.action == "rename":
            box.rename(entry.name, entry.to, is_durable=self._is_durable)
        elif step.after is not None:
            box.write(entry.name, step.after, is_new=step.before is None, is_durable=self._is_durable)
        elif step.before is not None:
            box.remove(entry.name, is_durable=self._is_durable)

    def _together(self, box: Box, steps: Sequence[Step]) -> None:
        """All steps, or none: what stood there is kept and the plan written before the first. Its removal commits."""
        for step in steps:
            self._keep(box, step)
        if not steps:
            return
        plan = msgspec.json.encode([step.entry for step in steps])
        try:
            box.write(BATCH, plan, is_durable=self._is_durable)
            for step in steps:
                self._do(box, step)
            box.remove(BATCH, is_durable=self._is_durable)
        except BaseException:
            with suppress(FileRefused):  # on a disk that fails whoever opens the directory next tries again
                self._take_back(box)
            raise

    def _take_back(self, box: Box) -> None:
        """Undo what was done of a batch that was cut short, last first; the log says so. May be cut short itself."""
        data = _bytes(box, BATCH)
        if data is None:
            return
        try:
            plan = msgspec.json.decode(data, type=list[Entry])
        except msgspec.MsgspecError:  # damaged: nobody knows what it was, and it must not close the directory
            box.rename(BATCH, f"{BATCH}.damaged-{_new_id()}", is_durable=self._is_durable)
            return
        logged = {entry.id for entry in self._history(box)}
        void = {entry.of for entry in self._history(box) if entry.action == "void"}
        for entry in reversed(plan):
            self._restore(box, entry)
            if entry.id in logged - void:
                self._void(box, entry)
        box.remove(BATCH, is_durable=self._is_durable)

    def _restore(self, box: Box, entry: Entry) -> None:
        """What stood there before an entry, where it says what the entry left; what somebody wrote since stays."""
        if entry.action == "rename":
            if box.stat(entry.name) is None and _digest(_bytes(box, entry.to)) == entry.after:
                box.rename(entry.to, entry.name, is_durable=self._is_durable)
            return
        now = _bytes(box, entry.name)
        if entry.before == entry.after or _digest(now) != entry.after:
            return
        if entry.before is None:
            box.remove(entry.name, is_durable=self._is_durable)
            return
        before = _bytes(box, f"{BEFORE}/{entry.before}")
        if before is not None:
            box.write(entry.name, before, is_new=now is None, is_durable=self._is_durable)

    def _void(self, box: Box, entry: Entry) -> None:
        self._log(
            box, Entry(id=_new_id(), action="void", name=entry.name, stamp=entry.stamp, mode=entry.mode, of=entry.id)
        )

    def _keep(self, box: Box, step: Step) -> None:
        """The bytes that a step takes away."""
        data, digest = step.before, step.entry.before
        if data is None or digest is None or step.entry.action == "rename":
            return
        if box.stat(IGNORED) is None:
            box.write(IGNORED, b"*\n", is_durable=self._is_durable)
        if box.stat(f"{BEFORE}/{digest}") is None:
            box.write(f"{BEFORE}/{digest}", data, is_durable=self._is_durable)

    # --- the log ----------------------------------------------------------------------------------------------------

    def _log(self, box: Box, entry: Entry) -> None:
        last = self._tail(box)
        torn = b"\n" if last and not last.endswith(b"\n") else b""
        box.append(AUDIT, torn + msgspec.json.encode(entry) + b"\n", is_durable=self._is_durable)

    def _tail(self, box: Box) -> bytes:
        about = box.stat(AUDIT)
        if about is None:
            return b""
        return box.read(AUDIT, limit_bytes=_TAIL_BYTES, offset=max(0, about.bytes - _TAIL_BYTES))

    def _mend(self, box: Box) -> None:
        """A crash between the log and the file: the last entry didn't happen, and the log says so."""
        lines = [line for line in self._tail(box).split(b"\n") if line]
        last = _entry(lines[-1]) if lines else None
        if last is None or last.action == "void":
            return
        there = _bytes(box, last.name)
        digest = None if there is None else digest_of(there)
        is_done = digest == last.after if last.action != "rename" else box.stat(last.to) is not None
        if not is_done and digest == last.before:
            self._void(box, last)

    def _history(self, box: Box) -> list[Entry]:
        """All entries; only what was added since the last time is read. A line that can't be read is left out."""
        with self._guard:
            about = box.stat(AUDIT)
            size, inode = (0, 0) if about is None else (about.bytes, about.version[0])
            if size < self._read_to or inode != self._inode:
                self._entries, self._read_to, self._inode = [], 0, inode
            if size > self._read_to:
                data = box.read(AUDIT, limit_bytes=MOST_AUDIT_BYTES, offset=self._read_to)
                whole = data.rfind(b"\n") + 1
                self._entries += [entry for line in data[:whole].split(b"\n") if (entry := _entry(line)) is not None]
                self._read_to += whole
            return list(self._entries)

    def _undo(self, box: Box, wanted: str | None, stamp: Stamp) -> Written:
        self._mend(box)
        every = self._history(box)
        last = last_to_undo(every) if wanted is None else None
        together = to_undo(every, last.stamp.batch if last else wanted or "")
        there, steps = There(box), list[Step]()
        targets: list[str | None] = [entry.id for entry in together]
        for target in targets or [wanted]:  # all of it can be taken back, or none of it is
            step, written = self._undoing(there, every, target, stamp)
            there.takes(step)
            steps.append(step)
        if len(steps) > 1:
            self._together(box, steps)
        else:
            self._keep(box, steps[0])
            self._do(box, steps[0])
        return written

    def _undoing(self, there: There, every: list[Entry], wanted: str | None, stamp: Stamp) -> tuple[Step, Written]:
        void = {entry.of for entry in every if entry.action == "void"}
        target = last_to_undo(every) if wanted is None else next((e for e in every if e.id == wanted), None)
        if target is None or target.action == "void" or target.id in void:
            raise FileMissing(
                "there is nothing to undo" if wanted is None else f"{shown(wanted)}: no change has this id"
            )
        new = Entry(id=_new_id(), action="save", name=target.name, stamp=stamp, mode="undo", of=target.id)
        current = there.bytes(target.to if target.action == "rename" else target.name)
        if _digest(current) != target.after:
            raise MemoryChanged(
                f"{shown(target.to or target.name)}: was changed since: undo that first, or edit it by hand"
            )
        if target.action == "rename":
            back = msgspec.structs.replace(new, action="rename", name=target.to, to=target.name)
            return _moved(there, back, current or b"")
        if target.before is None:
            return _put(msgspec.structs.replace(new, action="delete", outcome="deleted"), current, None)
        before = there.bytes(f"{BEFORE}/{target.before}")
        if _digest(before) != target.before:
            raise FileMissing(f"{shown(target.name)}: what it said before is no longer kept")
        return _put(new, current, before)

    # --- the inbox --------------------------------------------------------------------------------------------------

    def _waiting(self, box: Box) -> list[str]:
        names = [entry.name for entry in box.listing(under=INBOX).entries]
        return [name[len(INBOX) + 1 : -len(".json")] for name in names if name.endswith(".json")]

    def _proposal(self, box: Box, proposal: str) -> Proposal | None:
        try:
            data = _bytes(box, f"{INBOX}/{proposal}.json")
            return None if data is None else msgspec.json.decode(data, type=Proposal)
        except msgspec.MsgspecError:
            return None

    def _propose(self, box: Box, change: Change, stamp: Stamp, why: str) -> Proposal:
        waiting = len(self._waiting(box))
        if waiting >= MOST_PENDING:
            raise MemoryRefused(
                f"{waiting} changes wait in the inbox already: approve or reject some first", rule="inbox-full"
            )
        proposal = Proposal(id=_new_id(), change=change, stamp=stamp, why=why)
        data = msgspec.json.encode(msgspec.structs.replace(proposal, change=_plain(change)))
        box.write(f"{INBOX}/{proposal.id}.json", data, is_new=True, is_durable=self._is_durable)
        return proposal

    def _approve(self, box: Box, proposal: str) -> Written:
        found = self._found(box, proposal)
        written = self._make(box, found.change, found.stamp, "approved")
        self._settled(box, proposal)
        return written

    def _settled(self, box: Box, proposal: str) -> None:
        self._found(box, proposal)
        box.remove(f"{INBOX}/{proposal}.json", is_durable=self._is_durable)

    def _found(self, box: Box, proposal: str) -> Proposal:
        found = self._proposal(box, proposal) if proposal.isalnum() else None
        if found is None:
            raise FileMissing(f"{shown(proposal)}: no change with this id waits in the inbox")
        return found


def _bytes(box: Box, name: str) -> bytes | None:
    return bytes_of(box, name, MOST_FILE_BYTES)


def _entry(line: bytes) -> Entry | None:
    try:
        return msgspec.json.decode(line, type=Entry) if line else None
    except msgspec.MsgspecError:
        return None


def _digest(data: bytes | None) -> str | None:
    return None if data is None else digest_of(data)


def _put(entry: Entry, before: bytes | None, after: bytes | None) -> tuple[Step, Written]:
    entry = msgspec.structs.replace(entry, before=_digest(before), after=_digest(after))
    written = Written(outcome=entry.outcome, name=entry.name, digest=entry.after, entry=entry.id)
    return Step(entry, before, after), written


def _moved(there: There, entry: Entry, data: bytes) -> tuple[Step, Written]:
    if there.has(entry.to):
        raise NameTaken(f"{shown(entry.to)}: there is such a memory already")
    digest = digest_of(data)
    entry = msgspec.structs.replace(entry, outcome="renamed", before=digest, after=digest)
    return Step(entry, data, data), Written(outcome="renamed", name=entry.to, digest=digest, entry=entry.id)


def _plain(change: Change) -> Change:
    """As JSON can hold it: without halves of surrogate pairs."""
    if isinstance(change, Batch):
        return msgspec.structs.replace(change, changes=tuple(_plain(one) for one in change.changes))
    if not isinstance(change, Save):
        return change
    return msgspec.structs.replace(change, text=change.text.encode("utf-8", "replace").decode())


def _new_id() -> str:
    return secrets.token_hex(6)
