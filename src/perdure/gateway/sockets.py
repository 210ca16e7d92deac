"""The Responses API over a WebSocket, to which a client says only what is new (GW-6).

Each `response.create` becomes a request over HTTP, where `previous_response_id` is resolved. What no session has, such
as an answer that passed through, a connection remembers itself, so that a client that has nothing stored can go on from
it. Everything else, such as who may come in, sessions and limits, is that of a request over HTTP.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import anyio
import anyio.abc
import msgspec

from perdure.engine.session import run_aside
from perdure.gateway.admission import HeldPlaces, Refusal
from perdure.gateway.answers import EventSplitter, data_of
from perdure.gateway.requests import UNREADABLE, Unmanageable, check_fields, fields_of

AsgiScope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
Served = Callable[[AsgiScope, Receive, Send], Awaitable[None]]

MOST_REMEMBERED = 16  # responses of a connection that no session has …
MOST_REMEMBERED_BYTES = 32 * 1024 * 1024  # … how large those of a tenant's connections are together …
MOST_REMEMBERED_IN_ALL = 4 * MOST_REMEMBERED_BYTES  # … and those of all
SMALL_MESSAGE_BYTES = 64 * 1024  # of a connection there may be `MOST_AT_ONCE` of them
IDLE_SECONDS = 600.0  # without a message and an answer, after which a connection is closed
_STREAM_CHARS = 200  # of a stream's id
RESTARTS = 1012  # why a connection is closed when the gateway ends; clients connect again
IS_IDLE = 1001  # … when it was left alone
GIVES_WAY = 1013  # … when its tenant has the most of them, and another wants one
MOST_AT_ONCE = 16  # responses that a connection may be making
LARGE_MESSAGES = "perdure.large_messages"  # an extension: the server learns how places are taken for large messages
PLACES = "perdure.places"  # of a message: the places that it holds already for its size
WEIGHED = "perdure.weighed"  # of a request's scope: those are held for its body
ONLY_COUNTS = "perdure.only_counts"  # …: it counts as any other, and no upstream is asked
_OF_THE_SOCKET = frozenset({"type", "stream_id", "generate", "previous_response_id", "input", "stream", "background"})
_METADATA_HEADER = "ws_request_header_"  # before the names of headers that a client says in a message's metadata …
_METADATA_HEADERS = "x_openai_"  # … and those that go up: how the provider is to read the request, and no key
_ENDS = (b"response.completed", b"response.incomplete", b"response.failed")
_NOT_OF_REQUESTS = frozenset({b"connection", b"upgrade", b"content-length", b"content-type", b"transfer-encoding"})


@dataclass(frozen=True, slots=True)
class RememberedResponse:
    """The items of a conversation up to the end of a response, from behind the response `after` on (None: all).

    They are one text, as they stand between the brackets of an input: each as an object of its own would weigh more.
    """

    items: bytes
    after: str | None


@dataclass(slots=True)
class ConnectionMemory:
    """The responses that connections remember, by tenant. Where they are too large together, the oldest go.

    They are those of the tenant, or, beyond what all may have, of the one that has most.
    """

    _kept: dict[str, OrderedDict[tuple[object, str], RememberedResponse]] = field(default_factory=dict)
    _bytes: dict[str, int] = field(default_factory=dict)

    def get(self, tenant: str, connection: object, response: str) -> RememberedResponse | None:
        """Return a response of a connection; None for one that it doesn't remember."""
        mine = self._kept.get(tenant)
        return None if mine is None else mine.get((connection, response))

    def put(self, tenant: str, connection: object, response: str, one: RememberedResponse) -> None:
        """Remember a response of a connection."""
        mine = self._kept.setdefault(tenant, OrderedDict())
        self._drop(tenant, (connection, response))
        mine[connection, response] = one
        self._bytes[tenant] = self._bytes.get(tenant, 0) + len(one.items)
        own = [key for key in mine if key[0] is connection]
        for key in own[:-MOST_REMEMBERED]:
            self._drop(tenant, key)
        while self._bytes[tenant] > MOST_REMEMBERED_BYTES and len(mine) > 1:
            self._drop(tenant, next(iter(mine)))
        while sum(self._bytes.values()) > MOST_REMEMBERED_IN_ALL:
            most = max(self._bytes, key=self._bytes.__getitem__)
            self._drop(most, next(iter(self._kept[most])))

    def forget(self, tenant: str, connection: object) -> None:
        """Forget what a connection remembered."""
        for key in [key for key in self._kept.get(tenant, ()) if key[0] is connection]:
            self._drop(tenant, key)
        if not self._kept.get(tenant):
            self._kept.pop(tenant, None)
            self._bytes.pop(tenant, None)

    def bytes_of(self, tenant: str) -> int:
        """Return how large what a tenant's connections remember is."""
        return self._bytes.get(tenant, 0)

    def _drop(self, tenant: str, key: tuple[object, str]) -> None:
        if (gone := self._kept[tenant].pop(key, None)) is not None:
            self._bytes[tenant] -= len(gone.items)


@dataclass(frozen=True, slots=True)
class SocketRequest:
    """A `response.create`: the body that it is over HTTP, and what its answer needs."""

    body: bytes
    stream: str
    start: int  # of its items in the body
    after: str | None
    headers: tuple[tuple[bytes, bytes], ...] = ()

    @property
    def items(self) -> bytes:
        """What stands between the brackets of its input, which is the last of the body."""
        return self.body[self.start : -len(b"]}")]


@dataclass(frozen=True, slots=True)
class SocketMessage:
    """A message of a client, read. `head` is the beginning of its body over HTTP, and `new` are the items that it says.

    Nothing here holds on to the bytes that it came as.
    """

    kind: str
    stream: str
    head: bytes
    new: bytes | None  # None: no input that can be read
    after: str | None
    model: str
    generates: bool
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
        most_bytes: how large a request may be, and an event of an answer.
        drain_seconds: how long answers may take then.
        tenant: whose connection it is.
        memory: keeps what no session has.
        enter: takes places for a message of so many bytes. Raises `Refusal`.
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
        tenant: str = "",
        memory: ConnectionMemory | None = None,
        enter: Callable[[int], Awaitable[HeldPlaces]] | None = None,
    ) -> None:
        self._serve, self._knows, self._receive, self._sent = serve, knows, receive, send
        self._ends, self._most_bytes, self._drain_seconds = ends, most_bytes, drain_seconds
        self._tenant, self._memory, self._enter = tenant, memory or ConnectionMemory(), enter
        self._scope = {**request_scope(scope), WEIGHED: True}
        # Responses of one stream are made one after the other; a client may name a new one each time.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._running = 0
        self._used = time.monotonic()  # when something was said here last
        self._is_idle = anyio.Event()
        self._gone = anyio.Event()
        self._unwanted = anyio.Event()

    @property
    def age(self) -> tuple[bool, float]:
        """How it stands among connections of which one has to go: the least does."""
        return self._running > 0, self._used

    def give_way(self) -> None:
        """Close it for another tenant's."""
        self._unwanted.set()

    async def run(self) -> None:
        """Accept the connection, and answer until the client leaves, is idle for too long, or the gateway ends."""
        await self._send({"type": "websocket.accept"})
        try:
            async with anyio.create_task_group() as waiting:
                waiting.start_soon(self._close_at_the_end)
                waiting.start_soon(self._close_unwanted)
                async with anyio.create_task_group() as tasks:
                    while (message := await self._message())["type"] != "websocket.disconnect":
                        await self._take(message, tasks)
                        del message  # an idle connection doesn't hold on to the last one
                    self._gone.set()
                waiting.cancel_scope.cancel()
        finally:
            self._memory.forget(self._tenant, self)

    async def _message(self) -> AsgiMessage:
        """Return the next message. A connection that is idle for too long is closed, and then says so itself."""
        while True:
            left = self._used + IDLE_SECONDS - time.monotonic()
            with anyio.move_on_after(left if left > 0 else IDLE_SECONDS):  # none is left where it answers for so long
                return await self._receive()
            if not self._running and time.monotonic() - self._used >= IDLE_SECONDS:
                await self._send({"type": "websocket.close", "code": IS_IDLE, "reason": "idle"})
                return await self._receive()

    async def _take(self, message: AsgiMessage, tasks: anyio.abc.TaskGroup) -> None:
        """Begin to answer a message, which holds its places until that is done."""
        said = message.get("text") or message.get("bytes") or ""
        raw = said.encode() if isinstance(said, str) else said
        places: HeldPlaces | None = message.get(PLACES)
        self._used = time.monotonic()
        refusal: tuple[int, str] | None = None
        if self._ends.is_set():
            refusal = 503, "the gateway is about to end: connect again"
        elif self._running >= MOST_AT_ONCE:
            refusal = 429, f"at most {MOST_AT_ONCE} responses at a time on a connection"
        elif places is None and len(raw) > SMALL_MESSAGE_BYTES and self._enter is not None:
            try:
                places = await self._enter(len(raw))
            except Refusal as e:
                refusal = e.status, e.text
        if refusal is None:
            self._running += 1
            tasks.start_soon(self._answer, [raw], places)
            return
        if places is not None:
            places.keep(0)
        await self._refuse("", *refusal)

    async def _close_at_the_end(self) -> None:
        """When the gateway ends, let answers under way end, and close the connection."""
        await self._ends.wait()
        with anyio.move_on_after(self._drain_seconds):
            while self._running:
                self._is_idle = anyio.Event()
                await self._is_idle.wait()
        await self._send({"type": "websocket.close", "code": RESTARTS})

    async def _close_unwanted(self) -> None:
        await self._unwanted.wait()
        reason = "you have the most connections here, and another one is wanted"
        await self._send({"type": "websocket.close", "code": GIVES_WAY, "reason": reason})

    async def _send(self, message: AsgiMessage) -> None:
        """Send, unless the client has left."""
        try:
            if not self._gone.is_set():
                await self._sent(message)
        except OSError:
            self._gone.set()

    async def _answer(self, said: list[bytes], places: HeldPlaces | None) -> None:
        stream = ""
        try:
            raw = said.pop()  # the caller's frame lives on
            message = await run_aside(len(raw), partial(_read, raw))
            del raw
            stream = message.stream
            if message.kind != "response.create":
                if await self._counts(stream):
                    text = f"{message.kind!r:.100} isn't understood here: send 'response.create'"
                    await self._refuse(stream, 400, text)
                return
            async with self._turns.setdefault(stream, asyncio.Lock()):
                if not message.generates and not await self._counts(stream):
                    return
                request, generates, model = self._request(message), message.generates, message.model
                del message  # the request says it all
                if request is None:
                    text = f"the request is larger than {self._most_bytes:,} bytes, with what was said before it"
                    await self._refuse(stream, 413, text)
                elif generates:
                    await self._exchange(request)
                else:
                    await self._warmed(request, model)
        except Unmanageable:
            if await self._counts(stream):
                await self._refuse(stream, 400, "a message is a JSON object, and its input a string or a list of items")
        finally:
            if places is not None:
                places.keep(0)
            self._running -= 1
            self._used = time.monotonic()
            if not self._running:
                self._is_idle.set()

    def _request(self, message: SocketMessage) -> SocketRequest | None:
        """Add the items that this connection alone knows of; None where that is too much. Raises `Unmanageable`."""
        if message.new is None:
            raise Unmanageable("no_messages")
        known = self._memory.get(self._tenant, self, message.after or "")
        after = message.after if known is None else known.after
        before = b"" if known is None else known.items
        if len(message.head) + len(before) + len(message.new) > self._most_bytes:
            return None
        items = b",".join(part for part in (before, message.new) if part)
        named = b"" if after is None else b',"previous_response_id":%b' % msgspec.json.encode(after)
        body = b'%b%b,"input":[%b]}' % (message.head, named, items)
        start = len(body) - len(items) - len(b"]}")
        return SocketRequest(body, message.stream, start, after, message.headers)

    async def _counts(self, stream: str) -> bool:
        """Count a message that asks nobody as a request of its tenant; False where the client was told why it can't."""

        async def receive() -> AsgiMessage:
            return {"type": "http.request", "body": b""}

        answer = SocketAnswer(SocketRequest(b"", stream, 0, None), self._send, _unheard, self._most_bytes)
        await self._serve({**self._scope, ONLY_COUNTS: True}, receive, answer.take)
        if answer.is_allowed:
            return True
        await self._refuse(stream, *answer.error())
        return False

    async def _exchange(self, request: SocketRequest) -> None:
        answer = SocketAnswer(request, self._send, partial(self._remember, request), self._most_bytes)
        bodies = [request.body]

        async def receive() -> AsgiMessage:  # its frame stays until the next collection, and may not know the body
            if bodies:
                return {"type": "http.request", "body": bodies.pop()}
            await self._gone.wait()
            return {"type": "http.disconnect"}

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
        output = map(msgspec.json.encode, said) if isinstance(said, list) else ()
        items = b",".join(part for part in (request.items, *output) if part)
        self._memory.put(self._tenant, self, identity, RememberedResponse(items, request.after))

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

    @property
    def is_allowed(self) -> bool:
        """Whether the request was let in."""
        return self._status == 200

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


async def _unheard(_: dict[str, Any]) -> None:
    """Ignore a response."""


def _read(raw: bytes) -> SocketMessage:
    """Read a message. Raises `Unmanageable` where it is no object."""
    check_fields(raw)
    fields = fields_of(raw)
    rest: dict[str, Any] = {name: value for name, value in fields.items() if name not in _OF_THE_SOCKET}
    after = _value(fields, "previous_response_id")
    return SocketMessage(
        kind=str(_value(fields, "type")),
        stream=str(_value(fields, "stream_id") or "")[:_STREAM_CHARS],
        head=msgspec.json.encode({**rest, "stream": True})[:-1],
        new=_items(fields.get("input")),
        after=None if after is None else str(after),
        model=str(_value(fields, "model") or ""),
        generates=_value(fields, "generate") is not False,
        headers=metadata_headers(_value(fields, "client_metadata")),
    )


def _items(said: msgspec.Raw | None) -> bytes | None:
    """Return the items of an input as they stand between its brackets; None for what is no input.

    A text is what a user says.
    """
    raw = b"[]" if said is None else bytes(said)
    if raw[:1] == b'"':
        return b'{"role":"user","content":%b}' % raw
    return raw[1:-1].strip() if raw[:1] == b"[" else None


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
