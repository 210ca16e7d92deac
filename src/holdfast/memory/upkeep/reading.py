"""What the read-only tools of an extractor answer, from the texts of a directory: no disk, no shell (MEM-6). Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.memory.upkeep.permit import BASH, GLOB, GREP, MemoryPermit, Said, parsed

MOST_CHARS = 20_000  # of an answer
MOST_LINES = 250

Texts = Mapping[str, str]


def answered(tool: str, arguments: Mapping[str, Any], texts: Texts, permit: MemoryPermit) -> tuple[str, bool]:
    """The answer to an allowed read, and whether it is an error. `texts` are all files of the directory by name."""
    if tool == BASH:
        said = parsed(str(arguments.get("command", "")))
        found = (said, True) if isinstance(said, str) else _run(said, texts, permit)
    elif tool in (GLOB, GREP):
        under = permit.name_of(arguments.get("path") or permit.where) or ""
        pattern = str(arguments.get("pattern", ""))
        names = [name for name in sorted(texts) if _is_under(name, under)]
        lines = _globbed(pattern, names, under) if tool == GLOB else _found(pattern, names, texts, arguments)
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


def _found(pattern: str, names: Sequence[str], texts: Texts, arguments: Mapping[str, Any]) -> list[str]:
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


def _run(said: Said, texts: Texts, permit: MemoryPermit) -> tuple[str, bool]:
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


def _listed(said: Said, texts: Texts, places: Sequence[str]) -> tuple[str, bool]:
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


def _of_file(said: Said, name: str, text: str, *, many: bool) -> str:
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
