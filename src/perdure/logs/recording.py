"""What every reader of a foreign log gives: one `Recording` for each trajectory in the file (ENG-6)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from perdure.transcript.messages import Message, MessageId, ToolUseId
from perdure.transcript.records import Front

Format = Literal["perdure", "claude-code", "codex", "swe-agent", "mini-swe-agent", "openai"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in the file that could not be read as it should be. `line` counts from 1 (0: the file as a whole)."""

    line: int
    what: str


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """A message, in recorded order.

    `logged_only` marks messages that the log's own system put in for itself and that aren't part of what was said:
    its compaction summaries. They belong to the log's history, not to ours.
    """

    message: Message
    line: int
    logged_only: bool = False


@dataclass(frozen=True, slots=True)
class LoggedCompaction:
    """The log's own system compacted here. `kept` are messages it kept verbatim behind its summary."""

    message_id: str
    line: int
    trigger: str
    pre_tokens: int | None = None
    post_tokens: int | None = None
    kept: tuple[MessageId, ...] = ()


@dataclass(frozen=True, slots=True)
class LoggedMicrocompaction:
    """The log's own system cleared these results here."""

    message_id: str
    line: int
    trigger: str
    ids: tuple[ToolUseId, ...]
    pre_tokens: int | None = None
    tokens_saved: int | None = None
    attachments: tuple[MessageId, ...] = ()


@dataclass(frozen=True, slots=True)
class LoggedRewind:
    """The user went back: the conversation goes on from `to`; what was said after it was abandoned."""

    to: MessageId
    line: int


Step = RecordedMessage | LoggedCompaction | LoggedMicrocompaction | LoggedRewind


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded session, in the order in which it was recorded."""

    format: Format
    session: str
    steps: tuple[Step, ...]
    front: Front = field(default_factory=Front)
    problems: tuple[Problem, ...] = ()
    model: str | None = None
    window_tokens: int | None = None  # only when the log itself states it
    title: str | None = None
    cwd: str | None = None
    branch: str | None = None
    is_sub_agent: bool = False  # a log of its own that a sub-agent wrote
    root: str | None = None  # the session whose lines it begins with, or its own id, where logs tell

    @property
    def messages(self) -> tuple[Message, ...]:
        """What was said, without what the log's system said to itself."""
        return tuple(s.message for s in self.steps if isinstance(s, RecordedMessage) and not s.logged_only)
