"""Reminders of a session: who may add context that nobody said, and in which order (TURN-10)."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol

import msgspec

from perdure import prompts
from perdure.context.policy import has_recall_tool
from perdure.context.reminders import prepend_context, without_tokens
from perdure.events import ReminderFailed
from perdure.transcript.blocks import Text, text_block
from perdure.transcript.messages import Message, MessageId, content_of

if TYPE_CHECKING:
    from perdure.engine.session import LiveSession

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
    if said := await due_reminders(session, moment):
        await session.append(*said)


async def due_reminders(session: LiveSession, moment: Moment) -> list[Message]:
    """Ask all sources what they want to add at this moment."""
    if moment == "before" and session.view.open_calls:
        return []
    said: list[Message] = []
    for source in ordered_sources(session.services.reminders):
        try:
            said += await source.remind(session, moment)
        except Exception as e:  # a named boundary: a reminder is a help, and never ends a turn
            session.emit(ReminderFailed(source.name, type(e).__name__))
    if session.model.reads_tokens:
        said = [_without_tokens(message) for message in said]
    return said


def _without_tokens(message: Message) -> Message:
    """A reminder whose texts (files, memories) hold no special token of a chat template (SEC-11)."""
    blocks = [
        text_block(without_tokens(block.value.text)) if isinstance(block.value, Text) else block
        for block in message.blocks
    ]
    return msgspec.structs.replace(message, content=content_of(blocks))


@dataclass(slots=True)
class RecallReminder:
    """Says once who has the originals, when the first has left the view of a model without the recall tool (RCL-3).

    It stands in the journal like every reminder, so its bytes stay; a compaction that takes it away makes it due again.
    """

    prompt: Literal["recall_by_command", "recall_by_request", "recall_in_program"]  # by what means they can be had
    where: str = "on the machine that keeps it"  # a shell can do what a person can
    name: str = "whereabouts"

    async def remind(self, session: LiveSession, moment: Moment) -> Sequence[Message]:
        view = session.view
        is_shortened = view.frozen or view.cleared or view.snipped or view.collapses or view.boundary
        if moment != "behind" or not is_shortened or has_recall_tool(view, session.settings):
            return ()
        if any(item.message.note == self.name for item in view.items):
            return ()
        named = {} if self.prompt == "recall_in_program" else {"session": session.id, "where": self.where}
        text = prompts.render(self.prompt, **named)
        (message,) = prepend_context((), {"What was left out": text})
        return (Message.of("user", list(message.blocks), origin="reminder", note=self.name),)


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
