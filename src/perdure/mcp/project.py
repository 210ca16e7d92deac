"""What the tools do, for the memories and sessions of one project (MCP-1). Each is a few lines over the engine."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from perdure.adapters.config import Config
from perdure.adapters.journal.search import StoreArchive
from perdure.adapters.sinks import TeeSink, sinks_of
from perdure.context.provenance import MEMORY_ROOT
from perdure.engine.guarded_memory import approve, new_memory, over_limits, write_with_index
from perdure.engine.remember import MemoryAccess, MemoryMount, MountedPath
from perdure.engine.tools import original_in
from perdure.errors import JournalError, SessionNotFound
from perdure.mcp.client_logs import ClientLogs, OnProgress
from perdure.mcp.resources import ProjectResources
from perdure.mcp.tools import (
    MOST_BYTES,
    Arguments,
    CallRefused,
    ChangedMemory,
    FittingSession,
    ForgetMemory,
    FoundMemories,
    FoundMemory,
    FoundPlace,
    FoundPlaces,
    KeepMemory,
    Outcome,
    ProposedChange,
    ReadMemory,
    RecallOriginal,
    Result,
    SearchMemories,
    SearchSessions,
    ShownMemory,
    ShownOriginal,
)
from perdure.memory.changes import (
    TRUST,
    DeleteMemory,
    MemoryProposal,
    Origin,
    SaveMemory,
    Stamp,
    WriteResult,
    diff,
)
from perdure.memory.places import is_memory
from perdure.memory.remarks import kind_of
from perdure.memory.retrieval import SEARCH_FLOOR, MemoryQuery
from perdure.memory.save import memory_text
from perdure.memory.tool_texts import MemoryToolError, replace_passage
from perdure.memory.trust.labels import TrustLevel
from perdure.ports.session import FoundSession, SearchHit
from perdure.recall.originals import PREFIX_CHARS, Original
from perdure.recall.queries import LIMIT_CHARS, BadRecall, RecalledText, RecallRequest, range_of, recalled_part
from perdure.text.cleaning import controls_removed
from perdure.text.frontmatter import front_matter
from perdure.wiring import memories_of

_SESSIONS_SHOWN = 3
_SESSIONS_READ = 8  # of those that hold an id, to find what it names
_ALSO = 5
_LEAST_CHARS = 500


class ServedProject:
    """The memories and sessions of a project, as a client of the protocol gets at them.

    From here nobody sees what a client's model has read, so that what it writes may derive from anything: it waits for
    the user (MEM-10), unless they said that it is to be saved at once, on the model's own word.
    """

    def __init__(
        self,
        config: Config,
        folder: Path,
        *,
        is_everywhere: bool = False,
        saves_at_once: bool = False,
        logs: ClientLogs | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._settings, self._logs, self._now = config.settings, logs, now
        self._word: Origin = "assistant" if saves_at_once else "tool"
        self._archive = StoreArchive(config.home, None if is_everywhere else folder)
        sinks = sinks_of(config.settings.events, about=lambda: {"door": "mcp"}, now=now)
        opened = memories_of(config.home, folder, config.settings, TeeSink(*sinks))
        self._memories = opened.access if config.settings.memory else MemoryAccess(())
        self._search = opened.search
        self.resources = ProjectResources(self._memories, self._archive)

    async def answer(self, asked: Arguments, client: str, on_progress: OnProgress) -> Result | ProposedChange:
        """Do what a tool is asked for.

        Args:
            asked: The arguments of the call.
            client: What the client calls itself.
            on_progress: Is told how far work is that takes long: done, of how much, what.

        Raises:
            PerdureError: It can't be done; the message is for the model.
        """
        try:
            match asked:
                case SearchMemories():
                    return await self._search_memories(asked)
                case ReadMemory():
                    return await self._read_memory(asked)
                case KeepMemory():
                    return await self._save_memory(asked, client)
                case ForgetMemory():
                    return await self._forget_memory(asked, client)
                case SearchSessions():
                    return await self._search_sessions(asked, on_progress)
                case RecallOriginal():
                    return await self._recall(asked, on_progress)
        except MemoryToolError as e:
            raise CallRefused(str(e).removeprefix("Error: ")) from None

    # --- memories

    async def _search_memories(self, asked: SearchMemories) -> FoundMemories:
        if self._search is None:
            return FoundMemories([], "there are no memories here")
        wanted = MemoryQuery(
            query=asked.query,
            limit=asked.limit,
            floor=SEARCH_FLOOR,
            now=self._now(),
            by_meaning=self._settings.retrieval_semantic,
        )
        found, origins = await self._search.find(wanted), await self._memories.origins()
        memories = []
        for one in found.chosen:
            card, path = one.card, f"{MEMORY_ROOT}/{one.card.file}"
            changed = datetime.fromtimestamp(card.modified, UTC).strftime("%Y-%m-%d")
            outside = _is_outside(origins.get(path))
            memories.append(FoundMemory(path, card.name, card.description, card.type, one.why, changed, outside))
        return _trimmed(
            FoundMemories(memories), memories, "" if memories else f"none of {found.scanned:,} memories fits"
        )

    async def _read_memory(self, asked: ReadMemory) -> ShownMemory:
        place = self._place(asked.path)
        text, path = await self._text(place, asked.path), place.mount.path(place.name)
        if self._search is not None and is_memory(place.name):
            await self._search.used((path.removeprefix(f"{MEMORY_ROOT}/"),))
        original = Original(path, "memory", "a memory", _sound(text), ())
        outside = _is_outside((await self._memories.origins()).get(path))

        def shown(part: RecalledText) -> ShownMemory:
            return ShownMemory(path, part.body, part.total_lines, outside, part.left_out)

        return _fitting(original, asked, shown)

    async def _save_memory(self, asked: KeepMemory, client: str) -> ChangedMemory | ProposedChange:
        text = _sound(asked.text)
        if not text.strip():
            raise CallRefused("text: there is nothing to save in it")
        if asked.old_text:
            if not asked.path:
                raise CallRefused("old_text: give the path of the memory that it is in, too")
            place = self._memory(asked.path)
            before = await self._text(place, asked.path)
            text, _ = replace_passage(asked.path, before, asked.old_text, text)
            return await self._changed(place, SaveMemory(name=place.name, text=text, base=before), "changed", client)
        if not front_matter(text).is_present:
            kind, title, about = asked.type or kind_of(text), _sound(asked.title), _sound(asked.about)
            text = memory_text(type=kind, body=text, name=title, description=about)
        if asked.path:
            place = self._memory(asked.path)
            if await place.mount.memory.store.read(place.name) is not None:
                raise CallRefused(f"{asked.path}: it is there already: to change it, give a passage of it as old_text")
            return await self._changed(place, SaveMemory(name=place.name, text=text), "saved", client)
        mount = self._place("user" if asked.scope == "user" else MEMORY_ROOT, writes=True).mount
        change = await new_memory(mount.memory.store, text)
        if change.base is not None:
            return ChangedMemory(mount.path(change.name), "unchanged", "it was in the memory already")
        return await self._changed(MountedPath(mount, change.name), change, "saved", client)

    async def _forget_memory(self, asked: ForgetMemory, client: str) -> ChangedMemory | ProposedChange:
        place = self._memory(asked.path)
        before = await self._text(place, asked.path)
        return await self._changed(place, DeleteMemory(name=place.name, base=before), "forgotten", client)

    async def _text(self, place: MountedPath, path: str) -> str:
        """What a memory says; `path` is how it was asked for."""
        read = await place.mount.memory.store.read(place.name) if place.name else None
        if read is None:
            raise CallRefused(f"{path}: there is no such memory: memory_search finds them")
        return read.text

    def _place(self, path: str, *, writes: bool = False) -> MountedPath:
        """Where a path leads, which may be written without the root before it."""
        path = path if path == MEMORY_ROOT or path.startswith(f"{MEMORY_ROOT}/") else f"{MEMORY_ROOT}/{path}"
        return self._memories.place(path, writes=writes)

    def _memory(self, path: str) -> MountedPath:
        """The memory at a path, to be changed; the index follows by itself."""
        place = self._place(path, writes=True)
        if not is_memory(place.name):
            raise CallRefused(f"{path}: not the name of a memory, such as /memories/feedback_tests.md")
        return place

    async def _changed(
        self, place: MountedPath, change: SaveMemory | DeleteMemory, outcome: Outcome, client: str
    ) -> ChangedMemory | ProposedChange:
        path = place.mount.path(place.name)
        stamp = Stamp(origin=self._word, at=self._now(), session=f"mcp:{client}")
        done = await write_with_index(place.mount.memory, stamp, change)
        if not isinstance(done, MemoryProposal):
            return await self._written(place.mount, done, outcome)
        review = "perdure memory review" + (" --user" if path.startswith(f"{MEMORY_ROOT}/user/") else "")
        told = ChangedMemory(path, "waits", f"it isn't done yet: the user decides on it with `{review}`")
        return ProposedChange(told, done.id, controls_removed(_sound(f"{path}\n\n{diff(change, change.base)}")))

    async def _written(self, mount: MemoryMount, done: WriteResult, outcome: Outcome) -> ChangedMemory:
        path = mount.path(done.name)
        if done.outcome == "conflict":
            beside = mount.path(done.beside)
            return ChangedMemory(path, "conflict", f"somebody else changed the same lines; the text is in {beside}")
        return ChangedMemory(path, outcome, await over_limits(mount.memory.store, self._settings) or "")

    async def decide(self, proposal: str, is_wanted: bool) -> ChangedMemory:
        """Make a change that waited, or drop it, as the user said.

        Raises:
            PerdureError: It doesn't wait any more, or can't be made any more.
        """
        for mount in self._memories.mounts:
            for one in await mount.memory.store.pending():
                if one.id != proposal:
                    continue
                edit = one.edits[0]
                if not is_wanted:
                    await mount.memory.store.reject(one.id)
                    return ChangedMemory(mount.path(edit.name), "refused", "the user doesn't want it")
                outcome: Outcome = (
                    "forgotten" if isinstance(edit, DeleteMemory) else "changed" if edit.base else "saved"
                )
                done = replace(await approve(mount.memory, one), name=edit.name)
                return await self._written(mount, done, outcome)
        raise CallRefused("it was decided on meanwhile: memory_search shows what is there")

    # --- sessions

    async def _search_sessions(self, asked: SearchSessions, on_progress: OnProgress) -> FoundPlaces:
        unread = await self._logs.take(on_progress) if self._logs is not None else ""
        found = await self._archive.search(_sound(asked.query), limit=asked.limit)
        places = [_found_place(hit) for hit in found.hits]
        best = await self._archive.sessions(_sound(asked.query), limit=_SESSIONS_SHOWN)
        sessions = [_fitting_session(one) for one in best.sessions]
        nothing = "" if places or sessions else "nothing that was said fits: try fewer or other words"
        note = "; ".join(filter(None, (found.note, unread, nothing)))
        return _trimmed(FoundPlaces(places, sessions), places, note)

    async def _recall(self, asked: RecallOriginal, on_progress: OnProgress) -> ShownOriginal:
        if self._logs is None:
            return await self._recalled(asked)
        identity = _plain_id(asked)
        found = await self._logs.result_of(identity) if len(identity) >= PREFIX_CHARS else None
        if found is not None and asked.session in found[0]:  # an empty name is in every one
            return self._shown(asked, *found)
        try:
            return await self._recalled(asked)
        except (BadRecall, SessionNotFound):
            await self._logs.take(on_progress)
            return await self._recalled(asked)

    async def _recalled(self, asked: RecallOriginal) -> ShownOriginal:
        identity = _plain_id(asked)
        if asked.session:
            return self._shown(asked, *await self._original(identity, asked.session))
        if len(identity) >= PREFIX_CHARS:
            for session in (await self._archive.holding(identity))[:_SESSIONS_READ]:
                with suppress(BadRecall, JournalError):
                    return self._shown(asked, *await self._original(identity, session))
        raise BadRecall(f"nothing here has the id {identity[:80]!r}: session_search finds what was said, with its id")

    async def _original(self, identity: str, session: str) -> tuple[str, Original]:
        loaded, blobs = await self._archive.load(session)
        return loaded.header.session, await original_in(loaded, blobs, identity)

    def _shown(self, asked: RecallOriginal, session: str, original: Original) -> ShownOriginal:
        at = _shown_time(original.at)

        def shown(part: RecalledText) -> ShownOriginal:
            total = len(original.text)
            return ShownOriginal(
                original.id, session, original.what, _sound(part.body), part.total_lines, total, at, part.left_out
            )

        return _fitting(original, asked, shown)


Shown = TypeVar("Shown", ShownMemory, ShownOriginal)
Found = TypeVar("Found", FoundMemories, FoundPlaces)


def _trimmed(found: Found, rows: list[Any], note: str) -> Found:
    """The best of what was found, as far as there is room in a result, with a note."""
    found.note = note
    while rows and len(msgspec.json.encode(found)) > MOST_BYTES:
        rows.pop()
        found.note = "; ".join(filter(None, (note, "there is no room for more")))
    return found


def _fitting(original: Original, asked: ReadMemory | RecallOriginal, shown: Callable[[RecalledText], Shown]) -> Shown:
    """As much of the part that was asked for as a result may hold, whatever JSON makes of its characters."""
    limit = LIMIT_CHARS
    while True:
        wanted = RecallRequest(
            id=original.id,
            lines=range_of(asked.lines, what="lines") if asked.lines else None,
            chars=range_of(asked.chars, what="chars") if asked.chars else None,
            pattern=asked.pattern or None,
            limit_chars=limit,
        )
        result = shown(recalled_part(original, wanted))
        size = len(msgspec.json.encode(result))
        if size <= MOST_BYTES or limit == _LEAST_CHARS:
            return result
        limit = max(_LEAST_CHARS, min(limit - 1, limit * MOST_BYTES // size - _LEAST_CHARS))


def _plain_id(asked: RecallOriginal) -> str:
    """An id without what shows that it was cut."""
    return _sound(asked.id).strip().strip("…")


def _found_place(hit: SearchHit) -> FoundPlace:
    who = f"result of {hit.tool}" if hit.role == "tool" and hit.tool else hit.role
    also = [f"{session}/{identity}" for session, identity, _ in hit.also[:_ALSO]]
    return FoundPlace(hit.id, hit.session, who, _shown_time(hit.at), hit.line, _sound(hit.snippet), also)


def _fitting_session(one: FoundSession) -> FittingSession:
    words, files = (list(map(_sound, held)) for held in (one.words, one.files))
    return FittingSession(one.session, _sound(one.title), _shown_time(one.at), words, files)


def _shown_time(at: float | None) -> str | None:
    try:
        return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):  # of a log that somebody else wrote
        return None


def _is_outside(origin: Origin | None) -> bool:
    return origin is not None and TRUST[origin] is TrustLevel.OUTSIDE


def _sound(text: str) -> str:
    """A text without halves of surrogate pairs, which JSON can't carry."""
    return text.encode("utf-8", "replace").decode()
