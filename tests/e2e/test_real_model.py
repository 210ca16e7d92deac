"""A real inference server and a tiny real model (GW-1, LIB-3, QLT-5), where `python -m bench.live` installed them."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.clients import is_installed
from bench.live import HELPED_WINDOW, SERVER, helped, llama, session, views_read

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
WINDOW, TURNS = 2_048, 24


@pytest.mark.parametrize("told", [WINDOW, None])
def test_a_session_outgrows_the_window_of_a_real_server(told: int | None, tmp_path: Path) -> None:
    """GW-2, TURN-11: streams, usage, refusals are real; no error reaches the client (of quality it says nothing)."""
    if not is_installed(SERVER):
        pytest.skip("not installed: python -m bench.live installs it, and runs it longer")
    with llama(WINDOW) as url:
        outcome = session(url, told, TURNS, tmp_path / "home")
    assert outcome.errors == [] and outcome.streamed >= TURNS
    assert WINDOW // 2 <= outcome.prompt_tokens <= WINDOW and outcome.compactions
    if told is None:
        assert outcome.recovered, "its window was found out by a refusal"


@pytest.mark.parametrize("notes", [False, True], ids=["record", "notes"])
def test_a_real_model_writes_what_a_model_may_write(notes: bool, tmp_path: Path) -> None:
    """QLT-5, CMP-3, CMP-4, SM-3, MEM-6: its answers are nonsense; whatever they are, nothing must go wrong."""
    if not is_installed(SERVER):
        pytest.skip("not installed: python -m bench.live installs it")
    with llama(HELPED_WINDOW) as url:
        found = helped(url, tmp_path, notes=notes)
    assert found.faults == []
    job = "notes" if notes else "summarizer"
    assert found.called[job] and found.paid[job] > 0 and found.strategy
    assert found.strategy in ("full", "session_memory") or found.reasons["summarizer"]


def test_a_real_model_reads_views(tmp_path: Path) -> None:
    """QLT-5: each answer is counted as what it is; a summary that is none leaves its row empty, with the reason."""
    if not is_installed(SERVER):
        pytest.skip("not installed: python -m bench.live installs it")
    with llama(HELPED_WINDOW) as url:
        code, views = views_read(url, tmp_path)
    assert code == 0 and views["measured"] and views["usd"] is None
    ledger, full = views["rows"]
    assert ledger["answers"] + ledger["failed"] == 6 and ledger["false_positive"] is not None
    assert full["questions"] == 1 or sum(full["fell_back"].values()) == 1
