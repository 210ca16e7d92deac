"""What moving a cached prefix costs, what clearing saves, and what the models beside the conversation spent (TURN-5,
SM-9).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from perdure.context.models import CacheTtl, ModelSpec
from perdure.context.policy import Facts, expected_calls
from perdure.context.view import ContextView, is_uncompact, leaves_memory
from perdure.transcript.messages import Usage
from perdure.transcript.records import BlockChange, Collapsed, Edit, Front, Noted, Record, Rewound, Undone


@dataclass(frozen=True, slots=True)
class PrefixRewrite:
    """A prefix move: from item `position` on, `tokens_rewritten` have to be written to the cache again."""

    position: int
    tokens_rewritten: int
    usd: float | None


def first_position(view: ContextView, edits: tuple[Edit, ...]) -> int | None:
    """The first item that some edits change; None when they change nothing shown."""
    positions = [view.positions[change.message] for change in _changes(edits) if change.message in view.positions]
    positions += [view.positions[e.first] for e in edits if isinstance(e, Collapsed) and e.first in view.positions]
    return min(positions, default=None)


def prefix_rewrite_of_record(view: ContextView, record: Record) -> int | None:
    """The first item that is sent behind another prefix after a record that isn't an edit; None when none is."""
    if isinstance(record, Front):
        return 0 if view.front is not None and record != view.front else None
    if leaves_memory(view, record):
        return 0
    collapse = view.collapses.get(record.id) if isinstance(record, Undone) else None
    return view.positions[collapse.first] if collapse else None


def first_unbound_thinking(view: ContextView, record: Record, position: int) -> int:
    """The first item whose thinking a record that moves the prefix at `position` parts from its own (TURN-7).

    What stood before an undone compaction gets back the prefix it had; only what was said after it hasn't. Of what a
    rewind brings back nothing is in the view yet.
    """
    boundary = view.boundary
    if isinstance(record, Rewound):
        return len(view.items)
    return len(boundary.summary) + len(boundary.kept) if boundary and is_uncompact(view, record) else position


def _changes(edits: tuple[Edit, ...]) -> list[BlockChange]:
    return [change for edit in edits for change in edit.changes]


def prefix_rewrite(view: ContextView, edits: tuple[Edit, ...], facts: Facts) -> PrefixRewrite | None:
    """The prefix move that committing these edits makes; None when all they change was never sent."""
    position = first_position(view, edits)
    if position is None or position >= view.sent:
        return None
    return prefix_rewrite_at(view, position, facts)


def prefix_rewrite_at(view: ContextView, position: int, facts: Facts) -> PrefixRewrite:
    """A move at an item: everything from there on is written again."""
    live = sum(item.size.live for item in view.items[position : view.sent] if not item.is_hidden)
    tokens = round(live * view.state.calibration.ratio)
    return PrefixRewrite(position, tokens, facts.rewrite_usd(view, tokens))


def pays_back(view: ContextView, edits: tuple[Edit, ...], saved_tokens: int, facts: Facts) -> bool:
    """Whether the move is earned back by cheaper calls within the expected rest of the session (TURN-5, TURN-16).

    Needs no price: both sides are in the same currency, so only the model's cache factors count. A dead cache has
    nothing to lose: all of the prompt is written again in any case.
    """
    move = prefix_rewrite(view, edits, facts)
    if move is None or facts.is_cold(view):
        return True
    model = facts.model
    rewritten = max(0, move.tokens_rewritten - saved_tokens)
    cost = rewritten * (model.factor_to_write(facts.cache_ttl(view)) - model.read_factor)
    return saved_tokens * model.read_factor * expected_calls(view) >= cost


def usage_usd(usage: Usage, model: ModelSpec, ttl: CacheTtl = "5m") -> float:
    """What a response cost; 0 without a price. What the report doesn't say of the cache lives for `ttl`."""
    price, hours = model.input_price(), usage.cache_creation_1h_tokens
    prompt = usage.input_tokens + usage.cache_read_input_tokens * model.read_factor
    prompt += (usage.cache_creation_input_tokens - hours) * model.factor_to_write("5m" if hours else ttl)
    prompt += hours * model.factor_to_write("1h")
    return prompt * price + usage.output_tokens * (model.output_usd or 0.0) / 1e6


SPENT = "spent"


class ForkSpending(msgspec.Struct, frozen=True, kw_only=True):
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


def spending_record(spent: ForkSpending) -> Noted:
    """The record of it."""
    return Noted(kind=SPENT, data=msgspec.to_builtins(spent))


def spent_by_forks(records: Iterable[object]) -> tuple[ForkSpending, ...]:
    """All that was spent, in order; a record that says it in another way is left out."""
    found = []
    for record in records:
        if isinstance(record, Noted) and record.kind == SPENT:
            try:
                found.append(msgspec.convert(record.data, ForkSpending, strict=False))
            except msgspec.ValidationError:
                continue
    return tuple(found)


def add_usage(one: Usage, other: Usage) -> Usage:
    """The sum of two usages."""
    return Usage(
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cache_read_input_tokens + other.cache_read_input_tokens,
        one.cache_creation_input_tokens + other.cache_creation_input_tokens,
        one.cache_creation_1h_tokens + other.cache_creation_1h_tokens,
    )


def spending_rows(spendings: Iterable[ForkSpending]) -> list[dict[str, Any]]:
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
