"""MEM-9: both changes in one text when they are about different lines, and never a line lost without a word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples

from perdure.memory.changes import SaveMemory, conflict_name, decoded, encoded, is_conflict, resolve
from perdure.text.merging import merge

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("base", "mine", "theirs", "expected"),
    [
        ("a\nb\nc", "A\nb\nc", "a\nb\nC", "A\nb\nC"),
        ("a\nb", "a\nb\nm", "a\nb\nt", "a\nb\nt\nm"),
        ("a\nb\n", "a\nm\nb\n", "a\nt\nb\n", "a\nt\nm\nb\n"),
        ("a\nb", "a\nX", "a\nY", None),
        ("a\nb\nc", "a\nc", "a\nb\nc\nd", "a\nc\nd"),
        ("a\nb\nc", "a\nc", "a\nB\nc", None),
        ("a\nb\nc\nd", "a\nd", "a\nb\nx\nc\nd", None),
        ("a", "x\na", "x\na", "x\na"),
        ("a\nb", "x\na\nb", "x\na\nB", "x\na\nB"),
        ("a", "a", "b", "b"),
        ("a", "b", "a", "b"),
        ("", "m", "t", None),
        ("a\n", "a\nm", "a\nt\n", "a\nt\nm"),
    ],
)
def test_merges(base: str, mine: str, theirs: str, expected: str | None) -> None:
    """MEM-9: insertions at one place are all kept; changes of the same lines are a conflict."""
    assert merge(base, mine, theirs) == expected


LINES = st.lists(st.sampled_from("abcd"), max_size=6)


@examples(200)
@given(LINES, LINES, LINES)
def test_a_merge_holds_what_either_added(base: list[str], mine: list[str], theirs: list[str]) -> None:
    """MEM-9: whatever was merged, the new lines of both are in it; who goes first changes only the order."""
    marked = [f"m{line}" if n % 2 else line for n, line in enumerate(mine)]
    other = [f"t{line}" if n % 2 else line for n, line in enumerate(theirs)]
    one = merge("\n".join(base), "\n".join(marked), "\n".join(other))
    back = merge("\n".join(base), "\n".join(other), "\n".join(marked))
    assert (one is None) == (back is None)
    if one is not None and back is not None:
        assert sorted(one.split("\n")) == sorted(back.split("\n"))
        assert {line for line in (*marked, *other) if len(line) == 2} <= set(one.split("\n"))


@given(st.lists(st.text("ab", max_size=2), max_size=8), st.integers(0, 8), st.integers(0, 8))
def test_two_inserted_lines_are_always_merged(base: list[str], first: int, second: int) -> None:
    """REL-7: inserts never conflict, wherever they are."""
    mine, theirs = list(base), list(base)
    mine.insert(first, "mine")
    theirs.insert(second, "theirs")
    merged = merge("\n".join(base), "\n".join(mine), "\n".join(theirs))
    if base:
        assert merged is not None and {"mine", "theirs"} <= set(merged.split("\n"))


def test_what_a_save_comes_to() -> None:
    """MEM-9: written, merged, unchanged, or kept beside under a name that tells."""
    assert resolve(SaveMemory(name="a.md", text="x"), None).outcome == "written"
    assert resolve(SaveMemory(name="a.md", text="x", base="y"), b"x").outcome == "unchanged"
    assert resolve(SaveMemory(name="a.md", text="A\nb", base="a\nb"), b"a\nb\nc").data == b"A\nb\nc"
    for current, base in ((b"other", "y"), (b"other", None), (None, "y")):
        done = resolve(SaveMemory(name="t/a.md", text="x", base=base), current)
        assert done.outcome == "conflict" and is_conflict(done.name) and done.name.startswith("t/a.conflict-")
    assert not is_conflict("a.md") and not is_conflict("x.conflict-/a.md")
    assert len(conflict_name("ж" * 120 + ".md", b"").encode()) <= 255


@given(st.binary(max_size=20))
def test_any_bytes_survive_reading_and_writing(data: bytes) -> None:
    """MEM-9: a file that is no UTF-8 can be changed in one line and keeps the others."""
    assert encoded(decoded(data)) == data
    assert encoded("a\ud800b") == b"a?b"
