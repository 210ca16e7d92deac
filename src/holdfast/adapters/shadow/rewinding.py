"""What a rewind of files would do, and doing it: verdicts, copies first, then one transaction (CKP-3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from holdfast.adapters.shadow.ground import Ground
from holdfast.adapters.shadow.log import Log
from holdfast.adapters.shadow.objects import Objects
from holdfast.adapters.shadow.restore import Grounds, Item, Restoring
from holdfast.errors import FileRefused, JournalError, RewindRefused
from holdfast.memory.checkpoints import (
    GONE,
    NONE,
    NOT_KEPT,
    REWIND,
    UNDO,
    Change,
    Entry,
    State,
    Verdict,
    Wanted,
    anchor_of,
    missed,
    verdict,
    wanted,
)
from holdfast.memory.names import shown
from holdfast.ports import FileRewind, FileStep

NOTHING = "no changes of files were recorded in this session"  # a fork, an import, or it was switched off
_FOLDER_MODE = 0o755
_DIFF_LINES = 4_000  # beyond that lines are counted, not compared
_SHOWN = 10


@dataclass(slots=True)
class _Planned:
    items: list[Item]
    steps: list[FileStep]
    contents: dict[str, bytes]  # of what stands there, by blob


class Rewinds:
    """Goes back and forth in one log."""

    def __init__(
        self, ground: Ground, log: Log, objects: Objects, restoring: Restoring, now: Callable[[], float]
    ) -> None:
        self._ground, self._log, self._objects, self._restoring = ground, log, objects, restoring
        self._limit, self._now = restoring.limit_bytes, now

    def state(self, path: str) -> tuple[State, bytes | None]:
        """What stands at a path of the log."""
        with ExitStack() as stack:
            ground, name = Grounds(self._ground, stack).of(path)
            return ground.state(name, limit_bytes=self._limit)

    def rewind(self, prompts: AbstractSet[str], *, is_forced: bool, is_dry: bool) -> FileRewind:
        """Back to before the first of these prompts."""
        entries = self._log.entries
        anchor = anchor_of(entries, prompts)
        if anchor is None:
            return FileRewind((), is_done=not is_dry, note="" if entries else NOTHING)
        at = next(entry for entry in entries if entry.seq == anchor.seq)
        if at.kind == GONE or anchor.thinned_into is not None:
            near = f"; the nearest one that is kept before it is {anchor.thinned_into}" if anchor.thinned_into else ""
            raise RewindRefused(
                "the checkpoint of that message isn't kept any more "
                f"(checkpoint_snapshots, checkpoint_disk_bytes){near}"
            )
        planned = self._planned(wanted(entries, anchor.seq))
        to = at.prompt
        done = self._done(planned, Entry(seq=0, kind=REWIND, to=to), is_forced=is_forced, is_dry=is_dry)
        return replace(done, missed=missed(entries, anchor.seq))

    def undo(self, *, is_forced: bool, is_dry: bool) -> FileRewind:
        """Take back the last rewind that wasn't."""
        taken = {entry.undoes for entry in self._log.entries if entry.kind == UNDO}
        last = next((e for e in reversed(self._log.entries) if e.kind == REWIND and e.seq not in taken), None)
        if last is None:
            raise RewindRefused("there is no rewind of files to undo")
        planned = self._planned(tuple(Wanted(c.path, c.before, c.after, True) for c in last.changes), is_undo=True)
        is_whole = not any(step.conflict or step.left for step in planned.steps)
        entry = Entry(seq=0, kind=UNDO, undoes=last.seq, is_whole=is_whole, to=last.to)
        return self._done(planned, entry, is_forced=is_forced, is_dry=is_dry)

    def _planned(self, wants: tuple[Wanted, ...], *, is_undo: bool = False) -> _Planned:
        planned = _Planned([], [], {})
        for want in sorted(wants, key=lambda want: want.path):
            try:
                now, data = self.state(want.path)
            except OSError as e:
                raise RewindRefused(
                    f"{shown(want.path)}: {e.strerror or e}; nothing was changed", paths=(want.path,)
                ) from e
            said = verdict(want, now)
            if said.does and want.to.blob and not self._objects.has(want.to.blob):
                said = Verdict(left=NOT_KEPT)
            if said.left:
                planned.steps.append(FileStep(want.path, "keep", left=said.left))
            if not said.does:
                continue
            if data is not None:
                planned.contents[now.blob] = data
            planned.items.append(Item(want.path, now, want.to))
            planned.steps.append(self._step(want, now, data, said.conflict))
        self._with_folders(planned)
        return planned

    def _with_folders(self, planned: _Planned) -> None:
        """Folders that somebody removed since, and that a file of ours needs."""
        there = {item.path: item for item in planned.items}
        missing: dict[str, Item] = {}
        for item in planned.items:
            parent = item.path.rpartition("/")[0]
            while item.to.kind != "none" and parent and parent not in there and parent not in missing:
                if self.state(parent)[0].kind == "none":
                    missing[parent] = Item(parent, NONE, State("folder", mode=_FOLDER_MODE))
                parent = parent.rpartition("/")[0]
        planned.items += missing.values()

    def _step(self, want: Wanted, now: State, data: bytes | None, conflict: str) -> FileStep:
        to = want.to
        if to.kind == "none":
            action = "delete"
        elif to.kind in ("link", "folder"):
            action = to.kind
        else:
            action = "create" if now.kind == "none" else "write"
        new = self._objects.get(to.blob) if to.blob else b""
        added, removed, is_binary = counted(data or b"", new)
        step = FileStep(want.path, "keep", added, removed, is_binary, conflict)
        return replace(step, action=action)  # type: ignore[arg-type]

    def _done(self, planned: _Planned, entry: Entry, *, is_forced: bool, is_dry: bool) -> FileRewind:
        found = FileRewind(tuple(planned.steps), to=entry.to)
        if is_dry:
            return found
        if not planned.items and entry.kind == REWIND:
            return replace(found, is_done=True)
        if found.conflicts and not is_forced:
            names = tuple(step.path for step in found.conflicts)
            told = ", ".join(map(shown, names[:_SHOWN])) + (
                f" and {more} more" if (more := len(names) - _SHOWN) > 0 else ""
            )
            why = f"changed by someone else since: {told}; nothing was changed, --force overwrites them"
            raise RewindRefused(why, paths=names)
        self._objects.put(planned.contents.values())
        for blob, data in planned.contents.items():  # REL-11: a copy counts once it was read back
            if self._objects.get(blob) != data:
                raise JournalError(f"the copy {blob[:12]} isn't what was saved; nothing was changed")
        changes = tuple(Change(item.path, item.now, item.to) for item in planned.items)

        def made(plan: str) -> Entry:
            return Entry(
                seq=self._log.next_seq, kind=entry.kind, at=self._now(), changes=changes, plan=plan, to=entry.to,
                undoes=entry.undoes, is_whole=entry.is_whole,
            )  # fmt: skip

        try:
            done = self._restoring.run(tuple(planned.items), made)
        except (OSError, FileRefused) as e:
            why = f"{shown(str(e.filename or 'a file'))}: {e.strerror or e}" if isinstance(e, OSError) else str(e)
            raise RewindRefused(f"{why}; nothing was changed") from e
        return replace(found, is_done=True, number=done.seq)


def counted(old: bytes, new: bytes) -> tuple[int, int, bool]:
    """Lines that come and lines that go, and whether these are no texts."""
    if b"\0" in old[:8_000] or b"\0" in new[:8_000]:
        return 0, 0, True
    before, after = old.splitlines(), new.splitlines()
    if len(before) + len(after) > _DIFF_LINES:
        was, will = Counter(before), Counter(after)
        return (will - was).total(), (was - will).total(), False
    same = sum(block.size for block in SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks())
    return len(after) - same, len(before) - same, False
