"""A place as a session meets it: driven turn by turn, compacted for real, once or in a row (QLT-1, QLT-3).

Here nothing is asked of the pure functions of the ledger: messages are appended, passes run, notes are kept, and
`compact` commits boundaries with all that comes back behind them. What the session shows then is what the probe reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import anyio
import msgspec

from perdure.adapters.journal.in_memory import MemoryNotes
from perdure.adapters.machine.jobs import WaitingJobs
from perdure.adapters.sinks import ListSink
from perdure.context.view import ContextView
from perdure.engine.ask import JobModels
from perdure.engine.background import Keepers
from perdure.engine.compact import CompactionSuccess, compact
from perdure.engine.session import LiveSession, ModelWindow, Services
from perdure.engine.turn import prepare
from perdure.errors import PerdureError
from perdure.events import CompactionAttemptFailed, NotesFellBack, NotesUpdated
from perdure.lab.bench.probe import shown_block
from perdure.ports.session import Model, Sink
from perdure.settings import Settings
from perdure.testing.models import CountingIds
from perdure.transcript.messages import Message
from perdure.transcript.tokens import base_tokens, block_size
from perdure.wiring import SessionOptions as Parts
from perdure.wiring import memory_session

LIVE = ("ledger", "session_memory")  # strategies that a session has without a model
BY_MODEL = {"full": "full", "model_notes": "session_memory"}  # those that need one, with their names in journals
_WINDOWS = (200_000, 1_000_000)


@dataclass(frozen=True, slots=True)
class LiveView:
    """What a session shows behind its last boundary; `cpu_seconds` are those of that compaction alone."""

    text: str
    tokens: int
    cpu_seconds: float
    strategy: str


@dataclass(slots=True)
class _BenchClock:
    """The time of what was last said; where a real model is waited for, waiting takes its time."""

    at: float = 0.0
    is_waiting: bool = False

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds
        if self.is_waiting:
            await anyio.sleep(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionTarget:
    """What compaction is told: the product's defaults, or a record and a raw tail of so many tokens and no files."""

    memory_tokens: int | None = None
    tail_tokens: int = 0

    def settings(self, strategy: str) -> Settings:
        """Auto-compaction is off: the bench says when."""
        has_notes = strategy in ("session_memory", "model_notes")
        if self.memory_tokens is None:
            return Settings(auto_compact=False, notes=has_notes)
        tail = self.tail_tokens
        return Settings(
            auto_compact=False,
            notes=has_notes,
            restore=False,
            summary_budget_tokens=self.memory_tokens,
            keep_min_tokens=tail,
            keep_max_tokens=max(tail, 1),
            keep_min_texts=0,
        )


@dataclass(slots=True)
class _BenchSession:
    """A session on its way to a place."""

    session: LiveSession
    clock: _BenchClock
    keepers: Keepers
    cpu_seconds: Callable[[], float] = time.process_time
    _response: str | None = field(default=None)
    _is_answering: bool = field(default=False)

    @classmethod
    async def start(
        cls,
        shape: CompactionTarget,
        strategy: str,
        tokens: int,
        cpu_seconds: Callable[[], float],
        *,
        model: Model | None = None,
        max_output_tokens: int | None = None,
        sink: Sink | None = None,
    ) -> _BenchSession:
        clock = _BenchClock(is_waiting=model is not None)
        window = next((size for size in _WINDOWS if tokens * 2 < size), max(_WINDOWS[-1], tokens * 3))
        settings = replace(shape.settings(strategy), max_output_tokens=max_output_tokens)
        writers = () if model is None else (model,)
        services = Services(
            summarizer=writers if strategy == "full" else (),
            helpers=JobModels(notes=writers if strategy == "model_notes" else ()),
        )
        parts = Parts(
            settings=settings,
            clock=clock,
            ids=CountingIds(),
            window=ModelWindow(window, "setting"),
            services=services,
            sink=sink,
        )
        session = await memory_session("bench", notes=MemoryNotes() if settings.notes else None, parts=parts)
        return cls(session, clock, Keepers(WaitingJobs(), session.services.keepers), cpu_seconds)

    async def say(self, message: Message) -> None:
        """One message, as it came; before an answer the view is prepared, behind one the keepers work."""
        if message.agent_id is not None:
            return
        is_answer = message.role == "assistant" and message.origin == "model"
        is_same = is_answer and message.response_id is not None and message.response_id == self._response
        if not is_same:
            await self.rest()
        self.clock.at = message.at if message.at is not None else self.clock.at
        if is_answer and not is_same:
            self._response = message.response_id
            await prepare(self.session)
        try:
            await self.session.append(msgspec.structs.replace(message, usage=None))  # it is of another context
        except PerdureError:
            return  # said twice in the log, or malformed there
        self._is_answering = is_answer

    async def rest(self) -> None:
        """What is due when an answer has ended."""
        self.session.rest()
        if self._is_answering:
            self._is_answering = False
            self.keepers.after_reply(self.session)
            await self.keepers.drain(self.session)

    async def compact(self) -> LiveView | None:
        """Compact now; None when there is nothing to gain."""
        await self.rest()
        started = self.cpu_seconds()
        outcome = await compact(self.session, trigger="manual")
        spent = self.cpu_seconds() - started
        if not isinstance(outcome, CompactionSuccess):
            return None
        text = text_of(self.session.view)
        return LiveView(text, base_tokens(text), spent, outcome.boundary.strategy)


def text_of(view: ContextView) -> str:
    """All that a view shows, as the probe reads messages."""
    blocks = (block for item in view.items if not item.is_hidden for block in item.visible)
    return "\n".join(text for text in map(shown_block, blocks) if text)


def live_view(
    messages: Sequence[Message],
    shape: CompactionTarget,
    strategy: str,
    *,
    times: int = 1,
    cpu_seconds: Callable[[], float] = time.process_time,
) -> LiveView | None:
    """The view behind messages that were compacted `times` in a row, the last time at their end.

    None when one of them could not be done, or fell to another strategy: such a place measures something else.
    """
    return anyio.run(_live_view, messages, shape, strategy, times, cpu_seconds)


async def _live_view(
    messages: Sequence[Message], shape: CompactionTarget, strategy: str, times: int, cpu_seconds: Callable[[], float]
) -> LiveView | None:
    parts = parts_of(messages, times)
    if len(parts) < times:
        return None
    drive = await _BenchSession.start(shape, strategy, _tokens(messages), cpu_seconds)
    found: LiveView | None = None
    for part in parts:
        for message in part:
            await drive.say(message)
        found = await drive.compact()
        if found is None or found.strategy != strategy:
            return None
    return found


@dataclass(frozen=True, slots=True)
class WrittenView:
    """The view that a model's writing left behind, or why there is none."""

    text: str | None
    reason: str = ""


async def view_by_model(
    messages: Sequence[Message],
    shape: CompactionTarget,
    strategy: str,
    model: Model,
    *,
    max_output_tokens: int | None = None,
) -> WrittenView:
    """The view behind messages whose record, or whose notes, a model wrote (`BY_MODEL`); none where code had to."""
    told = ListSink()
    drive = await _BenchSession.start(
        shape,
        strategy,
        _tokens(messages),
        time.process_time,
        model=model,
        max_output_tokens=max_output_tokens,
        sink=told,
    )
    try:
        for message in messages:
            await drive.say(message)
        found = await drive.compact()
    finally:
        await drive.session.close()
    failed = [one.reason for one in told.events if isinstance(one, CompactionAttemptFailed | NotesFellBack)]
    why = failed[0] if failed else ""
    if found is None:
        return WrittenView(None, why or "nothing_to_compact")
    is_by_model = strategy != "model_notes" or any(
        isinstance(one, NotesUpdated) and one.engine == model.about.id for one in told.events
    )
    if found.strategy != BY_MODEL[strategy] or not is_by_model:
        return WrittenView(None, why or f"{found.strategy} took over")
    return WrittenView(found.text)


def _tokens(messages: Sequence[Message]) -> int:
    return sum(block_size(block).base for message in messages for block in message.blocks)


def parts_of(messages: Sequence[Message], count: int) -> list[list[Message]]:
    """Messages in parts of about the same number of tokens, cut only where no call is open and the model is due."""
    sizes = [_tokens([message]) for message in messages]
    total, done = sum(sizes), 0
    parts: list[list[Message]] = [[]]
    open_calls: set[str] = set()
    response: str | None = None
    for message, size in zip(messages, sizes, strict=True):
        is_due = done >= total * len(parts) / count and len(parts) < count
        is_new = message.role == "assistant" and (message.response_id is None or message.response_id != response)
        if is_due and not open_calls and is_new:
            parts.append([])
        if message.role == "assistant":
            response = message.response_id
        parts[-1].append(message)
        open_calls |= {use.id for use in message.tool_uses}
        open_calls -= {result.tool_use_id for result in message.tool_results}
        done += size
    return parts
