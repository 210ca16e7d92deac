"""The ledger: facts taken from the history by code, without a model (CMP-5). docs/ledger.md tells what and why."""

from __future__ import annotations

from perdure.compaction.ledger.checkpoint import ExtractIndex
from perdure.compaction.ledger.compacted import CompactedText, SectionShares, compact_messages
from perdure.compaction.ledger.reader import ActionKind, ToolTable

__all__ = ["ActionKind", "CompactedText", "ExtractIndex", "SectionShares", "ToolTable", "compact_messages"]
