"""Cutting text into pieces of about 140 characters, at line ends: what evidence is chosen from (CMP-5)."""

from __future__ import annotations

import re

PIECE_CHARS = 140
_MOST = 280
_HEAD, _TAIL = 60_000, 20_000  # of a longer text, only its beginning and its end can become evidence
_NUMBERED = re.compile(r" {0,6}\d{1,6}[→\t]")
_SENTENCE = re.compile(r"(?<=[.!?:;,])\s+")
_REMINDER = re.compile(r"<system-reminder>.*?(?:</system-reminder>|\Z)", re.DOTALL)


def without_reminders(text: str) -> str:
    """The text without what a harness put into it for the model alone."""
    return _REMINDER.sub("", text) if "<system-reminder>" in text else text


def clipped(text: str) -> str:
    """A very long text without its middle."""
    if len(text) <= _HEAD + _TAIL:
        return text
    return f"{text[:_HEAD]}\n{text[-_TAIL:]}"


def unnumbered(text: str) -> str:
    """The text of a file as tools show it, without the line numbers."""
    lines = text.split("\n")
    if sum(bool(_NUMBERED.match(line)) for line in lines[:8]) * 2 < min(len(lines), 8):
        return text
    return "\n".join(_NUMBERED.sub("", line, count=1) for line in lines)


def pieces(text: str) -> list[str]:
    """Whole lines together up to about 140 characters; a longer line is cut between its sentences."""
    found: list[str] = []
    held: list[str] = []
    size = 0
    for line in text.split("\n"):
        length = len(line)
        if not length or line.isspace():
            if size > PIECE_CHARS // 2:
                found.append("\n".join(held))
                held, size = [], 0
            continue
        if size and size + length > PIECE_CHARS:
            found.append("\n".join(held))
            held, size = [], 0
        if length > _MOST:
            found += _cut(line)
            continue
        held.append(line.rstrip())
        size += length + 1
    if held:
        found.append("\n".join(held))
    return found


def _cut(line: str) -> list[str]:
    """A long line, between sentences where it has any, else where it must."""
    found, held = [], ""
    for part in _SENTENCE.split(line):
        start = 0
        while len(part) - start > _MOST:
            at = part.rfind(" ", start + PIECE_CHARS // 2, start + PIECE_CHARS)
            at = at if at > 0 else start + PIECE_CHARS
            if len(held) >= PIECE_CHARS // 4:
                found += [held, part[start:at]]
            else:
                found.append(f"{held} {part[start:at]}".strip())
            held, start = "", at
        part = part[start:]
        if held and len(held) + len(part) > PIECE_CHARS:
            found.append(held)
            held = part
        else:
            held = f"{held} {part}" if held else part
    if held.strip():
        found.append(held)
    return found
