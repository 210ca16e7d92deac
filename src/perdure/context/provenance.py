"""Who said what in a view, and where a text comes from that a model wants to keep (MEM-10)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.context.accounting import trust_in
from perdure.context.items import ViewItem
from perdure.context.view import ContextView
from perdure.memory.changes import Origin, least_trusted
from perdure.memory.files import INDEX, TYPES
from perdure.memory.provenance import WordsByOrigin
from perdure.memory.recalled import memories_told
from perdure.memory.trust.labels import TrustLevel
from perdure.text.cleaning import plain, sentences
from perdure.transcript.blocks import Block, Text, ToolResult, ToolUse
from perdure.transcript.messages import MessageId, ToolUseId
from perdure.transcript.spoken import spoken, spoken_blocks
from perdure.transcript.texts import block_text

TOOL = "memory"
ROOT = "/memories"
_WEB_TOOLS = frozenset({"WebSearch", "web_search", "WebFetch", "web_fetch", "fetch"})
_STRUCTURE = frozenset({"---", *(f"type: {one}" for one in TYPES)})  # of a memory's front matter: nobody's words
_FIELD = ("name: ", "description: ")


def origin_of(
    view: ContextView, added: str = "", *, memories: Mapping[str, Origin] | None = None, own: str = TOOL
) -> Origin:
    """Whose word a text is that the model of this view writes: `added` is what is new in it; none: it removes.

    `memories` says of memories, by their path under /memories, where they come from: the memory tool (`own`) shows
    them, and what it shows is as trusted as they are, not as the result of a tool.
    """
    if added.strip() and _is_said(view, added):
        return "user"
    return least_trusted(("assistant", *_sources(view, memories or {}, own)))


def added_lines(base: str | None, text: str) -> str:
    """The lines of a text that its base didn't have."""
    before = set((base or "").splitlines())
    return "\n".join(line for line in text.splitlines() if line not in before)


def _is_said(view: ContextView, added: str) -> bool:
    """Whether each sentence of a text was said by the user, whole: a part of one can say the opposite of it."""
    lines = [line.strip() for line in added.splitlines()]
    fields = [line.split(": ", 1)[1] if line.startswith(_FIELD) else line for line in lines if line not in _STRUCTURE]
    missing = {one for line in fields if line for sentence in sentences(line) if (one := plain(sentence))}
    if not missing:
        return False
    for text in _user_texts(view):
        low = plain(text)
        if any(one in low for one in missing):  # most texts don't hold it at all
            missing -= {plain(one) for one in (*sentences(text), *text.splitlines())}
    return not missing


def _user_texts(view: ContextView) -> Iterator[str]:
    for item in view.items:
        if item.message.agent_id is None:
            for index, words in spoken_blocks(item.message):
                if trust_in(view, item.message, item.message.blocks[index]) is TrustLevel.USER:
                    yield words


def _sources(view: ContextView, memories: Mapping[str, Origin], own: str) -> Iterator[Origin]:
    """Of everything in the view that isn't the model's own, the user's or the project's."""
    for item in view.items:
        for block in item.message.blocks:
            if trust_in(view, item.message, block) is TrustLevel.OUTSIDE:
                yield _outside(view, block, memories, own)
        yield from _shown_memories(item, memories)


def _outside(view: ContextView, block: Block, memories: Mapping[str, Origin], own: str) -> Origin:
    if block.type.startswith("web_"):
        return "web"
    if not isinstance(block.value, ToolResult):
        return "tool"
    call = view.calls.get(ToolUseId(block.value.tool_use_id))
    if call is None or call.name != own:
        return "web" if call is not None and call.name in _WEB_TOOLS else "tool"
    use = view.items[call.position].message.blocks[call.block].value
    path = use.input.get("path") if isinstance(use, ToolUse) else None
    return memories.get(path.rstrip("/"), "assistant") if isinstance(path, str) else "assistant"


def _shown_memories(item: ViewItem, memories: Mapping[str, Origin]) -> Iterator[Origin]:
    """Of memories that were recalled into the view, and of the index."""
    note = item.message.note
    if item.message.origin not in ("reminder", "restored"):
        return
    if note == "memory_index":
        yield memories.get(f"{ROOT}/{INDEX}", "assistant")
    elif note == "memory":
        for block in item.message.blocks:
            if isinstance(block.value, Text):
                yield from (memories.get(f"{ROOT}/{file}", "assistant") for file in memories_told(block.value.text))


MEMORY_TOOLS = frozenset({"memory", "remember", "forget"})
_WRITERS = frozenset({"edit", "write", "multiedit", "create_file", "write_file", "edit_file", "str_replace_editor"})


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What a person said: the message, when (seconds), and its text."""

    message: MessageId
    at: float
    text: str


def voices(view: ContextView, upto: int) -> WordsByOrigin:
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
            if index in said and label >= TrustLevel.USER:
                user.append(said[index])
                if said[index] != text.strip():
                    outside.append(text)
            elif label is TrustLevel.MODEL and item.message.role == "assistant" and not outside:
                assistant.append(text)
            else:
                outside.append(text)
    return WordsByOrigin(tuple(user), tuple(assistant), tuple(outside), is_whole=view.boundary is None)


def user_messages(
    view: ContextView, after: int, upto: int, is_written: Callable[[ToolUse], bool]
) -> tuple[UserMessage, ...]:
    """What a person said in the messages from `after` to `upto`, but for turns in which memory was written."""
    found: list[list[UserMessage]] = []
    for item in view.items[after:upto]:
        text = spoken(item.message)
        if text:
            found.append([UserMessage(item.message.id, item.message.at or 0.0, text)])
        elif found and any(is_written(use) for use in item.message.tool_uses):
            found[-1].clear()
    return tuple(one for turn in found for one in turn)


def writes_memory(use: ToolUse, where: str, arguments: Mapping[str, Any] | None = None) -> bool:
    """Whether a call writes memories itself: by a tool for that, or by editing a file in their directory."""
    given = use.input if arguments is None else arguments
    name = use.name.rpartition("__")[2].lower()
    if name in MEMORY_TOOLS:
        return given.get("command") != "view"
    paths = [value for key in ("file_path", "path") if isinstance(value := given.get(key), str)]
    root = where.rstrip("/") + "/"
    return name in _WRITERS and any(path.replace("\\", "/").startswith(root) for path in paths)
