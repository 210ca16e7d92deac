"""SM-2, SM-5 to SM-8, CMP-2: the keeper of session notes without a model, and compaction from what it wrote."""

from __future__ import annotations

import stat
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest

from perdure import Message, Settings
from perdure.adapters.memory.notes import notes_path
from perdure.adapters.sinks import ListSink
from perdure.compaction.from_notes import CURSOR, noted_plan
from perdure.compaction.ledger.reader import LedgerExtract, LedgerExtractor
from perdure.compaction.plan import CompactionPlan
from perdure.engine.background import Keepers
from perdure.engine.compact import CompactionFailure, CompactionSuccess, compact
from perdure.engine.notes import SessionNotes
from perdure.engine.session import LiveSession
from perdure.events import (
    CompactionAttemptFailed,
    CompactionDone,
    NotesFailed,
    NotesMended,
    NotesSkipped,
    NotesStarted,
    NotesUpdated,
)
from perdure.memory.changes import digest_of
from perdure.memory.notes import MARK, parse, template
from perdure.transcript.blocks import text_block
from perdure.transcript.tool_calls.actions import ToolAction, ToolTable
from perdure.wiring import SessionOptions, background, create_session, open_session

pytestmark = pytest.mark.unit
T = TypeVar("T")
SETTINGS = Settings(restore=False, window_tokens=200_000, memory_extract=False, memory_consolidate=False)


def events(sink: ListSink, kind: type[T]) -> list[T]:
    return [event for event in sink.events if isinstance(event, kind)]


def run(
    home: Path, do: Callable[[LiveSession, Keepers, ListSink], Awaitable[Any]], settings: Settings = SETTINGS
) -> Any:
    """Do something with a new session and its keepers; its directory is the first under `home`."""

    async def go() -> Any:
        sink = ListSink()
        session = await create_session(
            home, project=home, session="s1", parts=SessionOptions(settings=settings, sink=sink)
        )
        keepers = background(session)
        try:
            return await do(session, keepers, sink)
        finally:
            await keepers.close(session)
            await session.close()

    return anyio.run(go)


async def resumed(home: Path, settings: Settings = SETTINGS) -> tuple[LiveSession, Keepers, ListSink]:
    sink = ListSink()
    session = await open_session(home, "s1", parts=SessionOptions(settings=settings, sink=sink))
    return session, background(session), sink


def notes_file(home: Path) -> Path:
    [directory] = (home / "projects").glob("*/s1")
    return notes_path(directory)


async def talk(session: LiveSession, keepers: Keepers | None, number: int = 0, *, tokens: int = 6_000) -> None:
    """A request, a command with a long result, and an answer without a call: a natural pause."""
    command = {"command": f"make step{number}"}
    call = {"type": "tool_use", "id": f"call-{number}", "name": "Bash", "input": command}
    words = " ".join(f"value{number}n{n}" for n in range(tokens // 3))
    await session.append(
        Message.of("user", f"Please do step {number} of the migration in billing/invoice.py"),
        Message.of("assistant", [text_block("I run it."), call], response_id=f"a{number}"),
        Message.of("user", [{"type": "tool_result", "tool_use_id": f"call-{number}", "content": words}]),
        Message.of("assistant", f"Step {number} is done: the invoices are moved.", response_id=f"b{number}"),
    )
    if keepers is not None:
        keepers.after_reply(session)
        assert await keepers.drain(session, 10)


def test_notes_without_any_model(tmp_path: Path) -> None:
    """SM-7, SM-1, SM-5, SM-8: private, ten sections, and a cursor with the content hash after success."""

    async def do(session: LiveSession, keepers: Keepers, sink: ListSink) -> None:
        await talk(session, keepers)
        path = notes_file(tmp_path)
        text = path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert [one.title for one in parse(text).sections] == [one.title for one in parse(template()).sections]
        assert all(one.about for one in parse(text).sections)
        assert "step 0 of the migration" in text and "make step0" in text and "the invoices are moved" in text
        cursor = session.view.state.cursors[CURSOR]
        assert cursor.message == session.view.items[-1].message.id and cursor.digest == digest_of(path.read_bytes())
        [updated] = events(sink, NotesUpdated)
        assert len(events(sink, NotesStarted)) == 1 and updated.sections_changed >= 5
        assert (updated.first_tokens, updated.growth_tokens, updated.calls) == (5_000, 5_000, 10)
        assert (updated.input_tokens, updated.usd) == (0, None) and updated.file_tokens < 12_000

    run(tmp_path, do)


def test_when(tmp_path: Path) -> None:
    """SM-2, SM-8: not before 5,000 tokens, only for the main loop, and the reason is said."""

    async def do(session: LiveSession, keepers: Keepers, sink: ListSink) -> None:
        await talk(session, keepers, tokens=300)
        assert [event.reason for event in events(sink, NotesSkipped)] == ["too_small"]
        await talk(session, None, 1)
        for source in ("session_memory", "compact", "agent:explore"):
            keepers.after_reply(session, source)
        await keepers.drain(session)
        assert not notes_file(tmp_path).exists()
        keepers.after_reply(session)
        keepers.after_reply(session)
        await keepers.drain(session)
        assert len(events(sink, NotesUpdated)) == 1
        await talk(session, keepers, 2, tokens=300)
        assert events(sink, NotesSkipped)[-1].reason == "not_grown"

    run(tmp_path, do)


@pytest.mark.parametrize(("calls", "is_due"), [(9, True), (8, False)])
def test_calls_made_while_it_was_too_small_count_once(tmp_path: Path, calls: int, is_due: bool) -> None:
    """SM-2: ten calls need no pause, those from before the pace was kept among them; some logs part an answer."""

    async def do(session: LiveSession, keepers: Keepers, sink: ListSink) -> None:
        for number in range(calls):
            await talk(session, keepers, number, tokens=3)
        assert [event.reason for event in events(sink, NotesSkipped)] == ["too_small"]
        call = {"type": "tool_use", "id": "last", "name": "Bash", "input": {"command": "ls"}}
        await session.append(
            Message.of("user", "Here is the table: " + "1, 2, 3. " * 3_000),
            Message.of("assistant", [call], response_id="c"),
            Message.of("assistant", "I look around.", response_id="c"),
        )
        keepers.after_reply(session)
        await keepers.drain(session)
        assert len(events(sink, NotesStarted)) == is_due

    run(tmp_path, do)


def test_the_off_switch(tmp_path: Path) -> None:
    """SM-9."""

    async def do(session: LiveSession, keepers: Keepers, sink: ListSink) -> None:
        await talk(session, keepers)
        assert not notes_file(tmp_path).parent.exists() and not events(sink, NotesSkipped)

    run(tmp_path, do, replace(SETTINGS, notes=False))


def test_never_while_a_compaction_runs(tmp_path: Path) -> None:
    """SM-2: it is put off, and done at the next answer."""

    async def do(session: LiveSession, keepers: Keepers, sink: ListSink) -> None:
        await talk(session, None)
        keepers.after_reply(session)
        with session.compacting():  # before the work got its first turn
            await keepers.drain(session)
        assert not notes_file(tmp_path).exists() and events(sink, NotesSkipped)[-1].reason == "compacting"
        await talk(session, keepers, 1, tokens=100)
        assert notes_file(tmp_path).exists()

    run(tmp_path, do)


def test_edits_of_the_user_stay(tmp_path: Path) -> None:
    """SM-6: also below the mark, and in a session that is opened again."""

    async def do(session: LiveSession, keepers: Keepers, sink: ListSink) -> None:
        await talk(session, keepers)
        path = notes_file(tmp_path)
        text = path.read_text()
        text = text.replace(MARK, f"Only the user decides on prices.\n{MARK}", 1)
        text = text.replace("\n- ", "\n- below the mark\n- ", 1)
        path.write_text(text + "\n# My own section\nkeep me\n")
        await talk(session, keepers, 1)
        after = path.read_text()
        for words in (
            "Only the user decides on prices.",
            "- below the mark",
            "# My own section",
            "keep me",
            "step 1 of",
        ):
            assert after.count(words) == 1 or words == "step 1 of", words
        path.write_text(after.replace("keep me", "keep me too"))

    run(tmp_path, do)

    async def again() -> None:
        session, keepers, _ = await resumed(tmp_path)
        await talk(session, keepers, 2)
        text = notes_file(tmp_path).read_text()
        assert "keep me too" in text and "Only the user decides on prices." in text and "step 2 of" in text
        await keepers.close(session)
        await session.close()

    anyio.run(again)


@pytest.mark.parametrize(
    ("content", "what"), [(b"", "emptied"), (b"\n \n", "emptied"), (b"lost", "broken"), (b"\xff\xfe", "broken")]
)
def test_a_file_emptied_or_broken_by_hand(tmp_path: Path, content: bytes, what: str) -> None:
    """SM-6: said, made again beside it, never overwritten."""

    async def do(session: LiveSession, keepers: Keepers, sink: ListSink) -> None:
        await talk(session, keepers)
        path = notes_file(tmp_path)
        path.write_bytes(content)
        await talk(session, keepers, 1)
        [mended] = events(sink, NotesMended)
        aside = path.with_name("summary.aside-1.md")
        assert mended.what == what and mended.aside == str(aside) and aside.read_bytes() == content
        assert "step 1 of" in path.read_text()

    run(tmp_path, do)


def test_a_section_that_was_deleted_comes_back(tmp_path: Path) -> None:
    """SM-1, SM-6."""

    async def do(session: LiveSession, keepers: Keepers, sink: ListSink) -> None:
        await talk(session, keepers)
        path = notes_file(tmp_path)
        path.write_text("# Worklog\n- mine\n")
        await talk(session, keepers, 1)
        assert [event.what for event in events(sink, NotesMended)] == ["sections"]
        assert len(parse(path.read_text()).sections) == 10 and "- mine" in path.read_text()
        path.unlink()
        await talk(session, keepers, 2)
        assert events(sink, NotesMended)[-1].what == "missing" and path.exists()

    run(tmp_path, do)


def test_a_failed_update_moves_no_cursor(tmp_path: Path) -> None:
    """SM-5, SM-8: the id is recorded only after a successful update; the turn doesn't notice."""

    async def do(session: LiveSession, keepers: Keepers, sink: ListSink) -> None:
        [notes] = session.services.keepers
        assert isinstance(notes, SessionNotes)
        notes_file(tmp_path).parent.write_text("a file in the way")
        await talk(session, keepers)
        assert CURSOR not in session.view.state.cursors and notes.cursor is None
        assert [event.reason for event in events(sink, NotesFailed)] == ["JournalError"]

    run(tmp_path, do)


def test_after_a_crash_between_the_file_and_the_journal(tmp_path: Path) -> None:
    """SM-5, SM-6: the notes know more than the id says, never less; code still knows its own lines."""

    async def do(session: LiveSession, keepers: Keepers, sink: ListSink) -> None:
        await talk(session, keepers)
        await talk(session, None, 1)
        [notes] = session.services.keepers
        await notes.keep(session.view.copy(), session.facts())  # what it gives is never recorded

    run(tmp_path, do)

    async def again() -> None:
        session, keepers, _ = await resumed(tmp_path)
        cursor, path = session.view.state.cursors[CURSOR], notes_file(tmp_path)
        assert session.view.positions[cursor.message] == 3 and "step 1 of" in path.read_text()
        assert cursor.digest != digest_of(path.read_bytes())
        await talk(session, keepers, 2)
        assert all(not one.own for one in parse(path.read_text()).sections) and "step 2 of" in path.read_text()
        assert session.view.state.cursors[CURSOR].digest == digest_of(path.read_bytes())
        await keepers.close(session)
        await session.close()

    anyio.run(again)


def test_a_save_while_we_write_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SM-6: what was saved in between is read again first."""

    async def do(session: LiveSession, keepers: Keepers, sink: ListSink) -> None:
        await talk(session, keepers)
        path, [notes] = notes_file(tmp_path), session.services.keepers
        assert isinstance(notes, SessionNotes)
        found, times = notes.found, []

        async def found_and_saved() -> Any:
            seen = await found()
            if not times:
                path.write_text(path.read_text() + "saved just now\n")
            times.append(seen)
            return seen

        monkeypatch.setattr(notes, "found", found_and_saved)
        await talk(session, keepers, 1)
        assert len(times) == 2 and "saved just now" in path.read_text() and "step 1 of" in path.read_text()

    run(tmp_path, do)


def test_the_users_own_template(tmp_path: Path) -> None:
    """SM-1."""
    config = tmp_path / "session-memory" / "config"
    config.mkdir(parents=True)
    (config / "template.md").write_text("# Worklog\n_what was done_\n\n# Names\n_who is who_\n")

    async def do(session: LiveSession, keepers: Keepers, sink: ListSink) -> None:
        await talk(session, keepers)
        assert [one.title for one in parse(notes_file(tmp_path).read_text()).sections] == ["Worklog", "Names"]

    run(tmp_path, do)


# --- compaction -----------------------------------------------------------------------------------------------------


async def filled(session: LiveSession, keepers: Keepers | None, turns: int = 6) -> None:
    for number in range(turns):
        await talk(session, keepers, number)


def reasons(sink: ListSink) -> list[str]:
    failed = events(sink, CompactionAttemptFailed)
    return [event.reason.split(":")[0] for event in failed if event.strategy == "session_memory"]


def test_compaction_from_the_notes(tmp_path: Path) -> None:
    """CMP-1, CMP-2: notes with the path, user words and ledger, and the latest messages word for word."""

    async def do(session: LiveSession, keepers: Keepers, sink: ListSink) -> None:
        await filled(session, keepers)
        path = notes_file(tmp_path)
        path.write_text(path.read_text().replace(MARK, f"The customer is Ada.\n{MARK}", 1))
        outcome = await compact(session, trigger="auto")
        assert isinstance(outcome, CompactionSuccess) and outcome.boundary.strategy == "session_memory"
        assert [event.strategy for event in events(sink, CompactionDone)] == ["session_memory"]
        said = session.view.items[0].message.blocks[0].value.text  # type: ignore[union-attr]
        assert "The customer is Ada." in said and str(path) in said and "What the user said, word for word" in said
        assert "step 0 of the migration" in said and MARK not in said
        assert outcome.boundary.kept_tokens >= 10_000
        # Once more, from the same notes: they cover what the boundary replaced, and nothing behind it.
        for number in range(10, 14):
            await talk(session, keepers, number)
        again = await compact(session, trigger="auto")
        assert isinstance(again, CompactionSuccess) and again.boundary.strategy == "session_memory"
        text = session.view.items[0].message.blocks[0].value.text  # type: ignore[union-attr]
        assert "step 12 of" in text and "step 0 of" in text

    run(tmp_path, do)


def test_what_the_notes_dont_cover_is_kept(tmp_path: Path) -> None:
    """CMP-2: the window starts behind the last summarised message, however much came since."""

    async def do(session: LiveSession, keepers: Keepers, sink: ListSink) -> None:
        await filled(session, keepers, 6)
        cursor = session.view.state.cursors[CURSOR].message
        at = session.view.positions[cursor]
        for number in range(20, 29):
            await talk(session, None, number)
        since = [item.message.id for item in session.view.items[at + 1 :]]
        outcome = await compact(session, trigger="manual")
        assert isinstance(outcome, CompactionSuccess) and outcome.boundary.strategy == "session_memory"
        assert list(outcome.boundary.kept)[-len(since) :] == since

    run(tmp_path, do)


def test_over_the_trigger(tmp_path: Path) -> None:
    """CMP-2, SM-8: a result over the trigger is refused with both numbers, and the ledger is next."""

    async def do(session: LiveSession, keepers: Keepers, sink: ListSink) -> None:
        await filled(session, keepers, 5)
        for number in range(20, 26):
            await talk(session, None, number)
        session.configure(replace(session.settings, auto_compact_window=60_000))
        outcome = await compact(session, trigger="auto")
        assert isinstance(outcome, CompactionSuccess) and outcome.boundary.strategy == "ledger"
        [why] = [e.reason for e in events(sink, CompactionAttemptFailed) if e.strategy == "session_memory"]
        assert why.startswith("over_trigger: ") and "trigger 4" in why

    run(tmp_path, do)


def test_reason_codes(tmp_path: Path) -> None:
    """CMP-2, SM-8: no notes of ours, an empty template, a broken file, and a boundary of another strategy."""

    async def do(session: LiveSession, keepers: Keepers, sink: ListSink) -> None:
        await filled(session, None)
        path, [notes] = notes_file(tmp_path), session.services.keepers
        session.configure(replace(session.settings, keep_min_tokens=2_000))

        async def reason() -> str:
            [strategy] = session.services.strategies
            proposals = [one async for one in strategy.propose(session, session.facts())]
            assert len(proposals) == 1
            return proposals[0].split(":")[0] if isinstance(proposals[0], str) else proposals[0].strategy

        assert await reason() == "no_notes"
        path.parent.mkdir()
        path.write_text(template() + "- by hand\n")
        assert await reason() == "no_notes"  # nothing says up to where they tell of the conversation
        await talk(session, keepers, 7)
        assert await reason() == "session_memory"
        written = path.read_text()
        path.write_text(template())
        assert await reason() == "empty_template"
        path.write_text("words")
        assert await reason() == "broken_notes"
        path.write_text(written)
        assert await reason() == "session_memory"
        session.configure(replace(session.settings, notes=False))
        assert await reason() == "off"
        assert isinstance(await compact(session, trigger="auto"), CompactionSuccess)
        session.configure(replace(session.settings, notes=True))
        assert await reason() == "before_boundary"
        await talk(session, keepers, 8)
        await talk(session, keepers, 9)
        assert await reason() == "session_memory"
        assert isinstance(notes, SessionNotes)
        session.configure(replace(session.settings, notes=True))
        assert reasons(sink) == ["off"]

    run(tmp_path, do)


def test_a_resumed_session_finds_its_notes(tmp_path: Path) -> None:
    """CMP-2, SM-5: the id is in the journal; a resumed session whose file is gone says so."""

    async def do(session: LiveSession, keepers: Keepers, sink: ListSink) -> None:
        await filled(session, keepers)

    run(tmp_path, do)

    async def again() -> None:
        session, keepers, sink = await resumed(tmp_path)
        path = notes_file(tmp_path)
        text = path.read_text()
        path.unlink()
        [strategy] = session.services.strategies
        [why] = [one async for one in strategy.propose(session, session.facts())]
        assert isinstance(why, str) and why.startswith("resumed_without_notes")
        [notes] = session.services.keepers
        assert isinstance(notes, SessionNotes) and await notes.offered(session.facts()) is None
        path.write_text(text)
        offered = await notes.offered(session.facts())  # SM-10
        assert offered is not None and "### Current State" in offered and str(path) in offered and MARK not in offered
        outcome = await compact(session, trigger="auto")
        assert isinstance(outcome, CompactionSuccess) and outcome.boundary.strategy == "session_memory", sink.events
        assert await notes.offered(session.facts()) is None
        await keepers.close(session)
        await session.close()

    anyio.run(again)


@pytest.mark.parametrize(("age", "is_awaited"), [(0.0, True), (61.0, False)])
def test_a_running_update(tmp_path: Path, age: float, is_awaited: bool) -> None:
    """CMP-2: waited for, up to 15 s; one that runs for over 60 s is stale and ignored."""

    async def do(session: LiveSession, keepers: Keepers, sink: ListSink) -> None:
        await filled(session, keepers)
        [notes] = session.services.keepers
        assert isinstance(notes, SessionNotes)
        notes.began, notes._done = session.ports.clock.now() - age, anyio.Event()
        outcomes: list[Any] = []
        is_done = anyio.Event()

        async def compacts() -> None:
            outcomes.append(await compact(session, trigger="auto"))
            is_done.set()

        async with anyio.create_task_group() as group:
            group.start_soon(compacts)
            with anyio.move_on_after(0.3 if is_awaited else 10):  # it would wait for 15 s
                await is_done.wait()
            assert bool(outcomes) != is_awaited
            notes._done.set()
        assert isinstance(outcomes[0], CompactionSuccess) and not isinstance(outcomes[0], CompactionFailure)
        notes.began = None

    run(tmp_path, do)


def test_a_compaction_finds_its_work_prepared(tmp_path: Path) -> None:
    """CMP-2, SPD-2: the same window and words as from cold, and nothing prepared is used for another view."""

    async def do(session: LiveSession, keepers: Keepers, sink: ListSink) -> None:
        await filled(session, keepers, 14)
        [notes] = session.services.keepers
        assert isinstance(notes, SessionNotes) and notes.prepared is not None and notes.cursor is not None
        found, facts, whence = await notes.found(), session.facts(), (notes.cursor, notes.file.path)
        cold = noted_plan(session.view, facts, found.notes, whence)
        warm = noted_plan(session.view, facts, found.notes, whence, notes.prepared)
        assert isinstance(cold, CompactionPlan) and isinstance(warm, CompactionPlan)
        assert notes.prepared.fits(session.view, warm.keep_from)
        assert warm.keep_from == cold.keep_from and warm.ledger.spoken == cold.ledger.spoken
        assert warm.ledger.memory().commands == cold.ledger.memory().commands
        assert warm.ledger.memory().tokens == cold.ledger.memory().tokens
        assert isinstance(await compact(session, trigger="auto"), CompactionSuccess)
        assert not notes.prepared.fits(session.view, len(session.view.items))

    run(tmp_path, do)


def test_what_the_session_read_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SPD-2, SPD-8: notes and a compaction go on from what was read for the ledger while the session rested."""
    read, extract = list[str](), LedgerExtractor.extract
    asked, action = list[str](), ToolTable.action

    def noted(self: LedgerExtractor, message: Message) -> LedgerExtract:
        read.append(message.id)
        return extract(self, message)

    def told(self: ToolTable, name: str, arguments: Mapping[str, Any]) -> ToolAction:
        asked.append(str(arguments))
        return action(self, name, arguments)

    monkeypatch.setattr(LedgerExtractor, "extract", noted)
    monkeypatch.setattr(ToolTable, "action", told)

    async def do(session: LiveSession, keepers: Keepers, sink: ListSink) -> None:
        await filled(session, None)
        session.rest()
        keepers.after_reply(session)
        assert await keepers.drain(session, 10)
        assert len(events(sink, NotesUpdated)) == 1
        assert isinstance(await compact(session, trigger="auto"), CompactionSuccess)
        assert len(read) == len(set(read)) > 20, "a message was read twice"
        assert len(asked) == len(set(asked)) > 5, "a call was read twice"
        session.rest()

    run(tmp_path, do)
