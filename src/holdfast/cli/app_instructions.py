"""The command about instruction files: what loads, from where and why, and approvals (INS-3, INS-5)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.door import configured


def add_to(parent: typer.Typer) -> None:
    """Put this command behind the others."""
    parent.command()(instructions)


def instructions(
    touch: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH...]", help="What loads as well once a tool touches these.")
    ] = None,
    *,
    cwd: Annotated[Path | None, typer.Option(metavar="FOLDER", help="The working directory; else this one.")] = None,
    approve: Annotated[
        list[str] | None, typer.Option("--approve", metavar="PATH", help="Let this project import it; may be repeated.")
    ] = None,
    revoke: Annotated[
        list[str] | None, typer.Option("--revoke", metavar="PATH", help="Take an approval back; may be repeated.")
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting; may be repeated.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Show which instruction files load here, from where and why.

    CLAUDE.md, its rules and imports, with their tokens, and what was excluded, cut, or waits for approval.
    """
    from holdfast.cli.instructing import approvals_command, instructions_command

    folder = (cwd or Path.cwd()).absolute()
    config = configured(sets or (), cwd=folder)
    if approve or revoke:
        approvals_command(config, folder, approve or [], revoke or [], is_json=json)
    else:
        instructions_command(config, folder, touch or [], is_json=json)
