"""A real inference server and a tiny real model behind the gateway (GW-1, LIB-3), where `make live` installed them."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.clients import is_installed
from bench.live import SERVER, llama, session

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
WINDOW, TURNS = 2_048, 24


@pytest.mark.parametrize("told", [WINDOW, None])
def test_a_session_outgrows_the_window_of_a_real_server(told: int | None, tmp_path: Path) -> None:
    """GW-2, TURN-11: streams, usage, refusals are real; no error reaches the client (of quality it says nothing)."""
    if not is_installed(SERVER):
        pytest.skip("not installed: make live installs it, and runs it longer")
    with llama(WINDOW) as url:
        outcome = session(url, told, TURNS, tmp_path / "home")
    assert outcome.errors == [] and outcome.streamed >= TURNS
    assert WINDOW // 2 <= outcome.prompt_tokens <= WINDOW and outcome.compactions
    if told is None:
        assert outcome.recovered, "its window was found out by a refusal"
