"""Who asked what and how it ended: the access log, and the names that every event carries (GW-9).

Nothing here is a word of a message, a key, or a path or query of a client's.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from perdure.context.cost import usage_usd
from perdure.context.models import CacheTtl, ModelSpec
from perdure.transcript.messages import Usage

_ENCODER = msgspec.json.Encoder()
_BYTES_PER_TOKEN = 4
_NAME_CHARS = 200  # of what a client names: a model, itself

Ending = Literal["whole", "cancelled", "broken"]


@dataclass(slots=True)
class RequestRecord:
    """One request, as far as it is known by now. `told` is what the access log says of it."""

    at: float  # when it came, in seconds since 1970
    request: str = field(default_factory=lambda: f"req-{secrets.token_hex(8)}")
    tenant: str = ""
    session: str = ""
    client: str = ""
    route: str = ""
    upstream: str = ""
    protocol: str = ""
    kind: str = ""
    model: str = ""
    mode: str = ""
    reason: str = ""
    status: int | None = None  # that the client was sent
    ending: Ending = "broken"
    is_stream: bool = False
    bytes_in: int = 0
    bytes_up: int = 0  # sent to the upstream
    bytes_out: int = 0
    is_call: bool = False  # of a model
    usage: Usage | None = None  # of all answers to it
    is_estimated: bool = False  # the upstream didn't say it
    usd: float | None = None
    _began: float = field(default_factory=time.perf_counter)
    _first: float | None = None

    def another(self, at: float) -> RequestRecord:
        """The record of what a request leaves to be done: whose it is stays, what becomes of it is its own."""
        names = ("tenant", "client", "route", "upstream", "protocol", "kind", "is_call", "bytes_in")
        return RequestRecord(at, **{name: getattr(self, name) for name in names})

    def sent(self, message: MutableMapping[str, Any]) -> None:
        """Note what the client is sent."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            return
        self.bytes_out += len(message.get("body", b""))
        if self._first is None:
            self._first = time.perf_counter()
        if not message.get("more_body"):
            self.ending = "whole"

    def cost(self, usage: Usage, model: ModelSpec, ttl: CacheTtl) -> float | None:
        """Count what an answer cost; its price, where one is known."""
        before = self.usage or Usage()
        self.usage = Usage(*(getattr(before, name) + getattr(usage, name) for name in Usage.__struct_fields__))
        price = None if model.input_usd is None else usage_usd(usage, model, ttl)
        if price is not None:
            self.usd = (self.usd or 0.0) + price
        return price

    def estimate(self, prompt_bytes: int, output_bytes: int) -> None:
        """Take the usage from the size of bodies that weren't read."""
        per_token = _BYTES_PER_TOKEN
        self.is_estimated = True
        self.usage = Usage(input_tokens=prompt_bytes // per_token, output_tokens=output_bytes // per_token)

    def told(self) -> dict[str, Any]:
        """The line of the access log; what isn't known isn't there."""
        now = time.perf_counter()
        used = self.usage
        told: dict[str, Any] = {
            "time": datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "request": self.request,
            "tenant": self.tenant,
            "session": self.session,
            "client": self.client,
            "route": self.route,
            "upstream": self.upstream,
            "protocol": self.protocol,
            "kind": self.kind,
            "model": self.model[:_NAME_CHARS],
            "stream": self.is_stream or None,
            "mode": self.mode,
            "reason": self.reason,
            "status": self.status,
            "ending": self.ending,
            "bytes_in": self.bytes_in,
            "bytes_up": self.bytes_up,
            "bytes_out": self.bytes_out,
            "prompt_tokens": used and used.prompt_tokens,
            "cache_read_tokens": used and used.cache_read_input_tokens,
            "cache_write_tokens": used and used.cache_creation_input_tokens,
            "output_tokens": used and used.output_tokens,
            "estimated": self.is_estimated or None,
            "usd": None if self.usd is None else round(self.usd, 6),
            "first_byte_ms": None if self._first is None else round((self._first - self._began) * 1e3, 2),
            "ms": round((now - self._began) * 1e3, 2),
        }
        return {name: value for name, value in told.items() if value not in (None, "")}

    def line(self) -> bytes:
        """The same as it is written."""
        return _ENCODER.encode(self.told()) + b"\n"

    def about(self) -> dict[str, str]:
        """The names that events of this request carry."""
        told = {"request": self.request, "upstream": self.upstream, "model": self.model[:_NAME_CHARS]}
        return {name: value for name, value in told.items() if value}


CURRENT: ContextVar[RequestRecord | None] = ContextVar("CURRENT", default=None)
"""The request that is being served; what it started goes on under its name."""


def client_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """What a client calls itself: the first product that its user agent names, with its version."""
    given = next((value for name, value in headers if name == b"user-agent"), b"")
    first = given.decode("latin-1").partition(" (")[0].strip()[:_NAME_CHARS]
    return "".join(char for char in first if char.isascii() and char.isprintable())
