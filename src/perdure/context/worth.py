"""What became worthless, found as messages arrive, so that snip has nothing to search (TURN-3, TURN-14)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from perdure.context.items import CallInView
from perdure.settings import COMPACTABLE_TOOLS
from perdure.transcript.blocks import Text, ToolResult
from perdure.transcript.messages import Message, ToolUseId

# Below this, in characters, a replacement saves nothing worth a record.
WORTH_CHARS = 240
INTERRUPTED = "[Request interrupted by user"
UNCHANGED = "Unchanged since it was read"  # a read that only points at an older one, which must stay (TURN-4)
_READ_TOOLS = frozenset(COMPACTABLE_TOOLS[0])  # a search in the same folder, or another edit, supersedes nothing
_PROGRESS = re.compile(r"\d{1,3}(?:\.\d+)? ?%|\b\d+/\d+\b|[#=█▏▎▍▌▋▊▉>-]{8,}|\bETA\b|\d[kMG]i?B/s")
_SIGNS = ("%", "\r", "ETA", "B/s", "####", "====", "---", "█")
_PROGRESS_LINES = 20
_PROGRESS_SHARE = 0.7

_Key = TypeVar("_Key")
Why = Literal["superseded", "repeated", "chatter"]


@dataclass(slots=True)
class WorthlessResults:
    """Results that snip may take, each with why; and where people interrupted the model."""

    worthless: dict[ToolUseId, Why] = field(default_factory=dict)
    interruptions: list[int] = field(default_factory=list)  # positions of the interruption marks
    _reads: dict[tuple[str, str, str], ToolUseId] = field(default_factory=dict)  # (tool, path, span): the newest
    _texts: dict[tuple[str, str], ToolUseId] = field(default_factory=dict)  # (tool, text): the newest

    def copy(self) -> WorthlessResults:
        return WorthlessResults(
            self.worthless.copy(), self.interruptions.copy(), self._reads.copy(), self._texts.copy()
        )

    def answered(self, call: CallInView, result: ToolResult) -> None:
        """A result arrived: it may make an older one worthless, or be so itself."""
        text = result.text()
        is_read = call.path and call.name in _READ_TOOLS and not result.is_error
        if is_read and not text.startswith(UNCHANGED):
            self._replaces(self._reads, (call.name, call.path or "", call.span), call.id, "superseded")
        if len(text) < WORTH_CHARS or any(part.type != "text" for part in result.parts()):
            return
        self._replaces(self._texts, (call.name, text), call.id, "repeated")
        if is_chatter(text):
            self.worthless[call.id] = "chatter"

    def taken(self, ids: Iterable[ToolUseId]) -> None:
        """These left the view's results as they came: there is nothing more to take."""
        for identity in ids:
            self.worthless.pop(identity, None)

    def _replaces(self, newest: dict[_Key, ToolUseId], key: _Key, identity: ToolUseId, why: Why) -> None:
        older = newest.get(key)
        if older is not None:
            self.worthless[older] = why
        newest[key] = identity

    def said(self, message: Message, position: int) -> None:
        """A message arrived: is it the mark of an interruption?"""
        if message.role == "user" and is_interruption(message):
            self.interruptions.append(position)


def is_interruption(message: Message) -> bool:
    """Whether an agent put this message in the place where a person stopped the model."""
    first = message.blocks[0].value if message.blocks else None
    return isinstance(first, Text) and first.text.startswith(INTERRUPTED)


def is_chatter(text: str) -> bool:
    """Whether a result is mostly progress lines; judged from its first few hundred lines."""
    head = text[:2_000]
    if not any(sign in head for sign in _SIGNS):
        return False
    lines = progress_lines(text[:20_000])
    if len(lines) < _PROGRESS_LINES:
        return False
    hits = 0
    for number, line in enumerate(lines, 1):
        hits += bool(_PROGRESS.search(line[:200]))
        if number == _PROGRESS_LINES and hits < _PROGRESS_LINES // 2:
            return False
    return hits >= _PROGRESS_SHARE * len(lines)


def progress_lines(text: str) -> list[str]:
    """Lines with something on them; a carriage return ends one as well."""
    return [line for line in re.split(r"[\r\n]+", text) if line.strip()]
