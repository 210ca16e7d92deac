"""What a session needs: journal, blobs, models, jobs, clock."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from perdure.compaction.restore.registry import CurrentFile
    from perdure.context.replies import Delta, ModelInfo, Reply
    from perdure.context.request import ModelRequest
    from perdure.events import Event
    from perdure.transcript.messages import BlobId
    from perdure.transcript.records import Header, Record, Repaired


@dataclass(frozen=True, slots=True)
class Receipt:
    """An acknowledged append: its sequence number and where its line starts, in bytes from the journal's start."""

    seq: int
    offset: int


@dataclass(frozen=True, slots=True)
class PlacedRecord:
    """A record read back, with the offset and sequence number of its line."""

    record: Record
    seq: int
    offset: int


@dataclass(frozen=True, slots=True)
class LoadedJournal:
    """What opening a journal read.

    Without `whole`, `records` start at the last boundary's `kept_from`: before the boundary only the messages that it
    kept, then the boundary, then all that follows. `repairs` were made since it was opened (and are in the
    journal already, but for a reader, or on a disk that refuses them).
    """

    header: Header
    records: tuple[PlacedRecord, ...]
    whole: bool
    repairs: tuple[Repaired, ...] = ()


class Journal(Protocol):
    """The append-only file of one session.

    `append` returns once the records are durable (REL-1), all or none, in the order of the calls; it raises
    `JournalLost` when what it acknowledged before is no longer there (REL-9), and `JournalError` when the disk refuses
    (REL-10): nothing was then acknowledged, and a later append may succeed. One writer at a time (ENG-4). `sync` makes
    durable what was acknowledged of a journal that was opened with less; until then it outlives at most the process.
    """

    async def append(self, records: tuple[Record, ...]) -> Receipt: ...

    async def load(self, *, whole: bool = False) -> LoadedJournal: ...

    async def sync(self) -> None: ...

    async def close(self) -> None: ...


class Blobs(Protocol):
    """Content-addressed storage of what left the view (RCL-2). Putting the same bytes twice is one blob."""

    async def put(self, contents: tuple[bytes, ...]) -> tuple[BlobId, ...]: ...

    async def get(self, blob: BlobId) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchHit:
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
class SearchResults:
    """What a search gave, best first. `note` says what kept it from being as usual."""

    hits: tuple[SearchHit, ...]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSession:
    """A session that matters to a prompt (MEM-15): when something was last said in it, and why it fits.

    `score` is 1 for the best. `words` are those of the prompt that it holds, the rarest first; `files` some that it
    touched, first those that the prompt names.
    """

    session: str
    project: str
    title: str
    at: float | None
    score: float
    words: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FoundSessions:
    """Sessions that matter, best first. `note` says what kept the search from being as usual."""

    sessions: tuple[FoundSession, ...]
    note: str = ""


class Archive(Protocol):
    """What was said in all sessions of a project, compacted away or not (RCL-1, SES-2).

    `search` sees everything that was acknowledged before it began; of what was said `since` a time, where one is given.
    `sessions` ranks those that were written `since` then for a prompt (MEM-15), `without` those of some ids. `load`
    gives another session of the project whole; `SessionNotFound` for any other.
    """

    async def search(
        self, query: str, *, limit: int = 10, sessions: Sequence[str] = (), since: float | None = None
    ) -> SearchResults: ...

    async def sessions(
        self, prompt: str, *, limit: int = 5, since: float | None = None, without: Collection[str] = ()
    ) -> FoundSessions: ...

    async def load(self, session: str) -> tuple[LoadedJournal, Blobs]: ...


class Model(Protocol):
    """A language model behind one wire (LIB-3, TURN-11).

    `stream` sends a request's bytes as they are and gives deltas, then exactly one `Reply`; it raises a `ModelError`
    and nothing else, also in the middle, and never tries again by itself: retries are the ladder's. Closing the
    generator early, or cancelling its task, ends the call. `count` is the provider's own count of a request's prompt,
    None where it offers none (TOK-7). One model may serve several calls at a time.
    """

    @property
    def about(self) -> ModelInfo: ...

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Reply, None]: ...

    async def count(self, request: ModelRequest) -> int | None: ...

    async def close(self) -> None: ...


class Jobs(Protocol):
    """Runs work beside the turn. `start` returns at once and never raises what the work raises.

    `drain` waits until all work that was started has ended, at most so many seconds, and says whether it did; `close`
    cancels what still runs and waits for it to end.
    """

    def start(self, name: str, work: Callable[[], Awaitable[None]]) -> None: ...

    async def drain(self, seconds: float | None = None) -> bool: ...

    async def close(self) -> None: ...


class Files(Protocol):
    """The files of the machine that the agent works on, as they are now (RST-1).

    `read` answers for each path in order: the text, or why there is none (`CurrentFile.why`, a short phrase for people:
    no longer on disk, too large, not a text file). It never raises for what is wrong with a file. Relative paths are
    taken from the project's folder.
    """

    async def read(self, paths: tuple[str, ...], *, limit_bytes: int) -> tuple[CurrentFile, ...]: ...


class NotesFile(Protocol):
    """The file of a session's notes, and what the user put beside it (SM-1, SM-6). Failures are `JournalError`.

    `read` gives the bytes, None when there is no file. `write` replaces it in one step, private to the user, and only
    while its bytes are still `instead_of` (None: no file): False when somebody else wrote meanwhile. `set_aside` gives
    the file another name beside it, which it returns. `custom` is `template.md` or `prompt.md` of the user.
    """

    @property
    def path(self) -> str: ...

    async def read(self) -> bytes | None: ...

    async def write(self, data: bytes, *, instead_of: bytes | None) -> bool: ...

    async def set_aside(self) -> str: ...

    async def custom(self, name: str) -> str | None: ...


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


class SpendingCaps(Protocol):
    """Caps on what calls of models cost (OBS-2), asked before each call and told behind it.

    `admit` takes what a call costs at least in US dollars (None: no price is known), and what is likely while no call
    has ended yet. It gives the call an id, and raises `SpendingCapReached` when it may not be made. `settle` says what
    an admitted call cost; it never raises. Between the two the call counts with what it was expected to cost. Both may
    be called from several tasks at a time.
    """

    async def admit(self, model: str, usd: float | None, *, likely_usd: float = 0.0) -> str: ...

    async def settle(self, call: str, usd: float) -> None: ...


class Sink(Protocol):
    """Takes events; must not raise for long, and never blocks the turn (OBS-1)."""

    def emit(self, event: Event) -> None: ...
