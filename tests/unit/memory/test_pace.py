"""SM-2, SM-9: when notes are updated."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.memory.pace import Answered, Ended, Failed, Limits, Pace, PutOff, Skip, Start, Wait, step

pytestmark = pytest.mark.unit

LIMITS = Limits()
BEGUN = Pace(has_begun=True, base=10_000, tokens=10_000, seen="m0")
RUNNING = replace(BEGUN, is_running=True, spent=((0.0, 0),))


def answer(tokens: int, calls: int = 0, message: str = "m1", **more: object) -> Answered:
    return replace(Answered(message=message, tokens=tokens, calls=calls), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pace", "event", "action"),
    [
        (Pace(), answer(4_999), Skip("too_small")),
        (Pace(), answer(5_000), Start()),
        (Pace(), answer(5_000, 1), Skip("no_pause")),
        (Pace(), answer(5_000, 10), Start()),
        (Pace(calls=9), answer(5_000, 1), Start()),
        (BEGUN, answer(14_999), Skip("not_grown")),
        (BEGUN, answer(15_000), Start()),
        (BEGUN, answer(15_000, message="m0"), Skip("seen")),
        (BEGUN, answer(15_000, is_main=False), Skip("not_main")),
        (BEGUN, answer(15_000, is_compacting=True), Skip("compacting")),
        (BEGUN, answer(2_000), Skip("not_grown")),
        (RUNNING, answer(14_000), Skip("not_grown")),
        (RUNNING, answer(15_000), Wait()),
        (replace(BEGUN, is_wanted=True), answer(10_100, 1), Start()),
        (replace(BEGUN, idle=1), answer(19_999), Skip("backing_off")),
        (replace(BEGUN, idle=1), answer(20_000), Start()),
        (replace(BEGUN, idle=50), answer(50_000), Start()),
        (replace(BEGUN, spent=tuple((0.0, 0) for _ in range(30))), answer(15_000), Skip("quiet_budget")),
        (replace(BEGUN, spent=tuple((0.0, 0) for _ in range(30))), answer(15_000, at=3_600.0), Start()),
    ],
)
def test_answers(pace: Pace, event: Answered, action: object) -> None:
    """SM-2: minimum, growth, ten calls or a pause, once a message; SM-9: back-off and quiet budget."""
    assert step(pace, event, LIMITS)[1] == action


def test_tokens_of_an_hour() -> None:
    """SM-9: a model that read and wrote enough in this hour isn't asked; code goes on, as it spends nothing."""
    limits = Limits(tokens_per_hour=1_000)
    pace, _ = step(RUNNING, Ended(tokens=1_000), limits)
    assert step(pace, answer(15_000), limits)[1] == Start(may_ask=False)
    assert step(pace, answer(15_000, at=4_000.0), limits)[1] == Start()


def test_what_comes_meanwhile_is_one_follow_up() -> None:
    """SM-2: debounce."""
    pace, wait = step(RUNNING, answer(15_000), LIMITS)
    pace, again = step(pace, answer(21_000, message="m2"), LIMITS)
    pace, action = step(pace, Ended(), LIMITS)
    assert (wait, again, action) == (Wait(), Wait(), Start()) and pace.is_running and pace.base == 21_000
    pace, action = step(pace, Ended(), LIMITS)
    assert action == Skip("over") and not pace.is_running


def test_a_compaction_in_the_way_puts_it_off() -> None:
    """SM-2: never while a compaction runs."""
    pace, _ = step(RUNNING, PutOff(), LIMITS)
    assert not pace.is_running
    assert step(pace, answer(10_010, 1, is_compacting=True), LIMITS)[1] == Skip("compacting")
    assert step(pace, answer(10_010, 1), LIMITS)[1] == Start()


def test_runs_that_bring_nothing_grow_rare() -> None:
    """SM-9."""
    assert step(RUNNING, Ended(is_changed=False), LIMITS)[0].idle == 1
    assert step(RUNNING, Failed(), LIMITS)[0].idle == 1
    assert step(replace(RUNNING, idle=3), Ended(), LIMITS)[0].idle == 0


EVENTS = st.one_of(
    st.builds(
        Answered,
        message=st.sampled_from([f"m{n}" for n in range(50)]),
        tokens=st.integers(0, 60_000),
        calls=st.integers(0, 12),
        at=st.floats(0, 10_000),
        is_main=st.booleans(),
        is_compacting=st.booleans(),
    ),
    st.just(PutOff()),
    st.builds(Ended, at=st.floats(0, 10_000), tokens=st.integers(0, 9_000), is_changed=st.booleans()),
    st.builds(Failed, at=st.floats(0, 10_000), tokens=st.integers(0, 9_000)),
)


@given(st.lists(EVENTS, max_size=60))
def test_never_two_at_once(events: list[Answered | PutOff | Ended | Failed]) -> None:
    """SM-2."""
    pace = Pace()
    for event in events:
        before = pace
        pace, action = step(pace, event, LIMITS)
        if isinstance(action, Start):
            assert isinstance(event, Ended) or not before.is_running
            assert pace.is_running and not pace.is_wanted
        if isinstance(event, Answered) and (event.is_compacting or not event.is_main):
            assert not isinstance(action, Start)
        assert pace.base <= max(pace.tokens, 0) and len(pace.spent) <= LIMITS.runs_per_hour + 60
