"""A command in a terminal that draws: what a person would see of it, with what scrolled away above."""

from __future__ import annotations

import signal
import time
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyte
from pyte.screens import Char
from tests.terminals import SECONDS, Terminal
from wcwidth import wcwidth


class JoiningScreen(pyte.HistoryScreen):
    """A screen that puts joiners, marks, and symbols behind a joiner into the cell before, as terminals do by now."""

    def draw(self, data: str) -> None:
        for sign in data:
            column = self.cursor.x - 1
            row = self.buffer[self.cursor.y]
            while column > 0 and not row[column].data:  # the second half of a wide one
                column -= 1
            before = row[column] if column >= 0 else None
            is_joined = before is not None and before.data.endswith("\u200d") and unicodedata.category(sign) == "So"
            if before is not None and (wcwidth(sign) == 0 or is_joined):
                row[column] = before._replace(data=before.data + sign)
            else:
                super().draw(sign)


class DrawnTerminal(Terminal):
    """A `Terminal` with a terminal emulator behind it."""

    def __init__(self, *arguments: str, cwd: Path, env: Mapping[str, str], columns: int, rows: int = 30) -> None:
        self._drawn = JoiningScreen(columns, rows, history=20_000, ratio=0.001)
        self._stream = pyte.ByteStream(self._drawn)
        super().__init__(*arguments, cwd=cwd, env=env, columns=columns, rows=rows)

    def _show(self, some: bytes) -> None:
        self._stream.feed(some)
        super()._show(some)

    def resize(self, columns: int, rows: int = 30) -> None:
        super().resize(columns, rows)
        if (columns, rows) != (self._drawn.columns, self._drawn.lines):
            self._drawn.resize(rows, columns)
            self.process.send_signal(signal.SIGWINCH)

    @property
    def seen(self) -> list[str]:
        """Every line from the beginning to the last one that isn't empty, as it stands there."""
        above = [self._text(line) for line in self._drawn.history.top]
        lines = [*above, *(self._text(self._drawn.buffer[row]) for row in range(self._drawn.lines))]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def _text(self, line: Mapping[int, Char]) -> str:
        return "".join(line[column].data for column in range(self._drawn.columns)).rstrip()

    def shows(self, words: str, seconds: float = SECONDS) -> str:
        """Wait until these words stand on the screen, wherever lines end; all that is on it."""
        ends = time.monotonic() + seconds
        while True:
            text = "\n".join(self.seen)
            if " ".join(words.split()) in " ".join(text.split()):
                return text
            if time.monotonic() > ends or not self._take(0.05):
                raise AssertionError(f"never shown: {words!r}\n{text}")

    def rests(self, seconds: float = 0.4) -> list[str]:
        """What is on the screen once nothing came for a while."""
        ends = time.monotonic() + SECONDS
        last = time.monotonic()
        while time.monotonic() - last < seconds and time.monotonic() < ends:
            before = len(self.raw)
            if not self._take(0.05):
                break
            if len(self.raw) != before:
                last = time.monotonic()
        return self.seen


@contextmanager
def drawn(*arguments: str, cwd: Path, env: Mapping[str, str], columns: int, rows: int = 30) -> Iterator[DrawnTerminal]:
    """A command on a terminal of this size."""
    one = DrawnTerminal(*arguments, cwd=cwd, env=env, columns=columns, rows=rows)
    try:
        yield one
    finally:
        one.close()
