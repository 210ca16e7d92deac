"""What moving a cached prefix costs, what clearing saves, and what the models beside the conversation spent (TURN-5,
SM-9).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from perdure.context.models import CacheTtl, ModelSpec, model_spec
from perdure.context.policy import Facts, expected_calls
from perdure.context.view import ContextView, leaves_memory
from perdure.transcript.messages import Message, Usage
from perdure.transcript.records import (
    IMPORTED,
    BlockChange,
    Collapsed,
    Edit,
    Front,
    Noted,
    Record,
    Undone,
)


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
        return 0 if view.front is not None and record.unmarked() != view.front.unmarked() else None
    if leaves_memory(view, record):
        return 0
    collapse = view.collapses.get(record.id) if isinstance(record, Undone) else None
    return view.positions[collapse.first] if collapse else None


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


def spent_in(
    records: Iterable[object], models: tuple[ModelSpec, ...] = (), *, job: str = "main"
) -> dict[tuple[str, ...], ForkSpending]:
    """All that the calls of a session cost, in order: those of the conversation and those beside it (OBS-2).

    An answer in several messages counts once. What was said before an import says that it was one, another agent paid
    for.

    Args:
        records: Of the whole journal.
        models: Prices of the user's own, before the table's.
        job: What the calls of the conversation are for; those of a sub-agent's are for an `agent`.

    Returns:
        Each by a key that it has in a fork of the session, too.
    """
    found: dict[tuple[str, ...], ForkSpending] = {}
    for record in records:
        if isinstance(record, Noted):
            if record.kind == IMPORTED:
                found = {key: one for key, one in found.items() if key[0] == SPENT}
            for helper in spent_by_forks([record]):
                if helper.usd is None:  # the price may be known by now
                    helper = msgspec.structs.replace(helper, usd=_known_usd(helper.usage, helper.model, models))
                found[SPENT, helper.job, helper.model, repr(helper.at)] = helper
        elif isinstance(record, Message) and record.role == "assistant" and record.usage is not None:
            model, used = record.model or "", record.usage
            found["said", record.response_id or record.id] = ForkSpending(
                job="agent" if record.agent_id else job,
                model=model,
                at=record.at or 0.0,
                turns=1,
                usage=used,
                usd=_known_usd(used, model, models),
            )
    return found


def _known_usd(usage: Usage, model: str, models: tuple[ModelSpec, ...]) -> float | None:
    spec = model_spec(model, models)
    return None if spec.input_usd is None or spec.output_usd is None else usage_usd(usage, spec)


class SpendingRow(msgspec.Struct, kw_only=True):
    """What some calls cost together. `usd` is the sum of what is known; `unknown` counts calls without a price."""

    of: str
    calls: int = 0
    failed: int = 0
    input: int = 0
    cache_write: int = 0
    cache_read: int = 0
    output: int = 0
    usd: float = 0.0
    unknown: int = 0

    def add(self, one: ForkSpending) -> None:
        """Enter what a call, or a run of several, cost."""
        self.calls += one.turns
        self.failed += bool(one.ended)
        self.input += one.usage.input_tokens
        self.cache_write += one.usage.cache_creation_input_tokens
        self.cache_read += one.usage.cache_read_input_tokens
        self.output += one.usage.output_tokens
        self.usd = round(self.usd + (one.usd or 0.0), 6)
        self.unknown += one.turns if one.usd is None else 0


def spending_rows(spendings: Iterable[tuple[str, ForkSpending]]) -> list[SpendingRow]:
    """A row for each name, in the order in which they come."""
    rows: dict[str, SpendingRow] = {}
    for name, one in spendings:
        rows.setdefault(name, SpendingRow(of=name)).add(one)
    return list(rows.values())
