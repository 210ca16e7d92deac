"""Compacting a part: everything before a chosen message, or everything from it on (CMP-6). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.context.cuts import legal_cuts
from holdfast.context.view import View
from holdfast.errors import CompactionRefused
from holdfast.transcript.messages import MessageId


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What to summarise: `start` and what follows it ("from here"), or what stands before `end` ("up to here").

    Both are ids of messages in the view, or unique beginnings of ids; both together are the part between. Everything
    else stays word for word.
    """

    start: str | None = None
    end: str | None = None


def span_of(view: View, part: Part) -> tuple[int, int]:
    """The positions of a part: never more than was chosen, and less where a cut would break a law.

    A chosen message in the middle of a tool call, of an API response or of the last summary moves the cut to the next
    place that is legal. Raises `CompactionRefused` when there is no such message, or nothing is left of the part.
    """
    size = len(view.items)
    first = 0 if part.start is None else _position(view, part.start)
    last = size if part.end is None else _position(view, part.end)
    cuts = [cut for cut in legal_cuts(view, loops=False) if not _splits_summary(view, cut)]
    start = 0 if part.start is None else min((cut for cut in cuts if cut >= first), default=size)
    end = max((cut for cut in cuts if cut <= last), default=0)
    if start >= end or all(item.message.origin == "summary" for item in view.items[start:end]):
        raise CompactionRefused(
            "nothing stands in the part to be summarised that could leave: choose another message (a call and its "
            "result, and the messages of one answer, stay together)"
        )
    return start, end


def _splits_summary(view: View, cut: int) -> bool:
    """Whether a cut would part the last boundary's record from what was restored with it."""
    return view.boundary is not None and any(view.positions.get(m.id) == cut for m in view.boundary.summary[1:])


def _position(view: View, identity: str) -> int:
    exact = view.positions.get(MessageId(identity))
    if exact is not None:
        return exact
    found = [position for known, position in view.positions.items() if known.startswith(identity)] if identity else []
    if len(found) == 1:
        return found[0]
    what = "is no message of" if not found else "begins the ids of several messages in"
    raise CompactionRefused(
        f"{identity!r} {what} the view: `holdfast compact SESSION --dry-run --json` lists them with ids"
    )
