"""TURN-11, TOK-4, PRS-8: what is changed in a view after a failed call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from perdure.context.failures import (
    correction,
    fits_already,
    locate_block,
    window_after_cut,
    without_refused_media,
    without_refused_thinking,
)
from perdure.context.models import UNKNOWN
from perdure.context.policy import Facts, thresholds
from perdure.context.request import to_request
from perdure.context.view import ContextView, project
from perdure.errors import PromptTooLong
from perdure.settings import Settings
from perdure.transcript.messages import Message, MessageId, Usage
from perdure.transcript.records import Calibrated, Front

pytestmark = pytest.mark.unit

IMAGE = {"type": "image", "source": {"type": "url", "url": "https://example.invalid/a.png"}}


def facts(window: int = 200_000) -> Facts:
    settings = Settings()
    return Facts(settings=settings, limits=thresholds(settings, UNKNOWN, window, "default"))


def said(number: int, role: Any, content: Any, **more: Any) -> Message:
    return Message.of(role, content, id=MessageId(f"m{number}"), **more)


def thought(text: str) -> dict[str, str]:
    return {"type": "thinking", "thinking": text, "signature": "s"}


def conversation(*, words: str = "word " * 4_000) -> ContextView:
    return project(
        [
            said(1, "user", words),
            said(2, "assistant", [thought("a"), {"type": "text", "text": "yes"}]),
            said(3, "user", [{"type": "text", "text": "look"}, IMAGE]),
            said(4, "assistant", [thought("b"), {"type": "tool_use", "id": "t1", "name": "Read", "input": {}}]),
            said(
                5,
                "user",
                [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "x"}, IMAGE]},
                ],
            ),
        ]
    )


# --- sizes and windows ---------------------------------------------------------------------------------------------


def test_stated_numbers_become_window_size_and_ratio() -> None:
    view = conversation()
    error = PromptTooLong(tokens=6_000, maximum=5_000)
    learned = correction(view, facts(), error, "m")
    assert learned.window_tokens == 5_000 and learned.size_tokens == 6_000
    assert learned.ratio == pytest.approx(6_000 / view.size.live, abs=0.01)
    after = project([learned], onto=view)
    assert facts().size(after) == 6_000
    assert after.state.calibration.window_tokens == 5_000


def test_the_size_goes_on_from_what_was_stated() -> None:
    view = project([Calibrated(model="m", ratio=1.0, size_tokens=6_000)], onto=conversation())
    more = project([said(6, "user", "word " * 400)], onto=view)
    assert facts().size(more) == 6_000 + more.size.live - view.size.live


def test_the_ratio_stays_in_its_range() -> None:
    view = conversation()
    assert correction(view, facts(), PromptTooLong(tokens=900_000, maximum=800_000), "m").ratio == 2.0
    assert correction(view, facts(), PromptTooLong(tokens=10, maximum=5), "m").ratio == 0.5


def test_without_numbers_far_below_the_window_the_window_is_smaller() -> None:
    view = conversation()
    size = facts().size(view)
    learned = correction(view, facts(), PromptTooLong(), "m")
    assert (learned.window_tokens, learned.size_tokens) == (size, None)


def test_a_window_that_a_person_set_is_not_made_smaller_by_a_guess() -> None:
    """PRS-8: what a provider states is believed, what follows from a refusal without numbers isn't."""
    view, settings = conversation(), Settings()
    mine = Facts(settings=settings, limits=thresholds(settings, UNKNOWN, 200_000, "setting"))
    assert correction(view, mine, PromptTooLong(), "m").window_tokens is None
    assert correction(view, mine, PromptTooLong(maximum=30_000), "m").window_tokens == 30_000


def test_without_numbers_near_the_window_the_context_is_larger() -> None:
    view = conversation()
    near = facts(facts().size(view) + 100)
    learned = correction(view, near, PromptTooLong(), "m")
    assert (learned.window_tokens, learned.size_tokens) == (None, near.limits.window + 1)


def test_another_models_window_is_forgotten() -> None:
    view = project([Calibrated(model="a", ratio=1.0, window_tokens=8_000)], onto=conversation())
    again = project([Calibrated(model="a", ratio=1.1)], onto=view)
    assert again.state.calibration.window_tokens == 8_000
    other = project([Calibrated(model="b", ratio=1.0)], onto=view)
    assert other.state.calibration.window_tokens is None
    usage = Usage(input_tokens=5_000, output_tokens=10)
    answered = project([said(9, "assistant", "ok", model="b", usage=usage)], onto=view)
    assert answered.state.calibration.window_tokens is None
    same = project([said(9, "assistant", "ok", model="a", usage=usage)], onto=view)
    assert same.state.calibration.window_tokens == 8_000


@pytest.mark.parametrize(
    ("tokens", "maximum", "fits"), [(1_000, 32_768, True), (33_000, 32_768, False), (None, 32_768, False)]
)
def test_whether_only_the_answer_does_not_fit(tokens: int | None, maximum: int, fits: bool) -> None:
    assert fits_already(PromptTooLong(tokens=tokens, maximum=maximum)) is fits


@pytest.mark.parametrize(
    ("sent", "reported", "window"),
    [
        (20_000, 4_080, 4_096),
        (20_000, 2_047, 2_048),
        (20_000, 5_000, 8_192),
        (20_000, 9_000, None),  # an estimate may be that wrong
        (20_000, 25_000, None),
        (2_000, 300, None),  # too little to tell
        (20_000, 0, None),
    ],
)
def test_a_prompt_cut_by_the_server_shows_its_window(sent: int, reported: int, window: int | None) -> None:
    assert window_after_cut(sent, Usage(input_tokens=reported)) == window
    assert window_after_cut(sent, None) is None


def test_an_answer_is_asked_to_fit_where_servers_insist() -> None:
    view = project([Front(model="m"), said(1, "user", "hello")])
    known = replace(facts(), limits=thresholds(Settings(), UNKNOWN, 8_192, "provider"))
    assert b'"max_completion_tokens":8' in to_request(view, known, protocol="openai").body
    assert b'"max_tokens":8' in to_request(view, known).body
    assert b'"max_tokens":32000' in to_request(view, facts()).body


# --- media and thinking ---------------------------------------------------------------------------------------------


def shown(view: ContextView) -> list[list[str]]:
    return [[block.type for block in item.visible] for item in view.items]


def test_the_named_medium_goes() -> None:
    view = conversation()
    groups = to_request(view, facts()).groups
    (edit,) = without_refused_media(view, groups, "messages.2.content.1")
    after = project([edit], onto=view)
    assert shown(after)[2] == ["text", "text"] and after.media == 1
    assert b"Image left out: the provider refused it; recall with id m3" in bytes(edit.changes[0].to)
    (inner,) = without_refused_media(view, groups, "messages.4.content.0.content.1")
    after = project([inner], onto=view)
    assert after.media == 1 and shown(after)[2] == ["text", "image"]


def test_without_a_name_the_new_media_go_first_then_all() -> None:
    view = conversation()
    (edit,) = without_refused_media(view, (), None)
    assert {change.message for change in edit.changes} == {"m5"}  # m3 was in a request that was answered
    after = project([edit], onto=view)
    (rest,) = without_refused_media(after, (), "messages.0.content.0")
    after = project([rest], onto=after)
    assert after.media == 0
    assert without_refused_media(after, (), None) == ()


def test_a_refused_thinking_block_takes_the_later_ones_along() -> None:
    view = conversation()
    groups = to_request(view, facts()).groups
    (edit,) = without_refused_thinking(view, groups, "messages.3.content.0")
    assert [change.message for change in edit.changes] == ["m4"]
    (edit,) = without_refused_thinking(view, groups, "messages.1.content.0")
    assert [change.message for change in edit.changes] == ["m2", "m4"]
    (edit,) = without_refused_thinking(view, groups, None)
    after = project([edit], onto=view)
    assert without_refused_thinking(after, groups, None) == ()


@pytest.mark.parametrize("path", ["messages.99.content.0", "messages.0.content.9", "messages.0", None])
def test_a_path_that_leads_nowhere_names_nothing(path: str | None) -> None:
    view = conversation()
    assert locate_block(to_request(view, facts()).groups, path) is None
