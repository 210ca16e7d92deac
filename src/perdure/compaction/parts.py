"""A record in parts, as a client takes them from hooks: what is longer it cuts, or puts into a file (PLG-1, LIB-4)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from perdure.logs.claude_code import RECORD_MARK
from perdure.transcript.tokens import UNITS_PER_TOKEN

PARTS: Final = 2  # of a record: 20,000 characters, of which each hook may give half
PART_CHARS: Final = 9_900  # a client puts more than 10,000 characters of a hook into a file, or cuts them
FRAME_CHARS: Final = 60  # of the tags around a part
_END = "</perdure-record>"
_OUR_TAG = re.compile(r"(<[\s_]*/?[\s_]*)(?=perdure-record)", re.IGNORECASE)


def tokens_of(parts: int) -> int:
    """How long a record may be that so many hooks give; between two parts some room is lost at the ends of lines."""
    return parts * (PART_CHARS - FRAME_CHARS) // UNITS_PER_TOKEN - (parts - 1) * 120


def fitted_parts(rendered: Callable[[int], str], most: int = PARTS, *, as_bytes: bool = False) -> list[str]:
    """A record in so many parts at most, as large as they can be.

    Args:
        rendered: Renders the record in so many tokens; an empty one has no parts.
        most: How many hooks give it.
        as_bytes: Whether the client counts bytes, not UTF-16 units.
    """
    tokens = tokens_of(most)
    while len(parts := in_parts(rendered(tokens), as_bytes=as_bytes)) > most:
        tokens -= sum(map(len, parts[most:])) // UNITS_PER_TOKEN + 10
    return parts


def in_parts(text: str, *, as_bytes: bool = False, most: int = PART_CHARS) -> list[str]:
    """A text in parts of which none is too long, each marked as ours; a section that goes on says so."""

    def size(piece: str) -> int:
        return len(piece.encode("utf-8", "replace")) if as_bytes else len(piece.encode("utf-16-le", "replace")) // 2

    if not text:
        return []
    text = _OUR_TAG.sub(r"\1_", text)  # a tool's output may imitate the end of a part, to speak behind it
    room = most - FRAME_CHARS
    parts = [""]
    heading = ""
    for line in text.split("\n"):
        if line.startswith("## "):
            heading = f"{line} (continued)\n"
        while size(line) > room - size(heading):
            line = line[: len(line) * (room - size(heading)) // size(line) - 1]
        if parts[-1] and size(parts[-1]) + size(line) + 1 > room:
            parts.append(heading if not line.startswith("## ") else "")
        parts[-1] += line if not parts[-1] or parts[-1] == heading else f"\n{line}"
    which = [f' part="{number} of {len(parts)}"' if len(parts) > 1 else "" for number in range(1, len(parts) + 1)]
    return [f"{RECORD_MARK}{one}>\n{part.strip(chr(10))}\n{_END}" for one, part in zip(which, parts, strict=True)]
