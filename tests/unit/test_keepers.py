"""TURN-12: background keepers never delay a turn, never fail one, and one that runs is not started twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from perdure import Message
from perdure.adapters.machine.jobs import TaskJobs
from perdure.adapters.sinks import ListSink
from perdure.context.policy import Facts
from perdure.context.view import ContextView
from perdure.engine.ask import JobModels, background_models
from perdure.engine.background import Keepers, KeeperState, step
from perdure.engine.session import LiveSession
from perdure.engine.turn import run_turn
from perdure.errors import JournalError
from perdure.events import KeeperDeferred, KeeperDone, KeeperFailed, KeeperStarted
from perdure.testing import ScriptedModel
from perdure.transcript.messages import MessageId
from perdure.transcript.records import Cursor, Noted, Record
from perdure.wiring import SessionOptions, memory_session

pytestmark = pytest.mark.unit

IDLE, RUNNING = KeeperState(), KeeperState(is_running=True)
WANTED, CLOSED = KeeperState(is_running=True, is_wanted=True), KeeperState(is_closed=True)


@pytest.mark.parametrize(
    ("state", "event", "after", "action"),
    [
        (IDLE, "asked", RUNNING, "start"),
        (RUNNING, "asked", WANTED, "wait"),
        (WANTED, "asked", WANTED, "wait"),
        (RUNNING, "ended", IDLE, "nothing"),
        (WANTED, "ended", RUNNING, "start"),
        (WANTED, "closed", KeeperState(is_running=True, is_closed=True), "nothing"),
        (KeeperState(is_running=True, is_closed=True), "ended", CLOSED, "nothing"),
        (CLOSED, "asked", CLOSED, "nothing"),
    ],
)
def test_the_machine(state: KeeperState, event: Any, after: KeeperState, action: str) -> None:
    assert step(state, event) == (after, action)


@dataclass
class Slow:
    """Runs until it is let go; remembers how many messages each run saw."""

    name: str = "slow"
    gate: anyio.Event = field(default_factory=anyio.Event)
    seen: list[int] = field(default_factory=list)

    def is_due(self, view: ContextView, facts: Facts) -> bool:
        return True

    async def keep(self, view: ContextView, facts: Facts) -> Sequence[Record]:
        self.seen.append(len(view.items))
        await self.gate.wait()
        return (Cursor(name=self.name, message=view.items[-1].message.id),)


@dataclass
class Broken:
    name: str = "broken"

    def is_due(self, view: ContextView, facts: Facts) -> bool:
        if len(view.items) > 2:
            raise RuntimeError("due")
        return True

    async def keep(self, view: ContextView, facts: Facts) -> Sequence[Record]:
        raise RuntimeError("keep")


def test_requests_fold_into_one_more_run() -> None:
    async def body() -> None:
        sink, slow = ListSink(), Slow()
        session = await memory_session(parts=SessionOptions(sink=sink))
        keepers = Keepers(TaskJobs(), [slow])
        model = ScriptedModel()
        for number in range(3):  # none of them waits for the keeper
            await run_turn(session, f"message {number}", model, keepers)
            await anyio.lowlevel.checkpoint()
        await anyio.sleep(0.01)
        assert slow.seen == [2]
        slow.gate.set()
        assert await keepers.drain(session, 5)
        assert slow.seen == [2, 6], "what was asked meanwhile, once, with what is there now"
        kinds = [type(e) for e in sink.events if isinstance(e, KeeperStarted | KeeperDeferred | KeeperDone)]
        assert kinds == [KeeperStarted, KeeperDeferred, KeeperDeferred, KeeperDone, KeeperStarted, KeeperDone]
        assert session.view.state.cursors["slow"].message == session.view.items[-1].message.id

    anyio.run(body)


def test_records_are_committed_by_the_owner_before_the_next_turn() -> None:
    async def body() -> None:
        slow = Slow()
        slow.gate.set()
        session = await memory_session()
        keepers = Keepers(TaskJobs(), [slow])
        await run_turn(session, "one", ScriptedModel(), keepers)
        await anyio.sleep(0.01)
        assert "slow" not in session.view.state.cursors
        await run_turn(session, "two", ScriptedModel(), keepers)
        assert "slow" in session.view.state.cursors
        await keepers.close(session)

    anyio.run(body)


def test_a_keeper_that_fails_fails_alone() -> None:
    async def body() -> None:
        sink, slow = ListSink(), Slow()
        slow.gate.set()
        session = await memory_session(parts=SessionOptions(sink=sink))
        keepers = Keepers(TaskJobs(), [Broken(), slow])
        model = ScriptedModel()
        for words in ("one", "two"):
            reply = await run_turn(session, words, model, keepers)
            assert reply.text == "ok"
        assert await keepers.drain(session, 5)
        failures = [e for e in sink.events if isinstance(e, KeeperFailed)]
        assert [f.reason for f in failures] == ["RuntimeError", "RuntimeError"]
        assert all(f.keeper == "broken" for f in failures) and len(slow.seen) == 2

    anyio.run(body)


def test_closing_ends_what_runs_and_starts_nothing_more() -> None:
    async def body() -> None:
        slow = Slow()
        session = await memory_session()
        keepers = Keepers(TaskJobs(), [slow])
        await run_turn(session, "one", ScriptedModel(), keepers)
        await anyio.sleep(0.01)
        with anyio.fail_after(5):
            await keepers.close(session, seconds=0.01)
        keepers.after_reply(session)
        await anyio.sleep(0.01)
        assert slow.seen == [2] and "slow" not in session.view.state.cursors

    anyio.run(body)


def test_a_keeper_sees_its_own_copy() -> None:
    async def body() -> None:
        @dataclass
        class Rude:
            name: str = "rude"

            def is_due(self, view: ContextView, facts: Facts) -> bool:
                return True

            async def keep(self, view: ContextView, facts: Facts) -> Sequence[Record]:
                view.items.clear()
                return ()

        session = await memory_session()
        keepers = Keepers(TaskJobs(), [Rude()])
        await run_turn(session, Message.of("user", "one", id=MessageId("x")), ScriptedModel(), keepers)
        await keepers.drain(session)
        assert len(session.view.items) == 2

    anyio.run(body)


def test_work_that_raises_is_logged_and_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        jobs = TaskJobs()

        async def work() -> None:
            raise RuntimeError("nobody is there to see")

        jobs.start("loud", work)
        assert await jobs.drain(5)
        await jobs.close()

    anyio.run(body)
    assert "background work failed: loud" in caplog.text


@dataclass
class Asking:
    """Notes whose models it works with."""

    session: Any
    name: str = "asking"
    found: list[Any] = field(default_factory=list)

    def is_due(self, view: ContextView, facts: Facts) -> bool:
        return True

    async def keep(self, view: ContextView, facts: Facts) -> Sequence[Record]:
        await anyio.lowlevel.checkpoint()
        self.found.append(background_models(self.session).helpers)
        return ()


def test_a_keeper_works_with_the_models_of_the_turn_that_started_it() -> None:
    """TURN-12: also when it runs after the turn is over; the next turn has its own."""

    async def body() -> None:
        session, model, other = await memory_session(), ScriptedModel(), ScriptedModel()
        asking = Asking(session)
        keepers = Keepers(TaskJobs(), [asking])
        for helpers in (JobModels(notes=(other,)), None):
            await run_turn(session, "hi", model, keepers, helpers=helpers)
            await keepers.drain(session)
        assert [one.notes for one in asking.found] == [(other,), (model,)]
        await keepers.close(session)

    anyio.run(body)


@dataclass
class Giving:
    """Gives a record at each run."""

    record: Record
    name: str = "giving"

    def is_due(self, view: ContextView, facts: Facts) -> bool:
        return True

    async def keep(self, view: ContextView, facts: Facts) -> Sequence[Record]:
        return (self.record,)


def test_what_keepers_gave_outlives_a_disk_that_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """TURN-12: it waits for the next time, and the turn goes on."""

    async def body() -> None:
        session, model = await memory_session(), ScriptedModel()
        keepers = Keepers(TaskJobs(), [Giving(Noted(kind="given", data={}))])
        await run_turn(session, "hi", model, keepers)
        record = LiveSession.record

        async def full(self: LiveSession, *records: Record) -> None:
            raise JournalError("the disk is full")

        monkeypatch.setattr(LiveSession, "record", full)
        assert await keepers.drain(session)
        monkeypatch.setattr(LiveSession, "record", record)
        await run_turn(session, "and on", model, keepers)
        loaded = await session.ports.journal.load(whole=True)
        assert [p.record.kind for p in loaded.records if isinstance(p.record, Noted)] == ["given"]
        await keepers.close(session)

    anyio.run(body)


def test_one_record_that_is_refused_takes_no_other_along() -> None:
    """TURN-12: and fails no turn."""

    async def body() -> None:
        sink = ListSink()
        session, model = await memory_session(parts=SessionOptions(sink=sink)), ScriptedModel()
        bad = Noted(kind="bad", data={"x": object()})
        keepers = Keepers(TaskJobs(), [Giving(bad, "a"), Giving(Noted(kind="good", data={}), "b")])
        await run_turn(session, "hi", model, keepers)
        assert await keepers.drain(session)
        loaded = await session.ports.journal.load(whole=True)
        assert [p.record.kind for p in loaded.records if isinstance(p.record, Noted)] == ["good"]
        assert [e.keeper for e in sink.events if isinstance(e, KeeperFailed)] == ["collect"]
        await keepers.close(session)

    anyio.run(body)


def test_a_full_disk_loses_no_record_that_stands_beside_a_refused_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """TURN-12: the disk fails just as each is recorded by itself; the good one waits for the next time."""

    async def body() -> None:
        session, model = await memory_session(), ScriptedModel()
        bad, good = Noted(kind="bad", data={"x": object()}), Noted(kind="good", data={})
        keepers = Keepers(TaskJobs(), [Giving(good, "a"), Giving(bad, "b")])
        await run_turn(session, "hi", model, keepers)
        record = LiveSession.record

        async def full_for_one(self: LiveSession, *records: Record) -> None:
            if len(records) == 1:
                raise JournalError("the disk is full")
            await record(self, *records)

        monkeypatch.setattr(LiveSession, "record", full_for_one)
        assert await keepers.drain(session)
        monkeypatch.setattr(LiveSession, "record", record)
        assert await keepers.drain(session)
        loaded = await session.ports.journal.load(whole=True)
        assert [p.record.kind for p in loaded.records if isinstance(p.record, Noted)] == ["good"]
        await keepers.close(session)

    anyio.run(body)
