"""Which command stands in which module, and how one ends: as one line and an exit code (CLI-5).

A module is imported when one of its commands is asked for (SPD-5), and what a command needs when it runs.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import signal
import sys
import textwrap
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from perdure.cli.arguments import GlobalOptions, examples
from perdure.cli.output import EXIT_BUSY, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_NOT_FOUND, EXIT_OK, EXIT_USAGE, clean, out
from perdure.cli.words import shown_error
from perdure.errors import BadSetting, PerdureError, SessionBusy, SessionNotFound

# Panels of the help screen: each command with the module it stands in. A `+` marks a group with commands of its own.
PANELS: dict[str, dict[str, str]] = {
    "Work": {"chat": "agent", "run": "agent", "resume": "agent", "acp": "acp", "init": "config", "trust": "trust"},
    "Look": {
        "sessions": "+sessions",
        "inspect": "inspect",
        "context": "context",
        "report": "report",
        "recall": "history",
        "search": "history",
        "spend": "spend",
    },
    "Change a session": {
        "compact": "compact",
        "uncompact": "compact",
        "pin": "compact",
        "rewind": "history",
        "import": "transfer",
        "export": "export",
    },
    "Keep": {"memory": "+memory", "notes": "+notes", "instructions": "instructions"},
    "Measure": {"verdict": "verdict", "replay": "replay", "bench": "+bench"},
    "Serve and maintain": {
        "serve": "serve",
        "store": "+store",
        "worker": "worker",
        "mcp": "mcp",
        "setup": "setup",
        "plugin": "+plugin",
        "config": "config",
        "doctor": "doctor",
        "purge": "care",
        "gc": "care",
    },
}
_MODULES = {name: module for commands in PANELS.values() for name, module in commands.items()}
_INTERRUPTED = "interrupted"
# Typer names the children of these two, but not them.
_UsageError: Any = typer.BadParameter.__base__
_ClickError: Any = _UsageError.__base__


class CommandIndex(TyperGroup):
    """The commands of `PANELS`, each imported when it is asked for."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = dict.fromkeys(_MODULES)  # for what only wants their names

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _MODULES:
            return None
        group = typer.main.get_group(_family_of(cmd_name))
        for command in group.commands.values():
            for one in command.params:
                if one.param_type_name == "argument":  # `SESSION <str>`: Python's types help nobody who types one
                    one.display_type_rich = lambda ctx: ""  # type: ignore[attr-defined]
        if not _is_group(cmd_name):
            return group.commands[cmd_name]
        group.name = cmd_name
        return group

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """One section for each panel. A line is how the help of a command begins; no command is built for it."""
        width = max(map(len, _MODULES))
        for panel, names in PANELS.items():
            with formatter.section(panel):
                formatter.write_dl([(name.ljust(width), _first_line(name)) for name in names])


def _is_group(name: str) -> bool:
    return _MODULES[name].startswith("+")


def _family_of(name: str) -> typer.Typer:
    found: typer.Typer = import_module(f"perdure.cli.{_MODULES[name].lstrip('+')}").app
    return found


def _first_line(name: str) -> str:
    family = _family_of(name)
    if _is_group(name):
        return str(family.info.help)
    does = next(one.callback for one in family.registered_commands if name in (one.name, one.callback.__name__))  # type: ignore[union-attr]
    return (does.__doc__ or "").partition("\n")[0]


app = typer.Typer(
    name="perdure",
    cls=CommandIndex,
    help="Context and memory for long-running LLM agents.",
    epilog=examples("perdure chat", 'perdure run "why do the tests fail?"', "perdure replay ~/.claude/projects"),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(is_asked: bool) -> None:
    if is_asked:
        from perdure.adapters.extras import release

        out(f"perdure {release() or '(run from its sources)'}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    given: GlobalOptions = context.obj
    given.debug = debug


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code. Nothing but `--debug` ever shows a traceback."""
    given = GlobalOptions()
    _open_missing()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            encoding = "utf-8" if sys.platform == "win32" else None  # else of the code page, where it isn't a console
            stream.reconfigure(encoding=encoding, errors="backslashreplace")
    with contextlib.suppress(ValueError):  # not the main thread: then it isn't ours to handle
        signal.signal(signal.SIGTERM, _interrupt)  # workers end with us, as on Ctrl-C
    try:
        code = app(args=list(arguments), prog_name="perdure", standalone_mode=False, obj=given)
        sys.stdout.flush()
        if code == EXIT_INTERRUPTED:  # how typer tells of Ctrl-C
            _say(_INTERRUPTED)
        return code if isinstance(code, int) else EXIT_OK
    except BaseException as error:  # the outermost boundary: whatever happens is one line
        return _ended(error, is_debugged=given.debug)


def _open_missing() -> None:
    """Started with a closed output, Python has none at all: what goes there then goes nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for the life of the process


def _interrupt(number: int, frame: object) -> None:
    """As Ctrl-C, which a running loop turns into a cancellation: what is half done is taken back."""
    handle = signal.getsignal(signal.SIGINT)
    if not callable(handle):  # Ctrl-C is ignored, as in the background
        raise KeyboardInterrupt
    handle(number, None)


def _ended(error: BaseException, *, is_debugged: bool) -> int:
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
    if is_debugged:
        traceback.print_exception(error)
    code, line = _told(error)
    _say(line)
    return code


def _told(error: BaseException) -> tuple[int, str]:
    """The exit code, and what happened, where, and what to do."""
    if isinstance(error, _UsageError):
        command = getattr(getattr(error, "ctx", None), "command_path", "perdure")
        return EXIT_USAGE, f"{error.format_message()} See `{command} --help`."
    if isinstance(error, BadSetting):
        return EXIT_USAGE, str(error)
    if isinstance(error, SessionBusy):
        return EXIT_BUSY, str(error)
    if isinstance(error, SessionNotFound):
        return EXIT_NOT_FOUND, str(error)
    if isinstance(error, PerdureError):
        return EXIT_FAILED, shown_error(error)
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
    line = f"perdure: {clean(' '.join(line.split()))}"
    with contextlib.suppress(OSError):
        if sys.stderr.isatty():
            columns = os.get_terminal_size(sys.stderr.fileno()).columns
            said = re.fullmatch(r"(.*:) `([^`]+)`", line)  # a command at its end stands alone, so that it can be copied
            line, command = (said[1], f"\n  {said[2]}") if said else (line, "")
            line = textwrap.fill(line, max(20, columns - 1), break_long_words=False, break_on_hyphens=False) + command
        sys.stderr.write(f"{line}\n")


def _close_pipe() -> None:
    """Whoever read has gone: let the interpreter flush what is left into nothing."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
