"""The view: what the model will see this turn, as one fold of the journal's records.

`project(records, onto=view)` is the only way from records to a view; live sessions, resume, replay, rewind and
`/context` all use it. The view carries running aggregates (sizes, open calls, results by tool, the anchor), so that a
pass with nothing to do returns at once (TURN-14); a law says that they equal a recount.

Laws: fold(a + b) == fold(b, onto fold(a)); fold(checkpoint + tail) == fold(all) (CMP-14).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from holdfast.context import anchor as anchors
from holdfast.context.anchor import Anchor
from holdfast.context.items import (
    Call,
    Item,
    Result,
    call_of,
    changed,
    is_new_response,
    item_has_results,
    item_of,
    last_response,
    media_of,
)
from holdfast.context.state import State, from_checkpoint
from holdfast.context.worth import Worth
from holdfast.errors import HoldfastError
from holdfast.transcript.blocks import ToolResult, ToolUse
from holdfast.transcript.edits import (
    Change,
    Cleared,
    Collapsed,
    Compacted,
    Edit,
    Offloaded,
    Rewound,
    Settled,
    Snipped,
    Undone,
)
from holdfast.transcript.messages import Message, MessageId, ToolUseId
from holdfast.transcript.records import Calibrated, Front, Record
from holdfast.transcript.sizes import NOTHING, Size


@dataclass(slots=True)
class View:
    """What the model sees, and what there is to know about it. Change it only by `advance`; read it freely."""

    items: list[Item] = field(default_factory=list)
    positions: dict[MessageId, int] = field(default_factory=dict)
    calls: dict[ToolUseId, Call] = field(default_factory=dict)
    results: dict[ToolUseId, Result] = field(default_factory=dict)
    open_calls: dict[ToolUseId, None] = field(default_factory=dict)
    settled: set[ToolUseId] = field(default_factory=set)
    frozen: set[ToolUseId] = field(default_factory=set)  # offloaded: the preview never changes but by clearing
    cleared: set[ToolUseId] = field(default_factory=set)
    snipped: set[ToolUseId] = field(default_factory=set)
    worth: Worth = field(default_factory=Worth)  # what became worthless
    result_tokens: dict[str, int] = field(default_factory=dict)  # base tokens of shown, uncleared results by tool
    size: Size = NOTHING
    anchor: Anchor | None = None
    sent: int = 0  # items before this position were in a request that was answered
    moved: int | None = None  # the first position changed since that request: how far its cached prefix still holds
    prompt: int = 0  # position of the last message in which a person spoke
    media: int = 0  # images and documents shown
    boundary: Compacted | None = None
    collapses: dict[str, Collapsed] = field(default_factory=dict)
    state: State = field(default_factory=State)
    front_size: Size = NOTHING
    past: View | None = field(default=None, compare=False)  # what the last boundary replaced, never changed again …
    since: list[Record] = field(default_factory=list, compare=False)  # … and all that came after it (CMP-11)
    dirty: int = field(default=0, compare=False)  # flattened forms from this position on are stale …
    flat: object = field(default=None, compare=False)  # … in this cache, which is `wire`'s own
    index: object = field(default=None, compare=False)  # of the ledger, which is `indexing`'s own

    def copy(self) -> View:
        """An independent view of the same records."""
        fresh = replace(self, dirty=0, flat=None, index=None)
        for name in _OWNED:
            setattr(fresh, name, getattr(self, name).copy())
        return fresh

    @property
    def front(self) -> Front | None:
        return self.state.front

    def item(self, message: MessageId) -> Item | None:
        position = self.positions.get(message)
        return None if position is None else self.items[position]

    def shown_result(self, result: Result) -> ToolResult | None:
        """The result as the model sees it; None when it left the view."""
        item = self.items[result.position]
        block = None if item.is_hidden else item.shown[result.block]
        value = block.value if block else None
        return value if isinstance(value, ToolResult) else None


_OWNED = (
    *("items", "positions", "calls", "results", "open_calls", "settled", "frozen", "cleared", "snipped"),
    *("worth", "result_tokens", "collapses", "since"),
)


def project(records: Iterable[Record], onto: View | None = None) -> View:
    """Fold records onto a view (an empty one by default) and return the new view; `onto` stays as it was."""
    view = onto.copy() if onto is not None else View()
    for record in records:
        advance(view, record)
    return view


def advance(view: View, record: Record) -> None:
    """Fold one record onto a view in place. Only the view's single owner may call this; others use `project`."""
    if isinstance(record, Compacted):
        _become(view, behind(view, record))
        return
    if reaches_back(view, record):
        _uncompacted(view, waits=isinstance(record, Undone))
        if isinstance(record, Rewound):
            advance(view, record)
        return
    if isinstance(record, Message):
        _said(view, record)
    elif isinstance(record, Edit):
        _edited(view, record)
    elif isinstance(record, Undone):
        _undone(view, record)
    elif isinstance(record, Rewound):
        _rewound(view, record)
    elif isinstance(record, Front):
        anchors.fronted(view, record)
    elif isinstance(record, Calibrated):
        anchors.calibrated(view, record)
    else:
        view.state = view.state.after(record)  # not shown, but remembered
    if view.past is not None:
        view.since.append(record)


def is_uncompact(view: View, record: Record) -> bool:
    """Whether a record undoes the compaction that the view stands on (CMP-11)."""
    return isinstance(record, Undone) and view.boundary is not None and record.id == view.boundary.id


def reaches_back(view: View, record: Record) -> bool:
    """Whether a record needs what stood before the view's boundary: an undo, or a rewind to before its end (CMP-6)."""
    if isinstance(record, Rewound):
        return view.boundary is not None and record.to in view.boundary.kept[: view.boundary.read]
    return is_uncompact(view, record)


def _said(view: View, message: Message) -> None:
    if message.agent_id is not None or message.id in view.positions:
        return
    before = view.size
    item = item_of(message)
    position = len(view.items)
    _place(view, item, position)
    if message.role == "assistant" and message.origin == "model":
        is_new = is_new_response(view.items, message, position)
        view.state = view.state.with_answer(message.at, is_new=is_new)
        anchors.anchored(view, message, before, is_new=is_new)
        if is_new:
            view.sent, view.moved = position, None
    else:
        view.state = view.state.with_message()
    if message.origin == "user" and not item_has_results(item):
        view.prompt = position


def _place(view: View, item: Item, position: int) -> None:
    """Append an item and enter what it brings into the aggregates."""
    view.items.append(item)
    view.positions[item.message.id] = position
    view.size = view.size.plus(item.size)
    view.worth.said(item.message, position)
    view.media += media_of(item)
    for index, block in enumerate(item.message.blocks):
        if block.kind == "tool_use" and isinstance(block.value, ToolUse):
            _called(view, call_of(block.value, position, index))
        elif block.kind == "tool_result" and isinstance(block.value, ToolResult):
            _answered(view, block.value, position, index)


def _called(view: View, call: Call) -> None:
    view.calls[call.id] = call
    if call.id not in view.settled:
        view.open_calls[call.id] = None


def _answered(view: View, value: ToolResult, position: int, index: int) -> None:
    """A result arrived: it closes its call, and may supersede an older read of the same part of a file."""
    identity = ToolUseId(value.tool_use_id)
    call = view.calls.get(identity)
    if call is None or identity in view.results or identity in view.settled:
        return
    view.open_calls.pop(identity, None)
    view.results[identity] = Result(identity, position, index, bool(value.is_error))
    _count_result(view, identity, +1)
    view.worth.answered(call, value)


def _count_result(view: View, identity: ToolUseId, sign: int) -> None:
    """Add or take away the shown size of a result in the sum of its tool."""
    result, call = view.results[identity], view.calls[identity]
    item = view.items[result.position]
    if item.is_hidden or identity in view.cleared:
        return
    tokens = item.sizes[result.block].base
    view.result_tokens[call.name] = view.result_tokens.get(call.name, 0) + sign * tokens


def _edited(view: View, edit: Edit) -> None:
    if isinstance(edit, Settled):
        for identity in edit.tool_use_ids:
            view.open_calls.pop(identity, None)
            view.settled.add(identity)
    if isinstance(edit, Collapsed):
        _hide(view, edit)
    _change(view, edit.changes)
    ids = {ToolUseId(stored.tool_use_id) for stored in edit.stored}
    if isinstance(edit, Offloaded):
        view.frozen |= ids
    elif isinstance(edit, Cleared):
        for identity in edit.tool_use_ids:
            if identity in view.results:
                _count_result(view, identity, -1)
            view.cleared.add(identity)
        view.worth.taken(edit.tool_use_ids)
    elif isinstance(edit, Snipped):
        view.snipped |= ids
        view.worth.taken(ids)


def _change(view: View, changes: tuple[Change, ...]) -> None:
    """Show some blocks as other bytes from now on, and keep the sums right."""
    by_message: dict[MessageId, list[Change]] = {}
    for change in changes:
        by_message.setdefault(change.message, []).append(change)
    for message, some in by_message.items():
        position = view.positions.get(message)
        if position is None:
            continue
        touched = _results_at(view, position, {change.block for change in some})
        for identity in touched:
            _count_result(view, identity, -1)
        _replace_item(view, position, changed(view.items[position], some))
        for identity in touched:
            _count_result(view, identity, +1)


def _results_at(view: View, position: int, blocks: Iterable[int] | None = None) -> list[ToolUseId]:
    found = []
    for block in range(len(view.items[position].message.blocks)) if blocks is None else blocks:
        if block < len(view.items[position].message.blocks):
            value = view.items[position].message.blocks[block].value
            if isinstance(value, ToolResult):
                result = view.results.get(ToolUseId(value.tool_use_id))
                if result and (result.position, result.block) == (position, block):
                    found.append(result.id)
    return found


def _replace_item(view: View, position: int, item: Item) -> None:
    old = view.items[position]
    view.items[position] = item
    if not old.is_hidden:
        view.size = view.size.minus(old.size)
        view.media -= media_of(old)
    if not item.is_hidden:
        view.size = view.size.plus(item.size)
        view.media += media_of(item)
    view.dirty = min(view.dirty, position)
    if position < view.sent:
        view.moved = position if view.moved is None else min(view.moved, position)


def _hide(view: View, edit: Collapsed) -> None:
    """A finished range gives way to its projection, which takes the place of the range's first message."""
    first, last = view.positions.get(edit.first), view.positions.get(edit.last)
    if first is None or last is None:
        return
    for position in range(first, last + 1):
        for result in _results_at(view, position):
            _count_result(view, result, -1)
        _replace_item(view, position, replace(view.items[position], is_hidden=True))
    view.collapses[edit.id] = edit
    projection = item_of(edit.projection)
    view.size = view.size.plus(projection.size)


def _undone(view: View, record: Undone) -> None:
    collapse = view.collapses.pop(record.id, None)
    if collapse is None:
        return
    view.size = view.size.minus(item_of(collapse.projection).size)
    for position in range(view.positions[collapse.first], view.positions[collapse.last] + 1):
        _replace_item(view, position, replace(view.items[position], is_hidden=False))
        for result in _results_at(view, position):
            _count_result(view, result, +1)


def _rewound(view: View, record: Rewound) -> None:
    """Leave out everything after a message; rebuilt from the messages that stay, since calls and sums change."""
    position = view.positions.get(record.to)
    if position is None:
        return
    for collapse in [c for c in view.collapses.values() if view.positions[c.last] > position]:
        _undone(view, Undone(id=collapse.id))
    stay = view.items[: position + 1]
    gone = {result.id for result in view.results.values() if result.position > position}
    answered = last_response(stay)
    fresh = View(
        boundary=view.boundary,
        state=view.state,
        settled={i for i in view.settled if view.calls[i].position < answered},
        frozen=view.frozen - gone,
        cleared=view.cleared - gone,
        snipped=view.snipped - gone,
        front_size=view.front_size,
        sent=min(view.sent, position + 1),
        past=view.past,
        since=view.since,
    )
    _restore(fresh, stay)
    fresh.worth.taken(fresh.cleared | fresh.snipped)
    fresh.collapses = view.collapses
    for collapse in fresh.collapses.values():
        fresh.size = fresh.size.plus(item_of(collapse.projection).size)
    fresh.anchor = anchors.estimated(fresh)
    _become(view, fresh)


def behind(view: View, boundary: Compacted) -> View:
    """What a boundary makes of a view: its summary among the kept messages, shown as its changes say (CMP-14)."""
    here = {i: view.items[view.positions[i]].message for i in boundary.kept if i in view.positions}
    here |= {message.id: message for message in (*boundary.carried, *boundary.summary)}
    state = from_checkpoint(boundary.state)
    past = replace(view, dirty=0, flat=None, index=None)
    fresh = View(boundary=boundary, state=state, front_size=anchors.front_size(state.front), past=past)
    marks = boundary.marks
    fresh.settled = set(marks.settled)
    _restore(fresh, [item_of(here[i]) for i in boundary.order if i in here])
    _change(fresh, boundary.changes)
    for identity in marks.cleared:
        if identity in fresh.results:
            _count_result(fresh, identity, -1)
    fresh.frozen, fresh.cleared, fresh.snipped = set(marks.offloaded), set(marks.cleared), set(marks.snipped)
    fresh.worth.taken(fresh.cleared | fresh.snipped)
    fresh.sent = marks.sent + (len(boundary.summary) if marks.sent > boundary.in_front else 0)
    for collapse in boundary.collapses:
        _hide(fresh, collapse)
    fresh.anchor = anchors.estimated(fresh)
    return fresh


def _uncompacted(view: View, *, waits: bool = True) -> None:
    """The view as if the last compaction had never been: what it replaced, and all that came after it (CMP-11).

    What was learned and told about the model since then stays known. The whole prefix is another one.
    """
    if view.past is None:
        raise HoldfastError("what stood before this boundary isn't in memory: fold the journal from further back")
    fresh = view.past.copy()
    for record in view.since:
        advance(fresh, record)
    fresh.state = fresh.state.with_compaction_undone(view.state, waits=waits)
    is_known = view.past.anchor is not None and view.past.front_size == fresh.front_size
    fresh.anchor = view.past.anchor if is_known else anchors.estimated(fresh)
    fresh.moved = 0 if fresh.sent else None
    fresh.dirty = 0
    _become(view, fresh)


def _restore(view: View, items: list[Item]) -> None:
    """Place items that were in a view before, with their blocks as shown then."""
    for item in items:
        position = len(view.items)
        _place(view, replace(item, shown=item.message.blocks), position)
        view.items[position] = item
        if item.is_hidden:
            view.size = view.size.minus(item.size)
        if item.message.origin == "user" and not item_has_results(item):
            view.prompt = position
    view.result_tokens = {}
    for identity in view.results:
        _count_result(view, identity, +1)
    view.media = sum(media_of(item) for item in view.items)


def _become(view: View, fresh: View) -> None:
    for name in View.__dataclass_fields__:
        setattr(view, name, getattr(fresh, name))
