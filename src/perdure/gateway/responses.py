"""The Responses API in front and behind (GW-6): items in our words, and answers read along.

A message of the history is an item with the reasoning in front of it, as a piece of the body (ADR 0045).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec

from perdure.adapters.providers.responses import ResponseBuilder, reply_of_response
from perdure.context.replies import Reply, WireProtocol
from perdure.context.request import NO_TEXT
from perdure.errors import MalformedBlock
from perdure.gateway.answers import MOST_BYTES, BodyReader, StreamReader
from perdure.gateway.compactions import SEALED
from perdure.gateway.openai import capped_usage, openai_error_body
from perdure.gateway.requests import (
    UNREADABLE,
    AnswerReader,
    CacheTtls,
    ClientRequest,
    DigestLimits,
    MessageSlices,
    ParsedBody,
    SaidMessage,
    Unmanageable,
    digest,
    fields_of,
    list_of,
)
from perdure.transcript.blocks import Text
from perdure.transcript.messages import Message
from perdure.transcript.records import Front
from perdure.transcript.response_items import (
    KEPT_ITEM,
    REASONING,
    answer_messages,
    is_of_front,
    is_of_model,
    item_kind,
    message_of_items,
    tool_of_response,
)

Data = dict[str, Any]
# What only the upstream can answer: it keeps the history itself, fills a template, or works on after its answer.
_SERVERS_OWN = ("conversation", "prompt")
# The view is kept small here, so that nothing of it has to go there.
_NOT_HEAD = frozenset({"input", "tools", "instructions", "context_management", "previous_response_id"})
TRIGGER: Final = b'"compaction_trigger"'
_SEALED = SEALED.encode()
_CONTINUES = "previous_response_id"
_ENCRYPTED = "reasoning.encrypted_content"
_EVENT_END = re.compile(rb"\r?\n\r?\n")
_BEFORE = re.compile(rb'"type" ?: ?"response\.(?:created|queued|in_progress)"')
_END = re.compile(rb'"type" ?: ?"response\.(?:completed|incomplete|failed)"')


class ResponsesProtocol:
    """`ClientProtocol` of the Responses API. `instructions`, and what developer and system say before everything else,
    are the front."""

    protocol: WireProtocol = "responses"
    array = "input"

    def read(self, body: bytes, taken: ParsedBody) -> ClientRequest:
        whole = ClientRequest(body, taken.fields, ())
        for name in _SERVERS_OWN:
            if whole.value(name) is not None:
                raise Unmanageable(name)
        if whole.value("background") is True:
            raise Unmanageable("background")
        continues = str(whole.value("previous_response_id") or "")
        said = taken.fields.get("input")
        if said is not None and bytes(memoryview(said)[:1]) == b'"':
            only = msgspec.Raw(msgspec.json.encode({"role": "user", "content": said}))
            return replace(whole, history=[only], continues=continues)
        taken = _with_reasoning(taken)
        messages, end = taken.messages, len(taken.messages)
        wants_compaction = bool(end) and _last_kind(messages[-1])[0] == "compaction_trigger"
        end -= wants_compaction
        start = first = next((n for n in range(end) if not is_of_front(*_last_kind(messages[n]))), end)
        if continues:
            start = first = 0  # what the developer said first was said before
        elif _SEALED in body:
            continues, start = next(_sealed_places(messages, end), ("", start))
        if start == end and not (continues and (wants_compaction or start)):
            raise Unmanageable("no_messages")
        return replace(
            whole,
            history=messages[start:end],
            lead=messages[: min(first, start)],
            taken=taken,
            skipped=start - min(first, start),
            continues=continues,
            wants_compaction=wants_compaction,
        )

    def digest(self, raw: bytes, limits: DigestLimits) -> bytes:
        message = _message(raw)
        speaker = "developer" if message.origin == "system" else message.role
        return digest(speaker, [msgspec.json.decode(block.raw) for block in message.blocks], limits)

    def messages(self, raws: Sequence[msgspec.Raw]) -> list[Message]:
        return [_message(bytes(raw)) for raw in raws]

    def front(self, incoming: ClientRequest) -> Front:
        system: list[Data] = []
        instructions = incoming.value("instructions")
        if isinstance(instructions, str) and instructions.strip():
            system.append({"type": "text", "text": instructions})
        for raw in incoming.lead:
            texts = (block.value.text for block in _message(bytes(raw)).blocks if isinstance(block.value, Text))
            text = "\n\n".join(text for text in texts if text) or NO_TEXT
            system.append({"type": "text", "text": text, KEPT_ITEM: msgspec.Raw(bytes(raw))})
        tools = incoming.fields.get("tools")
        raws = list_of(tools) if tools is not None and bytes(tools) != b"null" else []
        return Front(
            model=incoming.model,
            system=tuple(msgspec.Raw(msgspec.json.encode(block)) for block in system),
            tools=tuple(tool_of_response(bytes(raw)) for raw in raws),
        )

    def head(self, incoming: ClientRequest, most_tokens: int | None) -> Data:
        head: Data = {k: msgspec.Raw(bytes(v)) for k, v in incoming.fields.items() if k not in _NOT_HEAD}
        if incoming.continues:  # the whole history goes up, and nothing of it has to be there
            included = incoming.value("include") or []
            head |= {"store": False, "include": included if _ENCRYPTED in included else [*included, _ENCRYPTED]}
        asked = incoming.value("max_output_tokens")
        if most_tokens is not None and isinstance(asked, int):
            head["max_output_tokens"] = min(asked, most_tokens)
        return head

    def cache_ttls(self, incoming: ClientRequest) -> CacheTtls:
        return CacheTtls()

    def answered(self, reply: Reply) -> list[SaidMessage]:
        return answer_messages(reply.blocks)

    def reader(
        self,
        incoming: ClientRequest,
        cap: int | None,
        *,
        is_stream: bool,
        most_bytes: int = MOST_BYTES,
        ours: str = "",
    ) -> AnswerReader:
        if not is_stream:
            reply = partial(_reply_of, incoming.model)
            return BodyReader(partial(_capped, cap), reply, most_bytes, shown=_as_asked(incoming))
        builder = ResponseBuilder(incoming.model)
        look, is_end = partial(_look, builder, cap, _as_asked(incoming)), lambda data: _END.search(data) is not None
        return StreamReader(look, is_end, builder.reply, most_bytes)

    def tool_name(self, tool: bytes) -> str:
        return ""

    def recall_tool(self, name: str) -> bytes:
        return b""

    def is_full(self, tools: int) -> bool:
        return True

    def said(self, replies: Sequence[Reply], ours: str) -> list[SaidMessage]:
        return [message for reply in replies for message in self.answered(reply)]

    def begins(self, data: bytes) -> bool:
        events = (event.partition(b"data:")[2] for event in _EVENT_END.split(data)[:-1])
        for said in events:
            if said.strip() and not _BEFORE.search(said):
                ResponseBuilder("").feed(msgspec.json.decode(said))
                return True
        return len(data) > MOST_BYTES

    def error_body(self, status: int, message: str) -> bytes:
        return openai_error_body(status, message)

    def error_event(self, status: int, message: str) -> bytes:
        return b"event: error\ndata: " + self.error_body(status, message) + b"\n\n"


class UnknownResponse(Exception):
    """A response that none of the tenant's sessions has, and that the upstream may have of somebody else."""

    def __init__(self, response: str) -> None:
        super().__init__(response)
        text = f"Previous response with id '{response}' not found."
        told = {"type": "invalid_request_error", "param": _CONTINUES, "code": "previous_response_not_found"}
        self.body = msgspec.json.encode({"error": {"message": text, **told}})


def continued(body: bytes) -> str:
    """The response that a body goes on from; empty for none."""
    if _CONTINUES.encode() not in body:
        return ""
    try:
        return str(msgspec.json.decode(fields_of(body).get(_CONTINUES, b"null")) or "")
    except (Unmanageable, *UNREADABLE):
        return ""


def _kind(raw: bytes | msgspec.Raw) -> tuple[str, str]:
    try:
        return item_kind(raw)
    except MalformedBlock:
        raise Unmanageable("malformed_item") from None


def _last_kind(message: msgspec.Raw) -> tuple[str, str]:
    """What the last item of a message is, behind the reasoning that it came with."""
    return _kind(list_of(msgspec.Raw(b"[%b]" % bytes(message)))[-1])


def _sealed_places(messages: Sequence[msgspec.Raw], end: int) -> Iterator[tuple[str, int]]:
    """The places of compactions of ours, and where the history goes on behind each; the last one first."""
    for number in range(end - 1, -1, -1):
        raw = bytes(messages[number])
        if _SEALED in raw and _last_kind(messages[number])[0] == "compaction":
            sealed = msgspec.json.decode(b"[%b]" % raw)[-1].get("encrypted_content")
            if isinstance(sealed, str) and sealed.startswith(SEALED):
                yield sealed, number + 1


def _message(raw: bytes) -> Message:
    try:
        return message_of_items(list_of(msgspec.Raw(b"[" + raw + b"]")))
    except MalformedBlock:
        raise Unmanageable("malformed_item") from None


def _with_reasoning(taken: ParsedBody) -> ParsedBody:
    """The body with each item and the reasoning in front of it as one message.

    What was read before is so already; only the last of it may be reasoning that waits for the item behind it.
    """
    messages, known, links = taken.messages, taken.known, taken.links
    if known and _last_kind(messages[known - 1])[0] == REASONING:
        known, links = known - 1, links[:-1]
    runs: list[tuple[int, int]] = []
    begins = known
    for number in range(known, len(messages)):
        kind, role = _kind(messages[number]) if number >= taken.known else (REASONING, "")
        if begins < number and not is_of_model(kind, role):
            runs.append((begins, number))
            begins = number
        if kind != REASONING:
            runs.append((begins, number + 1))
            begins = number + 1
    if begins < len(messages):
        runs.append((begins, len(messages)))
    if isinstance(messages, MessageSlices):
        first, last = messages.begins, messages.ends
        places = [*first[:known], *(first[a] for a, _ in runs)], [*last[:known], *(last[b - 1] for _, b in runs)]
        return replace(taken, messages=MessageSlices(messages.body, *places), links=links, known=known)
    whole = [msgspec.Raw(b",".join(bytes(raw) for raw in messages[a:b])) for a, b in runs]
    return replace(taken, messages=[*messages[:known], *whole], links=links, known=known)


# --- answers ----------------------------------------------------------------------------------------------------------

_capped = partial(capped_usage, prompt_name="input_tokens", output_name="output_tokens")


def _as_asked(incoming: ClientRequest) -> Data:
    """What a response says of its request, where another one was sent."""
    if not incoming.continues:
        return {}
    previous = {"previous_response_id": value} if (value := incoming.value("previous_response_id")) else {}
    return {**previous, "store": incoming.value("store") is not False}


def _look(builder: ResponseBuilder, cap: int | None, asked: Data, event: Data) -> Data | None:
    builder.feed(event)
    response = event.get("response")
    if not isinstance(response, dict):
        return None
    usage = _capped(cap, response.get("usage"))
    shown = {**asked, "usage": usage} if usage else asked
    return {**event, "response": {**response, **shown}} if shown else None


def _reply_of(model: str, response: Any) -> Reply:
    return reply_of_response(response, model)
