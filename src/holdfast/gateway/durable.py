"""When a journal of the gateway is made durable: edits before they are sent, the rest within a second (GW-3, REL-5).

A client resends its whole history, so what it said needn't be on stable storage before its request goes on; what was
decided about it does, since the provider's cache and the next process have to see the same bytes. Every append is in
the file at once, so the death of this process loses nothing at all.
"""

from __future__ import annotations

from holdfast.adapters.files.journal import FileJournal
from holdfast.ports import Journal, Loaded, Receipt
from holdfast.transcript.edits import Edit
from holdfast.transcript.messages import Message
from holdfast.transcript.records import Calibrated, CompactionFailed, Cursor, Noted, Record, Titled

_MAY_WAIT = (Message, Cursor, Titled, Calibrated, CompactionFailed, Noted)


def _is_ours(record: Record) -> bool:
    """Whether a message is one that no client says again."""
    return isinstance(record, Message) and record.origin == "reminder"


class LateJournal:
    """`ports.Journal` over one that doesn't sync by itself; `commit` does, when there is reason to."""

    def __init__(self, journal: Journal, *, is_durable: bool) -> None:
        self._journal, self._is_durable = journal, is_durable
        self.is_behind = self._is_owed = False  # something isn't durable yet; something has to be before it is sent
        self.has_edits = False  # the view shows something else than what was said

    async def append(self, records: tuple[Record, ...]) -> Receipt:
        receipt = await self._journal.append(records)
        self.is_behind = True
        self.has_edits = self.has_edits or any(isinstance(record, Edit) or _is_ours(record) for record in records)
        self._is_owed = self._is_owed or not all(isinstance(r, _MAY_WAIT) and not _is_ours(r) for r in records)
        return receipt

    async def load(self, *, whole: bool = False) -> Loaded:
        return await self._journal.load(whole=whole)

    async def close(self) -> None:
        try:
            await self.commit(everything=True)
        finally:
            await self._journal.close()

    async def commit(self, *, everything: bool = False) -> None:
        """Before a request goes on: make edits durable, if there are any; afterwards, everything."""
        is_due = self._is_owed or (everything and self.is_behind)
        if is_due and self._is_durable and isinstance(self._journal, FileJournal):
            self.is_behind = self._is_owed = False
            try:
                await self._journal.sync()
            except BaseException:
                self.is_behind = self._is_owed = True
                raise
