"""Changing the memory: which directories there are, through the gate, and on the person's own word (MEM-1, MEM-7,
MEM-8, MEM-10).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from perdure import prompts
from perdure.context.provenance import ROOT, added_lines, origin_of
from perdure.context.reminders import prepend_context
from perdure.engine.memory_recall import last_said, user_text
from perdure.engine.reminders import Moment
from perdure.engine.session import LiveSession
from perdure.errors import FileMissing, MemoryRefused, PerdureError
from perdure.events import MemoryAsked, MemoryBlocked, MemoryProposed, MemoryWritten
from perdure.memory.changes import (
    Change,
    DeleteMemory,
    MemoryLogEntry,
    MemoryProposal,
    Mode,
    Origin,
    SaveMemory,
    Stamp,
    WriteResult,
    effective_entries,
    least_trusted,
)
from perdure.memory.files import INDEX, topic
from perdure.memory.index_file import IndexLimits, hooks, normalised, too_large
from perdure.memory.places import AllowedDirectory, MemoryRights, Right, is_memory, refusal
from perdure.memory.remarks import MemoryRequest, forget_matches, kind_of, memory_requests
from perdure.memory.save import file_name, title_of, topic_text, with_entry, without_entry
from perdure.memory.tool_texts import MemoryToolError
from perdure.memory.trust.gate import decide_change
from perdure.ports import MemoryStore, Sink
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.spoken import spoken

_KEPT = (f"{ROOT}/user/", f"{ROOT}/agent/")  # for other directories: closed where these aren't open


@dataclass(frozen=True, slots=True)
class MemoryMount:
    """A memory directory at a path such as `/memories/user`, behind the gate, and what may be done with it."""

    at: str
    memory: GuardedMemory
    right: Right = "write"

    def path(self, name: str) -> str:
        """A memory's path for the model."""
        return f"{self.at}/{name}" if name else self.at


@dataclass(frozen=True, slots=True)
class MountedPath:
    """Where a path leads: a name in a directory, empty for the directory itself."""

    mount: MemoryMount
    name: str


@dataclass(frozen=True, slots=True)
class MemoryAccess:
    """What one agent may do with memories. `inherited`: where the task of a sub-agent comes from; None: a person."""

    mounts: tuple[MemoryMount, ...]
    inherited: Origin | None = None

    def place(self, path: str, *, writes: bool = False) -> MountedPath:
        """Where a path leads. `MemoryToolError` when it leads nowhere, or somewhere that this agent may not."""
        if path != ROOT and not path.startswith(f"{ROOT}/"):
            raise MemoryToolError(f"Path must start with {ROOT}, got: {path}")
        path = path.rstrip("/")
        if any(part in (".", "..") for part in path.replace("\\", "/").split("/")):
            raise MemoryToolError(f"Path {path} would escape {ROOT} directory")
        around = [one for one in self.mounts if path == one.at or path.startswith(f"{one.at}/")]
        mount = max(around, key=lambda one: len(one.at), default=None)
        is_kept = mount is not None and mount.at == ROOT and f"{path}/".startswith(_KEPT)
        if mount is None or is_kept or mount.right == "none":
            open_to = ", ".join(one.at for one in self.mounts if one.right != "none")
            raise MemoryToolError(f"Error: {path} isn't open to this agent, but for {open_to or 'nothing'}")
        name = path[len(mount.at) + 1 :]
        if name and (why := refusal(name)) is not None:
            raise MemoryToolError(f"Error: {path} can't be used: {why}")
        if writes and mount.right != "write":
            raise MemoryToolError(f"Error: {path} may only be read by this agent")
        return MountedPath(mount, name)

    async def origins(self) -> Mapping[str, Origin]:
        """Where each memory comes from, by its path."""
        found: dict[str, Origin] = {}
        for mount in self.mounts:
            provenance = await mount.memory.store.provenance()
            found |= {mount.path(name): one.least for name, one in provenance.items()}
        return found

    async def origin(self, session: LiveSession, added: str = "") -> Origin:
        """Whose word it is that this session's model writes now (MEM-10)."""
        found = origin_of(session.view, added, memories=await self.origins())
        return found if self.inherited is None else least_trusted((found, self.inherited))

    async def change(self, session: LiveSession, mount: MemoryMount, change: Change) -> WriteResult | MemoryProposal:
        """Make a change on the word of the session's model, stamped with where it comes from (MEM-10)."""
        origin = await self.origin(
            session, added_lines(change.base, change.text) if isinstance(change, SaveMemory) else ""
        )
        return await mount.memory.change(change, stamp_of(session, origin))


def stamp_of(session: LiveSession, origin: Origin) -> Stamp:
    """The stamp of a change that a session makes now: its message is the last that the user said."""
    asked = next((item.message.id for item in reversed(session.view.items) if spoken(item.message)), "")
    return Stamp(origin=origin, at=session.world.clock.now(), session=session.id, message=asked)


def memory_access(
    found: Iterable[AllowedDirectory], rights: MemoryRights, opened: Callable[[AllowedDirectory], GuardedMemory]
) -> MemoryAccess:
    """The directories that an agent may use, at their paths: the project's at /memories itself (MEM-13)."""
    scopes = iter(rights.scopes)
    places: dict[str, str] = {"project": ROOT, "user": f"{ROOT}/user"}
    return MemoryAccess(
        tuple(
            MemoryMount(places.get(one.what) or f"{ROOT}/agent/{next(scopes)}", opened(one), one.right)
            for one in found
            if one.right != "none"
        )
    )


@dataclass(frozen=True, slots=True)
class GuardedMemory:
    """A memory directory with the gate before it. `mode` is the setting `memory_mode`."""

    store: MemoryStore
    sink: Sink
    mode: Mode

    async def change(self, change: Change, stamp: Stamp) -> WriteResult | MemoryProposal:
        """Make a change, or put it into the inbox. `MemoryRefused` names the rule that it breaks, in one line.

        A `Written` with the outcome `conflict` was kept beside: whoever asked has to be told.
        """
        action = str(change.__struct_config__.tag)
        found = decide_change(change, stamp, self.mode)
        if found.act == "refuse":
            self.sink.emit(MemoryBlocked(action, stamp.origin, found.rule))
            raise MemoryRefused(found.why, rule=found.rule)
        if found.act == "inbox":
            proposal = await self.store.propose(change, stamp, found.why)
            self.sink.emit(MemoryProposed(action, stamp.origin, found.rule))
            return proposal
        written = await self.store.write(change, stamp, mode=self.mode if stamp.by == "agent" else "by hand")
        self.sink.emit(MemoryWritten(action, written.outcome, stamp.origin, self.mode))
        return written


NAME = "remembered"
MOST_MEANT = 3  # more memories than this can't all be meant by one sentence
MOST_FILES = 5_000


class UserMemoryRequests:
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
        lines = [await self._line(session, mount, stamp, wish) for wish in memory_requests(user_text(said))]
        if not lines:
            return ()
        for line in lines:
            for tell in session.services.on_remembered:
                tell(line)
        text = prompts.render("memory_kept", done="\n".join(f"- {line}" for line in lines))
        (message,) = prepend_context((), {"Memory": text})
        return (Message.of("user", list(message.blocks), origin="reminder", note=NAME),)

    async def _line(self, session: LiveSession, mount: MemoryMount, stamp: Stamp, wish: MemoryRequest) -> str:
        """Do it, and say in a line what came of it."""
        try:
            outcome, line = await (_keep if wish.act == "remember" else _forget)(session, mount, stamp, wish.text)
        except PerdureError as e:
            outcome, line = "refused", f"Not done: {e}"
        session.world.sink.emit(MemoryAsked(wish.act, outcome))
        return line


def _writable(session: LiveSession) -> MemoryMount | None:
    mounts = session.services.memories.mounts if session.services.memories is not None else ()
    return next((one for one in mounts if one.right == "write" and one.memory.mode != "off"), None)


async def write_with_index(
    mount: MemoryMount, stamp: Stamp, change: Change, title: str = "", hook: str = ""
) -> WriteResult | MemoryProposal:
    """Make a change; when it is made at once, the index follows: a line for a new memory, none for one that is gone."""
    done = await mount.memory.change(change, stamp)
    if isinstance(done, WriteResult):
        await _follow(mount, stamp, change, done, (title, hook))
    return done


async def approve(mount: MemoryMount, proposal: MemoryProposal) -> WriteResult:
    """Make a change that waited, and have the index follow, unless a change of the index waits for that itself.

    A person's hand lets it through; whose word it is stays as it was (MEM-10).
    """
    store = mount.memory.store
    done = await store.approve(proposal.id)
    others = [one.change for one in await store.pending()]
    leaf = proposal.change.name.rpartition("/")[2]
    waits = any(isinstance(one, SaveMemory) and one.name.endswith(INDEX) and f"({leaf})" in one.text for one in others)
    if not waits:
        stamp = msgspec.structs.replace(proposal.stamp, by="user")
        await _follow(mount, stamp, proposal.change, done, ("", ""))
    return done


async def _follow(mount: MemoryMount, stamp: Stamp, change: Change, done: WriteResult, words: tuple[str, str]) -> None:
    """Bring the index in line with a change that was made."""
    store, name = mount.memory.store, change.name
    if isinstance(change, SaveMemory) and change.base is None and done.outcome == "written" and is_memory(name):
        title, hook = words if words[0] else (topic(name, change.text).name, topic(name, change.text).description)
        read = await store.read(INDEX)
        base = None if read is None else read.text
        text = with_entry(base, name, title, hook)
        if name not in hooks(normalised(base or "")):
            await mount.memory.change(SaveMemory(name=INDEX, text=text, base=base), stamp)
    elif isinstance(change, DeleteMemory):
        folder, slash, leaf = name.rpartition("/")
        for index, file in {(INDEX, name), (f"{folder}{slash}{INDEX}", leaf)}:
            read = await store.read(index)
            text = without_entry(read.text, file) if read is not None else ""
            if read is not None and text != read.text:
                await mount.memory.change(SaveMemory(name=index, text=text, base=read.text), stamp)


async def over_limits(session: LiveSession, mount: MemoryMount) -> str:
    """What is said when the index is too large by now; nothing else (MEM-2)."""
    read = await mount.memory.store.read(INDEX)
    limits = IndexLimits(session.settings.memory_index_lines, session.settings.memory_index_bytes)
    return (too_large(read.text, limits) or "") if read is not None else ""


async def _keep(session: LiveSession, mount: MemoryMount, stamp: Stamp, text: str) -> tuple[str, str]:
    kind, title = kind_of(text), title_of(text)
    name = file_name(kind, title, hashlib.sha256(text.encode("utf-8", "replace")).hexdigest())
    whole = topic_text(name=title, description=title_of(text, 200), kind=kind, body=text)
    there = await mount.memory.store.read(name)
    if there is not None and there.text == whole:
        return "unchanged", f"It was in the memory already: {mount.path(name)}"
    if there is not None:  # another text that begins alike
        name = f"{name.removesuffix('.md')}_{hashlib.sha256(whole.encode('utf-8', 'replace')).hexdigest()[:8]}.md"
    done = await write_with_index(mount, stamp, SaveMemory(name=name, text=whole), title)
    if isinstance(done, MemoryProposal):
        return "waits", f"Waits for approval ({done.why}): {title}"
    line = f"Remembered as {mount.path(name)}: {title}"
    return done.outcome, f"{line}\n  {note}" if (note := await over_limits(session, mount)) else line


async def _forget(session: LiveSession, mount: MemoryMount, stamp: Stamp, about: str) -> tuple[str, str]:
    store = mount.memory.store
    listed = await store.listing()
    names = [one.name for one in listed.files if is_memory(one.name)][:MOST_FILES]
    texts = {one.name: one.text for one in [await store.read(name) for name in names] if one is not None}
    found = forget_matches(about, [(topic(name, text), text) for name, text in texts.items()])
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
            DeleteMemory(name=one.file, base=base)
            if one.text is None
            else SaveMemory(name=one.file, text=one.text, base=base)
        )
        waits |= isinstance(await write_with_index(mount, stamp, change), MemoryProposal)
    files = ", ".join(mount.path(one.file) + ("" if one.text is None else " (lines of it)") for one in found)
    return ("waits", f"Waits for approval: to forget {files}") if waits else ("forgotten", f"Forgotten: {files}")


_LOOKED_AT = 1_000  # of the last changes


async def undo_memory_change(store: MemoryStore, entry: str | None, stamp: Stamp) -> tuple[WriteResult, ...]:
    """Take back the change named, or all of the last thing that wasn't taken back, the newest first.

    Raises `MemoryChanged` when a file says something else by now; what was taken back until then stays so.
    """
    if entry is not None:
        return (await store.undo(entry, stamp),)
    last = _last(await store.entries(limit=_LOOKED_AT))
    if not last:
        raise FileMissing("there is nothing to undo")
    return tuple([await store.undo(one.id, stamp) for one in last])


def _last(entries: tuple[MemoryLogEntry, ...]) -> list[MemoryLogEntry]:
    """The entries of one moment and one hand, newest first."""
    every = effective_entries(reversed(entries))
    undone = {one.of for one in every if one.of}
    open_ones = [one for one in reversed(every) if not one.of and one.id not in undone]
    return [one for one in open_ones if _moment(one.stamp) == _moment(open_ones[0].stamp)]


def _moment(stamp: Stamp) -> tuple[float, str, str, str]:
    return stamp.at, stamp.by, stamp.session, stamp.message
