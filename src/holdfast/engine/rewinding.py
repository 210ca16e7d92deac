"""Going back in the conversation, across compactions and forth again (CKP-4): a record, and nothing is erased."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.context.view import View, project
from holdfast.engine.session import LiveSession
from holdfast.errors import CompactionRefused, HoldfastError
from holdfast.transcript.blocks import Text, ToolResult
from holdfast.transcript.edits import Rewound
from holdfast.transcript.foreign.mending import mended_record
from holdfast.transcript.foreign.reading import Problems
from holdfast.transcript.messages import Message, MessageId
from holdfast.transcript.records import Noted


@dataclass(frozen=True, slots=True)
class Prompt:
    """Something that a person said, and where a rewind to before it goes back to (nothing: the start)."""

    message: Message
    text: str
    before: MessageId


async def prompts(session: LiveSession) -> tuple[Prompt, ...]:
    """Everything that a person said on the way to the present view, oldest first, compacted away or not."""
    loaded = await session.world.journal.load(whole=True)
    view = project(mended_record(placed.record, placed.seq + 1, Problems()) for placed in loaded.records)
    said = {placed.record.id for placed in loaded.records if isinstance(placed.record, Message)}
    found: list[Prompt] = []
    chain = _chain(view)
    last = MessageId("")  # that was said, of what stands before
    for home, later in zip(chain, [*chain[1:], None], strict=True):
        known = {prompt.message.id for prompt in found}
        if later is not None and later.boundary is not None:  # what it kept, and a rewind left since
            known |= {message for message in later.boundary.kept if message not in later.positions}
        for position, item in enumerate(home.items):
            message = item.message
            if _is_prompt(message) and message.id not in known:
                # A record counts while the view holds it; behind one that was replaced, the message before it does.
                before = home.items[position - 1].message.id if later is None and position else last
                found.append(Prompt(message, prompt_text(message), before))
            last = message.id if message.id in said else last
    return tuple(found)


async def rewind_conversation(
    session: LiveSession, to: str, *, reason: str = "asked for", also: Callable[[str], Noted] | None = None
) -> Prompt:
    """Go back to just before a prompt: it and what came after it leave the view; the prompt comes back for editing.

    `to` is its id or a unique beginning of that. What was left can be had again: `rewind_to` its last message, or
    `rewind_back`. `also` makes a note of the same transaction, of the rewind's id. Raises `HoldfastError` when there
    is no such prompt, `CompactionRefused` while a compaction runs.
    """
    said = await prompts(session)
    found = [prompt for prompt in said if prompt.message.id == to] or [
        prompt for prompt in said if to and prompt.message.id.startswith(to)
    ]
    if len(found) != 1:
        what = "is no prompt of this session" if not found else f"begins the ids of {len(found)} prompts"
        raise HoldfastError(f"{to!r} {what}: give the id of a message that you wrote")
    await rewind_to(session, found[0].before, reason=reason, also=also)
    return found[0]


async def rewind_to(
    session: LiveSession, last: str, *, reason: str = "asked for", also: Callable[[str], Noted] | None = None
) -> str:
    """Go on from a message that was said at any time, also on a way that was left; no id: from the start.

    A record of a compaction counts while the view holds it. Returns the rewind's id, by which it can be taken back
    exactly. Raises `HoldfastError` when no such message was said.
    """
    if session.is_compacting:
        raise CompactionRefused("a compaction of this session is running; wait for it to end")
    if last not in session.view.positions:
        loaded = await session.world.journal.load(whole=True)
        ids = {placed.record.id for placed in loaded.records if isinstance(placed.record, Message)}
        if last and last not in ids:
            raise HoldfastError(f"{last!r} is no message of this session")
    identity = session.world.ids.new("rewind")
    rewound = Rewound(to=MessageId(last), reason=reason, id=identity)
    await session.record(rewound, *((also(identity),) if also is not None else ()))
    return identity


async def rewind_back(session: LiveSession, rewind: str, last: str, *also: Noted, reason: str = "asked for") -> None:
    """Take a rewind back: the view is the one from right before it, compaction included, to the byte (CKP-8).

    `last` is the last message of that view. What was said since leaves the view. `also` is of the same transaction.
    """
    if session.is_compacting:
        raise CompactionRefused("a compaction of this session is running; wait for it to end")
    await session.record(Rewound(to=MessageId(last), reason=reason, undoes=rewind), *also)


def _chain(view: View) -> list[View]:
    """The views that the boundaries of a view replaced, oldest first, and the view."""
    found = [view]
    while (past := found[-1].past) is not None:
        found.append(past)
    return found[::-1]


def _is_prompt(message: Message) -> bool:
    """A person's words; results of tools are no prompt, whatever is said along."""
    return message.origin == "user" and not any(isinstance(block.value, ToolResult) for block in message.blocks)


def prompt_text(message: Message) -> str:
    """The text of a prompt as it was typed, to be edited."""
    return "\n".join(block.value.text for block in message.blocks if isinstance(block.value, Text))
