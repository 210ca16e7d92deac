"""Real recordings, kept beside the repository, and made-up ones, which are always there (tests/recordings/made.py)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.recordings import made
from tests.tiers import NIGHTLY

from perdure.logs.recording import Recording

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
STEPS = 100  # in a small window several compactions' worth
SESSIONS = 6  # of a file


def session_files() -> list[Path]:
    """Every session file, in a fixed order; empty when the data is not here."""
    found = (path for folder in FOLDERS for path in (DATA / folder).rglob("*"))
    return sorted(path for path in found if path.is_file() and path.suffix in SUFFIXES)


def beginning(recording: Recording) -> Recording:
    """The first steps of a recording, whose later ones are more of the same; all of it in `make nightly`.

    The tests of tests/golden drive every recording to its end in any case, and hold what is sent against what was.
    """
    return recording if NIGHTLY else replace(recording, steps=recording.steps[:STEPS])


def first_sessions(recordings: tuple[Recording, ...]) -> tuple[Recording, ...]:
    """The first sessions of a file that holds many of one kind; all of them in `make nightly`."""
    return recordings if NIGHTLY else recordings[:SESSIONS]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "session_file" in metafunc.fixturenames:
        files = session_files()
        absent = pytest.param(None, marks=pytest.mark.skip(reason=ABSENT), id="absent")
        real = [pytest.param(path, id=path.relative_to(DATA).as_posix()) for path in files] or [absent]
        metafunc.parametrize("session_file", [*real, *MADE], indirect=True)


MADE = [pytest.param(name, id=f"made/{name}") for name in made.FILES]


@pytest.fixture(scope="session")
def made_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of made-up recordings, laid out like the real ones."""
    return made.write(tmp_path_factory.mktemp("recordings"))


@pytest.fixture(scope="module")
def session_file(request: pytest.FixtureRequest, made_data: Path) -> Path:
    """A recording, real or made up."""
    return request.param if isinstance(request.param, Path) else made_data / request.param
