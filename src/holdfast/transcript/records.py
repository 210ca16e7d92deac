"""Records: the immutable facts of which a journal is made, and the transaction that holds some of them.

A transaction is one line of the journal: all of its records hold, or none does (ENG-3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from holdfast.transcript.blocks import Block
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
from holdfast.transcript.sendable import check_front, system_raws, tool_raws


class Front(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="front"):
    """What stands before the messages in every request: system blocks and tool definitions, as raw JSON.

    A new front moves the whole prefix, so it is recorded. `dynamic_from` is the index of the first system block after
    the named boundary between the stable and the dynamic part (TURN-9).

    Plain data is taken as it is: `system` as a text or a list of texts and blocks, `tools` as a list of definitions,
    Anthropic's or OpenAI's. Raises `RecordRefused` for what can't be written as JSON; whether a request can be made
    with it is looked at when it is recorded (ENG-7).

    >>> Front(model="claude-sonnet-4-5", system="You are helpful.").system
    (msgspec.Raw(b'{"type":"text","text":"You are helpful."}'),)
    """

    model: str | None = None
    system: tuple[msgspec.Raw, ...] = ()
    tools: tuple[msgspec.Raw, ...] = ()
    dynamic_from: int | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            model: str | None = None,
            system: str | Iterable[str | Mapping[str, Any] | Block | msgspec.Raw] = (),
            tools: Sequence[Mapping[str, Any] | msgspec.Raw] = (),
            dynamic_from: int | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        # What a journal holds comes in as it was written: here only plain data is made into JSON.
        if not _is_raw(self.system):
            msgspec.structs.force_setattr(self, "system", system_raws(self.system))
        if not _is_raw(self.tools):
            msgspec.structs.force_setattr(self, "tools", tool_raws(self.tools))

    def check(self) -> Front:
        """Raise `RecordRefused` when no request could be made with it; returns itself."""
        check_front(self.model, self.system, self.tools, self.dynamic_from)
        return self


def _is_raw(given: Any) -> bool:
    return isinstance(given, tuple) and all(type(one) is msgspec.Raw for one in given)


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
    """What opening the session found damaged, and where the damaged bytes were put (ENG-3, REL-2).

    `line` is 0 when it is in no line: the journal isn't what is remembered of it. `crc` is the checksum of the damaged
    bytes, by which they are known again; what is missing or stood in the wrong place has none.
    """

    line: int
    what: str
    quarantine: str | None = None
    crc: str = ""


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
