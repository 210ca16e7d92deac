"""Recorded sessions exercise trackers and restorers: every file runs, and what came back is sound (RST-1 to RST-10)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

from perdure.errors import ForeignFormat
from perdure.lab.replay.drive import ReplayDrive, ReplayOptions
from perdure.logs.detect import read_recordings
from perdure.settings import Settings
from perdure.transcript.records import Compacted

pytestmark = pytest.mark.contract

WINDOW = 48_000  # small enough that most recordings are compacted


def test_recordings_restore(session_file: Path) -> None:
    """RST-10: no tracker or restorer fails on any of them, and every request stays valid."""
    try:
        recordings = read_recordings(session_file.read_bytes(), session_file.name)
    except ForeignFormat:
        pytest.skip("no session in it")
    told: Counter[str] = Counter()
    for recording in recordings:

        async def body(recording: Any = recording) -> ReplayDrive:
            drive = await ReplayDrive.start(recording, ReplayOptions(settings=Settings(window_tokens=WINDOW)))
            await drive.run()
            return drive

        drive = anyio.run(body)
        assert drive.check.invalid == 0
        loaded = anyio.run(_records, drive)
        for boundary in loaded:
            for row in boundary.restored:
                told[f"{row.kind}{'' if row.name else ' left out'}"] += 1 if row.name else len(row.left_out)
            assert len(bytes(boundary.state)) < 1_000_000
    print(f"{session_file.name}: {dict(told)}")


async def _records(drive: ReplayDrive) -> list[Compacted]:
    loaded = await drive.session.world.journal.load(whole=True)
    return [placed.record for placed in loaded.records if isinstance(placed.record, Compacted)]
