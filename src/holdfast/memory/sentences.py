"""Texts as sentences, so that what was said in one place is found again in another (MEM-7, MEM-10)."""

from __future__ import annotations

import re
import unicodedata

_SHORT = r"(?<!\be\.g)(?<!\bi\.e)(?<!\bz\.B)(?<!\betc)(?<!\bvs)(?<!\bDr)(?<!\bMr)(?<!\bMs)(?<!\bcf)(?<!\bca)"
_END = re.compile(rf"{_SHORT}(?<=[.!?…])[\"'”’)]*\s+|(?<=[。！？])|\n+")
_MARK = re.compile(r"^\s*(?:[-*+>•]|#{1,6}|\d{1,3}[.)])\s+")
_ENDS = " \t.,;:!?…。！？、\"'“”‘’`*_()[]"


def sentences(text: str) -> list[str]:
    """The sentences of a text in their order, each as it stands; lines end sentences, too."""
    return [one.strip() for one in _END.split(text) if one and one.strip()]


def plain(sentence: str) -> str:
    """A sentence as it compares: without bullets, case, outer punctuation, and how its blanks are written."""
    text = unicodedata.normalize("NFKC", _MARK.sub("", sentence)).casefold()
    return " ".join(text.split()).strip(_ENDS)
