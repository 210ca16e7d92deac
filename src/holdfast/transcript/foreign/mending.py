"""What a log holds but no request could: repaired, or shown as the text it is, and said as a problem (ENG-6, ENG-7).

A log is evidence, so nothing of it is refused; but it is sent again once somebody goes on from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.errors import MalformedBlock
from holdfast.transcript.blocks import Block, block_of, text_block
from holdfast.transcript.foreign.reading import BEYOND_READING, Problems
from holdfast.transcript.messages import Message, Role, content_of
from holdfast.transcript.records import Front, Record
from holdfast.transcript.sendable import NAME_CHARACTERS, TOOL_ID, check_sendable, sendable_id, tool_problem

_AS_TEXT = "[A block of type {kind} that no request can hold]\n{text}"


def mended(
    content: Sequence[Block], role: str, number: int, problems: Problems, *, summary: bool = False
) -> list[Block]:
    """The blocks as a message of this role can send them; each repair, and each block left out, is a problem.

    Summaries of a provider's own (`compaction`) become text, but for `summary`: where it goes on itself.
    """
    good = []
    for index, block in enumerate(content):
        try:
            if block.kind != "compaction" or summary:  # only its provider reads one, and only where it compacts
                check_sendable(_answering(block), role)
                good.append(_answering(block))
                continue
            wrong = "a summary of the provider's own"
        except MalformedBlock as e:
            wrong = str(e)
        try:
            better = _mended(block, role, f"call-{number}-{index}")
            check_sendable(better, role)
        except (*BEYOND_READING, UnicodeEncodeError):
            problems.add(number, f"content[{index}]: {wrong}: left out")
            continue
        shown = "as text" if better.kind == "text" else "repaired"
        problems.add(number, f"content[{index}]: {wrong}: {shown}")
        good.append(better)
    return good


def mended_record(record: Record, number: int, problems: Problems) -> Record:
    """A record of a journal as it can be sent, always in the same way: whoever folds a journal takes it so.

    It may have been written before records were checked, or by somebody else. Only messages and fronts are changed.
    """
    if isinstance(record, Message) and record.agent_id is None:
        return mended_message(record, number, problems, summary=True)
    return mended_front(record, problems) if isinstance(record, Front) else record


def mended_message(message: Message, number: int, problems: Problems, *, summary: bool = False) -> Message:
    """The message with blocks that can be sent; itself when all can."""
    role: Role = message.role
    content = mended(message.blocks, role, number, problems, summary=summary)
    return message if content == list(message.blocks) else msgspec.structs.replace(message, content=content_of(content))


def mended_front(front: Front, problems: Problems) -> Front:
    """The front less the tools that no API takes, and with other blocks in the system prompt as text."""
    system = mended([Block(bytes(raw)) for raw in front.system if _has_type(raw)], "front", 0, problems)
    names: set[str] = set()
    tools = []
    for number, raw in enumerate(front.tools):
        if wrong := tool_problem(bytes(raw), names):
            problems.add(0, f"tools[{number}]: {wrong}: left out")
        else:
            tools.append(raw)
    stable = front.dynamic_from
    if stable is not None and not 0 <= stable <= len(system):
        stable = None
    better = msgspec.structs.replace(front, system=content_of(system), tools=tuple(tools), dynamic_from=stable)
    return front if better == front else better


def _has_type(raw: msgspec.Raw) -> bool:
    try:
        Block(bytes(raw))
    except MalformedBlock:
        return False
    return True


def _answering(block: Block) -> Block:
    """A result that names its call by the id that the call has here."""
    identity = getattr(block.value, "tool_use_id", "") if block.kind == "tool_result" else ""
    if not identity or TOOL_ID.fullmatch(identity):
        return block
    return block_of({**_fields(block), "tool_use_id": sendable_id(identity)})


def _fields(block: Block) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.json.decode(block.raw)
    return fields


def _mended(block: Block, role: str, otherwise: str) -> Block:
    fields = _fields(block)
    if block.kind == "tool_use" and role == "assistant":
        given = fields.get("input")
        fields |= {
            "id": sendable_id(str(fields.get("id") or "")) or otherwise,
            "name": str(fields.get("name") or "unnamed")[:NAME_CHARACTERS],
            "input": given if isinstance(given, dict) else {"_raw": given},
        }
        for name in ("caller", "toolset_name", "server_name"):
            fields.pop(name, None)
        return block_of(fields)
    if block.kind == "tool_result" and role == "user":
        return _mended_result(fields)
    text = fields.get("content" if block.kind == "compaction" else "text")
    if isinstance(text, str) and text.strip():
        return text_block(text)
    return text_block(_AS_TEXT.format(kind=block.kind, text=block.raw.decode()))


def _mended_result(fields: dict[str, Any]) -> Block:
    """A result whose parts can't be sent where they stand: those become text, and no error holds media."""
    content = fields.get("content")
    parts: list[Any] = []
    for part in content if isinstance(content, list) else ():
        try:
            one = block_of(part) if isinstance(part, dict) else text_block(msgspec.json.encode(part).decode())
            check_sendable(block_of({"type": "tool_result", "tool_use_id": "x", "content": [part]}), "user")
        except MalformedBlock:
            kind = str(part.get("type"))[:40] if isinstance(part, dict) else type(part).__name__
            one = text_block(_AS_TEXT.format(kind=kind, text=msgspec.json.encode(part).decode()))
        parts.append(msgspec.Raw(one.raw))
    fields.pop("is_error", None)
    fields.pop("toolset_name", None)
    return block_of({**fields, "content": parts} if isinstance(content, list) else fields)
