"""A compaction that the model asked for: when it is put off once, and when it is done (CMP-6). Pure."""

from __future__ import annotations

from holdfast.context.cuts import open_loop
from holdfast.context.items import THINKING
from holdfast.context.policy import HELPER_SOURCES, Facts
from holdfast.context.view import View


def is_too_early(view: View, facts: Facts) -> bool:
    """Whether so much room is left that a compaction now would lose more than it gains."""
    return facts.size(view) * 100 < facts.limits.trigger * facts.settings.request_floor_percent


def is_due(view: View, facts: Facts) -> bool:
    """Whether an accepted request can be done now: not in a tool loop whose thinking the API wants back (TURN-7)."""
    wanted = view.state.requested
    if wanted is None or not wanted.is_accepted or not facts.settings.compact or facts.source in HELPER_SOURCES:
        return False
    loop = open_loop(view)
    return loop is None or not any(block.kind in THINKING for item in view.items[loop:] for block in item.visible)
