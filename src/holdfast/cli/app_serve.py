"""The command that stands between clients and their model server."""

from __future__ import annotations

from typing import Annotated

import typer

Sets = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting; may be repeated.")]
Host = Annotated[str | None, typer.Option(metavar="HOST", help="Listen here instead of where the configuration says.")]
Port = Annotated[int | None, typer.Option(metavar="PORT", min=0, max=65_535, help="0 takes a free one.")]
Trust = Annotated[
    bool, typer.Option("--trust", help="Trust this folder this time: the settings in its .holdfast are used.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line, for programs.")]
Events = Annotated[str | None, typer.Option(metavar="FILE", help="Append every event to this file, as JSON lines.")]


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(serve)


def serve(
    host: Host = None,
    port: Port = None,
    trust: Trust = False,
    sets: Sets = None,
    events: Events = None,
    json: Json = False,
) -> None:
    """Run the gateway: any client, endless sessions.

    Point a client's base URL at it. Upstreams, tenants and limits stand under [gateway] in the user's configuration,
    which is read again on SIGHUP.
    """
    from holdfast.cli.serving import serve_command

    raise typer.Exit(serve_command(sets or (), host=host, port=port, trusts=trust, events=events, is_json=json))
