"""Blobs in an object store: a bucket of S3, or of anything that speaks as it does (SCL-1, SCL-6).

A key is `PREFIX/tenant/TENANT/SESSION/SHA-256`, so tenants share nothing, not even the knowledge that somebody else has
the same bytes, and what a tenant or a session has is one listing. An object has the bytes that the file of the same
blob has (`adapters/journal/blobs.py`).

Where the store is and who may ask it is said by the environment alone: `AWS_ENDPOINT_URL_S3` (without it, Amazon's),
`AWS_REGION`, and `AWS_ACCESS_KEY_ID` with `AWS_SECRET_ACCESS_KEY`, or what a container, a cluster or a machine is given
in their place.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from perdure.adapters.extras import install
from perdure.adapters.journal.blobs import HASH_NAME, packed, unpacked
from perdure.errors import BadSetting, JournalError
from perdure.transcript.messages import BlobId

try:
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError, GenericError
    from obstore.store import S3Store
except ImportError as e:
    raise BadSetting(f"blobs in an object store need another package: {install('s3')}") from e

if TYPE_CHECKING:
    from obstore.store import S3Config

_AT_ONCE = 8  # requests of one call
_REQUEST_SECONDS = 60  # one request with its body: 20 MB at 3 Mbit/s
_CONNECT_SECONDS = 5
_RETRY_SECONDS = 20  # no request is tried again after so many
_RETRIES = 6
_DELETED_AT_ONCE = 1000
_PASSES = 3  # of a deletion: listings until nothing is left
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9._-]+")
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]")  # a name in a key has the bytes of these in hex, each behind a `~`
_LOOPBACK = re.compile(r"localhost|127(?:\.\d{1,3}){3}|::1")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>|\(code: (\w{1,60})\)")  # of a request; of one key of a deletion
_MESSAGE = re.compile(r"<Message>([^<\n]{1,200})")
_KEY, _SECRET = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
_INSTEAD_OF_KEYS = (  # what a container (ECS), a cluster (EKS) and a machine (EC2) are given
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_METADATA_ENDPOINT",
)
_LAST_SECONDS = 0.1
_FAILURES = (BaseError, OSError, ValueError)  # of the client; what isn't there is a `FileNotFoundError`
_ID_BEGINS = re.compile(r"[0-9a-f]{1,64}")
_ABOUT_KEYS = "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and what the key may do with this bucket"


# The client's threads let go of the interpreter a moment after they have answered. A process that ends before that is
# aborted, which was one in ten (https://github.com/PyO3/pyo3-async-runtimes/issues/40).
atexit.register(time.sleep, _LAST_SECONDS)


@dataclass(frozen=True, slots=True)
class Bucket:
    """The blobs of all tenants in one bucket, below a prefix. `Bucket.at` takes an address; it asks nothing yet."""

    address: str
    endpoint: str
    store: S3Store

    @classmethod
    def at(cls, address: str, environ: Mapping[str, str] | None = None, *, retries: int = _RETRIES) -> Bucket:
        """The bucket of an address.

        Args:
            address: `s3://BUCKET`, or `s3://BUCKET/PREFIX`.
            environ: where the store is and who asks it; the process's own environment if None.
            retries: how often a request is tried again that the store couldn't answer.

        Raises:
            BadSetting: the address or the environment can't be used.
        """
        environ = os.environ if environ is None else environ
        name, prefix = _parts_of(address)
        endpoint = (environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or "").rstrip("/")
        _check_endpoint(endpoint, environ)
        region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "us-east-1"
        config: S3Config = {"region": region, "checksum_algorithm": "sha256", "skip_signature": False}
        if endpoint:
            config["aws_endpoint_url_s3"] = endpoint  # before any other that the environment has
        if environ.get(_KEY) and environ.get(_SECRET):
            config["access_key_id"], config["secret_access_key"] = environ[_KEY], environ[_SECRET]
            if token := environ.get("AWS_SESSION_TOKEN"):
                config["session_token"] = token
        elif not any(environ.get(one) for one in _INSTEAD_OF_KEYS):
            raise BadSetting(f"{address}: no key for the object store: set {_KEY} and {_SECRET}")
        store = S3Store(
            name,
            prefix=prefix or None,
            config=config,
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "allow_invalid_certificates": False,
                "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
                "timeout": timedelta(seconds=_REQUEST_SECONDS),
            },
            retry_config={
                "max_retries": retries,
                "retry_timeout": timedelta(seconds=_RETRY_SECONDS),
                "backoff": {
                    "init_backoff": timedelta(milliseconds=100),
                    "max_backoff": timedelta(seconds=3),
                    "base": 2,
                },
            },
        )
        return cls(address.rstrip("/"), endpoint or f"Amazon S3, {region}", store)

    def blobs(self, tenant: str, session: str = "") -> BucketBlobs:
        """The blobs of a tenant's session; without one, those of no session."""
        return BucketBlobs(self, _folder(tenant, session))

    async def sizes(self, tenant: str, session: str | None = None) -> dict[str, int]:
        """How many bytes each object of a tenant has, or of one of its sessions, by its key below the prefix.

        Raises:
            JournalError: the store doesn't say, or doesn't name all.
        """
        with self.told("the blobs can't be listed"):
            return await self._sizes(_folder(tenant, session))

    async def copy(self, tenant: str, source: str, target: str) -> None:
        """Give a session all blobs of another one of the same tenant. The bytes stay within the store.

        Raises:
            JournalError: not all are there; the call may be repeated.
        """
        of, to = _folder(tenant, source), _folder(tenant, target)
        with self.told("the blobs can't be copied"):
            wanted = await self._sizes(of)
            await _each(partial(obstore.copy_async, self.store, key, f"{to}{key.removeprefix(of)}") for key in wanted)
            there = await self._sizes(to)
        if missing := [key for key, size in wanted.items() if there.get(f"{to}{key.removeprefix(of)}") != size]:
            raise JournalError(f"{self.address}: {len(missing)} of {len(wanted)} blobs aren't copied: try again")

    async def delete(
        self, tenant: str, session: str | None = None, *, on_deleted: Callable[[int], None] | None = None
    ) -> int:
        """Delete all that a tenant, or one of its sessions, has here. Nobody may write there meanwhile.

        `on_deleted` is told how many went, now and then.

        Returns:
            How many blobs were deleted: the store was asked behind it, and named none any more.

        Raises:
            JournalError: some are still there, or in former versions that the bucket keeps. The call may be repeated.
        """
        folder, deleted, left, unsure = _folder(tenant, session), 0, {}, set[str]()
        with self.told("the blobs can't be deleted"):
            mark = f"{folder}/~~deleting"  # the answer to a put says whether the bucket keeps versions
            version = await self._marked(mark)
            for attempt in range(_PASSES):
                try:
                    is_empty = True
                    async for page in obstore.list(self.store, prefix=folder, chunk_size=_DELETED_AT_ONCE):
                        is_empty, keys = False, {one["path"] for one in page}
                        deleted += len(keys - unsure)
                        unsure |= keys
                        await obstore.delete_async(self.store, list(keys))
                        unsure -= keys
                        if on_deleted is not None:
                            on_deleted(len(keys - {mark}))
                    if is_empty:
                        break
                except GenericError:
                    if attempt == _PASSES - 1:
                        raise
            else:
                left = await self._sizes(folder)
        if left:
            raise JournalError(f"{self.address}: {len(left)} blobs are still there after they were deleted: try again")
        if version not in (None, "null"):
            raise JournalError(
                f"{self.address}: the blobs are deleted, but the bucket keeps former versions with all their bytes: "
                "give it a lifecycle rule that removes noncurrent versions, or remove them by hand"
            )
        return deleted - 1  # without the marker

    async def probe(self) -> float:
        """Write something, read it back and delete it.

        Returns:
            How many seconds that took.

        Raises:
            JournalError: it can't be written, read or deleted.
        """
        started = time.monotonic()
        blobs = BucketBlobs(self, "probe")
        (blob,) = await blobs.put((secrets.token_bytes(32),))
        await blobs.get(blob)
        with self.told("what was written for a test can't be deleted"):
            await obstore.delete_async(self.store, f"probe/{blob}")
        return time.monotonic() - started

    async def is_versioned(self) -> bool:
        """Whether the bucket keeps former versions, so that what is deleted isn't gone.

        Raises:
            JournalError: nothing can be written or deleted there.
        """
        with self.told("nothing can be written, or deleted"):
            version = await self._marked("probe/version")
            await obstore.delete_async(self.store, "probe/version")
        return version not in (None, "null")

    async def is_empty(self) -> bool:
        """Whether nobody has blobs here.

        Raises:
            JournalError: the store doesn't say.
        """
        with self.told("the blobs can't be listed"):
            async for page in obstore.list(self.store, prefix="tenant"):
                if page:
                    return False
        return True

    @contextmanager
    def told(self, what: str) -> Iterator[None]:
        """Failures of the store as a `JournalError` of one line: `what` can't be done, why, and what to do."""
        try:
            yield
        except _FAILURES as e:
            raise JournalError(f"{self.address}: {what}: {self._why(str(e))}") from e

    def _why(self, said: str) -> str:
        """The store's own code and message, and no more of an error: it is long, and names keys of objects."""
        found, message = _CODE.search(said), _MESSAGE.search(said)
        code = (found[1] or found[2]) if found else ""
        match code:
            case "" if "configured region" in said:
                return f"the store at {self.endpoint} has no such bucket in this region: check AWS_REGION"
            case "":
                return f"the store at {self.endpoint} doesn't answer, or breaks off: check its address, then try again"
            case "NoSuchBucket":
                return f"there is no such bucket at {self.endpoint}: make it, or name another one"
            case "NoSuchKey":
                return "there is no such blob"
            case "AccessDenied" | "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "ExpiredToken":
                return f"the store refuses the key ({code}): {_ABOUT_KEYS}"
        return f"the store says {code}: {message[1].strip() if message else 'nothing more'}"

    async def _marked(self, key: str) -> str | None:
        return (await obstore.put_async(self.store, key, b"=", use_multipart=False))["version"]

    async def _sizes(self, folder: str) -> dict[str, int]:
        return {one["path"]: one["size"] async for page in obstore.list(self.store, prefix=folder) for one in page}


@dataclass(frozen=True, slots=True)
class BucketBlobs:
    """`ports.Blobs`, and `ports.HomeBlobs`, below a key of a bucket."""

    bucket: Bucket
    folder: str

    async def put(self, contents: tuple[bytes, ...]) -> tuple[BlobId, ...]:
        """Store each of them, several at once. All are there on return; `JournalError` when one of them may not be."""
        stored: dict[bytes, BlobId] = {}

        async def put_one(content: bytes) -> None:
            stored[content] = await self._put(content)

        with self.bucket.told("a blob can't be written"):
            await _each(partial(put_one, content) for content in dict.fromkeys(contents))
        return tuple(stored[content] for content in contents)

    async def get(self, blob: BlobId) -> bytes:
        """The bytes that were put; `JournalError` when they are missing or are no longer the same."""
        if not HASH_NAME.fullmatch(blob):
            raise JournalError(f"not the id of a blob (64 hex digits): {blob[:80]!r}")
        with self.bucket.told(f"blob {blob[:12]} can't be read"):
            answer = await obstore.get_async(self.bucket.store, f"{self.folder}/{blob}")
            stored = bytes(await answer.bytes_async())
        content = await anyio.to_thread.run_sync(_content_of, stored, blob)
        if content is None:
            raise JournalError(
                f"{self.bucket.address}: blob {blob[:12]} is damaged: its bytes are not those that were stored"
            )
        return content

    async def ids(self) -> Sequence[BlobId]:
        """All blobs that are there; `JournalError` where the store doesn't name them."""
        with self.bucket.told("the blobs can't be listed"):
            pages = obstore.list(self.bucket.store, prefix=self.folder)
            found = [one["path"].rpartition("/")[2] async for page in pages for one in page]
        return sorted(BlobId(one) for one in found if HASH_NAME.fullmatch(one))

    async def named(self, beginning: str) -> Sequence[BlobId]:
        """The blobs whose ids begin so; none where they can't be listed."""
        found: list[BlobId] = []
        if _ID_BEGINS.fullmatch(beginning):
            try:  # from there on, in the order of their ids
                start = f"{self.folder}/{beginning[:-1]}" if beginning[1:] else None
                async for page in obstore.list(self.bucket.store, prefix=self.folder, offset=start):
                    ids = [one["path"].rpartition("/")[2] for one in page]
                    found += [BlobId(one) for one in ids if one.startswith(beginning) and HASH_NAME.fullmatch(one)]
                    if ids and ids[-1] > beginning and not ids[-1].startswith(beginning):
                        break
            except _FAILURES:
                return ()
        return found

    async def forget(self, before: float) -> int:
        """Delete those that were first put before a time, by the store's clock; how many that was."""
        try:
            pages = obstore.list(self.bucket.store, prefix=self.folder)
            old = [one["path"] async for page in pages for one in page if one["last_modified"].timestamp() < before]
            if old:
                await obstore.delete_async(self.bucket.store, old)
        except _FAILURES:
            return 0  # the next time tries again
        return len(old)

    async def _put(self, content: bytes) -> BlobId:
        blob, stored = await anyio.to_thread.run_sync(_named, content)
        store, key = self.bucket.store, f"{self.folder}/{blob}"
        try:
            await obstore.put_async(store, key, stored, mode="create", use_multipart=False)
            return blob
        except AlreadyExistsError:  # or somebody else is about to write it, who may yet fail
            try:
                await self.get(blob)
                return blob
            except JournalError:
                pass
        except GenericError:  # such a put isn't tried again when no answer comes, since it may have been heard
            pass
        await obstore.put_async(store, key, stored, use_multipart=False)  # the same bytes, or in place of damaged ones
        return blob


def _named(content: bytes) -> tuple[BlobId, bytes]:
    return BlobId(hashlib.sha256(content).hexdigest()), packed(content)


def _content_of(stored: bytes, blob: BlobId) -> bytes | None:
    content = unpacked(stored)
    return content if content is not None and hashlib.sha256(content).hexdigest() == blob else None


async def _each(calls: Iterable[Callable[[], Awaitable[object]]]) -> None:
    """Make the calls, several at once. The first failure ends the others, and is raised as it is."""
    limit, failures = anyio.CapacityLimiter(_AT_ONCE), list[Exception]()

    async def one(call: Callable[[], Awaitable[object]]) -> None:
        async with limit:
            try:
                await call()
            except Exception as e:
                failures.append(e)
                group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for call in calls:
            group.start_soon(one, call)
    if failures:
        raise failures[0]


def _folder(tenant: str, session: str | None) -> str:
    """The key of all that a tenant, or one of its sessions, has. No two tenants, and no two sessions, have the same."""
    names = (tenant,) if session is None else (tenant, session)
    return "/".join(("tenant", *(_UNSAFE.sub(_in_hex, name) or "~" for name in names)))


def _in_hex(found: re.Match[str]) -> str:
    return "".join(f"~{byte:02x}" for byte in found[0].encode("utf-8", "surrogatepass"))


def _parts_of(address: str) -> tuple[str, str]:
    """Bucket and prefix of an address."""
    scheme, _, rest = address.partition("://")
    name, _, prefix = rest.rstrip("/").partition("/")
    if scheme != "s3" or not _BUCKET.fullmatch(name):
        raise BadSetting(f"{address}: not the address of a bucket: write s3://BUCKET or s3://BUCKET/PREFIX")
    if prefix and not all(_PREFIX.fullmatch(part) and part not in (".", "..") for part in prefix.split("/")):
        raise BadSetting(f"{address}: a prefix is made of names with a `/` between: letters, digits, `-`, `_` and `.`")
    return name, prefix


def _check_endpoint(endpoint: str, environ: Mapping[str, str]) -> None:
    """`BadSetting` for an endpoint that is none, or that would send what is stored in the clear through a network."""
    if not endpoint:
        return
    try:
        parts = urlsplit(endpoint)
        host, _ = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host or parts.username or parts.query or parts.fragment:
        raise BadSetting("AWS_ENDPOINT_URL_S3: not the address of a server: write https://HOST or https://HOST:PORT")
    is_allowed = environ.get("AWS_ALLOW_HTTP", "").lower() in ("true", "1")
    if parts.scheme == "http" and not is_allowed and not _LOOPBACK.fullmatch(host):
        raise BadSetting(
            f"{endpoint}: http would send what is stored unencrypted: write https, or set AWS_ALLOW_HTTP=true"
        )
