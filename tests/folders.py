"""Instruction files without a disk: a table of paths and texts, as a reader and as the engine's port."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from perdure.memory.instructions import (
    FoundFile,
    InstructionPlaces,
    LoadedInstructions,
    load_at_start,
    load_for_paths,
    reload_files,
)

PLACES = InstructionPlaces(
    cwd="/code/app", root="/code/app", home="/home/me", user="/home/me/.claude", managed="/etc/CLAUDE.md"
)


@dataclass
class Table:
    """`links` are paths that lead to other ones; `broken` can't be read."""

    texts: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)

    def read(self, path: str) -> FoundFile:
        real = self.links.get(path, path)
        if real in self.broken:
            return FoundFile(None, self.broken[real], real)
        return FoundFile(self.texts[real], "", real) if real in self.texts else FoundFile()

    def real(self, path: str) -> str:
        real = self.links.get(path, path)
        return real if real in self.broken or real in self.texts else ""

    def rules(self, folder: str, may: Callable[[str, str], bool]) -> tuple[str, ...]:
        names = {*self.texts, *self.links}
        return tuple(sorted(name for name in names if name.startswith(f"{folder}/") and name.endswith(".md")))


@dataclass
class TableFiles:
    """`ports.InstructionFiles` that never waits."""

    table: Table
    places: InstructionPlaces = PLACES

    async def at_start(self) -> LoadedInstructions:
        return load_at_start(self.places, self.table)

    async def touched(self, paths: tuple[str, ...]) -> LoadedInstructions:
        return load_for_paths(self.places, self.table, paths)

    async def reload(self, paths: tuple[str, ...]) -> LoadedInstructions:
        return reload_files(self.places, self.table, paths)
