"""MEM-12: an index that texts went in and out of answers like one that was made of what is left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiers import examples

from perdure.text.scoring import IndexField, TextIndex

pytestmark = pytest.mark.laws
FIELDS = {
    "a": IndexField(1.0, 0.0),
    "b": IndexField(2.0, 0.0),
}  # lengths don't count, as averages are those of the first fill
TERMS = st.dictionaries(st.sampled_from("uvwxyz"), st.integers(1, 3), max_size=4)
COUNTS = st.fixed_dictionaries({"a": TERMS, "b": TERMS})
STEPS = st.lists(st.tuples(st.sampled_from([f"k{n}" for n in range(90)]), st.none() | COUNTS), max_size=120)


@examples(40)
@given(STEPS, st.booleans())
def test_what_went_in_and_out_leaves_no_trace(
    steps: list[tuple[str, dict[str, dict[str, int]] | None]], packs: bool
) -> None:
    index = TextIndex(FIELDS)
    left: dict[str, dict[str, dict[str, int]]] = {}
    for key, counts in steps:
        if counts is None:
            index.drop(key)
            left.pop(key, None)
        else:
            index.put(key, counts)
            left.pop(key, None)
            left[key] = counts
    if packs:
        index = TextIndex.unpacked(FIELDS, index.packed())
    fresh = TextIndex(FIELDS)
    for key, counts in left.items():
        fresh.put(key, counts)
    assert set(index.numbers) == set(left)
    for term in "uvwxyz":
        mine, theirs = index.scores({term: 1.0}), fresh.scores({term: 1.0})
        found = {key for key, n in index.numbers.items() if mine[n] > 0}
        assert found == {key for key, n in fresh.numbers.items() if theirs[n] > 0}
        order = sorted(found, key=lambda key: (-round(mine[index.numbers[key]] / (index.weight(term) or 1), 5), key))
        other = sorted(found, key=lambda key: (-round(theirs[fresh.numbers[key]] / (fresh.weight(term) or 1), 5), key))
        assert order == other
