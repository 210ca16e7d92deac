"""A stream on its way through: the same bytes, however they come in pieces (GW-1)."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import StreamCut
from holdfast.gateway.anthropic import AnthropicSide
from holdfast.gateway.openai import OpenAISide
from holdfast.gateway.reading import Incoming, Side
from holdfast.testing import EventStream, FakeUpstream, say, text, thinking, tool_use

pytestmark = pytest.mark.unit
ASKED = Incoming(b"{}", {"model": msgspec.Raw(b'"m"')}, ())


def answer() -> Any:
    upstream = FakeUpstream(script=[say(thinking("hm"), text("two words"), tool_use("Read", {"a": [1, {"b": "c"}]}))])
    body = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "x" * 4_000}]}
    return upstream.respond(msgspec.json.encode(body))


ANTHROPIC = b"".join(EventStream(answer()))
OPENAI = b"".join(EventStream(answer(), dialect="openai", include_usage=True))


def through(side: Side, stream: bytes, cuts: list[int], cap: int | None = None) -> tuple[bytes, Any]:
    reader = side.reader(ASKED, cap, is_stream=True)
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    out = b"".join(reader.take(stream[a:b]) for a, b in itertools.pairwise(places))
    assert len(out) < len(stream), "the end is held back until the answer is recorded"
    return out + reader.end(), reader


@given(st.lists(st.integers(0, len(ANTHROPIC)), max_size=8))
def test_the_bytes_of_a_message_stream_stay_what_they_are(cuts: list[int]) -> None:
    out, reader = through(AnthropicSide(), ANTHROPIC, cuts)
    assert out == ANTHROPIC
    assert [block.kind for block in reader.reply().blocks] == ["thinking", "text", "tool_use"]


@given(st.lists(st.integers(0, len(OPENAI)), max_size=8))
def test_the_bytes_of_a_chat_stream_stay_what_they_are(cuts: list[int]) -> None:
    out, reader = through(OpenAISide(), OPENAI, cuts)
    assert out == OPENAI
    assert reader.reply().text == "two words"


def test_line_ends_of_any_kind_and_comments_pass() -> None:
    stream = b": ping\r\n\r\n" + ANTHROPIC.replace(b"\n", b"\r\n")
    out, reader = through(AnthropicSide(), stream, [3, 17, 400])
    assert out == stream and reader.reply().text == "two words"


def test_only_usage_changes_when_the_meter_is_capped() -> None:
    """GW-2: all counts of input in one proportion; output as it is."""
    out, reader = through(AnthropicSide(), ANTHROPIC, [50, 500], cap=100)
    plain, shown = (
        [msgspec.json.decode(line[6:]) for line in stream.splitlines() if line.startswith(b"data: ")]
        for stream in (ANTHROPIC, out)
    )
    assert [e["type"] for e in plain] == [e["type"] for e in shown]
    for before, after in zip(plain, shown, strict=True):
        if before["type"] not in ("message_start", "message_delta"):
            assert before == after
    usage = shown[0]["message"]["usage"]
    total = sum(usage.get(n) or 0 for n in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"))
    assert 95 <= total <= 103
    assert reader.reply().usage.prompt_tokens > 900, "the session learns the truth"


def test_what_cannot_be_read_is_passed_on_unread() -> None:
    """REL-15."""
    stream = ANTHROPIC.replace(b'"index":1', b'"index":null')
    out, reader = through(AnthropicSide(), stream, [10])
    assert out == stream
    with pytest.raises(StreamCut):
        reader.reply()


def test_an_answer_without_its_end_is_no_answer() -> None:
    reader = AnthropicSide().reader(ASKED, None, is_stream=True)
    half = ANTHROPIC[: len(ANTHROPIC) // 2]
    assert reader.take(half) + reader.end() == half
    with pytest.raises(StreamCut):
        reader.reply()
