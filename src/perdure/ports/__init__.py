"""What the engine needs from the world. Adapters implement these; the engine sees nothing else of the machine."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perdure.ports.machine import CHECKPOINTS as CHECKPOINTS
    from perdure.ports.machine import Checkpoints as Checkpoints
    from perdure.ports.machine import CommandExit as CommandExit
    from perdure.ports.machine import FileCall as FileCall
    from perdure.ports.machine import FileDifference as FileDifference
    from perdure.ports.machine import FileMatches as FileMatches
    from perdure.ports.machine import FileRewind as FileRewind
    from perdure.ports.machine import FileRewinder as FileRewinder
    from perdure.ports.machine import FileStep as FileStep
    from perdure.ports.machine import Finder as Finder
    from perdure.ports.machine import MatchedLine as MatchedLine
    from perdure.ports.machine import PermissionSource as PermissionSource
    from perdure.ports.machine import ResolvedPath as ResolvedPath
    from perdure.ports.machine import RunningCommand as RunningCommand
    from perdure.ports.machine import Shell as Shell
    from perdure.ports.machine import TextMatches as TextMatches
    from perdure.ports.machine import TextSearch as TextSearch
    from perdure.ports.machine import Workspace as Workspace
    from perdure.ports.memory import InstructionFiles as InstructionFiles
    from perdure.ports.memory import MemoryFile as MemoryFile
    from perdure.ports.memory import MemoryListing as MemoryListing
    from perdure.ports.memory import MemorySearch as MemorySearch
    from perdure.ports.memory import MemorySearchResult as MemorySearchResult
    from perdure.ports.memory import MemoryStat as MemoryStat
    from perdure.ports.memory import MemoryStore as MemoryStore
    from perdure.ports.session import Archive as Archive
    from perdure.ports.session import Blobs as Blobs
    from perdure.ports.session import Calibrations as Calibrations
    from perdure.ports.session import Clock as Clock
    from perdure.ports.session import Files as Files
    from perdure.ports.session import Ids as Ids
    from perdure.ports.session import Jobs as Jobs
    from perdure.ports.session import Journal as Journal
    from perdure.ports.session import LoadedJournal as LoadedJournal
    from perdure.ports.session import Model as Model
    from perdure.ports.session import NotesFile as NotesFile
    from perdure.ports.session import PlacedRecord as PlacedRecord
    from perdure.ports.session import Receipt as Receipt
    from perdure.ports.session import SearchHit as SearchHit
    from perdure.ports.session import SearchResults as SearchResults
    from perdure.ports.session import Sink as Sink
    from perdure.ports.session import SpendingCaps as SpendingCaps

# name -> where it is defined; a conversation without tools and memories loads the ports of neither (LIB-6)
_PORTS = {
    "Archive": "session",
    "Blobs": "session",
    "CHECKPOINTS": "machine",
    "Calibrations": "session",
    "Checkpoints": "machine",
    "Clock": "session",
    "CommandExit": "machine",
    "FileCall": "machine",
    "FileDifference": "machine",
    "FileMatches": "machine",
    "FileRewind": "machine",
    "FileRewinder": "machine",
    "FileStep": "machine",
    "Files": "session",
    "Finder": "machine",
    "Ids": "session",
    "InstructionFiles": "memory",
    "Jobs": "session",
    "Journal": "session",
    "LoadedJournal": "session",
    "MatchedLine": "machine",
    "MemoryFile": "memory",
    "MemoryListing": "memory",
    "MemorySearch": "memory",
    "MemorySearchResult": "memory",
    "MemoryStat": "memory",
    "MemoryStore": "memory",
    "Model": "session",
    "NotesFile": "session",
    "PermissionSource": "machine",
    "PlacedRecord": "session",
    "Receipt": "session",
    "ResolvedPath": "machine",
    "RunningCommand": "machine",
    "SearchHit": "session",
    "SearchResults": "session",
    "Shell": "machine",
    "Sink": "session",
    "SpendingCaps": "session",
    "TextMatches": "machine",
    "TextSearch": "machine",
    "Workspace": "machine",
}
__all__ = sorted(_PORTS)  # noqa: PLE0605 - the table above is the one list of names


def __getattr__(name: str) -> Any:
    if name not in _PORTS:
        raise AttributeError(f"module 'perdure.ports' has no attribute {name!r}")
    value = getattr(import_module(f"perdure.ports.{_PORTS[name]}"), name)
    globals()[name] = value
    return value
