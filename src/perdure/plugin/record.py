"""The record as a client's hook hands it to the model: in parts that the client doesn't cut (PLG-1)."""

from __future__ import annotations

import json
import re
from typing import Final

from perdure.compaction.ledger.memory import LedgerMemory
from perdure.compaction.ledger.render import HEAD, RecordSurroundings, render
from perdure.context.reminders import inline
from perdure.logs.claude_code import RECORD_MARK
from perdure.plugin.carried import CarriedLog
from perdure.transcript.tokens import UNITS_PER_TOKEN

PART_CHARS: Final = 9_900  # a client puts more than 10,000 characters of a hook into a file, or cuts them
FRAME_CHARS: Final = 60  # of the tags around a part
_END = "</perdure-record>"
_OUR_TAG = re.compile(r"(<[\s_]*/?[\s_]*)(?=perdure-record)", re.IGNORECASE)


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


def tokens_of(parts: int) -> int:
    """How long a record may be that so many hooks give; between two parts some room is lost at the ends of lines."""
    return parts * (PART_CHARS - FRAME_CHARS) // UNITS_PER_TOKEN - (parts - 1) * 120


def record(carried: CarriedLog, tokens: int) -> str:
    """The record of what was read, with the end of the log; empty when nothing was said."""
    memory, hole = carried.memory_now()
    return _rendered(carried.head.log, memory, hole, tokens)


def record_parts(carried: CarriedLog, most: int) -> list[str]:
    """The record in so many parts at most, as large as they can be."""
    memory, hole = carried.memory_now()
    tokens = tokens_of(most)
    while True:
        text = _rendered(carried.head.log, memory, hole, tokens)
        parts = in_parts(text, as_bytes=carried.head.client == "codex") if text else []
        if len(parts) <= most:
            return parts
        tokens -= sum(map(len, parts[most:])) // UNITS_PER_TOKEN + 10


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
    return render(memory, tokens, RecordSurroundings(lead=f"{HEAD} {where}")).text


def in_parts(text: str, *, as_bytes: bool = False, most: int = PART_CHARS) -> list[str]:
    """A record in parts of which none is too long, each marked as ours; a section that goes on says so."""

    def size(piece: str) -> int:
        return len(piece.encode("utf-8", "replace")) if as_bytes else len(piece.encode("utf-16-le", "replace")) // 2

    text = _OUR_TAG.sub(r"\1_", text)  # a tool's output may imitate the end of a part, to speak behind it
    room = most - FRAME_CHARS
    parts = [""]
    heading = ""
    for line in text.split("\n"):
        if line.startswith("## "):
            heading = f"{line} (continued)\n"
        while size(line) > room - size(heading):
            line = line[: len(line) * (room - size(heading)) // size(line) - 1]
        if parts[-1] and size(parts[-1]) + size(line) + 1 > room:
            parts.append(heading if not line.startswith("## ") else "")
        parts[-1] += line if not parts[-1] or parts[-1] == heading else f"\n{line}"
    which = [f' part="{number} of {len(parts)}"' if len(parts) > 1 else "" for number in range(1, len(parts) + 1)]
    return [f"{RECORD_MARK}{one}>\n{part.strip(chr(10))}\n{_END}" for one, part in zip(which, parts, strict=True)]
