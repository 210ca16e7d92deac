"""Who said what in a view: for deciding whose word a memory is, and what a person said since the last look (MEM-6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.context.items import Item
from holdfast.context.said import block_text
from holdfast.context.trusted import trust_in
from holdfast.context.view import View
from holdfast.memory.trust.labels import Trust
from holdfast.memory.upkeep.origins import Voices
from holdfast.transcript.blocks import Text, ToolUse
from holdfast.transcript.messages import MessageId

MEMORY_TOOLS = frozenset({"memory", "remember", "forget"})
_WRITERS = frozenset({"edit", "write", "multiedit", "create_file", "write_file", "edit_file", "str_replace_editor"})


@dataclass(frozen=True, slots=True)
class Heard:
    """What a person said: the message, when (seconds), and its text."""

    message: MessageId
    at: float
    text: str


def voices(view: View, upto: int) -> Voices:
    """What the first `upto` messages say, by whose word it is.

    What the model says once something from outside came in may derive from that, and counts as such (MEM-10).
    """
    user: list[str] = []
    assistant: list[str] = []
    outside: list[str] = []
    for item in view.items[:upto]:
        for block in item.message.blocks:
            text, label = block_text(block), trust_in(view, item.message, block)
            if not text:
                continue
            if _is_said(item) and label >= Trust.USER and isinstance(block.value, Text) and not _is_tagged(text):
                user.append(text)
            elif label is Trust.MODEL and item.message.role == "assistant" and not outside:
                assistant.append(text)
            else:
                outside.append(text)
    return Voices(tuple(user), tuple(assistant), tuple(outside), is_whole=view.boundary is None)


def heard(view: View, after: int, upto: int, is_written: Callable[[ToolUse], bool]) -> tuple[Heard, ...]:
    """What a person said in the messages from `after` to `upto`, but for turns in which memory was written."""
    found: list[list[Heard]] = []
    for item in view.items[after:upto]:
        text = said_by_person(item)
        if text:
            found.append([Heard(item.message.id, item.message.at or 0.0, text)])
        elif found and any(is_written(use) for use in item.message.tool_uses):
            found[-1].clear()
    return tuple(one for turn in found for one in turn)


def said_by_person(item: Item) -> str:
    """The text that a person wrote in this message; nothing when somebody else did."""
    if not _is_said(item):
        return ""
    texts = [block.value.text for block in item.message.blocks if isinstance(block.value, Text)]
    return "\n".join(text for text in texts if not _is_tagged(text)).strip()


def writes_memory(use: ToolUse, where: str, arguments: Mapping[str, Any] | None = None) -> bool:
    """Whether a call writes memories itself: by a tool for that, or by editing a file in their directory."""
    given = use.arguments() if arguments is None else arguments
    name = use.name.rpartition("__")[2].lower()
    if name in MEMORY_TOOLS:
        return given.get("command") != "view"
    paths = [value for key in ("file_path", "path") if isinstance(value := given.get(key), str)]
    root = where.rstrip("/") + "/"
    return name in _WRITERS and any(path.replace("\\", "/").startswith(root) for path in paths)


def _is_said(item: Item) -> bool:
    message = item.message
    return message.role == "user" and message.origin == "user" and message.agent_id is None


def _is_tagged(text: str) -> bool:
    """Whether a program put it there, as hosts do for commands and their output."""
    return text.lstrip().startswith("<")
