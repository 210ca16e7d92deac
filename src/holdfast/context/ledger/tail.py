"""The raw tail: the latest messages as text, word for word, as far as a budget reaches (CMP-5)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.context.ledger.pieces import without_reminders
from holdfast.context.ledger.sheet import clock, short_id
from holdfast.context.quoting import INDENT, inline, quoted
from holdfast.transcript.blocks import Text, ToolResult, ToolUse
from holdfast.transcript.messages import Message
from holdfast.transcript.spoken import spoken_blocks
from holdfast.transcript.tokens import utf16_units

_LEAST_PART = 200


@dataclass(frozen=True, slots=True)
class Tail:
    """`text`; `whole` are the ids of the messages that stand in it in full; `first` is the position where it starts."""

    text: str
    whole: frozenset[str]
    first: int


NO_TAIL = Tail("", frozenset(), 0)


def raw_tail(messages: Sequence[Message], units: int) -> Tail:
    """The last messages that fit; the oldest of them is cut at a line, with the gap marked."""
    parts: list[str] = []
    whole: set[str] = set()
    first = len(messages)
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        entries = list(_entries(message))
        is_whole = True
        for entry in reversed(entries):
            cost = utf16_units(entry) + 1
            if cost > units:
                cut = _end_of(entry, units - 8)
                parts += [cut] if cut else []
                is_whole, units = False, 0
                break
            parts.append(entry)
            units -= cost
        if not is_whole:
            break
        first = position
        whole.add(message.id)
    return Tail("\n".join(reversed(parts)), frozenset(whole), first)


def _entries(message: Message) -> Iterator[str]:
    if message.agent_id is not None or message.origin == "summary":
        return
    said = dict(spoken_blocks(message))
    for index, block in enumerate(message.blocks):
        value = block.value
        if isinstance(value, Text) and (text := said.get(index) or without_reminders(value.text).strip()):
            speaker = "User" if index in said else "Assistant" if message.origin == "model" else "System"
            at = clock(message.at)
            yield f"[{speaker}{f' {at}' if at else ''}]\n{quoted(text)}"
        elif isinstance(value, ToolUse):
            yield f"[{inline(value.name)} · {short_id(value.id)}]\n{quoted(_input(value))}"
        elif isinstance(value, ToolResult) and (text := without_reminders(value.text()).strip()):
            yield f"[Result · {short_id(value.tool_use_id)}]\n{quoted(text)}"


def _input(use: ToolUse) -> str:
    """The input as lines `name: value`, so that what was written stands there as it was, not as JSON."""
    arguments = use.arguments()
    if not arguments:
        return bytes(use.input).decode(errors="replace")
    return "\n".join(f"{key}: {_shown(value)}" for key, value in arguments.items())


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value if "\n" not in value else f"\n{value}"
    if isinstance(value, list):
        return "\n".join(f"- {_shown(one)}" for one in value)
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_shown(one)}" for key, one in value.items())
    return str(value)


def _end_of(entry: str, units: int) -> str:
    """The end of an entry, from a line start, behind its heading."""
    heading, _, text = entry.partition("\n")
    room = units - utf16_units(heading) - 7
    if room < _LEAST_PART:
        return ""
    part = text[-room:]
    while utf16_units(part) > room:
        part = part[(utf16_units(part) - room + 1) // 2 :]
    cut = part.find("\n") + 1
    part = part[cut:] if 0 < cut < len(part) // 2 else INDENT + part.lstrip(INDENT)
    return f"{heading}\n[…]\n{part}"
