"""The keeper of session notes (SM-2 to SM-10). Compaction from them is in `notes_compaction`.

A model writes them where the session has one for this job, in a fork of the conversation; code does where it has none,
and where the model fails. An update writes the file first and gives its cursor afterwards: notes may know more than the
journal says they do, and never less. What the user wrote into the file stays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import anyio
import anyio.to_thread

from holdfast import prompts
from holdfast.context.cuts import legal_cuts
from holdfast.context.keep import first_said, tokens_from
from holdfast.context.ledger.checkpoint import Ledger
from holdfast.context.ledger.index import Index
from holdfast.context.ledger.notes import note_lines
from holdfast.context.ledger.tools import Tools
from holdfast.context.noted import CURSOR, Prepared, budget_of, prepare
from holdfast.context.policy import Facts
from holdfast.context.reminders import neutralised
from holdfast.context.view import View
from holdfast.engine.fork import Fork
from holdfast.engine.helping import helping
from holdfast.engine.models import OFFLINE
from holdfast.engine.notes_fork import by_model
from holdfast.engine.session import LiveSession
from holdfast.errors import HoldfastError
from holdfast.events import NotesFailed, NotesFellBack, NotesMended, NotesSkipped, NotesStarted, NotesUpdated
from holdfast.memory import pace as pacing
from holdfast.memory.budgets import for_record, section_tokens
from holdfast.memory.notes import Notes, Standing, filled, form_of, parse, render, standing, whole
from holdfast.memory.pace import Answered, Limits, Pace
from holdfast.memory.spending import Spent, noted
from holdfast.memory.trust.secrets import redact
from holdfast.ports import Model, NotesFile
from holdfast.transcript.blocks import ToolUse
from holdfast.transcript.messages import Message, MessageId, Usage
from holdfast.transcript.records import Cursor, Record

TEMPLATE = "template.md"
MAIN = "user"
OFFERED = "notes_offered"  # the note of the message that offers them (SM-10)
_TRIES = 3  # somebody may save the file while we write


@dataclass(frozen=True, slots=True)
class Found:
    """The file as it is: its bytes, how it stands, and what it says beside what the template wants."""

    data: bytes | None
    state: Standing
    notes: Notes
    form: Notes


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read from messages so far, to go on with: of which boundary's view, and up to which message."""

    index: Index
    boundary: str | None
    last: MessageId | None


class SessionNotes:
    """The notes of one session, as a keeper (`engine.keepers.Keeper`). It reads the session and never changes it."""

    name = CURSOR

    def __init__(self, session: LiveSession, file: NotesFile) -> None:
        self.file = file
        self.pace: Pace | None = None
        self.cursor: Cursor | None = None  # of the last update here; in the journal a little later
        self.prepared: Prepared | None = None  # for the next compaction
        self.fork: Fork | None = None  # the last one, with its own journal
        self._session = session
        self._began: float | None = None
        self._done = anyio.Event()
        self._written: Notes | None = None  # as we left the file
        self._read: _Read | None = None
        self._said = ""
        self._may_ask = True
        self._failures = 0  # of models, in a row
        self._rests = 0  # so many updates are left to code
        self._unrecorded: list[Record] = []  # what was spent, until a run that succeeds takes it along

    # --- when -------------------------------------------------------------------------------------------------------

    def is_due(self, view: View, facts: Facts) -> bool:
        if not facts.settings.notes:
            return False
        message = view.items[-1].message if view.items else None
        if message is None or message.role != "assistant":
            return False
        pace = self.pace or _resumed(view, self._session.spent)
        answered = Answered(
            message=message.id,
            tokens=view.size.base,
            calls=_answer_calls(view),
            at=facts.now or 0.0,
            is_main=facts.source == MAIN,
            is_compacting=self._session.is_compacting,
        )
        self.pace, action = pacing.step(pace, answered, limits_of(facts))
        if isinstance(action, pacing.Skip):
            self._skipped(action.reason)
            return False
        if isinstance(action, pacing.Start):
            self._may_ask = action.may_ask
        return True

    def _skipped(self, reason: str) -> None:
        if reason != self._said:
            self._session.world.sink.emit(NotesSkipped(reason))
        self._said = reason

    # --- how --------------------------------------------------------------------------------------------------------

    async def keep(self, view: View, facts: Facts) -> Sequence[Record]:
        pace, limits = self.pace or Pace(), limits_of(facts)
        if self._session.is_compacting:
            self.pace, _ = pacing.step(pace, pacing.PutOff(), limits)
            self._skipped("compacting")
            return ()
        clock, emit = self._session.world.clock, self._session.world.sink.emit
        self._began, self._done, self._said, self.fork = clock.now(), anyio.Event(), "", None
        models = self._models()
        emit(NotesStarted(models[0].about.id if models else OFFLINE))
        is_changed: bool | None = None
        try:
            written = await self._by_model(view, facts, models) if models else None
            updated = written or await self._by_code(view, facts)
            is_changed = updated.sections_changed > 0
            emit(updated)
        except Exception as e:
            emit(NotesFailed(type(e).__name__))
            raise
        finally:
            self._over(is_changed, limits)
        spent, self._unrecorded = self._unrecorded, []
        return (*([self.cursor] if self.cursor is not None else []), *spent)

    def _over(self, is_changed: bool | None, limits: Limits) -> None:
        """An update ended; None when it failed."""
        at = self._session.world.clock.now()
        tokens = self.fork.usage.total_tokens if self.fork else 0
        event: pacing.Event = pacing.Failed(at=at, tokens=tokens)
        if is_changed is not None:
            event = pacing.Ended(at=at, tokens=tokens, is_changed=is_changed)
        self.pace, action = pacing.step(self.pace or Pace(), event, limits)
        if isinstance(action, pacing.Start):
            self._may_ask = action.may_ask
        self._began = None
        self._done.set()

    def _models(self) -> tuple[Model, ...]:
        """Who is asked: nobody where the session has no models for it, the hour's tokens are spent, or one failed."""
        helpers = helping(self._session).helpers
        models = tuple(one for one in helpers.notes if one.about.id != OFFLINE)
        if not models or not self._may_ask:
            return ()
        if self._rests:
            self._rests -= 1
            return ()
        return models

    async def _by_model(self, view: View, facts: Facts, models: Sequence[Model]) -> NotesUpdated | None:
        """Let a model write, in a fork (SM-3); None when it didn't, which is said, and code's to make good (SM-7)."""

        async def start() -> tuple[bytes | None, Notes]:
            found = await self.found()
            return _kept(found), await self._mended(found)

        form = (await self.found()).form
        fork, written = await by_model(self._session, (view, facts), models, self.file, (start, form))
        self.fork = fork
        at, emit = self._session.world.clock.now(), self._session.world.sink.emit
        if fork is not None and (spent := fork.spent(at)) is not None:
            self._unrecorded.append(noted(spent))
        model = fork.about.id if fork else models[0].about.id
        if isinstance(written, str):
            self._failures += 1
            self._rests = min(2**self._failures - 1, facts.settings.notes_rests)
            emit(NotesFellBack(model, written))
            return None
        assert fork is not None and fork.covers is not None
        self._failures = 0
        self._written = written.after
        if fork.upto > first_said(view):
            self.cursor = Cursor(name=CURSOR, message=fork.covers, digest=digest(written.data))
        await anyio.to_thread.run_sync(self._prepare, view, facts, fork.upto)
        return _updated(written.before, written.after, facts, model, fork)

    async def _by_code(self, view: View, facts: Facts) -> NotesUpdated:
        """Write what is known up to the last closed pair, and hold the cursor (SM-5, SM-7)."""
        last = legal_cuts(view, loops=False)[-1]  # no open call before it
        lines = await anyio.to_thread.run_sync(self._lines, view, facts, last)
        for _ in range(_TRIES):
            found = await self.found()
            start = await self._mended(found)
            notes = filled(start, lines, self._written)
            data = render(notes).encode("utf-8", "replace")
            instead_of = _kept(found)
            if data == instead_of or await self.file.write(data, instead_of=instead_of):
                self._written = notes
                if last > first_said(view):
                    self.cursor = Cursor(name=CURSOR, message=view.items[last - 1].message.id, digest=digest(data))
                return _updated(found.notes, notes, facts, OFFLINE, self.fork)
        raise HoldfastError(f"{self.file.path}: it kept changing while the notes were written; the next update tries")

    def _lines(self, view: View, facts: Facts, last: int) -> dict[str, tuple[str, ...]]:
        index = self._prepare(view, facts, last)
        lines = note_lines(index.memory(Ledger.of(view.state), first_said(view), last))
        return {title: tuple(redact(line, facts.secret_key).text for line in some) for title, some in lines.items()}

    def _prepare(self, view: View, facts: Facts, last: int) -> Index:
        index = self._index(view, facts)
        self.prepared = prepare(view, facts, index, last)
        return index

    def _index(self, view: View, facts: Facts) -> Index:
        """What was read before, and what came since. Another boundary or a rewind begins anew."""
        tools = Tools.of(facts.settings.ledger_tools)
        boundary = view.boundary.id if view.boundary else None
        read, items = self._read, view.items
        index = read.index if read is not None else Index(tools)
        at = len(index)
        is_same = read is not None and read.boundary == boundary and index.tools == tools and at <= len(items)
        if not is_same or (at and items[at - 1].message.id != (read.last if read else None)):
            index = Index(tools)
        for item in items[len(index) :]:
            index.take(item.message)
        self._read = _Read(index, boundary, items[-1].message.id if items else None)
        return index

    # --- the file ---------------------------------------------------------------------------------------------------

    async def found(self) -> Found:
        return await look(self.file)

    async def _mended(self, found: Found) -> Notes:
        """Where an update starts: from what is there; a file that is none any more is put aside, and said (SM-6)."""
        emit = self._session.world.sink.emit
        if found.state in ("emptied", "broken"):
            emit(NotesMended(found.state, await self.file.set_aside(), 0))
            return found.form
        if found.state == "missing":
            if self._written is not None or CURSOR in self._session.view.state.cursors:
                emit(NotesMended("missing", "", 0))
            return found.form
        notes, back = whole(found.notes, found.form)
        if back:
            emit(NotesMended("sections", "", len(back)))
        return notes

    async def offered(self, facts: Facts) -> str | None:
        """The notes as context for a session that is resumed, within the budgets; None when they say nothing (SM-10).

        Whoever resumes decides whether to say it, by `offer_notes`. Behind a boundary made from them they stand there.
        """
        found = await self.found()
        boundary = self._session.view.boundary
        is_there = boundary is not None and boundary.strategy == "session_memory"
        if not facts.settings.notes or found.state != "written" or is_there:
            return None
        text = neutralised(for_record(found.notes, budget_of(facts), self.file.path))  # a tool's words may stand in it
        return prompts.render("notes_offered", notes=text)

    async def settled(self, facts: Facts) -> None:
        """Wait for a running update; one that has run for too long is left alone (CMP-2)."""
        if self._began is None:
            return
        settings = facts.settings
        left = settings.notes_stale_seconds - (self._session.world.clock.now() - self._began)
        if left > 0:
            with anyio.move_on_after(min(settings.notes_wait_seconds, left)):
                await self._done.wait()


async def offer_notes(session: LiveSession) -> Message | None:
    """Say the notes in a session that is resumed, where they hold what the view doesn't; gives the message (SM-10).

    Without a boundary everything that they tell of is in the view, and behind one made from them they are; what was
    offered before and is still in the view isn't said again.
    """
    view = session.view
    if session.is_read_only or view.boundary is None or any(item.message.note == OFFERED for item in view.items):
        return None
    for keeper in session.services.keepers:
        if isinstance(keeper, SessionNotes) and (text := await keeper.offered(session.facts())) is not None:
            await session.append(Message.of("user", text, origin="restored", note=OFFERED))
            return view.items[-1].message
    return None


async def look(file: NotesFile) -> Found:
    """The file as it is, beside the template: the user's, else the one that ships."""
    form = form_of(await file.custom(TEMPLATE), where=TEMPLATE)
    data = await file.read()
    try:
        text = None if data is None else data.decode("utf-8")
    except UnicodeDecodeError:
        return Found(data, "broken", form, form)
    state = standing(text, form)
    is_readable = text is not None and state in ("template", "written")
    return Found(data, state, parse(text) if is_readable and text else form, form)


def _kept(found: Found) -> bytes | None:
    """What the file has to be while it is replaced; one that was put aside is none any more."""
    return found.data if found.state not in ("emptied", "broken") else None


def limits_of(facts: Facts) -> Limits:
    """The settings of the pace (SM-2, SM-9)."""
    settings = facts.settings
    return Limits(
        first_tokens=settings.notes_first_tokens,
        growth_tokens=settings.notes_growth_tokens,
        calls=settings.notes_calls,
        runs_per_hour=settings.notes_runs_per_hour,
        tokens_per_hour=settings.notes_tokens_per_hour,
    )


def digest(data: bytes) -> str:
    """The content hash of the file, as cursors carry it (SM-5)."""
    return hashlib.sha256(data).hexdigest()


def _resumed(view: View, spent: Sequence[Spent]) -> Pace:
    """The pace of a session that notes were kept of before: it goes on from what they cover and cost (SM-5, SM-9)."""
    paid = tuple((one.at, one.tokens) for one in spent if one.job == "notes")
    cursor = view.state.cursors.get(CURSOR)
    position = view.positions.get(cursor.message) if cursor is not None else None
    if position is None:
        return Pace(spent=paid)
    since = [item.message for item in view.items[position + 1 : -1] if item.message.role == "assistant"]
    base = view.size.base - tokens_from(view, position + 1)
    return Pace(has_begun=True, tokens=base, base=base, calls=sum(map(_calls, since)), spent=paid)


def _calls(message: Message) -> int:
    return sum(isinstance(block.value, ToolUse) for block in message.blocks)


def _answer_calls(view: View) -> int:
    """The calls of the last answer, which some logs hold as a message for each of its blocks."""
    answer = takewhile(lambda item: item.message.role == "assistant", reversed(view.items))
    return sum(_calls(item.message) for item in answer)


def _updated(before: Notes, after: Notes, facts: Facts, engine: str, fork: Fork | None) -> NotesUpdated:
    """What an update did; with a model, what that cost, also when code had to finish it."""
    old = {one.title: one.body for one in before.sections}
    settings = facts.settings
    usage = fork.usage if fork else Usage()
    changed = tuple(one.title for one in after.sections if old.get(one.title, "") != one.body)
    return NotesUpdated(
        engine,
        len(changed),
        sum(map(section_tokens, after.sections)),
        settings.notes_first_tokens,
        settings.notes_growth_tokens,
        settings.notes_calls,
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_input_tokens,
        usage.cache_creation_input_tokens,
        fork.usd if fork else None,
        changed,
    )
