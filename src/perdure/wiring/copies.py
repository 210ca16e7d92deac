"""Everything that one store keeps, copied into another: verified, and again from where it ended (SCL-1).

The source is only read. Each session appears in the target whole, after it was read back and compared; a second run
takes what is missing.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from perdure.adapters.journal.journal import sealed_line
from perdure.adapters.journal.reading import LINE_NUMBER
from perdure.adapters.journal.store import copy_records
from perdure.adapters.memory.store import AUDIT
from perdure.errors import DamagedLine, JournalError, PerdureError
from perdure.ports.contents import DOCUMENT_KINDS, HomeContents, JournalEnd, SessionContents, SessionWriting
from perdure.ports.home import HomeBlobs, Store
from perdure.ports.session import Receipt
from perdure.transcript.codec import VERSION, decode_header, encode_header, unseal
from perdure.transcript.messages import BlobId
from perdure.transcript.records import Record, Repaired
from perdure.wiring.stores import contents_of

_BLOB_BYTES: Final = 8 * 1024 * 1024  # that are put in one go
_GROUP_LINES: Final = 500  # that are made from a damaged journal and written in one go

Outcome = Literal["copied", "continued", "unchanged", "refused", "failed"]


@dataclass(frozen=True, slots=True)
class CopiedSession:
    """What became of a session. `lines`, `bytes` and `blobs` were written; `said` is what a person has to know.

    `is_damaged`: something of it can't be read, so that the target can't have all of it.
    """

    tenant: str
    session: str
    outcome: Outcome
    lines: int = 0
    bytes: int = 0
    blobs: int = 0
    said: tuple[str, ...] = ()
    is_damaged: bool = False


@dataclass(slots=True)
class CopySums:
    """What a run did.

    `beside` counts what was copied that is no session, and `stays` what only the source's kind of store can keep, both
    in words. `wrong` is what went wrong with anything but sessions, and `notes` what else is to be known.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    lines: int = 0
    bytes: int = 0
    blobs: int = 0
    damaged: int = 0
    beside: Counter[str] = field(default_factory=Counter)
    stays: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether the target has all of the source that it can have."""
        return not (self.outcomes["refused"] or self.outcomes["failed"] or self.damaged or self.wrong)


class StoreCopy:
    """One run.

    Args:
        source: What is copied.
        target: Where to.
        sums: What is done is added to it at once, so that they are right when a run is broken off.
        is_dry: Only look what there is to do.
        verifies: Also compare the sessions that look the same, line by line and blob by blob.
        on_session: Hears of each session when it is done.
        on_progress: Hears how many bytes of journals are done, of how many, and of the session that is next.
    """

    def __init__(
        self,
        source: Store,
        target: Store,
        sums: CopySums,
        *,
        is_dry: bool = False,
        verifies: bool = False,
        on_session: Callable[[CopiedSession], None],
        on_progress: Callable[[int, int, str], None],
    ) -> None:
        self._source, self._target = source, target
        self._is_dry, self._verifies = is_dry, verifies
        self._on_session, self._on_progress = on_session, on_progress
        self.sums = sums

    async def run(self, tenants: Sequence[str]) -> None:
        """Copy the homes of these tenants, one after the other.

        Raises:
            JournalError: One of the stores can't be used any more.
        """
        for tenant in tenants:
            try:
                source, target = contents_of(self._source.home(tenant)), contents_of(self._target.home(tenant))
            except JournalError as e:  # a name that isn't one there
                self.sums.wrong.append(str(e))
                continue
            try:
                await self._copy_beside(tenant, source, target)
                await self._copy_sessions(tenant, source, target)
                self.sums.stays.update(await source.only_here())
            finally:
                await target.home.links.close()

    # --- sessions

    async def _copy_sessions(self, tenant: str, source: HomeContents, target: HomeContents) -> None:
        """The oldest first: of sessions that begin alike, the one that was there first is found by the beginning."""
        there = {end.session: end async for end in target.ends()}
        ends = sorted([end async for end in source.ends()], key=lambda end: (end.modified, end.session))
        done, all_bytes, seen = 0, sum(end.size for end in ends), set[str]()
        for end in ends:
            self._on_progress(done, all_bytes, end.session)
            done += end.size
            if end.session in seen:
                why = "another project has a session of this id, and in the target there can be only one"
                copied = CopiedSession(tenant, end.session, "refused", said=(why,))
            else:
                copied = await self._copied(tenant, end, there.get(end.session), source, target)
            seen.add(end.session)
            self.sums.outcomes[copied.outcome] += 1
            self.sums.lines += copied.lines
            self.sums.bytes += copied.bytes
            self.sums.blobs += copied.blobs
            self.sums.damaged += copied.is_damaged
            self._on_session(copied)

    async def _copied(
        self, tenant: str, end: JournalEnd, there: JournalEnd | None, source: HomeContents, target: HomeContents
    ) -> CopiedSession:
        """One session; what is wrong with it stops no other."""
        if there is not None and (there.size, there.last) == (end.size, end.last) and not self._verifies:
            return CopiedSession(tenant, end.session, "unchanged")
        one = _OneSession(
            tenant, end, source, target, is_there=there is not None, is_dry=self._is_dry, verifies=self._verifies
        )
        try:
            return await one.copied()
        except PerdureError as e:
            if not (is_refused := isinstance(e, _OtherSessionError)):
                await self._check_stores()
            outcome: Outcome = "refused" if is_refused else "failed"
            return CopiedSession(tenant, end.session, outcome, said=(*one.said, str(e)), is_damaged=one.is_damaged)

    async def _check_stores(self) -> None:
        """Raise where a store can't be used any more: then there is no use in going on."""
        await self._source.tenants()
        await self._target.tenants()

    # --- what stands beside them

    async def _copy_beside(self, tenant: str, source: HomeContents, target: HomeContents) -> None:
        try:
            await self._copy_key(source, target)
            theirs = await target.learned()
            new = {model: ratio for model, ratio in (await source.learned()).items() if model not in theirs}
            self.sums.beside["calibrations"] += len(new)
            if new and not self._is_dry:
                await target.keep_learned(new)
            for kind in DOCUMENT_KINDS:
                await self._copy_documents(kind, source, target)
            there = frozenset(await target.home.blobs.ids())
            missing = [blob for blob in await source.home.blobs.ids() if blob not in there]
            self.sums.beside["blobs of no session"] += len(missing)
            if not self._is_dry:
                self.sums.wrong += await _copy_blobs(missing, source.home.blobs, target.home.blobs)
            for place in await source.memories():
                try:
                    await self._copy_memories(place, source, target)
                except PerdureError as e:
                    await self._check_stores()
                    self.sums.wrong.append(str(e))
            await self._copy_work(tenant)
        except PerdureError as e:
            await self._check_stores()
            self.sums.wrong.append(str(e))

    async def _copy_key(self, source: HomeContents, target: HomeContents) -> None:
        key, theirs = await source.key(), await target.key()
        if key and theirs and theirs != key:
            self.sums.notes.append(f"{target.home.name} has a secret key of its own, which stays")
        elif key and not theirs:
            self.sums.beside["secret keys"] += 1
            if not self._is_dry and await target.keep_key(key) != key:
                raise JournalError(f"{target.home.name}: the secret key can't be kept")

    async def _copy_documents(self, kind: str, source: HomeContents, target: HomeContents) -> None:
        """Those that the target doesn't have, or has as they were before."""
        theirs = await target.documents(kind)
        for name, (modified, digest) in (await source.documents(kind)).items():
            there = theirs.get(name)
            if there is not None and (there[1] == digest or there[0] >= modified):
                continue
            self.sums.beside["documents"] += 1
            if not self._is_dry and (data := await source.document(kind, name)) is not None:
                await target.keep_document(kind, name, data, modified)
                if await target.document(kind, name) != data:
                    raise JournalError(f"{target.home.name}: the document {kind}/{name} reads back otherwise")

    async def _copy_memories(self, place: str, source: HomeContents, target: HomeContents) -> None:
        """A directory of memories, with its log: that says which of the two went on from the other."""
        ours, theirs = await source.memory_files(place), await target.memory_files(place)
        ours_log, theirs_log = (files.get(AUDIT, (b"", 0.0))[0] for files in (ours, theirs))
        is_part = all(name in ours and ours[name][0] == data for name, (data, _) in theirs.items())
        if not ours or (is_part and len(ours) == len(theirs)):
            return
        if is_part or (ours_log != theirs_log and ours_log.startswith(theirs_log)):
            self.sums.beside["directories of memories"] += 1
            if not self._is_dry:
                await target.keep_memories(place, ours, instead_of=theirs)
                written = await target.memory_files(place)
                if {name: data for name, (data, _) in written.items()} != {name: ours[name][0] for name in ours}:
                    raise JournalError(f"{target.home.name}: the memories at {place} read back otherwise")
        elif ours_log == theirs_log or not theirs_log.startswith(ours_log):
            self.sums.wrong.append(f"{target.home.name}: the memories at {place} are others, and stay as they are")

    async def _copy_work(self, tenant: str) -> None:
        """What is still to be done. Also what was given up: it is tried again there."""
        theirs = {(one.session, one.kind): one.want for one in await self._target.work.wanted(tenant)}
        for one in await self._source.work.wanted(tenant):
            if theirs.get((one.session, one.kind), 0) < one.want:
                self.sums.beside["pieces of background work"] += 1
                if not self._is_dry:
                    await self._target.work.want(tenant, one.session, one.kind, one.want)


class _OtherSessionError(JournalError):
    """The session of the target isn't the beginning of that of the source."""


class _OneSession:
    """The copy of one session. `said` and `is_damaged` are as `CopiedSession` has them, also when it failed."""

    def __init__(
        self,
        tenant: str,
        end: JournalEnd,
        source: HomeContents,
        target: HomeContents,
        *,
        is_there: bool,
        is_dry: bool,
        verifies: bool,
    ) -> None:
        self._tenant, self._end, self._session = tenant, end, end.session
        self._source, self._target = source, target
        self._is_there, self._is_dry, self._verifies = is_there, is_dry, verifies
        self.said: list[str] = []
        self.is_damaged = False

    async def copied(self) -> CopiedSession:
        """Copy it. Raises a `PerdureError` where that can't be done; nothing of it was kept then."""
        of = await self._source.session(self._session)
        try:
            return await self._written(of, self._whole_lines(of))
        except DamagedLine as e:
            self.said = [f"its journal is damaged ({e}): what can be read of it counts"]
            self.is_damaged = True
            return await self._written(of, self._readable_lines(str(e)))

    async def _written(self, of: SessionContents, groups: AsyncGenerator[Sequence[bytes], None]) -> CopiedSession:
        """Compare the lines with what is there, write those that follow, read it all back, and let others see it."""
        digest, header, kept, lines, size, blobs = hashlib.sha256(), b"", 0, 0, 0, 0
        writing: SessionWriting | None = None
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(aclosing(groups))
            theirs = await stack.enter_async_context(aclosing(self._lines_there()))
            expected = await anext(theirs, None)
            async for group in groups:
                new: list[bytes] = []
                for line in group:
                    digest.update(line)
                    header = header or line
                    if expected is None:
                        new.append(line)
                    elif line == expected:
                        kept += len(line)
                        expected = await anext(theirs, None)
                    else:
                        async for _ in groups:  # if this one is damaged, it is to be compared as it was copied then
                            pass
                        raise _OtherSessionError("the target has another session of this id, which stays as it is")
                lines, size = lines + len(new), size + sum(map(len, new))
                if self._is_dry or not new:
                    continue
                if writing is None:
                    writing = await stack.enter_async_context(self._writing(header, kept))
                    new = new[0 if kept else 1 :]
                if new:
                    await writing.append(new)
            if writing is None and (self._verifies or (self._is_dry and lines)):
                there = (await self._target.session(self._session)).blobs if self._is_there else None
                missing = await self._missing_blobs(of, there)
                if self._is_dry:
                    blobs = len(missing)
                elif missing:
                    writing = await stack.enter_async_context(self._writing(header, kept))
            if writing is not None:
                blobs = await self._write_beside(of, writing)
                back = hashlib.sha256()
                async for group in writing.lines():
                    for line in group:
                        back.update(line)
                if back.digest() != digest.digest():
                    raise JournalError("it reads back otherwise than it was written, so nothing of it is kept")
                if await of.is_held():
                    self.said.append("it is open for writing: run this again for what comes after")
        changed: Outcome = "continued" if self._is_there else "copied"
        outcome: Outcome = changed if lines or blobs else "unchanged"
        said = tuple(self.said)
        return CopiedSession(self._tenant, self._session, outcome, lines, size, blobs, said, self.is_damaged)

    def _writing(self, header: bytes, kept: int) -> AbstractAsyncContextManager[SessionWriting]:
        return self._target.writing(self._session, header, kept=kept, modified=self._end.modified)

    async def _write_beside(self, of: SessionContents, writing: SessionWriting) -> int:
        """Its blobs and notes, which are read after the lines: what these name is there."""
        missing = await self._missing_blobs(of, writing.blobs if self._is_there else None)
        wrong = await _copy_blobs(missing, of.blobs, writing.blobs)
        self.said += wrong
        self.is_damaged = self.is_damaged or bool(wrong)
        notes = await of.notes()
        if notes and notes != await writing.notes():
            await writing.write_notes(notes)
            theirs = await writing.notes()
            if any(theirs.get(name) != data for name, data in notes.items()):
                raise JournalError("its notes read back otherwise than they were written, so nothing of it is kept")
        return len(missing) - len(wrong)

    async def _missing_blobs(self, of: SessionContents, there: HomeBlobs | None) -> list[BlobId]:
        """The blobs that the target's session lacks, or has no sound copy of, where that is looked at."""
        blobs = await of.blobs.ids()
        known = await there.ids() if blobs and there is not None else ()
        if there is not None and self._verifies:
            known = [blob for blob in known if await _is_whole(there, blob)]
        sound = frozenset(known)
        return [blob for blob in blobs if blob not in sound]

    # --- lines

    async def _lines_there(self) -> AsyncGenerator[bytes, None]:
        """The target's lines, one by one; none where it has no such session."""
        if self._is_there:
            try:
                async for group in (await self._target.session(self._session)).lines():
                    for line in group:
                        yield line
            except DamagedLine as e:
                raise JournalError(f"the target's session of this id is damaged: {e}") from e

    async def _whole_lines(self, of: SessionContents) -> AsyncGenerator[Sequence[bytes], None]:
        """The lines as they stand; `DamagedLine` where one isn't as it was written, or is missing."""
        count = 0
        async with aclosing(of.lines()) as groups:
            async for group in groups:
                if not group[-1].endswith(b"\n"):
                    said = f"{len(group[-1]):,} bytes at the end of its journal are no whole line, and are left out"
                    self.said.append(said)
                    group = group[:-1]
                for line in group:
                    try:
                        self._check(count, line)
                    except DamagedLine as e:
                        raise DamagedLine(f"line {count + 1}: {e}") from None
                    count += 1
                if group:
                    yield group
        if not count:
            raise DamagedLine("there is no line in it")

    def _check(self, number: int, line: bytes) -> None:
        """Raise `DamagedLine` unless this is the header, or the line of this number."""
        if number == 0:
            if (named := decode_header(line).session) != self._session:
                raise DamagedLine(f"the header is that of session {named[:80]}")
            return
        unseal(line)
        found = LINE_NUMBER.match(line)
        if found is None or int(found[1]) != number:
            raise DamagedLine(f"it has the sequence number {found[1].decode() if found else 'of no line'}")

    async def _readable_lines(self, why: str) -> AsyncGenerator[Sequence[bytes], None]:
        """What can be read of a damaged journal, as a fork has it; behind a line that says that this isn't all."""
        loaded = await self._source.home.load(self._session)
        header = msgspec.structs.replace(loaded.header, session=self._session, version=VERSION)
        lines, end = [encode_header(header)], 0

        async def append(records: tuple[Record, ...]) -> Receipt:
            nonlocal end
            end += len(lines[-1])
            lines.append(sealed_line(len(lines), records))
            return Receipt(len(lines) - 1, end)

        await append(
            (Repaired(line=0, what=f"copied from a damaged journal ({why}): what couldn't be read is missing"),)
        )
        await copy_records(loaded.records, append)
        for at in range(0, len(lines), _GROUP_LINES):
            yield lines[at : at + _GROUP_LINES]


async def _copy_blobs(blobs: Sequence[BlobId], of: HomeBlobs, to: HomeBlobs) -> list[str]:
    """Copy blobs, each read back and compared; what is wrong with those that can't be read."""
    wrong: list[str] = []
    group: list[bytes] = []
    size = 0
    for blob in blobs:
        try:
            group.append(await of.get(blob))
        except JournalError as e:
            wrong.append(str(e))
            continue
        size += len(group[-1])
        if size >= _BLOB_BYTES:
            await _put(group, to)
            group, size = [], 0
    if group:
        await _put(group, to)
    return wrong


async def _put(contents: Sequence[bytes], to: HomeBlobs) -> None:
    for blob in await to.put(tuple(contents)):
        await to.get(blob)  # raises where its bytes don't give its id


async def _is_whole(blobs: HomeBlobs, blob: BlobId) -> bool:
    try:
        await blobs.get(blob)
    except JournalError:
        return False
    return True
