"""What a recording's own system did to its context, as records of ours: one way for import and inspection (ENG-8).

Its summaries become boundaries, its clearing becomes ours (what was cleared can be recalled), a rewind a rewind. The
view that comes of it is the one that the log's system sent, so its reported usage is this view's size (TOK-3). It
teaches nothing about how tokens count: a log doesn't show the system prompt, the tools, and what was put back behind a
summary, so the same numbers stand for more than is seen here (TOK-4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from perdure.compaction.ledger.memory import LedgerMemory, PackedLedger, pack_ledger
from perdure.compaction.ledger.reader import index_of
from perdure.compaction.ledger.render import HEAD, RecordSurroundings, render
from perdure.compaction.plan import first_said
from perdure.context.accounting import least_trust
from perdure.context.passes import ATTACHMENT_CLEARED, cleared_text, stored, with_text
from perdure.context.reminders import without_tags
from perdure.context.state import LOGGED, to_checkpoint
from perdure.context.view import ContextView, advance
from perdure.logs.recording import LoggedCompaction, LoggedMicrocompaction, LoggedRewind, RecordedMessage, Recording
from perdure.memory.trust.secrets import redact
from perdure.settings import Settings
from perdure.transcript.blocks import text_block
from perdure.transcript.messages import Message, MessageId
from perdure.transcript.records import BlockChange, Cleared, Compacted, Front, Record, ResultMarks, Rewound

CLEARED_IN_LOG = "cleared in the log"
REWOUND_IN_LOG = "rewound in the log"
MakeRecord = Callable[[ContextView], "Record | None"]
"""Makes a record for a view that holds everything before it; None when it would change nothing."""


def view_as_logged(recording: Recording) -> ContextView:
    """What the model of the log would see next."""
    view = ContextView()
    advance(view, front_of(recording))
    for step in steps_of(recording):
        record = step if isinstance(step, Message) else step(view)
        if record is not None:
            advance(view, record)
    return view


def front_of(recording: Recording) -> Front:
    """The front of a recording, with the model that its answers name where it names none itself."""
    return msgspec.structs.replace(recording.front, model=recording.front.model or recording.model)


def steps_of(recording: Recording, settings: Settings | None = None) -> Iterator[Message | MakeRecord]:
    """What was said, and what was done to the context, in recorded order; the caller folds each before the next.

    With `settings` a boundary also holds what the ledger knows of everything before it, for whoever goes on from here.
    """
    due: LoggedCompaction | None = None
    for step in recording.steps:
        if due is not None and not (isinstance(step, RecordedMessage) and step.message.agent_id is not None):
            summary = step.message if isinstance(step, RecordedMessage) and step.logged_only else None
            yield _boundary(due, summary, settings)
            due = None
        if isinstance(step, RecordedMessage):
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


def _boundary(step: LoggedCompaction, summary: Message | None, settings: Settings | None) -> MakeRecord:
    def made(view: ContextView) -> Compacted:
        kept = tuple(i for i in dict.fromkeys(step.kept) if i in view.positions)
        results = [r.id for r in view.results.values() if view.items[r.position].message.id in kept]
        state = msgspec.structs.replace(view.state, held=None, requested=None)
        if settings is not None:
            state = msgspec.structs.replace(state, ledger=pack_ledger(_memory(view, settings)).encoded())
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
            marks=ResultMarks(
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


def record_of(view: ContextView, settings: Settings, budget_tokens: int, *, secret_key: bytes = b"") -> str:
    """Our record of all that a view and the boundaries before it know of, to stand beside the log's own summary.

    It says nothing about how what it names is had back, has no secrets (SEC-5), and nothing that reads as a request of
    the system's (SEC-4).
    """
    record = render(_memory(view, settings, secret_key), budget_tokens, RecordSurroundings(lead=HEAD)).text
    return redact(without_tags(record), secret_key).text


def _memory(view: ContextView, settings: Settings, key: bytes = b"") -> LedgerMemory:
    """What the ledger knows of everything up to now."""
    first = first_said(view)
    extracts = index_of(view, settings, key).extracts(first, max(first, len(view.items)))
    return PackedLedger.of(view.state).memory(extracts)


def _changes(view: ContextView, kept: tuple[MessageId, ...]) -> Iterator[BlockChange]:
    """How the kept messages are shown where they aren't shown as they were said."""
    for identity in kept:
        item = view.items[view.positions[identity]]
        for index, (said, block) in enumerate(zip(item.message.blocks, item.shown, strict=True)):
            if block is not said:
                yield (
                    BlockChange(identity, index)
                    if block is None
                    else BlockChange(identity, index, msgspec.Raw(block.raw))
                )


def _clearing(step: LoggedMicrocompaction) -> MakeRecord:
    def made(view: ContextView) -> Cleared | None:
        ids = tuple(i for i in dict.fromkeys(step.ids) if i in view.results and i not in view.cleared)
        changes = [with_text(view, identity, cleared_text(identity)) for identity in ids]
        attachments = tuple(i for i in dict.fromkeys(step.attachments) if _is_attachment(view, i))
        for identity in attachments:
            for index, block in enumerate(view.items[view.positions[identity]].shown):
                if block is not None and block.type == "text":
                    marker = text_block(ATTACHMENT_CLEARED.format(id=identity))
                    changes.append(BlockChange(identity, index, msgspec.Raw(marker.raw)))
        if not changes:
            return None
        return Cleared(
            trigger="size",
            tool_use_ids=ids,
            changes=tuple(changes),
            stored=tuple(stored(view, identity) for identity in ids),
            attachments=attachments,
            tokens_saved=step.tokens_saved or 0,
            reason=CLEARED_IN_LOG,
        )

    return made


def _is_attachment(view: ContextView, identity: MessageId) -> bool:
    item = view.item(identity)
    return item is not None and item.message.role == "user" and item.message.origin == "reminder"


def _rewind(step: LoggedRewind) -> MakeRecord:
    return lambda view: Rewound(to=step.to, reason=REWOUND_IN_LOG) if step.to in view.positions else None
