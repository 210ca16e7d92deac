"""The restored messages: every restorer in its turn, within the room that there is (RST-1)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from perdure import prompts
from perdure.compaction.restore.calls import BlockPosition, RestoredMessages, TrackerStates
from perdure.compaction.restore.registry import (
    Cost,
    Restoration,
    RestoredEntry,
    Restorer,
    RestorerRegistry,
    RestoreScene,
    TokenRoom,
    TrackedScene,
)
from perdure.context.policy import Facts
from perdure.context.reminders import inline, without_tokens
from perdure.context.view import ContextView
from perdure.memory.trust.secrets import redact
from perdure.transcript.blocks import text_block
from perdure.transcript.messages import Message, MessageId, content_of
from perdure.transcript.records import RestoredItem
from perdure.transcript.tokens import text_size
from perdure.transcript.tool_calls.actions import NAME_CHARS

NAMES_SAID = 8  # of what was left out; the rest is a number
NAMES_RECORDED = 20
SHORT_RANK = 30  # up to this rank a restorer may use the spare tokens
NOTICE_TOKENS = 100  # kept free in each restorer's share to say what it left out


@dataclass(frozen=True, slots=True)
class _PutBack:
    """What one restorer brought back: its message, and the texts in it."""

    message: Message
    entries: tuple[RestoredEntry, ...]
    rows: tuple[RestoredItem, ...]


def token_cost(view: ContextView, facts: Facts) -> Cost:
    """What a text adds to the view, never less than by the base rule: budgets are by that one (TOK-1)."""
    calibration, settings = view.state.calibration, facts.settings
    is_anchored = calibration.overhead_tokens is not None

    def cost(text: str) -> int:
        size = text_size(text)
        if is_anchored:
            return max(size.base, math.ceil(calibration.ratio * size.live)) + 1
        return -(-size.blind * settings.margin_numerator // settings.margin_denominator) + 1

    return cost


def put_back(
    looked: TrackedScene, registry: RestorerRegistry, room_tokens: int, *, identity: str, spare_tokens: int = 0
) -> tuple[RestoredMessages, dict[str, str]]:
    """What comes back within the room, and which restorers failed, with why. `spare_tokens` are there beyond it for
    what is short and nowhere else: the todo list, the plan, background work.

    The more important (lower rank) take first; what is left is for the others, so that those give way in a fixed order.
    """
    scene, failed = looked.scene, dict[str, str]()
    cost = token_cost(scene.view, scene.facts)
    puts: dict[str, _PutBack] = {}
    left = room_tokens + spare_tokens
    for restorer in sorted(registry.restorers, key=lambda one: one.rank):
        room = left if restorer.rank <= SHORT_RANK else min(left, room_tokens)
        try:
            put, spent = _one(restorer, scene, room, cost, identity)
        except Exception as e:  # a named boundary: a restorer of the user's must not fail the compaction
            failed[restorer.kind] = f"{type(e).__name__}: {e}"
            continue
        if put is not None:
            puts[restorer.kind] = put
            left -= spent
    ordered = [(r, puts[r.kind]) for r in registry.restorers if r.kind in puts]
    places = {
        r.kind: {e.name: BlockPosition(put.message.id, 1 + i) for i, e in enumerate(put.entries)} for r, put in ordered
    }
    used = ("restored_file",) if places.get("files") else ()
    back = RestoredMessages(
        messages=tuple(put.message for _, put in ordered if put.message.content),
        rows=tuple(row for _, put in ordered for row in put.rows),
        in_play=TrackerStates(states=looked.saved, restored={kind: some for kind, some in places.items() if some}),
        prompts=used,
    )
    return back, failed


def _one(restorer: Restorer, scene: RestoreScene, left: int, cost: Cost, identity: str) -> tuple[_PutBack | None, int]:
    """What one restorer brings back, and what it takes of the room."""
    scaled = scene.facts.limits.scaled
    each, total = restorer.budget(scene.facts.settings)
    lead = cost(restorer.lead)
    notice = min(NOTICE_TOKENS, max(0, left) // 10)
    total = max(0, min(scaled(total), left - lead - notice))
    given = restorer.restore(scene, TokenRoom(min(scaled(each), total), total, cost))
    if given is None or not (given.entries or given.left_out):
        return None, 0
    fitted = _fitted(_harmless(given, scene.facts), TokenRoom(min(scaled(each), total), total, cost))
    spent = sum(cost(entry.text) for entry in fitted.entries) + (lead if fitted.entries else 0)
    said = _notice(restorer.kind, fitted.left_out, min(left - spent, NOTICE_TOKENS), cost)
    texts = [restorer.lead, *(entry.text for entry in fitted.entries)] if fitted.entries else []
    texts += [said] if said else []
    message = Message(
        id=MessageId(f"restored-{restorer.kind}-{identity}"),
        role="user",
        content=content_of([text_block(text) for text in texts]),
        origin="restored",
        note=restorer.kind,
        at=scene.facts.now,
    )
    rows = [RestoredItem(restorer.kind, e.name[:NAME_CHARS], text_size(e.text).base) for e in fitted.entries]
    if fitted.left_out:
        short = tuple(name[:NAME_CHARS] for name in fitted.left_out[:NAMES_RECORDED])
        rows.append(RestoredItem(restorer.kind, tokens=text_size(said).base if said else 0, left_out=short))
    return _PutBack(message, fitted.entries, tuple(rows)), spent + (cost(said) if said else 0)


def _harmless(given: Restoration, facts: Facts) -> Restoration:
    """What comes back without secrets, and without special tokens where a server may read them (SEC-5, SEC-11)."""

    def text(entry: RestoredEntry) -> str:
        clean = redact(entry.text, facts.secret_key).text
        return without_tokens(clean) if facts.model.reads_tokens else clean

    return replace(given, entries=tuple(replace(entry, text=text(entry)) for entry in given.entries))


def _fitted(given: Restoration, room: TokenRoom) -> Restoration:
    """Whatever a restorer thinks of budgets: entries that don't fit are left out, and so is a second of one name."""
    entries: dict[str, RestoredEntry] = {}
    left_out: list[str] = []
    for entry in given.entries:
        if entry.name not in entries and entry.text and room.admits(entry.text):
            entries[entry.name] = entry
        else:
            left_out.append(entry.name)
    return Restoration(tuple(entries.values()), (*left_out, *given.left_out))


def _notice(kind: str, names: Sequence[str], tokens: int, cost: Cost) -> str | None:
    """The line that says what was left out, with as many names as there is room for."""
    if not names:
        return None
    for count in range(min(NAMES_SAID, len(names)), -1, -1):
        listed = ", ".join(inline(name)[:160] for name in names[:count])
        more = len(names) - count
        rest = (f", and {more} more" if count else f"{more} of them") if more else ""
        text = prompts.render("restored_left_out", kind=kind.replace("_", " "), names=listed + rest)
        if cost(text) <= tokens:
            return text
    return None


def restored_counts(rows: Sequence[RestoredItem]) -> Mapping[str, tuple[int, int, int]]:
    """By kind: how many came back, their tokens, how many were left out."""
    found: dict[str, tuple[int, int, int]] = {}
    for row in rows:
        many, tokens, left = found.get(row.kind, (0, 0, 0))
        found[row.kind] = (many + bool(row.name), tokens + row.tokens, left + len(row.left_out))
    return found
