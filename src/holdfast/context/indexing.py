"""The ledger's index of a view: it catches up when it is asked for, and costs a turn nothing (SPD-1, CMP-5)."""

from __future__ import annotations

from holdfast.context.ledger.index import Index
from holdfast.context.ledger.tools import Tools
from holdfast.context.view import View
from holdfast.settings import Settings


def unread_bytes(view: View) -> int:
    """How much of the view's messages the next `index_of` has to read."""
    start = len(view.index) if isinstance(view.index, Index) and len(view.index) <= len(view.items) else 0
    return sum(len(raw) for item in view.items[start:] for raw in item.message.content)


def index_of(view: View, settings: Settings) -> Index:
    """The index of all messages of the view, by position, caught up.

    `LiveSession.rest` calls it while nobody waits, so that a compaction finds everything read; that calls it anyway.
    The view keeps it until a boundary or a rewind gives it other messages.
    """
    tools = Tools.of(settings.ledger_tools)
    index = view.index
    if not isinstance(index, Index) or index.tools != tools or len(index) > len(view.items):
        index = Index(tools)
    for item in view.items[len(index) :]:
        index.take(item.message)
    view.index = index
    return index
