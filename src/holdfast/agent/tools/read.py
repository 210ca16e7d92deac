"""Read: a file as numbered lines, or an image (LIB-1, TURN-4)."""

from __future__ import annotations

import base64
from typing import Annotated

from msgspec import Meta

from holdfast.agent.desk import Desk
from holdfast.agent.permissions import Touch
from holdfast.agent.tools.tool import Input, Outcome, Refused, Tool, Use
from holdfast.context.worth import UNCHANGED
from holdfast.ports import Spot

_SNIFF_BYTES = 8_192
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)
_SPARE_CHARS = 500  # of a result, for what is said beside the lines
EMPTY = "(The file is empty.)"


class ReadInput(Input, frozen=True):
    file_path: Annotated[str, Meta(description="The file; relative paths start in the current folder.")]
    offset: Annotated[int, Meta(description="Line to start at, from 1.", ge=0)] | None = None
    limit: Annotated[int, Meta(description="How many lines.", ge=1)] | None = None


async def run(desk: Desk, use: Use, given: ReadInput) -> Outcome:
    """The lines asked for, as far as a result may be long; a pointer when the view shows exactly them already."""
    spot = await desk.look(given.file_path)
    settings = desk.session.settings
    data = await content(desk, spot, given.file_path, max(settings.read_max_bytes, settings.image_max_bytes))
    if (kind := image_type(data)) is not None:
        return _image(data, kind, settings.image_max_bytes)
    if len(data) > settings.read_max_bytes:
        raise Refused(f"{given.file_path} is {len(data):,} bytes: look for what you need with Grep")
    if b"\0" in data[:_SNIFF_BYTES]:
        raise Refused(f"{given.file_path} is a binary file ({len(data):,} bytes); it can't be read as text")
    text = _listed(desk, data, given)
    desk.reads.saw(spot.path, data, use.id)
    call = desk.session.view.calls.get(use.id)  # type: ignore[call-overload]
    span = call.span if call is not None else ""
    shown = desk.reads.shown("Read", given.file_path, span, text)
    if shown is not None:
        return Outcome(f"{UNCHANGED}: what the earlier Read ({shown}) shows of {given.file_path} still holds.")
    return Outcome(text)


async def content(desk: Desk, spot: Spot, name: str, limit_bytes: int) -> bytes:
    """The bytes of a file; `Refused` says why there are none."""
    if spot.kind == "nothing":
        raise Refused(f"{name} does not exist (current folder: {desk.cwd})")
    if spot.kind == "folder":
        raise Refused(f"{name} is a folder: list it with Glob or with ls")
    if spot.kind == "other":
        raise Refused(f"{name} is neither a file nor a folder")
    if spot.size_bytes > limit_bytes:
        raise Refused(
            f"{name} is {spot.size_bytes:,} bytes, over the limit of {limit_bytes:,}: use Grep, or head and sed"
        )
    return await desk.machine.workspace.read(spot.path, limit_bytes=limit_bytes)


def image_type(data: bytes) -> str | None:
    """The media type of an image that models take; None for anything else."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for magic, kind in _IMAGES if data.startswith(magic)), None)


def _image(data: bytes, kind: str, limit: int) -> Outcome:
    if len(data) > limit:
        raise Refused(f"the image is {len(data):,} bytes, over the limit of {limit:,}: make a smaller copy first")
    source = {"type": "base64", "media_type": kind, "data": base64.b64encode(data).decode()}
    return Outcome([{"type": "image", "source": source}])


def _listed(desk: Desk, data: bytes, given: ReadInput) -> str:
    settings, limits = desk.session.settings, desk.session.limits
    room = limits.scaled(settings.result_limit_chars, floor=2_000) - _SPARE_CHARS
    text = data.decode("utf-8-sig", "replace")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    first = max(1, given.offset or 1)
    if not lines:
        return EMPTY
    if first > len(lines):
        raise Refused(f"{given.file_path} has {len(lines):,} lines; there is no line {first:,}")
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


async def touches(desk: Desk, given: ReadInput) -> Touch:
    return Touch("Read", "look", (await desk.where(given.file_path),))


READ = Tool("Read", ReadInput, run, touches, is_parallel=True)
