"""The agent's tools, permissions and background work."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """A tool of the agent ended; `outcome` is ok, error, denied or interrupted."""

    tool: str
    tool_use_id: str
    outcome: str
    seconds: float
    result_chars: int


@dataclass(frozen=True, slots=True)
class PermissionDecided:
    """Whether a call may be made, and who said so: a rule, the mode, a person, or nobody."""

    tool: str
    tool_use_id: str
    decision: str
    by: str


@dataclass(frozen=True, slots=True)
class ObserverFailed:
    """What watches the agent's tools raised; the call of `tool` went on. `reason` is the type of the error."""

    observer: str
    reason: str
    tool: str = ""


@dataclass(frozen=True, slots=True)
class BackgroundChanged:
    """Background work began or ended (SES-3)."""

    id: str
    kind: str
    state: str
    code: int | None


@dataclass(frozen=True, slots=True)
class CheckpointTaken:
    """Files that a call changed were written down, with what stood there before (CKP-1, CKP-2)."""

    prompt: str
    tool: str
    files: int


@dataclass(frozen=True, slots=True)
class CheckpointSkipped:
    """Something isn't kept, so it can't be rewound (CKP-2, CKP-6); said once for each reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class FilesRewound:
    """Files were put back, or a rewind was taken back (CKP-3)."""

    to: str
    files: int
    is_undo: bool
