"""The Responses API over a WebSocket, to which a client says only what is new (GW-6).

Each `response.create` becomes a request over HTTP, where `previous_response_id` is resolved. What no session has, such
as an answer that passed through, a connection remembers itself, so that a client that has nothing stored can go on from
it. Everything else, such as who may come in, sessions and limits, is that of a request over HTTP.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import anyio
import msgspec

from perdure.gateway.answers import EventSplitter, data_of
from perdure.gateway.requests import UNREADABLE, Unmanageable, fields_of
from perdure.gateway.responses import input_items

AsgiScope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
Served = Callable[[AsgiScope, Receive, Send], Awaitable[None]]

MOST_REMEMBERED = 16  # responses of a connection that no session has …
MOST_REMEMBERED_BYTES = 32 * 1024 * 1024  # … and how large they are together, but for the last one
_STREAM_CHARS = 200  # of a stream's id
RESTARTS = 1012  # why a connection is closed when the gateway ends; clients connect again
MOST_AT_ONCE = 16  # responses that a connection may be making
_OF_THE_SOCKET = frozenset({"type", "stream_id", "generate", "previous_response_id", "input", "stream", "background"})
_METADATA_HEADER = "ws_request_header_"  # before the names of headers that a client says in a message's metadata …
_METADATA_HEADERS = "x_openai_"  # … and those that go up: how the provider is to read the request, and no key
_ENDS = (b"response.completed", b"response.incomplete", b"response.failed")
_NOT_OF_REQUESTS = frozenset({b"connection", b"upgrade", b"content-length", b"content-type", b"transfer-encoding"})


@dataclass(frozen=True, slots=True)
class RememberedResponse:
    """The items of a conversation up to the end of a response, from behind the response `after` on (None: all)."""

    items: tuple[msgspec.Raw, ...]
    after: str | None

    @property
    def bytes(self) -> int:
        """How large the items are."""
        return sum(memoryview(item).nbytes for item in self.items)


@dataclass(frozen=True, slots=True)
class SocketRequest:
    """A `response.create`: the body that it is over HTTP, and what its answer needs."""

    body: bytes
    stream: str
    items: tuple[msgspec.Raw, ...]
    after: str | None
    headers: tuple[tuple[bytes, bytes], ...] = ()


class ResponseSocket:
    """One connection.

    Args:
        scope: the one of the connection.
        serve: answers a request over HTTP: an ASGI application.
        knows: whether a response is one that a request over HTTP can go on from.
        receive: what the client sends.
        send: what it is sent.
        ends: is set when the gateway is about to end.
        most_bytes: how large an event of an answer may be.
        drain_seconds: how long answers may take then.
    """

    def __init__(
        self,
        scope: AsgiScope,
        serve: Served,
        knows: Callable[[str], Awaitable[bool]],
        receive: Receive,
        send: Send,
        *,
        ends: asyncio.Event,
        most_bytes: int,
        drain_seconds: float,
    ) -> None:
        self._serve, self._knows, self._receive, self._sent = serve, knows, receive, send
        self._ends, self._most_bytes, self._drain_seconds = ends, most_bytes, drain_seconds
        self._scope = request_scope(scope)
        self._remembered: OrderedDict[str, RememberedResponse] = OrderedDict()
        # Responses of one stream are made one after the other; a client may name a new one each time.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._running = 0
        self._is_idle = anyio.Event()
        self._gone = anyio.Event()

    async def run(self) -> None:
        """Accept the connection, and answer until the client leaves or the gateway ends."""
        await self._send({"type": "websocket.accept"})
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(self._close_at_the_end)
            async with anyio.create_task_group() as tasks:
                while (message := await self._receive())["type"] != "websocket.disconnect":
                    said = message.get("text") or message.get("bytes") or ""
                    raw = said.encode() if isinstance(said, str) else said
                    if self._ends.is_set():
                        await self._refuse("", 503, "the gateway is about to end: connect again")
                        continue
                    if self._running >= MOST_AT_ONCE:
                        await self._refuse("", 429, f"at most {MOST_AT_ONCE} responses at a time on a connection")
                        continue
                    self._running += 1
                    tasks.start_soon(self._answer, raw)
                self._gone.set()
            waiting.cancel_scope.cancel()

    async def _close_at_the_end(self) -> None:
        """When the gateway ends, let answers under way end, and close the connection."""
        await self._ends.wait()
        with anyio.move_on_after(self._drain_seconds):
            while self._running:
                self._is_idle = anyio.Event()
                await self._is_idle.wait()
        await self._send({"type": "websocket.close", "code": RESTARTS})

    async def _send(self, message: AsgiMessage) -> None:
        """Send, unless the client has left."""
        try:
            if not self._gone.is_set():
                await self._sent(message)
        except OSError:
            self._gone.set()

    async def _answer(self, raw: bytes) -> None:
        stream = ""
        try:
            fields = fields_of(raw)
            stream = str(_value(fields, "stream_id") or "")[:_STREAM_CHARS]
            if (kind := _value(fields, "type")) != "response.create":
                await self._refuse(stream, 400, f"{kind!r:.100} isn't understood here: send 'response.create'")
                return
            async with self._turns.setdefault(stream, asyncio.Lock()):
                request = self._request(fields, stream)
                if _value(fields, "generate") is False:
                    await self._warmed(request, str(_value(fields, "model") or ""))
                else:
                    await self._exchange(request)
        except Unmanageable:
            await self._refuse(stream, 400, "a message is a JSON object, and its input a string or a list of items")
        finally:
            self._running -= 1
            if not self._running:
                self._is_idle.set()

    def _request(self, fields: dict[str, msgspec.Raw], stream: str) -> SocketRequest:
        """The body, with the items that this connection alone knows of. Raises `Unmanageable`."""
        new = input_items(fields.get("input"))
        after = _value(fields, "previous_response_id")
        known = self._remembered.get(str(after))
        items, after = (*known.items, *new) if known else tuple(new), known.after if known else after
        body: dict[str, Any] = {name: value for name, value in fields.items() if name not in _OF_THE_SOCKET}
        body |= {"stream": True, **({"previous_response_id": after} if after is not None else {}), "input": items}
        headers = metadata_headers(_value(fields, "client_metadata"))
        return SocketRequest(msgspec.json.encode(body), stream, items, after, headers)

    async def _exchange(self, request: SocketRequest) -> None:
        answer = SocketAnswer(request, self._send, partial(self._remember, request), self._most_bytes)
        is_said = False

        async def receive() -> AsgiMessage:
            nonlocal is_said
            if is_said:
                await self._gone.wait()
                return {"type": "http.disconnect"}
            is_said = True
            return {"type": "http.request", "body": request.body}

        scope = {**self._scope, "headers": [*self._scope["headers"], *request.headers]}
        await self._serve(scope, receive, answer.take)
        if not answer.is_over:
            await self._refuse(request.stream, *answer.error())

    async def _warmed(self, request: SocketRequest, model: str) -> None:
        """A response without a word, from which the client goes on: nobody is asked for it."""
        response: dict[str, Any] = {
            "id": f"resp_{secrets.token_hex(24)}", "object": "response", "created_at": 0, "status": "in_progress",
            "model": model, "output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
            "error": None, "incomplete_details": None, "usage": None,
        }  # fmt: skip
        await self._tell(request.stream, {"type": "response.created", "sequence_number": 0, "response": response})
        response["status"] = "completed"
        response["usage"] = {
            "input_tokens": 0, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": 0, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 0,
        }  # fmt: skip
        await self._remember(request, response)
        await self._tell(request.stream, {"type": "response.completed", "sequence_number": 1, "response": response})

    async def _remember(self, request: SocketRequest, response: dict[str, Any]) -> None:
        identity = str(response.get("id"))
        if await self._knows(identity):
            return
        said = response.get("output")
        output = [msgspec.Raw(msgspec.json.encode(item)) for item in said] if isinstance(said, list) else []
        self._remembered[identity] = RememberedResponse((*request.items, *output), request.after)
        while len(self._remembered) > MOST_REMEMBERED or (
            len(self._remembered) > 1 and sum(one.bytes for one in self._remembered.values()) > MOST_REMEMBERED_BYTES
        ):
            self._remembered.popitem(last=False)

    async def _refuse(self, stream: str, status: int, text: str, error: Any = None) -> None:
        kind = "invalid_request_error" if status < 500 else "server_error"
        told = error or {"type": kind, "code": None, "message": text, "param": None}
        await self._tell(stream, {"type": "error", "status": status, "error": told})

    async def _tell(self, stream: str, event: dict[str, Any]) -> None:
        shown = {**event, "stream_id": stream} if stream else event
        await self._send({"type": "websocket.send", "text": msgspec.json.encode(shown).decode()})


@dataclass(slots=True)
class SocketAnswer:
    """Passes the events of an answer on, as messages. `on_whole` hears of the response before the client does."""

    request: SocketRequest
    send: Send
    on_whole: Callable[[dict[str, Any]], Awaitable[None]]
    most_bytes: int
    is_over: bool = False  # whether the client has seen an end
    _status: int = 0
    _is_stream: bool = False
    _events: EventSplitter | None = None
    _body: list[bytes] = field(default_factory=list)

    async def take(self, message: AsgiMessage) -> None:
        """What an ASGI application sends."""
        if message["type"] == "http.response.start":
            kinds = [value for name, value in message["headers"] if name.lower() == b"content-type"]
            self._status = message["status"]
            self._is_stream = self._status == 200 and any(kind.startswith(b"text/event-stream") for kind in kinds)
            self._events = EventSplitter(self.most_bytes)
            return
        assert self._events is not None, "a head comes first"
        data = message.get("body", b"")
        if not self._is_stream:
            self._body.append(data)
            return
        if not self._events.is_full:  # an event that is too large is the last one
            for event in self._events.feed(data):
                await self._pass_on(event)

    async def _pass_on(self, event: bytes) -> None:
        said = data_of(event)
        if not said or said == b"[DONE]":
            return
        if any(end in said for end in _ENDS):
            await self._end(said)
        if self.request.stream and said.endswith(b"}"):
            said = said[:-1] + b',"stream_id":%b}' % msgspec.json.encode(self.request.stream)
        await self.send({"type": "websocket.send", "text": said.decode("utf-8", "replace")})

    async def _end(self, said: bytes) -> None:
        """Whether this is the end; what the model writes may name it, too."""
        try:
            event = msgspec.json.decode(said)
        except UNREADABLE:
            return
        kind = str(event.get("type")).encode() if isinstance(event, dict) else b""
        if kind in _ENDS:
            self.is_over = True
            if kind != b"response.failed" and isinstance(response := event.get("response"), dict):
                await self.on_whole(response)

    def error(self) -> tuple[int, str, Any]:
        """Status, text and the upstream's own words for an answer that has no end."""
        if self._is_stream or self._status == 200:
            return 502, "the answer broke off before its end", None
        try:
            told = msgspec.json.decode(b"".join(self._body))
        except UNREADABLE:
            told = None
        error = told.get("error") if isinstance(told, dict) else None
        return self._status, "the upstream's answer is no error that can be read", error


def request_scope(scope: AsgiScope) -> AsgiScope:
    """The head of a request over HTTP on the same path, with what belongs to the connection left out."""
    headers: list[tuple[bytes, bytes]] = [(b"content-type", b"application/json")]
    for name, value in scope["headers"]:
        if name in _NOT_OF_REQUESTS or name.startswith(b"sec-websocket-"):
            continue
        if name == b"openai-beta":
            kept = [one.strip() for one in value.split(b",") if not one.strip().startswith(b"responses_websockets")]
            if not kept:
                continue
            value = b",".join(kept)
        headers.append((name, value))
    scheme = "https" if scope.get("scheme") == "wss" else "http"
    return {**scope, "type": "http", "method": "POST", "scheme": scheme, "headers": headers}


def metadata_headers(metadata: Any) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers for one message, which a client says in its metadata since a socket has them only once."""
    found: list[tuple[bytes, bytes]] = []
    for key, value in metadata.items() if isinstance(metadata, dict) else ():
        name = key.removeprefix(_METADATA_HEADER)
        is_header = name != key and name.startswith(_METADATA_HEADERS) and name.isascii() and name.isidentifier()
        if is_header and isinstance(value, str) and value.isascii() and value.isprintable():
            found.append((name.replace("_", "-").lower().encode(), value.encode()))
    return tuple(found)


def _value(fields: dict[str, msgspec.Raw], name: str) -> Any:
    raw = fields.get(name)
    try:
        return None if raw is None else msgspec.json.decode(raw)
    except UNREADABLE:
        return None
