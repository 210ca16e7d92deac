"""Recorded sessions, replayed: forks read the prefix cached (SM-3), restorers run on them all (RST-1 to RST-10)."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tests.recordings.conftest import beginning, first_sessions

from perdure.errors import ForeignFormat
from perdure.lab.replay.drive import ReplayOptions
from perdure.lab.replay.run import drive_recording, result_of
from perdure.logs.detect import read_recordings
from perdure.logs.recording import Recording
from perdure.settings import Settings
from perdure.transcript.records import Compacted

pytestmark = pytest.mark.contract

WINDOW = 48_000  # small enough that most recordings are compacted, so that forks meet every kind of view


@pytest.mark.quick(6)
def test_recordings_are_forked_and_restored(session_file: Path) -> None:
    """SM-3, REL-4: 0 invalid, at least 95 % of what the last request held is read from the cache; RST-1, RST-10."""
    try:
        recordings = read_recordings(session_file.read_bytes(), session_file.name)
    except ForeignFormat:
        pytest.skip("no session in it")
    for recording in first_sessions(recordings):
        anyio.run(_holds, beginning(recording), session_file.name)


async def _holds(recording: Recording, name: str) -> None:
    options = ReplayOptions(settings=Settings(window_tokens=WINDOW), forks=True)
    drive, records = await drive_recording(recording, options)
    result = result_of(drive, name)
    forks = result["forks"]
    assert forks["invalid_requests"] == result["invalid_requests"] == 0, result["problems"]
    assert forks["share"] is None or forks["share"] >= 0.95
    assert set(forks["failed"]) <= {"too_long"}
    assert forks["requests"] >= forks["runs"] - sum(forks["failed"].values())
    assert all(len(bytes(r.state)) < 1_000_000 for r in records if isinstance(r, Compacted))
