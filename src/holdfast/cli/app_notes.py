"""The commands about the notes of a session: show, edit, path (SM-10), spend (SM-9)."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.door import configured

Json = Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")]
Session = Annotated[str, typer.Argument(metavar="SESSION", help="An id, its beginning, or a path.")]

app = typer.Typer(help="Show, edit or find the notes kept of a session.", no_args_is_help=True, rich_markup_mode=None)


def add_to(parent: typer.Typer) -> None:
    """Put these commands behind the others."""
    parent.add_typer(app, name="notes")


@app.command()
def show(
    session: Session,
    *,
    sizes: Annotated[bool, typer.Option("--sizes", help="Only what each section takes.")] = False,
    json: Json = False,
) -> None:
    """Show the notes as they are now."""
    from holdfast.cli.noting import show_command

    raise typer.Exit(show_command(session, configured(), is_sizes=sizes, is_json=json))


@app.command()
def edit(session: Session) -> None:
    """Open the notes in $EDITOR.

    What you write stays; the next update starts from it. The session may run meanwhile.
    """
    from holdfast.cli.noting import edit_command

    raise typer.Exit(edit_command(session, configured()))


@app.command()
def path(session: Session, *, json: Json = False) -> None:
    """Print where the notes are, or will be."""
    from holdfast.cli.noting import path_command

    path_command(session, configured(), is_json=json)


@app.command()
def spend(session: Session, *, json: Json = False) -> None:
    """Tell what the models in the background cost.

    From the journal, so also what earlier processes spent. Code spends nothing.
    """
    from holdfast.cli.spending import spend_command

    spend_command(session, configured(), is_json=json)
