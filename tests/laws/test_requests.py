"""REL-4, TURN-9: every request is one that the API takes, whatever happened to the session before."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from tests import plans
from tests.tiers import examples
from tests.worlds import BOUND, MODELS, World, done

from perdure.context.models import ModelSpec
from perdure.context.request import to_request
from perdure.context.view import project
from perdure.settings import Settings
from perdure.testing import check_anthropic, check_openai

pytestmark = pytest.mark.laws

SMALL = Settings(window_tokens=8_000, collapse=True, collapse_min_tokens=300)


def checked(world: World) -> None:
    """The request of this moment is valid for both protocols, and made incrementally or at once it is the same."""
    view, facts = world.session.view, world.session.facts()
    request = to_request(view, facts)
    assert not check_anthropic(request.body, model_rules=world.rules)
    assert not check_openai(to_request(view, facts, protocol="openai").body)
    fresh = project(placed.record for placed in done(world.journal.load(whole=True)).records)
    assert to_request(fresh, facts).body == request.body, "the incremental request differs from one made at once"


@examples(25)
@given(plans.sessions())
def test_every_request_is_taken(steps: list[plans.Step]) -> None:
    """REL-4: the upstream answers every request, and both protocols' rules hold at every moment."""
    world = World(SMALL)
    for step in steps:
        world.play(step)  # the upstream raises when it refuses
        checked(world)


@pytest.mark.quick(3)
@pytest.mark.parametrize("is_manual", [False, True])
@pytest.mark.parametrize("model", MODELS)
@examples(25)
@given(plans.sessions())
def test_every_request_is_taken_with_its_thinking(
    model: ModelSpec | None, is_manual: bool, steps: list[plans.Step]
) -> None:
    """REL-4, TURN-7, TURN-15: an open loop brings its thinking back, and none stands where it doesn't hold.

    With thinking switched on by hand, the loop starts with it as well.
    """
    world = World(SMALL, model=model, is_manual=is_manual)
    for step in steps:
        world.play(step)
        checked(world)


@examples(15)
@given(plans.sessions())
def test_the_provider_may_drop_what_no_longer_holds(steps: list[plans.Step]) -> None:
    """REL-4, TURN-15: with the provider's own block dropping, all thinking of an open loop stays in the view."""
    world = World(replace(SMALL, thinking="provider"), model=BOUND)
    for step in steps:
        world.play(step)
        checked(world)


@examples(75)
@given(plans.sessions(without=(plans.Compact, plans.Configure, plans.NewFront, plans.Rewind)))
def test_an_open_loop_keeps_its_bound_thinking_while_there_is_room(steps: list[plans.Step]) -> None:
    """TURN-7: inside an open tool loop nothing before it is edited unless the call would otherwise fail."""
    world = World(Settings(window_tokens=200_000), model=BOUND)
    for step in steps:
        world.play(step)


@examples(40)
@given(plans.sessions(max_steps=10))
def test_a_restart_at_every_turn_changes_nothing(steps: list[plans.Step]) -> None:
    """REL-4, REL-5: reopened after each step, from the last boundary or from the start, the request is the same."""
    world = World(SMALL)
    for step in steps:
        world.play(step)
        body = to_request(world.session.view, world.session.facts()).body
        for whole in (False, True):
            again = world.reopened(whole=whole)
            assert to_request(again.view, again.facts()).body == body
