"""The one way memories are written: the file's name, its text, and its line in the index (MEM-2, MEM-3)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from itertools import count

from perdure.memory.files import INDEX, Topic, Type
from perdure.memory.index_file import index_entries, normalised_index
from perdure.text.words import folded, terms

TITLE_CHARS = 80
ABOUT_CHARS = 200  # of a description that code makes
HOOK_CHARS = 110  # with the title, a line that the checkup doesn't find too long
STEM_CHARS = 48
KNOWN_SHARE = 0.85  # of what a sentence tells, in a memory: then it is known
_PLAIN = re.compile(r"[^\W_][^\n]*")
_NOT_NAME = re.compile(r"[^a-z0-9]+")
_UNSAFE = re.compile(r": |:$| #|^[\s>|@`&*!%{}\[\],?'\"#-]|[\t\\]")


def memory_text(*, type: Type, body: str, name: str = "", description: str = "") -> str:
    """The text of a memory with its front matter; without a name or a description, both are made from its words."""
    name, description = name or title_of(body), description or title_of(body, ABOUT_CHARS)
    fields = (f"name: {_value(name)}", f"description: {_value(description)}", f"type: {type}")
    return "\n".join(("---", *fields, "---", "", body.lstrip("\n").rstrip(), ""))


def _value(text: str) -> str:
    """A field's text on one line, quoted where YAML would read it as something else."""
    line = " ".join(text.split())
    if not line or _UNSAFE.search(line) or not _PLAIN.fullmatch(line):
        return '"' + line.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return line


def title_of(text: str, most: int = TITLE_CHARS) -> str:
    """What a text is about, in a line: its first sentence's beginning, cut between words."""
    line = " ".join(text.strip().partition("\n")[0].split()).strip(" .,;:!?。！？#-*")
    if len(line) <= most:
        return line
    head = line[: most - 1]
    return (head.rsplit(" ", 1)[0] if " " in head[most // 2 :] else head).rstrip(" .,;:") + "…"


def file_names(type: Type, title: str) -> Iterator[str]:
    """The names for the file of a memory, the first choice first: its type and words of its title, then numbered.

    Of a title in another script than ours, some of its digest.
    """
    stem = name_words(title)
    while len(stem) > STEM_CHARS:
        stem = stem.rsplit("_", 1)[0] if "_" in stem else stem[:STEM_CHARS]
    stem = f"{type}_{stem or hashlib.sha256(title.encode('utf-8', 'replace')).hexdigest()[:10]}"
    yield f"{stem}.md"
    yield from (f"{stem}_{number}.md" for number in count(2))


def name_words(text: str) -> str:
    """A text as it stands in the name of a file."""
    return _NOT_NAME.sub("_", folded(text.casefold())).strip("_")


def index_of(name: str, *, has_own: bool) -> tuple[str, str]:
    """The index that has the line of a memory, and the memory's name in it.

    `has_own`: the memory's folder has an index of its own, which takes it then; else the one at the top does.
    """
    folder, slash, leaf = name.rpartition("/")
    return (f"{folder}{slash}{INDEX}", leaf) if has_own else (INDEX, name)


def index_line(file: str, topic: Topic) -> str:
    """The line of a memory in an index: its title, its file as the index names it, and what it is about."""
    title = title_of(topic.name)
    name = title.replace("[", "(").replace("]", ")") or file
    about = title_of(topic.description, HOOK_CHARS - min(len(name), TITLE_CHARS) // 2)
    is_same = about == title or (title.endswith("…") and about.startswith(title.removesuffix("…")))
    return f"- [{name}]({file})" + (f" — {about}" if about and not is_same else "")


def with_line(index: str, file: str, topic: Topic) -> str:
    """The index with a line for a memory: the line it has is replaced, else one is added at the end of the last list.

    A new index is that line alone, whoever writes it.
    """
    line = index_line(file, topic)
    found = {entry.text for entry in index_entries(normalised_index(index)) if entry.file == file}
    if not found:
        body = index.rstrip("\n")
        if not body:
            return f"{line}\n"
        gap = "" if body.rsplit("\n", 1)[-1].lstrip().startswith(("-", "*", "+")) else "\n"
        return f"{body}\n{gap}{line}\n"
    done, lines = False, []
    for old in index.split("\n"):
        if old.rstrip() in found:
            if not done:
                lines.append(line)
            done = True
        else:
            lines.append(old)
    return "\n".join(lines)


def without_line(index: str, file: str) -> str:
    """The index without the lines that lead to a file alone; a line that names others, too, stays."""
    several: dict[str, set[str]] = {}
    for entry in index_entries(normalised_index(index)):
        several.setdefault(entry.text, set()).add(entry.file)
    gone = {text for text, files in several.items() if files == {file}}
    return "\n".join(line for line in index.split("\n") if line.rstrip() not in gone)


def is_known(sentence: str, topic: Topic) -> bool:
    """Whether a memory says already what a sentence tells."""
    telling = set(terms(sentence))
    said = set(terms(f"{topic.name}\n{topic.description}\n{topic.body}"))
    return bool(telling) and len(telling & said) >= KNOWN_SHARE * len(telling)
