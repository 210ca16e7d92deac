"""Persistent memory in a session: its index at the start, and what matters to each thing said (MEM-2, MEM-4, MEM-5).

Both are sources of reminders. What was shown is read from the view, so a resumed session goes on where it stood, and
what a compaction took away may be shown again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import anyio

from perdure import prompts
from perdure.compaction.side_requests import side_request
from perdure.context.policy import tool_table
from perdure.context.provenance import MEMORY_ROOT
from perdure.context.reminders import prepend_context, restored
from perdure.context.replies import ModelInfo, Reply
from perdure.context.request import ModelRequest
from perdure.context.view import ViewItem
from perdure.engine.ask import JobModels, ask_job, background_models
from perdure.engine.reminders import Moment
from perdure.engine.session import LiveSession, Services
from perdure.events import MemoriesRecalled, MemoryIndexShown, MemorySelectionFailed
from perdure.memory.asked import common_terms
from perdure.memory.files import INDEX
from perdure.memory.index_file import IndexLimits, index_changes, index_excerpt
from perdure.memory.places import TEAM
from perdure.memory.recalled import (
    RecalledMemory,
    index_told,
    memories_told,
    recalled_text,
    selection,
    selection_prompt,
)
from perdure.memory.retrieval import MemoryCard, MemoryQuery
from perdure.memory.scope import Work, named_paths
from perdure.ports.memory import MemorySearch
from perdure.text.words import asked_terms
from perdure.transcript.blocks import Text
from perdure.transcript.messages import Message, MessageId, spoken
from perdure.transcript.tokens import base_tokens
from perdure.transcript.tool_calls.files import touched_paths

NAME = "memory"
INDEX_NAME = "memory_index"
FEW_TERMS = 2  # a question of fewer, such as "yes, do that", means what was said before it
ANSWER_TOKENS = 400
COMMON_TEXTS, COMMON_CHARS = 30, 1_000  # said before: how many are looked at for words that are common here
_NOT_RECORDED = "it isn't recorded who wrote it"
_FROM = {"tool": "from the result of a tool", "web": "from the web"}


class MemoryRecall:
    """Shows the memories that matter to what the user said last, behind it and once (MEM-4, MEM-5)."""

    name = NAME

    def __init__(self, memories: MemorySearch, work: Work | None = None) -> None:
        self._memories = memories
        self._work = work or Work()
        self._asked: MessageId | None = None
        self._wanted_last: MemoryQuery | None = None  # for what was said last: calls ask it again for their files
        self._touched: set[str] = set()  # since the last prompt

    async def remind(self, session: LiveSession, moment: Moment) -> Sequence[Message]:
        if moment != "behind" or not session.settings.memory:
            return ()
        said = last_said(session)
        if said is None:
            return await self._for_files(session)
        if said.message.id == self._asked:
            return ()
        self._asked = said.message.id
        self._touched.clear()
        if await self._memories.is_empty():
            return ()
        began = session.ports.clock.now()
        wanted = self._wanted_last = self._wanted(session, began)
        chosen, engine, scanned = await self._chosen(session, wanted)
        return await self._shown(session, chosen, engine, scanned, began)

    async def _for_files(self, session: LiveSession) -> Sequence[Message]:
        """The memories scoped to files that calls touched for the first time since the prompt (MEM-14).

        In a turn of many calls nobody may say anything for hours: whoever waits for a prompt is told too late.
        """
        view = session.view
        tools = tool_table(session.settings)
        paths = touched_paths((item.message for item in view.items[view.sent :] if not item.is_hidden), tools)
        new = [path for path in paths if path not in self._touched]
        if not new or not any(map(user_text, view.items)) or await self._memories.is_empty():
            return ()
        self._touched.update(new)
        began = session.ports.clock.now()
        self._wanted_last = self._wanted_last or self._wanted(session, began)  # the view isn't read for each call
        wanted = replace(self._wanted_last, work=self._work.about(new), needs_paths=True)
        found = await self._memories.find(wanted)
        if found.chosen:
            found = await self._memories.find(replace(wanted, shown=_shown_memories(session)))
        if not found.chosen:
            return ()
        return await self._shown(session, [one.card for one in found.chosen], "ranking", found.scanned, began)

    async def _shown(
        self, session: LiveSession, chosen: Sequence[MemoryCard], engine: str, scanned: int, began: float
    ) -> Sequence[Message]:
        texts = await self._texts(session, chosen, began)
        if texts:
            await self._memories.used(tuple(card.file for card in chosen))
        tokens = sum(map(base_tokens, texts))
        spent = session.ports.clock.now() - began
        session.emit(MemoriesRecalled(engine, scanned, len(texts), tokens, spent))
        if not texts:
            return ()
        return (_reminder("\n\n".join((prompts.source("memory_recalled"), *texts)), NAME, "Memories"),)

    def _wanted(self, session: LiveSession, now: float) -> MemoryQuery:
        settings = session.settings
        texts = [text for item in session.view.items if (text := user_text(item))]
        query = texts[-1]
        if len(texts) > 1 and len(asked_terms(query)) < FEW_TERMS:
            query = f"{texts[-2]}\n{query}"
        return MemoryQuery(
            query=query,
            limit=settings.memory_results,
            floor=settings.memory_floor,
            shown=_shown_memories(session),
            tools=_tools(session, settings.memory_tool_turns),
            now=now,
            has_pins=True,
            by_meaning=settings.retrieval_semantic,
            work=self._work.about((*named_paths(query), *_touched(session, settings.memory_tool_turns))),
            is_unasked=True,
            common=common_terms(_said_before(session)),
        )

    async def _chosen(self, session: LiveSession, wanted: MemoryQuery) -> tuple[tuple[MemoryCard, ...], str, int]:
        """The cards to show, who chose them, and among how many."""
        found = await self._memories.find(wanted)
        ranking = tuple(one.card for one in found.chosen)
        models = background_models(session).helpers
        if not models.selector or found.scanned <= wanted.limit:  # a model could only choose among what fits anyway
            return ranking, "ranking", found.scanned
        wide = replace(wanted, limit=session.settings.memory_candidates, floor=0.0, is_unasked=False)
        cards = {card.file: card for card in (await self._memories.find(wide, fill=True)).cards}
        files = await self._selected(session, models, wanted, cards)
        if files is None:
            return ranking, "ranking", found.scanned
        pinned = tuple(card for card in ranking if card.is_pinned)
        chosen = (card for file in files if (card := cards[file]) not in pinned)
        return (*pinned, *chosen)[: wanted.limit], "model", found.scanned

    async def _selected(
        self, session: LiveSession, models: JobModels, wanted: MemoryQuery, cards: dict[str, MemoryCard]
    ) -> tuple[str, ...] | None:
        """What a model chose; None when it didn't answer in time, or not so that it can be read (MEM-4)."""
        system = prompts.render("memory_select_system", limit=str(wanted.limit))
        text = selection_prompt(wanted.query, list(cards.values()), list(wanted.tools))
        facts = session.facts("memory_selector")

        def asking(about: ModelInfo) -> tuple[ModelRequest, int]:
            return side_request(about, facts, system=system, text=text, output_tokens=ANSWER_TOKENS)

        reason = "timeout"
        with anyio.move_on_after(session.settings.memory_select_seconds):
            said = await ask_job(session, models, "selector", asking, billed_as="selector")
            if isinstance(said, Reply):
                files = selection(said.text, cards, wanted.limit)
                if files is not None:
                    return files
                reason = "unreadable"
            else:
                reason = said.reason
        session.emit(MemorySelectionFailed(reason, len(cards)))
        return None

    async def _sources(self, session: LiveSession) -> Mapping[str, str]:
        """What is said of where memories come from: those from outside are data, whoever let them in (MEM-10).

        A file that no writer of ours put there has nobody's word, whatever it says of itself (SEC-11).
        """
        known = await session.services.memories.origins() if session.services.memories is not None else {}
        return {path: _FROM.get(origin, "") for path, origin in known.items()}

    async def _texts(self, session: LiveSession, cards: Sequence[MemoryCard], now: float) -> list[str]:
        if not cards:
            return []
        budget = session.limits.scaled(session.settings.memory_body_tokens)
        topics = await self._memories.read(tuple(card.file for card in cards))
        by_file = {topic.file: topic for topic in topics}
        sources = await self._sources(session)
        return [
            recalled_text(
                RecalledMemory(replace(by_file[card.file], supersedes=card.supersedes), card.modified),
                now=now,
                budget_tokens=budget,
                source=sources.get(f"{MEMORY_ROOT}/{card.file}", _NOT_RECORDED),
            )
            for card in cards
            if card.file in by_file
        ]


class MemoryIndexReminder:
    """Shows `MEMORY.md` at the start, frozen; later, what changed in it (MEM-2). `again` gives it to a compaction.

    With it go the indexes of `team/` and of the other directories that the session's `memories` open (MEM-1, MEM-13).
    """

    name = INDEX_NAME

    def __init__(
        self,
        session: LiveSession,
        memories: MemorySearch | None,
        are_any_there: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._session = session
        self._memories = memories
        self._are_any_there = are_any_there
        self._uses: Mapping[str, int] | None = None  # as when the session began: the order stays (MEM-2)
        self._put_back: str | None = None  # by the last compaction here, whole, however much of it had room

    async def remind(self, session: LiveSession, moment: Moment) -> Sequence[Message]:
        if moment != "before" or not session.settings.memory:
            return ()
        now = await self._text() or ""
        told = self._told(session)
        if told is None:
            return (self._said("start", now, directory=self._where(), index=now),) if now else ()
        changes = index_changes(told, now)
        return (self._said("change", changes, changes=changes),) if changes else ()

    def _told(self, session: LiveSession) -> str | None:
        """The index as the view tells it; what a compaction of ours had no room for counts as told."""
        notes = [
            _texts_of(item) for item in session.view.items if item.message.note == INDEX_NAME and not item.is_hidden
        ]
        if not notes:
            return self._put_back if session.view.boundary is not None else None
        return index_told(map(restored, notes), self._put_back)

    def _said(self, why: str, told: str, **filled: str) -> Message:
        self._session.emit(MemoryIndexShown(why, told.count("\n") + 1, base_tokens(told)))
        name = "memory_index" if why == "start" else "memory_index_changed"
        return _reminder(prompts.render(name, **filled), INDEX_NAME, "Memory index")

    async def current_text(self) -> str | None:
        """The index as it is now, for the restorer (RST-9)."""
        if not self._session.settings.memory:
            return None
        self._put_back = await self._text() or ""
        return self._put_back or None

    async def _text(self) -> str | None:
        """The indexes, each within its limits; None when there are none, or nothing in them."""
        if self._are_any_there is not None and not await self._are_any_there():
            return None
        settings = self._session.settings
        limits = IndexLimits.of(settings)
        main = ""
        marks: Mapping[str, str] = {}
        if self._memories is not None:
            index = await self._memories.index()
            marks = index.marks
            if index.text and self._uses is None:
                self._uses = await self._memories.used()
            if index.text:
                uses = self._uses or {}
                main = index_excerpt(index.text, limits, modified=index.modified, uses=uses, marks=marks).text
        others = []
        for at, text in await self._others():
            folder = at.removeprefix(f"{MEMORY_ROOT}/").removesuffix(INDEX)
            own = {file.removeprefix(folder): mark for file, mark in marks.items() if file.startswith(folder)}
            kept = index_excerpt(text, limits, modified={}, uses={}, marks=own).text
            others += [f"# {at}\n{kept}"] if kept else []
        return "\n\n".join(part for part in (main, *others) if part) or None

    async def _others(self) -> list[tuple[str, str]]:
        """The other indexes by their paths: of the team, of the user, of a sub-agent's own directories."""
        mounts = self._session.services.memories.mounts if self._session.services.memories is not None else ()
        found = []
        for mount in mounts:
            name = f"{TEAM}/{INDEX}" if mount.at == MEMORY_ROOT else INDEX
            read = await mount.memory.store.read(name) if await mount.memory.store.is_there() else None
            if read is not None:
                found.append((mount.path(name), read.text))
        return found

    def _where(self) -> str:
        return self._memories.where if self._memories is not None else MEMORY_ROOT


def with_memory(
    session: LiveSession,
    services: Services,
    memories: MemorySearch | None,
    are_any_there: Callable[[], Awaitable[bool]] | None = None,
    work: Work | None = None,
) -> Services:
    """The services with these memories: the index as a reminder and back after a compaction, and what matters.

    Args:
        session: Whose reminders they are.
        services: What it has already.
        memories: The project's; None: nothing of the project is shown, only the indexes of other directories that
            `services.memories` opens.
        are_any_there: Whether any directory is there at all, where that is cheaper to ask than for its index.
        work: Whose session it is, and in which folder; None: the main agent's, in a folder that isn't known.
    """
    index = MemoryIndexReminder(session, memories, are_any_there)
    recall = (MemoryRecall(memories, work),) if memories is not None else ()
    return replace(
        services,
        reminders=(*services.reminders, index, *recall),
        sources={**services.sources, INDEX_NAME: index.current_text},
    )


# --- what the view tells ----------------------------------------------------------------------------------------------


def _reminder(text: str, note: str, title: str) -> Message:
    (message,) = prepend_context((), {title: text})
    return Message.of("user", list(message.blocks), origin="reminder", note=note)


def _texts_of(item: ViewItem) -> str:
    return "\n".join(block.value.text for block in item.shown if block is not None and isinstance(block.value, Text))


def user_text(item: ViewItem) -> str:
    """What the user said in a message, nothing for any other."""
    return "" if item.is_hidden else spoken(item.message)


def last_said(session: LiveSession) -> ViewItem | None:
    """What the user said since the last answer; None when it was something else, such as results of tools."""
    for item in reversed(session.view.items):
        if item.message.role == "assistant":
            return None
        if user_text(item):
            return item
    return None


def _shown_memories(session: LiveSession) -> dict[str, float]:
    found: dict[str, float] = {}
    for item in session.view.items:
        if item.message.note == NAME and item.message.origin == "reminder" and not item.is_hidden:
            found |= memories_told(_texts_of(item))
    return found


def _said_before(session: LiveSession) -> Iterator[str]:
    """The beginnings of what both said last, without the prompt itself."""
    spoken_items = (item for item in reversed(session.view.items[:-1]) if not item.is_hidden)
    texts = (user_text(item) or _answer_text(item) for item in spoken_items)
    for text in islice(filter(None, texts), COMMON_TEXTS):
        yield text[:COMMON_CHARS]


def _answer_text(item: ViewItem) -> str:
    return _texts_of(item) if item.message.role == "assistant" else ""


def _last_turns(session: LiveSession, turns: int) -> Iterator[list[ViewItem]]:
    """The last turns of the user, newest first: what was said since, without what is hidden."""
    turn: list[ViewItem] = []
    for item in reversed(session.view.items):
        turn += [] if item.is_hidden else [item]
        if user_text(item):
            yield turn[::-1]
            turn, turns = [], turns - 1
            if turns <= 0:
                return
    yield turn[::-1]


def _touched(session: LiveSession, turns: int) -> Iterator[str]:
    """The files that calls touched in the last turns, those of the newest first."""
    tools = tool_table(session.settings)
    for turn in _last_turns(session, turns + 1):  # the first holds nothing yet but what was just said
        yield from touched_paths((item.message for item in turn), tools)


def _tools(session: LiveSession, turns: int) -> tuple[str, ...]:
    """The tools used in the last turns of the user."""
    names: list[str] = []
    for item in reversed(session.view.items):
        if user_text(item):
            turns -= 1
            if turns < 0:
                break
        names += [use.name for use in item.message.tool_uses]
    return tuple(dict.fromkeys(names))
