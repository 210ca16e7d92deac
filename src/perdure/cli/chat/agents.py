"""What a person is told of an agent at work, in words, and what it cost (CLI-1, OBS-1)."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

from perdure.adapters.journal import SessionStore
from perdure.cli.arguments import configured, last_session, located
from perdure.cli.output import about, cut
from perdure.cli.words import compaction_failure, model_reason
from perdure.events import (
    AnswerInterrupted,
    CheckpointSkipped,
    CompactionAttemptFailed,
    CompactionBlocked,
    CompactionDone,
    CompactionRequested,
    Event,
    HookFailed,
    JournalRepaired,
    MemoriesExtracted,
    MemoryProposed,
    ModelCalled,
    ModelFellBack,
    ObserverFailed,
    PromptCutByServer,
    ResultsCleared,
    RetryWaited,
    WindowLearned,
)
from perdure.ports.machine import CHECKPOINTS
from perdure.wiring.factory import AgentFactory, agent_factory


def factory_here(flags: list[str], *, trusts: bool) -> AbstractAsyncContextManager[AgentFactory]:
    """What makes agents for this folder, by its settings and these flags; entering it finds the models."""
    return agent_factory(configured(flags, trusts=trusts), Path.cwd(), trusts=trusts)


def session_named(factory: AgentFactory, reference: str | None, *, last: bool) -> Path | None:
    """The directory of the session to continue; None for a new one. Raises `SessionNotFound`."""
    if reference is not None:
        return located(reference)
    return last_session(SessionStore(factory.home), factory.project) if last else None


# --- what it cost -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class JobSpending:
    """Calls of one model for one job; tokens as it reported them."""

    calls: int = 0
    read: int = 0
    cached: int = 0
    written: int = 0
    usd: float | None = None


@dataclass(slots=True)
class Spending:
    """`ports.Sink` that adds up."""

    rows: dict[tuple[str, str], JobSpending] = field(default_factory=dict)

    def emit(self, event: Event) -> None:
        if not isinstance(event, ModelCalled):
            return
        one = self.rows.setdefault((event.job, event.model), JobSpending())
        one.calls += 1
        one.read += event.prompt_tokens or 0
        one.cached += event.cache_read_tokens or 0
        one.written += event.output_tokens or 0
        if event.usd is not None:
            one.usd = (one.usd or 0.0) + event.usd

    @property
    def usd(self) -> float:
        """US dollars, of what has a price."""
        return sum(one.usd or 0.0 for one in self.rows.values())

    @property
    def is_priced(self) -> bool:
        """Whether anything that was asked has a price."""
        return any(one.usd is not None for one in self.rows.values())


# --- events in a person's words; most of them nobody needs to see -----------------------------------------------------

_LOOK, _WARN = "cyan", "yellow"
_RECORDS = {
    "session_memory": "from the session's notes",
    "full": "with a record by the model",
    "ledger": "with a record of what was done",
    "supplied": "with the given record",
}
_WANTED = {"auto": "by auto-compaction", "reactive": "as the window was full", "model": "as the model asked"}


def telling(event: Event) -> tuple[str, str] | None:
    """What to say of an event, and in which colour; None for nothing."""
    match event:
        case CompactionDone():
            sizes = f"{about(event.tokens_before)} -> {about(event.tokens_after)} tokens"
            how = ", ".join(filter(None, (_WANTED.get(event.trigger), _RECORDS[event.strategy])))
            return f"compacted {how}: {sizes}; /undo takes it back", _LOOK
        case CompactionAttemptFailed(strategy="full"):
            return f"the model's record was not used: {compaction_failure(event.reason)}", _WARN
        case CompactionBlocked() if event.trigger != "manual":  # whoever asked for one is answered
            return f"the hook {cut(event.hook, 60)} refused the compaction: {event.reason}", _WARN
        case CompactionRequested(is_accepted=True):
            return "the model asked for a compaction; it comes when no work is open", _LOOK
        case ResultsCleared():
            return f"cleared {len(event.tool_use_ids)} old results: {event.tokens_saved:,} tokens", "dim"
        case PromptCutByServer():
            return _cut_by_server(event), _WARN
        case WindowLearned():
            return (
                f"the window of {event.model} is {event.window_tokens:,} tokens ({model_reason(event.reason)})",
                _LOOK,
            )
        case RetryWaited():
            return f"{event.model}: {model_reason(event.reason)}; trying again in {event.seconds:.0f} s", _WARN
        case ModelFellBack():
            return f"{event.job}: continuing with {event.model}, as {model_reason(event.reason)}", _WARN
        case _:
            return _of_rarer(event)


def _of_rarer(event: Event) -> tuple[str, str] | None:
    match event:
        case AnswerInterrupted(kept_blocks=kept, dropped_blocks=dropped) if dropped:
            what = "the last, unfinished part of this answer" if kept else "this unfinished answer"
            return f"{what} isn't kept: the model won't see it", "dim"
        case MemoriesExtracted(written=written) if written:
            saved = "1 memory was" if written == 1 else f"{written} memories were"
            return f"{saved} saved from this conversation: /memory lists all", _LOOK
        case MemoryProposed():
            return "a memory waits for your review: /memory review", _LOOK
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
        return f"{said}{call}; the call continued"
    return f"{said}{call}: its changes to files may not be rewindable"


def _cut_by_server(event: PromptCutByServer) -> str:
    return (
        f"{event.model} silently dropped the beginning of the prompt: {event.estimated_tokens:,} tokens were "
        f"sent, {event.reported_tokens:,} were read. Taking its window for {event.window_tokens:,}; raise the server's "
        "context length (Ollama: OLLAMA_CONTEXT_LENGTH or num_ctx)"
    )
