"""Bodies of which only what is new is read: the same result as reading all of it (GW-3)."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.gateway import turns
from perdure.gateway.anthropic import AnthropicProtocol
from perdure.gateway.requests import (
    BodyCache,
    MessageSlices,
    ParsedBody,
    Unmanageable,
    taken_apart,
)
from perdure.gateway.responses import ResponsesProtocol
from perdure.gateway.turns import TurnMaker
from perdure.transcript.history import DigestLimits, chain

pytestmark = pytest.mark.unit
SEED = b"seed"


def again(bodies: BodyCache, seed: bytes, body: bytes) -> ParsedBody:
    """A body as the gateway takes it apart that knows others."""
    return taken_apart(body, bodies.seen(seed, body))


def links_of(taken: ParsedBody) -> list[bytes]:
    """Links that tell which bytes they were made of."""
    return chain(SEED, [bytes(raw) for raw in taken.messages])


def body_of(messages: list[Any], *, order: str = "front", space: str = "", **fields: Any) -> bytes:
    """A body, with its messages first or last among the fields."""
    comma = f"{space},{space}"
    array = f"[{space}{comma.join(msgspec.json.encode(m).decode() for m in messages)}{space}]"
    rest = [f'"{name}":{space}{msgspec.json.encode(value).decode()}' for name, value in fields.items()]
    parts = [f'"messages"{space}:{space}{array}', *rest] if order == "front" else [*rest, f'"messages":{array}']
    return f"{{{space}{comma.join(parts)}{space}}}".encode()


def told(number: int, mark: bool = False) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "text", "text": f'say "messages": [{number}] ]}} {{ \\ ,' * (number % 3 + 1)}
    if mark:
        block["cache_control"] = {"type": "ephemeral"}
    return {"role": "assistant" if number % 2 else "user", "content": [block]}


@pytest.mark.parametrize("space", ["", " ", "\n\t "])
@pytest.mark.parametrize("order", ["front", "back"])
def test_a_growing_history_is_read_from_where_it_grew(order: str, space: str) -> None:
    """Whatever stands around it, fields and messages are those of a whole reading, and only what is new is read."""
    bodies = BodyCache()
    for count in range(1, 12):
        history = [told(n, mark=n >= count - 2) for n in range(count)]  # breakpoints wander with the end
        tools = [{"name": "t", "input_schema": {"type": "object"}}]
        body = body_of(history, order=order, space=space, model=f"m{count % 3}", system="s" * count, tools=tools)
        taken = again(bodies, SEED, body)
        whole = taken_apart(body)
        assert [bytes(raw) for raw in taken.messages] == [bytes(raw) for raw in whole.messages]
        assert next(iter(taken.messages[-1:])) == taken.messages[-1]
        same = {k: bytes(v) for k, v in taken.fields.items() if k != "messages"}
        assert same == {k: bytes(v) for k, v in whole.fields.items() if k != "messages"}
        assert list(taken.links) == links_of(whole)[: len(taken.links)]
        if order == "front" and count > 3:
            assert len(taken.links) - 1 == count - 3, "all but the two whose breakpoints moved, and the new one"
        bodies.keep(SEED, taken, 0, links_of(whole))


def test_random_edits_of_a_history_are_read_as_they_are() -> None:
    """Cut, changed and lengthened histories in any order, in front of tails of all kinds."""
    chance, bodies = random.Random(7), BodyCache()
    history = [told(0)]
    for _ in range(300):
        cut = chance.randrange(1, len(history) + 1)
        history = history[:cut] + [told(chance.randrange(50)) for _ in range(chance.randrange(3))]
        body = body_of(history, space=chance.choice(["", " "]), model="m", stream=chance.random() < 0.5)
        taken = again(bodies, SEED, body)
        assert [msgspec.json.decode(raw) for raw in taken.messages] == history
        links = links_of(taken_apart(body))
        assert list(taken.links) == links[: len(taken.links)]
        bodies.keep(SEED, taken, 0, links)


@pytest.mark.parametrize(
    "tail",
    [
        b",]}",
        b'] ,"messages":[{"role":"user","content":"other"}]}',
        b"}",
        b',{"role":',
        b"] x}",
        b"",
    ],
)
def test_what_goes_on_strangely_is_read_whole(tail: bytes) -> None:
    """SEC-6: what isn't JSON is refused as ever; of two arrays the last is the one, as every reader has it."""
    bodies = BodyCache()
    first = body_of([told(0), told(1)])
    taken = again(bodies, SEED, first)
    bodies.keep(SEED, taken, 0, links_of(taken))
    body = first[:-2] + tail
    try:
        expected: list[bytes] | None = [bytes(raw) for raw in taken_apart(body).messages]
    except Unmanageable:
        expected = None
    if expected is None:
        with pytest.raises(Unmanageable):
            again(bodies, SEED, body)
    else:
        assert [bytes(raw) for raw in again(bodies, SEED, body).messages] == expected


def test_a_copy_of_the_messages_elsewhere_is_not_taken_for_them() -> None:
    """The place of the messages is told by reading, not by looking for them."""
    messages = [told(0), told(1)]
    inner = msgspec.json.encode(messages).decode()
    body = f'{{"metadata":{{"messages":{inner}}},"messages":{inner}}}'.encode()
    taken = again(BodyCache(), SEED, body)
    assert [msgspec.json.decode(raw) for raw in taken.messages] == messages
    assert not isinstance(taken.messages, MessageSlices), "not told, so nothing is remembered of it"


def test_what_shares_only_its_beginning_with_another_is_read_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """SPD-8, GW-12: how much is new is what follows the messages that both say, however large the other body is."""
    sizes: list[int] = []

    async def aside(size: int, work: Any) -> Any:
        sizes.append(size)
        return work()

    monkeypatch.setattr(turns, "run_aside", aside)
    who: Any = SimpleNamespace(side=AnthropicProtocol(), seed=SEED)
    maker, first = TurnMaker(DigestLimits(), 1_000), {"role": "user", "content": "read it"}
    for letter in "ab":
        body = body_of([first, {"role": "user", "content": letter * 100_000}])
        sizes.clear()
        asyncio.run(maker.links(who, asyncio.run(maker.read(who, body))))
        assert min(sizes) >= 100_000


def test_others_histories_and_memory_stay_apart() -> None:
    """GW-4: another seed knows nothing; what is kept is bounded."""
    bodies = BodyCache(most_bytes=2_000)
    body = body_of([told(0), told(1)])
    taken = again(bodies, SEED, body)
    bodies.keep(SEED, taken, 0, links_of(taken))
    assert again(bodies, SEED, body).links and not again(bodies, b"other", body).links
    for number in range(50):
        other = again(bodies, SEED, body_of([told(number + 100)]))
        bodies.keep(SEED, other, 0, links_of(other))
    assert not again(bodies, SEED, body).links


ITEM = st.sampled_from(
    [
        {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": 'e, "input": ['},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "[1]"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "so"},
        {"role": "developer", "content": "be brief"},
        {"type": "compaction", "encrypted_content": "theirs"},
    ]
)


@given(st.lists(st.lists(ITEM, min_size=1, max_size=4), min_size=1, max_size=6), st.sampled_from(["", " ", "\n"]))
def test_items_are_taken_together_with_their_reasoning_however_the_history_grew(grown: Any, space: str) -> None:
    """GW-6: a history that came piece by piece has the messages and links of one that came at once."""
    side, maker = ResponsesProtocol(), TurnMaker(DigestLimits(), 1_000)
    who: Any = SimpleNamespace(side=side, seed=SEED)
    items: list[Any] = []
    for piece in grown:
        items += piece
        comma = f"{space},{space}"
        array = comma.join(msgspec.json.encode(item).decode() for item in items)
        body = f'{{"tools":{space}[{{"input":[]}}],"input"{space}:[{space}{array}{space}],"model":"m"}}'.encode()
        try:
            whole = side.read(body, taken_apart(body, None, "input"))
        except Unmanageable:
            continue
        fresh = TurnMaker(DigestLimits(), 1_000)
        read = asyncio.run(maker.read(who, body))
        assert [bytes(raw) for raw in read.history] == [bytes(raw) for raw in whole.history]
        assert [bytes(raw) for raw in read.lead] == [bytes(raw) for raw in whole.lead]
        said = [one for raw in read.history for one in msgspec.json.decode(b"[" + bytes(raw) + b"]")]
        assert said == items[len(read.lead) :]
        assert all(_follows(msgspec.json.decode(b"[" + bytes(raw) + b"]")) for raw in read.history)
        assert asyncio.run(maker.links(who, read)) == asyncio.run(fresh.links(who, whole))


def _follows(unit: list[Any]) -> bool:
    """All but the last item of a message are reasoning, and the last is of the model then."""
    *before, last = unit
    is_reasoning = all(item.get("type") == "reasoning" for item in before)
    return is_reasoning and (not before or last.get("role") != "user")


def test_many_small_conversations_leave_no_more_than_so_many_bodies() -> None:
    """GW-9, GW-3: each request looks through what is kept, so its number is bounded, and not its size alone."""
    bodies = BodyCache(most=8)
    for n in range(40):
        taken = again(bodies, SEED, body := body_of([told(2 * n)], number=n))
        links = chain(SEED, [bytes(raw) + bytes([n]) for raw in taken.messages])
        bodies.keep(SEED, taken, 0, links)
        assert len(bodies._seen) == min(n + 1, 8)
    assert bodies.seen(SEED, body) is not None and bodies._bytes < 8 * 1_000
