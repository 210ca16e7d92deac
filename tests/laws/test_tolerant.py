"""ENG-1: any JSON block survives being recorded, shown and sent, byte for byte."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests import plans
from tests.tiers import examples
from tests.worlds import World

from perdure.context.request import to_request
from perdure.errors import MalformedBlock, PerdureError
from perdure.settings import Settings
from perdure.transcript.blocks import Block, Text, Thinking, check_sendable, one_line
from perdure.transcript.messages import Message, MessageId

pytestmark = pytest.mark.laws

# Calls and results need each other.
NEVER_SENT = ("tool_use", "tool_result", "web_search_tool_result")


def is_sendable(raw: bytes) -> bool:
    """Neither blank text nor unsigned thinking, which the API refuses; no call or result, which need each other."""
    value = Block(raw).value
    if isinstance(value, Text):
        return bool(value.text.strip())
    if isinstance(value, Thinking):
        return bool(value.signature)
    return Block(raw).type not in NEVER_SENT


def is_taken(raw: bytes, role: str) -> bool:
    """Whether a message of this role may hold the block; others are refused (ENG-7: tests/laws/test_checked.py)."""
    try:
        check_sendable(Block(raw), role)
    except MalformedBlock:
        return False
    return Block(raw).type not in ("compaction", "server_tool_use")  # shown as text once it was interrupted


def has_repeated_calls(*messages: Message) -> bool:
    """Whether two calls have one id, which a session refuses."""
    ids = [use.id for message in messages if message.agent_id is None for use in message.tool_uses]
    return len(set(ids)) < len(ids)


@examples(150)
@given(st.lists(plans.raw_blocks(), min_size=1, max_size=5), st.sampled_from(("user", "assistant")))
def test_a_block_goes_through_journal_view_and_request(raws: list[bytes], role: str) -> None:
    """ENG-1: the bytes said are the bytes recorded and the bytes sent, but for line breaks between tokens."""
    raws = [raw for raw in raws if is_taken(raw, role)]
    assume(raws)
    world = World(Settings())
    content = tuple(msgspec.Raw(one_line(raw)) for raw in raws)
    origin = "model" if role == "assistant" else "user"
    message = Message(id=MessageId("m"), role=role, content=content, origin=origin)  # type: ignore[arg-type]
    assume(not has_repeated_calls(message))
    world.append(message)
    world.restart()
    item = world.session.view.items[0]
    assert [block.raw for block in item.visible] == [one_line(raw) for raw in raws]
    parts = to_request(world.session.view, world.session.facts()).parts()
    sent = [part.raw for _, part in parts if part.position == 0]
    expected = [one_line(raw) for raw in raws if is_sendable(raw)]
    assert [raw for raw in sent if Block(raw).type not in NEVER_SENT] == expected


@examples(25)
@given(plans.messages(), plans.messages(identity="n"))
def test_any_messages_make_a_view(one: Message, two: Message) -> None:
    """ENG-1, ENG-7: no message that can be read stops a session, however odd: what isn't refused makes a view."""
    world = World(Settings(window_tokens=8_000), has_front=False)
    for message in (one, two):
        try:
            world.append(message)
        except PerdureError:
            continue
    world.restart()
    assert len(world.session.view.items) <= 2
    to_request(world.session.view, world.session.facts(), protocol="openai")
