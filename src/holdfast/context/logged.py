"""What a recording's own system did to its context, as records of ours: one way for import and inspection (ENG-8).

Its summaries become boundaries, its clearing becomes ours (what was cleared can be recalled), a rewind a rewind. The
view that comes of it is the one that the log's system sent, so its reported usage is this view's size (TOK-3). It
teaches nothing about how tokens count: a log doesn't show the system prompt, the tools, and what was put back behind a
summary, so the same numbers stand for more than is seen here (TOK-4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from holdfast.context.anchor import LOGGED
from holdfast.context.indexing import index_of
from holdfast.context.keep import first_said
from holdfast.context.ledger.checkpoint import Ledger, packed
from holdfast.context.microcompact import ATTACHMENT_CLEARED, cleared_text
from holdfast.context.replacements import stored, with_text
from holdfast.context.state import to_checkpoint
from holdfast.context.trusted import least_trust
from holdfast.context.view import View, advance
from holdfast.settings import Settings
from holdfast.transcript.blocks import text_block
from holdfast.transcript.edits import Change, Cleared, Compacted, Marks, Rewound
from holdfast.transcript.foreign.recording import (
    LoggedCompaction,
    LoggedMicrocompaction,
    LoggedRewind,
    Recording,
    Said,
)
from holdfast.transcript.messages import Message, MessageId
from holdfast.transcript.records import Front, Record

Made = Callable[[View], "Record | None"]
"""Makes a record for a view that holds everything before it; None when it would change nothing."""


def view_as_logged(recording: Recording) -> View:
    """What the model of the log would see next."""
    view = View()
    advance(view, front_of(recording))
    for step in steps_of(recording):
        record = step if isinstance(step, Message) else step(view)
        if record is not None:
            advance(view, record)
    return view


def front_of(recording: Recording) -> Front:
    """The front of a recording, with the model that its answers name where it names none itself."""
    return msgspec.structs.replace(recording.front, model=recording.front.model or recording.model)


def steps_of(recording: Recording, settings: Settings | None = None) -> Iterator[Message | Made]:
    """What was said, and what was done to the context, in recorded order; the caller folds each before the next.

    With `settings` a boundary also holds what the ledger knows of everything before it, for whoever goes on from here.
    """
    due: LoggedCompaction | None = None
    for step in recording.steps:
        if due is not None and not (isinstance(step, Said) and step.message.agent_id is not None):
            summary = step.message if isinstance(step, Said) and step.logged_only else None
            yield _boundary(due, summary, settings)
            due = None
        if isinstance(step, Said):
            if not step.logged_only:
                yield untaught(step.message)
        elif isinstance(step, LoggedCompaction):
            due = step
        elif isinstance(step, LoggedMicrocompaction):
            yield _clearing(step)
        else:
            yield _rewind(step)
    if due is not None:
        yield _boundary(due, None, settings)


def untaught(message: Message) -> Message:
    """The message, marked so that its usage sets the size but teaches no ratio."""
    if message.usage is None or message.note is not None:
        return message
    return msgspec.structs.replace(message, note=LOGGED)


def _boundary(step: LoggedCompaction, summary: Message | None, settings: Settings | None) -> Made:
    def made(view: View) -> Compacted:
        kept = tuple(i for i in dict.fromkeys(step.kept) if i in view.positions)
        results = [r.id for r in view.results.values() if view.items[r.position].message.id in kept]
        state = msgspec.structs.replace(view.state, held=None, requested=None)
        if settings is not None:
            first = first_said(view)
            memory = index_of(view, settings).memory(Ledger.of(state), first, max(first, len(view.items)))
            state = msgspec.structs.replace(state, ledger=packed(memory).encoded())
        brought = {m.id: m for m in (*view.boundary.summary, *view.boundary.carried)} if view.boundary else {}
        return Compacted(
            id=step.message_id,
            trigger="manual" if step.trigger == "manual" else "auto",
            strategy="supplied",
            summary=(summary,) if summary is not None else (),
            kept=kept,
            read=len(kept),
            carried=tuple(brought[i] for i in kept if i in brought),
            changes=tuple(_changes(view, kept)),
            marks=Marks(
                cleared=tuple(i for i in results if i in view.cleared),
                settled=tuple(i for i in view.settled if view.items[view.calls[i].position].message.id in kept),
            ),
            state=to_checkpoint(state),
            at=summary.at if summary is not None else None,
            tokens_before=step.pre_tokens or 0,
            tokens_after=step.post_tokens or 0,
            trust=least_trust(view, len(view.items)).name.lower(),
        )

    return made


def _changes(view: View, kept: tuple[MessageId, ...]) -> Iterator[Change]:
    """How the kept messages are shown where they aren't shown as they were said."""
    for identity in kept:
        item = view.items[view.positions[identity]]
        for index, (said, block) in enumerate(zip(item.message.blocks, item.shown, strict=True)):
            if block is not said:
                yield Change(identity, index) if block is None else Change(identity, index, msgspec.Raw(block.raw))


def _clearing(step: LoggedMicrocompaction) -> Made:
    def made(view: View) -> Cleared | None:
        ids = tuple(i for i in dict.fromkeys(step.ids) if i in view.results and i not in view.cleared)
        changes = [with_text(view, identity, cleared_text(identity)) for identity in ids]
        attachments = tuple(i for i in dict.fromkeys(step.attachments) if _is_attachment(view, i))
        for identity in attachments:
            for index, block in enumerate(view.items[view.positions[identity]].shown):
                if block is not None and block.kind == "text":
                    changes.append(Change(identity, index, msgspec.Raw(text_block(ATTACHMENT_CLEARED).raw)))
        if not changes:
            return None
        return Cleared(
            trigger="size",
            tool_use_ids=ids,
            changes=tuple(changes),
            stored=tuple(stored(view, identity) for identity in ids),
            attachments=attachments,
            tokens_saved=step.tokens_saved or 0,
            reason="cleared in the log",
        )

    return made


def _is_attachment(view: View, identity: MessageId) -> bool:
    item = view.item(identity)
    return item is not None and item.message.role == "user" and item.message.origin == "reminder"


def _rewind(step: LoggedRewind) -> Made:
    return lambda view: Rewound(to=step.to, reason="rewound in the log") if step.to in view.positions else None
