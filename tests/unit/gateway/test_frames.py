"""AWS event streams, read and written (GW-10)."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterable

import msgspec
import pytest

from perdure.errors import StreamCut
from perdure.gateway.anthropic import AnthropicProtocol
from perdure.gateway.frames import BrokenFrame, Frame, FrameBuffer, FramedReader, exception_frame, frame
from perdure.gateway.requests import ClientRequest
from perdure.testing import EventStream, FakeUpstream, ModelRules, say, tool_use
from perdure.testing.hosted import chunk_frame

pytestmark = pytest.mark.unit
MOST = 1024 * 1024


def events() -> list[bytes]:
    """An answer with a text and a call of `recall`, as events."""
    upstream = FakeUpstream(rules=ModelRules(window_tokens=100_000))
    asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    asked["tools"] = [{"name": "recall", "input_schema": {"type": "object"}}]
    said = upstream.respond(msgspec.json.encode(asked), reply=say("Grüße. " * 40, tool_use("recall", {"id": "x"})))
    return list(EventStream(said))


def reader(ours: str = "", most: int = MOST) -> FramedReader:
    incoming = ClientRequest(b"", {}, ())
    return FramedReader(AnthropicProtocol().reader(incoming, None, is_stream=True, most_bytes=most, ours=ours), most)


def pieces(data: bytes, seed: int) -> Iterable[bytes]:
    chance = random.Random(seed)
    while data:
        size = chance.choice((1, 3, 11, 60, 500))
        yield data[:size]
        data = data[size:]


def read(data: bytes) -> list[Frame]:
    return list(FrameBuffer(MOST).feed(data))


def kinds(data: bytes) -> list[str]:
    """The types of the events in some frames."""
    found = [base64.b64decode(msgspec.json.decode(one.payload)["bytes"]) for one in read(data)]
    return [msgspec.json.decode(event)["type"] for event in found]


def test_a_frame_is_the_one_of_the_specification() -> None:
    """GW-10: lengths, checksums and headers, byte for byte (AWS's own example: no headers, payload `{'foo':'bar'}`)."""
    known = bytes.fromhex("0000001d 00000000 fd528c5a 7b27666f6f273a27626172277d c365393 6".replace(" ", ""))
    assert frame({}, b"{'foo':'bar'}") == known
    (one,) = read(frame({":event-type": "chunk", "ü": "ö"}, b"payload"))
    assert one.headers == {":event-type": "chunk", "ü": "ö"} and one.payload == b"payload"


@pytest.mark.parametrize("seed", range(12))
def test_frames_leave_as_they_came_however_they_come(seed: int) -> None:
    """GW-10: what isn't changed keeps its bytes, padding included; its end waits, and the answer is read."""
    frames = [chunk_frame(event) for event in events()]
    one = reader()
    shown = b"".join(map(one.feed, pieces(b"".join(frames), seed)))
    assert shown == b"".join(frames[:-1]) and one.reply().tool_uses[0].name == "recall"
    assert kinds(one.end()) == ["message_stop"]


@pytest.mark.parametrize("seed", range(6))
def test_what_is_left_out_is_left_out_of_frames(seed: int) -> None:
    """GW-8, GW-10: a call of our tool never reaches the client; what it sees is whole frames."""
    one = reader("recall")
    shown = b"".join(map(one.feed, pieces(b"".join(map(chunk_frame, events())), seed))) + one.end()
    assert b"recall" not in b"".join(base64.b64decode(msgspec.json.decode(f.payload)["bytes"]) for f in read(shown))
    seen = kinds(shown)
    assert seen.count("content_block_start") == 1 and seen[-2:] == ["message_delta", "message_stop"]


def test_an_exception_passes_and_the_answer_is_not_whole() -> None:
    """GW-10: an error in the stream is the client's to see."""
    begun, failed = b"".join(map(chunk_frame, events()[:4])), exception_frame("throttlingException", "slow down")
    one = reader()
    assert one.feed(begun + failed) == begun + failed and one.end() == b""
    with pytest.raises(StreamCut):
        one.reply()


@pytest.mark.parametrize("at", [0, 5, 9, 14, 40, -1])
def test_what_is_no_frame_passes_unread(at: int) -> None:
    """REL-15, GW-10: a flipped bit, wherever it is, costs the reading and not the answer."""
    whole = bytearray(b"".join(map(chunk_frame, events())))
    length = int.from_bytes(whole[:4])
    whole[at if at >= 0 else length - 1] ^= 4
    one = reader()
    passed = b"".join(map(one.feed, pieces(bytes(whole), 3))) + one.end()
    assert passed == bytes(whole)
    with pytest.raises(StreamCut):
        one.reply()
    with pytest.raises(BrokenFrame):
        read(bytes(whole[:length]))


@pytest.mark.parametrize("payload", [b"{}", b'{"bytes": 7}', b'{"bytes": "a"}', b"\xff", b'{"bytes": "/w=="}'])
@pytest.mark.parametrize("at", [2, -1])
def test_a_payload_that_says_nothing_costs_the_reading_alone(payload: bytes, at: int) -> None:
    """REL-15, GW-10: it passes in its place, in front of what was held back for what comes behind it."""
    frames = list(map(chunk_frame, events()))
    odd = frame({":event-type": "chunk", ":message-type": "event"}, payload)
    place = at % len(frames)
    one = reader()
    seen = one.feed(b"".join([*frames[:place], odd, *frames[place:]])) + one.end()
    assert seen == b"".join([*frames[:place], odd, *frames[place:]])
    with pytest.raises(StreamCut):
        one.reply()


def test_what_follows_what_was_left_out_never_passes_unread() -> None:
    """GW-8, GW-10: else the client would see the rest of a call that it knows nothing of."""
    frames = list(map(chunk_frame, events()))
    start = next(n for n, event in enumerate(events()) if b'"tool_use"' in event and b"content_block_start" in event)
    one = reader("recall")
    before = one.feed(b"".join(frames[: start + 1]))
    assert before == b"".join(frames[:start])
    broken = bytearray(frames[start + 1])
    broken[-1] ^= 1
    assert one.feed(bytes(broken) + b"".join(frames[start + 2 :])) == b"" and one.is_broken


def test_a_frame_that_is_too_large_passes_unread() -> None:
    """SPD-8, GW-10: its length says so before it has come."""
    large = frame({":event-type": "chunk"}, b"x" * 300)
    one = reader(most=100)
    assert one.feed(large[:20]) == large[:20] and one.feed(large[20:]) == large[20:]


@pytest.mark.parametrize("seed", range(40))
def test_any_bytes_at_all_pass(seed: int) -> None:
    """REL-15: mutants of a stream never raise, and while nothing was left out, nothing is lost."""
    chance = random.Random(seed)
    whole = bytearray(b"".join(map(chunk_frame, events())))
    for _ in range(chance.randrange(1, 6)):
        whole[chance.randrange(len(whole))] = chance.randrange(256)
    one = reader()
    passed = b"".join(map(one.feed, pieces(bytes(whole), seed))) + one.end()
    assert passed[:-400] == bytes(whole)[: len(passed) - 400] and len(passed) > len(whole) - 60
