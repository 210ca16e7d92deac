"""Damaged lines of an imported session come back from the source that the import kept (ENG-8, REL-2)."""

from __future__ import annotations

import secrets
from functools import partial
from pathlib import Path

import anyio.to_thread

from perdure.adapters.journal import JOURNAL
from perdure.adapters.journal.disk import DISK, discard, write_new
from perdure.adapters.journal.in_memory import MemoryJournal
from perdure.adapters.journal.store import SessionFiles, SessionStore, secret_key
from perdure.adapters.machine.clock import RandomIds, SystemClock
from perdure.adapters.machine.system import replace
from perdure.engine.imports import last_source, lines_again, repair_journal
from perdure.engine.session import SessionPorts
from perdure.errors import JournalError
from perdure.settings import Settings
from perdure.transcript.records import Repaired

RESTORED = "restored from the log that it was imported from"


async def with_lines_of_source(
    store: SessionStore, files: SessionFiles, settings: Settings
) -> tuple[SessionFiles, tuple[Repaired, ...]]:
    """The session, open for writing, with its damaged lines as the import wrote them, and what was restored.

    As it was, where it was no import, or where it isn't sure what stood there. What was damaged stays in quarantine.
    """
    path = files.directory / JOURNAL
    loaded = await files.journal.load(whole=True)
    source = last_source([placed.record for placed in loaded.records])
    if source is None:
        return files, ()
    ports = SessionPorts(
        journal=files.journal,
        blobs=files.blobs,
        clock=SystemClock(),
        ids=RandomIds(),
        secret_key=secret_key(files.home) if settings.redact_at_ingest and files.home is not None else b"",
    )
    again = MemoryJournal(files.journal.header, encode=True)
    lines = await lines_again(ports, again, files.journal.header, settings, source)
    there = await anyio.to_thread.run_sync(path.read_bytes)
    done = repair_journal(there, lines) if lines is not None else None
    if done is None:
        return files, ()
    data, numbers = done
    try:
        await anyio.to_thread.run_sync(partial(_replace, path, data))
    finally:
        await files.journal.close()
    files = await store.open(files.directory, durability=settings.durability)
    told = tuple(Repaired(line=number, what=RESTORED) for number in numbers)
    try:
        await files.journal.append(told)
    except BaseException:
        await files.journal.close()
        raise
    return files, told


def _replace(path: Path, data: bytes) -> None:
    """All of the journal at once, or the old one; the session's lock is held."""
    draft = path.with_name(f"{path.name}.new-{secrets.token_hex(8)}")
    try:
        write_new(DISK, draft, data)
        replace(draft, path)
        DISK.sync_directory(path.parent)
    except OSError as e:
        raise JournalError(f"{path}: its damaged lines can't be restored: {e.strerror or e}") from e
    finally:
        discard(DISK, draft)
