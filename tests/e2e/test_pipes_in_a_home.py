"""What is no regular file where one of a home's should be: nobody waits for it, one line names it (SEC-2, CLI-5)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e.test_leaving import environ, files, kept, person, run

from perdure.adapters.journal.projects import folder_of_name

pytestmark = pytest.mark.e2e
__all__ = ["person"]

SECONDS = 60  # of a machine that has much to do; whoever waits for a writer takes for ever


def ended(person: Path, *words: str | Path) -> tuple[int, str]:
    """How a command ended that is a process of its own, so that one that waits can be ended."""
    done = subprocess.run(
        [sys.executable, "-m", "perdure", *map(str, words)],
        cwd=person / "app",
        env=dict(environ(person)),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert "internal error" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


def pipe_at(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def test_a_pipe_among_sessions_stops_no_export(person: Path) -> None:
    """OPS-2, SEC-2, CLI-5: a pipe, a folder or a device as a journal is one line, and the others are exported."""
    home, out = person / ".perdure", person / "e"
    for name in ("parser", "lexer", "linker"):
        kept(home, person / "app", name)
    below = home / "projects" / folder_of_name(str(person / "app"))
    pipe_at(below / "lexer" / "journal.jsonl")
    (below / "linker" / "journal.jsonl").unlink()
    (below / "linker" / "journal.jsonl").symlink_to("/dev/zero")
    code, shown = ended(person, "export", "--all", "-o", out)
    assert code == 1
    for name in ("lexer", "linker"):
        (line,) = [line for line in shown.splitlines() if line.startswith(f"{name}: failed: ")]
        assert "journal.jsonl: not a regular file" in line
    assert (out / "projects" / below.name / "parser.md").is_file()


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("name", "words", "code"),
    [
        ("journal.jsonl", ("sessions",), 0),
        ("journal.jsonl", ("recall", "parser", "parser0"), 1),
        ("journal.jsonl", ("search", "--all", "parser"), None),
        ("lock", ("pin", "parser", "no walrus"), 1),
        ("journal.mark", ("doctor",), None),
        ("../../../config.toml", ("context", "parser"), 2),
        ("../../../index.db", ("search", "--all", "parser"), None),
        ("../../../index.db-journal", ("search", "--all", "parser"), None),
        ("../../../calibration.json", ("context", "parser"), 0),
        ("../../../trusted.json", ("run", "hello", "--model", "offline"), None),
    ],
)
def test_nobody_waits_for_a_writer(person: Path, name: str, words: tuple[str, ...], code: int | None) -> None:
    """SEC-2, CLI-5: wherever a file of a home is opened."""
    home = person / ".perdure"
    kept(home, person / "app", "parser")
    run(person, "search", "--all", "parser")
    pipe_at(Path(os.path.normpath(home / "projects" / folder_of_name(str(person / "app")) / "parser" / name)))
    before = {one: data for one, data in files(home).items() if one.endswith("journal.jsonl")}
    found, shown = ended(person, *words)
    assert found == code if code is not None else found in (0, 1, 2), shown
    if code:
        assert len([line for line in shown.splitlines() if "not a regular file" in line]) == 1, shown
    assert {one: data for one, data in files(home).items() if one.endswith("journal.jsonl")}.items() >= before.items()


@pytest.mark.quick(1)
@pytest.mark.parametrize(("device", "code"), [("/dev/null", 0), ("/dev/zero", 2), ("/dev/full", 2)])
def test_the_null_device_says_that_there_are_no_settings(person: Path, device: str, code: int) -> None:
    """CLI-5, SEC-2: it is an empty file where settings are read; other devices stay refused."""
    home = person / ".perdure"
    home.mkdir(exist_ok=True)
    (home / "config.toml").unlink(missing_ok=True)
    (home / "config.toml").symlink_to(device)
    found, shown = ended(person, "config", "pins_tokens")
    assert found == code and ("not a regular file" in shown) == bool(code), shown


def test_the_null_device_as_settings_of_a_client(person: Path) -> None:
    """CLI-5, SEC-8: the same for those of Claude Code, the person's own and a trusted project's: nothing is told."""
    for place in (person / ".perdure", person / ".claude", person / "app" / ".claude"):
        place.mkdir(exist_ok=True)
    (person / ".perdure" / "config.toml").write_text(
        f"claude_code_settings = true\ntrusted_folders = ['{person / 'app'}']\n"
    )
    for link in (person / ".claude" / "settings.json", person / "app" / ".claude" / "settings.local.json"):
        link.unlink(missing_ok=True)
        link.symlink_to(os.devnull)
    code, shown = ended(person, "config", "pins_tokens")
    assert code == 0 and "settings" not in shown, shown
    (person / ".claude" / "settings.json").unlink()
    (person / ".claude" / "settings.json").symlink_to("/dev/zero")
    assert "not a regular file" in ended(person, "config", "pins_tokens")[1]
