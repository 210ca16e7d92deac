"""Trust: whose word a text is (SEC-1). operator > user > project > model > outside.

A label isn't stored beside a block: it follows from the message's origin and note, from the kind of the block, and for
a summary from the boundary that recorded the least of what went into it. So it travels with every block, and nobody can
set it by writing something. `context.accounting` asks it for whole views, and `context.provenance` for memories.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from perdure.transcript.blocks import Block, Text
from perdure.transcript.messages import Message, is_of_person, spoken_text


class TrustLevel(IntEnum):
    """Who speaks, the least trusted first; `min` of several is the trust of what is made from them."""

    OUTSIDE = 0  # results of tools, the web, files that were read
    MODEL = 1
    PROJECT = 2  # instruction files of the project
    USER = 3
    OPERATOR = 4  # who runs this: system prompt, managed instructions, Perdure's own words


# Reminders and restored content, by `Message.note`; of other reminders only the origin is known.
_NOTES = {
    "instructions": TrustLevel.PROJECT,
    "nested_instructions": TrustLevel.PROJECT,
    "session_start": TrustLevel.PROJECT,
    "skills": TrustLevel.PROJECT,
    "selection": TrustLevel.PROJECT,  # the user chose it, and didn't write it
    "memory": TrustLevel.MODEL,  # of one memory, its own provenance says more (MEM-10)
    "memory_index": TrustLevel.MODEL,
    "remembered": TrustLevel.MODEL,  # it repeats the user's words, and names memories
    "todos": TrustLevel.MODEL,
    "plan": TrustLevel.MODEL,
    "files": TrustLevel.OUTSIDE,
    "background": TrustLevel.OUTSIDE,
    "tools": TrustLevel.OUTSIDE,
}
_HEADS = {"(managed: ": TrustLevel.OPERATOR, "(user: ": TrustLevel.USER, "(local: ": TrustLevel.USER}
_MEDIA = frozenset({"image", "document", "search_result"})


def trust(message: Message, block: Block, *, summary: TrustLevel = TrustLevel.OUTSIDE) -> TrustLevel:
    """Whose word a block is. `summary` is what the boundary recorded of its summary (SEC-1).

    Whatever came with a tool's result, or was fetched by the provider, is `OUTSIDE`, in whatever message it stands.
    """
    if block.type.endswith("tool_result"):
        return TrustLevel.OUTSIDE
    origin = message.origin
    if origin == "summary" or block.type == "compaction":
        return summary
    if origin == "model" or message.role == "assistant":
        return TrustLevel.MODEL
    if origin in ("reminder", "restored"):
        return _noted(message, block)
    if origin == "tool":
        return TrustLevel.USER if is_of_person(message) and _is_word(block) else TrustLevel.OUTSIDE
    if origin == "system":
        return TrustLevel.OPERATOR
    if block.type in _MEDIA:
        return TrustLevel.PROJECT  # a person attached it, and didn't write it
    return TrustLevel.OUTSIDE if block.type == "text" and not spoken_text(_text(block)) else TrustLevel.USER


def _text(block: Block) -> str:
    return block.value.text if isinstance(block.value, Text) else ""


def _is_word(block: Block) -> bool:
    """Whether a person wrote all of a text that stands beside a result."""
    text = _text(block).strip()
    return bool(text) and spoken_text(text) == text


def _noted(message: Message, block: Block) -> TrustLevel:
    """Of a reminder. An instruction file says in its second line which scope it has; nobody else writes there."""
    known = _NOTES.get(message.note or "")
    if known is None:
        return TrustLevel.OUTSIDE  # what hooks, hosts and imported logs inject can be anything
    if message.note in ("instructions", "nested_instructions") and isinstance(block.value, Text):
        text = block.value.text
        if text.startswith("## "):
            second = text.split("\n", 2)[1:2]
            return next((t for head, t in _HEADS.items() if second and second[0].startswith(head)), known)
    return known


def least(labels: Iterable[TrustLevel]) -> TrustLevel:
    """The trust of what is made from all of these; of nothing, the operator's."""
    found = TrustLevel.OPERATOR
    for label in labels:
        found = min(found, label)
        if found is TrustLevel.OUTSIDE:
            break
    return found
