"""Which memories an agent may change, on whose word, and what a person asks for (MEM-1, MEM-7, MEM-10)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from perdure import prompts
from perdure.context.provenance import MEMORY_ROOT, origin_of
from perdure.context.reminders import prepend_context
from perdure.engine.guarded_memory import GuardedMemory, new_memory, over_limits, write_with_index
from perdure.engine.memory_recall import last_said, user_text
from perdure.engine.reminders import Moment
from perdure.engine.session import LiveSession
from perdure.errors import PerdureError
from perdure.events import MemoryAsked
from perdure.memory.changes import (
    Change,
    DeleteMemory,
    MemoryProposal,
    Origin,
    SaveMemory,
    Stamp,
    WriteResult,
    least_trusted,
)
from perdure.memory.files import topic
from perdure.memory.places import AllowedDirectory, MemoryRights, Right, is_memory, name_for_people, refusal
from perdure.memory.remarks import MemoryRequest, forget_matches, kind_of, memory_requests
from perdure.memory.save import memory_text, title_of
from perdure.memory.tool_texts import MemoryToolError
from perdure.memory.trust.secrets import secrets_of
from perdure.transcript.messages import Message, MessageId, spoken

_KEPT = (f"{MEMORY_ROOT}/user/", f"{MEMORY_ROOT}/agent/")  # for other directories: closed where these aren't open


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
        if path != MEMORY_ROOT and not path.startswith(f"{MEMORY_ROOT}/"):
            raise MemoryToolError(f"Path must start with {MEMORY_ROOT}, got: {path}")
        path = path.rstrip("/")
        if any(part in (".", "..") for part in path.replace("\\", "/").split("/")):
            raise MemoryToolError(f"Path {path} would escape {MEMORY_ROOT} directory")
        around = [one for one in self.mounts if path == one.at or path.startswith(f"{one.at}/")]
        mount = max(around, key=lambda one: len(one.at), default=None)
        is_kept = mount is not None and mount.at == MEMORY_ROOT and f"{path}/".startswith(_KEPT)
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

    async def origin(self, session: LiveSession, text: str | None = None, base: str | None = None) -> Origin:
        """Whose word it is that this session's model writes now (MEM-10)."""
        found = origin_of(session.view, text, base, memories=await self.origins())
        return found if self.inherited is None else least_trusted((found, self.inherited))

    async def change(self, session: LiveSession, mount: MemoryMount, change: Change) -> WriteResult | MemoryProposal:
        """Make a change on the word of the session's model, stamped with where it comes from (MEM-10)."""
        given = (change.text, change.base) if isinstance(change, SaveMemory) else ()
        origin = await self.origin(session, *given)
        said = last_said(session)
        heard = secrets_of(user_text(said)) if said is not None else ()
        return await mount.memory.change(change, stamp_of(session, origin), heard=heard)


def stamp_of(session: LiveSession, origin: Origin) -> Stamp:
    """The stamp of a change that a session makes now: its message is the last that the user said."""
    asked = next((item.message.id for item in reversed(session.view.items) if spoken(item.message)), "")
    return Stamp(origin=origin, at=session.ports.clock.now(), session=session.id, message=asked)


def memory_access(
    found: Iterable[AllowedDirectory], rights: MemoryRights, opened: Callable[[AllowedDirectory], GuardedMemory]
) -> MemoryAccess:
    """The directories that an agent may use, at their paths: the project's at /memories itself (MEM-13)."""
    scopes = iter(rights.scopes)
    places: dict[str, str] = {"project": MEMORY_ROOT, "user": f"{MEMORY_ROOT}/user"}
    return MemoryAccess(
        tuple(
            MemoryMount(places.get(one.what) or f"{MEMORY_ROOT}/agent/{next(scopes)}", opened(one), one.right)
            for one in found
            if one.right != "none"
        )
    )


NAME = "remembered"
MOST_MEANT = 3  # more memories than this can't all be meant by one sentence
MOST_FILES = 5_000
MemoryPath = Callable[[str], str]  # how a memory is named: by its path for the model, by its file for a person
ToldLine = Callable[[MemoryPath], str]


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
        requests = memory_requests(user_text(said))
        if not requests:
            return ()
        typed, pasted = stamp_of(session, "user"), stamp_of(session, "web")
        heard = secrets_of(user_text(said))
        lines = [await self._line(session, mount, typed if one.is_typed else pasted, one, heard) for one in requests]
        for line in lines:
            for tell in session.services.on_remembered:
                tell(line(name_for_people))
        text = prompts.render("memory_kept", done="\n".join(f"- {line(mount.path)}" for line in lines))
        (message,) = prepend_context((), {"Memory": text})
        return (Message.of("user", list(message.blocks), origin="reminder", note=NAME),)

    async def _line(
        self, session: LiveSession, mount: MemoryMount, stamp: Stamp, asked: MemoryRequest, heard: Collection[str]
    ) -> ToldLine:
        """Do what was asked, and say in a line what came of it."""
        try:
            if asked.act == "remember":
                outcome, line = await _keep(session, mount, stamp, asked.text, heard)
            else:
                outcome, line = await _forget(session, mount, stamp, asked.text)
        except PerdureError as e:
            refused = f"Not done: {e}"
            outcome, line = "refused", lambda path: refused
        session.emit(MemoryAsked(asked.act, outcome))
        return line


def _writable(session: LiveSession) -> MemoryMount | None:
    mounts = session.services.memories.mounts if session.services.memories is not None else ()
    return next((one for one in mounts if one.right == "write" and one.memory.mode != "off"), None)


async def _keep(
    session: LiveSession, mount: MemoryMount, stamp: Stamp, text: str, heard: Collection[str]
) -> tuple[str, ToldLine]:
    title = title_of(text)
    change = await new_memory(mount.memory.store, memory_text(type=kind_of(text), body=text))
    name = change.name
    if change.base is not None:
        return "unchanged", lambda path: f"It was in the memory already: {path(name)}"
    done = await write_with_index(mount.memory, stamp, change, heard=heard)
    if isinstance(done, MemoryProposal):
        why = done.why
        return "waits", lambda path: f"Waits for approval ({why}): {title}"
    over = await over_limits(mount.memory.store, session.settings)
    more = f"\n  {over}" if over is not None else ""
    return done.outcome, lambda path: f"Remembered as {path(name)}: {title}{more}"


async def _forget(session: LiveSession, mount: MemoryMount, stamp: Stamp, about: str) -> tuple[str, ToldLine]:
    store = mount.memory.store
    listed = await store.listing()
    names = [one.name for one in listed.files if is_memory(one.name)][:MOST_FILES]
    texts = {one.name: one.text for one in [await store.read(name) for name in names] if one is not None}
    found = forget_matches(about, [(topic(name, text), text) for name, text in texts.items()])
    what = title_of(about)
    if not found:
        return "nothing", lambda path: f"Nothing in the memory says this, so nothing was forgotten: {what}"
    if len(found) > MOST_MEANT:

        def unclear(path: MemoryPath) -> str:
            files = ", ".join(path(one.file) for one in found[:8])
            return f"Nothing was forgotten, as {len(found)} memories may be meant: {files}. Ask which of them."

        return "unclear", unclear
    changes = [
        DeleteMemory(name=one.file, base=texts[one.file])
        if one.text is None
        else SaveMemory(name=one.file, text=one.text, base=texts[one.file])
        for one in found
    ]
    waits = isinstance(await write_with_index(mount.memory, stamp, *changes), MemoryProposal)

    def done(path: MemoryPath) -> str:
        files = ", ".join(path(one.file) + ("" if one.text is None else " (lines of it)") for one in found)
        return f"Waits for approval: to forget {files}" if waits else f"Forgotten: {files}"

    return ("waits" if waits else "forgotten"), done
