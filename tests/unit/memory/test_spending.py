"""SM-9: what helpers spent, as records and in sums."""

from __future__ import annotations

import msgspec
import pytest

from perdure.context.cost import ForkSpending, add_usage, spending_record, spending_rows, spent_by_forks, spent_in
from perdure.context.models import ModelSpec
from perdure.transcript.codec import decode_line, encode_line
from perdure.transcript.messages import Message, Usage
from perdure.transcript.records import IMPORTED, Noted

pytestmark = pytest.mark.unit


def spent(**more: object) -> ForkSpending:
    given = {"job": "notes", "model": "m", "at": 1.5, "turns": 2, "usage": Usage(1, 2, 3, 4, 4), "usd": 0.5}
    return msgspec.convert({**given, **more}, ForkSpending)


def test_a_record_comes_back_from_its_line() -> None:
    """SM-9: also without a price; what another version writes differently is left out, not an error."""
    kept = (spent(), spent(usd=None, ended="no_edits"))
    line = encode_line(
        1, (*map(spending_record, kept), Noted(kind="spent", data={"job": "notes"}), Noted(kind="other"))
    )
    assert spent_by_forks(decode_line(line).records) == kept


def test_sums() -> None:
    """OBS-2: a row for each name; what has no price is counted beside the sum, not as free."""
    named = [("a", spent()), ("a", spent(ended="turns")), ("b", spent(usd=None))]
    one, other = spending_rows(named)
    assert (one.of, one.calls, one.failed, one.cache_write, one.usd, one.unknown) == ("a", 4, 1, 8, 1.0, 0)
    assert (other.of, other.calls, other.usd, other.unknown) == ("b", 2, 0.0, 2)
    total = add_usage(spent().usage, spent().usage)
    assert all(getattr(total, name) == 2 * getattr(spent().usage, name) for name in Usage.__struct_fields__)
    assert spent().tokens == spent().usage.total_tokens


def answer(id: str, response: str | None = None, **more: object) -> Message:
    given = {"model": "claude-sonnet-4-5", "usage": Usage(1_000_000, 0), "response_id": response, "at": 2.0}
    return Message.of("assistant", "yes", id=id, **{**given, **more})


def test_all_calls_of_a_session() -> None:
    """OBS-2: an answer in several messages counts once, an imported one not at all, a sub-agent's by itself."""
    records = (
        answer("m0"),
        Noted(kind=IMPORTED),
        answer("m1", "r1"),
        answer("m2", "r1"),
        answer("m3", model="mine"),
        answer("m4", agent_id="a"),
        Message.of("user", "thanks", id="m5"),
        spending_record(spent(usd=None, model="claude-haiku-4-5")),
    )
    found = spent_in(records)
    assert [(one.job, one.usd) for one in found.values()] == [
        ("main", 3.0), ("main", None), ("agent", 3.0), ("notes", pytest.approx(2e-5, rel=0.5)),
    ]  # fmt: skip
    assert found == {**found, **spent_in(records)}  # a fork says the same again
    mine = (ModelSpec(prefix="mine", input_usd=1, output_usd=0),)
    assert [one.usd for one in spent_in(records, mine, job="agent").values()][:2] == [3.0, 1.0]
