"""RST-1: what is known of a file stays certain or becomes unknown."""

from __future__ import annotations

import pytest

from holdfast.context.restore import known
from holdfast.context.restore.known import Known, Run, chosen, listing, numbered, numbered_runs

pytestmark = pytest.mark.unit

PART = Known((Run(10, ("a", "b", "c")), Run(20, ("x", "y"))))


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (("b", "B", False), Known((Run(10, ("a", "B", "c")), Run(20, ("x", "y"))))),
        (("b\n", "b\nb2\n", False), Known((Run(10, ("a", "b", "b2", "c")), Run(21, ("x", "y"))))),
        (("a\nb\n", "", False), Known((Run(10, ("c",)), Run(18, ("x", "y"))))),
        (("nowhere", "x", False), None),
        (("", "x", False), None),
        (("c\n", "c", False), None),  # joins a line that isn't known
        (("same", "same", False), PART),
    ],
)
def test_an_edit_of_a_part(edit: tuple[str, str, bool], expected: Known | None) -> None:
    assert PART.edited([edit]) == expected


def test_an_ambiguous_edit_makes_it_unknown_unless_it_is_everywhere() -> None:
    whole = Known.whole("a\nb\na\n")
    assert whole.edited([("a", "z", False)]) is None
    assert whole.edited([("a", "z", True)]) == Known.whole("z\nb\nz\n")
    assert Known((Run(1, ("a", "a")),)).edited([("a", "z\nz", True)]) is None


def test_a_newer_read_wins_and_runs_that_touch_are_one() -> None:
    known = PART.seen(Run(13, ("d",))).seen(Run(11, ("B",)))
    assert known.runs == (Run(10, ("a", "B", "c", "d")), Run(20, ("x", "y")))
    assert Known.whole("a\nb").seen(Run(1, ("z",))).is_whole
    assert not Known.whole("a\nb").seen(Run(3, ("z",))).is_whole


def test_listings_round_trip() -> None:
    assert numbered_runs(listing(PART.runs)) == PART.runs
    assert numbered("     9→x\n    10→\n\ntail") == Run(9, ("x", ""))
    assert numbered("no numbers\nat all") is None
    assert numbered("1\ta\n3\tc") == Run(1, ("a",))


def test_agrees_with_the_disk() -> None:
    assert PART.agrees("…\na\nb\nc\nrest\nx\ny\n")
    assert not PART.agrees("a\nb\nC\nx\ny\n")
    assert Known.whole("a\n").agrees("a") and not Known.whole("a\n").agrees("a\nb")


def test_what_was_read_last_is_chosen_first() -> None:
    known = Known.whole("\n".join(f"line {n}" for n in range(1, 1001)))
    runs, left = chosen(known, [(500, 510)], 40, 0.25)
    assert runs[0].first == 1 or runs[0].first == 500
    assert any(run.first <= 500 <= run.last for run in runs)
    assert left == 1000 - sum(len(run.lines) for run in runs)
    assert chosen(known, [], 10**6, 0.25) == (known.runs, 0)


class Counted(str):
    """A text that counts how often one of its characters is looked at."""

    __slots__ = ("looks",)
    looks: int

    def __getitem__(self, at: object) -> str:
        assert isinstance(at, int), "no copies"
        self.looks += 1
        return super().__getitem__(at)


@pytest.mark.parametrize("part", ["ab", "a", "line\n", "aab"])
@pytest.mark.parametrize("end", ["", "x", "b"])
def test_whether_a_text_overlaps_itself_is_seen_in_one_pass(part: str, end: str) -> None:
    """SPD-8: the work grows with the text and not with its square, and the answer is that of trying all lengths."""
    for times in (1, 2, 50):
        text = part * times + end
        expected = any(text[:size] == text[-size:] for size in range(1, len(text)))
        counted = Counted(text)
        counted.looks = 0
        assert known._overlaps_itself(counted) == expected
        assert counted.looks <= 6 * len(text)
