"""The commands about memories: to find and read them, and to change them by hand (MEM-4, MEM-7, MEM-8)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.door import configured
from holdfast.errors import BadSetting

if TYPE_CHECKING:
    from holdfast.cli.writing import Place

Json = Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")]
Directory = Annotated[
    Path | None, typer.Option("--dir", metavar="DIR", help="This directory; without it that of the project.")
]
User = Annotated[bool, typer.Option("--user", help="The user's own directory, for all projects.")]

app = typer.Typer(
    help="Find, read, write and check memories.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


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
def add(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What is to be remembered; - for standard input.")],
    *,
    name: Annotated[str | None, typer.Option(metavar="TITLE", help="Its title; without it the first sentence.")] = None,
    kind: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="user, feedback, project or reference.")
    ] = None,
    about: Annotated[str | None, typer.Option(metavar="LINE", help="What it is about; stands in the index.")] = None,
    file: Annotated[str | None, typer.Option(metavar="NAME", help="Its file, such as team/build.md.")] = None,
    directory: Directory = None,
    user: User = False,
    json: Json = False,
) -> None:
    """Save a memory, with its line in the index."""
    from holdfast.cli.writing import New, add_command

    raise typer.Exit(add_command(New(text, name, kind, about, file), _place(directory, user, json)))


@app.command()
def edit(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A memory, or MEMORY.md.")],
    *,
    directory: Directory = None,
    user: User = False,
    json: Json = False,
) -> None:
    """Open a memory in your editor ($VISUAL, $EDITOR); what others change meanwhile is merged or kept beside."""
    from holdfast.cli.writing import edit_command

    raise typer.Exit(edit_command(file, _place(directory, user, json)))


@app.command()
def rm(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A memory, as ls names it.")],
    *,
    directory: Directory = None,
    user: User = False,
    json: Json = False,
) -> None:
    """Remove a memory and its line in the index; undo brings both back."""
    from holdfast.cli.writing import rm_command

    raise typer.Exit(rm_command(file, _place(directory, user, json)))


@app.command()
def review(
    *,
    approve: Annotated[list[str] | None, typer.Option(metavar="ID", help="Make this change; may be repeated.")] = None,
    reject: Annotated[list[str] | None, typer.Option(metavar="ID", help="Drop this change; may be repeated.")] = None,
    approve_all: Annotated[bool, typer.Option("--approve-all", help="Make all that isn't rejected.")] = False,
    reject_all: Annotated[bool, typer.Option("--reject-all", help="Drop all that isn't approved.")] = False,
    directory: Directory = None,
    user: User = False,
    json: Json = False,
) -> None:
    """Show the changes that wait for you as diffs, and decide; on a terminal it asks for each."""
    from holdfast.cli.writing import Decisions, review_command

    if approve_all and reject_all:
        raise BadSetting("--approve-all: goes without --reject-all")
    every = "approve" if approve_all else "reject" if reject_all else ""
    decisions = Decisions(approve or (), reject or (), every)
    raise typer.Exit(review_command(decisions, _place(directory, user, json)))


@app.command()
def undo(
    entry: Annotated[str | None, typer.Argument(metavar="ID", help="A change, as log names it; else the last.")] = None,
    *,
    directory: Directory = None,
    user: User = False,
    json: Json = False,
) -> None:
    """Take back the last thing that was done to the memory, or one change. An undo can be undone by its id."""
    from holdfast.cli.writing import undo_command

    raise typer.Exit(undo_command(entry, _place(directory, user, json)))


@app.command()
def log(
    file: Annotated[str | None, typer.Argument(metavar="FILE", help="Of this memory only.")] = None,
    *,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="At most so many.")] = 20,
    directory: Directory = None,
    user: User = False,
    json: Json = False,
) -> None:
    """Print the last changes: when, what, and on whose word."""
    from holdfast.cli.writing import log_command

    raise typer.Exit(log_command(file, limit, _place(directory, user, json)))


def _place(directory: Path | None, is_user: bool, is_json: bool) -> Place:
    from holdfast.cli.writing import Place

    return Place(configured(), directory, is_user, is_json)


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
