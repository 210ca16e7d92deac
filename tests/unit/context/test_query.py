"""RCL-1, SES-2: the words of a query and of a text."""

from __future__ import annotations

import json

import pytest

from perdure.recall.queries import SNIPPET_CHARS, CountedWords, best_spot, camel_parts, space_unspaced_scripts, terms_of
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.texts import pieces

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("foo_bar", [("foo", "bar")]),
        ("src/view.py a.b", [("src", "view", "py"), ("a", "b")]),
        ('"two words" three', [("two", "words"), ("three",)]),
        ("GRÖSSE Ärger", [("grosse",), ("arger",)]),
        ("漢字", [("漢", "字")]),
        ("-- ?! _", []),
        ("twice Twice", [("twice",)]),
    ],
)
def test_terms(query: str, words: list[tuple[str, ...]]) -> None:
    assert [term.words for term in terms_of(query)] == words


def test_names_are_taken_apart() -> None:
    assert camel_parts("call parseHTTPResponse, not Word or snake_case") == "parse HTTP Response"
    assert space_unspaced_scripts("a漢字b") == "a 漢  字 b"


def test_scores_without_an_index_find_parts_wholes_and_forms() -> None:
    texts = ["The errors of parse_line", "parseLine failed", "nothing", "漢字を読む"]
    for query, expected in (("error", 0), ("parse_line", 0), ("line", 0), ("fail", 1), ("字を", 3)):
        scores = [score for score, _ in CountedWords.of(texts, terms_of(query)).scores()]
        assert scores[expected] > 0 and scores[2] == 0, query


def test_of_a_long_line_the_part_is_shown_where_the_words_stand_together() -> None:
    """RCL-1: a result in JSON is one line, whatever it says; the rarest of the words decides, of equals the first."""
    rows = [f"crate {number} holds KX-{number * 7919 % 10_000}-QY" for number in range(1_000, 1_400)]
    line = json.dumps({"output": "\n".join(rows)})
    shown = best_spot(line, terms_of("crate 1217")).snippet
    assert rows[217] in shown and len(shown) <= SNIPPET_CHARS + 1
    assert rows[0] in best_spot(line, terms_of("crate")).snippet
    assert best_spot("nothing of it " * 100, terms_of("crate")).snippet.startswith("nothing of it")


def test_the_best_line_is_shown() -> None:
    spot = best_spot("one\ntwo words\nfind foo_bar here\nfour", terms_of("foo_bar"))
    assert (spot.line, spot.offset) == (3, 14) and spot.snippet.startswith("find foo_bar here")
    long = best_spot("x " * 500 + "needle " + "y " * 500, terms_of("needle"))
    assert "needle" in long.snippet and len(long.snippet) <= 241


def test_pieces_leave_out_what_nobody_looks_for() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "SIGNATURE"},
        {"type": "tool_use", "id": "t", "name": "Edit", "input": {"path": "a.py", "edits": [{"new": "x\ny"}]}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "PICTURE"}},
    ]
    (piece,) = pieces(Message.of("assistant", blocks, id=MessageId("m")), {})
    assert "hm" in piece.text and "path: a.py" in piece.text and "new: x\ny" in piece.text and piece.tool == "Edit"
    assert "SIGNATURE" not in piece.text and "PICTURE" not in piece.text
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "done"}]}
    (answer,) = pieces(Message.of("user", [result], id=MessageId("n")), {"t": "Edit"})
    assert (answer.recall_id, answer.role, answer.tool, answer.text) == ("t", "tool", "Edit", "done")
