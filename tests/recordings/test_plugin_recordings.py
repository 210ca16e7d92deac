"""What the plugin's hooks read of recorded logs (PLG-1)."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.recordings.conftest import DATA, MADE

from perdure.compaction.parts import PART_CHARS, tokens_of
from perdure.logs.detect import detect
from perdure.plugin import carried as carried_module
from perdure.plugin.carried import open_carried
from perdure.plugin.record import record, record_parts

FILES = sorted(path for folder in ("claude_code", "codex") for path in (DATA / folder).rglob("*.jsonl"))
pytestmark = pytest.mark.unit


@pytest.fixture(params=[*(pytest.param(path, id=path.name[:12]) for path in FILES), *MADE])
def log(request: pytest.FixtureRequest, made_data: Path) -> Path:
    path: Path = made_data / request.param  # a real one is a whole path, and stays as it is
    if detect(path.read_bytes()[:65_536], path.name) not in ("claude-code", "codex"):
        pytest.skip("no client with a plugin wrote it")
    return path


@pytest.mark.quick(1)
def test_hooks_one_after_the_other_know_what_one_knows(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PLG-1: a log read part by part, each by a hook of its own, gives the record of the log read at once."""
    whole, steps = tmp_path / "whole", tmp_path / "steps"
    whole.mkdir()
    steps.mkdir()
    with open_carried(str(whole), str(log)) as carried:
        carried.read_on()
        text, boundaries = record(carried, tokens_of(2)), carried.head.boundaries
    monkeypatch.setattr(carried_module, "PART_BYTES", 300_000)
    before = b""
    for _ in range(100):
        with open_carried(str(steps), str(log)) as carried:
            carried.read_on(0.0)
            carried.save()
        if (steps / "state").read_bytes() == before:
            break
        before = (steps / "state").read_bytes()
    with open_carried(str(steps), str(log)) as carried:
        assert carried.head.boundaries == boundaries
        assert record(carried, tokens_of(2)) == text
    for most in (1, 2):
        with open_carried(str(steps), str(log)) as carried:
            parts = record_parts(carried, most)
        assert len(parts) <= most and all(len(part) <= PART_CHARS for part in parts)
        assert len(text) < PART_CHARS * most or sum(map(len, parts)) > 0.85 * PART_CHARS * most
