"""The picture of the house shows the rooms that there are, and who imports whom."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
from bench._rooms import PICTURE, RoomPlan, drawn, plan_in, planned
from bench.house import House, package

pytestmark = pytest.mark.house

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
AGAIN = "draw it anew: make house ARGS=--picture"
PLAN = RoomPlan(
    (("top",), ("left", "right"), ("low",)), {"top": 900, "left": 2_000, "right": 300, "low": 50}, {("top", "low"): 3}
)


@pytest.mark.nightly
def test_the_picture_is_of_this_house() -> None:
    """Rooms, layers and arrows exactly; sizes about, so that not every change of a line is one of the picture."""
    picture = PICTURE.read_text(encoding="utf-8")
    shown = plan_in(picture)
    differences = shown.differences(planned(House.read(package()), PYPROJECT))
    assert not differences, f"{AGAIN}; {differences}"
    assert picture == drawn(shown), f"it isn't as it was drawn; {AGAIN}"


def test_what_is_imported_is_read_from_the_sources(tmp_path: Path) -> None:
    """Also within functions and for types; a statement counts once for a room, and a room doesn't import itself."""
    root = tmp_path / "src" / "made"
    (root / "low").mkdir(parents=True)
    (root / "__init__.py").write_text("from made.top import first\n")
    (root / "low" / "__init__.py").write_text("")
    (root / "low" / "one.py").write_text("from made.low import two\nX = 1\n")
    (root / "low" / "two.py").write_text("")
    (root / "top.py").write_text("from made.low import one, two\n\ndef first():\n    import made.low.two\n")
    contract = tmp_path / "pyproject.toml"
    contract.write_text('[[tool.importlinter.contracts]]\nlayers = ["(gone) | (top)", "low"]\n')
    plan = planned(House.read(root), contract)
    assert plan.layers == (("top",), ("low",)) and plan.imports == {("top", "low"): 2}
    assert plan.lines == {"top": 3, "low": 2}


def test_what_is_drawn_can_be_read_back() -> None:
    picture = drawn(PLAN)
    assert plan_in(picture) == PLAN and drawn(plan_in(picture)) == picture
    texts = [one.text for one in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["low", "top", "900", "3", "left", "2.0k", "right", "300", "low", "50"]


def test_a_picture_of_another_house_is_told_by_what_differs() -> None:
    def lines(**changed: int) -> RoomPlan:
        return replace(PLAN, lines=dict(PLAN.lines) | changed)

    assert not PLAN.differences(lines(left=2_390, low=240))
    assert PLAN.differences(lines(left=2_600)) == ["left has 2,600 code lines, and was drawn with 2,000"]
    other = replace(PLAN, imports={("left", "low"): 1})
    assert PLAN.differences(other) == ["left imports low now", "top no longer imports low"]
    assert PLAN.differences(replace(PLAN, layers=(*PLAN.layers, ("new",))))[0].startswith("layers: ")
