"""The view: what entered it, what left it, compactions and restoration."""

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
class CompactionBlocked:
    """A hook didn't want it; nothing changed (CMP-10)."""

    trigger: str
    hook: str


@dataclass(frozen=True, slots=True)
class CompactionRequested:
    """The model asked for a compaction with its tool: put off once, or accepted (CMP-6)."""

    is_accepted: bool
    percent: int


@dataclass(frozen=True, slots=True)
class BoundaryListenerFailed:
    """Something that wanted to know of boundaries failed; the compaction stands."""

    reason: str


@dataclass(frozen=True, slots=True)
class HookFailed:
    """A hook raised, ended badly or took too long; `reason` is the type of the error. It went on without it."""

    hook: str
    event: str
    reason: str


@dataclass(frozen=True, slots=True)
class SummaryInputDropped:
    """The oldest API rounds were left out of the request for a summary, since it was too long (CMP-4)."""

    model: str
    dropped: int
    rounds: int
    gap_tokens: int | None


@dataclass(frozen=True, slots=True)
class FileReadBack:
    """A file was read from disk to be restored; `why` says why not (RST-1). Never its name."""

    is_ok: bool
    why: str


@dataclass(frozen=True, slots=True)
class Restored:
    """What came back of a kind behind a boundary, and how much was left out (RST-1 to RST-9)."""

    kind: str
    entries: int
    tokens: int
    left_out: int


@dataclass(frozen=True, slots=True)
class RestoreFailed:
    """A tracker, a restorer or a source failed; the compaction went on without it."""

    name: str
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
