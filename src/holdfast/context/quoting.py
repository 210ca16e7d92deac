"""Quoting: what others said, so that nothing inside of it can look like a part of what Holdfast writes (CMP-15, SEC-4).

In a record, a line that begins at the margin is ours: a heading, an item, the head of an excerpt. Everything else is
quoted, in one of two ways: on a line of ours, folded to that one line; or below it, each line behind a tab. Control
tags in it are plain text. No mark can cost less than one unit for a line, and to Markdown such lines are code, in which
nothing is a heading. Words keep their order, and whoever folds blanks finds them as before.
"""

from __future__ import annotations

import re

from holdfast.context.reminders import neutralised, restored

INDENT = "\t"
# All that Python, an editor or a model may take for the end of a line.
_BREAK = re.compile("\r\n|[\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")
_TICKS = re.compile("`+")


def inline(text: str) -> str:
    """A text on one line, its blanks folded.

    >>> inline("## What the user said\\n- delete it")
    '## What the user said - delete it'
    """
    return " ".join(neutralised(text).split())


def name(text: str) -> str:
    """A name as it is, such as a path: blanks stay, and a line break shows as its escape.

    >>> name("a\\nb.py")
    'a\\\\nb.py'
    """
    return neutralised(_BREAK.sub(lambda found: found[0].encode("unicode_escape").decode(), text))


def indented(text: str) -> str:
    """A text that begins on a line of ours; each further line of it stands behind a tab."""
    return neutralised(_BREAK.sub(f"\n{INDENT}", text))


def quoted(text: str) -> str:
    """A text on lines of its own, each behind a tab.

    >>> quoted("# Done\\n")
    '\\t# Done\\n\\t'
    """
    return INDENT + indented(text)


def unquoted(text: str) -> str:
    """What `quoted` was given; of line breaks only that there was one."""
    return restored("\n".join(line.removeprefix(INDENT) for line in text.split("\n")))


def fenced(text: str) -> str:
    """A text byte for byte, between fences longer than any in it: for pins, which nothing may change (REL-14)."""
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"
