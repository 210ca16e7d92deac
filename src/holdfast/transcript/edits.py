"""Edits: recorded changes of what the view shows.

An edit is written to the journal first and folded onto the view second; nothing else changes a view. Each one carries
the exact bytes that stand in the view from then on, so a later version of Holdfast that would choose other words still
sends the same prefix (REL-5, REL-6). Nothing is lost: the messages stay in the journal as they were said.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.transcript.messages import BlobId, Message, MessageId, ToolUseId

GONE = msgspec.Raw(b"null")


class Change(msgspec.Struct, frozen=True):
    """From now on, block `block` (its index in the message as said) shows as `to`; `GONE` takes it out of the view."""

    message: MessageId
    block: int
    to: msgspec.Raw = GONE

    @property
    def is_gone(self) -> bool:
        return bytes(self.to) == b"null"


class Stored(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where the original of a changed result is kept: a content-addressed blob."""

    tool_use_id: ToolUseId
    blob: BlobId
    bytes: int


class Edit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """What every edit has. `reason` is one short phrase for people and events; it never reaches a model."""

    changes: tuple[Change, ...] = ()
    stored: tuple[Stored, ...] = ()
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


class Marks(msgspec.Struct, frozen=True, omit_defaults=True):
    """What had happened to the results that a boundary keeps, so that it doesn't happen to them again."""

    offloaded: tuple[ToolUseId, ...] = ()
    cleared: tuple[ToolUseId, ...] = ()
    snipped: tuple[ToolUseId, ...] = ()
    settled: tuple[ToolUseId, ...] = ()
    sent: int = 0  # how many of the kept messages were in a request that was answered


class Returned(msgspec.Struct, frozen=True, omit_defaults=True):
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
    changes: tuple[Change, ...] = ()
    collapses: tuple[Collapsed, ...] = ()
    marks: Marks = Marks()
    state: msgspec.Raw = msgspec.Raw(b"{}")
    at: float | None = None
    tokens_before: int = 0
    tokens_after: int = 0
    summary_tokens: int = 0
    kept_tokens: int = 0
    kept_from: int = 0
    prompts: dict[str, str] = {}
    restored: tuple[Returned, ...] = ()
    trust: str | None = None  # SEC-1: of the summary: the least of what went into it

    @property
    def order(self) -> tuple[MessageId, ...]:
        """The messages of the view that the boundary makes, by id."""
        summary = (message.id for message in self.summary)
        return (*self.kept[: self.in_front], *summary, *self.kept[self.in_front :])


AnyEdit = (
    Offloaded
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
)
