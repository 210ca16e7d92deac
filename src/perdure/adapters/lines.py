"""Lines appended to a file by a thread of their own: a slow disk is nobody's delay (SPD-8, GW-9)."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue

from perdure.adapters.machine.system import CLOSE_ON_EXEC
from perdure.errors import BadSetting

_LOG = logging.getLogger("perdure")
STDOUT = "-"
_TOGETHER_SECONDS = 0.1  # what is said in this time is written at once
_MOST_WAITING = 100_000  # lines; those beyond are dropped while the disk takes none


class LineFile:
    """A private file that lines are appended to, or the standard output for `-`.

    The file is opened for each write: nothing is held, and one that was moved away is made again, so any log rotation
    works. When nothing can be written, that is logged, and the lines until it works again are dropped.
    """

    def __init__(self, place: str) -> None:
        """Raises `BadSetting` when the file can't be appended to."""
        self.place = place
        self._waiting: SimpleQueue[bytes | None] = SimpleQueue()
        self._is_failing = False
        try:
            self._append(b"")
        except OSError as e:
            raise BadSetting(f"{place}: {e.strerror or e}: lines can't be appended to it") from None
        self._thread = threading.Thread(target=self._run, name="perdure-lines", daemon=True)
        self._thread.start()

    def write(self, line: bytes) -> None:
        """Append a line, which ends in a line end, soon."""
        if self._waiting.qsize() < _MOST_WAITING:
            self._waiting.put(line)

    def close(self) -> None:
        """Write what is waiting."""
        self._waiting.put(None)
        self._thread.join(5.0)

    def _run(self) -> None:
        is_open = True
        while is_open:
            lines = [self._waiting.get()]
            if lines[0] is not None:
                time.sleep(_TOGETHER_SECONDS)
            try:
                while True:
                    lines.append(self._waiting.get_nowait())
            except Empty:
                pass
            is_open = None not in lines
            try:
                self._append(b"".join(line for line in lines if line is not None))
                self._is_failing = False
            except OSError as e:
                if not self._is_failing:
                    _LOG.warning("%s: %s: lines are dropped until it can be written", self.place, e.strerror or e)
                self._is_failing = True

    def _append(self, data: bytes) -> None:
        """On an append-only descriptor, so that lines of several processes don't mix."""
        if self.place == STDOUT:
            if data:
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
            return
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | CLOSE_ON_EXEC
        fd = os.open(Path(self.place).expanduser(), flags, 0o600)
        try:
            while data:
                data = data[os.write(fd, data) :]
        finally:
            os.close(fd)


class LineFiles:
    """The files that one process appends lines to, each opened once."""

    def __init__(self) -> None:
        self._files: dict[str, LineFile] = {}

    def writer(self, place: str) -> Callable[[bytes], None]:
        """What appends a line to this file. Raises `BadSetting` when it can't be written."""
        if place not in self._files:
            self._files[place] = LineFile(place)
        return self._files[place].write

    def close(self) -> None:
        """Write what is waiting in any of them."""
        for file in self._files.values():
            file.close()
        self._files.clear()
