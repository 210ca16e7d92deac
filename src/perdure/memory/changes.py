"""Changes of the memory as values: what is wanted, on whose word, what came of it, and the log of it (MEM-8 to MEM-10).

A change carries the text that its writer read (`base`), so whoever applies it can tell whether somebody else wrote in
between, and what: no lock is held while a model thinks.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from perdure.memory.trust.labels import TrustLevel
from perdure.text.merging import merge

Origin = Literal["user", "assistant", "tool", "web"]
TRUST: Mapping[Origin, TrustLevel] = {  # most trusted first (SEC-1)
    "user": TrustLevel.USER,
    "assistant": TrustLevel.MODEL,
    "tool": TrustLevel.OUTSIDE,
    "web": TrustLevel.OUTSIDE,
}
Mode = Literal["off", "read-only", "ask", "auto"]
Outcome = Literal["written", "merged", "conflict", "unchanged", "deleted", "renamed"]
_STEM_CHARS = 150


class Stamp(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a change comes from, said by the harness and never by the model (MEM-10).

    `origin` is the least trusted of what it derives from. `by` is whose hand it was: a person's at a door of ours, or
    an agent's. `at` is in seconds since the epoch.
    """

    origin: Origin
    at: float
    by: Literal["user", "agent"] = "agent"
    session: str = ""
    message: str = ""
    batch: str = ""  # of changes that were made together, and are taken back together


class SaveMemory(msgspec.Struct, frozen=True, kw_only=True, tag="save"):
    """A text for a memory. `base` is what was read before; None: there was no such memory."""

    name: str
    text: str
    base: str | None = None


class DeleteMemory(msgspec.Struct, frozen=True, kw_only=True, tag="delete"):
    """A memory goes away, if it still says what was read."""

    name: str
    base: str


class RenameMemory(msgspec.Struct, frozen=True, kw_only=True, tag="rename"):
    """A memory gets another name, if it still says what was read, and nobody has that name."""

    name: str
    to: str
    base: str


class MemoryBatch(msgspec.Struct, frozen=True, kw_only=True, tag="batch"):
    """Changes that are made together or not at all, reviewed as one diff, and taken back by one undo (MEM-11).

    `origins` says of each whose word it is; without, that of the stamp holds for all. `name` is what they are for.
    """

    name: str
    changes: tuple[SaveMemory | DeleteMemory | RenameMemory, ...]
    origins: tuple[Origin, ...] = ()

    def stamps(self, stamp: Stamp, batch: str) -> tuple[Stamp, ...]:
        """The stamp of each change."""
        origins = self.origins or (stamp.origin,) * len(self.changes)
        return tuple(msgspec.structs.replace(stamp, origin=origin, batch=batch) for origin in origins)


Change = SaveMemory | DeleteMemory | RenameMemory | MemoryBatch


class MemoryLogEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the log: what was done to which memory, when, by whom, and what it said before and after.

    `before` and `after` are digests of the whole file, None where there is none; the bytes before are kept. `of` is the
    entry that this one took back, `wanted` the name of the memory that a conflict file stands beside.
    """

    id: str
    action: Literal["save", "delete", "rename", "void"]
    name: str
    stamp: Stamp
    mode: str
    outcome: Outcome = "written"
    before: str | None = None
    after: str | None = None
    to: str = ""
    of: str = ""
    wanted: str = ""


class MemoryProposal(msgspec.Struct, frozen=True, kw_only=True):
    """A change that waits for a person (MEM-8). `why` says what keeps it from being made at once."""

    id: str
    change: Change
    stamp: Stamp
    why: str

    @property
    def edits(self) -> tuple[SaveMemory | DeleteMemory | RenameMemory, ...]:
        """The changes of single files that it is made of."""
        return self.change.changes if isinstance(self.change, MemoryBatch) else (self.change,)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """What came of a change. `beside`: the name under which a text was kept that couldn't be merged."""

    outcome: Outcome
    name: str
    digest: str | None
    entry: str = ""
    beside: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a memory comes from: its last stamp, and the least trusted origin of all that went into it (SEC-1).

    It is about the file with this `digest`; another one was written around us, and nothing is known of it.
    """

    digest: str
    stamp: Stamp
    least: Origin


def decoded(data: bytes) -> str:
    """The text of a file; bytes that are no UTF-8 come back as they were by `encoded`."""
    return data.decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    """The bytes of a text; half a surrogate pair, as models write it now and then, becomes a question mark."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def digest_of(data: bytes) -> str:
    """The content hash of a file: a memory's, as the log has it, or that of the notes, as cursors carry it (SM-5)."""
    return hashlib.sha256(data).hexdigest()


def least_trusted(origins: Iterable[Origin]) -> Origin:
    """The one whose word counts least; with none at all, that is the web's."""
    return max(origins, key=tuple(TRUST).index, default="web")


# --- what a change comes to -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedChange:
    """What to do for a change: write these bytes to this name. `expects` is what must stand there: None, nothing."""

    outcome: Outcome
    name: str
    data: bytes
    expects: bytes | None


def resolve(change: SaveMemory, current: bytes | None) -> ResolvedChange:
    """What a save comes to, with what stands there now: written, merged, unchanged, or kept beside (MEM-9)."""
    wanted = encoded(change.text)
    base = None if change.base is None else encoded(change.base)
    if current is None and not base:  # whoever begins a text with "" for its base doesn't mind another who does
        base = None
    if current == wanted:
        return ResolvedChange(outcome="unchanged", name=change.name, data=wanted, expects=current)
    if current == base:
        return ResolvedChange(outcome="written", name=change.name, data=wanted, expects=current)
    if current is not None and change.base is not None:
        merged = merge(change.base, change.text, decoded(current))
        if merged is not None:
            return ResolvedChange(outcome="merged", name=change.name, data=encoded(merged), expects=current)
    return ResolvedChange(outcome="conflict", name=conflict_name(change.name, wanted), data=wanted, expects=None)


def conflict_name(name: str, data: bytes) -> str:
    """The name beside a memory for a text that lost: the same for the same text, so that it is kept once."""
    folder, slash, leaf = name.rpartition("/")
    stem, dot, kind = leaf.rpartition(".")
    stem, kind = (stem, dot + kind) if dot else (leaf, "")
    while len(stem.encode()) > _STEM_CHARS:
        stem = stem[:-1]
    return f"{folder}{slash}{stem.rstrip('. ')}.conflict-{digest_of(data)[:8]}{kind}"


def is_conflict(name: str) -> bool:
    """Whether a file was kept beside a memory, and waits for somebody to look at it."""
    head, mark, tail = name.rpartition("/")[2].rpartition(".conflict-")
    return bool(head and mark and tail)


def diff(change: Change, current: str | None) -> str:
    """The change as people review it: a unified diff against what stands there now."""
    match change:
        case MemoryBatch():
            return "".join(diff(one, getattr(one, "base", None)) for one in change.changes)
        case RenameMemory():
            return f"rename {change.name}\nto     {change.to}\n"
        case DeleteMemory():
            old, new, to = current or "", "", "/dev/null"
        case _:
            old, new, to = current or "", change.text, change.name
    lines = difflib.unified_diff(
        old.splitlines(), new.splitlines(), change.name if current is not None else "/dev/null", to, lineterm=""
    )
    return "".join(f"{line}\n" for line in lines)


# --- what the log tells ---------------------------------------------------------------------------------------------


def effective_entries(entries: Iterable[MemoryLogEntry]) -> list[MemoryLogEntry]:
    """The entries whose effect took place, in order: one that a crash kept from being carried out is void."""
    every = list(entries)
    void = {entry.of for entry in every if entry.action == "void"}
    return [entry for entry in every if entry.action != "void" and entry.id not in void]


def to_undo(entries: Iterable[MemoryLogEntry], wanted: str | None) -> list[MemoryLogEntry]:
    """What an undo takes back, last first: the entry or the batch of this id; else the last that wasn't taken back.

    An entry named by its id may be an undo, or one that was taken back already. Nothing for an id that isn't there.
    """
    every = effective_entries(entries)
    undone = {entry.of for entry in every if entry.of}
    rest = [entry for entry in reversed(every) if not entry.of and entry.id not in undone]
    if wanted is None and rest:
        wanted = rest[0].stamp.batch or rest[0].id
    if not wanted:
        return []
    return [entry for entry in rest if entry.stamp.batch == wanted] or [one for one in every if one.id == wanted]


def provenance(entries: Iterable[MemoryLogEntry]) -> Mapping[str, Provenance]:
    """Where each memory comes from. Who edits a text doesn't make it more trusted than what stood there.

    Taking back a change brings back where the text came from, too, whoever takes it back.
    """
    known: dict[str, Provenance] = {}
    earlier: dict[str, Origin] = {}  # of what each change replaced or removed
    for entry in effective_entries(entries):
        before = known.get(entry.name)
        if before is not None:
            earlier[entry.id] = before.least
        if entry.action == "rename":
            if before is not None:
                known[entry.to] = known.pop(entry.name)
        elif entry.after is None:
            known.pop(entry.name, None)
        else:
            goes_on = before is not None and entry.before is not None
            origins = (entry.stamp.origin, *((before.least,) if goes_on and before else ()))
            least = earlier.get(entry.of) or least_trusted(origins)
            known[entry.name] = Provenance(digest=entry.after, stamp=entry.stamp, least=least)
    return known
