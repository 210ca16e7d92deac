"""CLI-2, SM-3: `replay --forks` on a made session in which every pass fires."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest
from tests.golden.made import reading
from tests.golden.test_replay import WINDOW

from perdure.compaction.side_requests import fork_request
from perdure.context.request import ModelRequest
from perdure.lab.replay.drive import ReplayOptions
from perdure.lab.replay.run import replay_recording
from perdure.logs.detect import read_recordings

pytestmark = pytest.mark.unit


def replayed(*, forks: bool) -> dict[str, Any]:
    (recording,) = read_recordings(reading(), "made.jsonl")
    options = ReplayOptions(window_tokens=WINDOW, forks=forks)
    result = anyio.run(replay_recording, recording, "made.jsonl", options)
    result.pop("cpu_ms_per_turn")
    return result


@pytest.fixture(scope="module")
def with_forks() -> dict[str, Any]:
    return replayed(forks=True)


def test_forks_are_valid_and_read_the_prefix(with_forks: dict[str, Any]) -> None:
    """SM-3: in a session with offloads, clearing, compactions and prefix moves."""
    forks = with_forks["forks"]
    assert forks["runs"] >= 5 and forks["requests"] > forks["runs"], "some have a second turn"
    assert forks["invalid_requests"] == 0 and not forks["failed"]
    assert forks["share"] >= 0.95 and forks["cache_read_tokens"] > 50_000
    cost = forks["cost"]
    assert cost["cache_read"] >= forks["cache_read_tokens"] and cost["cache_write"] < cost["cache_read"] / 10
    assert cost["usd"] > 0


@pytest.mark.nightly
def test_the_replay_itself_knows_nothing_of_them(with_forks: dict[str, Any]) -> None:
    """CLI-2: not a number changes."""
    without = replayed(forks=False)
    assert "forks" not in without and with_forks == {**without, "forks": with_forks["forks"]}


@pytest.mark.nightly
def test_a_request_that_breaks_a_rule_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """CLI-2: what is counted as invalid can be; and what isn't read from the cache is seen."""

    def broken(*given: Any) -> tuple[ModelRequest, int]:
        request, tokens = fork_request(*given)
        return replace(request, body=request.body.replace(b'"tool_use_id":"', b'"tool_use_id":"x')), tokens

    monkeypatch.setattr("perdure.engine.fork.fork_request", broken)
    result = replayed(forks=True)
    assert result["forks"]["invalid_requests"] > 0 and result["forks"]["failed"]["model_failed"] > 0
    assert any("of a fork" in one["what"] for one in result["problems"])

    def unlike(*given: Any) -> tuple[ModelRequest, int]:
        request, tokens = fork_request(*given)
        return replace(request, body=request.body.replace(b"look at module 0", b"look at module 9")), tokens

    monkeypatch.setattr("perdure.engine.fork.fork_request", unlike)
    forks = replayed(forks=True)["forks"]
    assert forks["invalid_requests"] == 0 and forks["share"] < 0.95
