"""The agent, whole: long work in a small window, interruptions, background work, sub-agents (LIB-1, SES-3)."""

# ruff: noqa: ASYNC240 - tests look at small files while nothing else runs

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agents import LONG_SLEEP, Bench, bench, calls, is_running, texts, until

from perdure.adapters.providers.anthropic import AnthropicModel
from perdure.agent.calls import INTERRUPTED_CALL, NOT_RUN
from perdure.agent.permissions import PermissionRule, PermissionRules
from perdure.agent.progress import Allow, BackgroundEnded, Deny, SubagentProgress, ToolEnded, ToolStarted
from perdure.agent.tools.talk import TODO_WRITE
from perdure.agent.tools.tool import Tool, ToolInput, ToolInvocation, ToolOutcome
from perdure.context.replies import TextDelta
from perdure.engine.compact import CompactionSuccess, compact
from perdure.errors import ModelGaveUp, PerdureError
from perdure.events import CompactionDone, ObserverFailed, PermissionDecided, ToolCalled
from perdure.testing import FakeServer, FakeUpstream, ModelRules, ScriptedModel, overloaded, say, tool_use
from perdure.transcript.messages import MessageId
from perdure.transcript.records import InFlight

pytestmark = pytest.mark.e2e


# --- long work -------------------------------------------------------------------------------------------------------


def long_script(rounds: int) -> list[Any]:
    """Rounds of writing, reading, editing and running, with results that fill a small window."""
    script: list[Any] = [calls(("TodoWrite", {"todos": [{"content": "all files", "status": "in_progress"}]}))]
    for n in range(rounds):
        name, filler = f"src/f{n}.py", f"# {n} {'words of no use ' * 60}\n" * 12
        script += [
            calls(("Write", {"file_path": name, "content": f"value = {n}\n{filler}"})),
            calls(("Read", {"file_path": name}), ("Glob", {"pattern": "src/*.py"}), ("Grep", {"pattern": "value"})),
            calls(("Edit", {"file_path": name, "old_string": f"value = {n}\n", "new_string": f"value = {n + 100}\n"})),
            calls(("Bash", {"command": f"head -1 {name} >> log.txt; seq 1 900"})),
        ]
    script += [calls(("TodoWrite", {"todos": [{"content": "all files", "status": "completed"}]})), "all done"]
    return script


@pytest.mark.nightly
def test_long_work_in_a_small_window_ends_with_the_expected_tree(tmp_path: Path) -> None:
    """LIB-1: more than thirty calls, several compactions, every request valid, the journal folds to the same view."""

    async def body() -> None:
        model = ScriptedModel(long_script(12), window_tokens=24_000)
        home, folder = tmp_path / "home", tmp_path / "p"
        one = await bench(folder, home=home, model=model)
        said = await one.agent.say("Write twelve files with numbers, please.")
        assert said.stopped == "done" and said.text == "all done" and said.calls == 74
        assert len(one.events(CompactionDone)) >= 2 and not model.upstream.statistics.violations
        assert {e.outcome for e in one.events(ToolCalled)} == {"ok"}
        for n in range(12):
            assert (folder / f"src/f{n}.py").read_text().startswith(f"value = {n + 100}\n#")
        assert (folder / "log.txt").read_text() == "".join(f"value = {n + 100}\n" for n in range(12))
        assert sorted(p.name for p in folder.iterdir()) == ["log.txt", "src"]
        shown = [item.message.id for item in one.agent.session.view.items]
        name = one.agent.session.id
        await one.agent.close()
        two = await bench(folder, home=home, resume=name, model=model)
        assert [item.message.id for item in two.agent.session.view.items] == shown
        assert (await two.agent.say("thanks")).text == "ok"
        await two.agent.close()

    anyio.run(body)


def test_it_works_over_the_wire_with_the_official_sdk(tmp_path: Path) -> None:
    async def body() -> None:
        upstream = FakeUpstream(rules=ModelRules(window_tokens=200_000))
        upstream.script.extend(
            [
                calls(("Write", {"file_path": "a.txt", "content": "hello\n"})),
                calls(("Bash", {"command": "cat a.txt"})),
                "x",
            ]
        )
        async with FakeServer(upstream) as server:
            model = AnthropicModel("claude-sonnet-4-5", key="k", base_url=server.url)
            one = await bench(tmp_path / "p", model=model)
            said = await one.agent.say("write hello")
            assert said.stopped == "done" and said.text == "x"
            assert one.results()[-1].text() == "hello" and not upstream.statistics.violations
            assert any(isinstance(progress, TextDelta) for progress in one.seen)
            await one.agent.close()
            await model.close()

    anyio.run(body)


def test_two_agents_at_once_don_t_meet(tmp_path: Path) -> None:
    async def body() -> None:
        home = tmp_path / "home"

        def script(word: str) -> list[Any]:
            return [
                calls(("Bash", {"command": "mkdir -p d && cd d"})),
                *(calls(("Bash", {"command": f"echo {word}{n} >> out; sleep 0.02"})) for n in range(6)),
                calls(("Read", {"file_path": "d/out"}), ("Bash", {"command": "pwd"})),
                word,
            ]

        one = await bench(tmp_path / "one", script("a"), home=home)
        two = await bench(tmp_path / "two", script("b"), home=home)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.agent.say, "go")
            tasks.start_soon(two.agent.say, "go")
        for some, word in ((one, "a"), (two, "b")):
            assert (some.folder / "d/out").read_text() == "".join(f"{word}{n}\n" for n in range(6))
            assert some.results()[-1].text() == os.path.realpath(some.folder / "d")
            await some.agent.close()

    anyio.run(body)


def test_the_loop_is_bounded_and_goes_on(tmp_path: Path) -> None:
    async def body() -> None:
        script = [calls(("Bash", {"command": "echo a"}))] * 5 + ["done"]
        one = await bench(tmp_path, script, settings={"agent_turns": 3})
        said = await one.agent.say("go")
        assert (said.stopped, said.turns, said.calls) == ("turns", 3, 3)
        assert (await one.agent.say(None)).stopped == "done"
        with pytest.raises(PerdureError, match="at work"):
            async with anyio.create_task_group() as tasks:
                one.model.upstream.script.append(calls(("Bash", {"command": "sleep 0.3"})))
                tasks.start_soon(one.agent.say, "slow")
                await anyio.sleep(0.1)
                try:
                    await one.agent.say("at the same time")
                except PerdureError as e:
                    tasks.cancel_scope.cancel()
                    error = e
            raise error
        await one.agent.close()

    anyio.run(body)


def test_a_model_that_gives_up_leaves_a_session_that_goes_on(tmp_path: Path) -> None:
    async def body() -> None:
        script: list[Any] = [calls(("Bash", {"command": "echo a"})), overloaded(), "fine"]
        one = await bench(tmp_path, script, settings={"retry_attempts": 0})
        with pytest.raises(ModelGaveUp):
            await one.agent.say("go")
        said = await one.agent.say(None)
        assert said.text == "fine" and one.results()[-1].text() == "a"
        await one.agent.close()

    anyio.run(body)


# --- order and interruption ------------------------------------------------------------------------------------------


class MarkInput(ToolInput, frozen=True):
    mark: str
    seconds: float = 0.0


def marking(name: str, heard: list[str], *, is_parallel: bool) -> Tool[MarkInput]:
    async def marked(desk: Any, use: ToolInvocation, given: MarkInput) -> ToolOutcome:
        heard.append(f"{given.mark} begins")
        await anyio.sleep(given.seconds)
        heard.append(f"{given.mark} ends")
        return ToolOutcome(given.mark)

    return Tool(name, MarkInput, marked, is_parallel=is_parallel, description="For tests: remembers when it ran.")


async def marked_bench(folder: Path, heard: list[str], script: list[Any], **more: Any) -> Bench:
    one = await bench(folder, script, **more)
    for tool in (marking("Look", heard, is_parallel=True), marking("Change", heard, is_parallel=False)):
        one.agent._caller.tools = {**one.agent._caller.tools, tool.name: tool}
    return one


def test_what_looks_runs_at_once_what_changes_in_order_results_in_the_order_of_calls(tmp_path: Path) -> None:
    async def body() -> None:
        heard: list[str] = []
        script = [
            calls(
                ("Look", {"mark": "a", "seconds": 0.2}),
                ("Look", {"mark": "b", "seconds": 0.05}),
                ("Change", {"mark": "c", "seconds": 0.05}),
                ("Change", {"mark": "d"}),
                ("Look", {"mark": "e"}),
            ),
            "done",
        ]
        one = await marked_bench(tmp_path, heard, script)
        await one.agent.say("go")
        assert heard[:4] == ["a begins", "b begins", "b ends", "a ends"]
        assert heard[4:] == ["c begins", "c ends", "d begins", "d ends", "e begins", "e ends"]
        assert [result.text() for result in one.results()] == list("abcde")
        ended = [progress.text for progress in one.seen if isinstance(progress, ToolEnded)]
        assert ended == list("bacde")
        await one.agent.close()

    anyio.run(body)


def test_an_interruption_among_parallel_tools_leaves_a_valid_session_also_after_a_resume(tmp_path: Path) -> None:
    """TURN-9, TURN-11: every call is answered, what was done until then is kept."""

    async def body() -> None:
        heard: list[str] = []
        script = [
            say(
                "let me",
                tool_use("Look", {"mark": "quick"}),
                tool_use("Look", {"mark": "slow", "seconds": 60}),
                tool_use("Bash", {"command": "touch never"}),
            ),
            "going on",
        ]
        one = await marked_bench(tmp_path / "p", heard, script, home=tmp_path / "home")
        ended: list[Any] = []

        async def work() -> None:
            ended.append(await one.agent.say("go"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            await until(lambda: "quick ends" in heard)
            one.agent.interrupt()
        assert ended[0].stopped == "interrupted"
        assert [result.text() for result in one.results()] == ["quick", INTERRUPTED_CALL, NOT_RUN]
        assert not one.agent.session.view.open_calls and not (one.folder / "never").exists()
        last = one.agent.session.view.items[-1].message
        assert last.blocks[0].value.text == "[Request interrupted by user]"  # type: ignore[union-attr]
        name = one.agent.session.id
        await one.agent.close()
        two = await bench(tmp_path / "p", home=tmp_path / "home", resume=name, model=one.model)
        assert (await two.agent.say("go on")).text == "going on"
        assert not one.model.upstream.statistics.violations
        await two.agent.close()

    anyio.run(body)


def test_an_interruption_keeps_the_output_of_a_command_and_ends_it(tmp_path: Path) -> None:
    async def body() -> None:
        one = await bench(tmp_path, [calls(("Bash", {"command": f"echo half; touch begun; {LONG_SLEEP}"})), "ok"])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.agent.say, "go")
            await until((tmp_path / "begun").exists)
            tasks.cancel_scope.cancel()  # from outside, as Ctrl-C does
        assert one.results()[-1].text() == f"{INTERRUPTED_CALL}\nIts output until then:\nhalf"
        assert not is_running(LONG_SLEEP)
        assert (await one.agent.say("go on")).stopped == "done"
        await one.agent.close()

    anyio.run(body)


@pytest.mark.parametrize("milliseconds", [0, 2, 5, 10, 20, 40])
def test_an_interruption_at_any_moment_leaves_no_process_and_no_open_call(tmp_path: Path, milliseconds: int) -> None:
    async def body() -> None:
        script = [calls(("Bash", {"command": LONG_SLEEP}), ("Bash", {"command": LONG_SLEEP}))] * 2
        one = await bench(tmp_path, script)
        for _ in range(2):
            with anyio.move_on_after(milliseconds / 1_000):
                await one.agent.say("go")
        assert not one.agent.session.view.open_calls and not is_running(LONG_SLEEP)
        one.model.upstream.script.clear()
        assert (await one.agent.say("and now?")).text == "ok" and not one.model.upstream.statistics.violations
        await one.agent.close()

    anyio.run(body)


class SlowModel(ScriptedModel):
    """Waits within an answer, so that it can be interrupted there."""

    async def stream(self, request: Any) -> Any:
        async for delta in super().stream(request):
            yield delta
            if "slow" in getattr(delta, "text", ""):
                await anyio.sleep(60)


def test_an_interruption_within_an_answer_keeps_its_whole_blocks(tmp_path: Path) -> None:
    async def body() -> None:
        model = SlowModel([say("first", tool_use("Bash", {"command": "touch never"}), "slow"), "fine"])
        one = await bench(tmp_path, model=model)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.agent.say, "go")
            await until(lambda: any("slow" in getattr(progress, "text", "") for progress in one.seen))
            one.agent.interrupt()
        assert "first" in texts(item.message for item in one.agent.session.view.items)
        assert one.results()[-1].is_error and not (tmp_path / "never").exists()
        assert (await one.agent.say("go on")).text == "fine" and not model.upstream.statistics.violations
        await one.agent.close()

    anyio.run(body)


# --- permissions -----------------------------------------------------------------------------------------------------


def test_what_permissions_leave_open_is_asked_for(tmp_path: Path) -> None:
    async def body() -> None:
        one = await bench(tmp_path, mode="default")
        one.answers = [Deny("use make instead"), Allow(), Allow(PermissionRule("Bash", "touch:*"))]
        text, failed = await one.call("Bash", command="touch a")
        assert failed and text.endswith(
            "Nothing was done. To tell you how to proceed, the user said:\nuse make instead"
        )
        assert not (await one.call("Bash", command="touch a"))[1]
        assert not (await one.call("Bash", command="touch b"))[1]
        assert not (await one.call("Bash", command="touch c"))[1] and (tmp_path / "c").exists()
        assert [str(asked.rule) for asked in one.asked] == ["Bash(touch:*)"] * 3
        assert not (await one.call("Bash", command="git status"))[1] or len(one.asked) == 3
        one.answers = [Deny(stops=True)]
        one.model.upstream.script.append(
            calls(("Write", {"file_path": "w", "content": ""}), ("Bash", {"command": "touch d"}))
        )
        said = await one.agent.say("go")
        assert said.stopped == "stopped" and one.results()[-1].text() == NOT_RUN
        decided = [(e.decision, e.by) for e in one.events(PermissionDecided)]
        assert decided[:4] == [
            ("deny", "the user"),
            ("allow", "the user"),
            ("allow", "the user"),
            ("allow", "rules for its parts"),
        ]
        await one.agent.close()

    anyio.run(body)


def test_one_question_is_asked_at_a_time_also_by_sub_agents(tmp_path: Path) -> None:
    async def body() -> None:
        one = await bench(tmp_path, mode="default")
        at_once, most = 0, 0

        async def slowly(asked: Any) -> Allow:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            await anyio.sleep(0.05)
            at_once -= 1
            return Allow()

        one._ask = slowly  # type: ignore[method-assign]
        task = {"description": "touch", "prompt": "touch"}
        touch = calls(("Bash", {"command": "touch a"}))
        one.model.upstream.script.extend([calls(("Task", task), ("Task", task)), touch, touch, "x", "y", "z"])
        assert (await one.agent.say("go")).text == "z" and (tmp_path / "a").exists()
        decided = [e.by for e in one.events(PermissionDecided) if e.tool == "Bash"]
        assert decided == ["the user", "the user"] and most == 1
        await one.agent.close()

    anyio.run(body)


def test_nobody_to_ask_means_no(tmp_path: Path) -> None:
    async def body() -> None:
        outside = tmp_path / "outside.txt"
        outside.write_text("secret")
        folder = tmp_path / "p"
        folder.mkdir()
        (folder / "link.txt").symlink_to(outside)
        (folder / ".env").write_text("KEY=1")
        (folder / "a.txt").write_text("KEY=2")
        one = await bench(folder, mode="default", is_alone=True, rules=PermissionRules.of(deny=["Read(.env)"]))
        for name, given in (
            ("Read", {"file_path": "../outside.txt"}),
            ("Read", {"file_path": "link.txt"}),
            ("Read", {"file_path": ".env"}),
            ("Write", {"file_path": "new", "content": "x"}),
            ("Bash", {"command": "touch new"}),
            ("Grep", {"pattern": "s", "path": ".."}),
        ):
            text, failed = await one.call(name, **given)
            assert failed and text.startswith("Permission denied"), (name, text)
        found, _ = await one.call("Grep", pattern="KEY", output_mode="content")
        assert found.endswith("a.txt:1:KEY=2") and ".env" not in found
        assert not (folder / "new").exists()
        await one.agent.close()

    anyio.run(body)


def test_plan_mode_ends_with_an_approved_plan(tmp_path: Path) -> None:
    """RST-2: the plan stands in a file of the session, and comes back from there."""

    async def body() -> None:
        home = tmp_path / "home"
        one = await bench(tmp_path / "p", home=home, mode="accept_edits")
        await one.call("EnterPlanMode")
        assert one.agent.mode == "plan"
        assert "plan mode is on" in (await one.call("Write", file_path="a", content="x"))[0]
        one.answers = [Deny("smaller steps")]
        text, failed = await one.call("ExitPlanMode", plan="# Plan\n1. all")
        assert failed and "smaller steps" in text and one.agent.mode == "plan"
        await one.agent.close()
        two = await bench(tmp_path / "p", home=home, resume=one.agent.session.id, model=one.model, mode="accept_edits")
        two.answers = [Allow()]
        text, failed = await two.call("ExitPlanMode", plan="# Plan\n1. one\n2. two")
        assert not failed and two.agent.mode == "accept_edits", text
        plan = Path(two.agent.context.machine.plan_file)
        assert plan.read_text() == "# Plan\n1. one\n2. two"
        assert not (await two.call("Write", file_path="a", content="x"))[1]
        plan.write_text("# Plan, edited by hand")
        two.answers = [Allow(PermissionRule("Bash", "seq:*"))]
        for _ in range(5):
            await two.call("Bash", command="seq 1 4000")
        assert isinstance(await compact(two.agent.session, trigger="manual"), CompactionSuccess)
        said = texts(item.message for item in two.agent.session.view.items)
        assert "# Plan, edited by hand" in said
        assert "(approved):" in said and "the user approved the plan" in said  # CMP-15
        await two.agent.close()

    anyio.run(body)


class Watcher:
    name = "watcher"

    def __init__(self, folder: Path, *, fails: bool = False) -> None:
        self.folder, self.fails, self.heard = folder, fails, list[Any]()

    async def before_call(self, tool: str, arguments: dict[str, Any], prompt: MessageId) -> None:
        self.heard.append(("before", tool, prompt))

    async def before_change(self, paths: tuple[str, ...], prompt: MessageId) -> None:
        self.heard.append(("change", [Path(p).read_text() if Path(p).exists() else None for p in paths], prompt))
        if self.fails:
            raise OSError("the disk is full")

    async def after_call(self, tool: str, arguments: dict[str, Any], prompt: MessageId) -> None:
        self.heard.append(("after", tool, prompt))


def test_observers_see_files_before_they_change(tmp_path: Path) -> None:
    """CKP-1: with the id of the user message, once for each call; a failing one stops nothing."""

    async def body() -> None:
        good, bad = Watcher(tmp_path), Watcher(tmp_path, fails=True)
        script = [
            calls(
                ("Write", {"file_path": "a", "content": "1"}),
                ("Edit", {"file_path": "a", "old_string": "1", "new_string": "2"}),
            ),
            calls(("Read", {"file_path": "a"}), ("Bash", {"command": "echo 3 > a"})),
            "done",
        ]
        one = await bench(tmp_path, script, observers=(bad, good))
        said = await one.agent.say("go")
        prompt = said.prompt
        assert prompt and one.agent.session.view.item(MessageId(prompt)) is not None
        assert good.heard == [
            ("before", "Write", prompt), ("change", [None], prompt), ("after", "Write", prompt),
            ("before", "Edit", prompt), ("change", ["1"], prompt), ("after", "Edit", prompt),
            ("before", "Bash", prompt), ("after", "Bash", prompt),
        ]  # fmt: skip
        assert len(one.events(ObserverFailed)) == 2 and (tmp_path / "a").read_text() == "3\n"
        await one.agent.close()

    anyio.run(body)


# --- background work -------------------------------------------------------------------------------------------------


def test_background_commands_are_told_of_looked_at_and_killed(tmp_path: Path) -> None:
    """SES-3."""

    async def body() -> None:
        one = await bench(tmp_path)
        text, _ = await one.call("Bash", command="echo one; sleep 0.2; echo two; exit 4", run_in_background=True)
        quick = one.agent.background.running[0].id
        assert text.startswith(f"Command running in background with ID: {quick}. Output is being written to: /")
        await one.call("Bash", command=LONG_SLEEP, run_in_background=True)
        slow = one.agent.background.running[-1].id
        text, _ = await one.call("BashOutput", bash_id=slow)
        assert text == "<status>running</status>\n<output>\n(no new output)\n</output>"
        await until(lambda: bool(one.agent.background.news))
        assert any(isinstance(progress, BackgroundEnded) for progress in one.seen)
        await one.agent.say("and?")
        said = texts(item.message for item in one.agent.session.view.items)
        assert said.count("<task-notification>") == 1 and f"<task-id>{quick}</task-id>\n<status>failed</status>" in said
        text, _ = await one.call("BashOutput", bash_id=quick)
        assert text == "<status>failed</status>\n<exit_code>4</exit_code>\n<output>\none\ntwo\n</output>"
        assert "(no new output)" in (await one.call("BashOutput", bash_id=quick))[0]
        assert (await one.call("KillShell", shell_id=slow))[0] == f"{slow} is stopped."
        assert not is_running(LONG_SLEEP)
        assert "no background work" in (await one.call("BashOutput", bash_id="nothing"))[0]
        assert "is not running" in (await one.call("KillShell", shell_id=slow))[0]
        records = await one.records(InFlight)
        assert [(r.id, r.state) for r in records if r.id == slow] == [(slow, "running"), (slow, "stopped")]
        await one.agent.close()

    anyio.run(body)


def test_waiting_for_a_background_command_and_closing_while_one_runs(tmp_path: Path) -> None:
    async def body() -> None:
        home = tmp_path / "home"
        one = await bench(tmp_path / "p", home=home, settings={"agent_background": 2})
        await one.call("Bash", command="sleep 0.1; echo end", run_in_background=True)
        identity = one.agent.background.running[0].id
        text, _ = await one.call("BashOutput", bash_id=identity, wait=10)
        assert text == "<status>completed</status>\n<exit_code>0</exit_code>\n<output>\nend\n</output>"
        for _ in range(2):
            await one.call("Bash", command=LONG_SLEEP, run_in_background=True)
        assert "run in the background already" in (await one.call("Bash", command="ls", run_in_background=True))[0]
        await one.agent.close()
        assert not is_running(LONG_SLEEP)
        two = await bench(tmp_path / "p", home=home, resume=one.agent.session.id, model=one.model)
        assert not two.agent.background.running
        await two.agent.say("hello")
        assert texts(item.message for item in two.agent.session.view.items).count("was stopped") == 2
        await two.agent.close()

    anyio.run(body)


CRASH = """
SLOW = "echo begun; while [ ! -e go ]; do sleep 0.05; done; echo ended; exit 5"
import sys, os
from pathlib import Path
import anyio
sys.path.insert(0, sys.argv[1])
from tests.agents import bench
async def main():
    one = await bench(Path(sys.argv[2]), home=Path(sys.argv[3]))
    await one.call("Bash", command=SLOW, run_in_background=True)
    await one.call("Bash", command=sys.argv[4], run_in_background=True)
    print(one.agent.session.id, flush=True)
    os.kill(os.getpid(), 9)
anyio.run(main)
"""


def test_background_commands_are_found_again_after_a_crash(tmp_path: Path) -> None:
    """SES-3: state and results survive a crash; what still runs can be looked at and ended."""
    root = Path(__file__).resolve().parents[2]
    folder, home = tmp_path / "p", tmp_path / "home"
    died = subprocess.run(
        [sys.executable, "-c", CRASH, str(root), str(folder), str(home), LONG_SLEEP],
        capture_output=True,
        text=True,
        check=False,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    name = died.stdout.strip()

    async def body() -> None:
        model = ScriptedModel(["hello again"])
        model.upstream.statistics.requests = 100  # ids of its own
        one = await bench(folder, home=home, resume=name, model=model)
        await one.agent.say("are you there?")
        first, second = one.agent.background.running
        (folder / "go").touch()
        await until(lambda: bool(one.agent.background.news))
        text = await one.agent.background.new_output(first.id)
        assert text == "<status>failed</status>\n<exit_code>5</exit_code>\n<output>\nbegun\nended\n</output>"
        await one.agent.background.stop(second.id)
        assert not is_running(LONG_SLEEP)
        await one.agent.close()

    anyio.run(body)


def test_what_runs_is_named_behind_a_compaction(tmp_path: Path) -> None:
    """RST-5, SES-3: from the registry, and the checkpoint of the boundary carries it."""

    async def body() -> None:
        home = tmp_path / "home"
        one = await bench(tmp_path / "p", home=home)
        await one.call("Bash", command=LONG_SLEEP, run_in_background=True, description="a long sleep")
        work = one.agent.background.running[0]
        for _ in range(5):
            await one.call("Bash", command="seq 1 4000")
        assert isinstance(await compact(one.agent.session, trigger="manual"), CompactionSuccess)
        said = texts(item.message for item in one.agent.session.view.items)
        assert f"{work.id} (running), command: a long sleep; its result: {work.where}" in said
        records = await one.agent.session.ports.journal.load()
        assert not any(isinstance(placed.record, InFlight) for placed in records.records)
        assert one.agent.background.running == (work,)
        await one.agent.close()

    anyio.run(body)


# --- sub-agents ------------------------------------------------------------------------------------------------------


def test_sub_agents_have_journals_beside_the_session(tmp_path: Path) -> None:
    """SES-3, ENG-2."""

    async def body() -> None:
        home = tmp_path / "home"
        task = {"description": "count files", "prompt": "How many files are there?"}
        script = [
            calls(("Task", task)),
            calls(("Glob", {"pattern": "*"}), ("Task", task)),
            "there are two",
            "they say two",
        ]
        one = await bench(tmp_path / "p", script, home=home)
        one.write("a", ""), one.write("b", "")
        said = await one.agent.say("ask somebody")
        assert said.text == "they say two"
        text = one.results()[-1].text()
        identity = text.partition("agentId: ")[2].split()[0]
        assert text.startswith("there are two\n\nagentId: agent-")
        (running, done) = [r for r in await one.records(InFlight) if r.id == identity]
        assert (running.state, done.state, done.result) == ("running", "completed", "there are two")
        journal = Path(done.where)
        assert journal.is_file() and "agents" in journal.parts and b"How many files" in journal.read_bytes()
        assert b"no tool 'Task'" in journal.read_bytes()  # a sub-agent starts no others
        assert any(isinstance(p, SubagentProgress) and isinstance(p.progress, ToolStarted) for p in one.seen)
        one.model.upstream.script.extend(
            [calls(("Task", {**task, "prompt": "sure?", "resume": identity})), "yes", "good"]
        )
        assert (await one.agent.say("ask again")).text == "good"
        assert b'"text":"sure?"' in journal.read_bytes()
        assert "no agent has the id" in (await one.call("Task", **{**task, "resume": "agent-x"}))[0]
        await one.agent.close()

    anyio.run(body)


def test_an_exploring_agent_changes_nothing_and_background_agents_are_told_of(tmp_path: Path) -> None:
    async def body() -> None:
        one = await bench(tmp_path)
        task = {"description": "look", "prompt": "look around", "subagent_type": "explore"}
        one.model.upstream.script.extend(
            [
                calls(("Task", task)),
                calls(("Bash", {"command": "touch x"}), ("Write", {"file_path": "x", "content": ""})),
                "no",
                "so",
            ]
        )
        await one.agent.say("go")
        assert not (tmp_path / "x").exists() and one.results()[-1].text().startswith("no\n")
        one.model.upstream.script.extend(
            [calls(("Task", {**task, "run_in_background": True})), "meanwhile", "found it"]
        )
        await one.agent.say("in the background")
        await until(lambda: not one.agent.background.running)
        await one.agent.say("and?")
        said = texts(item.message for item in one.agent.session.view.items)
        assert said.count("<task-notification>") == 1 and "<result>\n" in said
        assert "found it" in said and "meanwhile" in said
        assert "there is no kind of agent" in (await one.call("Task", **{**task, "subagent_type": "wizard"}))[0]
        await one.agent.close()

    anyio.run(body)


def test_a_background_agent_can_be_ended_and_kinds_come_from_files(tmp_path: Path) -> None:
    async def body() -> None:
        kinds = tmp_path / "p" / ".claude" / "agents"
        kinds.mkdir(parents=True)
        (kinds / "runner.md").write_text("---\nname: runner\ndescription: runs\ntools: Bash\n---\nYou only run.\n")
        (kinds / "explore.md").write_text("---\nname: explore\n---\nDo anything.\n")
        one = await bench(tmp_path / "p", home=tmp_path / "home")
        task = {"description": "wait", "prompt": "wait", "subagent_type": "runner", "run_in_background": True}
        command = calls(("Bash", {"command": LONG_SLEEP}), ("Read", {"file_path": "x"}))
        one.model.upstream.script.extend([calls(("Task", task)), command, command])
        with anyio.move_on_after(1):  # the answer that wasn't for the sub-agent runs here
            await one.agent.say("go")
        (work,) = one.agent.background.running
        request = next(r for r in one.model.requests if b"You only run." in r.body)
        assert b'"name":"Bash"' in request.body and b'"name":"Read"' not in request.body
        stopped = await one.agent.background.stop(work.id)
        assert stopped.state == "stopped" and not is_running(LONG_SLEEP)
        assert "no tool 'Read'" in Path(work.where).read_text() or "Not run" in Path(work.where).read_text()
        front = b"".join(bytes(tool) for tool in one.agent.session.view.front.tools)  # type: ignore[union-attr]
        assert b"runner: runs" in front and b"explore: for finding out" in front
        await one.agent.close()

    anyio.run(body)


def test_an_interruption_ends_sub_agents_too(tmp_path: Path) -> None:
    async def body() -> None:
        task = {"description": "wait", "prompt": "wait"}
        script = [calls(("Task", task)), calls(("Bash", {"command": LONG_SLEEP})), "back"]
        one = await bench(tmp_path / "p", script, home=tmp_path / "home")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.agent.say, "go")
            await until(lambda: is_running(LONG_SLEEP))
            one.agent.interrupt()
        assert [r.state for r in await one.records(InFlight)] == ["running", "stopped"]
        assert not is_running(LONG_SLEEP)
        assert (await one.agent.say("go on")).text == "back"
        await one.agent.close()

    anyio.run(body)


def test_tools_of_others_can_be_added() -> None:
    """LIB-1: a tool is a value; the same name takes the place of ours."""
    tool = Tool("Fly", MarkInput, TODO_WRITE.run, description="Flies, and says how it was up there, if at all.")  # type: ignore[arg-type]
    definition = tool.definition
    assert definition["name"] == "Fly" and definition["input_schema"]["required"] == ["mark"]
