"""LIB-4: the same script in each framework, with and without Perdure, as `bench/adapters.py` measures it."""

from __future__ import annotations

import pytest

for package in ("langchain", "agents", "pydantic_ai"):
    pytest.importorskip(package)
from bench.adapters import AGENTS, APART, run  # noqa: E402 - it stands behind the packages that it needs

pytestmark = pytest.mark.e2e
TURNS, TOKENS, WINDOW = 24, 900, 12_000


@pytest.mark.parametrize("name", [name for name in AGENTS if not name.startswith(APART)])
def test_a_script_ends_with_us_and_dies_at_the_window_without(name: str) -> None:
    """LIB-4, GOAL: with us it ends, no request was refused, and it is priced; without us it meets the window."""
    outcome = run(name, TURNS, TOKENS, WINDOW, "claude-sonnet-5-5")
    assert outcome.invalid == 0 and outcome.usd > 0 and outcome.largest < WINDOW
    if "Perdure" in name:
        assert outcome.ended == "done" and outcome.turns == outcome.requests == TURNS + 1
    else:
        assert outcome.ended.startswith("died at the window") and outcome.turns < TURNS
