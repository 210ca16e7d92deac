"""Records: the immutable facts of which a journal is made, and the edits among them that change what the view shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from perdure.transcript.blocks import Block, check_front, system_raws, tool_raws, unmarked
from perdure.transcript.messages import BlobId, Message, MessageId, ToolUseId, WireFields

__all__ = [
    "Calibrated",
    "CompactionFailed",
    "Cursor",
    "Edit",
    "Front",
    "Header",
    "InFlight",
    "Noted",
    "Pinned",
    "Record",
    "Repaired",
    "Titled",
    "Transaction",
]


GONE = msgspec.Raw(b"null")


class BlockChange(msgspec.Struct, frozen=True):
    """From now on, block `block` (its index in the message as said) shows as `to`; `GONE` takes it out of the view."""

    message: MessageId
    block: int
    to: msgspec.Raw = GONE

    @property
    def is_gone(self) -> bool:
        return bytes(self.to) == b"null"


class StoredOriginal(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the original of a changed result is kept: a content-addressed blob."""

    tool_use_id: ToolUseId
    blob: BlobId
    bytes: int


class Edit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """What every edit has. `reason` is one short phrase for people and events; it never reaches a model."""

    changes: tuple[BlockChange, ...] = ()
    stored: tuple[StoredOriginal, ...] = ()
    reason: str = ""


class Offloaded(Edit, frozen=True, kw_only=True, omit_defaults=True, tag="offloaded"):
    """A large result was moved to a blob; a preview stands in its place (TURN-2)."""

    preview_bytes: int = 0


class Snipped(Edit, frozen=True, kw_only=True, omit_defaults=True, tag="snipped"):
    """Old history that policy calls worthless was taken out (TURN-3)."""

    tokens_saved: int = 0


class Cleared(Edit, frozen=True, kw_only=True, omit_defaults=True, tag="cleared"):
    """Old tool results were cleared: microcompaction (TURN-4)."""

    trigger: Literal["size", "idle", "provider"]
    tool_use_ids: tuple[ToolUseId, ...] = ()
    images: int = 0
    attachments: tuple[MessageId, ...] = ()
    tokens_saved: int = 0


class Collapsed(Edit, frozen=True, kw_only=True, omit_defaults=True, tag="collapsed"):
    """The messages from `first` to `last` fold into one short projection (TURN-6); undone by `Undone`."""

    id: str
    first: MessageId
    last: MessageId
    projection: Message
    tokens_saved: int = 0


class ThinkingDropped(Edit, frozen=True, kw_only=True, omit_defaults=True, tag="thinking_dropped"):
    """Thinking after an edit point, whose signatures would no longer hold, left the view (TURN-7)."""


class MediaReplaced(Edit, frozen=True, kw_only=True, omit_defaults=True, tag="media_replaced"):
    """Images or documents over a limit were replaced by a placeholder (TURN-9b)."""


class Neutralised(Edit, frozen=True, kw_only=True, omit_defaults=True, tag="neutralised"):
    """Text of others that imitated our control tags shows as plain text, before it was ever sent (SEC-4)."""


class Settled(Edit, frozen=True, kw_only=True, omit_defaults=True, tag="settled"):
    """Calls that had no result when a request had to be made; a synthetic error answers them for good (TURN-9b)."""

    tool_use_ids: tuple[ToolUseId, ...] = ()


class Undone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="undone"):
    """The collapse or compaction with this id no longer holds (TURN-6, CMP-11)."""

    id: str
    reason: str = ""


class Rewound(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="rewound"):
    """The conversation goes on from `to`, the last message that stays; what came after it leaves the view (CKP-4).

    One with an `id` can be taken back by another that names it in `undoes`: then the view is the one from right before
    it, boundary and edits included, and `to` is the last message of that view (CKP-8).
    """

    to: MessageId
    reason: str = ""
    id: str = ""
    undoes: str = ""


class ResultMarks(msgspec.Struct, frozen=True, omit_defaults=True):
    """What had happened to the results that a boundary keeps, so that it doesn't happen to them again."""

    offloaded: tuple[ToolUseId, ...] = ()
    cleared: tuple[ToolUseId, ...] = ()
    snipped: tuple[ToolUseId, ...] = ()
    settled: tuple[ToolUseId, ...] = ()
    sent: int = 0  # how many of the kept messages were in a request that was answered


class RestoredItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that came back behind a boundary, or, without a name, what a restorer left out (RST-1 to RST-9)."""

    kind: str
    name: str = ""
    tokens: int = 0
    left_out: tuple[str, ...] = ()


class Compacted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="compacted"):
    """A boundary: old history gave way to a summary (CMP-8), and a checkpoint of the fold (CMP-14).

    `summary` (with what was restored behind it) stands first, or, when only a part in the middle or at the end was
    summarised, behind the first `in_front` messages of `kept`; then come the other messages of `kept`. All of them show
    as `changes` says. Earlier summaries among `kept` are `carried`: no line of the journal holds them. What the first
    `read` messages of `kept` say is in the checkpoint already, as is everything that the summary stands for.

    `state` is everything else that the fold needs from before; `kept_from` is the byte offset in the journal of the
    first kept message's line (or of the boundary itself when nothing was kept), so that opening a session reads back no
    further (SPD-3).
    """

    id: str
    trigger: Literal["auto", "manual", "reactive", "model"]
    strategy: Literal["session_memory", "full", "ledger", "supplied"]
    summary: tuple[Message, ...]
    kept: tuple[MessageId, ...] = ()
    in_front: int = 0
    read: int = 0
    carried: tuple[Message, ...] = ()
    changes: tuple[BlockChange, ...] = ()
    collapses: tuple[Collapsed, ...] = ()
    marks: ResultMarks = ResultMarks()
    state: msgspec.Raw = msgspec.Raw(b"{}")
    at: float | None = None
    tokens_before: int = 0
    tokens_after: int = 0
    summary_tokens: int = 0
    kept_tokens: int = 0
    kept_from: int = 0
    prompts: dict[str, str] = {}
    restored: tuple[RestoredItem, ...] = ()
    trust: str | None = None  # SEC-1: of the summary: the least of what went into it

    @property
    def order(self) -> tuple[MessageId, ...]:
        """The messages of the view that the boundary makes, by id."""
        summary = (message.id for message in self.summary)
        return (*self.kept[: self.in_front], *summary, *self.kept[self.in_front :])


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

    def unmarked(self) -> Front:
        """Return it without cache breakpoints, which requests set for themselves."""
        if not any(b'"cache_control"' in bytes(raw) for raw in (*self.system, *self.tools)):
            return self
        system, tools = (tuple(msgspec.Raw(unmarked(bytes(raw))) for raw in raws) for raws in (self.system, self.tools))
        return msgspec.structs.replace(self, system=system, tools=tools)

    def check(self) -> Front:
        """Raise `RecordRefused` when no request could be made with it; returns itself."""
        check_front(self.model, self.system, self.tools, self.dynamic_from)
        return self


def _is_raw(given: Any) -> bool:
    return isinstance(given, tuple) and all(type(one) is msgspec.Raw for one in given)


class Worded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="worded"):
    """How the client words an answer of the model that was recorded as it came from the provider (GW-7)."""

    message: MessageId
    wire: WireFields | None = None


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
    client: str | None = None  # that talked to the gateway, or wrote the log that was imported
    folder: str | None = None  # where that client says it works; no path of this machine


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


IMPORTED = "imported"  # the kind of a note: all before it is from a log of another agent (ENG-6)
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
    | Worded
    | Calibrated
    | Titled
    | Pinned
    | CompactionFailed
    | Cursor
    | Repaired
    | InFlight
    | Noted
)
"""What a journal holds: a message, or a decision that changes what is shown of it."""


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
