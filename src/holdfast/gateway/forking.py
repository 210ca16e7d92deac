"""A second session that shares the past of a first, up to a place in the client's history (GW-2).

The records are copied, so the view there is the same to the byte; blobs are the same files under a second name.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio.to_thread
import msgspec

from holdfast.adapters.files.disk import make_private
from holdfast.errors import JournalError
from holdfast.gateway.index import CLIENT, marked
from holdfast.ports import Journal, Placed
from holdfast.transcript.edits import Compacted
from holdfast.transcript.messages import Message, MessageId
from holdfast.transcript.records import Cursor, Record

_BATCH_BYTES = 1_000_000  # of one transaction: one line of the journal, one sync


def until(placed: Sequence[Placed], link: bytes) -> list[Record] | None:
    """The records up to where a client's history had this link; None when it never had."""
    end = next((n for n, p in enumerate(placed) if _is_at(p.record, link)), None)
    if end is None:
        return None
    last, records = placed[end], [p.record for p in placed[: end + 1]]
    assert isinstance(last.record, Cursor)
    start = next(n for n, p in enumerate(placed) if p.seq == last.seq)
    own = records[start:]  # messages that came along with later ones, ahead of all their cursors
    at = next((n for n, r in enumerate(own) if isinstance(r, Message) and r.id == last.record.message), len(own))
    return records[:start] + [r for n, r in enumerate(own) if n <= at or not isinstance(r, Message)]


def _is_at(record: Record, link: bytes) -> bool:
    at = marked(record) if isinstance(record, Cursor) and record.name == CLIENT else None
    return at is not None and at[1] == link


async def copied(records: Sequence[Record], journal: Journal) -> None:
    """Write the records into a fresh journal; boundaries point to where their messages stand there."""
    offsets: dict[MessageId, int] = {}
    for batch in _batches(records):
        whole = tuple(_placed(record, offsets) for record in batch)
        receipt = await journal.append(whole)
        offsets.update({record.id: receipt.offset for record in whole if isinstance(record, Message)})


def _placed(record: Record, offsets: dict[MessageId, int]) -> Record:
    if not isinstance(record, Compacted):
        return record
    first = min((offsets[identity] for identity in record.kept if identity in offsets), default=0)
    return msgspec.structs.replace(record, kept_from=first)


def _batches(records: Sequence[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size = 0
    for record in records:
        if batch and (size >= _BATCH_BYTES or isinstance(record, Compacted)):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += sum(map(len, record.content)) if isinstance(record, Message) else 0
    if batch:
        yield batch


async def share_blobs(parent: Path, child: Path) -> None:
    """What left the parent's view can be had back in the child, too."""
    await anyio.to_thread.run_sync(_share_blobs, parent / "blobs", child / "blobs")


def _share_blobs(source: Path, target: Path) -> None:
    try:
        if not source.is_dir():
            return
        make_private(target)
        for entry in os.scandir(source):
            if entry.is_file(follow_symlinks=False) and not entry.name.startswith("."):
                os.link(entry.path, target / entry.name)
        descriptor = os.open(target, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as e:
        raise JournalError(f"{target}: {e.strerror or e}: the blobs can't be shared") from e
