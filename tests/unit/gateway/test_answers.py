"""A stream on its way through: the same bytes, however they come in pieces (GW-1)."""

from __future__ import annotations

import itertools
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.adapters.providers.anthropic import AnthropicReplyBuilder
from perdure.errors import StreamCut
from perdure.gateway import answers
from perdure.gateway.anthropic import AnthropicProtocol
from perdure.gateway.openai import OpenAIProtocol
from perdure.gateway.requests import ClientProtocol, ClientRequest
from perdure.gateway.responses import ResponsesProtocol
from perdure.testing import EventStream, FakeUpstream, say, text, thinking, tool_use

pytestmark = pytest.mark.unit
ASKED = ClientRequest(b"{}", {"model": msgspec.Raw(b'"m"')}, ())


def answer() -> Any:
    upstream = FakeUpstream(script=[say(thinking("hm"), text("two words"), tool_use("Read", {"a": [1, {"b": "c"}]}))])
    body = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "x" * 4_000}]}
    return upstream.respond(msgspec.json.encode(body))


ANTHROPIC = b"".join(EventStream(answer()))
OPENAI = b"".join(EventStream(answer(), dialect="openai", include_usage=True))


def through(side: ClientProtocol, stream: bytes, cuts: list[int], cap: int | None = None) -> tuple[bytes, Any]:
    reader = side.reader(ASKED, cap, is_stream=True)
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    out = b"".join(reader.feed(stream[a:b]) for a, b in itertools.pairwise(places))
    return out + reader.end(), reader


@given(st.lists(st.integers(0, len(ANTHROPIC)), max_size=8))
def test_the_bytes_of_a_message_stream_stay_what_they_are(cuts: list[int]) -> None:
    out, reader = through(AnthropicProtocol(), ANTHROPIC, cuts)
    assert out == ANTHROPIC
    assert len(AnthropicProtocol().reader(ASKED, None, is_stream=True).feed(ANTHROPIC)) < len(ANTHROPIC), (
        "the end is held back until the answer is recorded"
    )
    assert [block.type for block in reader.reply().blocks] == ["thinking", "text", "tool_use"]


@given(st.lists(st.integers(0, len(OPENAI)), max_size=8))
def test_the_bytes_of_a_chat_stream_stay_what_they_are(cuts: list[int]) -> None:
    out, reader = through(OpenAIProtocol(), OPENAI, cuts)
    assert out == OPENAI
    assert reader.reply().text == "two words"


def test_line_ends_of_any_kind_and_comments_pass() -> None:
    stream = b": ping\r\n\r\n" + ANTHROPIC.replace(b"\n", b"\r\n")
    out, reader = through(AnthropicProtocol(), stream, [3, 17, 400])
    assert out == stream and reader.reply().text == "two words"


def test_only_usage_changes_when_the_meter_is_capped() -> None:
    """GW-2: all counts of input in one proportion; output as it is."""
    out, reader = through(AnthropicProtocol(), ANTHROPIC, [50, 500], cap=100)
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
    out, reader = through(AnthropicProtocol(), stream, [10])
    assert out == stream
    with pytest.raises(StreamCut):
        reader.reply()


DEEP = b"[" * 3_000 + b"]" * 3_000
STREAMED: dict[str, tuple[bytes, ...]] = {
    "anthropic": (b'{"type":"message_start","message":%b}', b'{"type":"content_block_delta","index":0,"delta":%b}'),
    "openai": (b'{"choices":%b}', b'{"choices":[{"index":0,"delta":{"tool_calls":%b}}]}'),
    "responses": (
        b'{"type":"response.output_item.done","output_index":0,"item":%b}',
        b'{"type":"response.failed","response":{"error":%b}}',
        b'{"type":"error","error":%b}',
    ),
}


@pytest.mark.parametrize("odd", [DEEP, b"null", b"1", b'""', b"[]", b"{}", b"[[]]", b'{"message":"no"}', b"1e308"])
@pytest.mark.parametrize("side", [AnthropicProtocol(), OpenAIProtocol(), ResponsesProtocol()], ids=lambda s: s.protocol)
def test_no_event_of_any_shape_ends_the_answer(side: ClientProtocol, odd: bytes) -> None:
    """REL-15, SEC-6: what an upstream says reaches the client, whatever the reader makes of it; also what failed."""
    for event in (*STREAMED[side.protocol], b"%b"):
        stream = b"data: " + event.replace(b"%b", odd) + b"\n\ndata: {}\n\n"
        assert through(side, stream, [])[0] == stream


@pytest.mark.parametrize("body", [DEEP, b'{"usage":%b}' % DEEP, b'{"choices":[]}', b'{"choices":"","usage":{}}', b"[]"])
@pytest.mark.parametrize("side", [AnthropicProtocol(), OpenAIProtocol(), ResponsesProtocol()], ids=lambda s: s.protocol)
def test_no_body_of_any_shape_ends_the_answer(side: ClientProtocol, body: bytes) -> None:
    """REL-15, SEC-6: likewise."""
    reader = side.reader(ASKED, 10, is_stream=False, most_bytes=100_000, ours="recall")
    assert reader.feed(body) + reader.end() == body


def test_an_answer_without_its_end_is_no_answer() -> None:
    reader = AnthropicProtocol().reader(ASKED, None, is_stream=True)
    half = ANTHROPIC[: len(ANTHROPIC) // 2]
    assert reader.feed(half) + reader.end() == half
    with pytest.raises(StreamCut):
        reader.reply()


@pytest.mark.parametrize("chunk", [1, 7, 64 * 1024, 10_000_000])
def test_no_byte_is_looked_through_twice(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """SPD-8: work on a stream is linear in its bytes, however large its events are and however they are cut."""
    looked = 0

    class Counting:
        def search(self, window: bytes, start: int) -> re.Match[bytes] | None:
            nonlocal looked
            found = real.search(window, start)
            looked += (found.end() if found else len(window)) - start
            return found

    real = answers._END
    monkeypatch.setattr(answers, "_END", Counting())
    size = 20_000 if chunk < 10 else 900_000
    stream = b"data: {}\n\n" * 2_000 + b'event: x\ndata: {"a":"' + b"y" * size + b'"}\n\n' + ANTHROPIC
    reader = AnthropicProtocol().reader(ASKED, None, is_stream=True)
    out = b"".join(reader.feed(stream[n : n + chunk]) for n in range(0, len(stream), chunk)) + reader.end()
    assert out == stream and reader.reply().text == "two words"
    assert looked <= len(stream) * (1 + 2 / chunk) + 10


@pytest.mark.parametrize("has_end", [True, False])
@pytest.mark.parametrize("side", [AnthropicProtocol(), OpenAIProtocol()], ids=["anthropic", "openai"])
def test_an_event_too_large_to_be_read_is_passed_on_as_it_comes(side: ClientProtocol, has_end: bool) -> None:
    """SPD-8, REL-15: the client gets every byte, at once; nothing of it is kept, and the answer isn't recorded."""
    stream = ANTHROPIC if isinstance(side, AnthropicProtocol) else OPENAI
    large = b'data: {"type":"ping","x":"' + b"y" * 3_000_000 + (b'"}\n\n' if has_end else b"")
    reader = side.reader(ASKED, 10, is_stream=True, most_bytes=100_000)
    out, waiting = b"", 0
    for piece in (*(large[n : n + 65_536] for n in range(0, len(large), 65_536)), stream):
        before = len(out)
        out += reader.feed(piece)
        waiting = max(waiting, waiting + len(piece) - (len(out) - before))
    assert out == large + stream and reader.end() == b"" and waiting <= 200_000
    with pytest.raises(StreamCut):
        reader.reply()


@pytest.mark.parametrize("side", [AnthropicProtocol(), OpenAIProtocol()], ids=["anthropic", "openai"])
def test_an_answer_too_large_to_be_read_is_passed_on_as_it_comes(side: ClientProtocol) -> None:
    """SPD-8, REL-15: likewise one that is no stream."""
    reader = side.reader(ASKED, 10, is_stream=False, most_bytes=1_000)
    assert reader.feed(b"{" * 900) == b""
    assert reader.feed(b"}" * 200) == b"{" * 900 + b"}" * 200
    assert reader.feed(b" ") == b" " and reader.end() == b""
    with pytest.raises(StreamCut):
        reader.reply()


def test_many_small_pieces_make_one_text_once() -> None:
    """SPD-8: the text of a block is put together at its end, not with each piece."""
    assembly = AnthropicReplyBuilder()
    feed = [{"type": "message_start", "message": {"id": "m"}}]
    feed += [{"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "so "}}]
    piece = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word "}}
    for event in (*feed, *[piece] * 1_000):
        list(assembly.feed(event))
    assert assembly._open[0]["text"] == "so ", "nothing was copied yet"
    list(assembly.feed({"type": "content_block_stop", "index": 0}))
    list(assembly.feed({"type": "message_stop"}))
    assert assembly.reply().text == "so " + "word " * 1_000


def recalling(dialect: str) -> bytes:
    """An answer that recalls between its words and a call of the client's."""
    calls = tool_use("recall", {"query": "x"}), tool_use("Read", {"a": 1})
    upstream = FakeUpstream(script=[say(text("two words"), *calls)])
    body = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "x"}]}
    reply = upstream.respond(msgspec.json.encode(body))
    return b"".join(
        EventStream(reply, dialect=dialect, include_usage=True) if dialect == "openai" else EventStream(reply)
    )


@pytest.mark.parametrize("side", [AnthropicProtocol(), OpenAIProtocol()])
@given(cuts=st.lists(st.integers(0, 2_000), max_size=8))
def test_a_hidden_call_leaves_no_trace(side: ClientProtocol, cuts: list[int]) -> None:
    """GW-8: what stands behind it is counted through, however the stream is cut; the reply has all of it."""
    stream = recalling(side.protocol)
    reader = side.reader(ASKED, None, is_stream=True, most_bytes=10_000, ours="recall")
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    out = b"".join(reader.feed(stream[a:b]) for a, b in itertools.pairwise(places)) + reader.end()
    events = [msgspec.json.decode(line[6:]) for line in out.splitlines() if line.startswith(b"data: {")]
    if side.protocol == "anthropic":
        assert [event["index"] for event in events if event["type"] == "content_block_start"] == [0, 1]
    else:
        deltas = [choice["delta"] for event in events for choice in event["choices"]]
        assert {call["index"] for delta in deltas for call in delta.get("tool_calls", ())} == {0}
    assert b"recall" not in out and b"Read" in out
    assert [use.name for use in reader.reply().tool_uses] == ["recall", "Read"]


@pytest.mark.parametrize("side", [AnthropicProtocol(), OpenAIProtocol()])
def test_what_cannot_be_read_behind_a_hidden_call_breaks_off(side: ClientProtocol) -> None:
    """GW-8, REL-15: passed on unread it would show what was hidden, and count otherwise than what was shown."""
    stream = recalling(side.protocol)
    at = stream.index(b"Read")
    reader = side.reader(ASKED, None, is_stream=True, most_bytes=10_000, ours="recall")
    out = reader.feed(stream[: stream.rindex(b"\n\n", 0, at) + 2])
    out += reader.feed(b"data: {broken\n\n") + reader.feed(stream[at:]) + reader.end()
    assert reader.is_broken and b"recall" not in out and b"Read" not in out
    with pytest.raises(StreamCut):
        reader.reply()
