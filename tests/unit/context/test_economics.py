"""TURN-5: what a moved prefix costs, and whether it is earned back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.unit.context.making import NOW, UNBOUND, Talk, facts, text

from perdure.context.cost import pays_back, prefix_rewrite, prefix_rewrite_of_record, usage_usd
from perdure.context.models import model_spec
from perdure.context.passes import microcompact
from perdure.context.policy import CompactionNeed, comes_in_pause, compaction_need, expected_calls, pause_facts
from perdure.context.state import from_checkpoint, to_checkpoint
from perdure.context.view import project
from perdure.transcript.messages import Usage
from perdure.transcript.records import Front, Undone

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
    talk = long_talk()
    known, longer = facts(model=PRICED), facts(model=PRICED, cache_ttl="1h")
    assert known.rewrite_usd(talk.view, 1_000_000) == pytest.approx(10 * (1.25 - 0.1))
    assert longer.rewrite_usd(talk.view, 1_000_000) == pytest.approx(10 * (2.0 - 0.1))
    assert facts(model=UNBOUND).rewrite_usd(talk.view, 1_000_000) is None
    edits = microcompact(talk.view, known)
    move = prefix_rewrite(talk.view, edits, known)
    assert move is not None
    assert move.position == talk.view.results["t0"].position  # type: ignore[index]
    assert move.usd == known.rewrite_usd(talk.view, move.tokens_rewritten)
    hour = prefix_rewrite(talk.view, edits, longer)
    assert hour is not None and hour.usd == longer.rewrite_usd(talk.view, move.tokens_rewritten)


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
    assert prefix_rewrite(unsent, edits, facts()) is None
    assert prefix_rewrite(talk.view, (), facts()) is None


def test_a_move_pays_back_over_the_turns_to_come() -> None:
    """TURN-5: tokens cleared * read price on each later call, against the rewriting."""
    talk = long_talk()
    edits = microcompact(talk.view, facts())
    assert expected_calls(talk.view) == 11, "as many as were made"
    move = prefix_rewrite(talk.view, edits, facts())
    assert move is not None
    # saved * 0.1 * 11 calls = (rewritten - saved) * (1.25 - 0.1)
    even = round(move.tokens_rewritten * 1.15 / (0.1 * 11 + 1.15))
    assert pays_back(talk.view, edits, even + 10, facts())
    assert not pays_back(talk.view, edits, even - 10, facts())
    for _ in range(20):
        talk.model(text("and on"))
    assert pays_back(talk.view, edits, even - 10, facts()), "a longer session earns it back"


def test_a_dead_cache_has_nothing_to_lose() -> None:
    """TURN-16: when the cache is known dead, whatever moves the prefix is free."""
    talk = long_talk()
    edits = microcompact(talk.view, facts())
    assert not pays_back(talk.view, edits, 1, facts(now=NOW + 300))
    assert pays_back(talk.view, edits, 1, facts(now=NOW + 301))
    assert not pays_back(talk.view, edits, 1, facts(now=NOW + 301, cache_ttl="1h"))


def test_economics_postpone_clearing_below_the_trigger_only() -> None:
    """TURN-5: (a) fires by its own rule; prices may only postpone it, and not from the trigger on."""
    never = replace(UNBOUND, read_factor=0.0)
    assert microcompact(long_talk(150_000).view, facts())
    assert microcompact(long_talk(150_000).view, facts(model=never)) == ()
    assert microcompact(long_talk(167_000).view, facts(model=never))


def test_what_is_written_lives_for_an_hour_once_a_pause_outlived_five_minutes() -> None:
    """TURN-16: the lifetime changes only when the cache is dead anyway, and the setting's word is final."""
    talk = Talk()
    talk.user(at=NOW)
    talk.message("assistant", text("ok"), at=NOW, response_id="r1")
    early, late = facts(now=NOW + 300), facts(now=NOW + 301)
    assert (early.is_cold(talk.view), early.cache_ttl(talk.view)) == (False, "5m")
    assert (late.is_cold(talk.view), late.held_ttl(talk.view), late.cache_ttl(talk.view)) == (True, "5m", "1h")
    talk.user("and now?", at=NOW + 301)
    talk.message("assistant", text("now"), at=NOW + 310, response_id="r2")
    soon, later = facts(now=NOW + 310 + 3_600), facts(now=NOW + 311 + 3_600)
    assert (soon.is_cold(talk.view), soon.cache_ttl(talk.view)) == (False, "1h")
    assert later.is_cold(talk.view)
    for ttl in ("5m", "1h"):
        assert facts(now=NOW + 400, cache_ttl=ttl).cache_ttl(talk.view) == ttl
    again = from_checkpoint(to_checkpoint(talk.view.state))
    assert again.has_paused, "it travels in a boundary's checkpoint"


def test_who_sells_no_hour_is_paid_for_none() -> None:
    """TURN-16: others keep a prefix for up to an hour for nothing; a write costs there what a write costs."""
    talk = long_talk()
    edits = microcompact(talk.view, facts())
    other = replace(PRICED, provider="openai")
    theirs, ours = facts(model=other), facts(model=PRICED)
    assert (theirs.held_ttl(talk.view), theirs.cache_ttl(talk.view)) == ("1h", "5m")
    assert prefix_rewrite(talk.view, edits, theirs) == prefix_rewrite(talk.view, edits, ours)
    assert facts(model=other, cache_ttl="1h").cache_ttl(talk.view) == "1h", "the setting's word is final"


def test_a_thrifty_session_compacts_where_it_pays() -> None:
    """TURN-16: below the trigger, when what is spared in the calls to come is more than the new prefix costs."""
    talk = long_talk(100_000)
    assert compaction_need(talk.view, facts()) is None
    thrifty = facts(policy="thrifty")
    assert compaction_need(talk.view, thrifty) is None, "eleven calls don't pay for a new prefix"
    for _ in range(20):
        talk.model(text("and on"), usage=100_000)
    assert compaction_need(talk.view, thrifty) == CompactionNeed(100_001)
    assert compaction_need(talk.view, facts(policy="thrifty", thrifty_least_tokens=90_000)) is None
    assert compaction_need(long_talk(100_000).view, facts(policy="thrifty", now=NOW + 301)), "the cache is dead"


def test_a_thrifty_session_does_not_compact_what_it_just_compacted() -> None:
    """TURN-16, REL-5: nothing is known yet of what a call behind the new boundary costs; a request prepared again is
    the same."""
    view = long_talk(100_000).view
    breaker = msgspec.structs.replace(view.state.breaker, responses_since_boundary=0, boundaries=1)
    view.state = msgspec.structs.replace(view.state, breaker=breaker)
    assert compaction_need(view, facts(policy="thrifty", now=NOW + 301)) is None
    assert compaction_need(view, facts(100_000, policy="thrifty", now=NOW + 301)), "above the trigger it does"


def test_a_pause_is_when_to_compact() -> None:
    """TURN-16: in a dead cache all is written anyway, so what spares enough comes then; 40,000 are kept as they are."""
    view, late = long_talk(100_000).view, {"now": NOW + 301, "thrifty_least_tokens": 28_000}
    assert compaction_need(view, facts(now=NOW + 299, thrifty_least_tokens=28_000)) is None, "the cache is alive"
    assert compaction_need(view, facts(**late)) == CompactionNeed(100_001)
    assert compaction_need(view, facts(idle_compact=False, **late)) is None
    assert compaction_need(view, facts(keep_max_tokens=41_000, **late)) is None, "that would spare less than 28,000"
    assert compaction_need(view, facts(now=NOW + 301)) is None, "and 28,000 are less than 40,000"
    assert not comes_in_pause(long_talk(170_000).view, facts(**late)), "above the trigger it is one as always"
    assert not comes_in_pause(view, facts(policy="thrifty", **late)), "thrifty has a rule of its own"
    assert pause_facts(facts()).settings.keep_min_tokens == 40_000


def test_what_a_compaction_would_leave_is_not_spared() -> None:
    """TURN-16, TURN-17: the latest request stays whole, kept or in the record, and so does what was never sent."""
    late: dict[str, Any] = {"now": NOW + 301, "thrifty_least_tokens": 10_000}
    for policy in ("balanced", "thrifty"):
        here = facts(policy=policy, **late)
        talk = long_talk(90_000)
        assert compaction_need(talk.view, here)
        talk.user("word " * 20_000, at=NOW)
        assert compaction_need(talk.view, here), "it is kept"
        talk.user("word " * 40_000, at=NOW)
        assert compaction_need(talk.view, here) is None, "it wouldn't be, and nobody has read it"
        talk.model(text("ok"), usage=120_000)
        for n in range(4):
            talk.ran(f"more{n}", "Read", f"{n}" * 40_000)
        talk.model(text("ok"), usage=75_000)
        assert compaction_need(talk.view, here) is None, "the request would stand in the record"
        talk.user("go on", at=NOW)
        assert compaction_need(talk.view, here), "and it is another one"


def test_records_that_move_the_prefix_without_being_edits() -> None:
    """TURN-5: another front moves everything; the first one, or the same again, nothing."""
    first, other = Front(model="m"), Front(model="m", dynamic_from=1)
    view = project([first])
    assert prefix_rewrite_of_record(project([]), first) is None
    assert prefix_rewrite_of_record(view, first) is None
    assert prefix_rewrite_of_record(view, other) == 0
    assert prefix_rewrite_of_record(view, Undone(id="no such collapse")) is None


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
    assert model_spec("anthropic/claude-opus-4-5-20251101").prefix == "claude-opus-4-5"
    assert model_spec("claude-opus-5-5").prefix == "claude-opus-5-5"
    assert model_spec("something-else").input_usd is None
    assert model_spec("claude-opus-5", (replace(PRICED, prefix="claude"),)).prefix == "claude"
