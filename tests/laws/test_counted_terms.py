"""MEM-15: terms are counted in a text as an index would have them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.text.words import COUNT, MAY, WHEN, asked_terms, counts_of, terms

WORDS = st.sampled_from(
    "paint painted painting happy happily use using user café naïve 漢字 読む running ran 42 3rd May 2023 yesterday "
    "deploy deployment deployments maps map mapped batteries battery item_list parseHTTPResponse on's".split()
)


@given(st.lists(WORDS, max_size=30), st.lists(WORDS, max_size=6))
def test_counted_as_indexed(said: list[str], asked: list[str]) -> None:
    text = " ".join(word for word in said if not any(c.isupper() for c in word[1:]) and "_" not in word)
    wanted = asked_terms(" ".join(asked))
    indexed = terms(text)
    found = counts_of(text, [*wanted, WHEN, COUNT, MAY])
    for term in {*wanted, WHEN, COUNT, MAY}:
        assert found[term] == indexed[term], (term, text)


def test_parts_of_names_are_counted() -> None:
    assert counts_of("see parseHTTPResponse and responseTime", ["respons", "pars"]) == {"respons": 2, "pars": 1}
