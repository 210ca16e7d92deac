"""The view: what the model will see this turn, as one fold of the journal's records.

`project(records, onto=view)` is the only way from records to a view; live sessions, resume, replay, rewind and
`/context` all use it. The view carries running aggregates (sizes, open calls, results by tool, the anchor), so that a
pass with nothing to do returns at once (TURN-14); a law says that they equal a recount.

Laws: fold(a + b) == fold(b, onto fold(a)); fold(checkpoint + tail) == fold(all) (CMP-14).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import msgspec

from holdfast.context import anchor as anchors
from holdfast.context.anchor import Anchor
from holdfast.context.folding import change, count_result, edited, hide, restore, said, undone
from holdfast.context.items import (
    Call,
    Item,
    Result,
    item_of,
    last_response,
)
from holdfast.context.state import State, from_checkpoint
from holdfast.context.worth import Worth
from holdfast.errors import HoldfastError
from holdfast.transcript.blocks import ToolResult
from holdfast.transcript.edits import (
    Collapsed,
    Compacted,
    Edit,
    Rewound,
    Undone,
)
from holdfast.transcript.messages import Message, MessageId, ToolUseId
from holdfast.transcript.records import (
    Calibrated,
    CompactionFailed,
    Cursor,
    Front,
    InFlight,
    Noted,
    Pinned,
    Record,
    Repaired,
    Titled,
)
from holdfast.transcript.sizes import NOTHING, Size


@dataclass(slots=True)
class Taken:
    """What a rewind took: the view from right before it, never changed again, and all records since (CKP-8)."""

    id: str
    view: View
    since: list[Record] = field(default_factory=list)


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
    thoughtless: int = -1  # the last position whose thinking left the view
    boundary: Compacted | None = None
    collapses: dict[str, Collapsed] = field(default_factory=dict)
    state: State = field(default_factory=State)
    front_size: Size = NOTHING
    past: View | None = field(default=None, compare=False)  # what the last boundary replaced, never changed again …
    since: list[Record] = field(default_factory=list, compare=False)  # … and all that came after it (CMP-11)
    before: View | None = field(default=None, compare=False)  # what the last rewind left, never changed again (CKP-4)
    taken: Taken | None = field(default=None, compare=False)  # by the last rewind that can be undone (CKP-8)
    dirty: int = field(default=0, compare=False)  # flattened forms from this position on are stale …
    flat: object = field(default=None, compare=False)  # … in this cache, which is `wire`'s own
    index: object = field(default=None, compare=False)  # of the ledger, which is `indexing`'s own

    def copy(self) -> View:
        """An independent view of the same records."""
        fresh = replace(self, dirty=0, flat=None, index=None)
        for name in _OWNED:
            setattr(fresh, name, getattr(self, name).copy())
        if self.taken is not None:
            fresh.taken = replace(self.taken, since=self.taken.since.copy())
        return fresh

    def forget(self) -> None:
        """Let go of all that only going back needs: whoever lives with a view reads it back from the journal then."""
        self.past, self.before, self.taken, self.since = None, None, None, []

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
    if isinstance(record, Rewound) and record.undoes and _taken_back(view, record.undoes):
        return
    taken = view.taken
    if isinstance(record, Rewound) and record.id:
        taken = Taken(record.id, view.copy())
    elif taken is not None:
        taken.since.append(record)
    _folded(view, record)
    view.taken = taken


def _folded(view: View, record: Record) -> None:
    if isinstance(record, Compacted):
        _become(view, behind(view, record))
        return
    if reaches_back(view, record):
        _uncompacted(view, waits=isinstance(record, Undone))
        if isinstance(record, Rewound):
            _folded(view, record)
        return
    if isinstance(record, Message):
        said(view, record)
    elif isinstance(record, Edit):
        edited(view, record)
    elif isinstance(record, Undone):
        undone(view, record)
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
    """Whether a record needs what stood before the view's boundary: an undo, or a rewind to before its end (CKP-4)."""
    if not isinstance(record, Rewound):
        return is_uncompact(view, record)
    if view.boundary is None:
        return False
    if record.to in view.positions:
        return record.to in view.boundary.kept[: view.boundary.read]
    return _left(view, record.to) is None and _was_said(view.past, record.to)


def leaves_memory(view: View, record: Record) -> bool:
    """Whether a live session, which holds no more than it shows, has to read its journal to fold a record."""
    if isinstance(record, Rewound) and (record.undoes or record.to not in view.positions):
        return True
    return reaches_back(view, record)


_NOT_SHOWN = (Front, Calibrated, Titled, Pinned, CompactionFailed, Cursor, Repaired, InFlight, Noted)


def _taken_back(view: View, rewind: str) -> bool:
    """Become the view from right before a rewind, with what was learned and told since that no view shows (CKP-8).

    What was said since leaves, and so does every edit and boundary. False: no such rewind is known.
    """
    taken, since = view.taken, list[Record]()
    while taken is not None:
        since = [*taken.since, *since]
        if taken.id == rewind:
            break
        taken = taken.view.taken
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
    _become(view, fresh)
    return True


def _left(view: View, identity: str) -> View | None:
    """The view that held a message which a rewind left out; the latest, since the view's own boundary."""
    home: View | None = view
    while home is not None and identity not in home.positions:
        home = home.before
    return home


def _was_said(view: View | None, identity: str) -> bool:
    """Whether a message was in a view, or in one before it; the start of all (no id) always was."""
    while view is not None:
        if _left(view, identity) is not None or (not identity and view.boundary is None):
            return True
        view = view.past
    return False


def _rewound(view: View, record: Rewound) -> None:
    """Leave out everything after a message; rebuilt from the messages that stay, since calls and sums change.

    Without a message, everything. One that an earlier rewind left out comes back, with what stood before it then.
    """
    before, home = replace(view, dirty=0, flat=None, index=None), _left(view, record.to)
    if home is not None and home is not view:
        moved = 0 if home.sent else None
        _become(view, replace(home.copy(), state=view.state, front_size=view.front_size, past=view.past, moved=moved))
    position = -1 if not record.to and view.boundary is None else view.positions.get(record.to)
    if position is None:
        return
    for collapse in [c for c in view.collapses.values() if view.positions[c.last] > position]:
        undone(view, Undone(id=collapse.id))
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
        moved=view.moved if view.moved is not None and view.moved <= position else None,
        past=view.past,
        since=before.since,
        before=before,
    )
    restore(fresh, stay)
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
    restore(fresh, [item_of(here[i]) for i in boundary.order if i in here])
    change(fresh, boundary.changes)
    for identity in marks.cleared:
        if identity in fresh.results:
            count_result(fresh, identity, -1)
    fresh.frozen, fresh.cleared, fresh.snipped = set(marks.offloaded), set(marks.cleared), set(marks.snipped)
    fresh.worth.taken(fresh.cleared | fresh.snipped)
    fresh.sent = marks.sent + (len(boundary.summary) if marks.sent > boundary.in_front else 0)
    for collapse in boundary.collapses:
        hide(fresh, collapse)
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


def _become(view: View, fresh: View) -> None:
    for name in View.__dataclass_fields__:
        setattr(view, name, getattr(fresh, name))
