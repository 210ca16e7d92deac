"""Who said what in a view: for deciding whose word a memory is, and what a person said since the last look (MEM-6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.context.said import block_text
from holdfast.context.trusted import trust_in
from holdfast.context.view import View
from holdfast.memory.trust.labels import Trust
from holdfast.memory.upkeep.origins import Voices
from holdfast.transcript.blocks import ToolUse
from holdfast.transcript.messages import MessageId
from holdfast.transcript.spoken import spoken, spoken_blocks

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
        said = dict(spoken_blocks(item.message))
        for index, block in enumerate(item.message.blocks):
            text, label = block_text(block), trust_in(view, item.message, block)
            if not text:
                continue
            if index in said and label >= Trust.USER:
                user.append(said[index])
                if said[index] != text.strip():
                    outside.append(text)
            elif label is Trust.MODEL and item.message.role == "assistant" and not outside:
                assistant.append(text)
            else:
                outside.append(text)
    return Voices(tuple(user), tuple(assistant), tuple(outside), is_whole=view.boundary is None)


def heard(view: View, after: int, upto: int, is_written: Callable[[ToolUse], bool]) -> tuple[Heard, ...]:
    """What a person said in the messages from `after` to `upto`, but for turns in which memory was written."""
    found: list[list[Heard]] = []
    for item in view.items[after:upto]:
        text = spoken(item.message)
        if text:
            found.append([Heard(item.message.id, item.message.at or 0.0, text)])
        elif found and any(is_written(use) for use in item.message.tool_uses):
            found[-1].clear()
    return tuple(one for turn in found for one in turn)


def writes_memory(use: ToolUse, where: str, arguments: Mapping[str, Any] | None = None) -> bool:
    """Whether a call writes memories itself: by a tool for that, or by editing a file in their directory."""
    given = use.arguments() if arguments is None else arguments
    name = use.name.rpartition("__")[2].lower()
    if name in MEMORY_TOOLS:
        return given.get("command") != "view"
    paths = [value for key in ("file_path", "path") if isinstance(value := given.get(key), str)]
    root = where.rstrip("/") + "/"
    return name in _WRITERS and any(path.replace("\\", "/").startswith(root) for path in paths)
