"""`make nightly` says what ran, what was skipped and why (HSE-5)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests import tiers
from tools import nightly

pytestmark = pytest.mark.unit
RESULTS = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b"><skipped message="needs Chromium"/></testcase>
<testcase name="c"><skipped message="needs  Chromium"/></testcase><testcase name="d"><failure/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def some_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four parts: one writes results of tests, one passes, one fails, one lacks its program."""
    code = f"import pathlib; pathlib.Path({str(tmp_path / 'tests.xml')!r}).write_text({RESULTS!r})"
    python = sys.executable
    made = [
        nightly.Part("tests", "all tests", ((python, "-c", code),)),
        nightly.Part("fine", "nothing", ((python, "-c", "pass"),)),
        nightly.Part("bad", "an exit code", ((python, "-c", "raise SystemExit(3)"),)),
        nightly.Part("absent", "a program", ((python, "-c", "pass"),), needs="no-such-program"),
    ]
    monkeypatch.setattr(nightly, "parts", lambda times: made)
    monkeypatch.setattr(nightly, "LOGS", tmp_path)
    monkeypatch.setattr(nightly, "RESULTS", tmp_path / "tests.xml")


def test_the_last_line_counts_what_ran(some_parts: None, capsys: pytest.CaptureFixture[str]) -> None:
    """HSE-5: parts and tests, what failed, and what was skipped for which reason."""
    assert nightly.main([]) == 1
    said = capsys.readouterr().out.splitlines()
    assert "2 tests skipped: needs Chromium" in said[-2]
    assert said[-1].startswith("nightly: 2 of 4 parts passed; bad (-c raise SystemExit(3) ended with 3")
    assert "absent (no-such-program is not here)" in said[-1]
    assert "tests: 1 passed, 1 failed, 2 skipped for 1 reasons" in said[-1]


def test_one_part_may_be_asked_for(some_parts: None, capsys: pytest.CaptureFixture[str]) -> None:
    """HSE-5: a part that passes is success; one that doesn't exist is refused with the names there are."""
    assert nightly.main(["--only", "fine"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("nightly: 1 of 1 parts passed; tests: 0 passed")
    with pytest.raises(SystemExit):
        nightly.main(["--only", "nothing"])
    assert "a part must be one of tests, fine, bad, absent, got nothing" in capsys.readouterr().err


class _Item:
    """As much of a collected test as the tiers look at."""

    def __init__(self, nodeid: str, **markers: tuple[object, ...]) -> None:
        self.nodeid, self.markers = nodeid, markers

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return getattr(pytest.mark, name)(*self.markers[name]).mark if name in self.markers else None


def test_the_quick_tier_takes_cases_from_all_over_a_table() -> None:
    """HSE-5: what is marked for the night is left to it, and of a table n cases stay, the first among them."""
    items = [_Item("a::late", nightly=()), _Item("a::plain"), *(_Item(f"a::t[{n}]", quick=(3,)) for n in range(9))]
    left = tiers.select_nightly(items)  # type: ignore[arg-type]
    assert {item.nodeid for item in items} - left == {"a::plain", "a::t[0]", "a::t[3]", "a::t[6]"}
