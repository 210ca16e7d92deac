"""Asking the user, in their own client, about a change of the memory that waits for them (MCP-1, MEM-8).

The protocol calls that elicitation: the client shows a form, and no model fills it in. With a handshake the server asks
in the middle of a call; without, the call is answered with the question, and comes again with the decision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mcp_types as wire
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from perdure.mcp.tools import ChangedMemory, ProposedChange

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from perdure.mcp.project import ServedProject

_KEY = "decision"
_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {_KEY: {"type": "string", "title": "Make this change of the memory?", "enum": ["yes", "no"]}},
    "required": [_KEY],
}
_MOST_SHOWN = 2_000  # characters: nobody approves what they can't see


async def ask_user(
    context: ServerRequestContext[None],
    project: ServedProject,
    change: ProposedChange,
    call: wire.CallToolRequestParams,
) -> ChangedMemory | wire.InputRequiredResult:
    """Have the user decide, where their client has forms and the change fits into one; else it goes on waiting."""
    capabilities, was_asked = context.session.client_capabilities, call.input_responses is not None
    has_forms = capabilities is not None and capabilities.elicitation is not None
    if was_asked or not has_forms or len(change.shown) > _MOST_SHOWN:
        return change.told
    if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
        form = wire.ElicitRequestFormParams(message=change.shown, requested_schema=_FORM)
        question = wire.ElicitRequest(params=form)
        return wire.InputRequiredResult(input_requests={_KEY: question}, request_state=change.id)
    try:
        answer = await context.session.elicit_form(change.shown, _FORM, context.request_id)
    except MCPError:  # a client that can't be asked, whatever it said
        return change.told
    return await _done(project, change.id, answer) or change.told


async def decided(project: ServedProject, call: wire.CallToolRequestParams) -> ChangedMemory | None:
    """What came of a change, for a call that comes again with the user's yes or no; None for any other call."""
    answer = (call.input_responses or {}).get(_KEY)
    if call.request_state is None or not isinstance(answer, wire.ElicitResult):
        return None
    return await _done(project, call.request_state, answer)


async def _done(project: ServedProject, change: str, answer: wire.ElicitResult) -> ChangedMemory | None:
    """Do what the user said; None where they said neither yes nor no, as a client does that has nobody to ask."""
    said = (answer.content or {}).get(_KEY) if answer.action == "accept" else None
    return await project.decide(change, said == "yes") if said in ("yes", "no") else None
