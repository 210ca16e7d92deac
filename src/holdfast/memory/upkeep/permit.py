"""The permit of the fork that extracts memories, and the few read-only commands it may say (MEM-6, SEC-3). Pure.

Commands never reach a shell: a line is taken apart into words, and `memory.upkeep.reading` does what they say on the
texts of the directory. Whatever a shell would make more of than words is refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.memory.directory import is_memory
from holdfast.memory.names import refusal as name_refusal
from holdfast.memory.permit import lexical
from holdfast.memory.topics import INDEX

READ, GREP, GLOB, BASH, EDIT, WRITE = "Read", "Grep", "Glob", "Bash", "Edit", "Write"
READS = frozenset({READ, GREP, GLOB, BASH})
WRITES = frozenset({EDIT, WRITE})
COMMANDS = ("ls", "find", "cat", "stat", "wc", "head", "tail")
_PATHS = ("file_path", "path", "filename", "file", "notebook_path", "directory", "cwd")
_SPECIAL = re.compile(r"[;&|<>$`\\\n\r(){}!#~\0]")
_FLAGS = {"ls": "alhtr1RF", "cat": "n", "stat": "", "wc": "lwc", "head": "nc", "tail": "nc", "find": ""}
_FIND = {"-name": None, "-iname": None, "-type": None, "-maxdepth": None}


@dataclass(frozen=True, slots=True)
class Said:
    """A command taken apart: its options with their values, and what else it names."""

    name: str
    options: tuple[tuple[str, str], ...]
    paths: tuple[str, ...]


def parsed(line: str) -> Said | str:
    """A command, or why it is none of those that may be said."""
    if _SPECIAL.search(line):
        return "one plain command only: no pipes, redirections, variables or substitutions"
    try:
        words = shlex.split(line)
    except ValueError as e:
        return f"not a command: {e}"
    if not words or words[0] not in COMMANDS:
        return f"only {', '.join(COMMANDS)} may be run"
    return _find(words[1:]) if words[0] == "find" else _plain(words[0], words[1:])


def _plain(name: str, words: list[str]) -> Said | str:
    options: list[tuple[str, str]] = []
    paths: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-") or word == "-":
            paths.append(word)
        elif name in ("head", "tail") and (found := re.fullmatch(r"-(?:n|c)?=?(\d+)", word)):
            options.append((word[1] if word[1] in "nc" else "n", found[1]))
        elif name in ("head", "tail") and word in ("-n", "-c"):
            count = next(rest, "")
            if not count.isdigit():
                return f"{name} {word}: needs a number"
            options.append((word[1], count))
        elif not word.startswith("--") and set(word[1:]) <= set(_FLAGS[name]):
            options += [(flag, "") for flag in word[1:]]
        else:
            return f"{name}: the option {word[:40]} isn't known here"
    return Said(name, tuple(options), tuple(paths))


def _find(words: list[str]) -> Said | str:
    """`find` looks, and does nothing: every test that isn't known is refused, and so every action."""
    options: list[tuple[str, str]] = []
    paths: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in _FIND:
            options.append((word, next(rest, "")))
        elif word.startswith("-") or options:
            return f"find: {word[:40]} isn't known here"
        else:
            paths.append(word)
    return Said("find", tuple(options), tuple(paths))


@dataclass(frozen=True, slots=True)
class MemoryPermit:
    """What an extractor may call: reads in one directory, and writes of memories in it. `where` is an absolute path.

    `canonical` gives the one spelling of any path; with a disk, links are followed. The index is kept by code.
    """

    where: str
    canonical: Callable[[str], str] = lexical

    @property
    def refusal(self) -> str:
        return f"only Read, Grep, Glob, {', '.join(COMMANDS)}, and Edit and Write of memories, all in {self.where}"

    def denial(self, tool: str, arguments: Mapping[str, Any]) -> str | None:
        """Why a call is denied; None when it is allowed."""
        if tool == BASH:
            return self._denied_command(arguments)
        if tool not in READS | WRITES:
            return self.refusal
        named = [arguments[key] for key in _PATHS if arguments.get(key) is not None]
        places = [self.name_of(path) for path in named]
        if any(place is None for place in places) or (not places and tool in (READ, EDIT, WRITE)):
            return self.refusal
        if tool == GLOB and not _is_inside(arguments.get("pattern")):
            return self.refusal
        if tool in WRITES:
            return next((why for place in places if (why := _unwritable(place or "")) is not None), None)
        return None

    def _denied_command(self, arguments: Mapping[str, Any]) -> str | None:
        line = arguments.get("command")
        said = parsed(line) if isinstance(line, str) else "command has to be a text"
        if isinstance(said, str):
            return f"{self.refusal}: {said}"
        is_ours = all(self.name_of(path) is not None for path in said.paths)
        more = set(arguments) - {"command", "description", "timeout"}
        return None if is_ours and not more else self.refusal

    def name_of(self, path: object) -> str | None:
        """The name within the directory that a path means ("" for the directory itself); None when it is outside."""
        if not isinstance(path, str) or "\0" in path:
            return None
        whole = path if path.startswith("/") or re.match(r"[A-Za-z]:[\\/]", path) else f"{self.where}/{path}"
        try:
            one, root = self.canonical(whole), self.canonical(self.where)
        except (OSError, ValueError):
            return None
        if one == root:
            return ""
        name = one[len(root) :].lstrip("/") if one.startswith(root.rstrip("/") + "/") else None
        return name if name is not None and name_refusal(name) is None else None


def _unwritable(name: str) -> str | None:
    if name.rpartition("/")[2].lower() == INDEX.lower():
        return f"{INDEX} is kept for you: its lines follow from the name and description of each memory"
    return None if is_memory(name) else "memories are files that end with .md and aren't hidden"


def _is_inside(pattern: object) -> bool:
    return isinstance(pattern, str) and not pattern.startswith(("/", "~")) and ".." not in pattern
