"""TURN-5: what a moved prefix costs, and whether it is earned back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.context.making import UNBOUND, Talk, facts, text

from holdfast.context.economics import move_of, move_price, moved_by, pays_back, usage_usd
from holdfast.context.microcompact import microcompact
from holdfast.context.models import model_facts
from holdfast.context.view import project
from holdfast.transcript.edits import Undone
from holdfast.transcript.messages import Usage
from holdfast.transcript.records import Front

pytestmark = pytest.mark.unit

PRICED = replace(UNBOUND, input_usd=10.0, output_usd=50.0, read_factor=0.1, write_factor=1.25)


def long_talk(usage: int = 150_000) -> Talk:
    talk = Talk()
    talk.user()
    for n in range(10):
        talk.ran(f"t{n}", "Read", f"{n}" * 40_000)
    talk.model(text("ok"), usage=usage)
    return talk


def test_a_move_is_priced_as_writing_instead_of_reading() -> None:
    """TURN-5: tokens after the edit point * (write price - read price)."""
    assert move_price(1_000_000, PRICED, "5m") == pytest.approx(10 * (1.25 - 0.1))
    assert move_price(1_000_000, PRICED, "1h") == pytest.approx(10 * (2.0 - 0.1))
    assert move_price(1_000_000, UNBOUND, "5m") is None
    talk = long_talk()
    known = facts(model=PRICED)
    edits = microcompact(talk.view, known)
    move = move_of(talk.view, edits, known)
    assert move is not None
    assert move.position == talk.view.results["t0"].position  # type: ignore[index]
    assert move.usd == move_price(move.tokens_rewritten, PRICED, "5m")
    hour = move_of(talk.view, edits, facts(model=PRICED, cache_ttl="1h"))
    assert hour is not None and hour.usd == move_price(move.tokens_rewritten, PRICED, "1h")


def test_a_response_costs_what_its_cache_writes_cost() -> None:
    """TURN-5: the part that was written for an hour has the price of an hour, whatever the setting is."""
    split = Usage(cache_creation_input_tokens=1_000_000, cache_creation_1h_tokens=400_000)
    assert usage_usd(split, PRICED) == usage_usd(split, PRICED, "1h") == pytest.approx(10 * (0.6 * 1.25 + 0.4 * 2.0))
    whole = Usage(cache_creation_input_tokens=1_000_000)
    assert usage_usd(whole, PRICED) == pytest.approx(12.5)
    assert usage_usd(whole, PRICED, "1h") == pytest.approx(20.0)


def test_what_was_never_sent_moves_nothing() -> None:
    """TURN-5: an edit behind the last answered request is no move."""
    talk = long_talk()
    edits = microcompact(talk.view, facts())
    unsent = project([r for r in talk.records if getattr(r, "role", "") != "assistant"])
    assert move_of(unsent, edits, facts()) is None
    assert move_of(talk.view, (), facts()) is None


def test_a_move_pays_back_over_the_turns_to_come() -> None:
    """TURN-5: tokens cleared * read price on each later call, against the rewriting."""
    talk = long_talk()
    edits = microcompact(talk.view, facts())
    assert pays_back(talk.view, edits, 60_000, facts(expected_turns=1_000))
    assert not pays_back(talk.view, edits, 20_000, facts(expected_turns=1))


def test_economics_postpone_clearing_below_the_trigger_only() -> None:
    """TURN-5: (a) fires by its own rule; prices may only postpone it, and not from the trigger on."""
    wary = {"economics": True, "expected_turns": 0}
    assert microcompact(long_talk(150_000).view, facts())
    assert microcompact(long_talk(150_000).view, facts(**wary)) == ()
    assert microcompact(long_talk(167_000).view, facts(**wary))


def test_records_that_move_the_prefix_without_being_edits() -> None:
    """TURN-5: another front moves everything; the first one, or the same again, nothing."""
    first, other = Front(model="m"), Front(model="m", dynamic_from=1)
    view = project([first])
    assert moved_by(project([]), first) is None
    assert moved_by(view, first) is None
    assert moved_by(view, other) == 0
    assert moved_by(view, Undone(id="no such collapse")) is None


@pytest.mark.parametrize(
    ("usage", "usd"),
    [
        (Usage(1_000_000, 0, 0, 0), 10.0),
        (Usage(0, 1_000_000, 0, 0), 50.0),
        (Usage(0, 0, 1_000_000, 0), 1.0),
        (Usage(0, 0, 0, 1_000_000), 12.5),
    ],
)
def test_what_a_response_costs(usage: Usage, usd: float) -> None:
    """TURN-5: prices per model are data."""
    assert usage_usd(usage, PRICED) == pytest.approx(usd)


def test_the_longest_prefix_names_the_model() -> None:
    """TURN-5, PRS-8: a table; the user's own entries go first, and what nobody knows has no price."""
    assert model_facts("anthropic/claude-opus-4-5-20251101").prefix == "claude-opus-4-5"
    assert model_facts("claude-opus-5-5").prefix == "claude-opus-5-5"
    assert model_facts("something-else").input_usd is None
    assert model_facts("claude-opus-5", (replace(PRICED, prefix="claude"),)).prefix == "claude"
