"""What a session's records tell, turn by turn: the numbers behind the page, and nothing of how they are drawn.

A turn is one answer of the model; its categories are those of the request that the answer belongs to (TOK-6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from perdure.context.accounting import CATEGORIES, account
from perdure.context.cost import usage_usd
from perdure.context.policy import Facts
from perdure.context.view import ContextView, advance, is_new_response
from perdure.memory.trust.secrets import redact
from perdure.transcript.blocks import Text, ToolResult, ToolUse
from perdure.transcript.messages import Message, Usage
from perdure.transcript.records import (
    Cleared,
    Collapsed,
    Compacted,
    CompactionFailed,
    MediaReplaced,
    Offloaded,
    Pinned,
    Record,
    Rewound,
    Snipped,
    ThinkingDropped,
    Undone,
)
from perdure.transcript.tokens import block_size

MOST_TURNS = 400  # a longer session is drawn with so many of its turns
_LINE_CHARS = 160
_LEAST_WRITTEN = 1_000  # of fewer tokens an estimate says too little


class _Paid(NamedTuple):
    """What the response that is being read stated last, and what that costs."""

    usage: Usage
    usd: float


_NOTHING = _Paid(Usage(), 0.0)


@dataclass(frozen=True, slots=True)
class TimelineTurn:
    """One request: its number from 1, its tokens by category, and what the session had cost when it was answered."""

    number: int
    at: float | None
    size: int
    categories: dict[str, int]
    usd: float | None


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """Something that changed what the model sees, before the request of that turn. `tokens` left the view."""

    turn: int
    kind: str
    what: str
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class CompactedMessage:
    """A message that a compaction kept, dropped or brought back. `id` is what recall takes."""

    id: str
    what: str
    tokens: int
    line: str = ""


@dataclass(frozen=True, slots=True)
class TimelineCompaction:
    """What one compaction did, in the session's own words."""

    turn: int
    id: str
    trigger: str
    strategy: str
    tokens_before: int
    tokens_after: int
    record: str
    kept: tuple[CompactedMessage, ...]
    dropped: tuple[CompactedMessage, ...]
    restored: tuple[CompactedMessage, ...]
    left_out: tuple[str, ...]


@dataclass(slots=True)
class Timeline:
    """A session from its first request to its last."""

    facts: Facts
    turns: list[TimelineTurn] = field(default_factory=list)
    all_turns: int = 0
    happenings: list[TimelineEvent] = field(default_factory=list)
    compactions: list[TimelineCompaction] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    usd: float | None = None
    written: int = 0  # base tokens of all answers, to hold what their usage states against
    view: ContextView = field(default_factory=ContextView)

    @property
    def categories(self) -> list[str]:
        """Those that any turn has, in the order of the window."""
        return [name for name in CATEGORIES if any(turn.categories.get(name) for turn in self.turns)]


def timeline(records: Sequence[Record], facts_of: Callable[[ContextView], Facts]) -> Timeline:
    """Fold the records once, looking at every request on the way."""
    wanted = _drawn(sum(_is_answer(record) for record in records))
    told, view, paid = Timeline(facts_of(ContextView())), ContextView(), _NOTHING
    for record in records:
        if isinstance(record, Message) and _is_answer(record):
            told.written += sum(block_size(block).base for block in record.blocks)
            is_new = is_new_response(view.items, record, len(view.items))
            if is_new:
                told.all_turns += 1
                told.facts = facts_of(view)
                paid = _NOTHING
            paid = _paid(told, record, view, paid)
            if is_new and told.all_turns in wanted:
                _add_turn(told, view, record)
        elif isinstance(record, Compacted):
            told.compactions.append(_compaction(told.all_turns + 1, view, record))
        told.happenings += [TimelineEvent(told.all_turns + 1, *one) for one in _events_of(view, record)]
        advance(view, record)
    told.view, told.facts = view, facts_of(view)
    return told


def _is_answer(record: Record) -> bool:
    return isinstance(record, Message) and record.origin == "model" and record.agent_id is None


def _drawn(count: int) -> frozenset[int]:
    """Which turns are drawn: all, or evenly many with the first and the last."""
    if count <= MOST_TURNS:
        return frozenset(range(1, count + 1))
    return frozenset(1 + round(n * (count - 1) / (MOST_TURNS - 1)) for n in range(MOST_TURNS))


def _add_turn(told: Timeline, view: ContextView, answer: Message) -> None:
    found = account(view, told.facts)
    tokens: dict[str, int] = {category.name: category.tokens for category in found.categories}
    told.turns.append(TimelineTurn(told.all_turns, answer.at, found.size, tokens, told.usd))


def _paid(told: Timeline, answer: Message, view: ContextView, before: _Paid) -> _Paid:
    """Add what a response states of its usage, in the place of what an earlier record of it stated (`before`).

    A response spans several records, each stating its usage anew: it grows, and only the last is what was paid.
    """
    usage, old = answer.usage, before.usage
    if usage is None:
        return before
    told.usage = Usage(*(getattr(told.usage, n) + getattr(usage, n) - getattr(old, n) for n in Usage.__struct_fields__))
    if told.facts.model.input_usd is None:
        return _Paid(usage, 0.0)
    now = usage_usd(usage, told.facts.model, told.facts.held_ttl(view))
    told.usd = (told.usd or 0.0) + now - before.usd
    if told.turns and told.turns[-1].number == told.all_turns:
        told.turns[-1] = replace(told.turns[-1], usd=told.usd)
    return _Paid(usage, now)


def output_warning(stated: int, written: int) -> str:
    """What to say beside a price when a log states far less output than it holds; else nothing."""
    if written < _LEAST_WRITTEN or stated * 2 >= written:
        return ""
    return (
        f"The log states {stated:,} output tokens, and the answers in it come to about {written:,}: "
        "more was paid than is shown."
    )


def _events_of(view: ContextView, record: Record) -> Iterator[tuple[str, str, int]]:
    match record:
        case Compacted():
            gone = record.tokens_before - record.tokens_after
            yield "compacted", f"{record.strategy}, {record.trigger}", max(0, gone)
        case Cleared():
            yield "cleared", f"{len(record.tool_use_ids)} tool results ({record.trigger})", record.tokens_saved
        case Offloaded():
            size = sum(stored.bytes for stored in record.stored)
            yield "offloaded", f"{len(record.stored)} tool results, {size:,} bytes", (size - record.preview_bytes) // 4
        case Snipped():
            yield "snipped", f"{len(record.stored) or len(record.changes)} superseded or repeated", 0
        case Collapsed():
            yield "collapsed", "finished work folded", record.tokens_saved
        case MediaReplaced():
            yield "media", f"{len(record.changes)} images or documents replaced", 0
        case ThinkingDropped():
            yield "thinking", f"dropped from {len(record.changes)} answers", 0
        case Undone():
            yield "undone", "a compaction" if view.boundary and record.id == view.boundary.id else "a collapse", 0
        case Rewound():
            yield "rewound", record.reason or f"to {record.to}", 0
        case CompactionFailed():
            yield "failed", f"compaction ({record.trigger})", 0
        case Pinned():
            yield "pinned", _short(record.text) if record.text else f"{record.id} taken back", 0
        case _:
            pass


def _compaction(turn: int, view: ContextView, boundary: Compacted) -> TimelineCompaction:
    kept = set(boundary.kept)
    shown = [item for item in view.items if not item.is_hidden]
    dropped = [item.message for item in shown if item.message.id not in kept]
    sizes: dict[str, int] = {item.message.id: item.size.base for item in shown}
    return TimelineCompaction(
        turn=turn,
        id=boundary.id,
        trigger=boundary.trigger,
        strategy=boundary.strategy,
        tokens_before=boundary.tokens_before,
        tokens_after=boundary.tokens_after,
        record="\n\n".join(filter(None, map(_text, boundary.summary))),
        kept=tuple(_piece(item.message, sizes) for item in shown if item.message.id in kept),
        dropped=tuple(_piece(message, sizes) for message in dropped),
        restored=tuple(CompactedMessage(back.name, back.kind, back.tokens) for back in boundary.restored if back.name),
        left_out=tuple(f"{back.kind}: {name}" for back in boundary.restored for name in back.left_out),
    )


def _piece(message: Message, sizes: dict[str, int]) -> CompactedMessage:
    return CompactedMessage(message.id, _what(message), sizes[message.id], _short(_text(message) or _tools(message)))


def _what(message: Message) -> str:
    names = {"user": "user", "model": "assistant", "tool": "tool results", "summary": "earlier record"}
    return names.get(message.origin, message.origin)


def _text(message: Message) -> str:
    return "\n".join(block.value.text for block in message.blocks if isinstance(block.value, Text)).strip()


def _tools(message: Message) -> str:
    """What an answer called, or how a result begins."""
    said: list[str] = []
    for block in message.blocks:
        value = block.value
        if isinstance(value, ToolUse):
            said.append(value.name)
        elif isinstance(value, ToolResult):
            said.append(value.content if isinstance(value.content, str) else _first_text(value))
    return ", ".join(filter(None, said))


def _first_text(result: ToolResult) -> str:
    return next((part.value.text for part in result.parts() if isinstance(part.value, Text)), "")


def _short(text: str) -> str:
    line = " ".join(redact(text).text.split())  # before it is cut (SEC-5)
    return line if len(line) <= _LINE_CHARS else line[: _LINE_CHARS - 1] + "…"


def totals(happenings: Iterable[TimelineEvent]) -> dict[str, tuple[int, int]]:
    """Each kind with how often it happened and the tokens that left the view by it."""
    found: dict[str, tuple[int, int]] = {}
    for one in happenings:
        count, tokens = found.get(one.kind, (0, 0))
        found[one.kind] = (count + 1, tokens + one.tokens)
    return found
