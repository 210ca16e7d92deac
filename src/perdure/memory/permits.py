"""The permits of forks: Edit on the notes alone, and read-only commands over a memory directory (SM-3, MEM-6,
SEC-3).
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.memory.files import INDEX
from perdure.memory.notes import Notes, completed_notes, parse
from perdure.memory.places import is_memory
from perdure.memory.places import refusal as name_refusal

READ, GREP, GLOB, BASH, EDIT, WRITE = "Read", "Grep", "Glob", "Bash", "Edit", "Write"
READS = frozenset({READ, GREP, GLOB, BASH})
WRITES = frozenset({EDIT, WRITE})
_PATHS = ("file_path", "path", "filename", "file", "notebook_path", "directory", "cwd")  # arguments that name one

Canonical = Callable[[str], str]


def lexical(path: str, *, folder: str = "/") -> str:
    """One spelling for all of a path, without asking a disk: no `.`, `..` or double slashes, from a folder."""
    return posixpath.normpath("/" + posixpath.join(folder, path).lstrip("/"))


@dataclass(frozen=True, slots=True)
class NotesEditPermit:
    """`path` in its one spelling. `canonical` gives that spelling for any other; where there is a disk, links too."""

    path: str
    canonical: Canonical = lexical

    @property
    def refusal(self) -> str:
        return f"only Edit on {self.path} is allowed"

    def denial(self, tool: str, arguments: Mapping[str, Any]) -> str | None:
        """Why a call is denied; None when it is the one thing that is allowed."""
        named = [arguments[name] for name in _PATHS if name in arguments]
        if tool != EDIT or not named or not all(self._is_ours(path) for path in named):
            return self.refusal
        return None

    def _is_ours(self, path: object) -> bool:
        if not isinstance(path, str) or not path or "\0" in path:
            return False
        try:
            return self.canonical(path) == self.path
        except (OSError, ValueError):  # a name that the disk refuses is no spelling of ours
            return False


def edits_in(answer: str) -> list[dict[str, str]]:
    """The edits that an answer holds as text, in their order; what is no whole edit is none.

    The tags stand on lines of their own, so that a text may hold them inside a line.
    """
    found: list[dict[str, str]] = []
    old: list[str] | None = None
    new: list[str] | None = None
    part: list[str] | None = None
    for line in answer.replace("\r\n", "\n").split("\n"):
        tag = line.strip()
        if tag == "<edit>" and part is None:
            old = new = None
        elif tag in ("<old>", "<new>") and part is None:
            part = []
        elif tag == "</old>" and part is not None:
            old, part = part, None
        elif tag == "</new>" and part is not None:
            new, part = part, None
        elif tag == "</edit>" and part is None:
            if old is not None and new is not None:
                found.append({"old_string": "\n".join(old), "new_string": "\n".join(new)})
            old = new = None
        elif part is not None:
            part.append(line)
    return found


def apply_notes_edit(text: str, arguments: Mapping[str, Any], form: Notes) -> tuple[str, str | None]:
    """The text after one edit, or as it was with what was wrong. Headings and descriptions can't be edited away."""
    old, new = arguments.get("old_string"), arguments.get("new_string")
    if not isinstance(old, str) or not isinstance(new, str):
        return text, "old_string and new_string have to be texts"
    times = text.count(old) if old else 0
    if times == 0:
        return text, "old_string isn't in the file"
    if times > 1 and arguments.get("replace_all") is not True:
        return text, f"old_string is {times} times in the file: give more of it, or replace_all"
    after = text.replace(old, new)
    lost = set(completed_notes(parse(after), form)[1]) - set(completed_notes(parse(text), form)[1])
    if lost:
        return text, f"headings and their italic lines have to stay: {', '.join(sorted(lost))}"
    return after, None


COMMANDS = ("ls", "find", "cat", "stat", "wc", "head", "tail")
_SPECIAL = re.compile(r"[;&|<>$`\\\n\r(){}!#~\0]")
_FLAGS = {"ls": "alhtr1RF", "cat": "n", "stat": "", "wc": "lwc", "head": "nc", "tail": "nc", "find": ""}
_FIND = {"-name": None, "-iname": None, "-type": None, "-maxdepth": None}


@dataclass(frozen=True, slots=True)
class ParsedCommand:
    """A command taken apart: its options with their values, and what else it names."""

    name: str
    options: tuple[tuple[str, str], ...]
    paths: tuple[str, ...]


def parse_memory_command(line: str) -> ParsedCommand | str:
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


def _plain(name: str, words: list[str]) -> ParsedCommand | str:
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
    return ParsedCommand(name, tuple(options), tuple(paths))


def _find(words: list[str]) -> ParsedCommand | str:
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
    return ParsedCommand("find", tuple(options), tuple(paths))


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
        said = parse_memory_command(line) if isinstance(line, str) else "command has to be a text"
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


MOST_CHARS = 20_000  # of an answer
MOST_LINES = 250

Texts = Mapping[str, str]


def answer_read(tool: str, arguments: Mapping[str, Any], texts: Texts, permit: MemoryPermit) -> tuple[str, bool]:
    """The answer to an allowed read, and whether it is an error. `texts` are all files of the directory by name."""
    if tool == BASH:
        said = parse_memory_command(str(arguments.get("command", "")))
        found = (said, True) if isinstance(said, str) else _run(said, texts, permit)
    elif tool in (GLOB, GREP):
        under = permit.name_of(arguments.get("path") or permit.where) or ""
        pattern = str(arguments.get("pattern", ""))
        names = [name for name in sorted(texts) if _is_under(name, under)]
        lines = _globbed(pattern, names, under) if tool == GLOB else _matching_lines(pattern, names, texts, arguments)
        found = ("\n".join(lines[:MOST_LINES]) or "nothing found", False)
    else:
        name = permit.name_of(arguments.get("file_path") or arguments.get("path")) or ""
        found = _read(name, texts, arguments)
    return found[0][:MOST_CHARS], found[1]


def _read(name: str, texts: Texts, arguments: Mapping[str, Any]) -> tuple[str, bool]:
    if name not in texts:
        return f"{name or 'the directory'}: there is no such file", True
    first, count = _number(arguments.get("offset"), 1), _number(arguments.get("limit"), 2_000)
    return "\n".join(texts[name].split("\n")[max(0, first - 1) : max(0, first - 1) + count]), False


def _number(value: object, usual: int) -> int:
    return value if isinstance(value, int) and value > 0 else usual


def _is_under(name: str, under: str) -> bool:
    return not under or name == under or name.startswith(f"{under}/")


def _globbed(pattern: str, names: Sequence[str], under: str) -> list[str]:
    tail = pattern.removeprefix("**/")
    own = [name[len(under) :].lstrip("/") if under else name for name in names]
    return [n for n, o in zip(names, own, strict=True) if any(fnmatch.fnmatchcase(o, one) for one in (pattern, tail))]


def _matching_lines(pattern: str, names: Sequence[str], texts: Texts, arguments: Mapping[str, Any]) -> list[str]:
    """Lines with the words of a pattern. `a|b` and `a.*b` mean what they usually do; nothing else is special."""
    wanted = [[part.lower() for part in one.split(".*")] for one in pattern.replace("\\b", "").split("|")]
    hits = [
        (name, number, line)
        for name in names
        for number, line in enumerate(texts[name].split("\n"), 1)
        if any(_holds(line.lower(), parts) for parts in wanted)
    ]
    if arguments.get("output_mode") == "content":
        return [f"{name}:{number}:{line}" for name, number, line in hits]
    return list(dict.fromkeys(name for name, _, _ in hits))


def _holds(line: str, parts: Sequence[str]) -> bool:
    at = 0
    for part in parts:
        at = line.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


# --- commands


def _run(said: ParsedCommand, texts: Texts, permit: MemoryPermit) -> tuple[str, bool]:
    places = [permit.name_of(path) or "" for path in said.paths] or [""]
    if said.name in ("ls", "find"):
        return _listed(said, texts, places)
    answers, is_error = [], False
    for place in places:
        if place not in texts:
            answers.append(f"{said.name}: {place or 'a file'}: no such file")
            is_error = True
        else:
            answers.append(_of_file(said, place, texts[place], many=len(places) > 1))
    return "\n".join(answers), is_error


def _listed(said: ParsedCommand, texts: Texts, places: Sequence[str]) -> tuple[str, bool]:
    tests = dict(said.options)
    pattern = tests.get("-name") or tests.get("-iname") or "*"
    rows = []
    for place in places:
        names = [name for name in sorted(texts) if _is_under(name, place)]
        if said.name == "ls" and "R" not in tests:
            names = list(dict.fromkeys(_first(name, place) for name in names))
        rows += [n for n in names if fnmatch.fnmatchcase(n.rpartition("/")[2].lower(), pattern.lower())]
    if "l" in tests:
        rows = [f"{len(texts.get(name, '').encode('utf-8', 'replace')):>8} {name}" for name in rows]
    return "\n".join(rows[:MOST_LINES]) or "nothing", False


def _first(name: str, place: str) -> str:
    """A file, or the folder that it stands in, as a listing of a folder shows it."""
    rest = name[len(place) :].lstrip("/") if place else name
    return rest.split("/")[0] + ("/" if "/" in rest else "") if rest else name


def _of_file(said: ParsedCommand, name: str, text: str, *, many: bool) -> str:
    options, lines = dict(said.options), text.split("\n")
    size = len(text.encode("utf-8", "replace"))
    if said.name == "wc":
        return f"{text.count(chr(10))} {len(text.split())} {size} {name}"
    if said.name == "stat":
        return f"{name}: {size} bytes, {text.count(chr(10))} lines"
    if said.name in ("head", "tail"):
        if "c" in options:
            count = int(options["c"])
            shown = text[:count] if said.name == "head" else text[max(0, len(text) - count) :]
        else:
            count = int(options.get("n", "10"))
            whole = text.rstrip("\n").split("\n")
            shown = "\n".join(whole[:count] if said.name == "head" else whole[max(0, len(whole) - count) :])
    else:
        shown = "\n".join(f"{n:>6}\t{line}" for n, line in enumerate(lines, 1)) if "n" in options else text
    return f"==> {name} <==\n{shown}" if many else shown
