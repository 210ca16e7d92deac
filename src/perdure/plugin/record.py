"""The record as a client's hook hands it to the model: in parts that the client doesn't cut (PLG-1)."""

from __future__ import annotations

import json

from perdure.compaction.ledger.memory import LedgerMemory
from perdure.compaction.ledger.render import HEAD, RecordSurroundings, render
from perdure.compaction.parts import fitted_parts
from perdure.context.reminders import inline, without_tags
from perdure.memory.trust.secrets import redact
from perdure.plugin.carried import CarriedLog


def hook_output(carried: CarriedLog, source: str, *, part: int, parts: int) -> str:
    """What the hook SessionStart prints; empty where nothing is missing in the model's context."""
    head = carried.head
    if source != "compact" and not is_missing(carried):
        return ""
    cut = record_parts(carried, parts)
    if not cut:
        return ""
    if source == "compact" and head.client == "claude-code":
        head.is_due = True  # it writes the boundary into its log when its hooks have ended
    else:
        head.is_given = True
    head.given = carried.size
    if part > len(cut):
        return ""
    about = {"hookEventName": "SessionStart", "additionalContext": cut[part - 1]}
    return json.dumps({"hookSpecificOutput": about}, ensure_ascii=False)


def is_missing(carried: CarriedLog) -> bool:
    """Whether the log was compacted and no record was given for it, as when the plugin came later.

    A hook that gives the next part of the same record finds the log as it was for the first.
    """
    head = carried.head
    return head.boundaries > 0 and (not head.is_given or head.given == carried.size)


def record(carried: CarriedLog, tokens: int) -> str:
    """The record of what was read, with the end of the log; empty when nothing was said."""
    memory, hole = carried.memory_now()
    return _rendered(carried.head.log, memory, hole, tokens)


def record_parts(carried: CarriedLog, most: int) -> list[str]:
    """The record in so many parts at most, as large as they can be."""
    memory, hole = carried.memory_now()
    return fitted_parts(
        lambda tokens: _rendered(carried.head.log, memory, hole, tokens), most, as_bytes=carried.head.client == "codex"
    )


def _rendered(log: str, memory: LedgerMemory, hole: int, tokens: int) -> str:
    if not memory.tokens:
        return ""
    where = (
        "Where a summary says something else, this is right about names, paths, commands and words. "
        f"The ids in it name lines of this session's own log, {inline(log)}: look there for an id, or for the end of "
        "one that stands after “…”. Where there is a tool for recall, it finds them too."
    )
    if hole:
        where += f" About {max(1, round(hole / 1e6))} MB in front of the end of the log haven't been read yet."
    text = render(memory, tokens, RecordSurroundings(lead=f"{HEAD} {where}")).text
    return redact(without_tags(text)).text  # SEC-4, SEC-5, as in every record that is written beside a client's own
