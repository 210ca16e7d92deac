"""What a compaction must beat: simple ways to fill the same number of tokens, without a model (QLT-1)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from perdure.lab.bench.probe import shown_block, shown_message
from perdure.transcript.blocks import ToolResult
from perdure.transcript.messages import Message, spoken
from perdure.transcript.tokens import base_tokens, utf16_units

Strategy = Callable[[Sequence[Message], int, int], str]
"""Messages, budget and raw tail in tokens to the whole text of the view that replaces them."""

_KEPT_RESULTS: Final = 3
_CLEARED: Final = "[Old tool result content cleared]"
_PIECE_CHARS: Final = 800  # ranked pieces are about so long
_GOAL_WORDS: Final = 200
_K1, _B = 1.2, 0.75  # the usual BM25
_TERM: Final = re.compile(r"[a-z0-9_]{2,}")


def keep_last(messages: Sequence[Message], budget_tokens: int, tail_tokens: int = 0) -> str:
    """The end of the conversation, as much of it as fits."""
    return last_of([shown_message(message) for message in messages], budget_tokens + tail_tokens)


def head_and_tail(messages: Sequence[Message], budget_tokens: int, tail_tokens: int = 0) -> str:
    """A fifth from the beginning, the rest from the end."""
    budget = budget_tokens + tail_tokens
    texts = [shown_message(message) for message in messages]
    head = _cut_to("\n".join(_first_of(texts, budget // 5)), budget // 5)
    return _cut_to(f"{head}\n[…]\n{last_of(texts, budget - budget // 5 - 4)}", budget)


def clear_results(messages: Sequence[Message], budget_tokens: int, tail_tokens: int = 0) -> str:
    """Everything but old tool results, the last three of which stay; then the end of that, as much as fits."""
    total = sum(block.type == "tool_result" for message in messages for block in message.blocks)
    texts: list[str] = []
    number = 0
    for message in messages:
        parts: list[str] = []
        for block in message.blocks:
            if isinstance(block.value, ToolResult):
                number += 1
                parts.append(shown_block(block) if number > total - _KEPT_RESULTS else _CLEARED)
            else:
                parts.append(shown_block(block))
        texts.append("\n".join(part for part in parts if part))
    return last_of(texts, budget_tokens + tail_tokens)


def ranked(messages: Sequence[Message], budget_tokens: int, tail_tokens: int = 0) -> str:
    """The raw tail, and the pieces of all that came before that match the user's last words best, in their order."""
    texts = [shown_message(message) for message in messages]
    tail = last_of(texts, tail_tokens) if tail_tokens else ""
    pieces = [piece for text in texts for piece in _pieces(text)]
    goal = _goal(messages)
    scores = _bm25(pieces, goal)
    order = sorted(range(len(pieces)), key=lambda index: (-scores[index], -index))
    left = budget_tokens
    chosen: set[int] = set()
    for index in order:
        cost = base_tokens(pieces[index] + "\n") + 1
        if cost <= left and pieces[index] not in tail:
            chosen.add(index)
            left -= cost
        if left < 20:
            break
    body = _cut_to("\n".join(pieces[index] for index in sorted(chosen)), budget_tokens)
    return f"{body}\n{tail}" if tail else body


BASELINES: Final[dict[str, Strategy]] = {
    "keep-last": keep_last,
    "head-tail": head_and_tail,
    "clear-results": clear_results,
    "ranked": ranked,
}


def last_of(texts: Sequence[str], budget_tokens: int) -> str:
    """The end of some texts, to the character."""
    units = budget_tokens * 4
    parts: list[str] = []
    for text in reversed(texts):
        if units <= 0:
            break
        parts.append(text if utf16_units(text) <= units else _end_of(text, units))
        units -= utf16_units(text) + 1
    return "\n".join(reversed([part for part in parts if part]))


def _end_of(text: str, units: int) -> str:
    end = text[-units:] if units > 0 else ""
    while utf16_units(end) > units:
        end = end[utf16_units(end) - units :]
    return end


def _first_of(texts: Sequence[str], budget_tokens: int) -> list[str]:
    units = budget_tokens * 4
    found: list[str] = []
    for text in texts:
        if units <= 0:
            break
        found.append(text[:units])
        units -= utf16_units(text) + 1
    return found


def _cut_to(text: str, budget_tokens: int) -> str:
    while base_tokens(text) > budget_tokens:
        text = text[: len(text) - max(1, utf16_units(text) // 2 - budget_tokens * 2)]
    return text


def _pieces(text: str) -> list[str]:
    """Runs of lines of about 800 characters; a longer line is cut."""
    pieces: list[str] = []
    current: list[str] = []
    size = 0
    for line in text.splitlines():
        for start in range(0, len(line), _PIECE_CHARS):
            part = line[start : start + _PIECE_CHARS]
            if size + len(part) > _PIECE_CHARS and current:
                pieces.append("\n".join(current))
                current, size = [], 0
            current.append(part)
            size += len(part) + 1
    return [*pieces, "\n".join(current)] if current else pieces


def _goal(messages: Sequence[Message]) -> list[str]:
    """The terms of what the user said last."""
    for message in reversed(messages):
        if words := spoken(message):
            return _TERM.findall(words.lower())[:_GOAL_WORDS]
    return []


def _bm25(pieces: Sequence[str], goal: Sequence[str]) -> list[float]:
    wanted = set(goal)
    counts = [Counter(term for term in _TERM.findall(piece.lower()) if term in wanted) for piece in pieces]
    found = Counter(term for count in counts for term in count)
    weights = {t: math.log(1 + (len(pieces) - n + 0.5) / (n + 0.5)) for t, n in found.items()}
    mean = sum(map(len, pieces)) / max(1, len(pieces))
    return [
        sum(weights[t] * n * (_K1 + 1) / (n + _K1 * (1 - _B + _B * len(piece) / mean)) for t, n in count.items())
        for piece, count in zip(pieces, counts, strict=True)
    ]
