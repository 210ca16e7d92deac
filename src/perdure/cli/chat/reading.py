"""Where a person's words come from: an editor line on a terminal, or plain lines from a pipe or a dumb terminal."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import anyio

from perdure.adapters.journal.disk import make_private

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from typing import TYPE_CHECKING

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
def listen_for_ctrl_c() -> Iterator[None]:
    """Ctrl-C never raises in here: one handler for all of it, as between several there would be gaps."""
    loop, ears = asyncio.get_running_loop(), CtrlCListener()
    token = _EARS.set(ears)
    loop.add_signal_handler(signal.SIGINT, ears.heard)
    try:
        yield
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


class EditorReader:
    """A line editor with history and completion, by prompt_toolkit. Enter sends; Alt-Enter begins another line."""

    can_ask = True

    def __init__(self, history: Path, commands: dict[str, str], root: Path) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.history import FileHistory

        from perdure.cli.chat.completing import Completions

        _make_private(history)
        self._session: PromptSession[str] = PromptSession(
            history=FileHistory(str(history)),
            completer=Completions(commands, root),
            complete_while_typing=True,
            enable_open_in_editor=True,
            key_bindings=_keys(),
            prompt_continuation="  ",
        )
        self._answers: PromptSession[str] = PromptSession()

    async def prompt(self, default: str = "") -> str:
        from prompt_toolkit.patch_stdout import patch_stdout

        with patch_stdout(raw=True):  # background work may speak while somebody types
            return await self._session.prompt_async(PROMPT, default=default, multiline=False, handle_sigint=False)

    async def answer(self, question: str) -> str:
        return await self._answers.prompt_async(question, handle_sigint=False)


def _keys() -> KeyBindings:
    """Alt-Enter, Ctrl-J and a backslash before Enter begin another line."""
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith(_CONTINUES):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    return keys


def _make_private(path: Path) -> None:
    """The file, readable by its owner alone, also where it was there with other rights."""
    make_private(path.parent)  # and what is missing above it: the home of Perdure may be (ENG-4)
    fd = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        os.fchmod(fd, 0o600)
    finally:
        os.close(fd)


def is_terminal() -> bool:
    """Whether a line editor can be shown."""
    return (
        sys.stdin is not None
        and sys.stdin.isatty()
        and sys.stdout.isatty()
        and os.environ.get("TERM", "dumb") != "dumb"
    )
