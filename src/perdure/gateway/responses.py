"""The Responses API in front and behind (GW-6): items in our words, and answers read along.

A message of the history is an item with the reasoning in front of it, as a piece of the body (ADR 0045).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec

from perdure.adapters.providers.responses import ENDS, ResponseBuilder, reply_of_response
from perdure.context.replies import Reply, WireProtocol
from perdure.context.request import NO_TEXT
from perdure.errors import MalformedBlock
from perdure.gateway.answers import LEFT_OUT, MOST_BYTES, BodyReader, StreamReader, data_of, summed_usage
from perdure.gateway.compactions import SEALED
from perdure.gateway.openai import MOST_TOOLS, capped_usage, openai_error_body, openai_tool_name, recall_function
from perdure.gateway.requests import (
    UNREADABLE,
    AnswerReader,
    CacheTtls,
    ClientRequest,
    MessageSlices,
    ParsedBody,
    SaidMessage,
    Unmanageable,
    fields_of,
    is_call_of,
    list_of,
)
from perdure.transcript.blocks import Text, encode
from perdure.transcript.history import DigestLimits, message_digest
from perdure.transcript.messages import Message
from perdure.transcript.records import Front
from perdure.transcript.response_items import (
    DEFAULT_NAMESPACE,
    KEPT_ITEM,
    REASONING,
    answer_messages,
    is_of_front,
    is_of_model,
    item_kind,
    message_of_items,
    response_tool,
    tool_of_response,
)

Data = dict[str, Any]
# The view is kept small here, so that nothing of it has to go there.
_NOT_HEAD = frozenset({"input", "tools", "instructions", "context_management", "previous_response_id"})
TRIGGER: Final = b'"compaction_trigger"'
REFERENCE: Final = b'"item_reference"'
CONVERSATION: Final = b'"conversation"'
_SEALED = SEALED.encode()
_CONTINUES = "previous_response_id"
_ENCRYPTED = "reasoning.encrypted_content"
_EVENT_END = re.compile(rb"\r?\n\r?\n")
_BEFORE = re.compile(rb'"type" ?: ?"response\.(?:created|queued|in_progress)"')
_ID = re.compile(rb'\s*\{\s*"id"\s*:\s*"([\w-]{1,200})"')
_END = re.compile(rb'"type" ?: ?"response\.(?:completed|incomplete|failed)"')


class ResponsesProtocol:
    """`ClientProtocol` of the Responses API. `instructions`, and what developer and system say before everything else,
    are the front."""

    protocol: WireProtocol = "responses"
    array = "input"
    key_header = "authorization"

    def read(self, body: bytes, taken: ParsedBody) -> ClientRequest:
        whole = ClientRequest(body, taken.fields, ())
        if whole.value("prompt") is not None and not whole.model:
            raise Unmanageable("prompt")  # its template names the model, so nobody here knows the window
        if whole.value("background") is True:
            raise Unmanageable("background")
        if whole.value("conversation"):
            raise Unmanageable("conversation")  # one of ours was put in the place of its name
        continues = str(whole.value(_CONTINUES) or "")
        said = taken.fields.get("input")
        if said is not None and bytes(memoryview(said)[:1]) == b'"':
            return replace(whole, history=input_items(said), continues=continues)
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

    def digest(self, raw: bytes | msgspec.Raw, limits: DigestLimits) -> bytes:
        return message_digest(_message(raw), limits)

    def messages(self, raws: Sequence[msgspec.Raw]) -> list[Message]:
        return [_message(raw) for raw in raws]

    def front(self, incoming: ClientRequest) -> Front:
        system: list[Data] = []
        instructions = incoming.value("instructions")
        if isinstance(instructions, str) and instructions.strip():
            system.append({"type": "text", "text": instructions})
        for raw in incoming.lead:
            texts = (block.value.text for block in _message(raw).blocks if isinstance(block.value, Text))
            text = "\n\n".join(text for text in texts if text) or NO_TEXT
            system.append({"type": "text", "text": text, KEPT_ITEM: msgspec.Raw(bytes(raw))})
        return Front(
            model=incoming.model,
            system=tuple(msgspec.Raw(msgspec.json.encode(block)) for block in system),
            tools=tuple(tool_of_response(bytes(raw)) for raw in incoming.tools),
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
        answer = _ResponsesAnswer(incoming, cap, ours)
        hidden = answer if ours else None
        if not is_stream:
            reply = partial(_reply_of, incoming.model)
            return BodyReader(answer.usage, reply, most_bytes, hidden, shown=_as_asked(incoming, ours))
        is_end = _END.search
        read = StreamReader(answer.look, lambda data: is_end(data) is not None, answer.reply, most_bytes, hidden)
        read.so_far = answer.so_far
        return read

    def tool_name(self, tool: bytes) -> str:
        return openai_tool_name(tool)

    def recall_tool(self, name: str) -> bytes:
        return encode({"type": "function", "function": {**recall_function(name), "strict": False}})

    def sent_tool(self, name: str) -> bytes:
        return response_tool(self.recall_tool(name)) or b""

    def is_full(self, tools: int) -> bool:
        return tools >= MOST_TOOLS

    def said(self, replies: Sequence[Reply], ours: str) -> list[SaidMessage]:
        shown = (block for reply in replies for block in reply.blocks if not is_call_of(block, ours))
        return answer_messages(shown)

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


class UnknownPast(Exception):
    """Something from before that none of the tenant's sessions has, and that the upstream may have of somebody else.
    `status` and `body` are what its client is told."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        told = {"type": "invalid_request_error", "message": message, "param": param, "code": code}
        self.body = msgspec.json.encode({"error": told})


def past_in(body: bytes) -> tuple[str, str]:
    """The response that a body goes on from, and the conversation that it names; empty for none."""
    if _CONTINUES.encode() not in body and CONVERSATION not in body:
        return "", ""
    try:
        return _past_of(fields_of(body))
    except (Unmanageable, *UNREADABLE):
        return "", ""


def _past_of(fields: Mapping[str, msgspec.Raw]) -> tuple[str, str]:
    response, named = (msgspec.json.decode(fields.get(name, b"null")) for name in (_CONTINUES, "conversation"))
    return str(response or ""), str((named.get("id") if isinstance(named, dict) else named) or "")


def leans_on_past(body: bytes) -> bool:
    """Whether a request goes on from something that only a session has."""
    try:
        fields = fields_of(body)
        return any(_past_of(fields)) or any(_is_stored(raw) for raw in input_items(fields.get("input")))
    except (Unmanageable, *UNREADABLE):
        return False


def _is_stored(raw: msgspec.Raw) -> bool:
    """Whether an item stands for what is stored here: a reference, or a compaction of ours."""
    said = bytes(raw)
    if REFERENCE not in said and _SEALED not in said:
        return False
    return _kind(raw)[0] in ("item_reference", "compaction")


def past_upstream(body: bytes, *, own: str = "") -> list[str]:
    """The items that a body names, which has to say everything else itself, but for a response of the tenant's `own`.

    Nothing here trusts how the body looks: JSON can spell a name in many ways.

    Raises:
        UnknownPast: it names a response or a conversation, or can't be read here, though the upstream might.
    """
    try:
        fields = fields_of(body)
        response, conversation = _past_of(fields)
        raws = input_items(fields.get("input"))
        named = [str(msgspec.json.decode(raw).get("id")) for raw in raws if item_kind(raw)[0] == "item_reference"]
    except (Unmanageable, MalformedBlock, *UNREADABLE):
        text = "perdure: the body can't be read, and others share the account that it would go to: send plain JSON"
        raise UnknownPast(400, text) from None
    if response and response != own:
        text, code = f"Previous response with id '{response}' not found.", "previous_response_not_found"
        raise UnknownPast(400, text, _CONTINUES, code)
    if conversation:
        raise UnknownPast(404, f"Conversation with id '{conversation}' not found.")
    return named


def input_items(said: msgspec.Raw | None) -> list[msgspec.Raw]:
    """The items of an input: a text is what a user says. Raises `Unmanageable`."""
    if said is not None and bytes(memoryview(said)[:1]) == b'"':
        return [msgspec.Raw(msgspec.json.encode({"role": "user", "content": said}))]
    return [msgspec.Raw(bytes(item)) for item in list_of(said)]


def references_in(body: bytes) -> list[str]:
    """The ids by which a body names items in the place of saying them. Raises `Unmanageable`."""
    if REFERENCE not in body:
        return []
    raws = list_of(fields_of(body).get("input", msgspec.Raw(b"[]")))
    return [identity for raw in raws if (identity := _referred(raw))]


def with_items(body: bytes, items: Mapping[str, bytes]) -> bytes:
    """The body with the items that it names said in full. Raises `Unmanageable`."""
    fields = fields_of(body)
    raws = (items.get(_referred(raw)) or bytes(raw) for raw in list_of(fields["input"]))
    return msgspec.json.encode({**fields, "input": msgspec.Raw(b"[%b]" % b",".join(raws))})


def with_previous(body: bytes, response: str) -> bytes:
    """The body with another id of the response that it goes on from. Raises `Unmanageable`."""
    return msgspec.json.encode({**fields_of(body), _CONTINUES: response})


def with_past(body: bytes, past: Sequence[bytes]) -> bytes:
    """The body with all that was said before in the place of the id of the last response. Raises `Unmanageable`."""
    fields = {name: raw for name, raw in fields_of(body).items() if name != _CONTINUES}
    items = (*past, *map(bytes, input_items(fields.get("input"))))
    return msgspec.json.encode({**fields, "input": msgspec.Raw(b"[%b]" % b",".join(items))})


def _referred(raw: msgspec.Raw) -> str:
    is_reference = REFERENCE in bytes(raw) and _kind(raw)[0] == "item_reference"
    return str(msgspec.json.decode(raw).get("id") or "") if is_reference else ""


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


def _message(raw: bytes | msgspec.Raw) -> Message:
    try:
        return message_of_items(list_of(msgspec.Raw(b"[%b]" % raw)))
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
        if kind == "item_reference":
            raise Unmanageable("item_reference")  # one of ours was put in its place
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


def _as_asked(incoming: ClientRequest, ours: str) -> Data:
    """What a response says of its request, where another one was sent."""
    told: Data = {}
    if incoming.conversation is not None:
        told["conversation"] = {"id": incoming.conversation.id}
    elif value := incoming.fetched or incoming.value(_CONTINUES):
        told[_CONTINUES] = value
    if ours and isinstance(choice := incoming.value("tool_choice"), dict) and choice.get("type") == "allowed_tools":
        told["tool_choice"] = choice
    return {**told, "store": incoming.value("store") is not False} if incoming.continues else told


def response_begun(data: bytes) -> str:
    """The id of the response whose stream or body begins so; empty where it doesn't say one."""
    for event in _EVENT_END.split(data):
        try:
            said = msgspec.json.decode(data_of(event))
        except UNREADABLE:
            continue
        if isinstance(said, dict) and isinstance(response := said.get("response"), dict):
            return str(response.get("id") or "")
    found = _ID.match(data)
    return "" if found is None else found[1].decode()


class RenamedAnswer:
    """An answer on its way whose response gets another id: `feed` and `end` give the bytes to pass on."""

    def __init__(self, name: Callable[[str], str], *, is_stream: bool, most_bytes: int) -> None:
        self._name, self._body = name, None if is_stream else bytearray()
        self._stream = StreamReader(self._look, lambda data: False, _no_reply, most_bytes)

    def feed(self, data: bytes) -> bytes:
        if self._body is None:
            return self._stream.feed(data)
        self._body += data
        return b""

    def end(self) -> bytes:
        if self._body is None:
            return self._stream.end()
        try:
            fields = fields_of(bytes(self._body))
            renamed = self._name(msgspec.json.decode(fields["id"], type=str))
        except (Unmanageable, *UNREADABLE, KeyError):
            return bytes(self._body)
        return msgspec.json.encode({**fields, "id": renamed})

    def _look(self, event: Data) -> Data | None:
        response = event.get("response")
        if not isinstance(response, dict) or not isinstance(response.get("id"), str):
            return None
        return {**event, "response": {**response, "id": self._name(response["id"])}}


def _no_reply() -> Reply:
    raise AssertionError("an answer that is only renamed is not read")


class _ResponsesAnswer:
    """An answer on its way. The tool `ours` and its calls are left out; where they are answered here, the answers that
    follow each other make one: one id, items and events counted through, one end, and the usage of all (GW-8)."""

    is_ending = False  # only the last event tells, and that one is held back anyway

    def __init__(self, incoming: ClientRequest, cap: int | None, ours: str) -> None:
        self._model, self._cap, self._ours = incoming.model, cap, ours
        self._asked = _as_asked(incoming, ours)
        self._builder = ResponseBuilder(incoming.model)
        self._places: dict[int, int | None] = {}  # of this answer's items, for the client; None: left out
        self._before = 0  # items shown of the answers before
        self._id: str | None = None
        self._events = 0  # that were shown, of all answers
        self._used: Data = {}  # by this answer …
        self._paid: Data = {}  # … and by those before
        self._output: list[Any] = []  # what was shown of the answers before
        self._is_later = False  # there were some

    @property
    def is_patched(self) -> bool:
        return self._is_later or None in self._places.values()

    def look(self, event: Data) -> Data | None:
        if event.get("type") in ("error", "response.failed") and self.is_patched:
            return self._counted(event, {})  # the client's to see, whatever it has seen before
        self._builder.feed(event)
        changes: Data = {}
        response = event.get("response")
        if isinstance(response, dict):
            if self._is_later and event["type"] not in ENDS:
                return LEFT_OUT
            shown = {**self._asked, **((self.shown(response) or {}) if self._ours else {})}
            if (usage := self.usage(response.get("usage"))) is not None:
                shown["usage"] = usage
            if shown:
                changes["response"] = {**response, **shown}
        elif self._ours and "output_index" in event:
            place = self._place(event)
            if place is None:
                return LEFT_OUT
            changes["output_index"] = place
        return self._counted(event, changes)

    def _place(self, event: Data) -> int | None:
        index = int(event["output_index"])
        if index not in self._places:
            shown = self._before + sum(place is not None for place in self._places.values())
            self._places[index] = None if self._is_hidden(event.get("item")) else shown
        return self._places[index]

    def _is_hidden(self, item: Any) -> bool:
        is_call = isinstance(item, dict) and item.get("type") == "function_call" and item.get("name") == self._ours
        return is_call and item.get("namespace") in (None, "", DEFAULT_NAMESPACE)

    def _counted(self, event: Data, changes: Data) -> Data | None:
        if "sequence_number" in event:
            changes["sequence_number"] = self._events
            self._events += 1
        return {**event, **changes} if any(event[name] != value for name, value in changes.items()) else None

    def usage(self, usage: Any) -> Data | None:
        """The usage to show instead of this answer's; None when it may stay as it is."""
        total = summed_usage(self._paid, usage) if isinstance(usage, dict) else usage
        return _capped(self._cap, total) or (total if self._is_later and isinstance(total, dict) else None)

    def shown(self, body: Data) -> Data | None:
        changes: Data = {}
        offered = body.get("tools") or []
        tools = [tool for tool in offered if not (isinstance(tool, dict) and tool.get("name") == self._ours)]
        if len(tools) < len(offered):  # the server says what it was asked
            changes["tools"] = tools
        self._id, self._used = self._id or body.get("id"), body.get("usage") or {}
        output = body.get("output") or []
        kept = [item for item in output if not self._is_hidden(item)]
        self._output += kept
        if self._is_later:
            changes["id"] = self._id
        if self._is_later or len(kept) < len(output):
            changes["output"] = [*self._output]
        return changes or None

    def reply(self) -> Reply:
        return self._builder.reply()

    def so_far(self) -> Reply:
        return self._builder.so_far()

    def go_on(self) -> None:
        self._paid, self._used = summed_usage(self._paid, self._used), {}
        self._events -= 1  # its end isn't shown
        self._before += sum(place is not None for place in self._places.values())
        self._builder, self._places, self._is_later = ResponseBuilder(self._model), {}, True


def _reply_of(model: str, response: Any) -> Reply:
    return reply_of_response(response, model)
