"""The ledger: facts taken from the history by code, without a model (CMP-5)."""

from __future__ import annotations

from holdfast.context.ledger.compacted import CompactedText, Shares, compacted

__all__ = ["CompactedText", "Shares", "compacted"]
