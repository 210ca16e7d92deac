"""Going back to a user message: the files, the conversation, or both (CKP-3, CKP-4, CKP-5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from holdfast.engine.session import Session, prompt_line
from holdfast.errors import HoldfastError, RewindRefused
from holdfast.ports import FileRewind, FileRewinder
from holdfast.transcript.blocks import Text
from holdfast.transcript.edits import Compacted, Rewound
from holdfast.transcript.messages import Message, MessageId
from holdfast.transcript.records import Noted, Record

What = Literal["code", "conversation", "both"]
NOTE = "files_rewound"  # the kind of the note that the journal gets
_SHORTEST = 4  # characters of the beginning of an id


@dataclass(frozen=True, slots=True)
class Rewind:
    """What was done, or would be: `prompt` comes back for editing. `files` is None when only the talk went back."""

    to: MessageId
    prompt: str
    files: FileRewind | None
    is_conversation: bool


@dataclass(frozen=True, slots=True)
class Prompts:
    """The user messages of a session in the order of its journal; `live` are those that no rewind took out."""

    all: tuple[Message, ...]
    live: tuple[MessageId, ...]
    before: dict[MessageId, MessageId]  # the message that stands right before each, where one does

    def since(self, message: MessageId) -> frozenset[str]:
        """A user message and all that were said later."""
        ids = [one.id for one in self.all]
        return frozenset(ids[ids.index(message) :])


def prompts_of(records: Iterable[Record]) -> Prompts:
    """Read from the records of a whole journal."""
    every: list[Message] = []
    said: list[Message] = []
    before: dict[MessageId, MessageId] = {}
    for record in records:
        if isinstance(record, Rewound):
            at = next((n for n, message in enumerate(said) if message.id == record.to), None)
            said = said if at is None else said[: at + 1]
        elif isinstance(record, Message) and record.agent_id is None:
            if record.origin == "user":
                every.append(record)
                if said:
                    before[record.id] = said[-1].id
            said.append(record)
    return Prompts(tuple(every), tuple(m.id for m in said if m.origin == "user"), before)


async def records_of(session: Session) -> tuple[Record, ...]:
    """Everything in the journal."""
    loaded = await session.world.journal.load(whole=True)
    return tuple(placed.record for placed in loaded.records)


def meant(records: tuple[Record, ...], to: str) -> Message:
    """The user message that `to` names: an id, the beginning of one, or -N prompts back. `RewindRefused` says why none."""
    prompts = prompts_of(records)
    if to.startswith("-") and to[1:].isdigit():
        back = int(to[1:])
        if not 1 <= back <= len(prompts.live):
            raise RewindRefused(f"{to}: the session has {len(prompts.live)} prompts to go back to")
        return next(m for m in prompts.all if m.id == prompts.live[-back])
    named = [m for m in prompts.all if m.id == to]
    if not named and len(to) >= _SHORTEST:
        named = [m for m in prompts.all if m.id.startswith(to)]
    if len(named) == 1:
        return named[0]
    if named:
        raise RewindRefused(f"{to!r} is the beginning of {len(named)} user messages: give more of the id")
    raise RewindRefused(f"{to!r} is no user message: {what_is(records, to)}")


def what_is(records: Iterable[Record], identity: str) -> str:
    """What an id names in a session, for people."""
    names = {"model": "an answer of the model", "tool": "the results of tools", "reminder": "a reminder"}
    names |= {"summary": "a summary", "restored": "something restored behind a compaction", "user": "a user message"}
    for record in records:
        if isinstance(record, Message):
            if record.id == identity:
                if record.agent_id is not None:
                    return "it was said in a sub-agent"
                return f"it is {names.get(record.origin, f'a message of the {record.origin}')}"
            if any(use.id == identity for use in record.tool_uses):
                return "it is a call of a tool"
        if isinstance(record, Compacted) and record.id == identity:
            return "it is a compaction"
    return "nothing in this session has that id"


async def rewind(
    session: Session,
    files: FileRewinder | None,
    to: str,
    *,
    what: What = "both",
    is_forced: bool = False,
    is_dry: bool = False,
) -> Rewind:
    """Go back to before a user message was worked on. `RewindRefused`: nothing was changed, and why.

    With "both" the files go first, and come back when the conversation can't follow.
    """
    if session.is_compacting:
        raise RewindRefused("a compaction of this session is running; wait for it to end")
    records = await records_of(session)
    prompts, message = prompts_of(records), meant(records, to)
    if what != "code" and message.id not in prompts.live:
        raise RewindRefused(f"{message.id}: the conversation went back to before this message already")
    done: FileRewind | None = None
    if what != "conversation":
        if files is None:
            raise RewindRefused("this session has no checkpoints of files (the setting checkpoints is off)")
        done = await files.rewind(prompts.since(message.id), is_forced=is_forced, is_dry=is_dry)
    text = prompt_text(message)
    if is_dry:
        return Rewind(message.id, text, done, what != "code")
    try:
        if what != "code":
            text = await _conversation(session, message, prompts)
    except HoldfastError:
        if files is not None and done is not None and done.number:
            await files.undo(is_forced=True)
        raise
    if done is not None and done.changes:
        await _told(session, message.id, done, is_silent=what == "both")
    return Rewind(message.id, text, done, what != "code")


async def _conversation(session: Session, message: Message, prompts: Prompts) -> str:
    """Leave out the message and what came after it, as a record (CKP-4). Its text, for editing."""
    last = prompts.before.get(message.id)
    if last is None or last not in session.view.positions:
        raise RewindRefused(f"{message.id}: the conversation can't go back that far in this view; --code goes")
    await session.record(Rewound(to=last, reason="rewound by the user"))
    return prompt_text(message)


async def _told(session: Session, to: str, done: FileRewind, *, is_silent: bool) -> None:
    """The journal has it, and so has the model, when what it saw of the files isn't so any more."""
    paths = [step.path for step in done.changes]
    await session.record(Noted(kind=NOTE, data={"to": to, "files": len(paths), "entry": done.number}))
    if not is_silent:
        shown = ", ".join(paths[:20]) + (f" and {len(paths) - 20} more" if len(paths) > 20 else "")
        text = f"The user put files back to an earlier state. Read them again before you rely on them: {shown}"
        await session.append(Message.of("user", text, origin="reminder"))


def prompt_text(message: Message) -> str:
    """What the user said, as one text."""
    texts = [block.value.text for block in message.blocks if isinstance(block.value, Text)]
    return "\n".join(texts) or prompt_line(message) or ""
