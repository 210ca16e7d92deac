"""MEM-15: turns are ranked as their length wants it."""

from __future__ import annotations

import itertools
import random

import pytest

from perdure.recall.turns import BRIEF_CHARS, SHORT_CHARS, DialogueIndex, DialogueTurn, TurnLengths

WORDS = [f"{a}{b}" for a in ("stone", "river", "cloud", "paper", "glass") for b in ("ward", "mark", "line", "fold")]


def turn(number: int, text: str, *, speaker: str = "", session: str = "s", time: str = "") -> DialogueTurn:
    return DialogueTurn(id=str(number), text=text, session=session, speaker=speaker, time=time)


def best(index: DialogueIndex, query: str) -> list[str]:
    scores = index.scores(query)
    return [index.turns[n].id for n in sorted(range(len(scores)), key=lambda n: -scores[n]) if scores[n]]


def chat(*, long_answers: bool) -> DialogueIndex:
    """Ten questions with answers, in which the answers speak of everything that is asked anywhere."""
    chance = random.Random(1)
    found = []
    for n in range(0, 20, 2):
        found.append(turn(n, f"My {WORDS[n]} is kept in the {WORDS[n + 1]} room, help me plan.", speaker="user"))
        length = 300 if long_answers else 4
        found.append(turn(n + 1, " ".join(chance.choices(WORDS, k=length)), speaker="assistant"))
    return DialogueIndex(found)


def test_what_somebody_says_in_a_line_stands_above_answers_of_pages_that_hold_its_words() -> None:
    index = chat(long_answers=True)
    for n in range(0, 20, 2):
        assert best(index, f"Where is my {WORDS[n]} kept, in which {WORDS[n + 1]} room?")[0] == str(n)


def test_a_word_counts_less_the_longer_its_speaker_talks_and_the_briefest_is_heard_in_full() -> None:
    lengths = TurnLengths()
    for _ in range(9):
        lengths.add("user", 2 * BRIEF_CHARS)
        lengths.add("answer", 4 * BRIEF_CHARS)
        lengths.add("tool", 40 * BRIEF_CHARS)
    lengths.add("hardly ever there", 1)
    voices = lengths.voices()
    assert voices["user"] == voices["hardly ever there"] == 1
    assert voices["answer"] == pytest.approx(0.5)
    assert voices["tool"] == pytest.approx(0.05)


def test_nobody_is_heard_less_who_keeps_it_brief() -> None:
    lengths = TurnLengths()
    for chars in (10, BRIEF_CHARS):
        lengths.add(str(chars), chars)
    assert set(lengths.voices().values()) == {1.0}


def test_neighbours_and_length_count_by_how_long_turns_are_without_a_jump() -> None:
    def measured(chars: int) -> tuple[float, float]:
        lengths = TurnLengths()
        for _ in range(5):
            lengths.add("", chars)
        return lengths.shortness, lengths.length_share

    found = [measured(chars) for chars in range(SHORT_CHARS, 20 * SHORT_CHARS, 10)]
    assert found[0] == pytest.approx((1.0, 0.4))
    assert all(a[0] > b[0] and a[1] < b[1] for a, b in itertools.pairwise(found))
    assert all(a[0] - b[0] < 0.1 for a, b in itertools.pairwise(found))
    assert found[-1][1] > 0.73


def test_where_turns_are_short_an_answer_is_found_by_what_it_answers_and_hardly_where_they_are_long() -> None:
    def gained(filler: str) -> float:
        index = DialogueIndex(
            [
                turn(1, f"What did you paint? {filler}", speaker="a"),
                turn(2, f"A sunset. {filler}", speaker="b"),
                *(turn(n, f"Something else. {filler}", speaker="ab"[n % 2], session="t") for n in range(3, 12)),
            ]
        )
        asked, answered = index.scores("paint")[:2]
        return answered / asked

    assert gained("") > 3 * gained("And so it went on and on for the whole long day. " * 40) > 0


def test_turns_come_one_by_one_and_sessions_may_take_turns() -> None:
    said = [turn(n, f"{WORDS[n]} and {WORDS[n + 1]}", session=f"s{n % 2}", speaker="ab"[n % 2]) for n in range(12)]
    grown = DialogueIndex([])
    for one in said:
        grown.add(one)
        grown.scores(WORDS[3])
    in_order = sorted(said, key=lambda one: (one.session, int(one.id)))
    whole = DialogueIndex(in_order)
    by_id = dict(zip((one.id for one in in_order), whole.scores(f"{WORDS[3]} {WORDS[6]}"), strict=True))
    for one, score in zip(said, grown.scores(f"{WORDS[3]} {WORDS[6]}"), strict=True):
        assert score == pytest.approx(by_id[one.id])


def test_an_empty_index_and_a_question_without_words_find_nothing() -> None:
    assert DialogueIndex([]).scores("anything") == []
    assert DialogueIndex([turn(1, "Something.")]).scores("of the") == [0.0]
