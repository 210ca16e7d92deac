"""Compaction from session notes: what they cover, and the plan that puts them in place of it (CMP-2)."""

from __future__ import annotations

from dataclasses import dataclass, field

from perdure.compaction.ledger.memory import LedgerMemory, PackedLedger, pack_ledger
from perdure.compaction.ledger.reader import ExtractIndex, block_text
from perdure.compaction.ledger.render import RecordSurroundings, render
from perdure.compaction.plan import (
    CompactionPlan,
    first_said,
    keep_from,
    ledger_memory,
    summary_budget,
    tail_of,
    with_tail,
)
from perdure.context.cuts import legal_cuts
from perdure.context.policy import Facts
from perdure.context.reminders import quoted
from perdure.context.state import from_checkpoint
from perdure.context.view import ContextView
from perdure.memory.notes import Notes, NotesBudget, for_record
from perdure.transcript.records import Cursor
from perdure.transcript.tokens import base_tokens

CURSOR = "session_memory"
_HEADING = "## Notes kept during the session"
_LEDGER_LEAST = 0.5  # of the budget of a record: user words and ledger always have so much


def budget_of(facts: Facts) -> NotesBudget:
    """What notes may take in this window (SM-4, PRS-2)."""
    settings, limits = facts.settings, facts.limits
    return NotesBudget(limits.scaled(settings.notes_section_tokens), limits.scaled(settings.notes_file_tokens))


def covered_until(view: ContextView, cursor: Cursor | None) -> int | str:
    """The position behind the last message that the notes cover; else the reason why they can't be used.

    What a boundary of another strategy found is cleared by it. One of ours was made from the notes: when nothing was
    written since, they cover what it replaced, and nothing behind it.
    """
    if cursor is None:
        return "id_not_found: no update of the notes is in the journal"
    position = view.positions.get(cursor.message)
    boundary = view.boundary
    if boundary is not None:
        before = from_checkpoint(boundary.state).cursors.get(CURSOR)
        if before is not None and before.message == cursor.message:
            if boundary.strategy != "session_memory":
                return "before_boundary: the notes were not updated since the last compaction"
            return first_said(view) if position is None else position + 1
    if position is None:
        return "id_not_found: the last message that the notes cover isn't in the view"
    return position + 1


def keep_behind(view: ContextView, facts: Facts, after: int) -> int:
    """Where the kept messages start: behind what the notes cover, or before, by the minimums; never behind it."""
    position = keep_from(view, facts, after=after)
    if position <= after:
        return position
    # More than the maximum came since: the notes know nothing of it, so all of it stays.
    start = first_said(view)
    for loops in (True, False):
        cuts = [cut for cut in legal_cuts(view, loops=loops) if start <= cut <= after]
        if cuts:
            return cuts[-1]
    return start


@dataclass(frozen=True, slots=True)
class PreparedNotes:
    """What is known of the messages before `position`, bounded as a boundary there would have it (SPD-2).

    `index` goes on from there: it holds everything that the notes cover.
    """

    index: ExtractIndex
    ledger: PackedLedger
    boundary: str | None
    position: int
    message: str  # the last one before the position
    unpacked: list[LedgerMemory] = field(default_factory=list, compare=False)  # the ledger, for whoever comes first

    def memory(self, last: int) -> LedgerMemory:
        """What is known up to a position."""
        known = self.unpacked.pop() if self.unpacked else self.ledger.memory()
        return known.absorb(self.index.extracts(self.position, last))

    def fits(self, view: ContextView, position: int) -> bool:
        """Whether it can be gone on with up to a position of this view."""
        boundary = view.boundary.id if view.boundary else None
        if boundary != self.boundary or not self.position <= position <= min(len(self.index), len(view.items)):
            return False
        return view.items[self.position - 1].message.id == self.message


def prepare(view: ContextView, facts: Facts, index: ExtractIndex, covers: int) -> PreparedNotes | None:
    """Do in the background what a compaction would do; None while it is far off, or nothing would leave.

    `index` has read all of the view. A later compaction keeps messages from here on, or from further on.
    """
    if facts.size(view) * 2 < facts.limits.trigger:
        return None
    first = first_said(view)
    position = keep_behind(view, facts, covers)
    if position <= first:
        return None
    ledger = pack_ledger(PackedLedger.of(view.state).memory(index.extracts(first, position)))
    boundary = view.boundary.id if view.boundary else None
    return PreparedNotes(index, ledger, boundary, position, view.items[position - 1].message.id, [ledger.memory()])


def noted_plan(
    view: ContextView, facts: Facts, notes: Notes, whence: tuple[Cursor, str], prepared: PreparedNotes | None = None
) -> CompactionPlan | str:
    """The plan, or why there is none (CMP-2). `whence`: what the notes cover, and the path of their file."""
    cursor, path = whence
    after = covered_until(view, cursor)
    if isinstance(after, str):
        return after
    position = keep_behind(view, facts, after)
    if position <= first_said(view):
        return "nothing_to_compact: no message stands before those that came after the notes"
    text = f"{_HEADING}\n{quoted(for_record(notes, budget_of(facts), path))}"
    if prepared is not None and prepared.fits(view, position):
        memory = prepared.memory(position)
    else:
        memory = ledger_memory(view, facts, position)
    kept = view.items[position:]
    shown = "\n".join(block_text(block) for item in kept for block in item.visible)
    tail = tail_of(view, facts, position)
    known = frozenset(item.message.id for item in kept) | tail.whole
    around = RecordSurroundings(lead="", behind=f"{shown}\n{tail.text}\n{text}", known=known)
    room = summary_budget(facts)
    ledger = render(memory, max(room - base_tokens(text), round(room * _LEDGER_LEAST)), around).text
    latest = tuple(memory.words[-1:])
    how = "from the notes kept during the session, and from what was said and done"
    record = with_tail(f"{text}\n\n{ledger}".strip(), tail)
    return CompactionPlan("session_memory", record, how, position, pack_ledger(memory), latest=latest, cursor=cursor)
