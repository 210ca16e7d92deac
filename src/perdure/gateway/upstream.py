"""The HTTP client towards model servers (GW-1, SEC-7).

Where a request goes is the configuration's word alone: host and port come from an `UpstreamConfig`, and nothing of a
request can change them. No redirect is followed, no proxy of the environment is used, no cookie is kept. Headers pass
only by name, in both directions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import aiohttp
import msgspec
from yarl import URL

from perdure.adapters.providers.anthropic import retry_after
from perdure.context.failures import ErrorResponse, classify
from perdure.errors import ModelDown, ModelError
from perdure.gateway.config import UpstreamConfig

Headers = list[tuple[bytes, bytes]]

# What a client may tell an upstream, and an upstream a client; everything else stays here.
TO_UPSTREAM = frozenset(
    "accept content-type user-agent anthropic-version anthropic-beta openai-organization openai-project openai-beta "
    "idempotency-key x-client-request-id x-app x-title http-referer traceparent tracestate "
    "anthropic-dangerous-direct-browser-access".split()
)
TO_UPSTREAM_STARTS = ("x-stainless-",)
CREDENTIALS = ("x-api-key", "authorization")
TO_CLIENT = frozenset(
    "content-type request-id x-request-id retry-after retry-after-ms x-should-retry content-encoding "
    "cache-control content-disposition".split()
)
TO_CLIENT_STARTS = ("anthropic-", "openai-", "x-ratelimit-")

_CHUNK_BYTES = 64 * 1024


def headers_up(headers: Iterable[tuple[bytes, bytes]], key: str | None, protocol: str) -> dict[str, str]:
    """The headers for an upstream. With a `key` the client's credentials stay here, and it goes in their place."""
    out: dict[str, str] = {}
    for raw_name, raw_value in headers:
        name = raw_name.decode("latin-1").lower()
        is_credential = name in CREDENTIALS
        if name in TO_UPSTREAM or name.startswith(TO_UPSTREAM_STARTS) or (is_credential and key is None):
            value = raw_value.decode("latin-1").strip()
            out[name] = f"{out[name]}, {value}" if name in out and not is_credential else value
    if key is not None and protocol == "anthropic":
        out["x-api-key"] = key
    elif key is not None:
        out["authorization"] = f"Bearer {key}"
    out["accept-encoding"] = "identity"  # answers are read along
    return out


def headers_down(headers: Mapping[str, str]) -> Headers:
    """The headers of an upstream that its client may see."""
    return [
        (name.lower().encode("latin-1"), value.encode("latin-1"))
        for name, value in headers.items()
        if name.lower() in TO_CLIENT or name.lower().startswith(TO_CLIENT_STARTS)
    ]


def target_of(upstream: UpstreamConfig, raw_path: bytes, query: bytes) -> URL:
    """The address of a path at an upstream. Host and port are the configuration's, whatever the path says."""
    base = urlsplit(upstream.url)
    path = base.path.rstrip("/") + raw_path.decode("latin-1")
    return URL.build(
        scheme=base.scheme,
        host=base.hostname or "",
        port=base.port,
        path=path,
        query_string=query.decode("latin-1"),
        encoded=True,
    )


def is_plain_path(raw_path: bytes) -> bool:
    """Whether a path is one that means the same to everybody who reads it."""
    if not raw_path.startswith(b"/") or raw_path.startswith(b"//"):
        return False
    low = raw_path.lower()
    if any(byte <= 0x20 or byte >= 0x7F or byte in b"\\?#@" for byte in raw_path):
        return False
    return not any(part in (b".", b"..") for part in low.replace(b"%2e", b".").replace(b"%2f", b"/").split(b"/"))


class UpstreamClient:
    """Connections to all upstreams, kept open between requests."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=15.0, ttl_dns_cache=60)
        self._session = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            trust_env=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            raise_for_status=False,
            read_bufsize=_CHUNK_BYTES,
        )

    async def send(
        self, upstream: UpstreamConfig, method: str, target: URL, headers: Mapping[str, str], body: bytes
    ) -> aiohttp.ClientResponse:
        """Send a request; the answer's head is there on return. Raises `ModelDown` when there is none.

        Whoever is cancelled while it waits, or closes the answer before its end, ends the connection with it: what is
        left on it can't become the answer to somebody else (SEC-7).
        """
        assert self._session is not None, "open the client first"
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=upstream.connect_seconds, sock_read=upstream.silence_seconds
        )
        try:
            return await self._session.request(
                method,
                target,
                data=body or None,
                headers=headers,
                allow_redirects=False,
                timeout=timeout,
                skip_auto_headers=("User-Agent", "Content-Type", "Accept"),
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as e:
            raise ModelDown(type(e).__name__) from e

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def error_of(status: int, body: bytes, headers: Mapping[str, str]) -> ModelError:
    """What an error answer means, in either protocol's form."""
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        fields = {}
    fields = fields if isinstance(fields, dict) else {}
    inner = fields.get("error")
    error = inner if isinstance(inner, dict) else fields
    message = error.get("message") or (inner if isinstance(inner, str) else "") or body[:500].decode("utf-8", "replace")
    return classify(
        ErrorResponse(
            status=status,
            message=str(message),
            kind=str(error.get("type") or ""),
            code=str(error.get("code") or ""),
            retry_after_seconds=retry_after(headers.get("retry-after")),
            extra=error,
        )
    )


BROKEN = (aiohttp.ClientError, TimeoutError, OSError)
"""What reading an answer raises when the upstream breaks off."""
