"""Logs of other agents become sessions of a home (ENG-6, CLI-6): each once and whole or not at all; what came to a log
since goes on in its session.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import TypeVar

import anyio
import anyio.to_thread

from perdure.adapters.journal import JOURNAL
from perdure.adapters.journal.journal import FileJournal
from perdure.adapters.journal.store import EDGE_BYTES, SessionFiles, SessionStore, secret_key
from perdure.adapters.logs import LogFile, read_log
from perdure.adapters.machine.clock import SystemClock
from perdure.adapters.machine.repositories import GIT, is_no_project
from perdure.adapters.machine.system import open_file
from perdure.context.passes import blob_id
from perdure.engine.imports import (
    ImportResult,
    ImportSource,
    LogStamp,
    first_id,
    import_recording,
    is_beyond,
    is_continued,
    is_copied,
    is_held,
    last_source,
    listed_as,
)
from perdure.engine.session import LiveSession
from perdure.errors import BadSetting, PerdureError, SessionBusy, SessionNotFound
from perdure.logs.detect import read_recordings
from perdure.logs.recording import Recording
from perdure.memory.trust.secrets import redact_log
from perdure.ports.session import Journal
from perdure.settings import Settings
from perdure.transcript.codec import decode_line
from perdure.transcript.messages import Message
from perdure.transcript.records import IMPORTED, Record
from perdure.wiring.parts import SessionOptions
from perdure.wiring.restoring import with_lines_of_source
from perdure.wiring.sessions import open_session, session_of

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]+")
OpenedT = TypeVar("OpenedT")

_PATIENCE_SECONDS = 5.0  # for another import at the same session
_NOTED = f'"{IMPORTED}"'.encode()


@dataclass(frozen=True, slots=True)
class ImportedLog:
    """What became of one session of a log.

    `is_there`: an earlier import, or another log, had brought it; `messages` are then those that were new. `restored`
    are the damaged lines that are whole again, `skipped` what no limit lets in, `problems` what couldn't be read.
    """

    session: str
    file: Path
    format: str
    messages: int
    blob: str
    renamed: int = 0
    skipped: tuple[str, ...] = ()
    problems: int = 0
    is_there: bool = False
    restored: tuple[int, ...] = ()

    @property
    def is_new(self) -> bool:
        """Whether anything was written."""
        return not self.is_there or bool(self.messages or self.restored)


class _OtherConversation(BadSetting):
    """The session holds something else than the log."""


@dataclass(frozen=True, slots=True)
class _ReadLog:
    """One session of a log, with the file that it was read from."""

    file: LogFile
    data: bytes
    recording: Recording
    is_whole: bool  # the file holds nothing else

    @property
    def stamp(self) -> LogStamp:
        path, about = _shown(os.path.abspath(self.file.path)), self.file
        return LogStamp(path=path, bytes=about.bytes, mtime_ns=about.mtime_ns, first=first_id(self.recording))


@dataclass(slots=True)
class LogImports:
    """One run over logs. Other processes may import into the same home at the same time.

    Args:
        home: Where sessions are kept.
        settings: Those of the sessions.
        project: The project of all of them; without it, each belongs to the folder that it was recorded in.
        has_many: Of many logs, one that holds something else than the session of its name gets another id; one log by
            itself is refused then, so that somebody can say what is meant.
    """

    home: Path
    settings: Settings
    project: Path | None = None
    has_many: bool = False
    _taken: dict[str, Path] = field(default_factory=dict)  # the sessions that there are, by their ids
    _by_path: dict[str, dict[Path, ImportSource]] = field(default_factory=dict)
    _by_first: dict[str, list[Path]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.settings = replace(self.settings, durability="process")  # all of a log is made durable at once, at its end
        for directory in SessionStore(self.home).directories():
            self._taken[directory.name] = directory
            if (source := _noted_source(directory / JOURNAL)) is not None:
                self._learn(directory, source)

    def _learn(self, directory: Path, source: ImportSource) -> None:
        self._taken[directory.name] = directory
        if isinstance(source.stamp, LogStamp):
            self._by_path.setdefault(source.stamp.path, {})[directory] = source
            if source.stamp.first is not None and directory not in self._by_first.setdefault(source.stamp.first, []):
                self._by_first[source.stamp.first].append(directory)

    def unchanged(self, file: LogFile) -> tuple[ImportedLog, ...]:
        """What earlier imports made of a file that is as it was then; nothing where it has to be looked at."""
        seen = self._by_path.get(_shown(os.path.abspath(file.path)), {})
        return tuple(
            ImportedLog(directory.name, file.path, source.format, 0, source.blob, is_there=True)
            for directory, source in seen.items()
            if isinstance(source.stamp, LogStamp)
            and (source.stamp.bytes, source.stamp.mtime_ns) == (file.bytes, file.mtime_ns)
        )

    async def take(
        self, path: Path, tell: Callable[[ImportedLog], None], *, name: str | None = None, which: str | None = None
    ) -> int:
        """Import the sessions of a file, and `tell` of each; how many there were.

        Args:
            path: The log.
            tell: Called once for each session, when all of it is kept.
            name: The id that the session gets instead of the one in the log.
            which: The only session to take, of a file with several.

        Raises:
            SessionNotFound: The file has no session `which`.
            BadSetting: There is a session of that id that holds something else; or `name` is for several.
            PerdureError, OSError: The file can't be read, or the session can't be written.
        """
        count, error = 0, None

        async def body() -> None:
            nonlocal count, error
            try:
                count = await self._take(path, tell, name, which)
            except Exception as e:
                error = e

        # Ctrl-C cancels the task that a program began with, whatever it waits for. A group hands that on to a task of
        # its own as a cancellation that waits for threads: they would go on making what was just cleared away.
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(body)
        if error is not None:
            raise error
        return count

    async def _take(self, path: Path, tell: Callable[[ImportedLog], None], name: str | None, which: str | None) -> int:
        data, file = await anyio.to_thread.run_sync(read_log, path)
        found = [one for one in read_recordings(data, path.name) if one.messages]
        wanted = [one for one in found if which is None or one.session == which]
        if not wanted and which:
            raise SessionNotFound(f"{path}: no session {which!r} in it; `perdure inspect` lists them")
        if name is not None and len(wanted) > 1:
            raise BadSetting(f"--as: {path} holds {len(wanted)} sessions; choose one with --session")
        names: list[str] = []
        for one in wanted:
            own = name or _name(one)
            names.append(own if own not in names else f"{own}-{len(names) + 1}")
            tell(await self._take_one(_ReadLog(file, data, one, len(found) == 1), names[-1]))
        return len(wanted)

    async def _take_one(self, log: _ReadLog, name: str) -> ImportedLog:
        if not self.has_many:
            there = self._taken.get(name)
            return await (self._create(log, name) if there is None else self._again(log, there))
        for directory in self._likely(log, name):
            try:
                return await self._again(log, directory)
            except _OtherConversation:
                continue
        return await self._create(log, self._free(name))

    def _likely(self, log: _ReadLog, name: str) -> list[Path]:
        """The sessions that may hold a log: those made of this very file, that of its name, those that begin alike."""
        stamp = log.stamp
        own = self._by_path.get(stamp.path, {})
        found = [directory for directory, source in own.items() if source.session == log.recording.session]
        found += [self._taken[name]] if name in self._taken else []
        found += self._by_first.get(stamp.first or "", ())
        return list(dict.fromkeys(found))

    def _free(self, name: str) -> str:
        number, free = 2, name
        while free in self._taken:
            free, number = f"{name}-{number}", number + 1
        return free

    def _folder(self, recording: Recording) -> Path:
        """The project of a session: as was asked, else where it was recorded, whether that is here or not."""
        if self.project is not None:
            return self.project
        folder = Path(recording.cwd or "")
        if not folder.is_absolute() and PureWindowsPath(folder).is_absolute():
            folder = Path(f"/{folder}")  # of another system: a folder that isn't here, under its own name
        if not folder.is_absolute() or "\0" in str(folder) or is_no_project(os.path.realpath(folder)):
            return Path.cwd()
        try:
            os.stat(folder / GIT)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:  # somebody else's, or too long to be one: what a project has couldn't be looked for there
            return Path.cwd()
        return folder

    async def _create(self, log: _ReadLog, name: str) -> ImportedLog:
        store, parts = SessionStore(self.home), SessionOptions(settings=self.settings)
        draft = await store.create(
            name,
            project=self._folder(log.recording),
            created=_begun(log),
            source=_shown(log.file.path),
            durability="process",
            is_draft=True,
        )
        try:
            opened = await session_of(draft, parts)
            try:
                done = await _said(opened, log)
            finally:
                await opened.close()
            _date(draft.directory, log.file)
            is_ours = await store.publish(draft)
        except BaseException:  # half an import is no session; the log is still there to begin again with
            await _given_up(draft)
            raise
        directory = draft.directory.with_name(name)
        if not is_ours:  # another process was faster
            await _given_up(draft)
            self._taken[name] = directory
            return await self._take_one(log, name)
        self._learn(directory, _source(log, done))
        return _told(log, name, done)

    async def _again(self, log: _ReadLog, directory: Path) -> ImportedLog:
        """The same log once more: what came to it since is added, what was damaged is restored, nothing is doubled."""
        path, recording, store = log.file.path, log.recording, SessionStore(self.home)
        files = await self._patiently(partial(store.open, directory, durability="process"))
        files, restored = await with_lines_of_source(store, files, self.settings)
        try:
            records = await _records(files.journal)
        finally:
            await files.journal.close()
        before = self._checked_source(log, directory, records, is_import=files.journal.header.source is not None)
        mended = tuple(one.line or 0 for one in restored)
        data = redact_log(log.data, secret_key(self.home)) if self.settings.redact_at_ingest else log.data
        has_gone_on, has_more = is_continued(records, recording), is_beyond(records, recording)
        if blob_id(data) == before.blob or ((has_gone_on or has_more) and is_held(recording, records)):
            nothing = ImportResult(0, before.blob, 0, ())
            return replace(_told(log, directory.name, nothing), is_there=True, restored=mended)
        other = "--as gives the import another id"
        if has_gone_on:
            raise _OtherConversation(
                f"{path}: session {directory.name} has been continued since it was imported; {other}"
            )
        if has_more:
            raise _OtherConversation(f"{path}: session {directory.name} holds another log of that name; {other}")
        parts = SessionOptions(settings=self.settings)
        opened = await self._patiently(partial(open_session, self.home, directory, whole=True, parts=parts))
        is_as_before = _said_in(await _records(opened.ports.journal)) == _said_in(records)
        try:
            done = await _said(opened, log, at=before.at, known=records) if is_as_before else None
        finally:
            await _synced(opened)
        if done is None:  # somebody was faster
            return await self._again(log, directory)
        _date(directory, log.file)
        self._learn(directory, _source(log, done))
        return replace(_told(log, directory.name, done), is_there=True, restored=mended)

    async def _patiently(self, opening: Callable[[], Awaitable[OpenedT]]) -> OpenedT:
        """What opens a session for writing; of many logs, one that another import is adding to is waited for."""
        until = anyio.current_time() + (_PATIENCE_SECONDS if self.has_many else 0.0)
        while True:
            try:
                return await opening()
            except SessionBusy:
                if anyio.current_time() >= until:
                    raise
            await anyio.sleep(0.1)

    def _checked_source(
        self, log: _ReadLog, directory: Path, records: Sequence[Record], *, is_import: bool
    ) -> ImportSource:
        """Where a session came from; refuses one that this log has nothing to do with, and an old one cut short."""
        path, before, other = log.file.path, last_source(records), "--as gives the import another id"
        if before is None and is_import:
            cut = "is an unfinished import"
            if is_beyond(records, log.recording):  # deleting it would take what was said since
                raise _OtherConversation(
                    f"{path}: session {directory.name} {cut}, and has been continued since; {other}"
                )
            again = f"`perdure sessions delete {directory.name}`, and import again"
            raise BadSetting(f"{path}: session {directory.name} {cut}: {again}; or {other}")
        first = first_id(log.recording)
        is_copy = before is not None and isinstance(before.stamp, LogStamp) and first and before.stamp.first == first
        if (
            before is None
            or before.format != log.recording.format
            or (before.session != log.recording.session and not is_copy)
        ):
            raise _OtherConversation(f"{path}: there is already a session {directory.name}; {other}")
        if before.session != log.recording.session and not is_copied(log.recording, records):
            raise _OtherConversation(f"{path}: session {directory.name} went on in another way; {other}")
        return before


async def _records(journal: Journal) -> tuple[Record, ...]:
    return tuple(placed.record for placed in (await journal.load(whole=True)).records)


def _said_in(records: Sequence[Record]) -> list[str]:
    return [record.id for record in records if isinstance(record, Message)]


async def _said(
    session: LiveSession, log: _ReadLog, *, at: float | None = None, known: Sequence[Record] = ()
) -> ImportResult:
    done = await import_recording(
        session,
        log.recording,
        log.data,
        file=_shown(log.file.path.name),
        is_whole=log.is_whole,
        at=at,
        known=known,
        stamp=log.stamp,
    )
    if (titled := listed_as(log.recording, session.view.state.title)) is not None:
        await session.record(titled)
    return done


async def _synced(session: LiveSession) -> None:
    journal = session.ports.journal
    if isinstance(journal, FileJournal):
        await journal.sync()
    await session.close()


async def _given_up(draft: SessionFiles) -> None:
    with anyio.CancelScope(shield=True):
        await draft.journal.close()
        await anyio.to_thread.run_sync(partial(shutil.rmtree, draft.directory, ignore_errors=True))


def _source(log: _ReadLog, done: ImportResult) -> ImportSource:
    return ImportSource(
        file=_shown(log.file.path.name),
        format=log.recording.format,
        session=log.recording.session,
        blob=done.blob,
        bytes=len(log.data),
        messages=done.messages,
        stamp=log.stamp,
    )


def _told(log: _ReadLog, session: str, done: ImportResult) -> ImportedLog:
    recording = log.recording
    problems = len(recording.problems)
    return ImportedLog(
        session, log.file.path, recording.format, done.messages, done.blob, done.renamed, done.skipped, problems
    )


def _begun(log: _ReadLog) -> float:
    """Return when a session began: when its log says, and not after that was written."""
    said = [one.at for one in log.recording.messages if one.at]
    known = [*said[:1], *([log.file.mtime_ns / 1e9] if log.file.mtime_ns else [])]
    return min(known) if known else SystemClock().now()


def _date(directory: Path, file: LogFile) -> None:
    """Have a session be written last when its log was: listings put it where it belongs, and `@last` is one's own."""
    with contextlib.suppress(OSError):
        os.utime(directory / JOURNAL, ns=(file.mtime_ns, file.mtime_ns))


def _shown(path: str | Path) -> str:
    """A path as a journal can hold it; two that differ in bytes that are no text have different ones."""
    return os.fsencode(path).decode(errors="backslashreplace")


def _noted_source(journal: Path) -> ImportSource | None:
    """Where the end of a journal says that the session came from; None too where that stands further up."""
    for line in _last_lines(journal):
        if _NOTED in line:
            try:
                if (source := last_source(decode_line(line).records)) is not None:
                    return source
            except PerdureError:
                continue
    return None


def _last_lines(journal: Path) -> Iterator[bytes]:
    try:
        with open(open_file(journal, os.O_RDONLY), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - EDGE_BYTES))
            yield from reversed(file.read(EDGE_BYTES).split(b"\n"))
    except OSError:
        return


def _name(recording: Recording) -> str:
    """The id that the recording has, as far as an id may look like that."""
    name = _NOT_IN_IDS.sub("-", recording.session).strip("-_")[:120]
    return name or "imported"
