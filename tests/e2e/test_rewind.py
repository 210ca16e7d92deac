"""Rewinding from the doors: the agent, `perdure rewind`, and headless (CKP-1 to CKP-6)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.agents import bench

from perdure import wiring
from perdure.adapters.checkpoints.log import unescaped_name
from perdure.adapters.config import load
from perdure.cli import main
from perdure.cli.chat.agents import telling
from perdure.cli.chat.commands import rewound_lines
from perdure.cli.history import rewind_files
from perdure.context.request import to_request
from perdure.engine.compact import CompactionSuccess, compact, uncompact
from perdure.engine.rewind import RewindResult
from perdure.engine.session import LiveSession
from perdure.errors import JournalError, PerdureError, RewindRefused
from perdure.events import CheckpointTaken, ObserverFailed
from perdure.testing import ScriptedModel, say, tool_use
from perdure.transcript.messages import MessageId
from perdure.transcript.records import OBSERVER_FAILED, Noted, Record

pytestmark = pytest.mark.e2e

SCRIPT = [
    say(tool_use("Write", {"file_path": "made.py", "content": "print(1)\n"})),
    "made",
    say(tool_use("Bash", {"command": "rm old.txt; mkdir out; echo x > out/x; echo 2 > made.py"})),
    "done",
]


def told(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): p.read_text() for p in sorted(folder.rglob("*")) if p.is_file()}


async def worked(tmp_path: Path) -> tuple[str, list[str], Path]:
    """A session of two prompts that made, changed and removed files; its id, its prompts, and the project."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "old.txt").write_text("old\n")
    made = await bench(project, SCRIPT, home=tmp_path / "home")
    said = [await made.agent.say("Make a program."), await made.agent.say("Now\nbreak it.")]
    assert [e.files for e in made.events(CheckpointTaken)] == [1, 4]
    assert not made.events(ObserverFailed)
    name = made.agent.session.id
    await made.agent.close()
    return name, [one.prompt for one in said], project


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[str], Path]:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return anyio.run(worked, tmp_path)


BROKEN = {"made.py": "2\n", "out/x": "x\n"}


def test_rewind_dry_then_for_real_then_undo(session: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """CKP-3, CKP-4: files and conversation; a dry run names files with their lines and changes nothing."""
    name, prompts, project = session
    assert main(["rewind", name, "-1", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "bring back  old.txt  +1 -0" in shown and "change      made.py  +1 -1" in shown
    assert told(project) == BROKEN
    assert main(["rewind", name[:12], prompts[1], "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["prompt"] == "Now\nbreak it." and done["conversation"] and done["to"] == prompts[1]
    assert {f["path"]: (f["action"], f["added"], f["removed"]) for f in done["files"]} == {
        "made.py": ("write", 1, 1), "old.txt": ("create", 1, 0), "out": ("delete", 0, 0), "out/x": ("delete", 0, 1),
    }  # fmt: skip
    assert told(project) == {"made.py": "print(1)\n", "old.txt": "old\n"}
    assert main(["rewind", name, "-1", "--dry-run"]) == 0  # the first prompt is the last one now
    assert "Make a program." in capsys.readouterr().out
    assert main(["rewind", name, "--undo"]) == 0
    assert told(project) == BROKEN
    assert main(["rewind", name, "-1", "--dry-run"]) == 0
    assert "break it." in capsys.readouterr().out
    assert main(["rewind", name, "--undo"]) == 1
    assert "there is no rewind to undo" in capsys.readouterr().err


def test_only_code_and_only_conversation(session: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """CKP-3: each alone; someone else's change is named, and only force overwrites it."""
    name, prompts, project = session
    (project / "made.py").write_text("mine\n")
    assert main(["rewind", name, prompts[0], "--code"]) == 1
    assert "made.py" in capsys.readouterr().err
    assert told(project) == {**BROKEN, "made.py": "mine\n"}
    assert main(["rewind", name, prompts[0], "--code", "--force"]) == 0
    assert told(project) == {"old.txt": "old\n"}
    assert main(["rewind", name, prompts[0], "--conversation"]) == 0
    assert told(project) == {"old.txt": "old\n"}
    assert "Make a program." in capsys.readouterr().out
    assert main(["rewind", name, "--undo"]) == 0
    assert main(["rewind", name, "--undo"]) == 0
    assert told(project) == {**BROKEN, "made.py": "mine\n"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--undo", "-1"], "--undo"),
        ([], "say where"),
        (["-1", "--code", "--both"], "one of them"),
        (["-9"], "2 prompts"),
    ],
)
def test_what_cant_be_asked(session: Any, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    """CLI-5: one line, and nothing is done."""
    assert main(["rewind", session[0], *arguments]) != 0
    assert said in capsys.readouterr().err


def test_headless(session: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CKP-5: the words, and no turn of a model."""
    name, prompts, project = session
    config = load({"PERDURE_HOME": str(tmp_path / "home")}, cwd=tmp_path)

    def asked(**given: Any) -> tuple[int, str, str]:
        code = rewind_files(config, **{"message": prompts[1], "resume": name, "prompt": None, **given})
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    assert asked(resume=None) == (2, "", "Error: --rewind-files requires --resume\n")
    alone = "Error: --rewind-files is a standalone operation and cannot be used with a prompt\n"
    assert asked(prompt="hello") == (2, "", alone)
    answer = next(i for i in _ids(tmp_path) if i not in prompts)
    code, _, error = asked(message=answer)
    assert code == 2 and error.startswith("Error: --rewind-files requires a user message id: ")
    assert "it is an answer of the model" in error
    assert "nothing in this session has that id" in asked(message="message-none")[2]
    assert told(project) == BROKEN
    assert asked() == (0, f"Files rewound to state at message {prompts[1]}\n", "")
    assert told(project) == {"made.py": "print(1)\n", "old.txt": "old\n"}
    (project / "made.py").write_text("mine\n")
    code, _, error = asked(message=prompts[0])
    assert code == 1 and "made.py" in error and told(project)["made.py"] == "mine\n"


def _ids(tmp_path: Path) -> list[str]:
    journal = next((tmp_path / "home").rglob("journal.jsonl"))
    text = journal.read_text()
    return [part.split('"')[0] for part in text.split('"id":"')[1:] if part.startswith("message-")]


def test_what_it_takes_is_shown(session: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """CKP-6: in a session's facts and by the doctor."""
    main(["sessions", "show", session[0]])
    assert "checkpoints  2 (" in capsys.readouterr().out
    main(["doctor"])
    assert "checkpoints of 2 prompts" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["CLAUDE_CODE_DISABLE_FILE_CHECKPOINTING", "PERDURE_CHECKPOINTS"])
def test_it_can_be_switched_off(tmp_path: Path, name: str) -> None:
    """CKP-1: by the names that other agents know, and by ours."""
    value = "1" if name.startswith("CLAUDE") else "false"
    assert load({"PERDURE_HOME": str(tmp_path)}, cwd=tmp_path).settings.checkpoints
    assert not load({"PERDURE_HOME": str(tmp_path), name: value}, cwd=tmp_path).settings.checkpoints


@pytest.mark.anyio
async def test_the_agent_rewinds_and_goes_on(tmp_path: Path) -> None:
    """CKP-3: between two prompts; the model is told what isn't as it saw it, and reads before it edits."""
    script = [*SCRIPT, "fine", say(tool_use("Write", {"file_path": "made.py", "content": "3"})), "end"]
    made = await bench(tmp_path / "project", script)
    made.write("old.txt", "old\n")
    await made.agent.say("Make a program.")
    await made.agent.say("Break it.")
    done = await made.agent.rewind("-1", what="code")
    assert done.files is not None and len(done.files.changes) == 4
    assert told(made.folder) == {"made.py": "print(1)\n", "old.txt": "old\n"}
    reminder = made.agent.session.view.items[-1].message
    assert "put files back" in reminder.blocks[0].value.text
    assert reminder.note == f"files_rewound:{done.to}", "TURN-6: so that what was taken back can be folded"
    back = await made.agent.rewind("-2", what="both")
    assert back.prompt == "Make a program." and told(made.folder) == {"old.txt": "old\n"}
    assert not made.agent.session.view.items
    await made.agent.undo_rewind()
    assert told(made.folder) == {"made.py": "print(1)\n", "old.txt": "old\n"} and made.agent.session.view.items
    await made.agent.rewind("-2")
    said = await made.agent.say("Hello again.")
    assert said.text == "fine"
    with pytest.raises(RewindRefused):
        await made.agent.rewind("no-such-message")
    await made.agent.close()


@pytest.mark.anyio
async def test_our_own_files_in_a_project_arent_rewound(tmp_path: Path) -> None:
    """CKP-2: a home inside the project; the journal is no file of it. And a folder that is gone is nobody's place."""
    project = tmp_path / "project"
    script = [say(tool_use("Bash", {"command": "mkdir made && cd made && echo x > x"})), "done", "fine"]
    script += [say(tool_use("Bash", {"command": "pwd"})), "end"]
    made = await bench(project, script, home=project / ".perdure")
    said = await made.agent.say("Make it.")
    assert made.agent.context.cwd == str(project / "made")
    done = await made.agent.rewind(said.prompt)
    assert done.files is not None and [s.path for s in done.files.steps] == ["made", "made/x"]
    assert (await made.agent.say("Again.")).text == "fine"
    await made.agent.say("Where?")
    assert made.results()[-1].text().strip() == str(project)
    name = made.agent.session.id
    await made.agent.close()
    again = await bench(project, [], home=project / ".perdure", resume=name)
    assert again.agent.session.view.items
    await again.agent.close()


@pytest.mark.anyio
async def test_without_checkpoints_files_arent_rewound(tmp_path: Path) -> None:
    """CKP-1: switched off, nothing is kept, and a rewind says so."""
    made = await bench(tmp_path / "project", SCRIPT[:2], settings={"checkpoints": False})
    await made.agent.say("Make a program.")
    with pytest.raises(PerdureError, match="checkpoints is off"):
        await made.agent.rewind("-1")
    assert (await made.agent.rewind("-1", what="conversation")).prompt == "Make a program."
    await made.agent.close()


class Failing:
    """An observer that always fails."""

    def __init__(self, name: str, error: Exception) -> None:
        self.name, self.error = name, error

    async def before_call(self, tool: str, arguments: dict[str, Any], prompt: MessageId) -> None:
        raise self.error

    before_change: Any = before_call
    after_call: Any = before_call


@pytest.mark.parametrize("name", ["checkpoints", "recorder"])
def test_an_observer_that_fails_is_said_everywhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CKP-7: on the screen, by the doctor, and, when checkpoints failed, by each rewind to before that call."""
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    project = tmp_path / "project"

    async def work() -> tuple[str, list[tuple[str, str] | None]]:
        watcher = Failing(name, OSError(28, "No space left on device"))
        script = ["hello", say(tool_use("Bash", {"command": "rm a.txt"})), "done"]
        made = await bench(project, script, home=tmp_path / "home", observers=(watcher,))
        made.write("a.txt", "mine\n")
        await made.agent.say("Hello.")
        await made.agent.say("Remove it.")
        session = made.agent.session.id
        await made.agent.close()
        return session, [telling(event) for event in made.events(ObserverFailed)]

    session, told = anyio.run(work)
    assert len(told) == 2 and all(line is not None and line[1] == "yellow" for line in told)
    assert f"{name} failed (OSError) around Bash" in str(told[0])
    main(["doctor"])
    assert f"{name} failed: OSError: No space left on device (for 1 prompt)" in capsys.readouterr().out
    assert main(["rewind", session, "-1", "--code", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert ("what Bash did while checkpoints failed" in shown) is (name == "checkpoints")
    assert main(["rewind", session, "-1", "--code", "--json"]) == 0
    assert [m["path"] for m in json.loads(capsys.readouterr().out)["not_kept"]] == [None] * (name == "checkpoints")


def test_an_observer_that_can_not_be_noted_stops_no_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CKP-7: a journal that can't be written when checkpoints fail doesn't end the call; it is noted the next time."""

    async def work() -> None:
        script = [say(tool_use("Bash", {"command": "rm a.txt"})), "done"]
        made = await bench(tmp_path / "project", script, observers=(Failing("checkpoints", ValueError("x")),))
        made.write("a.txt", "mine\n")
        record, failed = LiveSession.record, list[str]()

        async def full(self: LiveSession, *records: Record) -> None:
            if not failed and any(isinstance(one, Noted) for one in records):
                failed.append("once")
                raise JournalError("the disk is full")
            await record(self, *records)

        monkeypatch.setattr(LiveSession, "record", full)
        await made.agent.say("Remove it.")
        assert not (tmp_path / "project" / "a.txt").exists() and failed
        loaded = await made.agent.session.ports.journal.load(whole=True)
        noted = [p.record.kind for p in loaded.records if isinstance(p.record, Noted)]
        assert noted.count(OBSERVER_FAILED) == 1, "around the call's end"
        await made.agent.close()

    anyio.run(work)


ODD = b"caf\xe9 \xe2\x80\xae\n\x1b[31m.txt"


def test_odd_names_through_the_doors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CKP-7: kept and put back; screens show them without obeying them, and programs get each byte."""
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    project = tmp_path / "project"
    project.mkdir()
    path, log = os.path.join(os.fsencode(project), ODD), os.path.join(os.fsencode(project), b"\xe9.log")
    for place in (path, log):
        with open(place, "wb") as file:
            file.write(b"mine\n")
    (project / ".gitignore").write_text("*.log\n")
    (project / "plain.txt").write_text("mine\n")

    async def work() -> tuple[str, str]:
        made = await bench(project, [say(tool_use("Bash", {"command": "rm -f ./*"})), "done"], home=tmp_path / "home")
        said = await made.agent.say("Clean up.")
        assert not made.events(ObserverFailed)
        await made.agent.close()
        return made.agent.session.id, said.prompt

    session, prompt = anyio.run(work)
    assert [p.name for p in project.iterdir()] == [".gitignore"]
    assert main(["rewind", session, "-1", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert all(line.isprintable() for line in shown.splitlines())
    assert r"caf\udce9 \u202e\n\x1b[31m.txt" in shown and r"'\udce9.log' (ignored by git, removed)" in shown
    assert main(["rewind", session, "-1", "--dry-run", "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert {unescaped_name(file["path"]) for file in done["files"]} == {os.fsdecode(ODD), "plain.txt"}
    assert [(unescaped_name(m["path"]), m["what"]) for m in done["not_kept"]] == [("\udce9.log", "removed")]
    assert main(["run", "--rewind-files", prompt, "--resume", session]) == 0
    said = capsys.readouterr()
    assert said.out == f"Files rewound to state at message {prompt}\n" and "not kept, so not put back" in said.err
    with open(path, "rb") as file:
        assert file.read() == b"mine\n"
    assert (project / "plain.txt").read_text() == "mine\n" and not os.path.exists(log)


@pytest.mark.anyio
async def test_what_a_rewind_put_back_is_told_to_the_model_in_letters(tmp_path: Path) -> None:
    """CKP-7, SEC-4: a name may be no text, or hold lines of its own; the reminder is one line all the same."""
    made = await bench(tmp_path / "project", [say(tool_use("Bash", {"command": "rm -f ./*"})), "done", "fine"])
    (tmp_path / "project" / os.fsdecode(ODD)).touch()
    await made.agent.say("Clean up.")
    done = await made.agent.rewind("-1", what="code")
    told = made.agent.session.view.items[-1].message.blocks[0].value.text
    assert "put files back" in told and r"\udce9" in told and told.isprintable()
    assert any("1 file put back" in line for line in rewound_lines(done))
    assert (await made.agent.say("Go on.")).text == "fine"
    await made.agent.close()


@pytest.mark.anyio
async def test_a_failing_checkpoint_of_a_sub_agent_is_noted_in_the_session(tmp_path: Path) -> None:
    """CKP-7: a rewind looks in the session, whoever made the call."""
    script = [
        say(tool_use("Task", {"description": "tidy", "prompt": "Tidy.", "subagent_type": "general-purpose"})),
        say(tool_use("Bash", {"command": "rm -f a.txt"})), "tidied", "done",
    ]  # fmt: skip
    made = await bench(tmp_path / "project", script, observers=(Failing("checkpoints", ValueError("secret")),))
    made.write("a.txt", "mine\n")
    await made.agent.say("Have it tidied.")
    assert not (made.folder / "a.txt").exists()
    done = await made.agent.rewind("-1", is_dry=True)
    assert done.files is not None
    assert [m.why for m in done.files.missed] == ["what Bash did while checkpoints failed: ValueError"]
    await made.agent.close()


@pytest.mark.anyio
async def test_undoing_a_rewind_brings_the_compaction_back(tmp_path: Path) -> None:
    """CKP-8: through the agent and after opening anew: the same bytes, the boundary, and an undo of that as ever."""
    project, home = tmp_path / "project", tmp_path / "home"
    made = await bench(project, ["word " * 9_000, "word " * 9_000, "short", "and on"], home=home)
    for text in ("One.", "Two.", "Three."):
        await made.agent.say(text)
    session = made.agent.session
    assert isinstance(await compact(session, trigger="manual"), CompactionSuccess)
    boundary, request = session.view.boundary, to_request(session.view, session.facts()).body
    await made.agent.rewind("-3", what="conversation")
    assert session.view.boundary is None
    await made.agent.undo_rewind()
    assert session.view.boundary == boundary and to_request(session.view, session.facts()).body == request
    await made.agent.rewind("-3", what="conversation")
    await made.agent.close()
    again = await bench(project, ["and on", "more"], home=home, resume=session.id)
    await again.agent.undo_rewind()
    opened = again.agent.session
    assert opened.view.boundary == boundary and to_request(opened.view, opened.facts()).body == request
    await again.agent.rewind("-1", what="conversation")
    await again.agent.say("Another way.")
    with pytest.raises(RewindRefused, match="something was said"):
        await again.agent.undo_rewind()
    await again.agent.undo_rewind(is_forced=True)
    assert opened.view.boundary == boundary and to_request(opened.view, opened.facts()).body == request
    await uncompact(opened)
    assert opened.view.boundary is None
    await again.agent.close()


@pytest.mark.anyio
async def test_tools_in_a_folder_of_odd_names(tmp_path: Path) -> None:
    """CKP-7: nothing fails over a name: what can't be said is counted, and a command's output isn't lost over it."""
    script = [
        say(tool_use("Glob", {"pattern": "**/*.txt"}), tool_use("Grep", {"pattern": "needle"})),
        say(tool_use("Bash", {"command": "echo before; cd d*"})),
        say(tool_use("Bash", {"command": "pwd"})),
        "done",
    ]
    project = tmp_path / "project"
    made = await bench(project, script)
    made.write("plain.txt", "needle\n")
    odd = os.path.join(os.fsencode(project), b"d\xe9")
    os.mkdir(odd)
    (Path(os.fsdecode(odd)) / "in.txt").write_text("needle\n")
    await made.agent.say("Look around.")
    glob, grep, moved, there = [result.text() for result in made.results()]
    assert "plain.txt" in glob and "left out: 1 with names that aren't UTF-8" in glob
    assert "plain.txt" in grep
    assert "before" in moved and "can't be worked in" in moved
    assert there.strip() == str(project)
    await made.agent.close()


@pytest.mark.anyio
async def test_a_project_whose_own_name_is_no_text_is_refused_in_one_line(tmp_path: Path) -> None:
    """CKP-7, CLI-5: before anything is made."""
    project = tmp_path / os.fsdecode(b"d\xe9")
    project.mkdir()
    with pytest.raises(PerdureError, match="isn't UTF-8: rename it") as refused:
        await wiring.agent(project, model=ScriptedModel([]), home=tmp_path / "home")
    assert str(refused.value).isprintable() and not list((tmp_path / "home").rglob("session-*"))


def test_a_chat_tells_an_undone_rewind_from_a_rewind() -> None:
    """CKP-4, CLI-1: nothing went back, and nothing came after."""
    done = RewindResult(MessageId("m1"), "the prompt", None, is_conversation=True)
    assert "is back at that point" in rewound_lines(done)[0]
    assert rewound_lines(done, is_undone=True) == ["the conversation is what it was before the rewind"]
