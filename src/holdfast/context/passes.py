"""The cheap passes, in the order of the specification. None of them calls a model.

A pass is `(View, Facts) -> tuple[Edit, ...]`: it proposes, the session commits. Nothing to do costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.context.collapse import collapse
from holdfast.context.microcompact import microcompact
from holdfast.context.neutralise import neutralise
from holdfast.context.policy import Facts
from holdfast.context.settle import media_limits, settle
from holdfast.context.snip import snip
from holdfast.context.tool_results import tool_result_budget
from holdfast.context.view import View
from holdfast.transcript.edits import Edit

Pass = Callable[[View, Facts], tuple[Edit, ...]]

CHEAP_PASSES: tuple[Pass, ...] = (
    tool_result_budget,  # TURN-2
    neutralise,  # SEC-4: what stays inline; a preview is made of neutral text
    snip,  # TURN-3
    microcompact,  # TURN-4, TURN-5
    collapse,  # TURN-6
)
# TURN-9b: what flattening would have to decide anew each time is decided once, just before a request.
CLOSING_PASSES: tuple[Pass, ...] = (media_limits, settle)
