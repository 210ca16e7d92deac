"""What a rewind of files would do, and doing it as one transaction: all of them or none (CKP-3, REL-7)."""

from __future__ import annotations

import errno
import secrets
from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import partial

import msgspec

from perdure.adapters.checkpoints.ignores import STAGINGS
from perdure.adapters.checkpoints.log import PLAN, CheckpointLog, escaped_names, unescaped_names
from perdure.adapters.checkpoints.objects import GitObjects
from perdure.adapters.checkpoints.rooted_tree import RootedTree, TreeOsCalls, open_rooted_tree
from perdure.adapters.machine.rooted import RootedFolder
from perdure.errors import FileMissing, FileRefused, JournalError, RewindRefused
from perdure.memory.checkpoints import (
    GONE,
    NONE,
    NOT_KEPT,
    REWIND,
    UNDO,
    CheckpointEntry,
    PathChange,
    PathDecision,
    PathHistory,
    PathState,
    decide_path,
    missed_changes,
    path_histories,
    rewind_point_of,
    same,
)
from perdure.memory.places import name_for_people
from perdure.ports.machine import FileDifference, FileRewind, FileStep

STAGED = "plan.staged"
_PLAN_BYTES = 500_000_000


class RestoreItem(msgspec.Struct, frozen=True):
    """A path, what stands there, and what is to stand there. Names of other places than the project are absolute."""

    path: str
    now: PathState
    to: PathState


class RewindPlan(msgspec.Struct, frozen=True):
    """A transaction. `id` names its folder for new and old files, in the project and, by item, in other `places`."""

    id: str
    root: str
    items: tuple[RestoreItem, ...]
    places: tuple[str, ...] = ()  # for each item the folder, relative to its root, that its staging folder is in


class RestoreTransaction:
    """One transaction on a root. `limit_bytes` is that of files that are kept."""

    def __init__(
        self, own: RootedFolder, tree: RootedTree, log: CheckpointLog, objects: GitObjects, limit_bytes: int
    ) -> None:
        self._own, self._tree, self._log, self._objects = own, tree, log, objects
        self.limit_bytes = limit_bytes

    def run(self, items: tuple[RestoreItem, ...], entry: Callable[[str], CheckpointEntry]) -> CheckpointEntry:
        """Do it all, or raise and leave everything as it was. `entry` makes the line of the log for a plan's id."""
        identity = secrets.token_hex(8)
        with ExitStack() as stack:
            roots = RestoreRoots(self._tree, stack)
            places = tuple(roots.place_of(item.path) for item in items)
            plan = RewindPlan(identity, self._tree.path, items, places)
            self._own.write(PLAN, msgspec.json.encode(escaped_names(msgspec.to_builtins(plan))))
            try:
                self._stage(plan, roots)
                self._own.write(STAGED, b"")
                self._apply(plan, roots)
                done = entry(identity)
                self._log.append(done)
            except BaseException:
                self._back(plan, roots)
                raise
            try:
                self._tidy(plan, roots)
            except (OSError, FileRefused):
                pass  # it is done all the same; whoever opens this next tidies up
        return done

    def recover(self) -> str:
        """End what a killed process left: "done", "undone", or nothing."""
        try:
            data = msgspec.json.decode(self._own.read(PLAN, limit_bytes=_PLAN_BYTES))
        except FileMissing:
            return ""
        plan = msgspec.convert(unescaped_names(data), RewindPlan)
        with ExitStack() as stack:
            roots = RestoreRoots(self._tree, stack)
            if any(entry.plan == plan.id for entry in self._log.entries):
                self._tidy(plan, roots)
                return "done"
            self._back(plan, roots)
        return "undone"

    # --- forwards -----------------------------------------------------------------------------------------------------

    def _stage(self, plan: RewindPlan, roots: RestoreRoots) -> None:
        for tree, folder in roots.stagings(plan):
            tree.make_folder(folder, 0o700)
        for number, item in enumerate(plan.items):
            if item.to.kind in ("file", "link"):
                data = self._objects.get(item.to.blob) if item.to.kind == "file" else None
                tree, new = roots.at(plan, number, "new")
                tree.place(new, item.to, data)

    def _apply(self, plan: RewindPlan, roots: RestoreRoots) -> None:
        numbered = sorted(enumerate(plan.items), key=lambda one: one[1].path)
        for number, item in numbered:
            if item.now.kind in ("file", "link"):
                self._aside(plan, roots, number)
            elif item.now.kind == "none" and item.to.kind != "folder" and roots.has(item.path):
                raise RewindRefused(f"{name_for_people(item.path)}: somebody made it just now; nothing was changed")
        for _, item in reversed(numbered):
            if item.now.kind == "folder" and item.to.kind != "folder":
                tree, name = roots.of(item.path)
                if not tree.take_folder(name) and item.to.kind != "none":
                    raise RewindRefused(
                        f"{name_for_people(item.path)}: other files stand in this folder; nothing was changed"
                    )
        for _, item in numbered:
            if item.to.kind == "folder" and item.now.kind != "folder":
                tree, name = roots.of(item.path)
                tree.make_folder(name, item.to.mode)
        for number, item in numbered:
            if item.to.kind in ("file", "link"):
                tree, new = roots.at(plan, number, "new")
                tree.move(new, roots.of(item.path)[1])

    def _aside(self, plan: RewindPlan, roots: RestoreRoots, number: int) -> None:
        """Move what stands there out of the way, and make sure that it is what was saved."""
        item = plan.items[number]
        tree, old = roots.at(plan, number, "old")
        tree.move(roots.of(item.path)[1], old)
        found, _ = tree.state(old, limit_bytes=self.limit_bytes)
        if not same(found, item.now):
            raise RewindRefused(f"{name_for_people(item.path)}: somebody changed it just now; nothing was changed")

    # --- backwards ----------------------------------------------------------------------------------------------------

    def _back(self, plan: RewindPlan, roots: RestoreRoots) -> None:
        """All as it was, from wherever it stopped; may be done again when it was itself cut short."""
        if self._own.stat(STAGED) is not None:
            numbered = sorted(enumerate(plan.items), key=lambda one: one[1].path)
            for number, item in reversed(numbered):
                if item.to.kind in ("file", "link"):
                    self._unplace(plan, roots, number)
            for _, item in reversed(numbered):
                if item.to.kind == "folder" and item.now.kind != "folder":
                    tree, name = roots.of(item.path)
                    tree.take_folder(name)
            for _, item in numbered:
                if item.now.kind == "folder" and item.to.kind != "folder":
                    tree, name = roots.of(item.path)
                    _quietly(partial(tree.make_folder, name, item.now.mode))
            for number, item in numbered:
                if item.now.kind in ("file", "link"):
                    tree, old = roots.at(plan, number, "old")
                    if tree.has(old):
                        _quietly(partial(tree.move, old, roots.of(item.path)[1]))
        self._tidy(plan, roots)

    def _unplace(self, plan: RewindPlan, roots: RestoreRoots, number: int) -> None:
        """Take a new file out again, if it is there and still ours; what somebody made of it since stays."""
        item = plan.items[number]
        tree, new = roots.at(plan, number, "new")
        if tree.has(new):
            return  # it never came to its place
        name = roots.of(item.path)[1]
        found, _ = tree.state(name, limit_bytes=self.limit_bytes)
        if same(found, item.to):
            _quietly(lambda: tree.move(name, new))

    def _tidy(self, plan: RewindPlan, roots: RestoreRoots) -> None:
        for number in range(len(plan.items)):
            for kind in ("new", "old"):
                tree, name = roots.at(plan, number, kind)
                tree.drop(name)
        for tree, folder in roots.stagings(plan):
            tree.take_folder(folder)
        for name in (STAGED, PLAN):  # in this order: a mark must not outlive its plan
            try:
                self._own.remove(name)
            except FileMissing:
                pass


class RestoreRoots:
    """The project's folder as a root, and the whole disk for files outside of it."""

    def __init__(self, tree: RootedTree, stack: ExitStack) -> None:
        self._tree, self._stack = tree, stack
        self._disk: RootedTree | None = None

    def of(self, path: str) -> tuple[RootedTree, str]:
        """The tree that a path stands on, and its name there."""
        if not path.startswith("/"):
            return self._tree, path
        if self._disk is None:
            calls: TreeOsCalls = self._tree._calls
            self._disk = open_rooted_tree("/", calls)
            self._stack.callback(self._disk.close)
        return self._disk, path[1:]

    def has(self, path: str) -> bool:
        tree, name = self.of(path)
        return tree.has(name)

    def place_of(self, path: str) -> str:
        """The folder in which to put new and old files for a path: the same disk, so that renames do."""
        if not path.startswith("/"):
            return ""
        tree, name = self.of(path)
        while "/" in name:
            name = name.rsplit("/", 1)[0]
            if tree.has(name):
                return f"/{name}"
        return "/"

    def at(self, plan: RewindPlan, number: int, kind: str) -> tuple[RootedTree, str]:
        """Where the new or the old file of an item waits."""
        tree, folder = self._staging(plan, plan.places[number])
        return tree, f"{folder}/{number}.{kind}"

    def stagings(self, plan: RewindPlan) -> list[tuple[RootedTree, str]]:
        return [self._staging(plan, place) for place in dict.fromkeys(plan.places)]

    def _staging(self, plan: RewindPlan, place: str) -> tuple[RootedTree, str]:
        tree, folder = self.of(place) if place else (self._tree, "")
        names = [f"{folder}/{start}{plan.id}" if folder else f"{start}{plan.id}" for start in STAGINGS]
        return tree, next(filter(tree.has, names), names[0])


def _quietly(step: Callable[[], object]) -> None:
    """A step back that somebody else's file may stand in the way of: theirs stays, and ours is in the store."""
    try:
        step()
    except OSError as e:
        if e.errno not in (errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise


_OFF = "the setting checkpoints is off, so changes of files aren't recorded"
_NONE_RECORDED = (
    "no changes of files were recorded: the session is a fork or an import, or the setting checkpoints was off"
)
_FOLDER_MODE = 0o755
_DIFF_LINES = 4_000  # beyond that lines are counted, not compared
_SHOWN = 10


@dataclass(slots=True)
class _PlannedRewind:
    items: list[RestoreItem]
    steps: list[FileStep]
    contents: dict[str, bytes]  # of what stands there, by blob


class FileRewinds:
    """Goes back and forth in one log."""

    def __init__(
        self,
        tree: RootedTree,
        log: CheckpointLog,
        objects: GitObjects,
        restoring: RestoreTransaction,
        now: Callable[[], float],
        *,
        is_off: bool = False,
    ) -> None:
        self._is_off = is_off  # nothing is recorded any more
        self._tree, self._log, self._objects, self._restoring = tree, log, objects, restoring
        self._limit, self._now = restoring.limit_bytes, now

    def state(self, path: str) -> tuple[PathState, bytes | None]:
        """What stands at a path of the log."""
        with ExitStack() as stack:
            tree, name = RestoreRoots(self._tree, stack).of(path)
            return tree.state(name, limit_bytes=self._limit)

    def differences(self) -> tuple[FileDifference, ...]:
        """The paths that a call changed and that aren't as they were before the first of these changes."""
        found = []
        for history in path_histories(self._log.entries, 0):
            now, after = self.state(history.path)
            if not same(now, history.to):
                found.append(self._difference(history, now, after))
        return tuple(sorted(found, key=lambda one: one.path))

    def _difference(self, history: PathHistory, now: PathState, after: bytes | None) -> FileDifference:
        notes, was = [], history.to
        before = self._objects.get(was.blob) if was.blob else None
        if was.is_large or now.is_large:
            notes.append("too large to be compared")
        notes += [one.kind for one in (was, now) if one.kind in ("folder", "link", "other")][:1]
        if was.blob == now.blob != "":
            notes.append("only its permissions changed")
        if not history.is_sure or not same(now, history.last):
            notes.append("somebody else may have changed it, too")
        return FileDifference(history.path, before, after, "; ".join(notes))

    def rewind(self, prompts: AbstractSet[str], *, is_forced: bool, is_dry: bool) -> FileRewind:
        """Back to before the first of these prompts."""
        entries = self._log.entries
        anchor = rewind_point_of(entries, prompts)
        if anchor is None:
            return FileRewind((), is_done=not is_dry, note=_OFF if self._is_off else "" if entries else _NONE_RECORDED)
        at = next(entry for entry in entries if entry.seq == anchor.seq)
        if at.kind == GONE or anchor.thinned_into is not None:
            near = f"; the nearest one that is kept before it is {anchor.thinned_into}" if anchor.thinned_into else ""
            raise RewindRefused(
                "the checkpoint of that message isn't kept any more "
                f"(checkpoint_snapshots, checkpoint_disk_bytes){near}"
            )
        planned = self._planned(path_histories(entries, anchor.seq))
        to = at.prompt
        done = self._done(planned, CheckpointEntry(seq=0, kind=REWIND, to=to), is_forced=is_forced, is_dry=is_dry)
        return replace(done, missed=missed_changes(entries, anchor.seq))

    def undo(self, *, is_forced: bool, is_dry: bool) -> FileRewind:
        """Take back the last rewind that wasn't."""
        taken = {entry.undoes for entry in self._log.entries if entry.kind == UNDO}
        last = next((e for e in reversed(self._log.entries) if e.kind == REWIND and e.seq not in taken), None)
        if last is None:
            raise RewindRefused("there is no rewind of files to undo")
        planned = self._planned(tuple(PathHistory(c.path, c.before, c.after, True) for c in last.changes), is_undo=True)
        is_whole = not any(step.conflict or step.left for step in planned.steps)
        entry = CheckpointEntry(seq=0, kind=UNDO, undoes=last.seq, is_whole=is_whole, to=last.to)
        return self._done(planned, entry, is_forced=is_forced, is_dry=is_dry)

    def _planned(self, wants: tuple[PathHistory, ...], *, is_undo: bool = False) -> _PlannedRewind:
        planned = _PlannedRewind([], [], {})
        for want in sorted(wants, key=lambda want: want.path):
            try:
                now, data = self.state(want.path)
            except OSError as e:
                raise RewindRefused(
                    f"{name_for_people(want.path)}: {e.strerror or e}; nothing was changed", paths=(want.path,)
                ) from e
            said = decide_path(want, now)
            if said.does and want.to.blob and not self._objects.has(want.to.blob):
                said = PathDecision(left=NOT_KEPT)
            if said.left:
                planned.steps.append(FileStep(want.path, "keep", left=said.left))
            if not said.does:
                continue
            if data is not None:
                planned.contents[now.blob] = data
            planned.items.append(RestoreItem(want.path, now, want.to))
            planned.steps.append(self._step(want, now, data, said.conflict))
        self._with_folders(planned)
        return planned

    def _with_folders(self, planned: _PlannedRewind) -> None:
        """Folders that somebody removed since, and that a file of ours needs."""
        there = {item.path: item for item in planned.items}
        missing: dict[str, RestoreItem] = {}
        for item in planned.items:
            parent = item.path.rpartition("/")[0]
            while item.to.kind != "none" and parent and parent not in there and parent not in missing:
                if self.state(parent)[0].kind == "none":
                    missing[parent] = RestoreItem(parent, NONE, PathState("folder", mode=_FOLDER_MODE))
                parent = parent.rpartition("/")[0]
        planned.items += missing.values()

    def _step(self, want: PathHistory, now: PathState, data: bytes | None, conflict: str) -> FileStep:
        to = want.to
        if to.kind == "none":
            action = "delete"
        elif to.kind in ("link", "folder"):
            action = to.kind
        else:
            action = "create" if now.kind == "none" else "write"
        new = self._objects.get(to.blob) if to.blob else b""
        added, removed, is_binary = line_counts(data or b"", new)
        step = FileStep(want.path, "keep", added, removed, is_binary, conflict)
        return replace(step, action=action)  # type: ignore[arg-type]

    def _done(self, planned: _PlannedRewind, entry: CheckpointEntry, *, is_forced: bool, is_dry: bool) -> FileRewind:
        found = FileRewind(tuple(planned.steps), to=entry.to)
        if is_dry:
            return found
        if not planned.items and entry.kind == REWIND:
            return replace(found, is_done=True)
        if found.conflicts and not is_forced:
            names = tuple(step.path for step in found.conflicts)
            told = ", ".join(map(name_for_people, names[:_SHOWN])) + (
                f" and {more} more" if (more := len(names) - _SHOWN) > 0 else ""
            )
            why = f"changed by someone else since: {told}; nothing was changed, --force overwrites them"
            raise RewindRefused(why, paths=names)
        self._objects.put(planned.contents.values())
        for blob, data in planned.contents.items():  # REL-11: a copy counts once it was read back
            if self._objects.get(blob) != data:
                raise JournalError(f"the copy {blob[:12]} isn't what was saved; nothing was changed")
        changes = tuple(PathChange(item.path, item.now, item.to) for item in planned.items)

        def made(plan: str) -> CheckpointEntry:
            return CheckpointEntry(
                seq=self._log.next_seq, kind=entry.kind, at=self._now(), changes=changes, plan=plan, to=entry.to,
                undoes=entry.undoes, is_whole=entry.is_whole,
            )  # fmt: skip

        try:
            done = self._restoring.run(tuple(planned.items), made)
        except (OSError, FileRefused) as e:
            why = (
                f"{name_for_people(str(e.filename or 'a file'))}: {e.strerror or e}"
                if isinstance(e, OSError)
                else str(e)
            )
            raise RewindRefused(f"{why}; nothing was changed") from e
        return replace(found, is_done=True, number=done.seq)


def line_counts(old: bytes, new: bytes) -> tuple[int, int, bool]:
    """Lines that come and lines that go, and whether these are no texts."""
    if b"\0" in old[:8_000] or b"\0" in new[:8_000]:
        return 0, 0, True
    before, after = old.splitlines(), new.splitlines()
    if len(before) + len(after) > _DIFF_LINES:
        was, will = Counter(before), Counter(after)
        return (will - was).total(), (was - will).total(), False
    same = sum(block.size for block in SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks())
    return len(after) - same, len(before) - same, False
