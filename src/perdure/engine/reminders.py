"""Reminders of a session: who may add context that nobody said, and instruction files among them (TURN-10, INS-1 to
INS-6).
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Protocol

import msgspec

from perdure.context.instructions import (
    ShownInstructions,
    block_text,
    change_text,
    changes_message,
    gone_text,
    head_line_path,
    nested_message,
    pack_instructions,
    start_message,
)
from perdure.context.reminders import prepend_context, without_tokens
from perdure.context.view import item_has_results
from perdure.engine.session import LiveSession, Services
from perdure.events import InstructionsChanged, InstructionsLoaded, ReminderFailed
from perdure.memory.instructions import FittedFile, Instruction, LoadedInstructions, fit_files
from perdure.ports import InstructionFiles
from perdure.transcript.blocks import Text, text_block
from perdure.transcript.messages import Message, MessageId, content_of
from perdure.transcript.tokens import base_tokens
from perdure.transcript.tool_calls.actions import ToolTable
from perdure.transcript.tool_calls.files import touched_paths

Moment = Literal["before", "behind"]
# What changes least stands first; sources of other names come behind these, in the order in which they were added.
ORDER: Final = ("instructions", "memory_index", "memory", "selection", "todos", "plan")


class ReminderSource(Protocol):
    """A source of reminders.

    `remind` gives the messages to append now, most often none; it may look at everything and changes nothing. What it
    raises is an event, and the turn goes on without it.
    """

    name: str

    async def remind(self, session: LiveSession, moment: Moment) -> Sequence[Message]: ...


def ordered_sources(sources: Sequence[ReminderSource]) -> tuple[ReminderSource, ...]:
    """The sources in the order in which they are asked; of two with one name, the later one is left."""
    by_name = {source.name: source for source in sources}
    rank = {name: number for number, name in enumerate(ORDER)}
    return tuple(sorted(by_name.values(), key=lambda source: rank.get(source.name, len(ORDER))))


async def remind(session: LiveSession, moment: Moment) -> None:
    """Ask all sources, and append what they give."""
    if moment == "before" and session.view.open_calls:
        return
    said: list[Message] = []
    for source in ordered_sources(session.services.reminders):
        try:
            said += await source.remind(session, moment)
        except Exception as e:  # a named boundary: a reminder is a help, and never ends a turn
            session.emit(ReminderFailed(source.name, type(e).__name__))
    if session.model.reads_tokens:
        said = [_without_tokens(message) for message in said]
    if said:
        await session.append(*said)


def _without_tokens(message: Message) -> Message:
    """A reminder whose texts (files, memories) hold no special token of a chat template (SEC-11)."""
    blocks = [
        text_block(without_tokens(block.value.text)) if isinstance(block.value, Text) else block
        for block in message.blocks
    ]
    return msgspec.structs.replace(message, content=content_of(blocks))


@dataclass(slots=True)
class HostReminder:
    """A text of the host's, such as the editor's selection, shown again whenever it is another one.

    `source` gives the text as it is now, None or blank when there is none. It is asked once for each thing a person
    says, and shown right before it.
    """

    name: str
    title: str
    source: Callable[[], Awaitable[str | None]]
    _shown: tuple[str | None, str] = field(default=(None, ""))  # the boundary, and the mark of the text shown last

    async def remind(self, session: LiveSession, moment: Moment) -> Sequence[Message]:
        if moment != "before":
            return ()
        text = await self.source() or ""
        boundary = session.view.boundary.id if session.view.boundary else None
        mark = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        if not text.strip() or self._shown == (boundary, mark):
            return ()
        self._shown = (boundary, mark)
        (message,) = prepend_context((), {self.title: text})
        return (msgspec.structs.replace(message, id=MessageId(""), note=self.name),)


NAME = "instructions"
_NESTED_SHARE = 10  # of the budget: what a nested load may take at least, however much stands there already


class InstructionReminders:
    """The source of reminders that instruction files are; `again` gives them for a compaction (RST-7)."""

    name = NAME

    def __init__(self, session: LiveSession, files: InstructionFiles) -> None:
        self._session = session
        self._files = files
        self._told = ShownInstructions()

    async def remind(self, session: LiveSession, moment: Moment) -> Sequence[Message]:
        told = self._told.follow(session.view)
        found = await (self._before(told) if moment == "before" else self._behind(told))
        return [message for message in found if message is not None]

    async def current_text(self) -> str | None:
        """The files as they are now, for the restorer; None when nothing loads."""
        gathered = await self._files.at_start()
        self._tell(gathered, "compact")
        return pack_instructions(gathered.files) if gathered.files else None

    async def _before(self, told: ShownInstructions) -> list[Message | None]:
        gathered = await self._files.at_start()
        if not told.files:
            self._tell(gathered, "start")
            return [start_message(fit_files(gathered.files, self._budget()))]
        return [changes_message(await self._changes(told, gathered))]

    async def _changes(self, told: ShownInstructions, gathered: LoadedInstructions) -> list[str]:
        """What to say of files that changed, came, or went since they were told (INS-6)."""
        files = {head_line_path(file.path): file for file in gathered.files}
        nested = tuple(path for path in told.files if path not in files and told.files[path].is_nested)
        if nested:
            files |= {head_line_path(file.path): file for file in (await self._files.reload(nested)).files}
        same = {file.revision for file in files.values()}
        new = [file for path, file in files.items() if path not in told.files]
        texts = [block_text(one) for one in self._fitted(told, new)]
        for path, known in told.files.items():
            file = files.get(path)
            if file is None and known.revision not in same:  # one of the same content goes on in its place
                texts.append(gone_text(path))
            elif file is not None and file.revision != known.revision:
                texts.append(change_text(file, known, self._session.settings.instructions_diff_tokens))
        if texts:
            self._session.emit(InstructionsChanged(len(texts)))
        return texts

    async def _behind(self, told: ShownInstructions) -> list[Message | None]:
        """Nested files of what the calls since the last answer touched; none twice, by path or content (INS-4)."""
        view = self._session.view
        if not any(item_has_results(item) for item in view.items[view.sent :]):
            return []
        tools = ToolTable.of(self._session.settings.ledger_tools)
        paths = touched_paths((item.message for item in view.items[view.sent :] if not item.is_hidden), tools)
        if not paths:
            return []
        gathered = await self._files.touched(paths)
        revisions = {known.revision for known in told.files.values()}
        new = [f for f in gathered.files if head_line_path(f.path) not in told.files and f.revision not in revisions]
        if new:
            self._tell(LoadedInstructions(tuple(new)), "nested")
        return [nested_message(self._fitted(told, new))]

    def _fitted(self, told: ShownInstructions, new: Sequence[Instruction]) -> tuple[FittedFile, ...]:
        if not new:
            return ()
        budget = self._budget()
        used = sum(base_tokens(known.shown) for known in told.files.values())
        return fit_files(new, max(budget - used, budget // _NESTED_SHARE))

    def _budget(self) -> int:
        return self._session.limits.scaled(self._session.settings.instructions_tokens)

    def _tell(self, gathered: LoadedInstructions, why: str) -> None:
        if gathered.files:
            tokens = sum(file.tokens for file in gathered.files)
            self._session.emit(InstructionsLoaded(why, len(gathered.files), tokens))


def with_instructions(session: LiveSession, services: Services, files: InstructionFiles) -> Services:
    """The services with these instruction files: as reminders, and back after a compaction."""
    source = InstructionReminders(session, files)
    sources = {**services.sources, NAME: source.current_text}
    return replace(services, reminders=(*services.reminders, source), sources=sources)
