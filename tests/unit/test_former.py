"""What 0.1 left under its old name still holds, and moves when it is asked to (ENG-3, CLI-3)."""

from __future__ import annotations

import fcntl
from pathlib import Path

import anyio
import pytest

from perdure.adapters.checkpoints.ignores import IgnoreRules
from perdure.adapters.config import home_of, load
from perdure.adapters.machine.repositories import memory_roots
from perdure.adapters.memory.directory import file_memories
from perdure.cli import main
from perdure.errors import FolderBusy
from perdure.memory.changes import SaveMemory, Stamp
from perdure.memory.notes import MARK, parse
from perdure.memory.places import agent_directory

pytestmark = pytest.mark.unit


def test_a_home_of_0_1_is_used_until_there_is_one_of_ours(tmp_path: Path) -> None:
    """CLI-3: an update changes nothing for anybody."""
    environ = {"HOME": str(tmp_path)}
    assert home_of(environ) == tmp_path / ".perdure"
    (tmp_path / ".holdfast").mkdir()
    assert home_of(environ) == tmp_path / ".holdfast"
    assert home_of({**environ, "HOLDFAST_HOME": "/a"}) == Path("/a")
    assert home_of({**environ, "HOLDFAST_HOME": "/a", "PERDURE_HOME": "/b"}) == Path("/b")
    (tmp_path / ".perdure").mkdir()
    assert home_of(environ) == tmp_path / ".perdure"


def test_variables_of_0_1_hold_where_ours_say_nothing(tmp_path: Path) -> None:
    """PRS-3: and where a value came from is said as it is."""
    environ = {"PERDURE_HOME": str(tmp_path), "HOLDFAST_WINDOW_TOKENS": "60000", "HOLDFAST_AUTOCOMPACT_PCT": "50"}
    config = load(environ, cwd=tmp_path)
    assert (config.settings.window_tokens, config.settings.auto_compact_percent) == (60_000, 50)
    assert config.values["window_tokens"].source == "environment HOLDFAST_WINDOW_TOKENS"
    assert not config.warnings
    assert load({**environ, "PERDURE_WINDOW_TOKENS": "70000"}, cwd=tmp_path).settings.window_tokens == 70_000
    (odd,) = load({**environ, "HOLDFAST_WINDOW_TOKEN": "1"}, cwd=tmp_path).warnings
    assert odd.name == "HOLDFAST_WINDOW_TOKEN"


def test_a_project_of_0_1_keeps_its_folder(tmp_path: Path) -> None:
    """MEM-13: memories of its agents are found where they are."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".holdfast").mkdir()
    assert agent_directory(memory_roots(tmp_path, tmp_path), "tester", "project") == (
        f"{tmp_path}/.holdfast/agent-memory/tester"
    )


def test_the_log_of_a_memory_directory_goes_on(tmp_path: Path) -> None:
    """MEM-9: its history, its inbox and its undo, and not while a process of 0.1 writes."""

    async def body() -> None:
        memories = file_memories(tmp_path)
        await memories.write(SaveMemory(name="a.md", text="one\n"), Stamp(origin="user", at=1.0), mode="auto")
        (tmp_path / ".perdure").rename(tmp_path / ".holdfast")
        with (tmp_path / ".holdfast" / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(FolderBusy, match=r"Holdfast 0\.1 is writing there"):
                await file_memories(tmp_path).entries()
        (entry,) = await file_memories(tmp_path).entries()
        assert entry.name == "a.md" and not (tmp_path / ".holdfast").exists()

    anyio.run(body)


def test_notes_know_the_mark_of_0_1() -> None:
    """SM-4: what code filled in then isn't taken for a person's words."""
    filled = parse(f"# Worklog\n_What was done_\n\nmine\n\n{MARK.replace('Perdure', 'Holdfast')} -->\n- theirs\n")
    assert [(one.own, one.filled) for one in filled.sections] == [("mine", ("- theirs",))]


def test_what_a_rewind_of_0_1_left_is_no_file_of_the_project(tmp_path: Path) -> None:
    """CKP-2."""
    assert IgnoreRules(str(tmp_path)).is_own("src/.holdfast-rewind-7")


def test_doctor_offers_to_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CLI-3: said without being asked, done when asked, and nothing is mixed."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PERDURE_HOME", raising=False)
    project = tmp_path / "project"
    for folder in (tmp_path / ".holdfast", project / ".git", project / ".holdfast"):
        folder.mkdir(parents=True, mode=0o700)
    (tmp_path / ".holdfast" / "config.toml").write_text("window_tokens = 60000\n")
    monkeypatch.chdir(project)

    def said(*words: str) -> str:
        assert main(["doctor", *words]) == 0
        return capsys.readouterr().out

    assert said().count("is in use under its old name; --repair renames it to .perdure") == 2
    moved = said("--repair")
    assert f"{tmp_path}/.holdfast is now {tmp_path}/.perdure" in moved and (project / ".perdure").is_dir()
    assert "0.1:" not in said()
    (tmp_path / ".holdfast").mkdir()
    assert f"{tmp_path}/.holdfast isn't read, since there is {tmp_path}/.perdure" in said()
