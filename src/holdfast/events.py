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
class CompactionBlocked:
    """A hook didn't want it; nothing changed (CMP-10)."""

    trigger: str
    hook: str


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


@dataclass(frozen=True, slots=True)
class ModelCalled:
    """A model answered. `estimated_tokens` is what we took the request for; None: the provider reported nothing."""

    model: str
    job: str
    response_id: str
    stop_reason: str
    seconds: float
    estimated_tokens: int
    prompt_tokens: int | None
    cache_read_tokens: int | None
    output_tokens: int | None
    usd: float | None


@dataclass(frozen=True, slots=True)
class ModelFailed:
    model: str
    job: str
    reason: str
    status: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class RetryWaited:
    model: str
    reason: str
    seconds: float


@dataclass(frozen=True, slots=True)
class LadderStepped:
    """A remedy was tried after a failed call; `helped` is False when there was nothing it could change."""

    remedy: str
    reason: str
    helped: bool


@dataclass(frozen=True, slots=True)
class LadderGaveUp:
    model: str
    reason: str
    tried: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelFellBack:
    """A job went on with its next model."""

    job: str
    model: str
    reason: str


@dataclass(frozen=True, slots=True)
class WindowLearned:
    """A provider stated, or showed, a window other than the one we reckoned with (PRS-8)."""

    model: str
    window_tokens: int
    before_tokens: int
    reason: str


@dataclass(frozen=True, slots=True)
class PromptCutByServer:
    """The server left out the beginning of the prompt and said nothing: it reported far less than was sent."""

    model: str
    estimated_tokens: int
    reported_tokens: int
    window_tokens: int


@dataclass(frozen=True, slots=True)
class ProviderEdited:
    """The provider itself changed what its model saw: cleared tool uses or thinking, or made a summary (TURN-4c)."""

    kind: str
    cleared: int
    cleared_tokens: int


@dataclass(frozen=True, slots=True)
class AnswerInterrupted:
    """A call was cancelled while it answered; whole blocks were kept, the rest was dropped."""

    model: str
    response_id: str
    kept_blocks: int
    dropped_blocks: int


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


@dataclass(frozen=True, slots=True)
class NotesSkipped:
    """No update now, and why; said when the reason changes (SM-8)."""

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


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """A tool of the agent ended; `outcome` is ok, error, denied or interrupted."""

    tool: str
    tool_use_id: str
    outcome: str
    seconds: float
    result_chars: int


@dataclass(frozen=True, slots=True)
class PermissionDecided:
    """Whether a call may be made, and who said so: a rule, the mode, a person, or nobody."""

    tool: str
    tool_use_id: str
    decision: str
    by: str


@dataclass(frozen=True, slots=True)
class ObserverFailed:
    """What watches the agent's tools raised; the call went on. `reason` is the type of the error."""

    observer: str
    reason: str


@dataclass(frozen=True, slots=True)
class BackgroundChanged:
    """Background work began or ended (SES-3)."""

    id: str
    kind: str
    state: str
    code: int | None


Event = (
    MessageAppended
    | ResultOffloaded
    | ResultsCleared
    | PrefixMoved
    | CompactionChecked
    | CompactionDone
    | CompactionAttemptFailed
    | CompactionBlocked
    | HookFailed
    | SummaryInputDropped
    | FileReadBack
    | Restored
    | RestoreFailed
    | CalibrationLearned
    | SettingIgnored
    | JournalRepaired
    | ModelCalled
    | ModelFailed
    | RetryWaited
    | LadderStepped
    | LadderGaveUp
    | ModelFellBack
    | WindowLearned
    | PromptCutByServer
    | ProviderEdited
    | AnswerInterrupted
    | KeeperStarted
    | KeeperDone
    | KeeperFailed
    | KeeperDeferred
    | NotesStarted
    | NotesUpdated
    | NotesSkipped
    | NotesFailed
    | NotesMended
    | ToolCalled
    | PermissionDecided
    | ObserverFailed
    | BackgroundChanged
)
