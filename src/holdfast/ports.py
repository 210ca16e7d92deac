"""What the engine needs from the world. Adapters implement these; the engine sees nothing else of the machine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.context.replies import About, Delta, Reply
from holdfast.context.requests import Request
from holdfast.context.restore.registry import FileNow
from holdfast.events import Event
from holdfast.memory.changes import Change, Entry, Proposal, Provenance, Stamp, Written
from holdfast.memory.instructions.places import Gathered
from holdfast.memory.retrieval.memories import Card, Chosen, Wanted
from holdfast.memory.topics import Topic
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """Something that was said and fits a query. `id` brings it back by recall, in the session named.

    `line` (from 1) and `offset` (characters) are places in its text, `journal_offset` is that of its line in the
    journal (bytes). `also` are the other places with exactly this text, newest first: session, id to recall, message.
    """

    id: str
    session: str
    project: str
    message: str
    role: str
    tool: str
    agent: str | None
    at: float | None
    journal_offset: int
    line: int
    offset: int
    snippet: str
    score: float
    also: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """What a search gave, best first. `note` says what kept it from being as usual."""

    hits: tuple[Hit, ...]
    note: str = ""


class Archive(Protocol):
    """What was said in all sessions of a project, compacted away or not (RCL-1, SES-2).

    `search` sees everything that was acknowledged before it began. `load` gives another session of the project whole;
    `SessionNotFound` for any other.
    """

    async def search(self, query: str, *, limit: int = 10, sessions: Sequence[str] = ()) -> Found: ...

    async def load(self, session: str) -> tuple[Loaded, Blobs]: ...


class Model(Protocol):
    """A language model behind one wire (LIB-3, TURN-11).

    `stream` sends a request's bytes as they are and gives deltas, then exactly one `Reply`; it raises a `ModelError`
    and nothing else, also in the middle, and never tries again by itself: retries are the ladder's. Closing the
    generator early, or cancelling its task, ends the call. `count` is the provider's own count of a request's prompt,
    None where it offers none (TOK-7). One model may serve several calls at a time.
    """

    @property
    def about(self) -> About: ...

    def stream(self, request: Request) -> AsyncGenerator[Delta | Reply, None]: ...

    async def count(self, request: Request) -> int | None: ...

    async def close(self) -> None: ...


class Jobs(Protocol):
    """Runs work beside the turn. `start` returns at once and never raises what the work raises.

    `settle` waits until all work that was started has ended, at most so many seconds, and says whether it did; `close`
    cancels what still runs and waits for it to end.
    """

    def start(self, name: str, work: Callable[[], Awaitable[None]]) -> None: ...

    async def settle(self, seconds: float | None = None) -> bool: ...

    async def close(self) -> None: ...


class Files(Protocol):
    """The files of the machine that the agent works on, as they are now (RST-1).

    `read` answers for each path in order: the text, or why there is none (`FileNow.why`, a short phrase for people: no
    longer on disk, too large, not a text file). It never raises for what is wrong with a file. Relative paths are taken
    from the project's folder.
    """

    async def read(self, paths: tuple[str, ...], *, limit_bytes: int) -> tuple[FileNow, ...]: ...


class InstructionFiles(Protocol):
    """The instruction files of a working directory, as they are now (INS-1 to INS-6). None of the methods raises.

    `at_start` is what loads with a session, in loading order; `touched` what loads once tools touched these paths;
    `again` these files once more, whatever made them load (one that is gone is missing in the answer).
    """

    async def at_start(self) -> Gathered: ...

    async def touched(self, paths: tuple[str, ...]) -> Gathered: ...

    async def again(self, paths: tuple[str, ...]) -> Gathered: ...


@dataclass(frozen=True, slots=True)
class Memorable:
    """What a question found: the memories in their order with why, all candidates if asked for, and of how many."""

    chosen: tuple[Chosen, ...]
    scanned: int
    cards: tuple[Card, ...] = ()


class MemorySearch(Protocol):
    """The persistent memories that a session may read (MEM-4, MEM-12). None of the methods raises for a bad file.

    `find` ranks at once, on an index that stays in the process; with `fill`, `cards` are the best, and after them the
    newest, up to the limit. `read` gives the memories that can be read, whole. `index` is the text of `MEMORY.md`,
    None without one, and when each file changed (seconds). `where` names the directory, for people and models.
    """

    where: str

    async def find(self, wanted: Wanted, *, fill: bool = False) -> Memorable: ...

    async def read(self, files: tuple[str, ...]) -> tuple[Topic, ...]: ...

    async def index(self) -> tuple[str | None, Mapping[str, float]]: ...


class NotesFile(Protocol):
    """The file of a session's notes, and what the user put beside it (SM-1, SM-6). Failures are `JournalError`.

    `read` gives the bytes, None when there is no file. `write` replaces it in one step, private to the user, and only
    while its bytes are still `instead_of` (None: no file): False when somebody else wrote meanwhile. `set_aside` gives
    the file another name beside it, which it returns. `custom` is `template.md` or `prompt.md` of the user.
    """

    path: str

    async def read(self) -> bytes | None: ...

    async def write(self, data: bytes, *, instead_of: bytes | None) -> bool: ...

    async def set_aside(self) -> str: ...

    async def custom(self, name: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A file of the memory. `text` keeps bytes that are no UTF-8 (`changes.encoded` gives them back)."""

    name: str
    text: str
    digest: str


@dataclass(frozen=True, slots=True)
class MemoryStat:
    """A file of the memory as a listing has it; `mtime` in seconds since the epoch."""

    name: str
    bytes: int
    mtime: float
    digest: str


@dataclass(frozen=True, slots=True)
class MemoryListing:
    """All files in order of their names; `refused` are others with the reason; `is_cut`: there are more."""

    files: tuple[MemoryStat, ...]
    refused: tuple[tuple[str, str], ...] = ()
    is_cut: bool = False


class Memories(Protocol):
    """The files of one memory directory (MEM-1, MEM-9, REL-7). Failures are `FileRefused`, one line each.

    Names are relative, as `memory.names` has them. Readers see whole files, old or new, at any moment. `write` makes a
    change that carries the text it started from: when the file still says that, it is replaced in one step; when it
    says something else, both are merged by lines, or the new text is kept under a name beside it and `Written` says
    so; a delete or rename of a file that changed is refused (`MemoryChanged`). Nothing acknowledged is ever lost. What
    may be written is for `memory.trust.gate` to say, before; `engine.remembering` asks it.
    """

    async def listing(self) -> MemoryListing: ...

    async def read(self, name: str) -> MemoryFile | None: ...

    async def write(self, change: Change, stamp: Stamp, *, mode: str) -> Written: ...


class MemoryLog(Protocol):
    """What was done to a memory directory, in order (MEM-8, MEM-10): written before what it tells.

    `entries` gives the last ones, newest first, of all files or one. `provenance` tells where files come from; one that
    was written around us isn't in it, or has another digest. `undo` takes back the entry named, or the last one that
    was not; `MemoryChanged` when the file says something else by now. An undo is an entry, and can be taken back.
    """

    async def entries(self, *, limit: int = 50, name: str | None = None) -> tuple[Entry, ...]: ...

    async def provenance(self) -> Mapping[str, Provenance]: ...

    async def undo(self, entry: str | None, stamp: Stamp) -> Written: ...


class MemoryInbox(Protocol):
    """Changes that wait for a person (MEM-8). `approve` makes one as `Memories.write` does, with its own stamp."""

    async def pending(self) -> tuple[Proposal, ...]: ...

    async def propose(self, change: Change, stamp: Stamp, why: str) -> Proposal: ...

    async def approve(self, proposal: str) -> Written: ...

    async def reject(self, proposal: str) -> None: ...


class Clock(Protocol):
    """Wall time in seconds since the epoch; used for ages only, never for order (REL-13). `sleep` lets it pass."""

    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    """New identifiers, unique within the session's store."""

    def new(self, kind: str) -> str: ...


class Calibrations(Protocol):
    """What sessions before this one learned about a model's counting (TOK-4). A cache; it never raises."""

    def ratio(self, model: str) -> float | None: ...

    def learn(self, model: str, ratio: float) -> None: ...


class Sink(Protocol):
    """Takes events; must not raise for long, and never blocks the turn (OBS-1)."""

    def emit(self, event: Event) -> None: ...
