"""SEC-5: secrets are found and replaced, in linear time, and what looks like one only is left alone."""

from __future__ import annotations

from random import Random

import pytest
from bench import _secrets as made
from tests.tiers import NIGHTLY

from perdure.memory.trust.families import FAMILIES
from perdure.memory.trust.secrets import MARK, find_secrets, is_random, redact, stand_ins

pytestmark = pytest.mark.unit
KEY = b"k" * 32


@pytest.mark.parametrize("family", sorted(made.FAMILIES))
def test_secrets_of_every_family_are_found(family: str) -> None:
    """SEC-5: found whole, wherever they stand. `bench/redaction.py` measures the share over many more."""
    chance, found = Random(f"held out {family}"), 0
    for _ in range(40):
        text, value = made.sample(family, chance)
        start = text.index(value)
        hits = [one for one in find_secrets(text) if one.start <= start and one.end >= start + len(value)]
        found += bool(hits)
        assert all(one.line == text.count("\n", 0, one.start) + 1 for one in hits)
        if hits:
            assert value not in redact(text, KEY).text
    assert found >= 37, found


@pytest.mark.parametrize("way", made.WAYS)
def test_what_splits_a_secret_hides_it_from_nobody(way: str) -> None:
    """SEC-11: line breaks, colours, characters without a width, escapes, quotes, and words glued to it."""
    chance, missed, tried = Random(f"held out {way}"), [], 0
    for family in made.MARKED:
        for _ in range(4):
            one = made.obfuscated(family, chance, way)
            start, end = one.text.index(one.form), one.text.index(one.form) + len(one.form)
            hits = [hit for hit in find_secrets(one.text) if hit.start <= start and hit.end >= end]
            tried += 1
            if not hits:
                missed.append(one.text)
            assert one.value not in redact(one.text, KEY).text or not hits
    assert len(missed) <= 0.04 * tried, missed


def test_what_begins_the_next_line_is_no_part_of_a_secret() -> None:
    """SEC-11: a whole token at the end of a line doesn't take the word behind the break along."""
    token = "ghp_" + "a1B2" * 9
    assert redact(f"TOKEN={token}\nexport PATH").text == "TOKEN={{secret:github-token:1}}\nexport PATH"
    assert redact(f"{token[:20]}\n{token[20:]}\nmake").text == "{{secret:github-token:1}}\nmake"


def test_there_are_over_a_hundred_families_each_with_its_source() -> None:
    """SEC-5: written from what the providers say; each says where."""
    assert len({family.name for family in FAMILIES}) == len(FAMILIES) >= 110
    assert all(family.source.startswith("https://") for family in FAMILIES)
    assert set(made.FAMILIES) <= {family.name for family in FAMILIES}


def test_harmless_lines_are_left_alone() -> None:
    """SEC-5: hashes, ids, code and stand-ins: at most 0.5 % of the lines."""
    chance = Random(11)
    lines = [made.harmless(chance) for _ in range(2_000)]
    assert sum(bool(find_secrets(line)) for line in lines) <= 10


def test_a_secret_has_one_id_with_a_key_and_a_number_without() -> None:
    """SEC-5: the id is stable in a home; nobody without the key can try passwords against it."""
    text = "password = Kelp#2024\nDB_PASSWORD=Kelp#2024 and password: Tide!9981"
    one = redact(text, KEY).text
    marks = MARK.findall(one)
    assert len(marks) == 3 and marks[0] == marks[1] != marks[2]
    assert redact("the passwd: Kelp#2024", KEY).text.endswith(marks[0])
    assert MARK.findall(redact(text, b"other").text) != marks
    assert redact(text).text == (
        "password = {{secret:password:1}}\nDB_PASSWORD={{secret:password:1}} and password: {{secret:password:2}}"
    )
    assert dict(stand_ins(text, KEY)) == {"Kelp#2024": marks[0], "Tide!9981": marks[2]}


def test_redacting_twice_changes_nothing_more() -> None:
    """SEC-5: what stands for a secret is none."""
    chance = Random(5)
    text = "\n".join(made.sample(family, chance)[0] for family in made.FAMILIES)
    once = redact(text, KEY)
    assert redact(once.text, KEY).text == once.text and len(once.findings) >= len(made.FAMILIES)


def test_any_text_can_be_scanned() -> None:
    """SEC-5: places are characters also in other scripts; half a surrogate pair stays as it is."""
    token = "ghp_" + "a1B2" * 9
    text = f"ключ ключ 🔑 \ud800 {token}\n日本 {token}"
    first, second = find_secrets(text)
    assert text[first.start : first.end] == text[second.start : second.end] == token
    assert (first.line, second.line) == (1, 2)
    assert redact(text, KEY).text.startswith("ключ ключ 🔑 \ud800 {{secret:github-token:")
    assert find_secrets("") == ()


def test_two_secrets_side_by_side_are_two() -> None:
    """SEC-5: what ends one begins the next."""
    token = "ghp_" + "a1B2" * 9
    assert len(find_secrets(f"{token} {token},{token}")) == 3


@pytest.mark.parametrize("unit", ["a", "key=", "://a:", "-----BEGIN PRIVATE KEY-----\n", "eyJ.", "password: ", "A1A2"])
def test_nothing_makes_it_slow(unit: str) -> None:
    """SEC-6: two megabytes of near misses (quickly one); an engine that goes back and forth doesn't end in time."""
    assert find_secrets(unit * ((2_000_000 if NIGHTLY else 1_000_000) // len(unit))) == ()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("9f86d081884c7d659a2feaa0c55ad015", True),
        ("aB3dE5gH7jK9mN1pQ", True),
        ("getTokenFromRequest2", False),
        ("my_secret_token_name", False),
        ("550e8400-e29b-41d4-a716-446655440000", False),
        ("123456789012345", False),
        ("/etc/ssl/private/k3y9.pem", False),
    ],
)
def test_what_was_drawn_by_chance(value: str, expected: bool) -> None:
    """SEC-5: for assignments without a provider's shape."""
    assert is_random(value) is expected
