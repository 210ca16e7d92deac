"""Changing a directory of memories: through the gate, with the lines of its index, and without saying anything twice
(MEM-2, MEM-6, MEM-8).

It knows no session, so that what has none, such as a hook, changes memories in the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

import msgspec

from perdure.errors import MemoryChanged, MemoryRefused, PerdureError
from perdure.events import MemoryBlocked, MemoryProposed, MemoryWritten
from perdure.memory.changes import (
    Change,
    DeleteMemory,
    MemoryBatch,
    MemoryProposal,
    Mode,
    SaveMemory,
    Stamp,
    WriteResult,
)
from perdure.memory.files import INDEX, topic
from perdure.memory.index_file import IndexLimits, too_large
from perdure.memory.places import is_memory
from perdure.memory.remarks import Remark
from perdure.memory.retrieval import TURN_FLOOR, MemoryQuery
from perdure.memory.save import file_names, index_of, is_known, memory_text, title_of, with_line, without_line
from perdure.memory.trust.gate import decide_change
from perdure.ports.memory import MemorySearch, MemoryStore
from perdure.ports.session import Sink
from perdure.settings import Settings


@dataclass(frozen=True, slots=True)
class GuardedMemory:
    """A memory directory with the gate before it. `mode` is the setting `memory_mode`."""

    store: MemoryStore
    sink: Sink
    mode: Mode

    async def change(
        self, change: Change, stamp: Stamp, *, heard: Collection[str] = ()
    ) -> WriteResult | MemoryProposal:
        """Make a change, or put it into the inbox. `MemoryRefused` names the rule that it breaks, in one line.

        A `WriteResult` with the outcome `conflict` was kept beside: whoever asked has to be told. `heard`: the secrets
        in the words that the change was made of.
        """
        action = str(change.__struct_config__.tag)
        found = decide_change(change, stamp, self.mode, heard)
        if found.act == "refuse":
            self.sink.emit(MemoryBlocked(action, stamp.origin, found.rule))
            raise MemoryRefused(found.why, rule=found.rule)
        if found.act == "inbox":
            proposal = await self.store.propose(change, stamp, found.why)
            self.sink.emit(MemoryProposed(action, stamp.origin, found.rule))
            return proposal
        written = await self.store.write(change, stamp, mode=self.mode if stamp.by == "agent" else "by hand")
        self.sink.emit(MemoryWritten(action, written.outcome, stamp.origin, self.mode))
        return written


_TRIES = 3  # somebody may change the index while we write
FileEdit = SaveMemory | DeleteMemory


async def new_memory(store: MemoryStore, text: str) -> SaveMemory:
    """A memory under a name of ours that is free: its type and words of its title, and a number if need be.

    Where that is the text of the first that has such a name, its `base` says so: it was saved before.
    """
    about = topic("", text)
    for name in file_names(about.type or "project", about.name):
        there = await store.read(name)
        if there is None or there.text == text:
            return SaveMemory(name=name, text=text, base=None if there is None else text)
    raise AssertionError("there is always another number")


async def write_with_index(
    memory: GuardedMemory, stamp: Stamp, *changes: FileEdit, heard: Collection[str] = ()
) -> WriteResult | MemoryProposal:
    """Make changes and what they mean for the index as one: one review, one undo (MEM-2, MEM-8).

    A new memory gets its line, and one that is about something else by now a new one; one that is gone has none. What
    waits for a person already isn't proposed again: the proposal that waits is the answer.

    Raises:
        MemoryRefused: The gate doesn't let it through.
        MemoryChanged: Somebody else keeps changing the same files.
    """
    for proposal in await memory.store.pending():
        if all(change in proposal.edits for change in changes):
            return proposal
    for left in reversed(range(_TRIES)):
        lines = await _index_changes(memory, changes)
        every = (*changes, *lines)
        whole = MemoryBatch(name=changes[0].name, changes=every) if len(every) > 1 else changes[0]
        try:
            return await memory.change(whole, stamp, heard=heard)
        except MemoryChanged:
            if not left:
                raise
    raise AssertionError("the last try raised")


async def _index_changes(memory: GuardedMemory, changes: Iterable[FileEdit]) -> list[SaveMemory]:
    """What has to become of indexes when these changes are made."""
    before: dict[str, str | None] = {}
    after: dict[str, str] = {}

    async def index(name: str) -> str | None:
        if name not in before:
            read = await memory.store.read(name)
            before[name] = None if read is None else read.text
        return after.get(name, before[name])

    for change in changes:
        if not is_memory(change.name):
            continue
        own, _ = index_of(change.name, has_own=True)
        has_own = await index(own) is not None
        if isinstance(change, SaveMemory):
            now = topic(change.name, change.text)
            was = topic(change.name, change.base) if change.base is not None else None
            if was is None or (was.name, was.description) != (now.name, now.description):
                at, file = index_of(change.name, has_own=has_own)
                after[at] = with_line(await index(at) or "", file, now)
        else:
            for at, file in {index_of(change.name, has_own=True), index_of(change.name, has_own=False)}:
                if (text := await index(at)) is not None:
                    after[at] = without_line(text, file)
    return [
        SaveMemory(name=name, text=text, base=before[name] or "")
        for name, text in after.items()
        if text != (before[name] or "")
    ]


async def approve(memory: GuardedMemory, proposal: MemoryProposal) -> WriteResult:
    """Make a change that waited, and have the index follow, unless a change of the index waits for that itself.

    A person's hand lets it through; whose word it is stays as it was (MEM-10).
    """
    store, change = memory.store, proposal.change
    done = await store.approve(proposal.id)
    others = [one.change for one in await store.pending()]
    leaf = change.name.rpartition("/")[2]
    waits = any(isinstance(one, SaveMemory) and one.name.endswith(INDEX) and f"({leaf})" in one.text for one in others)
    is_new = isinstance(change, SaveMemory) and change.base is None and done.outcome == "written"
    if not waits and isinstance(change, FileEdit) and (is_new or isinstance(change, DeleteMemory)):
        stamp = msgspec.structs.replace(proposal.stamp, by="user")
        for line in await _index_changes(memory, (change,)):
            if not (is_new and f"({leaf})" in (line.base or "")):  # its writer may have given it a line
                await memory.change(line, stamp)
    return done


async def over_limits(store: MemoryStore, settings: Settings, index: str = INDEX, *, path: str = "") -> str | None:
    """What a writer is told when an index is too large by now, under the path that they know it by (MEM-2)."""
    read = await store.read(index)
    return None if read is None else too_large(read.text, IndexLimits.of(settings), name=path or index)


# --- what was found worth keeping -------------------------------------------------------------------------------------


@dataclass(slots=True)
class ExtractionCounts:
    """What became of what was found."""

    written: int = 0
    proposed: int = 0
    known: int = 0
    refused: int = 0


async def save_remark(
    memory: GuardedMemory, search: MemorySearch, remark: Remark, stamp: Stamp, tally: ExtractionCounts
) -> None:
    """Save what a person said, unless a memory says so already, or one that waits for a person's decision."""
    found = await search.find(MemoryQuery(query=remark.text, floor=TURN_FLOOR, now=stamp.at))
    near = await search.read(tuple(one.card.file for one in found.chosen))
    text = memory_text(type=remark.type, body=remark.body)
    own = await memory.store.read(next(file_names(remark.type, title_of(remark.text))))
    if own is not None:  # the search may not have seen yet what was saved a moment ago
        near = (*near, topic(own.name, own.text))
    for proposal in await memory.store.pending():  # what waits for a person isn't proposed again
        near = (*near, *(topic(one.name, one.text) for one in proposal.edits if isinstance(one, SaveMemory)))
    if any(is_known(remark.text, one) for one in near):
        tally.known += 1
        return
    await save_change(memory, await new_memory(memory.store, text), stamp, tally, heard=remark.heard)


async def save_change(
    memory: GuardedMemory, change: SaveMemory, stamp: Stamp, tally: ExtractionCounts, *, heard: Collection[str] = ()
) -> None:
    """A memory and its line in the index, as one change; what waits already isn't proposed again."""
    waiting = {one.id for one in await memory.store.pending()}
    try:
        done = await write_with_index(memory, stamp, change, heard=heard)
    except MemoryRefused:
        tally.refused += 1  # the gate said which rule it broke
        return
    except MemoryChanged:
        raise PerdureError(f"{change.name}: it kept changing while it was saved; the next turn tries") from None
    if isinstance(done, MemoryProposal):
        tally.proposed += done.id not in waiting
        tally.known += done.id in waiting
    else:
        tally.written += done.outcome != "unchanged"
        tally.known += done.outcome == "unchanged"
