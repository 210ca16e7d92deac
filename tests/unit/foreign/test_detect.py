"""Whose log a file is (ENG-6)."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from tests.unit.foreign.lines import jsonl, text, user

from perdure.errors import ForeignFormat
from perdure.logs.detect import detect, read_recordings

pytestmark = pytest.mark.unit

CLAUDE = jsonl({"type": "summary", "summary": "s", "leafUuid": "x"}, user("u", None, [text("hi")]))
CODEX = jsonl(
    {"timestamp": "t", "type": "session_meta", "payload": {"id": "i", "base_instructions": {"text": "x" * 3_000}}}
)
SWE = json.dumps(
    {"environment": "e", "trajectory": [{"action": "a", "observation": "o" * 3_000}], "history": [], "info": {}}
)
MINI = json.dumps(
    {"info": {"mini_version": "1", "submission": "x" * 3_000}, "messages": [], "trajectory_format": "mini-swe-agent-1"}
)
CHAT = json.dumps([{"role": "user", "content": "x" * 3_000}])
TAU = json.dumps([{"task_id": 0, "traj": [{"role": "user", "content": "x" * 3_000}]}], indent=2)

KNOWN = [
    (CLAUDE, "claude-code"),
    (b"\xef\xbb\xbf" + CLAUDE, "claude-code"),
    (b'{"type":"us\n' + CLAUDE, "claude-code"),
    (CODEX, "codex"),
    (SWE.encode(), "swe-agent"),
    (MINI.encode(), "mini-swe-agent"),
    (CHAT.encode(), "openai"),
    (TAU.encode(), "openai"),
]


@pytest.mark.parametrize(("data", "form"), KNOWN)
def test_by_content_whole_or_cut(data: bytes, form: str) -> None:
    assert detect(data, "any") == form
    assert detect(data[:1_000], "any") == form


@pytest.mark.parametrize(("data", "form"), KNOWN)
def test_the_reader_that_is_asked(data: bytes, form: str) -> None:
    assert {r.format for r in read_recordings(data, "any.json")} == {form}


@pytest.mark.parametrize(
    ("data", "like"),
    [
        (b"", "empty"),
        (b" \n\n", "blanks"),
        (b"hello", "text, but not JSON"),
        (b"\x89PNG\r\n\x1a\n\xff\xfe" * 50, "binary"),
        (b'{"a":1}', "JSON, but not of a log"),
        (b"[1,2]", "JSON, but not of a log"),
    ],
)
def test_what_no_reader_knows_is_refused_in_one_line(data: bytes, like: str) -> None:
    with pytest.raises(ForeignFormat) as caught:
        read_recordings(data, "some.file")
    said = str(caught.value)
    assert like in said and "some.file" in said and "Claude Code" in said and "\n" not in said


def test_a_damaged_journal_of_our_own_is_refused_by_what_is_wrong() -> None:
    """ENG-3: its format is known, so the line and the damage are named."""
    with pytest.raises(ForeignFormat, match=r"some\.file: line 1: checksum mismatch"):
        read_recordings(b'{"format":"perdure-journal","version":1,"crc":"00000000"}\n', "some.file")


@pytest.mark.parametrize("value", [b"x", b"\\", b'"a":1,', b"["])
def test_a_long_value_costs_no_more_than_its_bytes(value: bytes) -> None:
    """ENG-6, SEC-8: any folder may hold hundreds of megabytes that are no log: a picture in JSON, or a trap."""
    data = b'{"data":"' + value * (20_000_000 // len(value))
    tracemalloc.start()
    try:
        with pytest.raises(ForeignFormat):
            read_recordings(data, "data.json")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000_000


def test_a_cut_document_is_known_behind_a_long_first_value() -> None:
    """ENG-6: as far as a megabyte, whatever its strings hold."""
    data = b'{"environment":"' + b'\\\\ \\" {' * 100_000 + b'","trajectory":[{"action":"a","observation":"o"'
    assert detect(data, "x.traj") == "swe-agent"
