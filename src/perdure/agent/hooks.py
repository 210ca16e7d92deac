"""The moments of an agent that hooks are told of, with where it stands then (CMP-10)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from perdure.agent.permissions import Mode
from perdure.engine.hooks import hook_fields, run_hooks
from perdure.hooks import HookEvent, HookMode, HookOutcome

if TYPE_CHECKING:
    from perdure.agent.tool_context import ToolContext
    from perdure.agent.tools.tool import ToolOutcome

MOST_HELD: Final = 8  # times in a row that hooks keep an agent from stopping
_MODES: Final[Mapping[Mode, HookMode]] = {
    "default": "default",
    "accept_edits": "acceptEdits",
    "plan": "plan",
    "bypass": "bypassPermissions",
}
_EDITS = frozenset({"Write", "Edit", "MultiEdit"})


async def tell_hooks(context: ToolContext, event: type[HookEvent], **fields: Any) -> HookOutcome:
    """Tell hooks of an event; `fields` are those that only this kind of event has."""
    session = context.session
    if not session.services.hooks:
        return HookOutcome()
    mode = _MODES[context.mode]
    told = event(**hook_fields(session), cwd=context.cwd, permission_mode=mode, agent_type=context.agent_type, **fields)
    return await run_hooks(session, told)


def response_of(tool: str, arguments: Mapping[str, Any], outcome: ToolOutcome) -> dict[str, Any]:
    """What a tool did, as hooks read it: its text, and the fields that scripts for Claude Code look at."""
    if tool == "Bash":
        return {"stdout": outcome.text, "stderr": "", "interrupted": False, "isImage": False}
    if tool in _EDITS:
        return {"content": outcome.text, "filePath": arguments.get("file_path"), "success": True}
    return {"content": outcome.text}


def changed_input(tool: str, call: str, arguments: Mapping[str, Any]) -> str:
    """What to say of a call that ran with another input than the model wrote."""
    return f"{tool} ({call}) was called with this instead: {json.dumps(arguments, ensure_ascii=False)}"
