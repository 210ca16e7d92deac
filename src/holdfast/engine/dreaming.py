"""The keeper that puts the memory in order when it is due: 24 hours and five sessions after the last time (MEM-11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.context.policy import Facts
from holdfast.context.view import View
from holdfast.engine.consolidation import Consolidator
from holdfast.engine.helping import helping
from holdfast.engine.remembering import Memory
from holdfast.engine.session import LiveSession
from holdfast.errors import FolderBusy
from holdfast.memory.changes import Stamp
from holdfast.memory.contents import Limits
from holdfast.ports import MemoryLog, MemoryUpkeep
from holdfast.transcript.records import Record

NAME = "dream"
HOUR_SECONDS = 3_600.0
MAIN = "user"


@dataclass(slots=True)
class Dreaming:
    """It looks once an hour at the end of a turn, when nobody waits for anything. What agents may do, it may do."""

    session: LiveSession
    memory: Memory
    log: MemoryLog
    upkeep: MemoryUpkeep
    name: str = NAME
    _looked: float | None = None

    def is_due(self, view: View, facts: Facts) -> bool:
        settings, now = facts.settings, facts.now or 0.0
        is_on = settings.memory and settings.memory_consolidate and self.memory.mode not in ("off", "read-only")
        message = view.items[-1].message if view.items else None
        if not is_on or facts.source != MAIN or message is None or message.role != "assistant" or message.tool_uses:
            return False
        if self._looked is not None and now - self._looked < HOUR_SECONDS:
            return False
        self._looked = now
        return True

    async def keep(self, view: View, facts: Facts) -> Sequence[Record]:
        settings, clock = facts.settings, self.session.world.clock
        seconds = settings.memory_consolidate_hours * HOUR_SECONDS
        wanted = settings.memory_consolidate_sessions
        if not await self.upkeep.is_due(self.session.name, clock.now(), seconds=seconds, sessions=wanted):
            return ()
        helpers = helping(self.session).helpers
        limits = Limits(settings.memory_index_lines, settings.memory_index_bytes)
        consolidator = Consolidator(self.memory, self.log, limits, session=self.session, models=helpers.extractor)
        try:
            async with self.upkeep.alone():
                stamp = Stamp(origin="assistant", at=clock.now(), session=self.session.name)
                if (await consolidator.run(stamp)).outcome != "changed":
                    await self.upkeep.done(clock.now())
        except FolderBusy:
            return ()  # somebody else is at it
        return ()
