"""`ports.Documents` on files: a file for each, or where a name is all there is to keep, a line (GW-6, GW-9)."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio.to_thread

from perdure.adapters.journal.disk import DISK, Disk, make_private, write_all, write_new
from perdure.adapters.machine.system import lock, open_file, open_folder_lock
from perdure.errors import JournalError
from perdure.ports.home import KeptDocument

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileDocuments:
    """`<name>.json` in a folder, each replaced as a whole. Who writes holds the folder's lock meanwhile."""

    folder: Path
    pattern: str = "*.json"  # of those that are forgotten: a folder may hold others' files as well
    disk: Disk = DISK

    async def get(self, name: str) -> KeptDocument | None:
        """The document of this name; None where there is none."""
        return await self._aside(name, self._read)

    async def among(self, names: Collection[str]) -> set[str]:
        """Which of these names there are documents of."""
        paths = {name: self._path(name) for name in names}
        try:
            return await anyio.to_thread.run_sync(lambda: {name for name, path in paths.items() if path.exists()})
        except OSError as e:
            raise JournalError(f"{self.folder}: {e.strerror or e}: documents can't be looked for") from e

    async def put(self, name: str, data: bytes, *, instead_of: str | None) -> str | None:
        """Keep it, durably, in the place of that version: its new one, or None where another one is there by now."""
        return await self._aside(name, partial(self._write, data=data, instead_of=instead_of))

    async def delete(self, name: str) -> None:
        """Remove it, if it is there."""
        await self._aside(name, lambda path: path.unlink(missing_ok=True))

    async def forget(self, before: float) -> int:
        """Delete those that nobody changed since a time; how many that were."""
        return await anyio.to_thread.run_sync(self._forget, before)

    async def _aside(self, name: str, work: Callable[[Path], T]) -> T:
        path = self._path(name)
        try:
            return await anyio.to_thread.run_sync(work, path)
        except OSError as e:
            raise JournalError(f"{path}: {e.strerror or e}: the document can't be read or kept") from e

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise JournalError(f"not the name of a document (letters, digits, - and _, up to 128): {name[:150]!r}")
        return self.folder / f"{name}.json"

    # --- in a thread

    def _read(self, path: Path) -> KeptDocument | None:
        try:
            with open(open_file(path, os.O_RDONLY), "rb") as file:
                data = file.read()
                return KeptDocument(data, hashlib.sha256(data).hexdigest(), os.fstat(file.fileno()).st_mtime)
        except FileNotFoundError:
            return None

    def _write(self, path: Path, *, data: bytes, instead_of: str | None) -> str | None:
        make_private(self.folder)
        with _locked(self.folder):
            there = self._read(path)
            if instead_of != (there and there.version):
                return None
            draft = path.with_name(f"{path.name}.new-{secrets.token_hex(8)}")
            write_new(self.disk, draft, data)
            self.disk.rename(draft, path)
        return hashlib.sha256(data).hexdigest()

    def _forget(self, before: float) -> int:
        gone = 0
        for path in self.folder.glob(self.pattern):
            try:
                if path.stat().st_mtime < before:
                    path.unlink()
                    gone += 1
            except OSError:
                continue  # the next time tries again
        return gone


class FileNames:
    """Documents that say nothing but their names, each a line of one file; all are as old as the last of them.

    What was read of the file is kept for as long as the file is the same.
    """

    def __init__(self, path: Path, disk: Disk = DISK) -> None:
        self.path, self.disk = path, disk
        self._known: tuple[tuple[int, ...], dict[str, float]] = (), {}  # which file that was, and what it says

    async def get(self, name: str) -> KeptDocument | None:
        """The document of this name; None where there is none."""
        modified = (await self._aside(self._names)).get(name)
        return None if modified is None else KeptDocument(b"", _KNOWN, modified)

    async def among(self, names: Collection[str]) -> set[str]:
        """Which of these names are known."""
        return (await self._aside(self._names)).keys() & names

    async def put(self, name: str, data: bytes, *, instead_of: str | None) -> str | None:
        """Remember the name, durably; None where it isn't as new, or as known, as was said."""
        if data or not name or not name.isprintable():
            raise JournalError(f"{self.path}: only names are kept here, each in a line: {name[:150]!r}")
        return await self._aside(partial(self._add, name, instead_of))

    async def delete(self, name: str) -> None:
        """Take a name out, if it is there."""
        await self._aside(partial(self._take_out, name))

    async def forget(self, before: float) -> int:
        """Delete all names, if none was remembered since a time; how many that were."""
        return await self._aside(partial(self._forget, before))

    async def _aside(self, work: Callable[[], T]) -> T:
        try:
            return await anyio.to_thread.run_sync(work)
        except OSError as e:
            raise JournalError(f"{self.path}: {e.strerror or e}: it can't be read or kept") from e

    # --- in a thread

    def _names(self) -> dict[str, float]:
        try:
            with open(open_file(self.path, os.O_RDONLY), encoding="utf-8", errors="replace") as file:
                now = os.fstat(file.fileno())
                is_of = now.st_ino, now.st_size, now.st_mtime_ns
                if self._known[0] != is_of:
                    self._known = is_of, dict.fromkeys(file.read().splitlines(), now.st_mtime)
        except FileNotFoundError:
            self._known = (), {}
        return self._known[1]

    def _add(self, name: str, instead_of: str | None) -> str | None:
        make_private(self.path.parent)
        with _locked(self.path.parent):
            if (instead_of is not None) is not (name in self._names()):
                return None
            if instead_of is None:
                descriptor = self.disk.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
                try:
                    write_all(self.disk, descriptor, f"{name}\n".encode())
                    self.disk.sync_data(descriptor)
                finally:
                    self.disk.close(descriptor)
        return _KNOWN

    def _take_out(self, name: str) -> None:
        if self.path.exists():
            with _locked(self.path.parent):
                draft = self.path.with_name(f"{self.path.name}.new-{secrets.token_hex(8)}")
                write_new(self.disk, draft, "".join(f"{one}\n" for one in self._names() if one != name).encode())
                self.disk.rename(draft, self.path)

    def _forget(self, before: float) -> int:
        names = self._names()
        if not names or max(names.values()) >= before:
            return 0
        self.path.unlink(missing_ok=True)
        return len(names)


_KNOWN = "1"  # the one version that a name has


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Nobody else writes documents of this folder meanwhile, here or in another process."""
    descriptor = open_folder_lock(folder)
    try:
        lock(descriptor)
        yield
    finally:
        os.close(descriptor)
