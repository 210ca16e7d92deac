"""Typed events, in the past tense: counts, ids, reasons and prices, never the text of a message (OBS-1)."""

from __future__ import annotations

from msgspec import Struct

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
    "SessionsExpired",
    "SettingIgnored",
    "SummaryHeld",
    "SummaryInputDropped",
    "ToolCalled",
    "WindowLearned",
]


class MessageAppended(Struct, frozen=True):
    """A message joined the conversation; `tokens` is its estimate."""

    message_id: str
    role: str
    tokens: int


class ResultOffloaded(Struct, frozen=True):
    """A large tool result moved out of the view before it was sent; a preview of it stays (TURN-2)."""

    tool_use_id: str
    bytes: int
    preview_bytes: int


class ResultsCleared(Struct, frozen=True):
    """Old tool results left the view, and why; `tokens_saved` is what each later request is shorter by (TURN-4)."""

    reason: str
    tool_use_ids: tuple[str, ...]
    tokens_saved: int
    images: int


class PrefixMoved(Struct, frozen=True):
    """The cached prefix was left: from `position` (an item of the view) on, `tokens_rewritten` are written again."""

    reason: str
    position: int
    tokens_rewritten: int
    usd: float | None


class CompactionChecked(Struct, frozen=True):
    """The size before a request, its level (ok, warning, error, compact or blocked), and where levels begin (PRS-1).

    `trigger_tokens` is None while nothing is compacted automatically. `percent_left` counts down to it, or to the
    block.
    """

    tokens: int
    level: str
    usable_tokens: int
    source: str
    window_tokens: int
    warning_tokens: int
    error_tokens: int
    trigger_tokens: int | None
    block_tokens: int
    percent_left: float


class CompactionDone(Struct, frozen=True):
    """The history was compacted: who asked for it, who wrote the record, and what the view held before and after."""

    trigger: str
    strategy: str
    tokens_before: int
    tokens_after: int
    summary_tokens: int
    kept_tokens: int


class CompactionAttemptFailed(Struct, frozen=True):
    """One way to compact didn't work, and why; the next one is tried, if there is one."""

    trigger: str
    strategy: str
    reason: str


class CompactionBlocked(Struct, frozen=True):
    """A hook didn't want it, for a reason of its own; nothing changed (CMP-10)."""

    trigger: str
    hook: str
    reason: str


class CompactionRequested(Struct, frozen=True):
    """The model asked for a compaction with its tool: put off once, or accepted (CMP-6)."""

    is_accepted: bool
    percent: int


class BoundaryListenerFailed(Struct, frozen=True):
    """Something that wanted to know of boundaries failed; the compaction stands."""

    reason: str


class HookFailed(Struct, frozen=True):
    """A hook raised, ended badly or took too long, and the session went on without it.

    `reason` is the exit code, the time or the type of the error, and nothing that the hook printed.
    """

    hook: str
    event: str
    reason: str


class SummaryInputDropped(Struct, frozen=True):
    """The oldest API rounds were left out of the request for a summary, since it was too long (CMP-4)."""

    model: str
    dropped: int
    rounds: int
    gap_tokens: int | None


class FileReadBack(Struct, frozen=True):
    """A file was read from disk to be restored; `why` says why not (RST-1). Never its name."""

    is_ok: bool
    why: str


class Restored(Struct, frozen=True):
    """What came back of a kind behind a boundary, and how much was left out (RST-1 to RST-9)."""

    kind: str
    entries: int
    tokens: int
    left_out: int


class RestoreFailed(Struct, frozen=True):
    """A tracker, a restorer or a source failed; the compaction went on without it."""

    name: str
    reason: str


class CalibrationLearned(Struct, frozen=True):
    """A provider reported a size: estimates for this model are multiplied by `ratio` from now on (TOK-1)."""

    model: str
    ratio: float


class SettingIgnored(Struct, frozen=True):
    """A setting wasn't taken, and why; the session goes on without it."""

    name: str
    reason: str


class JournalRepaired(Struct, frozen=True):
    """A damaged line of a journal was dealt with when the session was opened (REL-2)."""

    line: int
    what: str


class ModelCalled(Struct, frozen=True):
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


class ModelFailed(Struct, frozen=True):
    """A call of a model failed. `status` is that of HTTP; None: there was no answer at all."""

    model: str
    job: str
    reason: str
    status: int | None
    seconds: float


class RetryWaited(Struct, frozen=True):
    """A call is tried again after so many seconds, and why."""

    model: str
    reason: str
    seconds: float


class LadderStepped(Struct, frozen=True):
    """A remedy was tried after a failed call; `helped` is False when there was nothing it could change."""

    remedy: str
    reason: str
    helped: bool


class LadderGaveUp(Struct, frozen=True):
    """Nothing that was tried helped: the call ends with its last error (TURN-11)."""

    model: str
    reason: str
    tried: tuple[str, ...]


class ModelFellBack(Struct, frozen=True):
    """A job went on with its next model."""

    job: str
    model: str
    reason: str


class WindowLearned(Struct, frozen=True):
    """A provider stated, or showed, a window other than the one we reckoned with (PRS-8)."""

    model: str
    window_tokens: int
    before_tokens: int
    reason: str


class PromptCutByServer(Struct, frozen=True):
    """The server left out the beginning of the prompt and said nothing: it reported far less than was sent."""

    model: str
    estimated_tokens: int
    reported_tokens: int
    window_tokens: int


class ProviderEdited(Struct, frozen=True):
    """The provider itself changed what its model saw: cleared tool uses or thinking, or made a summary (TURN-4c)."""

    kind: str
    cleared: int
    cleared_tokens: int


class AnswerInterrupted(Struct, frozen=True):
    """A call was cancelled while it answered; whole blocks were kept, the rest was dropped."""

    model: str
    response_id: str
    kept_blocks: int
    dropped_blocks: int


class CacheDropped(Struct, frozen=True):
    """The provider read far less of a prompt from its cache than it held, and no move of the prefix explains it."""

    model: str
    expected_tokens: int
    read_tokens: int


class SummaryHeld(Struct, frozen=True):
    """A model wrote a summary ahead of time; it covers so many messages (CMP-6)."""

    model: str
    messages: int
    tokens: int


class HeldSummaryUsed(Struct, frozen=True):
    """A compaction took the summary that a model had written ahead of time."""

    model: str


class KeeperStarted(Struct, frozen=True):
    """Work in the background began, such as that on notes or memories."""

    keeper: str


class KeeperDone(Struct, frozen=True):
    """Work in the background ended well, and brought so many records."""

    keeper: str
    seconds: float
    records: int


class KeeperFailed(Struct, frozen=True):
    """A background keeper failed; the turn didn't notice. `reason` is the type of the error."""

    keeper: str
    reason: str
    seconds: float


class KeeperDeferred(Struct, frozen=True):
    """A keeper was asked for while it ran: it will run once more when it is done."""

    keeper: str


class ForkEnded(Struct, frozen=True):
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


class NotesStarted(Struct, frozen=True):
    """An update of the session notes began; `engine` is the model that writes them, or code (SM-8)."""

    engine: str


class NotesUpdated(Struct, frozen=True):
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


class NotesSkipped(Struct, frozen=True):
    """No update now, and why; said when the reason changes (SM-8)."""

    reason: str


class NotesFellBack(Struct, frozen=True):
    """A model couldn't bring the notes up to date, and why; code did it instead."""

    model: str
    reason: str


class NotesFailed(Struct, frozen=True):
    """The session notes could not be brought up to date; `reason` is the type of the error."""

    reason: str


class NotesMended(Struct, frozen=True):
    """The file was emptied, broken or removed, or lost sections; `aside` is the new name of what stood there (SM-6)."""

    what: str
    aside: str
    sections: int


class InstructionsLoaded(Struct, frozen=True):
    """Instruction files were read: at the start, as nested files, or for a compaction (INS-1, INS-4)."""

    why: str
    files: int
    tokens: int


class InstructionsChanged(Struct, frozen=True):
    """So many instruction files changed on disk since they were told (INS-6)."""

    files: int


class ReminderFailed(Struct, frozen=True):
    """A source of reminders raised; the turn went on without it (TURN-10)."""

    source: str
    error: str


class MemoriesRecalled(Struct, frozen=True):
    """Memories were looked for; `engine` says who chose: ranking or model (MEM-4)."""

    engine: str
    scanned: int
    chosen: int
    tokens: int
    seconds: float


class MemorySelectionFailed(Struct, frozen=True):
    """A model didn't choose, and why (timeout, unreadable, an error's reason); the ranking stood (MEM-4)."""

    reason: str
    candidates: int


class MemoryIndexShown(Struct, frozen=True):
    """The index was shown at the start, or what changed in it was told (MEM-2)."""

    why: str
    lines: int
    tokens: int


class MemoryWritten(Struct, frozen=True):
    """A memory was changed (MEM-8): how, on whose word, and what came of it. Never its name or text."""

    action: str
    outcome: str
    origin: str
    mode: str


class MemoryProposed(Struct, frozen=True):
    """A change waits in the inbox for a person; `rule` says why (MEM-8, MEM-10)."""

    action: str
    origin: str
    rule: str


class MemoryBlocked(Struct, frozen=True):
    """A change of the memory was refused; `rule` is what it breaks: a rule's name, never a value (MEM-10, SEC-5)."""

    action: str
    origin: str
    rule: str


class MemoryAsked(Struct, frozen=True):
    """The user said to remember or forget something, and what came of it (MEM-7)."""

    action: str
    outcome: str


class ExtractionSkipped(Struct, frozen=True):
    """After a turn no memories were looked for, and why; said once in a row (MEM-6)."""

    reason: str


class ExtractionFellBack(Struct, frozen=True):
    """A model didn't extract memories, and why; rules did (MEM-6)."""

    model: str
    reason: str


class MemoriesExtracted(Struct, frozen=True):
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


class MemoryConsolidated(Struct, frozen=True):
    """A memory directory was put in order (MEM-11): files merged, changed, removed, and what came of it."""

    engine: str
    outcome: str
    merged: int
    changed: int
    removed: int
    left: int


class SecretsRedacted(Struct, frozen=True):
    """Secrets were replaced before something was written: where, of which families, and how many (SEC-5)."""

    place: str
    families: tuple[str, ...]
    count: int


class ToolCalled(Struct, frozen=True):
    """A tool of the agent ended; `outcome` is ok, error, denied or interrupted."""

    tool: str
    tool_use_id: str
    outcome: str
    seconds: float
    result_chars: int


class PermissionDecided(Struct, frozen=True):
    """Whether a call may be made, and who said so: a rule, the mode, a person, or nobody."""

    tool: str
    tool_use_id: str
    decision: str
    by: str


class ObserverFailed(Struct, frozen=True):
    """What watches the agent's tools raised; the call of `tool` went on. `reason` is the type of the error."""

    observer: str
    reason: str
    tool: str = ""


class BackgroundChanged(Struct, frozen=True):
    """Background work began or ended (SES-3)."""

    id: str
    kind: str
    state: str
    code: int | None


class CheckpointTaken(Struct, frozen=True):
    """Files that a call changed were written down, with what stood there before (CKP-1, CKP-2)."""

    prompt: str
    tool: str
    files: int


class CheckpointSkipped(Struct, frozen=True):
    """Something isn't kept, so it can't be rewound (CKP-2, CKP-6); said once for each reason."""

    reason: str


class SessionsExpired(Struct, frozen=True):
    """Sessions were deleted for their age, or since the home was too large (SEC-12)."""

    sessions: int
    bytes: int


class FilesRewound(Struct, frozen=True):
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
    | SessionsExpired
    | CheckpointTaken
    | FilesRewound
)
"""Any of them: what a sink is given."""
