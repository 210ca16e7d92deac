"""How much of the instruction files is sent: nearest scopes whole, the rest cut at section ends (INS-5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.memory.instructions.markdown import cut_at_section
from holdfast.memory.instructions.places import Instruction
from holdfast.transcript.tokens import base_tokens

HEAD_TOKENS: Final = 60  # what stands around a file: its path, why it loads, the notice that it is cut
LEAST_TOKENS: Final = 80  # less of a file than this says nothing


@dataclass(frozen=True, slots=True)
class Fitted:
    """A file as it is sent. `text` is all of it, or its beginning; empty when there was no room at all."""

    file: Instruction
    text: str

    @property
    def is_cut(self) -> bool:
        return len(self.text) < len(self.file.text)


def fit(
    files: Sequence[Instruction], limit_tokens: int, cost: Callable[[str], int] = base_tokens
) -> tuple[Fitted, ...]:
    """The files in their order, with what there is room for of each.

    A policy goes first, since nobody may leave it out; then the file that is read last, and so on outwards.
    """
    left = limit_tokens
    order = sorted(range(len(files)), key=lambda at: (files[at].scope != "managed", -at))
    texts: dict[int, str] = {}
    for at in order:
        room = left - HEAD_TOKENS
        texts[at] = _fitting(files[at].text, room, cost)
        left -= min(HEAD_TOKENS, max(0, left)) + (cost(texts[at]) if texts[at] else 0)
    return tuple(Fitted(file, texts[at]) for at, file in enumerate(files))


def _fitting(text: str, room: int, cost: Callable[[str], int]) -> str:
    """As much of a text as costs at most `room` tokens."""
    whole = cost(text)
    if whole <= room:
        return text
    fits = len(text) * max(0, room) // whole
    while room >= LEAST_TOKENS and fits > 0:
        part = cut_at_section(text, fits)
        if cost(part) <= room:
            return part
        fits = fits * 9 // 10
    return ""
