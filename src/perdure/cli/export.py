"""`perdure export`: a session as a log that other tools read, or as Markdown; or all there are (ENG-6, OPS-2)."""

from __future__ import annotations

import json as js
import os
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from perdure.adapters.journal import JOURNAL
from perdure.cli.arguments import (
    Force,
    Json,
    OneOfFile,
    Output,
    beside_home,
    complete_sessions,
    configured,
    examples,
    family,
)
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
)
from perdure.errors import BadSetting, FileRefused, ForeignFormat, PerdureError

if TYPE_CHECKING:
    from perdure.adapters.config import Config
    from perdure.adapters.journal.contents import MemoryFileFound
    from perdure.adapters.machine.rooted import RootedFolder
    from perdure.cli.opened import ReadSession
    from perdure.logs.export import ExportedBoundary
    from perdure.ports.home import Home, SessionInfo
    from perdure.transcript.messages import MessageId

app = family()
FORMATS: Final = {"claude-code": ".jsonl", "markdown": ".md"}
_PAGE = 1_000  # sessions that are listed in one go
_OUTCOMES = ("exported", "exported before", "damaged", "left", "failed")
_OTHERS = ("memories", "memories left", "memories failed", "homes failed")
_WRONG = ("damaged", "left", "failed", "memories left", "memories failed", "homes failed", "stopped")
_WRITTEN_BY_BYTES: Final = 10_000
_WRITTEN_BY: Final = ".perdure-export"  # in an export: of each form, which version may have written the oldest files


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
    from perdure.memory.trust.messages import without_secrets
    from perdure.memory.trust.secrets import Redactor

    redactor = Redactor(one.key or secret_key(config.home))
    for message in one.messages:  # a value may come before the place that tells what it is
        without_secrets(message, redactor)
    redactor.families.clear()
    one = replace(one, messages=tuple(without_secrets(message, redactor) for message in one.messages))
    if form == "markdown":
        text = redactor.text("".join(to_markdown(one.messages, title=one.title or one.session)))
        return text.encode("utf-8", "replace"), _how(len(one.messages), 0)
    lines = [redactor.json(line).rstrip(b"\n") + b"\n" for line in claude_code_lines(one)]
    return b"".join(lines), _how(len(one.messages), len(redactor.families))


def _how(messages: int, secrets_found: int) -> str:
    """What was written, and that secrets were left out of it; a log that is copied unchanged keeps them (SEC-5)."""
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


@dataclass(frozen=True, slots=True)
class _Form:
    """A file of a session: its name in the folder, its bytes, or None where it has the session's time already."""

    name: str
    data: bytes | None


@dataclass(slots=True)
class FolderExport:
    """One run of `export --all`.

    A file has the time at which its session was written last, so a later run needs to read only what went on since.
    Files are written whole. One that says something else, as the session went on or somebody edited it, is left alone
    unless `force` says otherwise; then no file is believed by its time, and each is compared with what it should say.
    What can't be written is told and stops nothing, but for a full disk.
    """

    root: RootedFolder
    config: Config
    forms: tuple[str, ...]
    force: bool

    def versions(self, tenant: str) -> dict[str, str]:
        """Which version may have written the oldest files of a home, for each form; none where nobody knows.

        A file that is believed by its time keeps the secrets that an older version didn't know.
        """
        from perdure.adapters.extras import release
        from perdure.adapters.journal.projects import PROJECTS

        ours = dict.fromkeys(FORMATS, release())
        if not any(Path(self._path(f"{_below(tenant)}{PROJECTS}")).glob("*/*.*")):  # files of sessions
            return ours
        try:
            said = js.loads(self.root.read(f"{_below(tenant)}{_WRITTEN_BY}", limit_bytes=_WRITTEN_BY_BYTES))
            known = {form: said[form] for form in FORMATS if isinstance(said[form], str)}
        except (FileRefused, ValueError, TypeError, KeyError):
            return {}
        return ours | known

    def begin(self, tenant: str, versions: Mapping[str, str]) -> None:
        """Mark the folder of a home as one of exports, before anything is written there.

        Where one stands, remove the drafts that a killed run left: in a folder without it they may be anybody's.
        """
        from perdure.adapters.journal.projects import PROJECTS
        from perdure.memory.places import AGENTS, MEMORY

        mark = f"{_below(tenant)}{_WRITTEN_BY}"
        with suppress(FileRefused):  # what can't be marked, or is no plain file, is no mark
            if self.root.stat(mark) is None:
                self.root.write(mark, _version_bytes(versions), is_new=True)
            else:
                for folder in (PROJECTS, MEMORY, AGENTS):
                    self.root.discard_drafts(f"{_below(tenant)}{folder}")

    def keep_versions(self, tenant: str, known: Mapping[str, str]) -> None:
        """Say beside the files of a home which version may have written the oldest ones."""
        if known:
            with suppress(FileRefused):  # then nobody knows
                self.root.write(f"{_below(tenant)}{_WRITTEN_BY}", _version_bytes(known), is_new=False)

    def session(self, info: SessionInfo, kept: KeptIn) -> ExportedSession:
        """Write a session, and those of its sub-agents; what fails is told and stops nothing."""
        from perdure.adapters.journal.projects import PROJECTS, folder_of_name
        from perdure.adapters.journal.store import AGENTS

        tenant = kept.tenant or ""
        stem = f"{_below(tenant)}{PROJECTS}/{folder_of_name(info.project)}/{info.id}"
        files, is_new = list[str](), False
        damage, left, failed = list[str](), list[str](), list[str]()

        def write(name: str, data: bytes, modified: float | None) -> None:
            nonlocal is_new
            try:
                is_new |= self._write(name, data, modified)
            except BadSetting as e:
                left.append(str(e))
            except FileRefused as e:
                failed.append(self._told(name, e))

        sources = [(stem, info.id, info.modified)]
        try:
            if not kept.is_database:
                journal = Path(info.place)
                sources = [(stem, str(journal.parent), info.modified)]
                for one in sorted((journal.parent / AGENTS).glob(f"*/{JOURNAL}")):
                    sources.append((f"{stem}/subagents/{one.parent.name}", str(one.parent), one.stat().st_mtime))
        except OSError as e:
            failed.append(f"{e.filename or info.place}: {e.strerror or e}")
        for target, reference, modified in sources:
            try:
                for form in self._forms(target, reference, modified, kept, damage):
                    files.append(self._path(form.name))
                    if form.data is not None:
                        write(form.name, form.data, None if damage else modified)
            except PerdureError as e:
                failed.append(str(e))
            except OSError as e:
                failed.append(f"{e.filename or info.place}: {e.strerror or e}")
        if "markdown" in self.forms:
            try:
                if (notes := in_loop(_notes, sources[0][1], kept)) is not None:
                    files.append(self._path(f"{stem}.notes.md"))
                    write(f"{stem}.notes.md", notes, None)  # they change without their session
            except PerdureError as e:
                failed += [str(e)] if str(e) not in failed else []
        outcome = "failed" if failed else "left" if left else "damaged" if damage else "exported"
        return ExportedSession(
            tenant,
            info.id,
            info.project,
            "exported before" if outcome == "exported" and not is_new else outcome,
            tuple(files),
            (*failed, *left, *damage),
        )

    def memory(self, tenant: str, place: str, name: str, data: bytes, modified: float) -> None:
        """Write a memory, by the folder that it stands in.

        Raises:
            BadSetting: Something else stands there.
            PerdureError: It can't be written.
        """
        target = "/".join((f"{_below(tenant)}{place}", name))
        try:
            self._write(target, data, modified)
        except FileRefused as e:
            raise PerdureError(self._told(target, e)) from e

    def _forms(self, target: str, reference: str, modified: float, kept: KeptIn, damage: list[str]) -> Iterator[_Form]:
        """Each file of a session; one that has the session's time needs no reading."""
        from perdure.cli.opened import read_session
        from perdure.memory.trust.secrets import redact_log

        one: ReadSession | None = None
        for form in self.forms:
            name = target + FORMATS[form]
            if not self.force and self._is_stamped(name, modified):
                yield _Form(name, None)
                continue
            unchanged = _unchanged(reference, kept) if form == "claude-code" else None
            if unchanged is not None:
                unchanged = redact_log(unchanged, in_loop(_secret_key, kept))  # its lines without any keep their bytes
            if unchanged is None and one is None:
                one = read_session(reference, self.config, kept=kept)
                if one.problems:
                    damage.append(
                        f"{plural(len(one.problems), 'place')} in it can't be read; `perdure doctor` names them"
                    )
            data = unchanged if unchanged is not None else _written(one, self.config, form)[0] if one else b""
            yield _Form(name, data)

    def _write(self, name: str, data: bytes, modified: float | None) -> bool:
        """Whether the file was written; it is there with these bytes otherwise.

        Raises:
            BadSetting: Something else stands there.
            FileRefused: It can't be written, or what stands there is no plain file.
        """
        mtime_ns = None if modified is None else round(modified * 1e6) * 1000
        try:
            there = self.root.stat(name)
            if there is None or there.bytes != len(data) or self.root.read(name, limit_bytes=len(data)) != data:
                if there is not None and not self.force:
                    is_older = mtime_ns is not None and there.mtime_ns < mtime_ns
                    why = "is of before the session went on" if is_older else "says something else than now"
                    raise BadSetting(f"{self._path(name)}: {why}; --force replaces it")
                self.root.write(name, data, is_new=not self.force, mtime_ns=mtime_ns)
                return True
            if mtime_ns is not None and there.mtime_ns != mtime_ns:
                # Whatever has no time of its own is looked at again by the next run.
                self.root.write(name, data, mtime_ns=mtime_ns)
            return False
        except FileRefused as e:
            from perdure.adapters.machine.rooted import takes_nothing

            if takes_nothing(e):
                raise _NoRoomError(self._told(name, e)) from e
            raise

    def _is_stamped(self, name: str, modified: float) -> bool:
        """Whether a file has the time that an export gives it, as far as file systems keep it."""
        try:
            there = self.root.stat(name)
        except FileRefused:
            return False  # it is told when it is to be written
        return there is not None and abs(there.mtime_ns / 1e9 - modified) < 1e-4

    def _path(self, name: str) -> str:
        return os.path.join(self.root.path, name)

    def _told(self, name: str, error: FileRefused) -> str:
        from perdure.adapters.machine.rooted import why_refused

        return f"{self._path(name)}: {why_refused(name, error)}"


class _NoRoomError(Exception):
    """The disk takes nothing more: no other file can be written either."""


def _version_bytes(versions: Mapping[str, str]) -> bytes:
    return js.dumps(versions, sort_keys=True).encode() + b"\n"


def _below(tenant: str) -> str:
    """The beginning of all names of a tenant's files."""
    from perdure.adapters.journal.projects import folder_of_name

    if not tenant:
        return ""
    is_plain = re.fullmatch(r"[A-Za-z0-9_@+-][A-Za-z0-9_.@+-]{0,99}", tenant)  # of a database it may be any text
    return f"tenants/{tenant if is_plain else folder_of_name(tenant)}/"


def _export_all(folder: Path, config: Config, kept: KeptIn, forms: tuple[str, ...], *, force: bool, json: bool) -> int:
    """Write every session and memory below a folder, and say what became of each; the exit code."""
    from perdure.adapters.machine.rooted import RootedFolder
    from perdure.memory.places import DISK

    if folder == STDOUT:
        raise BadSetting("--all writes many files: -o names a folder for them")
    if os.path.lexists(folder) and not folder.is_dir():
        raise BadSetting(f"{folder}: is no folder; name one, or one that isn't there yet")
    homes = (config.home, *([] if kept.is_database or not kept.store else [Path(kept.store)]))
    for kept_in in (*homes, *(root.path for root in beside_home(config) if root.where == "plugin")):
        _check_apart(folder, kept_in)
    tenants = in_loop(_tenants, kept)
    # Names are nobody else's business, and links that others may put there aren't followed: it may be any drive.
    with (
        RootedFolder.open(folder.absolute(), create=True, is_theirs=True, may_be_shared=True, rules=DISK) as root,
        root.alone(),
    ):
        run, outcomes, progress = FolderExport(root, config, forms, force), Counter[str](), Progress()
        others = set[str]()
        try:
            for tenant in tenants:
                place = KeptIn(kept.store or str(config.home), tenant or None)
                others |= _export_home(run, place, outcomes, progress, json=json)
        except _NoRoomError as e:
            outcomes["stopped"] += 1
            progress.clear()
            note(f"{e}: stopped; every file that is there is whole, and the same command goes on with the rest")
        except KeyboardInterrupt:
            note("stopped: every file that is there is whole, and the same command goes on with the rest")
            raise
        finally:
            progress.clear()
            _show_sums(folder.absolute(), outcomes, is_json=json)
    if others:
        whose = f"Perdure {', '.join(sorted(others))}" if all(others) else "another version of Perdure"
        note(
            f"{folder}: some of it may have been written by {whose}; --force writes it as this version does, "
            "without the secrets that this one knows"
        )
    return EXIT_FAILED if any(outcomes[one] for one in _WRONG) else EXIT_OK


def _export_home(
    run: FolderExport, place: KeptIn, outcomes: Counter[str], progress: Progress, *, json: bool
) -> set[str]:
    """Write what is kept of one tenant, or of the person; gives which other versions may have written what was left."""
    from perdure.adapters.extras import release

    tenant, before = place.tenant or "", outcomes.copy()
    versions = run.versions(tenant)
    run.begin(tenant, versions)
    try:
        with _told_and_counted(place, outcomes, "homes failed"):
            listed = in_loop(_listed, place)
            for number, info in enumerate(listed):
                progress(number, len(listed), info.title or info.id)
                done = run.session(info, place)
                outcomes[done.outcome] += 1
                progress.clear()
                _show_session(done, is_json=json)
        with _told_and_counted(place, outcomes, "homes failed"):
            in_loop(_memories, place, run, outcomes)
        if run.force and not any(outcomes[one] > before[one] for one in _WRONG):
            versions |= dict.fromkeys(run.forms, release())
    finally:
        if any(outcomes[one] > before[one] for one in _OUTCOMES):
            run.keep_versions(tenant, versions)
    if run.force or outcomes["exported before"] == before["exported before"]:
        return set()
    return {versions.get(form, "") for form in run.forms} - {release()}


@contextmanager
def _told_and_counted(place: KeptIn, outcomes: Counter[str], kind: str) -> Iterator[None]:
    """A failure of all that is kept of one is one line, unless the store can't be used any more."""
    try:
        yield
    except (PerdureError, OSError) as e:
        in_loop(_tenants, KeptIn(place.store))
        outcomes[kind] += 1
        note(str(e) if isinstance(e, PerdureError) else f"{e.filename or place.store}: {e.strerror or e}")


def _check_apart(folder: Path, home: Path) -> None:
    """Refuse a folder that holds a store, or stands in one: an export is a copy, and its names are a home's own.

    Raises:
        BadSetting: It does.
    """
    target, kept = Path(os.path.realpath(folder)), Path(os.path.realpath(home))
    for inner, outer in ((target, kept), (kept, target)):
        if any(one == outer or _is_same(one, outer) for one in (inner, *inner.parents)):
            raise BadSetting(f"{folder}: sessions are kept in {home}; name a folder that is apart from it")


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)  # spelled otherwise, where case doesn't count, or mounted twice
    except OSError:
        return False


def _show_session(done: ExportedSession, *, is_json: bool) -> None:
    if is_json:
        out_json(asdict(done))
    elif done.said:
        out(clean(f"{done.session}: {done.outcome}: {'; '.join(done.said)}"))


def _show_sums(folder: Path, outcomes: Counter[str], *, is_json: bool) -> None:
    if is_json:
        counted = {name.replace(" ", "_"): outcomes[name] for name in (*_OUTCOMES, *_OTHERS)}
        out_json({"total": {"folder": str(folder), **counted}})
        return
    sessions = sum(outcomes[name] for name in _OUTCOMES)
    sums = ", ".join(f"{outcomes[name]:,} {name}" for name in _OUTCOMES if outcomes[name]) or "none"
    left = "".join(f", {n:,} {word}" for word in ("left", "failed") if (n := outcomes[f"memories {word}"]))
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


async def _secret_key(kept: KeptIn) -> bytes:
    """Return the key by which the home numbers secrets."""
    async with kept.home() as home:
        return await home.secret_key()


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


async def _memories(kept: KeptIn, run: FolderExport, outcomes: Counter[str]) -> None:
    """Write the memories of a home, without secrets, each by the folder that it has in a home of files."""
    from perdure.memory.trust.secrets import find_secrets, redact

    async with kept.home() as home:
        async for one in _found_memories(home):
            try:
                data = one.data
                coding = "utf-16" if one.data[:2] in (BOM_UTF16_LE, BOM_UTF16_BE) else "utf-8"
                if isinstance(data, bytes) and find_secrets(text := data.decode(coding, "replace")):
                    data = redact(text, await home.secret_key()).text.encode(coding)  # one without any keeps its bytes
                if isinstance(data, str):
                    raise PerdureError(data)
                run.memory(kept.tenant or "", one.folder, one.name, data, one.modified)
                outcomes["memories"] += 1
            except PerdureError as e:
                outcomes["memories left" if isinstance(e, BadSetting) else "memories failed"] += 1
                note(str(e))


async def _found_memories(home: Home) -> AsyncIterator[MemoryFileFound]:
    from perdure.adapters.journal.contents import FileContents, MemoryFileFound, folder_of_place
    from perdure.wiring.stores import contents_of

    contents = contents_of(home)
    if isinstance(contents, FileContents):
        for found in contents.each_memory():
            yield found
        return
    for place in await contents.memories():
        folder = folder_of_place(place)
        for name, (data, modified) in sorted((await contents.memory_files(place)).items()):
            if name.endswith(".md") and not any(part.startswith(".") for part in name.split("/")):
                yield MemoryFileFound(folder, "/".join(filter(None, name.split("/"))), data, modified)
