"""What the host gives again after a compaction: session-start context (RST-7), the memory index (RST-9)."""

from __future__ import annotations

from holdfast import prompts
from holdfast.context.reminders import neutralised
from holdfast.context.restore.registry import Entry, Restored, Restorer, Room, Scene
from holdfast.context.restore.texts import cut_to
from holdfast.settings import Settings

SESSION_START = "session_start"
MEMORY_INDEX = "memory_index"


def _given(name: str, scene: Scene, room: Room) -> Restored | None:
    text = scene.given.get(name)
    if not text:
        return None
    body = cut_to(neutralised(text), room.next, room.cost)
    if body is None or not room.admits(body):
        return Restored((), (name.replace("_", " "),))
    left = () if body == neutralised(text) else (f"the end of the {name.replace('_', ' ')}",)
    return Restored((Entry(name, body),), left)


def _start(scene: Scene, room: Room) -> Restored | None:
    return _given(SESSION_START, scene, room)


def _memory(scene: Scene, room: Room) -> Restored | None:
    return _given(MEMORY_INDEX, scene, room)


def _start_budget(settings: Settings) -> tuple[int, int]:
    return settings.restore_start_tokens, settings.restore_start_tokens


def _memory_budget(settings: Settings) -> tuple[int, int]:
    return settings.restore_memory_tokens, settings.restore_memory_tokens


START = Restorer(SESSION_START, _start, _start_budget, lead=prompts.source("restored_start"), rank=50)
MEMORY = Restorer(MEMORY_INDEX, _memory, _memory_budget, lead=prompts.source("restored_memory"), rank=60)
