"""Commands of the command line, run in this process as a shell would run them: each with its own surroundings.

What a command gets and gives are real files, so that programs that it starts (an editor, a hook) share them. A test
that is about the process itself (killed, at a terminal, two at once, what an import costs) starts one instead.
"""

from __future__ import annotations

import logging
import os
import pty
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from perdure.cli import main

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Done:
    """What a command did; the names are those of `subprocess.CompletedProcess`."""

    returncode: int
    stdout: str
    stderr: str


def command(*words: str | Path, cwd: Path, env: Mapping[str, str], given: str | bytes | None = None) -> Done:
    """Run a command in a folder with exactly these variables; `given` comes through a pipe, else the input is empty."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, _input(given) as there:
        with _streams(there, out.fileno(), err.fileno()), _surroundings(cwd, env):
            code = main([str(word) for word in words])
        out.seek(0)
        err.seek(0)
        return Done(code, out.read().decode("utf-8"), err.read().decode("utf-8"))


def command_at_terminal(*words: str | Path, cwd: Path, env: Mapping[str, str], typed: bytes = b"") -> Done:
    """Run a command whose input and outputs are one pseudo-terminal; `stdout` is all that it shows."""
    leader, follower = pty.openpty()
    os.write(leader, typed)
    shown = bytearray()

    def watch() -> None:
        try:
            while some := os.read(leader, 65_536):
                shown.extend(some)
        except OSError:  # how Linux tells that nobody has the terminal open
            pass

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        with _streams(follower, follower, follower), _surroundings(cwd, env):
            code = main([str(word) for word in words])
    finally:
        os.close(follower)
        watching.join()
        os.close(leader)
    return Done(code, shown.decode(), "")


@contextmanager
def _input(given: str | bytes | None) -> Iterator[int]:
    """A descriptor to read what is given from: a pipe that somebody else fills."""
    if given is None:
        there = os.open(os.devnull, os.O_RDONLY)
        try:
            yield there
        finally:
            os.close(there)
        return
    there, here = os.pipe()

    def fill() -> None:
        try:
            with open(here, "wb") as pipe:  # which writes when it is closed, too
                pipe.write(given.encode() if isinstance(given, str) else given)
        except BrokenPipeError:  # the reader wanted no more
            pass

    filling = threading.Thread(target=fill)
    filling.start()
    try:
        yield there
    finally:
        os.close(there)
        filling.join()


@contextmanager
def _streams(*there: int) -> Iterator[None]:
    """Descriptors 0 to 2 and Python's streams over them lead there."""
    before = [os.dup(number) for number in range(3)]
    saved = sys.stdin, sys.stdout, sys.stderr
    for number, one in enumerate(there):
        os.dup2(one, number)
    streams = [
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - closed below
        for number, mode in enumerate(("r", "w", "w"))
    ]
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = saved
        for stream in streams:
            stream.close()
        for number, one in enumerate(before):
            os.dup2(one, number)
            os.close(one)


@contextmanager
def _surroundings(cwd: Path, env: Mapping[str, str]) -> Iterator[None]:
    """The folder, the variables and whatever else a command may change for its whole process."""
    variables, folder = dict(os.environ), os.getcwd()
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in _SIGNALS} if is_main else {}
    loggers, level, temporary = list(logging.root.handlers), logging.root.level, tempfile.tempdir
    mask = os.umask(0o022)
    tempfile.tempdir = None
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    try:
        yield
    finally:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(variables)
        tempfile.tempdir = temporary
        os.umask(mask)
        logging.root.handlers[:] = loggers
        logging.root.setLevel(level)
        for number, handler in handlers.items():
            signal.signal(number, handler)
