"""TURN-7: which thinking goes with an edit, which edits wait, and who may keep what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.unit.context.making import UNBOUND, Talk, call, facts, text, thinking

from perdure.context.cuts import open_loop
from perdure.context.failures import without_refused_thinking
from perdure.context.groups import flatten, required_thinking
from perdure.context.request import to_request
from perdure.context.thinking import (
    closed_groups,
    closing_lines,
    dropped_thinking,
    is_broken,
    is_postponed,
    with_thinking,
)
from perdure.transcript.messages import MessageId
from perdure.transcript.records import BlockChange, Snipped, ThinkingDropped

pytestmark = pytest.mark.unit

BOUND = replace(UNBOUND, thinking_is_bound=True)


def talk(*, is_open: bool) -> Talk:
    """Positions 0 to 3: a finished turn; 4 to 7: a tool loop, open or closed."""
    some = Talk()
    some.user()
    some.model(thinking("one"), call("a"))
    some.result("a", "x" * 4_000)
    some.model(thinking("two"), text("done"))
    some.user()
    some.model(thinking("three"), call("b"))
    some.result("b", "y")
    if not is_open:
        some.model(text("done"))
    return some


def gone(message: str) -> ThinkingDropped:
    return ThinkingDropped(changes=(BlockChange(message=MessageId(message), block=0),))


def dropped(view: Any, position: int, **more: Any) -> list[str]:
    edit = dropped_thinking(view, position, facts(**more))
    return [change.message for change in edit.changes] if edit else []


@pytest.mark.parametrize(
    ("is_open", "model", "position", "gone"),
    [
        (False, BOUND, 2, ["m4", "m6"]),
        (False, UNBOUND, 2, ["m4", "m6"]),
        (False, BOUND, 4, ["m6"]),
        (True, UNBOUND, 0, ["m2", "m4"]),  # the open loop needs its thinking back
        (True, BOUND, 0, ["m2", "m4", "m6"]),  # its signatures no longer hold
        (False, BOUND, 6, []),
    ],
)
def test_thinking_behind_an_edit_goes(is_open: bool, model: Any, position: int, gone: list[str]) -> None:
    """TURN-7: from the edit on, but for the open loop of a model that doesn't bind it."""
    assert dropped(talk(is_open=is_open).view, position, model=model) == gone


def test_the_provider_can_do_it_instead() -> None:
    """TURN-7: a setting leaves thinking in place and tells the provider to drop what no longer fits."""
    some = talk(is_open=False)
    assert dropped(some.view, 0, model=BOUND, thinking="provider") == []
    request = to_request(some.view, facts(model=BOUND, thinking="provider"))
    given = msgspec.json.decode(request.body)["thinking"]
    assert given == {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    assert request.betas == ("thinking-binding-controls-2026-08-01",)
    assert b"block_binding" not in to_request(some.view, facts(model=UNBOUND, thinking="provider")).body


def test_an_edit_before_an_open_loop_waits() -> None:
    """TURN-7, TURN-15: nothing before or in it is edited, unless the call would otherwise not be made."""
    view = talk(is_open=True).view
    assert is_postponed(view, 2, facts(model=BOUND))
    assert is_postponed(view, 5, facts(model=BOUND))
    assert not is_postponed(view, 6, facts(model=BOUND)), "nothing bound stands behind it"
    assert not is_postponed(view, 2, facts(model=UNBOUND))
    assert not is_postponed(view, 2, facts(model=BOUND, thinking="provider"))
    assert is_postponed(view, 2, facts(2_000, model=BOUND)), "at the trigger a compaction acts"
    assert not is_postponed(view, 2, facts(1_800, model=BOUND)), "above the block threshold"
    assert not is_postponed(talk(is_open=False).view, 2, facts(model=BOUND))


def test_an_edit_takes_its_thinking_along_only_where_something_was_sent() -> None:
    """TURN-7: what was never sent was never signed for."""
    view = talk(is_open=False).view
    sent = Snipped(changes=(BlockChange(message=MessageId("m3"), block=0),))
    unsent = Snipped(changes=(BlockChange(message=MessageId("m8"), block=0),))
    assert len(with_thinking(view, (sent,), facts(model=BOUND))) == 2
    assert with_thinking(view, (unsent,), facts(model=BOUND)) == (unsent,)
    assert with_thinking(view, (), facts(model=BOUND)) == ()


def test_words_behind_results_do_not_end_a_loop() -> None:
    """TURN-7, TURN-9: they are part of the same API message; a turn of the model without calls ends it."""
    some = talk(is_open=True)
    assert open_loop(some.view) == 5
    some.user("hurry up")
    some.message("user", text("remember"), origin="reminder")
    assert open_loop(some.view) == 5
    some.model(text("done"))
    some.user()
    assert open_loop(some.view) is None


def test_an_open_call_is_an_open_loop() -> None:
    """TURN-7: its answer is still to come."""
    some = Talk()
    some.user()
    some.model(thinking(), call("a"))
    assert open_loop(some.view) == 1
    assert open_loop(Talk().view) is None


def test_a_loop_is_broken_by_what_it_lost() -> None:
    """TURN-15: signed thinking that was said in the open loop and isn't shown; not in finished turns, not unsigned."""
    some = talk(is_open=True)
    assert not is_broken(some.view, "said")
    some.records.append(gone("m2"))
    assert not is_broken(some.view, "said"), "of a finished turn"
    some.records.append(gone("m6"))
    assert is_broken(some.view, "said") and is_broken(some.view, "first")
    assert not is_broken(some.view, "none"), "the request carries no thinking"
    some.records += [msgspec.structs.replace(line, id=f"c{n}") for n, line in enumerate(closing_lines())]
    assert not is_broken(some.view, "said")
    assert open_loop(some.view) is None

    other = Talk()
    other.user()
    other.model({"type": "thinking", "thinking": "hm", "signature": ""}, call("a"))
    other.result("a", "y")
    other.records.append(gone("m2"))
    assert not is_broken(other.view, "said"), "no provider takes back what it didn't sign"


def test_an_answer_in_several_messages_is_one() -> None:
    """TURN-15: its thinking may stand in a message of its own, which shows nothing any more."""
    some = Talk()
    some.user()
    some.model(thinking("one"), response="r")
    some.model(call("a"), response="r")
    some.result("a", "y")
    assert not is_broken(some.view, "said")
    some.records.append(gone("m2"))
    assert is_broken(some.view, "said")


@pytest.mark.parametrize(
    ("protocol", "head", "wanted"),
    [
        ("anthropic", None, "said"),
        ("anthropic", {"thinking": {"type": "adaptive"}}, "said"),
        ("anthropic", {"thinking": {"type": "enabled", "budget_tokens": 2_000}}, "first"),
        ("anthropic", {"thinking": msgspec.Raw(b'{"type":"enabled"}')}, "first"),
        ("anthropic", {"thinking": {"type": "disabled"}}, "none"),
        ("anthropic", {"thinking": None}, "said"),
        ("openai", None, "none"),
    ],
)
def test_what_a_request_has_to_bring_back(protocol: str, head: Any, wanted: str) -> None:
    """TURN-15: by the protocol, and by the fields of whoever asks."""
    assert required_thinking(protocol, head) == wanted


def test_a_request_that_is_made_once_is_closed_without_a_record() -> None:
    """TURN-15, SM-3: for another model, which gets no thinking, as for a loop that is broken; words of ours follow."""
    some = talk(is_open=True)
    groups = flatten(some.view)
    assert closed_groups(some.view, groups, len(some.view.items), is_bare=False) == groups
    bare = closed_groups(some.view, groups, len(some.view.items), is_bare=True)
    assert bare[:-1] == groups and bare[-1].role == "assistant"
    some.records.append(gone("m6"))
    groups = flatten(some.view)
    assert len(closed_groups(some.view, groups, len(some.view.items), is_bare=False)) == len(groups) + 1
    done = talk(is_open=False)
    assert closed_groups(done.view, flatten(done.view), len(done.view.items), is_bare=True) == flatten(done.view)


def test_what_a_refusal_of_thinking_takes() -> None:
    """TURN-11, TURN-15: a named block and all behind it; nothing where another block of an open loop is named."""
    view = talk(is_open=True).view
    groups = flatten(view)

    def taken(path: str | None) -> list[str]:
        return [change.message for edit in without_refused_thinking(view, groups, path) for change in edit.changes]

    assert taken("messages.3.content.0") == ["m4", "m6"]
    assert taken("messages.5.content.1") == [], "thinking is missing there"
    assert taken(None) == ["m2", "m4", "m6"]
