"""Where instruction files are looked for, and what is told of each (INS-1, INS-5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, Protocol

Scope = Literal["managed", "user", "project", "local"]
Why = Literal["start", "rule", "import", "nested"]

POLICY: Final = "(managed policy)"  # stands for the path of a policy text
MANAGED: Final = {  # INS-1: the system path, by the platform's name
    "darwin": "/Library/Application Support/ClaudeCode/CLAUDE.md",
    "win32": "C:/Program Files/ClaudeCode/CLAUDE.md",
    "linux": "/etc/claude-code/CLAUDE.md",
}
MISSING: Final = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where to look. All paths are absolute, with `/`.

    `root` is the project: the git root, or the working directory where there is none; nothing outside of it is read for
    the project unless it stands in `approved` (a file, or a folder with all below). `excludes` are globs on absolute
    paths. `managed` and `policy` can't be excluded, and `own_excludes`, the project's, leave out what is the project's.
    Of a project that isn't trusted (SEC-8) every file is text of the project, and the user's word in none.
    """

    cwd: str
    root: str
    home: str
    user: str | None = None  # the user's folder, such as ~/.claude
    managed: str | None = None
    policy: str = ""
    local: bool = True
    agents: bool = False  # AGENTS.md as well
    excludes: tuple[str, ...] = ()
    own_excludes: tuple[str, ...] = ()
    is_trusted: bool = True
    approved: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """A file as a reader gives it: its text, or why there is none; `real` is its path without links."""

    text: str | None = None
    why: str = MISSING
    real: str = ""


class Reader(Protocol):
    """The files, as they are now. It raises nothing for what is wrong with one of them."""

    def real(self, path: str) -> str:
        """Where a path leads, links followed; empty where nothing is. Nothing is opened."""
        ...

    def read(self, path: str) -> Found: ...

    def rules(self, folder: str, may: Callable[[str, str], bool]) -> tuple[str, ...]:
        """The paths of all `*.md` files below a folder, in a fixed order; each link is followed once (INS-2).

        `may` says of a folder, by its path and where that leads, whether to look into it.
        """
        ...


@dataclass(frozen=True, slots=True)
class Instruction:
    """A file that loads. `text` is what is sent of it, `revision` tells two states of it apart (INS-6).

    `parent` imports it; `globs` and `trigger` say why a rule or a nested file loaded; `tokens` are by the base rule.
    `is_strange`: it came with a project that nobody said to trust.
    """

    path: str
    scope: Scope
    why: Why
    text: str
    revision: str
    tokens: int
    parent: str = ""
    globs: tuple[str, ...] = ()
    trigger: str = ""
    problems: tuple[str, ...] = ()
    is_strange: bool = False


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was named or found and doesn't load, and why. `code` is for programs."""

    path: str
    scope: Scope
    code: Literal["excluded", "not_approved", "unreadable", "same", "cycle", "depth", "waits", "missing", "many"]
    detail: str = ""
    parent: str = ""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What loads, in loading order (later is read last), and what doesn't."""

    files: tuple[Instruction, ...] = ()
    skipped: tuple[Skipped, ...] = ()


def lexical(path: str, base: str, home: str) -> str:
    """An absolute path without `.` and `..`; `~` is the home directory, and relative paths start at `base`."""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    elif not path.startswith("/") and path[1:3] != ":/":
        path = f"{base}/{path}"
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    lead = "" if parts and parts[0][1:] == ":" else "/"
    return lead + "/".join(parts)


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder or stands below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def folders_down(root: str, to: str) -> tuple[str, ...]:
    """The folders from `root` down to `to`, both included; empty when `to` isn't below."""
    if not is_below(to, root):
        return ()
    found = [root.rstrip("/") or "/"]
    for part in to[len(root.rstrip("/")) :].split("/"):
        if part:
            found.append(f"{found[-1].rstrip('/')}/{part}")
    return tuple(found)
