"""SM-9: what helpers spent, as records and in sums."""

from __future__ import annotations

import msgspec
import pytest

from perdure.context.cost import ForkSpending, add_usage, spending_record, spending_rows, spent_by_forks
from perdure.transcript.codec import decode_line, encode_line
from perdure.transcript.messages import Usage
from perdure.transcript.records import Noted

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
    """A row for each job and model; one unknown price makes the sum unknown."""
    one, other, third = spending_rows(
        (spent(), spent(ended="turns"), spent(model="n"), spent(job="extractor", usd=None))
    )
    assert (one["runs"], one["failed"], one["turns"], one["cache_write"], one["usd"]) == (2, 1, 4, 8, 1.0)
    assert (other["model"], third["job"], third["usd"]) == ("n", "extractor", None)
    total = add_usage(spent().usage, spent().usage)
    assert all(getattr(total, name) == 2 * getattr(spent().usage, name) for name in Usage.__struct_fields__)
    assert spent().tokens == spent().usage.total_tokens
