"""Where a memory holds: for files of the project, for some agents, or everywhere (MEM-14).

    scope:
      paths: [src/db/**, "**/*.sql"]
      agent: [main, reviewer]

A scope comes from a file that anybody may have written: it is bounded, and what is wrong with it is said in one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from perdure.memory.instructions import glob_applies, lexical
from perdure.text.cleaning import controls_removed
from perdure.text.frontmatter import Value
from perdure.text.globs import expand_braces, problem

MAIN_AGENT: Final = "main"
MAX_PATTERNS: Final = 50  # that the globs of one memory may stand for
MAX_AGENTS: Final = 20
MAX_PATHS: Final = 200  # that a conversation is thought to be about
_AGENT_CHARS = 64
_SHOWN = 3  # globs or agents in a line
_SHOWN_CHARS = 60  # of each
_NAMED = re.compile(r"@\"([^\"\n]{1,500})\"|([^\s\"'`<>()\[\]{},;|*?=]{3,500})")
_LINE_NUMBER = re.compile(r":\d+(?::\d+)?$")
_HAS_ENDING = re.compile(r"\w\.[A-Za-z]\w{0,7}$")


@dataclass(frozen=True, slots=True)
class Work:
    """What a conversation is about, and whose it is: its agent, the folder it is in, and the files it touched or named.

    `roots` are the paths of the project, to which globs are relative: as it is called and, behind links, as it is.
    """

    agent: str = MAIN_AGENT
    cwd: str = ""
    roots: tuple[str, ...] = ("",)
    paths: tuple[str, ...] = ()

    def about(self, paths: Iterable[str]) -> Work:
        """The same, about these files, relative to its folder or absolute; more than can be looked at are left out."""
        absolute = (lexical(path, self.cwd, "") for path in paths)
        return replace(self, paths=tuple(islice(dict.fromkeys(absolute), MAX_PATHS)))


@dataclass(frozen=True, slots=True)
class MemoryScope:
    """The files and the agents that a memory is for; empty: for all."""

    paths: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()

    def covers(self, work: Work) -> bool:
        """Whether the memory is for this work."""
        if self.agents and work.agent.lower() not in self.agents:
            return False
        return not self.paths or any(glob_applies(path, self.paths, root) for path in work.paths for root in work.roots)

    def __bool__(self) -> bool:
        """Whether it narrows anything."""
        return bool(self.paths or self.agents)

    def __str__(self) -> str:
        """In a few words, `only for src/db/**, agent main`; nothing for what holds everywhere."""
        parts = [_several(self.paths)] if self.paths else []
        parts += [f"agent {_several(self.agents)}"] if self.agents else []
        return f"only for {', '.join(parts)}" if parts else ""


EVERYWHERE: Final = MemoryScope()


def read_scope(value: Value | None) -> tuple[MemoryScope, str]:
    """The scope that front matter gives, and what was wrong with it, in a line. Never raises.

    A part that can't be read doesn't narrow anything, so that a slip hides no memory.
    """
    if value is None or value == "":
        return EVERYWHERE, ""
    if not isinstance(value, dict):
        return EVERYWHERE, "scope isn't `paths:` and `agent:`: it holds everywhere"
    fields = {name.strip().lower(): part for name, part in value.items()}
    globs, strange = _texts(fields.pop("paths", ""))
    agents, odd = _texts(fields.pop("agent", ""))
    wrong = [f"{name} holds what is no text" for name, is_odd in (("paths", strange), ("agent", odd)) if is_odd]
    wrong += [f"{_shown(name)} isn't read" for name in islice(fields, 1)]
    kept: list[str] = []
    room = MAX_PATTERNS
    for glob in globs:
        if why := problem(glob):
            wrong += [f"{_shown(glob)}: {why}"] if len(wrong) < _SHOWN else []
            continue
        room -= len(expand_braces(glob))
        if room < 0:
            wrong.append(f"of {len(globs):,} globs the first {len(kept):,} count")
            break
        kept.append(glob.removeprefix("./"))
    if len(agents) > MAX_AGENTS:
        wrong.append(f"of {len(agents):,} agents the first {MAX_AGENTS} count")
    names = tuple(dict.fromkeys(name[:_AGENT_CHARS].lower() for name in agents[:MAX_AGENTS]))
    return MemoryScope(tuple(dict.fromkeys(kept)), names), f"scope: {'; '.join(wrong)}" if wrong else ""


def named_paths(text: str) -> tuple[str, ...]:
    """What in a prompt looks like the path of a file: it has a slash or an ending; `@` and line numbers are dropped."""
    found: dict[str, None] = {}
    for quoted, word in _NAMED.findall(text):
        path = quoted or _LINE_NUMBER.sub("", word.removeprefix("@").rstrip(".:!?…。，"))
        if "://" not in path and ("/" in path or _HAS_ENDING.search(path)):
            found.setdefault(path)
        if len(found) >= MAX_PATHS:
            break
    return tuple(found)


def _texts(value: Value) -> tuple[list[str], bool]:
    """A list of texts, or one text with commas between them; and whether there was something else."""
    parts = value if isinstance(value, list) else _split(value) if isinstance(value, str) else [value]
    texts = [" ".join(controls_removed(part).split()) for part in parts if isinstance(part, str)]
    return [text for text in texts if text], len(texts) < len(parts)


def _split(text: str) -> list[Value]:
    """The parts between commas; those in the braces of a glob stay."""
    starts, depth = [0], 0
    for at, char in enumerate(text):
        depth += (char == "{") - (char == "}")
        if char == "," and depth <= 0:
            starts.append(at + 1)
    return [text[a:b] for a, b in zip(starts, [*(at - 1 for at in starts[1:]), len(text)], strict=True)]


def _several(names: tuple[str, ...]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(map(_shown, names[:_SHOWN])) + (f" and {more} more" if more > 0 else "")


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"
