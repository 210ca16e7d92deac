"""What a person said in a client's session, kept as memories by the rules that need no model (PLG-1, MEM-6)."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.memory.remarks import Remark, remarks

if TYPE_CHECKING:
    from perdure.plugin.carried import CarriedLog


def remember(carried: CarriedLog, project: str, session: str) -> None:
    """Save what was said since the last time and is worth keeping; nothing more is imported where nothing is."""
    memory, _ = carried.memory_now()
    since = carried.head.remembered
    said = [one for one in memory.words if (one.at or 0.0) > since]
    found = [(one.id, remark) for one in said for remark in remarks(one.text, one.at or time.time())]
    if found and os.path.isabs(project):
        _save(found, Path(project), session)
    carried.head.remembered = max([since, *(one.at or 0.0 for one in said)])


def _save(found: list[tuple[str, Remark]], project: Path, session: str) -> None:
    import anyio

    from perdure.adapters.config import load
    from perdure.adapters.memory.directory import file_memories
    from perdure.adapters.sinks import NullSink
    from perdure.engine.extraction import ExtractionCounts, save_remark
    from perdure.engine.remember import GuardedMemory
    from perdure.memory.changes import Stamp
    from perdure.wiring.sessions import project_memories

    config = load(os.environ, cwd=project)
    settings = config.settings
    if not (settings.memory and settings.memory_extract) or settings.memory_mode in ("off", "read-only"):
        return
    search = project_memories(config.home, project, settings)
    memory = GuardedMemory(file_memories(Path(search.where), settings), NullSink(), settings.memory_mode)

    async def saving() -> None:
        tally = ExtractionCounts()
        for message, remark in found:
            stamp = Stamp(origin="user", at=time.time(), session=session, message=message)
            await save_remark(memory, search, remark, stamp, tally)

    anyio.run(saving)
