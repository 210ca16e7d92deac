"""Trackers and restorers: what is learned from tool calls, and what of it comes back behind a boundary (RST-10).

A tracker is a fold: `track(state, happened) -> state`, over what happened in the messages, in their order. Its state is
anything msgspec can write as JSON and read back as `state`; it travels in the checkpoint of each boundary. A restorer
turns states into texts, within the room that it is given, and names what it leaves out. Both are pure; what has to be
read from disk now is named by `wants` and handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from holdfast.context.policy import Facts
from holdfast.context.restore.happened import Happened
from holdfast.context.restore.play import Place
from holdfast.context.view import View
from holdfast.settings import Settings
from holdfast.transcript.blocks import Text
from holdfast.transcript.messages import MessageId

Cost = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Tracker:
    """Learns one kind of thing. `state()` is the empty state; `track` may change the state in place."""

    name: str
    state: type[Any]
    track: Callable[[Any, Happened], Any]


@dataclass(frozen=True, slots=True)
class FileNow:
    """A file as it is on disk now: its text, or why there is none (missing, too_large, not_text, denied, …)."""

    path: str
    text: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything a restorer may look at. `files` is None where nothing can be read now, as in a replay.

    `states` are the trackers' at this moment; `given` are texts of the host by name (RST-7, RST-9); `happened` is all
    that the messages in the view tell; `restored` is where the last boundary put what it restored.
    """

    view: View
    keep_from: int
    facts: Facts
    states: Mapping[str, Any]
    happened: tuple[Happened, ...] = ()
    restored: Mapping[str, Mapping[str, Place]] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, FileNow] | None = None
    start: int = 0  # of what leaves: the messages before it are kept as well (CMP-6)

    def text_at(self, place: Place | None) -> str | None:
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
class Room:
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
class Entry:
    """One thing that comes back. `name` finds it again at the next boundary."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restorer gives: entries in the order in which they are shown, and what it left out, by name."""

    entries: tuple[Entry, ...] = ()
    left_out: tuple[str, ...] = ()


def _nothing(scene: Scene) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Restorer:
    """Brings one kind of thing back.

    `budget` gives (tokens for one entry, tokens together) at full window size; both shrink with the window (PRS-2).
    `rank` says who gives way when room is short: the highest rank first. `lead` is the text in front of the entries.
    """

    kind: str
    restore: Callable[[Scene, Room], Restored | None]
    budget: Callable[[Settings], tuple[int, int]]
    lead: str
    rank: int = 50
    wants: Callable[[Scene], tuple[str, ...]] = _nothing


@dataclass(frozen=True, slots=True)
class Registry:
    """The trackers and restorers in force. Restored things stand behind the summary in the order of `restorers`."""

    trackers: tuple[Tracker, ...] = ()
    restorers: tuple[Restorer, ...] = ()

    def adding(self, *parts: Tracker | Restorer) -> Registry:
        """With more of them; one of the same name or kind takes the place of the one that was there."""
        trackers = {tracker.name: tracker for tracker in self.trackers}
        restorers = {restorer.kind: restorer for restorer in self.restorers}
        for part in parts:
            if isinstance(part, Tracker):
                trackers[part.name] = part
            else:
                restorers[part.kind] = part
        return replace(self, trackers=tuple(trackers.values()), restorers=tuple(restorers.values()))

    def without(self, *names: str) -> Registry:
        """Without the trackers and restorers of these names."""
        return Registry(
            tuple(tracker for tracker in self.trackers if tracker.name not in names),
            tuple(restorer for restorer in self.restorers if restorer.kind not in names),
        )


def written(state: Any) -> msgspec.Raw:
    """A tracker's state as JSON."""
    return msgspec.Raw(msgspec.json.encode(state))
