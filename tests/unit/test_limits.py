"""How much may come in with one message (SEC-6)."""

from __future__ import annotations

import json

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import MalformedBlock, OverLimit
from perdure.settings import Settings
from perdure.transcript.checks import MessageLimits, check_limits, depth, is_deep
from perdure.transcript.messages import Message
from perdure.wiring import SessionOptions, memory_session

pytestmark = pytest.mark.unit


def nested(levels: int) -> Message:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return Message.of("assistant", [{"type": "tool_use", "id": "t", "name": "n", "input": {"a": value}}])


def test_each_limit_has_its_error() -> None:
    """SEC-6, CLI-5: what, how much, and what to do."""
    limits = MessageLimits(bytes=1_000, blocks=3, depth=10)
    check_limits(Message.of("user", "x" * 900), limits)
    check_limits(nested(8), limits)
    check_limits(Message.of("user", "[{" * 400), limits)
    with pytest.raises(OverLimit, match=r"has 1,0.. bytes, more than 1,000: .*max_message_bytes"):
        check_limits(Message.of("user", "x" * 1_000), limits)
    with pytest.raises(OverLimit, match=r"has 4 blocks, more than 3: .*max_message_blocks"):
        check_limits(Message.of("user", [{"type": "text", "text": "a"}] * 4), limits)
    with pytest.raises(OverLimit, match=r"block 0: JSON nested deeper than 10: .*max_json_depth"):
        check_limits(nested(9), limits)
    assert issubclass(OverLimit, MalformedBlock)


def test_what_no_parser_would_finish_is_refused() -> None:
    raw = b'{"type":"new","a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(OverLimit):
        check_limits(msgspec.structs.replace(nested(1), content=(msgspec.Raw(raw),)), MessageLimits())


def test_a_session_takes_nothing_over_the_limits() -> None:
    async def body() -> None:
        session = await memory_session(parts=SessionOptions(settings=Settings(max_json_depth=20)))
        with pytest.raises(OverLimit):
            await session.append(nested(30))
        assert not session.view.items
        await session.append(nested(10))

    anyio.run(body)


_VALUES = st.recursive(
    st.integers() | st.text(st.sampled_from('[]{}"\\é '), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[{"\\', max_size=3), inner, max_size=3),
    max_leaves=12,
)


def _deep(value: object) -> int:
    if isinstance(value, list):
        return 1 + max(map(_deep, value), default=0)
    if isinstance(value, dict):
        return 1 + max(map(_deep, value.values()), default=0)
    return 0


@given(_VALUES, st.booleans())
def test_depth_is_that_of_the_value(value: object, is_ascii: bool) -> None:
    raw, deep = json.dumps(value, ensure_ascii=is_ascii).encode(), _deep(value)
    assert depth(raw) == deep
    assert [is_deep(raw, limit) for limit in (0, 1, 2, 3, 5, 8)] == [deep > limit for limit in (0, 1, 2, 3, 5, 8)]
