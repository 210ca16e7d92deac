"""CKP-4: going back in the conversation works across compactions, and what was left can be had again."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests import plans
from tests.laws.recount import carried, recounted
from tests.laws.test_undo import shown
from tests.tiers import examples
from tests.worlds import BOUND, UNBOUND, World, done

from perdure.context.request import to_request
from perdure.context.view import ContextView, project, size_tokens
from perdure.engine.compact import uncompact
from perdure.engine.rewind import prompts, rewind_back, rewind_conversation, rewind_to
from perdure.errors import PerdureError
from perdure.settings import Settings
from perdure.transcript.records import Compacted, Pinned, Rewound

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


@pytest.mark.nightly
@examples(15)
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


@examples(15)
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


@examples(10)
@given(plans.sessions())
def test_what_was_never_said_is_refused_and_changes_nothing(first: list[plans.Step]) -> None:
    world = played(first, [])
    records, view = len(world.records), world.session.view.copy()
    for wrong in ("nobody", ""):
        with pytest.raises(PerdureError):
            done(rewind_conversation(world.session, wrong))
    with pytest.raises(PerdureError):
        done(rewind_to(world.session, "nobody"))
    assert len(world.records) == records and world.session.view == view
    done(rewind_to(world.session, ""))
    assert world.session.view.items == [] and isinstance(world.records[-1], Rewound)
    world.say("a new start")
    world.answer(plans.Answer(text="on"))


def body(world: World) -> bytes:
    """The request that the view makes, to the byte, but for how long the cache is to keep it: that is of the moment."""
    return to_request(world.session.view, world.session.facts()).body.replace(b',"ttl":"1h"', b"")


@examples(15)
@given(plans.sessions(), plans.sessions(), st.booleans(), st.data())
def test_undoing_a_rewind_gives_the_bytes_of_before(
    first: list[plans.Step], then: list[plans.Step], bound: bool, data: st.DataObject
) -> None:
    """CKP-8: the view, compaction and edits included; nested; live, opened anew, and from the whole journal."""
    world = played(first, then, bound=bound)
    was: list[tuple[ContextView, bytes]] = []
    names: list[tuple[str, str]] = []
    for _ in range(data.draw(st.integers(1, 3))):
        live = done(prompts(world.session))
        if not live:
            break
        was.append((world.session.view.copy(), body(world)))
        last = world.session.view.items[-1].message.id if world.session.view.items else ""
        to = data.draw(st.sampled_from(live))
        names.append((done(rewind_to(world.session, to.before)), last))
        if data.draw(st.booleans()):
            world.record(Pinned(id="p", text="kept"), Pinned(id="p"))
    assume(names)
    for (view, request), (name, last) in zip(reversed(was), reversed(names), strict=True):
        done(rewind_back(world.session, name, last))
        assert world.session.view == view and carried(world.session.view) == recounted(world.session.view)
        assert world.reopened().view == world.reopened(whole=True).view == project(world.records) == view
        assert folded(world) == view
        assert body(world) == request
    boundary = world.session.view.boundary
    if boundary is not None:
        done(uncompact(world.session))
        assert world.session.view.boundary != boundary
        assert world.reopened().view == world.reopened(whole=True).view == world.session.view
    world.say("and on")
    world.answer(plans.Answer(text="on"))


def folded(world: World) -> ContextView:
    """The journal in two folds, which have to be the same as one (CMP-14)."""
    records = world.records
    half = len(records) // 2
    return project(records[half:], onto=project(records[:half]))


@examples(15)
@given(plans.sessions(), plans.sessions())
def test_what_was_said_since_leaves_with_a_forced_undo(first: list[plans.Step], then: list[plans.Step]) -> None:
    """CKP-8: answers, edits and compactions of the other way are gone; what no view shows stays known."""
    world = played(first, [])
    view, request = world.session.view.copy(), body(world)
    last = view.items[-1].message.id
    name = done(rewind_to(world.session, first_of_all(world)))
    world.say("another way")
    for step in then:
        if not isinstance(step, plans.NewFront):
            world.play(step)
    world.say("words " * 400)
    world.play(plans.Compact())
    world.record(Pinned(id="other", text="told since"))
    done(rewind_back(world.session, name, last))
    back = world.session.view
    assert shown(back) == shown(view) and back.boundary == view.boundary
    assert [pin.text for pin in back.state.pins if pin.id == "other"] == ["told since"]
    assert carried(back) == recounted(back)
    assert world.reopened().view == world.reopened(whole=True).view == project(world.records) == folded(world) == back
    if not any(isinstance(step, plans.Configure) for step in then):
        assert body(world) == request
    assert isinstance(view.boundary, Compacted)
    done(uncompact(world.session))
    assert world.reopened().view == world.reopened(whole=True).view == world.session.view


def first_of_all(world: World) -> str:
    """Before the first prompt, which was compacted away."""
    return done(prompts(world.session))[0].before


def test_the_compaction_of_the_finding_is_back() -> None:
    """CKP-8: tokens, boundary and bytes; and it can be undone afterwards, as if there had been no rewind."""
    world = World(Settings())
    for number in range(6):
        world.say(f"part {number}", "words " * 8_000)
        world.answer(plans.Answer(text="so it is"))
    world.play(plans.Compact())
    boundary, request = world.session.view.boundary, body(world)
    assert boundary is not None
    size = size_tokens(world.session.view)
    for to in (done(prompts(world.session))[1].before, done(prompts(world.session))[-1].before):
        last = world.session.view.items[-1].message.id
        name = done(rewind_to(world.session, to))
        world.restart()
        done(rewind_back(world.session, name, last))
        world.restart()
        assert size_tokens(world.session.view) == size and body(world) == request
        assert world.session.view.boundary == boundary
    loaded = done(world.journal.load())
    assert any(placed.record == boundary for placed in loaded.records)
    assert len(loaded.records) < len(world.records), "SPD-3: it is read from the boundary on"
    done(uncompact(world.session))
    assert world.session.view.boundary is None and size_tokens(world.session.view) > size


def test_bound_thinking_comes_back_whole_behind_the_same_front_only() -> None:
    """CKP-8, TURN-7: nothing is dropped from what comes back, unless the front is another one now."""
    for changes_front in (False, True):
        world = World(Settings(), model=BOUND)
        world.say("first")
        world.answer(plans.Answer(text="so", thinking="because"))
        world.say("second")
        world.answer(plans.Answer(text="then", thinking="hence"))
        last = world.session.view.items[-1].message.id
        name = done(rewind_to(world.session, ""))
        if changes_front:
            world.play(plans.NewFront(1))
        done(rewind_back(world.session, name, last))
        kinds = [block.type for item in world.session.view.items for block in item.visible]
        assert kinds.count("thinking") == (0 if changes_front else 2)
        world.say("on")
        assert world.answer(plans.Answer(text="on")), "the fake upstream refuses what a real one would"


def test_a_rewind_that_is_not_known_is_a_rewind_to_its_message() -> None:
    """CKP-8: as readers of an earlier version take it."""
    world = World(Settings())
    one = world.say("one")
    world.say("two")
    world.record(Rewound(to=one.id, undoes="rewind-nobody"))
    assert [item.message.id for item in world.session.view.items] == [one.id]
    assert world.reopened().view == world.reopened(whole=True).view == world.session.view


def test_what_a_rewind_left_of_what_a_compaction_kept_is_no_place_to_go_back_to() -> None:
    """CKP-4: prompts are those on the way to the present view."""
    world = World(Settings())
    world.say("old", "words " * 30_000)
    kept = [world.say(f"kept {number}", "words " * 4_000) for number in range(3)]
    world.play(plans.Compact())
    assert world.session.view.boundary is not None and kept[2].id in world.session.view.boundary.kept
    world.record(Rewound(to=kept[0].id))
    last = world.say("now")
    assert [prompt.message.id for prompt in done(prompts(world.session))] == ["m1", kept[0].id, last.id]
