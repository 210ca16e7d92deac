"""Markdown as it is used: without comments, and without characters that nobody sees (MEM-2)."""

from __future__ import annotations

import re

_FENCE = re.compile(r"[ \t]*(?:>[ \t]*)*(`{3,}|~{3,})")
_OPEN, _CLOSE = "<!--", "-->"
# C0 and C1 but for tab and line feed; what reorders text or hides in it (bidirectional controls, zero width, tags).
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2060\u202a-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]")
_BLANK_LINES = re.compile(r"\n{3,}")


def controls_removed(text: str) -> str:
    """The text without control characters and invisible ones, its line breaks all `\\n`."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\u2029", "\n")
    return _CONTROLS.sub("", text)


def without_comments(text: str) -> str:
    """The text without HTML comments, but for those in code fences. A comment that nobody closed stays."""
    if _OPEN not in text:
        return text
    kept: list[str] = []
    fence, rest = "", text
    while rest:
        line, newline, after = rest.partition("\n")
        mark = _FENCE.match(line)
        if mark and (not fence or (mark[1][0] == fence[0] and len(mark[1]) >= len(fence))):
            fence = "" if fence else mark[1]
        at = -1 if fence or mark else line.find(_OPEN)
        if at >= 0 and not _in_code(line, at):
            end = rest.find(_CLOSE, at + len(_OPEN))
            if end >= 0:
                kept.append(rest[:at])
                rest = rest[end + len(_CLOSE) :]
                if not kept[-1].strip() and rest.startswith("\n"):
                    rest = rest[1:]
                continue
        kept.append(line + newline)
        rest = after
    return _BLANK_LINES.sub("\n\n", "".join(kept))


def _in_code(line: str, at: int) -> bool:
    """Whether a place in a line stands between backticks."""
    return line.count("`", 0, at) % 2 == 1 and "`" in line[at:]
