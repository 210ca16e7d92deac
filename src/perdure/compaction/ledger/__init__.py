"""The ledger: facts taken from the history by code, without a model (CMP-5). docs/how/ledger.md tells what and why."""

from __future__ import annotations

from perdure.compaction.ledger.reader import ExtractIndex
from perdure.compaction.ledger.render import CompactedText, SectionShares, compact_messages

__all__ = ["CompactedText", "ExtractIndex", "SectionShares", "compact_messages"]
