"""Instruction files again after a compaction, as they are on disk then (RST-7, INS-6)."""

from __future__ import annotations

from holdfast import prompts
from holdfast.context.instructions import Told, block_text, named, unpacked
from holdfast.context.restore.registry import Entry, Restored, Restorer, Room, Scene
from holdfast.memory.instructions.budget import fit
from holdfast.settings import Settings

KIND = "instructions"


def restore(scene: Scene, room: Room) -> Restored | None:
    """All files that load at the start of a session; where they don't fit, the nearest stay whole (INS-5)."""
    given = scene.given.get(KIND)
    if not given:
        return None
    kept = Told().follow(scene.view, scene.keep_from).files
    is_there = {(path, known.revision) for path, known in kept.items() if known.is_whole}
    files = [file for file in unpacked(given) if (named(file.path), file.revision) not in is_there]
    entries: list[Entry] = []
    left_out: list[str] = []
    for fitted in fit(files, room.next, room.cost):
        path, text = fitted.file.path, block_text(fitted)
        if room.admits(text):
            entries.append(Entry(path, text))
        if fitted.is_cut:
            left_out.append(path if not fitted.text else f"the end of {path}")
    return Restored(tuple(entries), tuple(left_out))


def budget(settings: Settings) -> tuple[int, int]:
    return settings.instructions_tokens, settings.instructions_tokens


RESTORER = Restorer(KIND, restore, budget, lead=prompts.source("restored_instructions"), rank=15)
