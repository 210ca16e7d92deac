"""A session that goes on from another one, which stays as it is (SES-1)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import groupby
from pathlib import Path

import anyio.to_thread
import msgspec

from holdfast.adapters.files.disk import DISK, Disk, make_private
from holdfast.adapters.files.journal import FileJournal
from holdfast.adapters.files.reading import Scan, reading
from holdfast.adapters.files.store import JOURNAL, SessionStore
from holdfast.errors import JournalError
from holdfast.transcript.codec import VERSION
from holdfast.transcript.edits import Compacted
from holdfast.transcript.records import Header, Record, Repaired

DRAFT = ".forking-"  # no session id, so a half made fork is never listed or opened
_BESIDE = ("blobs", "session-memory")  # what left the view, and the notes


async def fork(store: SessionStore, reference: str | Path, session: str, *, created: float, disk: Disk = DISK) -> Path:
    """A new session with everything that was recorded in another, which is only read; its directory.

    It has an id of its own and names the one it came from; messages keep theirs, so what recall, pins and cursors name
    holds in both. Damage of the original is passed over, as opening it would. It appears whole or not at all. Raises
    `SessionNotFound`, and `JournalError` when it can't be written or the id is taken.
    """
    source = await anyio.to_thread.run_sync(store.locate, reference)
    scan = await anyio.to_thread.run_sync(_scanned, source / JOURNAL, disk)
    header = msgspec.structs.replace(
        scan.header, session=session, created=created, forked_from=scan.header.session, version=VERSION
    )

    async def fill(journal: FileJournal, draft: Path) -> None:
        await _copied(journal, scan)
        await anyio.to_thread.run_sync(_beside, source, draft)

    return await drafted(store, header, fill, disk=disk)


async def drafted(
    store: SessionStore, header: Header, fill: Callable[[FileJournal, Path], Awaitable[None]], *, disk: Disk = DISK
) -> Path:
    """A new session whose journal and folder somebody fills in; its directory. It appears whole or not at all.

    Whatever fails, nothing is left; what a killed process leaves is no session, and `holdfast doctor` names it. Raises
    `JournalError` when it can't be written or the id is taken.
    """
    target = store.directory(header.session, project=header.project or ".")
    draft = target.with_name(f"{DRAFT}{header.session}")
    try:
        await anyio.to_thread.run_sync(make_private, draft)
        await _written(draft, header, fill, disk)
        await anyio.to_thread.run_sync(_settle, draft, target, disk)
    except BaseException as e:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(partial(shutil.rmtree, draft, ignore_errors=True))
        if isinstance(e, OSError):
            raise JournalError(f"{target}: {e.strerror or e}: the fork can't be made") from e
        raise
    return target


async def _written(
    draft: Path, header: Header, fill: Callable[[FileJournal, Path], Awaitable[None]], disk: Disk
) -> None:
    """The journal of the fork. One sync at its end is enough: until then nobody was told of it."""
    journal = await FileJournal.create(draft / JOURNAL, header, durability="process", disk=disk)
    try:
        await fill(journal, draft)
    finally:
        await journal.close()


def _settle(draft: Path, target: Path, disk: Disk) -> None:
    fd = disk.open(draft / JOURNAL, os.O_RDWR)
    try:
        disk.sync_data(fd)
    finally:
        disk.close(fd)
    if target.exists():
        raise JournalError(f"{target.name}: there is a session of that id")
    disk.rename(draft, target)
    disk.sync_directory(target.parent)


def _scanned(journal: Path, disk: Disk) -> Scan:
    with reading(disk, journal) as reader:
        return reader.scan(reader.body)


async def _copied(journal: FileJournal, scan: Scan) -> None:
    """Every transaction as one line again. Boundaries point to offsets, which are others in the new journal."""
    moved: dict[int, int] = {}
    for offset, placed in groupby(scan.placed, key=lambda one: one.offset):
        records = tuple(_at_home(one.record, moved) for one in placed if not isinstance(one.record, Repaired))
        if records:
            moved[offset] = (await journal.append(records)).offset


def _at_home(record: Record, moved: dict[int, int]) -> Record:
    if not isinstance(record, Compacted) or not record.kept_from:
        return record
    return msgspec.structs.replace(record, kept_from=moved.get(record.kept_from, 0))


def _beside(source: Path, target: Path) -> None:
    for name in _BESIDE:
        if (source / name).is_dir():
            make_private(target / name)
            shutil.copytree(source / name, target / name, symlinks=True, dirs_exist_ok=True)
