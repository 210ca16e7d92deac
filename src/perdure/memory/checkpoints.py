"""What is known of an agent's changes to files, and what a rewind of them means; pure (CKP-1 to CKP-7).

Every call of a tool leaves an entry with the files it changed, each as it was before and after. A rewind goes back to
what stood there before the first change of a range, where nothing but the agent changed it since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

Kind = Literal["none", "file", "link", "folder", "other"]
CALL, BEGUN, REWIND, UNDO, GONE = "call", "begun", "rewind", "undo", "gone"


class PathState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What stands at a path. `blob` names a file's bytes in the store; empty: not saved, too large or not readable.

    `stamp` tells such files apart. `target` is where a link leads. `mode` holds permission bits of files and folders.
    """

    kind: Kind = "none"
    blob: str = ""
    bytes: int = 0
    mode: int = 0
    target: str = ""
    stamp: int = 0

    @property
    def is_large(self) -> bool:
        """A file that is there, and whose bytes aren't kept."""
        return self.kind == "file" and not self.blob

    @property
    def can_be_made(self) -> bool:
        """Whether this can be put back from what is kept."""
        return self.kind != "other" and not self.is_large


NONE = PathState()


def same(one: PathState, other: PathState) -> bool:
    """Whether two states are the same to those who work with the files; folders are, whatever their mode."""
    return one == other or one.kind == other.kind == "folder"


class PathChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A path, before and after a call. Names are relative to the project; those outside of it begin with a slash.

    Not `is_sure`: the call was cut short, or ran in the background, so somebody else may have done it.
    """

    path: str
    before: PathState
    after: PathState
    is_sure: bool = True


class MissedChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a call did to something that isn't kept: removed, changed, made (CKP-7); `why` it isn't.

    Without a path: everything that the call may have done.
    """

    path: str
    why: str
    what: str = ""


class CheckpointEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the log.

    call    what a call changed, for a prompt; `missed` is what it did to things that aren't kept, `also` are later
            prompts that were thinned into it (CKP-6)
    begun   a call began: with what one of our tools is about to change
    rewind  files were rewound by the plan of that id; undo took back the entry `undoes`, wholly when `is_whole`
    gone    the snapshots of the prompts `also` aren't kept any more
    """

    seq: int
    kind: str = CALL
    at: float = 0.0
    prompt: str = ""
    tool: str = ""
    changes: tuple[PathChange, ...] = ()
    plan: str = ""
    to: str = ""
    undoes: int = 0
    is_whole: bool = False
    also: tuple[str, ...] = ()
    missed: tuple[MissedChange, ...] = ()


@dataclass(frozen=True, slots=True)
class PathHistory:
    """A path that a rewind concerns: what stood there first, what the agent left, and whether only it changed it."""

    path: str
    to: PathState
    last: PathState
    is_sure: bool


@dataclass(frozen=True, slots=True)
class RewindPoint:
    """Where a rewind starts: at the entry `seq`. `thinned_into`: that snapshot was merged into an earlier prompt's."""

    seq: int
    thinned_into: str | None = None


def rewind_point_of(entries: Sequence[CheckpointEntry], prompts: AbstractSet[str]) -> RewindPoint | None:
    """The first entry made for one of these prompts (a message and all later ones); None when there is none."""
    for entry in entries:
        if entry.kind == CALL and entry.prompt in prompts:
            return RewindPoint(entry.seq)
        if not prompts.isdisjoint(entry.also):
            return RewindPoint(entry.seq, entry.prompt)
    return None


def path_histories(entries: Sequence[CheckpointEntry], first_seq: int) -> tuple[PathHistory, ...]:
    """What going back to before an entry means for each path. A chain with a gap was changed by somebody in between."""
    taken_back = {e.undoes: e.seq for e in entries if e.kind == UNDO and e.is_whole}
    dropped = set(taken_back) | set(taken_back.values())
    found: dict[str, PathHistory] = {}
    for entry in entries:
        if entry.seq < first_seq or entry.seq in dropped or entry.kind not in (CALL, REWIND, UNDO):
            continue
        for change in entry.changes:
            known = found.get(change.path)
            if known is None:
                found[change.path] = PathHistory(change.path, change.before, change.after, change.is_sure)
                continue
            is_gap = entry.kind == CALL and not same(known.last, change.before)
            is_sure = known.is_sure and change.is_sure and not is_gap
            found[change.path] = replace(known, last=change.after, is_sure=is_sure)
    return tuple(found.values())


def missed_changes(entries: Iterable[CheckpointEntry], first_seq: int) -> tuple[MissedChange, ...]:
    """CKP-7: what a rewind to before an entry doesn't put back, each thing once, by name."""
    found: dict[tuple[str, str], MissedChange] = {}
    for entry in entries:
        for one in entry.missed if entry.seq >= first_seq else ():
            key = (one.path, "" if one.path else one.why)
            before = found.setdefault(key, one)
            if (before.what, one.what) == ("made", "removed"):
                del found[key]
            elif (before.what, one.what) == ("removed", "made"):
                found[key] = msgspec.structs.replace(one, what="changed")
            elif before.what != "made":  # what was made and then changed is new all the same
                found[key] = one
    return tuple(found[key] for key in sorted(found))


@dataclass(frozen=True, slots=True)
class PathDecision:
    """What to do with a path. `conflict`: only when forced, and why; `left`: not at all, and why."""

    does: bool = False
    conflict: str = ""
    left: str = ""


CHANGED = "changed by someone else since"
BETWEEN = "changed by someone else in between, or by a call that was cut short or ran in the background"
NOT_MADE = "not known to be made by the agent, so it isn't deleted"
NOT_KEPT = "not kept (too large, not readable, or the store was full), so it can't be put back"
NOT_SAVED = "what stands there can't be saved first (too large, not readable, no plain file), so it stays"


def decide_path(want: PathHistory, now: PathState) -> PathDecision:
    """CKP-3: what becomes of a path that is to be rewound and looks like `now`."""
    if same(now, want.to) or same(want.last, want.to):
        return PathDecision()
    if not want.to.can_be_made:
        return PathDecision(left=NOT_KEPT)
    if not now.can_be_made:
        return PathDecision(left=NOT_SAVED)
    if want.to.kind == "none" and not want.is_sure:
        return PathDecision(left=NOT_MADE)
    if not same(now, want.last):
        return PathDecision(does=True, conflict=CHANGED)
    return PathDecision(does=True, conflict="" if want.is_sure else BETWEEN)


def snapshots(entries: Iterable[CheckpointEntry]) -> tuple[str, ...]:
    """The prompts that can be gone back to, oldest first."""
    return tuple(dict.fromkeys(e.prompt for e in entries if e.kind == CALL and e.changes))


def thin_snapshots(entries: Sequence[CheckpointEntry], keep: int) -> tuple[CheckpointEntry, ...]:
    """CKP-6: beyond `keep` snapshots every second one of the older half becomes a part of the one before it.

    A range that begins at a snapshot that stays means what it did.
    """
    prompts = snapshots(entries)
    if len(prompts) <= keep:
        return tuple(entries)
    older = prompts[: len(prompts) - keep // 2]
    into = {prompt: older[n - 1] for n, prompt in enumerate(older) if n % 2}
    done: list[CheckpointEntry] = []
    for entry in entries:
        if entry.kind == BEGUN:
            continue
        if entry.kind != CALL or entry.prompt not in into:
            done.append(entry)
            continue
        first = into[entry.prompt]
        merged = msgspec.structs.replace(entry, prompt=first, also=(*entry.also, entry.prompt))
        done.append(merged)
    return tuple(_folded(done))


def _folded(entries: Sequence[CheckpointEntry]) -> Iterable[CheckpointEntry]:
    """Neighbouring calls for the same prompt as one entry, each path with its first and last state."""
    held: CheckpointEntry | None = None
    for entry in entries:
        if held is not None and held.kind == entry.kind == CALL and held.prompt == entry.prompt:
            parts = path_histories((held, entry), 0)
            changes = tuple(PathChange(w.path, w.to, w.last, w.is_sure) for w in parts)
            also = tuple(dict.fromkeys((*held.also, *entry.also)))
            held = msgspec.structs.replace(held, changes=changes, also=also, missed=missed_changes((held, entry), 0))
            continue
        if held is not None:
            yield held
        held = entry
    if held is not None:
        yield held


def without_oldest(entries: Sequence[CheckpointEntry], drop: int) -> tuple[CheckpointEntry, ...]:
    """The log without its oldest snapshots; what they were for is remembered, so that nobody goes back there."""
    gone = snapshots(entries)[:drop]
    last = max((e.seq for e in entries if e.prompt in gone), default=0)
    also = [p for e in entries if e.seq <= last for p in (*e.also, *((e.prompt,) if e.prompt else ()))]
    first = CheckpointEntry(seq=last, kind=GONE, also=tuple(dict.fromkeys(also)))
    return (first, *(e for e in entries if e.seq > last)) if last else tuple(entries)


def blobs_of(entries: Iterable[CheckpointEntry]) -> set[str]:
    """The blobs that some rewind may need: what stood before each change."""
    return {
        state.blob
        for entry in entries
        for change in entry.changes
        for state in ((change.before, change.after) if entry.kind in (REWIND, UNDO) else (change.before,))
        if state.blob
    }
