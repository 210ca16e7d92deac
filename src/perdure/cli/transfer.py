"""`perdure import` and `export`: recorded sessions become sessions of ours, and ours become logs (ENG-6)."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.adapters.journal import JOURNAL
from perdure.cli.arguments import Force, Json, OneOfFile, Output, Reference, configured, examples, family
from perdure.cli.kept import HERE, KeptIn, StoreUrl, TenantName
from perdure.cli.loop import in_loop
from perdure.cli.output import (
    EXIT_FAILED,
    EXIT_OK,
    STDOUT,
    Progress,
    check_target,
    clean,
    deliver,
    note,
    out,
    out_json,
    plural,
    size,
)
from perdure.errors import BadSetting, ForeignFormat, PerdureError

if TYPE_CHECKING:
    from perdure.adapters.config import Config
    from perdure.adapters.logs import FoundLogs
    from perdure.cli.opened import ReadSession
    from perdure.logs.export import ExportedBoundary
    from perdure.memory.trust.secrets import RedactedJson
    from perdure.transcript.messages import MessageId
    from perdure.wiring.imports import ImportedLog, LogImports


app = family()
FORMATS = ("claude-code", "markdown")
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
    and what a log has gained since is added. The exit code is 1 when a log can't be imported.
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
        _import_each(found, LogImports(config.home, config.settings, project, has_many=True), outcomes, is_json=json)
        if outcomes["imported"] or outcomes["updated"]:
            progress = Progress()
            StoreArchive(config.home).take_in(lambda done, of: progress(done, of, "sessions indexed"))
            progress.clear()
    except KeyboardInterrupt:
        note("stopped: every session above is whole, and the same command goes on with the rest")
        raise
    finally:
        _show_sums(found, outcomes, time.monotonic() - started, is_json=json)
    raise typer.Exit(EXIT_FAILED if outcomes["failed"] or outcomes["skipped"] else EXIT_OK)


def _import_each(found: FoundLogs, imports: LogImports, outcomes: Counter[str], *, is_json: bool) -> None:
    """Import files, the oldest first, and say what became of each session; none stops the rest."""

    progress, done = Progress(size), 0
    for file in sorted(found.files, key=lambda file: (file.mtime_ns, file.path)):
        progress(done, found.bytes, file.path.name)
        done += file.bytes
        path, told = file.path, list(imports.unchanged(file))

        def tell(one: ImportedLog, told: list[ImportedLog] = told) -> None:
            told.append(one)
            progress.clear()
            if is_json or one.is_new:
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
    out(f"\n{plural(len(found.files), 'file')}: {sums}")
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


@app.command(epilog=examples("perdure export @last -o session.jsonl", "perdure export 7k2q9x -o -"))
def export(
    file: Reference,
    *,
    output: Output,
    form: Annotated[str, typer.Option("--format", metavar="FORMAT", help="claude-code or markdown.")] = "claude-code",
    force: Force = False,
    session: OneOfFile = None,
    store: StoreUrl = None,
    tenant: TenantName = None,
    json: Json = False,
) -> None:
    """Write a session as a Claude Code log, or as Markdown to read.

    A Claude Code log that nobody changed keeps its bytes.
    """
    if form not in FORMATS:
        raise BadSetting(f"--format {form}: the format can only be {', '.join(FORMATS)}")
    config = configured()
    if output != STDOUT:
        check_target(file, output, force=force)
    data, how = exported(file, config, form, session=session, kept=KeptIn(store, tenant))
    if not deliver(output, data, force=force):
        return
    if json:
        out_json({"file": file, "out": str(output), "format": form, "bytes": len(data), "how": how})
    else:
        out(f"{output}: {len(data):,} bytes, {how}")


def exported(
    reference: str, config: Config, form: str, *, session: str | None = None, kept: KeptIn = HERE
) -> tuple[bytes, str]:
    """A session, or one of a log, in one of `FORMATS`, without secrets; and what was done, for people."""
    from perdure.adapters.journal.store import secret_key
    from perdure.cli.opened import read_session
    from perdure.logs.export import to_markdown
    from perdure.memory.trust.secrets import redact, redact_json

    unchanged = _unchanged(reference, kept) if session is None and form == "claude-code" else None
    if unchanged is not None:
        return unchanged, "copied unchanged"
    one = read_session(reference, config, session=session, kept=kept)
    key = one.key or secret_key(config.home)
    if form == "markdown":
        text = redact("".join(to_markdown(one.messages, title=one.title or one.session)), key).text
        return text.encode("utf-8", "replace"), _how(len(one.messages), ())
    lines = [redact_json(line, key) for line in claude_code_lines(one)]
    return b"".join(line.raw.rstrip(b"\n") + b"\n" for line in lines), _how(len(one.messages), lines)


def _how(messages: int, lines: Sequence[RedactedJson]) -> str:
    """What was written, and that secrets were left out of it; a log that is copied unchanged keeps them (SEC-5)."""
    secrets_found = sum(len(line.families) for line in lines)
    return f"{plural(messages, 'message')} written" + (
        f", {plural(secrets_found, 'secret')} left out" if secrets_found else ""
    )


def _unchanged(reference: str, kept: KeptIn) -> bytes | None:
    """The bytes of a log that nobody changed: the file itself, or what a session was imported from."""

    path = Path(reference)
    if path.is_file() and path.name != JOURNAL:
        return _claude_code_bytes(path)
    return in_loop(_imported_bytes, reference, kept)


async def _imported_bytes(reference: str, kept: KeptIn) -> bytes | None:
    from perdure.engine.imports import source_of

    async with kept.session(reference) as named:
        stored = await named.opened(read_only=True)
        try:
            loaded = await stored.journal.load(whole=True)
            source = source_of(tuple(placed.record for placed in loaded.records))
            if source is None or source.format != "claude-code" or not source.is_whole:
                return None
            return await stored.blobs.get(source.blob)
        finally:
            await stored.journal.close()


def _claude_code_bytes(path: Path) -> bytes | None:
    """The bytes of a Claude Code log that reads as one; None for anything else."""
    from perdure.logs.detect import HEAD_BYTES, detect, read_recordings

    if not path.is_file():
        return None
    data = path.read_bytes()
    if detect(data[:HEAD_BYTES], path.name) == "perdure":
        return None
    found = read_recordings(data, path.name)
    if len(found) != 1 or found[0].format != "claude-code":
        return None
    if not found[0].steps and found[0].problems:
        raise ForeignFormat(f"{path}: none of its lines can be read: {found[0].problems[0].what}")
    return data


def claude_code_lines(one: ReadSession) -> Iterable[bytes]:
    """The session as lines of a Claude Code log."""
    from perdure.adapters.extras import release
    from perdure.logs.export import to_claude_code

    return to_claude_code(
        one.messages,
        session=one.session,
        cwd=one.cwd or "",
        version=release() or "0",
        boundaries=_boundaries(one),
        branch=one.branch or "",
        title=one.title,
    )


def _boundaries(one: ReadSession) -> dict[MessageId, ExportedBoundary]:
    """Our own compactions, each by the last message before it."""
    from perdure.logs.export import ExportedBoundary
    from perdure.transcript.blocks import Text

    found: dict[MessageId, ExportedBoundary] = {}
    for seen, boundary in zip(one.boundaries, one.compactions, strict=False):
        texts = [b.value.text for m in boundary.summary for b in m.blocks if isinstance(b.value, Text)]
        if seen.after:
            found[one.messages[seen.after - 1].id] = ExportedBoundary(
                summary="\n\n".join(texts),
                trigger=boundary.trigger,
                pre_tokens=boundary.tokens_before,
                post_tokens=boundary.tokens_after,
                kept=boundary.kept,
                at=boundary.at,
            )
    return found
