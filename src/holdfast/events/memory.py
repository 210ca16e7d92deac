"""Instruction files, reminders, persistent memory, secrets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InstructionsLoaded:
    """Instruction files were read: at the start, as nested files, or for a compaction (INS-1, INS-4)."""

    why: str
    files: int
    tokens: int


@dataclass(frozen=True, slots=True)
class InstructionsChanged:
    """So many instruction files changed on disk since they were told (INS-6)."""

    files: int


@dataclass(frozen=True, slots=True)
class ReminderFailed:
    """A source of reminders raised; the turn went on without it (TURN-10)."""

    source: str
    error: str


@dataclass(frozen=True, slots=True)
class MemoriesRecalled:
    """Memories were looked for; `engine` says who chose: ranking or model (MEM-4)."""

    engine: str
    scanned: int
    chosen: int
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class MemorySelectionFailed:
    """A model didn't choose, and why (timeout, unreadable, an error's reason); the ranking stood (MEM-4)."""

    reason: str
    candidates: int


@dataclass(frozen=True, slots=True)
class MemoryIndexShown:
    """The index was shown at the start, or what changed in it was told (MEM-2)."""

    why: str
    lines: int
    tokens: int


@dataclass(frozen=True, slots=True)
class MemoryWritten:
    """A memory was changed (MEM-8): how, on whose word, and what came of it. Never its name or text."""

    action: str
    outcome: str
    origin: str
    mode: str


@dataclass(frozen=True, slots=True)
class MemoryProposed:
    """A change waits in the inbox for a person; `rule` says why (MEM-8, MEM-10)."""

    action: str
    origin: str
    rule: str


@dataclass(frozen=True, slots=True)
class MemoryBlocked:
    """A change of the memory was refused; `rule` is what it breaks: a rule's name, never a value (MEM-10, SEC-5)."""

    action: str
    origin: str
    rule: str


@dataclass(frozen=True, slots=True)
class MemoryAsked:
    """The user said to remember or forget something, and what came of it (MEM-7)."""

    action: str
    outcome: str


@dataclass(frozen=True, slots=True)
class ExtractionSkipped:
    """After a turn no memories were looked for, and why; said once in a row (MEM-6)."""

    reason: str


@dataclass(frozen=True, slots=True)
class ExtractionFellBack:
    """A model didn't extract memories, and why; rules did (MEM-6)."""

    model: str
    reason: str


@dataclass(frozen=True, slots=True)
class MemoriesExtracted:
    """What a look for memories brought: written, put into the inbox, known already, refused (MEM-6).

    `tokens` and `usd` are those of the model that looked, also where rules had to go on.
    """

    engine: str
    written: int
    proposed: int
    known: int
    refused: int
    tokens: int
    usd: float | None


@dataclass(frozen=True, slots=True)
class MemoryConsolidated:
    """A memory directory was put in order (MEM-11): files merged, changed, removed, and what came of it."""

    engine: str
    outcome: str
    merged: int
    changed: int
    removed: int
    left: int


@dataclass(frozen=True, slots=True)
class SecretsRedacted:
    """Secrets were replaced before something was written: where, of which families, and how many (SEC-5)."""

    place: str
    families: tuple[str, ...]
    count: int
