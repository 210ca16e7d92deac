"""A journal of Holdfast's own, read as a recording: what was said, and what the engine of that time did with it."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.errors import DamagedLine, ForeignFormat, MalformedBlock, NewerFormat
from holdfast.transcript.codec import decode_header, decode_line
from holdfast.transcript.edits import Cleared, Compacted, Rewound
from holdfast.transcript.foreign.mending import mended_front, mended_message
from holdfast.transcript.foreign.reading import Problems
from holdfast.transcript.foreign.recording import (
    LoggedCompaction,
    LoggedMicrocompaction,
    LoggedRewind,
    Recording,
    Said,
    Step,
)
from holdfast.transcript.messages import Message
from holdfast.transcript.records import Front, Header, Record, Titled


def read(data: bytes, name: str) -> tuple[Recording, ...]:
    """The journal as one recording. Damaged lines become problems; a newer version is a `ForeignFormat`."""
    lines = data.split(b"\n")
    try:
        header = decode_header(lines[0])
    except (DamagedLine, NewerFormat) as e:
        raise ForeignFormat(f"{name}: line 1: {e}") from None
    return (_recording(header, list(enumerate(lines[1:], 2)), name),)


def _recording(header: Header, lines: list[tuple[int, bytes]], name: str) -> Recording:
    steps: list[Step] = []
    problems = Problems()
    front, title = Front(), None
    for number, line in lines:
        if not line.strip():
            continue
        try:
            records = decode_line(line, header.version).records
        except NewerFormat as e:
            raise ForeignFormat(f"{name}: line {number}: {e}") from None
        except DamagedLine as e:
            problems.add(number, str(e))
            continue
        for record in records:
            try:
                steps += _steps(record, number, problems)
            except MalformedBlock as e:
                problems.add(number, str(e))
            if isinstance(record, Front):
                front = record
            elif isinstance(record, Titled):
                title = record.title or title
    models = [s.message.model for s in steps if isinstance(s, Said) and s.message.model]
    return Recording(
        format="holdfast",
        session=header.session,
        steps=tuple(steps),
        front=mended_front(front, problems),
        problems=tuple(problems),
        model=models[-1] if models else front.model,
        title=title,
        cwd=header.project,
    )


def _steps(record: Record, line: int, problems: Problems) -> Iterator[Step]:
    if isinstance(record, Message):
        yield Said(mended_message(record, line, problems), line)
    elif isinstance(record, Compacted):
        yield LoggedCompaction(record.id, line, record.trigger, record.tokens_before, record.tokens_after, record.kept)
        for message in record.summary:
            yield Said(message, line, logged_only=True)
    elif isinstance(record, Cleared):
        yield LoggedMicrocompaction(
            f"line-{line}", line, record.trigger, record.tool_use_ids, None, record.tokens_saved, record.attachments
        )
    elif isinstance(record, Rewound):
        yield LoggedRewind(record.to, line)
