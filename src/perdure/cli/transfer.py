"""`perdure import` and `export`: recorded sessions become sessions of ours, and ours become logs (ENG-6)."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perdure.adapters.journal import JOURNAL
from perdure.cli.arguments import Force, Json, OneOfFile, Output, Reference, configured, examples, family, located
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
)
from perdure.errors import BadSetting, ForeignFormat, PerdureError, SessionNotFound

if TYPE_CHECKING:
    from perdure.adapters.config import Config
    from perdure.cli.opened import ReadSession
    from perdure.engine.imports import ImportResult
    from perdure.engine.session import LiveSession
    from perdure.logs.export import ExportedBoundary
    from perdure.logs.recording import Recording
    from perdure.memory.trust.secrets import RedactedJson
    from perdure.transcript.messages import MessageId


app = family()
FORMATS = ("claude-code", "markdown")
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]+")
_SHOWN_SKIPPED = 3
_OUTCOMES = ("imported", "updated", "imported before", "without a conversation", "failed")


@app.command(
    "import",
    epilog=examples(
        "perdure import ~/.claude/projects",
        "perdure import session.jsonl",
        "perdure import session.jsonl --project ~/src/api --as api",
    ),
)
def import_logs(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Logs of other agents, or folders of logs.")],
    *,
    project: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="The project of the sessions; without it, this folder (see above)."),
    ] = None,
    name: Annotated[str | None, typer.Option("--as", metavar="ID", help="The id that the session gets.")] = None,
    which: OneOfFile = None,
    json: Json = False,
) -> None:
    """Turn logs of other agents into sessions.

    A session holds everything that was said, in its order; exporting an unchanged import gives the bytes of its log.
    Of several logs, each session belongs to the folder that it was recorded in, where that still exists. What was
    imported before is skipped, unless the log has grown. The exit code is 1 when a log can't be imported.
    """
    from perdure.adapters.journal import SessionStore
    from perdure.cli.opened import found_files

    config = configured()
    is_one = len(files) == 1 and not files[0].is_dir()
    if not is_one and (name is not None or which is not None):
        raise BadSetting(f"{'--session' if name is None else '--as'} is about one log: name one file")
    taken = {directory.name: directory for directory in SessionStore(config.home).directories()}
    if is_one:
        is_empty = True
        for told in _imported(files[0], config, project or Path.cwd(), taken, name, which):
            _show(told, is_json=json)
            is_empty = False
        if is_empty:
            raise ForeignFormat(f"{files[0]}: nothing that was said in it")
        return
    found, others = found_files(files)
    if not found:
        raise SessionNotFound(f"{', '.join(map(str, files))}: there are no logs in it (*.jsonl, *.json, *.traj)")
    outcomes = Counter(_each_imported(found, config, project, taken, is_json=json))
    if json:
        out_json({"total": {"files": len(found), **{name.replace(" ", "_"): outcomes[name] for name in _OUTCOMES}}})
    else:
        sums = ", ".join(f"{outcomes[name]:,} {name}" for name in _OUTCOMES if outcomes[name])
        out(f"\n{plural(len(found), 'file')}: {sums}")
    if others:
        note(f"skipped {plural(others, 'JSON file')} without sessions")
    raise typer.Exit(EXIT_FAILED if outcomes["failed"] else EXIT_OK)


def _each_imported(
    files: Sequence[Path], config: Config, project: Path | None, taken: dict[str, Path], *, is_json: bool
) -> Iterator[str]:
    """Import files one after another, and say what came of each session; none stops the rest. Gives the outcomes."""
    progress = Progress()
    for number, file in enumerate(files):
        progress(number, len(files), str(file))
        is_empty = True
        try:
            for told in _imported(file, config, project, taken):
                progress.clear()
                _show(told, is_json=is_json)
                is_empty = False
                yield _outcome(told)
        except (PerdureError, OSError) as e:
            progress.clear()
            reason = str(e) if isinstance(e, PerdureError) else f"{file}: {e.strerror or e}"
            out_json({"file": str(file), "error": reason}) if is_json else out(f"failed: {clean(reason)}")
            yield "failed"
            continue
        if is_empty:
            progress.clear()
            why = f"{file}: nothing that was said in it"
            out_json({"file": str(file), "skipped": why}) if is_json else out(f"skipped: {clean(why)}")
            yield "without a conversation"
    progress.clear()


def _imported(
    file: Path,
    config: Config,
    project: Path | None,
    taken: dict[str, Path],
    name: str | None = None,
    which: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Import the sessions of a file, and tell of each. Without a `project`, they belong where they were recorded.

    `taken` has the sessions that there are, by their ids; each new one is added.
    """
    import anyio

    from perdure.adapters.journal import SessionStore
    from perdure.logs.detect import read_recordings

    data = file.read_bytes()
    found = [one for one in read_recordings(data, file.name) if one.messages]
    wanted = [one for one in found if which is None or one.session == which]
    if not wanted and which:
        raise SessionNotFound(f"{file}: no session {which!r} in it; `perdure inspect` lists them")
    if name is not None and len(wanted) > 1:
        raise BadSetting(f"--as: {file} holds {plural(len(wanted), 'session')}; choose one with --session")
    names = [name or _name(one) for one in wanted]
    for number, (one, session) in enumerate(zip(wanted, names, strict=True)):
        session = session if session not in names[:number] else f"{session}-{number + 1}"
        folder = project or _recorded_in(one) or Path.cwd()
        about = (config, folder, len(found) == 1)
        if there := taken.get(session):
            yield anyio.run(_again, file, data, one, there, about)
        else:
            yield anyio.run(_import, file, data, one, session, about)
            taken[session] = SessionStore(config.home).directory(session, project=folder)


def _recorded_in(recording: Recording) -> Path | None:
    """The folder that a log was recorded in, if it is here and can be a project."""
    from perdure.adapters.machine.repositories import is_no_project

    folder = Path(recording.cwd or "")
    if not folder.is_absolute() or not folder.is_dir() or is_no_project(os.path.realpath(folder)):
        return None
    return folder


def _outcome(told: dict[str, Any]) -> str:
    """Which of `_OUTCOMES` the import of a session had."""
    if not told["is_there"]:
        return "imported"
    return "updated" if told["messages"] or told["restored"] else "imported before"


def _show(told: dict[str, Any], *, is_json: bool) -> None:
    if is_json:
        out_json(told)
    else:
        out(clean(f"{told['session']}: {_what(told)}"))
    for skipped in told["skipped"][:_SHOWN_SKIPPED]:
        note(f"{told['file']}: {skipped}: left out")


async def _import(
    file: Path, data: bytes, recording: Recording, session: str, about: tuple[Config, Path, bool]
) -> dict[str, Any]:
    from perdure.adapters.journal import SessionStore
    from perdure.engine.imports import import_recording
    from perdure.wiring import SessionOptions, create_session

    config, project, is_whole = about
    # All of it is made durable at once: until then the file is there to begin again with.
    parts = SessionOptions(settings=replace(config.settings, durability="process"))
    opened = await create_session(config.home, project=project, session=session, source=str(file), parts=parts)
    try:
        done = await import_recording(opened, recording, data, file=file.name, is_whole=is_whole)
        await _synced(opened)
    except BaseException:
        # Half an import is no session; the file is still there to begin again with.
        with contextlib.suppress(PerdureError, OSError):
            await opened.ports.journal.close()
        with contextlib.suppress(PerdureError, OSError):
            SessionStore(config.home).delete(session)
        raise
    return _told(file, recording, session, done)


async def _again(
    file: Path, data: bytes, recording: Recording, directory: Path, about: tuple[Config, Path, bool]
) -> dict[str, Any]:
    """The same log once more: what came to it since is added, what was damaged is restored, nothing is doubled."""
    from perdure.adapters.journal import SessionStore
    from perdure.adapters.journal.store import secret_key
    from perdure.context.passes import blob_id
    from perdure.engine.imports import ImportResult, import_recording, last_source, source_of
    from perdure.memory.trust.secrets import redact_log
    from perdure.transcript.messages import Message
    from perdure.wiring import SessionOptions, open_session
    from perdure.wiring.restoring import with_lines_of_source

    config, _, is_whole = about
    settings = replace(config.settings, durability="process")
    store = SessionStore(config.home)
    files, restored = await with_lines_of_source(store, await store.open(directory, durability="process"), settings)
    try:
        loaded = await files.journal.load(whole=True)
    finally:
        await files.journal.close()
    records = tuple(placed.record for placed in loaded.records)
    before, source = last_source(records), source_of(records)
    other = "--as gives the import another id"
    said = {message.id for message in recording.messages}
    is_more = any(isinstance(record, Message) and record.id.split("~")[0] not in said for record in records)
    if before is None and loaded.header.source is not None:
        cut = "is an unfinished import"
        if is_more:  # deleting it would take what was said since
            raise BadSetting(f"{file}: session {directory.name} {cut}, and has been continued since; {other}")
        again = f"`perdure sessions delete {directory.name}`, and import again"
        raise BadSetting(f"{file}: session {directory.name} {cut}: {again}; or {other}")
    if before is None or (before.session, before.format) != (recording.session, recording.format):
        raise BadSetting(f"{file}: there is already a session {directory.name}; {other}")
    told = {"is_there": True, "restored": [one.line for one in restored]}
    now = redact_log(data, secret_key(config.home)) if settings.redact_at_ingest else data
    if blob_id(now) == before.blob:
        return _told(file, recording, directory.name, ImportResult(0, before.blob, 0, ())) | told
    if source is None:
        raise BadSetting(f"{file}: session {directory.name} has been continued since it was imported; {other}")
    if is_more:
        raise BadSetting(f"{file}: session {directory.name} holds another log of that name; {other}")
    opened = await open_session(config.home, directory, whole=True, parts=SessionOptions(settings=settings))
    try:
        done = await import_recording(
            opened, recording, data, file=file.name, is_whole=is_whole, at=before.at, known=records
        )
    finally:
        await _synced(opened)
    return _told(file, recording, directory.name, done) | told


async def _synced(session: LiveSession) -> None:
    from perdure.adapters.journal import FileJournal

    journal = session.ports.journal
    if isinstance(journal, FileJournal):
        await journal.sync()
    await session.close()


def _told(file: Path, recording: Recording, session: str, done: ImportResult) -> dict[str, Any]:
    return {
        "session": session,
        "file": str(file),
        "format": recording.format,
        "messages": done.messages,
        "blob": done.blob,
        "renamed": done.renamed,
        "skipped": list(done.skipped),
        "problems": len(recording.problems),
        "is_there": False,
        "restored": [],
    }


def _what(told: dict[str, Any]) -> str:
    mended = f"; {plural(len(told['restored']), 'damaged line')} restored" if told["restored"] else ""
    log = f"{told['file']} ({told['format']})"
    if not told["is_there"]:
        return f"{plural(told['messages'], 'message')} imported from {log}"
    if told["messages"]:
        return f"{plural(told['messages'], 'new message')} added from {log}{mended}"
    return f"imported before, nothing new in {log}{mended or '; skipped'}"


def _name(recording: Recording) -> str:
    """The id that the recording has, as far as an id may look like that."""
    name = _NOT_IN_IDS.sub("-", recording.session).strip("-_")[:120]
    return name or "imported"


@app.command(epilog=examples("perdure export @last -o session.jsonl", "perdure export 7k2q9x -o -"))
def export(
    file: Reference,
    *,
    output: Output,
    form: Annotated[str, typer.Option("--format", metavar="FORMAT", help="claude-code or markdown.")] = "claude-code",
    force: Force = False,
    session: OneOfFile = None,
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
    data, how = exported(file, config, form, session=session)
    if not deliver(output, data, force=force):
        return
    if json:
        out_json({"file": file, "out": str(output), "format": form, "bytes": len(data), "how": how})
    else:
        out(f"{output}: {len(data):,} bytes, {how}")


def exported(reference: str, config: Config, form: str, *, session: str | None = None) -> tuple[bytes, str]:
    """A session, or one of a log, in one of `FORMATS`, without secrets; and what was done, for people."""
    from perdure.adapters.journal.store import secret_key
    from perdure.cli.opened import read_session
    from perdure.logs.export import to_markdown
    from perdure.memory.trust.secrets import redact, redact_json

    unchanged = _unchanged(reference, config) if session is None and form == "claude-code" else None
    if unchanged is not None:
        return unchanged, "copied unchanged"
    one, key = read_session(reference, config, session=session), secret_key(config.home)
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


def _unchanged(reference: str, config: Config) -> bytes | None:
    """The bytes of a log that nobody changed: the file itself, or what a session was imported from."""
    import anyio

    path = Path(reference)
    if path.is_file() and path.name != JOURNAL:
        return _claude_code_bytes(path)
    return anyio.run(_imported_bytes, located(reference), config)


async def _imported_bytes(reference: str | Path, config: Config) -> bytes | None:
    from perdure.adapters.journal import SessionStore
    from perdure.engine.imports import source_of

    files = await SessionStore(config.home).open(reference, read_only=True)
    try:
        loaded = await files.journal.load(whole=True)
        source = source_of(tuple(placed.record for placed in loaded.records))
        if source is None or source.format != "claude-code" or not source.is_whole:
            return None
        return await files.blobs.get(source.blob)
    finally:
        await files.journal.close()


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
    from importlib.metadata import PackageNotFoundError, version

    from perdure.logs.export import to_claude_code

    try:
        release = version("perdure")
    except PackageNotFoundError:
        release = "0"
    return to_claude_code(
        one.messages,
        session=one.session,
        cwd=one.cwd or "",
        version=release,
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
