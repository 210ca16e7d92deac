"""SM-2, SM-9: when notes are updated."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.memory.pace import (
    AnswerGiven,
    SkipUpdate,
    StartUpdate,
    UpdateEnded,
    UpdateFailed,
    UpdatePace,
    UpdatePutOff,
    UpdateTriggers,
    WaitForUpdate,
    step,
)

pytestmark = pytest.mark.unit

LIMITS = UpdateTriggers()
BEGUN = UpdatePace(has_begun=True, base=10_000, tokens=10_000, seen="m0")
RUNNING = replace(BEGUN, is_running=True, spent=((0.0, 0),))


def answer(tokens: int, calls: int = 0, message: str = "m1", **more: object) -> AnswerGiven:
    return replace(AnswerGiven(message=message, tokens=tokens, calls=calls), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pace", "event", "action"),
    [
        (UpdatePace(), answer(4_999), SkipUpdate("too_small")),
        (UpdatePace(), answer(5_000), StartUpdate()),
        (UpdatePace(), answer(5_000, 1), SkipUpdate("no_pause")),
        (UpdatePace(), answer(5_000, 10), StartUpdate()),
        (UpdatePace(calls=9), answer(5_000, 1), StartUpdate()),
        (BEGUN, answer(14_999), SkipUpdate("not_grown")),
        (BEGUN, answer(15_000), StartUpdate()),
        (BEGUN, answer(15_000, message="m0"), SkipUpdate("seen")),
        (BEGUN, answer(15_000, is_main=False), SkipUpdate("not_main")),
        (BEGUN, answer(15_000, is_compacting=True), SkipUpdate("compacting")),
        (BEGUN, answer(2_000), SkipUpdate("not_grown")),
        (RUNNING, answer(14_000), SkipUpdate("not_grown")),
        (RUNNING, answer(15_000), WaitForUpdate()),
        (replace(BEGUN, is_wanted=True), answer(10_100, 1), StartUpdate()),
        (replace(BEGUN, idle=1), answer(19_999), SkipUpdate("backing_off")),
        (replace(BEGUN, idle=1), answer(20_000), StartUpdate()),
        (replace(BEGUN, idle=50), answer(50_000), StartUpdate()),
        (replace(BEGUN, spent=tuple((0.0, 0) for _ in range(30))), answer(15_000), SkipUpdate("quiet_budget")),
        (replace(BEGUN, spent=tuple((0.0, 0) for _ in range(30))), answer(15_000, at=3_600.0), StartUpdate()),
    ],
)
def test_answers(pace: UpdatePace, event: AnswerGiven, action: object) -> None:
    """SM-2: minimum, growth, ten calls or a pause, once a message; SM-9: back-off and quiet budget."""
    assert step(pace, event, LIMITS)[1] == action


def test_tokens_of_an_hour() -> None:
    """SM-9: a model that read and wrote enough in this hour isn't asked; code goes on, as it spends nothing."""
    limits = UpdateTriggers(tokens_per_hour=1_000)
    pace, _ = step(RUNNING, UpdateEnded(tokens=1_000), limits)
    assert step(pace, answer(15_000), limits)[1] == StartUpdate(may_ask=False)
    assert step(pace, answer(15_000, at=4_000.0), limits)[1] == StartUpdate()


def test_what_comes_meanwhile_is_one_follow_up() -> None:
    """SM-2: debounce."""
    pace, wait = step(RUNNING, answer(15_000), LIMITS)
    pace, again = step(pace, answer(21_000, message="m2"), LIMITS)
    pace, action = step(pace, UpdateEnded(), LIMITS)
    assert (
        (wait, again, action) == (WaitForUpdate(), WaitForUpdate(), StartUpdate())
        and pace.is_running
        and pace.base == 21_000
    )
    pace, action = step(pace, UpdateEnded(), LIMITS)
    assert action == SkipUpdate("over") and not pace.is_running


def test_a_compaction_in_the_way_puts_it_off() -> None:
    """SM-2: never while a compaction runs."""
    pace, _ = step(RUNNING, UpdatePutOff(), LIMITS)
    assert not pace.is_running
    assert step(pace, answer(10_010, 1, is_compacting=True), LIMITS)[1] == SkipUpdate("compacting")
    assert step(pace, answer(10_010, 1), LIMITS)[1] == StartUpdate()


def test_runs_that_bring_nothing_grow_rare() -> None:
    """SM-9."""
    assert step(RUNNING, UpdateEnded(is_changed=False), LIMITS)[0].idle == 1
    assert step(RUNNING, UpdateFailed(), LIMITS)[0].idle == 1
    assert step(replace(RUNNING, idle=3), UpdateEnded(), LIMITS)[0].idle == 0


EVENTS = st.one_of(
    st.builds(
        AnswerGiven,
        message=st.sampled_from([f"m{n}" for n in range(50)]),
        tokens=st.integers(0, 60_000),
        calls=st.integers(0, 12),
        at=st.floats(0, 10_000),
        is_main=st.booleans(),
        is_compacting=st.booleans(),
    ),
    st.just(UpdatePutOff()),
    st.builds(UpdateEnded, at=st.floats(0, 10_000), tokens=st.integers(0, 9_000), is_changed=st.booleans()),
    st.builds(UpdateFailed, at=st.floats(0, 10_000), tokens=st.integers(0, 9_000)),
)


@given(st.lists(EVENTS, max_size=60))
def test_never_two_at_once(events: list[AnswerGiven | UpdatePutOff | UpdateEnded | UpdateFailed]) -> None:
    """SM-2."""
    pace = UpdatePace()
    for event in events:
        before = pace
        pace, action = step(pace, event, LIMITS)
        if isinstance(action, StartUpdate):
            assert isinstance(event, UpdateEnded) or not before.is_running
            assert pace.is_running and not pace.is_wanted
        if isinstance(event, AnswerGiven) and (event.is_compacting or not event.is_main):
            assert not isinstance(action, StartUpdate)
        assert pace.base <= max(pace.tokens, 0) and len(pace.spent) <= LIMITS.runs_per_hour + 60
