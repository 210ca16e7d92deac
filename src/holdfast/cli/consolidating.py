"""`holdfast memory consolidate`: put a memory directory in order, as one change that can be taken back (MEM-11)."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from holdfast.adapters.files.memories import file_memories, file_upkeep
from holdfast.adapters.sinks import NullSink
from holdfast.cli.door import EXIT_FAILED, EXIT_OK, clean, note, out, out_json
from holdfast.cli.remembering import opened
from holdfast.cli.tables import plural
from holdfast.engine.consolidation import Consolidated, Consolidator
from holdfast.engine.remembering import Memory
from holdfast.errors import FolderBusy, HoldfastError
from holdfast.memory.changes import Stamp
from holdfast.memory.contents import Limits
from holdfast.wiring import connect_models, memory_session

if TYPE_CHECKING:
    from holdfast.adapters.config import Config


def consolidate_command(config: Config, *, directory: Path | None, is_user: bool, dry_run: bool, is_json: bool) -> int:
    """Put a directory in order, or show how."""
    path = opened(config, directory, is_user=is_user).path
    if not path.is_dir():
        if is_json:
            out_json({"directory": str(path), "outcome": "nothing"})
        return EXIT_OK
    try:
        done = anyio.run(_consolidated, config, path, dry_run)
    except FolderBusy:
        note(f"{path}: somebody else puts it in order: try again in a minute")
        return EXIT_FAILED
    except HoldfastError as e:
        note(f"{path}: {e}")
        return EXIT_FAILED
    if is_json:
        out_json(_as_json(path, done))
    else:
        _show(done)
    return EXIT_FAILED if done.outcome == "changed" else EXIT_OK


async def _consolidated(config: Config, path: Path, dry_run: bool) -> Consolidated:
    settings = config.settings
    store, upkeep = file_memories(path, settings), file_upkeep(path)
    memory = Memory(store, NullSink(), settings.memory_mode)
    models = connect_models(settings, os.environ)
    session = await memory_session()
    limits = Limits(settings.memory_index_lines, settings.memory_index_bytes)
    consolidator = Consolidator(memory, store, limits, session=session, models=models.extractor)
    stamp = Stamp(origin="user", by="user", at=time.time())
    try:
        if dry_run:
            return await consolidator.run(stamp, dry_run=True)
        async with upkeep.alone():
            done = await consolidator.run(stamp)
            await upkeep.done(stamp.at)
            return done
    finally:
        await models.close()
        await session.close()


def _as_json(path: Path, done: Consolidated) -> dict[str, object]:
    order = done.order
    return {
        "directory": str(path),
        "outcome": done.outcome,
        "change": done.change,
        "model": done.model,
        "merged": dict(order.merged),
        "removed": sorted(name for name, text in order.texts.items() if text is None),
        "changed": sorted(name for name, text in order.texts.items() if text is not None),
        "dropped": [{"file": one.file, "line": one.line, "reason": one.reason} for one in order.dropped],
        "left": list(order.left),
        "diff": done.diff,
    }


def _show(done: Consolidated) -> None:
    order = done.order
    for line in done.diff.splitlines():
        out(clean(line))
    for drop in order.dropped:
        out(f"dropped  {clean(drop.file)}: {clean(drop.line)} ({clean(drop.reason)})")
    for left in order.left:
        out(f"left     {clean(left)}")
    count = plural(len(order.texts), "file")
    match done.outcome:
        case "nothing":
            out("nothing to do")
        case "dry-run":
            out(f"{count} would change; nothing was written")
        case "changed":
            out("somebody wrote there meanwhile: nothing was changed; run it again")
        case _:
            out(f"{count} changed as {done.change}: one undo takes all of it back")
