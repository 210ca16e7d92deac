"""`ports.NotesFile` at home: `session-memory/summary.md` in the session's directory (SM-1, SM-6)."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio.to_thread

from holdfast.adapters.files.disk import DISK, Disk, discard, make_private, write_new
from holdfast.errors import BadSetting, JournalError

FOLDER, SUMMARY = "session-memory", "summary.md"
CONFIG = "config"
MOST_BYTES = 4_000_000
_CHUNK = 1 << 20
T = TypeVar("T")


def notes_path(directory: Path) -> Path:
    """Where the notes of the session in this directory stand."""
    return directory / FOLDER / SUMMARY


async def _in_thread(path: Path, do: Callable[[], T]) -> T:
    try:
        return await anyio.to_thread.run_sync(do)
    except OSError as e:
        raise JournalError(f"{path}: {e.strerror or e}: the notes can't be read or written") from e


class FileNotes:
    """The file, and the user's template and prompt under `<home>/session-memory/config/`."""

    def __init__(self, directory: Path, home: Path | None, *, disk: Disk = DISK) -> None:
        self._file = notes_path(directory)
        self._config = home / FOLDER / CONFIG if home is not None else None
        self._disk = disk
        self.path = str(self._file.absolute())  # a model and a person are told it

    async def read(self) -> bytes | None:
        return await _in_thread(self._file, partial(self._read, self._file))

    async def write(self, data: bytes, *, instead_of: bytes | None) -> bool:
        return await _in_thread(self._file, partial(self._write, data, instead_of))

    async def set_aside(self) -> str:
        return await _in_thread(self._file, partial(self._moved, self._file))

    async def custom(self, name: str) -> str | None:
        if self._config is None:
            return None
        path = self._config / name
        data = await _in_thread(path, partial(self._read, path))
        try:
            return None if data is None else data.decode("utf-8")
        except UnicodeDecodeError as e:
            raise BadSetting(f"{path}: not UTF-8 at byte {e.start}: save it as UTF-8") from None

    def _read(self, path: Path) -> bytes | None:
        try:
            fd = self._disk.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        except FileNotFoundError:
            return None
        try:
            parts: list[bytes] = []
            at = 0
            while at <= MOST_BYTES and (part := self._disk.read_at(fd, _CHUNK, at)):
                parts.append(part)
                at += len(part)
        finally:
            self._disk.close(fd)
        if at > MOST_BYTES:
            raise JournalError(f"{path}: larger than {MOST_BYTES:,} bytes: shorten it by hand")
        return b"".join(parts)

    def _write(self, data: bytes, instead_of: bytes | None) -> bool:
        make_private(self._file.parent)
        draft = self._file.with_name(f".{SUMMARY}.{secrets.token_hex(4)}")
        write_new(self._disk, draft, data)
        try:
            if self._read(self._file) != instead_of:
                return False
            if instead_of is None:
                try:
                    self._disk.link(draft, self._file)
                except FileExistsError:
                    return False
            else:
                self._disk.rename(draft, self._file)
            self._disk.sync_directory(self._file.parent)
            return True
        finally:
            discard(self._disk, draft)

    def _moved(self, path: Path) -> str:
        number = 1
        while True:
            aside = path.with_name(f"summary.aside-{number}.md")
            try:
                self._disk.link(path, aside)
            except FileExistsError:
                number += 1
                continue
            discard(self._disk, path)
            self._disk.sync_directory(path.parent)
            return str(aside)
