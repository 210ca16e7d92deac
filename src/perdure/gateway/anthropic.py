"""The Messages API in front and behind (GW-1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from perdure.adapters.providers.anthropic import AnthropicReplyBuilder
from perdure.context.models import CacheTtl
from perdure.context.replies import Reply, WireProtocol
from perdure.context.state import PROVIDER_EDITED
from perdure.engine.tools import recall_definition
from perdure.errors import MalformedBlock
from perdure.gateway.answers import LEFT_OUT, MOST_BYTES, BodyReader, StreamReader, summed_usage
from perdure.gateway.recall import LINKED
from perdure.gateway.requests import (
    UNREADABLE,
    AnswerReader,
    CacheTtls,
    ClientRequest,
    ParsedBody,
    SaidMessage,
    Unmanageable,
    fields_of,
    is_call_of,
    list_of,
    scaled_count,
    unread_fields,
)
from perdure.transcript.blocks import Block, encode, text_block, unmarked
from perdure.transcript.history import DigestLimits, NotDigestible, digest
from perdure.transcript.messages import Message, WireFields
from perdure.transcript.records import Front

# What makes the server itself hold or change the history: only it knows what such a request means.
_SERVERS_OWN = ("thread", "compaction")
_NOT_HEAD = frozenset({"messages", "system", "tools", "cache_control"})  # breakpoints are ours, of which four may stand
_MARKED_MESSAGES = 4  # a client marks the end of its history, and where the last request ended
_MARK = b'"ephemeral"'  # in whatever asks for a breakpoint
_BREAKPOINT = re.compile(rb'(?:"cache_control"\s*:\s*|\A)(\{[^{}]*"ephemeral"[^{}]*\})')
_HOUR = re.compile(rb'"ttl"\s*:\s*"1h"')
_OUTPUT_CONFIG = b'"output_config"'
_INPUT_COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class _MessageFields(msgspec.Struct):
    role: str
    content: msgspec.Raw


_MESSAGE = msgspec.json.Decoder(_MessageFields)
_READ = frozenset(_MessageFields.__struct_fields__)


class _SystemMessage(msgspec.Struct):
    role: str
    output_config: dict[str, Any] = {}


_SYSTEM_MESSAGE = msgspec.json.Decoder(_SystemMessage)


class _ToolFields(msgspec.Struct):
    name: str = ""


_TOOL = msgspec.json.Decoder(_ToolFields)


class AnthropicProtocol:
    """`ClientProtocol` of the Messages API."""

    protocol: WireProtocol = "anthropic"
    array = "messages"
    key_header = "x-api-key"

    def read(self, body: bytes, taken: ParsedBody) -> ClientRequest:
        fields, messages = taken.fields, taken.messages
        for name in _SERVERS_OWN:
            if name in fields:
                raise Unmanageable(name)
        prefill = messages[-1] if messages and _read(messages[-1]).role == "assistant" else None
        history = messages if prefill is None else messages[:-1]
        if not history:
            raise Unmanageable("no_messages")
        return ClientRequest(body, fields, history, prefill, taken=taken)

    def digest(self, raw: bytes | msgspec.Raw, limits: DigestLimits) -> bytes:
        message = _read(raw)
        try:
            if bytes(memoryview(message.content)[:1]) == b"[":
                parts = list_of(message.content)
                if len(parts) > limits.blocks:
                    raise NotDigestible("too_many_blocks")
                blocks = [msgspec.json.decode(part) for part in parts]  # each by itself: one call holds up all others
            else:
                content = msgspec.json.decode(message.content)
                blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            return digest(message.role, blocks, limits)
        except (*UNREADABLE, AttributeError, TypeError):
            raise Unmanageable("malformed_message") from None

    def messages(self, raws: Sequence[msgspec.Raw]) -> list[Message]:
        return [_message(raw) for raw in raws]

    def front(self, incoming: ClientRequest) -> Front:
        system = bytes(incoming.fields.get("system", b"null"))
        try:
            text = None if system[:1] == b"[" else msgspec.json.decode(system)
            blocks = list_of(msgspec.Raw(system)) if system[:1] == b"[" else []
        except UNREADABLE:
            raise Unmanageable("malformed_system") from None
        if isinstance(text, str) and text.strip():
            blocks = [msgspec.Raw(text_block(text).raw)]
        return Front(model=incoming.model, system=_unmarked(blocks), tools=_unmarked(incoming.tools))

    def head(self, incoming: ClientRequest, most_tokens: int | None) -> dict[str, Any]:
        head: dict[str, Any] = {k: msgspec.Raw(bytes(v)) for k, v in incoming.fields.items() if k not in _NOT_HEAD}
        asked = incoming.value("max_tokens")
        if most_tokens is not None and isinstance(asked, int):
            head["max_tokens"] = min(asked, most_tokens)
        if (effort := _effort(incoming)) is not None:
            head["output_config"] = {**(incoming.value("output_config") or {}), "effort": effort}
        return head

    def answered(self, reply: Reply) -> list[SaidMessage]:
        return [("assistant", reply.blocks)]

    def cache_ttls(self, incoming: ClientRequest) -> CacheTtls:
        front = _longest(incoming.fields.get("tools"), incoming.fields.get("system"))
        return CacheTtls(front, _longest(incoming.fields.get("cache_control"), *incoming.history[-_MARKED_MESSAGES:]))

    def reader(
        self,
        incoming: ClientRequest,
        cap: int | None,
        *,
        is_stream: bool,
        most_bytes: int = MOST_BYTES,
        ours: str = "",
    ) -> AnswerReader:
        answer = _MessagesAnswer(cap, ours)
        hidden = answer if ours else None
        if not is_stream:
            return BodyReader(answer.usage, _reply_of, most_bytes, hidden)
        return StreamReader(answer.look, lambda data: b'"message_stop"' in data[:40], answer.reply, most_bytes, hidden)

    def tool_name(self, tool: bytes) -> str:
        return str(_TOOL.decode(tool).name)

    def recall_tool(self, name: str) -> bytes:
        return encode({**recall_definition(LINKED), "name": name})

    def sent_tool(self, name: str) -> bytes:
        return self.recall_tool(name)

    def is_full(self, tools: int) -> bool:
        return False

    def said(self, replies: Sequence[Reply], ours: str) -> list[SaidMessage]:
        shown = tuple(block for reply in replies for block in reply.blocks if not is_call_of(block, ours))
        return [("assistant", shown)] if shown else []

    def error_event(self, status: int, message: str) -> bytes:
        return b"event: error\ndata: " + self.error_body(status, message) + b"\n\n"

    def begins(self, data: bytes) -> bool:
        return True

    def error_body(self, status: int, message: str) -> bytes:
        kinds = {
            400: "invalid_request_error",
            401: "authentication_error",
            402: "billing_error",
            403: "permission_error",
        }
        kinds |= {404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 503: "overloaded_error"}
        return msgspec.json.encode(
            {"type": "error", "error": {"type": kinds.get(status, "api_error"), "message": f"perdure: {message}"}}
        )


def _longest(*raws: msgspec.Raw | None) -> CacheTtl | None:
    """The longest time that a breakpoint in some JSON asks for."""
    written = (bytes(raw) for raw in raws if raw is not None)
    marked = (data for data in written if _MARK in data)  # in a long text, far sooner than the pattern
    asked = [found for data in marked for found in _BREAKPOINT.findall(data)]
    if not asked:
        return None
    return "1h" if any(_HOUR.search(one) for one in asked) else "5m"


def _effort(incoming: ClientRequest) -> Any | None:
    """The effort that holds by the last system message that sets one; None where none does.

    A view says it for the whole request: the message may have left with what was compacted, and one that says nothing
    else has no place in it.
    """
    if incoming.body.count(_OUTPUT_CONFIG) == ("output_config" in incoming.fields):
        return None
    for raw in reversed(incoming.history):
        if _OUTPUT_CONFIG in bytes(raw):
            with suppress(*UNREADABLE):
                said = _SYSTEM_MESSAGE.decode(raw)
                if said.role == "system" and "effort" in said.output_config:
                    return said.output_config["effort"]
    return None


def _read(raw: bytes | msgspec.Raw) -> _MessageFields:
    try:
        return _MESSAGE.decode(raw)
    except UNREADABLE:
        raise Unmanageable("malformed_message") from None


def _message(raw: msgspec.Raw) -> Message:
    said = _read(raw)
    try:
        content = bytes(said.content)
        is_text = content.lstrip()[:1] == b'"'
        parts = [] if is_text else list_of(said.content)
        blocks = [text_block(msgspec.json.decode(content))] if is_text else [Block(bytes(part)) for part in parts]
        fields = unread_fields(fields_of(bytes(raw)), _READ)
        wire = WireFields(protocol="anthropic", fields=fields) if fields else None
        if said.role in ("user", "assistant"):
            note = PROVIDER_EDITED if any(block.type == "compaction" for block in blocks) else None
            return Message.of(said.role, blocks, note=note, wire=wire).check()  # type: ignore[arg-type]
        if said.role == "system":
            wire = WireFields(protocol="anthropic", role="system", fields=fields)
            return Message.of("user", blocks, origin="reminder", wire=wire)
    except (MalformedBlock, *UNREADABLE):
        raise Unmanageable("malformed_message") from None
    raise Unmanageable("unknown_role")


def _unmarked(parts: Sequence[msgspec.Raw]) -> tuple[msgspec.Raw, ...]:
    """The parts of a front without breakpoints; bytes of their own, so that the body can go."""
    return tuple(msgspec.Raw(unmarked(bytes(part))) for part in parts)


# --- answers ----------------------------------------------------------------------------------------------------------


class _UsageMeter:
    """Usage as a client may see it: at most `cap` tokens of prompt, all counts of input in one proportion (GW-2)."""

    def __init__(self, cap: int | None) -> None:
        self._cap, self._share = cap, 1.0

    def read(self, usage: Any) -> dict[str, Any] | None:
        """The usage to show instead; None when it may stay as it is."""
        if not isinstance(usage, dict) or self._cap is None:
            return None
        total = sum(int(usage.get(name) or 0) for name in _INPUT_COUNTS)
        if total > self._cap:
            self._share = self._cap / total
        return _scaled_usage(usage, self._share) if self._share < 1.0 and total else None


def _scaled_usage(usage: dict[str, Any], share: float) -> dict[str, Any]:
    shown = {**usage, **{name: scaled_count(usage[name], share) for name in _INPUT_COUNTS if usage.get(name)}}
    written = usage.get("cache_creation")
    if isinstance(written, dict):
        shown["cache_creation"] = {k: scaled_count(v, share) if isinstance(v, int) else v for k, v in written.items()}
    steps = usage.get("iterations")
    if isinstance(steps, list):
        shown["iterations"] = [_scaled_usage(step, share) if isinstance(step, dict) else step for step in steps]
    return shown


class _MessagesAnswer:
    """An answer on its way. Calls of the tool `ours` are left out; where they are answered here, the answers that
    follow each other make one: one beginning, blocks counted through, one end, and the usage of all (GW-8)."""

    def __init__(self, cap: int | None, ours: str) -> None:
        self.is_ending = False
        self._ours, self._meter = ours, _UsageMeter(cap)
        self._builder = AnthropicReplyBuilder()
        self._places: dict[int, int | None] = {}  # of this answer's blocks, for the client; None: left out
        self._before = 0  # blocks shown of the answers before
        self._has_call = False  # of the client's own, in this answer
        self._used: dict[str, Any] = {}  # by this answer …
        self._paid: dict[str, Any] = {}  # … and by those before
        self._is_later = False  # there were some
        self._first: dict[str, Any] | None = None  # of the bodies, as far as they are shown

    @property
    def is_patched(self) -> bool:
        return self._is_later or None in self._places.values()

    def look(self, event: dict[str, Any]) -> dict[str, Any] | None:
        for _ in self._builder.feed(event):
            pass
        kind = event.get("type")
        if kind == "message_start":
            self._used = event["message"].get("usage") or {}
            if self._is_later:
                return LEFT_OUT
            shown = self._meter.read(event["message"].get("usage"))
            return {**event, "message": {**event["message"], "usage": shown}} if shown else None
        if kind == "message_delta":
            return self._end(event)
        return self._block(event) if self._ours and "index" in event else None

    def _block(self, event: dict[str, Any]) -> dict[str, Any] | None:
        index = int(event["index"])
        if event["type"] == "content_block_start":
            block = event["content_block"]
            is_ours = block.get("type") == "tool_use" and block.get("name") == self._ours
            shown = self._before + sum(place is not None for place in self._places.values())
            self._places[index] = None if is_ours else shown
            self._has_call = self._has_call or (not is_ours and block.get("type") == "tool_use")
        place = self._places[index]
        if place is None:
            return LEFT_OUT
        return None if place == index else {**event, "index": place}

    def _end(self, event: dict[str, Any]) -> dict[str, Any] | None:
        usage, delta = event.get("usage"), event.get("delta") or {}
        if isinstance(usage, dict):
            self._used = {**self._used, **{name: value for name, value in usage.items() if value is not None}}
        self.is_ending = self.is_patched
        changes: dict[str, Any] = {}
        shown = self.usage(self._used if self._is_later else usage)
        if shown is not None:
            changes["usage"] = shown
        if self.is_patched and not self._has_call and delta.get("stop_reason") == "tool_use":
            changes["delta"] = {**delta, "stop_reason": "end_turn"}
        return {**event, **changes} if changes else None

    def usage(self, usage: Any) -> dict[str, Any] | None:
        """The usage to show instead of this answer's; None when it may stay as it is."""
        total = summed_usage(self._paid, usage) if isinstance(usage, dict) else usage
        return self._meter.read(total) or (total if self._is_later else None)

    def shown(self, body: dict[str, Any]) -> dict[str, Any] | None:
        content, self._used = body["content"], body.get("usage") or {}
        kept = [block for block in content if block.get("type") != "tool_use" or block.get("name") != self._ours]
        if len(kept) == len(content) and self._first is None:
            return None
        first = self._first or {"id": body.get("id"), "content": []}
        changes = {"id": first["id"], "content": [*first["content"], *kept]}
        if body.get("stop_reason") == "tool_use" and not any(block.get("type") == "tool_use" for block in kept):
            changes["stop_reason"] = "end_turn"
        self._first = changes
        return {**changes}

    def reply(self) -> Reply:
        return self._builder.reply()

    def go_on(self) -> None:
        self._paid, self._used = summed_usage(self._paid, self._used), {}
        self._before += sum(place is not None for place in self._places.values())
        self._builder, self._places, self._has_call = AnthropicReplyBuilder(), {}, False
        self.is_ending, self._is_later = False, True


def _reply_of(message: Any) -> Reply:
    builder = AnthropicReplyBuilder()
    for event in _as_events(message):
        for _ in builder.feed(event):
            pass
    return builder.reply()


def _as_events(message: dict[str, Any]) -> list[dict[str, Any]]:
    """A whole answer as the events that would have brought it."""
    head = {name: value for name, value in message.items() if name != "content"}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": head}]
    for index, block in enumerate(message["content"]):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": message.get("stop_reason")}
    last = {"type": "message_delta", "delta": delta, "context_management": message.get("context_management")}
    return [*events, last, {"type": "message_stop"}]
