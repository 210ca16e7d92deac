"""LIB-5: the face without an event loop: scripts, threads, Ctrl-C, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from perdure.errors import ModelGaveUp, PerdureError, RecordRefused, SessionClosed, SessionNotFound, WrongLoop
from perdure.sync import Agent, Session, Tool, recall_tool
from perdure.testing import FakeServer, FakeUpstream, ScriptedModel, say, tool_use

pytestmark = pytest.mark.unit


def test_a_loop_with_tools_and_a_resume(tmp_path: Path) -> None:
    model = ScriptedModel([say(tool_use("recall", {"query": "port"}, id="t1")), "8080.", "Still 8080."])
    with Session.create(tmp_path, home=tmp_path / "home", id="mine") as session:
        session.set_prefix(model=model, system="Be brief.", tools=[recall_tool])
        reply = session.run("The port is 8080. Which port is it?")
        results = []
        for use in reply.tool_uses:
            text = recall_tool.run(session, use.input)
            assert "8080" in text
            results.append({"type": "tool_result", "tool_use_id": use.id, "content": text})
        assert session.run({"role": "user", "content": results}).text == "8080."
        said = session.messages()
    with Session.open("mine", home=tmp_path / "home") as session:
        assert session.messages() == said and session.id == "mine" and len(session.view.items) == 4
        assert session.run("And now?", model).text == "Still 8080."


def test_errors_are_those_of_the_face(tmp_path: Path) -> None:
    with Session.in_memory(id="mine") as session:
        with pytest.raises(RecordRefused, match="no content to say"):
            session.append({"role": "user"})
        with pytest.raises(ModelGaveUp):
            session.run("Hello", ScriptedModel(upstream=ScriptedModel().upstream, script=[_denied()]))
        assert session.messages()
    with pytest.raises(SessionClosed, match=r"Session.append: it is closed"):
        session.append("x")
    session.close()
    with pytest.raises(SessionNotFound):
        Session.open("nobody", home=tmp_path / "home")
    with pytest.raises(PerdureError, match="no setting"):
        Session.in_memory(settings={"no_such": 1})
    assert not loops()


def _denied() -> object:
    from perdure.testing import UpstreamError

    return UpstreamError(401, "authentication_error", "no such key")


def loops() -> list[str]:
    """The threads that run a loop for the face."""
    return [thread.name for thread in threading.enumerate() if "portal" in thread.name]


def test_closing_leaves_no_thread_behind(tmp_path: Path) -> None:
    """LIB-5: one loop for all that is open, and none afterwards; an agent's session is closed with it."""
    before = set(threading.enumerate())
    with Session.in_memory() as one, Session.in_memory() as two:
        assert len(loops()) == 1
        one.append("x")
        two.append("y")
    assert not loops()
    with Agent.create(tmp_path, model=ScriptedModel(["Done."]), in_memory=True) as agent:
        assert agent.run("Go.").text == "Done." and agent.session.messages()
        agent.interrupt()
        inner = agent.session
    with pytest.raises(SessionClosed):
        inner.append("x")
    inner.close()
    assert not loops()
    with Session.in_memory() as again:
        again.append("z")
    left = {thread for thread in threading.enumerate() if thread not in before}
    for thread in left:  # what the loop's threads leave for others to use ends by itself
        thread.join(5)
    assert not [thread for thread in left if thread.is_alive()]


def test_threads_share_a_session() -> None:
    """LIB-5: calls for one object wait for each other, and nothing is lost."""
    with Session.in_memory() as session, ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: session.append(f"from thread {number}"), range(40)))
        said = " ".join(block["text"] for message in session.messages() for block in message["content"])
        assert {f"from thread {number}" for number in range(40)} <= {
            f"from thread {word}" for word in said.replace("from thread ", "").split()
        }


def test_inside_a_running_loop_it_says_what_to_use() -> None:
    """LIB-5: it would block the loop."""

    async def body() -> None:
        words = r"Session.in_memory would block the event loop .* use it from perdure, .* with asyncio.to_thread"
        with pytest.raises(WrongLoop, match=words):
            Session.in_memory()
        session = await anyio.to_thread.run_sync(Session.in_memory)
        await anyio.to_thread.run_sync(session.append, "from a thread")
        await anyio.to_thread.run_sync(session.close)

    anyio.run(body)
    assert not loops()


def test_a_callback_reads_the_session_and_is_told_what_it_cannot_do() -> None:
    """LIB-5: what would wait for the call that it belongs to says so; it doesn't stand still."""
    told, seen = list[str](), list[int]()
    with Session.in_memory() as session, Session.in_memory() as other:

        def heard(delta: object) -> None:
            seen.append(len(session.messages()))
            for call in (lambda: session.append("x"), lambda: other.append("x"), session.close, other.close):
                with pytest.raises(WrongLoop) as error:
                    call()
                told.append(str(error.value))

        session.run("Hello", ScriptedModel(["Hi."]), on_delta=heard)
        assert set(seen) == {1} and len(session.messages()) == 2 and not other.messages()
    assert "Session.append was called by a tool or a callback of a call that it would wait for: call it when" in told[0]
    assert len(set(told)) == 2 and len(told) == 4 * len(seen)


def test_a_tool_reads_the_session_of_its_agent_and_uses_others(tmp_path: Path) -> None:
    """LIB-5: a tool runs while its agent's call is under way: it may look, and doesn't wait for that call."""
    told = list[str]()

    def look(given: dict[str, object]) -> str:
        for call in (lambda: agent.session.append("x"), lambda: agent.run("x"), agent.close):
            with pytest.raises(WrongLoop) as error:
                call()
            told.append(str(error.value))
        agent.allow("Bash(ls:*)")
        with Session.in_memory() as other:
            other.append("from a tool")
            assert len(other.messages()) == 1
        return f"{len(agent.session.messages())} messages, {len(agent.session.open_calls())} open"

    tool = Tool.of(look, name="look", description="Looks.", input_schema={"type": "object", "properties": {}})
    model = ScriptedModel([say(tool_use("look", {}, id="t1")), "Done."])
    with Agent.create(tmp_path, model=model, in_memory=True, tools=[tool]) as agent:
        assert agent.run("Look.").text == "Done."
        result = agent.session.messages()[2]["content"][0]
        assert result["content"] == "3 messages, 1 open" and [one.split(" ")[0] for one in told] == [
            *("Session.append", "Agent.run", "Agent.close")
        ]


def test_a_callback_interrupts_its_agent(tmp_path: Path) -> None:
    """LIB-5: from within the loop as from any other thread."""
    model = ScriptedModel([say(tool_use("TodoWrite", {"todos": []}, id="t1")), "Never said."])

    def heard(progress: object) -> None:
        if type(progress).__name__ == "BlockDone":
            agent.interrupt()

    with Agent.create(tmp_path, model=model, home=tmp_path / "home", on_progress=heard) as agent:
        assert agent.run("Go.").stopped == "interrupted"


FORKED = """
    import os, sys
    from perdure.errors import WrongLoop
    from perdure.sync import Session
    from perdure.testing import ScriptedModel

    with Session.create(".", home="home", id="mine") as mine:
        mine.append("Before.")
        child = os.fork()
        if not child:
            try:
                mine.append("In the child.")
            except WrongLoop as e:
                print("child:", e, flush=True)
            mine.close()
            with Session.create(".", home="home", id="its-own") as session:
                print("child:", session.run("Hello", ScriptedModel(["Hi."])).text, flush=True)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        mine.append("After.")
        print("parent:", len(mine.messages()[0]["content"]), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_has_a_loop_of_its_own(tmp_path: Path) -> None:
    """LIB-5: as a server does that loads a program and then forks; a session stays with the process that opened it."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(FORKED)],
        cwd=tmp_path, capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    refused = "Session.append: it was opened before this process was forked: open one in this process"
    assert done.stdout.splitlines() == [f"child: {refused}", "child: Hi.", "parent: 2"], done.stderr
    assert done.returncode == 0


def test_the_fake_server_serves_programs_without_a_loop() -> None:
    """LIB-5, LIB-3: with the SDK that such programs use, and nothing is left behind."""
    openai = pytest.importorskip("openai")
    with FakeServer(FakeUpstream(script=["Rain."])) as server, Session.in_memory() as session:
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="any") as client:
            session.set_prefix(model="gpt-6")
            session.append("What is the weather in Oslo?")
            session.append(client.chat.completions.create(**session.prepare("openai").data))
        assert session.messages("openai")[-1]["content"] == "Rain."
    assert not loops()
    with pytest.raises(RuntimeError, match="it isn't served yet: write `async with"):
        print(FakeServer().url)


SLOW = """
    import threading, time
    from perdure.sync import Session
    from perdure.testing import ScriptedModel

    class Slow(ScriptedModel):
        async def stream(self, request):
            import anyio
            async for delta in super().stream(request):
                yield delta
                print("streaming", flush=True)
                await anyio.sleep(30 if type(delta).__name__ == "BlockDone" else 0)

    session = Session.create(".", home="home", id="mine")
    try:
        session.run("Count.", Slow(["one"]))
    except KeyboardInterrupt:
        print("interrupted", [message["role"] for message in session.messages()], flush=True)
        {then}
"""


@pytest.mark.parametrize(
    ("then", "lines"),
    [
        (
            'session.close(); rest = threading.enumerate()[1:]; [one.join(5) for one in rest]; print("closed")',
            ["closed"],
        ),
        ("pass", []),  # never closed: the program ends all the same
    ],
)
def test_ctrl_c_ends_the_call_and_keeps_what_was_said(then: str, lines: list[str], tmp_path: Path) -> None:
    """LIB-5, TURN-11: the whole blocks of the answer stay, the lock is let go, and the program ends by itself."""
    program = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SLOW).replace("{then}", then)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    seen = 0
    for line in program.stdout:
        seen += line.startswith("streaming")
        if seen == 3:  # started, its text, and the block that is whole
            break
    time.sleep(0.2)
    program.send_signal(signal.SIGINT)
    out, errors = program.communicate(timeout=20)
    assert out.splitlines() == ["interrupted ['user', 'assistant']", *lines], errors
    assert program.returncode == 0 and not errors
    with Session.open("mine", home=tmp_path / "home") as session:
        assert [message["role"] for message in session.messages()] == ["user", "assistant"]
