"""Claude Code attachments as the text that a model reads of them (ENG-6).

A log holds an attachment as data; the text that was sent is not in it. What a model saw comes back as a
`<system-reminder>` with a short lead-in of our own words; what only a screen showed is left out, and so is any type
that nobody here knows. A prompt that was typed while the model worked (`queued_command`) is the user's own words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from holdfast.transcript.blocks import encode
from holdfast.transcript.foreign.reading import UNREADABLE, what_is_wrong

Data = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shown:
    """What a model sees of an attachment, as raw blocks; `is_typed` when they are the user's own words."""

    blocks: tuple[bytes, ...]
    is_typed: bool = False


def shown(raw: bytes) -> Shown | str | None:
    """None for what no model sees; a string says what is wrong with the attachment."""
    try:
        data = msgspec.json.decode(raw) if raw else None
    except UNREADABLE as e:
        return f"attachment: {what_is_wrong(e)}"
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        return "attachment without a type"
    if data["type"] == "queued_command":
        return _queued(data)
    picture = _picture(data)
    if picture is not None:
        return picture
    tell = _TELL.get(data["type"])
    text = tell(data) if tell is not None else ""
    return Shown((_reminder(text),)) if text else None


def _reminder(text: str) -> bytes:
    return encode({"type": "text", "text": f"<system-reminder>\n{text}\n</system-reminder>"})


def _text(value: Any) -> str:
    """Text of a string, a list of strings or blocks, or an object that holds either under a usual name."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(part for part in map(_text, value) if part)
    if isinstance(value, dict):
        for key in ("content", "text", "file", "cells", "source", "message"):
            if key in value:
                return _text(value[key])
    return ""


def _name(data: Data) -> str:
    for key in ("filename", "path", "planFilePath", "displayPath", "uri", "name"):
        if isinstance(data.get(key), str):
            return str(data[key])
    return "unnamed"


def _titled(lead: str, body: str) -> str:
    return f"{lead}:\n{body}" if body else ""


def _queued(data: Data) -> Shown | None:
    prompt = data.get("prompt")
    parts = prompt if isinstance(prompt, list) else [{"type": "text", "text": prompt}]
    content = tuple(encode(p) for p in parts if isinstance(p, dict) and p.get("text", "-"))
    text = _text(prompt)
    sender = data.get("origin")
    kind = sender.get("kind") if isinstance(sender, dict) else sender
    is_typed = kind in (None, "human") and data.get("commandMode", "prompt") == "prompt" and not data.get("isMeta")
    if is_typed and not text.startswith("<task-notification>"):
        return Shown(content, is_typed=True) if content and (text or isinstance(prompt, list)) else None
    return Shown((_reminder(_titled("This came in while you were working", text)),)) if text else None


def _picture(data: Data) -> Shown | None:
    """An attached image file, as the image itself."""
    content = data.get("content")
    if data["type"] != "file" or not isinstance(content, dict) or content.get("type") != "image":
        return None
    file = content.get("file")
    if not isinstance(file, dict) or not isinstance(file.get("base64"), str):
        return None
    source = {"type": "base64", "media_type": str(file.get("type") or "image/png"), "data": file["base64"]}
    lead = _reminder(f"The user attached the image {_name(data)}:")
    return Shown((lead, encode({"type": "image", "source": source})))


def _todos(data: Data) -> str:
    items = data.get("content")
    rows = []
    for item in items if isinstance(items, list) else []:
        if isinstance(item, dict):
            words = item.get("content") or item.get("subject") or ""
            number = f"#{item['id']} " if item.get("id") else ""
            rows.append(f"- [{item.get('status', 'pending')}] {number}{_text(words)}")
    return _titled("The to-do list as it stands (no need to mention this)", "\n".join(rows))


def _memories(data: Data) -> str:
    given = data.get("memories")
    parts = [f"{_name(m)}:\n{_text(m)}" for m in given if isinstance(m, dict)] if isinstance(given, list) else []
    return _titled("Memories that may be relevant", "\n\n".join(parts))


def _skills(data: Data) -> str:
    given = data.get("skills")
    parts = [f"### {_name(s)}\n{_text(s)}" for s in given if isinstance(s, dict)] if isinstance(given, list) else []
    return _titled("Skills in use in this session", "\n\n".join(parts))


def _diagnostics(data: Data) -> str:
    rows = []
    for file in data.get("files") or () if isinstance(data.get("files"), list) else ():
        found = file.get("diagnostics") if isinstance(file, dict) else None
        for item in found if isinstance(found, list) else ():
            if isinstance(item, dict):
                rows.append(f"- {_name(file)}: {item.get('severity', '')} {_text(item.get('message'))}")
    return _titled("New diagnostics", "\n".join(rows))


def _delta(lead: str, key: str) -> Callable[[Data], str]:
    def tell(data: Data) -> str:
        removed = data.get("removedNames") or data.get("removedTypes")
        gone = f"\nNo longer available: {_text(removed)}" if removed else ""
        return _titled(lead, (_text(data.get(key)) + gone).strip())

    return tell


def _field(lead: str, *keys: str) -> Callable[[Data], str]:
    """Lead-in, file name where `{}` stands, and the first of the fields that holds text."""

    def tell(data: Data) -> str:
        body = next((text for text in (_text(data.get(key)) for key in keys) if text), "")
        return _titled(lead.format(_name(data)), body)

    return tell


def _note(words: str) -> Callable[[Data], str]:
    return lambda data: words.format(_name(data))


def _hook_success(data: Data) -> str:
    """A hook's plain output is context only at the start of a session and beside a prompt."""
    if data.get("hookEvent") not in ("SessionStart", "UserPromptSubmit"):
        return ""
    return _titled(f"Hook {data.get('hookName', '')} said", _text(data.get("content")).strip())


def _blocked(data: Data) -> str:
    error = data.get("blockingError")
    words = _text(error.get("blockingError")) if isinstance(error, dict) else _text(error)
    return _titled(f"Hook {data.get('hookName', '')} stopped this", words)


def _async_hook(data: Data) -> str:
    response = data.get("response")
    specific = response.get("hookSpecificOutput") if isinstance(response, dict) else None
    return _titled("A hook added", _text(specific.get("additionalContext")) if isinstance(specific, dict) else "")


def _status(data: Data) -> str:
    words = [_text(data.get(key)) for key in ("description", "status", "deltaSummary")]
    return _titled("A background task reports", " ".join(word for word in words if word))


_TELL: Final[dict[str, Callable[[Data], str]]] = {
    "file": _field("The user attached {}", "content"),
    "new_file": _field("The user attached {}", "content"),
    "directory": _field("The user attached the folder {}", "content"),
    "new_directory": _field("The user attached the folder {}", "content"),
    "already_read_file": _note("The user attached {}, which was read before and is unchanged."),
    "pdf_reference": _note("The user attached the PDF {}; read the pages that are needed."),
    "compact_file_reference": _note("{} was read before the summary; read it again if its content is needed."),
    "nested_memory": _field("Instructions from {}", "content"),
    "relevant_memories": _memories,
    "edited_text_file": _field("{} was changed by the user or by a tool, on purpose; how it looks now", "snippet"),
    "edited_image_file": _note("The image {} was changed by the user or by a tool, on purpose."),
    "plan_file_reference": _field("The plan in {}", "planContent", "content"),
    "plan_mode": _note("Plan mode is on: plan, and change nothing but the plan file ({})."),
    "plan_mode_reentry": _note("Plan mode is on again; the plan file is {}."),
    "plan_mode_exit": _note("Plan mode is over: changes may be made. The plan file is {}."),
    "auto_mode": _note("Auto mode is on: go on without asking where it is safe."),
    "auto_mode_exit": _note("Auto mode is over."),
    "invoked_skills": _skills,
    "todo": _todos,
    "todo_reminder": _todos,
    "task_reminder": _todos,
    "skill_listing": _field("Skills that can be used", "content"),
    "dynamic_skill": _field("Skills found in {}", "skillNames"),
    "agent_listing_delta": _delta("Kinds of agents that can be called", "addedLines"),
    "deferred_tools_delta": _delta("Tools that can be loaded", "addedLines"),
    "mcp_instructions_delta": _delta("Instructions of MCP servers", "addedBlocks"),
    "mcp_resource": _field("The MCP resource {}", "content"),
    "hook_additional_context": lambda d: _titled(f"Hook {d.get('hookName', '')} added", _text(d.get("content"))),
    "hook_success": _hook_success,
    "hook_blocking_error": _blocked,
    "hook_stopped_continuation": lambda d: _titled(f"Hook {d.get('hookName', '')} stopped", _text(d.get("message"))),
    "async_hook_response": _async_hook,
    "selected_lines_in_ide": _field("The user selected these lines in {}", "content"),
    "opened_file_in_ide": _note("The user opened {} in the editor; it may not matter."),
    "output_style": _field("The output style is set", "style"),
    "critical_system_reminder": _field("Reminder", "content"),
    "total_tokens_reminder": _field("Tokens", "text"),
    "read_truncation_notice": _field("What was read of {} was cut", "content", "text", "message"),
    "date_change": _field("The date is now", "newDate"),
    "diagnostics": _diagnostics,
    "task_status": _status,
    "agent_mention": _field("The user asks for the agent", "agentType"),
    "goal_status": _field("The goal", "content", "text", "condition"),
    "ultramemory": _field("Memory", "content"),
    "memory_update": _field("Memory was updated", "content", "text"),
}
