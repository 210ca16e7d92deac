"""`ports.NotesFile` at home: `session-memory/summary.md` in the session's directory (SM-1, SM-6, SEC-2)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import anyio.to_thread

from perdure.adapters.machine.folder_calls import CALLS, OsCalls
from perdure.adapters.machine.rooted import RootedFolder
from perdure.adapters.machine.system import open_file
from perdure.errors import BadSetting, FileMissing, FileRefused, FileTooLarge, JournalError, NameTaken

FOLDER, SUMMARY = "session-memory", "summary.md"
CONFIG = "config"
MOST_BYTES = 4_000_000
_NAME = f"{FOLDER}/{SUMMARY}"
T = TypeVar("T")


def notes_path(directory: Path) -> Path:
    """Where the notes of the session in this directory stand."""
    return directory / FOLDER / SUMMARY


@dataclass(frozen=True, slots=True)
class FileNotes:
    """The notes of the session in this directory, and of a home the user's template and prompt."""

    directory: Path
    home: Path | None
    calls: OsCalls = CALLS

    @property
    def path(self) -> str:
        return str(notes_path(self.directory))

    async def read(self) -> bytes | None:
        return await self._on_disk(self._read)

    async def write(self, data: bytes, *, instead_of: bytes | None) -> bool:
        return await self._on_disk(lambda root: self._write(root, data, instead_of))

    async def set_aside(self) -> str:
        return await self._on_disk(self._moved)

    async def custom(self, name: str) -> str | None:
        if self.home is None:
            return None
        return await anyio.to_thread.run_sync(_custom, self.home / FOLDER / CONFIG / name)

    async def _on_disk(self, do: Callable[[RootedFolder], T]) -> T:
        return await anyio.to_thread.run_sync(self._rooted, do)

    def _rooted(self, do: Callable[[RootedFolder], T]) -> T:
        try:
            with RootedFolder.open(self.directory, calls=self.calls) as root:
                return do(root)
        except FileTooLarge:
            raise JournalError(f"{self.path}: larger than {MOST_BYTES:,} bytes: shorten it by hand") from None
        except FileRefused as e:
            raise JournalError(f"{self.path}: the notes can't be read or written: {e}") from e

    def _read(self, root: RootedFolder) -> bytes | None:
        try:
            return root.read(_NAME, limit_bytes=MOST_BYTES)
        except FileMissing:
            return None

    def _write(self, root: RootedFolder, data: bytes, instead_of: bytes | None) -> bool:
        if self._read(root) != instead_of:
            return False
        try:
            root.write(_NAME, data, is_new=instead_of is None)
        except NameTaken:
            return False
        return True

    def _moved(self, root: RootedFolder) -> str:
        number = 1
        while True:
            aside = f"summary.aside-{number}.md"
            try:
                root.rename(_NAME, f"{FOLDER}/{aside}")
            except NameTaken:
                number += 1
                continue
            return str(notes_path(self.directory).with_name(aside))


def _custom(path: Path) -> str | None:
    """A file of the user's configuration. It may stand anywhere, also behind links: no agent writes there."""
    try:
        with open(open_file(path, os.O_RDONLY), "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as e:
        raise JournalError(f"{path}: {e.strerror or e}: the file can't be read") from e
    if len(data) > MOST_BYTES:
        raise JournalError(f"{path}: larger than {MOST_BYTES:,} bytes: shorten it by hand")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise BadSetting(f"{path}: not UTF-8 at byte {e.start}: save it as UTF-8") from None
