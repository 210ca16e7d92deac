"""`perdure plugin`: the folder that clients install, and the record of a log as its hooks give it (PLG-1)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from perdure.adapters.machine.system import NO_PLUGIN, needs_unix
from perdure.cli.arguments import Json, examples, family
from perdure.cli.output import out, out_json, plural
from perdure.errors import BadSetting, ForeignFormat, SessionNotFound

app = family(
    "Build the plugin for Claude Code and Codex.",
    "perdure plugin build ~/perdure-plugin",
    "perdure plugin record ~/.claude/projects/-srv-app/0b1c2d.jsonl",
)


@app.command(epilog=examples("perdure plugin build ~/perdure-plugin"))
def build(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to; what isn't the plugin's stays.")],
    *,
    parts: Annotated[
        int, typer.Option(metavar="N", min=1, max=6, help="How long the record may be: N times 9,900 characters.")
    ] = 2,
    json: Json = False,
) -> None:
    """Build the folder that plugin commands install.

    Claude Code installs it with `claude plugin install perdure --marketplace FOLDER`, Codex with `codex plugin
    marketplace add FOLDER` and `codex plugin add perdure@perdure`. `perdure setup` does all of it in one step.
    """
    needs_unix("perdure plugin build", NO_PLUGIN)
    from perdure.plugin.build import SELECTOR, build_plugin

    folder = folder.expanduser().absolute()
    written = build_plugin(folder, parts)
    if json:
        out_json({"folder": str(folder), "plugin": SELECTOR, "written": written})
    else:
        out(f"{folder}: {plural(len(written), 'file')} written" if written else f"{folder}: built before, as it is now")


@app.command(epilog=examples("perdure plugin record ~/.claude/projects/-srv-app/0b1c2d.jsonl --tokens 10k"))
def record(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="A log of Claude Code or Codex.")],
    *,
    tokens: Annotated[
        str | None, typer.Option(metavar="N", help="The most that it may have; without it, as much as the plugin's.")
    ] = None,
    json: Json = False,
) -> None:
    """Print the record of a whole log.

    It is what the plugin gives the model after a compaction, of a log that was read from its beginning, however long
    that is. Nothing is changed.
    """
    from perdure.adapters.config import UnusableValue, parse_setting
    from perdure.adapters.stores import DRAFTS
    from perdure.compaction.parts import PARTS, tokens_of
    from perdure.plugin.carried import open_carried
    from perdure.plugin.record import record as record_of

    try:
        budget = tokens_of(PARTS) if tokens is None else int(parse_setting("summary_budget_tokens", tokens, 0))
    except UnusableValue as e:
        raise BadSetting(f"--tokens {tokens}: {e}") from None
    log = log.expanduser().absolute()
    if not log.is_file():
        raise SessionNotFound(f"{log}: there is no such log")
    with tempfile.TemporaryDirectory(prefix=DRAFTS) as folder, open_carried(folder, str(log)) as carried:
        carried.read_on()
        text = record_of(carried, budget)
        head = carried.head
    if not text:
        raise ForeignFormat(f"{log}: nothing that was said in it")
    if json:
        out_json({"log": str(log), "client": head.client, "compactions": head.boundaries, "record": text})
    else:
        out(text)
