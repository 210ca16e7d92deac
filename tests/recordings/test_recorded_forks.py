"""SM-3: the notes of recorded sessions are kept by forks, whose requests are valid and read the prefix cached."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from perdure.errors import ForeignFormat
from perdure.lab.replay.drive import ReplayOptions
from perdure.lab.replay.run import replay_recording
from perdure.logs.detect import read_recordings
from perdure.settings import Settings

pytestmark = pytest.mark.contract

WINDOW = 48_000  # small enough that most recordings are compacted, so that forks meet every kind of view


def test_forks_of_recordings(session_file: Path) -> None:
    """SM-3, REL-4: 0 invalid, and at least 95 % of what the last request held is read from the cache."""
    try:
        recordings = read_recordings(session_file.read_bytes(), session_file.name)
    except ForeignFormat:
        pytest.skip("no session in it")
    options = ReplayOptions(settings=Settings(window_tokens=WINDOW), forks=True)
    for recording in recordings:
        result = anyio.run(replay_recording, recording, session_file.name, options)
        forks = result["forks"]
        assert forks["invalid_requests"] == result["invalid_requests"] == 0, result["problems"]
        assert forks["share"] is None or forks["share"] >= 0.95
        assert set(forks["failed"]) <= {"too_long"} and forks["requests"] >= forks["runs"] - sum(
            forks["failed"].values()
        )
