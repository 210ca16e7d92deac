"""TURN-9, CMP-2: the legal cuts are those that a slow reading of the rules gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from tests import plans
from tests.tiers import examples
from tests.worlds import World

from perdure.context.cuts import legal_cuts, open_loop
from perdure.context.request import to_request
from perdure.context.view import THINKING, ContextView
from perdure.settings import Settings
from perdure.testing.request import RequestReader
from perdure.testing.request_rules import open_loop as provider_loop

pytestmark = pytest.mark.laws

SMALL = Settings(window_tokens=16_000, collapse=True, collapse_min_tokens=300)


def brings_results(view: ContextView, position: int) -> bool:
    return any(block.type == "tool_result" for block in view.items[position].message.blocks)


def slowly(view: ContextView, *, loops: bool) -> list[int]:
    """Every position, tried against each rule in its own words."""
    return [cut for cut in range(len(view.items) + 1) if is_legal(view, cut, loops=loops)]


def is_legal(view: ContextView, cut: int, *, loops: bool) -> bool:
    before, after = range(cut), range(cut, len(view.items))
    for call in view.calls.values():
        result = view.results.get(call.id)
        if result is not None and call.position in before and result.position in after:
            return False
        if result is None and call.id in view.open_calls and call.position in before:
            return False
    if splits_response(view, cut):
        return False
    for collapse in view.collapses.values():
        if view.positions[collapse.first] in before and view.positions[collapse.last] in after:
            return False
    return not (loops and splits_loop(view, cut))


def splits_response(view: ContextView, cut: int) -> bool:
    """Messages of one response stand together as long as no other response comes between."""
    last: tuple[str | None, int] = (None, -1)
    for position, item in enumerate(view.items):
        response = item.message.response_id
        if item.message.role != "assistant" or response is None:
            continue
        if response == last[0] and last[1] < cut <= position:
            return True
        last = (response, position)
    return False


def splits_loop(view: ContextView, cut: int) -> bool:
    """A person's prompt, and all up to the next one, when a message of the model in it shows thinking."""
    prompts = [p for p, item in enumerate(view.items) if item.message.origin == "user" and not brings_results(view, p)]
    starts = sorted({0, *prompts})
    for start, end in zip(starts, [*starts[1:], len(view.items)], strict=True):
        said = range(start + 1, end) if start in prompts else range(start, end)
        holds = any(block.type in THINKING for p in said for block in view.items[p].visible)
        if holds and start < cut < end:
            return True
    return False


@examples(60)
@given(plans.sessions())
def test_legal_cuts_are_what_the_rules_say(steps: list[plans.Step]) -> None:
    """DESIGN: the intersection of the laws: pairs, whole responses, collapsed ranges, thinking loops."""
    world = World(SMALL)
    for step in steps:
        world.play(step)
        view = world.session.view
        for loops in (True, False):
            assert legal_cuts(view, loops=loops) == slowly(view, loops=loops)


@examples(20)
@given(plans.sessions())
def test_an_open_loop_is_no_less_than_what_the_provider_takes_for_one(steps: list[plans.Step]) -> None:
    """TURN-7: all messages of the model that lead by results to the end of the request are in it."""
    world = World(SMALL)
    for step in steps:
        world.play(step)
        view = world.session.view
        request = to_request(view, world.session.facts())
        theirs = provider_loop(RequestReader(world.rules).read(request.body).messages)
        ours = open_loop(view)
        if theirs:
            assert ours is not None
            assert ours <= request.groups[theirs[0]].first
        if ours is not None:
            assert view.items[ours].message.role == "assistant"
