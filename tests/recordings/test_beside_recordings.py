"""Our record beside the real summaries of the recordings (CMP-16, QLT-1, QLT-2)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.recordings.conftest import ABSENT, DATA

from perdure.lab.bench.beside import BesideReport, compare

LOGGED = DATA / "oracle_compact_boundaries.json"
pytestmark = [pytest.mark.unit, pytest.mark.skipif(not LOGGED.is_file(), reason=ABSENT)]


@pytest.fixture(scope="module")
def logged() -> list[tuple[str, int]]:
    return sorted((one["session"], one["line"]) for one in json.loads(LOGGED.read_text()))


@pytest.fixture(scope="module")
def report(logged: list[tuple[str, int]]) -> BesideReport:
    names = {f"{session}.jsonl" for session, _ in logged}
    return compare(sorted(path for path in Path(DATA / "claude_code").rglob("*.jsonl") if path.name in names))


@pytest.mark.nightly
def test_every_logged_compaction_has_its_two_texts(logged: list[tuple[str, int]], report: BesideReport) -> None:
    """CMP-16: the nine of them, each record at most as large as the summary, and not much smaller."""
    assert sorted((place.session, place.line) for place in report.places) == logged
    for place in report.places:
        assert 0.9 * place.summary.tokens < place.record.tokens <= place.summary.tokens
        assert "continued from a previous conversation" in place.summary.text


@pytest.mark.nightly
def test_no_axis_is_below_the_real_summary(report: BesideReport) -> None:
    """QLT-2: at the same size, over all of them."""
    for axis in report.totals:
        assert axis.record >= axis.summary, axis
    facts = next(axis for axis in report.totals if axis.axis == "facts")
    assert 100 * (facts.record - facts.summary) >= 8 * facts.of
