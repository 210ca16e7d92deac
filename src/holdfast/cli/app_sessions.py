"""`holdfast sessions` and its commands: list, show, rename, tag, fork, delete (SES-1, ENG-5)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

sessions_app = typer.Typer(
    help="List, show, rename, tag, fork or delete sessions.", invoke_without_command=True, rich_markup_mode=None
)

Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")]
Session = Annotated[str, typer.Argument(metavar="SESSION", help="An id, its beginning, or a path.")]
Project = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Only the sessions of this project.")]


def add_to(app: typer.Typer) -> None:
    """Make the commands known."""
    app.add_typer(sessions_app, name="sessions")


@sessions_app.callback()
def _sessions(context: typer.Context, project: Project = None, json: Json = False) -> None:
    if context.invoked_subcommand is None:
        from holdfast.cli.sessions import list_command

        list_command(project, is_json=json)


@sessions_app.command("list")
def sessions_list(project: Project = None, json: Json = False) -> None:
    """List the sessions, last written first. Reads only the ends of their journals."""
    from holdfast.cli.sessions import list_command

    list_command(project, is_json=json)


@sessions_app.command("show")
def sessions_show(session: Session, json: Json = False) -> None:
    """Show what is known of one session."""
    from holdfast.cli.sessions import show_command

    show_command(session, is_json=json)


@sessions_app.command("rename")
def sessions_rename(
    session: Session,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="What listings call it.")],
    json: Json = False,
) -> None:
    """Give a session a title."""
    from holdfast.cli.keeping import rename_command

    rename_command(session, title, is_json=json)


@sessions_app.command("tag")
def sessions_tag(
    session: Session,
    tags: Annotated[list[str] | None, typer.Argument(metavar="[TAG...]", help="Tags to add.")] = None,
    *,
    remove: Annotated[list[str] | None, typer.Option("--remove", metavar="TAG", help="A tag to take away.")] = None,
    json: Json = False,
) -> None:
    """Add tags to a session, or take some away; without either, show them."""
    from holdfast.cli.keeping import tag_command

    tag_command(session, tags or (), remove or (), is_json=json)


@sessions_app.command("fork")
def sessions_fork(
    session: Session,
    *,
    title: Annotated[str | None, typer.Option(metavar="TITLE", help="What listings call the fork.")] = None,
    json: Json = False,
) -> None:
    """Make a new session that goes on from this one, which stays as it is."""
    from holdfast.cli.keeping import fork_command

    fork_command(session, title, is_json=json)


@sessions_app.command("delete")
def sessions_delete(
    session: Session,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    json: Json = False,
) -> None:
    """Delete a session with everything it stored, for good."""
    from holdfast.cli.sessions import delete_command

    raise typer.Exit(delete_command(session, is_sure=yes, is_json=json))
