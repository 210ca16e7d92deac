"""What comes back behind a boundary: who restores, in which order, and in how much room (RST-1, RST-10)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from perdure.compaction.ledger.reader import happened_around
from perdure.compaction.plan import first_said
from perdure.context.policy import Facts
from perdure.context.state import SessionState
from perdure.context.view import ContextView
from perdure.settings import Settings
from perdure.transcript.blocks import Text
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.records import RestoredItem
from perdure.transcript.tool_calls.actions import Happened

Cost = Callable[[str], int]

STATE_BYTES = 128_000  # of one tracker in a checkpoint; a state that is larger is refused and the older one stays


class BlockPosition(msgspec.Struct, frozen=True, array_like=True):
    """A block of a message: what was said or restored there can be read again while the message is in the view."""

    message: str
    block: int


class TrackerStates(msgspec.Struct, frozen=True, omit_defaults=True):
    """The trackers' states after the messages that left the view, and where the last boundary put what it restored.

    A content older than the boundary is found again on disk, or, where there is none (a replay), in the block that the
    last boundary restored it to, which is still in the view. What was left out there is known by name only.
    """

    states: dict[str, msgspec.Raw] = {}
    restored: dict[str, dict[str, BlockPosition]] = {}  # kind, then name

    @classmethod
    def of(cls, state: SessionState) -> TrackerStates:
        """What the last boundary handed on; an empty one where there was none."""
        return _DECODER.decode(state.in_play)

    def encoded(self) -> msgspec.Raw:
        """As `SessionState` carries it."""
        return msgspec.Raw(msgspec.json.encode(self))


_DECODER = msgspec.json.Decoder(TrackerStates)


@dataclass(frozen=True, slots=True)
class RestoredMessages:
    """What comes back behind a boundary: messages, what to say of them, and the trackers' states for its checkpoint."""

    messages: tuple[Message, ...] = ()
    rows: tuple[RestoredItem, ...] = ()
    in_play: TrackerStates | None = None
    prompts: tuple[str, ...] = ()  # the prompt files that were used


NOTHING_BACK = RestoredMessages()


@dataclass(frozen=True, slots=True)
class Tracker:
    """Learns one kind of thing. `state()` is the empty state; `track` may change the state in place."""

    name: str
    state: type[Any]
    track: Callable[[Any, Happened], Any]


@dataclass(frozen=True, slots=True)
class CurrentFile:
    """A file as it is on disk now: its text, or why there is none (missing, too_large, not_text, denied, …)."""

    path: str
    text: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreScene:
    """Everything a restorer may look at. `files` is None where nothing can be read now, as in a replay.

    `states` are the trackers' at this moment; `given` are texts of the host by name (RST-7, RST-9); `happened` is all
    that the messages in the view tell; `restored` is where the last boundary put what it restored.
    """

    view: ContextView
    keep_from: int
    facts: Facts
    states: Mapping[str, Any]
    happened: tuple[Happened, ...] = ()
    restored: Mapping[str, Mapping[str, BlockPosition]] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, CurrentFile] | None = None
    start: int = 0  # of what leaves: the messages before it are kept as well (CMP-6)

    def text_at(self, place: BlockPosition | None) -> str | None:
        """The text of a block, as it was said; None when its message isn't in the view any more."""
        item = self.view.item(MessageId(place.message)) if place is not None else None
        if item is None or place is None or not 0 <= place.block < len(item.message.blocks):
            return None
        value = item.message.blocks[place.block].value
        return value.text if isinstance(value, Text) else None

    def is_kept(self, message: str) -> bool:
        """Whether a message stays in the view, so that what it says needn't be restored."""
        position = self.view.positions.get(MessageId(message))
        return position is not None and not self.start <= position < self.keep_from


@dataclass(slots=True)
class TokenRoom:
    """How many tokens there are for the next entry; `admits` takes them."""

    each: int
    total: int
    cost: Cost
    used: int = 0

    @property
    def next(self) -> int:
        """Tokens that the next entry may have."""
        return max(0, min(self.each, self.total - self.used))

    def admits(self, text: str) -> bool:
        """Whether the text fits; then its room is taken."""
        cost = self.cost(text)
        if cost > self.next:
            return False
        self.used += cost
        return True


@dataclass(frozen=True, slots=True)
class RestoredEntry:
    """One thing that comes back. `name` finds it again at the next boundary."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Restoration:
    """What a restorer gives: entries in the order in which they are shown, and what it left out, by name."""

    entries: tuple[RestoredEntry, ...] = ()
    left_out: tuple[str, ...] = ()


def _nothing(scene: RestoreScene) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Restorer:
    """Brings one kind of thing back.

    `budget` gives (tokens for one entry, tokens together) at full window size; both shrink with the window (PRS-2).
    `rank` says who gives way when room is short: the highest rank first. `lead` is the text in front of the entries.
    """

    kind: str
    restore: Callable[[RestoreScene, TokenRoom], Restoration | None]
    budget: Callable[[Settings], tuple[int, int]]
    lead: str
    rank: int = 50
    wants: Callable[[RestoreScene], tuple[str, ...]] = _nothing


@dataclass(frozen=True, slots=True)
class RestorerRegistry:
    """The trackers and restorers in force. Restored things stand behind the summary in the order of `restorers`."""

    trackers: tuple[Tracker, ...] = ()
    restorers: tuple[Restorer, ...] = ()

    def adding(self, *parts: Tracker | Restorer) -> RestorerRegistry:
        """With more of them; one of the same name or kind takes the place of the one that was there."""
        trackers = {tracker.name: tracker for tracker in self.trackers}
        restorers = {restorer.kind: restorer for restorer in self.restorers}
        for part in parts:
            if isinstance(part, Tracker):
                trackers[part.name] = part
            else:
                restorers[part.kind] = part
        return replace(self, trackers=tuple(trackers.values()), restorers=tuple(restorers.values()))

    def without(self, *names: str) -> RestorerRegistry:
        """Without the trackers and restorers of these names."""
        return RestorerRegistry(
            tuple(tracker for tracker in self.trackers if tracker.name not in names),
            tuple(restorer for restorer in self.restorers if restorer.kind not in names),
        )


def tracker_state_json(state: Any) -> msgspec.Raw:
    """A tracker's state as JSON."""
    return msgspec.Raw(msgspec.json.encode(state))


@dataclass(frozen=True, slots=True)
class TrackedScene:
    """What the trackers say. `saved` is their states after the messages that leave, for the checkpoint.

    What happens in the kept messages isn't in `saved`: the next boundary takes it from there, so nothing counts twice.
    `failed` names what couldn't be tracked, and why.
    """

    scene: RestoreScene
    saved: dict[str, msgspec.Raw] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def track_scene(view: ContextView, keep_from: int, facts: Facts, registry: RestorerRegistry) -> TrackedScene:
    """The scene of a boundary that keeps the items from `keep_from` on, and those before the span of the facts."""
    start = min(first_said(view), len(view.items))
    read = max(start, keep_from)
    left, kept = happened_around(view, facts.settings, start, read)
    before = TrackerStates.of(view.state)
    saved, failed, states = dict(before.states), dict[str, str](), dict[str, Any]()
    for tracker in registry.trackers:
        try:
            state = _tracked(tracker, _state(tracker, before.states.get(tracker.name)), left)
            raw = tracker_state_json(state)
            if len(bytes(raw)) > STATE_BYTES:
                raise ValueError(f"its state is larger than {STATE_BYTES:,} bytes")
            saved[tracker.name] = raw
            states[tracker.name] = _tracked(tracker, state, kept)
        except Exception as e:  # a named boundary: a tracker of the user's must not fail the compaction
            failed[tracker.name] = f"{type(e).__name__}: {e}"
    scene = RestoreScene(
        view=view,
        keep_from=keep_from,
        facts=facts,
        states=states,
        happened=(*left, *kept),
        restored=before.restored,
        start=facts.span[0] if facts.span else 0,
    )
    return TrackedScene(scene, saved, failed)


def _state(tracker: Tracker, raw: msgspec.Raw | None) -> Any:
    """The state as the last boundary saved it; empty when there is none, or a newer program wrote another one."""
    if raw is None:
        return tracker.state()
    try:
        return msgspec.json.decode(raw, type=tracker.state)
    except msgspec.MsgspecError:
        return tracker.state()


def _tracked(tracker: Tracker, state: Any, happened: Iterable[Happened]) -> Any:
    for one in happened:
        state = tracker.track(state, one)
    return state
