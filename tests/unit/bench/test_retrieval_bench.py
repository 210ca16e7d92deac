"""QLT-4, SPD-4: the retrieval bench: its form, its measures, its rankers over one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.bench import questions, retrieval, retrieval_timing
from holdfast.errors import BadSetting

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
    corpus = questions.read(written(tmp_path / "q.json", TURNS))
    assert corpus.kind == "turns"
    ((items, asked),) = corpus.groups()
    assert [item.id for item in items] == ["a1", "a2", "a3"]  # not those of another group
    assert [question.evidence for question in asked] == [("a2",), ("a3",)]


def test_other_names_of_fields_and_numbers_as_ids_are_taken(tmp_path: Path) -> None:
    value = {"corpus": [{"id": 1, "text": "x", "session": 3}], "queries": [{"question": "x?", "evidence_ids": [1]}]}
    corpus = questions.read(written(tmp_path / "q.json", value))
    assert corpus.questions[0].text == "x?"
    assert corpus.questions[0].evidence == ("1",)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("nope", "malformed"),
        ([], "not an object"),
        ({"corpus": []}, "queries"),
        ({"corpus": [{"text": "x"}], "queries": []}, "id"),
        ({"corpus": [{"id": "a"}, {"id": "a"}], "queries": []}, "two items have the id 'a'"),
        ({"corpus": [{"id": "a"}], "queries": [{"query": "q", "evidence": ["b"]}]}, "no question has evidence"),
    ],
)
def test_a_file_in_another_form_is_one_line_that_says_so(tmp_path: Path, value: Any, text: str) -> None:
    with pytest.raises(BadSetting, match=text) as caught:
        questions.read(written(tmp_path / "q.json", value))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("item", "kind"), [({"session": "s"}, "turns"), ({}, "sessions"), ({"description": "d"}, "memories")]
)
def test_the_kind_follows_from_the_items(tmp_path: Path, item: dict[str, str], kind: str) -> None:
    value = {"corpus": [{"id": "a", "text": "cats", **item}], "queries": [{"query": "cats?", "evidence": ["a"]}]}
    corpus = questions.read(written(tmp_path / "q.json", value))
    assert corpus.kind == kind
    rows = retrieval.run(corpus)
    assert {row.ranker for row in rows} >= {"random", "recency", "bm25", "stemmed", "full"}
    assert [row.recall_5 for row in rows if row.ranker == "full"] == [1.0]


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
    (row,) = retrieval.run(questions.read(written(tmp_path / "q.json", value)), ["full"])
    assert row.mrr == 1.0  # the newest of those before it


def test_an_unknown_ranker_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="ranker 'best'"):
        retrieval.run(questions.read(written(tmp_path / "q.json", TURNS)), ["best"])


def test_the_timing_makes_memories_up_and_asks_them() -> None:
    small, large = retrieval_timing.timed([50, 400])
    assert (small.memories, large.memories) == (50, 400)
    assert 0 < small.p50_ms <= small.p99_ms
    assert large.build_seconds > 0
