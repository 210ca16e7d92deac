"""Chat Completions in front and behind (GW-1): messages in our words, and answers read along."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from perdure.adapters.providers.openai import OpenAIReplyBuilder
from perdure.context.replies import Reply, WireProtocol
from perdure.errors import MalformedBlock
from perdure.gateway.answers import MOST_BYTES, BodyReader, StreamReader
from perdure.gateway.anthropic import REMINDER
from perdure.gateway.requests import (
    UNREADABLE,
    AnswerReader,
    ClientRequest,
    DigestLimits,
    ParsedBody,
    SaidMessage,
    Unmanageable,
    digest,
    list_of,
    scaled_count,
)
from perdure.transcript.blocks import Block, block_of, sendable_id, text_block
from perdure.transcript.messages import Message
from perdure.transcript.plain import image_of
from perdure.transcript.records import Front

Data = dict[str, Any]
_NOT_HEAD = frozenset({"messages", "tools"})
_LIMITS = ("max_completion_tokens", "max_tokens")
_SYSTEM = ("system", "developer")
_WHOLE_PARTS = ("file", "input_audio")  # parts that only this protocol knows; they stay what they are


class OpenAIProtocol:
    """`ClientProtocol` of Chat Completions. System messages before everything else are the front; later ones are
    reminders."""

    protocol: WireProtocol = "openai"
    array = "messages"

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

    def digest(self, raw: bytes, limits: DigestLimits) -> bytes:
        message = _message(raw)
        return digest(message.role, [msgspec.json.decode(block.raw) for block in message.blocks], limits)

    def messages(self, raws: Sequence[msgspec.Raw]) -> list[Message]:
        return [_message(bytes(raw)) for raw in raws]

    def front(self, incoming: ClientRequest) -> Front:
        system: list[msgspec.Raw] = []
        for raw in incoming.lead:
            fields = _fields(bytes(raw))
            try:
                system += [msgspec.Raw(block.raw) for block in _parts(fields.get("content")) if block.type == "text"]
            except (MalformedBlock, *UNREADABLE, AttributeError, TypeError, KeyError):
                raise Unmanageable("malformed_message") from None
        tools = incoming.fields.get("tools")
        raws = list_of(tools) if tools is not None and bytes(tools) != b"null" else []
        return Front(model=incoming.model, system=tuple(system), tools=tuple(msgspec.Raw(bytes(raw)) for raw in raws))

    def head(self, incoming: ClientRequest, most_tokens: int | None) -> dict[str, Any]:
        head: dict[str, Any] = {k: msgspec.Raw(bytes(v)) for k, v in incoming.fields.items() if k not in _NOT_HEAD}
        for name in _LIMITS:
            asked = incoming.value(name)
            if most_tokens is not None and isinstance(asked, int):
                head[name] = min(asked, most_tokens)
        return head

    def answered(self, reply: Reply) -> list[SaidMessage]:
        return [("assistant", reply.blocks)]

    def reader(
        self, incoming: ClientRequest, cap: int | None, *, is_stream: bool, most_bytes: int = MOST_BYTES
    ) -> AnswerReader:
        if not is_stream:
            return BodyReader(partial(capped_usage, cap), partial(_reply_of, incoming.model), most_bytes)
        builder = OpenAIReplyBuilder(incoming.model)
        look, is_end = partial(_look, builder, cap), lambda data: data == b"[DONE]"
        return StreamReader(look, is_end, partial(_finished, builder), most_bytes)

    def error_body(self, status: int, message: str) -> bytes:
        return openai_error_body(status, message)


def openai_error_body(status: int, message: str) -> bytes:
    """An error of the gateway's own as OpenAI's servers say one."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return msgspec.json.encode({"error": {"message": f"perdure: {message}", "type": kind, "param": None, "code": None}})


def _fields(raw: bytes) -> Data:
    try:
        value = msgspec.json.decode(raw)
    except UNREADABLE:
        raise Unmanageable("malformed_message") from None
    if not isinstance(value, dict):
        raise Unmanageable("malformed_message")
    return value


class _RoleField(msgspec.Struct):
    role: str = ""


_ROLE = msgspec.json.Decoder(_RoleField)


def _role(raw: msgspec.Raw) -> str:
    try:
        return _ROLE.decode(raw).role
    except UNREADABLE:
        raise Unmanageable("malformed_message") from None


def _message(raw: bytes) -> Message:
    fields = _fields(raw)
    role = fields.get("role")
    try:
        if role == "user":
            return Message.of("user", list(_parts(fields.get("content")))).check()
        if role == "tool":
            return Message.of("user", [_result(fields)]).check()
        if role == "assistant":
            return Message.of("assistant", [*_parts(fields.get("content")), *_calls(fields)]).check()
        if role in _SYSTEM:
            text = "\n\n".join(str(getattr(block.value, "text", "")) for block in _parts(fields.get("content")))
            return Message.of("user", [text_block(REMINDER % text)], origin="reminder")
    except (MalformedBlock, *UNREADABLE, AttributeError, TypeError, KeyError):
        raise Unmanageable("malformed_message") from None
    raise Unmanageable("unknown_role")


def _parts(content: Any) -> Iterator[Block]:
    if isinstance(content, str):
        if content:
            yield text_block(content)
        return
    for part in content or ():
        kind = part["type"]
        if kind == "text":
            yield text_block(part["text"])
        elif kind == "refusal":
            yield text_block(part["refusal"])
        elif kind == "image_url":
            yield image_of(part["image_url"]["url"])
        elif kind in _WHOLE_PARTS:
            yield block_of(part)
        else:
            raise Unmanageable("unknown_part")


def _result(fields: Data) -> Block:
    content = fields.get("content")
    if not isinstance(content, str):
        content = "".join(str(part["text"]) for part in content or ())
    return block_of({"type": "tool_result", "tool_use_id": sendable_id(fields["tool_call_id"]), "content": content})


def _calls(fields: Data) -> Iterator[Block]:
    if fields.get("function_call"):
        raise Unmanageable("functions")
    for call in fields.get("tool_calls") or ():
        if "function" not in call:
            raise Unmanageable("custom_tool_call")
        text = call["function"].get("arguments") or "{}"
        use = {"type": "tool_use", "id": sendable_id(call["id"]), "name": call["function"]["name"]}
        yield block_of({**use, "input": _arguments(text)})


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


def _look(builder: OpenAIReplyBuilder, cap: int | None, chunk: Data) -> Data | None:
    if chunk.get("error"):
        raise ValueError("an error in the stream")
    for _ in builder.feed(chunk):
        pass
    shown = capped_usage(cap, chunk.get("usage"))
    return {**chunk, "usage": shown} if shown else None


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
