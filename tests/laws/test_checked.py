"""ENG-7: whatever comes in by the face is refused with nothing changed, or gives a request that the API takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests import plans
from tests.tiers import examples
from tests.worlds import World, done

from perdure.context.request import to_request
from perdure.context.view import project
from perdure.engine.turn import prepare
from perdure.errors import ContextBlocked, PerdureError
from perdure.settings import Settings
from perdure.testing import ModelRules, check_anthropic, check_openai
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.records import (
    BlockChange,
    Calibrated,
    Cursor,
    Front,
    Neutralised,
    Noted,
    Pinned,
    Rewound,
    Titled,
)

pytestmark = pytest.mark.laws

RULES = ModelRules(window_tokens=10_000_000, allow_unknown=True)
SCHEMA = {"type": "object", "properties": {}}
_IDS = st.sampled_from(("a", "b", "c", "call.1", "", "é", "x" * 70))
_NAMES = st.sampled_from(("Read", "", "n" * 201, "Bash"))


def odd() -> st.SearchStrategy[Any]:
    """Values that somebody could give by mistake, JSON or not."""
    return st.one_of(
        plans.json_values(),
        st.sampled_from((b"x", float("nan"), float("-inf"), "\ud83d", {1: 2}, {"a": {1}}, (1,), object(), 10**40)),
    )


def blocks() -> st.SearchStrategy[Any]:
    """Blocks: right ones, and ones with a field of another kind, missing or too many."""
    used = st.fixed_dictionaries(
        {"type": st.just("tool_use"), "id": _IDS, "name": _NAMES, "input": st.just({}) | odd()}
    )
    told = st.fixed_dictionaries(
        {"type": st.just("tool_result"), "tool_use_id": _IDS, "content": st.text(max_size=3) | st.none() | odd()}
    )
    source = st.fixed_dictionaries(
        {"type": st.sampled_from(("base64", "url", "file", "text", "x"))},
        optional={
            "media_type": st.sampled_from(("image/png", "x")),
            "data": st.sampled_from(("AAAA", "?", "")),
            "url": odd(),
        },
    )
    pictures = st.fixed_dictionaries({"type": st.sampled_from(("image", "document")), "source": source})
    openai = st.fixed_dictionaries(
        {"type": st.sampled_from(("input_text", "image_url", "refusal"))},
        optional={"text": odd(), "image_url": odd() | st.just({"url": "data:image/png;base64,AAAA"})},
    )
    found = st.fixed_dictionaries(
        {"type": st.just("search_result"), "source": st.just("s") | odd(), "title": st.just("t")},
        optional={"content": st.lists(st.just({"type": "text", "text": "x"}) | plans.known_blocks(), max_size=2)},
    )
    whole = st.one_of(plans.known_blocks(), plans.unknown_blocks(), used, told, pictures, openai, found)
    return st.one_of(whole, whole, st.builds(_without, whole, st.integers(0, 3)), st.builds(_with, whole, odd()), odd())


def _without(block: dict[str, Any], number: int) -> dict[str, Any]:
    names = list(block)
    return {name: value for name, value in block.items() if name != names[number % len(names)]}


def _with(block: dict[str, Any], value: Any) -> dict[str, Any]:
    return {**block, "cache_control": value} if isinstance(value, dict) else {**block, "text": value, "is_error": value}


def plain() -> st.SearchStrategy[Any]:
    """Messages as plain data."""
    content = st.one_of(plans.texts(), st.lists(blocks(), max_size=3), st.none(), odd())
    call = st.fixed_dictionaries(
        {"id": _IDS, "type": st.just("function")},
        optional={"function": st.fixed_dictionaries({"name": _NAMES}, optional={"arguments": st.just("{}") | odd()})},
    )
    return st.fixed_dictionaries(
        {},
        optional={
            "role": st.sampled_from(("user", "user", "assistant", "assistant", "tool", "system", "robot")) | odd(),
            "content": content,
            "tool_calls": st.lists(call, max_size=2) | odd(),
            "tool_call_id": _IDS,
            "usage": odd() | st.fixed_dictionaries({"input_tokens": st.integers(-5, 10**30)}),
        },
    )


def made() -> st.SearchStrategy[Callable[[], Message]]:
    """Messages made by `Message.of`, and ones that were put together by hand."""
    roles = st.sampled_from(("user", "assistant", "system"))
    of = st.builds(lambda role, content: lambda: Message.of(role, content), roles, st.lists(blocks(), max_size=3))
    raws = st.lists(plans.raw_blocks().map(lambda raw: msgspec.Raw(raw.replace(b"\n", b" "))), max_size=3)
    return of | st.builds(
        lambda role, content: lambda: Message(id=MessageId(""), role=role, content=tuple(content), origin="user"),
        roles,
        raws,
    )


def records() -> st.SearchStrategy[Callable[[], Any]]:
    """Anything for `record`: fronts mostly."""
    tool = st.fixed_dictionaries(
        {},
        optional={"name": _NAMES | odd(), "input_schema": st.just(SCHEMA) | odd(), "type": odd(), "description": odd()},
    )
    wrapped = st.builds(lambda inner: {"type": "function", "function": inner}, tool)
    fronts = st.builds(
        lambda **fields: lambda: Front(**fields),
        model=st.just("m") | odd(),
        system=plans.texts() | st.lists(plans.texts() | blocks(), max_size=2) | odd(),
        tools=st.lists(tool | wrapped, max_size=2) | odd(),
        dynamic_from=st.none() | st.integers(-1, 3),
    )
    others = st.one_of(
        st.builds(lambda data: lambda: Noted(kind="k", data={"x": data}), odd()),
        st.builds(lambda data: lambda: Titled(title=data), odd()),
        st.builds(lambda data: lambda: Pinned(id="p", text=data), odd()),
        st.builds(lambda data: lambda: Cursor(name="c", message=data), odd()),
        st.builds(lambda data: lambda: Calibrated(model="m", ratio=data), odd()),
        st.builds(lambda data: lambda: Rewound(to=data), odd() | st.just("message-1")),
        st.builds(lambda data: lambda: data, odd()),
    )
    return fronts | others


ACTS = st.one_of(
    plain().map(lambda given: ("append", given)),
    plain().map(lambda given: ("append", given)),
    made().map(lambda make: ("make", make)),
    records().map(lambda make: ("record", make)),
    plans.raw_blocks().map(lambda raw: ("edit", raw)),
)


async def _act(world: World, kind: str, what: Any) -> None:
    session = world.session
    if kind == "append":
        await session.append(what)
    elif kind == "make":
        await session.append(what())
    elif kind == "record":
        await session.record(what())
    elif session.view.items:
        change = BlockChange(session.view.items[-1].message.id, 0, msgspec.Raw(what.replace(b"\n", b" ")))
        await session.commit((Neutralised(changes=(change,)),), session.facts())


@examples(150)
@example(
    [
        ("make", lambda: Message.of("assistant", [{"type": "text", "text": " "}])),
        ("edit", b'{"type":"compaction","content":null}'),
    ]
)  # which has to be the first block of all
@given(st.lists(ACTS, min_size=1, max_size=6))
def test_what_comes_in_is_refused_whole_or_can_be_sent(acts: list[tuple[str, Any]]) -> None:
    """ENG-7: a package error with journal and view unchanged, or a request that both protocols' rules take."""
    world = World(Settings(window_tokens=200_000), has_front=False)
    done(world.session.record(Front(model="m")))
    done(world.session.append("begin"))
    for kind, what in acts:
        before, view = done(world.journal.load(whole=True)).records, world.session.view.copy()
        try:
            done(_act(world, kind, what))
        except PerdureError as e:
            assert "\n" not in str(e)
            assert done(world.journal.load(whole=True)).records == before
            assert world.session.view == view
        try:
            done(prepare(world.session))
        except ContextBlocked:
            continue  # TURN-13: so many tokens were stated that no request may be made
        view, facts = world.session.view, world.session.facts()
        assert not check_anthropic(to_request(view, facts, model="m").body, model_rules=RULES)
        assert not check_openai(to_request(view, facts, protocol="openai", model="m").body)
        fresh = project(placed.record for placed in done(world.journal.load(whole=True)).records)
        assert to_request(fresh, facts).body == to_request(view, facts).body
