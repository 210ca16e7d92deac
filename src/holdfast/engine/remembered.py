""" "Remember …" and "forget …", done on the user's word before the model is asked (MEM-7).

It is a source of reminders: behind what was said, it keeps or removes, tells the host (`services.on_remembered`), and
tells the model in a reminder, so that it neither does it again nor claims what isn't so. It needs no model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from holdfast import prompts
from holdfast.context.reminders import prepend_context
from holdfast.engine.mounts import Mount, stamp_of
from holdfast.engine.recollection import last_said, user_text
from holdfast.engine.reminding import Moment
from holdfast.engine.session import LiveSession
from holdfast.errors import HoldfastError
from holdfast.events import MemoryAsked
from holdfast.memory.changes import Change, Delete, Proposal, Save, Stamp, Written
from holdfast.memory.contents import Limits, hooks, normalised, too_large
from holdfast.memory.directory import is_memory
from holdfast.memory.entries import file_name, title_of, topic_text, with_entry, without_entry
from holdfast.memory.forgetting import meant
from holdfast.memory.spoken import Wish, kind_of, wishes
from holdfast.memory.topics import INDEX, topic
from holdfast.transcript.messages import Message, MessageId

NAME = "remembered"
MOST_MEANT = 3  # more memories than this can't all be meant by one sentence
MOST_FILES = 5_000


class OnTheUsersWord:
    """Keeps and forgets what the user says so, in the first directory that may be written."""

    name = NAME

    def __init__(self) -> None:
        self._asked: MessageId | None = None

    async def remind(self, session: LiveSession, moment: Moment) -> Sequence[Message]:
        mount = _writable(session)
        if moment != "behind" or mount is None or not session.settings.memory:
            return ()
        said = last_said(session)
        if said is None or said.message.id == self._asked:
            return ()
        self._asked = said.message.id
        stamp = stamp_of(session, "user")
        lines = [await self._line(session, mount, stamp, wish) for wish in wishes(user_text(said))]
        if not lines:
            return ()
        for line in lines:
            for tell in session.services.on_remembered:
                tell(line)
        text = prompts.render("memory_kept", done="\n".join(f"- {line}" for line in lines))
        (message,) = prepend_context((), {"Memory": text})
        return (Message.of("user", list(message.blocks), origin="reminder", note=NAME),)

    async def _line(self, session: LiveSession, mount: Mount, stamp: Stamp, wish: Wish) -> str:
        """Do it, and say in a line what came of it."""
        try:
            outcome, line = await (_keep if wish.act == "remember" else _forget)(session, mount, stamp, wish.text)
        except HoldfastError as e:
            outcome, line = "refused", f"Not done: {e}"
        session.world.sink.emit(MemoryAsked(wish.act, outcome))
        return line


def _writable(session: LiveSession) -> Mount | None:
    mounts = session.services.memories.mounts if session.services.memories is not None else ()
    return next((one for one in mounts if one.right == "write" and one.memory.mode != "off"), None)


async def indexed(mount: Mount, stamp: Stamp, change: Change, title: str = "", hook: str = "") -> Written | Proposal:
    """Make a change; when it is made at once, the index follows: a line for a new memory, none for one that is gone."""
    done = await mount.memory.change(change, stamp)
    if isinstance(done, Written):
        await _follow(mount, stamp, change, done, (title, hook))
    return done


async def approve(mount: Mount, proposal: Proposal) -> Written:
    """Make a change that waited, and have the index follow, unless a change of the index waits for that itself.

    A person's hand lets it through; whose word it is stays as it was (MEM-10).
    """
    store = mount.memory.store
    done = await store.approve(proposal.id)
    others = [one.change for one in await store.pending()]
    leaf = proposal.change.name.rpartition("/")[2]
    waits = any(isinstance(one, Save) and one.name.endswith(INDEX) and f"({leaf})" in one.text for one in others)
    if not waits:
        stamp = msgspec.structs.replace(proposal.stamp, by="user")
        await _follow(mount, stamp, proposal.change, done, ("", ""))
    return done


async def _follow(mount: Mount, stamp: Stamp, change: Change, done: Written, words: tuple[str, str]) -> None:
    """Bring the index in line with a change that was made."""
    store, name = mount.memory.store, change.name
    if isinstance(change, Save) and change.base is None and done.outcome == "written" and is_memory(name):
        title, hook = words if words[0] else (topic(name, change.text).name, topic(name, change.text).description)
        read = await store.read(INDEX)
        base = None if read is None else read.text
        text = with_entry(base, name, title, hook)
        if name not in hooks(normalised(base or "")):
            await mount.memory.change(Save(name=INDEX, text=text, base=base), stamp)
    elif isinstance(change, Delete):
        folder, slash, leaf = name.rpartition("/")
        for index, file in {(INDEX, name), (f"{folder}{slash}{INDEX}", leaf)}:
            read = await store.read(index)
            text = without_entry(read.text, file) if read is not None else ""
            if read is not None and text != read.text:
                await mount.memory.change(Save(name=index, text=text, base=read.text), stamp)


async def over_limits(session: LiveSession, mount: Mount) -> str:
    """What is said when the index is too large by now; nothing else (MEM-2)."""
    read = await mount.memory.store.read(INDEX)
    limits = Limits(session.settings.memory_index_lines, session.settings.memory_index_bytes)
    return (too_large(read.text, limits) or "") if read is not None else ""


async def _keep(session: LiveSession, mount: Mount, stamp: Stamp, text: str) -> tuple[str, str]:
    kind, title = kind_of(text), title_of(text)
    name = file_name(kind, title, hashlib.sha256(text.encode("utf-8", "replace")).hexdigest())
    whole = topic_text(name=title, description=title_of(text, 200), kind=kind, body=text)
    there = await mount.memory.store.read(name)
    if there is not None and there.text == whole:
        return "unchanged", f"It was in the memory already: {mount.path(name)}"
    if there is not None:  # another text that begins alike
        name = f"{name.removesuffix('.md')}_{hashlib.sha256(whole.encode('utf-8', 'replace')).hexdigest()[:8]}.md"
    done = await indexed(mount, stamp, Save(name=name, text=whole), title)
    if isinstance(done, Proposal):
        return "waits", f"Waits for approval ({done.why}): {title}"
    line = f"Remembered as {mount.path(name)}: {title}"
    return done.outcome, f"{line}\n  {note}" if (note := await over_limits(session, mount)) else line


async def _forget(session: LiveSession, mount: Mount, stamp: Stamp, about: str) -> tuple[str, str]:
    store = mount.memory.store
    listed = await store.listing()
    names = [one.name for one in listed.files if is_memory(one.name)][:MOST_FILES]
    texts = {one.name: one.text for one in [await store.read(name) for name in names] if one is not None}
    found = meant(about, [(topic(name, text), text) for name, text in texts.items()])
    what = title_of(about)
    if not found:
        return "nothing", f"Nothing in the memory says this, so nothing was forgotten: {what}"
    if len(found) > MOST_MEANT:
        files = ", ".join(mount.path(one.file) for one in found[:8])
        return "unclear", f"Nothing was forgotten, as {len(found)} memories may be meant: {files}. Ask which of them."
    waits = False
    for one in found:
        base = texts[one.file]
        change: Change = (
            Delete(name=one.file, base=base) if one.text is None else Save(name=one.file, text=one.text, base=base)
        )
        waits |= isinstance(await indexed(mount, stamp, change), Proposal)
    files = ", ".join(mount.path(one.file) + ("" if one.text is None else " (lines of it)") for one in found)
    return ("waits", f"Waits for approval: to forget {files}") if waits else ("forgotten", f"Forgotten: {files}")
