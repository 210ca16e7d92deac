"""CKP-4: going back in the conversation works across compactions, and what was left can be had again."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis
from tests.laws.recount import carried, recounted
from tests.laws.test_undo import shown
from tests.worlds import BOUND, UNBOUND, World, done

from holdfast.context.view import project
from holdfast.engine.rewinding import prompts, rewind_conversation, rewind_to
from holdfast.errors import HoldfastError
from holdfast.settings import Settings
from holdfast.testing import strategies as plans
from holdfast.transcript.edits import Compacted, Rewound

pytestmark = pytest.mark.laws

SMALL = Settings(window_tokens=8_000, collapse=True, collapse_min_tokens=300)


def played(first: list[plans.Step], then: list[plans.Step], *, bound: bool = False) -> World:
    """A session with a compaction in it."""
    world = World(SMALL, model=BOUND if bound else UNBOUND)
    for step in first:
        world.play(step)
    world.say("words " * 400)
    world.play(plans.Compact())
    assume(world.session.view.boundary is not None)
    for step in then:
        world.play(step)
    return world


def last_said(world: World) -> str:
    """The last message, which somebody said: only those are come back to from behind a compaction."""
    last = world.session.view.items[-1].message
    assume(last.origin not in ("summary", "restored"))
    return last.id


@hypothesis(max_examples=20)
@given(plans.sessions(), plans.sessions())
def test_back_to_any_prompt_and_forth_again(first: list[plans.Step], then: list[plans.Step]) -> None:
    """The view is what it was before the prompt; opened anew it is the same; the last message brings the rest back."""
    world = played(first, then)
    was = shown(world.session.view)
    last = last_said(world)
    for prompt in done(prompts(world.session)):
        gone = done(rewind_conversation(world.session, prompt.message.id))
        view = world.session.view
        assert gone.message.id not in view.positions and gone.text == prompt.text
        assert (view.items[-1].message.id if view.items else "") == gone.before
        assert carried(view) == recounted(view)
        assert world.reopened().view == world.reopened(whole=True).view == project(world.records) == view
        done(rewind_to(world.session, last))
        assert [one[0] for one in shown(world.session.view)][-1] == last
        assert world.reopened().view == project(world.records) == world.session.view
    assert {one[0] for one in was} <= {one[0] for one in shown(world.session.view)} | {
        message.id for r in world.records if isinstance(r, Compacted) for message in r.summary
    }


@hypothesis(max_examples=15)
@given(plans.sessions(), plans.sessions())
def test_the_next_request_is_taken_wherever_one_goes(first: list[plans.Step], then: list[plans.Step]) -> None:
    """REL-4, TURN-7: also where thinking is bound to its prefix."""
    world = played(first, then, bound=True)
    for prompt in done(prompts(world.session))[:3]:
        last = last_said(world)
        done(rewind_conversation(world.session, prompt.message.id))
        world.say("another way")
        world.answer(plans.Answer(text="on"))  # the fake upstream refuses what a real one would
        done(rewind_to(world.session, last))
        world.say("and back")
        world.answer(plans.Answer(text="on"))


@hypothesis(max_examples=10)
@given(plans.sessions())
def test_what_was_never_said_is_refused_and_changes_nothing(first: list[plans.Step]) -> None:
    world = played(first, [])
    records, view = len(world.records), world.session.view.copy()
    for wrong in ("nobody", ""):
        with pytest.raises(HoldfastError):
            done(rewind_conversation(world.session, wrong))
    with pytest.raises(HoldfastError):
        done(rewind_to(world.session, "nobody"))
    assert len(world.records) == records and world.session.view == view
    done(rewind_to(world.session, ""))
    assert world.session.view.items == [] and isinstance(world.records[-1], Rewound)
    world.say("a new start")
    world.answer(plans.Answer(text="on"))
