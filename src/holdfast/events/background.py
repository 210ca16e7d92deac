"""Work beside the turn: keepers, notes, forks, summaries made ahead of time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SummaryHeld:
    """A model wrote a summary ahead of time; it covers so many messages (CMP-6)."""

    model: str
    messages: int
    tokens: int


@dataclass(frozen=True, slots=True)
class HeldSummaryUsed:
    """A compaction took the summary that a model had written ahead of time."""

    model: str


@dataclass(frozen=True, slots=True)
class KeeperStarted:
    keeper: str


@dataclass(frozen=True, slots=True)
class KeeperDone:
    keeper: str
    seconds: float
    records: int


@dataclass(frozen=True, slots=True)
class KeeperFailed:
    """A background keeper failed; the turn didn't notice. `reason` is the type of the error."""

    keeper: str
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class KeeperDeferred:
    """A keeper was asked for while it ran: it will run once more when it is done."""

    keeper: str


@dataclass(frozen=True, slots=True)
class ForkEnded:
    """A helper asked a model on the conversation's prefix (SM-3, MEM-6). `reason` is empty when it ended by itself.

    `allowed` and `denied` are its tool calls, by its permit; tokens and price those of all its turns.
    """

    job: str
    model: str
    turns: int
    allowed: int
    denied: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    usd: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class NotesStarted:
    engine: str


@dataclass(frozen=True, slots=True)
class NotesUpdated:
    """Session notes were brought up to date (SM-8). Tokens and price are those of a model; code has none."""

    engine: str
    sections_changed: int
    file_tokens: int
    first_tokens: int
    growth_tokens: int
    calls: int
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    usd: float | None = None
    changed: tuple[str, ...] = ()  # titles of sections


@dataclass(frozen=True, slots=True)
class NotesSkipped:
    """No update now, and why; said when the reason changes (SM-8)."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotesFellBack:
    """A model couldn't bring the notes up to date, and why; code did it instead."""

    model: str
    reason: str


@dataclass(frozen=True, slots=True)
class NotesFailed:
    reason: str


@dataclass(frozen=True, slots=True)
class NotesMended:
    """The file was emptied, broken or removed, or lost sections; `aside` is the new name of what stood there (SM-6)."""

    what: str
    aside: str
    sections: int
