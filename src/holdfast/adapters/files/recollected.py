"""`ports.MemorySearch` over a directory: questions at once, and a rescan behind each of them (MEM-12)."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import anyio.to_thread
import msgspec

from holdfast.adapters.files.disk import DISK, discard, make_private, write_new
from holdfast.adapters.files.memory_index import MemoryDirectory
from holdfast.memory.retrieval.memories import Wanted
from holdfast.memory.topics import Topic
from holdfast.ports import Memorable

RESCAN_SECONDS = 2.0  # between two rescans: edits in place are seen that much later at worst


class FileMemories:
    """The memories of one directory, for one process. A directory that isn't there holds none."""

    def __init__(self, path: Path, *, cache: Path | None = None) -> None:
        self.where = str(path)
        self._directory = MemoryDirectory(path, cache=cache)
        self._lock = threading.Lock()
        self._counts = cache.with_suffix(".uses.json") if cache is not None else None
        self._uses: dict[str, int] | None = None
        self._rescanned = 0.0
        self._scanner: threading.Thread | None = None

    async def find(self, wanted: Wanted, *, fill: bool = False) -> Memorable:
        return await anyio.to_thread.run_sync(self._find, wanted, fill)

    async def read(self, files: tuple[str, ...]) -> tuple[Topic, ...]:
        return await anyio.to_thread.run_sync(self._read, files)

    async def index(self) -> tuple[str | None, Mapping[str, float]]:
        return await anyio.to_thread.run_sync(self._index)

    async def used(self, files: tuple[str, ...] = ()) -> Mapping[str, int]:
        return await anyio.to_thread.run_sync(self._used, files)

    def settle(self) -> None:
        """Wait for a rescan that runs."""
        if self._scanner is not None:
            self._scanner.join()

    def _find(self, wanted: Wanted, fill: bool) -> Memorable:
        with self._lock:
            if not self._fresh():
                return Memorable((), 0)
            wanted = wanted if wanted.uses else replace(wanted, uses=self._counted())
            chosen = self._directory.ask(wanted) if not fill else ()
            cards = self._directory.candidates(wanted) if fill else ()
            found = Memorable(chosen, len(self._directory), cards)
        self._rescan_soon()
        return found

    def _fresh(self) -> bool:
        """Whether there is a directory; what its folders tell of is read first."""
        if self._directory.is_fresh():
            return True
        try:
            self._directory.rescan()
        except OSError:
            return False
        self._rescanned = time.monotonic()
        return True

    def _rescan_soon(self) -> None:
        """Look for edits in place, beside whatever goes on."""
        is_running = self._scanner is not None and self._scanner.is_alive()
        if is_running or time.monotonic() - self._rescanned < RESCAN_SECONDS:
            return
        self._rescanned = time.monotonic()
        self._scanner = threading.Thread(target=self._rescan, name="memory-rescan", daemon=True)
        self._scanner.start()

    def _rescan(self) -> None:
        try:
            look = self._directory.look()
        except OSError:
            return  # it went; the next question finds that out
        with self._lock:
            self._directory.take(look)

    def _read(self, files: tuple[str, ...]) -> tuple[Topic, ...]:
        found = []
        for file in files:
            try:
                found.append(self._directory.read(file))
            except OSError:
                continue  # it went since it was found
        return tuple(found)

    def _index(self) -> tuple[str | None, Mapping[str, float]]:
        with self._lock:
            text = self._directory.index_text()
            if text is None or not self._fresh():
                return text, {}
            return text, {file: card.modified for file, card in self._directory.cards.items()}

    # --- how often memories were shown: kept with the index, a hint that may be lost

    def _used(self, files: tuple[str, ...]) -> Mapping[str, int]:
        with self._lock:
            if not files:
                return dict(self._counted())
            if self._counts is not None:
                self._uses = None  # others count, too
            counts = self._counted()
            for file in files:
                counts[file] = counts.get(file, 0) + 1
            self._write_counts(counts)
            return dict(counts)

    def _counted(self) -> dict[str, int]:
        if self._uses is None:
            try:
                data = self._counts.read_bytes() if self._counts is not None else b"{}"
                self._uses = msgspec.json.decode(data, type=dict[str, int])
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
                self._uses = {}
        return self._uses

    def _write_counts(self, counts: dict[str, int]) -> None:
        if self._counts is None:
            return
        draft = self._counts.with_name(f".{self._counts.name}.{secrets.token_hex(4)}")
        try:
            make_private(draft.parent)
            write_new(DISK, draft, msgspec.json.encode(counts))
            DISK.rename(draft, self._counts)
        except OSError:
            discard(DISK, draft)
