"""SM-3 to SM-9, SEC-3: notes written by a model, in a fork on the conversation's cached prefix."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import anyio
import msgspec
import pytest
from tests.services import serve

from perdure import Message, Settings
from perdure.adapters.memory.notes import notes_path
from perdure.adapters.providers.anthropic import AnthropicModel
from perdure.adapters.providers.openai import OpenAIModel
from perdure.adapters.sinks import ListSink
from perdure.compaction.from_notes import CURSOR
from perdure.context.cost import spent_by_forks
from perdure.context.request import ModelRequest
from perdure.engine.ask import JobModels
from perdure.engine.background import Keepers
from perdure.engine.compact import CompactionSuccess, compact
from perdure.engine.notes import OFFERED, SessionNotes
from perdure.engine.session import LiveSession
from perdure.engine.turn import run_turn
from perdure.events import ForkEnded, ModelFellBack, NotesFellBack, NotesUpdated
from perdure.memory.changes import digest_of
from perdure.memory.notes import MARK, template
from perdure.ports.session import Model
from perdure.testing import (
    FakeServer,
    FakeUpstream,
    ModelRules,
    ScriptedModel,
    check_anthropic,
    check_openai,
    say,
    server_error,
    text,
    thinking,
    tool_use,
)
from perdure.transcript.blocks import text_block
from perdure.transcript.records import Front
from perdure.wiring import SessionOptions, background, create_session, open_session

pytestmark = pytest.mark.e2e
T = TypeVar("T")

Wire = Literal["anthropic", "sdk", "openai"]
ABOUT = "_What is being worked on at this moment, what is open, and the very next step_"
FIELDS = {name: {"type": "string"} for name in ("file_path", "old_string", "new_string")}
EDIT = {"name": "Edit", "description": "edits", "input_schema": {"type": "object", "properties": FIELDS}}
BASH = {"name": "Bash", "description": "runs", "input_schema": {"type": "object"}}
STATE = "The invoices are moved; ledger.py is next."


def settings_of(**more: Any) -> Settings:
    return Settings(
        restore=False,
        window_tokens=200_000,
        max_output_tokens=32_000,
        memory_extract=False,
        memory_consolidate=False,
        **more,
    )


@dataclass
class Desk:
    """A session on files with its keepers, its model, and what it told."""

    session: LiveSession
    keepers: Keepers
    model: Model
    upstream: FakeUpstream
    sink: ListSink
    requests: Callable[[], list[bytes]]
    count: int = 0

    @property
    def notes(self) -> SessionNotes:
        notes = next(one for one in self.session.services.keepers if one.name == CURSOR)
        assert isinstance(notes, SessionNotes)
        return notes

    @property
    def path(self) -> Path:
        return Path(self.notes.file.path)

    def events(self, kind: type[T]) -> list[T]:
        return [event for event in self.sink.events if isinstance(event, kind)]

    def edit(self, old: str = ABOUT, new: str = f"{ABOUT}\n\n{STATE}", **more: Any) -> dict[str, Any]:
        given = {"file_path": str(self.path), "old_string": old, "new_string": new}
        return tool_use("Edit", {**given, **more})

    async def turn(self, *answers: Any, fork: Iterable[Any] = (), **more: Any) -> None:
        """A request with some length, a command and its result, then the fork's answers."""
        self.count += 1
        call = tool_use("Bash", {"command": f"make step{self.count}"})
        self.upstream.script.extend([say(text("I run it."), call), *(answers or ("It is done.",)), *fork])
        reply = await run_turn(self.session, f"Please do step {self.count}", self.model, **more)
        use = Message.of("assistant", reply.blocks).tool_uses[0]
        words = " ".join(f"row {n} of the table is moved;" for n in range(850))
        result = {"type": "tool_result", "tool_use_id": use.id, "content": words}
        await run_turn(self.session, [Message.of("user", [result])], self.model, self.keepers, **more)
        assert await self.keepers.drain(self.session, 10)


@asynccontextmanager
async def desk(
    home: Path, wire: Wire = "anthropic", tools: Iterable[Any] = (EDIT, BASH), settings: Settings | None = None
) -> AsyncIterator[Desk]:
    sink = ListSink()
    settings = settings or settings_of()
    session = await create_session(home, project=home, session="s1", parts=SessionOptions(settings=settings, sink=sink))
    upstream = FakeUpstream(rules=ModelRules(window_tokens=200_000, min_cacheable_tokens=512))
    front = Front(
        model="claude-opus-5",
        system=(msgspec.Raw(text_block("You code.").raw),),
        tools=tuple(msgspec.Raw(msgspec.json.encode(tool)) for tool in tools),
    )
    await session.record(front)
    scripted = ScriptedModel(upstream=upstream, id="claude-opus-5")
    sent = [lambda: [one.body for one in scripted.requests]]
    it = Desk(session, background(session), scripted, upstream, sink, lambda: sent[-1]())
    try:
        if wire == "anthropic":
            yield it
            return
        async with FakeServer(upstream) as server:
            sent.append(lambda: [one.body for one in server.received if one.body])
            if wire == "sdk":
                it.model = AnthropicModel("claude-opus-5", key="none", base_url=server.url)
            else:
                it.model = OpenAIModel("claude-opus-5", key="none", base_url=server.url + "/v1")
            try:
                yield it
            finally:
                await it.model.close()
    finally:
        await it.keepers.close(it.session)
        await it.session.close()


# --- the cached prefix ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", ["anthropic", "sdk", "openai"])
def test_a_fork_reads_the_prefix_from_the_cache(tmp_path: Path, wire: Wire) -> None:
    """SM-3: same model, system, tools and messages, byte for byte; at least 95 % of the prefix are cache reads."""

    async def body() -> None:
        async with desk(tmp_path, wire) as it:
            for _ in range(3):
                await it.turn(fork=[say(it.edit(ABOUT, f"{ABOUT}\n\n{STATE}\n"))])
            requests = it.requests()
            fork, last = requests[-1], requests[-2]
            assert not (check_openai(fork) if wire == "openai" else check_anthropic(fork))
            assert STATE in it.path.read_text()
            ours, theirs = msgspec.json.decode(fork), msgspec.json.decode(last)
            assert [ours[name] for name in ("model", "tools")] == [theirs[name] for name in ("model", "tools")]
            plain = [without_marks(one["messages"]) for one in (theirs, ours)]
            assert plain[1][: len(plain[0])] == plain[0], "message for message"
            if wire == "openai":  # no breakpoints: the very bytes
                assert fork[fork.index(b'"tools"') :].startswith(last[last.index(b'"tools"') : -2])
            asked, ended = it.events(ForkEnded)[-1], it.events(NotesUpdated)[-1]
            prefix = asked_of(it, last)
            assert asked.cache_read_tokens >= 0.95 * prefix > 10_000
            assert asked.cache_write_tokens < 0.05 * prefix or wire == "openai", "it writes nothing of its own there"
            assert ended.engine == "claude-opus-5" and ended.changed == ("Current State",) and ended.usd
            assert (ended.input_tokens, ended.cache_read_tokens) == (asked.input_tokens, asked.cache_read_tokens)
            assert not it.upstream.statistics.violations and not it.events(NotesFellBack)

    anyio.run(body)


def without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_marks(one) for name, one in value.items() if name != "cache_control"}
    return [without_marks(one) for one in value] if isinstance(value, list) else value


def asked_of(it: Desk, request: bytes) -> int:
    """The tokens of a request of the conversation, as its answer reported them."""
    usages = [item.message.usage for item in it.session.view.items if item.message.usage]
    assert usages[-1] is not None
    return usages[-1].prompt_tokens


def test_the_next_request_of_the_conversation_knows_nothing_of_it(tmp_path: Path) -> None:
    """SM-3: what the fork was asked and said is in its own journal, and what it cost is a record."""

    async def body() -> None:
        async with desk(tmp_path) as it:
            await it.turn(fork=[say(it.edit())])
            messages = len(it.session.view.items)
            fork = it.notes.fork
            assert fork is not None and [one.role for one in fork.journal] == ["user", "assistant", "user"]
            assert b"bring the notes" in bytes(fork.journal[0].content[0]) and messages == 4
            await it.turn("done")
            mains = [one for one in it.requests() if b"bring the notes" not in one]
            assert mains and len(mains) < len(it.requests())
            loaded = await it.session.ports.journal.load(whole=True)
            [spent, *_] = spent_by_forks(placed.record for placed in loaded.records)
            assert (spent.job, spent.turns, spent.ended) == ("notes", 1, "")
            assert spent.usage.cache_read_input_tokens > 1_000 and spent.usd
            assert not any(isinstance(p.record, Message) and p.record in fork.journal for p in loaded.records)

    anyio.run(body)


def test_a_fork_begins_at_the_last_closed_pair(tmp_path: Path) -> None:
    """SM-3, SM-5: an answer with open calls isn't part of it, and the cursor is what it saw."""

    async def body() -> None:
        settings = settings_of(notes_calls=1)
        async with desk(tmp_path, settings=settings) as it:
            calls = [thinking("Both."), text("And more."), tool_use("Bash", {"command": "a"}), tool_use("Bash", {})]
            await it.turn(say(*calls), fork=[say(thinking("I write."), it.edit())])
            view = it.session.view
            assert len(view.open_calls) == 2
            cursor = view.state.cursors[CURSOR]
            assert view.positions[cursor.message] == len(view.items) - 2, "the result before the open calls"
            assert cursor.digest == digest_of(it.path.read_bytes())
            fork, last = it.requests()[-1], it.requests()[-2]
            assert not check_anthropic(fork) and not it.upstream.statistics.violations
            body, before = (without_marks(msgspec.json.decode(one)["messages"]) for one in (fork, last))
            assert body[:-1] == before[:-1] and body[-1]["content"][:-1] == before[-1]["content"]

    anyio.run(body)


# --- the permit -----------------------------------------------------------------------------------------------------


def test_what_a_fork_may_do(tmp_path: Path) -> None:
    """SM-3, SEC-3: all but Edit on the file is denied with the words of the permit; a second turn hears it."""

    async def body() -> None:
        async with desk(tmp_path) as it:
            other = tmp_path / "other.txt"
            other.write_text("mine")
            denied = [
                tool_use("Bash", {"command": f"rm {other}"}),
                it.edit("mine", "theirs", file_path=str(other)),
                it.edit("nowhere", "x"),
            ]
            await it.turn(fork=[say(thinking("Let me see."), *denied), say(thinking("Now."), it.edit())])
            assert other.read_text() == "mine" and STATE in it.path.read_text()
            [ended] = it.events(ForkEnded)
            assert (ended.turns, ended.allowed, ended.denied, ended.reason) == (2, 2, 2, "")
            results = msgspec.json.decode(it.requests()[-1])["messages"][-1]["content"]
            assert results[0]["content"] == f"only Edit on {it.path} is allowed" and results[0]["is_error"]
            assert results[2]["content"] == "old_string isn't in the file"
            assert not it.upstream.statistics.violations, "its own signed thinking went back as it came"

    anyio.run(body)


@pytest.mark.parametrize("wire", ["anthropic", "openai"])
def test_without_an_edit_tool_the_edits_are_text(tmp_path: Path, wire: Wire) -> None:
    """SM-3: code applies them; those that don't fit are asked for again."""

    def edits(old: str, new: str) -> str:
        return f"<edit>\n<old>\n{old}\n</old>\n<new>\n{new}\n</new>\n</edit>"

    async def body() -> None:
        async with desk(tmp_path, wire, tools=[BASH]) as it:
            first = edits("nowhere", "x") + "\n" + edits(ABOUT, f"{ABOUT}\n\n{STATE}")
            await it.turn(fork=[first, edits("# Worklog", "# Worklog")])
            assert it.path.read_text().count(STATE) == 1
            [ended] = it.events(ForkEnded)
            assert ended.turns == 2 and not it.events(NotesFellBack)
            assert b"<edit>" in it.requests()[-2] and b"edit 1: old_string isn't" in it.requests()[-1]
            assert not it.upstream.statistics.violations

    anyio.run(body)


# --- when it fails --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "reason", "calls"),
    [
        (["I'd rather go on with the work."], "no_edits", 1),
        ([say(text("<edit>"), stop_reason="max_tokens")], "cut_off", 1),
        ([say(text("No."), stop_reason="refusal")], "refused", 1),
        ([say(tool_use("Bash", {}))] * 4, "turns", 4),
        ([server_error()] * 9, "model_failed", 0),
    ],
)
def test_code_makes_good_what_a_model_fails(
    tmp_path: Path, answers: list[Any], reason: str, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SM-7, SM-9: the notes are filled by code, the reason is said, what was paid is recorded, and it rests."""

    async def body() -> None:
        settings = settings_of(retry_budget_seconds=0.0)
        async with desk(tmp_path, settings=settings) as it:
            await it.turn(fork=answers)
            [fell], [updated] = it.events(NotesFellBack), it.events(NotesUpdated)
            assert fell.reason.startswith(reason) and updated.engine == "offline"
            assert "make step1" in it.path.read_text() and CURSOR in it.session.view.state.cursors
            assert it.events(ForkEnded)[0].turns == calls
            loaded = await it.session.ports.journal.load(whole=True)
            assert [one.ended for one in spent_by_forks(p.record for p in loaded.records)] == (
                [reason] if calls else []
            )
            it.upstream.script.clear()
            await it.turn()  # back-off: code alone
            assert len(it.events(ForkEnded)) == 1 and it.events(NotesUpdated)[-1].input_tokens == 0
            await it.turn(fork=[say(it.edit())])  # and the model is asked again; what code filled is its to keep
            assert it.events(NotesUpdated)[-1].engine == "claude-opus-5"
            after = it.path.read_text()
            assert STATE in after and "make step1" in after and MARK not in after

    anyio.run(body)


def test_another_model_takes_over_before_anything_was_done(tmp_path: Path) -> None:
    """SM-3: models of the job in their order; another one than the conversation's gets no thinking, and a window."""

    async def body() -> None:
        async with desk(tmp_path) as it:
            broken, other = ScriptedModel([server_error()] * 9, id="broken"), ScriptedModel(id="other")
            it.session.configure(settings_of(retry_budget_seconds=0.0))
            other.upstream.script.append(say(it.edit()))
            await it.turn(say(thinking("hm"), text("Done.")), helpers=JobModels(notes=(broken, other)))
            assert [one.model for one in it.events(ModelFellBack)] == ["other"]
            assert it.events(NotesUpdated)[-1].engine == "other" and STATE in it.path.read_text()
            body = other.requests[0].body
            assert b'"thinking"' not in body and not other.upstream.statistics.violations
            small = ScriptedModel(id="small", window_tokens=8_000)
            await it.turn(helpers=JobModels(notes=(small,)))
            assert not small.requests and it.events(NotesFellBack)[-1].reason.startswith("too_long")

    anyio.run(body)


@pytest.mark.parametrize(
    ("settings", "helpers"), [(settings_of(notes_models=("offline",)), None), (settings_of(), JobModels())]
)
def test_offline_means_code_alone(tmp_path: Path, settings: Settings, helpers: JobModels | None) -> None:
    """SM-7, SM-9: by setting and by the caller."""

    async def body() -> None:
        async with desk(tmp_path, settings=settings) as it:
            await it.turn(helpers=helpers)
            assert it.events(NotesUpdated)[-1].engine == "offline" and not it.events(ForkEnded)
            assert len(it.requests()) == 2

    anyio.run(body)


def test_the_tokens_of_an_hour_leave_the_rest_to_code(tmp_path: Path) -> None:
    """SM-9."""

    async def body() -> None:
        settings = settings_of(notes_tokens_per_hour=2_000)
        async with desk(tmp_path, settings=settings) as it:
            await it.turn(fork=[say(it.edit())])
            await it.turn()
            assert [one.engine for one in it.events(NotesUpdated)] == ["claude-opus-5", "offline"]
            assert not it.events(NotesFellBack)
            await it.keepers.close(it.session)
            await it.session.close()
            it.session = await open_session(tmp_path, "s1", parts=SessionOptions(settings=settings, sink=it.sink))
            it.keepers = background(it.session)
            await it.turn()
            assert [one.engine for one in it.events(NotesUpdated)][2:] == ["offline"], "the hour isn't over"

    anyio.run(body)


# --- the file -------------------------------------------------------------------------------------------------------


class Editor(ScriptedModel):
    """Somebody saves the file while the model writes."""

    save: Callable[[], None] = staticmethod(lambda: None)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:  # type: ignore[override]
        if b"bring the notes" in request.body:
            self.save()
        async for delta in super().stream(request):
            yield delta


@pytest.mark.parametrize("is_in_the_way", [False, True])
def test_what_a_user_saves_meanwhile_stays(tmp_path: Path, is_in_the_way: bool) -> None:
    """SM-6: the edits go on top; where they don't fit any more, code fills in, and the user's words stay anyway."""

    async def body() -> None:
        async with desk(tmp_path) as it:
            it.path.parent.mkdir(parents=True)
            it.path.write_text(template())
            model = Editor(upstream=it.upstream, id="claude-opus-5")
            more = template().replace(ABOUT, "_Mine now_") if is_in_the_way else template()
            model.save = lambda: it.path.write_text(more + "- my own line\n")  # type: ignore[method-assign]
            it.model = model
            await it.turn(fork=[say(it.edit())])
            after = it.path.read_text()
            assert "- my own line" in after and (STATE in after) != is_in_the_way
            assert it.session.view.state.cursors[CURSOR].digest == digest_of(it.path.read_bytes())
            reasons = [one.reason.split(":")[0] for one in it.events(NotesFellBack)]
            assert reasons == (["edited_meanwhile"] if is_in_the_way else [])

    anyio.run(body)


def test_the_users_own_prompt(tmp_path: Path) -> None:
    """SM-1, SM-4: its variables are filled; an unknown one is named, nothing is asked, and code goes on."""
    config = tmp_path / "session-memory" / "config"
    config.mkdir(parents=True)
    (config / "prompt.md").write_text("MINE {{notesPath}} {{oversized}}|")

    async def body() -> None:
        async with desk(tmp_path) as it:
            it.path.parent.mkdir(parents=True)
            it.path.write_text(template() + "- much\n" * 2_000)
            await it.turn(fork=[say(it.edit())])
            asked = msgspec.json.decode(it.requests()[-1])["messages"][-1]["content"][-1]["text"]
            assert asked.startswith(f"MINE {it.path} Too long") and "Worklog: 3,500 tokens, allowed 2,000" in asked
            assert asked.endswith("Make all edits in one go, then stop.")
            (config / "prompt.md").write_text("{{transcript}}")
            before = len(it.requests())
            await it.turn()
            assert len(it.requests()) == before + 2
            assert "{{transcript}}" in it.events(NotesFellBack)[-1].reason

    anyio.run(body)


def test_notes_of_a_model_carry_a_compaction_and_are_offered_after_another(tmp_path: Path) -> None:
    """CMP-2, SM-10: compaction from them; behind a boundary made in another way they are offered on resume, once."""

    async def body() -> None:
        async with desk(tmp_path) as it:
            for number in range(8):
                await it.turn(fork=[say(it.edit(ABOUT, f"{ABOUT}\n\nstate {number}"))])
            outcome = await compact(it.session, trigger="manual")
            assert isinstance(outcome, CompactionSuccess) and outcome.boundary.strategy == "session_memory"
            said = it.session.view.items[0].message.blocks[0].value.text  # type: ignore[union-attr]
            assert "state 7" in said and str(it.path) in said
            await it.turn()  # the view is smaller than at the last update: growth is counted from here
            for number in range(8, 14):
                await it.turn(fork=[say(it.edit(ABOUT, f"{ABOUT}\n\nstate {number}"))])
            it.session.configure(settings_of(notes=False))
            serve(it.session, summarizer=())
            outcome = await compact(it.session, trigger="manual")
            assert isinstance(outcome, CompactionSuccess) and outcome.boundary.strategy == "ledger"
        parts = SessionOptions(settings=settings_of())
        for is_first in (True, False):
            session = await open_session(tmp_path, "s1", offers_notes=True, parts=parts)
            offered = [item.message for item in session.view.items if item.message.note == OFFERED]
            assert len(offered) == 1 and "state 13" in offered[0].blocks[0].value.text  # type: ignore[union-attr]
            assert (session.view.items[-1].message is offered[0]) or not is_first
            reply = await run_turn(session, "go on", ScriptedModel())
            assert reply.text == "ok"
            await session.close()
        session = await open_session(tmp_path, "s1", parts=parts, read_only=True, offers_notes=True)
        assert sum(item.message.note == OFFERED for item in session.view.items) == 1

    anyio.run(body)


def test_a_whole_history_needs_no_notes(tmp_path: Path) -> None:
    """SM-10: what they tell of is in the view."""

    async def body() -> None:
        async with desk(tmp_path) as it:
            await it.turn(fork=[say(it.edit())])
        session = await open_session(tmp_path, "s1", offers_notes=True)
        assert not any(item.message.note == OFFERED for item in session.view.items)
        await session.close()

    anyio.run(body)


def test_a_crash_before_the_cursor(tmp_path: Path) -> None:
    """SM-5: the file knows more than the id says, never less; the digest tells, and the next update agrees again."""

    async def body() -> None:
        async with desk(tmp_path) as it:
            await it.turn(fork=[say(it.edit())])
            covered = it.session.view.state.cursors[CURSOR]
            await it.turn()  # the model says ok, code fills; then a run whose records are lost
            cursor = it.session.view.state.cursors[CURSOR]
            it.upstream.script.append(say(it.edit(STATE, "Lost in the crash.")))
            serve(it.session, helpers=JobModels(notes=(it.model,)))
            it.notes._rests = 0
            records = await it.notes.keep(it.session.view.copy(), it.session.facts())
            assert records and "Lost in the crash." in it.path.read_text()
            assert covered.digest != cursor.digest != digest_of(it.path.read_bytes())
        session = await open_session(tmp_path, "s1")
        notes = next(one for one in session.services.keepers if one.name == CURSOR)
        after = session.view.state.cursors[CURSOR]
        assert isinstance(notes, SessionNotes) and after == cursor
        found = await notes.found()
        assert found.state == "written" and found.data is not None and digest_of(found.data) != after.digest
        await notes.keep(session.view.copy(), session.facts())
        assert notes.cursor is not None and notes.cursor.digest == digest_of(notes_path_of(tmp_path).read_bytes())
        assert "Lost in the crash." in notes_path_of(tmp_path).read_text()
        await session.close()

    anyio.run(body)


def notes_path_of(home: Path) -> Path:
    [directory] = (home / "projects").glob("*/s1")
    return notes_path(directory)
