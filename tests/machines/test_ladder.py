"""TURN-11: every sequence of outcomes ends, by an answer or by an error that says what was tried."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from perdure.engine.ask import (
    CallOutcome,
    Compact,
    Correct,
    DeliverAnswer,
    DropMedia,
    DropThinking,
    EmptyAnswer,
    GiveUp,
    GoodAnswer,
    RecoveryLadder,
    RemedyLimits,
    RemedyUseless,
    Retry,
    WindowStop,
    step,
)
from perdure.errors import (
    BadRequest,
    BodyTooLarge,
    KeyRefused,
    MediaRefused,
    ModelDown,
    ModelError,
    ModelUnknown,
    OutputTooLong,
    Overloaded,
    PromptTooLong,
    PromptTruncated,
    RateLimited,
    StreamCut,
    ThinkingRefused,
)

pytestmark = pytest.mark.machines

# Everything the chaos model can do, and what remedies may say.
ALPHABET: tuple[CallOutcome, ...] = (
    GoodAnswer(),
    EmptyAnswer(),
    WindowStop(),
    Overloaded(),
    RateLimited(retry_after_seconds=20.0),
    ModelDown(),
    StreamCut(),
    PromptTooLong(),
    PromptTooLong(tokens=210_000, maximum=200_000),
    PromptTooLong(tokens=1_000, maximum=32_768),
    PromptTruncated(tokens=9_000, maximum=4_096),
    BodyTooLarge(),
    OutputTooLong(maximum=8_192),
    MediaRefused(path="messages.0.content.0"),
    ThinkingRefused(path="messages.1.content.0"),
    BadRequest(),
    KeyRefused(),
    ModelUnknown(),
    RemedyUseless("nothing to compact"),
)
REMEDIES = {Retry, Correct, Compact, DropMedia, DropThinking}


def key_of(ladder: RecoveryLadder) -> RecoveryLadder:
    """All that decides what comes next: the words of what was tried don't, only how many there are."""
    return replace(ladder, tried=("",) * ladder.used)


def test_every_sequence_up_to_six_goes_down_the_ladder() -> None:
    """All of them, those that reach one state taken together. Each remedy uses something up, nothing gives it back."""
    reached = {RecoveryLadder(): 1}  # state to the number of sequences that lead there
    went_on = ended = 0
    for _ in range(6):
        following: Counter[RecoveryLadder] = Counter()
        for before, ways in reached.items():
            for outcome in ALPHABET:
                after, action = step(before, outcome)
                if type(action) in REMEDIES:
                    went_on += ways
                    assert after.used == before.used + 1 and after.seconds <= after.rungs.seconds
                    following[key_of(after)] += ways
                    continue
                ended += ways
                assert isinstance(action, DeliverAnswer | GiveUp)
                assert not isinstance(action, GiveUp) or len(action.tried) == before.used
                assert isinstance(action, DeliverAnswer) == isinstance(outcome, GoodAnswer | EmptyAnswer)
        reached = dict(following)
    assert went_on > 100_000 and ended > 100_000, (went_on, ended)


def test_no_sequence_of_any_length_goes_on_for_ever() -> None:
    """The longest possible one has as many remedies as the rungs allow together."""
    small = RemedyLimits(retries=2, cuts=1, media=2, thinking=2, seconds=50.0)
    longest: dict[RecoveryLadder, int] = {}

    def length(ladder: RecoveryLadder) -> int:
        key = RecoveryLadder(
            rungs=small,
            retries=ladder.retries,
            seconds=ladder.seconds,
            cuts=ladder.cuts,
            blanks=ladder.blanks,
            corrections=ladder.corrections,
            compactions=ladder.compactions,
            window_stops=ladder.window_stops,
            media=ladder.media,
            thinking=ladder.thinking,
        )
        if key not in longest:
            steps = [step(ladder, outcome) for outcome in ALPHABET]
            longest[key] = 1 + max((length(after) for after, act in steps if type(act) in REMEDIES), default=0)
        return longest[key]

    assert length(RecoveryLadder(rungs=small)) == 1 + 2 + 1 + 1 + 1 + 1 + 1 + 2 + 2


@pytest.mark.parametrize(
    ("errors", "waits"),
    [
        ([Overloaded()] * 4, [1, 2, 4, 8]),
        ([RateLimited(retry_after_seconds=30.0)] * 3, [30, 30, 30]),
        ([ModelDown(), Overloaded(retry_after_seconds=5.0), ModelDown()], [1, 5, 4]),
    ],
)
def test_waits_follow_the_server_else_double(errors: list[ModelError], waits: list[float]) -> None:
    ladder, seconds = RecoveryLadder(), []
    for error in errors:
        ladder, action = step(ladder, error)
        assert isinstance(action, Retry)
        seconds.append(action.seconds)
    assert seconds == waits and ladder.seconds == sum(waits)


def test_waiting_has_an_end_in_number_and_in_time() -> None:
    ladder, tries = RecoveryLadder(rungs=RemedyLimits(retries=3)), 0
    while isinstance((stepped := step(ladder, Overloaded(retry_after_seconds=0.0)))[1], Retry):
        ladder, tries = stepped[0], tries + 1
    assert tries == 3
    _, action = step(RecoveryLadder(rungs=RemedyLimits(seconds=60)), RateLimited(retry_after_seconds=61.0))
    assert isinstance(action, GiveUp) and not action.tried


def test_too_long_compacts_once_with_what_the_error_states() -> None:
    error = PromptTooLong(tokens=210_000, maximum=200_000)
    ladder, action = step(RecoveryLadder(), error)
    assert action == Compact(error, "prompt_too_long")
    assert isinstance(step(ladder, error)[1], GiveUp)


def test_room_for_the_answer_alone_needs_no_compaction() -> None:
    error = PromptTooLong(tokens=1_000, maximum=32_768)
    ladder, action = step(RecoveryLadder(), error)
    assert action == Correct(error)
    ladder, action = step(ladder, error)
    assert isinstance(action, Compact)


def test_named_media_go_one_by_one_then_all() -> None:
    ladder, paths = RecoveryLadder(), []
    for number in range(4):
        ladder, action = step(ladder, MediaRefused(path=f"messages.{number}.content.0"))
        assert isinstance(action, DropMedia)
        paths.append(action.path)
    assert paths == ["messages.0.content.0", "messages.1.content.0", "messages.2.content.0", None]
    assert isinstance(step(ladder, MediaRefused())[1], GiveUp)


def test_what_a_useless_remedy_was_for_is_said() -> None:
    ladder, _ = step(RecoveryLadder(), PromptTooLong("prompt is too long"))
    _, action = step(ladder, RemedyUseless("nothing_to_compact"))
    assert isinstance(action, GiveUp)
    assert action.last.reason == "prompt_too_long" and action.tried == ("compacted (no use: nothing_to_compact)",)
