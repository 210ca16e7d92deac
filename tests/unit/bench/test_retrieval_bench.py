"""QLT-4, SPD-4: the retrieval bench: its form, its measures, its rankers over one file."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import BadSetting, ForeignFormat
from perdure.lab.bench import retrieval

pytestmark = pytest.mark.unit


def written(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


TURNS = {
    "corpus": [
        {"id": "a1", "session": "s1", "speaker": "Ann", "time": "2023-05-06", "text": "What did you paint?"},
        {"id": "a2", "session": "s1", "speaker": "Bob", "time": "2023-05-06", "text": "A sunset over the lake."},
        {"id": "a3", "session": "s2", "speaker": "Bob", "time": "2023-05-09", "text": "My dog is ill."},
        {"id": "b1", "group": "other", "session": "s3", "text": "Bob likes to paint dogs."},
    ],
    "queries": [
        {"query": "What did Bob paint?", "evidence": ["a2"], "group": "one"},
        {"query": "Whose dog is ill?", "evidence": ["a3", "gone"], "group": "one"},
        {"query": "no evidence here", "evidence": ["gone"]},
    ],
}


def test_a_file_is_read_with_its_groups_and_questions_without_evidence_are_left_out(tmp_path: Path) -> None:
    corpus = retrieval.read(written(tmp_path / "q.json", TURNS))
    assert corpus.kind == "turns"
    ((items, asked),) = corpus.groups()
    assert [item.id for item in items] == ["a1", "a2", "a3"]  # not those of another group
    assert [question.evidence for question in asked] == [("a2",), ("a3",)]


def test_other_names_of_fields_and_numbers_as_ids_are_taken(tmp_path: Path) -> None:
    value = {"corpus": [{"id": 1, "text": "x", "session": 3}], "queries": [{"question": "x?", "evidence_ids": [1]}]}
    corpus = retrieval.read(written(tmp_path / "q.json", value))
    assert corpus.questions[0].text == "x?"
    assert corpus.questions[0].evidence == ("1",)
    value["queries"] = [{"question": "x?", "evidence": "D1"}]
    value["corpus"] = [{"id": "D1", "text": "x"}]
    assert retrieval.read(written(tmp_path / "q.json", value)).questions[0].evidence == ("D1",), "a text isn't a list"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("nope", "malformed"),
        ([], "not an object"),
        ({"corpus": [{"id": "a", "text": "b"}], "queries": 3}, "lists corpus and queries"),
        ({"corpus": {"id": "a"}, "queries": []}, "lists corpus and queries"),
        ({"corpus": []}, "queries"),
        ({"corpus": [{"text": "x"}], "queries": []}, "id"),
        ({"corpus": [{"id": "a"}, {"id": "a"}], "queries": []}, "two items have the id 'a'"),
        ({"corpus": [{"id": "a"}], "queries": [{"query": "q", "evidence": ["b"]}]}, "no question has evidence"),
    ],
)
def test_a_file_in_another_form_is_one_line_that_says_so(tmp_path: Path, value: Any, text: str) -> None:
    with pytest.raises(ForeignFormat, match=text) as caught:
        retrieval.read(written(tmp_path / "q.json", value))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("item", "kind"), [({"session": "s"}, "turns"), ({}, "sessions"), ({"description": "d"}, "memories")]
)
def test_the_kind_follows_from_the_items(tmp_path: Path, item: dict[str, str], kind: str) -> None:
    value = {"corpus": [{"id": "a", "text": "cats", **item}], "queries": [{"query": "cats?", "evidence": ["a"]}]}
    corpus = retrieval.read(written(tmp_path / "q.json", value))
    assert corpus.kind == kind
    rows = retrieval.run(corpus)
    assert {row.ranker for row in rows} >= {"random", "recency", "bm25", "stemmed", "full"}
    assert [row.recall_5 for row in rows if row.ranker == "full"] == [1.0]


def test_turns_that_are_counted_within_their_session_stay_beside_each_other(tmp_path: Path) -> None:
    turns = [("a", "s", 1), ("b", "s", 0), ("c", "t", 0), ("d", "t", 1)]
    items = [{"id": i, "session": s, "order": o, "text": "x"} for i, s, o in turns]
    value = {"corpus": items, "queries": [{"query": "x?", "evidence": ["a"]}]}
    ((found, _),) = retrieval.read(written(tmp_path / "q.json", value)).groups()
    assert [item.id for item in found] == ["b", "a", "c", "d"]


def test_measures_of_an_answer() -> None:
    perfect = retrieval.measures(["a", "b", "c"], ["a", "b"])
    assert (perfect["recall_5"], perfect["ndcg_5"], perfect["hit_5"], perfect["mrr"]) == (1.0, 1.0, 1.0, 1.0)
    late = retrieval.measures([*"uvwxyz", "a"], ["a", "b"])
    assert (late["recall_5"], late["recall_10"], late["hit_5"]) == (0.0, 0.5, 0.0)
    assert late["mrr"] == pytest.approx(1 / 7)
    second = retrieval.measures(["x", "a"], ["a"])
    assert second["ndcg_5"] == pytest.approx(0.6309, abs=1e-4)
    assert set(retrieval.measures([], ["a"]).values()) == {0.0}


def test_questions_may_be_held_to_what_came_before(tmp_path: Path) -> None:
    items = [{"id": str(n), "order": n, "text": "fix the parser"} for n in range(4)]
    value = {"corpus": items, "queries": [{"query": "go on with the parser", "evidence": ["1"], "before": 2}]}
    (row,) = retrieval.run(retrieval.read(written(tmp_path / "q.json", value)), ["full"])
    assert row.mrr == 1.0  # the newest of those before it


def test_an_unknown_ranker_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="ranker 'best'"):
        retrieval.run(retrieval.read(written(tmp_path / "q.json", TURNS)), ["best"])


def test_the_timing_makes_memories_up_and_asks_them() -> None:
    small, large = retrieval.time_retrieval([50, 400])
    assert (small.memories, large.memories) == (50, 400)
    assert 0 < small.p50_ms <= small.p99_ms
    assert large.build_seconds > 0


def conversation(seed: int) -> dict[str, Any]:
    """Two people over twelve sessions, made up: what one did the other asks about; both do such things."""
    chance = random.Random(seed)
    deeds = (
        "painted baked visited bought repaired watched read cooked planted adopted lost sold joined left found".split()
    )
    things = "sunset bread museum bicycle lamp film novel curry tree puppy ring car choir club key".split()
    kinds = "old red small famous wooden French quiet broken huge new".split()
    filler = (
        "That sounds great!",
        "I'm so happy for you.",
        "Take care!",
        "How nice of you to say.",
        "We should talk soon.",
    )
    corpus: list[dict[str, Any]] = []
    queries: list[dict[str, Any]] = []
    for session in range(12):
        day = f"{chance.randrange(1, 12)}:05 pm on {chance.randrange(1, 28)} May, 2023"

        def say(who: str, text: str, session: int = session, day: str = day) -> str:
            number = f"D{session}:{len(corpus)}"
            corpus.append({"id": number, "session": str(session), "speaker": who, "time": day, "text": text})
            return number

        for _ in range(4):
            one, other = chance.sample(("Caroline", "Melanie"), 2)
            deed, thing, kind = chance.choice(deeds), chance.choice(things), chance.choice(kinds)
            say(other, f"Hey {one}, what have you {deed} lately?")
            answer = say(one, f"A {kind} {thing}, last week. {chance.choice(filler)}")
            say(other, chance.choice(filler))
            queries.append({"query": f"What {kind} thing had {one} {deed}?", "evidence": [answer]})
    return {"corpus": corpus, "queries": queries}


def test_a_made_up_conversation_of_two_is_found_better_with_each_step(tmp_path: Path) -> None:
    """The shape of LoCoMo, not its words: names in the questions, answers that don't repeat them, times in words."""
    wins: dict[str, float] = {}
    for seed in range(3):
        corpus = retrieval.read(written(tmp_path / "q.json", conversation(seed)))
        for row in retrieval.run(corpus, ["bm25", "neighbours", "full"]):
            wins[row.ranker] = wins.get(row.ranker, 0.0) + row.mrr / 3
    assert wins["full"] > wins["neighbours"]
    assert wins["full"] > wins["bm25"]
