"""The made-up recordings themselves: the same on every machine, and in both formats."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.recordings import made

from perdure.logs.detect import read_recordings

pytestmark = pytest.mark.unit


def test_the_same_bytes_each_time(tmp_path: Path) -> None:
    one, two = made.write(tmp_path / "one"), made.write(tmp_path / "two")
    assert all((one / name).read_bytes() == (two / name).read_bytes() for name in made.FILES)


def test_both_formats_tell_the_same_story(tmp_path: Path) -> None:
    """Seed 21 as a log and as chat messages: the same prompts, the same calls, the same results."""
    told = [read_recordings(data, "x")[0].messages for data in (made.claude_code(21, 12), made.openai(21, 12))]
    calls = [[use.name for m in messages for use in m.tool_uses] for messages in told]
    results = [[r.text() for m in messages for r in m.tool_results] for messages in told]
    assert len(calls[0]) > 40 and calls[0] == calls[1]
    assert results[0] == results[1]
