"""The memory directory on this disk (MEM-1, SEC-2). `adapters.memories` has what it does."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from holdfast.adapters.files.beneath import CALLS, Calls
from holdfast.adapters.files.rooted import Rooted
from holdfast.adapters.memories import StoredMemories
from holdfast.adapters.upkeep import StoredUpkeep
from holdfast.memory.names import OWN
from holdfast.settings import Settings


def file_memories(directory: Path, settings: Settings | None = None, *, calls: Calls = CALLS) -> StoredMemories:
    """The memories in a directory, which is made at the first write. `durability` of the settings holds here, too."""
    is_durable = (settings or Settings()).durability == "commit"
    return StoredMemories(partial(_opened, directory, calls), is_durable=is_durable)


def file_upkeep(directory: Path, *, calls: Calls = CALLS) -> StoredUpkeep:
    """When the memories in a directory were last put in order."""
    return StoredUpkeep(partial(_opened, directory, calls))


def _opened(directory: Path, calls: Calls, create: bool) -> Rooted:
    return Rooted.open(directory, create=create, rules=OWN, calls=calls)
