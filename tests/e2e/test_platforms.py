"""OPS-1: macOS and Windows, as far as they can be told from here: what they lack is gone, and what they refuse is
refused (tests/other_systems.py). Neither was run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.recordings.made import claude_code

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
_PATIENCE_SECONDS = 280
ROOT = Path(__file__).resolve().parents[2]


def on(platform: str, job: str, folder: Path) -> dict[str, Any]:
    warns = ["-X", "warn_default_encoding"] if job != "tests" else []  # tests themselves may leave the encoding out
    done = subprocess.run(
        [sys.executable, *warns, "-m", "tests.other_systems", platform, job, str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4_000:]
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told | {"said": done.stdout}


@pytest.mark.quick(1)
@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_a_session_is_kept_compacted_and_opened_again(tmp_path: Path, platform: str) -> None:
    """OPS-1: without what the system lacks: one writer at a time, and the same request after opening it again."""
    told = on(platform, "sessions", tmp_path)
    done = told["done"]
    assert "is being written by process" in done["second writer"]
    assert (done["undo"], done["compacted"], done["in memory"]) == (True, True, 1)
    assert done["digest"] == done["digest again"] and done["found"] > 0
    if platform == "darwin":
        assert told["counts"]["full syncs"] > 50 and told["counts"]["plain syncs"] == 0
    else:
        assert told["counts"]["locks"] >= 2


def test_a_sync_goes_as_far_as_the_drive_can(tmp_path: Path) -> None:
    """OPS-1, ENG-4: on macOS `F_FULLFSYNC`; where a drive doesn't know it, `fsync`, for files and folders."""
    counts = on("darwin", "syncs", tmp_path)["done"]
    assert (counts["full syncs"], counts["plain syncs"]) == (1, 2)


def test_a_rename_waits_a_moment_for_whoever_has_the_file_open(tmp_path: Path) -> None:
    """OPS-1: on Windows, where it is refused meanwhile; not for ever, and then nothing is lost."""
    done = on("win32", "renames", tmp_path)["done"]
    assert done == {"for a moment": "for a moment", "for good": "refused: in use by a process"}
    assert (tmp_path / "new").read_bytes() == b"for good"


WORKS = (
    ("import", "LOG"),
    ("sessions", "--json"),
    ("replay", "LOG", "--json"),
    ("report", "LOG", "-o", "page.html"),
    ("inspect", "@last"),
    ("context", "@last", "--json"),
    ("compact", "@last"),
    ("uncompact", "@last"),
    ("rewind", "@last", "-1", "--conversation"),
    ("search", "kelorn", "--json"),
    ("export", "@last", "-o", "export.jsonl"),
    ("sessions", "fork", "@last"),
    ("pin", "@last", "never touch main"),
    ("memory", "add", "the staging database is read-only"),
    ("memory", "add", "deploys happen on Fridays"),
    ("memory", "ls", "--json"),
    ("memory", "log"),
    ("memory", "undo"),
    ("verdict", "LOG"),
    ("sessions", "show", "@last"),
    ("sessions", "rename", "@last", "Another name"),
    ("recall", "00000013-2222-4222-8222-222222222222", "00000000-0000-4000-8000-000000000141"),
    ("spend",),
    ("instructions",),
    ("init",),
    ("trust",),
    ("memory", "doctor"),
    ("memory", "consolidate", "--dry-run"),
    ("config", "--json"),
    ("doctor", "--json"),
    ("gc",),
    ("sessions", "delete", "@last", "--yes"),
)
SAYS_WHY = (
    ("serve",),
    ("worker", "--store", "postgresql://nobody@localhost/none"),
    ("chat",),
    ("run", "hello"),
    ("run", "hello", "--set", "sandbox=on"),
    ("resume", "@last"),
    ("acp",),
    ("mcp",),
    ("setup", "claude-code"),
    ("plugin", "build", "plugin"),
    ("rewind", "@last", "-1", "--code"),
)


@pytest.mark.nightly
def test_commands_on_windows_work_or_say_in_one_line_what_does_not(tmp_path: Path) -> None:
    """OPS-1, CLI-5: what reads and keeps sessions works; what needs more than Windows has says so."""
    (tmp_path / "log.jsonl").write_bytes(claude_code(13, 12))
    lines = [
        [str(tmp_path / "log.jsonl") if word == "LOG" else word for word in words] for words in (*WORKS, *SAYS_WHY)
    ]
    (tmp_path / "commands").write_text(json.dumps(lines))
    done = on("win32", "commands", tmp_path)["done"]
    for words, (code, out, err) in zip(WORKS, done, strict=False):
        assert code == 0 and "Traceback" not in err, (words, code, out[-600:], err)
    for words, (code, out, err) in zip(SAYS_WHY, done[len(WORKS) :], strict=True):
        assert (code, out, err.count("\n")) == (2, "", 1) and "not on Windows" in err, (words, code, out, err)


SUITES = {
    "darwin": (
        "tests/contract/test_machine_contract.py",
        "tests/contract/test_session_store.py",
        "tests/contract/test_file_homes.py",
        "tests/unit/test_checkpoints.py",
        "tests/unit/test_spending.py",
        "tests/unit/test_transcripts.py",
    ),
    "win32": (
        "tests/contract/test_session_store.py",
        "tests/contract/test_file_homes.py",
        "tests/contract/test_memories_contract.py",
        "tests/unit/test_spending.py",
        "tests/unit/test_transcripts.py",
        # Modes say nothing there, and a file in a folder stands for the folder that is locked.
        "--deselect=tests/contract/test_session_store.py::test_the_layout_is_private",
        "--deselect=tests/contract/test_memories_contract.py::test_an_existing_directory_stays_as_it_is",
        "--deselect=tests/contract/test_file_homes.py::test_documents_stand_where_they_always_did",
        "--deselect=tests/unit/test_spending.py::test_torn_and_strange_lines_hide_no_others",
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("platform", sorted(SUITES))
def test_what_holds_of_files_holds_there(tmp_path: Path, platform: str) -> None:
    """OPS-1: the tests of stores, memories and spending, and for macOS those of checkpoints and commands, again."""
    (tmp_path / "tests").write_text("\n".join(SUITES[platform]))
    told = on(platform, "tests", tmp_path)
    assert told["done"] == 0, told["said"][-4_000:]
    assert re.search(r"\b[5-9]\d passed|\d\d\d passed", told["said"]), told["said"][-400:]
