"""Where a person's words come from, and how Ctrl-C ends what is done. Here are plain lines; `editor` has the others."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Protocol, TypeVar

import anyio

T = TypeVar("T")
PROMPT = "> "
_CONTINUES = "\\"
_FENCE = '"""'
_CHUNK = 65_536


class UserInterrupt(Exception):
    """Ctrl-C came while something was done; it was ended."""


class CtrlCListener:
    """Hears Ctrl-C as long as a chat lasts: it ends what is being done, or, pressed in between, what is done next."""

    def __init__(self) -> None:
        self._scopes: list[anyio.CancelScope] = []
        self._is_pressed = False

    def heard(self) -> None:
        """Ctrl-C was pressed."""
        if self._scopes:
            self._scopes[-1].cancel()
        else:
            self._is_pressed = True

    @contextmanager
    def around(self, scope: anyio.CancelScope) -> Iterator[None]:
        """What stands in this scope ends when Ctrl-C is pressed."""
        self._scopes.append(scope)
        if self._is_pressed:
            self._is_pressed = False
            scope.cancel()
        try:
            yield
        finally:
            self._scopes.remove(scope)


_EARS: ContextVar[CtrlCListener] = ContextVar("ears")


@contextmanager
def listen_for_ctrl_c() -> Iterator[CtrlCListener]:
    """Ctrl-C never raises in here: one handler for all of it, as between several there would be gaps."""
    loop, ears = asyncio.get_running_loop(), CtrlCListener()
    token = _EARS.set(ears)
    loop.add_signal_handler(signal.SIGINT, ears.heard)
    try:
        yield ears
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        _EARS.reset(token)


async def interruptible(work: Callable[[], Awaitable[T]]) -> T:
    """Do something that Ctrl-C ends, within `listen_for_ctrl_c`. Raises `UserInterrupt` then, and whatever the work
    raises."""
    with anyio.CancelScope() as scope, _EARS.get().around(scope):
        return await work()
    raise UserInterrupt


class PromptReader(Protocol):
    """Gives what a person types. Ends with `EOFError`; Ctrl-C is `KeyboardInterrupt`."""

    can_ask: bool

    async def prompt(self, default: str = "") -> str:
        """The next thing said, of one or several lines; `default` stands there to be edited."""
        ...

    async def answer(self, question: str) -> str:
        """One line in answer to a question of ours, while something else is on its way."""
        ...

    def working(self) -> AbstractContextManager[None]:
        """Within the block something is done, and what is typed waits."""
        ...

    def take_back(self) -> None:
        """What waits isn't to be sent; it can be edited again."""
        ...

    async def run(self) -> None:
        """What has to go on as long as the conversation does; it may end at once."""
        ...


class PlainReader:
    """Lines of standard input. A line that ends in a backslash goes on; lines between `\"\"\"` belong together."""

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self.can_ask = sys.stdin.isatty()  # words in a pipe are prompts, and never answers to questions
        kind = os.fstat(self._fd).st_mode  # files and devices such as /dev/null are always ready, and not waited for
        self._waits = self.can_ask or stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)
        self._read, self._is_over = b"", False

    async def prompt(self, default: str = "") -> str:
        try:
            return await interruptible(lambda: self._prompted(default))
        except UserInterrupt:
            raise KeyboardInterrupt from None
        except EOFError:
            self._show("\n")
            raise

    async def _prompted(self, default: str) -> str:
        if default:
            self._show(f"(before: {default})\n")
        line = await self._line(PROMPT)
        if line.strip() == _FENCE:
            lines = list[str]()
            while (line := await self._line("... ")).strip() != _FENCE:
                lines.append(line)
            return "\n".join(lines)
        while line.endswith(_CONTINUES):
            line = line.removesuffix(_CONTINUES) + "\n" + await self._line("... ")
        return line

    async def answer(self, question: str) -> str:
        return await self._line(question)

    def working(self) -> AbstractContextManager[None]:
        return nullcontext()

    def take_back(self) -> None:
        pass

    async def run(self) -> None:
        pass

    def _show(self, text: str) -> None:
        if self.can_ask:
            sys.stdout.write(text)
            sys.stdout.flush()

    async def _line(self, mark: str) -> str:
        self._show(mark)
        while b"\n" not in self._read and not self._is_over:
            if self._waits:
                await anyio.wait_readable(self._fd)
            more = os.read(self._fd, _CHUNK)
            self._read, self._is_over = self._read + more, not more
        line, _, self._read = self._read.partition(b"\n")
        if not line and not self._read and self._is_over:
            raise EOFError
        return line.decode("utf-8", "replace").removesuffix("\r")
