"""SPD-7: what the writes to a provider's cache are made of."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.golden.made import reading

from perdure.cli.replay import summary
from perdure.lab.replay.cost import CacheWrites
from perdure.lab.replay.drive import ReplayOptions
from perdure.lab.replay.run import replay_recording
from perdure.logs.detect import read_recordings

pytestmark = pytest.mark.unit


def test_what_nothing_moved_is_written_once() -> None:
    """SPD-7: without a reason all that is written is new; behind a move only what no call had sent."""
    writes = CacheWrites()
    writes.call(50_000, 50_000, "")
    writes.call(1_000, 900, "")  # the provider counts a little otherwise
    writes.call(40_000, 2_000, "cleared")
    writes.call(60_000, 1_000, "expired")
    writes.call(30_000, 0, "cleared")
    writes.call(500, 2_000, "rewound")
    assert writes.as_dict() == {"first": 54_500, "again": {"cleared": 68_000, "expired": 59_000}}


def test_a_replay_says_why_tokens_were_written_again(capsys: pytest.CaptureFixture[str]) -> None:
    """SPD-7, CLI-2: first and again are all that was written, by the reasons of the moves; the report has the sum."""
    (recording,) = read_recordings(reading(), "made.jsonl")
    result: dict[str, Any] = anyio.run(replay_recording, recording, "made.jsonl", ReplayOptions(window_tokens=60_000))
    writes = result["cache_writes"]
    assert writes["first"] + sum(writes["again"].values()) == result["cost"]["cache_write"]
    assert "compacted" in writes["again"] and 0 < writes["first"] < result["cost"]["cache_write"]
    row = {name: len(result[name]) for name in ("compactions", "microcompactions", "offloads", "problems")}
    summary([{**result, **row}])
    said = capsys.readouterr().out
    times = result["cost"]["cache_write"] / writes["first"]
    assert f"{times:.2f} cache writes for each token" in said and "again: " in said and "compactions " in said
