"""ENG-7: everything that is read from outside, mutated: no internal error, and no invalid request."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from bench import fuzz
from bench._mutants import bytes_mutant, json_mutant, mutant
from tests.tiers import NIGHTLY


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_mutants_of_everything_that_is_read(seed: int) -> None:
    """ENG-7: every mutant is taken, with valid requests, or refused in the package's own words. More: `bench.fuzz`."""
    counts, found = fuzz.fuzz(100 if NIGHTLY else 40, seed)
    assert not found, "\n".join(found)
    assert counts["taken"] > counts["refused"] > 0


# What earlier runs found, by way, seed and number: each was an internal error or an invalid request.
FOUND = {
    "claude_code": ((2, 1388), (5, 673)),
    "journal": ((5, 98), (1, 93), (1, 106), (1, 110), (1, 114), (1, 396)),
    "gateway_openai": ((1, 39), (1, 78)),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_before(name: str, tmp_path: Path) -> None:
    """ENG-7: the mutants that went wrong once."""
    way = fuzz.ways()[name]
    for seed, number in FOUND[name]:
        chance = random.Random(f"{name}-{seed}-{number}")
        try:
            way.run(way.mutate(way.seed, chance), chance, tmp_path / f"{number}")
        except fuzz.PerdureError:
            continue


def test_a_request_that_breaks_a_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """ENG-7: the run can fail: without the check at the door, bad blocks are sent and said."""
    monkeypatch.setattr("perdure.transcript.blocks._check", lambda *_: None)
    counts, found = fuzz.fuzz(300, 1, "face")
    assert counts["invalid"] and any(" invalid: " in line for line in found)


def test_the_same_seed_makes_the_same_mutant() -> None:
    data = b'{"a": [1, {"b": "told"}]}\n{"a": 0}\n'
    for number in range(200):
        made = [make(data, random.Random(number)) for make in (mutant, json_mutant, bytes_mutant) for _ in range(2)]
        assert made[0::2] == made[1::2]
