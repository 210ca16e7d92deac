"""Which calls a client never made, and which a person answered, told from what it writes itself (CMP-15, SEC-1).

Claude Code words the failures of its own tools. Of those in `_WORDED` none can say what it likes at the beginning of a
failure; a page, a server, another agent or the shell of its first version can. Newer logs say of a result that it was
refused. Of both clients here, the tools that put a question to the user have names that no server's tool can have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final, Literal

import msgspec

from perdure.transcript.blocks import Block, ToolResult, ToolUse
from perdure.transcript.messages import Message, RefusedCall, ToolUseId
from perdure.transcript.response_items import DEFAULT_NAMESPACE, namespace_of

DENIED: Final = "The user doesn't want to proceed with this tool use"
_BY_USER: Final = (DENIED, "The user doesn't want to take this action", "[Request interrupted by user")
_BY_HOST = re.compile(
    r"<tool_use_error>|Permission to use |Permission denied by|"
    r"(?:PreToolUse:?\S* )?(?:[Hh]ook|operation)\b.{0,80}\bblocked|This command requires approval|"
    r"Claude requested permissions"
)
_SHELL: Final = "Bash"
_SHELL_FRAMED_SINCE: Final = 2  # the version from which on it begins the output of a failed command with its exit code
# Its own tools, by their exact names, whose failures it begins with its own words. What isn't here may bring those of
# others: Task and Agent those of a model, WebFetch of a site, ReadMcpResourceTool of a server, Skill of a command.
_WORDED: Final = frozenset({
    "Read", "Write", "Edit", "MultiEdit", "NotebookRead", "NotebookEdit", "Glob", "Grep", "LS", "TodoRead", "TodoWrite",
    "TaskCreate", "TaskGet", "TaskList", "TaskUpdate", "EnterPlanMode", "ExitPlanMode", "exit_plan_mode",
    "AskUserQuestion", _SHELL,
})  # fmt: skip
_PLANS: Final = frozenset({"ExitPlanMode", "exit_plan_mode"})
_APPROVED: Final = "User has approved"
ClientName = Literal["claude-code", "codex"]
_ASKING: Final[Mapping[ClientName, frozenset[str]]] = {
    "claude-code": _PLANS | {"AskUserQuestion"},
    "codex": frozenset({"request_user_input"}),
}


def denied(what: str, said: str = "") -> str:
    """What the model reads of a call that the user turned down, with what they said to it."""
    words = f" To tell you how to proceed, the user said:\n{said}" if said else ""
    return f"{DENIED}. {what}{words}"


def refused_calls(
    results: Sequence[ToolResult], tool_of: Mapping[str, str], version: str, *, marked: Literal["user", "host", ""] = ""
) -> tuple[RefusedCall, ...]:
    """The calls among these that were never made.

    Args:
        results: what came back.
        tool_of: the names of the tools that were called, by the ids of the calls.
        version: Claude Code's.
        marked: who said no, where its log says so beside the results.
    """
    found = []
    for result in results:
        if result.is_error and (by := marked or _said(result.text(), tool_of.get(result.tool_use_id, ""), version)):
            found.append(RefusedCall(ToolUseId(result.tool_use_id), by))
    return tuple(found)


def answered_calls(
    results: Sequence[ToolResult], tool_of: Mapping[str, str], client: ClientName
) -> tuple[ToolUseId, ...]:
    """The calls among these by which a client of this name asked its user, who answered."""
    asking = _ASKING[client]
    return tuple(
        ToolUseId(result.tool_use_id)
        for result in results
        if not result.is_error
        and (tool := tool_of.get(result.tool_use_id)) in asking
        and (tool not in _PLANS or result.text().startswith(_APPROVED))  # a teammate's plan goes to another agent
    )


def with_user_words(
    messages: Sequence[Message], before: Sequence[Message], client: ClientName, version: str
) -> list[Message]:
    """What a client says, behind what was said before, with the calls known that its user refused or answered."""
    wanted = {result.tool_use_id for one in messages for result in one.tool_results}
    tool_of: dict[str, str] = {}
    for one in chain(reversed(messages), reversed(before)):
        if len(tool_of) == len(wanted):
            break
        for block in one.blocks:
            if block.type == "tool_use" and isinstance(block.value, ToolUse) and block.value.id in wanted:
                tool_of[block.value.id] = "" if _is_of_server(block, client) else block.value.name
    return [_with_user_words(one, tool_of, client, version) for one in messages]


def _is_of_server(block: Block, client: ClientName) -> bool:
    """Whether a call is of a server's tool though its name doesn't show it: Codex says so beside the name."""
    is_named = client == "codex" and b'"namespace"' in block.raw
    return is_named and namespace_of(block) != DEFAULT_NAMESPACE


def _with_user_words(message: Message, tool_of: Mapping[str, str], client: ClientName, version: str) -> Message:
    results = message.tool_results
    refused = refused_calls(results, tool_of, version) if client == "claude-code" else ()
    answered = answered_calls(results, tool_of, client)
    return msgspec.structs.replace(message, refused=refused, answered=answered) if refused or answered else message


def _said(text: str, tool: str, version: str) -> Literal["user", "host", ""]:
    major = version.partition(".")[0]
    since = _SHELL_FRAMED_SINCE if tool == _SHELL else 1
    if tool not in _WORDED or not major.isascii() or not major.isdigit() or int(major) < since:
        return ""
    text = text.lstrip()
    if text.startswith(_BY_USER):
        return "user"
    return "host" if _BY_HOST.match(text) else ""
