"""Typed events, in the past tense: counts, ids, reasons and prices, never the text of a message (OBS-1)."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "AnswerInterrupted",
    "BackgroundChanged",
    "BoundaryListenerFailed",
    "CacheDropped",
    "CalibrationLearned",
    "CheckpointSkipped",
    "CheckpointTaken",
    "CompactionAttemptFailed",
    "CompactionBlocked",
    "CompactionChecked",
    "CompactionDone",
    "CompactionRequested",
    "Event",
    "ExtractionFellBack",
    "ExtractionSkipped",
    "FileReadBack",
    "FilesRewound",
    "ForkEnded",
    "HeldSummaryUsed",
    "HookFailed",
    "InstructionsChanged",
    "InstructionsLoaded",
    "JournalRepaired",
    "KeeperDeferred",
    "KeeperDone",
    "KeeperFailed",
    "KeeperStarted",
    "LadderGaveUp",
    "LadderStepped",
    "MemoriesExtracted",
    "MemoriesRecalled",
    "MemoryAsked",
    "MemoryBlocked",
    "MemoryConsolidated",
    "MemoryIndexShown",
    "MemoryProposed",
    "MemorySelectionFailed",
    "MemoryWritten",
    "MessageAppended",
    "ModelCalled",
    "ModelFailed",
    "ModelFellBack",
    "NotesFailed",
    "NotesFellBack",
    "NotesMended",
    "NotesSkipped",
    "NotesStarted",
    "NotesUpdated",
    "ObserverFailed",
    "PermissionDecided",
    "PrefixMoved",
    "PromptCutByServer",
    "ProviderEdited",
    "ReminderFailed",
    "RestoreFailed",
    "Restored",
    "ResultOffloaded",
    "ResultsCleared",
    "RetryWaited",
    "SecretsRedacted",
    "SettingIgnored",
    "SummaryHeld",
    "SummaryInputDropped",
    "ToolCalled",
    "WindowLearned",
]


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
class CacheDropped:
    """The provider read far less of a prompt from its cache than it held, and no move of the prefix explains it."""

    model: str
    expected_tokens: int
    read_tokens: int


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
    """What watches the agent's tools raised; the call of `tool` went on. `reason` is the type of the error."""

    observer: str
    reason: str
    tool: str = ""


@dataclass(frozen=True, slots=True)
class BackgroundChanged:
    """Background work began or ended (SES-3)."""

    id: str
    kind: str
    state: str
    code: int | None


@dataclass(frozen=True, slots=True)
class CheckpointTaken:
    """Files that a call changed were written down, with what stood there before (CKP-1, CKP-2)."""

    prompt: str
    tool: str
    files: int


@dataclass(frozen=True, slots=True)
class CheckpointSkipped:
    """Something isn't kept, so it can't be rewound (CKP-2, CKP-6); said once for each reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class FilesRewound:
    """Files were put back, or a rewind was taken back (CKP-3)."""

    to: str
    files: int
    is_undo: bool


Event = (
    MessageAppended
    | ResultOffloaded
    | ResultsCleared
    | PrefixMoved
    | CompactionChecked
    | CompactionDone
    | CompactionAttemptFailed
    | CompactionBlocked
    | SummaryHeld
    | HeldSummaryUsed
    | CompactionRequested
    | BoundaryListenerFailed
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
    | CacheDropped
    | KeeperStarted
    | KeeperDone
    | KeeperFailed
    | KeeperDeferred
    | ForkEnded
    | NotesStarted
    | NotesUpdated
    | NotesSkipped
    | NotesFellBack
    | NotesFailed
    | NotesMended
    | InstructionsLoaded
    | InstructionsChanged
    | ReminderFailed
    | MemoriesRecalled
    | MemorySelectionFailed
    | MemoryIndexShown
    | MemoryWritten
    | MemoryProposed
    | MemoryBlocked
    | MemoryAsked
    | ExtractionSkipped
    | ExtractionFellBack
    | MemoriesExtracted
    | MemoryConsolidated
    | SecretsRedacted
    | ToolCalled
    | PermissionDecided
    | ObserverFailed
    | BackgroundChanged
    | CheckpointSkipped
    | CheckpointTaken
    | FilesRewound
)
