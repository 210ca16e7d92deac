"""One request, from the client to its upstream and back (GW-1 to GW-3, REL-15).

Whatever goes wrong in context management, the request goes through as it came, and that is counted. What the upstream
refuses and a smaller request would answer is asked again, before the client has seen a byte.
"""

from __future__ import annotations

import logging
import re
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp
import anyio
import msgspec

from perdure.context.replies import Reply
from perdure.engine.ask import CallCost, within_caps
from perdure.engine.session import run_aside
from perdure.errors import (
    JournalError,
    ModelDown,
    ModelError,
    Overloaded,
    PromptTooLong,
    SpendingCapReached,
    ThinkingRefused,
)
from perdure.events import ModelCalled, ModelFailed
from perdure.gateway.access import RequestRecord
from perdure.gateway.admission import HeldPlaces
from perdure.gateway.compactions import CompactedHistory, answer_of
from perdure.gateway.config import Tenant, UpstreamConfig, credential_of
from perdure.gateway.encodings import TOO_LARGE, UnreadableEncoding, decoded, encoded
from perdure.gateway.frames import CONTENT_TYPE as FRAMES
from perdure.gateway.gateway import Gateway
from perdure.gateway.hosted import HostedCall, is_signed
from perdure.gateway.requests import (
    LARGE_BODY_BYTES,
    UNREADABLE,
    AnswerReader,
    ClientProtocol,
    Unmanageable,
    repeated_name,
)
from perdure.gateway.responses import (
    TRIGGER,
    RenamedAnswer,
    UnknownPast,
    leans_on_past,
    past_in,
    past_upstream,
    response_begun,
    with_past,
    with_previous,
)
from perdure.gateway.sessions import TenantSessions
from perdure.gateway.turns import GatewayTurn, Requester
from perdure.gateway.upstream import (
    BROKEN,
    Headers,
    error_of,
    headers_down,
    headers_up,
    is_of_browser,
    query_up,
    target_of,
)
from perdure.transcript.messages import Usage

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_LOG = logging.getLogger("perdure.gateway")
SESSION = b"x-perdure-session"
RECALL = b"x-perdure-recall"
UNRECORDED = "journal"  # the reason of what passes through since its session can't be written, or somebody has it
AWAY = (
    "perdure: this conversation's session is temporarily unavailable, and the request can't be answered without it. "
    "Retry in 2 seconds."
)
RETRY: Headers = [(b"retry-after", b"2")]
_KEEP_SECONDS = 30.0  # that the end of an answer waits for a store that is away
_KEEP_PAUSE_SECONDS = 0.5
_ID = re.compile(r"[\w-]{1,200}\Z", re.ASCII)  # of a response that the upstream is asked for
_MOST_PAGES = 100  # of items of a response that the upstream has
_OFF = ("off", "no", "false", "0")
_AGAIN = 3  # times that an answer which has begun is asked to go on
_AGAIN_SECONDS = 10.0  # the longest wait before that, whatever the upstream says
_RECOVERABLE = (400, 413, 422, 500)  # statuses in which servers say that a prompt is too long
_NOT_OF_BODIES = (401, 402, 403, 404, 407, 408, 409, 425, 429)  # what other bytes wouldn't change
_NOTHING = (b"", b"data: [DONE]")  # what there is of a stream without an answer
_LEAST_ANSWER_BYTES = 512  # of an answer that says something, with all that stands around it
_SIGNED = (
    "requests that are signed for AWS pass through as they came, since a signature holds for one body and one host: "
    "give the client a Bedrock API key (AWS_BEARER_TOKEN_BEDROCK), or set key_env for the upstream"
)
_SHARED = "send each name once, since others share the account that this would go to"
_EXPANDS = 8  # how many times larger JSON is than it was compressed, about


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """What a client asks: everything of its request that matters, and whose it is."""

    method: str
    raw_path: bytes
    query: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    side: ClientProtocol
    route: str
    tenant: Tenant
    hosted: HostedCall | None = None  # of the Messages API, at Bedrock or Vertex
    is_shared: bool = False  # others' requests go upstream with the same key

    @property
    def name(self) -> str:
        """The name that the client gave its session."""
        return next((v.decode("latin-1")[:200] for n, v in self.headers if n == SESSION), "")

    @property
    def encoding(self) -> str:
        """How the body is encoded; empty when it says what it is."""
        given = b",".join(value for name, value in self.headers if name == b"content-encoding")
        encoding = given.decode("latin-1").strip()
        return "" if encoding.lower() == "identity" else encoding

    @property
    def recalls(self) -> bool:
        """Whether the client leaves it to us to offer its model a recall tool."""
        return not any(n == RECALL and v.decode("latin-1").strip().lower() in _OFF for n, v in self.headers)


class _SessionAway(Exception):
    """The request can't be answered before its session can be had again."""


class GatewayExchange:
    """Runs one request. `is_over`: the answer is out, so a client that leaves now leaves nothing behind."""

    def __init__(
        self, gateway: Gateway, inquiry: Inquiry, upstream: UpstreamConfig, upstream_name: str, record: RequestRecord
    ) -> None:
        self.record = record
        self.is_over = False
        self._gateway, self._inquiry, self._upstream = gateway, inquiry, upstream
        self._key = inquiry.tenant.keys.get(upstream_name)
        self._began = self._sent_at = time.perf_counter()
        self._mode, self._reason = "untouched", ""
        self._is_turn = False  # it asks for an answer, of a route that is managed
        self._said = inquiry.body  # the body as it is read
        self._cost = CallCost()
        self._calls = AsyncExitStack()  # what is open of the call under way
        self._instead: bytes | None = None  # what is sent when nothing can be recorded
        self._ahead: list[bytes] = []  # of a stream, what was read to see how it begins
        self._kept: bytes | None = None  # the body of an answer that was read as a whole
        self._places: HeldPlaces | None = None  # for a body that is large once it is read

    async def run(self, kind: str, send: Send) -> None:
        """Answer a request. Raises `Refusal` where its body, once it is read, is too large to be let in now."""
        try:
            await self._run(kind, send)
        finally:
            if self._places is not None:
                self._places.keep(0)

    async def _run(self, kind: str, send: Send) -> None:
        metrics, self._is_turn = self._gateway.metrics, kind == "turn"
        if kind == "other":
            route = self._gateway.active.gateway.route(self._inquiry.route)
            self._passes("path" if route is None or route.is_managed else "route")
        elif self._key is None and is_signed(self._inquiry.headers, self._inquiry.query):
            self._passes("aws_signature")
            self._gateway.tell_once(_SIGNED)
            kind = "other"
        elif not await self._read_body():
            kind = "other"
        is_responses = self._inquiry.side.protocol == "responses"
        if self._inquiry.is_shared and (kind != "other" or is_responses) and (name := await self._repeated()):
            metrics.refused.labels("repeated_name").inc()
            self._reason = "repeated_name"
            await self._refused(send, 400, f"the body says {name!r:.100} twice in one object: {_SHARED}")
            self._told(None)
            return
        may_compact = kind == "compact" or (kind == "turn" and is_responses and TRIGGER in self._said)
        turn: GatewayTurn | None = None
        try:
            if may_compact and (done := await self._compaction(is_asked=kind == "compact")) is not None:
                metrics.requests.labels(self._inquiry.route, "compact", self._mode).inc()
                await self._compacted(done, send)
                return
            if kind == "turn" and self._mode != "passed":
                turn = await self._turn()
            body = await self._shadow_body(is_sent=False) if kind == "count" else self._instead
            metrics.overhead.observe(time.perf_counter() - self._began)
            metrics.requests.labels(self._inquiry.route, kind, self._mode).inc()
            async with self._calls:
                self._cost = await self._calls.enter_async_context(self._within_caps(turn))
                answer = await self._asked(turn, body)
                self._calls.callback(answer.close)
                self._cost.has_begun = answer.status == 200
                await self._passed_back(turn, answer, send, is_count=kind == "count")
        except UnknownPast as e:
            self._gateway.metrics.refused.labels("response").inc()
            await self._own_answer(send, e.status, e.body, "application/json")
        except SpendingCapReached as e:  # 402: clients try again by themselves after a 429, which would not help
            metrics.refused.labels("spending_cap").inc()
            self._reason = "spending_cap"
            await self._refused(send, 402, str(e))
        except (_SessionAway, JournalError):  # SDKs ask again by themselves
            metrics.refused.labels(UNRECORDED).inc()
            self._reason = UNRECORDED
            await self._refused(send, 503, AWAY, RETRY)
        except ModelDown as e:
            metrics.upstream_errors.labels(e.detail).inc()
            self._reason = "upstream_down"
            self._failed(turn, e)
            await self._refused(send, 502, f"the upstream can't be reached ({e.detail})")
        finally:
            self._told(turn)
            if turn is not None:
                await turn.end()

    def _told(self, turn: GatewayTurn | None) -> None:
        """What was done, for the access log, and what it cost where the upstream didn't say (GW-9)."""
        record = self.record
        record.mode, record.reason = self._mode, self._reason
        if turn is None:
            if record.is_call and record.status == 200 and self._mode == "passed":
                record.estimate(record.bytes_up, record.bytes_out)
        elif self._cost.has_begun and self._cost.usage is None:  # as the caps on spending take it
            session = turn.held.session
            record.is_estimated = True
            record.cost(Usage(input_tokens=turn.tokens), session.model, session.facts().held_ttl(session.view))

    def _within_caps(self, turn: GatewayTurn | None) -> AbstractAsyncContextManager[CallCost]:
        """The call within the caps of the client's session (OBS-2); what passes through unread is nobody's."""
        if turn is None:
            return nullcontext(CallCost())
        return within_caps(turn.held.session, turn.incoming.model, turn.tokens)

    # --- what goes upstream -------------------------------------------------------------------------------------------

    async def _read_body(self) -> bool:
        """Read a body that came compressed, or in another form; False when it can only pass through."""
        body, most = self._inquiry.body, self._gateway.active.gateway.max_body_bytes
        try:
            if encoding := self._inquiry.encoding:
                self._said = await self._decoded(body, encoding, most)
            if self._inquiry.hosted is not None:
                self._said = self._inquiry.hosted.opened(self._said)
        except (UnreadableEncoding, Unmanageable) as e:
            self._passes(str(e))
            return False
        return True

    async def _repeated(self) -> str | None:
        """A name that an object of the body repeats; None as well for what can't be read, and is looked at later."""
        said = self._said
        try:
            return await run_aside(len(said), lambda: repeated_name(said))
        except Unmanageable:
            return None

    async def _decoded(self, body: bytes, encoding: str, most: int) -> bytes:
        """Read a compressed body; one that is large then takes its places before. Raises `UnreadableEncoding`."""
        expected, small = len(body) * _EXPANDS, min(most, LARGE_BODY_BYTES)
        try:
            return await run_aside(expected, lambda: decoded(body, encoding, small))
        except UnreadableEncoding as e:
            if small == most or str(e) != TOO_LARGE:
                raise
        self._places = await self._gateway.enter_body(self._inquiry.tenant.id, most)
        said = await run_aside(expected, lambda: decoded(body, encoding, most))
        self._places.keep(len(said) // LARGE_BODY_BYTES)
        return said

    async def _turn(self) -> GatewayTurn | None:
        """The request as a turn of its session; None when it passes through as it came (REL-15)."""
        gateway = self._gateway
        try:
            turn = await self._begun()
        except Unmanageable as e:
            self._passes(e.reason)
            self._instead = await self._past()
            return None
        except JournalError as e:
            await self._refuse_leaning(e)
            self._passes(_reason(e))
            self._instead = await self._shadow_body(is_sent=True)
            return None
        except Exception as e:  # the boundary of context management: it never fails a request (REL-15)
            self._passes(_reason(e))
            self._instead = await self._past()
            _warn("a request passes through unmodified", e)
            return None
        self._mode = "view" if turn.is_shaped else "untouched"
        self.record.session, self.record.model = turn.held.id, turn.incoming.model
        gateway.metrics.saved.inc(turn.spared_tokens)
        return turn

    async def _begun(self) -> GatewayTurn:
        """The turn; where only the upstream has what it goes on from, with all of that said in full."""
        turns, who = self._gateway.active.turns, self._who()
        try:
            return await turns.begin(who, self._said)
        except Unmanageable as e:
            if e.reason != "unknown_answer" or (fetched := await self._fetched()) is None:
                raise
        return await turns.begin(who, fetched[1], fetched=fetched[0])

    async def _refuse_leaning(self, error: JournalError) -> None:
        """Raise `_SessionAway` for a request that goes on from what only its session has."""
        said = self._said
        if self._inquiry.side.protocol == "responses" and await run_aside(len(said), lambda: leans_on_past(said)):
            _warn("a request waits for its session", error)
            raise _SessionAway from error

    async def _fetched(self) -> tuple[str, bytes] | None:
        """The response that a request goes on from, and its body with what was said before in the place of that id.

        It passed through while nothing could be recorded, or is older than the gateway. None where the upstream doesn't
        have it whole, and for one that may be another tenant's.
        """
        inquiry, said = self._inquiry, self._said
        response, _ = past_in(said)
        if not response or await self._sessions.is_deleted(response):
            return None
        bare = self._sessions.seal.name_in(response) or ("" if inquiry.is_shared else response)
        past = await self._items_upstream(bare) if _ID.match(bare) else None
        return None if past is None else (response, await run_aside(len(said), lambda: with_past(said, past)))

    async def _items_upstream(self, response: str) -> list[bytes] | None:
        """All items of a response that the upstream stored; None where these aren't all that was said until then."""
        told = await self._read_upstream(response, "")
        items: list[bytes] = []
        if told is None or any(told.get(name) for name in ("previous_response_id", "conversation", "prompt")):
            return None
        after = ""
        for _ in range(_MOST_PAGES):
            page = await self._read_upstream(response, f"/input_items?order=asc&limit=100{after}")
            if page is None or not isinstance(page.get("data"), list):
                return None
            items += map(msgspec.json.encode, page["data"])
            if not page.get("has_more"):
                output = told.get("output")
                return [*items, *map(msgspec.json.encode, output)] if isinstance(output, list) else None
            after = f"&after={quote(str(page.get('last_id')), safe='')}"
        return None

    async def _read_upstream(self, response: str, rest: str) -> dict[str, Any] | None:
        """What the upstream says of a response; None for anything but a plain answer."""
        inquiry, upstream = self._inquiry, self._upstream
        headers = headers_up(inquiry.headers, self._key, inquiry.side.key_header, is_read=True, is_own_body=False)
        headers.pop("content-type", None)
        path, _, asked = rest.partition("?")
        query = query_up(inquiry.query, self._key, credential_of(inquiry.headers, inquiry.query))
        query = b"&".join(part for part in (query, b"include[]=reasoning.encrypted_content", asked.encode()) if part)
        target = target_of(upstream, inquiry.raw_path + f"/{response}{path}".encode(), query)
        try:
            answer = await self._gateway.client.send(upstream, "GET", target, headers, b"")
            async with answer:
                body = await answer.content.read(self._gateway.active.gateway.max_body_bytes)
                told = msgspec.json.decode(body) if answer.status == 200 and answer.content.at_eof() else None
        except (ModelDown, *BROKEN, *UNREADABLE):
            return None
        return told if isinstance(told, dict) else None

    async def _compaction(self, *, is_asked: bool) -> CompactedHistory | None:
        """The compaction that the client asks for; None when it asks for something else, or its upstream has to."""
        try:
            return await self._gateway.active.turns.compact(self._who(), self._said, is_asked=is_asked)
        except JournalError as e:
            await self._refuse_leaning(e)
            self._passes(_reason(e))
            return None
        except Exception as e:  # the boundary of context management: it never fails a request (REL-15)
            self._passes(_reason(e))
            if not isinstance(e, Unmanageable):
                _warn("a compaction is left to the upstream", e)
            self._instead = await self._past()
            return None

    async def _compacted(self, done: CompactedHistory, send: Send) -> None:
        self._mode, self.record.session = "view", done.session
        body, content_type = answer_of(done, self._gateway.clock.now(), self._cap(done.window))
        told = {
            "mode": self._mode,
            "session": done.session,
            "view-tokens": str(done.after_tokens),
            "compacted": done.how,
        }
        await self._own_answer(send, 200, body, content_type, _told_headers(told))

    @property
    def _sessions(self) -> TenantSessions:
        return self._gateway.sessions(self._inquiry.tenant.id)

    def _who(self) -> Requester:
        inquiry, sessions = self._inquiry, self._sessions
        has_tool = self._gateway.active.recall_tools.get(inquiry.route) if inquiry.recalls else False
        return Requester(
            sessions, inquiry.tenant.id, inquiry.side, inquiry.route, inquiry.name, has_tool, inquiry.headers
        )

    def _passes(self, reason: str) -> None:
        """Say that nothing was done here, and why: in the answer's headers, in a metric and in the log (GW-7)."""
        self._mode, self._reason = "passed", reason
        if self._inquiry.method == "POST":
            self._gateway.metrics.passed.labels(reason).inc()
            route = self._inquiry.route
            self._gateway.tell_once(
                f"a request to route {route!r} passed through unmanaged: {reason}; perdure_passed_total counts them"
            )

    async def _shadow_body(self, *, is_sent: bool) -> bytes | None:
        """What a shaped session shows, with what is new, and nothing recorded; None for the body as it came.

        It is what is counted, and the best that can be sent when the disk takes nothing: what was decided before
        still holds (REL-10).
        """
        try:
            return await self._gateway.active.turns.shadow(self._who(), self._said, is_sent=is_sent)
        except Unmanageable:
            return await self._past()
        except Exception as e:  # the boundary of context management (REL-15)
            if isinstance(e, JournalError):
                await self._refuse_leaning(e)
            self._passes(_reason(e))
            return None

    async def _past(self) -> bytes | None:
        """What passes through with all that was said before, where the upstream doesn't have that; None as it came."""
        try:
            return await self._gateway.active.turns.with_past(self._who(), self._said)
        except Unmanageable:
            return None
        except JournalError as e:
            await self._refuse_leaning(e)
            return None
        except Exception as e:  # the boundary of context management (REL-15)
            _warn("a request passes through without what was said before", e)
            return None

    async def _asked(self, turn: GatewayTurn | None, body: bytes | None) -> aiohttp.ClientResponse:
        """The upstream's answer, or its error when nothing helps. Raises `ModelDown` when there is none."""
        while True:
            sent = body if body is not None else self._said if turn is None else turn.body
            if turn is None:
                sent = await self._vouched_for(sent)
            answer = await self._sent(sent)
            if turn is None and self._reason != UNRECORDED:
                return answer
            try:
                error = await self._error(answer)
            except BaseException:
                answer.close()
                raise
            is_refused = 400 <= answer.status < 500 and answer.status not in _NOT_OF_BODIES
            if turn is None:
                if isinstance(error, PromptTooLong | ThinkingRefused) and body is None:
                    answer.close()
                    raise _SessionAway
                if not is_refused or body is None:
                    return answer
                body = self._instead = None  # what was made of the client's bytes may be what is wrong
            elif error is not None and await self._recovered(turn, error):
                self._mode = "view"
            elif is_refused and turn.go_back():
                self._mode, self._reason = "untouched", "view_refused"
            else:
                if turn.settle(answer.status):
                    self._gateway.metrics.recovered.labels(self._reason).inc()
                return answer
            answer.close()

    async def _vouched_for(self, body: bytes) -> bytes:
        """What passes through, which may name nothing of another tenant's, who shares the account (SEC-7).

        Raises `UnknownPast`.
        """
        inquiry, sessions = self._inquiry, self._sessions
        if not body or inquiry.side.protocol != "responses":
            return body
        response, _ = await run_aside(len(body), lambda: past_in(body))
        own = sessions.seal.name_in(response)
        own = "" if own and await sessions.is_deleted(response) else own
        vouched = with_previous(body, own) if own else body
        if inquiry.is_shared:
            named = await run_aside(len(vouched), lambda: past_upstream(vouched, own=own))
            known = await sessions.items(named)
            if foreign := next((one for one in named if one not in known), None):
                raise UnknownPast(404, f"Item with id '{foreign}' not found.", "input")
        return vouched

    def _renamer(self, answer: aiohttp.ClientResponse) -> RenamedAnswer | None:
        """What marks the id of an answer that passes through as its tenant's, where others share the account.

        No session has it, so the mark alone tells later that it may be continued.
        """
        is_known = self._mode != "passed" or answer.status != 200 or "content-encoding" in answer.headers
        if is_known or not self._is_renamed:
            return None
        most = self._gateway.active.gateway.max_event_bytes
        return RenamedAnswer(self._sessions.seal.named, is_stream=_is_stream(answer), most_bytes=most)

    @property
    def _is_renamed(self) -> bool:
        """Whether an answer that passes through gets an id that tells whose it is."""
        return self._inquiry.is_shared and self._inquiry.side.protocol == "responses" and self._is_turn

    async def _sent(self, body: bytes) -> aiohttp.ClientResponse:
        inquiry, upstream = self._inquiry, self._upstream
        self._kept, self._ahead = None, []
        is_own = body is self._said
        body = inquiry.body if is_own else body if inquiry.hosted is None else inquiry.hosted.closed(body)
        if (encoding := inquiry.encoding) and not is_own:
            view = body
            body = await run_aside(len(view), lambda: encoded(view, encoding))
        is_read = self._mode != "passed" or self._instead is not None or self._is_renamed
        headers = headers_up(inquiry.headers, self._key, inquiry.side.key_header, is_read=is_read, is_own_body=is_own)
        if inquiry.hosted is not None and "authorization" in headers:
            headers.pop("x-api-key", None)  # it said here whose sessions these are; no host takes it
        query = query_up(inquiry.query, self._key, credential_of(inquiry.headers, inquiry.query))
        target = target_of(upstream, inquiry.raw_path, query)
        self.record.bytes_up += len(body)
        self._sent_at = time.perf_counter()
        try:
            answer = await self._gateway.client.send(upstream, inquiry.method, target, headers, body)
        except ModelDown as e:
            self._gateway.upstream_is(self.record.upstream, e)
            raise
        self._gateway.upstream_is(self.record.upstream, None)
        return answer

    async def _is_blank(self, answer: aiohttp.ClientResponse) -> bool:
        """Whether a success says nothing at all: how some servers take a prompt that is too long (LIB-3)."""
        if self._inquiry.side.protocol != "openai":
            return False
        if answer.content_type == "text/event-stream":
            try:
                self._ahead = [await answer.content.readany()]
            except BROKEN as e:
                raise ModelDown(type(e).__name__) from e
            return self._ahead[0].strip() in _NOTHING
        if int(answer.headers.get("content-length") or _LEAST_ANSWER_BYTES) >= _LEAST_ANSWER_BYTES:
            return False
        body = await self._whole(answer)
        return not body.strip() or b'"choices":[]' in body.replace(b" ", b"")

    async def _error(self, answer: aiohttp.ClientResponse) -> ModelError | None:
        """The error that an answer is, which may be the first thing in a stream; it stays readable for the client."""
        if answer.status in _RECOVERABLE:
            return error_of(answer.status, await self._whole(answer), answer.headers)
        if answer.status == 200 and await self._is_blank(answer):
            return PromptTooLong("the answer was empty", status=200)
        if answer.status != 200 or not _is_stream(answer) or "content-encoding" in answer.headers:
            return None
        begins = self._inquiry.side.begins
        try:
            while not begins(b"".join(self._ahead)) and (data := await answer.content.readany()):
                self._ahead.append(data)
        except ModelError as e:
            return e
        except (*BROKEN, *UNREADABLE, LookupError, TypeError, ValueError, AttributeError):
            pass  # whoever reads it along finds out
        return None

    async def _recovered(self, turn: GatewayTurn, error: ModelError) -> bool:
        """Whether an error could be answered by another request."""
        try:
            is_helped = await self._gateway.active.turns.recovered(turn, error)
        except Exception as e:  # the boundary of context management: the client gets the error it would have got
            self._gateway.metrics.passed.labels(_reason(e)).inc()
            return False
        if is_helped:
            self._gateway.metrics.recovered.labels(error.reason).inc()
        return is_helped

    # --- what comes back ----------------------------------------------------------------------------------------------

    async def _passed_back(
        self, turn: GatewayTurn | None, answer: aiohttp.ClientResponse, send: Send, *, is_count: bool
    ) -> None:
        self.record.is_stream = _is_stream(answer)
        if turn is not None and answer.status == 200 and self.record.is_stream:
            await self._keep_beginning(turn, b"".join(self._ahead))
        headers = self._headers_down(answer) + _answer_headers(turn, self._mode, self._reason)
        if turn is not None and answer.status >= 400:
            self._failed(turn, error_of(answer.status, await self._whole(answer), answer.headers))
        self._gateway.metrics.answers.labels(f"{answer.status // 100}xx").inc()
        self._gateway.metrics.first_byte.observe(time.perf_counter() - self._began)
        reader, renamer = self._reader(turn, answer), self._renamer(answer)
        if reader is None and renamer is None and not is_count and (length := answer.headers.get("content-length")):
            headers.append((b"content-length", length.encode("latin-1")))
        whole: bytes | None = None
        if is_count and answer.status == 200:
            window = self._gateway.active.config.settings.window_tokens
            count = await self._whole(answer)
            whole = None if self._kept is None else _capped_count(count, self._cap(window))
        client = _ClientAnswer(send, answer.status, headers, renamer)
        if whole is not None:
            self.is_over = True
            await client.end(whole)
        elif reader is None or turn is None:
            await client.begin()
            if await self._streamed(answer, client, None, None):
                self.is_over = True
                await client.end()
        else:
            await self._read_along(turn, reader, answer, client)
        if self.is_over and turn is not None and answer.status == 200:
            self._gateway.jobs.start("after", lambda: self._after(turn))

    async def _keep_beginning(self, turn: GatewayTurn, begin: bytes) -> None:
        """Keep the id of an answer before its client sees it; where that can't be, the answer passes as unrecorded.

        Raises `_SessionAway` where the upstream was told to store nothing, so that the id would be known nowhere.
        """
        response = response_begun(begin) if self._inquiry.side.protocol == "responses" else ""
        if response:
            try:
                await self._gateway.active.turns.began(turn, response)
            except JournalError as e:
                await self._refuse_leaning(e)
                self._passes(UNRECORDED)

    def _headers_down(self, answer: aiohttp.ClientResponse) -> Headers:
        inquiry = self._inquiry
        at = "" if inquiry.route == "default" else f"/{inquiry.route}"
        is_own = self._key is None and not is_of_browser(inquiry.headers)
        return headers_down(answer.headers, self._upstream, at, is_own=is_own)

    async def _streamed(
        self,
        answer: aiohttp.ClientResponse,
        client: _ClientAnswer,
        reader: AnswerReader | None,
        turn: GatewayTurn | None,
    ) -> bool:
        """Pass an answer on as it comes; whether all of it came."""
        try:
            async for chunk in self._chunks(answer):
                if data := chunk if reader is None else reader.feed(chunk):
                    if turn is not None and not client.has_begun:  # a body that is too large to be read
                        await self._keep_beginning(turn, data)
                    await client.send(data)
        except BROKEN as e:
            # What has come is passed on; without its end the client knows that the answer broke off.
            self._gateway.metrics.upstream_errors.labels(type(e).__name__).inc()
            self._reason = "upstream_broke_off"
            return False
        return reader is None or not reader.is_broken

    async def _read_along(
        self, turn: GatewayTurn, reader: AnswerReader, answer: aiohttp.ClientResponse, client: _ClientAnswer
    ) -> None:
        """Pass an answer on, and what it goes on with where its model recalled: the client sees one (GW-8)."""
        if _is_stream(answer):
            await client.begin()  # a whole body may still become an error
        while True:
            is_whole = False
            try:
                is_whole = await self._streamed(answer, client, reader, turn)
            finally:
                if not is_whole:
                    await self._keep_so_far(turn, reader)
            if not is_whole:
                return
            reply, why = self._reply(turn, reader)
            body = None if reply is None else await self._recalled(turn, reply)
            if body is None:
                break
            try:
                reader.go_on()
            except Exception as e:  # the boundary of context management: the client gets what came so far (REL-15)
                _warn("an answer that recalled can't go on", e)
                break
            answer.close()
            try:
                answer = await self._asked_on(turn, body)
            except (ModelDown, SpendingCapReached) as e:
                if not client.has_begun:
                    raise
                self.is_over = True
                await client.end(self._inquiry.side.error_event(502, str(e)))
                return
            if answer.status != 200 or _is_stream(answer) != client.has_begun:
                await self._not_gone_on(answer, client)
                return
        if reply is not None:
            why = await self._recorded(turn, reply)
        if why == UNRECORDED and not client.has_begun and self._inquiry.side.protocol == "responses":
            if leans_on_past(self._said):
                raise _SessionAway  # nobody would know the id, and the client hasn't seen it
            self._passes(UNRECORDED)
            headers = self._headers_down(answer) + _answer_headers(turn, self._mode, self._reason)
            client.becomes(answer.status, headers, self._renamer(answer))
        if why is not None:
            self._gateway.metrics.unrecorded.labels(why).inc()
        await turn.end()  # before the client sees its answer's end: it may go on at another gateway (SCL-3)
        self.is_over = True
        await client.end(reader.end())

    async def _keep_so_far(self, turn: GatewayTurn, reader: AnswerReader) -> None:
        """Record what came of an answer that broke off, which its client may go on from by its id."""
        if not turn.response or reader.so_far is None:
            return
        with anyio.CancelScope(shield=True):
            try:
                reply = reader.so_far()
                if reply.blocks:
                    await self._gateway.active.turns.answered(turn, reply)
            except Exception as e:  # the boundary of context management: the answer is over (REL-15)
                _warn("what came of an answer that broke off isn't recorded", e)

    async def _recalled(self, turn: GatewayTurn, reply: Reply) -> bytes | None:
        """The request to go on with, where the model called our tool and nothing of the client's."""
        before = len(turn.replies)
        try:
            return await self._gateway.active.turns.recalled(turn, reply)
        except Exception as e:  # the boundary of context management: the client gets what came so far (REL-15)
            _warn("a recall of the model wasn't answered", e)
            return None
        finally:
            if len(turn.replies) > before:
                self._gateway.metrics.recalls.inc()

    async def _asked_on(self, turn: GatewayTurn, body: bytes) -> aiohttp.ClientResponse:
        """The answer to a request that goes on with one which the client sees already, so it can't ask again itself."""
        for attempt in range(1, _AGAIN + 1):
            await self._calls.aclose()
            self._cost = await self._calls.enter_async_context(self._within_caps(turn))
            answer = await self._sent(body)
            self._calls.callback(answer.close)
            error = await self._error(answer)
            if error is None and answer.status != 200:
                error = error_of(answer.status, await self._whole(answer), answer.headers)
            self._cost.has_begun = error is None
            if error is None or attempt == _AGAIN:
                break
            if isinstance(error, PromptTooLong):
                body = self._gateway.active.turns.without_room(turn)
            elif isinstance(error, Overloaded | ModelDown):
                stated = error.retry_after_seconds if isinstance(error, Overloaded) else None
                await anyio.sleep(min(_AGAIN_SECONDS, 2.0 ** (attempt - 2) if stated is None else stated))
            else:
                break
        return answer

    async def _not_gone_on(self, answer: aiohttp.ClientResponse, client: _ClientAnswer) -> None:
        """Tell the client that its answer can't go on, as the upstream says it."""
        body = await self._whole(answer)
        self._gateway.metrics.upstream_errors.labels("not_gone_on").inc()
        self.is_over = True
        if client.has_begun:
            error = error_of(answer.status, body, answer.headers)
            await client.end(self._inquiry.side.error_event(answer.status, str(error)))
        else:
            client.becomes(answer.status, self._headers_down(answer))
            await client.end(body)

    async def _after(self, turn: GatewayTurn) -> None:
        try:
            await self._gateway.active.turns.after(turn)
        except Exception as e:  # the boundary of context management: nobody waits for this (REL-15)
            _warn("work after an answer failed", e)
        await self._gateway.trim()

    def _reader(self, turn: GatewayTurn | None, answer: aiohttp.ClientResponse) -> AnswerReader | None:
        """Reads the answer along, if it is one that can be read."""
        if turn is None or answer.status != 200 or answer.headers.get("content-encoding", "identity") != "identity":
            return None
        most_bytes, cap = self._gateway.active.gateway.max_event_bytes, self._cap(turn.cap_window)
        return self._inquiry.side.reader(
            turn.incoming, cap, is_stream=_is_stream(answer), most_bytes=most_bytes, ours=turn.ours
        )

    def _cap(self, window: int | None) -> int | None:
        """The most tokens of prompt that a client's meter may read; None: whatever the upstream says."""
        config = self._gateway.active.gateway
        if config.usage != "capped":
            return None
        return None if window is None else window * config.usage_cap_percent // 100

    def _reply(self, turn: GatewayTurn, reader: AnswerReader) -> tuple[Reply | None, str | None]:
        """The answer that came, with what it cost counted; else why it can't be read."""
        try:
            reply = reader.reply()
        except ModelError as e:
            return None, e.reason
        except Exception as e:  # the boundary of context management: the client has its answer all the same (REL-15)
            _warn("an answer was passed on but not read", e)
            return None, _reason(e)
        self._cost.usage = reply.billed or reply.usage
        usd = None
        if usage := self._cost.usage:
            tokens = self._gateway.metrics.tokens
            tokens.labels("prompt").inc(usage.input_tokens)
            tokens.labels("cache_read").inc(usage.cache_read_input_tokens)
            tokens.labels("cache_write").inc(usage.cache_creation_input_tokens)
            tokens.labels("output").inc(usage.output_tokens)
            session, now = turn.held.session, self._gateway.clock.now()
            ttl = session.facts().held_ttl(session.view)
            usd = self.record.cost(usage, session.model, ttl)
            if prices := turn.held.spending.answered(usage, turn.spared_tokens, session.model, now, ttl):
                self._gateway.metrics.usd.labels("paid").inc(prices[0])
                self._gateway.metrics.usd.labels("whole").inc(prices[1])
        self._called(turn, reply, usd)
        return reply, None

    def _called(self, turn: GatewayTurn, reply: Reply, usd: float | None) -> None:
        """Tell that the model answered (OBS-1)."""
        usage = reply.usage
        turn.held.session.emit(
            ModelCalled(
                turn.incoming.model,
                "main",
                reply.response,
                reply.stop_reason,
                time.perf_counter() - self._sent_at,
                turn.tokens,
                usage.prompt_tokens if usage else None,
                usage.cache_read_input_tokens if usage else None,
                usage.output_tokens if usage else None,
                usd,
            )
        )

    def _failed(self, turn: GatewayTurn | None, error: ModelError) -> None:
        """Tell that the model gave no answer."""
        if turn is not None:
            seconds = time.perf_counter() - self._sent_at
            turn.held.session.emit(ModelFailed(turn.incoming.model, "main", error.reason, error.status, seconds))

    async def _recorded(self, turn: GatewayTurn, reply: Reply) -> str | None:
        """The answer joins its session before the client sees its end, so that the next request finds it there.

        One that can be continued by its id waits a while for a store that is away.
        """
        until = anyio.current_time() + (_KEEP_SECONDS if self._inquiry.side.protocol == "responses" else 0.0)
        try:
            while True:
                try:
                    return await self._gateway.active.turns.answered(turn, reply)
                except JournalError:
                    if anyio.current_time() >= until:
                        raise
                await anyio.sleep(_KEEP_PAUSE_SECONDS)
        except ModelError as e:
            return e.reason
        except Exception as e:  # the boundary of context management: the client has its answer all the same (REL-15)
            _warn("an answer was passed on but not recorded", e)
            return _reason(e)

    async def _whole(self, answer: aiohttp.ClientResponse) -> bytes:
        """The whole body, or the beginning of one that is too large to be read; `_chunks` gives all of it again."""
        if self._kept is not None:
            return self._kept
        size, most = sum(map(len, self._ahead)), self._gateway.active.gateway.max_event_bytes
        try:
            while size <= most and (data := await answer.content.readany()):
                self._ahead.append(data)
                size += len(data)
        except BROKEN as e:
            raise ModelDown(type(e).__name__) from e
        whole = b"".join(self._ahead)
        if size <= most:
            self._kept = whole
        return whole

    async def _chunks(self, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        if self._kept is not None:
            yield self._kept
            return
        for data in self._ahead:
            yield data
        async for data in answer.content.iter_any():  # as much as is there, so that bursts aren't sent in crumbs
            yield data

    async def _refused(self, send: Send, status: int, text: str, more: Iterable[tuple[bytes, bytes]] = ()) -> None:
        await self._own_answer(send, status, self._inquiry.side.error_body(status, text), "application/json", more)

    async def _own_answer(
        self, send: Send, status: int, body: bytes, content_type: str, more: Iterable[tuple[bytes, bytes]] = ()
    ) -> None:
        headers = [(b"content-type", content_type.encode()), (b"content-length", b"%d" % len(body)), *more]
        self._gateway.metrics.answers.labels(f"{status // 100}xx").inc()
        await send({"type": "http.response.start", "status": status, "headers": headers})
        self.is_over = True
        await send({"type": "http.response.body", "body": body})


class _ClientAnswer:
    """The answer as the client gets it. It begins when it is told to, at the latest with its first byte."""

    def __init__(self, send: Send, status: int, headers: Headers, renamer: RenamedAnswer | None) -> None:
        self._send, self._status, self._headers, self._renamer = send, status, headers, renamer
        self.has_begun = False

    def becomes(self, status: int, headers: Headers, renamer: RenamedAnswer | None = None) -> None:
        """Another answer, as long as it hasn't begun."""
        self._status, self._headers, self._renamer = status, headers, renamer

    async def begin(self) -> None:
        if not self.has_begun:
            self.has_begun = True
            await self._send({"type": "http.response.start", "status": self._status, "headers": self._headers})

    async def send(self, data: bytes) -> None:
        await self.begin()
        if data := data if self._renamer is None else self._renamer.feed(data):
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, last: bytes = b"") -> None:
        await self.begin()
        if self._renamer is not None:
            last = self._renamer.feed(last) + self._renamer.end()
        await self._send({"type": "http.response.body", "body": last})


def _is_stream(answer: aiohttp.ClientResponse) -> bool:
    return answer.content_type in ("text/event-stream", FRAMES)


def _warn(what: str, error: Exception) -> None:
    """Say what went wrong and where, but no word of the error's own: it may quote a message (SEC-5)."""
    _LOG.warning("%s: %s", what, type(error).__name__)
    _LOG.debug("%s", "".join(traceback.format_tb(error.__traceback__)))


def _answer_headers(turn: GatewayTurn | None, mode: str, reason: str) -> Headers:
    """What was done, for whoever wants to know."""
    told = {"mode": mode, "reason": reason}
    if turn is not None:
        told |= {
            "session": turn.held.id,
            "view-tokens": str(turn.tokens),
            "edits": str(turn.edits),
            "compacted": turn.compacted,
            "spared-tokens": str(turn.spared_tokens),
        }
    return _told_headers(told)


def _told_headers(told: Mapping[str, str]) -> Headers:
    return [(f"x-perdure-{name}".encode(), value.encode("latin-1")) for name, value in told.items() if value]


def _capped_count(body: bytes, cap: int | None) -> bytes:
    """The count of a history as a client's meter may read it."""
    try:
        fields = msgspec.json.decode(body)
        name = "inputTokens" if "inputTokens" in fields else "input_tokens"  # Bedrock's, and everybody else's
        tokens = fields[name]
        is_more = cap is not None and isinstance(tokens, int) and tokens > cap
    except (*UNREADABLE, KeyError, TypeError):
        return body
    return msgspec.json.encode({**fields, name: cap}) if is_more else body


def _reason(error: Exception) -> str:
    """A bounded label: what can't be managed, or the type of what went wrong."""
    if isinstance(error, Unmanageable):
        return error.reason
    return UNRECORDED if isinstance(error, JournalError) else type(error).__name__
