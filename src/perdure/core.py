"""The pure level: views, passes and requests as values, for loops of one's own and for tools that look at logs.

Nothing here waits, reads a clock, or touches a disk: records in, a view out; a view in, edits or a request out.

    view = project(records)
    edits = [edit for shrink in CHEAP_PASSES for edit in shrink(view, facts)]
    request = to_request(view, facts)
"""

from __future__ import annotations

from perdure.compaction.collapse import CHEAP_PASSES
from perdure.context.accounting import account
from perdure.context.cuts import legal_cuts
from perdure.context.models import ModelSpec, model_spec
from perdure.context.policy import Facts, Pressure, Thresholds, compaction_need, pressure, thresholds
from perdure.context.reminders import prepend_context
from perdure.context.request import ModelRequest, to_request
from perdure.context.view import ContextView, project
from perdure.transcript.blocks import Block
from perdure.transcript.records import Front, Record

__all__ = [
    "CHEAP_PASSES",
    "Block",
    "ContextView",
    "Facts",
    "Front",
    "ModelRequest",
    "ModelSpec",
    "Pressure",
    "Record",
    "Thresholds",
    "account",
    "compaction_need",
    "legal_cuts",
    "model_spec",
    "prepend_context",
    "pressure",
    "project",
    "thresholds",
    "to_request",
]
