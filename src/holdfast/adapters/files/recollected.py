"""`ports.MemorySearch` over a directory: questions at once, and a rescan behind each of them (MEM-12)."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path

import anyio.to_thread

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
        self._rescanned = 0.0
        self._scanner: threading.Thread | None = None

    async def find(self, wanted: Wanted, *, fill: bool = False) -> Memorable:
        return await anyio.to_thread.run_sync(self._find, wanted, fill)

    async def read(self, files: tuple[str, ...]) -> tuple[Topic, ...]:
        return await anyio.to_thread.run_sync(self._read, files)

    async def index(self) -> tuple[str | None, Mapping[str, float]]:
        return await anyio.to_thread.run_sync(self._index)

    def settle(self) -> None:
        """Wait for a rescan that runs."""
        if self._scanner is not None:
            self._scanner.join()

    def _find(self, wanted: Wanted, fill: bool) -> Memorable:
        with self._lock:
            if not self._fresh():
                return Memorable((), 0)
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
