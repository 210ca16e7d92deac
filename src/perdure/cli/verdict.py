"""`perdure verdict`: what somebody's own sessions cost, and what Perdure would have changed about them (CLI-2)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.arguments import Json, Sets, configured, examples, family
from perdure.cli.output import (
    EXIT_FAILED,
    EXIT_OK,
    Progress,
    clean,
    note,
    out,
    out_json,
    plural,
    size,
    table,
    tokens,
    usd,
)
from perdure.cli.replay import show_facts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.adapters.config import Config
    from perdure.adapters.logs import LogFile

app = family()
_SECONDS = 60.0


@app.command(
    epilog=examples(
        "perdure verdict",
        "perdure verdict ~/.claude/projects/-src-shop",
        "perdure verdict --seconds 600 --json",
    )
)
def verdict(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Logs, or folders of logs; without any, those of Claude Code and Codex."),
    ] = None,
    *,
    seconds: Annotated[
        float, typer.Option(min=0.1, metavar="N", help="About how long it may take; more time covers more of the logs.")
    ] = _SECONDS,
    sets: Sets = None,
    json: Json = False,
) -> None:
    """Show what your sessions cost, and what would have changed.

    Reads all logs, and replays as many as the time allows, the most expensive first. Says what was paid, what the same
    calls cost with Perdure and what if nothing ever left the context, what compactions kept, and what can be found.
    Nothing is written, no model is called, and nothing leaves this machine.
    """
    from perdure.cli.opened import client_logs, named_logs
    from perdure.lab.replay.drive import ReplayOptions
    from perdure.lab.replay.verdict import replay_sample, survey_logs, verdict_of_sample

    config = configured(sets or ())
    logs = named_logs(files) if files else client_logs()
    options = ReplayOptions(settings=config.settings, models=config.models)
    reading, progress, began = Progress(size), Progress(), time.monotonic()
    survey = survey_logs(logs.files, options, reading)
    reading.clear()
    left = max(seconds / 4, seconds - (time.monotonic() - began))
    sample = replay_sample(survey.logs, options, left, progress)
    progress.clear()
    with_sessions = {log.file for log in survey.logs}
    found = {
        **verdict_of_sample(survey, sample),
        "files": len(with_sessions),
        "imported": _imported(with_sessions, config),
        "seconds": round(time.monotonic() - began, 1),
    }
    if json:
        out_json({"verdict": found})
    elif survey.logs:
        _show(found)
    failed = [*logs.refused, *survey.failed, *sample.failed]
    for why in failed:
        note(f"left out: {clean(why)}")
    raise typer.Exit(EXIT_FAILED if failed else EXIT_OK)


def _imported(files: Iterable[LogFile], config: Config) -> int:
    """How many of the files are sessions here already, as they are now."""
    from perdure.wiring.imports import LogImports

    imports = LogImports(config.home, config.settings, has_many=True)
    return sum(bool(imports.unchanged(file)) for file in files)


def _show(found: dict[str, Any]) -> None:
    more = f"{found['repeated']:,} more repeat{'s' if found['repeated'] == 1 else ''} a newer one"
    again = f" ({more})" if found["repeated"] else ""
    out(
        f"{plural(found['sessions'], 'session')}{again}, {size(found['bytes'])}, {plural(found['calls'], 'model call')}"
    )
    unpriced = found["sessions"] - found["priced_sessions"]
    isnt = "isn't" if unpriced == 1 else "aren't"
    why = "no usage in the log, or no known price of the model"
    without = f"; {plural(unpriced, 'session')} {isnt} in it: {why}" if unpriced else ""
    out(f"paid: {usd(found['paid_usd'])} at list prices{without}")
    _show_replayed(found, found["replayed"])
    show_facts(found["facts"])
    if found["left_messages"]:
        out(
            f"out of the window: {plural(found['left_messages'], 'message')} "
            f"({tokens(found['left_tokens'])} tokens) in {plural(found['logged_compactions'], 'compaction')}"
        )
    _show_findable(found["imported"], found["files"])


def _show_replayed(found: dict[str, Any], replayed: dict[str, Any] | None) -> None:
    if replayed is None:
        out("no comparison of prices: none of these logs says what its calls took, of a model with a known price")
        return
    which = "all of it"
    if replayed["is_cut"] or replayed["sessions"] < found["priced_sessions"]:
        share = 100 * replayed["paid_usd"] / found["paid_usd"] if found["paid_usd"] else 0
        part = ", the last in part" if replayed["is_cut"] else ""
        which = f"what cost most ({plural(replayed['sessions'], 'session')}{part}): {share:.0f}% of what was paid"
    out(f"\nreplayed in {found['seconds']:.0f} s: {which}")
    less = _change(replayed["paid_usd"], replayed["ours_usd"])
    nothing = _change(replayed["paid_usd"], replayed["unmanaged_usd"])
    beyond = replayed["unmanaged_beyond_window"]
    over = f"{plural(beyond, 'call')} of {replayed['calls']:,} would not have fit the window" if beyond else ""
    rows: list[tuple[str, str, str, int | None, str]] = [
        ("as it was", usd(replayed["paid_usd"]), "", replayed["logged_compactions"], ""),
        ("with Perdure", usd(replayed["ours_usd"]), less, replayed["compactions"], ""),
        ("keeping it all", usd(replayed["unmanaged_usd"]), nothing, None, over),
    ]
    table(("", "cost", "change", "compactions", ""), rows, indent="  ", numbers=("cost", "change"))
    out()


def _change(paid: float, other: float) -> str:
    change = round(100 * (other - paid) / paid) if paid else 0
    return f"{change:+}%" if change else ""


def _show_findable(imported: int, files: int) -> None:
    """What can be found again as things are, and the next thing to do."""
    if imported < files:
        none = "nothing of it yet" if not imported else f"{imported:,} of {files:,} files are imported"
        out(f"findable now: {none}; `perdure import` makes every word of them findable")
    else:
        out("findable now: all of it, with `perdure search --all WORDS` and `perdure recall SESSION ID`")
