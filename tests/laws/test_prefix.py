"""TURN-9b, TURN-5: what was sent stays the beginning of what is sent next, or the move is an event with a reason."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from tests import plans
from tests.tiers import examples
from tests.worlds import BOUND, UNBOUND, Sent, World, done

from perdure.context.request import to_request
from perdure.engine.turn import PreparedRequest, prepare
from perdure.events import PrefixMoved
from perdure.settings import Settings
from perdure.transcript.messages import Message
from perdure.transcript.records import Collapsed, Compacted, Edit, Front, MediaReplaced, Offloaded, Rewound, Undone

pytestmark = pytest.mark.laws

SMALL = Settings(window_tokens=8_000, collapse=True, collapse_min_tokens=300)
# Few of the other tools' results, then enough; and some too small to be cleared among them.
MIXED = ((plans.OTHER, 12), (plans.READ, 8), *((plans.OTHER, size) for size in (4, 4, 1, 30, 4, 8)), (plans.READ, 30))


def shared(one: Sent, two: Sent) -> int:
    """How many leading blocks are the same, byte for byte."""
    for number, (before, after) in enumerate(zip(one.blocks, two.blocks, strict=False)):
        if before != after:
            return number
    return min(len(one.blocks), len(two.blocks))


def moves_are_told(world: World) -> None:
    """Between any two requests: a prefix, unless an edit was recorded; and a moved prefix was announced."""
    records = world.records
    for one, two in pairwise(world.played):
        between = records[one.at_record : two.at_record]
        edits = [r for r in between if isinstance(r, Edit | Compacted | Rewound | Undone | Front)]
        is_prefix = shared(one, two) == len(one.blocks)
        if is_prefix:
            continue
        assert any(getattr(e, "changes", ()) or not isinstance(e, Edit) or isinstance(e, Collapsed) for e in edits)
        told = [event for event in world.events[one.at_event : two.at_event] if isinstance(event, PrefixMoved)]
        is_answered = any(isinstance(r, Message) and r.origin == "model" and not r.agent_id for r in between)
        unsent = not is_answered and any(isinstance(edit, Offloaded | MediaReplaced) for edit in edits)
        explicit = any(isinstance(edit, Rewound | Undone | Front | Compacted) for edit in edits)
        assert told or explicit or unsent, [type(edit).__name__ for edit in edits]
        if told and not explicit and is_answered:
            stays = [part for _, part in one.parts if 0 <= part.position < min(move.position for move in told)]
            assert shared(one, two) >= len(stays), "the prefix moved before the place that was announced"


def same_again(world: World) -> None:
    """A session opened over the same journal makes the request of the one that was running, byte for byte, breakpoints
    included; and prepared there it needs no further edit."""
    if (prepared := World.prepare(world)) is None:
        return
    for whole in (False, True):
        again, head = world.reopened(whole=whole), world.head
        assert to_request(again.view, again.facts(), head=head).body == prepared.request.body
        assert done(prepare(again, head=head)).request.body == prepared.request.body


class ReopenedWorld(World):
    """A world in which each request is made by a session opened anew as well."""

    def prepare(self, **more: Any) -> PreparedRequest | None:
        same_again(self)
        return super().prepare(**more)


@examples(50)
@given(plans.sessions())
def test_requests_grow_or_say_why_not(steps: list[plans.Step]) -> None:
    """TURN-9b: with no edit committed, request n is a prefix of request n + 1; else a PrefixMoved says so."""
    world = World(SMALL, model=UNBOUND)
    for step in steps:
        world.play(step)
    moves_are_told(world)


@examples(40)
@given(plans.sessions())
def test_requests_with_bound_thinking_grow_or_say_why_not(steps: list[plans.Step]) -> None:
    """TURN-7, TURN-9b: thinking that goes with an edit goes behind the announced place."""
    world = World(SMALL, model=BOUND)
    for step in steps:
        world.play(step)
    moves_are_told(world)


@examples(20)
@example(steps=plans.session_plan(46, 6))  # thrifty: compacted, and then what was left of it
@example(steps=plans.session_plan(310, 21)[:13])  # the lines that end a loop went over the trigger
@example(steps=plans.session_plan(20_310, 23)[:18])  # … or let results go that had to wait for its end
@given(plans.sessions())
def test_a_request_prepared_again_is_the_same(steps: list[plans.Step]) -> None:
    """REL-5, TURN-9b: as after a call that failed: nothing is decided anew, and nothing is recorded."""
    world = World(SMALL, model=BOUND)
    for step in steps:
        world.play(step)
        if not isinstance(step, plans.Answer) or (first := world.prepare()) is None:
            continue
        known = len(world.records)
        again = world.prepare()
        assert again is not None and again.request.body == first.request.body
        assert not world.records[known:]


@examples(40)
@given(plans.sessions(max_steps=12))
def test_a_restart_prepares_the_same_bytes(steps: list[plans.Step]) -> None:
    """REL-5: a session that was running makes each request as one opened anew, whatever it keeps in memory."""
    world = ReopenedWorld(SMALL)
    for step in steps:
        world.play(step)
    world.prepare()


@examples(60)
@example([plans.answer_with(plans.OTHER, 8), plans.answer_with(plans.READ, 4)])
@example([plans.answer_with(*call) for call in MIXED])
@given(plans.tool_mixes())
def test_breakpoints_are_those_of_a_restart(answers: list[plans.Answer]) -> None:
    """REL-5, SPD-7: where the next clearing may begin is found for the view as it is, not for what was sent before."""
    world = ReopenedWorld(SMALL)
    world.say("go on")
    for answer in answers:
        world.play(answer)
    world.prepare()
