"""The view that a recording's own system had: its compactions, clearings and rewinds folded, not ours (CLI-2)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast.context.replacements import with_text
from holdfast.context.state import to_checkpoint
from holdfast.context.view import View, advance
from holdfast.transcript.edits import Change, Cleared, Compacted, Marks, Rewound
from holdfast.transcript.foreign.recording import LoggedCompaction, LoggedMicrocompaction, Recording, Said
from holdfast.transcript.messages import Message

_CLEARED = "[Old tool result content cleared]"


def view_as_logged(recording: Recording) -> View:
    """What the model of the log would see next."""
    view = View()
    advance(view, msgspec.structs.replace(recording.front, model=recording.front.model or recording.model))
    due: LoggedCompaction | None = None
    for step in recording.steps:
        if due is not None and not (isinstance(step, Said) and step.message.agent_id is not None):
            summary = step.message if isinstance(step, Said) and step.logged_only else None
            _compact(view, due, summary)
            due = None
        if isinstance(step, Said):
            if not step.logged_only:
                advance(view, step.message)
        elif isinstance(step, LoggedCompaction):
            due = step
        elif isinstance(step, LoggedMicrocompaction):
            _clear(view, step)
        elif step.to in view.positions:  # LoggedRewind
            advance(view, Rewound(to=step.to))
    if due is not None:
        _compact(view, due, None)
    return view


def _compact(view: View, step: LoggedCompaction, summary: Message | None) -> None:
    advance(
        view,
        Compacted(
            id=step.message_id,
            trigger="manual" if step.trigger == "manual" else "auto",
            strategy="supplied",
            summary=(summary,) if summary is not None else (),
            kept=tuple(i for i in step.kept if i in view.positions),
            changes=tuple(_changes(view, step)),
            marks=Marks(cleared=tuple(view.cleared), settled=tuple(view.settled)),
            state=to_checkpoint(view.state),
            tokens_before=step.pre_tokens or 0,
            tokens_after=step.post_tokens or 0,
        ),
    )


def _changes(view: View, step: LoggedCompaction) -> Iterator[Change]:
    """How the kept messages are shown where they aren't shown as they were said."""
    for identity in step.kept:
        item = view.item(identity)
        said = item.message.blocks if item else ()
        for index, block in enumerate(item.shown if item else ()):
            if block is not said[index]:
                yield Change(identity, index) if block is None else Change(identity, index, msgspec.Raw(block.raw))


def _clear(view: View, step: LoggedMicrocompaction) -> None:
    ids = tuple(i for i in step.ids if i in view.results and i not in view.cleared)
    if ids:
        changes = tuple(with_text(view, identity, _CLEARED) for identity in ids)
        advance(view, Cleared(trigger="size", tool_use_ids=ids, changes=changes, tokens_saved=step.tokens_saved or 0))
