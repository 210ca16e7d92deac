"""Skills and kinds of sub-agents: Markdown files with a few lines about themselves in front. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from perdure.memory.places import SCOPES as SCOPE_NAMES
from perdure.memory.places import MemoryRights, Right

_LISTED_CHARS = 250  # of one description
_LISTING_CHARS = 8_000  # of all
_RIGHTS = {"own": "write", "project": "read", "user": "read"}
_NOT_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_FOLDED = frozenset({">", "|", ">-", "|-"})


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill: its name, when to use it, its file, and what it says."""

    name: str
    description: str
    path: str
    body: str


@dataclass(frozen=True, slots=True)
class SubagentType:
    """A kind of sub-agent: the tools it has (None: all but Task), whether it only looks, and what it is told."""

    name: str
    description: str
    tools: tuple[str, ...] | None = None
    only_looks: bool = False
    body: str = ""
    rights: MemoryRights = field(default_factory=MemoryRights)  # of memories (MEM-13)


SCOPES = {
    scope.name: scope
    for scope in (
        SubagentType(
            "general-purpose",
            "for any task of several steps; it has all tools",
            rights=MemoryRights(agent="general-purpose"),
        ),
        SubagentType(
            "explore",
            "for finding out where and how something is done; it only looks",
            ("Read", "Grep", "Glob", "Bash", "TodoWrite"),
            only_looks=True,
            rights=MemoryRights(agent="explore"),
        ),
    )
}


def front_matter(text: str) -> tuple[dict[str, str], str]:
    """The `key: value` lines between two `---` at the beginning, and the text behind. Only plain values are read."""
    text = text.replace("\r\n", "\n")
    if not text.startswith("---\n"):
        return {}, text
    head, mark, body = text[4:].partition("\n---")
    if not mark or (body and not body.startswith("\n")):
        return {}, text
    found: dict[str, str] = {}
    key = ""
    for line in head.split("\n"):
        if line[:1] in (" ", "\t") and key:
            found[key] = f"{found[key]} {line.strip()}".strip()
            continue
        key, colon, value = line.partition(":")
        key, value = key.strip(), value.strip()
        if not colon or not key or key.startswith("#"):
            key = ""
            continue
        found[key] = "" if value in _FOLDED else _unquoted(value)
    return found, body.lstrip("\n")


def _unquoted(value: str) -> str:
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if is_quoted else value


def skills_of(files: Mapping[str, str]) -> dict[str, Skill]:
    """Skills by name, from the text of each SKILL.md by path; a later one takes the place of one of the same name."""
    found: dict[str, Skill] = {}
    for path, text in files.items():
        fields, body = front_matter(text)
        name = fields.get("name") or posixpath.basename(posixpath.dirname(path))
        first = next((line.strip("# ") for line in body.split("\n") if line.strip()), "")
        found[name] = Skill(name, fields.get("description") or first, path, body)
    return found


def subagent_types(files: Mapping[str, str]) -> dict[str, SubagentType]:
    """The kinds of sub-agents that come with Perdure, and those in files of the user's; ours keep their names."""
    found: dict[str, SubagentType] = {}
    for path, text in files.items():
        fields, body = front_matter(text)
        name = fields.get("name") or posixpath.basename(path).removesuffix(".md")
        tools = tuple(t.strip() for t in fields.get("tools", "").split(",") if t.strip()) or None
        found[name] = SubagentType(
            name, fields.get("description", ""), tools, body=body, rights=memory_rights_of(name, fields)
        )
    return {**found, **SCOPES}


def memory_rights_of(name: str, fields: Mapping[str, str]) -> MemoryRights:
    """What a kind of agent may do with memories (MEM-13).

    `memory` names the scopes of its own directory (user, project, local); `memory_own`, `memory_project` and
    `memory_user` are none, read or write. What can't be read counts as none.
    """
    scopes = tuple(one for one in SCOPE_NAMES if one in fields.get("memory", "").replace(",", " ").split())
    wanted = {one: fields.get(f"memory_{one}", default) for one, default in _RIGHTS.items()}
    known: dict[str, Any] = {one: right if right in get_args(Right) else "none" for one, right in wanted.items()}
    return MemoryRights(agent=_NOT_NAME.sub("-", name)[:64].strip("-.") or "agent", scopes=scopes, **known)


def listing(named: Mapping[str, str]) -> str:
    """One line for each, as long as there is room; the rest by name."""
    rows: list[str] = []
    used = 0
    for name, description in named.items():
        words = " ".join(description.split())
        words = words if len(words) <= _LISTED_CHARS else words[: _LISTED_CHARS - 1] + "…"
        row = f"- {name}: {words}" if used + len(words) < _LISTING_CHARS else f"- {name}"
        used += len(row)
        rows.append(row)
    return "\n".join(rows)
