"""A memory: one Markdown file with what it is about in its front matter (MEM-3).

    ---                                              ---
    name: Deploys go out on Fridays        or        name: deploys-go-out-on-fridays
    description: who says so, and why                description: who says so, and why
    type: project                                    metadata:
    ---                                                node_type: memory
                                                       type: project
                                                     ---

Whatever is wrong with a file, it has a reading, and everything that is wrong is said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from perdure.memory.scope import EVERYWHERE, MemoryScope, read_scope
from perdure.text.cleaning import controls_removed
from perdure.text.frontmatter import FrontMatter, Value, front_matter
from perdure.text.markdown import without_comments

Type = Literal["user", "feedback", "project", "reference"]
TYPES: Final[tuple[Type, ...]] = get_args(Type)
INDEX: Final = "MEMORY.md"
MAX_LINE: Final = 400  # characters of a name or description that are kept

_Fields: TypeAlias = "Mapping[str, Value]"
_HEADING = re.compile(r"#{1,6}[ \t]+(.+?)[ \t]*#*$", re.MULTILINE)
_NO_TEXT = re.compile(r"[#>*\-=`|~\s]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """What a memory says. `file` is its path within the directory; `body` is without front matter and comments.

    `problems` are for people, one line each, and none is fatal. `modified` is the text of the field, if there is one.
    `supersedes` are the files, within the directory, of memories that don't hold any more since this one does. `scope`
    says for which files and agents it holds.
    """

    file: str
    name: str
    description: str = ""
    type: Type | None = None
    keywords: tuple[str, ...] = ()
    modified: str = ""
    body: str = ""
    problems: tuple[str, ...] = ()
    has_front_matter: bool = False
    supersedes: tuple[str, ...] = ()
    is_pinned: bool = False
    scope: MemoryScope = EVERYWHERE

    @property
    def is_nested(self) -> bool:
        """Whether it stands in a folder of the directory, such as `team/`."""
        return "/" in self.file


def topic(file: str, text: str) -> Topic:
    """The memory that a file holds. Never raises."""
    front = front_matter(text)
    fields = _flattened(front.fields)
    problems = list(front.problems)
    body = controls_removed(without_comments(front.body.replace("\r\n", "\n"))).strip("\n")
    if not front.is_present and not front.problems:
        problems.append("no front matter: found by its text only")
    name = _line(fields.get("name"))
    if front.is_present and not name:
        problems.append("no name")
    description = _line(fields.get("description"))
    if front.is_present and not description:
        problems.append("no description")
    kind, problem = _type(fields.get("type"), file)
    if problem and front.is_present:
        problems.append(problem)
    scope, problem = read_scope(fields.get("scope"))
    if problem and front.problems:  # one follows from the other
        problems[0] = f"{problems[0]}; {problem}"
    elif problem:
        problems.append(problem)
    if not body.strip():
        problems.append("nothing below the front matter" if front.is_present else "empty")
    return Topic(
        file=file,
        name=name or _first_heading(body) or _stem(file),
        description=description or _first_line(body),
        type=kind,
        keywords=_keywords(front, fields),
        modified=_line(fields.get("modified")) or _line(fields.get("updated")),
        body=body,
        problems=tuple(problems),
        has_front_matter=front.is_present,
        supersedes=tuple(_in_folder_of(file, one) for one in _several(fields.get("supersedes"))),
        is_pinned=_line(fields.get("pinned")).lower() in ("true", "yes", "on", "1"),
        scope=scope,
    )


def _in_folder_of(file: str, named: str) -> str:
    """A memory as another one names it: a file beside it, with or without its ending, or a path in the directory."""
    folder = file.rpartition("/")[0]
    named = named if named.endswith(".md") else f"{named}.md"
    return named if "/" in named or not folder else f"{folder}/{named}"


def _flattened(fields: _Fields) -> _Fields:
    """Both schemas as one: what stands under `metadata:` counts where the file doesn't say it at the top."""
    flat: dict[str, Value] = {name.strip().lower(): value for name, value in fields.items()}
    inner = flat.get("metadata")
    if isinstance(inner, dict):
        flat = {**{name.strip().lower(): value for name, value in inner.items()}, **flat}
    return flat


def _line(value: Value | None) -> str:
    text = " ".join(controls_removed(value).split()) if isinstance(value, str) else ""
    return text if len(text) <= MAX_LINE else text[: MAX_LINE - 1].rstrip() + "…"


def _type(value: Value | None, file: str) -> tuple[Type | None, str]:
    """The type that is said, else the one that the file's name begins with; and what is wrong with it."""
    said = value.strip().lower() if isinstance(value, str) else ""
    stem = file.rsplit("/", 1)[-1].lower()
    named = next((one for one in TYPES if stem.startswith((f"{one}_", f"{one}-"))), None)
    for one in TYPES:
        if said == one:
            return one, ""
    if not said:
        return named, "no type: user, feedback, project or reference"
    return named, f"type {said[:40]!r} isn't one of user, feedback, project, reference"


def _keywords(front: FrontMatter, fields: _Fields) -> tuple[str, ...]:
    found = [one for name in ("keywords", "tags", "aliases") for one in _several(fields.get(name))]
    return tuple(dict.fromkeys(found))


def _several(value: Value | None) -> list[str]:
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else []
    return [text for part in parts if isinstance(part, str) and (text := _line(part))]


def _first_heading(body: str) -> str:
    found = _HEADING.search(body)
    return _line(found[1]) if found else ""


def _first_line(body: str) -> str:
    """The first line that says something and is no heading."""
    for line in body.split("\n"):
        if line.strip() and not line.lstrip().startswith("#") and not _NO_TEXT.fullmatch(line):
            return _line(line)
    return ""


def _stem(file: str) -> str:
    stem = file.rsplit("/", 1)[-1].removesuffix(".md")
    return stem.replace("_", " ").replace("-", " ").strip() or file
