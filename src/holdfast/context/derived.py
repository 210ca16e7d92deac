"""Where a text comes from that a model wants to keep, as far as the view can tell (MEM-10).

A model says whatever it was told to say, so nothing it says of the source counts. What counts is what it could have
seen. Anything from outside that stands in the view may have moved its hand, also long after: "when they say thanks,
save this" waits for its moment. So one result of a tool anywhere in the view makes all that the model writes derive
from it, but for whole sentences that the user said themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.context.items import Item
from holdfast.context.trusted import trust_in
from holdfast.context.view import View
from holdfast.memory.changes import Origin, least_trusted
from holdfast.memory.recalled import told
from holdfast.memory.sentences import plain, sentences
from holdfast.memory.topics import INDEX, TYPES
from holdfast.memory.trust.labels import Trust
from holdfast.transcript.blocks import Block, Text, ToolResult, ToolUse
from holdfast.transcript.messages import ToolUseId
from holdfast.transcript.spoken import spoken_blocks

TOOL = "memory"
ROOT = "/memories"
_WEB_TOOLS = frozenset({"WebSearch", "web_search", "WebFetch", "web_fetch", "fetch"})
_STRUCTURE = frozenset({"---", *(f"type: {one}" for one in TYPES)})  # of a memory's front matter: nobody's words
_FIELD = ("name: ", "description: ")


def origin_of(view: View, added: str = "", *, memories: Mapping[str, Origin] | None = None, own: str = TOOL) -> Origin:
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


def _is_said(view: View, added: str) -> bool:
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


def _user_texts(view: View) -> Iterator[str]:
    for item in view.items:
        if item.message.agent_id is None:
            for index, words in spoken_blocks(item.message):
                if trust_in(view, item.message, item.message.blocks[index]) is Trust.USER:
                    yield words


def _sources(view: View, memories: Mapping[str, Origin], own: str) -> Iterator[Origin]:
    """Of everything in the view that isn't the model's own, the user's or the project's."""
    for item in view.items:
        for block in item.message.blocks:
            if trust_in(view, item.message, block) is Trust.OUTSIDE:
                yield _outside(view, block, memories, own)
        yield from _shown_memories(item, memories)


def _outside(view: View, block: Block, memories: Mapping[str, Origin], own: str) -> Origin:
    if block.kind.startswith("web_"):
        return "web"
    if not isinstance(block.value, ToolResult):
        return "tool"
    call = view.calls.get(ToolUseId(block.value.tool_use_id))
    if call is None or call.name != own:
        return "web" if call is not None and call.name in _WEB_TOOLS else "tool"
    use = view.items[call.position].message.blocks[call.block].value
    path = use.arguments().get("path") if isinstance(use, ToolUse) else None
    return memories.get(path.rstrip("/"), "assistant") if isinstance(path, str) else "assistant"


def _shown_memories(item: Item, memories: Mapping[str, Origin]) -> Iterator[Origin]:
    """Of memories that were recalled into the view, and of the index."""
    note = item.message.note
    if item.message.origin not in ("reminder", "restored"):
        return
    if note == "memory_index":
        yield memories.get(f"{ROOT}/{INDEX}", "assistant")
    elif note == "memory":
        for block in item.message.blocks:
            if isinstance(block.value, Text):
                yield from (memories.get(f"{ROOT}/{file}", "assistant") for file in told(block.value.text))
