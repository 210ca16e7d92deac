"""All that a home keeps, as the bytes that it consists of: what moves from one kind of store to another (SCL-1).

What can be made anew from it isn't part of it: the index for searching, and links of histories.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from perdure.ports.home import Home, HomeBlobs

DOCUMENT_KINDS = ("conversations", "deleted-responses", "usage", "session-memory/config")


MemoryFiles = Mapping[str, tuple[bytes, float]]


class JournalEnd(NamedTuple):
    """How far a session's journal goes: how many bytes, the SHA-256 of its last line, and when that was written."""

    session: str
    size: int
    last: bytes
    modified: float


class SessionContents(Protocol):
    """What a session consists of. Failures are `JournalError`.

    `lines` gives the journal's lines as they stand, with their ends and the header first, in groups of a few megabytes:
    those that were there when it was asked. `notes` gives the notes and those that were set aside, by their names.
    `is_held`: somebody has the session open for writing.
    """

    @property
    def blobs(self) -> HomeBlobs: ...

    def lines(self) -> AsyncGenerator[Sequence[bytes], None]: ...

    async def notes(self) -> Mapping[str, bytes]: ...

    async def is_held(self) -> bool: ...


class SessionWriting(SessionContents, Protocol):
    """A session that is being written, and reads as it will be. Others see all of it at the end, or nothing."""

    async def append(self, lines: Sequence[bytes]) -> None: ...

    async def write_notes(self, notes: Mapping[str, bytes]) -> None: ...


class HomeContents(Protocol):
    """What a home consists of. Failures are `JournalError`.

    `ends` gives each session once. `writing` makes a session of this header, or goes on behind the first `kept` bytes
    of one, if it still ends there: `SessionBusy` while somebody writes it. It keeps nothing where its body raises.

    `documents` says of each document of a kind when it was written, and gives the SHA-256 of it; `keep_document` puts
    one in the place of any other. `learned` is what is known about models' counting. `key` is empty where there is
    none; `keep_key` keeps one unless there is one, and gives the home's. `only_here` says in words what this kind of
    store alone can keep, and how many there are.

    `memories` names the directories of memories, as a database names their places; `memory_files` gives all files of
    one, with those of its log and its inbox, each with the time of its last change. `keep_memories` lets it have these
    files and no others, unless it doesn't have just those any more that it is said to have.
    """

    @property
    def home(self) -> Home: ...

    def ends(self) -> AsyncIterator[JournalEnd]: ...

    async def session(self, session: str) -> SessionContents: ...

    def writing(
        self, session: str, header: bytes, *, kept: int, modified: float
    ) -> AbstractAsyncContextManager[SessionWriting]: ...

    async def documents(self, kind: str) -> Mapping[str, tuple[float, bytes]]: ...

    async def document(self, kind: str, name: str) -> bytes | None: ...

    async def keep_document(self, kind: str, name: str, data: bytes, modified: float) -> None: ...

    async def learned(self) -> Mapping[str, float]: ...

    async def keep_learned(self, ratios: Mapping[str, float]) -> None: ...

    async def key(self) -> bytes: ...

    async def keep_key(self, key: bytes) -> bytes: ...

    async def memories(self) -> Sequence[str]: ...

    async def memory_files(self, place: str) -> MemoryFiles: ...

    async def keep_memories(self, place: str, files: MemoryFiles, *, instead_of: MemoryFiles) -> None: ...

    async def only_here(self) -> Mapping[str, int]: ...
