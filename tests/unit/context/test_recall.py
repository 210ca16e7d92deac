"""RCL-1, RCL-2, SEC-6: what a recall asks for, what it gives, and what it says of the rest."""

from __future__ import annotations

import re
import sys
import time

import pytest

from perdure.recall.originals import Original, Originals
from perdure.recall.queries import BadRecall, RecallRequest, range_of, recalled_part
from perdure.text.patterns import compile_pattern
from perdure.transcript.messages import BlobId, Message, MessageId, ToolUseId
from perdure.transcript.records import Collapsed, Compacted, Offloaded, StoredOriginal

pytestmark = pytest.mark.unit

TEXT = "\n".join(f"line {number}" for number in range(1, 101))
BLOB = "ab" * 32


def original(text: str = TEXT) -> Original:
    return Original("toolu_1", "result", "result of Bash", text, (b"{}",))


def said() -> list[Message]:
    use = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "make"}}
    pending = {"type": "tool_use", "id": "toolu_2", "name": "Read", "input": {"path": "a"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "all\nwell", "cache_control": None}
    return [
        Message.of("user", "Build it", id=MessageId("message-1")),
        Message.of("assistant", [{"type": "text", "text": "Now"}, use], id=MessageId("message-2")),
        Message.of("user", [result], id=MessageId("message-3")),
        Message.of("assistant", [pending], id=MessageId("message-4")),
    ]


def known() -> Originals:
    messages = said()
    stored = StoredOriginal(tool_use_id=ToolUseId("toolu_1"), blob=BlobId(BLOB), bytes=3)
    summary = Message.of("user", "a record", id=MessageId("summary-b"), origin="summary")
    folded = Collapsed(id="collapse-1", first=messages[1].id, last=messages[2].id, projection=summary)
    boundary = Compacted(
        id="boundary-1", trigger="manual", strategy="ledger", summary=(summary,), kept=(messages[3].id,)
    )
    return Originals([*messages, Offloaded(stored=(stored,)), folded, boundary])


@pytest.mark.parametrize(
    ("identity", "kind", "text"),
    [
        ("toolu_1", "result", "all\nwell"),
        (BLOB, "result", "all\nwell"),
        ("message-1", "message", "Build it"),
        ("toolu_2", "call", "[call toolu_2] Read\npath: a"),
        ("summary-b", "summary", "a record"),
    ],
)
def test_every_kind_of_id_is_found(identity: str, kind: str, text: str) -> None:
    found = known().find(identity)
    assert found is not None and (found.kind, found.text) == (kind, text)


def test_a_boundary_and_a_collapse_stand_for_messages() -> None:
    boundary, folded = known().find("boundary-1"), known().find("collapse-1")
    assert boundary is not None and "Build it" in boundary.text and "id message-3" in boundary.text
    assert "message-4" not in boundary.text, "what was kept didn't leave"
    assert folded is not None and "2 messages" in folded.what and "all\nwell" in folded.text


def test_bytes_are_those_that_came() -> None:
    found = known().find("toolu_1")
    assert found is not None and found.raw == (said()[2].blocks[0].raw,)


def test_a_beginning_is_enough_when_it_is_long_and_unique() -> None:
    assert known().matching_ids(BLOB[:8]) == [BLOB]
    assert known().matching_ids("bound") == [], "too short to mean anything"
    assert len(known().matching_ids("message-")) == 4
    assert known().find("nothing") is None


@pytest.mark.parametrize(
    ("text", "expected"), [("7", (7, 7)), ("10-20", (10, 20)), (" 3 - ", (3, None)), ("4..9", (4, 9)), ("4,9", (4, 9))]
)
def test_ranges(text: str, expected: tuple[int, int | None]) -> None:
    assert range_of(text, what="lines") == expected


@pytest.mark.parametrize("text", ["", "a", "0", "5-2", "-3", "1-2-3"])
def test_ranges_that_mean_nothing(text: str) -> None:
    with pytest.raises(BadRecall, match="lines"):
        range_of(text, what="lines")


def test_what_fits_is_whole() -> None:
    got = recalled_part(original(), RecallRequest(id="toolu_1"))
    assert got.is_whole and got.body == TEXT and got.left_out == ""
    assert got.framed() == f"[recalled toolu_1: result of Bash; 100 lines, {len(TEXT)} characters]\n{TEXT}"


def test_what_does_not_fit_says_how_to_go_on() -> None:
    """The parts that the notes name make up the whole."""
    wanted, parts = RecallRequest(id="toolu_1", limit_chars=300), []
    while True:
        got = recalled_part(original(), wanted)
        parts.append(got.body)
        if not got.left_out:
            break
        lines = re.search(r'lines "([0-9-]+)"', got.left_out)
        assert lines is not None
        wanted = RecallRequest(id="toolu_1", limit_chars=300, lines=range_of(lines[1], what="lines"))
    assert "\n".join(parts) == TEXT and len(parts) > 2


def test_a_line_that_is_too_long_is_given_by_characters() -> None:
    text = "short\n" + "x" * 1_000 + "\nend"
    first = recalled_part(original(text), RecallRequest(id="i", lines=(2, None), limit_chars=400))
    assert first.body == "x" * 400 and first.chars == (7, 406)
    assert 'chars "407-806"' in first.left_out
    assert recalled_part(original(text), RecallRequest(id="i", chars=(407, 806), limit_chars=400)).body == text[406:806]


def test_lines_and_characters_beyond_the_end() -> None:
    with pytest.raises(BadRecall, match="100 lines"):
        recalled_part(original(), RecallRequest(id="i", lines=(101, None)))
    with pytest.raises(BadRecall, match="characters"):
        recalled_part(original(), RecallRequest(id="i", chars=(10_000, None)))
    assert recalled_part(original(""), RecallRequest(id="i")).body == ""


def test_matching_lines_come_with_their_numbers() -> None:
    got = recalled_part(original(), RecallRequest(id="i", pattern=r"^line \d?7$"))
    assert got.body.splitlines()[:2] == ["7: line 7", "17: line 17"] and got.matches == 10
    some = recalled_part(original(), RecallRequest(id="i", pattern="line", limit_chars=50))
    assert "95 of 100 matching lines left out" in some.left_out and 'lines "6-"' in some.left_out
    assert "no line matches" in recalled_part(original(), RecallRequest(id="i", pattern="nowhere")).left_out


def test_a_pattern_cannot_be_made_slow() -> None:
    """SEC-6: this one takes the standard library's engine longer than the universe is old."""
    start = time.monotonic()
    assert compile_pattern("(a+)+$").find("a" * 50_000 + "b") is None
    assert time.monotonic() - start < 5


def test_what_is_no_pattern_is_taken_as_it_is_written() -> None:
    got = recalled_part(original("f(x\ny"), RecallRequest(id="i", pattern="f(x"))
    assert got.body == "1: f(x" and "as it is written" in got.left_out
    assert "as it is written" in compile_pattern(r"(?<=a)b").note, "look-behind isn't linear"


def test_without_the_engine_patterns_are_literal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    pattern = compile_pattern("a.c")
    assert pattern.find("xa.c") == (1, 4) and pattern.find("abc") is None and "google-re2" in pattern.note
