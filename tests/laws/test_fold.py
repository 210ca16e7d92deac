"""CMP-14, TURN-14: one fold of the journal makes every view, from wherever it starts, and its sums are right."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import plans
from tests.laws.recount import carried, recounted
from tests.tiers import examples
from tests.worlds import World, done

from perdure.context.view import ContextView, project
from perdure.settings import Settings

pytestmark = pytest.mark.laws

SMALL = Settings(window_tokens=8_000, collapse=True, collapse_min_tokens=300)


@examples(40)
@given(plans.sessions(), st.data())
def test_a_fold_may_be_taken_in_two(steps: list[plans.Step], data: st.DataObject) -> None:
    """DESIGN: fold(a + b) == fold(b, onto fold(a))."""
    world = World(SMALL)
    for step in steps:
        world.play(step)
    records = world.records
    split = data.draw(st.integers(0, len(records)))
    first = project(records[:split])
    before = project(records[:split])
    assert project(records[split:], onto=first) == project(records) == world.session.view
    assert first == before, "a fold changed the view it was folded onto"


@examples(25)
@given(plans.sessions())
def test_a_boundary_stands_for_all_before_it(steps: list[plans.Step]) -> None:
    """CMP-14: fold(checkpoint + tail) == fold(all), at every step of a session."""
    world = World(SMALL)
    for step in steps:
        world.play(step)
        short = done(world.journal.load())
        whole = project(placed.record for placed in done(world.journal.load(whole=True)).records)
        assert project(placed.record for placed in short.records) == whole == world.session.view


@examples(30)
@given(plans.sessions())
def test_the_sums_equal_a_recount(steps: list[plans.Step]) -> None:
    """TURN-14: the aggregates of a view are what a walk over its items gives, after every step."""
    world = World(SMALL)
    for step in steps:
        world.play(step)
        view = world.session.view
        assert carried(view) == recounted(view), step
        known(view)


def known(view: ContextView) -> None:
    """Marks speak only of results that are in the view."""
    assert view.frozen | view.cleared | view.snipped <= view.results.keys()
    assert 0 <= view.sent <= len(view.items)
    for collapse in view.collapses.values():
        span = range(view.positions[collapse.first], view.positions[collapse.last] + 1)
        assert all(view.items[position].is_hidden for position in span)
    hidden = sum(item.is_hidden for item in view.items)
    spans = [view.positions[c.last] - view.positions[c.first] + 1 for c in view.collapses.values()]
    assert hidden == sum(spans), "an item is hidden and nothing stands for it"
