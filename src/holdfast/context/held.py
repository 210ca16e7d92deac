"""A summary made ahead of time: what it covers, and whether that is still as it was (CMP-6). Pure."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from holdfast.context.compaction import Plan
from holdfast.context.full import Summary, full_plan
from holdfast.context.keep import can_leave
from holdfast.context.noted import CURSOR, covered, keep_behind
from holdfast.context.policy import Facts
from holdfast.context.state import Held
from holdfast.context.view import View
from holdfast.transcript.messages import MessageId

HOW = "with the help of a model, ahead of time"


def digest_of(view: View, end: int) -> str:
    """A hash of what the model sees of the items before a position: which messages, and the bytes they show as."""
    digest = hashlib.sha256((view.boundary.id if view.boundary else "").encode())
    for item in view.items[:end]:
        digest.update(b"\0" + item.message.id.encode())
        for block in item.visible:
            digest.update(b"\1" + block.raw)
    for collapse in view.collapses.values():
        digest.update(b"\2" + collapse.id.encode())
    return digest.hexdigest()


def stale(view: View, held: Held) -> str | None:
    """Why a held summary can't stand for what it covers any more; None when nothing of that has changed."""
    position = view.positions.get(MessageId(held.message))
    if position is None:
        return "gone: the last message that it covers isn't in the view"
    if digest_of(view, position + 1) != held.digest:
        return "changed: an edit touched what it covers"
    return None


def held_plan(view: View, facts: Facts, held: Held) -> Plan | str:
    """The plan that a held summary makes, or why there is none."""
    why = stale(view, held)
    if why is not None:
        return why
    if facts.instructions.strip() != held.instructions.strip():
        return "instructions: it was made with others"
    position = keep_behind(view, facts, view.positions[MessageId(held.message)] + 1)
    if not can_leave(view, position):
        return "nothing_to_compact: no message stands before those to keep"
    return replace(full_plan(view, facts, position, Summary(held.text, held.dropped)), how=HOW)


def is_wanted(view: View, facts: Facts) -> bool:
    """Whether a summary should be made now: near the trigger, none held, and no notes that cost nothing (CMP-2)."""
    settings, limits = facts.settings, facts.limits
    if not settings.precompute or not limits.auto or facts.source != "user":
        return False
    if not limits.warning <= facts.size(view) < limits.trigger:
        return False
    if settings.notes and isinstance(covered(view, view.state.cursors.get(CURSOR)), int):
        return False
    held = view.state.held
    return held is None or stale(view, held) is not None
