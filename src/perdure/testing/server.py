"""A model server on a local port that speaks the real wire, server-sent events included (LIB-3)."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import parse_qsl

import msgspec
from anyio.from_thread import start_blocking_portal

from perdure.testing.hosted import HostedRequest, chunk_frame, error_frame
from perdure.testing.openai_rules import openai_error, respond_to_chat
from perdure.testing.responses import FakeResponses, responses_error
from perdure.testing.responses_events import ResponseEvents, failure_events
from perdure.testing.upstream import Block, FakeUpstream, UpstreamError, UpstreamReply

_STORED = "/v1/responses/"
_CONVERSATIONS = "/v1/conversations"
_FINISH = {
    "end_turn": "stop", "stop_sequence": "stop", "pause_turn": "stop", "tool_use": "tool_calls",
    "max_tokens": "length", "model_context_window_exceeded": "length", "refusal": "content_filter",
    "compaction": "stop",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class EventStream:
    """Iterate to get the events of a reply as bytes, one event at a time.

    `dialect` chooses Anthropic events or OpenAI chunks; `chars` is the size of a delta.
    """

    reply: UpstreamReply
    dialect: Literal["anthropic", "openai"] = "anthropic"
    chars: int = 40
    include_usage: bool = False  # openai: stream_options.include_usage

    def __iter__(self) -> Iterator[bytes]:
        if self.dialect == "openai":
            for chunk in _openai_chunks(self.reply, self.chars, self.include_usage):
                yield b"data: " + msgspec.json.encode(chunk) + b"\n\n"
            yield b"data: [DONE]\n\n"
            return
        for payload in _anthropic_events(self.reply, self.chars):
            yield encode_event(payload)

    @property
    def body(self) -> bytes:
        """The whole stream at once."""
        return b"".join(self)


def encode_event(payload: Mapping[str, Any]) -> bytes:
    return b"event: " + str(payload["type"]).encode() + b"\ndata: " + msgspec.json.encode(payload) + b"\n\n"


def error_event(error: UpstreamError) -> bytes:
    """An error that arrives after the stream has begun."""
    return encode_event({"type": "error", "error": error.payload["error"]})


def _anthropic_events(reply: UpstreamReply, chars: int) -> Iterator[dict[str, Any]]:
    usage = reply.usage.as_json()
    start = {**reply.message, "content": [], "stop_reason": None, "stop_sequence": None}
    start.pop("stop_details", None)
    yield {"type": "message_start", "message": {**start, "usage": {**usage, "output_tokens": 1}}}
    yield {"type": "ping"}
    for index, block in enumerate(reply.content):
        opened, deltas = _opened(block, chars)
        yield {"type": "content_block_start", "index": index, "content_block": opened}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": reply.stop_reason, "stop_sequence": reply.stop_sequence}
    if reply.stop_details is not None:
        delta["stop_details"] = reply.stop_details
    yield {"type": "message_delta", "delta": delta, "usage": usage}
    yield {"type": "message_stop"}


def _opened(block: Block, chars: int) -> tuple[Block, list[dict[str, Any]]]:
    """The block as it is announced, and the deltas that fill it."""
    kind = block["type"]
    if kind == "text":
        deltas = [{"type": "text_delta", "text": part} for part in _slices(block["text"], chars)]
        return {**block, "text": ""}, deltas
    if kind == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": part} for part in _slices(block["thinking"], chars)]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {**block, "thinking": "", "signature": ""}, deltas
    if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
        parts = ["", *_slices(msgspec.json.encode(block["input"]).decode(), chars)] if block["input"] else [""]
        return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in parts]
    if kind == "compaction":
        fields: Block = {name: block[name] for name in ("content", "encrypted_content") if name in block}
        return {**block, "content": None}, [{"type": "compaction_delta", **fields}]
    return block, []


def _slices(words: str, chars: int) -> list[str]:
    return [words[at : at + chars] for at in range(0, len(words), chars)]


def openai_completion(reply: UpstreamReply) -> dict[str, Any]:
    """The same answer as a `chat.completion` object (thinking has no place there and is left out)."""
    words = "".join(block["text"] for block in reply.content if block["type"] == "text")
    message: dict[str, Any] = {"role": "assistant", "content": words or None, "refusal": None}
    if calls := _openai_calls(reply):
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _FINISH[reply.stop_reason]}
    base = {"id": f"chatcmpl-{reply.id}", "object": "chat.completion", "created": 0, "model": reply.model}
    return {**base, "choices": [choice], "usage": _openai_usage(reply)}


def _openai_calls(reply: UpstreamReply) -> list[dict[str, Any]]:
    return [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": msgspec.json.encode(block["input"]).decode()},
        }
        for block in reply.content
        if block["type"] == "tool_use"
    ]


def _openai_usage(reply: UpstreamReply) -> dict[str, Any]:
    usage = reply.usage
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read_input_tokens,
            "cache_write_tokens": usage.cache_creation_input_tokens,
        },
    }


def _openai_chunks(reply: UpstreamReply, chars: int, include_usage: bool) -> Iterator[dict[str, Any]]:
    base = {"id": f"chatcmpl-{reply.id}", "object": "chat.completion.chunk", "created": 0, "model": reply.model}
    if include_usage:
        base["usage"] = None
    for delta in _openai_deltas(reply, chars):
        yield {**base, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]}
    end = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": _FINISH[reply.stop_reason]}
    yield {**base, "choices": [end]}
    if include_usage:
        yield {**base, "choices": [], "usage": _openai_usage(reply)}


def _openai_deltas(reply: UpstreamReply, chars: int) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for block in reply.content:
        if block["type"] == "text":
            for part in _slices(block["text"], chars):
                yield {"content": part}
    for index, call in enumerate(_openai_calls(reply)):
        function = {"name": call["function"]["name"], "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": call["id"], "type": "function", "function": function}]}
        for part in _slices(call["function"]["arguments"], chars):
            yield {"tool_calls": [{"index": index, "function": {"arguments": part}}]}


@dataclass(frozen=True, slots=True)
class CutStream:
    """The connection ends after so many events."""

    after_events: int = 3


@dataclass(frozen=True, slots=True)
class HeldStream:
    """Nothing more comes after so many events, until `go_on` is set."""

    after_events: int = 3
    go_on: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class ErrorInStream:
    """An error arrives after so many events, behind a status of 200."""

    error: UpstreamError
    after_events: int = 3


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """These bytes are the whole body."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"


StreamFault = CutStream | HeldStream | ErrorInStream | RawAnswer | None


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    query: str = ""


@dataclass(frozen=True, slots=True)
class ReadByModel:
    """The items that a model read for a response: those of the request, and of what it continues."""

    response: str
    items: list[dict[str, Any]]

    @property
    def said(self) -> str:
        """The items as one text, to look for words in."""
        return msgspec.json.encode(self.items).decode()


@dataclass(slots=True, kw_only=True)
class LocalServer(ABC):
    """A server on a local port, in the caller's event loop (`async with`), or in one of its own (`with`)."""

    port: int = 0  # 0: a free one
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _blocking: ExitStack = field(default_factory=ExitStack)  # its own loop, in programs without one

    @property
    def url(self) -> str:
        if self._server is None:
            raise RuntimeError(f"it isn't served yet: write `async with {type(self).__name__}(…) as server`, or `with`")
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://{host}:{port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            portal = stack.enter_context(start_blocking_portal())
            stack.enter_context(portal.wrap_async_context_manager(self))
            self._blocking = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, t: TracebackType | None) -> None:
        self._blocking.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._talk(reader, writer)
        except (ConnectionError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass  # the client went away, or the test is over
        finally:
            self._tasks.discard(task)
            writer.close()

    @abstractmethod
    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection, until it has to end."""


@dataclass(slots=True, kw_only=True)
class LocalHttpServer(LocalServer):
    """A local server that answers requests over HTTP, and keeps them."""

    received: list[ReceivedRequest] = field(default_factory=list)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (request := await read_request(reader, writer)) is not None:
            if not await self._answer(request, writer):
                break

    @abstractmethod
    async def _answer(self, request: ReceivedRequest, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False when the connection has to end."""


@dataclass(slots=True)
class FakeServer(LocalHttpServer):
    """`async with FakeServer(upstream) as server:` serves at `server.url` (for the OpenAI SDK: `server.url + "/v1"`).

    Without an event loop it is `with FakeServer(upstream) as server:`.

    Attributes:
        faults: what goes wrong with the stream of each answer, in order; None: nothing
        routes: further answers by (method, path): plain data, or a `RawAnswer`
        cuts_at: as Ollama does: a longer prompt is read from its end only, and nothing is said
        model: what /v1/models says of every model
        read: Responses: what the model read for each answer, oldest first, whoever said it
    """

    upstream: FakeUpstream = field(default_factory=FakeUpstream)
    faults: deque[StreamFault] = field(default_factory=deque)
    routes: dict[tuple[str, str], Any] = field(default_factory=dict)
    cuts_at: int | None = None
    model: dict[str, Any] = field(default_factory=dict)
    delay_seconds: float = 0.0  # between two events
    keeps_requests: bool = True  # in `received`
    overflow_in_stream: bool = False  # Responses: an input that is too long fails behind a status of 200
    read: list[ReadByModel] = field(default_factory=list)
    _accounts: dict[str, FakeResponses] = field(default_factory=dict)

    def _responses(self, request: ReceivedRequest) -> FakeResponses:
        """What the account that pays for a request has stored: another one doesn't know its ids."""
        key = request.headers.get("authorization") or request.headers.get("api-key", "")
        return self._accounts.setdefault(key, FakeResponses(self.upstream, key))

    async def _answer(self, request: ReceivedRequest, writer: asyncio.StreamWriter) -> bool:
        if self.keeps_requests:
            self.received.append(request)
        hosted = HostedRequest.of(request.path)
        in_frames = hosted is not None and hosted.host == "bedrock"
        answer = self._respond(request)
        if isinstance(answer, RawAnswer):
            await _send(writer, answer)
            return True
        events, fault = answer
        kind = "application/vnd.amazon.eventstream" if in_frames else "text/event-stream"
        writer.write(_head(200, kind) + b"transfer-encoding: chunked\r\n\r\n")
        first = b""
        for number, event in enumerate(events):
            first = first or event
            if isinstance(fault, CutStream | ErrorInStream) and number == fault.after_events:
                if isinstance(fault, CutStream):
                    await writer.drain()
                    return False
                event = error_frame(fault.error) if in_frames else _error_event(request, fault.error, number, first)
            elif in_frames:
                event = chunk_frame(event)
            if isinstance(fault, HeldStream) and number == fault.after_events:
                await fault.go_on.wait()
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await writer.drain()
            if isinstance(fault, ErrorInStream) and number == fault.after_events:
                break
            if self.delay_seconds:
                await asyncio.sleep(self.delay_seconds)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    # --- the answers ----------------------------------------------------------------------------------------------

    def _respond(self, request: ReceivedRequest) -> RawAnswer | tuple[Iterator[bytes], StreamFault]:
        hosted = HostedRequest.of(request.path)
        given = self.routes.get((request.method, request.path))
        if given is not None:
            return given if isinstance(given, RawAnswer) else _json(given)
        try:
            if hosted is not None and request.method == "POST":
                return self._hosted(hosted, request)
            match request.method, request.path:
                case "POST", "/v1/messages":
                    return self._messages(request.body)
                case "POST", "/v1/messages/count_tokens":
                    return _json(self.upstream.count_tokens(request.body))
                case "POST", "/v1/chat/completions":
                    return self._chat(request.body)
                case "POST", "/v1/responses":
                    return self._response(request)
                case "POST", "/v1/responses/input_tokens":
                    return _json(self._responses(request).count(request.body))
                case "POST", "/v1/responses/compact":
                    return _json(self._responses(request).compact(request.body))
                case "POST", path if path.startswith(_STORED) and path.endswith("/cancel"):
                    return _json(self._responses(request).cancel(path.removeprefix(_STORED).removesuffix("/cancel")))
                case method, path if path.startswith(_CONVERSATIONS):
                    below, asked = path.removeprefix(_CONVERSATIONS), dict(parse_qsl(request.query))
                    return _json(self._responses(request).conversations.respond(method, below, request.body, asked))
                case method, path if path.startswith(_STORED) and method in ("GET", "DELETE"):
                    return self._stored(request)
                case "GET", path if path.startswith("/v1/models"):
                    return self._models(path)
                case _:
                    raise UpstreamError(404, "not_found_error", f"no such path: {request.path}")
        except UpstreamError as e:
            payload = _error_payload(request, e) if hosted is None else hosted.error(e)
            return _json(payload, e.status, e.headers)

    def _hosted(
        self, hosted: HostedRequest, request: ReceivedRequest
    ) -> RawAnswer | tuple[Iterator[bytes], StreamFault]:
        body = hosted.messages_body(request.body, request.headers.get("authorization", ""), self.upstream)
        if not hosted.is_count:
            return self._messages(body)
        tokens = self.upstream.count_tokens(body)
        return _json({"inputTokens": tokens["input_tokens"]} if hosted.host == "bedrock" else tokens)

    def _messages(self, body: bytes) -> RawAnswer | tuple[Iterator[bytes], StreamFault]:
        reply = self.upstream.respond(body)
        fault = self.faults.popleft() if self.faults else None
        if isinstance(fault, RawAnswer):
            return fault
        if not msgspec.json.decode(body).get("stream"):
            return _json(reply.message)
        return iter(EventStream(reply)), fault

    def _chat(self, body: bytes) -> RawAnswer | tuple[Iterator[bytes], StreamFault]:
        reply = respond_to_chat(self.upstream, body)
        fields = msgspec.json.decode(body)
        fault = self.faults.popleft() if self.faults else None
        if isinstance(fault, RawAnswer):
            return fault
        if not fields.get("stream"):
            return _json(openai_completion(reply))
        with_usage = bool((fields.get("stream_options") or {}).get("include_usage"))
        return self._chunks(reply, with_usage), fault

    def _chunks(self, reply: UpstreamReply, with_usage: bool) -> Iterator[bytes]:
        for event in EventStream(reply, dialect="openai", include_usage=with_usage):
            if self.cuts_at is not None and b'"prompt_tokens"' in event:
                chunk = msgspec.json.decode(event.removeprefix(b"data: "))
                chunk["usage"]["prompt_tokens"] = min(chunk["usage"]["prompt_tokens"], self.cuts_at)
                chunk["usage"].pop("prompt_tokens_details", None)
                event = b"data: " + msgspec.json.encode(chunk) + b"\n\n"
            yield event

    def _response(self, request: ReceivedRequest) -> RawAnswer | tuple[Iterator[bytes], StreamFault]:
        body = request.body
        try:
            answer = self._responses(request).create(body)
        except UpstreamError as e:
            told = responses_error(e)
            is_late = self.overflow_in_stream and told["error"]["code"] == "context_length_exceeded"
            if is_late and msgspec.json.decode(body).get("stream"):
                return iter([failure_events(told, 0)]), None
            raise
        fault = self.faults.popleft() if self.faults else None
        if isinstance(fault, RawAnswer):
            return fault
        if self.keeps_requests:
            items = [msgspec.json.decode(raw) for raw in answer.contains]
            self.read.append(ReadByModel(answer.response["id"], items))
        if not answer.streams:
            return _json(answer.response)

        def events() -> Iterator[bytes]:
            *before, last = ResponseEvents(answer.response, obfuscates=answer.obfuscates)
            yield from before
            answer.keep()
            yield last

        return events(), fault

    def _stored(self, request: ReceivedRequest) -> RawAnswer | tuple[Iterator[bytes], StreamFault]:
        responses = self._responses(request)
        identity, _, rest = request.path.removeprefix(_STORED).partition("/")
        asked = dict(parse_qsl(request.query))
        if request.method == "DELETE" and not rest:
            return _json(responses.delete(identity))
        if request.method == "GET" and rest == "input_items":
            limit, newest_first = int(asked.get("limit") or 20), asked.get("order") != "asc"
            after = asked.get("after", "")
            return _json(responses.input_items(identity, after=after, limit=limit, newest_first=newest_first))
        if request.method == "GET" and not rest:
            response = responses.stored(identity)
            if asked.get("stream") == "true":
                seen = int(asked.get("starting_after") or -1)
                return islice(iter(ResponseEvents(response)), seen + 1, None), None
            return _json(response)
        raise UpstreamError(404, "invalid_request_error", f"Invalid URL ({request.method} {request.path})")

    def _models(self, path: str) -> RawAnswer:
        name = path.removeprefix("/v1/models").strip("/")
        entry = {"id": name or "fake", "type": "model", "object": "model", "display_name": name, "created": 0}
        entry |= {"created_at": "2026-01-01T00:00:00Z", "owned_by": "fake", **self.model}
        return _json(entry if name else {"object": "list", "data": [entry], "has_more": False})


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> ReceivedRequest | None:
    """The next request of a connection; None when there is none. A client that waits to be told to go on is told."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines) if name
    }
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await reader.readexactly(int(headers.get("content-length") or 0))
    path, _, query = target.partition("?")
    return ReceivedRequest(method, path, headers, body, query)


def _head(status: int, content_type: str) -> bytes:
    return f"HTTP/1.1 {status} Fake\r\ncontent-type: {content_type}\r\n".encode()


async def _send(writer: asyncio.StreamWriter, answer: RawAnswer) -> None:
    writer.write(_head(answer.status, answer.content_type) + b"content-length: %d\r\n\r\n" % len(answer.body))
    writer.write(answer.body)
    await writer.drain()


def _json(data: object, status: int = 200, headers: Mapping[str, str] | None = None) -> RawAnswer:
    extra = "".join(f"\r\n{name}: {value}" for name, value in (headers or {}).items())
    return RawAnswer(msgspec.json.encode(data), status, f"application/json{extra}")


def _error_payload(request: ReceivedRequest, error: UpstreamError) -> dict[str, Any]:
    """An error as the protocol of this request words it."""
    if request.path == "/v1/chat/completions":
        return openai_error(error)
    return responses_error(error) if request.path.startswith(("/v1/responses", _CONVERSATIONS)) else error.payload


def _error_event(request: ReceivedRequest, error: UpstreamError, number: int, first: bytes) -> bytes:
    if request.path == "/v1/chat/completions":
        return b"data: " + msgspec.json.encode(openai_error(error)) + b"\n\n"
    if request.path == "/v1/responses":
        begun = msgspec.json.decode(first.partition(b"data: ")[2])
        return failure_events(responses_error(error), number, begun["response"]["id"])
    return error_event(error)
