"""Undoing a compaction, and looking at one before it is made (CMP-11)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast.context.anchor import size_tokens
from holdfast.context.compaction import Plan, Trigger
from holdfast.context.parts import Part as Chosen
from holdfast.context.view import View
from holdfast.engine.compaction import Failed, Proposal, Wish, proposal
from holdfast.engine.session import LiveSession
from holdfast.errors import CompactionRefused
from holdfast.events import Event
from holdfast.transcript.edits import Compacted, Undone


@dataclass(frozen=True, slots=True)
class Uncompacted:
    """The view before the compaction is back, with what was said since. Sizes are in tokens."""

    boundary: Compacted
    tokens_before: int
    tokens_after: int


async def uncompact(session: LiveSession, *, reason: str = "asked for") -> Uncompacted:
    """Take back the last compaction, as a record: nothing that was said since is lost.

    Automatic compaction then waits for the block threshold, or it would do at once what was just undone. Raises
    `CompactionRefused` when the view stands on no compaction, or one is running.
    """
    if session.is_compacting:
        raise CompactionRefused("a compaction of this session is running; wait for it to end")
    boundary = session.view.boundary
    if boundary is None:
        raise CompactionRefused("there is no compaction to undo: the view holds everything that was said")
    before = size_tokens(session.view)
    await session.record(Undone(id=boundary.id, reason=reason))
    return Uncompacted(boundary, before, size_tokens(session.view))


@dataclass(frozen=True, slots=True)
class Part:
    """Some of what a compaction would keep, drop or bring back: a message, or a restored thing. Tokens by TOK-1."""

    id: str
    what: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Preview:
    """What a compaction would do: the record it would leave, and every message kept and dropped, with sizes."""

    plan: Plan
    boundary: Compacted
    kept: tuple[Part, ...]
    dropped: tuple[Part, ...]
    restored: tuple[Part, ...]


class _Silent:
    def emit(self, event: Event) -> None:
        """Nothing happens, so there is nothing to tell."""


async def preview(
    session: LiveSession,
    *,
    trigger: Trigger = "manual",
    record: str | None = None,
    focus: str = "",
    part: Chosen | None = None,
) -> Preview | Failed:
    """What `compact` would do now. Changes nothing, records nothing, tells nobody."""
    quiet = replace(session, world=replace(session.world, sink=_Silent()))
    found = await proposal(quiet, Wish(trigger=trigger, record=record, focus=focus, part=part))
    return _preview(session.view, found) if isinstance(found, Proposal) else found


def _preview(view: View, found: Proposal) -> Preview:
    kept = set(found.boundary.kept)
    parts = [
        (item.message.id in kept, Part(item.message.id, _what(item.message.role, item.message.origin), item.size.base))
        for item in view.items
        if not item.is_hidden
    ]
    parts += [
        (c.first in kept, Part(c.id, "folded work", sum(len(raw) for raw in c.projection.content) // 4))
        for c in view.collapses.values()
    ]
    restored = tuple(Part(back.name, back.kind, back.tokens) for back in found.boundary.restored if back.name)
    return Preview(
        plan=found.plan,
        boundary=found.boundary,
        kept=tuple(part for is_kept, part in parts if is_kept),
        dropped=tuple(part for is_kept, part in parts if not is_kept),
        restored=restored,
    )


def _what(role: str, origin: str) -> str:
    names = {"user": "your words", "model": "answer", "tool": "tool results", "summary": "earlier summary"}
    return names.get(origin, f"{role}, {origin}")
