"""The view: messages as the model sees them, what became worthless among them, their size as providers reported it
(TOK-3), and the one fold of records that makes it (TURN-14).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from perdure.context.state import LOGGED, PROVIDER_EDITED, SessionState, UsageAnchor, from_checkpoint, front_size
from perdure.errors import PerdureError
from perdure.settings import READ_TOOLS, Settings
from perdure.transcript.blocks import Block, Text, Thinking, ToolResult, ToolUse
from perdure.transcript.messages import CallIds, Message, MessageId, ToolUseId, count_call
from perdure.transcript.records import (
    BlockChange,
    Calibrated,
    Cleared,
    Collapsed,
    Compacted,
    CompactionFailed,
    Cursor,
    Edit,
    Front,
    InFlight,
    Noted,
    Offloaded,
    Pinned,
    Record,
    Repaired,
    Rewound,
    Settled,
    Snipped,
    Titled,
    Undone,
    Worded,
)
from perdure.transcript.tokens import NOTHING, Size, block_size
from perdure.transcript.tool_calls.actions import path_of

THINKING = ("thinking", "redacted_thinking")


@dataclass(frozen=True, slots=True)
class ViewItem:
    """One message as shown: `shown[i]` stands for block i of the message, None where it left the view."""

    message: Message
    shown: tuple[Block | None, ...]
    sizes: tuple[Size, ...]
    size: Size
    is_hidden: bool = False

    @property
    def visible(self) -> tuple[Block, ...]:
        """The blocks that the model sees."""
        return () if self.is_hidden else tuple(block for block in self.shown if block is not None)


def item_of(message: Message) -> ViewItem:
    """A message as it first enters the view; counts its blocks."""
    return ViewItem(message, message.blocks, message.sizes, _sum(message.sizes))


def changed_item(item: ViewItem, changes: list[BlockChange]) -> ViewItem:
    """The item after some of its blocks changed; counts only those."""
    shown, sizes = list(item.shown), list(item.sizes)
    for change in changes:
        if not 0 <= change.block < len(shown):
            continue
        block = None if change.is_gone else Block(bytes(change.to))
        shown[change.block] = block
        sizes[change.block] = block_size(block) if block else NOTHING
    return replace(item, shown=tuple(shown), sizes=tuple(sizes), size=_sum(tuple(sizes)))


def is_new_response(items: list[ViewItem], message: Message, position: int) -> bool:
    """One API response may span several messages, with results between them; only its first marks what was sent."""
    if message.response_id is None:
        return True
    for before in range(position - 1, -1, -1):
        said = items[before].message
        if said.role == "assistant":
            return said.response_id != message.response_id
    return True


def media_of(item: ViewItem) -> int:
    """Images and documents that an item shows, also inside results."""
    total = 0
    for block in item.visible:
        if block.type in ("image", "document"):
            total += 1
        elif isinstance(block.value, ToolResult) and not isinstance(block.value.content, str):
            total += sum(part.type in ("image", "document") for part in block.value.parts())
    return total


def _sum(sizes: tuple[Size, ...]) -> Size:
    if len(sizes) == 1:
        return sizes[0]
    return Size(sum(s.base for s in sizes), sum(s.live for s in sizes), sum(s.blind for s in sizes))


@dataclass(frozen=True, slots=True)
class CallInView:
    """A tool call and where it stands: item position and block index; `path` when the input names a file."""

    id: ToolUseId
    name: str
    position: int
    block: int
    path: str | None = None
    span: str = ""  # which part of the file was asked for


@dataclass(frozen=True, slots=True)
class ResultInView:
    """A tool result and where it stands."""

    id: ToolUseId
    position: int
    block: int
    is_error: bool = False


def call_of(use: ToolUse, position: int, block: int) -> CallInView:
    """The call with the file it names, if any."""
    arguments = use.input
    path = path_of(arguments) or None
    span = _span(arguments) if path else ""
    return CallInView(ToolUseId(use.id), use.name, position, block, path, span)


def _span(arguments: dict[str, Any]) -> str:
    keys = ("offset", "limit", "view_range", "start_line", "end_line", "pages")
    return ",".join(f"{key}={arguments[key]}" for key in keys if arguments.get(key) is not None)


def last_response(items: list[ViewItem]) -> int:
    """Where the last API response begins: its calls may still be answered; those before it never again."""
    start, response = len(items), None
    for position in range(len(items) - 1, -1, -1):
        message = items[position].message
        if message.role == "assistant":
            if start < len(items) and (response is None or message.response_id != response):
                break
            start, response = position, message.response_id
    return start


def thoughts(item: ViewItem) -> list[int]:
    """The blocks of the message as said that hold signed thinking: what a provider wants back in an open loop."""
    blocks = enumerate(item.message.blocks)
    return [index for index, block in blocks if block.type in THINKING and is_signed(block)]


def is_signed(block: Block) -> bool:
    """Whether thinking goes into a request at all: without a signature, no provider takes it back."""
    return not (isinstance(block.value, Thinking) and not block.value.signature)


def has_lost_thinking(item: ViewItem) -> bool:
    """Whether signed thinking that was said isn't shown any more."""
    return None in item.shown and any(item.shown[index] is None for index in thoughts(item))


def item_has_results(item: ViewItem) -> bool:
    """Whether the message brings tool results, so that nobody spoke in it."""
    return any(block.type == "tool_result" for block in item.message.blocks)


# Below this, in characters, a replacement saves nothing worth a record.
WORTH_CHARS = 240
INTERRUPTED = "[Request interrupted by user"
UNCHANGED = "Unchanged since it was read"  # a read that only points at an older one, which must stay (TURN-4)
_PROGRESS = re.compile(r"\d{1,3}(?:\.\d+)? ?%|\b\d+/\d+\b|[#=█▏▎▍▌▋▊▉>-]{8,}|\bETA\b|\d[kMG]i?B/s")
_SIGNS = ("%", "\r", "ETA", "B/s", "####", "====", "---", "█")
_PROGRESS_LINES = 20
_PROGRESS_SHARE = 0.7

_Key = TypeVar("_Key")
Why = Literal["superseded", "repeated", "chatter"]


@dataclass(slots=True)
class WorthlessResults:
    """Results that snip may take, each with why; and where people interrupted the model."""

    worthless: dict[ToolUseId, Why] = field(default_factory=dict)
    interruptions: list[int] = field(default_factory=list)  # positions of the interruption marks
    _reads: dict[tuple[str, str, str], ToolUseId] = field(default_factory=dict)  # (tool, path, span): the newest
    _texts: dict[tuple[str, str], ToolUseId] = field(default_factory=dict)  # (tool, text): the newest

    def copy(self) -> WorthlessResults:
        return WorthlessResults(
            self.worthless.copy(), self.interruptions.copy(), self._reads.copy(), self._texts.copy()
        )

    def answered(self, call: CallInView, result: ToolResult) -> None:
        """A result arrived: it may make an older one worthless, or be so itself."""
        text = result.text()
        # a search in the same folder, or another edit, supersedes nothing
        is_read = call.path and call.name in READ_TOOLS and not result.is_error
        if is_read and not text.startswith(UNCHANGED):
            self._replaces(self._reads, (call.name, call.path or "", call.span), call.id, "superseded")
        parts = () if isinstance(result.content, str) else result.parts()
        if len(text) < WORTH_CHARS or any(part.type != "text" for part in parts):
            return
        self._replaces(self._texts, (call.name, text), call.id, "repeated")
        if is_chatter(text):
            self.worthless[call.id] = "chatter"

    def taken(self, ids: Iterable[ToolUseId]) -> None:
        """These left the view's results as they came: there is nothing more to take."""
        for identity in ids:
            self.worthless.pop(identity, None)

    def _replaces(self, newest: dict[_Key, ToolUseId], key: _Key, identity: ToolUseId, why: Why) -> None:
        older = newest.get(key)
        if older is not None:
            self.worthless[older] = why
        newest[key] = identity

    def said(self, message: Message, position: int) -> None:
        """A message arrived: is it the mark of an interruption?"""
        if message.role == "user" and is_interruption(message):
            self.interruptions.append(position)


def is_interruption(message: Message) -> bool:
    """Whether an agent put this message in the place where a person stopped the model."""
    first = message.blocks[0].value if message.blocks else None
    return isinstance(first, Text) and first.text.startswith(INTERRUPTED)


def is_chatter(text: str) -> bool:
    """Whether a result is mostly progress lines; judged from its first few hundred lines."""
    head = text[:2_000]
    if not any(sign in head for sign in _SIGNS):
        return False
    lines = progress_lines(text[:20_000])
    if len(lines) < _PROGRESS_LINES:
        return False
    hits = 0
    for number, line in enumerate(lines, 1):
        hits += bool(_PROGRESS.search(line[:200]))
        if number == _PROGRESS_LINES and hits < _PROGRESS_LINES // 2:
            return False
    return hits >= _PROGRESS_SHARE * len(lines)


def progress_lines(text: str) -> list[str]:
    """Lines with something on them; a carriage return ends one as well."""
    return [line for line in re.split(r"[\r\n]+", text) if line.strip()]


def apply_message(view: ContextView, message: Message) -> None:
    if not message.id:  # made by `Message.of`, and folded without a session, which would have named it
        message = msgspec.structs.replace(message, id=MessageId(f"message-{view.state.messages + 1}"))
    if message.agent_id is not None or message.id in view.positions:
        return
    before = view.size
    item = item_of(message)
    position = len(view.items)
    place(view, item, position)
    if message.role == "assistant" and message.origin == "model":
        is_new = is_new_response(view.items, message, position)
        asked_at = view.items[position - 1].message.at if position else None
        view.state = view.state.with_answer(message.at, is_new=is_new, asked_at=asked_at)
        set_anchor(view, message, before, is_new=is_new)
        if is_new:
            view.sent, view.moved = position, None
    else:
        view.state = view.state.with_message()
    if message.origin == "user" and not item_has_results(item):
        view.prompt = position


def place(view: ContextView, item: ViewItem, position: int) -> None:
    """Append an item and enter what it brings into the aggregates."""
    view.items.append(item)
    view.positions[item.message.id] = position
    view.size = view.size.plus(item.size)
    view.worth.said(item.message, position)
    view.media += media_of(item)
    for index, block in enumerate(item.message.blocks):
        if block.type == "tool_use" and isinstance(block.value, ToolUse):
            apply_call(view, call_of(block.value, position, index))
        elif block.type == "tool_result" and isinstance(block.value, ToolResult):
            apply_result(view, block.value, position, index)


def apply_call(view: ContextView, call: CallInView) -> None:
    view.calls[call.id] = call
    count_call(call.id, view.call_counts)
    if call.id not in view.settled:
        view.open_calls[call.id] = None


def apply_result(view: ContextView, value: ToolResult, position: int, index: int) -> None:
    """A result arrived: it closes its call, and may supersede an older read of the same part of a file."""
    identity = ToolUseId(value.tool_use_id)
    call = view.calls.get(identity)
    if call is None or identity in view.results or identity in view.settled:
        return
    view.open_calls.pop(identity, None)
    view.results[identity] = ResultInView(identity, position, index, bool(value.is_error))
    count_result(view, identity, +1)
    view.worth.answered(call, value)


def count_result(view: ContextView, identity: ToolUseId, sign: int) -> None:
    """Add or take away the shown size of a result in the sum of its tool."""
    result, call = view.results[identity], view.calls[identity]
    item = view.items[result.position]
    if item.is_hidden or identity in view.cleared:
        return
    tokens = item.sizes[result.block].base
    view.result_tokens[call.name] = view.result_tokens.get(call.name, 0) + sign * tokens


def apply_edit(view: ContextView, edit: Edit) -> None:
    if isinstance(edit, Settled):
        for identity in edit.tool_use_ids:
            view.open_calls.pop(identity, None)
            view.settled.add(identity)
    if isinstance(edit, Collapsed):
        hide(view, edit)
    apply_changes(view, edit.changes)
    ids = {ToolUseId(stored.tool_use_id) for stored in edit.stored}
    if isinstance(edit, Offloaded):
        view.frozen |= ids
    elif isinstance(edit, Cleared):
        for identity in edit.tool_use_ids:
            if identity in view.results:
                count_result(view, identity, -1)
            view.cleared.add(identity)
        view.worth.taken(edit.tool_use_ids)
    elif isinstance(edit, Snipped):
        view.snipped |= ids
        view.worth.taken(ids)


def apply_changes(view: ContextView, changes: tuple[BlockChange, ...]) -> None:
    """Show some blocks as other bytes from now on, and keep the sums right."""
    by_message: dict[MessageId, list[BlockChange]] = {}
    for change in changes:
        by_message.setdefault(change.message, []).append(change)
    for message, some in by_message.items():
        position = view.positions.get(message)
        if position is None:
            continue
        touched = results_at(view, position, {change.block for change in some})
        for identity in touched:
            count_result(view, identity, -1)
        replace_item(view, position, changed_item(view.items[position], some))
        for identity in touched:
            count_result(view, identity, +1)


def results_at(view: ContextView, position: int, blocks: Iterable[int] | None = None) -> list[ToolUseId]:
    found = []
    for block in range(len(view.items[position].message.blocks)) if blocks is None else blocks:
        if 0 <= block < len(view.items[position].message.blocks):
            value = view.items[position].message.blocks[block].value
            if isinstance(value, ToolResult):
                result = view.results.get(ToolUseId(value.tool_use_id))
                if result and (result.position, result.block) == (position, block):
                    found.append(result.id)
    return found


def replace_item(view: ContextView, position: int, item: ViewItem) -> None:
    old = view.items[position]
    view.items[position] = item
    if not old.is_hidden:
        view.size = view.size.minus(old.size)
        view.media -= media_of(old)
    if not item.is_hidden:
        view.size = view.size.plus(item.size)
        view.media += media_of(item)
    if has_lost_thinking(item):
        view.thoughtless = max(view.thoughtless, position)
    view.dirty = min(view.dirty, position)
    if position < view.sent:
        view.moved = position if view.moved is None else min(view.moved, position)


def hide(view: ContextView, edit: Collapsed) -> None:
    """A finished range gives way to its projection, which takes the place of the range's first message."""
    first, last = view.positions.get(edit.first), view.positions.get(edit.last)
    if first is None or last is None:
        return
    for position in range(first, last + 1):
        for result in results_at(view, position):
            count_result(view, result, -1)
        replace_item(view, position, replace(view.items[position], is_hidden=True))
    view.collapses[edit.id] = edit
    projection = item_of(edit.projection)
    view.size = view.size.plus(projection.size)


def undone(view: ContextView, record: Undone) -> None:
    collapse = view.collapses.pop(record.id, None)
    if collapse is None:
        return
    view.size = view.size.minus(item_of(collapse.projection).size)
    for position in range(view.positions[collapse.first], view.positions[collapse.last] + 1):
        replace_item(view, position, replace(view.items[position], is_hidden=False))
        for result in results_at(view, position):
            count_result(view, result, +1)


# --- its size, as providers reported it (TOK-3, TOK-4) ---------------------------------------------------------------

_DEFAULTS = Settings()


def set_anchor(view: ContextView, message: Message, before: Size, *, is_new: bool) -> None:
    """Set the anchor to the usage of a model message, and learn from it; `before` is the view's size without it."""
    usage = message.usage
    if usage is None or usage.total_tokens == 0:
        return
    last = view.anchor
    if not is_new and last is not None and last.is_reported and last.response == message.response_id:
        # Another message of the same response: its usage is counted once, and what came between stays behind it.
        own = view.size.minus(before)
        view.anchor = replace(last, tokens=max(last.tokens, usage.total_tokens), at=last.at.plus(own))
        return
    if is_new and message.note not in (PROVIDER_EDITED, LOGGED):
        calibration = view.state.calibration.learned(usage, before, message.model)
        if calibration is not view.state.calibration:
            view.state = msgspec.structs.replace(view.state, calibration=calibration)
    view.anchor = UsageAnchor(usage.total_tokens, view.size, message.response_id, is_reported=True)


def apply_calibration(view: ContextView, record: Calibrated) -> None:
    """What a provider stated about a model, and maybe about the size of this very context (TOK-4)."""
    view.state = view.state.with_calibrated(record)
    if record.size_tokens is None:
        return
    if view.state.calibration.overhead_tokens is None:
        overhead = min(view.front_size.live, record.size_tokens)
        calibration = msgspec.structs.replace(view.state.calibration, overhead_tokens=overhead)
        view.state = msgspec.structs.replace(view.state, calibration=calibration)
    view.anchor = UsageAnchor(record.size_tokens, view.size, None, is_reported=True)


def estimated_anchor(view: ContextView) -> UsageAnchor | None:
    """The anchor of a view that changed as a whole: the calibrated estimate; None while nothing was ever reported."""
    calibration = view.state.calibration
    if calibration.overhead_tokens is None:
        return None
    tokens = round(calibration.ratio * view.size.live) + calibration.overhead_tokens
    return UsageAnchor(tokens, view.size, None, is_reported=False)


def apply_front(view: ContextView, front: Front) -> None:
    """A new front: the whole prefix moves, and the anchor by the difference in size."""
    size = front_size(front)
    gained = size.live - view.front_size.live
    calibration = view.state.calibration
    if calibration.overhead_tokens is not None:
        overhead = max(0, calibration.overhead_tokens + gained)
        calibration = msgspec.structs.replace(calibration, overhead_tokens=overhead)
    if view.anchor is not None:
        view.anchor = replace(view.anchor, tokens=max(0, view.anchor.tokens + gained))
    view.state = msgspec.structs.replace(view.state, front=front, calibration=calibration)
    view.front_size = size
    view.dirty = 0


def size_tokens(view: ContextView, settings: Settings = _DEFAULTS) -> int:
    """The view's size now (TOK-3): anchored, else the blind estimate of everything times 4/3, rounded up.

    What came after the last report counts by the live estimate at the learned ratio, or, as in the logs of the
    reference system, by the base rule as it is.
    """
    if view.anchor is None:
        blind = view.size.blind + view.front_size.blind
        return -(-blind * settings.margin_numerator // settings.margin_denominator)
    if settings.estimator == "base" and view.anchor.is_reported:
        return max(0, view.anchor.tokens + view.size.base - view.anchor.at.base)
    gained = view.size.live - view.anchor.at.live
    return max(0, view.anchor.tokens + round(view.state.calibration.ratio * gained))


def tokens_from(view: ContextView, position: int) -> int:
    """Tokens shown from an item on, by the base rule."""
    return sum(item.size.base for item in view.items[position:] if not item.is_hidden)


def is_measured(view: ContextView) -> bool:
    """Whether a provider reported the size of all of the view; else some of it, or all, is estimated."""
    return view.anchor is not None and view.anchor.is_reported and view.anchor.at.live == view.size.live


# --- the view itself -------------------------------------------------------------------------------------------------


def restore(view: ContextView, items: list[ViewItem]) -> None:
    """Place items that were in a view before, with their blocks as shown then."""
    for item in items:
        position = len(view.items)
        place(view, item, position)
        if item.is_hidden:
            view.size = view.size.minus(item.size)
        if has_lost_thinking(item):
            view.thoughtless = position
        if item.message.origin == "user" and not item_has_results(item):
            view.prompt = position


@dataclass(slots=True)
class RewoundBranch:
    """What a rewind took: the view from right before it, never changed again, and all records since (CKP-8)."""

    id: str
    view: ContextView
    since: list[Record] = field(default_factory=list)


class LedgerIndex(Sized, Protocol):
    """What the ledger read of the first messages of a view; a copy goes on from there by itself."""

    def copy(self) -> LedgerIndex: ...


@dataclass(slots=True)
class ContextView:
    """What the model sees, and what there is to know about it. Read it freely; only the engine changes it.

    Attributes:
        items: the messages in view, in their order, as they are shown.
        front: what stands before them: model, system prompt and tools.
        boundary: the last compaction, if there was one.
        open_calls: the ids of tool uses that wait for their results.
        state: what travels from one compaction to the next, such as pins and the title.

    Example:
        await session.append("Hello")
        view: ContextView = session.view
        assert view.items[0].message.role == "user" and not view.open_calls
    """

    items: list[ViewItem] = field(default_factory=list)
    positions: dict[MessageId, int] = field(default_factory=dict)
    calls: dict[ToolUseId, CallInView] = field(default_factory=dict)
    # Of ids that came more than once, the highest number given to one; it may know of calls that left the view.
    call_counts: dict[str, int] = field(default_factory=dict, compare=False)
    results: dict[ToolUseId, ResultInView] = field(default_factory=dict)
    open_calls: dict[ToolUseId, None] = field(default_factory=dict)
    settled: set[ToolUseId] = field(default_factory=set)
    frozen: set[ToolUseId] = field(default_factory=set)  # offloaded: the preview never changes but by clearing
    cleared: set[ToolUseId] = field(default_factory=set)
    snipped: set[ToolUseId] = field(default_factory=set)
    worth: WorthlessResults = field(default_factory=WorthlessResults)  # what became worthless
    result_tokens: dict[str, int] = field(default_factory=dict)  # base tokens of shown, uncleared results by tool
    size: Size = NOTHING
    anchor: UsageAnchor | None = None
    sent: int = 0  # items before this position were in a request that was answered
    moved: int | None = None  # the first position changed since that request: how far its cached prefix still holds
    prompt: int = 0  # position of the last message in which a person spoke
    media: int = 0  # images and documents shown
    thoughtless: int = -1  # the last position whose thinking left the view
    boundary: Compacted | None = None
    collapses: dict[str, Collapsed] = field(default_factory=dict)
    state: SessionState = field(default_factory=SessionState)
    front_size: Size = NOTHING
    past: ContextView | None = field(
        default=None, compare=False
    )  # what the last boundary replaced, never changed again …
    since: list[Record] = field(default_factory=list, compare=False)  # … and all that came after it (CMP-11)
    before: ContextView | None = field(
        default=None, compare=False
    )  # what the last rewind left, never changed again (CKP-4)
    rewound: RewoundBranch | None = field(default=None, compare=False)  # by the last rewind that can be undone (CKP-8)
    _parted: int | None = field(
        default=None, init=False, compare=False
    )  # from where a record that reached back has parted thinking from the prefix it was signed behind (TURN-7)
    dirty: int = field(default=0, compare=False)  # flattened forms from this position on are stale …
    flat: object = field(default=None, compare=False)  # … in this cache, which is `groups`' own
    index: LedgerIndex | None = field(default=None, compare=False)  # what the ledger read of the items, the first ones

    def call_ids(self) -> CallIds:
        """Gives ids to the calls that join now, and their results to calls."""
        unseen = self.state.messages if self.boundary is not None else 0
        return CallIds(self.calls, self.open_calls, counts=self.call_counts, unseen=unseen)

    def copy(self) -> ContextView:
        """An independent view of the same records."""
        fresh = replace(self, dirty=0, flat=None, index=None)
        for name in _OWNED:
            setattr(fresh, name, getattr(self, name).copy())
        if self.rewound is not None:
            fresh.rewound = replace(self.rewound, since=self.rewound.since.copy())
        return fresh

    def forget(self) -> None:
        """Let go of all that only going back needs: whoever lives with a view reads it back from the journal then."""
        self.past, self.before, self.rewound, self.since = None, None, None, []

    @property
    def unread_bytes(self) -> int:
        """How much of the messages the ledger hasn't read yet."""
        read = len(self.index) if self.index is not None and len(self.index) <= len(self.items) else 0
        return sum(len(raw) for item in self.items[read:] for raw in item.message.content)

    @property
    def front(self) -> Front | None:
        """The prefix as it is now: model, system prompt and tools; None before the first was set."""
        return self.state.front

    def item(self, message: MessageId) -> ViewItem | None:
        """The item of a message; None when it isn't in the view."""
        position = self.positions.get(message)
        return None if position is None else self.items[position]

    def shown_result(self, result: ResultInView) -> ToolResult | None:
        """The result as the model sees it; None when it left the view."""
        item = self.items[result.position]
        block = None if item.is_hidden else item.shown[result.block]
        value = block.value if block else None
        return value if isinstance(value, ToolResult) else None


_OWNED = (
    *("items", "positions", "calls", "call_counts", "results", "open_calls", "settled", "frozen", "cleared", "snipped"),
    *("worth", "result_tokens", "collapses", "since"),
)


def project(records: Iterable[Record], onto: ContextView | None = None) -> ContextView:
    """Fold records onto a view (an empty one by default) and return the new view; `onto` stays as it was."""
    view = onto.copy() if onto is not None else ContextView()
    for record in records:
        advance(view, record)
    return view


def advance(view: ContextView, record: Record) -> None:
    """Fold one record onto a view in place. Only the view's single owner may call this; others use `project`."""
    if isinstance(record, Rewound) and record.undoes and _taken_back(view, record.undoes):
        return
    taken = view.rewound
    if isinstance(record, Rewound) and record.id:
        taken = RewoundBranch(record.id, view.copy())
    elif taken is not None:
        taken.since.append(record)
    _folded(view, record)
    view.rewound = taken


def _folded(view: ContextView, record: Record) -> None:
    if isinstance(record, Compacted):
        _become(view, view_behind(view, record))
        return
    if reaches_back(view, record):
        _uncompacted(view, waits=isinstance(record, Undone))
        if isinstance(record, Rewound):
            _folded(view, record)
        return
    if isinstance(record, Message):
        apply_message(view, record)
    elif isinstance(record, Edit):
        apply_edit(view, record)
    elif isinstance(record, Undone):
        undone(view, record)
    elif isinstance(record, Rewound):
        _rewound(view, record)
    elif isinstance(record, Front):
        apply_front(view, record)
    elif isinstance(record, Calibrated):
        apply_calibration(view, record)
    elif isinstance(record, Worded):
        _worded(view, record)
    else:
        view.state = view.state.after(record)  # not shown, but remembered
    if view.past is not None:
        view.since.append(record)


def _worded(view: ContextView, record: Worded) -> None:
    """A message that was said has other words around it in its client's protocol; what it says is the same."""
    position = view.positions.get(record.message)
    if position is not None:
        item = view.items[position]
        view.items[position] = replace(item, message=msgspec.structs.replace(item.message, wire=record.wire))
        view.dirty = min(view.dirty, position)


def is_uncompact(view: ContextView, record: Record) -> bool:
    """Whether a record undoes the compaction that the view stands on (CMP-11)."""
    return isinstance(record, Undone) and view.boundary is not None and record.id == view.boundary.id


def reaches_back(view: ContextView, record: Record) -> bool:
    """Whether a record needs what stood before the view's boundary: an undo, or a rewind to before its end (CKP-4)."""
    if not isinstance(record, Rewound):
        return is_uncompact(view, record)
    if view.boundary is None:
        return False
    if record.to in view.positions:
        return record.to in view.boundary.kept[: view.boundary.read]
    return _view_left_by_rewind(view, record.to) is None and _was_said(view.past, record.to)


def first_parted(view: ContextView) -> int | None:
    """Return from where the last record that reached back has thinking parted from its prefix; None: nowhere."""
    return view._parted


def leaves_memory(view: ContextView, record: Record) -> bool:
    """Whether a live session, which holds no more than it shows, has to read its journal to fold a record."""
    if isinstance(record, Rewound) and (record.undoes or record.to not in view.positions):
        return True
    return reaches_back(view, record)


_NOT_SHOWN = (Front, Calibrated, Titled, Pinned, CompactionFailed, Cursor, Repaired, InFlight, Noted)


def _taken_back(view: ContextView, rewind: str) -> bool:
    """Become the view from right before a rewind, with what was learned and told since that no view shows (CKP-8).

    What was said since leaves, and so does every edit and boundary. False: no such rewind is known.
    """
    taken, since = view.rewound, list[Record]()
    while taken is not None:
        since = [*taken.since, *since]
        if taken.id == rewind:
            break
        taken = taken.view.rewound
    else:
        return False
    fresh = taken.view.copy()
    for record in since:
        if isinstance(record, Calibrated):  # what it says of a context's size is of another one
            record = msgspec.structs.replace(record, size_tokens=None)
        if isinstance(record, _NOT_SHOWN):
            advance(fresh, record)
    said = [r for r in since if isinstance(r, Message) and r.agent_id is None]
    answers = [message for message in said if message.role == "assistant" and message.origin == "model"]
    times = [message.at for message in answers if message.at is not None]
    fresh.state = msgspec.structs.replace(  # said is said, though it isn't shown
        fresh.state,
        messages=fresh.state.messages + len(said),
        responses=fresh.state.responses + len({message.response_id or message.id for message in answers}),
        answered_at=times[-1] if times else fresh.state.answered_at,
    )
    fresh.dirty, fresh.flat, fresh.index = 0, None, None
    fresh._parted = None if fresh.front == taken.view.front else 0
    _become(view, fresh)
    return True


def _view_left_by_rewind(view: ContextView, identity: str) -> ContextView | None:
    """The view that held a message which a rewind left out; the latest, since the view's own boundary."""
    home: ContextView | None = view
    while home is not None and identity not in home.positions:
        home = home.before
    return home


def _was_said(view: ContextView | None, identity: str) -> bool:
    """Whether a message was in a view, or in one before it; the start of all (no id) always was."""
    while view is not None:
        if _view_left_by_rewind(view, identity) is not None or (not identity and view.boundary is None):
            return True
        view = view.past
    return False


def _rewound(view: ContextView, record: Rewound) -> None:
    """Leave out everything after a message; rebuilt from the messages that stay, since calls and sums change.

    Without a message, everything. One that an earlier rewind left out comes back, with what stood before it then.
    """
    before, home = replace(view, dirty=0, flat=None, index=None), _view_left_by_rewind(view, record.to)
    if home is not None and home is not view:
        moved = 0 if home.sent else None
        fresh = replace(home.copy(), state=view.state, front_size=view.front_size, past=view.past, moved=moved)
        fresh._parted = 0
        _become(view, fresh)
    position = -1 if not record.to and view.boundary is None else view.positions.get(record.to)
    if position is None:
        return
    for collapse in [c for c in view.collapses.values() if view.positions[c.last] > position]:
        undone(view, Undone(id=collapse.id))
    stay = view.items[: position + 1]
    gone = {result.id for result in view.results.values() if result.position > position}
    answered = last_response(stay)
    fresh = ContextView(
        boundary=view.boundary,
        state=view.state,
        settled={i for i in view.settled if view.calls[i].position < answered},
        frozen=view.frozen - gone,
        cleared=view.cleared - gone,
        snipped=view.snipped - gone,
        front_size=view.front_size,
        sent=min(view.sent, _whole_answers(view.items, position + 1)),
        moved=view.moved if view.moved is not None and view.moved <= position else None,
        past=view.past,
        since=before.since,
        before=before,
    )
    fresh._parted = view._parted
    restore(fresh, stay)
    fresh.worth.taken(fresh.cleared | fresh.snipped)
    fresh.collapses = view.collapses
    for collapse in fresh.collapses.values():
        fresh.size = fresh.size.plus(item_of(collapse.projection).size)
    fresh.anchor = estimated_anchor(fresh)
    _become(view, fresh)


def _whole_answers(items: Sequence[ViewItem], end: int) -> int:
    """How far items up to an end are as they were sent: an answer in pieces goes up as one, so one that is parted there
    was never sent like that (SM-3)."""
    last = next((n for n in range(end - 1, -1, -1) if items[n].message.role == "assistant"), None)
    response = items[last].message.response_id if last is not None else None
    if response is None or all(item.message.response_id != response for item in items[end:]):
        return end
    return next(n for n, item in enumerate(items) if item.message.response_id == response)


def view_behind(view: ContextView, boundary: Compacted) -> ContextView:
    """What a boundary makes of a view: its summary among the kept messages, shown as its changes say (CMP-14)."""
    here = {i: view.items[view.positions[i]].message for i in boundary.kept if i in view.positions}
    here |= {message.id: message for message in (*boundary.carried, *boundary.summary)}
    state = from_checkpoint(boundary.state)
    past = replace(view, dirty=0, flat=None, index=None)
    # A front that stays needn't be counted again: there may be thousands of tools.
    front = view.front_size if state.front == view.state.front else front_size(state.front)
    fresh = ContextView(boundary=boundary, state=state, front_size=front, past=past)
    marks = boundary.marks
    fresh.settled = set(marks.settled)
    restore(fresh, [item_of(here[i]) for i in boundary.order if i in here])
    apply_changes(fresh, boundary.changes)
    for identity in marks.cleared:
        if identity in fresh.results:
            count_result(fresh, identity, -1)
    fresh.frozen, fresh.cleared, fresh.snipped = set(marks.offloaded), set(marks.cleared), set(marks.snipped)
    fresh.worth.taken(fresh.cleared | fresh.snipped)
    fresh.sent = marks.sent + (len(boundary.summary) if marks.sent > boundary.in_front else 0)
    for collapse in boundary.collapses:
        hide(fresh, collapse)
    fresh.anchor = estimated_anchor(fresh)
    return fresh


def _uncompacted(view: ContextView, *, waits: bool = True) -> None:
    """The view as if the last compaction had never been: what it replaced, and all that came after it (CMP-11).

    What was learned and told about the model since then stays known. The whole prefix is another one.
    """
    if view.past is None:
        raise PerdureError("what stood before this boundary isn't in memory: fold the journal from further back")
    fresh = view.past.copy()
    for record in view.since:
        advance(fresh, record)
    fresh._parted = _difference(view.past, fresh)
    fresh.state = fresh.state.with_compaction_undone(view.state, waits=waits)
    is_known = view.past.anchor is not None and view.past.front_size == fresh.front_size
    fresh.anchor = view.past.anchor if is_known else estimated_anchor(fresh)
    fresh.moved = 0 if fresh.sent else None
    fresh.dirty = 0
    _become(view, fresh)


def _difference(past: ContextView, view: ContextView) -> int:
    """Find where a view that goes on from a past one first differs from it, or where what was said since begins.

    What was edited behind the boundary, or sent behind another front, wasn't so when the thinking behind it was signed.
    """
    if past.front != view.front:
        return 0
    both = enumerate(zip(past.items, view.items, strict=False))
    return next((at for at, (was, now) in both if was is not now and was.visible != now.visible), len(past.items))


def _become(view: ContextView, fresh: ContextView) -> None:
    for name in ContextView.__dataclass_fields__:
        setattr(view, name, getattr(fresh, name))
