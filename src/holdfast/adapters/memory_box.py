"""What a memory directory is for a moment: files below a root on this disk, or held in this process (SEC-2).

`adapters.files.rooted.Rooted` is one; `HeldBox` is one without a disk, with the same names, errors and locks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from holdfast.adapters.files.plain import Entry, Listed
from holdfast.errors import FileMissing, FileTooLarge, FolderBusy, NameTaken
from holdfast.memory.names import OWN, parts_of, shown


class Box(Protocol):
    """What a directory is for a moment, as `adapters.files.rooted.Rooted` has it."""

    def read(self, name: str, *, limit_bytes: int, offset: int = 0) -> bytes: ...

    def stat(self, name: str) -> Entry | None: ...

    def write(self, name: str, data: bytes, *, is_new: bool = False, is_durable: bool = True) -> None: ...

    def append(self, name: str, data: bytes, *, is_durable: bool = True) -> None: ...

    def remove(self, name: str, *, is_durable: bool = True) -> None: ...

    def rename(self, old: str, new: str, *, is_durable: bool = True) -> None: ...

    def listing(self, *, under: str = "", limit: int = 20_000, depth: int = 20) -> Listed: ...

    def lock(self, name: str, *, seconds: float) -> AbstractContextManager[None]: ...


Opened = Callable[[bool], AbstractContextManager[Box]]
"""Opens the directory, making it when asked to; `FileMissing` when it isn't there. Hidden names may be used in it."""


class Nothing:
    """A directory that isn't there."""

    def read(self, name: str, *, limit_bytes: int, offset: int = 0) -> bytes:
        raise FileMissing(f"{shown(name)}: there is no such file")

    def stat(self, name: str) -> Entry | None:
        return None

    def listing(self, *, under: str = "", limit: int = 0, depth: int = 0) -> Listed:
        return Listed(())


NOTHING: Box = Nothing()  # type: ignore[assignment]  # nothing is ever written there


class HeldBox:
    """A directory that goes with the process. Any number of threads may use it."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[int, bytes]] = {}
        self._count = 0
        self._locks: dict[str, threading.Lock] = {}
        self._guard = threading.RLock()

    @contextmanager
    def opened(self, create: bool) -> Iterator[Box]:
        yield self

    def read(self, name: str, *, limit_bytes: int, offset: int = 0) -> bytes:
        data = self._there(name)[1][offset:]
        if len(data) > limit_bytes:
            raise FileTooLarge(f"{shown(name)}: has more than {limit_bytes:,} bytes")
        return data

    def stat(self, name: str) -> Entry | None:
        try:
            count, data = self._there(name)
        except FileMissing:
            return None
        return Entry(name, len(data), count, (0, len(data), count, count))

    def write(self, name: str, data: bytes, *, is_new: bool = False, is_durable: bool = True) -> None:
        parts_of(name, OWN)
        with self._guard:
            if is_new and name in self._files:
                raise NameTaken(f"{shown(name)}: there is such a file already")
            self._count += 1
            self._files[name] = (self._count, data)

    def append(self, name: str, data: bytes, *, is_durable: bool = True) -> None:
        with self._guard:
            self.write(name, self._files.get(name, (0, b""))[1] + data)

    def remove(self, name: str, *, is_durable: bool = True) -> None:
        with self._guard:
            self._there(name)
            del self._files[name]

    def rename(self, old: str, new: str, *, is_durable: bool = True) -> None:
        with self._guard:
            self.write(new, self._there(old)[1], is_new=True)
            self.remove(old)

    def listing(self, *, under: str = "", limit: int = 20_000, depth: int = 20) -> Listed:
        with self._guard:
            names = sorted(name for name in self._files if _is_listed(name, under))
        return Listed(tuple(e for name in names[:limit] if (e := self.stat(name))), (), len(names) > limit)

    @contextmanager
    def lock(self, name: str, *, seconds: float) -> Iterator[None]:
        lock = self._locks.setdefault(name, threading.Lock())
        if not lock.acquire(timeout=seconds):
            raise FolderBusy("somebody else writes there: try again")
        try:
            yield
        finally:
            lock.release()

    def _there(self, name: str) -> tuple[int, bytes]:
        parts_of(name, OWN)
        try:
            return self._files[name]
        except KeyError:
            raise FileMissing(f"{shown(name)}: there is no such file") from None


def _is_listed(name: str, under: str) -> bool:
    if under:
        return name.startswith(f"{under}/")
    return not any(part.startswith(".") for part in name.split("/"))


def bytes_of(box: Box, name: str, limit_bytes: int) -> bytes | None:
    """What stands there; None when nothing does."""
    try:
        return box.read(name, limit_bytes=limit_bytes)
    except FileMissing:
        return None
