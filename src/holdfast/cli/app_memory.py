"""The commands about memories: search, ls, show, doctor (MEM-4, MEM-7)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.door import configured

Json = Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")]
Directory = Annotated[
    Path | None, typer.Option("--dir", metavar="DIR", help="This directory; without it that of the project.")
]
User = Annotated[bool, typer.Option("--user", help="The user's own directory, for all projects.")]

app = typer.Typer(help="Find, list, read and check memories.", no_args_is_help=True, rich_markup_mode=None)


def add_to(parent: typer.Typer) -> None:
    """Put these commands behind the others."""
    parent.add_typer(app, name="memory")


@app.command()
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What you want to know, in your own words.")],
    *,
    directory: Directory = None,
    user: User = False,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")] = 5,
    json: Json = False,
) -> None:
    """Find the memories that matter to a question.

    Any directory of Markdown files will do; nothing is written into it.
    """
    from holdfast.cli.remembering import search_command

    search_command(query, configured(), directory=directory, is_user=user, limit=limit, is_json=json)


@app.command("ls")
def ls(*, directory: Directory = None, user: User = False, json: Json = False) -> None:
    """List the memories, newest first."""
    from holdfast.cli.remembering import list_command

    list_command(configured(), directory=directory, is_user=user, is_json=json)


@app.command()
def show(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A memory, as ls names it, or the beginning of that.")],
    *,
    directory: Directory = None,
    user: User = False,
    json: Json = False,
) -> None:
    """Print a memory: what it is about, and what it says."""
    from holdfast.cli.remembering import show_command

    raise typer.Exit(show_command(file, configured(), directory=directory, is_user=user, is_json=json))


@app.command()
def doctor(*, directory: Directory = None, user: User = False, json: Json = False) -> None:
    """Name everything that is wrong with a directory of memories.

    The exit code is 1 when there is something that keeps a memory from being found or read.
    """
    from holdfast.cli.remembering import doctor_command

    raise typer.Exit(doctor_command(configured(), directory=directory, is_user=user, is_json=json))


@app.command()
def consolidate(
    *,
    directory: Directory = None,
    user: User = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and write nothing.")] = False,
    json: Json = False,
) -> None:
    """Put the memories in order: duplicates, relative dates, the index.

    With a model for the job extractor, also texts that contradict one another. All of it is one change, and one undo
    takes it back.
    """
    from holdfast.cli.consolidating import consolidate_command

    code = consolidate_command(configured(), directory=directory, is_user=user, dry_run=dry_run, is_json=json)
    raise typer.Exit(code)
