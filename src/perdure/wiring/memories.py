"""The memories of a project, without a session: a client's hook loads no more than this (MEM-1, PLG-1)."""

from __future__ import annotations

from pathlib import Path

from perdure.adapters.machine.repositories import memory_roots
from perdure.adapters.memory.directory import FileMemories, cache_of, file_memories
from perdure.engine.guarded_memory import GuardedMemory
from perdure.memory.places import project_directory
from perdure.ports.session import Sink
from perdure.settings import Settings


def project_memories(home: Path, cwd: Path, settings: Settings) -> FileMemories:
    """The memories of a project's folder, wherever its sessions are kept."""
    path = Path(project_directory(memory_roots(home, cwd, directory=settings.memory_directory)))
    return FileMemories(path, cache=cache_of(home, path))


def guarded_memory(path: Path, settings: Settings, sink: Sink) -> GuardedMemory:
    """A directory of memories with the gate before it; `sink` is told of every change."""
    return GuardedMemory(file_memories(path, settings), sink, settings.memory_mode)
