"""The line at the foot of the terminal: edited by prompt_toolkit all the while, also while an answer comes above it."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import anyio
from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application
from prompt_toolkit.completion import Completer, DynamicCompleter
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from rich.cells import cell_len

from perdure.adapters.journal.disk import make_private
from perdure.adapters.machine.system import open_file, set_mode
from perdure.cli.chat.markdown import cut_columns
from perdure.cli.chat.reading import PROMPT, CtrlCListener, UserInterrupt, interruptible
from perdure.cli.output import is_fancy, wrapped

_CONTINUES = "\\"
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAME_SECONDS = 0.12
_LARGE_LINES, _LARGE_CHARS = 12, 4_000  # a paste of more stands in the line as one mark
_KEPT_CHARS = 20_000  # of one entry of the history
_SHOWN_WAITING = 3  # of what waits to be sent
_STYLE = Style.from_dict({"waiting": "ansicyan", "live": "", "doing": "ansibrightblack", "asks": "ansiyellow bold"})


class EditorReader:
    """`PromptReader` on a terminal. What is typed while something is done waits, shown apart, and is sent after it.

    Enter sends; Alt-Enter, Ctrl-J and a backslash before Enter begin another line.
    """

    can_ask = True

    def __init__(self, history: Path, completer: Completer, ears: CtrlCListener) -> None:
        make_history(history)
        self._ears = ears
        self._waiting: list[tuple[str, str]] = []  # as they are sent, and as they are shown
        self._pasted: dict[str, str] = {}
        self._arrived = asyncio.Event()
        self._is_over = self._is_prompting = False
        self._answer: asyncio.Future[str] | None = None
        self._question = ""
        self._began: float | None = None
        self.live: Callable[[int, int], list[str]] = lambda columns, rows: []
        self.doing: Callable[[], str] = lambda: "working"
        self.echo: Callable[[str], None] = lambda text: None
        output = Vt100_Output(sys.stdout, _size, term=os.environ.get("TERM"), enable_cpr=False)
        self._session: PromptSession[str] = PromptSession(
            self._message,
            output=output,
            history=FileHistory(str(history)),
            completer=DynamicCompleter(lambda: None if self._answer is not None else completer),
            complete_while_typing=True,
            enable_open_in_editor=True,
            erase_when_done=True,
            key_bindings=self._keys(),
            prompt_continuation="  ",
            reserve_space_for_menu=6,
            style=_STYLE if is_fancy() else None,
            color_depth=None if is_fancy() else ColorDepth.DEPTH_1_BIT,
        )
        self._above = AboveTheLine(self._session.app, sys.stdout)

    # --- for who reads ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Show the line, and take what is typed, until this is cancelled or the terminal is gone."""
        try:
            with self._above.instead_of_stdout():
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._animate)
                    try:
                        await self._session.prompt_async(handle_sigint=False, set_exception_handler=False)
                    except EOFError:
                        pass
                    tasks.cancel_scope.cancel()
        finally:
            self._end()

    async def prompt(self, default: str = "") -> str:
        for mark, text in self._pasted.items():
            default = default.replace(text, mark)
        if default:
            self._put_back(default)
        try:
            self._is_prompting = True
            sent, shown = await interruptible(self._next)
        except UserInterrupt:
            raise KeyboardInterrupt from None
        finally:
            self._is_prompting = False
        self.echo(shown)
        return sent

    async def answer(self, question: str) -> str:
        buffer = self._session.default_buffer
        draft, self._question = buffer.document, question
        self._answer = asyncio.get_running_loop().create_future()
        if self._is_over:
            self._answer.set_exception(EOFError())
        buffer.reset()
        self._session.app.invalidate()
        try:
            said = await self._answer
        finally:
            self._answer = None
            buffer.reset(draft)
            self._session.app.invalidate()
        self.echo(said)
        return said

    @contextmanager
    def working(self) -> Iterator[None]:
        """Within the block something is done: the line shows what, and since when."""
        self._began = time.monotonic()
        try:
            yield
        finally:
            self._began = None
            self._session.app.invalidate()

    def take_back(self) -> None:
        """What waits isn't sent: it stands in the line again."""
        if self._waiting:
            texts = [shown for _, shown in self._waiting]
            self._waiting.clear()
            self._put_back("\n".join(texts))

    def _put_back(self, text: str) -> None:
        buffer = self._session.default_buffer
        buffer.document = Document("\n".join(part for part in (text, buffer.text) if part))
        self._session.app.invalidate()

    async def _next(self) -> tuple[str, str]:
        while not self._waiting:
            if self._is_over:
                raise EOFError
            self._arrived.clear()
            await self._arrived.wait()
        self._session.app.invalidate()
        return self._waiting.pop(0)

    def _end(self) -> None:
        self._is_over = True
        self._arrived.set()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(EOFError())

    # --- what it shows ----------------------------------------------------------------------------------------------

    def _message(self) -> StyleAndTextTuples:
        size = _size()
        width, rows = max(10, size.columns - 1), max(1, size.rows // 3)
        if self._answer is not None:
            return [("class:asks", self._question)]
        shown: StyleAndTextTuples = [("class:live", f"{line}\n") for line in self.live(width, rows)]
        if self._began is not None:
            seconds = time.monotonic() - self._began
            frame = _SPINNER[int(seconds / _FRAME_SECONDS) % len(_SPINNER)]
            doing = f"{frame} {self.doing()}, {seconds:.0f} s (Ctrl-C interrupts)"
            shown.append(("class:doing", cut_columns(doing, width) + "\n"))
            for _, text in self._waiting[:_SHOWN_WAITING]:
                line = cut_columns(f"  then: {' '.join(text.split())}", width)
                shown.append(("class:waiting", f"{line}\n"))
            if more := len(self._waiting) - _SHOWN_WAITING:
                shown += [("class:waiting", f"  and {more} more\n")] if more > 0 else []
        return [*shown, ("", PROMPT)]

    async def _animate(self) -> None:
        while True:
            await anyio.sleep(_FRAME_SECONDS)
            if self._began is not None and self._answer is None:
                self._session.app.invalidate()

    # --- keys ---------------------------------------------------------------------------------------------------------

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        is_here = has_focus(DEFAULT_BUFFER)  # and not in the search through the history

        @keys.add("escape", "enter", filter=is_here)
        @keys.add("c-j", filter=is_here)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("enter", filter=is_here)
        def _(event: KeyPressEvent) -> None:
            if self._answer is None and event.current_buffer.document.text_before_cursor.endswith(_CONTINUES):
                event.current_buffer.delete_before_cursor()
                event.current_buffer.insert_text("\n")
            else:
                self._entered()

        @keys.add("c-c", filter=is_here)
        def _(event: KeyPressEvent) -> None:
            if self._answer is not None:
                self._answered(KeyboardInterrupt())
            elif self._is_prompting and event.current_buffer.text:
                event.current_buffer.reset()
            else:
                self._ears.heard()

        @keys.add("c-d", filter=is_here)
        def _(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.delete()
            elif self._answer is not None:
                self._answered(EOFError())
            else:
                self._is_over = True
                self._arrived.set()

        @keys.add(Keys.BracketedPaste, filter=is_here)
        def _(event: KeyPressEvent) -> None:
            text = event.data.replace("\r\n", "\n").replace("\r", "\n")
            lines = text.count("\n") + 1
            if self._answer is None and (lines > _LARGE_LINES or len(text) > _LARGE_CHARS):
                what = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
                mark = f"[pasted text {len(self._pasted) + 1}: {what}]"
                self._pasted[mark] = text
                text = mark
            event.current_buffer.insert_text(text)

        return keys

    def _entered(self) -> None:
        """What stands in the line is an answer, or is to be sent."""
        buffer = self._session.default_buffer
        shown = buffer.text
        if self._answer is not None:
            buffer.reset()
            self._answered(shown)
            return
        sent = shown
        for mark, text in self._pasted.items():
            sent = sent.replace(mark, text)
        if not sent.strip():
            return
        if len(sent) <= _KEPT_CHARS:
            buffer.document = Document(sent)
            buffer.append_to_history()
        buffer.reset()
        self._waiting.append((sent, shown))
        self._arrived.set()

    def _answered(self, said: str | BaseException) -> None:
        if self._answer is None or self._answer.done():
            return
        if isinstance(said, str):
            self._answer.set_result(said)
        else:
            self._answer.set_exception(said)


class AboveTheLine:
    """A text stream whose whole lines are shown above a line that is edited; also from other threads."""

    encoding, errors = "utf-8", "backslashreplace"

    def __init__(self, app: Application[str], stream: TextIO) -> None:
        self._app, self._stream = app, stream
        self._begun = ""
        self._thread = threading.get_ident()
        self._lock = threading.Lock()

    @contextmanager
    def instead_of_stdout(self) -> Iterator[None]:
        """Within the block, what is printed goes here."""
        before = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = self
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before
            with self._lock:
                rest, self._begun = self._begun, ""
            if rest:
                self._show(rest)

    def write(self, text: str) -> int:
        with self._lock:
            whole, newline, self._begun = (self._begun + text).rpartition("\n")
        if newline:
            whole = "\n".join(_fitting(whole))
            if threading.get_ident() == self._thread or self._app.loop is None:
                self._show(whole + newline)
            else:
                self._app.loop.call_soon_threadsafe(self._show, whole + newline)
        return len(text)

    def _show(self, text: str) -> None:
        if self._app.is_running:
            self._app.renderer.erase()
            self._app.output.write_raw(text)
            self._app.output.flush()
            self._app.invalidate()
        else:
            self._stream.write(text)
            self._stream.flush()

    def flush(self) -> None:
        """Whole lines were shown already; one that is begun waits for its end."""

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()


def _fitting(text: str) -> Iterator[str]:
    """Lines that the terminal needn't break; those that were drawn for it are as they should be."""
    columns = _size().columns - 1
    for line in text.split("\n"):
        if "\x1b" in line or cell_len(line) <= columns:
            yield line
        else:
            yield from wrapped(line, columns)


def _size() -> Size:
    """Of the terminal, as it is now."""
    try:
        found = os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ is not None else 1)
    except OSError:
        return Size(rows=24, columns=80)
    return Size(rows=found.lines or 24, columns=found.columns or 80)


def make_history(path: Path) -> None:
    """The file, readable by its owner alone, also where it was there with other rights."""
    make_private(path.parent)  # and what is missing above it: the home of Perdure may be (ENG-4)
    fd = open_file(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    try:
        set_mode(fd, 0o600)
    finally:
        os.close(fd)
