"""`perdure export`: a session as a log that other tools read, or as Markdown; or all there are (ENG-6, OPS-2)."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from perdure.adapters.journal import JOURNAL
from perdure.cli.arguments import Force, Json, OneOfFile, Output, complete_sessions, configured, examples, family
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
    write_whole,
)
from perdure.errors import BadSetting, ForeignFormat, PerdureError

if TYPE_CHECKING:
    from perdure.adapters.config import Config
    from perdure.cli.opened import ReadSession
    from perdure.logs.export import ExportedBoundary
    from perdure.memory.trust.secrets import RedactedJson
    from perdure.ports.contents import MemoryFiles
    from perdure.ports.home import SessionInfo
    from perdure.transcript.messages import MessageId

app = family()
FORMATS: Final = {"claude-code": ".jsonl", "markdown": ".md"}
_PAGE = 1_000  # sessions that are listed in one go
_OUTCOMES = ("exported", "exported before", "damaged", "left", "failed")
_WRONG = ("damaged", "left", "failed", "memories left")


@app.command(
    epilog=examples(
        "perdure export @last -o session.jsonl",
        "perdure export 7k2q9x -o -",
        "perdure export --all -o ~/perdure-export",
    )
)
def export(
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE|SESSION", help="A log, a journal or a session.", autocompletion=complete_sessions),
    ] = None,
    *,
    output: Output,
    every: Annotated[bool, typer.Option("--all", help="All sessions and memories; -o names a folder.")] = False,
    form: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help="claude-code or markdown; with --all, else both.")
    ] = None,
    force: Force = False,
    session: OneOfFile = None,
    store: StoreUrl = None,
    tenant: TenantName = None,
    json: Json = False,
) -> None:
    """Write a session as a Claude Code log, or as Markdown to read.

    A Claude Code log that nobody changed keeps its bytes. With --all, each session is written as both, in a folder for
    its project, beside the memories. The same command goes on where it was stopped; the exit code is 1 when something
    could not be written.
    """
    if form is not None and form not in FORMATS:
        raise BadSetting(f"--format {form}: the format can only be {', '.join(FORMATS)}")
    if every == (file is not None):
        raise BadSetting("name one session or log, or say --all")
    config, kept = configured(), KeptIn(store, tenant)
    if every:
        if session is not None:
            raise BadSetting("--session is about one log, and --all about everything that is kept")
        raise typer.Exit(
            _export_all(output, config, kept, tuple(FORMATS) if form is None else (form,), force=force, json=json)
        )
    assert file is not None
    form = form or "claude-code"
    if output != STDOUT:
        check_target(file, output, force=force)
    data, how = exported(file, config, form, session=session, kept=kept)
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
    from perdure.cli.opened import read_session

    unchanged = _unchanged(reference, kept) if session is None and form == "claude-code" else None
    if unchanged is not None:
        return unchanged, "copied unchanged"
    return _written(read_session(reference, config, session=session, kept=kept), config, form)


def _written(one: ReadSession, config: Config, form: str) -> tuple[bytes, str]:
    from perdure.adapters.journal.store import secret_key
    from perdure.logs.export import to_markdown
    from perdure.memory.trust.secrets import redact, redact_json

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


# --- all of it --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExportedSession:
    """What became of a session: the files that hold it, and what a person has to know."""

    tenant: str
    session: str
    project: str
    outcome: str
    files: tuple[str, ...] = ()
    said: tuple[str, ...] = ()


@dataclass(slots=True)
class FolderExport:
    """One run of `export --all`.

    A file has the time at which its session was written last, so a later run needs to read only what went on since.
    Files are written whole. One that says something else, as the session went on or somebody edited it, is left alone
    unless `force` says otherwise.
    """

    folder: Path
    config: Config
    forms: tuple[str, ...]
    force: bool

    def session(self, info: SessionInfo, kept: KeptIn) -> ExportedSession:
        """Write a session, and those of its sub-agents; what fails is told and stops nothing."""
        from perdure.adapters.journal.projects import PROJECTS, folder_of_name
        from perdure.adapters.journal.store import AGENTS

        tenant = kept.tenant or ""
        told = partial(ExportedSession, tenant, info.id, info.project)
        stem = self._below(tenant) / PROJECTS / folder_of_name(info.project) / info.id
        files, is_new, said = list[str](), False, list[str]()
        try:
            sources = [(stem, info.id, info.modified)]
            if not kept.is_database:
                journal = Path(info.place)
                sources = [(stem, str(journal.parent), info.modified)]
                for one in sorted((journal.parent / AGENTS).glob(f"*/{JOURNAL}")):
                    sources.append((stem / "subagents" / one.parent.name, str(one.parent), one.stat().st_mtime))
            for target, reference, modified in sources:
                for path, data in self._forms(target, reference, modified, kept, said):
                    files.append(str(path))
                    is_new |= data is not None and self._write(path, data, None if said else modified)
            if "markdown" in self.forms and (notes := in_loop(_notes, sources[0][1], kept)) is not None:
                files.append(str(stem.with_name(f"{stem.name}.notes.md")))
                is_new |= self._write(Path(files[-1]), notes, None)  # they change without their session
        except PerdureError as e:
            return told("left" if isinstance(e, BadSetting) else "failed", tuple(files), (str(e),))
        except OSError as e:
            return told("failed", tuple(files), (f"{e.filename or info.place}: {e.strerror or e}",))
        return told("damaged" if said else "exported" if is_new else "exported before", tuple(files), tuple(said))

    def memories(self, tenant: str, found: Mapping[str, MemoryFiles]) -> Iterator[str | None]:
        """Write the memories of a home, by the folders that they stand in; gives None, or why one was left alone."""
        for place, files in sorted(found.items()):
            for name, (data, modified) in sorted(files.items()):
                if name.endswith(".md") and not any(part.startswith(".") for part in name.split("/")):
                    target = self._below(tenant).joinpath(*_steps(place), name)
                    try:
                        if not _is_stamped(target, modified):
                            self._write(target, data, modified)
                    except BadSetting as e:
                        yield str(e)
                    else:
                        yield None

    def _below(self, tenant: str) -> Path:
        from perdure.adapters.journal.projects import folder_of_name

        if not tenant:
            return self.folder
        is_plain = re.fullmatch(r"[A-Za-z0-9_@+-][A-Za-z0-9_.@+-]{0,99}", tenant)  # of a database it may be any text
        return self.folder / "tenants" / (tenant if is_plain else folder_of_name(tenant))

    def _forms(
        self, target: Path, reference: str, modified: float, kept: KeptIn, said: list[str]
    ) -> Iterator[tuple[Path, bytes | None]]:
        """Each file of a session with its bytes, None where it has the session's time and needs no reading."""
        from perdure.cli.opened import read_session

        one: ReadSession | None = None
        for form in self.forms:
            path = target.with_name(target.name + FORMATS[form])
            if _is_stamped(path, modified):
                yield path, None
                continue
            unchanged = _unchanged(reference, kept) if form == "claude-code" else None
            if unchanged is None and one is None:
                one = read_session(reference, self.config, kept=kept)
                if one.problems:
                    said.append(
                        f"{plural(len(one.problems), 'place')} in it can't be read; `perdure doctor` names them"
                    )
            yield path, unchanged if unchanged is not None else _written(one, self.config, form)[0] if one else b""

    def _write(self, target: Path, data: bytes, modified: float | None) -> bool:
        """Whether the file was written; it is there with these bytes otherwise.

        Raises:
            BadSetting: Something else stands there.
        """
        is_there = target.is_file() and target.read_bytes() == data
        if not is_there:
            if os.path.lexists(target) and not self.force:
                is_older = modified is not None and target.lstat().st_mtime < modified
                why = "is of before the session went on" if is_older else "says something else than now"
                raise BadSetting(f"{target}: {why}; --force replaces it")
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # names of files tell what people work on
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, data, force=self.force)
        if modified is not None:  # whatever has no time of its own is looked at again by the next run
            os.utime(target, (modified, modified))
        return not is_there


def _steps(place: str) -> list[str]:
    """The folders on the way to a directory of memories; a name that leads upwards is none."""
    return [step for step in place.split("/") if step not in ("", ".", "..")]


def _is_stamped(path: Path, modified: float) -> bool:
    """Whether a file has the time that an export gives it, as far as file systems keep it."""
    try:
        return path.is_file() and abs(path.stat().st_mtime - modified) < 1e-4
    except OSError:
        return False


def _export_all(folder: Path, config: Config, kept: KeptIn, forms: tuple[str, ...], *, force: bool, json: bool) -> int:
    """Write every session and memory below a folder, and say what became of each; the exit code."""
    if folder == STDOUT:
        raise BadSetting("--all writes many files: -o names a folder for them")
    if os.path.lexists(folder) and not folder.is_dir():
        raise BadSetting(f"{folder}: is no folder; name one, or one that isn't there yet")
    run = FolderExport(folder.absolute(), config, forms, force)
    outcomes, progress, tenants = Counter[str](), Progress(), in_loop(_tenants, kept)
    try:
        for tenant in tenants:
            place = KeptIn(kept.store or str(config.home), tenant or None)
            listed = in_loop(_listed, place)
            for number, info in enumerate(listed):
                progress(number, len(listed), info.title or info.id)
                done = run.session(info, place)
                outcomes[done.outcome] += 1
                progress.clear()
                _show_session(done, is_json=json)
            for why in run.memories(tenant, in_loop(_memories, place)):
                outcomes["memories" if why is None else "memories left"] += 1
                if why is not None:
                    note(why)
    except KeyboardInterrupt:
        note("stopped: every file that is there is whole, and the same command goes on with the rest")
        raise
    finally:
        progress.clear()
        _show_sums(run.folder, outcomes, is_json=json)
    return EXIT_FAILED if any(outcomes[one] for one in _WRONG) else EXIT_OK


def _show_session(done: ExportedSession, *, is_json: bool) -> None:
    if is_json:
        out_json(asdict(done))
    elif done.said:
        out(clean(f"{done.session}: {done.outcome}: {'; '.join(done.said)}"))


def _show_sums(folder: Path, outcomes: Counter[str], *, is_json: bool) -> None:
    if is_json:
        counted = {name.replace(" ", "_"): outcomes[name] for name in (*_OUTCOMES, "memories", "memories left")}
        out_json({"total": {"folder": str(folder), **counted}})
        return
    sessions = sum(outcomes[name] for name in _OUTCOMES)
    sums = ", ".join(f"{outcomes[name]:,} {name}" for name in _OUTCOMES if outcomes[name]) or "none"
    left = f", {outcomes['memories left']:,} left" if outcomes["memories left"] else ""
    out(
        clean(
            f"{folder}: {plural(sessions, 'session')}: {sums}; {plural(outcomes['memories'], 'file')} of memories{left}"
        )
    )


async def _tenants(kept: KeptIn) -> list[str]:
    """Whose homes are exported: the one that was named, else the person's own and those of all tenants."""
    async with kept.opened() as store:
        await kept.home_in(store)  # says that there is no such tenant
        return [kept.tenant] if kept.tenant else ["", *sorted(await store.tenants())]


async def _listed(kept: KeptIn) -> list[SessionInfo]:
    """All sessions of a home, the one written last first."""
    found: list[SessionInfo] = []
    async with kept.home() as home:
        while page := await home.sessions(behind=found[-1] if found else None, limit=_PAGE):
            found += page
    return found


async def _notes(reference: str, kept: KeptIn) -> bytes | None:
    """The notes of a session, without secrets; None where it has none."""
    from perdure.memory.trust.secrets import redact

    async with kept.session(reference) as named:
        stored = await named.opened(read_only=True)
        try:
            data = await stored.notes.read()
        finally:
            await stored.journal.close()
        if data is None:
            return None
        return redact(data.decode("utf-8", "replace"), await named.home.secret_key()).text.encode()


async def _memories(kept: KeptIn) -> Mapping[str, MemoryFiles]:
    """The directories of memories of a home with their files, each by the folder that it has in a home of files."""
    from perdure.adapters.journal.contents import FileContents, folder_of_place
    from perdure.wiring.stores import contents_of

    async with kept.home() as home:
        contents = contents_of(home)
        found = {folder_of_place(place): await contents.memory_files(place) for place in await contents.memories()}
        if isinstance(contents, FileContents):
            found |= dict(await contents.unnamed_memories())
        return found
