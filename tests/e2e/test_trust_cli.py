"""SEC-8 at the doors: the question before a chat, the line of `run`, `perdure trust`, `config`, `doctor`."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.commands import command, command_at_terminal
from tests.terminals import environment, served, terminal

from perdure.cli import main

pytestmark = pytest.mark.e2e

ASKS = "Trust this folder?"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with settings and a skill, below which somebody works."""
    skill = tmp_path / "p" / "src" / ".claude" / "skills" / "tidy" / "SKILL.md"
    for path in (tmp_path / "p" / ".git", tmp_path / "p" / ".perdure", skill.parent, tmp_path / "home"):
        path.mkdir(parents=True)
    (tmp_path / "p" / ".perdure" / "config.toml").write_text("preview_chars = 77\n")
    (tmp_path / "p" / "CLAUDE.md").write_text("Use tabs.\n")
    skill.write_text("---\nname: tidy\ndescription: for tidying up\n---\nSweep.\n")
    return tmp_path.resolve() / "p" / "src"


@pytest.fixture
def env(tmp_path: Path, folder: Path) -> dict[str, str]:
    return environment(tmp_path / "home", ANTHROPIC_API_KEY="k")


def config(folder: Path, env: dict[str, str], *more: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command("config", "--json", *more, cwd=folder, env=env).stdout)
    return found


def chat(folder: Path, env: dict[str, str], typed: bytes) -> str:
    """What a chat shows somebody who answers its questions, and then leaves."""
    done = command_at_terminal("chat", "--model", "offline", cwd=folder, env={**env, "TERM": "dumb"}, typed=typed)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_chat_asks_once_and_again_when_what_runs_changed(folder: Path, env: dict[str, str]) -> None:
    settings = folder.parent / ".perdure" / "config.toml"
    shown = chat(folder, env, b"perhaps\ny\n\x04")
    assert shown.count(ASKS) == 2, "what is no answer is asked again"
    assert str(folder.parent) in shown and ".perdure/config.toml, src/.claude/skills" in shown
    assert config(folder, env)["settings"]["preview_chars"]["value"] == 77
    settings.write_text('preview_chars = 78\n[[hooks.PostCompact]]\nhooks = [{ command = "make it" }]\n')
    shown = chat(folder, env, b"n\n\x04")
    assert "May it run these?" in shown and "PostCompact: make it" in shown and ASKS not in shown
    shown = chat(folder, env, b"\x04")
    assert "May it run" not in shown and ASKS not in shown and "you said no to it" in shown


def test_no_is_remembered_and_the_end_of_the_input_is_no_answer(folder: Path, env: dict[str, str]) -> None:
    shown = chat(folder, env, b"\x04\x04")
    assert shown.count(ASKS) == 1 and "not trusted (nobody was asked" in shown
    assert config(folder, env)["folder"]["why"] == "nobody was asked about it yet"
    assert ASKS in chat(folder, env, b"n\n\x04")
    shown = chat(folder, env, b"\x04")
    assert ASKS not in shown and "not trusted (you said no" in shown
    assert config(folder, env)["settings"]["preview_chars"]["source"] == "default"


def test_the_home_that_a_chat_makes_is_private(folder: Path, env: dict[str, str]) -> None:
    """ENG-4: the history is the first file in it, and the folders above it are missing then."""
    home = Path(env["PERDURE_HOME"])
    assert not home.exists()
    with terminal("chat", "--model", "offline", "--trust", cwd=folder, env=env) as one:
        one.ready()
        one.type("\x04", end="")
        one.end()
    assert not [one for one in (home, *home.rglob("*")) if stat.S_IMODE(one.stat().st_mode) & 0o077]
    assert "problem" not in command("doctor", cwd=folder, env=env).stdout.replace("0 problems", "")


def test_run_goes_on_with_nothing_but_text_and_says_so_in_one_line(folder: Path, env: dict[str, str]) -> None:
    with served(["Hello.", "Hello.", "Hello."]) as server:
        words = ("run", "say hi", "--model", server.name, "--set", "extractor_models=offline")
        done = command(*words, cwd=folder, env=env)
        assert done.returncode == 0 and done.stdout == "Hello.\n"
        (line,) = [line for line in done.stderr.splitlines() if "trusted" in line]
        assert str(folder.parent) in line and ".perdure/config.toml" in line and "`perdure trust`" in line
        body = server.bodies[0].decode()
        assert "Use tabs." in body and "not said to trust" in body and "tidying" not in body
        done = command(*words, "--trust", cwd=folder, env=env)
        body = server.bodies[-1].decode()
        assert "trusted" not in done.stderr and "tidying" in body and "not said to trust" not in body
        assert "trusted" in command(*words, cwd=folder, env=env).stderr, "--trust is for one run"


def test_trust_in_one_folder_is_none_in_that_of_a_session(folder: Path, env: dict[str, str]) -> None:
    """SEC-8: --trust is said of the folder where one stands; a session may work in another."""
    other = folder.parent.parent / "other"
    other.mkdir()
    with served(["Hello."] * 3) as server:
        words = ("run", "say hi", "--model", server.name, "--set", "extractor_models=offline", "--trust")
        done = command(*words, "--json", cwd=folder, env=env)
        session = json.loads(done.stdout.splitlines()[-1])["session"]
        assert "tidying" in server.bodies[0].decode()
        assert command(*words, "--resume", session, cwd=other, env=env).returncode == 0
        assert "tidying" not in server.bodies[-1].decode(), "its skills would be said of it again"


def test_trust_is_given_listed_and_taken_back(folder: Path, env: dict[str, str]) -> None:
    told = config(folder, env)["folder"]
    assert told["root"] == str(folder.parent) and not told["is_trusted"]
    assert told["held"] == [".perdure/config.toml", "src/.claude/skills"]
    assert "note     folder:" in command("doctor", cwd=folder, env=env).stdout
    done = command("trust", cwd=folder, env=env)
    assert done.returncode == 0 and f"{folder.parent} is trusted from now on" in done.stdout
    assert "is trusted (you said yes" in command("config", cwd=folder, env=env).stdout
    assert "ok       folder:" in command("doctor", cwd=folder, env=env).stdout
    listed = json.loads(command("trust", "--list", "--json", cwd=folder, env=env).stdout)
    assert [(one["root"], one["is_trusted"]) for one in listed] == [(str(folder.parent), True)]
    assert str(folder.parent) in command("trust", "--list", cwd=folder, env=env).stdout
    done = command("trust", "--remove", str(folder.parent), cwd=folder.parent.parent, env=env)
    assert done.returncode == 0 and not config(folder, env)["folder"]["is_trusted"]
    assert command("trust", "--remove", cwd=folder, env=env).returncode == 3
    assert command("trust", "/nowhere/at/all", cwd=folder, env=env).returncode == 3
    assert command("trust", "--list", "--remove", cwd=folder, env=env).returncode == 2
    home = Path(env["HOME"])
    assert "only the folder itself" in command("trust", str(home), cwd=folder, env=env).stdout
    Path(env["PERDURE_HOME"], "trusted.json").write_text("{")
    done = command("trust", cwd=folder, env=env)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "delete it" in done.stderr
    Path(env["PERDURE_HOME"], "trusted.json").unlink()
    Path(folder.parent, ".perdure", "config.toml").write_text(
        '[[hooks.PreCompact]]\nhooks = [{ command = "make notes" }]\n'
    )
    lines = command("trust", cwd=folder, env=env).stdout.splitlines()
    assert lines[-2:] == ["  PreCompact: make notes", "it may, as it is now"]
    Path(env["PERDURE_HOME"], "trusted.json").unlink()
    env["PERDURE_TRUSTED_FOLDERS"] = str(folder.parent)
    assert config(folder, env)["folder"]["why"] == "trusted_folders"


def test_an_answer_that_cant_be_kept_names_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SEC-8, CLI-1: on a full disk; not the draft, and not the standard output."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setenv("PERDURE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("perdure.adapters.journal.disk.write_new", full)
    assert main(["trust", str(tmp_path)]) == 1
    kept = tmp_path / "home" / "trusted.json"
    assert capsys.readouterr().err == f"perdure: {kept}: No space left on device: the answer can't be kept\n"


def test_hooks_of_claude_code_run_by_choice_and_behind_trust(folder: Path, env: dict[str, str], tmp_path: Path) -> None:
    """CMP-10, SEC-8: the user's with the setting alone; the project's once the folder is trusted and they were seen."""
    hooks = {"SessionStart": [{"hooks": [{"type": "command", "command": "touch $CLAUDE_PROJECT_DIR/MARK"}]}]}
    own = Path(env.get("CLAUDE_CONFIG_DIR") or f"{env['HOME']}/.claude") / "settings.json"
    theirs = folder / ".claude" / "settings.json"
    for path, mark in ((own, "own"), (theirs, "theirs")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"autoCompactEnabled": False, "hooks": hooks}).replace("MARK", mark))

    def ran() -> list[str]:
        done = command("run", "--model", "offline", "hello", cwd=folder, env=env)
        assert done.returncode == 0, done.stderr
        found = sorted(path.name for path in folder.iterdir() if path.is_file())
        for name in found:
            (folder / name).unlink()
        return found

    assert ran() == [], "nobody chose it"
    Path(env["PERDURE_HOME"]).mkdir(exist_ok=True)
    Path(env["PERDURE_HOME"], "config.toml").write_text("claude_code_settings = true\n")
    assert ran() == ["own"], "the folder isn't trusted"
    told = config(folder, env)
    assert told["settings"]["auto_compact"] == {
        "value": False,
        "source": f"Claude Code's {own}",
        "description": told["settings"]["auto_compact"]["description"],
    }
    assert "src/.claude/settings.json" in told["folder"]["held"]
    assert "SessionStart: touch $CLAUDE_PROJECT_DIR/theirs" in command("trust", cwd=folder, env=env).stdout
    assert ran() == ["own", "theirs"]
    theirs.write_text(theirs.read_text().replace("theirs", "others"))
    assert ran() == ["own"], "it changed since somebody saw it"
