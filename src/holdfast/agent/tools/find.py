"""Grep and Glob: where something stands, and which files there are (LIB-1, SEC-6)."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from msgspec import Meta

from holdfast.agent.desk import Desk
from holdfast.agent.permissions import Touch, Where, permitted
from holdfast.agent.tools.tool import Input, Outcome, Refused, Tool, Use
from holdfast.ports import MatchedLine, TextSearch

_LINE_CHARS = 400
_MOST_AROUND = 50


class GlobInput(Input, frozen=True):
    pattern: Annotated[str, Meta(description='As in "**/*.py", "src/**/test_*.{ts,tsx}".', min_length=1)]
    path: Annotated[str, Meta(description="The folder to look in; the current one by default.")] | None = None


class GrepInput(
    Input, frozen=True, rename={"ignores_case": "-i", "numbers": "-n", "after": "-A", "before": "-B", "around": "-C"}
):
    pattern: Annotated[str, Meta(description="A regular expression, as ripgrep takes it.", min_length=1)]
    path: Annotated[str, Meta(description="File or folder; the current folder by default.")] | None = None
    glob: Annotated[str, Meta(description='Only files that fit, as in "*.py".')] | None = None
    output_mode: Annotated[
        Literal["files_with_matches", "content", "count"],
        Meta(description="The files (default), the lines, or how many lines by file."),
    ] = "files_with_matches"
    ignores_case: Annotated[bool, Meta(description="Upper and lower case are the same.")] = False
    numbers: Annotated[bool, Meta(description="Show line numbers (they always are).")] = True
    after: Annotated[int, Meta(description="Lines after each match.", ge=0)] | None = None
    before: Annotated[int, Meta(description="Lines before each match.", ge=0)] | None = None
    around: Annotated[int, Meta(description="Lines before and after each match.", ge=0)] | None = None
    head_limit: Annotated[int, Meta(description="At most so many lines or files.", ge=1)] | None = None


async def glob(desk: Desk, use: Use, given: GlobInput) -> Outcome:
    """The files whose path fits, newest first."""
    folder = await desk.look(given.path or ".")
    if folder.kind != "folder":
        raise Refused(f"{given.path} is no folder")
    limit = desk.session.settings.find_limit
    found = await desk.machine.finder.files(given.pattern, folder.path, limit=limit)
    paths = [path for path in found.paths if _may_show(desk, path)]
    if not paths:
        return Outcome("\n".join(["No files found", *([f"[{found.note}]"] if found.note else [])]))
    notes = [f"[more than {limit} files fit: narrow the pattern or the path]"] if found.is_cut else []
    notes += [f"[{found.note}]"] if found.note else []
    return Outcome("\n".join([*paths, *notes]))


async def grep(desk: Desk, use: Use, given: GrepInput) -> Outcome:
    """The lines, the files, or the counts."""
    spot = await desk.look(given.path or ".")
    if spot.kind not in ("file", "folder"):
        raise Refused(f"{given.path} does not exist (current folder: {desk.cwd})")
    settings = desk.session.settings
    limit = min(given.head_limit or settings.find_limit, settings.find_limit)
    shows_lines = given.output_mode == "content"
    around = min(given.around or 0, _MOST_AROUND) if shows_lines else 0
    wanted = TextSearch(
        pattern=given.pattern,
        path=spot.path,
        glob=given.glob,
        ignores_case=given.ignores_case,
        before=max(around, min(given.before or 0, _MOST_AROUND) if shows_lines else 0),
        after=max(around, min(given.after or 0, _MOST_AROUND) if shows_lines else 0),
    )
    found = await desk.machine.finder.lines(wanted, limit=limit if shows_lines else settings.find_limit * 40)
    lines = [line for line in found.lines if _may_show(desk, line.path)]
    rows = _content(lines) if shows_lines else _by_file(lines, counts=given.output_mode == "count")
    is_cut = found.is_cut or len(rows) > limit
    notes = [f"[more than {limit} were found: narrow the pattern or the path]"] if is_cut else []
    notes += [f"[{found.note}]"] if found.note else []
    return Outcome("\n".join([*(rows[:limit] or ["No matches found"]), *notes]))


def _content(lines: list[MatchedLine]) -> list[str]:
    rows: list[str] = []
    last: tuple[str, int] | None = None
    for line in lines:
        if last is not None and last != (line.path, line.number - 1) and any(not one.is_match for one in lines):
            rows.append("--")
        sign = ":" if line.is_match else "-"
        text = line.text if len(line.text) <= _LINE_CHARS else f"{line.text[:_LINE_CHARS]}…"
        rows.append(f"{line.path}{sign}{line.number}{sign}{text}")
        last = (line.path, line.number)
    return rows


def _by_file(lines: list[MatchedLine], *, counts: bool) -> list[str]:
    found = Counter(line.path for line in lines if line.is_match)
    return [f"{path}:{count}" if counts else path for path, count in found.items()]


def _may_show(desk: Desk, path: str) -> bool:
    """Rules that deny reading a file hold for what searches show of it as well."""
    touch = Touch("Read", "look", (Where(path, path, is_inside=True),))
    return permitted(touch, desk.policy).decision != "deny"


async def _touches_glob(desk: Desk, given: GlobInput) -> Touch:
    if ".." in given.pattern.split("/") or given.pattern.startswith(("/", "~")):
        raise Refused("pattern has to stay below the folder: give the folder as path")
    return Touch("Glob", "look", (await desk.where(given.path or "."),))


async def _touches_grep(desk: Desk, given: GrepInput) -> Touch:
    return Touch("Grep", "look", (await desk.where(given.path or "."),))


GLOB = Tool("Glob", GlobInput, glob, _touches_glob, is_parallel=True)
GREP = Tool("Grep", GrepInput, grep, _touches_grep, is_parallel=True)
