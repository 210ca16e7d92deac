"""Records: the immutable facts of which a journal is made, and the transaction that holds some of them.

A transaction is one line of the journal: all of its records hold, or none does (ENG-3).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.transcript.edits import (
    Cleared,
    Collapsed,
    Compacted,
    Edit,
    MediaReplaced,
    Neutralised,
    Offloaded,
    Rewound,
    Settled,
    Snipped,
    ThinkingDropped,
    Undone,
)
from holdfast.transcript.messages import Message, MessageId


class Front(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="front"):
    """What stands before the messages in every request: system blocks and tool definitions, as raw JSON.

    A new front moves the whole prefix, so it is recorded. `dynamic_from` is the index of the first system block after
    the named boundary between the stable and the dynamic part (TURN-9).
    """

    model: str | None = None
    system: tuple[msgspec.Raw, ...] = ()
    tools: tuple[msgspec.Raw, ...] = ()
    dynamic_from: int | None = None


class Calibrated(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="calibrated"):
    """What was learned about a model's counting (TOK-4): reported tokens per estimated one, its true window.

    `size_tokens` is what the provider stated of the context as it is here: from now on sizes start from it.
    `output_tokens` is the longest answer that the model gives.
    """

    model: str
    ratio: float
    window_tokens: int | None = None
    size_tokens: int | None = None
    output_tokens: int | None = None


class Titled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="titled"):
    """Session metadata for listings (ENG-5). None leaves a field as it was; re-appended after a compaction."""

    title: str | None = None
    tags: tuple[str, ...] | None = None
    last_prompt: str | None = None
    branch: str | None = None
    messages: int | None = None


class Pinned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="pinned"):
    """Text that survives every compaction verbatim; an empty text takes the pin back."""

    id: str
    text: str = ""


class CompactionFailed(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="compaction_failed"
):
    """An attempt that changed nothing; counts towards the breaker (PRS-5)."""

    trigger: str
    reason: str


class Cursor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="cursor"):
    """How far a background keeper has come, by the id of the last message it covered."""

    name: str
    message: MessageId
    digest: str | None = None


class Repaired(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="repaired"):
    """What opening the session found damaged, and where the damaged bytes were put (ENG-3, REL-2)."""

    line: int
    what: str
    quarantine: str | None = None


class InFlight(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="in_flight"):
    """Background work of the agent, as last known: the newest record of an id counts (SES-3).

    `where` is the file of its output, or the journal of a sub-agent. `result` is the end of what it said, for one that
    ended. `is_told`: the model was told of the end, so it needn't be told again.
    """

    id: str
    kind: Literal["command", "agent"]
    what: str = ""
    state: Literal["running", "completed", "failed", "stopped", "lost"] = "running"
    where: str = ""
    code: int | None = None
    began: float | None = None
    ended: float | None = None
    result: str = ""
    is_told: bool = False


class Noted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="noted"):
    """Anything else worth keeping in order that the view doesn't show; `kind` names it, `data` is its content."""

    kind: str
    data: dict[str, Any] = {}


OBSERVER_FAILED = "observer_failed"  # the kind of a note: what watches an agent's tools failed (CKP-7)

Record = (
    Message
    | Front
    | Offloaded
    | Snipped
    | Cleared
    | Collapsed
    | ThinkingDropped
    | MediaReplaced
    | Neutralised
    | Settled
    | Undone
    | Rewound
    | Compacted
    | Calibrated
    | Titled
    | Pinned
    | CompactionFailed
    | Cursor
    | Repaired
    | InFlight
    | Noted
)


class Transaction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line: its sequence number (1, 2, 3, … in line order) and its records."""

    seq: int
    records: tuple[Record, ...]


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line of a journal."""

    format: str
    version: int
    session: str
    created: float
    project: str | None = None
    source: str | None = None
    forked_from: str | None = None


__all__ = [
    "Calibrated",
    "CompactionFailed",
    "Cursor",
    "Edit",
    "Front",
    "Header",
    "InFlight",
    "Message",
    "Noted",
    "Pinned",
    "Record",
    "Repaired",
    "Titled",
    "Transaction",
]
