"""The only place where adapters meet the engine: sessions on the files of this machine, or in memory.

session = await create_session(home, project=".")
session = await open_session(home, "3f2a")          # an id, the beginning of one, or a path
session = await memory_session()                    # nothing survives the process
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from holdfast.adapters.files import SessionFiles, SessionStore
from holdfast.adapters.files.texts import ProjectFiles
from holdfast.adapters.machine import RandomIds, SystemClock
from holdfast.adapters.memory import MemoryBlobs, MemoryJournal
from holdfast.adapters.sinks import NullSink
from holdfast.context.models import ModelFacts
from holdfast.context.restore.registry import Registry
from holdfast.context.restore.standard import STANDARD
from holdfast.engine.session import Session, Window, World
from holdfast.ports import Clock, Files, Ids, Journal, Sink
from holdfast.settings import Settings
from holdfast.transcript.codec import FORMAT, VERSION
from holdfast.transcript.records import Header


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a session is made with; each has a default that fits a person at a terminal.

    `model` and `window` are what is known for certain; without them the journal's own front decides.
    """

    settings: Settings = field(default_factory=Settings)
    model: ModelFacts | None = None
    window: Window | None = None
    sink: Sink = field(default_factory=NullSink)
    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=RandomIds)
    files: Files | None = None  # None: the project's folder on this disk; in memory, no files at all
    registry: Registry = STANDARD


async def create_session(
    home: Path,
    *,
    project: str | Path,
    session: str | None = None,
    source: str | None = None,
    parts: Parts | None = None,
) -> Session:
    """A new session of a project, locked for writing until it is closed."""
    parts = parts or Parts()
    files = await SessionStore(home).create(
        session or parts.ids.new("session"),
        project=project,
        created=parts.clock.now(),
        source=source,
        durability=parts.settings.durability,
    )
    return await _session(files, parts)


async def open_session(
    home: Path, reference: str | Path, *, read_only: bool = False, whole: bool = False, parts: Parts | None = None
) -> Session:
    """A session by id, unique beginning of one, or path. Raises `SessionBusy` when someone else writes it.

    With `read_only` nothing is locked or repaired, and committing anything raises `JournalError`. `whole` reads back
    behind the last boundary, too.
    """
    parts = parts or Parts()
    files = await SessionStore(home).open(reference, durability=parts.settings.durability, read_only=read_only)
    return await _session(files, parts, whole=whole, read_only=read_only)


async def _session(files: SessionFiles, parts: Parts, *, whole: bool = False, read_only: bool = False) -> Session:
    world = World(
        journal=files.journal,
        blobs=files.blobs,
        clock=parts.clock,
        ids=parts.ids,
        sink=parts.sink,
        files=parts.files or ProjectFiles(files.journal.header.project or "."),
    )
    try:
        opened = await Session.open(
            world, parts.settings, model=parts.model, window=parts.window, whole=whole, is_read_only=read_only
        )
    except BaseException:
        await files.journal.close()
        raise
    opened.registry = parts.registry
    return opened


async def memory_session(
    session: str = "memory", *, journal: Journal | None = None, parts: Parts | None = None
) -> Session:
    """A session that lives in this process only, for replays, tests and tries. `journal` goes on with an older one."""
    parts = parts or Parts()
    header = Header(format=FORMAT, version=VERSION, session=session, created=parts.clock.now())
    world = World(
        journal=journal or MemoryJournal(header),
        blobs=MemoryBlobs(),
        clock=parts.clock,
        ids=parts.ids,
        sink=parts.sink,
        files=parts.files,
    )
    opened = await Session.open(world, parts.settings, model=parts.model, window=parts.window)
    opened.registry = parts.registry
    return opened
