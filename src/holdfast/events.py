"""Typed events, in the past tense: counts, ids, reasons and prices, never the text of a message (OBS-1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MessageAppended:
    message_id: str
    role: str
    tokens: int


@dataclass(frozen=True, slots=True)
class ResultOffloaded:
    tool_use_id: str
    bytes: int
    preview_bytes: int


@dataclass(frozen=True, slots=True)
class ResultsCleared:
    reason: str
    tool_use_ids: tuple[str, ...]
    tokens_saved: int
    images: int


@dataclass(frozen=True, slots=True)
class PrefixMoved:
    """The cached prefix was left: from `position` (an item of the view) on, `tokens_rewritten` are written again."""

    reason: str
    position: int
    tokens_rewritten: int
    usd: float | None


@dataclass(frozen=True, slots=True)
class CompactionChecked:
    tokens: int
    level: str
    usable_tokens: int
    source: str


@dataclass(frozen=True, slots=True)
class CompactionDone:
    trigger: str
    strategy: str
    tokens_before: int
    tokens_after: int
    summary_tokens: int
    kept_tokens: int


@dataclass(frozen=True, slots=True)
class CompactionAttemptFailed:
    trigger: str
    strategy: str
    reason: str


@dataclass(frozen=True, slots=True)
class CalibrationLearned:
    model: str
    ratio: float


@dataclass(frozen=True, slots=True)
class SettingIgnored:
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class JournalRepaired:
    line: int
    what: str


Event = (
    MessageAppended
    | ResultOffloaded
    | ResultsCleared
    | PrefixMoved
    | CompactionChecked
    | CompactionDone
    | CompactionAttemptFailed
    | CalibrationLearned
    | SettingIgnored
    | JournalRepaired
)
