"""Undo of what was done at once: a memory and its line in the index are one thing to people (MEM-8)."""

from __future__ import annotations

from holdfast.errors import FileMissing
from holdfast.memory.changes import Entry, Stamp, Written, happened
from holdfast.ports import MemoryLog

_LOOKED_AT = 1_000  # of the last changes


async def undo(log: MemoryLog, entry: str | None, stamp: Stamp) -> tuple[Written, ...]:
    """Take back the change named, or all of the last thing that wasn't taken back, the newest first.

    Raises `MemoryChanged` when a file says something else by now; what was taken back until then stays so.
    """
    if entry is not None:
        return (await log.undo(entry, stamp),)
    last = _last(await log.entries(limit=_LOOKED_AT))
    if not last:
        raise FileMissing("there is nothing to undo")
    return tuple([await log.undo(one.id, stamp) for one in last])


def _last(entries: tuple[Entry, ...]) -> list[Entry]:
    """The entries of one moment and one hand, newest first."""
    every = happened(reversed(entries))
    undone = {one.of for one in every if one.of}
    open_ones = [one for one in reversed(every) if not one.of and one.id not in undone]
    return [one for one in open_ones if _moment(one.stamp) == _moment(open_ones[0].stamp)]


def _moment(stamp: Stamp) -> tuple[float, str, str, str]:
    return stamp.at, stamp.by, stamp.session, stamp.message
