"""CMP-5, SPD-2: pieces that can't be the next aren't weighed, and the choice is what it would be if all were."""

from __future__ import annotations

import random

import pytest
from tests.unit.ledger.talk import Talk

from perdure.compaction.ledger.memory import EvidenceCover, EvidenceTarget, LedgerMemory, goal_words, most_pieces

pytestmark = pytest.mark.unit


def scattered(seed: int) -> LedgerMemory:
    """A memory of many small pieces, in which names come up again and again."""
    chance, talk = random.Random(seed), Talk().user("Please mend parser_lists and the loader")
    names = [f"{chance.choice(('parser', 'loader', 'cache', 'view'))}_{n}" for n in range(120)]
    for _ in range(150):
        lines = [" ".join(chance.choices([*names, "because", "the", "loader"], k=chance.randrange(1, 14)))]
        lines += [f"def {chance.choice(names)}({chance.randrange(9_999)}): é" for _ in range(chance.randrange(6))]
        talk.ran("Read", {"file_path": f"/src/{chance.choice(names)}.py"}, "\n\n".join(lines))
    return talk.memory


@pytest.mark.parametrize("seed", range(6))
def test_the_choice_is_that_of_one_who_weighs_all(seed: int) -> None:
    memory = scattered(seed)
    facts = list(memory.facts)
    wanted = EvidenceTarget(frozenset(facts[::7]), frozenset(facts[::11]), goal_words(["the loader because"]))
    lazy, eager = (EvidenceCover(memory, wanted, most=most_pieces(2_000)) for _ in range(2))
    eager._bounds = [float("inf")] * len(memory.pieces)  # so nothing waits
    for units in (1_500, 700, 90, 2_000):
        assert lazy.take(units) == eager.take(units)
        assert lazy.chosen == eager.chosen
    assert len(eager.chosen) > 20
    assert len(lazy._candidates) <= len(eager._candidates)


def test_the_last_time_nothing_else_comes_out() -> None:
    """What doesn't fit needn't be weighed when nothing is taken later; what fits is the same."""
    memory = scattered(9)
    later, last = (EvidenceCover(memory, EvidenceTarget(), most=most_pieces(2_000)) for _ in range(2))
    assert later.take(3_000) == last.take(3_000, is_last=True)
    assert later.chosen == last.chosen
