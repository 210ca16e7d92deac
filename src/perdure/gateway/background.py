"""Responses in the background: made here while nobody waits, asked for by their id, and cancelled (GW-6).

To its upstream such a response is one that is streamed, so it is a turn of its session as any other. It is in memory
while it is made, and for ten minutes; then it is a stored response.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from perdure.gateway.answers import EventSplitter, data_of
from perdure.gateway.requests import UNREADABLE, Unmanageable, fields_of

KEPT_SECONDS: Final = 600.0  # as long as the API itself keeps one for those that ask
_MOST_KEPT: Final = 512
_MOST_KEPT_BYTES: Final = 64 * 1024 * 1024  # of events of those that are over; one on its way may have as many
_ENDS: Final = ("response.completed", "response.incomplete", "response.failed")
_NAME: Final = b'"background"'

Data = dict[str, Any]


def in_background(body: bytes) -> tuple[bytes, bool] | None:
    """The request for a response that is to be made in the background, as one for a stream, and whether its client
    wants to see that; None for any other, and for what only its server can do: it refuses one that isn't to be stored,
    and sells later answers for less."""
    if _NAME not in body:
        return None
    try:
        fields = fields_of(body)
        said = {name: msgspec.json.decode(fields[name]) for name in ("background", "store", "stream") if name in fields}
    except (Unmanageable, *UNREADABLE):
        return None
    if said.get("background") is not True or said.get("store") is False or "background_options" in fields:
        return None
    rest = {name: raw for name, raw in fields.items() if name != "background"}
    return msgspec.json.encode({**rest, "stream": True}), said.get("stream") is True


class BackgroundResponse:
    """One response on its way: what an ASGI application is given for it, and what it sends."""

    def __init__(self, body: bytes, most_bytes: int) -> None:
        self.begun, self.over = asyncio.Event(), asyncio.Event()
        self.response: Data = {}  # as it began, and then as it ended; empty where there is none
        self.status, self.headers, self.body = 0, list[tuple[bytes, bytes]](), b""  # of an answer that is no stream
        self._asked, self._events, self._splitter = body, list[tuple[int, bytes]](), EventSplitter(most_bytes)
        self._gone, self._news = asyncio.Event(), asyncio.Event()
        self._is_said = self._is_stream = False
        self._is_cut = False  # it came to more than is kept
        self.bytes = 0  # of its events

    @property
    def id(self) -> str:
        return str(self.response.get("id") or "")

    def cancel(self) -> None:
        """End it, unless it is over."""
        self._gone.set()

    async def receive(self) -> MutableMapping[str, Any]:
        if not self._is_said:
            self._is_said = True
            return {"type": "http.request", "body": self._asked}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def take(self, message: MutableMapping[str, Any]) -> None:
        """What the application sends."""
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
            kinds = [value for name, value in self.headers if name.lower() == b"content-type"]
            self._is_stream = self.status == 200 and any(kind.startswith(b"text/event-stream") for kind in kinds)
        elif self.bytes > _MOST_KEPT_BYTES:
            self._is_cut = True
            self._gone.set()  # nobody is there to grow tired of an answer without an end
        elif not self._is_stream:
            self.body += message.get("body", b"")
            self.bytes = len(self.body)
        elif not self._splitter.is_full:
            for event in self._splitter.feed(message.get("body", b"")):
                self._see(event)

    def _see(self, event: bytes) -> None:
        try:
            told = msgspec.json.decode(data_of(event))
            kind, number = str(told["type"]), int(told.get("sequence_number", len(self._events)))
        except (*UNREADABLE, KeyError, TypeError, ValueError):
            return  # an empty line, or what is no event of this API
        if isinstance(response := told.get("response"), dict):
            told["response"] = response = {**response, "background": True}
            if not self.response or kind in _ENDS:
                self.response = response
            event = b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode(told))
        self._events.append((number, event))
        self.bytes += len(event)
        self._tell()

    def _tell(self) -> None:
        if self.response:
            self.begun.set()
        self._news.set()
        self._news = asyncio.Event()

    def end(self) -> None:
        """Nothing more comes."""
        if self.response.get("status") in ("queued", "in_progress"):
            is_left = self._gone.is_set() and not self._is_cut
            error = None if is_left else {"code": "server_error", "message": "the answer broke off before its end"}
            self.response = {**self.response, "status": "cancelled" if is_left else "failed", "error": error}
        self.over.set()
        self.begun.set()
        self._tell()

    async def events(self, after: int) -> AsyncIterator[bytes]:
        """Its events behind that number, those to come as they come."""
        seen = 0
        while True:
            news = self._news
            for number, event in self._events[seen:]:
                if number > after:
                    yield event
            seen = len(self._events)
            if self.over.is_set():
                return
            if seen == len(self._events) and news is self._news:
                await news.wait()


@dataclass(slots=True)
class BackgroundResponses:
    """All tenants' responses in the background, by tenant and id."""

    _kept: dict[tuple[str, str], tuple[BackgroundResponse, float]] = field(default_factory=dict)

    def keep(self, tenant: str, one: BackgroundResponse, now: float) -> None:
        """Remember one that has begun."""
        held = sum(other.bytes for other, _ in self._kept.values())
        for place, (other, since) in list(self._kept.items()):
            is_much = len(self._kept) >= _MOST_KEPT or held > _MOST_KEPT_BYTES
            if other.over.is_set() and (is_much or now - since > KEPT_SECONDS):
                held -= other.bytes
                del self._kept[place]
        self._kept[tenant, one.id] = one, now

    def of(self, tenant: str, response: str) -> BackgroundResponse | None:
        """A tenant's response of that id; None where it is none of these, or none any more."""
        return self._kept.get((tenant, response), (None, 0.0))[0]

    def forget(self, tenant: str, response: str) -> None:
        """End one that was deleted."""
        if (one := self._kept.pop((tenant, response), None)) is not None:
            one[0].cancel()
