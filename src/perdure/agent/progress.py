"""What an agent tells whoever watches it: deltas of the answer, tools, permissions, background work.

These hold content, for a person's eyes. What is counted and kept are `perdure.events` (OBS-1).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

import anyio

from perdure.agent.permissions import PermissionDecision, PermissionRule
from perdure.context.replies import Delta, Reply
from perdure.transcript.records import InFlight

# What a call is about, by the first of these fields that it has.
_ABOUT = ("command", "file_path", "pattern", "description", "skill", "id", "query", "bash_id", "shell_id", "focus")


def call_summary(arguments: dict[str, Any]) -> str:
    """One line on what a call is for."""
    named = next((arguments[name] for name in _ABOUT if arguments.get(name)), None)
    if named is None and isinstance(todos := arguments.get("todos"), list):
        done = sum(isinstance(one, dict) and one.get("status") == "completed" for one in todos)
        named = f"{done} of {len(todos)} done"
    return " ".join(str(named).split()) if named is not None else ""


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool runs now; permission was given."""

    id: str
    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """A tool has its result, in the order in which they end."""

    id: str
    tool: str
    text: str
    is_error: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class PermissionQuestion:
    """May this be done? `rule` is what would allow it from now on, where there is such a rule.

    `is_own`: it is the person's own doing, so there is nobody to whom an instruction instead would go.
    """

    id: str
    tool: str
    arguments: dict[str, Any]
    why: str
    rule: PermissionRule | None = None
    is_own: bool = False


@dataclass(frozen=True, slots=True)
class PermissionRefused:
    """A call wasn't made; `decision` says who refused it. `rule` is what would allow it, where there is such a rule."""

    id: str
    tool: str
    decision: PermissionDecision
    rule: PermissionRule | None = None


@dataclass(frozen=True, slots=True)
class AnswerReceived:
    """The model gave a whole answer."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class BackgroundEnded:
    """A command or a sub-agent in the background ended."""

    work: InFlight


@dataclass(frozen=True, slots=True)
class SubagentProgress:
    """Something that a sub-agent tells."""

    agent: str
    progress: AgentProgress


@dataclass(frozen=True, slots=True)
class MemoryUpdated:
    """Something was kept, forgotten, or neither, on the user's word; a line that says so (MEM-7)."""

    text: str


@dataclass(frozen=True, slots=True)
class HookMessage:
    """What a hook has to say to the person, such as why it stopped the work (CMP-10)."""

    hook: str
    text: str


AgentProgress = (
    Delta
    | ToolStarted
    | ToolEnded
    | PermissionRefused
    | AnswerReceived
    | BackgroundEnded
    | MemoryUpdated
    | HookMessage
    | SubagentProgress
)
OnProgress = Callable[[AgentProgress], None]


@dataclass(frozen=True, slots=True)
class Allow:
    """Allowed: this once, or from now on in this session by `rule`."""

    rule: PermissionRule | None = None


@dataclass(frozen=True, slots=True)
class Deny:
    """Refused; what the person said instead goes to the model. `stops`: the turn ends, too."""

    message: str = ""
    stops: bool = False


Ask = Callable[[PermissionQuestion], Awaitable[Allow | Deny]]


def one_at_a_time(ask: Ask) -> Ask:
    """One question at a time, whoever asks: an agent and its sub-agents share one person."""
    lock = anyio.Lock()

    async def asked(question: PermissionQuestion) -> Allow | Deny:
        async with lock:
            return await ask(question)

    return asked


Stopped = Literal["done", "interrupted", "turns", "refused", "max_tokens", "stopped", "hook"]


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a prompt ended: the last answer's text, why it ended, and what was done for it.

    `stopped`: `done`; `interrupted` by a person; `turns`, the setting agent_turns was reached; `refused` by the model;
    `max_tokens`, the answer was cut at its limit; `stopped`, a person refused a call and stopped; `hook`, a hook
    refused the prompt or stopped the work.
    """

    text: str
    stopped: Stopped
    calls: int
    turns: int
    prompt: str = ""
