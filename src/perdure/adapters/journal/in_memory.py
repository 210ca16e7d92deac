"""Journal, blobs and notes in memory: the same contracts, for replays and tests. Nothing survives the process."""

from __future__ import annotations

import hashlib

from perdure.errors import DamagedLine, JournalError
from perdure.ports.session import LoadedJournal as Loaded
from perdure.ports.session import PlacedRecord as Placed
from perdure.ports.session import Receipt
from perdure.transcript.codec import decode_line, encode_header, encode_line
from perdure.transcript.messages import BlobId
from perdure.transcript.records import Header, Record


class MemoryJournal:
    """`ports.Journal` as a list.

    Offsets are line numbers. With `encode` every record goes through its line and back, as it would in a file, and
    offsets are those of the file.
    """

    def __init__(self, header: Header, *, encode: bool = False) -> None:
        self._header = header
        self._encode = encode
        self._placed: list[Placed] = []
        self._seq = 0
        self._end = len(encode_header(header)) if encode else 1
        self._is_closed = False

    def copy(self) -> MemoryJournal:
        """One that says the same so far, and goes on by itself."""
        made = MemoryJournal(self._header, encode=self._encode)
        made._placed, made._seq, made._end = list(self._placed), self._seq, self._end
        return made

    async def append(self, records: tuple[Record, ...]) -> Receipt:
        if self._is_closed:
            raise JournalError("the journal is closed")
        seq, offset, length = self._seq + 1, self._end, 1
        if self._encode:
            try:
                line = encode_line(seq, records)
                length, records = len(line), decode_line(line).records
            except (TypeError, ValueError, OverflowError, RecursionError, DamagedLine) as e:
                raise JournalError(f"these records can't be written as JSON: {e}") from e
        self._seq, self._end = seq, offset + length
        self._placed += [Placed(record, seq, offset) for record in records]
        return Receipt(seq, offset)

    async def load(self, *, whole: bool = False) -> Loaded:
        placed = tuple(self._placed)
        if not placed:
            return Loaded(header=self._header, records=placed, whole=True)
        from perdure.adapters.journal.reading import last_boundary, records_since  # not for a new one (LIB-6)

        records = [p.record for p in placed]
        while not whole and (boundary := last_boundary(records)) is not None:
            if (needed := records_since(boundary, placed)) is not None:
                return Loaded(header=self._header, records=needed, whole=False)
            records = records[: next(at for at, record in enumerate(records) if record is boundary)]
        return Loaded(header=self._header, records=placed, whole=True)

    async def sync(self) -> None:
        """Nothing: it ends with the process anyway."""

    async def close(self) -> None:
        self._is_closed = True


class MemoryBlobs:
    """`ports.Blobs` as a dictionary of the bytes as they came."""

    def __init__(self) -> None:
        self._contents: dict[BlobId, bytes] = {}

    async def put(self, contents: tuple[bytes, ...]) -> tuple[BlobId, ...]:
        blobs = tuple(BlobId(hashlib.sha256(content).hexdigest()) for content in contents)
        self._contents.update(zip(blobs, contents, strict=True))
        return blobs

    async def get(self, blob: BlobId) -> bytes:
        try:
            return self._contents[blob]
        except KeyError:
            is_one = len(blob) == 64 and all(digit in "0123456789abcdef" for digit in blob)
            why = f"there is no blob {blob}" if is_one else f"not the id of a blob (64 hex digits): {blob[:80]!r}"
            raise JournalError(why) from None


class MemoryNotes:
    """`ports.NotesFile` as bytes; the user put nothing beside it."""

    def __init__(self, path: str = "/session-memory/summary.md") -> None:
        self.path = path
        self.data: bytes | None = None
        self.aside: list[bytes] = []

    async def read(self) -> bytes | None:
        return self.data

    async def write(self, data: bytes, *, instead_of: bytes | None) -> bool:
        if self.data != instead_of:
            return False
        self.data = data
        return True

    async def set_aside(self) -> str:
        self.aside.append(self.data or b"")
        self.data = None
        return f"{self.path}.aside-{len(self.aside)}"

    async def custom(self, name: str) -> str | None:
        return None
