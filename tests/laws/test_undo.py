"""CMP-11: an undone compaction leaves the view as if it had never been, with everything that was said since."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from tests import plans
from tests.laws.recount import carried, recounted
from tests.tiers import examples
from tests.worlds import BOUND, UNBOUND, World, done

from perdure.compaction.plan import first_said
from perdure.context.policy import Pressure, compaction_need, pressure
from perdure.context.view import ContextView, project
from perdure.engine.compact import preview, uncompact
from perdure.settings import Settings
from perdure.transcript.messages import Message
from perdure.transcript.records import Compacted, Edit, Front, Rewound, Undone

pytestmark = pytest.mark.laws

THEN = plans.sessions(max_steps=8, without=(plans.Rewind, plans.Compact))  # what leaves the boundary where it is
SMALL = Settings(window_tokens=8_000, collapse=True, collapse_min_tokens=300)


def shown(view: ContextView) -> list[tuple[str, tuple[bytes, ...]]]:
    return [(item.message.id, tuple(block.raw for block in item.visible)) for item in view.items]


def compacted_world(first: list[plans.Step], then: list[plans.Step], *, bound: bool) -> tuple[World, Compacted]:
    """A session that was compacted between the two, and stands on that boundary."""
    world = World(SMALL, model=BOUND if bound else UNBOUND)
    for step in first:
        world.play(step)
    world.say("words " * 400)
    world.play(plans.Compact())
    boundary = world.session.view.boundary
    assume(boundary is not None)
    assert boundary is not None
    for step in then:
        world.play(step)
    assume(world.session.view.boundary is not None and world.session.view.boundary.id == boundary.id)
    assume(not any(isinstance(r, Rewound) for r in world.records[world.records.index(boundary) :]))
    return world, boundary


@examples(15)
@given(plans.sessions(), THEN)
def test_uncompact_gives_back_exactly_the_earlier_view(first: list[plans.Step], then: list[plans.Step]) -> None:
    """The view is that of the records without the boundary: the past as shown before, later messages behind it."""
    world, boundary = compacted_world(first, then, bound=False)
    at = world.records.index(boundary)
    before = project(world.records[:at])
    without = project(record for record in world.records if record is not boundary and record != boundary)
    done(uncompact(world.session))
    view = world.session.view
    assert shown(view) == shown(without)
    later = [r.id for r in world.records[at:] if hasattr(r, "role") and r.agent_id is None]
    assert [i.message.id for i in view.items] == [i.message.id for i in before.items] + later
    assert carried(view) == recounted(view)
    assert view.boundary == before.boundary
    assert world.reopened().view == world.reopened(whole=True).view == project(world.records) == view


@examples(15)
@given(plans.sessions(), THEN)
def test_bound_thinking_from_before_is_back_and_later_thinking_is_gone(
    first: list[plans.Step], then: list[plans.Step]
) -> None:
    """TURN-7: what stood before the boundary has its prefix again; what was said after it loses its thinking."""
    world, boundary = compacted_world(first, then, bound=True)
    before = project(world.records[: world.records.index(boundary)])
    after = {i.message.id for i in world.session.view.items} - {i.message.id for i in before.items}
    was_sent = world.session.view.sent > 0
    done(uncompact(world.session))
    view = world.session.view
    if not any(isinstance(r, Edit | Front) for r in world.records[world.records.index(boundary) : -2]):
        assert shown(view)[: len(before.items)] == shown(before)
    if was_sent:
        kinds = {b.type for i in view.items if i.message.id in after for b in i.visible}
        assert not kinds & {"thinking", "redacted_thinking"}


@examples(15)
@given(plans.sessions())
def test_the_next_request_after_an_undo_is_taken(first: list[plans.Step]) -> None:
    """TURN-9: and automatic compaction waits for the block threshold."""
    world, _ = compacted_world(first, [], bound=True)
    done(uncompact(world.session))
    facts = world.session.facts()
    need = compaction_need(world.session.view, facts)
    is_blocked = pressure(world.session.view, facts) is Pressure.BLOCKED
    assert (need is not None) == (is_blocked and facts.limits.auto)
    world.answer(plans.Answer(text="on"))  # the fake upstream refuses what a real one would


@examples(15)
@given(plans.sessions())
def test_a_preview_changes_nothing_and_tells_what_happens(first: list[plans.Step]) -> None:
    world = World(SMALL)
    for step in first:
        world.play(step)
    world.say("words " * 400)
    records, events, view = len(world.records), len(world.events), world.session.view.copy()
    looked = done(preview(world.session))
    assert (len(world.records), len(world.events)) == (records, events) and world.session.view == view
    world.play(plans.Compact())
    boundary = world.session.view.boundary
    if hasattr(looked, "boundary"):
        assert boundary is not None
        assert boundary.kept == looked.boundary.kept and boundary.tokens_after == looked.boundary.tokens_after
        assert boundary.strategy == looked.boundary.strategy
        ids = [part.id for part in (*looked.kept, *looked.dropped)]
        assert len(ids) == len(set(ids))
    else:
        assert boundary == view.boundary


def test_undoing_twice_goes_back_twice() -> None:
    world = World(Settings())
    seen = []
    for number in range(2):
        world.say(f"first {number}", "words " * 30_000)
        world.say(f"then {number}", "more " * 30_000)
        seen.append(shown(world.session.view))
        world.play(plans.Compact())
        assert world.session.view.boundary is not None
    later = ["m3", "m4"]
    for expected in reversed(seen):
        done(uncompact(world.session))
        view = world.session.view
        assert shown(view)[: len(expected)] == expected
        assert [item.message.id for item in view.items[len(expected) :]] == (later if expected is seen[0] else [])
        assert world.reopened().view == project(world.records) == world.session.view
    assert world.session.view.boundary is None
    assert sum(isinstance(record, Undone) for record in world.records) == 2


def test_a_later_compaction_ends_the_waiting() -> None:
    world = World(Settings())
    world.say("first", "words " * 30_000)
    world.say("then", "more " * 30_000)
    world.play(plans.Compact())
    done(uncompact(world.session))
    assert world.session.view.state.breaker.waits
    world.play(plans.Compact())
    assert not world.session.view.state.breaker.waits


def test_thinking_that_comes_back_behind_another_front_is_dropped() -> None:
    """TURN-7, REL-4: it was bound to the system prompt of its time; with the same one it comes back whole."""
    for changes_front in (True, False):
        world = World(Settings(), model=BOUND)
        world.say("first")
        world.answer(plans.Answer(text="so", thinking="because"))
        world.say("words " * 30_000)
        world.say("more " * 30_000)
        world.play(plans.Compact())
        assert world.session.view.boundary is not None
        if changes_front:
            world.play(plans.NewFront(1))
        world.play(plans.Undo())
        kinds = {block.type for item in world.session.view.items for block in item.visible}
        assert ("thinking" in kinds) is not changes_front
        assert world.answer(plans.Answer(text="on")), "the fake upstream refuses what a real one would"
        assert world.reopened().view == world.reopened(whole=True).view == world.session.view


def test_a_rewind_into_what_was_restored_leaves_nothing_unread() -> None:
    """CMP-14: what is said after it stands behind what the checkpoint has read."""
    world = World(Settings())
    world.say("first", "words " * 30_000)
    world.append(*plan_and_result(world))
    world.say("then", "more " * 30_000)
    world.play(plans.Compact())
    summary = world.session.view.items[0].message
    assert len(world.session.view.boundary.summary) > 1, "the plan came back"
    world.record(Rewound(to=summary.id))
    assert first_said(world.session.view) == 1 == len(world.session.view.items)
    world.say("and now")
    assert first_said(world.session.view) == 1


def plan_and_result(world: World) -> list[Message]:
    todos = [{"content": "a task", "status": "pending"}]
    use = {"type": "tool_use", "id": "t1", "name": "TodoWrite", "input": {"todos": todos}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "ok"}
    return [world.message("assistant", [use]), world.message("user", [result], origin="tool")]
