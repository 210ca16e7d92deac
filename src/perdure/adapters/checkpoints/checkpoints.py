"""The checkpoints of files on this disk, in a folder beside a journal (CKP-1 to CKP-7)."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from perdure.adapters.checkpoints.ignores import IgnoreRules
from perdure.adapters.checkpoints.log import CheckpointLog
from perdure.adapters.checkpoints.objects import GitObjects
from perdure.adapters.checkpoints.rewind import FileRewinds, RestoreTransaction
from perdure.adapters.checkpoints.rooted_tree import TREE_OS_CALLS, RootedTree, TreeOsCalls, open_rooted_tree
from perdure.adapters.checkpoints.tree import ProjectTree, TooManyFiles, TreeChanges, load_index, save_index
from perdure.adapters.journal.projects import PROJECTS
from perdure.adapters.machine.repositories import is_no_project
from perdure.adapters.machine.rooted import RootedFolder
from perdure.adapters.machine.system import needs_unix
from perdure.events import CheckpointSkipped, CheckpointTaken, FilesRewound
from perdure.memory.checkpoints import (
    BEGUN,
    NONE,
    CheckpointEntry,
    MissedChange,
    PathChange,
    PathState,
    blobs_of,
    rewind_point_of,
    same,
    snapshots,
    thin_snapshots,
    without_oldest,
)
from perdure.memory.places import OWN, name_for_people
from perdure.ports.machine import FileCall as Call
from perdure.ports.machine import FileDifference, FileRewind
from perdure.ports.session import Clock, Sink
from perdure.settings import Settings


@dataclass(slots=True)
class SessionCheckpoints:
    """The checkpoints of one session. Methods may be called from any thread; one works at a time.

    `store` is the session's own folder for them. Opening it ends what a killed rewind left (CKP-3).
    """

    root: str
    store: Path
    settings: Settings
    clock: Clock
    sink: Sink
    calls: TreeOsCalls = TREE_OS_CALLS
    is_looking: bool = False  # only: somebody else may hold the session
    rewinds: FileRewinds = field(init=False)
    log: CheckpointLog = field(init=False)
    objects: GitObjects = field(init=False)
    _tree: ProjectTree | None = None
    _blind: str = ""  # why there is no tree
    _refused: set[str] = field(default_factory=set)
    _pending: dict[str, PathState] = field(default_factory=dict)  # what our own tools are about to change, as it was
    _kept: set[str] = field(default_factory=set)  # paths with a copy for this prompt already
    _prompt: str = ""
    _open: list[Call] = field(default_factory=list)
    _background: str = ""  # the prompt of a command that may still run
    _bytes: int = 0  # of the store, about
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _own: RootedFolder = field(init=False)
    _files: RootedTree = field(init=False)

    def __post_init__(self) -> None:
        needs_unix("checkpoints of files", "where a folder can be moved between a look at it and its use")
        self.root = os.path.realpath(self.root)
        self._own = RootedFolder.open(self.store, create=True, rules=OWN, calls=self.calls)
        self._files = open_rooted_tree(self.root, self.calls)
        self.log = CheckpointLog(self._own)
        self.objects = GitObjects(self.store / "objects")
        self._bytes = self.objects.bytes()
        limit = self.settings.checkpoint_file_bytes
        restoring = RestoreTransaction(self._own, self._files, self.log, self.objects, limit)
        is_off = not self.settings.checkpoints
        self.rewinds = FileRewinds(self._files, self.log, self.objects, restoring, self.clock.now, is_off=is_off)
        if not self.is_looking:
            restoring.recover()
        why = is_no_project(self.root)
        if why:
            self._blinded(f"commands can't be rewound here: {name_for_people(self.root)}: {why}")
        elif not self.settings.checkpoint_commands:
            self._blind = "the setting checkpoint_commands is off"
        else:
            ignores = IgnoreRules(self.root, self.settings.checkpoint_excludes, _own_folders(self.store))
            self._tree = ProjectTree(self._files, ignores, limit, self.settings.checkpoint_files)
            load_index(self._own, self._tree, self.objects)

    def close(self) -> None:
        with self._lock:
            self.objects.close()
            self._files.close()
            self._own.close()

    # --- around a call (CKP-1, CKP-2) ---------------------------------------------------------------------------------

    def begin(self, call: Call) -> None:
        """Look at what somebody else did since, and have a copy of everything that a command may change."""
        with self._lock:
            self._prompted(call)
            if call.looks and self._tree is not None:
                was_new = not self._tree.has_looked
                look = self._looked(keeps=True)
                if (look.changes or look.missed) and not was_new and (self._open or self._background):
                    # A call of a sub-agent is at work, or a command in the background, which shares with the user.
                    whose = self._open[0].prompt if self._open else self._background
                    changes = look.changes if self._open else uncertain_changes(look.changes)
                    self._wrote(whose, call.tool, changes, look.missed)
                self._log(CheckpointEntry(seq=0, kind=BEGUN, prompt=call.prompt, tool=call.tool))
            self._open.append(call)

    def save(self, paths: tuple[str, ...], call: Call) -> None:
        """Keep what one of our tools is about to change, once for each prompt and file."""
        with self._lock:
            self._prompted(call)
            contents, changes = [], []
            for path in (self._name(path) for path in paths):
                for folder in self._missing_folders(path):
                    self._pending.setdefault(folder, NONE)
                before, data = self.rewinds.state(path)
                if data is not None and path not in self._kept:
                    contents.append(data)
                self._pending[path] = before
                changes.append(PathChange(path, before, before))
            self._put(contents)
            self._log(CheckpointEntry(seq=0, kind=BEGUN, prompt=call.prompt, tool=call.tool, changes=tuple(changes)))

    def end(self, call: Call) -> None:
        """Write down what the call changed."""
        with self._lock:
            if call in self._open:
                self._open.remove(call)
            had_begun = bool(self._pending) or (call.looks and self._tree is not None)
            changes = self._pended(is_last=not self._open)
            for change in changes:
                if self._tree is not None and not change.path.startswith("/"):
                    self._tree.knows(change.path, change.after)
            missed: tuple[MissedChange, ...] = ()
            if call.looks and self._tree is not None:
                look = self._looked(keeps=False)
                changes, missed = changes + look.changes, look.missed
            if call.looks and self._tree is None:  # also since just now
                missed = (MissedChange("", self._blind),)
            if changes or missed or had_begun:
                self._wrote(call.prompt, call.tool, changes, missed)
            if missed and self._tree is not None:
                save_index(self._own, self._tree)
            if call.is_background:
                self._background = call.prompt
            if changes:
                self._thin()

    def _prompted(self, call: Call) -> None:
        if call.prompt != self._prompt:
            self._prompt, self._kept = call.prompt, set()

    def _pended(self, *, is_last: bool) -> tuple[PathChange, ...]:
        changes = []
        for path, before in sorted(self._pending.items()):
            after, _ = self.rewinds.state(path)
            if not same(before, after):
                changes.append(PathChange(path, before, after))
                self._pending[path] = after
        if is_last:
            self._pending.clear()
        return tuple(changes)

    def _looked(self, *, keeps: bool) -> TreeChanges:
        """What changed in the tree. `keeps`: have a copy of all that has none for this prompt."""
        tree = self._tree
        assert tree is not None
        was_cut_short = self._was_cut_short() if tree.is_taken_up and not tree.has_looked else ""
        try:
            look = tree.changes()
        except TooManyFiles as e:
            self._blinded(f"commands can't be rewound here: {name_for_people(self.root)}: {e}")
            return TreeChanges()
        if was_cut_short and (look.changes or look.missed):  # an earlier process was killed in the middle of a command
            self._wrote(was_cut_short, "", uncertain_changes(look.changes), look.missed)
        if keeps:
            self._keep(tree, look.read)
            if look.changes or look.missed:
                save_index(self._own, tree)
        return look

    def _keep(self, tree: ProjectTree, read: dict[str, bytes]) -> None:
        names = [n for n, k in tree.last_seen.items() if k.state.blob and not k.is_saved and n not in self._kept]

        done: list[str] = []

        def contents() -> Iterator[bytes]:
            for name in names:
                data = read.pop(name, None)
                if data is None:
                    state, data = self.rewinds.state(name)
                    if data is None or state.blob != tree.last_seen[name].state.blob:
                        continue  # it changed just now; the next look sees it
                if self._bytes > self.settings.checkpoint_disk_bytes:
                    self._refuse("not all files have a copy: the store is full (checkpoint_disk_bytes)")
                    return
                done.append(name)
                yield data

        self._put(contents())
        for name in done:
            tree.last_seen[name].is_saved = True

    def _was_cut_short(self) -> str:
        """The prompt of a command that was at work when an earlier process ended; empty when none was."""
        last = self.log.entries[-1] if self.log.entries else None
        return last.prompt if last is not None and last.kind == BEGUN and not last.changes else ""

    def _missing_folders(self, path: str) -> list[str]:
        """The folders of the project that our tool makes for a file."""
        if path.startswith("/"):
            return []
        parts = path.split("/")[:-1]
        folders = ["/".join(parts[: n + 1]) for n in range(len(parts))]
        return [folder for folder in folders if not self._files.has(folder)]

    def _name(self, path: str) -> str:
        """A real path as the log has it: relative to the project, or absolute outside of it."""
        prefix = self.root.rstrip("/") + "/"
        return path[len(prefix) :] if path.startswith(prefix) else path

    # --- the log and the store (CKP-6) --------------------------------------------------------------------------------

    def _wrote(
        self, prompt: str, tool: str, changes: tuple[PathChange, ...], missed: tuple[MissedChange, ...] = ()
    ) -> None:
        self._kept |= {change.path for change in changes}
        self._log(CheckpointEntry(seq=0, prompt=prompt, tool=tool, changes=changes, missed=missed))
        if changes:
            self.sink.emit(CheckpointTaken(prompt, tool, len(changes)))

    def _log(self, entry: CheckpointEntry) -> None:
        self.log.append(msgspec.structs.replace(entry, seq=self.log.next_seq, at=self.clock.now()))

    def _put(self, contents: Iterable[bytes]) -> None:
        def counted() -> Iterator[bytes]:
            for data in contents:
                self._bytes += len(data)
                yield data

        self.objects.put(counted())

    def _thin(self) -> None:
        kept = thin_snapshots(self.log.entries, self.settings.checkpoint_snapshots)
        if len(kept) != len(self.log.entries):
            self.log.rewrite(kept)
        most = self.settings.checkpoint_disk_bytes
        if self._bytes <= most or self._compacted() <= most:
            return
        self.log.rewrite(without_oldest(self.log.entries, max(1, len(snapshots(self.log.entries)) // 2)))
        self._refuse("the oldest checkpoints were let go: the store is as large as it may be (checkpoint_disk_bytes)")
        if self._compacted() > most and self._tree is not None:
            self._blinded("commands can't be rewound any more: the project is larger than checkpoint_disk_bytes")

    def _compacted(self) -> int:
        """The size of the store without what no rewind needs."""
        known = self._tree.last_seen.values() if self._tree is not None else ()
        self.objects.keep_only(blobs_of(self.log.entries) | {k.state.blob for k in known if k.is_saved})
        self._bytes = self.objects.bytes()
        return self._bytes

    def _blinded(self, why: str) -> None:
        """Commands aren't compared any more: said now, and by each rewind to before one (CKP-7)."""
        self._tree, self._blind = None, why
        self._refuse(why)

    def _refuse(self, why: str) -> None:
        if why not in self._refused:
            self._refused.add(why)
            self.sink.emit(CheckpointSkipped(why))

    # --- back (CKP-3) -------------------------------------------------------------------------------------------------

    def differences(self) -> tuple[FileDifference, ...]:
        with self._lock:
            return self.rewinds.differences()

    def rewind(self, prompts: AbstractSet[str], *, is_forced: bool, is_dry: bool) -> FileRewind:
        with self._lock:
            done = self.rewinds.rewind(prompts, is_forced=is_forced, is_dry=is_dry)
            if self._tree is not None and rewind_point_of(self.log.entries, prompts) is not None:
                done = replace(done, missed=(*done.missed, *self._tree.unseen({one.path for one in done.missed})))
            self._told(done, is_undo=False)
            return done

    def undo(self, *, is_forced: bool, is_dry: bool) -> FileRewind:
        with self._lock:
            done = self.rewinds.undo(is_forced=is_forced, is_dry=is_dry)
            self._told(done, is_undo=True)
            return done

    def _told(self, done: FileRewind, *, is_undo: bool) -> None:
        if done.is_done:
            self.sink.emit(FilesRewound(done.to, len(done.changes), is_undo))


def _own_folders(store: Path) -> frozenset[str]:
    """Where the session is kept, and the home that it belongs to: no rewind may touch them."""
    session = Path(os.path.realpath(store)).parent
    projects = session.parent.parent
    home = (projects.parent,) if projects.name == PROJECTS else ()
    return frozenset(os.fspath(folder) for folder in (session / store.name, session, *home) if folder != Path("/"))


def uncertain_changes(changes: tuple[PathChange, ...]) -> tuple[PathChange, ...]:
    return tuple(msgspec.structs.replace(change, is_sure=False) for change in changes)
