"""A shell in a pseudo-terminal that is typed at, recorded as an SVG that moves by CSS alone."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Final

import pyte

PROMPT: Final = "$ "
PROMPTS: Final = {"PS1": r"\e[32m$ \e[0;1m", "PS0": r"\e[0m"}  # what is typed stands out
TERM: Final = "xterm-256color"
KEY_SECONDS: Final = 0.025
MOST_WAIT: Final = 0.5  # a longer one is cut to this
PATIENCE: Final = 120.0  # seconds for a command

Run = tuple[str, str, bool]  # text, colour, whether it is bold
Line = tuple[Run, ...]
Frame = tuple[float, tuple[Line, ...]]  # from when on, and what stands there


@dataclass(slots=True)
class RecordedShell:
    """`frames` is what was on its screen; `said` all that was typed and printed, without what was overwritten."""

    columns: int
    rows: int
    frames: list[Frame] = field(default_factory=list)
    now: float = 0.0  # of the recording, in which waits are cut
    _master: int = -1
    _real: float = 0.0
    _screen: pyte.Screen = field(init=False)
    _paper: pyte.Screen = field(init=False)  # as wide, and long enough for everything

    _streams: tuple[pyte.ByteStream, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._screen, self._paper = pyte.Screen(self.columns, self.rows), pyte.Screen(self.columns, 400)
        self._streams = pyte.ByteStream(self._screen), pyte.ByteStream(self._paper)

    @property
    def said(self) -> list[str]:
        return "\n".join(map(str.rstrip, self._paper.display)).rstrip().splitlines()

    @contextmanager
    def running(self, cwd: Path, env: Mapping[str, str]) -> Iterator[None]:
        """Bash, without anybody's settings."""
        child, self._master = pty.fork()
        if child == 0:
            os.chdir(cwd)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"], {**env, **PROMPTS, "TERM": TERM})
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", self.rows, self.columns, 0, 0))
        try:
            self._until_prompt()
            yield
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(self._master)

    def types(self, command: str, *, reads: float) -> None:
        """Type a command, wait for its end, and leave a reader so many seconds."""
        for key in command:
            os.write(self._master, key.encode())
            self._take(1.0)
            self._show(KEY_SECONDS)
        self.now += 0.4
        os.write(self._master, b"\n")
        self._until_prompt()
        self.now += reads

    def _until_prompt(self) -> None:
        ends, self._real = time.monotonic() + PATIENCE, time.monotonic()
        while time.monotonic() < ends:
            is_new, cursor = self._take(0.1), self._screen.cursor
            if is_new:
                self._show(min(MOST_WAIT, time.monotonic() - self._real))
                self._real = time.monotonic()
            elif cursor.x == len(PROMPT) and self._screen.display[cursor.y].rstrip() == PROMPT.rstrip():
                return
        raise TimeoutError(f"busy after {PATIENCE:.0f} s:\n" + "\n".join(self.said))

    def _take(self, seconds: float) -> bool:
        """Whether something came."""
        if not select.select([self._master], [], [], seconds)[0]:
            return False
        some = os.read(self._master, 65_536)
        for stream in self._streams:
            stream.feed(some)
        return True

    def _show(self, after: float) -> None:
        lines = tuple(self._line(row) for row in range(self.rows))
        if not self.frames or self.frames[-1][1] != lines:
            self.now += after
            self.frames.append((self.now, lines))

    def _line(self, row: int) -> Line:
        signs = [self._screen.buffer[row][column] for column in range(self.columns)]
        runs = [
            ("".join(sign.data for sign in some), color, is_bold)
            for (color, is_bold), some in groupby(signs, key=lambda sign: (sign.fg, sign.bold))
        ]
        while runs and not runs[-1][0].strip():
            runs.pop()
        return tuple(runs)


# --- the file ---------------------------------------------------------------------------------------------------------

ACROSS, DOWN, SIDE, HEAD = 9.6, 21, 18, 40  # of a sign, a line, the margin, and what stands above the lines
COLORS: Final = {
    "default": "#dbe2ea", "black": "#6b7684", "red": "#ff8676", "green": "#7bd38a", "brown": "#e6c35c",
    "blue": "#8fb2f2", "magenta": "#d7a1e6", "cyan": "#6fd0dd", "white": "#dbe2ea",
}  # fmt: skip
STYLE: Final = (
    'text{font:16px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre;'
    "fill:#dbe2ea}"
    ".h{fill:#98a4b3;font-size:15px}.l{visibility:hidden}.e{visibility:visible}"
)
STILL: Final = "@media (prefers-reduced-motion:reduce){.l{animation:none!important}}"


def drawn(shell: RecordedShell, heading: str, label: str, plain: Sequence[str]) -> str:
    """The recording as an SVG. Each line that ever stood in a place is one element that shows itself in its time."""
    end = shell.now
    wide, high = round(shell.columns * ACROSS) + 2 * SIDE, shell.rows * DOWN + HEAD + 14
    rules, shapes = list[str](), list[str]()
    for row in range(shell.rows):
        for line, begins, ends in _stays(shell.frames, row, end):
            if line:
                name = f"k{len(shapes)}"
                rules.append(_rule(name, begins / end, ends / end))
                css = "l e" if ends == end else "l"
                shapes.append(_text(line, row, f'class="{css}" style="animation:{name} {end:.1f}s step-end infinite"'))
    told = json.dumps(list(plain), ensure_ascii=False, separators=(",", ":"))
    return "".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" role="img" aria-labelledby="t">',
        f'<title id="t">{escape(label)}</title><metadata>{escape(told, quote=False)}</metadata>',
        f"<style>{STYLE}{''.join(rules)}{STILL}</style>",
        f'<rect width="{wide}" height="{high}" rx="10" fill="#12161c" stroke="#3a4552"/>',
        f'<text class="h" x="{SIDE}" y="26">{escape(heading)}</text>',
        *shapes,
        "</svg>\n",
    ))  # fmt: skip


def said_in(recording: str) -> list[str]:
    """The lines that a recording shows, without their numbers. Raises `ValueError` when it isn't one of these."""
    match = re.search(r"<metadata>(.*?)</metadata>", recording, re.S)
    if match is None:
        raise ValueError("it doesn't say what it shows")
    found: list[str] = json.loads(match[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    return found


def _stays(frames: Sequence[Frame], row: int, end: float) -> Iterator[tuple[Line, float, float]]:
    """What stood in a row, from when to when."""
    times = [at for at, _ in frames] + [end]
    stands = ((lines[row], begins, ends) for (begins, lines), ends in zip(frames, times[1:], strict=True))
    for line, some in groupby(stands, key=lambda one: one[0]):
        during = list(some)
        yield line, during[0][1], during[-1][2]


def _rule(name: str, begins: float, ends: float) -> str:
    steps = ["0%{visibility:hidden}"] if begins > 0 else []
    steps.append(f"{begins:.2%}{{visibility:visible}}")
    steps += [f"{ends:.2%}{{visibility:hidden}}"] if ends < 1 else ["to{visibility:visible}"]
    return f"@keyframes {name}{{{''.join(steps)}}}"


def _text(line: Line, row: int, more: str) -> str:
    y, x, runs = HEAD + DOWN * row + 15, 0, []
    for words, color, is_bold in line:
        if words.strip():
            fill = f' fill="{_color(color)}"' if color != "default" else ""
            weight = ' font-weight="700"' if is_bold else ""
            place = f'x="{SIDE + x * ACROSS:.1f}" textLength="{len(words) * ACROSS:.1f}"'
            runs.append(f"<tspan {place}{fill}{weight}>{escape(words, quote=False)}</tspan>")
        x += len(words)
    return f'<text y="{y}" {more}>{"".join(runs)}</text>'


def _color(name: str) -> str:
    """As pyte names them, by name or as six digits."""
    return COLORS.get(name.removeprefix("bright"), f"#{name}")
