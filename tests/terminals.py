"""A command in a pseudo-terminal, typed at as a person would, and a model server beside it that follows a script."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
from tests import warm

from perdure.testing import FakeServer, FakeUpstream, ModelRules
from perdure.testing.upstream import Scripted

PERDURE = (sys.executable, "-m", "perdure")
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9]|[=>])")
_EDITS = b"\x1b[?2004h"
_ASKS_PLACE, _PLACE = b"\x1b[6n", b"\x1b[1;1R"  # where the cursor is: a terminal answers that
SECONDS = 60.0  # at most; a machine may be busy


def environment(home: Path, **more: str) -> dict[str, str]:
    """The surroundings of a command: no keys but the given ones, a home of its own."""
    keep = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LANG") if name in os.environ}
    own = {"PERDURE_HOME": str(home / ".perdure"), "HOME": str(home), "TERM": "xterm-256color", "COLUMNS": "120"}
    return {**keep, **own, "PYTHONUTF8": "1", **more}


class Terminal:
    """A process on a terminal. `screen` is everything it wrote, without what moves cursors and sets colours."""

    def __init__(self, *arguments: str, cwd: Path, env: Mapping[str, str], columns: int = 120, rows: int = 40) -> None:
        self._master, slave = pty.openpty()
        self.resize(columns, rows)
        self.process = warm.start(list(arguments), cwd=cwd, env=env, fds=(slave, slave, slave))
        os.close(slave)
        self.raw, self.screen, self._seen = b"", "", 0
        self._rest, self._ready = b"", 0

    def resize(self, columns: int, rows: int = 40) -> None:
        """Give the terminal another size, as one does by its corner."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _show(self, some: bytes) -> None:
        """Add to the screen what came; the beginning of a sequence waits for its end."""
        self.raw, some = self.raw + some, self._rest + some
        cut = max(some.rfind(b"\x1b"), some.rfind(b"\n"))
        whole = (
            some
            if cut < 0 or some[cut : cut + 1] == b"\n" or _ESCAPES.match(some[cut:].decode("latin-1"))
            else some[:cut]
        )
        self._rest = some[len(whole) :]
        self.screen += _ESCAPES.sub("", whole.decode("utf-8", "replace")).replace("\r", "")

    def _take(self, seconds: float) -> bool:
        """More of what is written; False once nothing can come any more."""
        if not select.select([self._master], [], [], seconds)[0]:
            return True
        try:
            some = os.read(self._master, 65_536)
        except OSError as e:
            if e.errno == errno.EIO:  # how Linux tells that nobody has the terminal open
                return False
            raise
        if _ASKS_PLACE in some:
            os.write(self._master, _PLACE)
        self._show(some)
        return bool(some)

    def until(self, words: str, seconds: float = SECONDS) -> str:
        """Wait for a text behind the one waited for before; what was written up to its end."""
        ends = time.monotonic() + seconds
        while True:
            at = self.screen.find(words, self._seen)
            if at >= 0:
                before, self._seen = self._seen, at + len(words)
                return self.screen[before : self._seen]
            if time.monotonic() > ends or not self._take(0.1):
                raise AssertionError(f"never came: {words!r}; the screen ends: {self.screen[-2_000:]!r}")

    def ready(self, seconds: float = SECONDS) -> None:
        """Wait until something can be typed: the line editor says so to the terminal."""
        ends = time.monotonic() + seconds
        while (at := self.raw.find(_EDITS, self._ready)) < 0:
            if time.monotonic() > ends or not self._take(0.1):
                raise AssertionError(f"nothing can be typed; the screen ends: {self.screen[-2_000:]!r}")
        self._ready = at + len(_EDITS)

    def type(self, text: str, end: str = "\r") -> None:
        os.write(self._master, (text + end).encode())

    def end(self, seconds: float = SECONDS) -> int:
        """Wait for its end: the exit code."""
        ends = time.monotonic() + seconds
        while self._take(0.1) and self.process.poll() is None and time.monotonic() < ends:
            pass
        return self.process.wait(max(0.1, ends - time.monotonic()))

    def kill(self) -> None:
        """End it without a word, as a crash does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(5)

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        os.close(self._master)


@contextmanager
def terminal(*arguments: str, cwd: Path, env: Mapping[str, str]) -> Iterator[Terminal]:
    one = Terminal(*arguments, cwd=cwd, env=env)
    try:
        yield one
    finally:
        one.close()


class Served:
    """A model server in a thread of its own. `bodies` are the requests that were sent, in order."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server

    @property
    def name(self) -> str:
        return f"anthropic:claude-sonnet-4-5@{self.server.url}"

    @property
    def chat_name(self) -> str:
        """The same model over OpenAI's protocol, whose SDK takes half of a second less to import than Anthropic's."""
        return f"vllm:some-model@{self.server.url}/v1"

    @property
    def bodies(self) -> list[bytes]:
        return [one.body for one in self.server.received if one.path in ("/v1/messages", "/v1/chat/completions")]

    @property
    def upstream(self) -> FakeUpstream:
        return self.server.upstream

    def violations(self) -> Mapping[str, int]:
        return self.upstream.statistics.violations


@contextmanager
def served(script: Iterable[Scripted] = (), *, window: int = 200_000, **more: Any) -> Iterator[Served]:
    """A server with a script, for processes."""
    upstream = FakeUpstream(script=script, rules=ModelRules(window_tokens=window))
    server, ready, over = FakeServer(upstream, **more), threading.Event(), threading.Event()

    async def body() -> None:
        async with server:
            ready.set()
            while not over.is_set():  # noqa: ASYNC110 - the event belongs to another thread
                await anyio.sleep(0.02)

    thread = threading.Thread(target=anyio.run, args=(body,), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield Served(server)
    finally:
        over.set()
        thread.join(10)


def parts(body: bytes) -> list[bytes]:
    """What a request consists of, in its order, without the marks of the cache: each block as its bytes."""
    fields = json.loads(body)
    found: list[Any] = [*fields.get("tools", ()), *fields.get("system", ())]
    for message in fields["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        found += [[message["role"], {n: v for n, v in block.items() if n != "cache_control"}] for block in blocks]
    for one in found:
        if isinstance(one, dict):
            one.pop("cache_control", None)
    return [json.dumps(one, ensure_ascii=False).encode() for one in found]
