"""The keeper of session notes, and compaction from them (SM-2, SM-5 to SM-9, CMP-2).

An update writes the file first and gives its cursor afterwards: notes may know more than the journal says they do, and
never less. What the user wrote into the file stays.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import anyio
import anyio.to_thread

from holdfast import prompts
from holdfast.context.compaction import Plan
from holdfast.context.cuts import legal_cuts
from holdfast.context.keep import first_said, tokens_from
from holdfast.context.ledger.index import Index
from holdfast.context.ledger.notes import note_lines
from holdfast.context.ledger.tools import Tools
from holdfast.context.noted import CURSOR, Prepared, budget_of, noted_plan, prepare
from holdfast.context.policy import Facts
from holdfast.context.view import View
from holdfast.engine.session import Session
from holdfast.engine.strategies import Strategy
from holdfast.errors import HoldfastError
from holdfast.events import NotesFailed, NotesMended, NotesSkipped, NotesStarted, NotesUpdated
from holdfast.memory import pace as pacing
from holdfast.memory.budgets import for_record, section_tokens
from holdfast.memory.notes import Notes, Standing, filled, form_of, parse, render, standing, whole
from holdfast.memory.pace import Answered, Limits, Pace
from holdfast.memory.trust.secrets import redact
from holdfast.ports import NotesFile
from holdfast.transcript.blocks import ToolUse
from holdfast.transcript.messages import Message, MessageId
from holdfast.transcript.records import Cursor

OFFLINE = "offline"
TEMPLATE = "template.md"
MAIN = "user"
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

    def __init__(self, session: Session, file: NotesFile) -> None:
        self.file = file
        self.pace: Pace | None = None
        self.cursor: Cursor | None = None  # of the last update here; in the journal a little later
        self.prepared: Prepared | None = None  # for the next compaction
        self._session = session
        self._began: float | None = None
        self._done = anyio.Event()
        self._written: Notes | None = None  # as we left the file
        self._read: _Read | None = None
        self._said = ""

    # --- when -------------------------------------------------------------------------------------------------------

    def is_due(self, view: View, facts: Facts) -> bool:
        if not facts.settings.notes:
            return False
        message = view.items[-1].message if view.items else None
        if message is None or message.role != "assistant":
            return False
        pace = self.pace or _resumed(view)
        answered = Answered(
            message=message.id,
            tokens=view.size.base,
            calls=_calls(message),
            at=facts.now or 0.0,
            is_main=facts.source == MAIN,
            is_compacting=self._session.is_compacting,
        )
        self.pace, action = pacing.step(pace, answered, limits_of(facts))
        if isinstance(action, pacing.Skip):
            self._skipped(action.reason)
            return False
        return True

    def _skipped(self, reason: str) -> None:
        if reason != self._said:
            self._session.world.sink.emit(NotesSkipped(reason))
        self._said = reason

    # --- how --------------------------------------------------------------------------------------------------------

    async def keep(self, view: View, facts: Facts) -> Sequence[Cursor]:
        pace, limits = self.pace or Pace(), limits_of(facts)
        if self._session.is_compacting:
            self.pace, _ = pacing.step(pace, pacing.PutOff(), limits)
            self._skipped("compacting")
            return ()
        clock, emit = self._session.world.clock, self._session.world.sink.emit
        self._began, self._done, self._said = clock.now(), anyio.Event(), ""
        emit(NotesStarted(OFFLINE))
        event: pacing.Event = pacing.Failed()
        try:
            updated = await self._update(view, facts)
            event = pacing.Ended(at=clock.now(), is_changed=updated.sections_changed > 0)
            emit(updated)
        except Exception as e:
            emit(NotesFailed(type(e).__name__))
            raise
        finally:
            self.pace, _ = pacing.step(self.pace or pace, event, limits)
            self._began = None
            self._done.set()
        return (self.cursor,) if self.cursor is not None else ()

    async def _update(self, view: View, facts: Facts) -> NotesUpdated:
        """Write what is known up to the last closed pair, and hold the cursor (SM-5, SM-7)."""
        last = legal_cuts(view, loops=False)[-1]  # no open call before it
        lines = await anyio.to_thread.run_sync(self._lines, view, facts, last)
        for _ in range(_TRIES):
            found = await self.found()
            start = await self._mended(found)
            notes = filled(start, lines, self._written)
            data = render(notes).encode("utf-8", "replace")
            instead_of = found.data if found.state not in ("emptied", "broken") else None
            if data == instead_of or await self.file.write(data, instead_of=instead_of):
                self._written = notes
                if last > first_said(view):
                    self.cursor = Cursor(name=CURSOR, message=view.items[last - 1].message.id, digest=digest(data))
                return _updated(found.notes, notes, facts)
        raise HoldfastError(f"{self.file.path}: it kept changing while the notes were written; the next update tries")

    def _lines(self, view: View, facts: Facts, last: int) -> dict[str, tuple[str, ...]]:
        index = self._index(view, facts)
        self.prepared = prepare(view, facts, index, last)
        lines = note_lines(index.memory(view.state.ledger, first_said(view), last))
        return {title: tuple(redact(line, facts.secret_key).text for line in some) for title, some in lines.items()}

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

        Whoever resumes decides whether to say it: behind a boundary made from the notes it stands there already.
        """
        found = await self.found()
        boundary = self._session.view.boundary
        is_there = boundary is not None and boundary.strategy == "session_memory"
        if not facts.settings.notes or found.state != "written" or is_there:
            return None
        return prompts.render("notes_offered", notes=for_record(found.notes, budget_of(facts), self.file.path))

    async def settled(self, facts: Facts) -> None:
        """Wait for a running update; one that has run for too long is left alone (CMP-2)."""
        if self._began is None:
            return
        settings = facts.settings
        left = settings.notes_stale_seconds - (self._session.world.clock.now() - self._began)
        if left > 0:
            with anyio.move_on_after(min(settings.notes_wait_seconds, left)):
                await self._done.wait()


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


def _resumed(view: View) -> Pace:
    """The pace of a session that notes were kept of before: it goes on from what they cover (SM-5)."""
    cursor = view.state.cursors.get(CURSOR)
    position = view.positions.get(cursor.message) if cursor is not None else None
    if position is None:
        return Pace()
    since = [item.message for item in view.items[position + 1 : -1] if item.message.role == "assistant"]
    base = view.size.base - tokens_from(view, position + 1)
    return Pace(has_begun=True, tokens=base, base=base, calls=sum(map(_calls, since)))


def _calls(message: Message) -> int:
    return sum(isinstance(block.value, ToolUse) for block in message.blocks)


def _updated(before: Notes, after: Notes, facts: Facts) -> NotesUpdated:
    old = {one.title: one.body for one in before.sections}
    settings = facts.settings
    return NotesUpdated(
        OFFLINE,
        sum(old.get(one.title, "") != one.body for one in after.sections),
        sum(map(section_tokens, after.sections)),
        settings.notes_first_tokens,
        settings.notes_growth_tokens,
        settings.notes_calls,
    )


# --- compaction -----------------------------------------------------------------------------------------------------


def from_notes(notes: SessionNotes) -> Strategy:
    """Compaction from the notes, before any other strategy (CMP-1, CMP-2)."""

    async def propose(session: Session, facts: Facts) -> AsyncIterator[Plan | str]:
        if not facts.settings.notes:
            yield "off: session notes are switched off (the setting notes)"
            return
        await notes.settled(facts)
        found = await notes.found()
        cursor = notes.cursor or session.view.state.cursors.get(CURSOR)
        if found.state != "written":
            yield _why_not(found.state, is_resumed=cursor is not None)
        elif cursor is None:
            yield "id_not_found: no update of the notes is in the journal"
        else:
            yield noted_plan(session.view, facts, found.notes, (cursor, notes.file.path), notes.prepared)

    return Strategy("session_memory", propose)


def _why_not(state: Standing, *, is_resumed: bool) -> str:
    match state:
        case "missing" if is_resumed:
            return "resumed_without_notes: the journal names an update, and the file is gone"
        case "missing":
            return "no_notes: none were written yet"
        case "template" | "emptied":
            return "empty_template: the notes say nothing yet"
        case _:
            return "broken_notes: no section of the template is in the file"
