"""The exact bytes that go out, for everything that was ever recorded here, in both protocols (TURN-9, ENG-3).

The files hold hashes and nothing of the recordings. The default run drives small recordings in two ways and large ones
in one; `make nightly` drives all in every way. `make golden` rewrites the files. To see what differs, not only that
something does: `make golden ARGS='--keep-golden FOLDER -k ID'` with the code of before and of now, and compare folders.
"""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tests.golden.hashes import VARIANTS, differing, hashed, opaque, rows_in, written
from tests.golden.made import LOGS
from tests.recordings.conftest import ABSENT, DATA, session_files

from perdure.errors import PerdureError
from perdure.logs.detect import read_recordings

pytestmark = pytest.mark.golden

REQUESTS = Path(__file__).parent / "requests"
RECORDED, MADE = REQUESTS / "recorded.txt", REQUESTS / "made.txt"
HEADING = (
    "Hashes of what was sent and written while recordings were driven through the engine (make golden rewrites them):",
    "recording, its number in the file, how it was driven, stream, how many, and a rolling hash after every tenth.",
)
# So small that most are compacted, and large enough for what can't be: a log's own prompt and tools.
SMALL_WINDOWS = {"claude-code": 100_000, "codex": 60_000}
SMALLEST_WINDOW = MADE_WINDOW = 24_000
FILES = session_files()


def rows_of(name: str, data: bytes, variant: str, keep: Path | None) -> dict[str, str]:
    """The rows of all sessions in a file; none where no session is in it."""
    is_made = name in LOGS
    try:
        recordings = read_recordings(data, name)
    except PerdureError:
        return {}
    rows: dict[str, str] = {}
    for number, recording in enumerate(recordings):
        window = MADE_WINDOW if is_made else SMALL_WINDOWS.get(recording.format, SMALLEST_WINDOW)
        prefix = f"{name if is_made else opaque(name)} {number} {variant}"
        folder = keep / prefix.replace(" ", "-") if keep else None
        for stream, row in anyio.run(hashed, recording, variant, window, folder).items():
            rows[f"{prefix} {stream}"] = row
    return rows


def compared(path: Path, name: str, variant: str, now: dict[str, str], is_rewriting: bool) -> None:
    """Hold the rows of one file and variant against the golden ones, or put them in their place."""
    before = rows_in(path)
    mine = {key for key in before if key.split()[0] == name and key.split()[2] == variant}
    if is_rewriting:
        written(path, {key: row for key, row in before.items() if key not in mine} | now, HEADING)
        return
    told = list(differing({key: before[key] for key in mine}, now))
    assert not told, f"{path.name} (make golden rewrites it):\n" + "\n".join(told)


@pytest.fixture
def keep(request: pytest.FixtureRequest) -> Path | None:
    folder = request.config.getoption("--keep-golden")
    return Path(folder) if folder else None


@pytest.mark.quick(14)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", LOGS)
def test_made_sessions(name: str, variant: str, rewrite_golden: bool, keep: Path | None) -> None:
    """TURN-9, ENG-3: the same session, the same bytes, on every machine."""
    compared(MADE, name, variant, rows_of(name, LOGS[name](), variant, keep), rewrite_golden)


@pytest.mark.quick(8)
@pytest.mark.skipif(not FILES, reason=ABSENT)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: opaque(path.relative_to(DATA).as_posix()))
def test_recorded_sessions(path: Path, variant: str, rewrite_golden: bool, keep: Path | None) -> None:
    """TURN-9, ENG-3: every recording."""
    name = path.relative_to(DATA).as_posix()
    now = rows_of(name, path.read_bytes(), variant, keep)
    compared(RECORDED, opaque(name), variant, now, rewrite_golden)


@pytest.mark.skipif(not FILES, reason=ABSENT)
def test_every_row_is_of_a_recording() -> None:
    """None is left of a file that is gone, and each file that holds a session has its rows."""
    names = {opaque(path.relative_to(DATA).as_posix()) for path in FILES}
    assert {key.split()[0] for key in rows_in(RECORDED)} <= names


def test_made_sessions_meet_everything() -> None:
    """The rows say it: each way sends requests in both protocols, and a model is asked for summaries and notes."""
    rows = rows_in(MADE)
    for variant in VARIANTS:
        streams = {key.split()[3] for key in rows if key.split()[2] == variant}
        assert streams == {"anthropic", "openai", "journal"} | ({"helpers"} if variant == "model" else set())
