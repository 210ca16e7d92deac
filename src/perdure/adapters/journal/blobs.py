"""Content-addressed blobs in a directory: what left the view can be had back byte for byte (RCL-2).

A file's name is the SHA-256 of its contents; its first byte says how they stand in it. A blob is published by a rename
after its bytes are on stable storage, so a name that is there has all its bytes, and one that is there isn't rewritten,
unless its bytes are no longer those that were stored: such a file is set aside as `<name>.damaged-N` (ENG-9).
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio.to_thread

from perdure.adapters.journal.append_file import disk_refusal
from perdure.adapters.journal.disk import DISK, Disk, discard, make_private, write_new
from perdure.adapters.journal.reading import JournalScan
from perdure.adapters.machine.system import NO_LINK, NO_LINKS, read_file
from perdure.errors import JournalError, MalformedBlock
from perdure.transcript.blocks import Block, ToolResult
from perdure.transcript.messages import BlobId, Message
from perdure.transcript.records import Edit, Noted, Record

_PACKED, _PLAIN = b"z", b"="
_LEVEL = 6
_MOST_PACKED = 256 * 1024 * 1024  # of a content that is packed: no few bytes of a store become more than that in memory
_READ_BYTES = 1024 * 1024
HASH_NAME = re.compile(r"[0-9a-f]{64}")  # of a file that is called by the SHA-256 of its contents


@dataclass(frozen=True, slots=True)
class FileBlobs:
    """`ports.Blobs` in a directory of its own, which is made on the first `put`."""

    directory: Path
    disk: Disk = DISK

    async def put(self, contents: tuple[bytes, ...]) -> tuple[BlobId, ...]:
        """Store each of them, durably: N files, one sync of the directory. All are there on return."""
        return await anyio.to_thread.run_sync(partial(self._put, contents))

    async def get(self, blob: BlobId) -> bytes:
        """The bytes that were put; `JournalError` when they are missing or are no longer the same."""
        return await anyio.to_thread.run_sync(partial(self._get, blob))

    async def ids(self) -> tuple[BlobId, ...]:
        """All blobs that are there; `JournalError` where the directory can't be read."""
        return await anyio.to_thread.run_sync(self._ids)

    async def named(self, beginning: str) -> tuple[BlobId, ...]:
        """The blobs whose ids begin so; none where the directory can't be read."""
        return await anyio.to_thread.run_sync(self._named, beginning)

    async def forget(self, before: float) -> int:
        """Delete those that were first put before a time; how many that were."""
        return await anyio.to_thread.run_sync(self._forget, before)

    def _ids(self) -> tuple[BlobId, ...]:
        try:
            return tuple(sorted(BlobId(name) for name in os.listdir(self.directory) if HASH_NAME.fullmatch(name)))
        except FileNotFoundError:
            return ()
        except OSError as e:
            raise JournalError(f"{self.directory}: {e.strerror or e}: the blobs can't be read") from e

    def _named(self, beginning: str) -> tuple[BlobId, ...]:
        try:
            return tuple(name for name in self._ids() if name.startswith(beginning))
        except JournalError:
            return ()

    def _forget(self, before: float) -> int:
        gone = 0
        for path in self.directory.iterdir() if self.directory.is_dir() else ():
            try:
                if path.stat().st_mtime < before:
                    self.disk.unlink(path)
                    gone += 1
            except OSError:
                continue  # the next time tries again
        return gone

    def _put(self, contents: tuple[bytes, ...]) -> tuple[BlobId, ...]:
        wanted = {BlobId(hashlib.sha256(content).hexdigest()): content for content in contents}
        drafts: dict[Path, Path] = {}
        try:
            make_private(self.directory)
            try:
                for blob, content in wanted.items():
                    path = self._path(blob)
                    if path.exists() and not self._is_whole(blob):
                        self._set_aside(path)
                    if not path.exists():
                        draft = path.with_name(f".new-{os.getpid()}-{secrets.token_hex(8)}")
                        write_new(self.disk, draft, packed(content))
                        drafts[path] = draft
                while drafts:
                    path, draft = next(iter(drafts.items()))
                    self.disk.rename(draft, path)
                    del drafts[path]
            finally:
                for draft in drafts.values():
                    discard(self.disk, draft)
            if wanted:  # also when all were there: whoever made them may not have come this far
                self.disk.sync_directory(self.directory)
        except OSError as e:
            raise disk_refusal(self.directory, e) from e
        return tuple(BlobId(hashlib.sha256(content).hexdigest()) for content in contents)

    def damaged(self) -> tuple[BlobId, ...]:
        """The blobs that are there and whose bytes aren't those that were stored. Reads all of them; blocks."""
        return tuple(blob for blob in self._ids() if not self._is_whole(blob))

    def has(self, blob: BlobId) -> bool:
        """Whether there is a file of this name. Blocks."""
        return self._path(blob).exists()

    def set_aside(self, blob: BlobId) -> Path:
        """Put a damaged blob aside, so that its name is free; where its bytes are now. Raises `OSError`. Blocks."""
        beside = self._set_aside(self._path(blob))
        self.disk.sync_directory(self.directory)
        return beside

    def share_with(self, directory: Path) -> None:
        """Give another directory all blobs: as links to these files, since their bytes are never changed in place.

        Where there are no links, as copies. Raises `OSError`. Blocks.
        """
        names = [entry.name for entry in os.scandir(self.directory)] if self.directory.is_dir() else []
        if blobs := [name for name in names if HASH_NAME.fullmatch(name)]:
            make_private(directory)
            for name in blobs:
                try:
                    os.link(self.directory / name, directory / name)
                except OSError as e:
                    if e.errno not in NO_LINKS:
                        raise
                    write_new(self.disk, directory / name, read_file(self.directory / name))
            self.disk.sync_directory(directory)

    def _is_whole(self, blob: BlobId) -> bool:
        try:
            self._get(blob)
        except JournalError:
            return False
        return True

    def _set_aside(self, path: Path) -> Path:
        number = 1
        while (beside := path.with_name(f"{path.name}.damaged-{number}")).exists():
            number += 1
        self.disk.rename(path, beside)
        return beside

    def _get(self, blob: BlobId) -> bytes:
        path = self._path(blob)
        try:
            fd = self.disk.open(path, os.O_RDONLY | NO_LINK)
            try:
                stored = self._read(fd)
            finally:
                self.disk.close(fd)
        except FileNotFoundError:
            raise JournalError(f"{path}: there is no such blob") from None
        except OSError as e:
            raise JournalError(f"{path}: {e.strerror or e}: the blob can't be read") from e
        content = unpacked(stored)
        if content is None or hashlib.sha256(content).hexdigest() != blob:
            raise JournalError(f"{path}: the blob is damaged: its bytes are not those that were stored")
        return content

    def _read(self, fd: int) -> bytes:
        parts: list[bytes] = []
        at = 0
        while part := self.disk.read_at(fd, _READ_BYTES, at):
            parts.append(part)
            at += len(part)
        return b"".join(parts)

    def _path(self, blob: BlobId) -> Path:
        if not HASH_NAME.fullmatch(blob):
            raise JournalError(f"not the id of a blob (64 hex digits): {blob[:80]!r}")
        return self.directory / blob


def packed(content: bytes) -> bytes:
    """How a content stands in its file."""
    packed = zlib.compress(content, _LEVEL) if len(content) <= _MOST_PACKED else content
    return _PACKED + packed if len(packed) < len(content) else _PLAIN + content


def unpacked(stored: bytes) -> bytes | None:
    """The content of a file; None for one that is damaged."""
    marker, body = stored[:1], stored[1:]
    if marker == _PLAIN:
        return body
    if marker != _PACKED:
        return None
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(body, _MOST_PACKED + 1)
    except zlib.error:
        return None
    return content if unpacking.eof and len(content) <= _MOST_PACKED else None


_IMPORTED = "blob"  # the member of a note that names a blob


@dataclass(frozen=True, slots=True)
class BlobProblem:
    """A blob that is damaged, or gone though a record names it. `used_by` says where; empty when nothing names it."""

    blob: BlobId
    is_gone: bool
    used_by: str

    def __str__(self) -> str:
        what = "is gone" if self.is_gone else "is damaged: its bytes are not those that were stored"
        return f"blob {self.blob[:12]} {what} ({self.used_by or 'no record names it'})"


def blob_problems(blobs: FileBlobs, scan: JournalScan) -> tuple[BlobProblem, ...]:
    """Every blob of a session that is damaged or gone. `JournalError` when its folder can't be read. Blocks."""
    named = named_blobs(scan)
    damaged = blobs.damaged()
    gone = [blob for blob in named if not blobs.has(blob)]
    return (
        *(BlobProblem(blob, False, named.get(blob, "")) for blob in damaged),
        *(BlobProblem(blob, True, named[blob]) for blob in gone),
    )


def originals(scan: JournalScan, troubles: Sequence[BlobProblem]) -> Mapping[BlobId, bytes]:
    """The bytes that those blobs had, as far as they are known elsewhere.

    A result that left the view was said in a message before; an imported log may still stand where it came from.
    """
    wanted = {trouble.blob for trouble in troubles}
    found: dict[BlobId, bytes] = {}
    for content in _candidates([placed.record for placed in scan.placed], wanted):
        blob = BlobId(hashlib.sha256(content).hexdigest())
        if blob in wanted:
            found.setdefault(blob, content)
    return found


def named_blobs(scan: JournalScan) -> dict[BlobId, str]:
    """Each blob that a record names, and which record of which line."""
    named: dict[BlobId, str] = {}
    for line in scan.lines:
        for record in line.records:
            for blob, what in blobs_named_in(record):
                named.setdefault(blob, f"{what} in line {scan.first_line + line.index}")
    return named


def blobs_named_in(record: Record) -> Iterator[tuple[BlobId, str]]:
    """The blobs that a record names, each with what names it."""
    kind = record.__struct_config__.tag
    if isinstance(record, Edit):
        for stored in record.stored:
            yield stored.blob, f"result {stored.tool_use_id}, {kind}"
    elif isinstance(record, Noted):
        blob = record.data.get(_IMPORTED)
        if isinstance(blob, str) and HASH_NAME.fullmatch(blob):
            yield BlobId(blob), str(kind)


def _candidates(records: Sequence[Record], wanted: set[BlobId]) -> Iterator[bytes]:
    results = {
        stored.tool_use_id
        for record in records
        if isinstance(record, Edit)
        for stored in record.stored
        if stored.blob in wanted
    }
    for record in records:
        if isinstance(record, Message):
            yield from (block.raw for block in record.blocks if _result_of(block) in results)
        elif isinstance(record, Noted) and str(record.data.get(_IMPORTED)) in wanted:
            file, size = record.data.get("file"), record.data.get("bytes")
            if isinstance(file, str) and (path := Path(file)).is_absolute():
                try:
                    if path.is_file() and path.stat().st_size == size:
                        yield path.read_bytes()
                except OSError:
                    continue


def _result_of(block: Block) -> str | None:
    """Of which call a block is the result."""
    try:
        return block.value.tool_use_id if isinstance(block.value, ToolResult) else None
    except MalformedBlock:
        return None
