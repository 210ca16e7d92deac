"""SEC-5, SEC-11: the made-up secrets a scanner is measured with are what they say they are."""

from __future__ import annotations

from random import Random

import pytest
from bench import _secrets as made

pytestmark = pytest.mark.unit
ALL = sorted(made.FAMILIES)


def test_there_are_more_families_than_a_scanner_must_know() -> None:
    """SEC-11: at least 110; none is there twice, and those that are hidden in other ways are among them."""
    assert len(ALL) >= 128
    assert set(made.MARKED) <= set(ALL)


@pytest.mark.parametrize("family", ALL)
def test_a_sample_is_the_same_for_the_same_seed_and_holds_its_secret(family: str) -> None:
    """SEC-5: drawn from the seed alone; other seeds give other secrets."""
    drawn = [made.sample(family, Random(f"{family} {seed}")) for seed in range(60)]
    assert drawn == [made.sample(family, Random(f"{family} {seed}")) for seed in range(60)]
    assert len({value for _, value in drawn}) > 50
    for text, value in drawn:
        assert text.count(value) == 1 and len(value) >= 5
        assert not any(left in text for left in ("{}", "{{", "{lines}"))


@pytest.mark.parametrize("way", sorted(made.WAYS))
def test_what_is_obfuscated_stands_in_its_text_once(way: str) -> None:
    """SEC-11: the form is there, and can be traced back to the secret; the secret itself is not there unless glued."""
    for family in made.MARKED:
        for seed in range(20):
            text, value, form, of = made.obfuscated(family, Random(f"{family} {seed}"), way)
            assert of == way and text.count(form) == 1
            assert made.obfuscated(family, Random(f"{family} {seed}"), way) == (text, value, form, of)
            if way == "glued":
                assert form == value
                at = text.index(form)
                assert text[at - 1 : at].isalpha() or text[at + len(form) :][:1].isalpha()
            elif form != value:
                assert value not in text
                assert way in ("json", "url") or (form[:2] == value[:2] and form[-4:] == value[-4:])
            else:
                assert way in ("json", "url") and not set(value) & set("-_.+/=")


def test_ways_are_drawn_that_change_something() -> None:
    """SEC-11: without a way named, each is met, and a token without signs isn't said to be escaped."""
    chance = Random(3)
    drawn = [made.obfuscated(chance.choice(made.MARKED), chance) for _ in range(2_000)]
    assert {one.way for one in drawn} == set(made.WAYS)
    assert all(one.form != one.value or one.way == "glued" for one in drawn)


def test_harmless_lines_are_of_many_kinds_and_the_same_for_a_seed() -> None:
    """SEC-5: at least 25 kinds beside the first ones, each with something of its own in every line."""
    assert len(made.HARMLESS) >= 25
    for kind in made.HARMLESS:
        lines = [kind(Random(seed)) for seed in range(40)]
        assert lines == [kind(Random(seed)) for seed in range(40)] and len(set(lines)) >= 5
    assert made.harmless(Random(7)) == made.harmless(Random(7))
