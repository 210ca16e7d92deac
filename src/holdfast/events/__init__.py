"""Typed events, in the past tense: counts, ids, reasons and prices, never the text of a message (OBS-1)."""

from __future__ import annotations

from holdfast.events.agent import (
    BackgroundChanged,
    CheckpointSkipped,
    CheckpointTaken,
    FilesRewound,
    ObserverFailed,
    PermissionDecided,
    ToolCalled,
)
from holdfast.events.background import (
    ForkEnded,
    HeldSummaryUsed,
    KeeperDeferred,
    KeeperDone,
    KeeperFailed,
    KeeperStarted,
    NotesFailed,
    NotesFellBack,
    NotesMended,
    NotesSkipped,
    NotesStarted,
    NotesUpdated,
    SummaryHeld,
)
from holdfast.events.calls import (
    AnswerInterrupted,
    CacheDropped,
    LadderGaveUp,
    LadderStepped,
    ModelCalled,
    ModelFailed,
    ModelFellBack,
    PromptCutByServer,
    ProviderEdited,
    RetryWaited,
    WindowLearned,
)
from holdfast.events.context import (
    BoundaryListenerFailed,
    CalibrationLearned,
    CompactionAttemptFailed,
    CompactionBlocked,
    CompactionChecked,
    CompactionDone,
    CompactionRequested,
    FileReadBack,
    HookFailed,
    JournalRepaired,
    MessageAppended,
    PrefixMoved,
    Restored,
    RestoreFailed,
    ResultOffloaded,
    ResultsCleared,
    SettingIgnored,
    SummaryInputDropped,
)
from holdfast.events.memory import (
    ExtractionFellBack,
    ExtractionSkipped,
    InstructionsChanged,
    InstructionsLoaded,
    MemoriesExtracted,
    MemoriesRecalled,
    MemoryAsked,
    MemoryBlocked,
    MemoryConsolidated,
    MemoryIndexShown,
    MemoryProposed,
    MemorySelectionFailed,
    MemoryWritten,
    ReminderFailed,
    SecretsRedacted,
)

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
