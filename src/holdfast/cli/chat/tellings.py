"""Events in a person's words; most of them nobody needs to see."""

from __future__ import annotations

from holdfast.events import (
    AnswerInterrupted,
    CheckpointSkipped,
    CompactionAttemptFailed,
    CompactionBlocked,
    CompactionDone,
    CompactionRequested,
    Event,
    HookFailed,
    JournalRepaired,
    ModelFellBack,
    ObserverFailed,
    PromptCutByServer,
    ResultsCleared,
    RetryWaited,
    WindowLearned,
)
from holdfast.ports import CHECKPOINTS

_LOOK, _WARN = "cyan", "yellow"


def telling(event: Event) -> tuple[str, str] | None:
    """What to say of an event, and in which colour; None for nothing."""
    match event:
        case CompactionDone():
            how = f"{event.trigger}, {event.strategy}"
            return (
                f"compacted ({how}): {event.tokens_before:,} -> {event.tokens_after:,} tokens; /undo takes it back",
                _LOOK,
            )
        case CompactionAttemptFailed(strategy="full"):
            return f"the model's record was not taken: {event.reason}", _WARN
        case CompactionBlocked():
            return f"a hook didn't want the compaction: {event.hook}", _WARN
        case CompactionRequested(is_accepted=True):
            return "the model asked for a compaction; it comes when no work is open", _LOOK
        case ResultsCleared():
            return f"cleared {len(event.tool_use_ids)} old results: {event.tokens_saved:,} tokens", "dim"
        case PromptCutByServer():
            return _cut_by_server(event), _WARN
        case WindowLearned():
            return f"the window of {event.model} is {event.window_tokens:,} tokens ({event.reason})", _LOOK
        case RetryWaited():
            return f"{event.model}: {event.reason}; trying again in {event.seconds:.0f} s", _WARN
        case ModelFellBack():
            return f"{event.job}: going on with {event.model} ({event.reason})", _WARN
        case _:
            return _of_rarer(event)


def _of_rarer(event: Event) -> tuple[str, str] | None:
    match event:
        case AnswerInterrupted(dropped_blocks=dropped) if dropped:
            return "the answer was interrupted; what was whole of it stays", "dim"
        case HookFailed():
            return f"the hook {event.hook} failed: {event.reason}", _WARN
        case ObserverFailed():
            return _of_observer(event), _WARN
        case CheckpointSkipped():
            return f"checkpoints: {event.reason}", _WARN
        case JournalRepaired(line=0):
            return f"the journal was repaired: {event.what}", _WARN
        case JournalRepaired():
            return f"the journal was repaired at line {event.line}: {event.what}", _WARN
        case _:
            return None


def _of_observer(event: ObserverFailed) -> str:
    said = f"{event.observer} failed ({event.reason})"
    call = f" around {event.tool}" if event.tool else ""
    if event.observer != CHECKPOINTS:
        return f"{said}{call}; the call went on"
    return f"{said}{call}: what it changes in files may not be rewound"


def _cut_by_server(event: PromptCutByServer) -> str:
    return (
        f"{event.model} left out the beginning of the prompt without a word: {event.estimated_tokens:,} tokens were "
        f"sent, {event.reported_tokens:,} were read. Taking its window for {event.window_tokens:,}; raise the server's "
        "context length (Ollama: OLLAMA_CONTEXT_LENGTH or num_ctx)"
    )
