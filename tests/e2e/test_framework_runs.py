"""LIB-4: the same script in each framework, with and without Perdure, as `bench/adapters.py` measures it."""

from __future__ import annotations

import pytest
from bench.adapters import AGENTS, APART, run

# In one worker: each framework takes seconds to import, which happens in the test.
pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("frameworks")]
TURNS, TOKENS, WINDOW = 24, 900, 12_000
PACKAGES = {"LangChain": "langchain", "OpenAI Agents": "agents", "Pydantic AI": "pydantic_ai"}
OURS = [name for name in AGENTS if not name.startswith(APART) and "Perdure" in name]
THEIRS = [name for name in AGENTS if not name.startswith(APART) and "Perdure" not in name]


def needs_framework(name: str) -> None:
    """Skip the test where the framework isn't installed."""
    for framework, package in PACKAGES.items():
        if name.startswith(framework):
            pytest.importorskip(package)


@pytest.mark.parametrize("name", OURS)
def test_a_script_ends_with_us(name: str) -> None:
    """LIB-4, GOAL: no request is refused, none exceeds the window, and all is priced."""
    needs_framework(name)
    outcome = run(name, TURNS, TOKENS, WINDOW, "claude-sonnet-5-5")
    assert outcome.invalid == 0 and outcome.usd > 0 and outcome.largest < WINDOW
    assert outcome.ended == "done" and outcome.turns == outcome.requests == TURNS + 1


@pytest.mark.nightly
@pytest.mark.parametrize("name", THEIRS)
def test_a_script_dies_at_the_window_without(name: str) -> None:
    """LIB-4, GOAL: without Perdure the same script meets the window."""
    needs_framework(name)
    outcome = run(name, TURNS, TOKENS, WINDOW, "claude-sonnet-5-5")
    assert outcome.invalid == 0 and outcome.usd > 0 and outcome.largest < WINDOW
    assert outcome.ended.startswith("died at the window") and outcome.turns < TURNS
