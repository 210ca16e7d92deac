"""Driving one recording through the engine, turn by turn, as if live (CLI-2, PRS-8)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio
import msgspec

from perdure.adapters.journal.in_memory import MemoryBlobs, MemoryJournal, MemoryNotes
from perdure.adapters.machine.jobs import WaitingJobs
from perdure.adapters.providers.connect import OFFLINE
from perdure.context.models import ModelSpec, model_spec
from perdure.context.passes import tool_result_budget
from perdure.context.request import ModelRequest
from perdure.engine.background import Keepers
from perdure.engine.compact import CompactionSuccess, compact
from perdure.engine.session import LiveSession, ModelWindow, Services, SessionPorts
from perdure.engine.turn import PreparedRequest, prepare
from perdure.errors import ContextBlocked, PerdureError
from perdure.events import (
    CompactionAttemptFailed,
    Event,
    KeeperFailed,
    NotesUpdated,
    PrefixMoved,
    ResultOffloaded,
    ResultsCleared,
)
from perdure.lab.replay.checks import JudgedModel, ReplayForks, RequestCheck
from perdure.lab.replay.cost import CacheWrites, LogHistory, TokenCost
from perdure.logs.recording import (
    LoggedCompaction,
    LoggedMicrocompaction,
    LoggedRewind,
    RecordedMessage,
    Recording,
    Step,
)
from perdure.settings import Settings
from perdure.testing.block_rules import ModelRules
from perdure.testing.models import CountingIds
from perdure.transcript.codec import FORMAT, VERSION
from perdure.transcript.messages import Message, MessageId, Usage
from perdure.transcript.records import Header, Rewound
from perdure.wiring import with_notes

DEFAULT_WINDOW_TOKENS = 200_000
LONG_WINDOW_TOKENS = 1_000_000
_SAYS_LONG = re.compile(r"\[1m\]|(?:^|[-_:])1m(?:$|[-_:])", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """`window_tokens` and `model` overrule what the recording says; `models` are the user's own entries.

    `summarizer` is the name of the model that is asked for records (docs/use/models.md); `offline` asks none.
    With `forks` the notes of each session are kept as if a model wrote them, and the requests for that are checked.
    """

    settings: Settings = field(default_factory=Settings)
    window_tokens: int | None = None
    model: str | None = None
    models: tuple[ModelSpec, ...] = ()
    summarizer: str = OFFLINE
    forks: bool = False


def window_of(recording: Recording, options: ReplayOptions) -> ModelWindow:
    """The user's word, else what the log states, else 200,000 unless its usage or its model id says 1M (PRS-8)."""
    asked = options.window_tokens or options.settings.window_tokens
    if asked:
        return ModelWindow(asked, "setting")
    if recording.window_tokens:
        return ModelWindow(recording.window_tokens, "log")
    if _SAYS_LONG.search(options.model or recording.model or ""):
        return ModelWindow(LONG_WINDOW_TOKENS, "model")
    most = 0
    for step in recording.steps:
        if isinstance(step, RecordedMessage) and step.message.usage and step.message.agent_id is None:
            most = max(most, step.message.usage.total_tokens)
    if most > DEFAULT_WINDOW_TOKENS:
        return ModelWindow(max(LONG_WINDOW_TOKENS, most), "log")
    return ModelWindow(DEFAULT_WINDOW_TOKENS, "default")


@dataclass(slots=True)
class RecordedClock:
    """The time of what was last said; it stands still where the log has no times.

    With `waits` a sleep takes its time, as a server that asks for patience means it.
    """

    at: float = 0.0
    waits: bool = False

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.at += seconds
        if self.waits:
            await anyio.sleep(seconds)


@dataclass(slots=True)
class ReplayDrive:
    """One recording on its way through the engine, and what fired so far."""

    recording: Recording
    options: ReplayOptions
    session: LiveSession
    clock: RecordedClock
    log: LogHistory
    cost: TokenCost
    check: RequestCheck
    keepers: Keepers
    summarizers: tuple[JudgedModel, ...] = ()
    turns: int = 0
    has_diverged: bool = False
    compactions: list[dict[str, Any]] = field(default_factory=list)
    microcompactions: list[dict[str, Any]] = field(default_factory=list)
    offloads: list[dict[str, Any]] = field(default_factory=list)
    moves: list[dict[str, Any]] = field(default_factory=list)
    writes: CacheWrites = field(default_factory=CacheWrites)
    problems: list[dict[str, Any]] = field(default_factory=list)
    notes_updates: int = 0
    notes_failures: int = 0
    cpu_seconds: float = 0.0
    _tried: list[dict[str, str]] = field(default_factory=list)  # strategies that gave nothing, since the last call
    _is_answering: bool = False  # the last message was the model's, and more of the same answer may come
    forks: ReplayForks | None = None
    kept_facts: dict[str, int] | None = None  # behind the log's own compactions, once it has run
    watch: Callable[[ReplayDrive, RecordedMessage], None] | None = None  # told of each call, once its view is prepared
    _request: ModelRequest | None = None  # what the last call sent; None when the context was full
    _announced: bool = False
    _read_limit: int | None = None  # tokens of the prefix that survived the moves since the last request
    _why: str = ""  # the move that left so little of it
    _fresh: list[MessageId] = field(default_factory=list)  # said since the last request
    _last_prompt: int = 0
    _last_call_at: float | None = None
    _response: str | None = None
    _outputs: dict[str, int] = field(default_factory=dict)  # of each response, by its id
    _prompt: int | None = None  # what this response's request held, when that isn't what the log reported

    @classmethod
    async def start(
        cls, recording: Recording, options: ReplayOptions, summarizers: tuple[JudgedModel, ...] = ()
    ) -> ReplayDrive:
        if options.settings.recall_tool is None:  # as it would be with Perdure, which a log's own tools don't show
            options = replace(options, settings=replace(options.settings, recall_tool=True))
        model = model_spec(options.model or recording.model, options.models)
        clock = RecordedClock(waits=bool(summarizers) and options.summarizer != OFFLINE)
        sink = _ReplaySink()
        header = Header(format=FORMAT, version=VERSION, session=recording.session, created=0.0)
        ports = SessionPorts(
            journal=MemoryJournal(header), blobs=MemoryBlobs(), clock=clock, ids=CountingIds(), sink=sink
        )
        window = window_of(recording, options)
        # While the view is the log's own, its size is taken as the log's system took it (TOK-3).
        settings = replace(options.settings, estimator="base")
        given = Services(summarizer=tuple(summarizers))
        services = partial(with_notes, given=given, file=MemoryNotes())
        session = await LiveSession.load(ports, settings, model=model, window=window, services=services)
        rules = ModelRules(window_tokens=max(window.tokens, 1_000_000), max_output_tokens=10**9, allow_unknown=True)
        drive = cls(
            recording,
            options,
            session,
            clock,
            LogHistory(options.settings, model.tokens_ratio),
            TokenCost(model),
            RequestCheck(rules),
            Keepers(WaitingJobs(), session.services.keepers),
            summarizers,
        )
        sink.drive = drive
        front = msgspec.structs.replace(recording.front, model=options.model or recording.model or "unknown")
        await session.record(front)
        drive.forks = ReplayForks.of(session, rules) if options.forks else None
        return drive

    async def run(self) -> None:
        """All steps, in recorded order."""
        for step in self.recording.steps:
            await self._answered(step)
            if isinstance(step, RecordedMessage):
                await self._said(step)
            elif isinstance(step, LoggedRewind):
                await self._rewind(step)
            elif isinstance(step, LoggedCompaction):
                self._diverge()
                if step.trigger == "manual":  # a person asked for it: an act of theirs, as a prompt or a rewind is
                    await self._compact_by_hand(step)
            elif isinstance(step, LoggedMicrocompaction):
                self._diverge()
            self.log.add(step)
        await self._answered(None)
        if self.forks is not None:
            await self.forks.before(None)
        # What came after the last call enters the view under the same budget, though no call follows.
        facts = self.session.facts()
        await self.session.commit(tool_result_budget(self.session.view, facts), facts)
        self.check.finish()

    async def _answered(self, step: Step | None) -> None:
        """When an answer has ended, the background work that is due behind it, all of it, at once (TURN-12)."""
        if not self._is_answering:
            return
        if isinstance(step, RecordedMessage) and not step.logged_only:
            message = step.message
            is_more = message.role == "assistant" and message.response_id is not None
            if message.agent_id is not None or (is_more and message.response_id == self._response):
                return
        self._is_answering = False
        self.keepers.after_reply(self.session)
        await self.keepers.drain(self.session)

    def _diverge(self) -> None:
        """From here on our view isn't what the log sent, so its rule of counting isn't ours any more."""
        if not self.has_diverged:
            self.has_diverged = True
            self.session.configure(self.options.settings)

    async def _said(self, step: RecordedMessage) -> None:
        message = step.message
        if step.logged_only:
            return
        is_call = message.role == "assistant" and message.origin == "model" and message.agent_id is None
        if is_call and (message.response_id is None or message.response_id != self._response):
            self._response, self._prompt = message.response_id, None
            await self._call(step)
        if self.forks is not None:
            await self.forks.before(message)
        if message.usage is not None and self.has_diverged:
            message = msgspec.structs.replace(message, usage=self._scaled(message.usage))
        if message.at is not None:
            self.clock.at = message.at
        await self._timed_append(message, step.line)
        if message.agent_id is None:
            self._is_answering = message.role == "assistant"
        if self.forks is not None:
            self.forks.on_message(message, self._request)

    async def _timed_append(self, message: Message, line: int) -> None:
        started = time.process_time()
        try:
            await self.session.append(message)
            self.session.rest()
            if message.agent_id is None:
                self._fresh.append(message.id)
        except PerdureError as e:
            self.problems.append({"line": line, "what": str(e)})
        self.cpu_seconds += time.process_time() - started

    async def _call(self, step: RecordedMessage) -> None:
        """Prepare the view for the call whose answer comes next."""
        self.turns += 1
        self._request = None
        items = self.session.view.items
        place = items[-1].message.id if items else ""
        self._tried.clear()
        started = time.process_time()
        try:
            prepared = await prepare(self.session)
        except ContextBlocked as e:
            self._problem(step.line, str(e))
            return
        finally:
            self.cpu_seconds += time.process_time() - started
        if isinstance(prepared.outcome, CompactionSuccess):
            self._compacted(prepared.outcome, place)
        if self.watch is not None:
            self.watch(self, step)
        self._sent(prepared.request, prepared, step.message)

    def _problem(self, line: int, what: str) -> None:
        """A full context is said once for each stretch of it, not at every call."""
        if not self.problems or self.problems[-1]["what"].split(":")[0] != what.split(":", maxsplit=1)[0]:
            self.problems.append({"line": line, "what": what})

    def _sent(self, request: ModelRequest, prepared: PreparedRequest, answer: Message) -> None:
        self.check.add(request, is_announced=self._announced)
        self._request = request
        now = self.clock.at
        is_cold = self._last_call_at is not None and self.cost.is_cold(now - self._last_call_at)
        read = self._last_prompt if self._read_limit is None else min(self._read_limit, self._last_prompt)
        ttl, written = self.session.facts().cache_ttl(self.session.view), self.cost.cache_write
        self.cost.call(prepared.tokens, 0 if is_cold else read, self._output(answer), ttl=ttl)
        why = "" if not self._last_prompt else "expired" if is_cold else self._why
        self.writes.call(self.cost.cache_write - written, self._fresh_tokens(prepared.tokens), why)
        self._last_prompt, self._last_call_at = prepared.tokens, now
        self._announced, self._read_limit, self._why = False, None, ""
        self._fresh.clear()

    def _fresh_tokens(self, prompt: int) -> int:
        """What of a prompt no call had sent: where nothing moved its growth, else by the estimate of what was said."""
        if self._read_limit is None:
            return max(0, prompt - self._last_prompt)
        view = self.session.view
        items = (view.item(identity) for identity in self._fresh)
        live = sum(item.size.live for item in items if item is not None and not item.is_hidden)
        return round(live * view.state.calibration.ratio)

    def _output(self, answer: Message) -> int:
        """What the whole response came to: a log states it anew with every message, and only the last is right."""
        if not self._outputs:
            self._outputs = outputs(self.recording)
        own = answer.usage.output_tokens if answer.usage else 0
        return self._outputs.get(answer.response_id or "", own)

    def on_event(self, event: Event) -> None:
        """What the engine announces while it prepares."""
        if self.forks is not None and self.forks.is_running:
            return
        if isinstance(event, PrefixMoved):
            self._moved(event.reason, event.position, event.tokens_rewritten, event.usd)
        elif isinstance(event, CompactionAttemptFailed):
            self._tried.append({"strategy": event.strategy, "reason": event.reason})
        elif isinstance(event, NotesUpdated):
            self.notes_updates += 1
        elif isinstance(event, KeeperFailed):
            self.notes_failures += 1
        elif isinstance(event, ResultOffloaded):
            self._diverge()
            self.offloads.append(
                {"tool_use_id": event.tool_use_id, "bytes": event.bytes, "preview_bytes": event.preview_bytes}
            )
        elif isinstance(event, ResultsCleared):
            self.microcompactions.append(
                {
                    "turn": self.turns,
                    "reason": event.reason,
                    "cleared": list(event.tool_use_ids),
                    "tokens_saved": event.tokens_saved,
                }
            )

    def _moved(self, reason: str, position: int, tokens: int, usd: float | None) -> None:
        self._diverge()
        self._announced = True
        view = self.session.view
        before = sum(item.size.live for item in view.items[:position] if not item.is_hidden)
        calibration = view.state.calibration
        overhead = calibration.overhead_tokens if calibration.overhead_tokens is not None else view.front_size.live
        limit = overhead + round(calibration.ratio * before)
        if self._read_limit is None or limit <= self._read_limit:
            self._read_limit, self._why = limit, reason
        if self.moves and self.moves[-1]["turn"] == self.turns:  # one request moves its prefix once, for all reasons
            last = self.moves[-1]
            reasons = dict.fromkeys((*last["reason"].split(", "), reason))
            both = [one for one in (last["usd"], usd) if one is not None]
            last["reason"], last["usd"] = ", ".join(reasons), max(both, default=None)
            last["tokens_rewritten"] = max(last["tokens_rewritten"], tokens)
            return
        self.moves.append({"turn": self.turns, "reason": reason, "tokens_rewritten": tokens, "usd": usd})

    def _compacted(self, outcome: CompactionSuccess, place: str) -> None:
        boundary = outcome.boundary
        self.compactions.append(
            {
                "turn": self.turns,
                "message_id": place,
                "trigger": boundary.trigger,
                "strategy": boundary.strategy,
                "tokens_before": boundary.tokens_before,
                "tokens_after": boundary.tokens_after,
                "summary_tokens": boundary.summary_tokens,
                "kept_tokens": boundary.kept_tokens,
                "tried": list(self._tried),
                "restored": [
                    {"kind": r.kind, "name": r.name or None, "tokens": r.tokens, "left_out": list(r.left_out)}
                    for r in boundary.restored
                ],
            }
        )

    async def _compact_by_hand(self, step: LoggedCompaction) -> None:
        """The person compacted in the log; so do we, at the same place."""
        items = self.session.view.items
        place = items[-1].message.id if items else ""
        started = time.process_time()
        outcome = await compact(self.session, trigger="manual")
        self.cpu_seconds += time.process_time() - started
        if isinstance(outcome, CompactionSuccess):
            self._compacted(outcome, place)

    async def _rewind(self, step: LoggedRewind) -> None:
        """The person went back in the log; so does our view."""
        position = self.session.view.positions.get(step.to)
        if position is None:
            return
        await self.session.record(Rewound(to=step.to, reason="rewound in the log"))
        self._moved("rewound", position + 1, 0, None)

    def _scaled(self, usage: Usage) -> Usage:
        """What the provider would have reported for our view instead of the log's."""
        if self._prompt is None:
            view = self.session.view
            calibration = view.state.calibration
            unseen = (calibration.overhead_tokens or 0) if self.compactions else self.log.unseen
            ratio = self.log.ratio or calibration.ratio
            self._prompt = max(1, unseen + round(ratio * view.size.live))
        return Usage(input_tokens=self._prompt, output_tokens=usage.output_tokens)


def outputs(recording: Recording) -> dict[str, int]:
    """The output tokens of each response, by its id: the most that any of its messages states."""
    found: dict[str, int] = {}
    for message in recording.messages:
        if message.response_id and message.usage:
            found[message.response_id] = max(found.get(message.response_id, 0), message.usage.output_tokens)
    return found


@dataclass(slots=True)
class _ReplaySink:
    """The sink of a replay: passes events on to its drive."""

    drive: ReplayDrive | None = None

    def emit(self, event: Event) -> None:
        if self.drive is not None:
            self.drive.on_event(event)
