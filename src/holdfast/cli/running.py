"""Running a command: every way in which one can end, as one line and an exit code (CLI-5)."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer

from holdfast.cli.app import app
from holdfast.cli.door import EXIT_BUSY, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_NOT_FOUND, EXIT_OK, EXIT_USAGE, Door
from holdfast.errors import BadSetting, HoldfastError, SessionBusy, SessionNotFound

# Typer names the children of these two, but not them.
_UsageError: Any = typer.BadParameter.__base__
_ClickError: Any = _UsageError.__base__
_INTERRUPTED = "interrupted; nothing that was recorded is lost"


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code. Nothing but `--debug` ever shows a traceback."""
    door = Door()
    _open_missing()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with contextlib.suppress(ValueError):  # not the main thread: then it isn't ours to handle
        signal.signal(signal.SIGTERM, _interrupt)  # workers end with us, as on Ctrl-C
    try:
        code = app(args=list(arguments), prog_name="holdfast", standalone_mode=False, obj=door)
        sys.stdout.flush()
        if code == EXIT_INTERRUPTED:  # how typer tells of Ctrl-C
            _say(_INTERRUPTED)
        return code if isinstance(code, int) else EXIT_OK
    except BaseException as error:  # the outermost boundary: whatever happens is one line
        return _ended(error, door)


def _open_missing() -> None:
    """Started with a closed output, Python has none at all: what goes there then goes nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for the life of the process


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _ended(error: BaseException, door: Door) -> int:
    if isinstance(error, BrokenPipeError) or isinstance(error.__context__, BrokenPipeError):
        _close_pipe()
        return EXIT_OK
    if isinstance(error, typer.Exit):
        return int(error.exit_code)
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else EXIT_FAILED
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        _say(_INTERRUPTED)
        return EXIT_INTERRUPTED
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the whole help, line by line
        sys.stdout.write(f"{getattr(error, 'message', error)}\n")
        return EXIT_USAGE
    if door.debug:
        traceback.print_exception(error)
    code, line = _told(error)
    _say(line)
    return code


def _told(error: BaseException) -> tuple[int, str]:
    """The exit code, and what happened, where, and what to do."""
    if isinstance(error, _UsageError):
        command = getattr(getattr(error, "ctx", None), "command_path", "holdfast")
        return EXIT_USAGE, f"{error.format_message()} See `{command} --help`."
    if isinstance(error, BadSetting):
        return EXIT_USAGE, str(error)
    if isinstance(error, SessionBusy):
        return EXIT_BUSY, str(error)
    if isinstance(error, SessionNotFound):
        return EXIT_NOT_FOUND, str(error)
    if isinstance(error, HoldfastError):
        return EXIT_FAILED, str(error)
    if isinstance(error, _ClickError):
        return EXIT_FAILED, error.format_message()
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename is not None else ""
        place = "standard output: " if not place and error.errno == errno.ENOSPC else place
        code = EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_FAILED
        return code, f"{place}{error.strerror or error}"
    if isinstance(error, MemoryError):
        return EXIT_FAILED, "out of memory; try fewer or smaller files at once"
    return EXIT_FAILED, f"internal error: {type(error).__name__}: {error}; --debug shows where; please report it"


def _say(line: str) -> None:
    with contextlib.suppress(OSError):
        sys.stderr.write(f"holdfast: {' '.join(line.split())}\n")


def _close_pipe() -> None:
    """Whoever read has gone: let the interpreter flush what is left into nothing."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
