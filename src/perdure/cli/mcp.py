"""`perdure mcp`: memories, recall and search for clients of the Model Context Protocol."""

from __future__ import annotations

import gc
import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.arguments import Json, Sets, configured, examples, family
from perdure.cli.output import EXIT_OK
from perdure.errors import BadSetting

app = family()
_PROJECT = "CLAUDE_PROJECT_DIR"  # what Claude Code tells the servers that it starts


@app.command(
    epilog=examples(
        "perdure mcp",
        "perdure mcp --project ~/src/api",
    )
)
def mcp(
    *,
    project: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Its project; without it $CLAUDE_PROJECT_DIR, else this folder."),
    ] = None,
    is_all: Annotated[bool, typer.Option("--all", help="Search and recall in the sessions of all projects.")] = False,
    save_at_once: Annotated[
        bool,
        typer.Option(
            "--save-at-once",
            help="Save what the model writes without asking you; only for one that reads nothing of strangers.",
        ),
    ] = False,
    trust: Annotated[
        bool, typer.Option("--trust", help="Trust this folder for now: use the settings in its .perdure.")
    ] = False,
    sets: Sets = None,
    json: Json = False,
) -> None:
    """Run the MCP server: memory, recall and search as tools.

    It speaks over standard input and output with the client that starts it, and ends with it.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="perdure: %(message)s")
    folder = project or Path(os.environ.get(_PROJECT) or ".")
    folder = folder.expanduser().absolute()
    if not folder.is_dir():
        raise BadSetting(f"{folder}: no such folder: give the project's with --project")
    config = configured(sets or (), cwd=folder, trusts=trust)
    gc.disable()  # while thousands of classes are made, which all stay
    try:
        import anyio

        from perdure.mcp.serving import project_server, serve_stdio
    except ImportError as e:
        from perdure.adapters.extras import install

        raise BadSetting(f"`perdure mcp` needs another package ({e.name}): {install('mcp')}") from e
    gc.enable()

    offered = project_server(config, folder, is_everywhere=is_all, saves_at_once=save_at_once)
    try:
        anyio.run(serve_stdio, offered)
    except KeyboardInterrupt:
        pass
    raise typer.Exit(EXIT_OK)
