"""Real recordings, kept beside the repository; each test names the file that it reads."""

from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path(__file__).parents[3] / "shared" / "data"
FOLDERS = (
    "claude_code",
    "claude_code_fixtures",
    "claude_code_snapshots",
    "codex",
    "swe_agent",
    "mini_swe_agent",
    "tau_bench",
)
SUFFIXES = frozenset({".jsonl", ".json", ".traj"})
ABSENT = "../shared/data is not here"


def session_files() -> list[Path]:
    """Every session file, in a fixed order; empty when the data is not here."""
    found = (path for folder in FOLDERS for path in (DATA / folder).rglob("*"))
    return sorted(path for path in found if path.is_file() and path.suffix in SUFFIXES)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "session_file" in metafunc.fixturenames:
        files = session_files()
        absent = pytest.param(None, marks=pytest.mark.skip(reason=ABSENT), id="absent")
        params = [pytest.param(path, id=path.relative_to(DATA).as_posix()) for path in files] or [absent]
        metafunc.parametrize("session_file", params)
