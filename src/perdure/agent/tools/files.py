"""Read, Write, Edit, MultiEdit, Grep and Glob: the tools for files (LIB-1, SEC-6)."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from perdure.agent.permissions import CallPath, PermissionRule, ToolEffects, decide
from perdure.agent.tool_context import ToolContext, notify_observers
from perdure.agent.tools.tool import Tool, ToolInput, ToolInvocation, ToolOutcome, ToolRefused
from perdure.context.view import UNCHANGED
from perdure.ports.machine import MatchedLine, TextSearch
from perdure.ports.machine import ResolvedPath as Spot

_SNIFF_BYTES = 8_192
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)
_SPARE_CHARS = 500  # of a result, for what is said beside the lines
EMPTY = "(The file is empty.)"


class ReadInput(ToolInput, frozen=True):
    file_path: Annotated[str, Meta(description="The file; relative paths start in the current folder.")]
    offset: Annotated[int, Meta(description="Line to start at, from 1.", ge=0)] | None = None
    limit: Annotated[int, Meta(description="How many lines.", ge=1)] | None = None


async def run(context: ToolContext, use: ToolInvocation, given: ReadInput) -> ToolOutcome:
    """The lines asked for, as far as a result may be long; a pointer when the view shows exactly them already."""
    spot = await context.resolve(given.file_path)
    settings = context.session.settings
    data = await content(context, spot, given.file_path, max(settings.read_max_bytes, settings.image_max_bytes))
    if (kind := image_type(data)) is not None:
        return _image(data, kind, settings.image_max_bytes)
    if len(data) > settings.read_max_bytes:
        raise ToolRefused(f"{given.file_path} is {len(data):,} bytes: look for what you need with Grep")
    if b"\0" in data[:_SNIFF_BYTES]:
        raise ToolRefused(f"{given.file_path} is a binary file ({len(data):,} bytes); it can't be read as text")
    text = _listed(context, data, given)
    context.reads.saw(spot.path, data, use.id)
    call = context.session.view.calls.get(use.id)  # type: ignore[call-overload]
    span = call.span if call is not None else ""
    shown = context.reads.call_showing("Read", given.file_path, span, text)
    if shown is not None:
        return ToolOutcome(f"{UNCHANGED}: what the earlier Read ({shown}) shows of {given.file_path} still holds.")
    return ToolOutcome(text)


async def content(context: ToolContext, spot: Spot, name: str, limit_bytes: int) -> bytes:
    """The bytes of a file; `ToolRefused` says why there are none."""
    if spot.kind == "nothing":
        raise ToolRefused(f"{name} does not exist (current folder: {context.cwd})")
    if spot.kind == "folder":
        raise ToolRefused(f"{name} is a folder: list it with Glob or with ls")
    if spot.kind == "other":
        raise ToolRefused(f"{name} is neither a file nor a folder")
    if spot.size_bytes > limit_bytes:
        raise ToolRefused(
            f"{name} is {spot.size_bytes:,} bytes, over the limit of {limit_bytes:,}: use Grep, or head and sed"
        )
    return await context.machine.workspace.read(spot.path, limit_bytes=limit_bytes)


def image_type(data: bytes) -> str | None:
    """The media type of an image that models take; None for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES if data.startswith(magic)), None)


def _image(data: bytes, kind: str, limit: int) -> ToolOutcome:
    if len(data) > limit:
        raise ToolRefused(f"the image is {len(data):,} bytes, over the limit of {limit:,}: make a smaller copy first")
    source = {"type": "base64", "media_type": kind, "data": base64.b64encode(data).decode()}
    return ToolOutcome([{"type": "image", "source": source}])


def _listed(context: ToolContext, data: bytes, given: ReadInput) -> str:
    facts, view, settings = context.session.facts(), context.session.view, context.session.settings
    room = facts.scaled(view, settings.result_limit_chars, floor=2_000) - _SPARE_CHARS
    text = data.decode("utf-8-sig", "replace")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    first = max(1, given.offset or 1)
    if not lines:
        return EMPTY
    if first > len(lines):
        raise ToolRefused(f"{given.file_path} has {len(lines):,} lines; there is no line {first:,}")
    last = min(len(lines), first + (given.limit or settings.read_lines) - 1)
    rows: list[str] = []
    used = 0
    for number in range(first, last + 1):
        row = f"{number:>6}\t{_clipped(lines[number - 1], settings.read_line_chars)}"
        used += len(row) + 1
        if rows and used > room:
            break
        rows.append(row)
    shown = first + len(rows) - 1
    notes = [] if "�" not in text else ["[not valid UTF-8: some characters are shown as �; don't edit it with Edit]"]
    if shown < len(lines) and (given.limit is None or shown < last):
        notes.append(f"[truncated: lines {first:,}-{shown:,} of {len(lines):,}; read on with offset {shown + 1}]")
    return "\n".join([*rows, *notes])


def _clipped(line: str, chars: int) -> str:
    line = line.removesuffix("\r")
    return line if len(line) <= chars else f"{line[:chars]}… [{len(line) - chars:,} characters truncated]"


async def touches(context: ToolContext, given: ReadInput) -> ToolEffects:
    return ToolEffects("Read", "look", (await context.where(given.file_path),))


READ = Tool("Read", ReadInput, run, touches, is_parallel=True)


_AROUND = 3  # lines shown before and after a change
_MOST_SHOWN = 40
_PLACES = 8


class WriteInput(ToolInput, frozen=True):
    file_path: Annotated[str, Meta(description="The file to make or replace.")]
    content: Annotated[str, Meta(description="All of its text.")]


class Replacement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One exact text for another."""

    old_string: Annotated[str, Meta(description="The exact text to replace, with its white space.")]
    new_string: Annotated[str, Meta(description="The text to put there.")]
    replace_all: Annotated[bool, Meta(description="Every place where it stands, instead of the only one.")] = False


class EditInput(ToolInput, frozen=True):
    file_path: Annotated[str, Meta(description="The file to change.")]
    old_string: Annotated[str, Meta(description="The exact text to replace, with its white space.")]
    new_string: Annotated[str, Meta(description="The text to put there.")]
    replace_all: Annotated[bool, Meta(description="Every place where it stands, instead of the only one.")] = False


class MultiEditInput(ToolInput, frozen=True):
    file_path: Annotated[str, Meta(description="The file to change.")]
    edits: Annotated[list[Replacement], Meta(description="Done one after the other; all or none.", min_length=1)]


async def write(context: ToolContext, use: ToolInvocation, given: WriteInput) -> ToolOutcome:
    """Make a file, or replace one that was read."""
    spot = await context.resolve(given.file_path)
    if spot.kind in ("folder", "other"):
        raise ToolRefused(f"{given.file_path} is no regular file")
    try:
        data = given.content.encode()
    except UnicodeEncodeError as e:
        raise ToolRefused(f"the content holds half a surrogate pair at character {e.start}") from None
    before = None
    if spot.kind == "file":
        before = await _as_known(context, spot, given.file_path)
    await _save_and_write(context, use, spot, before, data)
    if before is None:
        return ToolOutcome(f"File created successfully at: {spot.path}")
    return ToolOutcome(f"The file {spot.path} has been overwritten.")


async def edit(context: ToolContext, use: ToolInvocation, given: EditInput) -> ToolOutcome:
    """One replacement."""
    one = Replacement(given.old_string, given.new_string, given.replace_all)
    return await _edited(context, use, given.file_path, (one,))


async def multi_edit(context: ToolContext, use: ToolInvocation, given: MultiEditInput) -> ToolOutcome:
    """Several, all or none."""
    return await _edited(context, use, given.file_path, given.edits)


async def _edited(context: ToolContext, use: ToolInvocation, name: str, edits: Sequence[Replacement]) -> ToolOutcome:
    spot = await context.resolve(name)
    if spot.kind == "nothing":
        raise ToolRefused(f"{name} does not exist: make it with Write")
    before = await _as_known(context, spot, name)
    try:
        text = before.decode("utf-8")
    except UnicodeDecodeError as e:
        raise ToolRefused(f"{name} is not UTF-8 (byte {e.start:,}): change it with a command") from None
    first = len(text)
    for number, one in enumerate(edits, 1):
        which = f"edit {number} of {len(edits)}: " if len(edits) > 1 else ""
        text, at = _replaced(text, one, which)
        first = min(first, at)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise ToolRefused("new_string holds half a surrogate pair") from None
    await _save_and_write(context, use, spot, before, data)
    return ToolOutcome(f"The file {spot.path} has been updated. It reads there now:\n{_snippet(text, first, edits)}")


def _replaced(text: str, one: Replacement, which: str) -> tuple[str, int]:
    """The text after a replacement, and where the first one was made."""
    old, new = one.old_string, one.new_string
    if old == new:
        raise ToolRefused(f"{which}old_string and new_string are the same: there is nothing to do")
    if not old:
        raise ToolRefused(f"{which}old_string is empty: give the text to replace, or use Write for the whole file")
    if old not in text and "\r\n" in text and "\r" not in old:
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    count = text.count(old)
    if not count:
        raise ToolRefused(f"{which}old_string was not found. {_nearly(text, old)}Nothing was changed.")
    if count > 1 and not one.replace_all:
        raise ToolRefused(
            f"{which}old_string stands in {count} places (lines {_places(text, old)}): give more of the text around "
            "the one you mean, or set replace_all. Nothing was changed."
        )
    return text.replace(old, new), text.index(old)


def _places(text: str, old: str) -> str:
    lines: list[str] = []
    at = text.find(old)
    while at >= 0 and len(lines) < _PLACES:
        lines.append(str(text.count("\n", 0, at) + 1))
        at = text.find(old, at + len(old))
    return ", ".join(lines) + (", …" if at >= 0 else "")


def _nearly(text: str, old: str) -> str:
    """Where it stands but for white space, which is the usual slip."""
    wanted = [line.strip() for line in old.strip("\n").split("\n")]
    lines = [line.strip() for line in text.split("\n")]
    for start in range(len(lines) - len(wanted) + 1):
        if lines[start : start + len(wanted)] == wanted and any(wanted):
            return f"At line {start + 1} the same text stands with other white space. "
    return ""


def _snippet(text: str, first: int, edits: Sequence[Replacement]) -> str:
    lines = text.split("\n")
    at = text.count("\n", 0, first)
    height = sum(one.new_string.count("\n") + 1 for one in edits) if len(edits) == 1 else 1
    start, end = max(0, at - _AROUND), min(len(lines), at + min(height, _MOST_SHOWN) + _AROUND)
    return "\n".join(f"{n + 1:>6}\t{lines[n][:500]}" for n in range(start, end))


async def _as_known(context: ToolContext, spot: Spot, name: str) -> bytes:
    """The file's bytes, when the agent knows what stands there."""
    data = await content(context, spot, name, context.session.settings.read_max_bytes)
    known = context.reads.status(spot.path, data, (name,))
    if known == "unknown":
        raise ToolRefused(f"{name} has not been read yet: Read it first")
    if known == "changed":
        raise ToolRefused(f"{name} was changed since you read it, by the user or a command: Read it again first")
    return data


async def _save_and_write(
    context: ToolContext, use: ToolInvocation, spot: Spot, before: bytes | None, data: bytes
) -> None:
    """Save what stands there for those who watch, make sure that nobody was faster, and write."""
    workspace = context.machine.workspace
    await notify_observers(context, use.name, lambda observer: observer.before_change((spot.path,), use.prompt))
    now = await workspace.resolve(spot.path)
    if now.path != spot.path or (now.kind == "nothing") is not (before is None):
        raise ToolRefused(f"{spot.path} was changed by somebody else just now: look again")
    if before is not None and await workspace.read(spot.path, limit_bytes=len(before) + 1) != before:
        raise ToolRefused(f"{spot.path} was changed by somebody else just now: Read it again")
    await workspace.write(spot.path, data)
    context.reads.saw(spot.path, data, use.id)


_Given = WriteInput | EditInput | MultiEditInput


def _touching(tool: str) -> Callable[[ToolContext, _Given], Awaitable[ToolEffects]]:
    async def touches(context: ToolContext, given: _Given) -> ToolEffects:
        return ToolEffects(tool, "edit", (await context.where(given.file_path),))

    return touches


def _rule(given: _Given) -> PermissionRule | None:
    """Edits in the project, from now on."""
    return PermissionRule("Edit")


WRITE = Tool("Write", WriteInput, write, _touching("Write"), _rule, is_watched=True)
EDIT = Tool("Edit", EditInput, edit, _touching("Edit"), _rule, is_watched=True)
MULTI_EDIT = Tool("MultiEdit", MultiEditInput, multi_edit, _touching("MultiEdit"), _rule, is_watched=True)


_LINE_CHARS = 400
_MOST_AROUND = 50


class GlobInput(ToolInput, frozen=True):
    pattern: Annotated[str, Meta(description='As in "**/*.py", "src/**/test_*.{ts,tsx}".', min_length=1)]
    path: Annotated[str, Meta(description="The folder to look in; the current one by default.")] | None = None


class GrepInput(
    ToolInput,
    frozen=True,
    rename={"ignores_case": "-i", "numbers": "-n", "after": "-A", "before": "-B", "around": "-C"},
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


async def glob(context: ToolContext, use: ToolInvocation, given: GlobInput) -> ToolOutcome:
    """The files whose path fits, newest first."""
    folder = await context.resolve(given.path or ".")
    if folder.kind != "folder":
        raise ToolRefused(f"{given.path} is no folder")
    limit = context.session.settings.find_limit
    found = await context.machine.finder.files(given.pattern, folder.path, limit=limit)
    paths = [path for path in found.paths if _may_show(context, path)]
    if not paths:
        return ToolOutcome("\n".join(["No files found", *([f"[{found.note}]"] if found.note else [])]))
    notes = [f"[more than {limit} files fit: narrow the pattern or the path]"] if found.is_cut else []
    notes += [f"[{found.note}]"] if found.note else []
    return ToolOutcome("\n".join([*paths, *notes]))


async def grep(context: ToolContext, use: ToolInvocation, given: GrepInput) -> ToolOutcome:
    """The lines, the files, or the counts."""
    spot = await context.resolve(given.path or ".")
    if spot.kind not in ("file", "folder"):
        raise ToolRefused(f"{given.path} does not exist (current folder: {context.cwd})")
    settings = context.session.settings
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
    found = await context.machine.finder.lines(wanted, limit=limit if shows_lines else settings.find_limit * 40)
    lines = [line for line in found.lines if _may_show(context, line.path)]
    rows = _content(lines) if shows_lines else _by_file(lines, counts=given.output_mode == "count")
    is_cut = found.is_cut or len(rows) > limit
    notes = [f"[more than {limit} were found: narrow the pattern or the path]"] if is_cut else []
    notes += [f"[{found.note}]"] if found.note else []
    return ToolOutcome("\n".join([*(rows[:limit] or ["No matches found"]), *notes]))


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


def _may_show(context: ToolContext, path: str) -> bool:
    """Rules that deny reading a file hold for what searches show of it as well."""
    touch = ToolEffects("Read", "look", (CallPath(path, path, is_inside=True),))
    return decide(touch, context.policy).decision != "deny"


async def _touches_glob(context: ToolContext, given: GlobInput) -> ToolEffects:
    if ".." in given.pattern.split("/") or given.pattern.startswith(("/", "~")):
        raise ToolRefused("pattern has to stay below the folder: give the folder as path")
    return ToolEffects("Glob", "look", (await context.where(given.path or "."),))


async def _touches_grep(context: ToolContext, given: GrepInput) -> ToolEffects:
    return ToolEffects("Grep", "look", (await context.where(given.path or "."),))


GLOB = Tool("Glob", GlobInput, glob, _touches_glob, is_parallel=True)
GREP = Tool("Grep", GrepInput, grep, _touches_grep, is_parallel=True)
