"""The ledger: facts taken from the history by code, without a model (CMP-5). docs/ledger.md tells what and why."""

from __future__ import annotations

from holdfast.context.ledger.compacted import CompactedText, Shares, compacted
from holdfast.context.ledger.index import Index
from holdfast.context.ledger.tools import Deed, Tools

__all__ = ["CompactedText", "Deed", "Index", "Shares", "Tools", "compacted"]
