"""A session: a journal, the view that is its fold, and the one way to change either."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import anyio
import anyio.to_thread
import msgspec
from anyio.lowlevel import RunVar

from perdure.context import cost
from perdure.context.cost import ForkSpending
from perdure.context.models import CACHE_SECONDS, ModelSpec, model_spec
from perdure.context.passes import original
from perdure.context.policy import Facts, Thresholds, WindowSource, thresholds, window_in_force
from perdure.context.replies import Reply
from perdure.context.state import PROVIDER_EDITED, from_checkpoint
from perdure.context.thinking import dropped_thinking, with_thinking
from perdure.context.view import ContextView, advance, first_parted, leaves_memory
from perdure.errors import CompactionRefused, PinRefused, RecordRefused, SessionClosed
from perdure.events import (
    CacheDropped,
    CalibrationLearned,
    Event,
    JournalRepaired,
    MessageAppended,
    PrefixMoved,
    ResultOffloaded,
    ResultsCleared,
    SecretsRedacted,
)
from perdure.ports.session import (
    Archive,
    Blobs,
    Calibrations,
    Clock,
    Files,
    Ids,
    Jobs,
    Journal,
    Model,
    Sink,
    SpendingCaps,
)
from perdure.ports.session import LoadedJournal as Loaded
from perdure.settings import Settings
from perdure.transcript.checks import MessageLimits, check_limits, check_record, check_shape, readable
from perdure.transcript.messages import CallIds, Message, MessageId, Role, spoken, with_own_calls
from perdure.transcript.plain import is_system, message_of, system_text
from perdure.transcript.records import (
    Calibrated,
    Cleared,
    Compacted,
    Edit,
    Front,
    Noted,
    Offloaded,
    Pinned,
    Record,
    ThinkingDropped,
    Titled,
)
from perdure.transcript.tokens import UNITS_PER_TOKEN

# What only some sessions need is imported where it is needed: a program that keeps a short conversation in memory loads
# neither the ledger nor readers of logs (LIB-6).
if TYPE_CHECKING:
    from perdure.compaction.restore.registry import RestorerRegistry
    from perdure.engine.ask import JobModels
    from perdure.engine.background import Keeper
    from perdure.engine.compact import CompactionStrategy
    from perdure.engine.remember import MemoryAccess
    from perdure.engine.reminders import ReminderSource
    from perdure.hooks import Hook
    from perdure.logs.recording import Problem


_MOST_LOST = 0.5  # a breakpoint may fall short of the end of the prompt, but not by half of it


@dataclass(frozen=True, slots=True)
class CachedPrefix:
    """What a provider's cache holds of a session since its last answer: so many tokens, behind this front."""

    tokens: int
    at: float
    model: str
    front: Front | None
    boundary: str | None


def watch(session: LiveSession, reply: Reply) -> None:
    """Look at an answer before it joins the conversation: whether its prompt was read from the cache as expected."""
    usage, before = reply.usage, session.cached
    if usage is None:
        return
    view, now = session.view, session.ports.clock.now()
    here = CachedPrefix(
        tokens=usage.prompt_tokens if usage.cache_read_input_tokens or usage.cache_creation_input_tokens else 0,
        at=now,
        model=reply.model,
        front=view.front,
        boundary=view.boundary.id if view.boundary else None,
    )
    session.cache_holds(here)
    if before is None or before.tokens < session.model.cache_minimum_tokens or view.moved is not None:
        return
    is_same = (before.model, before.front, before.boundary) == (here.model, here.front, here.boundary)
    is_warm = now - before.at < CACHE_SECONDS[session.facts().held_ttl(view)]
    if is_same and is_warm and usage.cache_read_input_tokens < before.tokens * _MOST_LOST:
        session.emit(CacheDropped(reply.model, before.tokens, usage.cache_read_input_tokens))


Source = Callable[[], Awaitable["str | None"]]
"""Gives a text of the host's, as it is now; None when there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPorts:
    """The ports that a session stands on."""

    journal: Journal
    blobs: Blobs
    clock: Clock
    ids: Ids
    sink: Sink | None = None  # who is told of events; None: nobody listens
    archive: Archive | None = None  # where everything that was said can be searched
    files: Files | None = None  # None: nothing can be read now, as in a replay
    calibrations: Calibrations | None = None  # what earlier sessions learned; None: each starts from the model table
    caps: SpendingCaps | None = None  # OBS-2: on what calls cost; None: there are none
    secret_key: bytes = b""  # SEC-5: of the home, for the ids of secrets; empty: they are numbered in each text


@dataclass(frozen=True, slots=True)
class ModelWindow:
    """A model's window in tokens, and who said so (PRS-8)."""

    tokens: int
    source: WindowSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What works for a session beside its ports: given when it is opened, and the same from then on.

    `summarizer` are the models that write a record when the context has to be compacted, and `helpers` those of the
    jobs beside the conversation; None: the model that the conversation was last held with, as far as settings let it.
    """

    facts_of: Callable[[str | None], ModelSpec] = model_spec  # what is known about the model of a name
    summarizer: tuple[Model, ...] | None = None  # empty: records are written without a model (CMP-1)
    helpers: JobModels | None = None
    strategies: tuple[CompactionStrategy, ...] = ()  # how to compact, before a model and the ledger (CMP-1)
    hooks: tuple[Hook, ...] = ()  # asked and told at moments of a session (CMP-10)
    hook_jobs: Jobs | None = None  # runs hooks that nobody waits for; None: each is waited for
    on_hook: tuple[Callable[[str, str], None], ...] = ()  # told what a hook has to say to a person: its name, the text
    registry: RestorerRegistry | None = None  # what is tracked and comes back (RST-10); None: the standard
    sources: Mapping[str, Source] = field(default_factory=dict)  # texts that the host gives again then (RST-7, RST-9)
    keepers: tuple[Keeper, ...] = ()  # work in the background that belongs to the session (TURN-12)
    reminders: tuple[ReminderSource, ...] = ()  # who may add context that nobody said (TURN-10)
    memories: MemoryAccess | None = (
        None  # the directories that its model may write to, by the memory tool (MEM-7, MEM-13)
    )
    on_boundary: tuple[Callable[[Compacted], None], ...] = ()  # told of each boundary: what was loaded may be gone
    on_remembered: tuple[Callable[[str], None], ...] = ()  # told in a line what was kept on the user's word (MEM-7)
    parent: str | None = None  # the session that a sub-agent works for
    agent: str | None = None  # of which sub-agent this is the conversation; hooks are told (CMP-10)

    @property
    def restorers(self) -> RestorerRegistry:
        """What is tracked, and what comes back behind a boundary."""
        from perdure.compaction.restore.kinds import STANDARD

        return self.registry or STANDARD


@dataclass(slots=True, eq=False)
class LiveSession:
    """One conversation, open in this process. Open it with `LiveSession.load`; one task at a time may use it."""

    ports: SessionPorts
    settings: Settings
    view: ContextView
    given_model: ModelSpec | None = None  # for certain; else the front's model decides
    given_window: ModelWindow | None = None
    is_read_only: bool = False
    is_closed: bool = False
    services: Services = field(default_factory=Services)
    id: str = ""  # the id of the session, as its journal has it
    asked: Model | None = None  # whom the conversation was last held with in this process
    is_compacting: bool = False
    spent: tuple[
        ForkSpending, ...
    ] = ()  # what helpers had spent when it was opened, as far as the journal was read (SM-9)
    # what calls beside the conversation cost, until the next record takes it along (OBS-2)
    owed: tuple[Noted, ...] = ()
    said_late: tuple[Message, ...] = ()  # what hooks add that nobody waited for, until the next turn takes it along
    cached: CachedPrefix | None = None  # what the provider's cache holds since the last answer (CMP-8)
    changes: int = 0  # how often the view changed: what was worked out aside from it may be out of date (SPD-8)
    offsets: dict[MessageId, int] = field(default_factory=dict)  # where each message's line starts in the journal
    _limits: tuple[object, Thresholds] | None = None

    @classmethod
    async def load(
        cls,
        ports: SessionPorts,
        settings: Settings | None = None,
        *,
        model: ModelSpec | None = None,
        window: ModelWindow | None = None,
        services: Services | Callable[[LiveSession], Services] | None = None,
        whole: bool = False,
        is_read_only: bool = False,
    ) -> LiveSession:
        """Fold a journal into a session. A fresh journal gives an empty one; damage is repaired and said (REL-2).

        `services` may be made for the session, by a function that gets it. Without `whole`, reading starts at what the
        last boundary keeps, so time follows the live view (SPD-3).
        """
        loaded = await ports.journal.load(whole=whole)
        view, mended = await _view_of(loaded)
        session = cls(ports, settings or Settings(), view, model, window, is_read_only, offsets=_offsets(loaded))
        for problem in mended:
            session.emit(JournalRepaired(problem.line, problem.what))
        for repair in loaded.repairs:
            session.emit(JournalRepaired(repair.line, repair.what))
        session.id = loaded.header.session
        if loaded.records:
            session.spent = cost.spent_by_forks(placed.record for placed in loaded.records)
            session._prune_offsets()
        if services is not None:
            session.services = services if isinstance(services, Services) else services(session)
        return session

    @property
    def model(self) -> ModelSpec:
        """What is known about the model: as given, else by the name that the front of the requests has."""
        if self.given_model is not None:
            return self.given_model
        return self.services.facts_of(self.view.front.model if self.view.front else None)

    @property
    def limits(self) -> Thresholds:
        """The thresholds in force (PRS-8)."""
        model, given = self.model, self.given_window
        told = None if given is None else (given.tokens, given.source)
        window = window_in_force(self.view, self.settings, model, told)
        key = (*window, model.max_output_tokens)
        if self._limits is None or self._limits[0] != key:
            self._limits = (key, thresholds(self.settings, model, *window))
        return self._limits[1]

    @property
    def entry_limits(self) -> MessageLimits:
        """How large a message may come in (SEC-6)."""
        settings = self.settings
        return MessageLimits(settings.max_message_bytes, settings.max_message_blocks, settings.max_json_depth)

    def configure(
        self, settings: Settings, *, summarizer: Sequence[Model] | None = None, helpers: JobModels | None = None
    ) -> None:
        """Use other settings from the next decision on, and if they are given, other models: those that write records,
        and those of the jobs beside the conversation."""
        self.settings, self._limits = settings, None
        if summarizer is not None:
            self.services = replace(self.services, summarizer=tuple(summarizer))
        if helpers is not None:
            self.services = replace(self.services, helpers=helpers)

    def works_with(self, services: Services) -> None:
        """From now on these work for it: what could only be given once something had been said."""
        self.services = services

    def held_with(self, model: Model) -> None:
        """From now on the conversation is held with this model; where no other is named it does the jobs beside it."""
        self.asked = model

    def cache_holds(self, cached: CachedPrefix) -> None:
        """What the provider's cache holds since the answer that just came (CMP-8)."""
        self.cached = cached

    @contextmanager
    def compacting(self) -> Iterator[None]:
        """The lease of a compaction: within the block no other can begin. Raises `CompactionRefused` when one runs."""
        if self.is_compacting:
            raise CompactionRefused("a compaction of this session is already running; wait for it to end")
        self.is_compacting = True
        try:
            yield
        finally:
            self.is_compacting = False

    @contextmanager
    def taken_for(self, model: ModelSpec) -> Iterator[None]:
        """Within the block the rules of this model hold, whatever the front says."""
        given, self.given_model = self.given_model, model
        try:
            yield
        finally:
            self.given_model = given

    def emit(self, event: Event) -> None:
        """Tell whoever listens to the session; so a session is a `Sink` itself, for what works on its behalf."""
        if self.ports.sink is not None:
            self.ports.sink.emit(event)

    def facts(self, source: str = "user") -> Facts:
        """Everything that decisions of this moment may depend on."""
        return Facts(
            settings=self.settings,
            limits=self.limits,
            model=self.model,
            now=self.ports.clock.now(),
            source=source,
            secret_key=self.ports.secret_key,
        )

    def _checked(self, records: tuple[Record, ...]) -> tuple[Record, ...]:
        """The records as they will be read back. Raises for what can't be, or can't be sent (ENG-7)."""
        back = readable(records)
        for record in back:
            if isinstance(record, Edit | Compacted):
                _refuse_unreadable(record, self.view)
            else:
                check_record(record, lambda _: None)
        return back

    async def append(self, *messages: Message | Mapping[str, Any] | str, also: tuple[Record, ...] = ()) -> None:
        """Say something: durable when this returns, in the view, and counted.

        A message may be plain data: a text of the user, or an object with role and content, in Anthropic's words or
        OpenAI's. A system message goes into the front while nothing was said.

        What no API would take is refused before anything is written: `RecordRefused`, `MalformedBlock`.

        `also` are records of the same transaction, such as cursors: all of it holds, or nothing does. A message without
        an id or a time gets them here; one whose id, or whose call's id, the view holds already is refused: requests
        name calls by their ids, and results find them so.
        """
        given, system = self._taken(messages)
        named = tuple(map(self._named, given))
        read = await run_aside(
            _bytes(named), partial(_read, named, self.settings, self.entry_limits, self.ports.secret_key)
        )
        for families in read.secrets:
            self.emit(SecretsRedacted("message", tuple(sorted(set(families))), len(families)))
        complete = read.messages
        self._refuse_repeated(complete)
        front = () if system is None else self._checked((system,))
        await self._record((*front, *complete, *self._checked(also)))
        for message in complete:
            item = self.view.item(message.id)
            self.emit(MessageAppended(message.id, message.role, item.size.live if item else 0))

    def rest(self) -> None:
        """Read what was said since the last rest for the ledger, while nobody waits; a compaction then finds it read.

        About a millisecond for 1,000 tokens. `run_turn` rests after an answer behind which some 32 KB wait; a loop of
        your own best calls it while its tools or the model are at work. Without it the next compaction reads everything
        itself.
        """
        from perdure.compaction.ledger.reader import index_of

        index_of(self.view, self.settings, self.ports.secret_key)

    def _taken(self, messages: Sequence[Message | Mapping[str, Any] | str]) -> tuple[list[Message], Front | None]:
        """The messages, and the front that a system message among plain ones makes."""
        taken: list[Message] = []
        system: list[str] = []
        calls = self.view.call_ids()
        for number, one in enumerate(messages):
            at = f"message {number + 1} of {len(messages)}" if len(messages) > 1 else "the message"
            if isinstance(one, Message) or not is_system(one):
                message = one if isinstance(one, Message) else message_of(one, at)
                check_shape(message)
                if not message.id and message.agent_id is None:  # else it was said elsewhere, and stays as it is
                    message = self._paired(message, calls, at)
                taken.append(message)
            elif taken or self.view.items or (self.view.front and self.view.front.system):
                raise RecordRefused(f"{at}: a system message can only come first; later, use set_prefix(system=…)")
            else:
                system.append(system_text(cast("Mapping[str, Any]", one), at))
        if not system:
            return taken, None
        return taken, msgspec.structs.replace(self.view.front or Front(), system=Front(system=system).system)

    def _paired(self, message: Message, ids: CallIds, at: str) -> Message:
        """The message with an id of its own for each call, and each result at its call."""

        def call(identity: str) -> str:
            if identity in ids.waiting:
                raise RecordRefused(f"{at}: {identity[:80]!r} was called already and has no result yet: append it once")
            return ids.call(identity)

        def result(identity: str) -> str:
            if (answered := ids.result(identity)) is not None:
                return answered
            named, view = f"{at} answers {identity[:80]!r}", self.view
            if identity in view.settled:
                raise RecordRefused(f"{named}, but the model was told that there is no result: say it in a text")
            if ids.is_known(identity):
                raise RecordRefused(f"{named}, which has its result already: say it in a text")
            if view.boundary is None:  # what a compaction replaced may have been called
                raise RecordRefused(f"{named}, which nobody called: name the id of a tool_use")
            return identity

        return with_own_calls(message, call, result)

    def _named(self, message: Message) -> Message:
        if message.id and message.at is not None:
            return message
        identity = message.id or MessageId(self.ports.ids.new("message"))
        at = self.ports.clock.now() if message.at is None else message.at
        return msgspec.structs.replace(message, id=identity, at=at)

    def _refuse_repeated(self, messages: Sequence[Message]) -> None:
        view, said, called = self.view, set[str](), set[str]()
        for message in messages:
            if message.id in view.positions or message.id in said:
                raise RecordRefused(f"message {message.id} was said already: give each message an id of its own")
            said.add(message.id)
            for use in message.tool_uses if message.agent_id is None else ():
                if use.id in view.calls or use.id in called:
                    raise RecordRefused(f"tool_use {use.id} was called already: give each call an id of its own")
                called.add(use.id)

    async def record(self, *records: Record) -> None:
        """Append records that aren't messages or edits: a front, metadata, pins, cursors, an undone collapse.

        What couldn't be sent, or read back, is refused before anything is written: `RecordRefused`, `MalformedBlock`.
        One that moves the cached prefix takes bound thinking along and is announced, as an edit would be (TURN-7).
        """
        records = self._checked(records)
        facts = self.facts()
        batch: list[Record] = []
        moves: list[tuple[Record, int, cost.PrefixRewrite | None]] = []
        for record in records:
            batch += [record, *self._known_of(record)]
            position = cost.prefix_rewrite_of_record(self.view, record) if self.view.sent else None
            if position is None or position >= self.view.sent:
                continue
            is_larger = leaves_memory(self.view, record)  # then what is written again isn't in this view yet
            moves.append((record, position, None if is_larger else cost.prefix_rewrite_at(self.view, position, facts)))
            model = self._model_after(record)
            binds = not is_larger and (model.thinking_is_bound or facts.model.thinking_is_bound)
            dropped = dropped_thinking(self.view, position, replace(facts, model=model)) if binds else None
            batch += [dropped] if dropped else []
        if facts.model.thinking_is_bound and any(leaves_memory(self.view, record) for record in records):
            dropped = await self._parted_thinking(batch, facts)
            batch += [dropped] if dropped else []
        await self._record(batch)
        for record, position, known in moves:
            move = known or cost.prefix_rewrite_at(self.view, position, facts)
            self.emit(PrefixMoved(_name(record), move.position, move.tokens_rewritten, move.usd))

    def _model_after(self, record: Record) -> ModelSpec:
        """The model whose rules hold for thinking once a record is there."""
        if self.given_model is None and isinstance(record, Front):
            return self.services.facts_of(record.model)
        return self.model

    async def _parted_thinking(self, batch: Sequence[Record], facts: Facts) -> ThinkingDropped | None:
        """Make the edit that goes with records that bring back what isn't in memory: thinking parted from its prefix.

        It is found on the view that they will make, so that it is of their transaction.
        """
        view, _ = await _view_of(await self.ports.journal.load(whole=True), batch)
        position = first_parted(view)
        return None if position is None else dropped_thinking(view, position, facts)

    def _known_of(self, record: Record) -> Iterable[Calibrated]:
        """What earlier sessions learned about the model that a front names, so that this one starts right (TOK-4)."""
        known = self.ports.calibrations
        if known is None or not isinstance(record, Front) or record.model is None:
            return
        ratio = known.ratio(record.model)
        if ratio is not None and self.view.state.calibration.model != record.model:
            yield Calibrated(model=record.model, ratio=ratio)

    async def _learned(self) -> None:
        """Tell later sessions how the model counts; in a thread, since a file may be synced for it (SPD-8)."""
        calibration = self.view.state.calibration
        was_reported = self.view.anchor is not None and calibration.overhead_tokens is not None
        if self.ports.calibrations is not None and calibration.model and was_reported:
            learn = partial(self.ports.calibrations.learn, calibration.model, calibration.ratio)
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(learn)

    async def commit(self, edits: Iterable[Edit], facts: Facts) -> tuple[Edit, ...]:
        """Store what leaves the view, record the edits, and show the view as they say. Returns what was committed.

        Edits that move the cached prefix take the thinking behind them along (TURN-7) and are announced (TURN-5).
        """
        proposed = tuple(edits)
        if not proposed:
            return ()
        proposed = cast("tuple[Edit, ...]", self._checked(cast("tuple[Record, ...]", proposed)))
        done = with_thinking(self.view, proposed, facts)
        position = cost.first_position(self.view, done)
        await self._store(done)
        await self._record(cast("tuple[Record, ...]", done))  # every Edit that exists is a Record
        for edit in done:
            self._announce(edit)
        if position is not None and position < self.view.sent:
            move = cost.prefix_rewrite_at(self.view, position, facts)
            reason = ", ".join(dict.fromkeys(_name(edit) for edit in proposed))
            self.emit(PrefixMoved(reason, move.position, move.tokens_rewritten, move.usd))
        return done

    async def commit_boundary(self, boundary: Compacted) -> Compacted:
        """Commit a compaction as one transaction, with the session's metadata behind it (CMP-8, ENG-5)."""
        (boundary,) = cast("tuple[Compacted]", self._checked((boundary,)))
        first = min((self.offsets[i] for i in boundary.kept if i in self.offsets), default=0)
        committed = msgspec.structs.replace(boundary, kept_from=first)
        await self._record((committed, self._title()))
        self._prune_offsets()
        return committed

    async def close(self) -> None:
        """Re-append the metadata, so that listings find it in the tail, and let go of the journal (ENG-5)."""
        if self.is_closed:
            return
        if (hooks := self.services.hook_jobs) is not None:
            from perdure.hooks import SESSION_END_SECONDS

            with anyio.CancelScope(shield=True):  # nothing of theirs may go on without the session
                await hooks.drain(SESSION_END_SECONDS)
                await hooks.close()
        try:
            if self.said_late and self.view.state.messages and not self.is_read_only:
                await self.append(*self.taken_late())
            if (self.view.state.messages or self.owed) and not self.is_read_only:
                await self._learned()
                await self._record((self._title(),))
        finally:
            self.is_closed = True
            await self.ports.journal.close()

    def hear_late(self, *messages: Message) -> None:
        """Have what a hook adds that nobody waited for join the conversation with the next turn."""
        self.said_late = (*self.said_late, *messages)

    def taken_late(self) -> tuple[Message, ...]:
        """What hooks that nobody waited for have added since this was asked last."""
        late, self.said_late = self.said_late, ()
        return late

    def owe(self, spent: Noted) -> None:
        """Have what a call beside the conversation cost recorded with whatever is recorded next."""
        self.owed = (*self.owed, spent)

    def _title(self) -> Titled:
        state = self.view.state
        prompt = next((line for item in reversed(self.view.items) if (line := prompt_line(item.message))), None)
        last = prompt or state.title.last_prompt
        return msgspec.structs.replace(state.title, last_prompt=last, messages=state.messages)

    async def _store(self, edits: tuple[Edit, ...]) -> None:
        contents = {s.blob: original(self.view, s.tool_use_id) for edit in edits for s in edit.stored}
        if contents:
            await self.ports.blobs.put(tuple(contents.values()))

    async def _record(self, records: Iterable[Record]) -> None:
        if self.is_closed:
            raise SessionClosed(f"the session {self.id} is closed: open it again to go on")
        owed, self.owed = self.owed, ()
        batch = (*records, *owed)
        try:
            receipt = await self.ports.journal.append(batch)
        except BaseException:
            self.owed = (*owed, *self.owed)
            raise
        ratio = self.view.state.calibration.ratio
        if any(leaves_memory(self.view, record) for record in batch):
            await self._read_back()
        else:
            self._apply(batch, receipt.offset)
        calibration = self.view.state.calibration
        if calibration.ratio != ratio:
            self.emit(CalibrationLearned(calibration.model or "", calibration.ratio))

    def _apply(self, batch: tuple[Record, ...], offset: int) -> None:
        self.changes += 1
        for record in batch:
            advance(self.view, record)
            if isinstance(record, Message):
                self.offsets[record.id] = offset
        self.view.forget()  # an undo reads back (CMP-11)

    async def _read_back(self) -> None:
        """Fold the journal anew, from as far back as it needs: a record reached behind the last boundary (CMP-11)."""
        loaded = await self.ports.journal.load()
        self.view, _ = await _view_of(loaded)
        self.changes += 1
        self.offsets = _offsets(loaded)
        self._prune_offsets()

    def _prune_offsets(self) -> None:
        self.offsets = {i: offset for i, offset in self.offsets.items() if i in self.view.positions}

    def _announce(self, edit: Edit) -> None:
        emit = self.emit
        if isinstance(edit, Offloaded):
            for stored in edit.stored:
                emit(ResultOffloaded(stored.tool_use_id, stored.bytes, edit.preview_bytes))
        elif isinstance(edit, Cleared):
            emit(ResultsCleared(edit.trigger, edit.tool_use_ids, edit.tokens_saved, edit.images))


def _bytes(messages: Iterable[Message]) -> int:
    return sum(len(raw) for message in messages for raw in message.content)


class _CheckedMessages(NamedTuple):
    """Messages as they come in, and the families of secrets that each held which held any."""

    messages: tuple[Message, ...]
    secrets: tuple[list[str], ...]


def _read(messages: Sequence[Message], settings: Settings, limits: MessageLimits, key: bytes) -> _CheckedMessages:
    """The messages checked and counted; if it is set, redacted for the journal, and so at their first use (SEC-5)."""
    taken: list[Message] = []
    secrets: list[list[str]] = []
    for message in messages:
        check_limits(message, limits)
        message.check()
        is_expected = settings.provider_compaction or message.note == PROVIDER_EDITED
        if not is_expected and any(block.type == "compaction" for block in message.blocks):
            raise RecordRefused("a compaction block is taken only where the provider compacts: set provider_compaction")
        if settings.redact_at_ingest:
            from perdure.memory.trust.secrets import redact_json

            done = [redact_json(bytes(raw), key) for raw in message.content]
            content, wire = tuple(msgspec.Raw(one.raw) for one in done), message.wire
            if wire is not None:
                around = {name: redact_json(bytes(raw), key) for name, raw in (wire.fields | wire.parts).items()}
                done += around.values()
                fields, parts = ({n: msgspec.Raw(around[n].raw) for n in some} for some in (wire.fields, wire.parts))
                wire = msgspec.structs.replace(wire, fields=fields, parts=parts)
            if families := [family for one in done for family in one.families]:
                secrets.append(families)
                message = msgspec.structs.replace(message, content=content, wire=wire)
        taken.append(message)
    complete = cast("tuple[Message, ...]", readable(tuple(taken)))
    for message in complete:
        _ = message.sizes  # counted here, and not while it is folded
    return _CheckedMessages(complete, tuple(secrets))


def _folded(loaded: Loaded, then: Sequence[Record]) -> tuple[ContextView, Iterable[Problem]]:
    """The view of a journal, then of other records, and what in it no request could hold: written before records were
    checked, or by others.

    Messages and fronts are shown as they can be sent, always in the same way; an edit that can't be is refused.
    """
    if not loaded.records:
        return ContextView(), ()
    from perdure.logs.reading import Problems, mended_record

    problems, view = Problems(), ContextView()
    for placed in loaded.records:
        record = placed.record
        if isinstance(record, Edit | Compacted):
            _refuse_unreadable(record, view)
        advance(view, mended_record(record, placed.seq + 1, problems))
    for record in then:
        advance(view, record)
    view.forget()
    return view, problems


def _refuse_unreadable(record: Edit | Compacted, view: ContextView) -> None:
    def role_of(message: MessageId) -> Role | None:
        item = view.item(message)
        return None if item is None else item.message.role

    check_record(cast("Record", record), role_of)
    if isinstance(record, Compacted):
        from perdure.compaction.ledger.memory import PackedLedger
        from perdure.compaction.restore.registry import TrackerStates

        try:
            state = from_checkpoint(record.state)
            PackedLedger.of(state)
            TrackerStates.of(state)
        except (msgspec.MsgspecError, RecursionError) as e:
            raise RecordRefused(f"boundary {record.id!r:.60}: its state can't be read: {e}") from None


async def _view_of(loaded: Loaded, then: Sequence[Record] = ()) -> tuple[ContextView, Iterable[Problem]]:
    """The fold of what a journal gave, and of what follows; nobody else has its records yet."""
    size = _bytes(placed.record for placed in loaded.records if isinstance(placed.record, Message))
    return await run_aside(size, lambda: _folded(loaded, then))


def _offsets(loaded: Loaded) -> dict[MessageId, int]:
    return {placed.record.id: placed.offset for placed in loaded.records if isinstance(placed.record, Message)}


def _name(record: Record | Edit) -> str:
    """The record's tag, as journals and reports name it."""
    return str(record.__struct_config__.tag)


def prompt_line(message: Message) -> str | None:
    """The first line of what a person said, at most 200 characters; None when nobody spoke."""
    lines = spoken(message).splitlines()
    return lines[0][:200] if lines else None


async def pin(session: LiveSession, text: str) -> Pinned:
    """Pin a text word for word; durable when this returns. Raises `PinRefused` when it is empty or doesn't fit."""
    from perdure.compaction.plan import pin_refusal

    why = pin_refusal(session.view, text, session.facts())
    if why is not None:
        raise PinRefused(why)
    taken = {one.id for one in session.view.state.pins}
    identity = session.ports.ids.new("pin")
    while identity in taken:
        identity = session.ports.ids.new("pin")
    record = Pinned(id=identity, text=text)
    await session.record(record)
    return record


async def unpin(session: LiveSession, identity: str) -> Pinned:
    """Take a pin back, by its id or a beginning of it that only one has. Raises `PinRefused` when there is no such."""
    found = [one for one in session.view.state.pins if one.id == identity]
    found = found or [one for one in session.view.state.pins if identity and one.id.startswith(identity)]
    if len(found) != 1:
        raise PinRefused(f"no pin {identity!r} in this session" if not found else f"{identity!r} means several pins")
    await session.record(Pinned(id=found[0].id))
    return found[0]


# --- long pure work, off the event loop: in a worker thread, one piece at a time (SPD-8, ADR 0032) -------------------

LARGE_BYTES = 32 * 1024  # a few milliseconds of the dearest work; less isn't worth a thread
_HUGE_BYTES = 1024 * 1024  # work on so much waits for its like only: what is smaller isn't kept waiting for seconds

T = TypeVar("T")
_limiters: RunVar[tuple[anyio.CapacityLimiter, anyio.CapacityLimiter]] = RunVar("perdure-aside")


async def run_aside(size_bytes: int, work: Callable[[], T]) -> T:
    """Do something pure: here when there is little of it, else in a thread.

    More than one of them at a time would be no faster, since they share the interpreter's lock with the loop; one that
    is huge only waits for its like, and nothing else for it.

    Args:
        size_bytes: about how much is looked through.
        work: touches nothing that the loop changes meanwhile.

    Returns:
        What `work` gives.

    Raises:
        Exception: whatever `work` raises. Cancelled, it waits for the end of `work` first.
    """
    if size_bytes <= LARGE_BYTES:
        return work()
    try:
        limiters = _limiters.get()
    except LookupError:
        limiters = anyio.CapacityLimiter(1), anyio.CapacityLimiter(1)
        _limiters.set(limiters)
    except RuntimeError:  # whoever drives this has no event loop that could be held
        return work()
    limiter = limiters[size_bytes >= _HUGE_BYTES]
    done, error = await anyio.to_thread.run_sync(_tried, work, limiter=limiter)
    if error is not None:
        try:
            raise error
        finally:
            del error  # it knows this frame: nobody would let go of what was looked through before the next collection
    return cast(T, done)


def _tried(work: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """Do it, and return what it raises: a future that raised would be known to its own error, as a cycle."""
    try:
        return work(), None
    except Exception as e:
        return None, e


async def run_aside_of(view: ContextView, work: Callable[[ContextView], T], *, size_bytes: int | None = None) -> T:
    """Do something pure with a view as it is now (as `run_aside`); in a thread `work` gets a copy of it.

    Without `size_bytes` all that the view shows is looked through. What the ledger read is shared with the copy: one
    piece of work at a time adds to it, and what was read needn't be read again.
    """
    whole = view.size.base + view.front_size.base
    size = view.unread_bytes + whole * UNITS_PER_TOKEN if size_bytes is None else size_bytes
    if size <= LARGE_BYTES:
        return work(view)
    copy = view.copy()
    copy.index = view.index
    result = await run_aside(size, lambda: work(copy))
    if copy.positions == view.positions:  # else it may have been of other messages
        view.index = copy.index
    return result
