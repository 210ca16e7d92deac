"""TOK-3, TOK-4: the last report is the anchor, what came after is estimated, and what is learned stays in bounds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import plans
from tests.tiers import examples
from tests.worlds import World, front

from perdure.context.state import CALIBRATION_RANGE
from perdure.context.view import ContextView, project, size_tokens
from perdure.settings import Settings
from perdure.transcript.blocks import block_of
from perdure.transcript.messages import Message, MessageId, ResponseId, Usage, content_of
from perdure.transcript.tokens import base_tokens, live_tokens

pytestmark = pytest.mark.laws

_COUNT = iter(range(10**9))


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def said(role: Any, words: str, usage: Usage | None = None, response: str | None = None, **more: Any) -> Message:
    return Message(
        id=MessageId(f"m{next(_COUNT)}"),
        role=role,
        content=content_of([block_of(text(words))]),
        origin="model" if role == "assistant" else "user",
        usage=usage,
        response_id=ResponseId(response) if response else None,
        **more,
    )


def size(*messages: Message) -> int:
    return size_tokens(project(messages))


def test_without_a_report_everything_counts_with_a_margin() -> None:
    """TOK-3: base estimate of everything times 4/3, rounded up."""
    assert size(said("user", "x" * 400)) == 134  # 100 * 4 / 3
    assert size(said("user", "x" * 400), said("assistant", "y" * 400)) == 267
    assert size_tokens(ContextView()) == 0


def test_a_report_anchors_and_what_came_after_is_added_without_margin() -> None:
    """TOK-3: input + cache read + cache write + output, and the estimate of the rest."""
    usage = Usage(10, 50, 1_000, 200)
    answer = said("assistant", "y" * 40, usage, "r1")
    assert size(said("user", "x" * 4_000), answer) == 1_260
    later = "z" * 4_000
    assert size(said("user", "x" * 4_000), answer, said("user", later)) == 1_260 + live_tokens(later)


def test_one_response_is_counted_once() -> None:
    """TOK-3, ENG-2: messages of one response repeat its usage; what stands between them is added."""
    usage = Usage(1_000, 80)
    words = "between the two parts of the answer"
    first, second = said("assistant", "a" * 40, usage, "r1"), said("assistant", "b" * 40, usage, "r1")
    assert size(said("user", "hi"), first, second) == 1_080
    assert size(said("user", "hi"), first, said("user", words), second) == 1_080 + live_tokens(words)


def test_an_empty_report_is_none() -> None:
    """TOK-3: logs hold usage of zero for messages that no model made."""
    assert size(said("user", "x" * 400), said("assistant", "y" * 400, Usage(), "r")) == 267


def test_the_front_counts_before_any_report() -> None:
    """TOK-2: system prompt and tools are counted too."""
    plain, fronted = size_tokens(project([said("user", "hi")])), size_tokens(project([front(), said("user", "hi")]))
    assert fronted > plain + 100


def test_a_new_front_moves_the_anchor_by_its_difference() -> None:
    """TOK-3: a longer system prompt makes the view larger at once."""
    view = project([front(words=20), said("user", "hi"), said("assistant", "yes", Usage(500, 5), "r1")])
    longer = project([front(words=2_000)], onto=view)
    assert size_tokens(longer) > size_tokens(view) + 2_000
    assert size_tokens(project([front(words=20)], onto=longer)) == size_tokens(view)


@given(st.lists(st.tuples(st.text(max_size=4_000), st.integers(0, 50_000), st.integers(0, 5_000)), max_size=12))
def test_learning_stays_in_bounds(turns: list[tuple[str, int, int]]) -> None:
    """TOK-4: whatever is reported, the ratio stays in its range and moves by bounded steps."""
    view, ratio = ContextView(), 1.0
    for number, (words, prompt, output) in enumerate(turns):
        view = project([said("user", words)], onto=view)
        usage = Usage(prompt, output)
        view = project([said("assistant", "ok", usage, f"r{number}", model="m")], onto=view)
        now = view.state.calibration.ratio
        assert CALIBRATION_RANGE[0] <= now <= CALIBRATION_RANGE[1]
        assert abs(now - ratio) <= 0.25 * (CALIBRATION_RANGE[1] - CALIBRATION_RANGE[0])
        ratio = now


@given(st.text(max_size=500), st.text(max_size=500))
def test_more_text_never_counts_less(one: str, two: str) -> None:
    """TOK-1: both estimators are monotone, so a session never shrinks by growing."""
    assert live_tokens(one + two) >= live_tokens(one)
    assert base_tokens(one + two) >= base_tokens(one)


@examples(40)
@given(plans.sessions(without=(plans.Compact, plans.Rewind, plans.Configure)))
def test_the_anchored_size_follows_the_truth(steps: list[plans.Step]) -> None:
    """TOK-3: right after a report the size is that report, plus the results that came since."""
    world = World(Settings(window_tokens=1_000_000), window=1_000_000)
    for step in steps:
        world.play(step)
        anchor = world.session.view.anchor
        if anchor is not None and anchor.is_reported and isinstance(step, plans.Answer):
            gained = world.session.view.size.live - anchor.at.live
            ratio = world.session.view.state.calibration.ratio
            assert size_tokens(world.session.view) == max(0, anchor.tokens + round(ratio * gained))
