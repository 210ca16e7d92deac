"""LIB-8: `append` and `prepare` start what `run` starts: notes, reading ahead, reminders; and nothing outlives it."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

import perdure.sync
from perdure import Agent, Message, Session
from perdure.compaction.from_notes import CURSOR
from perdure.context.policy import Facts
from perdure.context.view import ContextView
from perdure.engine.notes import SessionNotes
from perdure.engine.session import Services
from perdure.testing import ScriptedModel, say, tool_use
from perdure.transcript.records import Noted, Record

pytestmark = pytest.mark.unit

SETTINGS = {
    "window_tokens": 200_000,
    "instructions": True,
    "notes_models": ["offline"],
    "extractor_models": ["offline"],
}
LONG = "The ledger is in ledger.py, and 12 invoices wait. "
CALL = say("I look at the ledger.", tool_use("read", {"path": "ledger.py"}, id="toolu_1"))
ANSWERS = [CALL, "All 12 invoices are moved. " * 40, *(f"Customer {n} has no invoice left. " * 40 for n in range(8))]
TOOL = {"name": "read", "description": "Reads a file.", "input_schema": {"type": "object", "properties": {}}}
RESULT = {
    "role": "user",
    "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "def move(): ...\n" * 3_000}],
}
SAID: list[Any] = [
    f"Move the invoices, and never touch ledger.py by hand. {LONG * 900}",
    RESULT,
    *(f"Is customer {n} done? {LONG * 150}" for n in range(8)),
]


def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir(exist_ok=True)
    folder.joinpath("CLAUDE.md").write_text("Answer briefly.\n")
    return folder


async def _quiet(session: Session) -> None:
    """Wait until nothing runs in the background, so that two runs have the same done at the same places."""
    if session._keepers is not None:
        await session._keepers.drain(session)


async def by_run(session: Session, model: ScriptedModel) -> list[bytes]:
    for said in SAID:
        await session.run(said, model)
        await _quiet(session)
    return [request.body for request in model.requests]


async def by_hand(session: Session, model: ScriptedModel) -> list[bytes]:
    """The documented loop: the program asks the model itself."""
    requests = []
    for said in SAID:
        await session.append(said)
        request = await session.prepare(stream=True)
        requests.append(request.body)
        async for part in model.stream(request.request):
            reply = part
        answer = {"id": reply.response, "role": "assistant", "content": [json.loads(one.raw) for one in reply.blocks]}
        usage = {"input_tokens": reply.usage.input_tokens, "output_tokens": reply.usage.output_tokens}
        cache = {
            "cache_read_input_tokens": reply.usage.cache_read_input_tokens,
            "cache_creation_input_tokens": reply.usage.cache_creation_input_tokens,
        }
        await session.append(
            {**answer, "model": model.about.id, "usage": usage | cache, "stop_reason": reply.stop_reason}
        )
        await _quiet(session)
    return requests


def _notes_of(session: Session) -> Path:
    return Path(next(one.file.path for one in session.services.keepers if isinstance(one, SessionNotes)))


async def _kept(
    folder: Path, home: Path, how: Callable[[Session, ScriptedModel], Awaitable[list[bytes]]]
) -> dict[str, Any]:
    model = ScriptedModel(list(ANSWERS))
    async with Session.create(folder, home=home, id="s", settings=SETTINGS) as session:
        await session.set_prefix(model=model.about.id, system="You help.", tools=[TOOL])
        requests = await how(session, model)
        unread, compacted = session.view.unread_bytes, await session.compact()
        return {
            "requests": requests,
            "notes": re.sub(r"…\w+|\w*\d\w*", "#", _notes_of(session).read_text()),  # ids and times
            "cursors": sorted(session.view.state.cursors),
            "unread": unread,
            "strategy": compacted.strategy,
            "messages": session.messages(),
        }


def test_a_loop_of_ones_own_is_the_same_engine(tmp_path: Path) -> None:
    """LIB-8, finding L3: requests, notes, cursors, what is read ahead and the compaction are those of `run`."""
    folder = project(tmp_path)
    ours = anyio.run(_kept, folder, tmp_path / "a", by_hand)
    theirs = anyio.run(_kept, folder, tmp_path / "b", by_run)
    assert ours["requests"] == theirs["requests"] and b"Answer briefly." in ours["requests"][0]
    assert ours["strategy"] == theirs["strategy"] == "session_memory" and CURSOR in ours["cursors"]
    assert ours["unread"] == theirs["unread"] < 32 * 1024
    for name in ("notes", "cursors"):
        assert ours[name] == theirs[name]
    assert "never touch ledger.py" in ours["notes"]


def _answer(words: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": words}]}


async def _said_and_prepared(session: Session) -> None:
    await session.append(SAID[0])
    await session.prepare()
    await session.append(_answer("The invoices are moved."))


async def _all_at_once(session: Session) -> None:
    await session.append(SAID[0], _answer("The invoices are moved."), "Thanks")
    await session.prepare()


async def _followed(session: Session) -> None:
    history: list[Any] = [{"role": "user", "content": SAID[0]}]
    await session.follow(history)
    await session.shown()
    await session.follow([*history, _answer("The invoices are moved."), {"role": "user", "content": "Thanks"}])


@pytest.mark.parametrize("how", [_said_and_prepared, _all_at_once, _followed])
def test_notes_are_kept_however_an_answer_is_told(how: Callable[[Session], Awaitable[None]], tmp_path: Path) -> None:
    """Finding L3: by itself, along with what was said next, and in a history that is followed."""

    async def main() -> None:
        async with Session.create(tmp_path, home=tmp_path / "home", id="s", settings=SETTINGS) as session:
            await how(session)
            assert session.view.unread_bytes < 32 * 1024
            path = _notes_of(session)
        assert "never touch ledger.py" in path.read_text()
        async with Session.open("s", home=tmp_path / "home", settings=SETTINGS) as session:
            assert CURSOR in session.view.state.cursors

    anyio.run(main)


def test_notes_are_kept_without_a_loop_of_ones_own(tmp_path: Path) -> None:
    """Finding L3: with perdure.sync the same; closing waits for them."""
    with perdure.sync.Session.create(tmp_path, home=tmp_path / "home", id="s", settings=SETTINGS) as session:
        session.append(SAID[0])
        session.prepare()
        session.append(_answer("The invoices are moved."))
        path = _notes_of(session._inner)
    assert "never touch ledger.py" in path.read_text()


@dataclass
class Stuck:
    """A keeper that ends only when it is cancelled, and counts both."""

    name: str = "stuck"
    began: int = 0
    cancelled: int = 0

    def is_due(self, view: ContextView, facts: Facts) -> bool:
        return not self.began

    async def keep(self, view: ContextView, facts: Facts) -> Sequence[Record]:
        self.began += 1
        try:
            await (anyio.Event().wait() if self.began == 1 else anyio.lowlevel.checkpoint())
        except BaseException:
            self.cancelled += 1
            raise
        return (Noted(kind="kept", data={}),)


def _background_tasks() -> list[str]:
    return [one.get_name() for one in asyncio.all_tasks() if one.get_name().startswith("perdure-")]


def test_nothing_outlives_a_session_that_is_closed_while_it_is_cancelled() -> None:
    """Finding L3: whoever is cancelled while they close it leaves no work behind, in anyio's way and in asyncio's."""
    by_anyio, by_asyncio = Stuck(), Stuck()

    async def one(keeper: Stuck, opened: anyio.Event) -> None:
        async with Session.in_memory(services=Services(keepers=(keeper,))) as session:
            await session.append("Hello", _answer("Hi"))
            await anyio.wait_all_tasks_blocked()
            opened.set()
            await anyio.sleep_forever()

    async def main() -> None:
        opened = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(one, by_anyio, opened)
            await opened.wait()
            assert _background_tasks() == ["perdure-stuck"]
            group.cancel_scope.cancel()
        assert _background_tasks() == []
        opened = anyio.Event()
        task = asyncio.ensure_future(one(by_asyncio, opened))
        await opened.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # while it waits for what runs
        with pytest.raises(asyncio.CancelledError):
            await task
        assert _background_tasks() == []

    anyio.run(main)
    assert [(one.began, one.cancelled) for one in (by_anyio, by_asyncio)] == [(1, 1), (1, 1)]


def test_what_ended_with_its_event_loop_goes_on_in_the_next() -> None:
    """Finding L3: a program that has a loop for each call loses no background work, nor does any stay "running"."""
    keeper = Stuck()

    async def begin() -> Session:
        session = await Session.in_memory(services=Services(keepers=(keeper,)))
        await session.append("Hello", _answer("Hi"))
        await anyio.wait_all_tasks_blocked()
        return session

    session = asyncio.run(begin())
    assert (keeper.began, keeper.cancelled) == (1, 1)

    async def end() -> list[Message]:
        await session.append("Go on.")
        await session.close()
        return [one.record for one in (await session.ports.journal.load(whole=True)).records]  # type: ignore[misc]

    assert any(isinstance(one, Noted) and one.kind == "kept" for one in asyncio.run(end()))
    assert (keeper.began, keeper.cancelled) == (2, 1)


def test_an_agents_session_has_one_set_of_keepers(tmp_path: Path) -> None:
    """LIB-8: an agent's loop starts what is due; the session that it works in doesn't start it again."""
    begun: list[str] = []

    @dataclass
    class Once(Stuck):
        def is_due(self, view: ContextView, facts: Facts) -> bool:
            begun.append(view.items[-1].message.role)
            return False

    async def main() -> None:
        model = ScriptedModel(["Done."])
        given = Services(keepers=(Once(),))
        async with Agent.create(tmp_path, model=model, home=tmp_path / "home", services=given) as agent:
            await agent.run("Tidy up.")
            assert begun == ["assistant"] and agent.session._keepers is None

    anyio.run(main)


def test_what_a_hook_said_late_joins_the_next_request() -> None:
    """LIB-8: what an asynchronous hook adds goes into what `prepare` makes, as `run` has it."""

    async def main() -> None:
        async with Session.in_memory() as session:
            await session.append("Hello")
            session.hear_late(Message.of("user", "The build is red.", origin="reminder"))
            assert "The build is red." in str((await session.prepare()).data)
            assert session.taken_late() == ()

    anyio.run(main)


LEFT_OPEN = """
import asyncio, sys, tempfile
from perdure import Session
import perdure.sync

LONG, ANSWER = "words " * 60_000, {"role": "assistant", "content": "Yes. " * 3_000}

async def talk():
    session = await Session.create(".", home=tempfile.mkdtemp())
    await session.append(LONG)
    await session.prepare()
    await session.append(ANSWER)
    print("running", len([one for one in asyncio.all_tasks() if one.get_name().startswith("perdure-")]))
    return session

loop = asyncio.new_event_loop()
kept = loop.run_until_complete(talk())
loop.close()  # with work in it
asyncio.run(talk())
session = perdure.sync.Session.create(".", home=tempfile.mkdtemp())
session.append(LONG)
session.prepare()
session.append(ANSWER)
"""


def test_a_session_that_is_never_closed_warns_nobody_at_the_end(tmp_path: Path) -> None:
    """Finding L3: a program that ends while something runs in the background ends silently, with and without a loop."""
    command = [sys.executable, "-W", "error", "-c", LEFT_OPEN]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "running 1\nrunning 1\n"
