"""Going back to a user message: the files, the conversation, or both; and forth again (CKP-3, CKP-4, CKP-5)."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Literal

from holdfast.engine.rewinding import Prompt, prompt_text, prompts, rewind_back, rewind_conversation, rewind_to
from holdfast.engine.session import LiveSession
from holdfast.errors import HoldfastError, RewindRefused
from holdfast.memory.checkpoints import Missed
from holdfast.memory.names import shown
from holdfast.ports import CHECKPOINTS, FileRewind, FileRewinder
from holdfast.transcript.edits import Compacted
from holdfast.transcript.messages import Message, MessageId
from holdfast.transcript.records import OBSERVER_FAILED, Noted, Record

What = Literal["code", "conversation", "both"]
DONE, UNDONE = "rewound", "rewind_undone"  # kinds of the notes that the journal gets
_SHOWN_CHARS = 300  # of a path, to the model
_SHORTEST = 4  # characters of the beginning of an id


@dataclass(frozen=True, slots=True)
class Rewind:
    """What was done, or would be: `prompt` comes back for editing. `files` is None when only the talk went back."""

    to: MessageId
    prompt: str
    files: FileRewind | None
    is_conversation: bool


async def records_of(session: LiveSession) -> tuple[Record, ...]:
    """Everything in the journal."""
    loaded = await session.world.journal.load(whole=True)
    return tuple(placed.record for placed in loaded.records)


def meant(records: Iterable[Record], live: Iterable[Prompt], to: str) -> Message:
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
    raise RewindRefused(f"{to!r} is no user message: {what_is(records, to)}")


def user_messages(records: Iterable[Record]) -> tuple[Message, ...]:
    """All that a person ever said in a session, in the order of its journal."""
    return tuple(r for r in records if isinstance(r, Message) and r.origin == "user" and r.agent_id is None)


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
    session: LiveSession,
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
    records, live = await records_of(session), await prompts(session)
    message = meant(records, live, to)
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
    found = Rewind(message.id, prompt_text(message), done, what != "code")
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
    except HoldfastError:
        if files is not None and done is not None and done.number:
            await files.undo(is_forced=True)
        raise
    if done is not None and what == "code":
        await _tell(session, done)
    return found


async def undo_rewind(
    session: LiveSession, files: FileRewinder | None, *, is_forced: bool = False, is_dry: bool = False
) -> Rewind:
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
    return Rewind(MessageId(str(last.get("to", ""))), "", done, was_talk)


def failures(records: Iterable[Record], prompts: AbstractSet[str]) -> tuple[Missed, ...]:
    """What calls for these prompts may have done without a checkpoint, since that failed (CKP-7)."""
    found = dict[tuple[str, str], Missed]()
    for record in records:
        if not isinstance(record, Noted) or record.kind != OBSERVER_FAILED or record.data.get("prompt") not in prompts:
            continue
        tool, reason = str(record.data.get("tool", "")), str(record.data.get("reason", ""))
        if record.data.get("observer") == CHECKPOINTS:
            found[tool, reason] = Missed("", f"what {tool or 'a call'} did while checkpoints failed: {reason}")
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


async def _tell(session: LiveSession, done: FileRewind) -> None:
    """The model saw files that aren't so any more."""
    paths = [shown(step.path, limit=_SHOWN_CHARS) for step in done.changes]
    if paths:
        some = ", ".join(paths[:20]) + (f" and {len(paths) - 20} more" if len(paths) > 20 else "")
        text = f"The user put files back to an earlier state. Read them again before you rely on them: {some}"
        await session.append(Message.of("user", text, origin="reminder"))
