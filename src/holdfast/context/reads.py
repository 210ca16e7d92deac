"""Which file reads show again what the view shows already (TOK-6)."""

from __future__ import annotations

from holdfast.context.items import Call
from holdfast.settings import COMPACTABLE_TOOLS
from holdfast.transcript.blocks import ToolResult

_READ_TOOLS = frozenset(COMPACTABLE_TOOLS[0])
# Shorter texts ("", "1\t") are found everywhere and weigh nothing.
_WORTH_CHARS = 80


class RepeatedReads:
    """Fed with the results of a request in their order; remembers the texts of each file that were shown."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}

    def is_repeated(self, call: Call, result: ToolResult) -> bool:
        """Whether an earlier read of the same file holds all of this text: it was read again, unchanged."""
        if call.path is None or call.name not in _READ_TOOLS or result.is_error:
            return False
        text = result.text().strip()
        if len(text) < _WORTH_CHARS:
            return False
        before = self._texts.setdefault(call.path, [])
        if any(text in older for older in before):
            return True
        before.append(text)
        return False
