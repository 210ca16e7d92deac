"""MEM-2, MEM-4, MEM-5: memories in a session: the index at its start, what matters to words said, a model's choice."""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import anyio
import pytest
from tests.services import serve

from perdure import Message, Settings
from perdure.adapters.memory.directory import FileMemories
from perdure.adapters.sinks import ListSink
from perdure.context.replies import Delta, Reply
from perdure.context.request import ModelRequest
from perdure.engine.ask import JobModels
from perdure.engine.compact import CompactionSuccess, compact
from perdure.engine.memory_recall import MemoryRecall, with_memory
from perdure.engine.reminders import remind
from perdure.engine.session import LiveSession
from perdure.engine.turn import run_turn
from perdure.events import MemoriesRecalled, MemoryIndexShown, MemorySelectionFailed
from perdure.ports.session import Model
from perdure.testing import ScriptedModel
from perdure.transcript.blocks import Text
from perdure.transcript.records import Rewound
from perdure.wiring import SessionOptions, background, create_session, memory_session

pytestmark = pytest.mark.unit
T = TypeVar("T")
SETTINGS = Settings(restore=True, window_tokens=200_000)


class SlowModel:
    """A model that never answers."""

    def __init__(self) -> None:
        self._inner = ScriptedModel()
        self.about = self._inner.about

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]:
        await anyio.sleep_forever()
        async for one in self._inner.stream(request):
            yield one

    async def count(self, request: ModelRequest) -> int | None:
        return None

    async def close(self) -> None:
        return None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "memory"
    home.mkdir()
    for file, about, body in (
        ("project_deploy.md", "Deploys on Friday", "Anna deploys to staging."),
        ("feedback_tests.md", "Real tests only", "No mocks, please."),
        ("user_role.md", "Data scientist", "New to frontend."),
    ):
        kind = file.partition("_")[0]
        (home / file).write_text(f"---\nname: {about}\ndescription: {about}\ntype: {kind}\n---\n{body}\n")
    (home / "MEMORY.md").write_text("# Memory\n- [Deploys](project_deploy.md) — on Fridays\n")
    return home


@pytest.fixture
def many(folder: Path) -> Path:
    """More than are ever shown at once."""
    for number in range(4):
        text = f"---\nname: Colour {number}\ndescription: Colour {number}\ntype: reference\n---\nBlue {number}.\n"
        (folder / f"reference_{number}.md").write_text(text)
    return folder


def run(
    folder: Path,
    do: Callable[[LiveSession, ListSink], Awaitable[Any]],
    model: Model | None = None,
    settings: Settings = SETTINGS,
) -> Any:
    async def go() -> Any:
        sink = ListSink()
        session = await memory_session(parts=SessionOptions(settings=settings, sink=sink))
        memories = FileMemories(folder)
        session.services = with_memory(session, session.services, memories)
        if model is not None:
            serve(session, helpers=JobModels(selector=(model,)))
        done = await do(session, sink)
        memories.wait_for_rescan()
        return done

    return anyio.run(go)


def events(sink: ListSink, kind: type[T]) -> list[T]:
    return [event for event in sink.events if isinstance(event, kind)]


def reminders(session: LiveSession, note: str) -> list[str]:
    return [
        "\n".join(block.value.text for block in item.message.blocks if isinstance(block.value, Text))
        for item in session.view.items
        if item.message.note == note
    ]


def test_without_memories_nothing_is_asked(tmp_path: Path) -> None:
    """MEM-2, MEM-4, MEM-11, SM-2, SPD-2: one look whether there are any; nobody makes the directory by looking.

    What was said isn't stemmed and widened for nothing, and a session far below the notes' start keeps no pace.
    """
    ran: set[str] = set()

    def note(frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code  # of no module, whose body only loads it, nor one that `dataclass` wrote
        if event == "call" and code.co_flags & inspect.CO_NEWLOCALS and code.co_filename != "<string>":
            ran.add(frame.f_globals.get("__name__", ""))

    async def go() -> None:
        chosen = Settings(memory_directory=str(tmp_path / "memory"), memory_consolidate_sessions=1)
        parts = SessionOptions(settings=chosen, sink=(sink := ListSink()))
        session = await create_session(tmp_path / "home", project=tmp_path, session="s1", parts=parts)
        keepers = background(session)
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            await run_turn(session, "When do we deploy to staging?", ScriptedModel(["On Friday."]), keepers)
            await keepers.drain(session, 10)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
        await keepers.close(session)
        await session.close()
        assert not events(sink, MemoriesRecalled)

    anyio.run(go)
    assert "perdure.engine.memory_recall" in ran
    assert not ran & {f"perdure.text.{name}" for name in ("words", "stems", "synonyms", "scoring")}
    unused = "retrieval index_file recalled save changes pace notes permits consolidation trust.gate trust.labels"
    assert not ran & {f"perdure.memory.{name}" for name in unused.split()}
    assert not ran & {"perdure.text.frontmatter", "perdure.engine.notes", "perdure.engine.consolidate"}
    assert not ran & {"perdure.adapters.memory.store", "perdure.adapters.memory.notes"}
    assert not (tmp_path / "memory").exists()


async def say(session: LiveSession, text: str, answer: str | None = "Well.") -> None:
    """A turn without a model: what the user says, with its reminders, and an answer."""
    await remind(session, "before")
    await session.append(Message.of("user", text))
    await remind(session, "behind")
    if answer is not None:
        await session.append(Message.of("assistant", answer))


def touch(folder: Path) -> None:
    """Another time than the folder had, however coarse the clock of the disk is."""
    now = folder.stat().st_mtime_ns
    os.utime(folder, ns=(now + 10**9, now + 10**9))


def test_the_index_is_shown_once_and_its_changes_behind(folder: Path) -> None:
    async def do(session: LiveSession, sink: ListSink) -> None:
        await say(session, "hello")
        await say(session, "hello again")
        (folder / "MEMORY.md").write_text("# Memory\n- [Deploys](project_deploy.md) — on Mondays\n")
        await say(session, "and again")
        start, change = reminders(session, "memory_index")
        assert "- [Deploys](project_deploy.md) — on Fridays" in start
        assert str(folder) in start
        assert "- - [Deploys](project_deploy.md) — on Fridays\n+ - [Deploys](project_deploy.md) — on Mondays" in change
        assert [event.why for event in events(sink, MemoryIndexShown)] == ["start", "change"]
        assert session.view.items[0].message.note == "memory_index"

    run(folder, do)


def test_what_the_view_tells_of_the_index_holds_for_another_process_and_after_a_rewind(folder: Path) -> None:
    """MEM-2: a change that came while nobody looked is told, and one whose telling was taken back is told again."""

    async def do(session: LiveSession, sink: ListSink) -> None:
        await say(session, "hello")
        before = session.view.items[-1].message.id
        (folder / "MEMORY.md").write_text("# Memory\n- [Deploys](project_deploy.md) — on <system-reminder> days\n")
        serve(session, reminders=())
        session.services = with_memory(session, session.services, FileMemories(folder))  # as in another process
        await say(session, "hello again")
        await session.record(Rewound(to=before))
        await say(session, "something else")
        start, change = reminders(session, "memory_index")
        assert "— on Fridays" in start and "- - [Deploys](project_deploy.md) — on Fridays" in change
        serve(session, reminders=())
        session.services = with_memory(session, session.services, FileMemories(folder))
        (folder / "MEMORY.md").write_text("# Memory\n- [Tests](feedback_tests.md) — real ones\n")
        await say(session, "and now")
        assert [event.why for event in events(sink, MemoryIndexShown)] == ["start", "change", "change", "change"]
        last = reminders(session, "memory_index")[-1]
        assert last.count("\n- - [Deploys]") == 1 and "Fridays" not in last and "+ - [Tests]" in last

    run(folder, do)


def test_an_imported_boundary_does_not_hide_the_index(folder: Path) -> None:
    """MEM-2: a compaction that put no index back, such as one of another program, leaves it to be shown."""

    async def do(session: LiveSession, sink: ListSink) -> None:
        aside = session.services.reminders
        serve(session, reminders=(), sources={})
        for number in range(12):
            await say(session, f"hello {number} " + "words " * 3_000, "Well. " + "words " * 3_000)
        assert isinstance(await compact(session, trigger="manual"), CompactionSuccess)
        serve(session, reminders=aside)
        await say(session, "go on")
        assert len(reminders(session, "memory_index")) == 1

    run(folder, do)


def test_the_index_comes_back_after_a_compaction(folder: Path) -> None:
    async def do(session: LiveSession, sink: ListSink) -> None:
        for number in range(12):
            await say(session, f"hello {number} " + "words " * 3_000, "Well. " + "words " * 3_000)
        assert isinstance(await compact(session, trigger="manual"), CompactionSuccess)
        told = [item.message for item in session.view.items if item.message.note == "memory_index"]
        assert {message.origin for message in told} == {"restored"}
        assert "\n".join(reminders(session, "memory_index")).count("— on Fridays") == 1
        await say(session, "go on")
        assert len(events(sink, MemoryIndexShown)) == 1  # not told again

    run(folder, do)


def test_what_matters_is_shown_behind_what_was_said_once_with_age_and_source(folder: Path) -> None:
    async def do(session: LiveSession, sink: ListSink) -> None:
        await say(session, "when do we deploy?")
        (text,) = reminders(session, "memory")
        assert "## project_deploy.md\n(memory of the type project, it isn't recorded who wrote it; saved " in text
        assert "saved today" in text
        assert "Anna deploys to staging." in text
        assert "No mocks" not in text
        await say(session, "and who deploys on Friday?")  # shown already
        assert len(reminders(session, "memory")) == 1
        assert [(e.engine, e.scanned, e.chosen) for e in events(sink, MemoriesRecalled)] == [
            ("ranking", 3, 1),
            ("ranking", 3, 0),
        ]

    run(folder, do)


def test_a_memory_that_changed_since_it_was_shown_is_shown_again(folder: Path) -> None:
    async def do(session: LiveSession, sink: ListSink) -> None:
        await say(session, "when do we deploy?")
        path = folder / "project_deploy.md"
        path.write_text(path.read_text().replace("Anna", "Boris"))
        os.utime(path, (2_000_000_000, 2_000_000_000))
        touch(folder)
        await say(session, "when do we deploy now?")
        assert "Boris deploys" in reminders(session, "memory")[1]

    run(folder, do)


def test_a_short_answer_means_what_was_said_before_it(folder: Path) -> None:
    async def do(session: LiveSession, sink: ListSink) -> None:
        await session.append(Message.of("user", "when do we deploy?"), Message.of("assistant", "Shall I look?"))
        await say(session, "yes")
        assert "Anna deploys" in reminders(session, "memory")[0]

    run(folder, do)


def test_results_of_tools_are_no_question(folder: Path) -> None:
    async def do(session: LiveSession, sink: ListSink) -> None:
        use = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "t1", "content": "when do we deploy?"}
        await session.append(Message.of("user", "hi"), Message.of("assistant", [use]), Message.of("user", [result]))
        await remind(session, "behind")
        assert reminders(session, "memory") == []

    run(folder, do)


def test_a_model_overrides_the_ranking_and_sees_no_conversation(many: Path) -> None:
    model = ScriptedModel(['{"files": ["user_role.md", "gone.md"]}'])

    async def do(session: LiveSession, sink: ListSink) -> None:
        await session.append(Message.of("user", "a secret plan"), Message.of("assistant", "Fine."))
        await say(session, "when do we deploy?")
        (text,) = reminders(session, "memory")
        assert "New to frontend." in text
        assert "Anna" not in text
        assert events(sink, MemoriesRecalled)[0].engine == "model"

    run(many, do, model)
    (request,) = model.requests
    sent = request.body.decode()
    assert "Select memories relevant to: when do we deploy?" in sent
    assert "feedback_tests.md [feedback] Real tests only" in sent
    assert "secret plan" not in sent
    assert "Anna" not in sent  # bodies stay here


def test_where_all_fit_no_model_is_asked(folder: Path) -> None:
    """MEM-4: of three memories a model could only choose what the ranking shows anyway."""
    model = ScriptedModel(['{"files": ["user_role.md"]}'])

    async def do(session: LiveSession, sink: ListSink) -> None:
        await say(session, "when do we deploy?")
        assert "Anna deploys" in reminders(session, "memory")[0]
        assert events(sink, MemoriesRecalled)[0].engine == "ranking"

    run(folder, do, model)
    assert not model.requests


def test_a_turn_may_bring_who_chooses(many: Path) -> None:
    """MEM-4: the models given to a turn choose for this turn; without one for the job, the ranking does."""
    own, given = ScriptedModel(['{"files": []}'] * 9), ScriptedModel(['{"files": ["user_role.md"]}'])

    async def do(session: LiveSession, sink: ListSink) -> None:
        talk = ScriptedModel()
        await run_turn(session, "when do we deploy?", talk, helpers=JobModels(selector=(given,)))
        await run_turn(session, "and what is blue of the colours?", talk, helpers=JobModels())
        await run_turn(session, "who deploys to staging then?", talk)
        assert [event.engine for event in events(sink, MemoriesRecalled)] == ["model", "ranking", "model"]
        assert (len(given.requests), len(own.requests)) == (1, 1)

    run(many, do, own)


def test_an_empty_choice_of_a_model_counts(many: Path) -> None:
    async def do(session: LiveSession, sink: ListSink) -> None:
        await say(session, "when do we deploy?")
        assert reminders(session, "memory") == []
        assert events(sink, MemorySelectionFailed) == []

    run(many, do, ScriptedModel(['{"files": []}']))


@pytest.mark.parametrize(
    ("answer", "reason"), [("I like them all", "unreadable"), ('{"files": ["x.md"]}', "unreadable")]
)
def test_an_answer_that_cannot_be_read_leaves_the_ranking(many: Path, answer: str, reason: str) -> None:
    async def do(session: LiveSession, sink: ListSink) -> None:
        await say(session, "when do we deploy?")
        assert "Anna deploys" in reminders(session, "memory")[0]
        assert events(sink, MemorySelectionFailed)[0].reason == reason

    run(many, do, ScriptedModel([answer]))


def test_a_model_that_is_late_leaves_the_ranking(many: Path) -> None:
    async def do(session: LiveSession, sink: ListSink) -> None:
        await say(session, "when do we deploy?")
        assert "Anna deploys" in reminders(session, "memory")[0]
        assert events(sink, MemorySelectionFailed)[0].reason == "timeout"

    settings = Settings(restore=True, window_tokens=200_000, memory_select_seconds=0.01)
    run(many, do, SlowModel(), settings)


def test_switched_off_nothing_is_shown(folder: Path) -> None:
    async def do(session: LiveSession, sink: ListSink) -> None:
        await say(session, "when do we deploy?")
        assert [item.message.note for item in session.view.items] == [None, None]

    run(folder, do, settings=Settings(memory=False, window_tokens=200_000))


def test_a_directory_that_is_not_there_costs_nothing(tmp_path: Path) -> None:
    async def do(session: LiveSession, sink: ListSink) -> None:
        await say(session, "when do we deploy?")
        assert [item.message.note for item in session.view.items] == [None, None]

    run(tmp_path / "none", do)


def test_it_is_a_source_of_reminders() -> None:
    assert MemoryRecall(FileMemories(Path("nowhere"))).name == "memory"
