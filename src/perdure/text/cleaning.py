"""Plain text: without characters that nobody sees, as sentences, and cut at the end of a line."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

# C0 and C1 but for tab and line feed; what reorders text or hides in it (bidirectional controls, zero width, tags).
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2060\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]")


def controls_removed(text: str) -> str:
    """The text without control characters and invisible ones, its line breaks all `\\n`."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    return _CONTROLS.sub("", text)


_SHORT = r"(?<!\be\.g\.)(?<!\bi\.e\.)(?<!\bz\.B\.)" + "".join(
    rf"(?<!\b{one}\.)" for one in ("etc", "vs", "Dr", "Mr", "Ms", "cf", "ca")
)
_CLOSES = "[\"'”’)]"
_END = re.compile(
    rf"(?:{_SHORT}(?<=[.!?…])|(?<=[.!?…]{_CLOSES})|(?<=[.!?…]{_CLOSES}{_CLOSES}))\s+|(?<=[。！？])(?![」』”])|\n+"
)
_MARK = re.compile(r"^\s*(?:[-*+>•]|#{1,6}|\d{1,3}[.)])\s+")
_ENDS = " \t.,;:!?…。！？、\"'“”‘’`*_()[]"


def sentences(text: str) -> list[str]:
    """The sentences of a text in their order, each as it stands; lines end sentences, too."""
    return [one.strip() for one in _END.split(text) if one and one.strip()]


def unmarked(line: str) -> str:
    """A line without its bullet, number or heading marks."""
    return _MARK.sub("", line, count=1)


def plain(sentence: str) -> str:
    """A sentence as it compares: without bullets, case, outer punctuation, and how its blanks are written."""
    text = unicodedata.normalize("NFKC", unmarked(sentence)).casefold()
    return " ".join(text.split()).strip(_ENDS)


_CUT = "\n… (cut here)"
LEAST_TOKENS = 60  # the beginning of something is worth its place from here on


def cut_to(text: str, tokens: int, cost: Callable[[str], int]) -> str | None:
    """The text, or its beginning with a mark, within the tokens; None when next to nothing would be left."""
    if cost(text) <= tokens:
        return text
    tokens -= cost(_CUT) + 1
    size = len(text)
    for _ in range(12):
        if tokens < LEAST_TOKENS:
            return None
        head = text[:size]
        spent = cost(head)
        if spent <= tokens:
            head = head.rpartition("\n")[0] or head
            return head.rstrip() + _CUT
        size = min(size * 9 // 10, size * tokens // max(1, spent))
    return None


def is_utf8(name: str) -> bool:
    """Whether the name of a file can be written down: its bytes are UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
