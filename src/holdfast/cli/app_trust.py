"""The command about trust in folders (SEC-8)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.errors import BadSetting


def add_to(parent: typer.Typer) -> None:
    """Put this command behind the others."""
    parent.command()(trust)


def trust(
    folder: Annotated[Path | None, typer.Argument(metavar="[FOLDER]", help="Which one; else this one.")] = None,
    *,
    remove: Annotated[bool, typer.Option("--remove", help="Take back what was said about it.")] = False,
    is_list: Annotated[bool, typer.Option("--list", help="Show every folder that was answered for.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Trust a folder: its settings, skills, agents and hooks are used from now on.

    It holds for the whole repository, with its work trees. Before, nothing of a folder is used but its instruction
    files, as text. What a folder runs is shown, and holds as it is now: when it changes, it waits for you again.
    """
    from holdfast.cli.trusting import list_command, remove_command, trust_command

    if is_list and (remove or folder is not None):
        raise BadSetting("--list: goes alone")
    place = (folder or Path.cwd()).absolute()
    if is_list:
        code = list_command(is_json=json)
    elif remove:
        code = remove_command(place, is_json=json)
    elif not place.is_dir():
        raise BadSetting(f"{place}: no such folder")
    else:
        code = trust_command(place, is_json=json)
    raise typer.Exit(code)
