"""ENG-8: every recording is imported whole, and has the view and the size that its own system had."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tests.worlds import HEADER

from perdure.adapters.journal.in_memory import MemoryJournal
from perdure.compaction.logged import view_as_logged
from perdure.context.request import to_request
from perdure.context.view import size_tokens
from perdure.engine.imports import import_recording
from perdure.engine.session import LiveSession
from perdure.lab.replay.cost import LogHistory
from perdure.logs.detect import read_recordings
from perdure.logs.recording import Recording
from perdure.settings import Settings
from perdure.testing import ModelRules, check_anthropic
from perdure.wiring import memory_session

RULES = ModelRules(window_tokens=10_000_000, max_output_tokens=10**9, allow_unknown=True, max_media=10_000)
BASE = Settings(estimator="base")


@pytest.mark.quick(10)
def test_an_import_has_the_log_s_view_and_size(session_file: Path) -> None:
    """ENG-8: sizes as replay has them at the same place; nothing learned; valid, and the same when reopened."""
    for recording in read_recordings(session_file.read_bytes(), session_file.name):
        if recording.messages:
            anyio.run(_holds, recording)


async def _holds(recording: Recording) -> None:
    session = await memory_session(journal=MemoryJournal(HEADER, encode=True))
    done = await import_recording(session, recording, b"", file="log")
    assert done.skipped == ()
    logged, history = view_as_logged(recording), LogHistory(Settings())
    for step in recording.steps:
        history.add(step)
    assert [i.message.id for i in session.view.items] == [i.message.id for i in logged.items]
    assert size_tokens(session.view, BASE) == size_tokens(logged, BASE)
    if history.usage and history.tokens:
        assert size_tokens(session.view, BASE) == history.tokens
    assert session.view.state.calibration.overhead_tokens is None
    assert not check_anthropic(to_request(session.view, session.facts(), model="m").body, model_rules=RULES)
    assert (await LiveSession.load(session.ports)).view == session.view
