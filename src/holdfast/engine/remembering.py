"""The one way to change the memory: through the gate, then into the directory or its inbox (MEM-8, MEM-10, SEC-5).

Tools, extraction, consolidation and commands all come here; nothing else calls `Memories.write`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from holdfast.errors import MemoryRefused
from holdfast.events import MemoryBlocked, MemoryProposed, MemoryWritten
from holdfast.memory.changes import Change, Mode, Proposal, Stamp, Written
from holdfast.memory.trust.gate import verdict
from holdfast.ports import Memories, MemoryInbox, MemoryLog, Sink


class Remembering(Memories, MemoryLog, MemoryInbox, Protocol):
    """A memory directory that can be written, and holds what was done and what waits."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory directory with the gate before it. `mode` is the setting `memory_mode`."""

    store: Remembering
    sink: Sink
    mode: Mode

    async def change(self, change: Change, stamp: Stamp) -> Written | Proposal:
        """Make a change, or put it into the inbox. `MemoryRefused` names the rule that it breaks, in one line.

        A `Written` with the outcome `conflict` was kept beside: whoever asked has to be told.
        """
        action = str(change.__struct_config__.tag)
        found = verdict(change, stamp, self.mode)
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
