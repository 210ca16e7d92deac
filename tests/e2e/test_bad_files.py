"""CLI-5: whatever a command is to work on, the same fault has the same exit code, and one line says what and where."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.commands import command
from tests.terminals import environment
from tests.unit.foreign.lines import answer, jsonl, text, user

pytestmark = pytest.mark.e2e

LOGS = ("verdict", "import", "replay", "bench fidelity", "bench live", "bench beside")  # of files and folders
SESSIONS = ("inspect", "context", "export -o out.jsonl", "report -o out.html")  # of one file, or of a session of ours
ONE_LOG = ("plugin record", "compact --at 5")
OURS = ("sessions show", "compact", "spend", "notes show", "doctor", "rewind", "resume")
QUESTIONS = ("bench retrieval",)
AFTER = {"rewind": ("-1",)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "p"
    (folder / "folder").mkdir(parents=True)
    (folder / "empty.jsonl").touch()
    (folder / "binary.jsonl").write_bytes(bytes(range(256)) * 20)
    (folder / "other.json").write_text('{"a": 1}\n')
    (folder / "log.jsonl").write_bytes(jsonl(user("u1", None, "Hello."), answer("a1", "u1", text("Hello to you."))))
    os.mkfifo(folder / "pipe.jsonl")
    return folder


def code_of(words: str, *files: str, folder: Path) -> int:
    """The exit code of a command; what it says against it is there, in lines."""
    done = command(*words.split(), *files, *AFTER.get(words, ()), cwd=folder, env=environment(folder.parent / "home"))
    said = done.stderr + done.stdout
    assert "Traceback" not in said and "internal error" not in said
    assert files[0] in said and (done.stderr.count("\n") <= 1 or words in LOGS)
    return done.returncode


@pytest.mark.parametrize("words", [*LOGS, *SESSIONS, *ONE_LOG, *OURS, *QUESTIONS])
def test_what_is_not_there_is_3(folder: Path, words: str) -> None:
    """CLI-5: also where several files may be named, and nothing is measured or imported."""
    assert code_of(words, "nope.jsonl", folder=folder) == 3
    assert code_of(words, "no/such/nope.jsonl", folder=folder) == 3


@pytest.mark.parametrize("words", [*LOGS, *SESSIONS, *ONE_LOG, *OURS])
def test_a_folder_with_nothing_in_it_is_3(folder: Path, words: str) -> None:
    """CLI-5: there is no session, as little as under a wrong name."""
    assert code_of(words, "folder", folder=folder) == 3


@pytest.mark.parametrize("name", ["empty.jsonl", "binary.jsonl", "other.json"])
@pytest.mark.parametrize("words", [*LOGS, *SESSIONS, "plugin record", "compact --at 5", *QUESTIONS])
def test_a_file_that_holds_something_else_is_1(folder: Path, words: str, name: str) -> None:
    """CLI-5: it is there, so nobody has to look for it."""
    assert code_of(words, name, folder=folder) == 1


@pytest.mark.parametrize("words", LOGS)
def test_a_file_that_cannot_be_read_is_1(folder: Path, words: str) -> None:
    """CLI-5: nobody writes into the pipe; it is not waited for."""
    assert code_of(words, "pipe.jsonl", folder=folder) == 1


@pytest.mark.parametrize("words", ["verdict", "import", "replay"])
def test_one_of_several_that_is_not_there_is_1(folder: Path, words: str) -> None:
    """CLI-5: a part failed, and the rest is done."""
    assert code_of(words, "nope.jsonl", "log.jsonl", folder=folder) == 1
