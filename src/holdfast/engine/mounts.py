"""Memory directories as an agent reaches them: which stands where under /memories, and who may (MEM-1, MEM-13)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from holdfast.context.derived import ROOT, added_lines, origin_of
from holdfast.engine.remembering import Memory
from holdfast.engine.session import LiveSession
from holdfast.memory.changes import Change, Origin, Proposal, Save, Stamp, Written, least_trusted
from holdfast.memory.directory import Allowed, Right, Rights
from holdfast.memory.names import refusal
from holdfast.memory.tool_texts import Unable
from holdfast.transcript.spoken import spoken

_KEPT = (f"{ROOT}/user/", f"{ROOT}/agent/")  # for other directories: closed where these aren't open


@dataclass(frozen=True, slots=True)
class Mount:
    """A memory directory at a path such as `/memories/user`, behind the gate, and what may be done with it."""

    at: str
    memory: Memory
    right: Right = "write"

    def path(self, name: str) -> str:
        """A memory's path for the model."""
        return f"{self.at}/{name}" if name else self.at


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path leads: a name in a directory, empty for the directory itself."""

    mount: Mount
    name: str


@dataclass(frozen=True, slots=True)
class Access:
    """What one agent may do with memories. `inherited`: where the task of a sub-agent comes from; None: a person."""

    mounts: tuple[Mount, ...]
    inherited: Origin | None = None

    def place(self, path: str, *, writes: bool = False) -> Place:
        """Where a path leads. `Unable` when it leads nowhere, or somewhere that this agent may not."""
        if path != ROOT and not path.startswith(f"{ROOT}/"):
            raise Unable(f"Path must start with {ROOT}, got: {path}")
        path = path.rstrip("/")
        if any(part in (".", "..") for part in path.replace("\\", "/").split("/")):
            raise Unable(f"Path {path} would escape {ROOT} directory")
        around = [one for one in self.mounts if path == one.at or path.startswith(f"{one.at}/")]
        mount = max(around, key=lambda one: len(one.at), default=None)
        is_kept = mount is not None and mount.at == ROOT and f"{path}/".startswith(_KEPT)
        if mount is None or is_kept or mount.right == "none":
            open_to = ", ".join(one.at for one in self.mounts if one.right != "none")
            raise Unable(f"Error: {path} isn't open to this agent, but for {open_to or 'nothing'}")
        name = path[len(mount.at) + 1 :]
        if name and (why := refusal(name)) is not None:
            raise Unable(f"Error: {path} can't be used: {why}")
        if writes and mount.right != "write":
            raise Unable(f"Error: {path} may only be read by this agent")
        return Place(mount, name)

    async def known(self) -> Mapping[str, Origin]:
        """Where each memory comes from, by its path."""
        found: dict[str, Origin] = {}
        for mount in self.mounts:
            provenance = await mount.memory.store.provenance()
            found |= {mount.path(name): one.least for name, one in provenance.items()}
        return found

    async def origin(self, session: LiveSession, added: str = "") -> Origin:
        """Whose word it is that this session's model writes now (MEM-10)."""
        found = origin_of(session.view, added, memories=await self.known())
        return found if self.inherited is None else least_trusted((found, self.inherited))

    async def change(self, session: LiveSession, mount: Mount, change: Change) -> Written | Proposal:
        """Make a change on the word of the session's model, stamped with where it comes from (MEM-10)."""
        origin = await self.origin(session, added_lines(change.base, change.text) if isinstance(change, Save) else "")
        return await mount.memory.change(change, stamp_of(session, origin))


def stamp_of(session: LiveSession, origin: Origin) -> Stamp:
    """The stamp of a change that a session makes now: its message is the last that the user said."""
    asked = next((item.message.id for item in reversed(session.view.items) if spoken(item.message)), "")
    return Stamp(origin=origin, at=session.world.clock.now(), session=session.name, message=asked)


def access(found: Iterable[Allowed], rights: Rights, opened: Callable[[Allowed], Memory]) -> Access:
    """The directories that an agent may use, at their paths: the project's at /memories itself (MEM-13)."""
    scopes = iter(rights.scopes)
    places: dict[str, str] = {"project": ROOT, "user": f"{ROOT}/user"}
    return Access(
        tuple(
            Mount(places.get(one.what) or f"{ROOT}/agent/{next(scopes)}", opened(one), one.right)
            for one in found
            if one.right != "none"
        )
    )
