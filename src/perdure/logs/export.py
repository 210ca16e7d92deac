"""A session of ours as Claude Code JSONL, which a log viewer for Claude Code opens, or as Markdown to read (ENG-6).

Each line is an entry with a parent; an API response is one entry for each of its blocks, with the same message id and
usage. Blocks keep their bytes, so reading an export back gives equal content. Ids are made from the session and the
place in it, so the same session always gives the same bytes. What Claude Code has no words for stands under `perdure`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from perdure.text.markdown import fenced
from perdure.transcript.blocks import Text, ToolResult, ToolUse, encode, text_block
from perdure.transcript.messages import Message, MessageId, content_of, spoken

ExportedLine = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ExportedBoundary:
    """A compaction: the summary that the conversation goes on from, and what was kept verbatim behind it."""

    summary: str
    trigger: str = "auto"
    pre_tokens: int = 0
    post_tokens: int | None = None
    kept: tuple[MessageId, ...] = ()
    at: float | None = None


def to_claude_code(
    messages: Iterable[Message],
    *,
    session: str,
    cwd: str,
    version: str,
    boundaries: Mapping[MessageId, ExportedBoundary] | None = None,
    branch: str = "",
    title: str | None = None,
) -> Iterator[bytes]:
    """The lines, each with its line end. `boundaries` names compactions by the last message before each."""
    writer = _Writer(session, cwd, version, branch)
    for message in messages:
        yield from writer.message(message)
        if boundaries is not None and message.id in boundaries:
            yield from writer.boundary(boundaries[message.id])
    if title:
        yield encode({"type": "custom-title", "customTitle": title, "sessionId": session}) + b"\n"


_RESULT_LINES = 20  # of one, in Markdown


def to_markdown(messages: Iterable[Message], *, title: str) -> Iterator[str]:
    """The conversation for people, a part for each message: what both said, calls, and how their results begin.

    What nobody said, such as reminders, is left out; so is what sub-agents were told.
    """
    yield f"# {' '.join(title.split())}\n"
    for message in messages:
        if message.agent_id is not None:
            continue
        if said := spoken(message):
            yield f"\n## You\n\n{said.strip()}\n"
        for block in message.blocks:
            value = block.value
            if message.role == "assistant" and isinstance(value, Text) and value.text.strip():
                yield f"\n## {message.model or 'The model'}\n\n{value.text.strip()}\n"
            elif isinstance(value, ToolUse):
                yield f"\n**{value.name}**\n\n{fenced(_arguments(value))}\n"
            elif isinstance(value, ToolResult):
                lines = value.text().splitlines()
                more = f"\n… {len(lines) - _RESULT_LINES:,} more lines" if len(lines) > _RESULT_LINES else ""
                yield "\n" + fenced("\n".join(lines[:_RESULT_LINES]) + more) + "\n"


def _arguments(use: ToolUse) -> str:
    return "\n".join(f"{name}: {value}" for name, value in use.input.items())


class _Writer:
    def __init__(self, session: str, cwd: str, version: str, branch: str) -> None:
        self._session = session
        self._common = {
            "userType": "external",
            "cwd": cwd,
            "sessionId": session,
            "version": version,
            "gitBranch": branch,
        }
        self._count = 0
        self._at = 0.0
        self._last: dict[str | None, str] = {}  # agent -> its last entry; None is the main conversation
        self._entries: dict[MessageId, list[str]] = {}
        self._calls: dict[str, str] = {}  # tool_use id -> the entry that holds it

    def message(self, message: Message) -> Iterator[bytes]:
        if message.role == "assistant":
            yield from self._assistant(message)
        elif message.content:
            yield self._user(message)

    def boundary(self, boundary: ExportedBoundary) -> Iterator[bytes]:
        logical = self._last.pop(None, None)
        summary = self._uuid(self._count + 2)  # that of the entry after this one
        told: ExportedLine = {"trigger": boundary.trigger, "preTokens": boundary.pre_tokens}
        if boundary.post_tokens is not None:
            told["postTokens"] = boundary.post_tokens
        kept = [uuid for message in boundary.kept for uuid in self._entries.get(message, ())]
        if kept:
            told["preservedSegment"] = {"headUuid": kept[0], "anchorUuid": summary, "tailUuid": kept[-1]}
            told["preservedMessages"] = {"anchorUuid": summary, "uuids": kept}
        said = {"subtype": "compact_boundary", "content": "Conversation compacted", "level": "info", "isMeta": False}
        yield self._entry("system", {**said, "logicalParentUuid": logical, "compactMetadata": told}, boundary.at, None)
        yield self._summary(content_of([text_block(boundary.summary)]), boundary.at)

    def _summary(self, content: Sequence[msgspec.Raw], at: float | None) -> bytes:
        body = {"role": "user", "content": list(content)}
        marks = {"isCompactSummary": True, "isVisibleInTranscriptOnly": True}
        return self._entry("user", {**marks, "message": body}, at, None)

    def _assistant(self, message: Message) -> Iterator[bytes]:
        """One entry for each block; together they are the response."""
        body: ExportedLine = {
            "id": message.response_id or f"msg_{self._uuid(self._count + 1).replace('-', '')}",
            "type": "message",
            "role": "assistant",
            "model": message.model or "unknown",
        }
        for block in message.blocks:
            told = {"stop_reason": message.stop_reason, "stop_sequence": None, "usage": _usage(message)}
            whole = {**body, "content": [msgspec.Raw(block.raw)], **told}
            line = self._entry("assistant", {"message": whole}, message.at, message.agent_id)
            if block.type == "tool_use":
                self._calls[str(getattr(block.value, "id", ""))] = self._last[message.agent_id]
            self._entries.setdefault(message.id, []).append(self._last[message.agent_id])
            yield line

    def _user(self, message: Message) -> bytes:
        if message.origin == "summary" and message.agent_id is None:
            return self._summary(message.content, message.at)
        told: ExportedLine = {"message": {"role": "user", "content": list(message.content)}}
        results = message.tool_results
        if results and results[0].tool_use_id in self._calls:
            told["sourceToolAssistantUUID"] = self._calls[results[0].tool_use_id]
        no = {message.refused_by(result.tool_use_id) for result in results if result.is_error}
        if len(no) == 1 and (by := no.pop()) is not None:  # an entry has one word for all that failed in it
            told["toolDenialKind"] = f"{by}-rejected"
        if results:  # that it is there says that nothing is to be told from the text of the results (SEC-1)
            refused = {one.call: one.by for one in message.refused}
            told["perdure"] = {"refused": refused, "answered": list(message.answered)}
        if message.origin in ("reminder", "restored", "system"):
            told["isMeta"] = True
        line = self._entry("user", told, message.at, message.agent_id)
        self._entries.setdefault(message.id, []).append(self._last[message.agent_id])
        return line

    def _entry(self, kind: str, told: ExportedLine, at: float | None, agent: str | None) -> bytes:
        self._count += 1
        uuid = self._uuid(self._count)
        entry: ExportedLine = {"parentUuid": self._last.get(agent), "isSidechain": agent is not None, **self._common}
        if agent is not None:
            entry["agentId"] = agent
        entry |= {"type": kind, **told, "uuid": uuid, "timestamp": self._time(at)}
        self._last[agent] = uuid
        return encode(entry) + b"\n"

    def _uuid(self, index: int) -> str:
        """A name-based UUID (version 5) of the session and a place in it."""
        # A session exports to the same ids in every version, so the seed keeps 0.1's name.
        seed = f"holdfast:{self._session}:{index}"  # 0.1's name
        digest = bytearray(hashlib.sha1(seed.encode()).digest()[:16])
        digest[6] = digest[6] & 0x0F | 0x50
        digest[8] = digest[8] & 0x3F | 0x80
        text = digest.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def _time(self, at: float | None) -> str:
        """ISO with a Z, to the millisecond; a message without a time has that of the one before it."""
        self._at = self._at if at is None else at
        try:
            moment = datetime.fromtimestamp(self._at, UTC)
        except (ValueError, OverflowError, OSError):
            moment = datetime.fromtimestamp(0.0, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _usage(message: Message) -> ExportedLine | None:
    told = message.usage
    if told is None:
        return None
    usage: ExportedLine = {
        "input_tokens": told.input_tokens,
        "cache_creation_input_tokens": told.cache_creation_input_tokens,
        "cache_read_input_tokens": told.cache_read_input_tokens,
        "output_tokens": told.output_tokens,
    }
    if hours := told.cache_creation_1h_tokens:
        rest = told.cache_creation_input_tokens - hours
        usage["cache_creation"] = {"ephemeral_5m_input_tokens": rest, "ephemeral_1h_input_tokens": hours}
    return usage
