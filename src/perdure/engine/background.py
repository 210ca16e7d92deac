"""Keepers: work in the background after answers, such as session notes and memory extraction (TURN-12)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import ClassVar, Literal, Protocol

from anyio import CancelScope

from perdure.context.cost import spending_record
from perdure.context.policy import Facts
from perdure.context.view import ContextView
from perdure.engine.ask import OFFLINE, BackgroundModels, background_models, with_background_models
from perdure.engine.fork import ForkResult
from perdure.engine.session import LiveSession
from perdure.errors import JournalError, PerdureError
from perdure.events import (
    ExtractionSkipped,
    JournalRepaired,
    KeeperDeferred,
    KeeperDone,
    KeeperFailed,
    KeeperStarted,
    NotesSkipped,
    SessionsExpired,
)
from perdure.memory.pace import (
    AnswerGiven,
    SkipUpdate,
    StartUpdate,
    UpdateEnded,
    UpdateFailed,
    UpdatePace,
    UpdatePutOff,
    UpdateTriggers,
)
from perdure.memory.pace import Event as PaceEvent
from perdure.memory.pace import step as next_pace
from perdure.ports.session import Jobs, Model, Sink
from perdure.transcript.messages import Message
from perdure.transcript.records import Record, Repaired

MAIN = "user"  # the source of requests that keepers run after


class Keeper(Protocol):
    """One kind of background work.

    `is_due` looks at the live view and returns at once. `keep` gets a copy that is its own; the records it returns are
    committed later, those of a run that failed are none.
    """

    @property
    def name(self) -> str: ...

    def is_due(self, view: ContextView, facts: Facts) -> bool: ...

    async def keep(self, view: ContextView, facts: Facts) -> Sequence[Record]: ...


def answered(view: ContextView) -> Message | None:
    """Return the last answer, after which keepers run: results or a prompt may have been said along with it."""
    return next((item.message for item in reversed(view.items) if item.message.role == "assistant"), None)


@dataclass(eq=False)
class PacedKeeper(ABC):
    """What keepers share that let a model read along, so often and no oftener, and code where there is none.

    It says whether a run is due at the keeper's pace (SM-2, SM-9), who is asked, and what that cost: a run that fails
    costs, too, and the next one that succeeds records it. What a keeper is for, it says itself.
    """

    job: ClassVar[Literal["notes", "extractor"]]
    skipped: ClassVar[type[NotesSkipped] | type[ExtractionSkipped]]  # the event that says why there was no run
    is_on: ClassVar[attrgetter[bool]]  # the setting
    waits_for: ClassVar[attrgetter[int] | None] = None  # the setting of how much has to be said before it looks at all

    session: LiveSession
    pace: UpdatePace | None = field(default=None, init=False)  # None until there was enough to look at
    fork: ForkResult | None = field(default=None, init=False)  # the last one, with its own journal
    _said: str = field(default="", init=False)  # why there was no run, as it was said last
    _may_ask: bool = field(default=True, init=False)
    _unrecorded: list[Record] = field(default_factory=list, init=False)

    def is_due(self, view: ContextView, facts: Facts) -> bool:
        if not self.is_on(facts.settings) or answered(view) is None:
            return False
        if self.waits_for is not None and self.is_too_early(view, self.waits_for(facts.settings)):
            return False
        return self.is_wanted(view, facts)

    @abstractmethod
    def is_wanted(self, view: ContextView, facts: Facts) -> bool:
        """Whether to run after this answer, where it is on and there may be enough to read."""

    def is_too_early(self, view: ContextView, tokens: int) -> bool:
        """Whether all that was said is less than the growth that it waits for: until then there is no pace to keep."""
        if self.pace is not None or view.size.base >= tokens:
            return False
        self.skip("too_small")
        return True

    def is_time(
        self, view: ContextView, facts: Facts, triggers: UpdateTriggers, begun: Callable[[], UpdatePace], calls: int = 0
    ) -> bool:
        """Whether a run is due after the answer that the view ends with; `begun` is the pace at the first look."""
        message = answered(view)
        assert message is not None
        given = AnswerGiven(
            message=message.id,
            tokens=view.size.base,
            calls=calls,
            at=facts.now or 0.0,
            is_main=facts.source == MAIN,
            is_compacting=self.session.is_compacting,
        )
        return self._step(self.pace or begun(), given, triggers)

    def skip(self, reason: str) -> None:
        """Say why there is no run, once until there is another reason."""
        if reason != self._said:
            self.session.emit(self.skipped(reason))
        self._said = reason

    def put_off(self, triggers: UpdateTriggers, reason: str) -> None:
        """A run that was due doesn't begin now."""
        self._step(self.pace or UpdatePace(), UpdatePutOff(), triggers)
        self.skip(reason)

    def begin(self) -> None:
        """A run begins."""
        self._said, self.fork = "", None

    def end(self, triggers: UpdateTriggers, *, is_changed: bool | None) -> None:
        """A run ended; None when it failed."""
        at, tokens = self.session.ports.clock.now(), self.fork.usage.total_tokens if self.fork else 0
        failed = UpdateFailed(at=at, tokens=tokens)
        ended = failed if is_changed is None else UpdateEnded(at=at, tokens=tokens, is_changed=is_changed)
        self._step(self.pace or UpdatePace(), ended, triggers)

    def _step(self, pace: UpdatePace, event: PaceEvent, triggers: UpdateTriggers) -> bool:
        self.pace, action = next_pace(pace, event, triggers)
        if isinstance(action, SkipUpdate):
            self.skip(action.reason)
        if isinstance(action, StartUpdate):
            self._may_ask = action.may_ask
        return not isinstance(action, SkipUpdate)

    def models(self) -> tuple[Model, ...]:
        """Who may be asked, the first and its fall-backs; nobody without a model for the job."""
        helpers = background_models(self.session).helpers
        chain = {"notes": helpers.notes, "extractor": helpers.extractor}[self.job]
        return tuple(one for one in chain if one.about.id != OFFLINE)

    def paid(self) -> tuple[tuple[float, int], ...]:
        """When models of this job read and wrote so many tokens, also before this process (SM-9)."""
        return tuple((one.at, one.tokens) for one in self.session.spent if one.job == self.job)

    def spend(self, fork: ForkResult | None) -> None:
        """A model was asked, whatever came of it."""
        self.fork = fork
        spent = fork.spending(self.session.ports.clock.now()) if fork is not None else None
        if spent is not None:
            self._unrecorded.append(spending_record(spent))

    def spent(self) -> tuple[Record, ...]:
        """What wasn't recorded yet of what was spent."""
        spent, self._unrecorded = tuple(self._unrecorded), []
        return spent


# --- the machine of one keeper --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeeperState:
    """Whether it runs, and whether it was asked for meanwhile."""

    is_running: bool = False
    is_wanted: bool = False
    is_closed: bool = False


KeeperEvent = Literal["asked", "ended", "closed"]
KeeperAction = Literal["start", "wait", "nothing"]


def step(state: KeeperState, event: KeeperEvent) -> tuple[KeeperState, KeeperAction]:
    """asked: start, or remember that it was wanted; ended: start again if it was; closed: never again."""
    if event == "closed":
        return replace(state, is_wanted=False, is_closed=True), "nothing"
    if event == "asked":
        if state.is_closed:
            return state, "nothing"
        if state.is_running:
            return replace(state, is_wanted=True), "wait"
        return replace(state, is_running=True), "start"
    if state.is_wanted and not state.is_closed:
        return replace(state, is_wanted=False), "start"
    return replace(state, is_running=False, is_wanted=False), "nothing"


# --- all keepers of a session ---------------------------------------------------------------------------------------


class Keepers:
    """The keepers of one session, on a `Jobs` port."""

    def __init__(self, jobs: Jobs, keepers: Sequence[Keeper] = ()) -> None:
        self._jobs = jobs
        self._keepers = {keeper.name: keeper for keeper in keepers}
        self._states = {name: KeeperState() for name in self._keepers}
        self._asked: dict[str, BackgroundModels] = {}  # what helped when each was asked for last
        self._records: list[Record] = []
        self._cut: set[str] = set()  # what was cancelled with its event loop, and goes on in the next one

    def after_reply(self, session: LiveSession, source: str = "user") -> None:
        """Start what is due after an answer to `source`. Returns at once."""
        facts = session.facts(source)
        for name, keeper in self._keepers.items():
            if self._is_due(session, keeper, facts):
                self._asked[name] = background_models(session)
                self._on(session, name, "asked")

    def due(self, session: LiveSession, source: str = "user") -> tuple[str, ...]:
        """What is due after an answer to `source`, where another process does it."""
        facts = session.facts(source)
        return tuple(name for name, keeper in self._keepers.items() if self._is_due(session, keeper, facts))

    async def kept(self, session: LiveSession, name: str) -> tuple[Record, ...]:
        """Do what another process found due, and give what is to be recorded; nothing where no keeper has that name."""
        if (keeper := self._keepers.get(name)) is None:
            return ()
        return tuple(await keeper.keep(*_own_view(session)))

    def _is_due(self, session: LiveSession, keeper: Keeper, facts: Facts) -> bool:
        try:
            return keeper.is_due(session.view, facts)
        except Exception as e:  # the boundary to keepers: they never fail a turn (TURN-12)
            session.emit(KeeperFailed(keeper.name, type(e).__name__, 0.0))
            return False

    def _on(self, session: LiveSession, name: str, event: KeeperEvent) -> None:
        self._states[name], action = step(self._states[name], event)
        if action == "wait":
            session.emit(KeeperDeferred(name))
        elif action == "start":
            session.emit(KeeperStarted(name))
            self._jobs.start(name, self._work(session, self._keepers[name]))

    def _work(self, session: LiveSession, keeper: Keeper) -> Callable[[], Awaitable[None]]:
        view, facts = _own_view(session)
        clock, by = session.ports.clock, self._asked[keeper.name]

        async def work() -> None:
            began = clock.now()
            try:
                with with_background_models(session, by):
                    records = tuple(await keeper.keep(view, facts))
            except Exception as e:  # the boundary to keepers: they never fail a turn (TURN-12)
                session.emit(KeeperFailed(keeper.name, type(e).__name__, clock.now() - began))
            except BaseException:
                self._states[keeper.name] = replace(self._states[keeper.name], is_running=False, is_wanted=False)
                self._cut.add(keeper.name)
                raise
            else:
                self._records += records
                session.emit(KeeperDone(keeper.name, clock.now() - began, len(records)))
            self._on(session, keeper.name, "ended")

        return work

    async def collect(self, session: LiveSession) -> None:
        """Commit what finished keepers gave. Only the session's owner calls this, between turns.

        It fails no turn (TURN-12): what the disk doesn't take now waits for the next time, and of what the session
        refuses, only that is lost, and said. What was cut off by the end of an event loop starts again.
        """
        for name in sorted(self._cut):
            self._on(session, name, "asked")
        self._cut.clear()
        most = len(self._records)
        while self._records:
            batch = tuple(self._records[:most])
            try:
                await session.record(*batch)
            except JournalError as e:
                session.emit(KeeperFailed("collect", type(e).__name__, 0.0))
                return
            except PerdureError as e:
                if len(batch) > 1:
                    most = 1  # one of them can't be recorded: each by itself
                    continue
                session.emit(KeeperFailed("collect", type(e).__name__, 0.0))
            self._records = self._records[len(batch) :]

    async def drain(self, session: LiveSession, seconds: float | None = None) -> bool:
        """Wait until no keeper runs, at most so long, and commit what they gave; False when one still runs."""
        is_quiet = await self._jobs.drain(seconds)
        await self.collect(session)
        return is_quiet

    async def close(self, session: LiveSession, seconds: float = 5.0) -> None:
        """No keeper starts any more; running ones get a moment to end, and are cancelled then."""
        await self.collect(session)
        for name in self._states:
            self._states[name], _ = step(self._states[name], "closed")
        try:
            await self._jobs.drain(seconds)
        finally:
            with CancelScope(shield=True):  # whoever is cancelled while they close it leaves nothing running, either
                await self._jobs.close()
                await self.collect(session)


def _own_view(session: LiveSession) -> tuple[ContextView, Facts]:
    """What a keeper looks at, while the session goes on."""
    view = session.view.copy()
    view.index = session.view.index and session.view.index.copy()  # nothing is read twice for the ledger
    return view, session.facts()


class UnverifiedJournal(Protocol):
    """A journal that can be looked at behind its last boundary, once."""

    @property
    def has_past(self) -> bool: ...

    async def look_back(self) -> tuple[Repaired, ...]: ...


class RetentionKeeper:
    """Has old sessions deleted, as the settings say, once behind the first answer; what went is said (SEC-12)."""

    name = "retention"

    def __init__(self, expire: Callable[[], Awaitable[tuple[int, int]]], sink: Sink) -> None:
        self._expire: Callable[[], Awaitable[tuple[int, int]]] | None = expire
        self._sink = sink

    def is_due(self, view: ContextView, facts: Facts) -> bool:
        return self._expire is not None

    async def keep(self, view: ContextView, facts: Facts) -> Sequence[Record]:
        expire, self._expire = self._expire, None
        sessions, size = await expire() if expire is not None else (0, 0)
        if sessions:
            self._sink.emit(SessionsExpired(sessions, size))
        return ()


class VerificationKeeper:
    """Runs once, after the first answer, so that it delays no turn. What it finds is set aside, recorded and said."""

    name = "verify"

    def __init__(self, journal: UnverifiedJournal, sink: Sink) -> None:
        self._journal = journal
        self._sink = sink

    def is_due(self, view: ContextView, facts: Facts) -> bool:
        return self._journal.has_past

    async def keep(self, view: ContextView, facts: Facts) -> Sequence[Record]:
        for repaired in await self._journal.look_back():
            self._sink.emit(JournalRepaired(repaired.line, repaired.what))
        return ()
