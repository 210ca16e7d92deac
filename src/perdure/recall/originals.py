"""Everything that was said, by the ids under which previews, markers, summaries and searches name it (RCL-1, RCL-2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from perdure.errors import MalformedBlock
from perdure.transcript.blocks import Block, Document, Image, ServerToolUse, Text, Thinking, ToolResult, ToolUse
from perdure.transcript.messages import Message
from perdure.transcript.records import Collapsed, Compacted, Edit, Record
from perdure.transcript.texts import block_text, result_text

OriginalKind = Literal["result", "call", "message", "collapse", "boundary", "summary", "blob", "memory"]
PREFIX_CHARS = 6  # a shorter beginning of an id is too likely to mean something else
_ABOUT_CHARS = 120


@dataclass(frozen=True, slots=True)
class Original:
    """What an id stands for. `raw` are the exact bytes of each block that was said; `text` is what they say."""

    id: str
    kind: OriginalKind
    what: str
    text: str
    raw: tuple[bytes, ...]
    at: float | None = None


class Originals:
    """The records of a journal, to be asked by id. Ids may be cut to a beginning that no other has."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._messages: dict[str, Message] = {}
        self._results: dict[str, list[Block]] = {}
        self._calls: dict[str, tuple[Block, Message]] = {}
        self._answers: dict[str, Message] = {}
        self._collapses: dict[str, list[Message]] = {}
        self._boundaries: dict[str, list[Message]] = {}
        self._summaries: dict[str, Message] = {}
        self.blobs: dict[str, str] = {}  # blob -> the result that it holds
        self._current: dict[str, Message] = {}
        for record in records:
            self._take(record)

    def _take(self, record: Record) -> None:
        if isinstance(record, Message):
            self._said(record)
        elif isinstance(record, Compacted):
            kept = set(record.kept)
            self._boundaries[record.id] = [m for i, m in self._current.items() if i not in kept]
            self._current = {i: m for i, m in self._current.items() if i in kept}
            for summary in record.summary:
                self._summaries[summary.id] = summary
        elif isinstance(record, Edit):
            for stored in record.stored:
                self.blobs[stored.blob] = stored.tool_use_id
            if isinstance(record, Collapsed):
                self._collapses[record.id] = self._between(record.first, record.last)

    def _said(self, message: Message) -> None:
        if message.id in self._messages:
            return
        self._messages[message.id] = message
        if message.agent_id is None:
            self._current[message.id] = message
        for block in message.blocks:
            if block.type not in ("tool_use", "tool_result"):
                continue
            try:
                value = block.value
            except MalformedBlock:
                continue
            if isinstance(value, ToolUse):
                self._calls.setdefault(value.id, (block, message))
            elif isinstance(value, ToolResult):
                self._results.setdefault(value.tool_use_id, []).append(block)
                self._answers.setdefault(value.tool_use_id, message)

    def _between(self, first: str, last: str) -> list[Message]:
        ids = list(self._current)
        if first not in self._current or last not in self._current:
            return []
        return [self._current[i] for i in ids[ids.index(first) : ids.index(last) + 1]]

    def matching_ids(self, identity: str) -> list[str]:
        """The ids that one means: itself, or every one that begins or ends with it, as records show long ones."""
        tables = (self._results, self._calls, self._messages, self._collapses, self._boundaries, self._summaries)
        every = (*tables, self.blobs)
        if any(identity in table for table in every):
            return [identity]
        identity = identity.lstrip("…")
        if len(identity) < PREFIX_CHARS:
            return []
        return sorted({i for table in every for i in table if i.startswith(identity) or i.endswith(identity)})

    def find(self, identity: str) -> Original | None:
        """What an exact id stands for; None when it is unknown."""
        if identity in self._results:
            return self._result(identity)
        if identity in self._calls:
            block, message = self._calls[identity]
            return Original(
                identity, "call", f"call without a result: {_call_line(block)}", *_content([block]), message.at
            )
        if identity in self._collapses:
            return _messages(identity, "collapse", "the folded work", self._collapses[identity])
        if identity in self._messages:
            message = self._messages[identity]
            return Original(identity, "message", _who(message), *_content(message.blocks), message.at)
        if identity in self._boundaries:
            return _messages(identity, "boundary", "what this compaction replaced", self._boundaries[identity])
        if identity in self._summaries:
            summary = self._summaries[identity]
            return Original(identity, "summary", "the summary of a compaction", *_content(summary.blocks), summary.at)
        return self._result(self.blobs[identity]) if self.blobs.get(identity) in self._results else None

    def _result(self, identity: str) -> Original:
        blocks = list({block.raw: block for block in self._results[identity]}.values())
        call = self._calls.get(identity)
        what = f"result of {_call_line(call[0])}" if call else "result of a call that isn't here"
        parts = [_result(block) for block in blocks]
        text = parts[0] if len(parts) == 1 else "\n\n".join(parts)
        return Original(identity, "result", what, text, tuple(b.raw for b in blocks), self._answers[identity].at)


def blob_original(identity: str, content: bytes) -> Original:
    """What a blob holds that no record here speaks of."""
    return Original(identity, "blob", "stored bytes", content.decode("utf-8", "replace"), (content,))


def _messages(identity: str, kind: OriginalKind, what: str, messages: list[Message]) -> Original:
    parts = [f"--- {_who(m)}, id {m.id}\n{_content(m.blocks)[0]}" for m in messages]
    raw = tuple(block.raw for message in messages for block in message.blocks)
    return Original(identity, kind, f"{what}: {len(messages):,} messages", "\n\n".join(parts), raw)


def _who(message: Message) -> str:
    return f"message of the {message.role}" + (f" (sub-agent {message.agent_id})" if message.agent_id else "")


def _call_line(call: Block) -> str:
    """A call on one short line: the tool, and what was asked of it."""
    value = call.value
    if not isinstance(value, ToolUse):
        return "a call"
    told = " ".join(bytes(value.raw_input).decode("utf-8", "replace").split())
    return f"{value.name} {told if len(told) <= _ABOUT_CHARS else told[:_ABOUT_CHARS] + '…'}"


def _content(blocks: Iterable[Block]) -> tuple[str, tuple[bytes, ...]]:
    blocks = tuple(blocks)
    if len(blocks) == 1 and isinstance(blocks[0].value, Text):
        return blocks[0].value.text, (blocks[0].raw,)
    return "\n\n".join(_labelled(block) for block in blocks), tuple(block.raw for block in blocks)


def _labelled(block: Block) -> str:
    value = block.value
    if isinstance(value, Text):
        return value.text
    if isinstance(value, Thinking):
        return f"[thinking]\n{value.thinking}"
    if isinstance(value, ToolUse | ServerToolUse):
        return f"[call {value.id}] {block_text(block)}"
    if isinstance(value, ToolResult):
        return f"[result {value.tool_use_id}]\n{_result(block)}"
    return _medium(block) or f"[{block.type}]\n{block_text(block)}"


def _result(block: Block) -> str:
    """A result as text, with a line for each picture or document in it."""
    value = block.value
    if not isinstance(value, ToolResult) or value.content is None or isinstance(value.content, str):
        return result_text(value) if isinstance(value, ToolResult) else ""
    return "\n".join(text for text in (_medium(part) or block_text(part) for part in value.parts()) if text)


def _medium(block: Block) -> str:
    if not isinstance(block.value, Image | Document) or block.value.source.get("type") == "text":
        return ""
    kind = block.value.source.get("media_type") or block.value.source.get("type") or "unknown"
    return f"[{block.type} {kind}, {len(block.raw):,} bytes of JSON]"
