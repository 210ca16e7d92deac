"""The ASGI application: who may come in, where a request belongs, and what the gateway answers itself (GW-1, SEC-7)."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from functools import partial
from urllib.parse import parse_qsl

import anyio
import msgspec

from perdure.adapters.listening import foreign_page
from perdure.engine.session import run_aside
from perdure.errors import JournalError
from perdure.gateway import pages
from perdure.gateway.access import CURRENT, RequestRecord, client_of
from perdure.gateway.admission import HeldPlaces, Refusal
from perdure.gateway.background import BackgroundResponse, in_background
from perdure.gateway.compress import COMPRESS, RETRIEVE
from perdure.gateway.config import Tenant
from perdure.gateway.conversations import ConversationCall, ConversationRefused, conversation_answer
from perdure.gateway.encodings import UnreadableEncoding, decoded
from perdure.gateway.exchange import AWAY, RETRY, UNRECORDED, GatewayExchange, Inquiry
from perdure.gateway.gateway import OWN_LARGE_BODIES, SIDES, Gateway
from perdure.gateway.hosted import HOSTS, HostedCall
from perdure.gateway.requests import LARGE_BODY_BYTES, ClientProtocol, Unmanageable, fields_of, read_body
from perdure.gateway.sockets import (
    LARGE_MESSAGES,
    ONLY_COUNTS,
    WEIGHED,
    AsgiMessage,
    AsgiScope,
    Receive,
    ResponseSocket,
    Send,
    request_scope,
)
from perdure.gateway.stored import deletion, item_page, listed_items, number_in
from perdure.gateway.upstream import is_plain_path

_LOG = logging.getLogger("perdure.gateway")
_READING = ("GET", "HEAD")
# What is managed, by how its path ends: providers put it below paths of their own (`/openai/deployments/NAME/…`).
_MANAGED = {
    "/chat/completions": ("openai", "turn"),
    "/v1/messages": ("anthropic", "turn"),
    "/v1/messages/count_tokens": ("anthropic", "count"),
    "/responses": ("responses", "turn"),
    "/responses/input_tokens": ("responses", "count"),
    "/responses/compact": ("responses", "compact"),
}  # and the paths of `HostedCall`
_CANCEL = re.compile(r"/responses/([^/]+?)/cancel\Z")
_STORED = re.compile(r"/responses/([^/]+?)(/input_items)?\Z")
# What an account has stored, however a path spells it: where tenants share one, only what is known here may be asked.
_OF_ACCOUNT = re.compile(r"/responses/|/conversations/+conv_", re.IGNORECASE)
_PROVIDER = {"anthropic": "anthropic", "openai": "openai", "responses": "openai"}  # whose upstream of a route it is

_REQUEST = b"x-perdure-request"
_CLOSING_SECONDS = 0.5  # of those that answers have at the end, to close connections in
_NO_SOCKET = "no WebSocket is served here: use HTTP"
_ENDING = "this gateway is about to end: ask again, and another one answers"


class ClientGone(Exception):
    """The client went away."""


class GatewayApp:
    """`GatewayApp(gateway)` is an ASGI application; uvicorn, or any other server, runs it."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.ends = asyncio.Event()  # is set when it is about to end
        self._sockets: dict[str, dict[ResponseSocket, None]] = {}  # open ones, of each tenant

    def drain(self) -> None:
        """Begin nothing any more: from now on answers under way have `drain_seconds` to end."""
        self.gateway.ends()
        self.ends.set()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            await self._socket(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.gateway.open()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.gateway.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _http(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        record = self._record(scope)

        async def noted(message: AsgiMessage) -> None:
            record.sent(message)
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (_REQUEST, record.request.encode())]}
            await send(message)

        before = CURRENT.set(record)
        try:
            await self._served(scope, receive, noted, record)
        finally:
            CURRENT.reset(before)
            self._log(record)

    def _record(self, scope: AsgiScope) -> RequestRecord:
        return RequestRecord(self.gateway.clock.now(), client=client_of(scope["headers"]))

    def _log(self, record: RequestRecord) -> None:
        """A line in the access log, unless it was one of our own pages."""
        if record.kind == "page":
            return
        if (write := self.gateway.active.access) is not None:
            write(record.line())
        if (export := self.gateway.otlp) is not None:
            export.request(record.told())

    async def _served(self, scope: AsgiScope, receive: Receive, send: Send, record: RequestRecord) -> None:
        gateway = self.gateway
        path = scope["path"]
        if path in pages.PROBES and scope["method"] in _READING:
            record.kind = "page"
            told = await pages.PROBES[path](gateway)
            await _answer(send, told.status, told.body, told.content_type, told.headers)
            return
        who = gateway.active.tenants.of(scope["headers"], scope.get("query_string", b""))
        record.tenant = "" if who is None else who.id
        refusal = self._refusal(scope, who)
        if refusal is not None:
            reason, status, text = refusal
            record.reason = reason
            gateway.metrics.refused.labels(reason).inc()
            await _answer(send, status, _side_of(path, scope).error_body(status, text))
            return
        if any(name == b"upgrade" and value.lower() == b"websocket" for name, value in scope["headers"]):
            record.reason = "websocket"
            body = _side_of(path, scope).error_body(426, _NO_SOCKET)
            await _answer(send, 426, body, extra=[(b"connection", b"close")])
            return
        onlooker = gateway.looks_on(who, scope["headers"], scope.get("query_string", b""))
        if (page := pages.PAGES.get(path)) is not None and scope["method"] in _READING:
            record.kind = "page"
            told = await page(gateway, onlooker)
            await _answer(send, told.status, told.body, told.content_type, told.headers)
            return
        query, found = scope.get("query_string", b"").decode("latin-1"), None
        if who is not None and path.startswith(pages.RECALL) and scope["method"] in _READING:
            found = await pages.recalled(gateway, who, path.removeprefix(pages.RECALL), query)
        elif path.startswith(pages.REPORT) and scope["method"] in _READING:
            found = await pages.report(gateway, onlooker, path.removeprefix(pages.REPORT), query)
        if found is not None:
            record.kind = "page"
            await _answer(send, found.status, found.body, found.content_type, found.headers)
            return
        try:
            assert who is not None, "strangers were refused"
            if self.ends.is_set() and scope["method"] not in _READING:
                raise Refusal("draining", 503, _ENDING)
            async with AsyncExitStack() as held:  # the places of its body
                if not await self._for_litellm(scope, who, receive, send, record, held):
                    await self._passed_on(scope, who, receive, send, record, held)
        except Refusal as e:
            record.reason = e.reason
            gateway.metrics.refused.labels(e.reason).inc()
            await _answer(send, e.status, _side_of(path, scope).error_body(e.status, e.text), extra=e.headers)
        except JournalError as e:  # of what only the store can tell
            record.reason = UNRECORDED
            gateway.metrics.refused.labels(UNRECORDED).inc()
            _LOG.warning("a request waits for the store: %s", e)
            await _answer(send, 503, _side_of(path, scope).error_body(503, AWAY), extra=RETRY)
        finally:
            await self._count(record)

    async def _socket(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """A WebSocket: of the Responses API, and none else; each of its requests then comes in as one over HTTP."""
        gateway, request = self.gateway, request_scope(scope)
        await receive()  # the wish to connect
        who = gateway.active.tenants.of(scope["headers"], scope.get("query_string", b""))
        refusal = self._refusal(request, who)
        _, path = self._route_of(scope)
        if refusal is None and not path.endswith("/responses"):
            refusal = "path", 426, _NO_SOCKET
        elif refusal is None and self.ends.is_set():
            refusal = "draining", 503, _ENDING
        elif refusal is None and who is not None and not self._has_room_for_socket(who.id):
            refusal = "busy", 503, "too many connections at a time; come back in a second"
        if refusal is not None:
            reason, status, text = refusal
            gateway.metrics.refused.labels(reason).inc()
            body = _side_of(path, scope).error_body(status, text)

            record = self._record(scope)
            record.kind, record.reason = "socket", reason

            async def refuse(message: AsgiMessage) -> None:
                record.sent(message)
                await send({**message, "type": f"websocket.{message['type']}"})

            await _answer(refuse, status, body)
            self._log(record)
            return
        assert who is not None, "strangers were refused"
        sessions, config = gateway.sessions(who.id), gateway.active.gateway

        async def knows(response: str) -> bool:
            try:
                return await sessions.place(response) is not None
            except JournalError:
                return False  # then the connection remembers it itself

        enter = partial(gateway.enter_body, who.id)
        if (tell := scope.get("extensions", {}).get(LARGE_MESSAGES)) is not None:
            # A server has some copies of a message while it reads it. It may wait as long as it may take then.
            room = OWN_LARGE_BODIES * config.max_body_bytes
            tell(partial(enter, room, config.body_seconds), config.body_seconds)
        one = ResponseSocket(
            scope,
            self._http,
            knows,
            receive,
            send,
            ends=self.ends,
            most_bytes=config.max_body_bytes,
            drain_seconds=max(0.0, config.drain_seconds - _CLOSING_SECONDS),
            tenant=who.id,
            memory=gateway.remembered,
            enter=enter,
        )
        self._sockets.setdefault(who.id, {})[one] = None
        gateway.metrics.sockets.inc()
        try:
            await one.run()
        finally:
            self._forget_socket(who.id, one)

    def _has_room_for_socket(self, tenant: str) -> bool:
        """Whether a tenant may have one more: where all are taken, the one that has most gives one of its own."""
        if sum(map(len, self._sockets.values())) < self.gateway.active.gateway.max_waiting:
            return True
        most = max(self._sockets, key=lambda name: len(self._sockets[name]))
        if len(self._sockets[most]) <= len(self._sockets.get(tenant, ())) + 1:
            return False
        idlest = min(self._sockets[most], key=lambda one: one.age)
        self._forget_socket(most, idlest)
        idlest.give_way()
        return True

    def _forget_socket(self, tenant: str, one: ResponseSocket) -> None:
        """Count a connection no longer; it may be closing still."""
        mine = self._sockets.get(tenant, {})
        mine.pop(one, None)
        if not mine:
            self._sockets.pop(tenant, None)

    def _refusal(self, scope: AsgiScope, who: Tenant | None) -> tuple[str, int, str] | None:
        """Why a request doesn't come in; None when it does."""
        allowed = self.gateway.active.gateway.allowed_hosts
        if scope["path"] == pages.METRICS and scope.get("server"):
            # Prometheus asks each gateway of a cluster by its address, which no page can make its own name stand for.
            allowed = (*allowed, scope["server"][0])
        match foreign_page(scope["headers"], allowed):
            case "host":
                return "host", 421, "this host name isn't served here; allow it with gateway.allowed_hosts"
            case "origin":
                return "origin", 403, "pages of other sites may not ask"
        if not is_plain_path(scope.get("raw_path") or scope["path"].encode()):
            return "path", 400, "the path can't be passed on as it is"
        has_ticket = scope["path"].startswith(pages.REPORT) and b"ticket=" in scope.get("query_string", b"")
        if who is None and not ((scope["path"] in pages.OPEN or has_ticket) and scope["method"] in _READING):
            return "credential", 401, "no tenant has this key"
        return None

    async def _passed_on(
        self,
        scope: AsgiScope,
        tenant: Tenant,
        receive: Receive,
        send: Send,
        record: RequestRecord,
        held: AsyncExitStack,
    ) -> None:
        side, config = _side_of(scope["path"], scope), self.gateway.active.gateway
        name, path = self._route_of(scope)
        is_bare = path == "/responses" or path.startswith("/responses/")  # of a client that was told no /v1
        path = f"/v1{path}" if is_bare else path
        route = config.route(name)
        ends = (told for end, told in _MANAGED.items() if path.endswith(end))
        protocol, kind = next(ends, (side.protocol, "other"))
        provider = _PROVIDER[protocol]
        hosted = HostedCall.of(path) if kind == "other" else None
        if hosted is not None:
            protocol = provider = hosted.host
            kind = hosted.kind
        is_turn = kind == "turn"
        upstream = None if route is None else getattr(route, provider)
        record.route, record.protocol, record.kind, record.upstream = name, protocol, kind, upstream or ""
        if route is None or upstream is None:
            record.reason = "no_upstream"
            text = f"no upstream is configured for this path: the route {name!r} needs one for {provider}"
            await _answer(send, 404, side.error_body(404, text))
            return
        limits, now = config.limits_of(tenant.id), self.gateway.clock.now()
        (await self.gateway.usage.of(tenant.id, now, limits)).admit(limits, now)
        admission = self.gateway.admission
        answered = partial(
            admission.answered, tenant.id, config.max_waiting, own=limits.concurrent, seconds=config.queue_seconds
        )
        if scope.get(ONLY_COUNTS):
            record.kind = "warm"
            async with answered():
                await _answer(send, 200, b"{}")
            return
        if (body := await self._arrived(side, tenant, scope, receive, send, record, held)) is None:
            return
        record.kind = kind = kind if scope["method"] == "POST" and route.is_managed else "other"
        record.is_call = is_turn and scope["method"] == "POST"
        is_shared = upstream in tenant.shared  # then its account has others' responses, too
        is_vouched = False  # what of them is asked for is the tenant's own
        if route.is_managed and "/responses/" in path:
            passed = await self._of_background(tenant, scope, path, receive, send, is_shared=is_shared)
            if passed is None:
                record.kind = "stored"
                return
            send = passed
        if route.is_managed and scope["method"] in ("GET", "DELETE") and (stored := _STORED.search(path)):
            record.kind = "stored"
            passed = await self._stored(tenant, scope, send, *stored.groups(), is_shared=is_shared)
            if passed is None:
                return
            is_vouched, send = is_shared, passed
        call = ConversationCall.of(scope["method"], path) if route.is_managed else None
        if call is not None and await self._conversation(tenant, scope, body, call, send, record, is_shared=is_shared):
            return
        if is_shared and not is_vouched and kind == "other" and route.is_managed and _OF_ACCOUNT.search(path):
            record.reason = "stored"
            await _answer(send, 404, side.error_body(404, "nothing of yours is stored under this path"))
            return
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        raw = raw[len(name) + 1 :] if raw.startswith(f"/{name}/".encode()) and name != "default" else raw
        inquiry = Inquiry(
            method=scope["method"],
            raw_path=b"/v1" + raw if is_bare else raw,
            query=scope.get("query_string", b""),
            headers=tuple(scope["headers"]),
            body=body,
            side=SIDES[protocol] if hosted is None else side,
            hosted=hosted,
            route=name,
            tenant=tenant,
            is_shared=is_shared,
        )

        async def exchanged(inquiry: Inquiry, receive: Receive, send: Send, record: RequestRecord) -> None:
            exchange = GatewayExchange(self.gateway, inquiry, config.upstreams[upstream], upstream, record)
            await self._watched(exchange, answered(), kind, receive, send)

        is_managed_turn = kind == "turn" and protocol == "responses" and not inquiry.encoding
        if is_managed_turn and (made := in_background(body)) is not None:
            await self._in_background(inquiry, *made, exchanged, receive, send, record, held.pop_all())
        else:
            await exchanged(inquiry, receive, send, record)

    async def _in_background(
        self,
        inquiry: Inquiry,
        body: bytes,
        is_stream: bool,
        exchanged: Callable[[Inquiry, Receive, Send, RequestRecord], Awaitable[None]],
        receive: Receive,
        send: Send,
        record: RequestRecord,
        held: AsyncExitStack,
    ) -> None:
        """Begin a response that goes on when its client has left, and tell the client of it once it has begun. What is
        `held` for it is let go of with it."""
        gateway, tenant = self.gateway, inquiry.tenant.id
        one = BackgroundResponse(body, gateway.active.gateway.max_event_bytes)
        own = record.another(gateway.clock.now())
        record.kind, record.is_call = "background", False

        async def noted(message: AsgiMessage) -> None:
            own.sent(message)
            await one.take(message)

        async def work() -> None:
            CURRENT.set(own)
            try:
                await exchanged(replace(inquiry, body=body), one.receive, noted, own)
            except Refusal as e:
                own.reason = e.reason
                await _answer(noted, e.status, inquiry.side.error_body(e.status, e.text), extra=e.headers)
            finally:
                await held.aclose()
                one.end()
                await self._count(own)
                self._log(own)

        gateway.responding.start("background", work)
        await one.begun.wait()
        if not one.id:
            await _answer(send, one.status or 502, one.body or inquiry.side.error_body(502, "there was no answer"))
            return
        gateway.background.keep(tenant, one, gateway.clock.now())
        told = [(name, value) for name, value in one.headers if name.startswith(b"x-perdure-") and name != _REQUEST]
        if is_stream:
            await _streamed(one, -1, told, receive, send)
        else:
            await _answer(send, 200, msgspec.json.encode(one.response), extra=told)

    async def _of_background(
        self, tenant: Tenant, scope: AsgiScope, path: str, receive: Receive, send: Send, *, is_shared: bool
    ) -> Send | None:
        """Answer what is asked about a response in the background, or to cancel one; None where that is done, else how
        anybody else's answer is sent."""
        method, kept, sessions = scope["method"], self.gateway.background, self.gateway.sessions(tenant.id)
        cancels = _CANCEL.search(path) if method == "POST" else None
        found = cancels or _STORED.search(path)
        one = None if found is None else kept.of(tenant.id, found[1])
        if found is None or (one is None and cancels is None):
            return send
        if one is None:
            is_known = await sessions.stored(found[1]) is not None or bool(sessions.seal.name_in(found[1]))
            if not is_known and not is_shared:
                return send
            status, text = 404, f"Response with id '{found[1]}' not found."
            if is_known:
                status, text = 400, "Cannot cancel a synchronous response."
            await _answer(send, status, SIDES["responses"].error_body(status, text))
        elif cancels is not None:
            one.cancel()
            await one.over.wait()
            await _answer(send, 200, msgspec.json.encode(one.response))
        elif method == "DELETE":
            kept.forget(tenant.id, found[1])
            await one.over.wait()
            if not is_shared or await sessions.stored(found[1]) is not None:
                return _with_deletion(send, found[1])
            await _answer(send, 200, deletion(found[1]))
        elif method != "GET" or found[2]:
            return send
        else:
            asked = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
            if asked.get("stream") == "true":
                await _streamed(one, number_in(asked.get("starting_after", ""), -1), [], receive, send)
            else:
                await _answer(send, 200, msgspec.json.encode(one.response))
        return None

    async def _arrived(
        self,
        side: ClientProtocol,
        tenant: Tenant,
        scope: AsgiScope,
        receive: Receive,
        send: Send,
        record: RequestRecord,
        held: AsyncExitStack,
    ) -> bytes | None:
        """The body, once all of it is there; None where the client was told why not, or has gone.

        The places of a large one are `held`; they are taken before most of it is read.
        """
        config = self.gateway.active.gateway
        body, is_whole = None, False
        places: HeldPlaces | None = None

        async def large() -> None:
            nonlocal places
            places = await self.gateway.enter_body(tenant.id, _length_of(scope, config.max_body_bytes))
            held.callback(places.keep, 0)

        on_large = None if scope.get(WEIGHED) else large
        try:
            with self.gateway.admission.arriving(tenant.id, config.max_waiting, config.body_seconds):
                body = await read_body(_chunks(receive), config.max_body_bytes, on_large)
                is_whole = True
                if places is not None and body is not None:
                    places.keep(len(body) // LARGE_BODY_BYTES)
        except ClientGone:
            record.ending = "cancelled"
            self.gateway.metrics.cancelled.inc()
            return None
        if not is_whole:
            record.reason = "slow"
            self.gateway.metrics.refused.labels("slow").inc()
            await _answer(send, 408, side.error_body(408, f"the body took more than {config.body_seconds:g} s"))
        elif body is None:
            record.reason = "too_large"
            self.gateway.metrics.refused.labels("too_large").inc()
            text = f"the body is larger than {config.max_body_bytes:,} bytes"
            await _answer(send, 413, side.error_body(413, text))
        else:
            record.bytes_in = len(body)
        return body

    async def _for_litellm(
        self,
        scope: AsgiScope,
        tenant: Tenant,
        receive: Receive,
        send: Send,
        record: RequestRecord,
        held: AsyncExitStack,
    ) -> bool:
        """Answer what LiteLLM's guardrail asks (GW-10); False for anything else."""
        name, path = self._route_of(scope)
        route, side = self.gateway.active.gateway.route(name), SIDES["openai"]
        if route is None or not route.is_managed:
            return False
        found = RETRIEVE.search(path) if scope["method"] == "GET" else None
        if found is None and (path != COMPRESS or scope["method"] != "POST"):
            return False
        record.route, record.protocol, record.kind = name, "litellm", "retrieve" if found else "compress"
        config, now = self.gateway.active.gateway, self.gateway.clock.now()
        limits = config.limits_of(tenant.id)
        (await self.gateway.usage.of(tenant.id, now, limits)).admit(limits, now)
        if found is not None:
            original = await self.gateway.sessions(tenant.id).compressed.get(found[1])
            told = side.error_body(404, f"nothing of yours has the hash {found[1]}")
            if original is not None:
                told = msgspec.json.encode({"original_content": original})
            await _answer(send, 404 if original is None else 200, told)
            return True
        if (body := await self._arrived(side, tenant, scope, receive, send, record, held)) is None:
            return True
        async with self.gateway.admission.answered(
            tenant.id, config.max_waiting, own=limits.concurrent, seconds=config.queue_seconds
        ):
            try:
                told = await self.gateway.compressed(tenant.id, name, body)
            except Unmanageable as e:
                record.reason = e.reason
                text = f"send an object with messages, a list of at least one message ({e.reason})"
                await _answer(send, 400, side.error_body(400, text))
                return True
        self.gateway.metrics.requests.labels(name, "compress", "view").inc()
        await _answer(send, 200, told)
        return True

    async def _count(self, record: RequestRecord) -> None:
        """What a request cost counts for the quotas of its tenant."""
        if record.usage is not None:
            with anyio.CancelScope(shield=True):
                now = self.gateway.clock.now()
                (await self.gateway.usage.of(record.tenant, now)).count(record.usage, record.usd, now)

    async def _stored(
        self, tenant: Tenant, scope: AsgiScope, send: Send, response: str, items: str | None, *, is_shared: bool
    ) -> Send | None:
        """Answer what is asked about a stored response; None where that is done, else how the upstream's is sent."""
        sessions = self.gateway.sessions(tenant.id)
        known = await sessions.stored(response)
        mode = "untouched" if known is None else "view"
        self.gateway.metrics.requests.labels(self._route_of(scope)[0], "stored", mode).inc()
        is_deleted = known is None and await sessions.is_deleted(response)
        if known is None and not is_shared and not is_deleted:
            return send
        if known is None and not is_deleted and (bare := sessions.seal.name_in(response)):
            if scope["method"] == "DELETE":
                await sessions.delete_response(response)
            raw: bytes = scope.get("raw_path") or scope["path"].encode()
            scope["raw_path"] = raw.replace(response.encode(), bare.encode())
            return _renamed(send, response)
        if known is None:
            text = f"Response with id '{response}' not found."
            await _answer(send, 404, SIDES["responses"].error_body(404, text))
        elif scope["method"] == "GET":
            asked = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
            page = item_page(listed_items(known.input_items()), asked) if items else None
            await _answer(send, 200, page or msgspec.json.encode(known.response()))
        else:
            await sessions.delete_response(response)
            if not is_shared:
                return _with_deletion(send, response)  # the upstream may have it, too
            await _answer(send, 200, deletion(response))
        return None

    async def _conversation(
        self,
        tenant: Tenant,
        scope: AsgiScope,
        body: bytes,
        call: ConversationCall,
        send: Send,
        record: RequestRecord,
        *,
        is_shared: bool,
    ) -> bool:
        """Answer what is asked about a conversation; False where it is the upstream's."""
        sessions, side = self.gateway.sessions(tenant.id), SIDES["responses"]
        query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1")))
        encoding = dict(scope["headers"]).get(b"content-encoding", b"").decode("latin-1")
        record.kind = "stored"
        try:
            most = self.gateway.active.gateway.max_body_bytes
            said = await run_aside(most, lambda: decoded(body, encoding, most)) if encoding else body
            stored = partial(sessions.stored, even_deleted=True)
            told = await conversation_answer(
                sessions.conversations, stored, call, said, query, self.gateway.clock.now()
            )
        except (ConversationRefused, UnreadableEncoding) as e:
            status = e.status if isinstance(e, ConversationRefused) else 415
            await _answer(send, status, side.error_body(status, str(e)))
            return True
        is_ours = told is not None or (is_shared and call.is_openais)
        if told is not None:
            await _answer(send, 200, told)
        elif is_ours:
            text = f"Conversation with id '{call.conversation}' not found."
            await _answer(send, 404, side.error_body(404, text))
        if is_ours:
            self.gateway.metrics.requests.labels(record.route, "stored", "untouched" if told is None else "view").inc()
        else:
            record.kind = "other"
        return is_ours

    async def _watched(
        self,
        exchange: GatewayExchange,
        place: AbstractAsyncContextManager[None],
        kind: str,
        receive: Receive,
        send: Send,
    ) -> None:
        """Run an exchange, in its place, until it ends or the client goes away, which cancels the upstream."""
        refusal: Refusal | None = None
        watched = [exchange]
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                if watched and not watched[0].is_over:
                    watched[0].record.ending = "cancelled"
                    self.gateway.metrics.cancelled.inc()
                    tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            try:
                async with place:
                    await exchange.run(kind, send)
            except Refusal as e:
                refusal = e
            finally:
                watched.clear()  # the cancelled task is a cycle, which would keep the body until the next collection
            tasks.cancel_scope.cancel()
        if refusal is not None:
            raise refusal

    def _route_of(self, scope: AsgiScope) -> tuple[str, str]:
        """The route that a path names in front, and the path behind it."""
        path: str = scope["path"]
        first, slash, rest = path[1:].partition("/")
        if slash and first in self.gateway.active.gateway.routes:
            return first, f"/{rest}"
        return "default", path


def _side_of(path: str, scope: AsgiScope) -> ClientProtocol:
    """Which protocol a client speaks, where the path doesn't say: only Anthropic's SDKs name their version."""
    if (hosted := HostedCall.of(path)) is not None:
        return HOSTS[hosted.host]
    if path.endswith(("/chat/completions", "/responses")) or "/responses/" in path:
        return SIDES["openai"]
    names = {name for name, _ in scope["headers"]}
    is_anthropic = b"anthropic-version" in names or b"x-api-key" in names or "/v1/messages" in path
    return SIDES["anthropic" if is_anthropic else "openai"]


def _with_deletion(send: Send, response: str) -> Send:
    """How an upstream's answer to a deletion is sent that was carried out here: it may never have had the response."""
    is_missing = False

    async def sent(message: AsgiMessage) -> None:
        nonlocal is_missing
        if message["type"] == "http.response.start" and message["status"] == 404:
            is_missing = True
            await _answer(send, 200, deletion(response))
        elif not is_missing:
            await send(message)

    return sent


def _renamed(send: Send, response: str) -> Send:
    """Send an upstream's answer about a response under the id that its client knows it by."""
    start: AsgiMessage = {}
    parts: list[bytes] = []

    async def sent(message: AsgiMessage) -> None:
        nonlocal start
        if message["type"] == "http.response.start":
            start = message
            return
        parts.append(message.get("body", b""))
        if message.get("more_body"):
            return
        body = b"".join(parts)
        try:
            told = fields_of(body)
            body = msgspec.json.encode({**told, "id": response}) if "id" in told else body
        except Unmanageable:
            pass  # it is passed on as it came
        headers = [(name, value) for name, value in start["headers"] if name != b"content-length"]
        await send({**start, "headers": [*headers, (b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    return sent


async def _streamed(
    one: BackgroundResponse, after: int, told: list[tuple[bytes, bytes]], receive: Receive, send: Send
) -> None:
    """Send the events of a response in the background for as long as its client stays."""
    headers = [(b"content-type", b"text/event-stream; charset=utf-8"), *told]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        async for event in one.events(after):
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        tasks.cancel_scope.cancel()


def _length_of(scope: AsgiScope, most: int) -> int:
    """How large a body is by its head; as large as may be where that doesn't say."""
    said = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(said) if said.isdigit() else most


async def _chunks(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        yield message.get("body", b"")
        if not message.get("more_body"):
            return


async def _answer(
    send: Send,
    status: int,
    body: bytes,
    content_type: str = "application/json",
    extra: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    headers = [(b"content-type", content_type.encode()), (b"content-length", b"%d" % len(body)), *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
