"""A memory as text and its line in the index, and whether what it says is known already (MEM-2, MEM-3)."""

from __future__ import annotations

import re
from collections.abc import Collection

from perdure.memory.files import Topic, Type
from perdure.memory.index_file import index_entries, normalised
from perdure.text.words import folded, terms

TITLE_CHARS = 80
HOOK_CHARS = 110  # with the title, a line that the checkup doesn't find too long
STEM_CHARS = 48
_PLAIN = re.compile(r"[^\W_][^\n]*")
_NOT_NAME = re.compile(r"[^a-z0-9]+")
_UNSAFE = re.compile(r": |:$| #|^[\s>|@`&*!%{}\[\],?'\"#-]|[\t\\]")


def topic_text(*, name: str, description: str, kind: Type, body: str) -> str:
    """The text of a memory with its front matter."""
    lines = ("---", f"name: {_value(name)}", f"description: {_value(description)}", f"type: {kind}", "---")
    return "\n".join((*lines, "", body.strip("\n"), ""))


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


def file_name(kind: Type, title: str, digest: str) -> str:
    """The file of a memory: its type and words of its title; of other scripts, some of its digest."""
    stem = _NOT_NAME.sub("_", folded(title.casefold())).strip("_")
    while len(stem) > STEM_CHARS:
        stem = stem.rsplit("_", 1)[0] if "_" in stem else stem[:STEM_CHARS]
    return f"{kind}_{stem or digest[:10]}.md"


def with_entry(index: str | None, file: str, title: str, hook: str) -> str:
    """The index with a line for a file: the line it has is replaced, else one is added at the end of the last list.

    A new index is that line alone, whoever writes it.
    """
    line = entry_line(file, title, hook)
    text = index or ""
    found = {entry.text for entry in index_entries(normalised(text)) if entry.file == file}
    if not found:
        body = text.rstrip("\n")
        if not body:
            return f"{line}\n"
        gap = "" if body.rsplit("\n", 1)[-1].lstrip().startswith(("-", "*", "+")) else "\n"
        return f"{body}\n{gap}{line}\n"
    done, lines = False, []
    for old in text.split("\n"):
        if old.rstrip() in found:
            if not done:
                lines.append(line)
            done = True
        else:
            lines.append(old)
    return "\n".join(lines)


def without_entry(index: str, file: str) -> str:
    """The index without the lines that lead to a file alone; a line that names others, too, stays."""
    several: dict[str, set[str]] = {}
    for entry in index_entries(normalised(index)):
        several.setdefault(entry.text, set()).add(entry.file)
    gone = {text for text, files in several.items() if files == {file}}
    return "\n".join(line for line in index.split("\n") if line.rstrip() not in gone)


def entry_line(file: str, title: str, hook: str) -> str:
    """The line of a memory in `MEMORY.md`: its title, its file, and what it is about."""
    name = title_of(title).replace("[", "(").replace("]", ")") or file
    about = title_of(hook, HOOK_CHARS - min(len(name), TITLE_CHARS) // 2)
    return f"- [{name}]({file})" + (f" — {about}" if about and about != name else "")


KNOWN_SHARE = 0.85  # of what a sentence tells, in a memory: then it is known
_SAVING_PLAIN = re.compile(r"[A-Za-z0-9][^:#\n\"'\[\]{}&*!|>%@`]*")


def memory_text(*, name: str, description: str, type: Type, body: str) -> str:
    """The file of a memory."""
    head = {"name": name, "description": description, "type": type}
    fields = "".join(f"{key}: {_quoted(value)}\n" for key, value in head.items())
    return f"---\n{fields}---\n\n{body.rstrip()}\n"


def _quoted(value: str) -> str:
    """A value as YAML reads it back."""
    line = " ".join(value.split())
    return line if _SAVING_PLAIN.fullmatch(line) else '"' + line.replace("\\", "\\\\").replace('"', '\\"') + '"'


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
