"""Running the trackers: a fold over what happened since the last boundary, at a compaction and never in a turn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.context.keep import first_said
from holdfast.context.policy import Facts
from holdfast.context.restore.happened import Happened, Hearing
from holdfast.context.restore.play import STATE_BYTES, InPlay
from holdfast.context.restore.registry import Registry, Scene, Tracker, written
from holdfast.context.view import View


@dataclass(frozen=True, slots=True)
class Looked:
    """What the trackers say. `saved` is their states after the messages that leave, for the checkpoint.

    What happens in the kept messages isn't in `saved`: the next boundary takes it from there, so nothing counts twice.
    `failed` names what couldn't be tracked, and why.
    """

    scene: Scene
    saved: dict[str, msgspec.Raw] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def look(view: View, keep_from: int, facts: Facts, registry: Registry) -> Looked:
    """The scene of a boundary that keeps the items from `keep_from` on, and those before the span of the facts."""
    start = min(first_said(view), len(view.items))
    read = max(start, keep_from)
    messages = [item.message for item in view.items]
    hearing = Hearing()
    left = list(hearing.of(messages[start:read]))
    kept = list(hearing.of(messages[read:]))
    before = InPlay.of(view.state)
    saved, failed, states = dict(before.states), dict[str, str](), dict[str, Any]()
    for tracker in registry.trackers:
        try:
            state = _tracked(tracker, _state(tracker, before.states.get(tracker.name)), left)
            raw = written(state)
            if len(bytes(raw)) > STATE_BYTES:
                raise ValueError(f"its state is larger than {STATE_BYTES:,} bytes")
            saved[tracker.name] = raw
            states[tracker.name] = _tracked(tracker, state, kept)
        except Exception as e:  # a named boundary: a tracker of the user's must not fail the compaction
            failed[tracker.name] = f"{type(e).__name__}: {e}"
    scene = Scene(
        view=view,
        keep_from=keep_from,
        facts=facts,
        states=states,
        happened=(*left, *kept),
        restored=before.restored,
        start=facts.span[0] if facts.span else 0,
    )
    return Looked(scene, saved, failed)


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
