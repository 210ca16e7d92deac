"""Journals of our own as recordings, so that they replay like any other log (CLI-2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from holdfast.adapters.files.disk import DISK
from holdfast.adapters.files.reading import reading
from holdfast.ports import Placed
from holdfast.transcript.edits import Cleared, Compacted, Rewound
from holdfast.transcript.foreign.detect import HEAD_BYTES, detect, read_recordings
from holdfast.transcript.foreign.recording import (
    LoggedCompaction,
    LoggedMicrocompaction,
    LoggedRewind,
    Problem,
    Recording,
    Said,
    Step,
)
from holdfast.transcript.messages import Message
from holdfast.transcript.records import Front, Titled


def recordings_of(path: Path) -> tuple[Recording, ...]:
    """The sessions in a file, whether a journal or a log of another agent.

    Raises `OSError`, `ForeignFormat` for what no reader knows, `JournalError` for a journal that can't be read.
    """
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        if detect(head, path.name) != "holdfast":
            return read_recordings(head + file.read(), path.name)
    return (journal_recording(path),)


def journal_recording(path: Path) -> Recording:
    """A journal with everything that was said in it; what our engine did then is what "the log itself" did."""
    with reading(DISK, path) as reader:
        scan = reader.scan(reader.body)
        header = reader.header
    records = [placed.record for placed in scan.placed]
    front = next((record for record in records if isinstance(record, Front)), Front())
    titles = [record for record in records if isinstance(record, Titled)]
    models = [record.model for record in records if isinstance(record, Message) and record.model]
    return Recording(
        format="holdfast",
        session=header.session,
        steps=tuple(step for placed in scan.placed for step in _steps(placed)),
        front=front,
        problems=tuple(Problem(damage.line, damage.what) for damage in scan.damage),
        model=front.model or (models[-1] if models else None),
        title=next((title.title for title in reversed(titles) if title.title), None),
        cwd=header.project,
        branch=next((title.branch for title in reversed(titles) if title.branch), None),
    )


def _steps(placed: Placed) -> Iterator[Step]:
    record, line = placed.record, placed.seq + 1
    if isinstance(record, Message):
        yield Said(record, line)
    elif isinstance(record, Rewound):
        yield LoggedRewind(record.to, line)
    elif isinstance(record, Cleared):
        yield LoggedMicrocompaction(
            record.tool_use_ids[0] if record.tool_use_ids else f"line-{line}",
            line,
            record.trigger,
            record.tool_use_ids,
            tokens_saved=record.tokens_saved,
        )
    elif isinstance(record, Compacted):
        yield LoggedCompaction(record.id, line, record.trigger, record.tokens_before, record.tokens_after, record.kept)
        for message in record.summary:
            yield Said(message, line, logged_only=True)
