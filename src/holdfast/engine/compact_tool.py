"""The tool by which a model asks for a compaction, for any agent: a definition to send, and a coroutine that answers.

front = Front(tools=(..., msgspec.Raw(compact_tool.definition_json)))
text = await compact_tool.run(session, call.arguments())

The call itself is open work, so nothing is compacted then: `run_turn` does it at the next legal point (CMP-6).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast import prompts
from holdfast.context.requested import is_too_early
from holdfast.context.state import REQUESTED, Requested
from holdfast.engine.session import LiveSession
from holdfast.events import CompactionRequested
from holdfast.transcript.blocks import encode
from holdfast.transcript.records import Noted

TOOL = "compact_context"
_MOST_CHARS = 2_000
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "focus": {"type": "string", "description": "What the record should keep in detail, for the work that follows."}
    },
    "additionalProperties": False,
}
OFF = "Compaction is switched off for this session. Go on without it."
WAITING = "A compaction was asked for already and will be done at the next point where no work is open. Go on."
ACCEPTED = "It will be done at the next point where no work is open. Go on; what was said last stays word for word."


class CompactTool:
    """Has a `definition` for a request's tools, and `run`, which gives the text of the tool's result."""

    name = TOOL

    @property
    def definition(self) -> dict[str, Any]:
        """As the Messages API takes it."""
        return {"name": self.name, "description": prompts.source("compact_tool").strip(), "input_schema": _SCHEMA}

    @property
    def definition_json(self) -> bytes:
        """The same as bytes, for `Front.tools`."""
        return encode(self.definition)

    async def run(self, session: LiveSession, arguments: Mapping[str, Any]) -> str:
        """Answer a call. A request that comes too early is put off once; asked for again, it is accepted."""
        focus = arguments.get("focus") or ""
        if set(arguments) - {"focus"} or not isinstance(focus, str):
            return "compact_context failed: it takes a text, focus, and nothing else"
        if not session.settings.compact:
            return OFF
        before, facts = session.view.state.requested, session.facts()
        if before is not None and before.is_accepted:
            return WAITING
        accepted = before is not None or not is_too_early(session.view, facts)
        wanted = Requested(focus=focus[:_MOST_CHARS].encode("utf-8", "replace").decode(), is_accepted=accepted)
        await session.record(Noted(kind=REQUESTED, data=msgspec.to_builtins(wanted)))
        percent = facts.size(session.view) * 100 // max(1, facts.limits.trigger)
        session.world.sink.emit(CompactionRequested(accepted, percent))
        if accepted:
            return ACCEPTED
        return (
            f"Not yet: only {percent}% of the room is taken, and a compaction loses detail. Go on with the work. "
            "If you call this again, it will be done."
        )


compact_tool = CompactTool()
