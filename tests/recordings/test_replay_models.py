"""Every recording with a model that writes the records: what it is asked is a valid request, always (CLI-2, REL-4)."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tests.recordings.conftest import beginning, first_sessions

from perdure.context.models import model_spec
from perdure.errors import PerdureError
from perdure.lab.replay.drive import ReplayOptions
from perdure.lab.replay.run import replay_recording
from perdure.logs.detect import read_recordings
from perdure.settings import Settings
from perdure.testing import FakeUpstream, ModelRules, ScriptedModel

pytestmark = pytest.mark.unit

WINDOW = 60_000  # small, so that most recordings are compacted
SUMMARY = "<analysis>what happened</analysis><summary>1. Primary request: see the ledger below.</summary>"


def stand_in(name: str) -> ScriptedModel:
    """A model that always writes a record, and refuses what breaks a rule; of an age with the recordings."""
    rules = ModelRules(window_tokens=10_000_000, max_output_tokens=10**9, allow_unknown=True)
    upstream = FakeUpstream(rules=rules, binding="error" if model_spec(name).thinking_is_bound else "off")
    return ScriptedModel([SUMMARY] * 200, upstream=upstream, id=name, window_tokens=WINDOW)


@pytest.mark.quick(8)
def test_what_the_summariser_is_asked_is_valid(session_file: Path) -> None:
    """CMP-3, REL-4: on the conversation's own prefix, and for a model of another name."""
    try:
        recordings = read_recordings(session_file.read_bytes(), session_file.name)
    except PerdureError:
        pytest.skip("no session in it")
    for number, recording in enumerate(first_sessions(recordings)):
        is_own = number % 2 == 0 and recording.model
        model = stand_in(recording.model if is_own and recording.model else "another-model")
        options = ReplayOptions(settings=Settings(window_tokens=WINDOW, notes=False))
        result = anyio.run(replay_recording, beginning(recording), session_file.name, options, (model,))
        asked = result["summarizer"]
        assert asked["invalid"] == 0, result["problems"]
        assert asked["requests"] == asked["answers"] >= sum(one["strategy"] == "full" for one in result["compactions"])
        assert result["invalid_requests"] == result["unexplained_prefix_moves"] == 0
