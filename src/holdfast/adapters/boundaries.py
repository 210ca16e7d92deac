"""Which records an opened session needs: from the last boundary that still holds (SPD-3, CMP-14)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.ports import Placed
from holdfast.transcript.edits import Compacted, Rewound, Undone
from holdfast.transcript.messages import Message
from holdfast.transcript.records import Record


def is_overtaken(boundary: Compacted, after: Iterable[Record]) -> bool:
    """Whether a later record reaches behind the boundary: it was undone, the session was rewound to before it, or a
    rewind from before it was taken back.
    """
    records = tuple(after)
    within = {*boundary.kept[boundary.read :], *(message.id for message in boundary.summary)}
    rewinds = {record.id for record in records if isinstance(record, Rewound) and record.id}
    undone = {record.undoes for record in records if isinstance(record, Rewound)}
    until = ""  # within a rewind that was taken back: nothing of that way is left (CKP-8)
    for record in records:
        if until:
            until = "" if isinstance(record, Rewound) and record.undoes == until else until
            continue
        match record:
            case Message():
                within.add(record.id)
            case Undone() if record.id == boundary.id:
                return True
            case Rewound() if record.undoes and record.undoes not in rewinds:
                return True
            case Rewound() if record.id and record.id in undone:
                until = record.id
            case Rewound() if record.to not in within:
                return True
            case _:
                pass
    return False


def since(boundary: Compacted, placed: Sequence[Placed]) -> tuple[Placed, ...] | None:
    """The kept messages before the boundary, the boundary, and all that follows; None when it can't stand for the past.

    `placed` runs to the end of the journal from where the boundary's kept messages start, or from further back.
    """
    at = next((i for i in range(len(placed) - 1, -1, -1) if placed[i].record is boundary), None)
    if at is None or is_overtaken(boundary, (p.record for p in placed[at + 1 :])):
        return None
    kept = frozenset(boundary.kept)
    before = (p for p in placed[:at] if isinstance(p.record, Message) and p.record.id in kept)
    return (*before, *placed[at:])


def last_boundary(records: Sequence[Record]) -> Compacted | None:
    """The last boundary among them."""
    return next((r for r in reversed(records) if isinstance(r, Compacted)), None)
