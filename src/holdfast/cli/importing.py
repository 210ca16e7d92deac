"""`holdfast import`: recorded sessions become sessions of ours (ENG-6)."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from holdfast.adapters.files import SessionStore
from holdfast.cli.door import note, out, out_json
from holdfast.cli.tables import plural
from holdfast.engine.imports import import_recording
from holdfast.errors import BadSetting, ForeignFormat, HoldfastError, SessionNotFound
from holdfast.transcript.foreign.detect import read_recordings
from holdfast.transcript.foreign.recording import Recording
from holdfast.wiring import Parts, create_session

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
    taken = {directory.name for directory in store.directories()}
    names = [name or _name(one) for one in wanted]
    if again := [n for n in names if n in taken]:
        raise BadSetting(f"{file}: there is a session {again[0]} already; --as gives the import another id")
    for number, (one, session) in enumerate(zip(wanted, names, strict=True)):
        session = session if session not in names[:number] else f"{session}-{number + 1}"
        told = anyio.run(_import, file, data, one, session, (config, project or Path.cwd(), len(found) == 1))
        if is_json:
            out_json(told)
        else:
            out(f"{told['session']}: {plural(told['messages'], 'message')} from {file} ({one.format})")
        for skipped in told["skipped"][:_SHOWN]:
            note(f"{file}: {skipped}: left out")


async def _import(
    file: Path, data: bytes, recording: Recording, session: str, about: tuple[Config, Path, bool]
) -> dict[str, Any]:
    config, project, is_whole = about
    opened = await create_session(
        config.home, project=project, session=session, source=str(file), parts=Parts(settings=config.settings)
    )
    try:
        done = await import_recording(opened, recording, data, file=file.name, is_whole=is_whole)
        await opened.close()
    except BaseException:
        # Half an import is no session; the file is still there to begin again with.
        with contextlib.suppress(HoldfastError, OSError):
            await opened.world.journal.close()
        with contextlib.suppress(HoldfastError, OSError):
            SessionStore(config.home).delete(session)
        raise
    return {
        "session": session,
        "file": str(file),
        "format": recording.format,
        "messages": done.messages,
        "blob": done.blob,
        "renamed": done.renamed,
        "skipped": list(done.skipped),
        "problems": len(recording.problems),
    }


def _name(recording: Recording) -> str:
    """The id that the recording has, as far as an id may look like that."""
    name = _NOT_IN_IDS.sub("-", recording.session).strip("-_")[:120]
    return name or "imported"
