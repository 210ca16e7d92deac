"""The index: what was read from messages, growing as they arrive, so that compaction finds the reading done (CMP-5)."""

from __future__ import annotations

from holdfast.context.ledger.checkpoint import Ledger
from holdfast.context.ledger.extract import Extract, Extractor
from holdfast.context.ledger.memory import Memory
from holdfast.context.ledger.tools import Tools
from holdfast.transcript.messages import Message


class Index:
    """Extracts of messages in order. Reading a message is the dear part; folding extracts into a memory is cheap."""

    def __init__(self, tools: Tools | None = None) -> None:
        self.tools = tools or Tools()
        self._extractor = Extractor(self.tools)
        self._extracts: list[Extract] = []

    def __len__(self) -> int:
        """How many messages were taken."""
        return len(self._extracts)

    def take(self, message: Message) -> None:
        """Read one message more. Summaries and restored content say nothing new, and are passed over."""
        self._extracts.append(self._extractor.extract(message))

    def memory(self, before: Ledger, first: int, last: int) -> Memory:
        """What is known after the messages from `first` to `last` (not included), going on from a checkpoint."""
        return before.memory().absorb(self.extracts(first, last))

    def extracts(self, first: int, last: int) -> list[Extract]:
        """What was read from the messages from `first` to `last` (not included)."""
        return self._extracts[first:last]
