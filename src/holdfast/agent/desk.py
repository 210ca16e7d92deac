"""The desk: everything that an agent's tools work with. One for each agent; tools get it with each call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.agent.permissions import Mode, Policy, Rules, Where
from holdfast.agent.reading import ReadState
from holdfast.ports import Finder, Shell, Spot, Workspace
from holdfast.transcript.messages import MessageId

if TYPE_CHECKING:
    from holdfast.agent.background import Background
    from holdfast.agent.observers import Observer
    from holdfast.agent.progress import Ask
    from holdfast.agent.skills import Skill
    from holdfast.agent.subagents import Subagents
    from holdfast.engine.session import LiveSession


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
    facts: Mapping[str, str] = field(default_factory=dict)
    skill_files: Mapping[str, str] = field(default_factory=dict)  # SKILL.md by real path, the project's last
    agent_files: Mapping[str, str] = field(default_factory=dict)  # kinds of sub-agents that the user defined


@dataclass(slots=True)
class Desk:
    """The state that tools share: folder, mode, what was read, what runs."""

    machine: Machine
    session: LiveSession
    background: Background
    rules: Rules
    mode: Mode
    cwd: str
    reads: ReadState
    ask: Ask | None = None
    mode_before: Mode = "default"  # plan mode ends in this one
    observers: tuple[Observer, ...] = ()
    skills: Mapping[str, Skill] = field(default_factory=dict)
    subagents: Subagents | None = None  # None: this is one, and starts no others
    noting: LiveSession | None = None  # whose journal hears of observers that fail; None: this agent's own
    failures: list[dict[str, str]] = field(default_factory=list)  # of observers, as they were noted
    prompt: MessageId = MessageId("")  # noqa: RUF009 - a NewType of str, immutable

    @property
    def policy(self) -> Policy:
        """What permissions depend on, as of now."""
        workspace = self.machine.workspace
        own = (self.machine.plan_file,)
        return Policy(rules=self.rules, mode=self.mode, root=workspace.root, home=self.machine.home, own=own)

    async def look(self, path: str) -> Spot:
        """Where a path leads, from the folder that commands run in."""
        return await self.machine.workspace.look(path, cwd=self.cwd)

    async def where(self, path: str) -> Where:
        """The same for the permissions."""
        spot = await self.look(path)
        return Where(path, spot.path, spot.is_inside)
