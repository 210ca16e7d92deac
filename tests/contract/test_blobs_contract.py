"""What every `ports.Blobs` does, and what the one in files does besides (RCL-2, ENG-4, SCL-1)."""

from __future__ import annotations

import hashlib
import random
import stat
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from perdure.adapters.journal import FileBlobs
from perdure.adapters.journal.blobs import packed, unpacked
from perdure.adapters.journal.in_memory import MemoryBlobs
from perdure.errors import JournalError
from perdure.ports.session import Blobs
from perdure.testing.s3 import FakeS3
from perdure.transcript.messages import BlobId

pytestmark = pytest.mark.contract

CONTENTS = (b"", b"x", b"same line\n" * 10_000, random.Random(1).randbytes(50_000), "grüße\u2028".encode())


@pytest.fixture(params=["files", "memory", "object store"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Blobs]:
    match request.param:
        case "files":
            yield FileBlobs(tmp_path / "blobs")
        case "memory":
            yield MemoryBlobs()
        case _:
            pytest.importorskip("obstore", reason="the package of the extra `s3` isn't installed")
            from perdure.adapters.object_store import Bucket

            with FakeS3() as s3:
                yield Bucket.at("s3://blobs/some/prefix", s3.environment).blobs("a tenant", "a session")


def put(blobs: Blobs, *contents: bytes) -> tuple[BlobId, ...]:
    return anyio.run(blobs.put, contents)


def test_what_was_put_comes_back(blobs: Blobs) -> None:
    """RCL-2: byte for byte, in the order of the contents, under the SHA-256 of each."""
    ids = put(blobs, *CONTENTS)
    assert ids == tuple(hashlib.sha256(content).hexdigest() for content in CONTENTS)
    assert tuple(anyio.run(blobs.get, blob) for blob in ids) == CONTENTS


def test_the_same_bytes_are_one_blob(blobs: Blobs) -> None:
    """RCL-2: within one call and in later ones."""
    first = put(blobs, b"a", b"b", b"a")
    assert first[0] == first[2] != first[1]
    assert put(blobs, b"a") == first[:1]
    assert put(blobs) == ()


@pytest.mark.parametrize("blob", ["0" * 64, "", "../../etc/passwd", "A" * 64, "0" * 63 + "\n", "0" * 63 + "/"])
def test_what_is_not_there_is_an_error(blobs: Blobs, blob: str) -> None:
    """ENG-4: an id is 64 hex digits; nothing else gets near a path."""
    put(blobs, b"something")
    with pytest.raises(JournalError):
        anyio.run(blobs.get, BlobId(blob))


def test_files_are_private_small_and_written_once(tmp_path: Path) -> None:
    """ENG-4: 0600 in 0700; packed when that helps, one byte more when it doesn't; a blob that is there stays."""
    blobs = FileBlobs(tmp_path / "blobs")
    text, noise = put(blobs, CONTENTS[2], CONTENTS[3])
    assert stat.S_IMODE((tmp_path / "blobs").stat().st_mode) == 0o700
    path = tmp_path / "blobs" / text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_size < len(CONTENTS[2]) / 50
    assert (tmp_path / "blobs" / noise).stat().st_size == len(CONTENTS[3]) + 1
    before = path.stat()
    put(blobs, CONTENTS[2])
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert sorted(p.name for p in (tmp_path / "blobs").iterdir()) == sorted([text, noise])


def test_few_bytes_never_become_more_than_is_allowed(blobs: Blobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """RCL-2: who can write to a store can't fill the memory of who reads it; a larger content isn't packed."""
    bomb = packed(bytes(5_000_000))
    assert len(bomb) < 10_000
    monkeypatch.setattr("perdure.adapters.journal.blobs._MOST_PACKED", 1_000_000)
    tracemalloc.start()
    assert unpacked(bomb) is None
    assert tracemalloc.get_traced_memory()[1] < 3_000_000
    tracemalloc.stop()
    for size in (1_000_000, 1_000_001):
        (blob,) = put(blobs, bytes(size))
        assert anyio.run(blobs.get, blob) == bytes(size)


def test_a_damaged_blob_is_an_error(tmp_path: Path) -> None:
    """RCL-2: a flipped bit anywhere in the file, a cut, or an unknown marker is never handed out."""
    blobs = FileBlobs(tmp_path)
    for content in (b"same line\n" * 20, b"\x00\x9f\x80short"):
        (blob,) = put(blobs, content)
        path = tmp_path / blob
        good = path.read_bytes()
        cuts = [good[:n] for n in range(len(good))]
        flips = [good[:i] + bytes([good[i] ^ 1 << bit]) + good[i + 1 :] for i in range(len(good)) for bit in range(8)]
        for damaged in (*cuts, *flips, good[:1]):
            path.write_bytes(damaged)
            try:
                assert anyio.run(blobs.get, blob) == content  # a bit that zlib ignores does no harm
            except JournalError:
                pass
        path.write_bytes(good)


def test_a_link_in_place_of_a_blob_is_not_followed(tmp_path: Path) -> None:
    """ENG-4: a blob is a file of ours."""
    secret = tmp_path / "secret"
    secret.write_bytes(b"=secret")
    blob = hashlib.sha256(b"secret").hexdigest()
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / blob).symlink_to(secret)
    with pytest.raises(JournalError):
        anyio.run(FileBlobs(tmp_path / "blobs").get, BlobId(blob))
