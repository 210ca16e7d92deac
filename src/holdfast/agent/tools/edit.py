"""Write, Edit and MultiEdit: files change as a whole or not at all, and only those that were read (LIB-1, CKP-1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.agent.desk import Desk
from holdfast.agent.observers import tell
from holdfast.agent.permissions import Rule, Touch
from holdfast.agent.tools.read import content
from holdfast.agent.tools.tool import Input, Outcome, Refused, Tool, Use
from holdfast.ports import Spot

_AROUND = 3  # lines shown before and after a change
_MOST_SHOWN = 40
_PLACES = 8


class WriteInput(Input, frozen=True):
    file_path: Annotated[str, Meta(description="The file to make or replace.")]
    content: Annotated[str, Meta(description="All of its text.")]


class Replacement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One exact text for another."""

    old_string: Annotated[str, Meta(description="The exact text to replace, with its white space.")]
    new_string: Annotated[str, Meta(description="The text to put there.")]
    replace_all: Annotated[bool, Meta(description="Every place where it stands, instead of the only one.")] = False


class EditInput(Input, frozen=True):
    file_path: Annotated[str, Meta(description="The file to change.")]
    old_string: Annotated[str, Meta(description="The exact text to replace, with its white space.")]
    new_string: Annotated[str, Meta(description="The text to put there.")]
    replace_all: Annotated[bool, Meta(description="Every place where it stands, instead of the only one.")] = False


class MultiEditInput(Input, frozen=True):
    file_path: Annotated[str, Meta(description="The file to change.")]
    edits: Annotated[list[Replacement], Meta(description="Done one after the other; all or none.", min_length=1)]


async def write(desk: Desk, use: Use, given: WriteInput) -> Outcome:
    """Make a file, or replace one that was read."""
    spot = await desk.look(given.file_path)
    if spot.kind in ("folder", "other"):
        raise Refused(f"{given.file_path} is no regular file")
    try:
        data = given.content.encode()
    except UnicodeEncodeError as e:
        raise Refused(f"the content holds half a surrogate pair at character {e.start}") from None
    before = None
    if spot.kind == "file":
        before = await _as_known(desk, spot, given.file_path)
    await _put(desk, use, spot, before, data)
    if before is None:
        return Outcome(f"File created successfully at: {spot.path}")
    return Outcome(f"The file {spot.path} has been overwritten.")


async def edit(desk: Desk, use: Use, given: EditInput) -> Outcome:
    """One replacement."""
    one = Replacement(given.old_string, given.new_string, given.replace_all)
    return await _edited(desk, use, given.file_path, (one,))


async def multi_edit(desk: Desk, use: Use, given: MultiEditInput) -> Outcome:
    """Several, all or none."""
    return await _edited(desk, use, given.file_path, given.edits)


async def _edited(desk: Desk, use: Use, name: str, edits: Sequence[Replacement]) -> Outcome:
    spot = await desk.look(name)
    if spot.kind == "nothing":
        raise Refused(f"{name} does not exist: make it with Write")
    before = await _as_known(desk, spot, name)
    try:
        text = before.decode("utf-8")
    except UnicodeDecodeError as e:
        raise Refused(f"{name} is not UTF-8 (byte {e.start:,}): change it with a command") from None
    first = len(text)
    for number, one in enumerate(edits, 1):
        which = f"edit {number} of {len(edits)}: " if len(edits) > 1 else ""
        text, at = _replaced(text, one, which)
        first = min(first, at)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise Refused("new_string holds half a surrogate pair") from None
    await _put(desk, use, spot, before, data)
    return Outcome(f"The file {spot.path} has been updated. It reads there now:\n{_snippet(text, first, edits)}")


def _replaced(text: str, one: Replacement, which: str) -> tuple[str, int]:
    """The text after a replacement, and where the first one was made."""
    old, new = one.old_string, one.new_string
    if old == new:
        raise Refused(f"{which}old_string and new_string are the same: there is nothing to do")
    if not old:
        raise Refused(f"{which}old_string is empty: give the text to replace, or use Write for the whole file")
    if old not in text and "\r\n" in text and "\r" not in old:
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    count = text.count(old)
    if not count:
        raise Refused(f"{which}old_string was not found. {_nearly(text, old)}Nothing was changed.")
    if count > 1 and not one.replace_all:
        raise Refused(
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


async def _as_known(desk: Desk, spot: Spot, name: str) -> bytes:
    """The file's bytes, when the agent knows what stands there."""
    data = await content(desk, spot, name, desk.session.settings.read_max_bytes)
    known = desk.reads.known(spot.path, data, (name,))
    if known == "unknown":
        raise Refused(f"{name} has not been read yet: Read it first")
    if known == "changed":
        raise Refused(f"{name} was changed since you read it, by the user or a command: Read it again first")
    return data


async def _put(desk: Desk, use: Use, spot: Spot, before: bytes | None, data: bytes) -> None:
    """Save what stands there for those who watch, make sure that nobody was faster, and write."""
    workspace = desk.machine.workspace
    await tell(desk, use.name, lambda observer: observer.before_change((spot.path,), use.prompt))
    now = await workspace.look(spot.path)
    if now.path != spot.path or (now.kind == "nothing") is not (before is None):
        raise Refused(f"{spot.path} was changed by somebody else just now: look again")
    if before is not None and await workspace.read(spot.path, limit_bytes=len(before) + 1) != before:
        raise Refused(f"{spot.path} was changed by somebody else just now: Read it again")
    await workspace.write(spot.path, data)
    desk.reads.saw(spot.path, data, use.id)


_Given = WriteInput | EditInput | MultiEditInput


def _touching(tool: str) -> Callable[[Desk, _Given], Awaitable[Touch]]:
    async def touches(desk: Desk, given: _Given) -> Touch:
        return Touch(tool, "edit", (await desk.where(given.file_path),))

    return touches


def _rule(given: _Given) -> Rule | None:
    """Edits in the project, from now on."""
    return Rule("Edit")


WRITE = Tool("Write", WriteInput, write, _touching("Write"), _rule, is_watched=True)
EDIT = Tool("Edit", EditInput, edit, _touching("Edit"), _rule, is_watched=True)
MULTI_EDIT = Tool("MultiEdit", MultiEditInput, multi_edit, _touching("MultiEdit"), _rule, is_watched=True)
