"""`perdure setup`: a client's configuration for the gateway or with the plugin, tried, and taken back (PLG-1)."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.adapters.machine.system import NO_PLUGIN, needs_unix
from perdure.cli.arguments import Json, examples, family, home
from perdure.cli.output import clean, note, out, out_json
from perdure.errors import BadSetting

if TYPE_CHECKING:
    from perdure.plugin.setup import SetupResult

app = family()
_URL = "http://127.0.0.1:8787"


@app.command(
    epilog=examples(
        "perdure setup claude-code",
        "perdure setup codex --gateway",
        "perdure setup claude-code --remove",
    )
)
def setup(
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="claude-code, codex or opencode.")],
    *,
    plugin: Annotated[
        bool, typer.Option("--plugin", help="Install the plugin; the default, where there is one.")
    ] = False,
    gateway: Annotated[bool, typer.Option("--gateway", help="Send its requests through the gateway.")] = False,
    url: Annotated[str, typer.Option(metavar="URL", help="Where the gateway listens.")] = _URL,
    remove: Annotated[bool, typer.Option("--remove", help="Take the set-up back.")] = False,
    program: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The client itself, where it isn't on PATH.")
    ] = None,
    json: Json = False,
) -> None:
    """Set up a coding agent, try it, or take it back.

    The client's own configuration is changed, and nothing else in it. `--remove` gives the file its bytes back; if you
    have edited it since, your edits stay.
    """
    needs_unix("perdure setup", NO_PLUGIN)
    from perdure.plugin.setup import BY_HAND, CLIENTS, ClientSetup

    if client in BY_HAND:
        typed = BY_HAND[client].format(url=url.rstrip("/"))
        raise BadSetting(f"{client}: there is no set-up for it; to have it use the gateway, type `{typed}`")
    if client not in CLIENTS:
        raise BadSetting(f"{client}: there is no set-up for it, only for {', '.join(CLIENTS)}")
    if sum((plugin, gateway, remove)) > 1:
        raise BadSetting("say one of the three: --plugin, --gateway or --remove")
    kind = CLIENTS[client]
    how = "gateway" if gateway else "plugin" if plugin else kind.ways[0]
    if url != _URL and (remove or how != "gateway"):
        raise BadSetting("--url goes with --gateway")
    one = ClientSetup(kind, home(), os.environ, str(program.expanduser().absolute()) if program else "")
    if remove:
        done = one.take_back()
    else:
        done = one.set_up(how, url.rstrip("/"))
    _show(done, is_json=json, is_removed=remove)


def _show(done: SetupResult, *, is_json: bool, is_removed: bool) -> None:
    if is_json:
        out_json({**asdict(done), "is_removed": is_removed})
        return
    what = "with the plugin" if done.how == "plugin" else "for the gateway"
    if is_removed:
        out(clean(f"{done.client} is no longer set up {what}: {done.file}"))
    elif done.is_changed:
        out(clean(f"{done.client} is set up {what}, and it works: {done.file}"))
    else:
        out(clean(f"{done.client} was set up {what} before, and it works; nothing was changed"))
    for line in done.notes:
        note(line)
