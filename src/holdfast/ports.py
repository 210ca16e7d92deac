"""What the engine needs from the world. Adapters implement these; the engine sees nothing else of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from holdfast.events import Event
from holdfast.transcript.messages import BlobId
from holdfast.transcript.records import Header, Record, Repaired


@dataclass(frozen=True, slots=True)
class Receipt:
    """An acknowledged append: its sequence number and where its line starts, in bytes from the journal's start."""

    seq: int
    offset: int


@dataclass(frozen=True, slots=True)
class Placed:
    """A record read back, with the offset and sequence number of its line."""

    record: Record
    seq: int
    offset: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """What opening a journal read.

    Without `whole`, `records` start at the last boundary's `kept_from`: before the boundary only the messages that it
    kept, then the boundary, then all that follows. `repairs` were made since it was opened (and are in the
    journal already, but for a reader, or on a disk that refuses them).
    """

    header: Header
    records: tuple[Placed, ...]
    whole: bool
    repairs: tuple[Repaired, ...] = ()


class Journal(Protocol):
    """The append-only file of one session.

    `append` returns once the records are durable (REL-1), all or none, in the order of the calls; it raises
    `JournalLost` when what it acknowledged before is no longer there (REL-9), and `JournalError` when the disk refuses
    (REL-10): nothing was then acknowledged, and a later append may succeed. One writer at a time (ENG-4).
    """

    async def append(self, records: tuple[Record, ...]) -> Receipt: ...

    async def load(self, *, whole: bool = False) -> Loaded: ...

    async def close(self) -> None: ...


class Blobs(Protocol):
    """Content-addressed storage of what left the view (RCL-2). Putting the same bytes twice is one blob."""

    async def put(self, contents: tuple[bytes, ...]) -> tuple[BlobId, ...]: ...

    async def get(self, blob: BlobId) -> bytes: ...


class Clock(Protocol):
    """Wall time in seconds since the epoch; used for ages only, never for order (REL-13)."""

    def now(self) -> float: ...


class Ids(Protocol):
    """New identifiers, unique within the session's store."""

    def new(self, kind: str) -> str: ...


class Sink(Protocol):
    """Takes events; must not raise for long, and never blocks the turn (OBS-1)."""

    def emit(self, event: Event) -> None: ...
