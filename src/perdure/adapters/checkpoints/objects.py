"""The bytes of files, as git objects in a store of our own (CKP-2): no repository, no index, no refs.

Many new objects at once are one pack, a few are loose ones; all of it is on stable storage before `put` returns. An
object that is read is checked against its name.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dulwich.object_store import DiskObjectStore
from dulwich.objects import Blob, ObjectID, ShaFile
from dulwich.pack import write_pack

from perdure.adapters.checkpoints.log import size_of
from perdure.adapters.journal.disk import DISK, discard, make_private
from perdure.errors import JournalError

_LOOSE = 16  # up to so many, a file each; more are a pack
_BATCH_BYTES = 32_000_000  # of one pack, which is made in memory


def name_of(data: bytes) -> str:
    """The name that git gives to these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


class GitObjects:
    """A folder of git objects, made on first use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._opened: DiskObjectStore | None = None
        self._names: set[str] = set()

    def put(self, contents: Iterable[bytes]) -> None:
        """Keep these, durably."""
        batch: list[Blob] = []
        size = 0
        seen: set[str] = set()
        for data in contents:
            name = name_of(data)
            if name in seen or self.has(name):
                continue
            seen.add(name)
            batch.append(Blob.from_string(data))
            size += len(data)
            if size > _BATCH_BYTES:
                self._write(batch)
                batch, size = [], 0
        self._write(batch)

    def has(self, name: str) -> bool:
        """Whether it is there, as far as nobody found it damaged."""
        self._store()
        return name in self._names

    def names(self) -> tuple[str, ...]:
        """All that are there, damaged ones as well."""
        self._store()
        return tuple(sorted(self._names))

    def get(self, name: str) -> bytes:
        """The bytes of this name; `JournalError` when they are missing or damaged."""
        try:
            data = self._store()[ObjectID(name.encode())].as_raw_string()
        except Exception as e:  # the boundary to the library: whatever is wrong with a store is one error here
            self._lost(name)
            raise JournalError(f"{self.folder}: the copy {name[:12]} is missing or damaged ({type(e).__name__})") from e
        if name_of(data) != name:
            self._lost(name)
            raise JournalError(f"{self.folder}: the copy {name[:12]} is damaged")
        return data

    def _sound(self, names: Iterable[str]) -> Iterator[bytes]:
        for name in names:
            try:
                yield self.get(name)
            except JournalError:
                continue

    def _lost(self, name: str) -> None:
        """A damaged one is taken away, so that the same bytes can be put again."""
        self._names.discard(name)
        discard(DISK, self.folder / name[:2] / name[2:])

    def bytes(self) -> int:
        """What the store takes on the disk."""
        return size_of(self.folder)

    def keep_only(self, names: set[str]) -> int:
        """Let go of all others; how many that were."""
        self._store()
        there = set(self._names)
        gone = len(there - names)
        if not gone:
            return 0
        fresh = GitObjects(self.folder.with_name(f"{self.folder.name}.new"))
        shutil.rmtree(fresh.folder, ignore_errors=True)
        fresh.put(self._sound(sorted(there & names)))
        fresh._store()
        fresh.close()
        self.close()
        old = self.folder.with_name(f"{self.folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)  # of one that was killed before it could
        os.rename(self.folder, old)
        os.rename(fresh.folder, self.folder)
        DISK.sync_directory(self.folder.parent)
        shutil.rmtree(old, ignore_errors=True)
        return gone

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def _write(self, blobs: Sequence[Blob]) -> None:
        store = self._store()
        if not blobs:
            return
        if len(blobs) > _LOOSE:
            name = f"pack-{secrets.token_hex(20)}"
            pairs: list[tuple[ShaFile, bytes | None]] = [(blob, None) for blob in blobs]
            path = os.fspath(self.folder / "pack" / name)
            write_pack(path, pairs, store.object_format, deltify=False, compression_level=1)
            DISK.sync_directory(self.folder / "pack")
            self._names |= {blob.id.decode() for blob in blobs}
            return
        for blob in blobs:
            store.add_object(blob)
        for part in {blob.id.decode()[:2] for blob in blobs}:
            DISK.sync_directory(self.folder / part)
        DISK.sync_directory(self.folder)
        self._names |= {blob.id.decode() for blob in blobs}

    def _store(self) -> DiskObjectStore:
        if self._opened is None:
            old = self.folder.with_name(f"{self.folder.name}.old")
            if not self.folder.exists() and old.exists():  # cut short between the two renames of `keep_only`
                os.rename(old, self.folder)
            make_private(self.folder)
            (self.folder / "pack").mkdir(mode=0o700, exist_ok=True)
            (self.folder / "info").mkdir(mode=0o700, exist_ok=True)
            self._opened = DiskObjectStore(
                self.folder, loose_compression_level=1, pack_compression_level=1, fsync_object_files=True
            )
            self._names = {name.decode() for name in self._opened}
        return self._opened
