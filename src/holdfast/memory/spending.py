"""What the helpers of a session spent, as its journal keeps it: so that it is known after the process ended (SM-9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.transcript.messages import Usage
from holdfast.transcript.records import Noted

SPENT = "spent"


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of a helper cost. `usd` is None where the model's price isn't known; `ended` why it ended early."""

    job: str
    model: str
    at: float
    turns: int
    usage: Usage
    usd: float | None = None
    ended: str = ""

    @property
    def tokens(self) -> int:
        """Read and written, from the cache or not."""
        return self.usage.total_tokens


def noted(spent: Spent) -> Noted:
    """The record of it."""
    return Noted(kind=SPENT, data=msgspec.to_builtins(spent))


def read(records: Iterable[object]) -> tuple[Spent, ...]:
    """All that was spent, in order; a record that says it in another way is left out."""
    found = []
    for record in records:
        if isinstance(record, Noted) and record.kind == SPENT:
            try:
                found.append(msgspec.convert(record.data, Spent, strict=False))
            except msgspec.ValidationError:
                continue
    return tuple(found)


def added(one: Usage, other: Usage) -> Usage:
    """The sum of two usages."""
    return Usage(
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cache_read_input_tokens + other.cache_read_input_tokens,
        one.cache_creation_input_tokens + other.cache_creation_input_tokens,
        one.cache_creation_1h_tokens + other.cache_creation_1h_tokens,
    )


def summed(spendings: Iterable[Spent]) -> list[dict[str, Any]]:
    """A row for each job and model: how often, how many turns, tokens by how they are paid for, and dollars."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for one in spendings:
        row = rows.setdefault((one.job, one.model), {"job": one.job, "model": one.model, **_NOTHING})
        row["runs"] += 1
        row["failed"] += bool(one.ended)
        row["turns"] += one.turns
        row["input"] += one.usage.input_tokens
        row["cache_write"] += one.usage.cache_creation_input_tokens
        row["cache_read"] += one.usage.cache_read_input_tokens
        row["output"] += one.usage.output_tokens
        row["usd"] = None if row["usd"] is None or one.usd is None else round(row["usd"] + one.usd, 6)
    return list(rows.values())


_NOTHING: dict[str, Any] = {
    "runs": 0,
    "failed": 0,
    "turns": 0,
    "input": 0,
    "cache_write": 0,
    "cache_read": 0,
    "output": 0,
    "usd": 0.0,
}
