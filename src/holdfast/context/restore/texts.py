"""Cutting a text to a budget, at the end of a line."""

from __future__ import annotations

from collections.abc import Callable

_MARK = "\n… (cut here)"
LEAST_TOKENS = 60  # the beginning of something is worth its place from here on


def cut_to(text: str, tokens: int, cost: Callable[[str], int]) -> str | None:
    """The text, or its beginning with a mark, within the tokens; None when next to nothing would be left."""
    if cost(text) <= tokens:
        return text
    tokens -= cost(_MARK) + 1
    size = len(text)
    for _ in range(12):
        if tokens < LEAST_TOKENS:
            return None
        head = text[:size]
        spent = cost(head)
        if spent <= tokens:
            head = head.rpartition("\n")[0] or head
            return head.rstrip() + _MARK
        size = min(size * 9 // 10, size * tokens // max(1, spent))
    return None
