"""`perdure mcp`: memories, recall and search for clients of the Model Context Protocol."""

from __future__ import annotations

import gc
import logging
import os
import re
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from perdure.adapters.machine.system import NO_SIGNALS, needs_unix
from perdure.cli.arguments import Sets, configured, examples, family
from perdure.cli.output import EXIT_OK, note_if_typed, out, out_json
from perdure.errors import BadSetting

app = family()
_PROJECT = "CLAUDE_PROJECT_DIR"  # what Claude Code tells the servers that it starts
_TOKEN = "PERDURE_MCP_TOKEN"
_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^\s:\[\]]+)):(\d{1,5})")


@app.command(
    epilog=examples(
        "perdure mcp",
        "perdure mcp --project ~/src/api --logs",
        "perdure mcp --http 127.0.0.1:8788",
    )
)
def mcp(
    *,
    project: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Its project; without it $CLAUDE_PROJECT_DIR, else this folder."),
    ] = None,
    is_all: Annotated[bool, typer.Option("--all", help="Search and recall in the sessions of all projects.")] = False,
    logs: Annotated[
        bool,
        typer.Option("--logs", help="Search and recall in Claude Code's and Codex's own logs of the project, too."),
    ] = False,
    save_at_once: Annotated[
        bool,
        typer.Option(
            "--save-at-once",
            help="Save what the model writes without asking you; only for one that reads nothing of strangers.",
        ),
    ] = False,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve any number of clients over HTTP, at /mcp.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="With --http: a name by which clients reach it; may be repeated."),
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Trust this folder for now: use the settings in its .perdure.")
    ] = False,
    sets: Sets = None,
    json: Annotated[
        bool, typer.Option("--json", help="With --http: say as JSON, for programs, where it listens.")
    ] = False,
) -> None:
    """Run the MCP server: memory, recall and search as tools.

    Over standard input and output it speaks with the client that starts it, and ends with it. With --http, clients have
    to send the token in $PERDURE_MCP_TOKEN as their bearer token, if it is set; on an address that other machines
    reach, it has to be.
    """
    needs_unix("perdure mcp", NO_SIGNALS)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="perdure: %(message)s")
    folder = (project or Path(os.environ.get(_PROJECT) or ".")).expanduser().absolute()
    if not folder.is_dir():
        raise BadSetting(f"{folder}: no such folder: give the project's with --project")
    if http is None and (allow_host or json):
        raise BadSetting(f"{'--allow-host' if allow_host else '--json'} goes with --http")
    address = None if http is None else _address(http)
    config = configured(sets or (), cwd=folder, trusts=trust)
    gc.disable()  # while thousands of classes are made, which all stay
    try:
        import anyio

        from perdure.mcp.serving import project_server, serve_http, serve_stdio
    except ImportError as e:
        from perdure.adapters.extras import install

        raise BadSetting(f"`perdure mcp` needs another package ({e.name}): {install('mcp')}") from e
    gc.enable()
    logs_of = os.environ if logs else None
    offered = project_server(config, folder, is_everywhere=is_all, saves_at_once=save_at_once, logs_of=logs_of)
    serve = partial(serve_stdio, offered, on_ready=partial(note_if_typed, "a client such as Claude Code"))
    if address is not None:
        token, on_ready = _token(*address), partial(_say_ready, is_json=json)
        serve = partial(
            serve_http, offered, *address, token=token, allowed_hosts=tuple(allow_host or ()), on_ready=on_ready
        )
    try:
        anyio.run(serve)
    except KeyboardInterrupt:
        pass
    raise typer.Exit(EXIT_OK)


def _address(text: str) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[3]) > 65_535:
        raise BadSetting(f"--http {text}: write it as HOST:PORT, such as 127.0.0.1:8788; port 0 takes a free one")
    return found[1] or found[2], int(found[3])


def _token(host: str, port: int) -> str | None:
    """What clients have to send. Raises `BadSetting` where other machines could do without."""
    from perdure.adapters.listening import names_this_machine

    token = os.environ.get(_TOKEN, "").strip() or None
    if token is None and not names_this_machine(f"[{host}]" if ":" in host else host):
        raise BadSetting(f"--http {host}:{port}: other machines could ask there, so set {_TOKEN} to a token")
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
        raise BadSetting(f"{_TOKEN}: a token has to be of printable ASCII characters, without spaces")
    return token


def _say_ready(url: str, *, is_json: bool) -> None:
    if is_json:
        out_json({"event": "ready", "url": url})
    else:
        out(f"Perdure's MCP server listens on {url}")
    sys.stdout.flush()
