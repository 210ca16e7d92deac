"""Where memories stand: by project, by user, for a team, for an agent (MEM-1, MEM-13).

    <home>/projects/<project>/memory/     of a project: its git root, shared by all worktrees
        MEMORY.md                         the index
        user_role.md feedback_tests.md …  topic files
        team/                             what a team shares, with an index of its own
    <home>/memory/                        of the user, for all projects
    <home>/agent-memory/<agent>/          of an agent: for all projects (user), …
    <root>/.holdfast/agent-memory/<agent>/        … with a project, and shared with it (project) …
    <root>/.holdfast/agent-memory-local/<agent>/  … or only here (local)

It is the layout of Claude Code's memory directory, so the setting `memory_directory` may point to an existing one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

from holdfast.errors import BadSetting
from holdfast.memory.topics import INDEX

MEMORY: Final = "memory"
TEAM: Final = "team"
AGENTS: Final = "agent-memory"
AGENTS_LOCAL: Final = "agent-memory-local"
FOLDER: Final = ".holdfast"

Scope = Literal["user", "project", "local"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
Right = Literal["none", "read", "write"]

_ABSOLUTE = re.compile(r"/|[A-Za-z]:/")
_AGENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """What places follow from: the store's home, its folder for the project, the git root, the user's home.

    Paths are absolute, with slashes.
    """

    home: str
    slug: str
    root: str
    user_home: str
    directory: str | None = None  # the setting memory_directory


def project_directory(grounds: Grounds) -> str:
    """The directory of the project. `BadSetting` when the setting names no absolute path."""
    if not grounds.directory:
        return f"{grounds.home}/projects/{grounds.slug}/{MEMORY}"
    given = grounds.directory.replace("\\", "/").rstrip("/") or "/"
    if given == "~" or given.startswith("~/"):
        return grounds.user_home + given[1:]
    if not _ABSOLUTE.match(given):
        raise BadSetting(f"memory_directory = {given!r}: has to be absolute, or begin with ~/")
    return given


def user_directory(grounds: Grounds) -> str:
    """The directory of the user, for all projects."""
    return f"{grounds.home}/{MEMORY}"


def agent_directory(grounds: Grounds, agent: str, scope: Scope) -> str:
    """The directory of an agent. `BadSetting` for a name that could lead elsewhere."""
    if not _AGENT.fullmatch(agent) or ".." in agent:
        raise BadSetting(f"agent {agent[:80]!r}: letters, digits, dots, dashes and underscores only, at most 64")
    if scope == "user":
        return f"{grounds.home}/{AGENTS}/{agent}"
    return f"{grounds.root}/{FOLDER}/{AGENTS if scope == 'project' else AGENTS_LOCAL}/{agent}"


def is_memory(file: str) -> bool:
    """Whether a path within a directory is that of a memory: a Markdown file that is no index and isn't hidden."""
    parts = file.split("/")
    return file.endswith(".md") and parts[-1] != INDEX and not any(part.startswith(".") for part in parts)


# --- who may --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What an agent may do with memories: of its own scopes, and of the project's directory (MEM-13)."""

    agent: str = ""  # nobody: the main agent
    scopes: tuple[Scope, ...] = ()
    own: Right = "write"
    project: Right = "read"
    user: Right = "read"


MAIN_RIGHTS = Rights(own="none", project="write", user="write")


@dataclass(frozen=True, slots=True)
class Allowed:
    """A directory an agent may use, and how."""

    path: str
    right: Right
    what: Literal["project", "user", "agent"]


def allowed(grounds: Grounds, rights: Rights) -> tuple[Allowed, ...]:
    """The directories an agent may read or write, its own first. What isn't in it is closed to it."""
    own = [Allowed(agent_directory(grounds, rights.agent, one), rights.own, "agent") for one in rights.scopes]
    common = [
        Allowed(project_directory(grounds), rights.project, "project"),
        Allowed(user_directory(grounds), rights.user, "user"),
    ]
    return tuple(one for one in (*own, *common) if one.right != "none")


def right_to(path: str, among: tuple[Allowed, ...]) -> Right:
    """What may be done with a path, which has to be real: the right of the nearest directory around it."""
    around = [one for one in among if path == one.path or path.startswith(f"{one.path.rstrip('/')}/")]
    return max(around, key=lambda one: len(one.path)).right if around else "none"
