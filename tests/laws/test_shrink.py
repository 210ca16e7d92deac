"""TURN-2 to TURN-7: no pass raises the estimate, and applied twice it adds nothing."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from tests import plans
from tests.tiers import examples
from tests.worlds import BOUND, World

from perdure.compaction.collapse import CHEAP_PASSES
from perdure.context.passes import CLOSING_PASSES, Pass
from perdure.context.thinking import with_thinking
from perdure.context.view import project
from perdure.settings import Settings

pytestmark = pytest.mark.laws

SMALL = Settings(window_tokens=8_000, collapse=True, collapse_min_tokens=300, auto_compact=False)


@pytest.mark.parametrize("shrink", CHEAP_PASSES + CLOSING_PASSES, ids=lambda shrink: shrink.__name__)
@examples(15)
@example([plans.FIRST, *map(plans.step_of, (0, 0, 47_865, 0))])  # both choices of tools are enough to be cleared
@given(steps=plans.sessions(without=(plans.Compact,)))
def test_a_pass_shrinks_the_view_and_rests(shrink: Pass, steps: list[plans.Step]) -> None:
    """DESIGN, shrink: at every moment of a session, for each pass alone."""
    world = World(SMALL, model=BOUND)
    for step in steps:
        world.play(step)
        view, facts = world.session.view, world.session.facts()
        edits = with_thinking(view, shrink(view, facts), facts)
        if not edits:
            continue
        after = project(edits, onto=view)  # type: ignore[arg-type]
        assert after.size.live <= view.size.live, edits
        assert facts.size(after) <= facts.size(view)
        assert not shrink(after, facts), "a second time, it finds more"
