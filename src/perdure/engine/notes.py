"""The keeper of session notes, and the fork that writes them (SM-2 to SM-10)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile, takewhile
from operator import attrgetter
from typing import Any, ClassVar

import anyio
import anyio.to_thread

from perdure import prompts
from perdure.compaction.from_notes import CURSOR, PreparedNotes, budget_of, prepare
from perdure.compaction.ledger.memory import PackedLedger
from perdure.compaction.ledger.reader import ExtractIndex, index_of
from perdure.compaction.ledger.render import note_lines
from perdure.compaction.plan import first_said
from perdure.context.cuts import legal_cuts
from perdure.context.policy import Facts
from perdure.context.reminders import neutralised
from perdure.context.view import ContextView, tokens_from
from perdure.engine.ask import OFFLINE
from perdure.engine.background import PacedKeeper
from perdure.engine.fork import ForkResult, ForkTask, ForkToolResult, run_fork, tool_definitions
from perdure.engine.session import LiveSession
from perdure.errors import BadSetting, PerdureError
from perdure.events import NotesFailed, NotesFellBack, NotesMended, NotesSkipped, NotesStarted, NotesUpdated
from perdure.memory.changes import digest_of
from perdure.memory.notes import (
    Notes,
    NotesState,
    adopt_filled,
    completed_notes,
    fill_lines,
    for_record,
    form_of,
    notes_state,
    parse,
    render,
    section_tokens,
    update_prompt,
)
from perdure.memory.pace import UpdatePace, UpdateTriggers
from perdure.memory.permits import EDIT, NotesEditPermit, apply_notes_edit, edits_in, lexical
from perdure.memory.trust.secrets import redact
from perdure.ports.session import Model, NotesFile
from perdure.transcript.blocks import ToolUse
from perdure.transcript.messages import Message, Usage
from perdure.transcript.records import Cursor, Record

PROMPT = "prompt.md"
_TRIES = 3  # somebody may save the file while we write
_FIELDS = {"file_path", "old_string", "new_string"}

Start = Callable[[], Awaitable[tuple[bytes | None, Notes]]]
"""Reads the file and says what it has to be while we write (None: no file), and the notes to start from."""


@dataclass(slots=True)
class NotesDraft:
    """The text that the fork edits, and every edit that was made on it."""

    text: str
    form: Notes
    made: list[Mapping[str, Any]] = field(default_factory=list)

    async def edit(self, tool: str, arguments: Mapping[str, Any]) -> ForkToolResult:
        """Do one edit, or say what is wrong with it."""
        self.text, wrong = apply_notes_edit(self.text, arguments, self.form)
        if wrong is not None:
            return ForkToolResult(wrong, is_error=True)
        self.made.append(dict(arguments))
        return ForkToolResult("done")

    async def read(self, text: str) -> str | None:
        """Do the edits that an answer holds as text; what to say about those that failed, None when none did."""
        answers = [await self.edit(EDIT, one) for one in edits_in(text)]
        wrong = [f"edit {number}: {one.text}" for number, one in enumerate(answers, 1) if one.is_error]
        if not wrong:
            return None
        lead = "These edits were not made; the others were. Send only these again, so that they fit:"
        return "\n".join((lead, *wrong))


def wants_more(answers: Sequence[ForkToolResult]) -> bool:
    """A turn whose edits were all made is the last: nothing is paid for hearing that it is done."""
    return any(answer.is_error for answer in answers)


def has_edit(view: ContextView) -> bool:
    """Whether the conversation has a tool of that name that takes what an exact edit needs."""
    tool = tool_definitions(view).get(EDIT, {})
    schema = tool.get("input_schema") or tool.get("parameters") or {}
    return set(schema.get("properties") or ()) >= _FIELDS


@dataclass(frozen=True, slots=True)
class WrittenNotes:
    """The file as a model left it, and the notes before and after."""

    data: bytes
    before: Notes
    after: Notes


async def update_notes_by_model(
    session: LiveSession,
    seen: tuple[ContextView, Facts],
    models: Sequence[Model],
    file: NotesFile,
    begin: tuple[Start, Notes],
) -> tuple[ForkResult | None, WrittenNotes | str]:
    """Let a model bring the notes up to date. Gives the fork, if there was one, and what was written, or why not."""
    view, facts = seen
    start, form = begin
    instead_of, before = await start()
    shown = adopt_filled(before)
    has_tool = has_edit(view)
    try:
        custom = await file.custom(PROMPT)
        words = update_prompt(shown, budget_of(facts), file.path, custom, has_tool=has_tool)
    except BadSetting as e:
        return None, f"prompt: {e}"
    draft, permit = NotesDraft(render(shown), form), NotesEditPermit(lexical(file.path))
    task = ForkTask(
        job="notes",
        instruction=words,
        permit=permit.denial,
        run=draft.edit,
        continues=wants_more,
        reply=draft.read,
        most_turns=facts.settings.notes_turns,
    )
    fork = await run_fork(session, view, facts, models, task)
    fork.reason, data = await _write_notes(draft, fork.reason, file, (start, instead_of), facts.secret_key)
    return fork, fork.reason if data is None else WrittenNotes(data, before, parse(data.decode()))


async def _write_notes(
    draft: NotesDraft, reason: str, file: NotesFile, begin: tuple[Start, bytes | None], key: bytes
) -> tuple[str, bytes | None]:
    """Write what the fork made of the notes; gives its bytes, or None and the reason why nothing was written."""
    start, instead_of = begin
    if reason and not (draft.made and reason.startswith("turns:")):
        return reason, None
    if not draft.made:
        return "no_edits: the model made no edit, so what it saw isn't known to be in the notes", None
    for _ in range(_TRIES):
        data = redact(draft.text, key).text.encode("utf-8", "replace")  # SEC-5
        if data == instead_of or await file.write(data, instead_of=instead_of):
            return reason, data
        instead_of, now = await start()  # somebody saved it meanwhile: theirs stays, and ours goes on top
        made, draft = draft.made, NotesDraft(render(adopt_filled(now)), draft.form)
        if any([(await draft.edit(EDIT, one)).is_error for one in made]):
            return "edited_meanwhile: the edits don't fit what was saved while the model wrote", None
    return "edited_meanwhile: the file kept changing while the notes were written", None


TEMPLATE = "template.md"
OFFERED = "notes_offered"  # the note of the message that offers them (SM-10)


@dataclass(frozen=True, slots=True)
class NotesOnDisk:
    """The file as it is: its bytes, how it stands, and what it says beside what the template wants."""

    data: bytes | None
    state: NotesState
    notes: Notes
    form: Notes


@dataclass(eq=False)
class SessionNotes(PacedKeeper):
    """The notes of one session, as a keeper. It reads the session and never changes it."""

    name: ClassVar = CURSOR
    job = "notes"
    skipped = NotesSkipped
    is_on = attrgetter("notes")
    waits_for = attrgetter("notes_growth_tokens")

    file: NotesFile
    cursor: Cursor | None = field(default=None, init=False)  # of the last update here; in the journal a little later
    prepared: PreparedNotes | None = field(default=None, init=False)  # for the next compaction
    began: float | None = field(default=None, init=False)  # when the update that runs began; None: none runs
    _done: anyio.Event = field(default_factory=anyio.Event, init=False)
    _written: Notes | None = field(default=None, init=False)  # as we left the file
    _failures: int = field(default=0, init=False)  # of models, in a row
    _rests: int = field(default=0, init=False)  # so many updates are left to code

    # --- when -------------------------------------------------------------------------------------------------------

    def is_wanted(self, view: ContextView, facts: Facts) -> bool:
        return self.is_time(
            view, facts, limits_of(facts), lambda: _first_pace(view, self.paid()), sum(map(_calls, _last_answer(view)))
        )

    # --- how --------------------------------------------------------------------------------------------------------

    async def keep(self, view: ContextView, facts: Facts) -> Sequence[Record]:
        limits = limits_of(facts)
        if self.session.is_compacting:
            self.put_off(limits, "compacting")
            return ()
        clock, emit = self.session.ports.clock, self.session.emit
        self.begin()
        self.began, self._done = clock.now(), anyio.Event()
        models = self._willing()
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
            self.end(limits, is_changed=is_changed)
            self.began = None
            self._done.set()
        return (*([self.cursor] if self.cursor is not None else []), *self.spent())

    def _willing(self) -> tuple[Model, ...]:
        """Who is asked: nobody where the hour's tokens are spent, either, or one failed a moment ago."""
        models = self.models() if self._may_ask else ()
        if models and self._rests:
            self._rests -= 1
            return ()
        return models

    async def _by_model(self, view: ContextView, facts: Facts, models: Sequence[Model]) -> NotesUpdated | None:
        """Let a model write, in a fork (SM-3); None when it didn't, which is said, and code's to make good (SM-7)."""

        async def start() -> tuple[bytes | None, Notes]:
            found = await self.found()
            return _notes_kept(found), await self._mended(found)

        form = (await self.found()).form
        fork, written = await update_notes_by_model(self.session, (view, facts), models, self.file, (start, form))
        self.spend(fork)
        emit = self.session.emit
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
            self.cursor = Cursor(name=CURSOR, message=fork.covers, digest=digest_of(written.data))
        await anyio.to_thread.run_sync(self._prepare, view, facts, fork.upto)
        return _updated(written.before, written.after, facts, model, fork)

    async def _by_code(self, view: ContextView, facts: Facts) -> NotesUpdated:
        """Write what is known up to the last closed pair, and hold the cursor (SM-5, SM-7)."""
        last = legal_cuts(view, loops=False)[-1]  # no open call before it
        lines = await anyio.to_thread.run_sync(self._lines, view, facts, last)
        for _ in range(_TRIES):
            found = await self.found()
            start = await self._mended(found)
            notes = fill_lines(start, lines, self._written)
            data = render(notes).encode("utf-8", "replace")
            instead_of = _notes_kept(found)
            if data == instead_of or await self.file.write(data, instead_of=instead_of):
                self._written = notes
                if last > first_said(view):
                    self.cursor = Cursor(name=CURSOR, message=view.items[last - 1].message.id, digest=digest_of(data))
                return _updated(found.notes, notes, facts, OFFLINE, self.fork)
        raise PerdureError(f"{self.file.path}: it kept changing while the notes were written; the next update tries")

    def _lines(self, view: ContextView, facts: Facts, last: int) -> dict[str, tuple[str, ...]]:
        index = self._prepare(view, facts, last)
        lines = note_lines(PackedLedger.of(view.state).memory(index.extracts(first_said(view), last)))
        return {title: tuple(redact(line, facts.secret_key).text for line in some) for title, some in lines.items()}

    def _prepare(self, view: ContextView, facts: Facts, last: int) -> ExtractIndex:
        index = index_of(view, facts.settings, facts.secret_key)
        self.prepared = prepare(view, facts, index, last)
        return index

    # --- the file ---------------------------------------------------------------------------------------------------

    async def found(self) -> NotesOnDisk:
        return await read_notes_file(self.file)

    async def _mended(self, found: NotesOnDisk) -> Notes:
        """Where an update starts: from what is there; a file that is none any more is put aside, and said (SM-6)."""
        emit = self.session.emit
        if found.state in ("emptied", "broken"):
            emit(NotesMended(found.state, await self.file.set_aside(), 0))
            return found.form
        if found.state == "missing":
            if self._written is not None or CURSOR in self.session.view.state.cursors:
                emit(NotesMended("missing", "", 0))
            return found.form
        notes, back = completed_notes(found.notes, found.form)
        if back:
            emit(NotesMended("sections", "", len(back)))
        return notes

    async def offered(self, facts: Facts) -> str | None:
        """The notes as context for a session that is resumed, within the budgets; None when they say nothing (SM-10).

        Whoever resumes decides whether to say it, by `offer_notes`. Behind a boundary made from them they stand there.
        """
        found = await self.found()
        boundary = self.session.view.boundary
        is_there = boundary is not None and boundary.strategy == "session_memory"
        if not facts.settings.notes or found.state != "written" or is_there:
            return None
        text = neutralised(for_record(found.notes, budget_of(facts), self.file.path))  # a tool's words may stand in it
        return prompts.render("notes_offered", notes=text)

    async def wait_for_update(self, facts: Facts) -> None:
        """Wait for a running update; one that has run for too long is left alone (CMP-2)."""
        if self.began is None:
            return
        settings = facts.settings
        left = settings.notes_stale_seconds - (self.session.ports.clock.now() - self.began)
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


async def read_notes_file(file: NotesFile) -> NotesOnDisk:
    """The file as it is, beside the template: the user's, else the one that ships."""
    form = form_of(await file.custom(TEMPLATE), where=TEMPLATE)
    data = await file.read()
    try:
        text = None if data is None else data.decode("utf-8")
    except UnicodeDecodeError:
        return NotesOnDisk(data, "broken", form, form)
    state = notes_state(text, form)
    is_readable = text is not None and state in ("template", "written")
    return NotesOnDisk(data, state, parse(text) if is_readable and text else form, form)


def _notes_kept(found: NotesOnDisk) -> bytes | None:
    """What the file has to be while it is replaced; one that was put aside is none any more."""
    return found.data if found.state not in ("emptied", "broken") else None


def limits_of(facts: Facts) -> UpdateTriggers:
    """The settings of the pace (SM-2, SM-9)."""
    settings = facts.settings
    return UpdateTriggers(
        first_tokens=settings.notes_first_tokens,
        growth_tokens=settings.notes_growth_tokens,
        calls=settings.notes_calls,
        runs_per_hour=settings.notes_runs_per_hour,
        tokens_per_hour=settings.notes_tokens_per_hour,
    )


def _first_pace(view: ContextView, paid: tuple[tuple[float, int], ...]) -> UpdatePace:
    """The pace at the first look: it goes on from what notes cover already, and what they cost (SM-5, SM-9)."""
    cursor = view.state.cursors.get(CURSOR)
    position = view.positions.get(cursor.message) if cursor is not None else None
    start = 0 if position is None else position + 1
    calls = sum(_calls(item.message) for item in view.items[start:]) - sum(map(_calls, _last_answer(view)))
    if position is None:
        return UpdatePace(calls=max(0, calls), spent=paid)
    base = view.size.base - tokens_from(view, start)
    return UpdatePace(has_begun=True, tokens=base, base=base, calls=max(0, calls), spent=paid)


def _calls(message: Message) -> int:
    return sum(isinstance(block.value, ToolUse) for block in message.blocks)


def _last_answer(view: ContextView) -> list[Message]:
    """The messages of the last answer, of which some logs hold one for each block."""
    since = dropwhile(lambda item: item.message.role != "assistant", reversed(view.items))
    return [item.message for item in takewhile(lambda item: item.message.role == "assistant", since)]


def _updated(before: Notes, after: Notes, facts: Facts, engine: str, fork: ForkResult | None) -> NotesUpdated:
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
