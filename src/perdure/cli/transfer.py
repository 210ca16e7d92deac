"""`perdure import`: recorded sessions become sessions of ours (ENG-6)."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.arguments import Json, OneOfFile, configured, examples, family
from perdure.cli.loop import in_loop
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
)
from perdure.errors import BadSetting, ForeignFormat, PerdureError

if TYPE_CHECKING:
    from perdure.adapters.logs import FoundLogs
    from perdure.wiring.imports import ImportedLog, LogImports


app = family()
_SHOWN_SKIPPED = 3
_OUTCOMES = ("imported", "updated", "imported before", "without a conversation", "skipped", "failed")


@app.command(
    "import",
    epilog=examples(
        "perdure import",
        "perdure import ~/.claude/projects",
        "perdure import session.jsonl --project ~/src/api --as api",
    ),
)
def import_logs(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Logs, or folders of logs; without any, those of Claude Code and Codex."),
    ] = None,
    *,
    project: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="The project of the sessions; without it, this folder (see above)."),
    ] = None,
    name: Annotated[str | None, typer.Option("--as", metavar="ID", help="The id that the session gets.")] = None,
    which: OneOfFile = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask before importing what clients keep.")] = False,
    json: Json = False,
) -> None:
    """Turn logs of other agents into sessions.

    A session holds everything that was said, in its order; exporting an unchanged import gives the bytes of its log.
    Of several logs, each session belongs to the folder that it was recorded in. What was imported before is skipped,
    and what a log has gained since is added. Each session is listed where logs are named; of those that clients keep
    only what needs a look. The exit code is 1 when a log can't be imported.
    """

    from perdure.adapters.journal.search import StoreArchive
    from perdure.cli.opened import client_logs, named_logs
    from perdure.wiring.imports import LogImports

    config = configured()
    if files and len(files) == 1 and not files[0].is_dir():
        imports, told = LogImports(config.home, config.settings, project or Path.cwd()), partial(_show, is_json=json)
        if not in_loop(partial(imports.take, files[0], told, name=name, which=which)):
            raise ForeignFormat(f"{files[0]}: nothing that was said in it")
        return
    if name is not None or which is not None:
        raise BadSetting(f"{'--session' if name is None else '--as'} is about one log: name one file")
    found = named_logs(files) if files else client_logs()
    if not (files or yes or json) and sys.stdin.isatty():
        sys.stderr.write("Import them? They are only read. [Y/n] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("", "y", "yes"):
            raise typer.Exit(EXIT_OK)
    outcomes: Counter[str] = Counter()
    for refused in found.refused:
        outcomes["skipped"] += 1
        out_json({"file": refused.split(": ")[0], "skipped": refused}) if json else out(f"skipped: {clean(refused)}")
    started = time.monotonic()
    try:
        imports = LogImports(config.home, config.settings, project, has_many=True)
        _import_each(found, imports, outcomes, is_listing=bool(files), is_json=json)
        if outcomes["imported"] or outcomes["updated"]:
            progress = Progress()
            StoreArchive(config.home).take_in(lambda done, of: progress(done, of, "sessions indexed"))
            progress.clear()
    except KeyboardInterrupt:
        note("stopped: every session that was imported is whole, and the same command goes on with the rest")
        raise
    finally:
        _show_sums(found, outcomes, time.monotonic() - started, is_json=json)
    raise typer.Exit(EXIT_FAILED if outcomes["failed"] or outcomes["skipped"] else EXIT_OK)


def _import_each(
    found: FoundLogs, imports: LogImports, outcomes: Counter[str], *, is_listing: bool, is_json: bool
) -> None:
    """Import files, the oldest first, and say what became of each session, or of those that need a look.

    None stops the rest.
    """

    progress, done = Progress(size), 0
    for file in sorted(found.files, key=lambda file: (file.mtime_ns, file.path)):
        progress(done, found.bytes, file.path.name)
        done += file.bytes
        path, told = file.path, list(imports.unchanged(file))

        def tell(one: ImportedLog, told: list[ImportedLog] = told, name: str = path.name) -> None:
            told.append(one)
            progress.clear()
            needs_look = one.restored or one.skipped or one.session not in name  # its own id was taken
            if is_json or (one.is_new and (is_listing or needs_look)):
                _show(one, is_json=is_json)

        try:
            if told and is_json:
                for one in told:
                    _show(one, is_json=True)
            if not told and not in_loop(imports.take, path, tell):
                outcomes["without a conversation"] += 1
                _say(path, "skipped", f"{path}: nothing that was said in it", progress, is_json=is_json)
        except (PerdureError, OSError) as e:
            outcomes["failed"] += 1
            reason = str(e) if isinstance(e, PerdureError) else f"{path}: {e.strerror or e}"
            _say(path, "failed", reason, progress, is_json=is_json)
        for one in told:
            outcomes["imported before" if not one.is_new else "updated" if one.is_there else "imported"] += 1
            outcomes["messages"] += one.messages
    progress.clear()


def _say(file: Path, what: str, why: str, progress: Progress, *, is_json: bool) -> None:
    """One line on a log that gave no session."""
    progress.clear()
    out_json({"file": str(file), "error" if what == "failed" else what: why}) if is_json else out(
        f"{what}: {clean(why)}"
    )


def _show_sums(found: FoundLogs, outcomes: Counter[str], seconds: float, *, is_json: bool) -> None:
    if is_json:
        counted = {name.replace(" ", "_"): outcomes[name] for name in (*_OUTCOMES, "messages")}
        out_json({"total": {"files": len(found.files), **counted, "bytes": found.bytes, "seconds": round(seconds, 1)}})
        return
    sums = ", ".join(f"{outcomes[name]:,} {name}" for name in _OUTCOMES if outcomes[name])
    out(f"{plural(len(found.files), 'file')}: {sums}")
    if found.others:
        note(f"skipped {plural(found.others, 'JSON file')} without sessions")
    if outcomes["imported"] or outcomes["updated"]:
        said = f"{plural(outcomes['messages'], 'message')} of {size(found.bytes)} in {seconds:.0f} s"
        note(f"{said}; `perdure search --all WORDS` finds what was said")


def _show(told: ImportedLog, *, is_json: bool) -> None:
    if is_json:
        data = {field.name: getattr(told, field.name) for field in dataclasses.fields(told)}
        out_json({**data, "file": str(told.file), "skipped": list(told.skipped), "restored": list(told.restored)})
    else:
        out(clean(f"{told.session}: {_what(told)}"))
    for skipped in told.skipped[:_SHOWN_SKIPPED]:
        note(f"{told.file}: {skipped}: left out")


def _what(told: ImportedLog) -> str:
    mended = f"; {plural(len(told.restored), 'damaged line')} restored" if told.restored else ""
    log = f"{told.file} ({told.format})"
    if not told.is_there:
        return f"{plural(told.messages, 'message')} imported from {log}"
    if told.messages:
        return f"{plural(told.messages, 'new message')} added from {log}{mended}"
    return f"imported before, nothing new in {log}{mended or '; skipped'}"
