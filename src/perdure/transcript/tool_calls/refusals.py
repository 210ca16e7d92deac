"""Which calls Claude Code never made, told from what it writes itself around a result (CMP-15, SEC-1).

It words the failures of its own tools, so that none can say what it likes at the beginning of a result; tools of
servers can, and so could the shell of its first version. Newer logs say of a result that it was refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final, Literal

import msgspec

from perdure.transcript.blocks import ToolResult
from perdure.transcript.messages import Message, RefusedCall, ToolUseId

DENIED: Final = "The user doesn't want to proceed with this tool use"
_BY_USER: Final = (DENIED, "The user doesn't want to take this action", "[Request interrupted by user")
_BY_HOST = re.compile(
    r"<tool_use_error>|Permission to use |Permission denied by|"
    r"(?:PreToolUse:?\S* )?(?:[Hh]ook|operation)\b.{0,80}\bblocked|This command requires approval|"
    r"Claude requested permissions"
)
_SHELL: Final = "Bash"
_OF_SERVER: Final = "mcp__"  # how it names the tools of servers, which nobody else can be named
_FRAMED_SINCE: Final = 2  # the version from which on it begins the output of a failed command with its exit code


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


def with_refusals(messages: Sequence[Message], before: Sequence[Message], version: str) -> list[Message]:
    """What Claude Code says, behind what was said before, with the calls that it never made known as such."""
    failed = {result.tool_use_id for one in messages for result in one.tool_results if result.is_error}
    tool_of: dict[str, str] = {}
    for one in chain(reversed(messages), reversed(before)):
        if len(tool_of) == len(failed):
            break
        tool_of |= {use.id: use.name for use in one.tool_uses if use.id in failed}
    return [
        msgspec.structs.replace(one, refused=refused)
        if failed and (refused := refused_calls(one.tool_results, tool_of, version))
        else one
        for one in messages
    ]


def _said(text: str, tool: str, version: str) -> Literal["user", "host", ""]:
    major = version.partition(".")[0]
    is_framed = tool != _SHELL or (major.isdigit() and int(major) >= _FRAMED_SINCE)
    if not tool or tool.startswith(_OF_SERVER) or not is_framed:
        return ""
    text = text.lstrip()
    if text.startswith(_BY_USER):
        return "user"
    return "host" if _BY_HOST.match(text) else ""
