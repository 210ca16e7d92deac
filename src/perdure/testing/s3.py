"""An object store on a local port that speaks S3, with the rules of the real one (SCL-1).

Every request has to be signed (Signature Version 4, checked to the last byte), with the body that its hash says, and
its length; checksums that are sent have to be right. It answers put (also only if there is none yet), get with ranges,
head, copy, delete, delete of many, and listing by pages; anything else is refused as not implemented.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import time
import xml.etree.ElementTree as ElementTree
import zlib
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Literal
from urllib.parse import parse_qsl, quote, unquote
from xml.sax.saxutils import escape

from perdure.testing.server import LocalHttpServer, ReceivedRequest

# Errors before anything is done; connections cut before or after it, within the answer's body, or never answered; a
# deletion of many that is answered by 200 and deletes none.
S3Fault = Literal[
    "slow-down", "internal-error", "access-denied", "conflict", "cut-before", "cut-after", "torn", "hang", "undeleted"
]  # fmt: skip

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/,]+)/(\d{8})/([^/,]+)/s3/aws4_request, ?"
    r"SignedHeaders=([a-z0-9;-]+), ?Signature=([0-9a-f]{64})"
)
_NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_SKEW_SECONDS = 15 * 60
_LONGEST_KEY = 1024  # bytes
_MOST_AT_ONCE = 1000  # keys of a page, and of one deletion
_CHECKSUMS: Mapping[str, Callable[[bytes], bytes]] = {
    "content-md5": lambda body: hashlib.md5(body, usedforsecurity=False).digest(),
    "x-amz-checksum-sha1": lambda body: hashlib.sha1(body, usedforsecurity=False).digest(),
    "x-amz-checksum-sha256": lambda body: hashlib.sha256(body).digest(),
    "x-amz-checksum-crc32": lambda body: zlib.crc32(body).to_bytes(4, "big"),
}


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as it stands in a bucket."""

    data: bytes
    modified: float
    version: str | None = None

    @property
    def etag(self) -> str:
        return f'"{hashlib.md5(self.data, usedforsecurity=False).hexdigest()}"'


@dataclass(frozen=True, slots=True)
class S3Answer:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class S3Refusal(Exception):
    """The request is answered with an error."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass(slots=True)
class FakeS3(LocalHttpServer):
    """`async with FakeS3() as s3:` serves at `s3.url`; without an event loop it is `with FakeS3() as s3:`.

    buckets       what is stored, by bucket and key
    keys          who may ask: access keys and their secrets
    faults        what goes wrong with each request, in order; None: nothing
    page          how many keys a page of a listing has at most
    keeps_versions  what is overwritten or deleted is kept, as in a bucket with versions
    """

    buckets: dict[str, dict[str, StoredObject]] = field(default_factory=lambda: {"blobs": {}})
    keys: dict[str, str] = field(default_factory=lambda: {"AKIAFAKE": "fake-secret"})
    region: str = "us-east-1"
    faults: deque[S3Fault | None] = field(default_factory=deque)
    page: int = _MOST_AT_ONCE
    keeps_versions: bool = False
    former: list[StoredObject] = field(default_factory=list)  # versions that are no longer the newest

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which a client finds it and may ask."""
        access, secret = next(iter(self.keys.items()))
        return {
            "AWS_ENDPOINT_URL_S3": self.url,
            "AWS_REGION": self.region,
            "AWS_ACCESS_KEY_ID": access,
            "AWS_SECRET_ACCESS_KEY": secret,
        }

    def bytes_held(self) -> bytes:
        """All that is stored anywhere, names and contents, former versions too."""
        named = ((key.encode(), stored.data) for objects in self.buckets.values() for key, stored in objects.items())
        return b"\0".join([*(part for pair in named for part in pair), *(stored.data for stored in self.former)])

    async def _answer(self, request: ReceivedRequest, writer: asyncio.StreamWriter) -> bool:
        self.received.append(ReceivedRequest(request.method, request.path, request.headers, b"", request.query))
        fault = self.faults.popleft() if self.faults else None
        if fault == "cut-before":
            return False
        if fault == "hang":
            await asyncio.Event().wait()
        try:
            match fault:
                case "slow-down":
                    raise S3Refusal(503, "SlowDown", "Please reduce your request rate.")
                case "internal-error":
                    raise S3Refusal(500, "InternalError", "We encountered an internal error. Please try again.")
                case "access-denied":
                    raise S3Refusal(403, "AccessDenied", "Access Denied")
                case "conflict":
                    raise S3Refusal(409, "ConditionalRequestConflict", "A conflicting operation is under way.")
            answer = self._respond(request, fault)
        except S3Refusal as e:
            told = f"<Error><Code>{e.code}</Code><Message>{escape(e.message)}</Message></Error>"
            answer = _xml(told, e.status)
        if fault == "cut-after":
            return False
        head = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
        length = answer.headers.get("content-length", len(answer.body))
        head += "" if "content-length" in answer.headers else f"content-length: {length}\r\n"
        writer.write(f"HTTP/1.1 {answer.status} Fake\r\n{head}\r\n".encode())
        writer.write(answer.body[: len(answer.body) // 2] if fault == "torn" else answer.body)
        await writer.drain()
        return fault != "torn"

    # --- who may ask, and for what ----------------------------------------------------------------------------------

    def _respond(self, request: ReceivedRequest, fault: S3Fault | None) -> S3Answer:
        self._check_signature(request)
        self._check_body(request)
        bucket, _, key = unquote(request.path).removeprefix("/").partition("/")
        if bucket not in self.buckets:
            raise S3Refusal(404, "NoSuchBucket", "The specified bucket does not exist")
        if len(key.encode()) > _LONGEST_KEY:
            raise S3Refusal(400, "KeyTooLongError", "Your key is too long")
        objects, asked = self.buckets[bucket], dict(parse_qsl(request.query, keep_blank_values=True))
        match request.method, bool(key), "&".join(sorted(asked)):
            case "GET", False, _ if asked.get("list-type") == "2":
                return self._listing(bucket, asked)
            case "POST", False, "delete":
                return self._delete_many(objects, request, fails=fault == "undeleted")
            case "PUT", True, "" if "x-amz-copy-source" in request.headers:
                return self._copy(objects, key, request)
            case "PUT", True, "":
                return self._put(objects, key, request)
            case "GET" | "HEAD", True, "":
                return self._get(objects, key, request)
            case "DELETE", True, "":
                self._remove(objects, key)
                return S3Answer(204)
            case _:
                raise S3Refusal(501, "NotImplemented", "A header or query you provided implies functionality not here")

    def _check_signature(self, request: ReceivedRequest) -> None:
        """Signature Version 4, as the documentation of it says."""
        headers = request.headers
        if "authorization" not in headers:
            raise S3Refusal(403, "AccessDenied", "Access Denied")
        found = _AUTHORIZATION.fullmatch(headers["authorization"])
        if found is None:
            raise S3Refusal(400, "AuthorizationHeaderMalformed", "The authorization header is malformed")
        access, day, region, listed, signature = found.groups()
        if access not in self.keys:
            raise S3Refusal(
                403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records."
            )
        if region != self.region:
            raise S3Refusal(400, "AuthorizationHeaderMalformed", f"the region is wrong; expecting '{self.region}'")
        signed = listed.split(";")
        if "host" not in signed or any(name.startswith("x-amz-") and name not in signed for name in headers):
            raise S3Refusal(403, "AccessDenied", "There were headers present in the request which were not signed")
        moment = headers.get("x-amz-date", "")
        try:
            at = datetime.strptime(moment, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
        except ValueError:
            raise S3Refusal(
                403, "AccessDenied", "AWS authentication requires a valid Date or x-amz-date header"
            ) from None
        if abs(time.time() - at) > _SKEW_SECONDS or not moment.startswith(day):
            raise S3Refusal(
                403, "RequestTimeTooSkewed", "The difference between the request time and ours is too large."
            )
        asked = sorted(parse_qsl(request.query, keep_blank_values=True))
        canonical = "\n".join([
            request.method,
            quote(unquote(request.path), safe="/-_.~"),
            "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in asked),
            *(f"{name}:{' '.join(headers.get(name, '').split())}" for name in signed),
            "",
            listed,
            headers.get("x-amz-content-sha256", ""),
        ])  # fmt: skip
        scope = f"{day}/{region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = f"AWS4{self.keys[access]}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        if not hmac.compare_digest(hmac.digest(key, text.encode(), "sha256").hex(), signature):
            raise S3Refusal(403, "SignatureDoesNotMatch", "The request signature we calculated does not match yours.")

    def _check_body(self, request: ReceivedRequest) -> None:
        headers = request.headers
        if "x-amz-content-sha256" not in headers:
            raise S3Refusal(400, "InvalidRequest", "Missing required header for this request: x-amz-content-sha256")
        if headers["x-amz-content-sha256"] != hashlib.sha256(request.body).hexdigest():
            raise S3Refusal(
                400, "XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match."
            )
        for name in headers:
            if name == "x-amz-checksum-mode" or not name.startswith(("x-amz-checksum-", "content-md5")):
                continue  # the mode asks for checksums in the answer, which need not be there
            if name not in _CHECKSUMS:
                raise S3Refusal(501, "NotImplemented", f"{name} isn't known here")
            if b64decode(headers[name]) != _CHECKSUMS[name](request.body):
                raise S3Refusal(400, "BadDigest", f"The {name} you specified did not match what we received.")

    # --- objects ----------------------------------------------------------------------------------------------------

    def _put(self, objects: dict[str, StoredObject], key: str, request: ReceivedRequest) -> S3Answer:
        if "content-length" not in request.headers:
            raise S3Refusal(411, "MissingContentLength", "You must provide the Content-Length HTTP header.")
        if (unless := request.headers.get("if-none-match")) not in (None, "*"):
            raise S3Refusal(501, "NotImplemented", f"If-None-Match is `*` here, and not {unless}")
        if unless == "*" and key in objects:
            raise S3Refusal(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
        stored = self._store(objects, key, request.body)
        return S3Answer(200, headers=_headers(stored))

    def _copy(self, objects: dict[str, StoredObject], key: str, request: ReceivedRequest) -> S3Answer:
        bucket, _, source = unquote(request.headers["x-amz-copy-source"]).removeprefix("/").partition("/")
        if (found := self.buckets.get(bucket, {}).get(source)) is None:
            raise S3Refusal(404, "NoSuchKey", "The specified key does not exist.")
        stored = self._store(objects, key, found.data)
        told = f"<ETag>{stored.etag}</ETag><LastModified>{_moment(stored.modified)}</LastModified>"
        return _xml(f"<CopyObjectResult {_NAMESPACE}>{told}</CopyObjectResult>")

    def _store(self, objects: dict[str, StoredObject], key: str, data: bytes) -> StoredObject:
        self._keep_former(objects, key)
        version = f"v{len(self.received)}" if self.keeps_versions else None
        stored = objects[key] = StoredObject(data, time.time(), version)
        return stored

    def _get(self, objects: dict[str, StoredObject], key: str, request: ReceivedRequest) -> S3Answer:
        if (stored := objects.get(key)) is None:
            raise S3Refusal(404, "NoSuchKey", "The specified key does not exist.")
        if request.headers.get("if-match", stored.etag) != stored.etag:
            raise S3Refusal(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
        data, status, headers = stored.data, 200, _headers(stored)
        if (asked := request.headers.get("range")) is not None:
            found = re.fullmatch(r"bytes=(\d+)-(\d*)", asked)
            if found is None or int(found[1]) >= len(data):
                raise S3Refusal(416, "InvalidRange", "The requested range is not satisfiable")
            first, last = int(found[1]), min(int(found[2] or len(data)), len(data) - 1)
            headers["content-range"] = f"bytes {first}-{last}/{len(data)}"
            data, status = data[first : last + 1], 206
        if request.method == "HEAD":
            return S3Answer(status, headers={**headers, "content-length": str(len(data))})
        return S3Answer(status, data, headers)

    def _remove(self, objects: dict[str, StoredObject], key: str) -> None:
        self._keep_former(objects, key)
        objects.pop(key, None)

    def _keep_former(self, objects: dict[str, StoredObject], key: str) -> None:
        if self.keeps_versions and key in objects:
            self.former.append(objects[key])

    def _delete_many(self, objects: dict[str, StoredObject], request: ReceivedRequest, *, fails: bool) -> S3Answer:
        if not any(name in _CHECKSUMS for name in request.headers):
            raise S3Refusal(400, "InvalidRequest", "Missing required header for this request: Content-MD5")
        try:
            asked = ElementTree.fromstring(request.body)
        except ElementTree.ParseError:
            raise S3Refusal(400, "MalformedXML", "The XML you provided was not well-formed") from None
        keys = [entry.text or "" for entry in asked.iterfind("{*}Object/{*}Key")]
        if not 0 < len(keys) <= _MOST_AT_ONCE:
            raise S3Refusal(400, "MalformedXML", "The XML you provided did not validate against our published schema")
        if fails:
            told = "".join(
                f"<Error><Key>{escape(key)}</Key><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
                for key in keys
            )
            return _xml(f"<DeleteResult {_NAMESPACE}>{told}</DeleteResult>")
        for key in keys:
            self._remove(objects, key)
        told = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        return _xml(f"<DeleteResult {_NAMESPACE}>{told}</DeleteResult>")

    def _listing(self, bucket: str, asked: Mapping[str, str]) -> S3Answer:
        if unknown := sorted(asked.keys() - {"list-type", "prefix", "max-keys", "continuation-token", "start-after"}):
            raise S3Refusal(501, "NotImplemented", f"not known here: {', '.join(unknown)}")
        prefix, after = asked.get("prefix", ""), asked.get("start-after", "")
        if token := asked.get("continuation-token"):
            try:
                after = b64decode(token, validate=True).decode()
            except ValueError:
                raise S3Refusal(400, "InvalidArgument", "The continuation token provided is incorrect") from None
        objects = self.buckets[bucket]
        keys = sorted(
            (key for key in objects if key.startswith(prefix) and key.encode() > after.encode()), key=str.encode
        )
        most = min(int(asked.get("max-keys", _MOST_AT_ONCE)), _MOST_AT_ONCE, self.page)
        listed, is_truncated = keys[:most], len(keys) > most
        told = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{_moment(objects[key].modified)}</LastModified>"
            f"<ETag>{escape(objects[key].etag)}</ETag><Size>{len(objects[key].data)}</Size></Contents>"
            for key in listed
        )
        if is_truncated:
            told += f"<NextContinuationToken>{b64encode(listed[-1].encode()).decode()}</NextContinuationToken>"
        about = f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(listed)}</KeyCount>"
        about += f"<MaxKeys>{most}</MaxKeys><IsTruncated>{str(is_truncated).lower()}</IsTruncated>"
        return _xml(f"<ListBucketResult {_NAMESPACE}>{about}{told}</ListBucketResult>")


def _xml(body: str, status: int = 200) -> S3Answer:
    told = f'<?xml version="1.0" encoding="UTF-8"?>\n{body}'.encode()
    return S3Answer(status, told, {"content-type": "application/xml"})


def _headers(stored: StoredObject) -> dict[str, str]:
    headers = {"etag": stored.etag, "last-modified": formatdate(stored.modified, usegmt=True)}
    return headers if stored.version is None else {**headers, "x-amz-version-id": stored.version}


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
