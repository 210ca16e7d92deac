"""`holdfast import`: recorded sessions become sessions of ours (ENG-6)."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from holdfast.adapters.files import FileJournal, SessionStore
from holdfast.adapters.files.keys import secret_key
from holdfast.cli.door import note, out, out_json
from holdfast.cli.tables import plural
from holdfast.context.replacements import blob_id
from holdfast.engine.imports import Imported, import_recording, last_source, source_of
from holdfast.engine.session import LiveSession
from holdfast.errors import BadSetting, ForeignFormat, HoldfastError, SessionNotFound
from holdfast.memory.trust.redaction import redact_log
from holdfast.transcript.foreign.detect import read_recordings
from holdfast.transcript.foreign.recording import Recording
from holdfast.transcript.messages import Message
from holdfast.wiring import Parts, create_session, open_session
from holdfast.wiring.restoring import with_lines_of_source

if TYPE_CHECKING:
    from holdfast.adapters.config import Config

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]+")
_SHOWN = 3


def import_command(
    file: Path, config: Config, *, project: Path | None, name: str | None, which: str | None, is_json: bool
) -> None:
    """Import every session of a file, or one of them."""
    data = file.read_bytes()
    found = [one for one in read_recordings(data, file.name) if one.messages]
    wanted = [one for one in found if which is None or one.session == which]
    if not wanted:
        what = f"no session {which!r}" if which else "nothing that was said"
        raise (SessionNotFound if which else ForeignFormat)(f"{file}: {what} in it")
    if name is not None and len(wanted) > 1:
        raise BadSetting(f"--as: {file} holds {plural(len(wanted), 'session')}; choose one with --session")
    store = SessionStore(config.home)
    taken = {directory.name: directory for directory in store.directories()}
    names = [name or _name(one) for one in wanted]
    for number, (one, session) in enumerate(zip(wanted, names, strict=True)):
        session = session if session not in names[:number] else f"{session}-{number + 1}"
        about = (config, project or Path.cwd(), len(found) == 1)
        if there := taken.get(session):
            told = anyio.run(_again, file, data, one, there, about)
        else:
            told = anyio.run(_import, file, data, one, session, about)
        if is_json:
            out_json(told)
        else:
            out(f"{told['session']}: {_what(told)} from {file} ({one.format})")
        for skipped in told["skipped"][:_SHOWN]:
            note(f"{file}: {skipped}: left out")


async def _import(
    file: Path, data: bytes, recording: Recording, session: str, about: tuple[Config, Path, bool]
) -> dict[str, Any]:
    config, project, is_whole = about
    # All of it is made durable at once: until then the file is there to begin again with.
    parts = Parts(settings=replace(config.settings, durability="process"))
    opened = await create_session(config.home, project=project, session=session, source=str(file), parts=parts)
    try:
        done = await import_recording(opened, recording, data, file=file.name, is_whole=is_whole)
        await _synced(opened)
    except BaseException:
        # Half an import is no session; the file is still there to begin again with.
        with contextlib.suppress(HoldfastError, OSError):
            await opened.world.journal.close()
        with contextlib.suppress(HoldfastError, OSError):
            SessionStore(config.home).delete(session)
        raise
    return _told(file, recording, session, done)


async def _again(
    file: Path, data: bytes, recording: Recording, directory: Path, about: tuple[Config, Path, bool]
) -> dict[str, Any]:
    """The same log once more: what came to it since is added, what was damaged is restored, nothing is doubled."""
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
        cut = "holds an import whose end is missing"
        if is_more:  # deleting it would take what was said since
            raise BadSetting(f"{file}: session {directory.name} {cut}, and went on since; {other}")
        again = f"`holdfast sessions delete {directory.name}`, and import again"
        raise BadSetting(f"{file}: session {directory.name} {cut}: {again}; or {other}")
    if before is None or (before.session, before.format) != (recording.session, recording.format):
        raise BadSetting(f"{file}: there is a session {directory.name} already; {other}")
    told = {"is_there": True, "restored": [one.line for one in restored]}
    now = redact_log(data, secret_key(config.home)) if settings.redact_at_ingest else data
    if blob_id(now) == before.blob:
        return _told(file, recording, directory.name, Imported(0, before.blob, 0, ())) | told
    if source is None:
        raise BadSetting(f"{file}: session {directory.name} went on since it was imported; {other}")
    if is_more:
        raise BadSetting(f"{file}: session {directory.name} holds another log of that name; {other}")
    opened = await open_session(config.home, directory, whole=True, parts=Parts(settings=settings))
    try:
        done = await import_recording(
            opened, recording, data, file=file.name, is_whole=is_whole, at=before.at, known=records
        )
    finally:
        await _synced(opened)
    return _told(file, recording, directory.name, done) | told


async def _synced(session: LiveSession) -> None:
    journal = session.world.journal
    if isinstance(journal, FileJournal):
        await journal.sync()
    await session.close()


def _told(file: Path, recording: Recording, session: str, done: Imported) -> dict[str, Any]:
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
    if not told["is_there"]:
        return plural(told["messages"], "message")
    mended = f"; {plural(len(told['restored']), 'damaged line')} restored" if told["restored"] else ""
    more = f"{plural(told['messages'], 'new message')} added" if told["messages"] else "nothing new"
    return f"is there already, {more}{mended},"


def _name(recording: Recording) -> str:
    """The id that the recording has, as far as an id may look like that."""
    name = _NOT_IN_IDS.sub("-", recording.session).strip("-_")[:120]
    return name or "imported"
