"""Whether a session's blobs are what its records say, and how one that isn't comes back (ENG-9, RCL-2)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.adapters.files.blobs import FileBlobs
from holdfast.adapters.files.reading import Scan
from holdfast.errors import MalformedBlock
from holdfast.transcript.blocks import Block, ToolResult
from holdfast.transcript.edits import Edit
from holdfast.transcript.messages import BlobId, Message
from holdfast.transcript.records import Noted, Record

_IMPORTED = "blob"  # the member of a note that names a blob
_ID = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class BlobTrouble:
    """A blob that is damaged, or gone though a record names it. `used_by` says where; empty when nothing names it."""

    blob: BlobId
    is_gone: bool
    used_by: str

    def __str__(self) -> str:
        what = "is gone" if self.is_gone else "is damaged: its bytes are not those that were stored"
        return f"blob {self.blob[:12]} {what} ({self.used_by or 'no record names it'})"


def blob_troubles(blobs: FileBlobs, scan: Scan) -> tuple[BlobTrouble, ...]:
    """Every blob of a session that is damaged or gone. `JournalError` when its folder can't be read. Blocks."""
    named = _named(scan)
    damaged = blobs.damaged()
    gone = [blob for blob in named if not blobs.has(blob)]
    return (
        *(BlobTrouble(blob, False, named.get(blob, "")) for blob in damaged),
        *(BlobTrouble(blob, True, named[blob]) for blob in gone),
    )


def originals(scan: Scan, troubles: Sequence[BlobTrouble]) -> Mapping[BlobId, bytes]:
    """The bytes that those blobs had, as far as they are known elsewhere.

    A result that left the view was said in a message before; an imported log may still stand where it came from.
    """
    wanted = {trouble.blob for trouble in troubles}
    found: dict[BlobId, bytes] = {}
    for content in _candidates([placed.record for placed in scan.placed], wanted):
        blob = BlobId(hashlib.sha256(content).hexdigest())
        if blob in wanted:
            found.setdefault(blob, content)
    return found


def _named(scan: Scan) -> dict[BlobId, str]:
    """Each blob that a record names, and which record of which line."""
    named: dict[BlobId, str] = {}
    for line in scan.lines:
        for record in line.records:
            where = f"{record.__struct_config__.tag} in line {scan.first_line + line.index}"
            if isinstance(record, Edit):
                for stored in record.stored:
                    named.setdefault(stored.blob, f"result {stored.tool_use_id}, {where}")
            elif isinstance(record, Noted):
                blob = record.data.get(_IMPORTED)
                if isinstance(blob, str) and _ID.fullmatch(blob):
                    named.setdefault(BlobId(blob), where)
    return named


def _candidates(records: Sequence[Record], wanted: set[BlobId]) -> Iterator[bytes]:
    results = {
        stored.tool_use_id
        for record in records
        if isinstance(record, Edit)
        for stored in record.stored
        if stored.blob in wanted
    }
    for record in records:
        if isinstance(record, Message):
            yield from (block.raw for block in record.blocks if _result_of(block) in results)
        elif isinstance(record, Noted) and str(record.data.get(_IMPORTED)) in wanted:
            file, size = record.data.get("file"), record.data.get("bytes")
            if isinstance(file, str) and (path := Path(file)).is_absolute():
                try:
                    if path.is_file() and path.stat().st_size == size:
                        yield path.read_bytes()
                except OSError:
                    continue


def _result_of(block: Block) -> str | None:
    """Of which call a block is the result."""
    try:
        return block.value.tool_use_id if isinstance(block.value, ToolResult) else None
    except MalformedBlock:
        return None
