"""Putting files back as one transaction: all of them or none, whatever fails, and after a kill, too (CKP-3, REL-11).

Everything that is needed is made beside the files first (so a full disk is found out while nothing has changed), what
stands there is moved aside and looked at once more, and the new files are moved in: renames only, each of which can be
renamed back. The entry in the log is the one moment at which it becomes true. A plan is written down before anything
else, so whoever comes after a kill finds it: with the entry in the log only tidying is left, without it all goes back.
"""

from __future__ import annotations

import errno
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import msgspec

from holdfast.adapters.files.rooted import Rooted
from holdfast.adapters.shadow.ground import Ground, GroundCalls, open_ground
from holdfast.adapters.shadow.ignores import STAGING
from holdfast.adapters.shadow.log import Log
from holdfast.adapters.shadow.names import all_read, all_written
from holdfast.adapters.shadow.objects import Objects
from holdfast.adapters.shadow.usage import PLAN
from holdfast.errors import FileMissing, FileRefused, RewindRefused
from holdfast.memory.checkpoints import Entry, State, same
from holdfast.memory.names import shown

STAGED = "plan.staged"
_PLAN_BYTES = 500_000_000


class Item(msgspec.Struct, frozen=True):
    """A path, what stands there, and what is to stand there. Names of other places than the project are absolute."""

    path: str
    now: State
    to: State


class Plan(msgspec.Struct, frozen=True):
    """A transaction. `id` names its folder for new and old files, in the project and, by item, in other `places`."""

    id: str
    root: str
    items: tuple[Item, ...]
    places: tuple[str, ...] = ()  # for each item the folder, relative to its ground, that its staging folder is in


class Restoring:
    """One transaction on a root. `limit_bytes` is that of files that are kept."""

    def __init__(self, own: Rooted, ground: Ground, log: Log, objects: Objects, limit_bytes: int) -> None:
        self._own, self._ground, self._log, self._objects = own, ground, log, objects
        self.limit_bytes = limit_bytes

    def run(self, items: tuple[Item, ...], entry: Callable[[str], Entry]) -> Entry:
        """Do it all, or raise and leave everything as it was. `entry` makes the line of the log for a plan's id."""
        identity = secrets.token_hex(8)
        with ExitStack() as stack:
            grounds = Grounds(self._ground, stack)
            places = tuple(grounds.place_of(item.path) for item in items)
            plan = Plan(identity, self._ground.path, items, places)
            self._own.write(PLAN, msgspec.json.encode(all_written(msgspec.to_builtins(plan))))
            try:
                self._stage(plan, grounds)
                self._own.write(STAGED, b"")
                self._apply(plan, grounds)
                done = entry(identity)
                self._log.append(done)
            except BaseException:
                self._back(plan, grounds)
                raise
            try:
                self._tidy(plan, grounds)
            except (OSError, FileRefused):
                pass  # it is done all the same; whoever opens this next tidies up
        return done

    def recover(self) -> str:
        """End what a killed process left: "done", "undone", or nothing."""
        try:
            data = msgspec.json.decode(self._own.read(PLAN, limit_bytes=_PLAN_BYTES))
        except FileMissing:
            return ""
        plan = msgspec.convert(all_read(data), Plan)
        with ExitStack() as stack:
            grounds = Grounds(self._ground, stack)
            if any(entry.plan == plan.id for entry in self._log.entries):
                self._tidy(plan, grounds)
                return "done"
            self._back(plan, grounds)
        return "undone"

    # --- forwards -----------------------------------------------------------------------------------------------------

    def _stage(self, plan: Plan, grounds: Grounds) -> None:
        for ground, folder in grounds.stagings(plan):
            ground.make_folder(folder, 0o700)
        for number, item in enumerate(plan.items):
            if item.to.kind in ("file", "link"):
                data = self._objects.get(item.to.blob) if item.to.kind == "file" else None
                ground, new = grounds.at(plan, number, "new")
                ground.place(new, item.to, data)

    def _apply(self, plan: Plan, grounds: Grounds) -> None:
        numbered = sorted(enumerate(plan.items), key=lambda one: one[1].path)
        for number, item in numbered:
            if item.now.kind in ("file", "link"):
                self._aside(plan, grounds, number)
            elif item.now.kind == "none" and item.to.kind != "folder" and grounds.has(item.path):
                raise RewindRefused(f"{shown(item.path)}: somebody made it just now; nothing was changed")
        for _, item in reversed(numbered):
            if item.now.kind == "folder" and item.to.kind != "folder":
                ground, name = grounds.of(item.path)
                if not ground.take_folder(name) and item.to.kind != "none":
                    raise RewindRefused(f"{shown(item.path)}: other files stand in this folder; nothing was changed")
        for _, item in numbered:
            if item.to.kind == "folder" and item.now.kind != "folder":
                ground, name = grounds.of(item.path)
                ground.make_folder(name, item.to.mode)
        for number, item in numbered:
            if item.to.kind in ("file", "link"):
                ground, new = grounds.at(plan, number, "new")
                ground.move(new, grounds.of(item.path)[1])

    def _aside(self, plan: Plan, grounds: Grounds, number: int) -> None:
        """Move what stands there out of the way, and make sure that it is what was saved."""
        item = plan.items[number]
        ground, old = grounds.at(plan, number, "old")
        ground.move(grounds.of(item.path)[1], old)
        found, _ = ground.state(old, limit_bytes=self.limit_bytes)
        if not same(found, item.now):
            raise RewindRefused(f"{shown(item.path)}: somebody changed it just now; nothing was changed")

    # --- backwards ----------------------------------------------------------------------------------------------------

    def _back(self, plan: Plan, grounds: Grounds) -> None:
        """All as it was, from wherever it stopped; may be done again when it was itself cut short."""
        if self._own.stat(STAGED) is not None:
            numbered = sorted(enumerate(plan.items), key=lambda one: one[1].path)
            for number, item in reversed(numbered):
                if item.to.kind in ("file", "link"):
                    self._unplace(plan, grounds, number)
            for _, item in reversed(numbered):
                if item.to.kind == "folder" and item.now.kind != "folder":
                    ground, name = grounds.of(item.path)
                    ground.take_folder(name)
            for _, item in numbered:
                if item.now.kind == "folder" and item.to.kind != "folder":
                    ground, name = grounds.of(item.path)
                    _quietly(partial(ground.make_folder, name, item.now.mode))
            for number, item in numbered:
                if item.now.kind in ("file", "link"):
                    ground, old = grounds.at(plan, number, "old")
                    if ground.has(old):
                        _quietly(partial(ground.move, old, grounds.of(item.path)[1]))
        self._tidy(plan, grounds)

    def _unplace(self, plan: Plan, grounds: Grounds, number: int) -> None:
        """Take a new file out again, if it is there and still ours; what somebody made of it since stays."""
        item = plan.items[number]
        ground, new = grounds.at(plan, number, "new")
        if ground.has(new):
            return  # it never came to its place
        name = grounds.of(item.path)[1]
        found, _ = ground.state(name, limit_bytes=self.limit_bytes)
        if same(found, item.to):
            _quietly(lambda: ground.move(name, new))

    def _tidy(self, plan: Plan, grounds: Grounds) -> None:
        for number in range(len(plan.items)):
            for kind in ("new", "old"):
                ground, name = grounds.at(plan, number, kind)
                ground.drop(name)
        for ground, folder in grounds.stagings(plan):
            ground.take_folder(folder)
        for name in (STAGED, PLAN):  # in this order: a mark must not outlive its plan
            try:
                self._own.remove(name)
            except FileMissing:
                pass


class Grounds:
    """The project's ground, and that of the whole disk for files outside of it."""

    def __init__(self, ground: Ground, stack: ExitStack) -> None:
        self._ground, self._stack = ground, stack
        self._disk: Ground | None = None

    def of(self, path: str) -> tuple[Ground, str]:
        """The ground that a path stands on, and its name there."""
        if not path.startswith("/"):
            return self._ground, path
        if self._disk is None:
            calls: GroundCalls = self._ground._calls
            self._disk = open_ground("/", calls)
            self._stack.callback(self._disk.close)
        return self._disk, path[1:]

    def has(self, path: str) -> bool:
        ground, name = self.of(path)
        return ground.has(name)

    def place_of(self, path: str) -> str:
        """The folder in which to put new and old files for a path: the same disk, so that renames do."""
        if not path.startswith("/"):
            return ""
        ground, name = self.of(path)
        while "/" in name:
            name = name.rsplit("/", 1)[0]
            if ground.has(name):
                return f"/{name}"
        return "/"

    def at(self, plan: Plan, number: int, kind: str) -> tuple[Ground, str]:
        """Where the new or the old file of an item waits."""
        ground, folder = self._staging(plan, plan.places[number])
        return ground, f"{folder}/{number}.{kind}"

    def stagings(self, plan: Plan) -> list[tuple[Ground, str]]:
        return [self._staging(plan, place) for place in dict.fromkeys(plan.places)]

    def _staging(self, plan: Plan, place: str) -> tuple[Ground, str]:
        name = f"{STAGING}{plan.id}"
        if not place:
            return self._ground, name
        ground, folder = self.of(place)
        return ground, f"{folder}/{name}" if folder else name


def _quietly(step: Callable[[], object]) -> None:
    """A step back that somebody else's file may stand in the way of: theirs stays, and ours is in the store."""
    try:
        step()
    except OSError as e:
        if e.errno not in (errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise
