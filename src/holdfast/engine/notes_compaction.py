"""Compaction from the notes of a session, before any other strategy (CMP-1, CMP-2)."""

from __future__ import annotations

from collections.abc import AsyncIterator

from holdfast.context.compaction import Plan
from holdfast.context.noted import CURSOR, noted_plan
from holdfast.context.policy import Facts
from holdfast.engine.aside import aside_of
from holdfast.engine.notes import SessionNotes
from holdfast.engine.session import LiveSession
from holdfast.engine.strategies import Strategy
from holdfast.memory.notes import Standing


def from_notes(notes: SessionNotes) -> Strategy:
    """Compaction from the notes, before any other strategy (CMP-1, CMP-2)."""

    async def propose(session: LiveSession, facts: Facts) -> AsyncIterator[Plan | str]:
        if not facts.settings.notes:
            yield "off: session notes are switched off (the setting notes)"
            return
        await notes.settled(facts)
        # Before the file: notes that are written meanwhile know more than the cursor says, never less.
        cursor = notes.cursor or session.view.state.cursors.get(CURSOR)
        found = await notes.found()
        if found.state != "written":
            yield _why_not(found.state, is_resumed=cursor is not None)
        elif cursor is None:
            yield "id_not_found: no update of the notes is in the journal"
        else:
            whence, prepared, said = (cursor, notes.file.path), notes.prepared, found.notes
            yield await aside_of(session.view, lambda view: noted_plan(view, facts, said, whence, prepared))

    return Strategy("session_memory", propose)


def _why_not(state: Standing, *, is_resumed: bool) -> str:
    match state:
        case "missing" if is_resumed:
            return "resumed_without_notes: the journal names an update, and the file is gone"
        case "missing":
            return "no_notes: none were written yet"
        case "template" | "emptied":
            return "empty_template: the notes say nothing yet"
        case _:
            return "broken_notes: no section of the template is in the file"
