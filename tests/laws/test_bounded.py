"""PRS-2, PRS-5, PRS-6: a compaction makes room, and a session that can't have any ends with a reason."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests import plans
from tests.tiers import NIGHTLY, examples
from tests.worlds import World, done, front

from perdure.engine.compact import CompactionFailure, CompactionSuccess, compact
from perdure.engine.turn import prepare
from perdure.errors import ContextBlocked
from perdure.events import CompactionAttemptFailed, CompactionChecked
from perdure.settings import Settings
from perdure.transcript.records import CompactionFailed

pytestmark = pytest.mark.laws

WINDOWS = (8_000, 16_000, 32_000, 64_000, 128_000, 200_000, 400_000, 1_000_000)
FILLED = [
    (window, outcome)
    for number, window in enumerate(WINDOWS)
    for place, outcome in enumerate(("dense", "text"))
    if NIGHTLY or number % 2 == place
]  # in CI each window with one kind of content
PAUSED = [plans.FIRST, *(plans.answer_with(plans.READ, 60, n) for n in range(3)), plans.Idle(90_000.0), plans.Retry()]
RUN = plans.CallPlan(plans.RUN, {"command": "make"}, "text", 400)


def filled(window: int, outcome: plans.Outcome, lines: int) -> World:
    """A session that has just been compacted by itself."""
    world = World(Settings(window_tokens=window, microcompact=False, snip=False, offload=False), has_front=False)
    world.record(front(words=1))
    world.say("build it")
    call = plans.CallPlan(plans.RUN, {"command": "make"}, outcome, lines)
    for _ in range(3_000):
        world.answer(plans.Answer("I go on.", calls=(call,)))
        if world.outcomes[-1] is not None:
            return world
    raise AssertionError("it never filled")


@pytest.mark.quick(4)
@pytest.mark.parametrize(("window", "outcome"), FILLED)
def test_a_compaction_leaves_half_of_the_trigger_free(window: int, outcome: plans.Outcome) -> None:
    """PRS-2: at most half of the trigger is filled afterwards, whatever the window and the content."""
    world = filled(window, outcome, max(2, window // 2_000) if outcome == "dense" else max(10, window // 300))
    result = world.outcomes[-1]
    assert isinstance(result, CompactionSuccess), result
    assert result.boundary.tokens_after <= world.session.limits.trigger // 2
    assert world.session.facts().size(world.session.view) <= world.session.limits.trigger


@pytest.mark.parametrize("window", [8_000, 200_000])
def test_a_front_that_fills_the_window_ends_with_its_size(window: int) -> None:
    """PRS-6, TURN-13: what can't be reduced is named with its size, and nothing goes round in circles."""
    world = World(Settings(window_tokens=window), has_front=False)
    world.record(front(words=window))
    world.say("hello")
    for _ in range(6):
        with pytest.raises(ContextBlocked, match=r"system prompt and tools [\d,]+.*itself above the trigger"):
            done(prepare(world.session))
    failures = [record for record in world.records if isinstance(record, CompactionFailed)]
    assert 0 < len(failures) <= world.settings.breaker_failures


def test_three_failures_open_the_breaker_and_a_manual_success_closes_it() -> None:
    """PRS-5: after three failures in a row it stops trying by itself."""
    world = World(Settings(window_tokens=8_000, offload=False))
    world.say("word " * 5_000)
    for _ in range(5):
        world.prepare()
    attempts = [event for event in world.events if isinstance(event, CompactionAttemptFailed)]
    assert world.session.view.state.breaker.failures == 3
    assert len([record for record in world.records if isinstance(record, CompactionFailed)]) == 3
    assert len(attempts) <= 2 * 3
    world.session.configure(Settings(window_tokens=200_000))
    assert isinstance(done(compact(world.session, trigger="manual")), CompactionSuccess | CompactionFailure)


@examples(30)
@example(PAUSED, 8_000, "balanced")
@example(PAUSED, 8_000, "thrifty")
@given(plans.sessions(), st.sampled_from(WINDOWS[:3]), st.sampled_from(("balanced", "thrifty")))
def test_below_the_trigger_nothing_fails(steps: list[plans.Step], window: int, policy: Any) -> None:
    """PRS-5, TURN-16: what comes early, in a pause or since it pays, needn't come, so the breaker doesn't count it."""
    world = World(Settings(window_tokens=window, policy=policy, thrifty_least_tokens=1_000, min_reduction_percent=90))
    for step in steps:
        known, told = len(world.records), len(world.events)
        world.play(step)
        failed = [r for r in world.records[known:] if isinstance(r, CompactionFailed) and r.trigger == "auto"]
        checks = [event for event in world.events[told:] if isinstance(event, CompactionChecked)]
        assert not failed or any(check.tokens >= (check.trigger_tokens or 0) for check in checks)


@examples(25)
@given(plans.sessions(), st.sampled_from(WINDOWS[:3]))
def test_an_automatic_compaction_always_makes_room(steps: list[plans.Step], window: int) -> None:
    """CMP-9, PRS-6: whatever was said, one that is done takes at least a tenth away and lands under the trigger."""
    world = World(Settings(window_tokens=window))
    for step in steps:
        if not isinstance(step, plans.Configure):
            world.play(step)
    for outcome in world.outcomes:
        if isinstance(outcome, CompactionSuccess):
            boundary = outcome.boundary
            assert boundary.tokens_after < world.session.limits.trigger
            assert boundary.tokens_after * 10 <= boundary.tokens_before * 9
