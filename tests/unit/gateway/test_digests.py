"""What messages are known by, whatever words a client uses for them (GW-2)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from perdure.gateway.anthropic import AnthropicProtocol
from perdure.gateway.openai import OpenAIProtocol
from perdure.gateway.requests import Unmanageable
from perdure.transcript.history import DigestLimits, LinkCache, NotDigestible, chain, chain_seed, digest

pytestmark = pytest.mark.unit
TEXT = {"type": "text", "text": "hello"}
CALL = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"n": 1, "path": "a", "opt": None}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "out"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([TEXT], [{"text": "hello", "type": "text"}]),
        ([TEXT], [{**TEXT, "cache_control": {"type": "ephemeral"}}]),
        ([TEXT], [{**TEXT, "citations": None}, {"type": "text", "text": " "}]),
        ([{"type": "thinking", "thinking": "hm", "signature": "s"}, TEXT], [TEXT]),
        ([CALL], [{**CALL, "input": {"path": "a", "n": 1.0, "opt": None}}]),
        ([RESULT], [{**RESULT, "content": [{"type": "text", "text": "out"}], "is_error": False}]),
        ([RESULT], [{**RESULT, "content": [{"type": "text", "text": "out", "cache_control": {"type": "ephemeral"}}]}]),
    ],
)
def test_the_same_in_other_words_has_the_same_digest(one: list[Any], other: list[Any]) -> None:
    assert digest("assistant", one) == digest("assistant", other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([TEXT], [{"type": "text", "text": "Hello"}]),
        ([TEXT, CALL], [CALL, TEXT]),
        ([CALL], [{**CALL, "input": {"n": 1, "path": "b", "opt": None}}]),
        ([CALL], [{**CALL, "input": {"n": 1, "path": "a"}}]),
        ([RESULT], [{**RESULT, "is_error": True}]),
        ([RESULT], [{**RESULT, "content": ""}]),
    ],
)
def test_something_else_has_another(one: list[Any], other: list[Any]) -> None:
    assert digest("user", one) != digest("user", other)
    assert digest("user", one) != digest("assistant", one)


def test_a_chain_tells_histories_apart_by_their_order_and_their_beginning() -> None:
    a, b = digest("user", [TEXT]), digest("assistant", [TEXT])
    start = chain_seed("tenant", "route", "anthropic", "")
    assert chain(start, [a, b])[:2] == chain(start, [a])
    assert chain(start, [a, b])[2] != chain(start, [b, a])[2]
    assert not set(chain(start, [a])) & set(chain(chain_seed("other", "route", "anthropic", ""), [a]))


def test_a_history_that_was_seen_is_not_read_again() -> None:
    """GW-3: only new messages are scanned. What is forgotten is read once more, and comes to the same."""
    raws = [msgspec.Raw(msgspec.json.encode({"role": "user", "content": f"m{n}"})) for n in range(20)]
    side, known, read = AnthropicProtocol(), LinkCache(most=15), list[int]()

    def reading(number: int) -> bytes:
        read.append(number)
        return side.digest(bytes(raws[number]), DigestLimits())

    first = known.chain(b"start", raws[:10], reading)
    assert len(read) == 10
    assert known.chain(b"start", raws[:12], reading)[:11] == first and len(read) == 12
    longer = known.chain(b"start", raws, reading)
    assert longer[:11] == first == chain(b"start", [side.digest(bytes(raw), DigestLimits()) for raw in raws[:10]])


def test_messages_beyond_the_limits_are_not_read() -> None:
    """SEC-6."""
    deep: Any = 1
    for _ in range(120):
        deep = [deep]
    with pytest.raises(NotDigestible, match="too_deep"):
        digest("user", [{"type": "odd", "x": deep}])
    with pytest.raises(NotDigestible, match="too_many_blocks"):
        digest("user", [TEXT] * 3, DigestLimits(blocks=2))
    side = AnthropicProtocol()
    for raw in (
        b'{"role":"user"}',
        b'{"role":"user","content":[1]}',
        b'{"role":"user","content":"\\ud800"}',
        b"[" * 5_000,
    ):
        with pytest.raises(Unmanageable):
            side.digest(raw, DigestLimits())


def test_chat_messages_come_to_the_same_as_the_answers_they_were() -> None:
    """A client of Chat Completions says the model's answer back as it got it, or as a plain object."""
    call = {"id": "c1", "type": "function", "function": {"name": "Read", "arguments": '{"path": "a"}'}}
    side = OpenAIProtocol()

    def of(message: dict[str, Any]) -> bytes:
        return side.digest(msgspec.json.encode(message), DigestLimits())

    short = {"role": "assistant", "content": "hi", "tool_calls": [call]}
    long = {**short, "refusal": None, "annotations": [], "audio": None, "function_call": None}
    parts = {**short, "content": [{"type": "text", "text": "hi"}]}
    assert of(short) == of(long) == of(parts)
    other = {**call, "function": {"name": "Read", "arguments": '{ "path":"a" }'}}
    assert of({**short, "tool_calls": [other]}) == of(short)
    broken = {**call, "function": {"name": "Read", "arguments": "{oops"}}
    assert of({**short, "tool_calls": [broken]}) != of(short)
