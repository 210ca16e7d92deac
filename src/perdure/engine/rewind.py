"""Going back in the conversation, with or without the files, and forth again (CKP-3, CKP-4, CKP-5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Literal

from perdure.context.view import ContextView, project
from perdure.engine.session import LiveSession
from perdure.errors import CompactionRefused, PerdureError, RewindRefused
from perdure.logs.reading import Problems, mended_record
from perdure.memory.checkpoints import MissedChange
from perdure.memory.places import name_for_people
from perdure.ports.machine import CHECKPOINTS, FileRewind, FileRewinder
from perdure.ports.session import LoadedJournal
from perdure.transcript.blocks import Text, ToolResult
from perdure.transcript.messages import FILES_REWOUND, Message, MessageId
from perdure.transcript.records import OBSERVER_FAILED, Compacted, Noted, Record, Rewound


@dataclass(frozen=True, slots=True)
class PastPrompt:
    """Something that a person said, and where a rewind to before it goes back to (nothing: the start)."""

    message: Message
    text: str
    before: MessageId


async def conversation(session: LiveSession) -> tuple[Message | Compacted, ...]:
    """Everything that was said on the way to the present view, oldest first, with each compaction where it came."""
    found: list[Message | Compacted] = []
    known: set[MessageId] = set()
    chain = _chain(_whole_view(await session.ports.journal.load(whole=True)))
    for home, later in zip(chain, [*chain[1:], None], strict=True):
        if home.boundary is not None:
            found.append(home.boundary)
            known |= {message.id for message in home.boundary.summary}
        if later is not None and later.boundary is not None:  # what it kept, and a rewind left since
            known |= {message for message in later.boundary.kept if message not in later.positions}
        found += [item.message for item in home.items if item.message.id not in known]
        known |= {item.message.id for item in home.items}
    return tuple(found)


def _whole_view(loaded: LoadedJournal) -> ContextView:
    """The view with all that its boundaries replaced."""
    return project(mended_record(placed.record, placed.seq + 1, Problems()) for placed in loaded.records)


async def prompts(session: LiveSession) -> tuple[PastPrompt, ...]:
    """Everything that a person said on the way to the present view, oldest first, compacted away or not."""
    loaded = await session.ports.journal.load(whole=True)
    said = {placed.record.id for placed in loaded.records if isinstance(placed.record, Message)}
    found: list[PastPrompt] = []
    chain = _chain(_whole_view(loaded))
    last = MessageId("")  # that was said, of what stands before
    for home, later in zip(chain, [*chain[1:], None], strict=True):
        known = {prompt.message.id for prompt in found}
        if later is not None and later.boundary is not None:  # what it kept, and a rewind left since
            known |= {message for message in later.boundary.kept if message not in later.positions}
        for position, item in enumerate(home.items):
            message = item.message
            if is_prompt(message) and message.id not in known:
                # A record counts while the view holds it; behind one that was replaced, the message before it does.
                before = home.items[position - 1].message.id if later is None and position else last
                found.append(PastPrompt(message, prompt_text(message), before))
            last = message.id if message.id in said else last
    return tuple(found)


async def rewind_conversation(
    session: LiveSession, to: str, *, reason: str = "asked for", also: Callable[[str], Noted] | None = None
) -> PastPrompt:
    """Go back to just before a prompt: it and what came after it leave the view; the prompt comes back for editing.

    `to` is its id or a unique beginning of that. What was left can be had again: `rewind_to` its last message, or
    `rewind_back`. `also` makes a note of the same transaction, of the rewind's id. Raises `PerdureError` when there
    is no such prompt, `CompactionRefused` while a compaction runs.
    """
    said = await prompts(session)
    found = [prompt for prompt in said if prompt.message.id == to] or [
        prompt for prompt in said if to and prompt.message.id.startswith(to)
    ]
    if len(found) != 1:
        what = "is no prompt of this session" if not found else f"begins the ids of {len(found)} prompts"
        raise PerdureError(f"{to!r} {what}: give the id of a message that you wrote")
    await rewind_to(session, found[0].before, reason=reason, also=also)
    return found[0]


async def rewind_to(
    session: LiveSession, last: str, *, reason: str = "asked for", also: Callable[[str], Noted] | None = None
) -> str:
    """Go on from a message that was said at any time, also on a way that was left; no id: from the start.

    A record of a compaction counts while the view holds it. Returns the rewind's id, by which it can be taken back
    exactly. Raises `PerdureError` when no such message was said.
    """
    if session.is_compacting:
        raise CompactionRefused("a compaction of this session is running; wait for it to end")
    if last not in session.view.positions:
        loaded = await session.ports.journal.load(whole=True)
        ids = {placed.record.id for placed in loaded.records if isinstance(placed.record, Message)}
        if last and last not in ids:
            raise PerdureError(f"{last!r} is no message of this session")
    identity = session.ports.ids.new("rewind")
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


def _chain(view: ContextView) -> list[ContextView]:
    """The views that the boundaries of a view replaced, oldest first, and the view."""
    found = [view]
    while (past := found[-1].past) is not None:
        found.append(past)
    return found[::-1]


def is_prompt(message: Message) -> bool:
    """A person's words; results of tools are no prompt, whatever is said along."""
    return message.origin == "user" and not any(isinstance(block.value, ToolResult) for block in message.blocks)


def prompt_text(message: Message) -> str:
    """The text of a prompt as it was typed, to be edited."""
    return "\n".join(block.value.text for block in message.blocks if isinstance(block.value, Text))


What = Literal["code", "conversation", "both"]
DONE, UNDONE = "rewound", "rewind_undone"  # kinds of the notes that the journal gets
_SHOWN_CHARS = 300  # of a path, to the model
_SHORTEST = 4  # characters of the beginning of an id


@dataclass(frozen=True, slots=True)
class RewindResult:
    """What was done, or would be: `prompt` comes back for editing. `files` is None when only the talk went back."""

    to: MessageId
    prompt: str
    files: FileRewind | None
    is_conversation: bool


async def records_of(session: LiveSession) -> tuple[Record, ...]:
    """Everything in the journal."""
    loaded = await session.ports.journal.load(whole=True)
    return tuple(placed.record for placed in loaded.records)


def find_prompt(records: Iterable[Record], live: Iterable[PastPrompt], to: str) -> Message:
    """The user message that `to` names: an id, the beginning of one, or -N prompts back; else `RewindRefused`."""
    if to.startswith("-") and to[1:].isdigit():
        back, way = int(to[1:]), tuple(live)
        if not 1 <= back <= len(way):
            raise RewindRefused(f"{to}: the session has {len(way)} prompts to go back to")
        return way[-back].message
    every = user_messages(records)
    named = [m for m in every if m.id == to]
    if not named and len(to) >= _SHORTEST:
        named = [m for m in every if m.id.startswith(to)]
    if len(named) == 1:
        return named[0]
    if named:
        raise RewindRefused(f"{to!r} is the beginning of {len(named)} user messages: give more of the id")
    raise RewindRefused(f"{to!r} is no user message: {describe_id(records, to)}")


def user_messages(records: Iterable[Record]) -> tuple[Message, ...]:
    """All that a person ever said in a session, in the order of its journal."""
    return tuple(r for r in records if isinstance(r, Message) and r.origin == "user" and r.agent_id is None)


def describe_id(records: Iterable[Record], identity: str) -> str:
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
    session: LiveSession,
    files: FileRewinder | None,
    to: str,
    *,
    what: What = "both",
    is_forced: bool = False,
    is_dry: bool = False,
) -> RewindResult:
    """Go back to before a user message was worked on. `RewindRefused`: nothing was changed, and why.

    With "both" the files go first, and come back when the conversation can't follow.
    """
    if session.is_compacting:
        raise RewindRefused("a compaction of this session is running; wait for it to end")
    records, live = await records_of(session), await prompts(session)
    message = find_prompt(records, live, to)
    if what != "code" and all(prompt.message.id != message.id for prompt in live):
        raise RewindRefused(f"{message.id}: the conversation went back to before this message already")
    done: FileRewind | None = None
    if what != "conversation":
        if files is None:
            raise RewindRefused("this session has no checkpoints of files (the setting checkpoints is off)")
        ids = [one.id for one in user_messages(records)]
        since = frozenset[str](ids[ids.index(message.id) :])
        done = await files.rewind(since, is_forced=is_forced, is_dry=is_dry)
        done = replace(done, missed=(*failures(records, since), *done.missed))
    found = RewindResult(message.id, prompt_text(message), done, what != "code")
    if is_dry:
        return found
    items = session.view.items
    last = items[-1].message.id if items and what != "code" else ""
    try:
        files_done = {"files": len(done.changes) if done else 0, "entry": done.number if done else 0}
        about = {"to": message.id, "last": last, **files_done}
        if what != "code":
            await rewind_conversation(
                session,
                message.id,
                reason="rewound by the user",
                also=lambda rewind: Noted(kind=DONE, data={**about, "rewind": rewind}),
            )
        elif done is not None and done.number:
            await session.record(Noted(kind=DONE, data=about))
    except PerdureError:
        if files is not None and done is not None and done.number:
            await files.undo(is_forced=True)
        raise
    if done is not None and what == "code":
        await _tell(session, done, message.id)
    return found


async def undo_rewind(
    session: LiveSession, files: FileRewinder | None, *, is_forced: bool = False, is_dry: bool = False
) -> RewindResult:
    """Take back the last rewind, files and conversation, as far as it went; `RewindRefused` when there is none."""
    last = _last_done(await records_of(session))
    if last is None:
        raise RewindRefused("there is no rewind to undo")
    was_talk = bool(last.get("last"))
    if was_talk and not is_forced and _was_spoken_since(await records_of(session)):
        raise RewindRefused("something was said since that rewind, and would leave the view; --force does it")
    done: FileRewind | None = None
    if last.get("entry"):
        if files is None:
            raise RewindRefused("this session has no checkpoints of files (the setting checkpoints is off)")
        done = await files.undo(is_forced=is_forced, is_dry=is_dry)
    if not is_dry:
        undone = Noted(kind=UNDONE, data={"to": last.get("to", "")})
        if last.get("rewind"):
            rewind, end = str(last["rewind"]), str(last["last"])
            await rewind_back(session, rewind, end, undone, reason="a rewind was undone")
        elif was_talk:  # a rewind of an earlier version, which has no id
            await rewind_to(session, str(last["last"]), reason="a rewind was undone", also=lambda _: undone)
        else:
            await session.record(undone)
        if done is not None and not was_talk:
            await _tell(session, done)
    return RewindResult(MessageId(str(last.get("to", ""))), "", done, was_talk)


def failures(records: Iterable[Record], prompts: AbstractSet[str]) -> tuple[MissedChange, ...]:
    """What calls for these prompts may have done without a checkpoint, since that failed (CKP-7)."""
    found = dict[tuple[str, str], MissedChange]()
    for record in records:
        if not isinstance(record, Noted) or record.kind != OBSERVER_FAILED or record.data.get("prompt") not in prompts:
            continue
        tool, reason = str(record.data.get("tool", "")), str(record.data.get("reason", ""))
        if record.data.get("observer") == CHECKPOINTS:
            found[tool, reason] = MissedChange("", f"what {tool or 'a call'} did while checkpoints failed: {reason}")
    return tuple(found.values())


def _last_done(records: Iterable[Record]) -> dict[str, Any] | None:
    """The last rewind that wasn't taken back."""
    held: list[dict[str, Any]] = []
    for record in records:
        if isinstance(record, Noted) and record.kind == DONE:
            held.append(record.data)
        elif isinstance(record, Noted) and record.kind == UNDONE and held:
            held.pop()
    return held[-1] if held else None


def _was_spoken_since(records: tuple[Record, ...]) -> bool:
    """Whether a message stands behind the note of the last rewind."""
    for record in reversed(records):
        if isinstance(record, Noted) and record.kind == DONE:
            return False
        if isinstance(record, Message) and record.origin in ("user", "model"):
            return True
    return False


async def _tell(session: LiveSession, done: FileRewind, to: str = "") -> None:
    """The model saw files that aren't so any more: as before the prompt `to`, where it is one."""
    paths = [name_for_people(step.path, limit=_SHOWN_CHARS) for step in done.changes]
    if paths:
        some = ", ".join(paths[:20]) + (f" and {len(paths) - 20} more" if len(paths) > 20 else "")
        text = f"The user put files back to an earlier state. Read them again before you rely on them: {some}"
        await session.append(Message.of("user", text, origin="reminder", note=f"{FILES_REWOUND}{to}"))
