"""What moving a cached prefix costs, and what clearing saves (TURN-5). Prices are data in `models`."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.context.models import CacheTtl, ModelFacts
from holdfast.context.policy import Facts, expected_calls
from holdfast.context.view import View, is_uncompact, leaves_memory
from holdfast.transcript.edits import Change, Collapsed, Edit, Rewound, Undone
from holdfast.transcript.messages import Usage
from holdfast.transcript.records import Front, Record


@dataclass(frozen=True, slots=True)
class Move:
    """A prefix move: from item `position` on, `tokens_rewritten` have to be written to the cache again."""

    position: int
    tokens_rewritten: int
    usd: float | None


def first_position(view: View, edits: tuple[Edit, ...]) -> int | None:
    """The first item that some edits change; None when they change nothing shown."""
    positions = [view.positions[change.message] for change in _changes(edits) if change.message in view.positions]
    positions += [view.positions[e.first] for e in edits if isinstance(e, Collapsed) and e.first in view.positions]
    return min(positions, default=None)


def moved_by(view: View, record: Record) -> int | None:
    """The first item that is sent behind another prefix after a record that isn't an edit; None when none is."""
    if isinstance(record, Front):
        return 0 if view.front is not None and record != view.front else None
    if leaves_memory(view, record):
        return 0
    collapse = view.collapses.get(record.id) if isinstance(record, Undone) else None
    return view.positions[collapse.first] if collapse else None


def rebound_from(view: View, record: Record, position: int) -> int:
    """The first item whose thinking a record that moves the prefix at `position` parts from its own (TURN-7).

    What stood before an undone compaction gets back the prefix it had; only what was said after it hasn't. Of what a
    rewind brings back nothing is in the view yet.
    """
    boundary = view.boundary
    if isinstance(record, Rewound):
        return len(view.items)
    return len(boundary.summary) + len(boundary.kept) if boundary and is_uncompact(view, record) else position


def _changes(edits: tuple[Edit, ...]) -> list[Change]:
    return [change for edit in edits for change in edit.changes]


def move_of(view: View, edits: tuple[Edit, ...], facts: Facts) -> Move | None:
    """The prefix move that committing these edits makes; None when all they change was never sent."""
    position = first_position(view, edits)
    if position is None or position >= view.sent:
        return None
    return move_at(view, position, facts)


def move_at(view: View, position: int, facts: Facts) -> Move:
    """A move at an item: everything from there on is written again."""
    live = sum(item.size.live for item in view.items[position : view.sent] if not item.is_hidden)
    tokens = round(live * view.state.calibration.ratio)
    return Move(position, tokens, move_price(tokens, facts.model, facts.cache_ttl(view)))


def move_price(tokens: int, model: ModelFacts, ttl: CacheTtl) -> float | None:
    """Dollars that a move costs above reading the same tokens from the cache; None without a price."""
    if model.input_usd is None:
        return None
    return tokens * model.input_price() * (model.factor_to_write(ttl) - model.read_factor)


def pays_back(view: View, edits: tuple[Edit, ...], saved_tokens: int, facts: Facts) -> bool:
    """Whether the move is earned back by cheaper calls within the expected rest of the session (TURN-5, TURN-16).

    Needs no price: both sides are in the same currency, so only the model's cache factors count. A dead cache has
    nothing to lose: all of the prompt is written again in any case.
    """
    move = move_of(view, edits, facts)
    if move is None or facts.is_cold(view):
        return True
    model = facts.model
    rewritten = max(0, move.tokens_rewritten - saved_tokens)
    cost = rewritten * (model.factor_to_write(facts.cache_ttl(view)) - model.read_factor)
    return saved_tokens * model.read_factor * expected_calls(view) >= cost


def usage_usd(usage: Usage, model: ModelFacts, ttl: CacheTtl = "5m") -> float:
    """What a response cost; 0 without a price. What the report doesn't say of the cache lives for `ttl`."""
    price, hours = model.input_price(), usage.cache_creation_1h_tokens
    prompt = usage.input_tokens + usage.cache_read_input_tokens * model.read_factor
    prompt += (usage.cache_creation_input_tokens - hours) * model.factor_to_write("5m" if hours else ttl)
    prompt += hours * model.factor_to_write("1h")
    return prompt * price + usage.output_tokens * (model.output_usd or 0.0) / 1e6
