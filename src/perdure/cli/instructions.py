"""`perdure instructions`: which files load, from where, why, and how large they are (INS-5); approvals (INS-3)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.cli.arguments import Json, Sets, configured, examples, family
from perdure.cli.output import Cell, clean, out, out_json, plural, table
from perdure.errors import BadSetting

if TYPE_CHECKING:
    from perdure.adapters.config import Config
    from perdure.memory.instructions import FittedFile, Instruction, SkippedFile


app = family()
_CODES = {
    "excluded": "excluded",
    "not_approved": "not approved",
    "unreadable": "unreadable",
    "same": "same content",
    "cycle": "import cycle",
    "depth": "too many hops",
    "waits": "waits for",
    "missing": "not there",
    "many": "too many files",
}


@app.command(
    epilog=examples(
        "perdure instructions", "perdure instructions src/api/main.py", "perdure instructions --approve ~/rules.md"
    )
)
def instructions(
    touch: Annotated[
        list[str] | None, typer.Argument(metavar="PATH", help="Also show what loads once a tool touches these.")
    ] = None,
    *,
    cwd: Annotated[Path | None, typer.Option(metavar="FOLDER", help="The working directory; else this one.")] = None,
    approve: Annotated[
        list[str] | None, typer.Option("--approve", metavar="PATH", help="Let this project import it; may be repeated.")
    ] = None,
    revoke: Annotated[
        list[str] | None, typer.Option("--revoke", metavar="PATH", help="Take an approval back; may be repeated.")
    ] = None,
    sets: Sets = None,
    json: Json = False,
) -> None:
    """Show which instruction files load here, and why.

    CLAUDE.md with its rules and imports: the tokens of each, and what was left out, cut, or waits for your approval.
    """
    from perdure.adapters.memory.instructions import DiskReader, places_of
    from perdure.memory.instructions import LoadedInstructions, fit_files, load_at_start, load_for_paths

    folder = (cwd or Path.cwd()).absolute()
    config = configured(sets or (), cwd=folder)
    if approve or revoke:
        _approvals(config, folder, approve or [], revoke or [], is_json=json)
        return
    if not folder.is_dir():
        raise BadSetting(f"{folder}: no such folder")
    places = places_of(config.settings, os.environ, cwd=folder, home=config.home, is_trusted=config.folder.is_trusted)
    reader = DiskReader()
    start = load_at_start(places, reader)
    nested = load_for_paths(places, reader, touch) if touch else LoadedInstructions()
    known = {file.path for file in start.files} | {file.revision for file in start.files}
    more = [file for file in nested.files if file.path not in known and file.revision not in known]
    loaded = {file.path for file in more}
    skipped = list(dict.fromkeys(one for one in (*start.skipped, *nested.skipped) if one.path not in loaded))
    budget = _budget(config)
    fitted = fit_files((*start.files, *more), budget)
    if json:
        out_json(_told(config, places.root, fitted, skipped, budget))
    else:
        _report(config, fitted, skipped, budget)


def _approvals(config: Config, cwd: Path, wanted: list[str], unwanted: list[str], *, is_json: bool) -> None:
    """Approve files or folders outside the project for its imports, or take that back."""
    from perdure.adapters.memory.instructions import approve

    approved = [approve(config.home, cwd=cwd, path=path) for path in wanted]
    revoked = [approve(config.home, cwd=cwd, path=path, revoke=True) for path in unwanted]
    if is_json:
        out_json({"approved": approved, "revoked": revoked})
        return
    for path in approved:
        out(f"{clean(path)}: may be imported by the instruction files of this project")
    for path in revoked:
        out(f"{clean(path)}: may no longer be imported")


def _budget(config: Config) -> int:
    from perdure.context.models import UNKNOWN
    from perdure.context.policy import thresholds

    settings = config.settings
    window = settings.window_tokens or UNKNOWN.window_tokens
    return thresholds(settings, UNKNOWN, window, "setting").scaled(settings.instructions_tokens)


def _why(file: Instruction) -> str:
    if file.parent:
        return f"imported by {file.parent}"
    if file.globs:
        return f"rule for {', '.join(file.globs)}: {file.trigger}"
    return {"start": "at the start", "rule": "rule", "nested": f"nested: {file.trigger}"}.get(file.why, file.why)


def _told(
    config: Config, root: str, fitted: tuple[FittedFile, ...], skipped: list[SkippedFile], budget: int
) -> dict[str, Any]:
    from perdure.transcript.tokens import base_tokens

    return {
        "enabled": config.settings.instructions,
        "enabled_source": config.values["instructions"].source,
        "project": root,
        "budget_tokens": budget,
        "tokens": sum(base_tokens(one.text) for one in fitted),
        "files": [
            {
                "path": one.file.path,
                "scope": one.file.scope,
                "why": one.file.why,
                "imported_by": one.file.parent or None,
                "globs": list(one.file.globs),
                "trigger": one.file.trigger or None,
                "tokens": one.file.tokens,
                "sent_tokens": base_tokens(one.text),
                "revision": one.file.revision,
                "problems": list(one.file.problems),
            }
            for one in fitted
        ],
        "skipped": [
            {"path": s.path, "scope": s.scope, "code": s.code, "detail": s.detail, "imported_by": s.parent or None}
            for s in skipped
        ],
    }


def _report(config: Config, fitted: tuple[FittedFile, ...], skipped: list[SkippedFile], budget: int) -> None:
    from perdure.transcript.tokens import base_tokens

    rows: list[tuple[Cell, ...]] = []
    for one in fitted:
        cut = f", {base_tokens(one.text):,} are sent" if one.is_cut else ""
        rows.append((one.file.path, one.file.scope, _why(one.file) + cut, one.file.tokens))
    if rows:
        table(("file, in loading order", "scope", "why", "tokens"), rows)
    total = sum(base_tokens(one.text) for one in fitted)
    out(f"{plural(len(fitted), 'file')}, {total:,} of {budget:,} tokens")
    if skipped:
        out("\nnot loaded:")
        table(("file", "because", ""), [(s.path, _CODES[s.code], s.detail) for s in skipped], indent="  ")
    if any(s.code == "not_approved" for s in skipped):
        out("  `perdure instructions --approve PATH` lets this project import a file or folder outside of it")
    for one in fitted:
        for problem in one.file.problems:
            out(f"  {clean(one.file.path)}: {clean(problem)}")
    if config.settings.instructions:
        return
    source = config.values["instructions"].source
    if source == "default":
        out("\nchat and run read these files; the library and the gateway do once the setting instructions is true")
    else:
        out(f"\nno session reads these files: the setting instructions is false (from: {clean(source)})")
