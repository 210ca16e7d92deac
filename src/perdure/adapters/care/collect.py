"""What nobody needs any more of what is kept at home, found and removed (SEC-12)."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from perdure.adapters.checkpoints.log import FOLDER as CHECKPOINTS
from perdure.adapters.journal import JOURNAL
from perdure.adapters.journal.append_file import LOCK, SessionLock, mark_path
from perdure.adapters.journal.blobs import HASH_NAME, named_blobs
from perdure.adapters.journal.disk import DISK, first_link
from perdure.adapters.journal.projects import PROJECTS
from perdure.adapters.journal.reading import open_journal_reader
from perdure.adapters.journal.search import INDEX, IndexUnusable, open_search_index
from perdure.adapters.journal.store import (
    BLOBS,
    UNFINISHED,
    SessionStore,
    every_journal,
    homes_of,
    session_journals,
)
from perdure.adapters.stores import UNUSED, StoreRoot, files_below
from perdure.errors import JournalError, PerdureError, SessionBusy
from perdure.transcript.records import Titled

GRACE_SECONDS = 3_600.0  # what is younger may be at work
KEEP_TAG = "keep"  # of sessions that no retention and no quota deletes
_DAY_SECONDS = 86_400.0
_DAMAGE = (f"{JOURNAL}.*", "*.damaged-*")  # names of what was set aside, beside journals and stored results
_DRAFT = re.compile(r"\.(?:new|draft)-(?:\d+-)?[0-9a-f]+$")  # how what never got its name ends
_Inode = tuple[int, int]
_NONE_GONE: Mapping[_Inode, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Unneeded:
    """Something that can go: a file or folder, how large it is, and why nobody needs it."""

    path: Path
    bytes: int
    why: str


@dataclass(slots=True)
class Collected:
    """What went, or would go, what couldn't and why, and the sessions that were `kept` since they are damaged."""

    gone: list[Unneeded] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """How much that is on the disk."""
        return sum(one.bytes for one in self.gone)


@dataclass(frozen=True, slots=True)
class HomeCollection:
    """One look at a home. Nothing that a session may be using is touched: who holds its lock keeps all of it.

    Args:
        home: Where everything is kept.
        now: In seconds since 1970.
        retention_days: Sessions that were written last so long ago go; None keeps them.
        max_bytes: The oldest sessions go until the home has no more; None for no limit.
        grace_seconds: What was written within that time stays.
        beside: Where Perdure writes beside the home.
    """

    home: Path
    now: float
    retention_days: float | None = None
    max_bytes: int | None = None
    grace_seconds: float = GRACE_SECONDS
    beside: tuple[StoreRoot, ...] = ()

    def collect(self, *, dry_run: bool = False) -> Collected:
        """Remove leftovers, and sessions as far as retention and quota say so."""
        done = Collected()
        journals = [one for one in every_journal(self.home) if not self._is_behind_link(one, done)]
        for one in self._leftovers(journals):
            self._remove(one, done, dry_run=dry_run)
        for journal in journals:
            self._collect_blobs(journal, done, dry_run=dry_run)
        self._expire(done, dry_run=dry_run)
        if not dry_run:
            self._forget_sessions(done)
        return done

    def expire(self) -> Collected:
        """Only what retention and quota say."""
        done = Collected()
        self._expire(done, dry_run=False)
        if done.gone:
            self._forget_sessions(done)
        return done

    # --- leftovers --------------------------------------------------------------------------------------------------

    def _is_behind_link(self, path: Path, done: Collected) -> bool:
        """Whether a link stands in the way, and say so. The home and its folder of projects may be links themselves."""
        roots = (self.home / PROJECTS, self.home, *(root.path for root in self.beside))
        link = first_link(path, next(filter(path.is_relative_to, roots)))
        if link is not None and (told := f"{link}: a link, which gc doesn't follow") not in done.left:
            done.left.append(told)
        return link is not None

    def _is_old(self, path: Path, seconds: float | None = None) -> bool:
        try:
            return self.now - path.lstat().st_mtime >= (self.grace_seconds if seconds is None else seconds)
        except OSError:
            return False

    def _leftovers(self, journals: list[Path]) -> Iterator[Unneeded]:
        for home in homes_of(self.home):
            for why, pattern in UNFINISHED:
                for path in sorted((home / PROJECTS).glob(f"*/{pattern}")):
                    if self._is_old(path):
                        yield Unneeded(path, _freed_by(path), f"what is left of {why}")
            for path in sorted((home / PROJECTS).glob("*/*")):
                names = {one.name for one in path.iterdir()} if path.is_dir() and not path.is_symlink() else {JOURNAL}
                if names and names <= {LOCK, mark_path(path / JOURNAL).name} and self._is_old(path):
                    yield Unneeded(path, _freed_by(path), "beside a journal that isn't there")
        for objects in (journal.parent / CHECKPOINTS / "objects" for journal in journals):
            for beside in (objects.with_name("objects.new"), objects.with_name("objects.old")):
                if beside.is_dir() and objects.is_dir() and self._is_old(beside):
                    yield Unneeded(beside, _freed_by(beside), "checkpoints that were replaced")
        roots = (self.home, self.home / PROJECTS)  # which may be a link
        for path in sorted({path for root in roots for path in root.rglob("*") if _DRAFT.search(path.name)}):
            if path.is_file() and self._is_old(path):
                yield Unneeded(path, path.lstat().st_size, "a draft that was never finished")
        for root in (StoreRoot("home", self.home), *self.beside):
            for where, pattern, days, why in UNUSED:
                for path in sorted(root.path.glob(pattern) if pattern else (root.path,)) if where == root.where else ():
                    written = max((path, *files_below(StoreRoot(where, path))), key=lambda one: one.lstat().st_mtime)
                    if self._is_old(written, days * _DAY_SECONDS):
                        yield Unneeded(path, _freed_by(path), why)

    def _remove(self, one: Unneeded, done: Collected, *, dry_run: bool) -> None:
        if self._is_behind_link(one.path, done):
            return
        try:
            with contextlib.ExitStack() as held:
                session = next((at for at in one.path.parents if (at / JOURNAL).is_file()), None)
                if session is not None:
                    held.callback(SessionLock.acquire(session).release)
                if not dry_run:
                    shutil.rmtree(one.path) if one.path.is_dir() else one.path.unlink()
            done.gone.append(one)
        except (SessionBusy, FileNotFoundError):
            return  # whoever has it may be at work on just this, or have removed it
        except (OSError, PerdureError) as e:
            done.left.append(f"{one.path}: {e}")

    # --- blobs ------------------------------------------------------------------------------------------------------

    def _collect_blobs(self, journal: Path, done: Collected, *, dry_run: bool) -> None:
        """The blobs that no record names, of a session that is whole and that nobody writes."""
        folder = journal.parent / BLOBS
        if self._is_behind_link(folder, done):
            return
        there = [one for one in sorted(folder.glob("*")) if HASH_NAME.fullmatch(one.name) and self._is_old(one)]
        if not there or any(not _DRAFT.search(one.name) for one in journal.parent.glob(f"{JOURNAL}.*")):
            return  # what was set aside may name some that the journal doesn't
        lock = _lock_of(journal.parent, done)
        if lock is None:
            return
        try:
            with open_journal_reader(DISK, journal) as reader:
                scan = reader.scan(reader.body)
            if scan.damage:
                return
            named = named_blobs(scan)
            for path in there:
                if path.name not in named:
                    unneeded = Unneeded(path, _freed_by(path), "a stored result that no record names")
                    if not dry_run:
                        path.unlink()
                    done.gone.append(unneeded)
        except (OSError, PerdureError) as e:
            done.left.append(f"{folder}: {e}")
        finally:
            lock.release()

    # --- sessions ---------------------------------------------------------------------------------------------------

    def _expire(self, done: Collected, *, dry_run: bool) -> None:
        """Delete sessions by age, then the oldest ones until the home is small enough.

        What is listed is only a first choice: whether one goes is decided from its whole journal, under its lock.
        """
        if self.retention_days is None and self.max_bytes is None:
            return
        sessions = [(SessionStore(home), info) for home in homes_of(self.home) for info in SessionStore(home).list()]
        sessions.sort(key=lambda pair: pair[1].modified)
        gone: Counter[_Inode] = Counter()  # links that a dry run counts as removed
        if dry_run:
            for one in done.gone:
                gone.update(_links_below(one.path))
        total = _size_once(self.home) - (done.bytes if dry_run else 0)
        # Its part of the index goes with each session: else more of them would go than have to.
        indexed = _freed_by(self.home / INDEX) / max(1, sum(info.bytes for _, info in sessions))
        for store, info in sessions:
            if KEEP_TAG in info.tags or self._is_expired(info.modified, total) is None:
                continue
            lock = _lock_of(info.directory, done)
            if lock is None:
                continue
            try:
                freed = _freed_by(info.directory, gone)
                why = self._is_expired(_written(info.directory), total, freed)
                if why is None:
                    continue
                try:
                    if _must_stay(info.directory):
                        continue
                except (OSError, PerdureError) as e:
                    done.kept.append(f"{info.directory}: kept, though it may go by its age or size: {e}")
                    continue
                if dry_run:
                    gone.update(_links_below(info.directory))
                else:
                    store.delete(info.directory, lock=lock)
            except (OSError, PerdureError) as e:
                done.left.append(f"{info.directory}: {e}")
                continue
            finally:
                lock.release()
            done.gone.append(Unneeded(info.directory, freed, why))
            total -= freed + round(info.bytes * indexed)

    def _is_expired(self, written: float, total: int, freed: int | None = None) -> str | None:
        """Why a session goes that was written last then; `freed`, once it is known, is what its end would free."""
        age = self.now - written
        if age < self.grace_seconds:
            return None
        if self.retention_days is not None and age >= self.retention_days * _DAY_SECONDS:
            return f"a session written last {age / _DAY_SECONDS:,.0f} days ago (retention_days)"
        if self.max_bytes is not None and total > self.max_bytes and freed != 0:
            return "the oldest session of a home that is too large (max_home_bytes)"
        return None

    def _forget_sessions(self, done: Collected) -> None:
        """What the index has of sessions that aren't there any more."""
        path = self.home / INDEX
        if not path.is_file():
            return
        try:
            before = path.stat().st_size
            with open_search_index(path) as index:
                index.refresh((), forget_others=False)
                index.shrink()
            if (spared := before - path.stat().st_size) > 0:
                done.gone.append(Unneeded(path, spared, "what the index had of deleted sessions"))
        except (IndexUnusable, sqlite3.Error, OSError) as e:
            done.left.append(f"{path}: {e}")


def forget_session(home: Path, session: str, beside: Sequence[StoreRoot]) -> None:
    """Remove what other stores have of a session that was deleted: its words in the index, and the plugin's state.

    Raises:
        FolderBusy: A hook is writing that state.
        PerdureError: It can't be removed.
    """
    from perdure.adapters.care.purge import locked_folder

    plugins = [StoreRoot("plugin", home / "plugin"), *(root for root in beside if root.where == "plugin")]
    for folder in (root.path / "sessions" / session for root in plugins):
        if (folder / "state").is_file() and first_link(folder, folder.parent.parent) is None:
            with locked_folder(folder):
                shutil.rmtree(folder)
    if (index := home / INDEX).is_file():
        try:
            with open_search_index(index) as opened:
                opened.refresh((), forget_others=False)
        except (IndexUnusable, sqlite3.Error, OSError) as e:
            raise PerdureError(f"{index}: still has what was said in {session}: {e}; delete this file") from e


def _lock_of(session: Path, done: Collected) -> SessionLock | None:
    """The lock of a session; None where somebody is at work on it, or where it can't be had, which is said."""
    try:
        return SessionLock.acquire(session)
    except SessionBusy:
        return None
    except PerdureError as e:
        done.left.append(str(e))
        return None


def _written(session: Path) -> float:
    """When anything was last added to a session."""
    return max(journal.stat().st_mtime for journal in session_journals(session))


def _must_stay(session: Path) -> bool:
    """Whether a session, whose lock is held, has the tag that keeps it.

    Raises:
        JournalError: something of it is damaged, so that nobody knows what it was, or whether it had the tag.
    """
    beside = [path.name for pattern in _DAMAGE for path in session.rglob(pattern) if not _DRAFT.search(path.name)]
    if beside:
        raise JournalError(f"damage was set aside in {min(beside)}")
    tags: tuple[str, ...] = ()
    for journal in session_journals(session):
        with open_journal_reader(DISK, journal) as reader:
            scan = reader.scan(reader.body)
        if scan.damage:
            raise JournalError(f"{journal.relative_to(session)} is damaged (`perdure doctor` says where)")
        if journal.parent == session:
            said = [one.record.tags for one in scan.placed if isinstance(one.record, Titled)]
            tags = next((one for one in reversed(said) if one is not None), ())
    return KEEP_TAG in tags


def _links_below(path: Path) -> Counter[_Inode]:
    """How many names each file has at a path or below it."""
    return Counter((about.st_dev, about.st_ino) for about in _files_below(path))


def _size_once(path: Path) -> int:
    """Bytes of all files below a path: one that stands there under several names, as in forks, counts once."""
    return sum({(about.st_dev, about.st_ino): about.st_size for about in _files_below(path)}.values())


def _freed_by(path: Path, gone: Mapping[_Inode, int] = _NONE_GONE) -> int:
    """How much the disk has more once a path is removed: files that have another name elsewhere stay.

    Args:
        path: A file or folder.
        gone: Names that count as removed, though they are still there.
    """
    names: Counter[_Inode] = Counter()
    found: dict[_Inode, os.stat_result] = {}
    for about in _files_below(path):
        inode = (about.st_dev, about.st_ino)
        names[inode] += 1
        found[inode] = about
    return sum(one.st_size for inode, one in found.items() if names[inode] + gone.get(inode, 0) >= one.st_nlink)


def _files_below(path: Path) -> Iterator[os.stat_result]:
    """What the disk says of a file, or of all files below a folder; a lock is nobody's data."""
    below = ((at, name) for at, _, names in os.walk(path) for name in names) if path.is_dir() else [("", path)]
    for at, name in below:
        if name != LOCK:
            with contextlib.suppress(FileNotFoundError):
                yield os.lstat(os.path.join(at, name))
