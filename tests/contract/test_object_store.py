"""Blobs in an object store, against a server that keeps the rules of S3 (SCL-1, SCL-6)."""

from __future__ import annotations

import hashlib
import hmac
import os
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import anyio
import pytest

from perdure.errors import BadSetting, JournalError
from perdure.testing.s3 import FakeS3, S3Fault, StoredObject
from perdure.transcript.messages import BlobId

pytest.importorskip("obstore", reason="the package of the extra `s3` isn't installed")

from perdure.adapters.object_store import Bucket

pytestmark = pytest.mark.contract

TEXT = b"a line of a result\n" * 500


@pytest.fixture
def s3() -> Iterator[FakeS3]:
    with FakeS3() as server:
        yield server


def bucket_of(s3: FakeS3, address: str = "s3://blobs/home", *, retries: int = 2, **environ: str) -> Bucket:
    return Bucket.at(address, {**s3.environment, **environ}, retries=retries)


def objects(s3: FakeS3) -> dict[str, StoredObject]:
    return s3.buckets["blobs"]


def id_of(content: bytes) -> BlobId:
    return BlobId(hashlib.sha256(content).hexdigest())


# --- what stands there ----------------------------------------------------------------------------------------------


def test_an_object_has_the_bytes_of_a_file_under_a_key_of_its_tenant(s3: FakeS3) -> None:
    """SCL-1: PREFIX/tenant/TENANT/SESSION/SHA-256, packed where that helps; each part of a key is one name."""
    bucket = bucket_of(s3)
    (blob,) = anyio.run(bucket.blobs("alice", "s-1").put, (TEXT,))
    anyio.run(bucket.blobs("../é x", "").put, (b"y",))
    assert sorted(objects(s3)) == [
        f"home/tenant/alice/s-1/{blob}",
        f"home/tenant/~2e~2e~2f~c3~a9~20x/~/{id_of(b'y')}",
    ]
    assert len(objects(s3)[f"home/tenant/alice/s-1/{blob}"].data) < len(TEXT) / 20


def test_what_is_there_is_not_written_again(s3: FakeS3) -> None:
    """SCL-1: a second put of the same bytes changes nothing."""
    blobs = bucket_of(s3).blobs("alice", "s-1")
    anyio.run(blobs.put, (TEXT, b"x"))
    before = dict(objects(s3))
    assert anyio.run(blobs.put, (b"x", TEXT, b"x")) == (id_of(b"x"), id_of(TEXT), id_of(b"x"))
    assert all(objects(s3)[key] is stored for key, stored in before.items())
    assert objects(s3).keys() == before.keys()


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: b"=" + data[1:], lambda _: b"", lambda data: data[:9] + b"?" * 9]
)
def test_a_damaged_object_is_an_error_until_it_is_put_again(s3: FakeS3, damage: Callable[[bytes], bytes]) -> None:
    """RCL-2, SCL-1: it is never handed out, and a put of its bytes doesn't take it for stored."""
    blobs = bucket_of(s3).blobs("alice", "s-1")
    (blob,) = anyio.run(blobs.put, (TEXT,))
    ((key, stored),) = objects(s3).items()
    objects(s3)[key] = StoredObject(damage(stored.data), stored.modified)
    with pytest.raises(JournalError, match="damaged"):
        anyio.run(blobs.get, blob)
    anyio.run(blobs.put, (TEXT,))
    assert anyio.run(blobs.get, blob) == TEXT


@pytest.mark.nightly
def test_many_blobs_and_large_ones(s3: FakeS3) -> None:
    """SCL-1: a call with hundreds of contents, and one of 20 MB that doesn't get smaller."""
    contents = (*(f"result {n}".encode() * 50 for n in range(300)), random.Random(1).randbytes(20_000_000))
    blobs = bucket_of(s3).blobs("alice", "s-1")

    async def both_ways() -> None:
        ids = await blobs.put(contents)
        assert ids == tuple(map(id_of, contents))
        for blob, content in zip(ids, contents, strict=True):
            assert await blobs.get(blob) == content

    anyio.run(both_ways)


# --- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["slow-down", "internal-error", "conflict", "cut-before", "cut-after"])
def test_a_put_that_fails_once_is_made_good(s3: FakeS3, fault: S3Fault) -> None:
    """SCL-1: also `409 Conflict`, which looks as if the blob were there: another writer was about to put it."""
    blobs = bucket_of(s3).blobs("alice", "s-1")
    s3.faults.append(fault)
    (blob,) = anyio.run(blobs.put, (TEXT,))
    assert list(objects(s3)) == [f"home/tenant/alice/s-1/{blob}"]
    assert anyio.run(blobs.get, blob) == TEXT


@pytest.mark.parametrize("fault", ["slow-down", "internal-error", "cut-before", "cut-after", "torn"])
def test_a_get_that_fails_once_is_made_good(s3: FakeS3, fault: S3Fault) -> None:
    """SCL-1: an answer that is torn in the middle is read on, and checked whole."""
    blobs = bucket_of(s3).blobs("alice", "s-1")
    noise = random.Random(2).randbytes(200_000)
    (blob,) = anyio.run(blobs.put, (noise,))
    s3.faults.append(fault)
    assert anyio.run(blobs.get, blob) == noise


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("slow-down", "the store says SlowDown: Please reduce your request rate."),
        ("internal-error", "the store says InternalError"),
        ("access-denied", r"the store refuses the key \(AccessDenied\): check AWS_ACCESS_KEY_ID"),
        ("cut-before", "doesn't answer, or breaks off: check its address"),
        ("cut-after", "doesn't answer, or breaks off: check its address"),
    ],
)
def test_a_store_that_keeps_failing_is_one_line(s3: FakeS3, fault: S3Fault, said: str) -> None:
    """SCL-1: after a bounded number of requests; nothing is acknowledged, and a later put succeeds."""
    blobs = bucket_of(s3).blobs("alice", "s-1")
    s3.faults.extend([fault] * 100)
    with pytest.raises(JournalError, match=said) as raised:
        anyio.run(blobs.put, (TEXT,))
    assert str(raised.value).startswith("s3://blobs/home: a blob can't be written: ")
    assert "\n" not in str(raised.value) and "fake-secret" not in str(raised.value)
    assert len(s3.received) <= 6  # two rounds of one request and two retries
    s3.faults.clear()
    (blob,) = anyio.run(blobs.put, (TEXT,))
    s3.faults.extend([fault] * 100)
    with pytest.raises(JournalError, match=said):
        anyio.run(blobs.get, blob)
    s3.faults.clear()
    assert anyio.run(blobs.get, blob) == TEXT


def test_one_failure_of_many_acknowledges_nothing(s3: FakeS3) -> None:
    """SCL-1: a put of several raises when one of them isn't there; what is there may be put again."""
    blobs = bucket_of(s3).blobs("alice", "s-1")
    contents = tuple(f"{n}".encode() for n in range(50))
    s3.faults.extend([*([None] * 20), "access-denied"])
    with pytest.raises(JournalError, match="AccessDenied"):
        anyio.run(blobs.put, contents)
    assert len(objects(s3)) < 50
    assert anyio.run(blobs.put, contents) == tuple(map(id_of, contents))
    assert len(objects(s3)) == 50


def test_a_wrong_key_bucket_or_server_is_one_line(s3: FakeS3) -> None:
    """SCL-1: what is wrong, and what to do."""
    cases = {
        "the store refuses the key (SignatureDoesNotMatch)": bucket_of(s3, AWS_SECRET_ACCESS_KEY="wrong"),
        "the store refuses the key (InvalidAccessKeyId)": bucket_of(s3, AWS_ACCESS_KEY_ID="nobody"),
        "there is no such bucket at http://127.0.0.1": bucket_of(s3, "s3://elsewhere"),
        "the store says AuthorizationHeaderMalformed: the region is wrong": bucket_of(s3, AWS_REGION="eu-west-1"),
        "doesn't answer, or breaks off": bucket_of(s3, AWS_ENDPOINT_URL_S3="http://127.0.0.1:1"),
    }
    for said, bucket in cases.items():
        calls: list[Callable[[], Awaitable[object]]] = [
            partial(bucket.blobs("alice").put, (b"x",)),
            partial(bucket.blobs("alice").get, id_of(b"x")),
            partial(bucket.sizes, "alice"),
            partial(bucket.delete, "alice"),
            bucket.probe,
        ]
        for call in calls:
            with pytest.raises(JournalError) as raised:
                anyio.run(call)
            assert said in str(raised.value) and "\n" not in str(raised.value)
    assert objects(s3) == {}


# --- who sees what --------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_cancelled_gets_never_cross(s3: FakeS3) -> None:
    """SCL-1: 3,000 gets, 40 % of them cancelled on the way; each of the others gets its own bytes."""
    blobs, chance = bucket_of(s3).blobs("alice", "s-1"), random.Random(3)
    contents = tuple(chance.randbytes(chance.choice((100, 3_000, 60_000))) for _ in range(60))
    answered, cancelled = 0, 0

    async def one(content: bytes, patience: float | None, limit: anyio.CapacityLimiter) -> None:
        nonlocal answered, cancelled
        async with limit:
            with anyio.move_on_after(patience) as scope:
                assert await blobs.get(id_of(content)) == content
                answered += 1
            cancelled += scope.cancelled_caught

    async def many() -> None:
        await blobs.put(contents)
        limit = anyio.CapacityLimiter(40)
        async with anyio.create_task_group() as group:
            for n in range(3_000):
                patience = chance.uniform(0, 0.004) if n % 5 < 2 else None
                group.start_soon(one, chance.choice(contents), patience, limit)
        for content in contents:
            assert await blobs.get(id_of(content)) == content

    anyio.run(many)
    assert answered + cancelled == 3_000 and answered >= 1_800
    assert cancelled > 300, "hardly any get was still under way when it was cancelled"


def test_a_cancelled_put_leaves_nothing_half(s3: FakeS3) -> None:
    """SCL-1: whatever of it is there is whole."""
    blobs, chance = bucket_of(s3).blobs("alice", "s-1"), random.Random(4)

    async def many() -> None:
        for _ in range(60):
            with anyio.move_on_after(chance.uniform(0, 0.02)):
                await blobs.put(tuple(chance.randbytes(100_000) for _ in range(5)))
        there = [BlobId(key.rpartition("/")[2]) for key in objects(s3)]
        assert 0 < len(there) < 300
        for blob in there:
            assert id_of(await blobs.get(blob)) == blob

    anyio.run(many)


def test_tenants_share_nothing(s3: FakeS3) -> None:
    """SCL-6: the same bytes of two tenants are two objects; an id of one finds nothing at another, nor at a session."""
    bucket = bucket_of(s3)
    (blob,) = anyio.run(bucket.blobs("alice", "s-1").put, (TEXT,))
    count = len(s3.received)
    for tenant, session in (("bob", "s-1"), ("alice", "s-2"), ("alice", ""), ("alic", "s-1"), ("alice/s-1", "")):
        with pytest.raises(JournalError, match="there is no such blob"):
            anyio.run(bucket.blobs(tenant, session).get, blob)
    anyio.run(bucket.blobs("bob", "s-1").put, (TEXT,))
    requests = [request.method for request in s3.received[count:] if "/bob/" in request.path]
    assert requests == ["GET", "PUT"]  # a put says nothing of what others have: it is as a first one is
    assert len(objects(s3)) == 2


def test_a_deleted_tenant_is_found_nowhere(s3: FakeS3) -> None:
    """SCL-6: by pages, and no byte of it stands in the store; those whose names begin alike keep all."""
    bucket, canary, page = bucket_of(s3), b"canary-7f3a", 7
    s3.page = page
    others = {tenant: tuple(f"{tenant} {n}".encode() for n in range(9)) for tenant in ("ali", "alice2", "alice/x", "")}
    for tenant, contents in others.items():
        anyio.run(bucket.blobs(tenant, "s-1").put, contents)
    for session in ("s-1", "s-2", ""):
        anyio.run(bucket.blobs("alice", session).put, tuple(canary + bytes([n]) for n in range(40)))
    assert canary in s3.bytes_held()
    assert len(anyio.run(bucket.sizes, "alice")) == 120
    assert len(anyio.run(bucket.sizes, "alice", "s-2")) == 40

    assert anyio.run(bucket.delete, "alice", "s-2") == 40
    assert len(anyio.run(bucket.sizes, "alice")) == 80
    assert anyio.run(bucket.delete, "alice") == 80
    assert anyio.run(bucket.sizes, "alice") == {}
    assert canary not in s3.bytes_held() and b"/alice/" not in s3.bytes_held()
    assert anyio.run(bucket.delete, "alice") == 0
    for tenant, contents in others.items():
        for content in contents:
            assert anyio.run(bucket.blobs(tenant, "s-1").get, id_of(content)) == content


def test_a_deletion_that_is_interrupted_ends_or_says_so(s3: FakeS3) -> None:
    """SCL-6: cut answers and pages are made good; what the store doesn't delete is never said to be gone."""
    bucket = bucket_of(s3)
    s3.page = 5
    contents = tuple(f"{n}".encode() for n in range(20))
    for faults in (
        ["cut-after"],
        [*[None] * 6, "cut-after"],
        [None, None, "torn"],
        [None] * 5 + ["cut-before"],
        [None] * 6 + ["undeleted"],
    ):
        anyio.run(bucket.blobs("alice", "s-1").put, contents)
        s3.faults.extend(faults)
        assert anyio.run(bucket.delete, "alice") == 20
        assert objects(s3) == {} and not s3.faults
    anyio.run(bucket.blobs("alice", "s-1").put, contents)
    s3.faults.extend([None, *([*[None] * 5, "undeleted"] * 3)])
    with pytest.raises(JournalError, match=r"the blobs can't be deleted: the store refuses the key \(AccessDenied\)"):
        anyio.run(bucket.delete, "alice")
    s3.faults.clear()
    assert anyio.run(bucket.delete, "alice") == 20


def test_a_bucket_that_keeps_versions_is_told(s3: FakeS3) -> None:
    """SCL-6: what is deleted there is still there, so nobody is told that it is gone; neither the second time."""
    s3.keeps_versions = True
    bucket = bucket_of(s3)
    anyio.run(bucket.blobs("alice", "s-1").put, (b"secret",))
    for _ in range(2):
        with pytest.raises(JournalError, match=r"keeps former versions.*lifecycle rule"):
            anyio.run(bucket.delete, "alice")
        assert b"secret" in s3.bytes_held()


def test_a_session_gets_the_blobs_of_another(s3: FakeS3) -> None:
    """SCL-1: the bytes stay in the store; the copy outlives what it was made of."""
    bucket, contents = bucket_of(s3), tuple(f"{n}".encode() * 9 for n in range(30))
    s3.page = 7
    anyio.run(bucket.blobs("alice", "s 1").put, contents)
    s3.faults.extend([None] * 9 + ["slow-down"])
    anyio.run(bucket.copy, "alice", "s 1", "s 2")
    anyio.run(bucket.delete, "alice", "s 1")
    for content in contents:
        assert anyio.run(bucket.blobs("alice", "s 2").get, id_of(content)) == content
    anyio.run(bucket.copy, "alice", "s 1", "s 2")  # of one that has none
    assert len(objects(s3)) == 30


def test_blobs_of_no_session_are_found_by_the_beginning_of_an_id(s3: FakeS3) -> None:
    """SCL-1: by pages; an id begins in hex digits; where nothing can be listed, nothing is named."""
    blobs = bucket_of(s3).blobs("alice")
    s3.page = 3
    ids = anyio.run(blobs.put, tuple(f"{n}".encode() for n in range(60)))
    anyio.run(bucket_of(s3).blobs("alice", "s-1").put, (b"of a session",))
    for beginning in ("0", "f", "5", ids[0][:2], ids[1][:7], ids[2], "0" * 64, "e" * 65, "", "xyz", ".", "/", "A"):
        expected = sorted(blob for blob in ids if beginning and blob.startswith(beginning))
        assert sorted(anyio.run(blobs.named, beginning)) == expected, beginning
    s3.faults.extend(["access-denied"] * 3)
    assert list(anyio.run(blobs.named, "0")) == []


def test_blobs_of_no_session_are_forgotten_by_their_age(s3: FakeS3) -> None:
    """SCL-1, SCL-6: those that were first put before; what can't be deleted stays until the next time."""
    blobs, now = bucket_of(s3).blobs("alice"), time.time()
    old = anyio.run(blobs.put, (b"old 1", b"old 2"))
    for key, stored in list(objects(s3).items()):
        objects(s3)[key] = replace(stored, modified=now - 7_200)
    anyio.run(blobs.put, (b"new", b"old 1"))  # the second was put before
    anyio.run(bucket_of(s3).blobs("alice", "s-1").put, (b"of a session",))
    s3.faults.extend(["access-denied"])
    assert anyio.run(blobs.forget, now - 3_600) == 0 and len(objects(s3)) == 4
    assert anyio.run(blobs.forget, now - 3_600) == 2 and len(objects(s3)) == 2
    assert anyio.run(blobs.forget, now - 3_600) == 0
    with pytest.raises(JournalError, match="no such blob"):
        anyio.run(blobs.get, old[0])
    assert anyio.run(blobs.get, id_of(b"new")) == b"new"


def test_a_probe_writes_reads_and_leaves_nothing(s3: FakeS3) -> None:
    """SCL-1: and says how long that took."""
    assert 0 < anyio.run(bucket_of(s3).probe) < 30
    assert [request.method for request in s3.received] == ["PUT", "GET", "POST"]
    assert objects(s3) == {}


# --- addresses and the environment ----------------------------------------------------------------------------------

KEYS = {"AWS_ACCESS_KEY_ID": "AKIAFAKE", "AWS_SECRET_ACCESS_KEY": "fake-secret"}


@pytest.mark.parametrize(
    ("address", "environ", "said"),
    [
        ("blobs", KEYS, "write s3://BUCKET"),
        ("s3://", KEYS, "write s3://BUCKET"),
        ("s3://Blobs", KEYS, "write s3://BUCKET"),
        ("s3://key:secret@blobs", KEYS, "write s3://BUCKET"),
        ("https://blobs/x", KEYS, "write s3://BUCKET"),
        ("s3://blobs/../x", KEYS, "a prefix is made of names"),
        ("s3://blobs/a//b", KEYS, "a prefix is made of names"),
        ("s3://blobs/x?y=1", KEYS, "a prefix is made of names"),
        ("s3://blobs", {}, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        ("s3://blobs", {"AWS_ACCESS_KEY_ID": "x"}, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        ("s3://blobs", {**KEYS, "AWS_ENDPOINT_URL_S3": "http://10.0.0.1:9000"}, "write https, or set AWS_ALLOW_HTTP"),
        ("s3://blobs", {**KEYS, "AWS_ENDPOINT_URL_S3": "http://127.0.0.1.evil.test"}, "write https"),
        ("s3://blobs", {**KEYS, "AWS_ENDPOINT_URL": "localhost:9000"}, "not the address of a server"),
        ("s3://blobs", {**KEYS, "AWS_ENDPOINT_URL": "https://u:p@host"}, "not the address of a server"),
        ("s3://blobs", {**KEYS, "AWS_ENDPOINT_URL": "https://host:port"}, "not the address of a server"),
    ],
)
def test_an_address_that_cant_be_used_is_one_line(address: str, environ: dict[str, str], said: str) -> None:
    """SCL-1: before anything is asked."""
    with pytest.raises(BadSetting) as raised:
        Bucket.at(address, environ)
    assert said in str(raised.value) and "\n" not in str(raised.value)
    assert "fake-secret" not in str(raised.value) and "u:p" not in str(raised.value)


@pytest.mark.parametrize("endpoint", ["http://localhost:9000", "http://[::1]:9000", "https://minio.lan", ""])
def test_an_endpoint_is_encrypted_or_near(endpoint: str) -> None:
    """SCL-1: http is for this machine, or for who says so."""
    Bucket.at("s3://blobs", {**KEYS, "AWS_ENDPOINT_URL_S3": endpoint})
    Bucket.at("s3://blobs", {**KEYS, "AWS_ENDPOINT_URL_S3": "http://minio.lan", "AWS_ALLOW_HTTP": "true"})


# --- the server of these tests --------------------------------------------------------------------------------------


def ask(s3: FakeS3, method: str, path: str, body: bytes = b"", *, at: datetime | None = None, **headers: str) -> int:
    """A request signed here, by the documentation of Signature Version 4; the status of its answer."""
    access, secret = next(iter(s3.keys.items()))
    moment = (at or datetime.now(UTC)).strftime("%Y%m%dT%H%M%SZ")
    path, _, query = path.partition("?")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {"host": s3.url.removeprefix("http://"), "x-amz-date": moment,
            "x-amz-content-sha256": hashlib.sha256(body).hexdigest(), **named}  # fmt: skip
    signed = sorted(sent)
    asked = query if "=" in query or not query else f"{query}="
    canonical = [method, path, asked, *(f"{name}:{sent[name]}" for name in signed), "", ";".join(signed)]
    text = "\n".join([*canonical, sent["x-amz-content-sha256"]])
    scope = f"{moment[:8]}/{s3.region}/s3/aws4_request"
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    to_sign = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(text.encode()).hexdigest()}"
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    sent["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={access}/{scope}, SignedHeaders={';'.join(signed)}, Signature={signature}"
    )
    url = f"{s3.url}{path}" + (f"?{query}" if query else "")
    request = urllib.request.Request(url, data=body if method in ("PUT", "POST") else None, headers=sent, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as e:
        e.close()
        return e.code


def test_the_server_keeps_the_rules_of_s3(s3: FakeS3) -> None:
    """SCL-1: what the real one refuses is refused here, so a client that passes these tests knows the rules."""
    many = b"<Delete>" + b"<Object><Key>k</Key></Object>" * 1001 + b"</Delete>"
    refused = {
        "an old signature": (403, ask(s3, "PUT", "/blobs/k", b"x", at=datetime.now(UTC) - timedelta(minutes=16))),
        "a body of another hash": (400, ask(s3, "PUT", "/blobs/k", b"x", x_amz_content_sha256="0" * 64)),
        "a wrong checksum": (400, ask(s3, "PUT", "/blobs/k", b"x", x_amz_checksum_crc32="AAAAAA==")),
        "a deletion of many without one": (400, ask(s3, "POST", "/blobs?delete", b"<Delete/>")),
        "a deletion of none": (400, ask(s3, "POST", "/blobs?delete", b"<Delete/>", content_md5=md5(b"<Delete/>"))),
        "a deletion of too many": (400, ask(s3, "POST", "/blobs?delete", many, content_md5=md5(many))),
        "an unknown bucket": (404, ask(s3, "GET", "/other/k")),
        "an unknown key": (404, ask(s3, "GET", "/blobs/k")),
        "a long key": (400, ask(s3, "PUT", f"/blobs/{'k' * 1025}", b"x")),
        "what it doesn't know": (501, ask(s3, "GET", "/blobs/k?tagging")),
        "a wrong token": (400, ask(s3, "GET", "/blobs?continuation-token=%3F&list-type=2")),
    }
    assert {what: got for what, (_, got) in refused.items()} == {what: status for what, (status, _) in refused.items()}
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{s3.url}/blobs/k")
    assert objects(s3) == {}
    assert ask(s3, "PUT", "/blobs/k", b"x", if_none_match="*") == 200
    assert ask(s3, "PUT", "/blobs/k", b"y", if_none_match="*") == 412
    assert ask(s3, "GET", "/blobs/k") == 200 and objects(s3)["k"].data == b"x"
    assert ask(s3, "GET", "/blobs/k", range="bytes=1-") == 416
    assert ask(s3, "DELETE", "/blobs/k") == 204 and objects(s3) == {}


def md5(body: bytes) -> str:
    return b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()


# --- processes --------------------------------------------------------------------------------------------------------

SHORT = """
import anyio
from obstore.store import MemoryStore
from perdure.adapters.object_store import Bucket

async def main():
    blobs = Bucket("memory", "", MemoryStore()).blobs("alice", "s")
    async with anyio.create_task_group() as tasks:
        for n in range(8):
            tasks.start_soon(blobs.put, (b"%d" % n,))

anyio.run(main)
"""


@pytest.mark.nightly
def test_a_process_that_ends_behind_its_last_answer_ends_well() -> None:
    """CLI-5, SCL-1: the client's threads had one command in ten aborted."""
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SHORT]
    ended = [subprocess.run(command, env=env, capture_output=True, text=True, check=False) for _ in range(16)]
    assert [(one.returncode, one.stderr) for one in ended if one.returncode] == []
