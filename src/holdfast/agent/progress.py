"""What an agent tells whoever watches it: deltas of the answer, tools, permissions, background work.

These hold content, for a person's eyes. What is counted and kept are `holdfast.events` (OBS-1).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

import anyio

from holdfast.agent.permissions import Rule, Verdict
from holdfast.context.replies import Delta, Reply
from holdfast.transcript.records import InFlight


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
class Asked:
    """May this be done? `rule` is what would allow it from now on, where there is such a rule."""

    id: str
    tool: str
    arguments: dict[str, Any]
    why: str
    rule: Rule | None = None


@dataclass(frozen=True, slots=True)
class PermissionRefused:
    """A call wasn't made; `verdict` says who refused it."""

    id: str
    tool: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Answered:
    """The model gave a whole answer."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class BackgroundEnded:
    """A command or a sub-agent in the background ended."""

    work: InFlight


@dataclass(frozen=True, slots=True)
class OfSubagent:
    """Something that a sub-agent tells."""

    agent: str
    progress: Progress


@dataclass(frozen=True, slots=True)
class Remembered:
    """Something was kept, forgotten, or neither, on the user's word; a line that says so (MEM-7)."""

    text: str


Progress = Delta | ToolStarted | ToolEnded | PermissionRefused | Answered | BackgroundEnded | Remembered | OfSubagent
OnProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Yes:
    """Allowed: this once, or from now on in this session by `rule`."""

    rule: Rule | None = None


@dataclass(frozen=True, slots=True)
class No:
    """Refused; what the person said instead goes to the model. `stops`: the turn ends, too."""

    said: str = ""
    stops: bool = False


Ask = Callable[[Asked], Awaitable[Yes | No]]


def in_turn(ask: Ask) -> Ask:
    """One question at a time, whoever asks: an agent and its sub-agents share one person."""
    lock = anyio.Lock()

    async def asked(question: Asked) -> Yes | No:
        async with lock:
            return await ask(question)

    return asked


Stopped = Literal["done", "interrupted", "turns", "refused", "max_tokens", "stopped"]


@dataclass(frozen=True, slots=True)
class Said:
    """How a prompt ended: the last answer's text, why it ended, and what was done for it.

    `stopped`: `done`; `interrupted` by a person; `turns`, the setting agent_turns was reached; `refused` by the model;
    `max_tokens`, the answer was cut at its limit; `stopped`, a person refused a call and stopped.
    """

    text: str
    stopped: Stopped
    calls: int
    turns: int
    prompt: str = ""
