"""CKP-5: `perdure run --rewind-files` from its door: the exact errors, the exact word, and no turn of a model."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from perdure.cli import main
from perdure.settings import Settings
from perdure.testing import ScriptedModel, say, tool_use
from perdure.wiring import SessionOptions, agent

pytestmark = pytest.mark.e2e


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_files_go_back_without_a_turn(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> tuple[str, str, str]:
        script = [say(tool_use("Write", {"file_path": str(place / "a.txt"), "content": "new"}, id="c1")), "Done."]
        one = await agent(place, model=ScriptedModel(script), home=place.parent / "home")
        one.mode = "bypass"
        await one.say("write it")
        said = [item.message.id for item in one.session.view.items]
        name = one.session.id
        await one.close()
        return name, said[0], said[-1]

    session, prompt, answer = anyio.run(work)
    assert (place / "a.txt").read_text() == "new"

    def run(*words: str) -> tuple[int, str, str]:
        code = main(("run", *words))
        shown, err = capsys.readouterr()
        return code, shown, err

    assert run("--rewind-files", prompt) == (2, "", "Error: --rewind-files requires --resume\n")
    refused = "Error: --rewind-files is a standalone operation and cannot be used with a prompt\n"
    assert run("go on", "--rewind-files", prompt, "--resume", session) == (2, "", refused)
    code, shown, err = run("--rewind-files", answer, "--resume", session)
    assert code == 2 and shown == "" and err.startswith("Error: --rewind-files requires a user message id")
    assert (place / "a.txt").exists()
    done = run("--rewind-files", prompt, "--resume", session)
    assert done[:2] == (0, f"Files rewound to state at message {prompt}\n")
    assert not (place / "a.txt").exists()
    code, _, err = run("--resume", session)
    assert code == 2 and "PROMPT" in err


def test_a_rewind_of_nothing_says_why(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CKP-1, CKP-3: where no checkpoints are made, there is nothing to put back."""

    async def work() -> None:
        script = [say(tool_use("Write", {"file_path": str(place / "a.txt"), "content": "new"}, id="c1")), "Done."]
        off = SessionOptions(settings=Settings(checkpoints=False))
        one = await agent(place, model=ScriptedModel(script), home=place.parent / "home", parts=off)
        one.mode = "bypass"
        await one.say("write it")
        await one.close()

    anyio.run(work)
    assert main(("rewind", "@last", "-1", "--dry-run")) == 0
    shown = capsys.readouterr().out
    assert "no file needs to change: no changes of files were recorded: " in shown and "checkpoints was off" in shown
    monkeypatch.setenv("PERDURE_CHECKPOINTS", "false")
    assert main(("rewind", "@last", "-1", "--dry-run")) == 0
    assert "no file needs to change: the setting checkpoints is off" in capsys.readouterr().out
