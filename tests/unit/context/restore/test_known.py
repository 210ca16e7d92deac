"""RST-1: what is known of a file stays certain or becomes unknown."""

from __future__ import annotations

import pytest

from perdure.compaction.restore.files import chosen, numbered_listing, numbered_runs
from perdure.transcript.tool_calls import files
from perdure.transcript.tool_calls.files import KnownLines, LineRun, numbered_lines

pytestmark = pytest.mark.unit

PART = KnownLines((LineRun(10, ("a", "b", "c")), LineRun(20, ("x", "y"))))


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (("b", "B", False), KnownLines((LineRun(10, ("a", "B", "c")), LineRun(20, ("x", "y"))))),
        (("b\n", "b\nb2\n", False), KnownLines((LineRun(10, ("a", "b", "b2", "c")), LineRun(21, ("x", "y"))))),
        (("a\nb\n", "", False), KnownLines((LineRun(10, ("c",)), LineRun(18, ("x", "y"))))),
        (("nowhere", "x", False), None),
        (("", "x", False), None),
        (("c\n", "c", False), None),  # joins a line that isn't known
        (("same", "same", False), PART),
    ],
)
def test_an_edit_of_a_part(edit: tuple[str, str, bool], expected: KnownLines | None) -> None:
    assert PART.edited([edit]) == expected


def test_an_ambiguous_edit_makes_it_unknown_unless_it_is_everywhere() -> None:
    whole = KnownLines.whole("a\nb\na\n")
    assert whole.edited([("a", "z", False)]) is None
    assert whole.edited([("a", "z", True)]) == KnownLines.whole("z\nb\nz\n")
    assert KnownLines((LineRun(1, ("a", "a")),)).edited([("a", "z\nz", True)]) is None


def test_a_newer_read_wins_and_runs_that_touch_are_one() -> None:
    known = PART.seen(LineRun(13, ("d",))).seen(LineRun(11, ("B",)))
    assert known.runs == (LineRun(10, ("a", "B", "c", "d")), LineRun(20, ("x", "y")))
    assert KnownLines.whole("a\nb").seen(LineRun(1, ("z",))).is_whole
    assert not KnownLines.whole("a\nb").seen(LineRun(3, ("z",))).is_whole


def test_listings_round_trip() -> None:
    assert numbered_runs(numbered_listing(PART.runs)) == PART.runs
    assert numbered_lines("     9→x\n    10→\n\ntail") == LineRun(9, ("x", ""))
    assert numbered_lines("no numbers\nat all") is None
    assert numbered_lines("1\ta\n3\tc") == LineRun(1, ("a",))


def test_agrees_with_the_disk() -> None:
    assert PART.agrees("…\na\nb\nc\nrest\nx\ny\n")
    assert not PART.agrees("a\nb\nC\nx\ny\n")
    assert KnownLines.whole("a\n").agrees("a") and not KnownLines.whole("a\n").agrees("a\nb")


def test_what_was_read_last_is_chosen_first() -> None:
    known = KnownLines.whole("\n".join(f"line {n}" for n in range(1, 1001)))
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
        assert files._overlaps_itself(counted) == expected
        assert counted.looks <= 6 * len(text)
