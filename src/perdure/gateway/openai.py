"""Chat Completions in front and behind (GW-1): messages in our words, and answers read along."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from perdure.adapters.providers.openai import OpenAIReplyBuilder
from perdure.context.replies import Reply, ToolInputDelta, WireProtocol
from perdure.context.request import INNER
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
from perdure.transcript.blocks import BLOCK_TYPES, Block, Text, block_of, encode, one_line, sendable_id, text_block
from perdure.transcript.history import DigestLimits, message_digest
from perdure.transcript.messages import Message, WireFields
from perdure.transcript.plain import image_of
from perdure.transcript.records import Front

Data = dict[str, Any]
RawFields = dict[str, msgspec.Raw]
_NOT_HEAD = frozenset({"messages", "tools"})
_LIMITS = ("max_completion_tokens", "max_tokens")
_SYSTEM = ("system", "developer")
MOST_TOOLS = 128  # that OpenAI takes
_REPEATED = ("id", "created")  # in all chunks of an answer
_JOINT = "\n\n"  # between the texts of answers that the client sees as one
# What becomes of a message's fields, and of those of its parts, in a block; all others are kept as they came.
_READ = frozenset({"role", "content", "tool_calls", "tool_call_id"})
_READ_PARTS = {
    "text": frozenset({"type", "text"}),
    "refusal": frozenset({"type", "refusal"}),
    "image_url": frozenset({"type", "image_url"}),
    "function": frozenset({"id", "type", "function", "index"}),
}
_READ_INNER = frozenset({"name", "arguments", "url"})


class OpenAIProtocol:
    """`ClientProtocol` of Chat Completions. System messages before everything else are the front; later ones are
    reminders."""

    protocol: WireProtocol = "openai"
    array = "messages"
    key_header = "authorization"

    def read(self, body: bytes, taken: ParsedBody) -> ClientRequest:
        fields, messages = taken.fields, taken.messages
        if "functions" in fields:
            raise Unmanageable("functions")
        if int(ClientRequest(body, fields, ()).value("n") or 1) > 1:
            raise Unmanageable("several_answers")
        start = next((n for n, raw in enumerate(messages) if _role(raw) not in _SYSTEM), len(messages))
        prefill = messages[-1] if messages and _role(messages[-1]) == "assistant" else None
        history = messages[start:] if prefill is None else messages[start:-1]
        if not history:
            raise Unmanageable("no_messages")
        return ClientRequest(body, fields, history, prefill, messages[:start], taken)

    def digest(self, raw: bytes | msgspec.Raw, limits: DigestLimits) -> bytes:
        return message_digest(_message(raw), limits)

    def messages(self, raws: Sequence[msgspec.Raw]) -> list[Message]:
        return [_message(raw) for raw in raws]

    def front(self, incoming: ClientRequest) -> Front:
        system: list[msgspec.Raw] = []
        for raw in incoming.lead:
            content = _raw_fields(bytes(raw)).get("content")
            try:
                system += [msgspec.Raw(block.raw) for block in _parts(content) if block.type == "text"]
            except (MalformedBlock, *UNREADABLE, AttributeError, TypeError, KeyError):
                raise Unmanageable("malformed_message") from None
        tools = tuple(msgspec.Raw(bytes(raw)) for raw in incoming.tools)
        return Front(model=incoming.model, system=tuple(system), tools=tools)

    def head(self, incoming: ClientRequest, most_tokens: int | None) -> dict[str, Any]:
        head: dict[str, Any] = {k: msgspec.Raw(bytes(v)) for k, v in incoming.fields.items() if k not in _NOT_HEAD}
        head["messages"] = [msgspec.Raw(bytes(raw)) for raw in incoming.lead]
        for name in _LIMITS:
            asked = incoming.value(name)
            if most_tokens is not None and isinstance(asked, int):
                head[name] = min(asked, most_tokens)
        return head

    def answered(self, reply: Reply) -> list[SaidMessage]:
        return [("assistant", reply.blocks)]

    def cache_ttls(self, incoming: ClientRequest) -> CacheTtls:
        return CacheTtls()  # what is said of it stands in fields and parts, and goes up with them

    def reader(
        self,
        incoming: ClientRequest,
        cap: int | None,
        *,
        is_stream: bool,
        most_bytes: int = MOST_BYTES,
        ours: str = "",
    ) -> AnswerReader:
        answer = _ChatAnswer(incoming.model, cap, ours)
        hidden = answer if ours else None
        if not is_stream:
            return BodyReader(answer.usage, partial(_reply_of, incoming.model), most_bytes, hidden)
        return StreamReader(answer.look, lambda data: data == b"[DONE]", answer.reply, most_bytes, hidden)

    def tool_name(self, tool: bytes) -> str:
        return openai_tool_name(tool)

    def recall_tool(self, name: str) -> bytes:
        return encode({"type": "function", "function": recall_function(name)})

    def sent_tool(self, name: str) -> bytes:
        return self.recall_tool(name)

    def is_full(self, tools: int) -> bool:
        return tools >= MOST_TOOLS

    def said(self, replies: Sequence[Reply], ours: str) -> list[SaidMessage]:
        blocks = [block for reply in replies for block in reply.blocks if not is_call_of(block, ours)]
        texts = [block.value.text for block in blocks if isinstance(block.value, Text)]
        rest = [block for block in blocks if block.type != "text"]
        shown = (*([text_block(_JOINT.join(texts))] if texts else ()), *rest)
        return [("assistant", shown)] if shown else []

    def error_event(self, status: int, message: str) -> bytes:
        return b"data: " + self.error_body(status, message) + b"\n\n"

    def begins(self, data: bytes) -> bool:
        return True

    def error_body(self, status: int, message: str) -> bytes:
        return openai_error_body(status, message)


def openai_tool_name(tool: bytes) -> str:
    """The name of a tool, in whatever it stands; empty for one that the server runs itself."""
    fields = msgspec.json.decode(tool)
    inner = fields.get("function", fields.get("custom", fields))
    return str(inner.get("name") or "") if isinstance(inner, dict) else ""


def recall_function(name: str) -> Data:
    """Our recall tool as a function."""
    about = recall_definition(LINKED)
    return {"name": name, "parameters": about["input_schema"], "description": about["description"]}


def openai_error_body(status: int, message: str) -> bytes:
    """An error of the gateway's own as OpenAI's servers say one."""
    kind, code = "invalid_request_error" if status < 500 else "server_error", None
    if status == 429:
        kind = code = "rate_limit_exceeded"
    return msgspec.json.encode({"error": {"message": f"perdure: {message}", "type": kind, "param": None, "code": code}})


class _RoleField(msgspec.Struct):
    role: str = ""


_ROLE = msgspec.json.Decoder(_RoleField)


def _role(raw: msgspec.Raw) -> str:
    try:
        return _ROLE.decode(raw).role
    except UNREADABLE:
        raise Unmanageable("malformed_message") from None


def _message(raw: bytes | msgspec.Raw) -> Message:
    fields = _raw_fields(raw)
    try:
        role = _value(fields, "role")
        wire = _wire(fields)
        if role == "user":
            return Message.of("user", list(_parts(fields.get("content"))), wire=wire).check()
        if role == "tool":
            return Message.of("user", [_result(fields)], wire=wire).check()
        if role == "assistant":
            return Message.of("assistant", [*_parts(fields.get("content")), *_calls(fields)], wire=wire).check()
        if role in _SYSTEM:
            wire = msgspec.structs.replace(wire or WireFields(protocol="openai"), role=role)
            return Message.of("user", list(_parts(fields.get("content"))), origin="reminder", wire=wire)
    except (MalformedBlock, *UNREADABLE, AttributeError, TypeError, KeyError):
        raise Unmanageable("malformed_message") from None
    raise Unmanageable("unknown_role")


def _raw_fields(raw: bytes | msgspec.Raw) -> RawFields:
    try:
        return fields_of(raw)
    except Unmanageable:
        raise Unmanageable("malformed_message") from None


def _value(fields: RawFields, name: str) -> Any:
    return msgspec.json.decode(fields[name]) if name in fields else None


def _wire(fields: RawFields) -> WireFields | None:
    """What a message says that blocks have no place for; None when that is nothing."""
    more, parts = unread_fields(fields, _READ), dict[str, msgspec.Raw]()
    content, calls = bytes(fields.get("content", b"")).strip(), _listed(fields, "tool_calls")
    if content == b'""' and calls:
        more["content"] = msgspec.Raw(content)  # to some servers null isn't the same
    is_list = content.startswith(b"[")
    for number, part in enumerate(_listed(fields, "content") if is_list else ()):
        if extra := _unread(part):
            parts[str(number)] = extra
    for call in calls:
        if extra := _unread(call):
            parts[sendable_id(_value(call, "id"))] = extra
    if not (more or parts or is_list):
        return None
    return WireFields(protocol="openai", fields=more, parts=parts, is_list=is_list)


def _listed(fields: RawFields, name: str) -> list[RawFields]:
    raw = fields.get(name)
    return [] if raw is None or bytes(raw) == b"null" else [_raw_fields(bytes(one)) for one in list_of(raw)]


def _unread(part: RawFields) -> msgspec.Raw | None:
    """What a content part or a call says that its block doesn't hold; None when that is nothing."""
    kind = _value(part, "type") or "function"
    if kind not in _READ_PARTS:
        return None  # it is kept whole
    extra = unread_fields(part, _READ_PARTS[kind])
    if "id" in part and sendable_id(call := _value(part, "id")) != call:
        extra["id"] = msgspec.Raw(bytes(part["id"]))
    if kind in INNER and (inner := unread_fields(_raw_fields(bytes(part[kind])), _READ_INNER)):
        extra[kind] = msgspec.Raw(encode(inner))
    return msgspec.Raw(encode(extra)) if extra else None


def _parts(content: msgspec.Raw | None) -> Iterator[Block]:
    if content is None or bytes(content)[:1] != b"[":
        if text := None if content is None else msgspec.json.decode(content, type=str | None):
            yield text_block(text)
        return
    for raw in list_of(content):
        part = msgspec.json.decode(raw)
        kind = part["type"]
        if kind == "text":
            yield text_block(part["text"])
        elif kind == "refusal":
            yield text_block(part["refusal"])
        elif kind == "image_url":
            yield image_of(part["image_url"]["url"])
        elif kind in BLOCK_TYPES:
            raise Unmanageable("unknown_part")  # it would mean something else here
        else:  # only its server knows it; it stays what it is
            yield Block(one_line(bytes(raw)))


def _result(fields: RawFields) -> Block:
    content = fields.get("content")
    said: Any = [msgspec.Raw(block.raw) for block in _parts(content)]
    if content is None or bytes(content)[:1] != b"[":
        said = _value(fields, "content") or ""
    call = sendable_id(_value(fields, "tool_call_id"))
    return block_of({"type": "tool_result", "tool_use_id": call, "content": said})


def _calls(fields: RawFields) -> Iterator[Block]:
    if _value(fields, "function_call"):
        raise Unmanageable("functions")
    for raw in _listed(fields, "tool_calls"):
        if "function" not in raw:
            raise Unmanageable("custom_tool_call")
        function = _value(raw, "function")
        use = {"type": "tool_use", "id": sendable_id(_value(raw, "id")), "name": function["name"]}
        yield block_of({**use, "input": _arguments(function.get("arguments") or "{}")})


def _arguments(text: str) -> msgspec.Raw | dict[str, str]:
    """As `openai_chunks` has it: the object as it was written, anything else under `_raw`."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return {"_raw": text}
    return msgspec.Raw(text.encode()) if isinstance(value, dict) else {"_raw": text}


# --- answers ----------------------------------------------------------------------------------------------------------


def capped_usage(
    cap: int | None, usage: Any, prompt_name: str = "prompt_tokens", output_name: str = "completion_tokens"
) -> Data | None:
    """Usage with at most `cap` tokens of prompt; None when it may stay as it is (GW-2)."""
    prompt = int(usage.get(prompt_name) or 0) if isinstance(usage, dict) else 0
    if cap is None or prompt <= cap:
        return None
    share = cap / prompt
    shown = {**usage, prompt_name: cap, "total_tokens": cap + int(usage.get(output_name) or 0)}
    details = usage.get(f"{prompt_name}_details")
    if isinstance(details, dict):
        shown[f"{prompt_name}_details"] = {
            k: scaled_count(v, share) if isinstance(v, int) else v for k, v in details.items()
        }
    return shown


class _ChatAnswer:
    """An answer on its way. Calls of the tool `ours` are left out; where they are answered here, the answers that
    follow each other make one: one id, one text, calls counted through, one end, and the usage of all (GW-8)."""

    def __init__(self, model: str, cap: int | None, ours: str) -> None:
        self.is_ending = False
        self._model, self._cap, self._ours = model, cap, ours
        self._builder = OpenAIReplyBuilder(model)
        self._named: dict[str, Any] = {}  # what all chunks of an answer repeat, as the first answer had it
        self._places: dict[int, int | None] = {}  # of this answer's calls, for the client; None: left out
        self._unnamed: dict[int, list[Data]] = {}  # pieces of calls whose name hasn't come
        self._has_text = False  # of the answers before: what comes now begins a paragraph
        self._used: Data = {}  # by this answer …
        self._paid: Data = {}  # … and by those before
        self._is_later = False  # there were some
        self._texts: list[str] = []  # of the bodies

    @property
    def is_patched(self) -> bool:
        return self._is_later or None in self._places.values()

    def look(self, chunk: Data) -> Data | None:
        if chunk.get("error"):
            if self.is_patched:
                return None
            raise ValueError("an error in the stream")
        calls = [delta for delta in self._builder.feed(chunk) if isinstance(delta, ToolInputDelta)]
        changes: Data = {}
        if isinstance(chunk.get("usage"), dict):
            self._used = chunk["usage"]
            if (shown := self.usage(chunk["usage"])) is not None:
                changes["usage"] = shown
        if self._ours:
            is_empty = self._choices(chunk, calls, changes)
            if is_empty and not chunk.get("usage"):
                return LEFT_OUT
        return {**chunk, **changes} if changes else None

    def _choices(self, chunk: Data, calls: list[ToolInputDelta], changes: Data) -> bool:
        """Enter in `changes` what a chunk shows otherwise; whether it then says nothing any more."""
        if not self._named:
            self._named = {name: chunk[name] for name in _REPEATED if name in chunk}
        elif self._is_later:
            changes.update(self._named)
        shown, is_empty = [], False
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            kept = self._delta(delta, calls) if choice.get("index") in (None, 0) else delta
            finish = choice.get("finish_reason")
            if finish:
                self.is_ending = self.is_patched
                finish = self._finish(finish)
            is_empty = kept is not delta and not finish and not any(kept.values())
            shown.append({**choice, "delta": kept, "finish_reason": finish})
        if shown != (chunk.get("choices") or []):
            changes["choices"] = shown
        return is_empty

    def _delta(self, delta: Data, calls: list[ToolInputDelta]) -> Data:
        kept = dict(delta)
        if self._is_later:
            kept.pop("role", None)  # clients join the texts of a field
            if kept.get("content") and self._has_text:
                kept["content"], self._has_text = _JOINT + kept["content"], False
        if calls:
            pieces = [piece for n, piece in enumerate(delta["tool_calls"]) for piece in self._piece(piece, calls[n])]
            kept.pop("tool_calls")
            if pieces:
                kept["tool_calls"] = pieces
        return delta if kept == delta else kept

    def _piece(self, piece: Data, call: ToolInputDelta) -> list[Data]:
        """The pieces of a call that the client is to see now that this one came."""
        index = call.index - self._builder.first_call
        if not call.name:
            self._unnamed.setdefault(index, []).append(piece)
            return []
        if index not in self._places:
            before = sum(place is not None for place in self._places.values())
            self._places[index] = None if call.name == self._ours else before
        place = self._places[index]
        pieces = [*self._unnamed.pop(index, ()), piece]
        if place is None:
            return []
        return pieces if place == index else [{**one, "index": place} for one in pieces]

    def _finish(self, reason: str) -> str:
        is_over = self.is_patched and not any(place is not None for place in self._places.values())
        return "stop" if is_over and reason == "tool_calls" else reason

    def usage(self, usage: Any) -> Data | None:
        """The usage to show instead of this answer's; None when it may stay as it is."""
        total = summed_usage(self._paid, usage) if isinstance(usage, dict) else usage
        return capped_usage(self._cap, total) or (total if self._is_later else None)

    def shown(self, body: Data) -> Data | None:
        choice, self._used = body["choices"][0], body.get("usage") or {}
        message = choice["message"]
        calls = message.get("tool_calls") or []
        kept = [call for call in calls if (call.get("function") or {}).get("name") != self._ours]
        self._texts += [text for text in (message.get("content"),) if text]
        if len(kept) == len(calls) and not self._is_later:
            self._named = {name: body[name] for name in _REPEATED if name in body}
            return None
        self._named = self._named or {name: body[name] for name in _REPEATED if name in body}
        told = {name: value for name, value in message.items() if name != "tool_calls"}
        told["content"] = _JOINT.join(self._texts) if self._texts or not kept else message.get("content")
        if kept:
            told["tool_calls"] = kept
        finish = "stop" if choice.get("finish_reason") == "tool_calls" and not kept else choice.get("finish_reason")
        return {**self._named, "choices": [{**choice, "message": told, "finish_reason": finish}]}

    def reply(self) -> Reply:
        return _finished(self._builder)

    def go_on(self) -> None:
        self._has_text = self._has_text or self._builder.has_text
        self._paid, self._used = summed_usage(self._paid, self._used), {}
        self._builder, self._places, self._unnamed = OpenAIReplyBuilder(self._model), {}, {}
        self.is_ending, self._is_later = False, True


def _reply_of(model: str, completion: Any) -> Reply:
    builder = OpenAIReplyBuilder(model)
    for _ in builder.feed(completion):
        pass
    return _finished(builder)


def _finished(builder: OpenAIReplyBuilder) -> Reply:
    """The last of what finishing gives."""
    *_, reply = builder.finish()
    assert isinstance(reply, Reply)
    return reply
