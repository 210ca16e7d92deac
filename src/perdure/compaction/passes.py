"""The cheap passes, in the order of the specification. None of them calls a model.

A pass is `(View, Facts) -> tuple[Edit, ...]`: it proposes, the session commits. Nothing to do costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from perdure.compaction.collapse import collapse
from perdure.context.clear import microcompact, snip, tool_result_budget
from perdure.context.groups import media_limits, settle_open_calls
from perdure.context.neutralise import neutralise
from perdure.context.policy import Facts
from perdure.context.view import ContextView
from perdure.transcript.records import Edit

Pass = Callable[[ContextView, Facts], tuple[Edit, ...]]

CHEAP_PASSES: tuple[Pass, ...] = (
    tool_result_budget,  # TURN-2
    neutralise,  # SEC-4: what stays inline; a preview is made of neutral text
    snip,  # TURN-3
    microcompact,  # TURN-4, TURN-5
    collapse,  # TURN-6
)
# TURN-9b: what flattening would have to decide anew each time is decided once, just before a request.
CLOSING_PASSES: tuple[Pass, ...] = (media_limits, settle_open_calls)
