"""What an editor is shown of a conversation: words, calls of tools, diffs, the plan, compactions (ACP-1).

Each function gives the `update` of a `session/update` as the protocol has it (wire version 1). `compaction_update` came
to the protocol on 2026-10-09; the SDK has no type for it yet, so all of them are plain data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from perdure.adapters.machine.edits import ProposedEdit
from perdure.agent.progress import call_summary
from perdure.text.cleaning import controls_removed
from perdure.transcript.blocks import Text, Thinking, ToolResult, ToolUse
from perdure.transcript.messages import Message, spoken
from perdure.transcript.records import Compacted
from perdure.transcript.tool_calls.todos import todo_update

Update = dict[str, Any]
_SHOWN_CHARS = 100_000  # of a result; all of it is in the journal
_KINDS = {
    "Read": "read",
    "Write": "edit",
    "Edit": "edit",
    "Grep": "search",
    "Glob": "search",
    "recall": "search",
    "Bash": "execute",
    "BashOutput": "execute",
    "KillShell": "execute",
    "TodoWrite": "think",
    "Task": "think",
    "EnterPlanMode": "switch_mode",
    "ExitPlanMode": "switch_mode",
}
_STATES = {"pending": "pending", "in_progress": "in_progress", "completed": "completed"}
_FENCE = "```"


def text_content(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def chunk(kind: str, text: str) -> Update:
    """Words: `agent_message_chunk`, `agent_thought_chunk` or `user_message_chunk`."""
    return {"sessionUpdate": kind, "content": text_content(text)}


def call_data(
    identity: str, tool: str, arguments: dict[str, Any], root: str, edits: Sequence[ProposedEdit], *, whose: str = ""
) -> dict[str, Any]:
    """What a call is about, with what it changes. `whose` names the sub-agent that makes it."""
    about = call_summary(arguments)
    plan = arguments.get("plan") if tool == "ExitPlanMode" else None
    content: list[dict[str, Any]] = [
        {"type": "diff", "path": one.path, "oldText": one.before, "newText": one.after} for one in edits
    ]
    if isinstance(plan, str):
        content = [{"type": "content", "content": text_content(plan)}]
    paths = dict.fromkeys(one.path for one in edits)
    if not paths and tool == "Read" and isinstance(name := arguments.get("file_path"), str):
        paths = {str(Path(root, name)): None}
    data: dict[str, Any] = {
        "toolCallId": identity,
        "title": controls_removed(f"{f'{whose}: ' if whose else ''}{tool} {about}").strip(),
        "kind": _KINDS.get(tool, "other"),
        "rawInput": arguments,
    }
    if content:
        data["content"] = content
    if paths:
        data["locations"] = [{"path": path} for path in paths]
    return data


def call_ended(identity: str, tool: str, text: str, *, is_error: bool) -> Update:
    """How a call ended. The diff of an edit that was made stays; else the result stands in its place."""
    done: Update = {
        "sessionUpdate": "tool_call_update",
        "toolCallId": identity,
        "status": "failed" if is_error else "completed",
    }
    if is_error or _KINDS.get(tool) not in ("edit", "switch_mode"):
        left = len(text) - _SHOWN_CHARS
        shown = f"{text[:_SHOWN_CHARS]}\n… {left:,} more characters" if left > 0 else text
        if _KINDS.get(tool) == "execute":
            fence = _FENCE
            while fence in shown:
                fence += "`"
            shown = f"{fence}\n{shown}\n{fence}"
        done["content"] = [{"type": "content", "content": text_content(shown)}]
    return done


def plan(arguments: dict[str, Any]) -> Update | None:
    """The plan, as a call that writes the todo list has it; None for a list that can't be read."""
    found = todo_update("todo", "TodoWrite", arguments)
    if found is None or found.how != "all":
        return None
    entries = [
        {"content": one.text, "priority": "medium", "status": _STATES[one.state]}
        for one in found.items
        if one.state in _STATES
    ]
    return {"sessionUpdate": "plan", "entries": entries}


def compaction(boundary: Compacted) -> Update:
    """A compaction that was made, with its record."""
    texts = (block.value.text for one in boundary.summary for block in one.blocks if isinstance(block.value, Text))
    return {
        "sessionUpdate": "compaction_update",
        "compactionId": boundary.id,
        "status": "completed",
        "summary": [text_content(text) for text in texts],
    }


def replayed(said: Sequence[Message | Compacted], root: str, *, reports: bool) -> Iterator[Update]:
    """A conversation that was held before, as it would have been shown; `reports`: with its compactions."""
    names: dict[str, str] = {}
    for one in said:
        if isinstance(one, Compacted):
            if reports:
                yield compaction(one)
        elif one.role == "assistant":
            yield from _answer(one, names, root)
        else:
            if words := spoken(one):
                yield chunk("user_message_chunk", words)
            for block in one.blocks:
                if isinstance(result := block.value, ToolResult) and result.tool_use_id in names:
                    tool = names[result.tool_use_id]
                    yield call_ended(result.tool_use_id, tool, result.text(), is_error=bool(result.is_error))


def _answer(message: Message, names: dict[str, str], root: str) -> Iterator[Update]:
    for block in message.blocks:
        match block.value:
            case Text(text=text) if text:
                yield chunk("agent_message_chunk", text)
            case Thinking(thinking=text) if text:
                yield chunk("agent_thought_chunk", text)
            case ToolUse() as use:
                names[use.id] = use.name
                told = call_data(use.id, use.name, use.input, root, _past_edits(use, root))
                yield {"sessionUpdate": "tool_call", "status": "pending", **told}
                if use.name == "TodoWrite" and (listed := plan(use.input)) is not None:
                    yield listed


def _past_edits(use: ToolUse, root: str) -> tuple[ProposedEdit, ...]:
    """What an edit changed, by its own texts: the file isn't any more what it was before it."""
    name, given = use.input.get("file_path"), use.input
    if not isinstance(name, str) or use.name not in ("Edit", "Write"):
        return ()
    path = str(Path(root, name))
    if use.name == "Write":
        return (ProposedEdit(path, None, str(given.get("content", ""))),)
    return (ProposedEdit(path, str(given.get("old_string", "")), str(given.get("new_string", ""))),)
