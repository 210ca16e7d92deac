"""The HTTP client towards model servers (GW-1, SEC-7).

Where a request goes is the configuration's word alone: host and port come from an `UpstreamConfig`, and nothing of a
request can change them. No redirect is followed, no proxy of the environment is used, no cookie is kept. Headers pass
in both directions, except those of the connection, ours, and what would bind a client to the upstream (GW-7).
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from urllib.parse import unquote_plus, urlsplit

import aiohttp
import anyio.lowlevel
import msgspec
from yarl import URL

from perdure.adapters.providers.anthropic import retry_after
from perdure.context.failures import ErrorResponse, classify
from perdure.errors import ModelDown, ModelError
from perdure.gateway.config import UpstreamConfig, credential_of

Headers = list[tuple[bytes, bytes]]

# Of the connection, or made anew for ours; and what proxies say of who stands before them.
_OF_CONNECTION = frozenset(
    "connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding "
    "upgrade http2-settings content-length".split()
)
_NOT_UP = _OF_CONNECTION | frozenset("host expect accept-encoding forwarded via x-real-ip".split())
_NOT_UP_STARTS = ("x-perdure-", "x-forwarded-")
# Of the body as its client wrote it: they don't hold for another one.
_OF_BODY = frozenset("content-md5 content-digest repr-digest digest x-amz-content-sha256".split())
# What names the upstream's own address, or would make a browser trust or remember it under ours.
_NOT_DOWN = _OF_CONNECTION | frozenset(
    "date alt-svc strict-transport-security clear-site-data nel report-to reporting-endpoints".split()
)
_COOKIES = ("set-cookie", "set-cookie2")
_NOT_DOWN_STARTS = ("x-perdure-", "access-control-")
_CREDENTIAL = re.compile(
    r"auth(?!or$)|token(?!s)|secret|credential|cookie|passw|jwt|signature|(?:^|[-_])(?:api[-_]?)?key$", re.IGNORECASE
)
_NO_CREDENTIALS = frozenset({"idempotency-key", "sec-websocket-key"})
_CREDENTIALS_IN_QUERIES = frozenset({"sig", "code"})  # beside the names above
_OWN_KEY_HEADERS = ("api-key", "x-goog-api-key")  # of Azure and of Google: the key goes where the client had its own

_CHUNK_BYTES = 64 * 1024
_LARGE_BYTES = 512 * 1024  # of a body that is sent in pieces, since a connection copies what it can't send at once


def headers_up(
    headers: Iterable[tuple[bytes, bytes]],
    key: str | None,
    key_header: str,
    *,
    is_read: bool = True,
    is_own_body: bool = True,
) -> dict[str, str]:
    """The headers for an upstream.

    Args:
        headers: as the client sent them.
        key: goes in the place of the client's credentials, which then stay here in whatever form they came.
        key_header: where a key belongs; where that is `authorization`, it goes where the client had its own.
        is_read: the answer is read along, so it may not be compressed.
        is_own_body: the body is the client's, so what its headers say of it holds.
    """
    given = [(name.decode("latin-1").lower(), _text(value).strip()) for name, value in headers]
    names = {name for name, _ in given}
    named = {token.strip().lower() for name, value in given if name == "connection" for token in value.split(",")}
    is_page = is_of_browser(headers)
    presented = credential_of((name.encode(), value.encode("utf-8", "replace")) for name, value in given)
    out: dict[str, str] = {}
    for name, value in given:
        if name in _NOT_UP or name.startswith(_NOT_UP_STARTS) or name in named:
            continue
        if name in _OF_BODY and not is_own_body:
            continue
        if name == "cookie" and is_page:  # a browser's jar is of this host, whoever listens on its other ports
            continue
        if key is not None and (_is_credential(name) or (presented and presented in value)):
            continue
        out[name] = value if name not in out else f"{out[name]}{'; ' if name == 'cookie' else ', '}{value}"
    if key is not None:
        if key_header == "authorization":
            key_header = next((name for name in _OWN_KEY_HEADERS if name in names), key_header)
        out[key_header] = f"Bearer {key}" if key_header == "authorization" else key
    accepted = [value for name, value in given if name == "accept-encoding"]
    if is_read:
        out["accept-encoding"] = "identity"
    elif accepted:
        out["accept-encoding"] = ", ".join(accepted)
    return out


def _text(value: bytes) -> str:
    """A header's value such that the HTTP client, which writes UTF-8, sends the same bytes wherever that can be."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _is_credential(name: str) -> bool:
    return name not in _NO_CREDENTIALS and _CREDENTIAL.search(name) is not None


def query_up(query: bytes, key: str | None, credential: str) -> bytes:
    """The query for an upstream; where a `key` goes in the place of the client's credential, without that."""
    if key is None or not query:
        return query
    kept = []
    for part in query.split(b"&"):
        name, _, value = part.partition(b"=")
        is_key = _is_credential(unquote_plus(name.decode("latin-1")))
        is_key = is_key or unquote_plus(name.decode("latin-1")).lower() in _CREDENTIALS_IN_QUERIES
        if not is_key and not (credential and credential in unquote_plus(value.decode("latin-1"))):
            kept.append(part)
    return b"&".join(kept)


def headers_down(headers: Mapping[str, str], upstream: UpstreamConfig, at: str, *, is_own: bool) -> Headers:
    """The headers of an upstream that its client may see.

    Args:
        headers: as the upstream sent them.
        upstream: what is at its address stands below `at` here, also where a header names it.
        at: the path of the client's route.
        is_own: whether the account is the client's own, and it is no page in a browser, whose cookies are of this host.
            Only then it is given the upstream's cookies, and sent elsewhere, where it takes its credential along.
    """
    named = {token.strip().lower() for token in headers.get("connection", "").split(",")}
    out: Headers = []
    for given, value in headers.items():
        name = given.lower()
        if name in _NOT_DOWN or name.startswith(_NOT_DOWN_STARTS) or name in named:
            continue
        if name in _COOKIES and not is_own:
            continue
        if name == "location" and (value := _location(value, upstream, at, is_own=is_own)) == "":
            continue
        out.append((name.encode("latin-1"), value.encode("utf-8", "surrogateescape")))
    return out


def _location(value: str, upstream: UpstreamConfig, at: str, *, is_own: bool) -> str:
    """Where a client finds what an upstream names; empty where it may not go there."""
    base = upstream.url.rstrip("/")
    path = urlsplit(base).path
    if value == base or value.startswith((f"{base}/", f"{base}?")):
        return f"{at}{value[len(base) :]}" or "/"
    if value.startswith(f"{path}/") and not value.startswith("//"):
        return f"{at}{value[len(path) :]}"
    is_elsewhere = value.startswith(("//", "/")) or ":" in value.partition("/")[0]
    return value if is_own or not is_elsewhere else ""


def is_of_browser(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a page in a browser asks."""
    return any(name.lower() in (b"origin", b"sec-fetch-site") for name, _ in headers)


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
    if any(byte <= 0x20 or byte >= 0x7F or byte in b"\\?#" for byte in raw_path):
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
        is_large = len(body) > _LARGE_BYTES
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=upstream.connect_seconds, sock_read=upstream.silence_seconds
        )
        try:
            return await self._session.request(
                method,
                target,
                data=_pieces(body) if is_large else body or None,
                headers={**headers, "content-length": str(len(body))} if is_large else headers,
                allow_redirects=False,
                timeout=timeout,
                skip_auto_headers=("User-Agent", "Content-Type", "Accept", "Accept-Encoding"),
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as e:
            raise ModelDown(type(e).__name__) from e

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


async def _pieces(body: bytes) -> AsyncIterator[memoryview]:
    """A body in pieces, between which others have their turn; a file in memory would be a copy of it."""
    whole = memoryview(body)
    for at in range(0, len(body), _CHUNK_BYTES):
        yield whole[at : at + _CHUNK_BYTES]
        await anyio.lowlevel.checkpoint()


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
