"""Listing many sessions takes time in proportion to their number (finding C1)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from bench.listing import fill

from perdure.adapters.journal import short_ids
from perdure.adapters.journal import store as store_module
from perdure.cli import main

pytestmark = pytest.mark.unit


def test_short_ids_take_time_in_proportion_to_their_number() -> None:
    """C1: 20,000 ids took 18 s of processor time, as each was compared with all others."""
    names = [f"session-{number * 7_919 % 1_000_003:06d}{number:08d}" for number in range(20_000)]
    began = time.process_time()
    short = short_ids(names)
    assert time.process_time() - began < 5
    assert len(set(short.values())) == len(names) and all(short[name] in name for name in names)


def test_an_id_that_two_projects_have_isnt_shortened() -> None:
    """C1: no part of it names one of the two, and the other ids are as short as ever."""
    assert short_ids(["abcdefghij", "abcdefghij", "klmnopqrst"]) == {"abcdefghij": "abcdefghij", "klmnopqrst": "klmnop"}


def test_only_the_sessions_that_are_shown_are_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """C1: a list of five of sixty opens five journals, and counts the others."""
    fill(tmp_path, 60)
    monkeypatch.setenv("PERDURE_HOME", str(tmp_path))
    opened = []
    real = store_module.describe
    monkeypatch.setattr(store_module, "describe", lambda journal: (opened.append(journal), real(journal))[1])
    assert main(["sessions", "--limit", "5"]) == 0
    assert "55 more: --limit 60 shows all" in capsys.readouterr().out
    assert len(opened) == 5
