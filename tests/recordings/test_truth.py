"""CMP-15: 0 untrue lines over a bounded part of the real records; `python bench/truth.py ../shared/data` checks all."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import truth
from tests.recordings.conftest import ABSENT, DATA
from tests.tiers import NIGHTLY

FILES = [path for path in truth.logs(DATA) if path.stat().st_size < 4_000_000]
PLACES = 2 if NIGHTLY else 1  # of each log, the last ones
pytestmark = pytest.mark.unit


@pytest.mark.nightly
@pytest.mark.skipif(not FILES, reason=ABSENT)
def test_no_line_of_a_record_is_untrue() -> None:
    """CMP-15: the last places of each log, by a checker that shares no code with the ledger."""
    assert checked(FILES) > 400 * PLACES


def test_no_line_of_a_made_up_record_is_untrue(made_data: Path) -> None:
    assert checked(truth.logs(made_data)) > 50 * PLACES


def checked(files: list[Path]) -> int:
    """How many lines were checked; none of them is untrue."""
    verdict = truth.Verdict()
    for path in files:
        truth.check_file(path, verdict, most=PLACES)
    assert not verdict.untrue
    return sum(verdict.checked.values())
