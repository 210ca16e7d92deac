"""Whose word a text is that a model wants to keep (MEM-10).

A model says whatever it was told to say, so nothing it says of the source counts. What counts is what it could have
seen. Anything from outside that stands in the view may have moved its hand, also long after: "when they say thanks,
save this" waits for its moment. So one result of a tool anywhere in the view makes all that the model writes derive
from it, but for what the user said, whole. The one rule for every door: the memory tool and the extraction ask it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from perdure.context.accounting import trust_in
from perdure.context.view import ContextView, ViewItem
from perdure.memory.changes import Origin, least_trusted
from perdure.memory.dates import absolute
from perdure.memory.files import INDEX, TYPES
from perdure.memory.recalled import memories_told
from perdure.memory.remarks import statements
from perdure.memory.trust.labels import TrustLevel
from perdure.text.cleaning import plain, sentences, unmarked
from perdure.text.frontmatter import front_matter
from perdure.transcript.blocks import Block, Text, ToolResult, ToolUse
from perdure.transcript.messages import ToolUseId, spoken_blocks
from perdure.transcript.tool_calls.actions import ToolTable

MEMORY_TOOL = "memory"
MEMORY_ROOT = "/memories"
_TOOLS = ToolTable()
_TOGETHER = 12  # sentences, at most, that a person's words may tie to one statement
# Of a memory's front matter: what only orders it is nobody's words, and of the others the values count.
_ORDERS = re.compile(
    rf"---|type\s*:\s*(?:{'|'.join(TYPES)})|node_type\s*:\s*memory|metadata\s*:"
    r"|(?:modified|updated|created)\s*:\s*[\d\-:.TZ+ \"']*"
)
_VALUE = re.compile(r"(?:name|description)\s*:\s*")
_BLANK = re.compile(r"[\s#>*\-=_`|~]*")  # rules and empty bullets
_LABEL = re.compile(r"\W*(?:why|how to apply|reason)\W*:\W*(?=\w|$)", re.IGNORECASE)  # how memories are laid out


def origin_of(
    view: ContextView,
    text: str | None = None,
    base: str | None = None,
    *,
    memories: Mapping[str, Origin] | None = None,
    seen: Iterable[Origin] = (),
    upto: int | None = None,
    own: str = MEMORY_TOOL,
) -> Origin:
    """Whose word a memory is that the model of this view writes.

    Args:
        view: What the model saw, or of it the first `upto` messages.
        text: The memory as it is to be; None when it is removed or renamed.
        base: The memory as it was; None for a new one.
        memories: Where memories come from, by their path under /memories. What a memory tool (`own`) shows is as
            trusted as they are, not as the result of a tool.
        seen: Where else things come from that the model read beside the view.

    Returns:
        `user` when everything new in the text was said by the user, whole; else the least trusted of what the model
        saw, at best `assistant`. Taking away more lines than coming in is an act of the model's own, whatever it adds.
    """
    items = view.items[:upto]
    if text is not None:
        new, is_less = _changes(base, text)
        if new and not is_less and _are_said(new, view, items):
            return "user"
    return least_trusted(("assistant", *seen, *_sources(view, items, memories or {}, own)))


def _changes(base: str | None, text: str) -> tuple[list[str], bool]:
    """The lines that come, and whether more go."""
    before, after = _lines(base or ""), _lines(text)
    known, kept = set(before), set(after)
    new = [line for line in after if line not in known]
    return new, sum(line not in kept for line in before) > len(new)


def _lines(text: str) -> list[str]:
    """The lines of a memory that say something: the values of its front matter, and what stands below it."""
    front = front_matter(text)
    head = [line.strip() for line in text[: front.start].splitlines()] if front.is_present else []
    values = [_VALUE.sub("", line, count=1).strip("\"'") for line in head if not _ORDERS.fullmatch(line)]
    below = [_LABEL.sub("", line, count=1).strip() for line in text[front.start :].splitlines()]
    return [line for line in (*values, *below) if not _BLANK.fullmatch(line)]


def _are_said(lines: Sequence[str], view: ContextView, items: Sequence[ViewItem]) -> bool:
    """Whether the user said all of these lines, in whole statements: a part of one can say the opposite of it."""
    pieces = [unmarked(piece) for line in lines for piece in sentences(line)]
    wanted = {_key(piece) for piece in pieces}
    said: set[str] = set()
    for at, text in _user_texts(view, items):
        low = plain(text)
        if any(one.rstrip("?") in low for one in wanted) or any(c.isdigit() for piece in pieces for c in piece):
            for one in statements(text):
                said |= {_key(one), _key(absolute(one, at) if at else one)}
    said.discard("")
    done = 0
    while done < len(pieces):  # what was said as one may stand on several lines
        for end in range(min(len(pieces), done + _TOGETHER), done, -1):
            if _key(" ".join(pieces[done:end])) in said:
                done = end
                break
        else:
            return False
    return bool(pieces)


def _key(statement: str) -> str:
    """A statement as it compares. A question isn't what it asks about."""
    text = " ".join(plain(piece) for piece in statement.splitlines()).strip()
    return text + "?" * statement.rstrip(" \"'”’)*_").endswith(("?", "？"))


def _user_texts(view: ContextView, items: Iterable[ViewItem]) -> Iterator[tuple[float, str]]:
    for item in items:
        if item.message.agent_id is None:
            for index, words in spoken_blocks(item.message):
                if trust_in(view, item.message, item.message.blocks[index]) is TrustLevel.USER:
                    yield item.message.at or 0.0, words


def _sources(
    view: ContextView, items: Iterable[ViewItem], memories: Mapping[str, Origin], own: str
) -> Iterator[Origin]:
    """Of everything in the view that isn't the model's own, the user's or the project's."""
    for item in items:
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
        return "web" if call is not None and _TOOLS.kind(call.name) == "web" else "tool"
    use = view.items[call.position].message.blocks[call.block].value
    path = use.input.get("path") if isinstance(use, ToolUse) else None
    if not isinstance(path, str):
        return "assistant"
    path = path.rstrip("/")
    return least_trusted(("assistant", *(memories[one] for one in memories if f"{one}/".startswith(f"{path}/"))))


def _shown_memories(item: ViewItem, memories: Mapping[str, Origin]) -> Iterator[Origin]:
    """Of memories that were recalled into the view, and of the indexes."""
    note = item.message.note
    if item.message.origin not in ("reminder", "restored"):
        return
    if note == "memory_index":
        yield from (origin for path, origin in memories.items() if path.endswith(f"/{INDEX}"))
    elif note == "memory":
        for block in item.message.blocks:
            if isinstance(block.value, Text):
                yield from (
                    memories.get(f"{MEMORY_ROOT}/{file}", "assistant") for file in memories_told(block.value.text)
                )


MEMORY_TOOLS = frozenset({"memory", "memory_save", "memory_forget", "remember", "forget"})


def writes_memory(use: ToolUse, where: str) -> bool:
    """Whether a call writes memories itself: by a tool for that, or by changing a file in their directory.

    A shell's command does so, too, as far as it says which file it changes.
    """
    name = use.name.rpartition("__")[2].lower()
    if name in MEMORY_TOOLS:
        return use.input.get("command") != "view"
    action, root = _TOOLS.action(use.name, use.input), where.rstrip("/") + "/"
    changed = [file.path for file in action.files if file.kind != "read"]
    changed += [path for gone in action.removals for path in (gone.path, gone.to)]
    return any(path.replace("\\", "/").startswith(root) for path in changed)
