"""What an agent's tools work with, what it has read, and who watches its tools (CKP-1, CKP-2)."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from perdure.agent.permissions import CallPath, Mode, PermissionPolicy, PermissionRules
from perdure.compaction.restore.files import contents, same_file
from perdure.compaction.restore.registry import RestoreScene, TrackerStates
from perdure.engine.session import LiveSession
from perdure.errors import JournalError, PerdureError
from perdure.events import ObserverFailed
from perdure.ports.machine import CHECKPOINTS, Checkpoints, Finder, Shell, Workspace
from perdure.ports.machine import FileCall as Call
from perdure.ports.machine import ResolvedPath as Spot
from perdure.transcript.messages import MessageId, ToolUseId
from perdure.transcript.records import OBSERVER_FAILED, Noted
from perdure.transcript.tool_calls.actions import HistoryReader

if TYPE_CHECKING:
    from perdure.agent.background import BackgroundTasks, Subagents
    from perdure.agent.progress import Ask
    from perdure.agent.skills import Skill


ReadStatus = Literal["current", "changed", "unknown"]


@dataclass(slots=True)
class ReadState:
    """Which files of the session were read, and how they were then."""

    session: LiveSession
    _seen: dict[str, tuple[str, ToolUseId]] = field(default_factory=dict)  # real path -> digest, and the call

    def saw(self, path: str, data: bytes, call: str) -> None:
        """A call read or wrote a file (a real path)."""
        self._seen.pop(path, None)
        self._seen[path] = (_digest(data), ToolUseId(call))

    def status(self, path: str, data: bytes, names: tuple[str, ...] = ()) -> ReadStatus:
        """Whether the view tells of a file as it is now. `names` are other ways in which it was called."""
        seen = self._seen.get(path)
        if seen is not None and seen[1] in self.session.view.calls:
            return "current" if seen[0] == _digest(data) else "changed"
        return self._told(path, data, names)

    def _told(self, path: str, data: bytes, names: tuple[str, ...]) -> ReadStatus:
        view = self.session.view
        happened = tuple(HistoryReader().read(item.message for item in view.items))
        scene = RestoreScene(
            view=view,
            keep_from=0,
            facts=self.session.facts(),
            states={},
            happened=happened,
            restored=TrackerStates.of(view.state).restored,
        )
        known = contents(scene, {path, *names})
        name = same_file(path, known) or next((name for name in names if name in known), None)
        if name is None:
            return "unknown"
        text = data.decode("utf-8", "replace").replace("\r\n", "\n")
        return "current" if known[name].agrees(text) else "changed"

    def call_showing(self, name: str, path: str, span: str, text: str) -> ToolUseId | None:
        """The call of a tool whose result shows exactly this text of a path, in the view as it is; else None."""
        view = self.session.view
        for call in reversed(view.calls.values()):
            result = view.results.get(call.id)
            if call.name != name or call.path != path or call.span != span or result is None:
                continue
            block = view.shown_result(result)
            if block is not None and not block.is_error and block.text() == text:
                return call.id
        return None


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


_REASON_CHARS = 300


class ToolObserver(Protocol):
    """Sees the calls of an agent's tools.

    `before_call` and `after_call` stand around every call that may change something (Bash, Write, Edit, MultiEdit),
    never around two at a time; reading tools run in between and beside each other. `before_change` is awaited right
    before one of our tools writes these files (real paths), also when one doesn't exist yet.
    """

    @property
    def name(self) -> str: ...

    async def before_call(self, tool: str, arguments: dict[str, Any], prompt: MessageId) -> None: ...

    async def before_change(self, paths: tuple[str, ...], prompt: MessageId) -> None: ...

    async def after_call(self, tool: str, arguments: dict[str, Any], prompt: MessageId) -> None: ...


async def notify_observers(context: ToolContext, tool: str, telling: Callable[[ToolObserver], Awaitable[None]]) -> None:
    """Tell every observer of the context about a call, in their order."""
    for observer in context.observers:
        try:
            await telling(observer)
        except Exception as e:  # the boundary to observers: they never stop the work
            context.session.emit(ObserverFailed(observer.name, type(e).__name__, tool))
            failure = {"observer": observer.name, "reason": _reason(e), "tool": tool, "prompt": context.prompt}
            if failure not in context.failures:
                context.failures.append(failure)
                try:
                    await (context.failure_session or context.session).record(Noted(kind=OBSERVER_FAILED, data=failure))
                except JournalError:
                    # noted when it fails again, and the call is not this one's to fail
                    context.failures.remove(failure)


def _reason(e: Exception) -> str:
    """An error in one line. What others raise may quote a file, so only its type is written down."""
    if isinstance(e, OSError):
        said = e.strerror or ""
    else:
        said = str(e) if isinstance(e, PerdureError) else ""
    text = f"{type(e).__name__}: {said}" if said else type(e).__name__
    return " ".join(text.encode("utf-8", "replace").decode().split())[:_REASON_CHARS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What an agent sees of the machine: files, search, commands, and where it keeps its plan.

    `home` is the user's home directory, for rules and for skills of the user's own; `facts` are lines about the
    surroundings for the system prompt, as they are when the agent starts.
    """

    workspace: Workspace
    finder: Finder
    shell: Shell
    plan_file: str
    home: str = "/"
    surroundings: Mapping[str, str] = field(default_factory=dict)
    skill_files: Mapping[str, str] = field(default_factory=dict)  # SKILL.md by real path, the project's last
    agent_files: Mapping[str, str] = field(default_factory=dict)  # kinds of sub-agents that the user defined


@dataclass(slots=True)
class ToolContext:
    """The state that tools share: folder, mode, what was read, what runs."""

    machine: Machine
    session: LiveSession
    background: BackgroundTasks
    rules: PermissionRules
    mode: Mode
    cwd: str
    reads: ReadState
    ask: Ask | None = None
    mode_before: Mode = "default"  # plan mode ends in this one
    observers: tuple[ToolObserver, ...] = ()
    skills: Mapping[str, Skill] = field(default_factory=dict)
    agent_type: str | None = None  # which kind of sub-agent this is
    subagents: Subagents | None = None  # None: this is one, and starts no others
    failure_session: LiveSession | None = None  # whose journal hears of observers that fail; None: this agent's own
    failures: list[dict[str, str]] = field(default_factory=list)  # of observers, as they were noted
    prompt: MessageId = MessageId("")  # noqa: RUF009 - a NewType of str, immutable

    @property
    def policy(self) -> PermissionPolicy:
        """What permissions depend on, as of now."""
        workspace = self.machine.workspace
        own = (self.machine.plan_file,)
        return PermissionPolicy(rules=self.rules, mode=self.mode, root=workspace.root, home=self.machine.home, own=own)

    async def resolve(self, path: str) -> Spot:
        """Where a path leads, from the folder that commands run in."""
        return await self.machine.workspace.resolve(path, cwd=self.cwd)

    async def where(self, path: str) -> CallPath:
        """The same for the permissions."""
        spot = await self.resolve(path)
        return CallPath(path, spot.path, spot.is_inside)


_SAY_WHAT_THEY_CHANGE = frozenset({"Write", "Edit", "MultiEdit"})  # before_change names the files


@dataclass(frozen=True)
class CheckpointObserver:
    """The `ToolObserver` that keeps checkpoints of files (CKP-1)."""

    files: Checkpoints
    name = CHECKPOINTS

    async def before_call(self, tool: str, arguments: dict[str, Any], prompt: MessageId) -> None:
        await self.files.begin(_call(tool, arguments, prompt))

    async def before_change(self, paths: tuple[str, ...], prompt: MessageId) -> None:
        await self.files.save(paths, Call("", prompt, looks=False))

    async def after_call(self, tool: str, arguments: dict[str, Any], prompt: MessageId) -> None:
        await self.files.end(_call(tool, arguments, prompt))


def _call(tool: str, arguments: dict[str, Any], prompt: MessageId) -> Call:
    is_background = arguments.get("run_in_background") in (True, "true")
    return Call(tool, prompt, looks=tool not in _SAY_WHAT_THEY_CHANGE, is_background=is_background)
