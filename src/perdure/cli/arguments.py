"""What commands are given: options that many of them have, settings, sessions by name, an editor (CLI-5, CLI-6)."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.output import cut, note, plural
from perdure.errors import BadSetting, PerdureError, SessionNotFound

if TYPE_CHECKING:
    from perdure.adapters.config import Config
    from perdure.adapters.journal import SessionStore
    from perdure.adapters.stores import StoreRoot


LAST = "@last"
STORE, TENANT = "PERDURE_STORE", "PERDURE_TENANT"
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_COMPLETED = 30  # sessions offered by a shell


@dataclass(slots=True)
class GlobalOptions:
    """The options that stand before the command."""

    debug: bool = False


def family(about: str | None = None, *lines: str) -> typer.Typer:
    """The commands of one module: what help says of them as a group, with examples."""
    return typer.Typer(
        help=about,
        epilog=examples(*lines) if lines else None,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def examples(*lines: str) -> str:
    """The last part of a help screen. Each line is a command as one would type it; a house test parses them all."""
    return "\n".join(("\b", "Examples:" if len(lines) > 1 else "Example:", *(f"  {line}" for line in lines)))


# --- settings ---------------------------------------------------------------------------------------------------------


def configured(flags: Iterable[str] = (), *, cwd: Path | None = None, trusts: bool = False) -> Config:
    """The settings that hold in a directory, by default this one; what isn't used is said on stderr (PRS-3, SEC-8)."""
    from perdure.adapters.config import load

    config = load(os.environ, cwd=cwd or Path.cwd(), flags=flags, trusts=trusts)
    if config.unapproved:
        folder, held = config.folder, ", ".join(config.unapproved)
        note(f"{folder.root}: not trusted ({folder.why}), so it isn't used: {held}; `perdure trust` trusts the folder")
    for warning in config.warnings:
        note(f"{warning.name}: {warning.reason}")
    return config


def home() -> Path:
    """Where sessions are kept, without reading any settings."""
    from perdure.adapters.config import home_of

    return home_of(os.environ)


def moment_since(text: str) -> float:
    """The time that a person names: `2d` (also s, m, h, w) is so long ago, `2026-11-20` or `2026-11-20T18:00` that day.

    Raises:
        BadSetting: Neither.
    """
    ago = re.fullmatch(r"(\d+)\s*([smhdw])", text.strip())
    if ago:
        return time.time() - int(ago[1]) * _SECONDS[ago[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise BadSetting(f"--since {text}: give an age such as 90m, 2d or 1w, or a date such as 2026-11-20") from None


def matching(pattern: str | None) -> Callable[[str], bool]:
    """Whether a text holds what `--grep` asks for, in any case; without a pattern every text does.

    Raises:
        BadSetting: Not a regular expression.
    """
    if pattern is None:
        return lambda text: True
    try:
        found = re.compile(pattern, re.IGNORECASE)
    except re.error as e:
        raise BadSetting(f"--grep {pattern}: not a regular expression: {e}") from None
    return lambda text: found.search(text) is not None


# --- sessions by name -------------------------------------------------------------------------------------------------


def located(text: str, place: Path | None = None) -> Path:
    """The directory of the session that a person named.

    By path, by id or a part of it, as `@last` (the last session of this folder), or as `@2`, by its number in the list
    that `sessions` prints.

    Raises:
        SessionNotFound: None has this name, or several have it.
    """
    from perdure.adapters.journal import SessionStore

    store = SessionStore(place or home())
    if text == LAST:
        return last_session(store, Path.cwd())
    if re.fullmatch(r"@\d+", text):
        found, number = store.newest(), int(text[1:])
        if not 1 <= number <= len(found):
            raise SessionNotFound(f"{text}: {plural(len(found), 'session')} kept here; `perdure sessions` numbers them")
        return found[number - 1]
    path = Path(text)
    return store.locate(path if path.exists() else text)


def last_session(store: SessionStore, project: Path) -> Path:
    """The session of a project that was written last. Raises `SessionNotFound` when it has none."""
    found = store.newest(project)
    if not found:
        raise SessionNotFound(f"{project}: no session in this folder yet; `perdure sessions` lists all there are")
    return found[0]


def beside_home(config: Config) -> tuple[StoreRoot, ...]:
    """Where Perdure writes beside its home."""
    from perdure.adapters.stores import logs_of, roots_beside

    logs = logs_of(config.settings.events, config.gateway.get("access_log"))
    return roots_beside(config.home, os.environ, logs)


def short_name(directory: Path) -> str:
    """A part of a session's id that is enough to name it here."""
    from perdure.adapters.journal import SessionStore

    return SessionStore(home()).short_name(directory)


# --- what a shell completes -------------------------------------------------------------------------------------------


def complete_sessions(incomplete: str) -> list[tuple[str, str]]:
    """Sessions, the newest first, by the shortest name that does, with what they are about."""
    from perdure.adapters.journal import JOURNAL, SessionStore, short_ids
    from perdure.adapters.journal.store import describe

    if "://" in os.environ.get(STORE, ""):
        return []  # nobody waits for a database at a key
    store = SessionStore(home())
    newest = store.newest()
    shown = newest[:_COMPLETED]
    short = short_ids((one.name for one in newest), only=[one.name for one in shown])
    seen = {one: describe(one / JOURNAL) for one in shown}
    about = {one: info.title or info.last_prompt or "" for one, info in seen.items()}
    found = [(LAST, "the last session of this folder")]
    found += [(short[one.name], cut(about[one], 60)) for one in shown]
    found += [(one.name, cut(about[one], 60)) for one in shown if len(incomplete) > len(short[one.name])]
    return [(name, what) for name, what in found if name.startswith(incomplete)]


def complete_settings(incomplete: str) -> list[tuple[str, str]]:
    from perdure.settings import DESCRIPTIONS

    every = (pair for group in DESCRIPTIONS.values() for pair in group.items())
    return [(name, what) for name, what in every if name.startswith(incomplete)]


def complete_assignments(incomplete: str) -> list[str]:
    return [f"{name}=" for name, _ in complete_settings(incomplete)]


def complete_models(incomplete: str) -> list[str]:
    """Models of the table by their providers, and those that the settings name."""
    from perdure.adapters.providers.connect import OFFLINE
    from perdure.context.models import TABLE

    try:
        settings = configured().settings
        own = [*settings.main_models, *settings.summarizer_models, *settings.notes_models]
    except PerdureError:
        own = []
    known = [f"{one.provider}:{one.prefix.rstrip('-')}" for one in TABLE]
    return [name for name in dict.fromkeys((*own, *known, OFFLINE)) if name.startswith(incomplete)]


def complete_model_ids(incomplete: str) -> list[str]:
    """Models by their ids alone, as a log names them."""
    from perdure.context.models import TABLE

    known = dict.fromkeys(one.prefix.rstrip("-") for one in TABLE)
    return [name for name in known if name.startswith(incomplete)]


# --- options of many commands -----------------------------------------------------------------------------------------

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Change a setting for now; may be repeated.",
        autocompletion=complete_assignments,
    ),
]
SESSION_HELP = "The id of a session or a part of it, @last, @2 (by its number in the list), or a path."
SessionName = Annotated[str, typer.Argument(metavar="SESSION", help=SESSION_HELP, autocompletion=complete_sessions)]
Reference = Annotated[
    str, typer.Argument(metavar="FILE|SESSION", help="A log, a journal or a session.", autocompletion=complete_sessions)
]
OneOfFile = Annotated[
    str | None, typer.Option("--session", metavar="ID", help="Which session, where a file holds several.")
]
Output = Annotated[Path, typer.Option("--out", "-o", metavar="OUT", help="The file to write; - for stdout.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite a file that exists.")]


# --- an editor --------------------------------------------------------------------------------------------------------


def open_editor(path: Path) -> None:
    """Have a person edit a file in $VISUAL or $EDITOR; on a terminal, in vi without them.

    Raises:
        BadSetting: There is no such editor.
        PerdureError: It said that it failed.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor and (sys.stdin is None or not sys.stdin.isatty()):
        raise BadSetting("no editor: set EDITOR")
    editor = editor or "vi"
    try:
        code = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    except (OSError, ValueError) as e:
        raise BadSetting(f"{editor}: {e}: the editor can't be run; set EDITOR") from e
    if code != 0:
        raise PerdureError(f"{editor}: ended with {code}; nothing was saved")
