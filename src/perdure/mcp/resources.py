"""Memories, and what is known of sessions, as resources: their addresses, lists in pages, and texts (MCP-1)."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

import anyio.to_thread

from perdure.adapters.journal import SessionStore
from perdure.adapters.journal.search import StoreArchive
from perdure.adapters.memory.notes import FileNotes, notes_path
from perdure.context.provenance import MEMORY_ROOT
from perdure.engine.remember import MemoryAccess
from perdure.engine.tools import original_in
from perdure.errors import PerdureError
from perdure.memory.changes import TRUST
from perdure.memory.files import INDEX
from perdure.memory.tool_texts import FROM_OUTSIDE, MemoryToolError
from perdure.memory.trust.labels import TrustLevel
from perdure.transcript.records import Compacted

INDEX_URI = "memory://index"
_FILE, _SESSION = "memory://file/", "session://"
_TEMPLATES = {  # address -> name, and what stands there
    f"{_FILE}{{+path}}": ("memory", "A memory by its path, or an index: MEMORY.md, user/MEMORY.md"),
    f"{_SESSION}{{id}}/notes": ("session-notes", "The notes that were kept of a session while it ran"),
    f"{_SESSION}{{id}}/summary": (
        "session-summary",
        "What the last compaction of a session left of its history",
    ),
}
PAGE = 100
MOST_CHARS = 80_000  # of one resource, about 20,000 tokens: a client may show all of it to its model


class NoSuchResource(PerdureError):
    """An address, or a cursor, that leads to nothing here."""


@dataclass(frozen=True, slots=True)
class ListedResource:
    """A resource in a list; `bytes` where they are known."""

    uri: str
    name: str
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ProjectResources:
    """What there is to read in a project, each under an address of its own."""

    memories: MemoryAccess
    archive: StoreArchive

    @property
    def templates(self) -> Mapping[str, tuple[str, str]]:
        """Addresses with a part to fill in, each with its name and what stands there."""
        return {uri: told for uri, told in _TEMPLATES.items() if self.memories.mounts or not uri.startswith(_FILE)}

    async def page(self, cursor: str | None) -> tuple[list[ListedResource], str | None]:
        """The resources behind a cursor, and the cursor of the next page; None where there is none.

        A cursor is the address that the page before ended with, so that what comes or goes meanwhile moves nothing.

        Raises:
            NoSuchResource: The cursor isn't one of ours.
        """
        after = "" if cursor is None else _decoded(cursor)
        every = [ListedResource(INDEX_URI, "memory index")] if self.memories.mounts else []
        for mount in self.memories.mounts:
            listed = await mount.memory.store.listing()
            for file in listed.files:
                path = mount.path(file.name).removeprefix(f"{MEMORY_ROOT}/")
                every.append(ListedResource(f"{_FILE}{quote(path)}", path, file.bytes))
        for session in await anyio.to_thread.run_sync(self._with_notes):
            every.append(ListedResource(f"{_SESSION}{session}/notes", f"notes of {session}"))
        left = sorted((one for one in every if one.uri > after), key=lambda one: one.uri)
        return left[:PAGE], _encoded(left[PAGE - 1].uri) if len(left) > PAGE else None

    async def text(self, uri: str) -> str:
        """What stands at an address, cut where it is too long.

        Raises:
            NoSuchResource: There is nothing.
        """
        found: str | None = None
        if uri == INDEX_URI:
            found = await self._memory(INDEX) or "There are no memories of this project yet.\n"
        elif uri.startswith(_FILE):
            found = await self._memory(unquote(uri.removeprefix(_FILE)))
        elif uri.startswith(_SESSION):
            session, _, what = uri.removeprefix(_SESSION).partition("/")
            found = await self._of_session(unquote(session), what)
        if found is None:
            raise NoSuchResource(f"{uri[:200]}: there is no such resource")
        text = found.encode("utf-8", "replace").decode()
        return text if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]}\n[cut here, of {len(text):,} characters]\n"

    async def _memory(self, path: str) -> str | None:
        try:
            place = self.memories.place(f"{MEMORY_ROOT}/{path}")
        except MemoryToolError as e:
            raise NoSuchResource(str(e)) from None
        read = await place.mount.memory.store.read(place.name) if place.name else None
        if read is None:
            return None
        known = await place.mount.memory.store.provenance()
        is_outside = place.name in known and TRUST[known[place.name].least] is TrustLevel.OUTSIDE
        return f"{read.text}\n{FROM_OUTSIDE}\n" if is_outside else read.text

    def _with_notes(self) -> list[str]:
        directories = SessionStore(self.archive.home).directories(self.archive.project)
        return [directory.name for directory in directories if notes_path(directory).is_file()]

    async def _of_session(self, session: str, what: str) -> str | None:
        store, project = SessionStore(self.archive.home), self.archive.project
        if what == "notes":
            directory = await anyio.to_thread.run_sync(lambda: store.named(session, project=project))
            data = await FileNotes(directory, self.archive.home).read()
            return None if data is None else data.decode("utf-8", "replace")
        if what != "summary":
            return None
        loaded, blobs = await self.archive.load(session)
        last = next((p.record for p in reversed(loaded.records) if isinstance(p.record, Compacted)), None)
        if last is None or not last.summary:
            raise NoSuchResource(f"{session[:80]}: this session was never compacted, so there is no summary of it")
        return (await original_in(loaded, blobs, last.summary[0].id)).text


def _encoded(uri: str) -> str:
    return base64.urlsafe_b64encode(uri.encode()).decode()


def _decoded(cursor: str) -> str:
    try:
        return base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
    except ValueError:
        raise NoSuchResource(f"cursor {cursor[:80]!r}: not one that this server gave: begin without one") from None
