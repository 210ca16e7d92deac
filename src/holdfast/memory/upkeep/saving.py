"""A memory as text, its line in the index, and whether what it says is known already (MEM-2, MEM-3)."""

from __future__ import annotations

import re
from collections.abc import Collection

from holdfast.memory.entries import entry_line, with_entry
from holdfast.memory.retrieval.words import terms
from holdfast.memory.topics import Topic, Type

KNOWN_SHARE = 0.85  # of what a sentence tells, in a memory: then it is known
_PLAIN = re.compile(r"[A-Za-z0-9][^:#\n\"'\[\]{}&*!|>%@`]*")


def memory_text(*, name: str, description: str, type: Type, body: str) -> str:
    """The file of a memory."""
    head = {"name": name, "description": description, "type": type}
    fields = "".join(f"{key}: {_quoted(value)}\n" for key, value in head.items())
    return f"---\n{fields}---\n\n{body.rstrip()}\n"


def _quoted(value: str) -> str:
    """A value as YAML reads it back."""
    line = " ".join(value.split())
    return line if _PLAIN.fullmatch(line) else '"' + line.replace("\\", "\\\\").replace('"', '\\"') + '"'


def free_name(stem: str, taken: Collection[str]) -> str:
    """A file name that nobody has."""
    low = {name.lower() for name in taken}
    names = (f"{stem}.md" if n == 1 else f"{stem}_{n}.md" for n in range(1, len(low) + 3))
    return next(name for name in names if name.lower() not in low)


def index_line(topic: Topic) -> str:
    """The line of a memory in `MEMORY.md`."""
    return entry_line(topic.file.rpartition("/")[2], topic.name, topic.description)


def with_line(index: str | None, topic: Topic) -> str:
    """The index with a line for a memory: in place of its own when there is one, else at the end of the last list."""
    return with_entry(index, topic.file.rpartition("/")[2], topic.name, topic.description)


def is_known(sentence: str, topic: Topic) -> bool:
    """Whether a memory says already what a sentence tells."""
    telling = set(terms(sentence))
    said = set(terms(f"{topic.name}\n{topic.description}\n{topic.body}"))
    return bool(telling) and len(telling & said) >= KNOWN_SHARE * len(telling)
