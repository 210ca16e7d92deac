"""What commands are given: options that many of them have, settings, sessions by name, an editor (CLI-5, CLI-6)."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.output import note
from perdure.errors import BadSetting, PerdureError

if TYPE_CHECKING:
    from perdure.adapters.config import Config


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


def install(extra: str) -> str:
    """The command that installs an optional part of this very program, whatever it is called where it came from."""
    from importlib.metadata import packages_distributions

    package = __name__.partition(".")[0]
    name = next(iter(packages_distributions().get(package, ())), package)
    return f"pip install '{name}[{extra}]'"


# --- sessions by name -------------------------------------------------------------------------------------------------


def located(text: str, place: Path | None = None) -> Path:
    """The directory of the session that a person named: by path, id, or the beginning of an id.

    Raises:
        SessionNotFound: None has this name, or several have it.
    """

    from perdure.adapters.journal import SessionStore

    path = Path(text)
    return SessionStore(place or home()).locate(path if path.exists() else text)


# --- options of many commands -----------------------------------------------------------------------------------------

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Change a setting for now; may be repeated.")
]
SessionName = Annotated[str, typer.Argument(metavar="SESSION", help="The id of a session, a part of it, or a path.")]
Reference = Annotated[str, typer.Argument(metavar="FILE|SESSION", help="A log, a journal, or the id of a session.")]
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
