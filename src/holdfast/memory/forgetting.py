"""Which memories somebody means who wants something forgotten, and what is left of them then (MEM-7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.memory.frontmatter import front_matter
from holdfast.memory.retrieval.words import asked, terms
from holdfast.memory.topics import Topic


@dataclass(frozen=True, slots=True)
class Meant:
    """A memory that is meant; `text` is what stays of its file, None: nothing."""

    file: str
    text: str | None


def meant(about: str, found: Iterable[tuple[Topic, str]]) -> tuple[Meant, ...]:
    """Of memories with the texts of their files, those that say all that was named; where lines do, only these go.

    One whose name or description says it goes as a whole.
    """
    wanted = set(asked(about))
    if not wanted:
        return ()
    found = list(found)
    whole = [topic.file for topic, _ in found if topic.has_front_matter and wanted <= set(terms(_about(topic)))]
    if whole:
        return tuple(Meant(file, None) for file in whole)
    kept = ((topic.file, text, _without(text, wanted)) for topic, text in found)
    return tuple(Meant(file, left) for file, text, left in kept if left != text)


def _about(topic: Topic) -> str:
    return f"{topic.name} {topic.description}"


def _without(text: str, wanted: set[str]) -> str | None:
    """The text without the lines that say all of it; None when only headings are left."""
    start = front_matter(text).start
    lines = text[start:].split("\n")
    left = [line for line in lines if not wanted <= set(terms(line))]
    if len(left) == len(lines):
        return text
    says = any(line.strip() and not line.lstrip().startswith("#") for line in left)
    return text[:start] + "\n".join(left) if says else None
