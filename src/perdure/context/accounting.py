"""What the window is spent on, by category and by trust: the one accountant behind `/context`, `inspect` and reports
(TOK-6).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from perdure.context.groups import WireBlock, flatten, without_passing_on
from perdure.context.policy import Facts
from perdure.context.state import Calibration
from perdure.context.view import CallInView, ContextView
from perdure.memory.trust.labels import TrustLevel, least, trust
from perdure.settings import READ_TOOLS
from perdure.transcript.blocks import Block, ServerToolResult, ServerToolUse, ToolResult, ToolUse
from perdure.transcript.messages import Message, ToolUseId
from perdure.transcript.records import Front
from perdure.transcript.response_items import carries_tools
from perdure.transcript.tokens import block_size, json_size

_LEAST_FAR = 1.6  # times its estimate: models of today count up to half more than the estimate before it is corrected
# Shorter texts ("", "1\t") are found everywhere and weigh nothing.
_WORTH_CHARS = 80


class RepeatedReads:
    """Fed with the results of a request in their order; remembers the texts of each file that were shown."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}

    def is_repeated(self, call: CallInView, result: ToolResult) -> bool:
        """Whether an earlier read of the same file holds all of this text: it was read again, unchanged."""
        if call.path is None or call.name not in READ_TOOLS or result.is_error:
            return False
        text = result.text().strip()
        if len(text) < _WORTH_CHARS:
            return False
        before = self._texts.setdefault(call.path, [])
        if any(text in older for older in before):
            return True
        before.append(text)
        return False


def summary_trust(view: ContextView) -> TrustLevel:
    """Of the summary that the view stands on; a boundary that doesn't say has the least there is."""
    said = view.boundary.trust if view.boundary is not None else None
    return TrustLevel[said.upper()] if said and said.upper() in TrustLevel.__members__ else TrustLevel.OUTSIDE


def trust_in(view: ContextView, message: Message, block: Block) -> TrustLevel:
    """Of a block in this view."""
    return trust(message, block, summary=summary_trust(view))


def least_trust(view: ContextView, end: int) -> TrustLevel:
    """Of what is made from the items before `end`: the least of them, also of those that left the view (SEC-1)."""
    return least(label for label, _, _ in _labels(view, end))


def trust_tokens(view: ContextView) -> dict[str, int]:
    """Base tokens shown, by whose word they are; the most trusted first. Tokens of the front aren't in it."""
    sums = dict.fromkeys(sorted(TrustLevel, reverse=True), 0)
    for label, position, index in _labels(view, len(view.items)):
        item = view.items[position]
        if not item.is_hidden and item.shown[index] is not None:
            sums[label] += item.sizes[index].base
    return {label.name.lower(): tokens for label, tokens in sums.items()}


def _labels(view: ContextView, end: int) -> Iterator[tuple[TrustLevel, int, int]]:
    summary = summary_trust(view)
    for position, item in enumerate(view.items[:end]):
        for index, block in enumerate(item.message.blocks):
            yield trust(item.message, block, summary=summary), position, index


CategoryName = Literal[
    "system prompt",
    "tools",
    "system prompt and tools (measured)",
    "instructions",
    "memory index",
    "recalled memories",
    "human messages",
    "assistant text",
    "thinking",
    "tool requests",
    "tool results",
    "duplicate file reads",
    "attachments",
    "images",
    "summary",
    "placeholders",
    "other",
]
CATEGORIES: tuple[CategoryName, ...] = CategoryName.__args__  # type: ignore[attr-defined]
_MEASURED: CategoryName = "system prompt and tools (measured)"
_FRONT: frozenset[str] = frozenset({"system prompt", "tools"})
# What `Message.note` of a reminder may say.
_NOTES: dict[str | None, CategoryName] = {
    "instructions": "instructions",
    "nested_instructions": "instructions",
    "memory_index": "memory index",
    "memory": "recalled memories",
}


@dataclass(frozen=True, slots=True)
class CategoryShare:
    """A share of a category, by tool or by file.

    `count` is what a person would count (blocks, tools, images), `parts` the blocks of the request.
    """

    name: str
    tokens: int
    count: int
    parts: int


@dataclass(frozen=True, slots=True)
class Category:
    """`rows` are given where there is more to tell: tool requests and results by tool, repeated reads by file."""

    name: CategoryName
    tokens: int
    count: int
    parts: int
    rows: tuple[CategoryShare, ...] = ()


@dataclass(frozen=True, slots=True)
class Accounting:
    """The tokens of `categories` add up to `size`; with `free` and `reserve` to the window, unless it overflows.

    `is_measured`: a provider reported a size, so only what came after it is estimated.
    """

    size: int
    window: int
    free: int
    reserve: int
    categories: tuple[Category, ...]
    is_measured: bool

    def tokens(self, name: CategoryName) -> int:
        """The tokens of one category; 0 when there is nothing of it."""
        return next((c.tokens for c in self.categories if c.name == name), 0)


class _CategoryKey(NamedTuple):
    category: CategoryName
    row: str = ""


@dataclass(slots=True)
class _CategorySum:
    weight: int = 0  # live estimate
    count: int = 0
    parts: int = 0


_Sums = dict[_CategoryKey, _CategorySum]


def account(view: ContextView, facts: Facts) -> Accounting:
    """The accounting of a view, by category, largest rows first. Linear in the request."""
    size = facts.size(view)
    sums: _Sums = {}
    _add_front(sums, view.front)
    for entry in _entries(view):
        known = sums.setdefault(entry.key, _CategorySum())
        known.weight += entry.weight
        known.count += entry.count
        known.parts += entry.parts
    tokens = _tokens(sums, size, view.state.calibration)
    limits = facts.limits
    return Accounting(
        size=size,
        window=limits.window,
        free=max(0, limits.usable - size),
        reserve=limits.reserve,
        categories=_categories(sums, tokens),
        is_measured=view.anchor is not None and view.anchor.is_reported,
    )


def _add_front(sums: _Sums, front: Front | None) -> None:
    if front is None:
        return
    front = front.unmarked()
    raws: tuple[tuple[CategoryName, tuple[bytes, ...]], ...] = (
        ("system prompt", tuple(bytes(raw) for raw in front.system if not carries_tools(raw))),
        ("tools", tuple(bytes(raw) for raw in (*filter(carries_tools, front.system), *front.tools))),
    )
    for name, several in raws:
        if several:
            sums[_CategoryKey(name)] = _CategorySum(sum(json_size(raw).live for raw in several), len(several), 0)


# --- what each part of the request is


@dataclass(frozen=True, slots=True)
class _CountedShare:
    key: _CategoryKey
    weight: int
    count: int = 1
    parts: int = 1


def _entries(view: ContextView) -> Iterator[_CountedShare]:
    reads = RepeatedReads()
    names = {call.id: call.name for call in view.calls.values()}
    for group in without_passing_on(flatten(view)):
        for part in group.parts():
            yield from _entry(view, part, names, reads)


def _entry(
    view: ContextView, part: WireBlock, names: dict[ToolUseId, str], reads: RepeatedReads
) -> Iterator[_CountedShare]:
    block = Block(part.raw)
    if part.position < 0:
        yield _CountedShare(_CategoryKey("placeholders"), block_size(block).live)
        return
    item = view.items[part.position]
    if item.is_hidden:  # the projection that stands for a collapsed range
        yield _CountedShare(_CategoryKey("summary"), block_size(block).live)
        return
    weight = item.sizes[part.block].live
    value = (item.shown[part.block] or block).value
    if isinstance(value, ToolResult):
        yield from _result(view, value, weight, reads)
    elif isinstance(value, ServerToolResult):
        yield _CountedShare(_CategoryKey("tool results", names.get(ToolUseId(value.tool_use_id), block.type)), weight)
    elif isinstance(value, ToolUse | ServerToolUse):
        names[ToolUseId(value.id)] = value.name
        yield _CountedShare(_CategoryKey("tool requests", value.name), weight)
    else:
        yield _CountedShare(
            _CategoryKey(_plain(block.type, item.message.role, item.message.origin, item.message.note)), weight
        )


def _plain(kind: str, role: str, origin: str, note: str | None) -> CategoryName:
    """The category of a block that isn't about a tool."""
    if kind == "image":
        return "images"
    if origin == "summary" or kind == "compaction":
        return "summary"
    if kind in ("thinking", "redacted_thinking"):
        return "thinking"
    if kind not in ("text", "document"):
        return "other"
    if role == "assistant":
        return "assistant text"
    if origin == "user" and kind == "text":
        return "human messages"
    return _NOTES.get(note, "attachments")


def _result(view: ContextView, value: ToolResult, weight: int, reads: RepeatedReads) -> Iterator[_CountedShare]:
    call = view.calls.get(ToolUseId(value.tool_use_id))
    name = call.name if call else "unknown"
    images = 0
    if not isinstance(value.content, str):
        sizes = [block_size(part).live for part in value.parts() if part.type == "image"]
        images = min(weight, sum(sizes))
        if sizes:
            yield _CountedShare(_CategoryKey("images"), images, len(sizes), 0)
    if call is not None and call.id not in view.cleared and reads.is_repeated(call, value):
        yield _CountedShare(_CategoryKey("duplicate file reads", call.path or ""), weight - images)
    else:
        yield _CountedShare(_CategoryKey("tool results", name), weight - images)


# --- from estimates to tokens that add up


def _tokens(sums: _Sums, size: int, known: Calibration) -> dict[_CategoryKey, int]:
    """Tokens of each sum, adding up to `size`.

    Once a provider reported, the front has the size that was learned from it: its parts share that by their estimates.
    What is far more than they are estimated at belongs to parts that we don't know (a log tells none, or not all), and
    stands apart. Before any report, everything shares by its estimate.
    """
    front = {key: s.weight for key, s in sums.items() if key.category in _FRONT}
    messages = {key: s.weight for key, s in sums.items() if key.category not in _FRONT}
    if known.overhead_tokens is None:
        return _shared({**front, **messages}, size)
    share = _front_share(known.overhead_tokens, round(known.ratio * sum(messages.values())), size)
    estimated = sum(front.values())
    if share > _LEAST_FAR * estimated:
        front[_CategoryKey(_MEASURED)] = share - estimated
    return _shared(front, share) | _shared(messages, size - share)


def _front_share(overhead: int, messages: int, size: int) -> int:
    """The front's tokens: as measured, unless that leaves the messages less than half of what they are estimated at.

    Then the measure is out of date (a log that went on after something else cut its context), and both give way.
    """
    if not messages:
        return size
    if size - overhead >= messages // 2:
        return overhead
    return size * overhead // (overhead + messages)


def _shared(weights: dict[_CategoryKey, int], total: int) -> dict[_CategoryKey, int]:
    """`total` in proportion to the weights, in whole tokens (largest remainder; ties in the order given)."""
    whole = sum(weights.values())
    if not whole:
        given = dict.fromkeys(weights, 0)
        return given | {_CategoryKey(_MEASURED): total} if total else given
    floors = {key: weight * total // whole for key, weight in weights.items()}
    left = total - sum(floors.values())
    for key in sorted(weights, key=lambda k: -(weights[k] * total % whole))[:left]:
        floors[key] += 1
    return floors


def _categories(sums: _Sums, tokens: dict[_CategoryKey, int]) -> tuple[Category, ...]:
    rows: dict[CategoryName, list[CategoryShare]] = {}
    for key in {**sums, **tokens}:
        known = sums.get(key, _CategorySum(count=1))
        row = CategoryShare(key.row, tokens.get(key, 0), known.count, known.parts)
        rows.setdefault(key.category, []).append(row)
    return tuple(_category(name, rows[name]) for name in CATEGORIES if name in rows)


def _category(name: CategoryName, rows: list[CategoryShare]) -> Category:
    named = sorted((row for row in rows if row.name), key=lambda row: (-row.tokens, row.name))
    return Category(
        name, sum(r.tokens for r in rows), sum(r.count for r in rows), sum(r.parts for r in rows), tuple(named)
    )
