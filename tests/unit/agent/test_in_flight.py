"""The registry of background work: a fold of the journal, in every checkpoint (SES-3, CMP-14)."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace
from tests.agents import bench, texts

from perdure import Message
from perdure.adapters.machine.jobs import TaskJobs
from perdure.agent.background import BackgroundTasks
from perdure.agent.calls import LOST_CALL
from perdure.context.state import IN_FLIGHT_KEPT, SessionState, from_checkpoint, to_checkpoint
from perdure.context.view import project
from perdure.transcript.records import InFlight
from perdure.wiring import memory_session

pytestmark = pytest.mark.unit


def test_the_newest_word_counts_and_travels_in_the_checkpoint() -> None:
    first = InFlight(id="command-1", kind="command", what="make")
    ended = replace(first, state="failed", code=2)
    view = project([first, InFlight(id="agent-1", kind="agent"), ended])
    assert list(view.state.in_flight.values()) == [ended, InFlight(id="agent-1", kind="agent")]
    assert from_checkpoint(to_checkpoint(view.state)) == view.state
    assert project([ended], onto=project([first])).state == project([first, ended]).state


def test_what_ended_and_was_told_is_forgotten_in_time_what_runs_never() -> None:
    state = SessionState().with_in_flight(InFlight(id="runs", kind="command"))
    state = state.with_in_flight(InFlight(id="untold", kind="command", state="failed"))
    for number in range(IN_FLIGHT_KEPT + 5):
        state = state.with_in_flight(InFlight(id=f"c{number}", kind="command", state="completed", is_told=True))
    assert len(state.in_flight) == IN_FLIGHT_KEPT + 2 and {"runs", "untold", "c24"} <= set(state.in_flight)
    assert "c0" not in state.in_flight


def test_a_sub_agent_that_went_down_with_its_process_is_lost_and_said_so(tmp_path: Path) -> None:
    async def body() -> None:
        home = tmp_path / "home"
        one = await bench(tmp_path / "p", home=home)
        await one.agent.say("hello")
        await one.agent.session.record(InFlight(id="agent-gone", kind="agent", what="count", where="/j"))
        await one.agent.session.close()  # as a crash would: nobody says that it ended
        two = await bench(tmp_path / "p", home=home, resume=one.agent.session.id, model=one.model)
        await two.agent.say("and?")
        said = texts(item.message for item in two.agent.session.view.items)
        assert "<task-id>agent-gone</task-id>\n<status>lost</status>" in said and "Task and resume" in said
        assert two.agent.session.view.state.in_flight["agent-gone"].is_told
        await two.agent.close()

    anyio.run(body)


def test_calls_left_open_by_a_crash_are_answered(tmp_path: Path) -> None:
    async def body() -> None:
        home = tmp_path / "home"
        one = await bench(tmp_path / "p", home=home)
        await one.agent.say("hello")
        use = {"type": "tool_use", "id": "t-open", "name": "Bash", "input": {"command": "ls"}}
        await one.agent.session.append(Message.of("user", "go"), Message.of("assistant", [use]))
        await one.agent.session.close()
        two = await bench(tmp_path / "p", home=home, resume=one.agent.session.id, model=one.model)
        await two.agent.say("and?")
        assert two.results()[-1].text() == LOST_CALL and not one.model.upstream.statistics.violations
        await two.agent.close()

    anyio.run(body)


class Outputs:
    """A shell that only has outputs."""

    def __init__(self) -> None:
        self.data = b""

    async def read(self, output: str, *, offset: int, limit_bytes: int) -> bytes:
        return self.data[offset : offset + limit_bytes]


def test_a_look_shows_each_byte_once_whatever_it_is(tmp_path: Path) -> None:
    """SES-3: where the next look begins is counted in bytes; a character that is half there waits for its rest."""

    async def body() -> None:
        session, shell = await memory_session(), Outputs()
        background = BackgroundTasks(session, shell, TaskJobs())  # type: ignore[arg-type]
        await session.record(InFlight(id="c", kind="command", what="make", where="/c.output"))
        looks = []
        for more in (b"\xff" * 10, b"ten bytes", "é".encode()[:1], "é".encode()[1:] + b"\xf0\x9f", b"\x98\x80.\xe2"):
            shell.data += more
            looks.append((await background.new_output("c")).partition("<output>\n")[2].partition("\n</output>")[0])
        assert looks == ["\ufffd" * 10, "ten bytes", "(no new output)", "é", "😀."]
        await session.record(InFlight(id="c", kind="command", what="make", where="/c.output", state="completed"))
        assert "\ufffd" in await background.new_output("c")

    anyio.run(body)


def test_an_end_is_told_and_known_to_be_told_in_one_transaction(tmp_path: Path) -> None:
    """SES-3: a crash in between would tell it twice."""

    async def body() -> None:
        session = await memory_session()
        background = BackgroundTasks(session, Outputs(), TaskJobs())  # type: ignore[arg-type]
        for number in range(2):
            await session.record(InFlight(id=f"c{number}", kind="command", what="make", state="failed"))
        await background.announce_ended()
        loaded = await session.ports.journal.load(whole=True)
        last = [p.record for p in loaded.records if p.seq == loaded.records[-1].seq]
        assert [type(record) for record in last] == [Message, Message, InFlight, InFlight]
        assert all(one.is_told for one in session.view.state.in_flight.values()) and not background.news

    anyio.run(body)
