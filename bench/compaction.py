"""What a compaction of 200,000 tokens costs, from the notes and by the ledger, and where the time goes (SPD-2).

    python bench/compaction.py [FILE...]

Without files it makes a session of its own (that of `bench/ledger.py`). Prints milliseconds of CPU for the whole
transaction (plan, test, restoration, commit to a journal in memory), the least of some runs, and of its parts:
`notes` finds its work prepared by the keeper, `ledger` that the session read along (`LiveSession.rest`), and
`cold` reads all. No name was seen before, as in a process that has just begun.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from ledger import forget_names, made, recorded, up_to
from perdure import Settings
from perdure.adapters.memory.notes import FileNotes
from perdure.compaction import boundary, summary
from perdure.compaction import from_notes as noted
from perdure.compaction import plan as deciding
from perdure.compaction.ledger.reader import index_of
from perdure.engine import compact as engine
from perdure.engine.compact import CompactionSuccess, compact, from_notes
from perdure.engine.notes import SessionNotes
from perdure.engine.session import LiveSession
from perdure.transcript.messages import Message
from perdure.wiring import SessionOptions, memory_session

TOKENS = 200_000
RUNS = 5
# The functions whose time is shown, with those that call them under this name.
PARTS: dict[str, tuple[tuple[Any, str], ...]] = {
    "read": ((deciding, "index_of"),),
    "render": ((deciding, "render"), (noted, "render"), (summary, "render")),
    "pack": ((deciding, "pack_ledger"), (noted, "pack_ledger")),
    "boundary": ((boundary, "make_boundary"),),
    "test": ((boundary, "refusal"),),
    "look": ((engine, "track_scene"),),
    "put back": ((boundary, "put_back"),),
}


async def opened(messages: list[Message], *, restore: bool) -> LiveSession:
    """A session in memory in which all of this was said."""
    session = await memory_session(parts=SessionOptions(settings=Settings(window_tokens=1_000_000, restore=restore)))
    for message in messages:
        message.__dict__.clear()  # nothing is decoded yet
    await session.append(*messages)
    return session


async def noted_session(messages: list[Message], folder: Path, *, restore: bool) -> LiveSession:
    """The same with notes that are up to date, and what the keeper prepared."""
    session = await opened(messages, restore=restore)
    session.configure(Settings(window_tokens=220_000, restore=restore))
    notes = SessionNotes(session, FileNotes(folder, None))
    await session.record(*await notes.keep(session.view.copy(), session.facts()))
    session.services = replace(session.services, strategies=(from_notes(notes),))
    return session


async def timed(kind: str, messages: list[Message], *, restore: bool) -> tuple[float, Counter[str]]:
    """CPU milliseconds of one compaction, and of its parts."""
    forget_names()
    with tempfile.TemporaryDirectory() as folder:
        if kind == "notes":
            session = await noted_session(messages, Path(folder), restore=restore)
        else:
            session = await opened(messages, restore=restore)
            session.configure(Settings(window_tokens=220_000, restore=restore))
            if kind == "ledger":
                index_of(session.view, session.settings)
        spent: Counter[str] = Counter()
        undo = [_watched(spent, name, place, attribute) for name, some in PARTS.items() for place, attribute in some]
        begin = time.process_time()
        outcome = await compact(session, trigger="manual")
        whole = (time.process_time() - begin) * 1_000
        for back in undo:
            back()
        assert isinstance(outcome, CompactionSuccess), outcome
        assert outcome.boundary.strategy == ("session_memory" if kind == "notes" else "ledger"), (
            outcome.boundary.strategy
        )
        return whole, spent


def _watched(spent: Counter[str], name: str, place: Any, attribute: str) -> Callable[[], None]:
    inner = getattr(place, attribute)

    def outer(*args: Any, **more: Any) -> Any:
        begin = time.process_time()
        try:
            return inner(*args, **more)
        finally:
            spent[name] += (time.process_time() - begin) * 1_000

    setattr(place, attribute, outer)
    return lambda: setattr(place, attribute, inner)


def row(kind: str, messages: list[Message], *, restore: bool) -> str:
    whole, spent = min(
        (anyio.run(lambda: timed(kind, messages, restore=restore)) for _ in range(RUNS)), key=lambda r: r[0]
    )
    cells = "".join(f"{spent[name]:>10.1f}" for name in PARTS)
    return f"{kind:8}{'yes' if restore else 'no':>9}{whole:>10.1f}{cells}{max(0.0, whole - sum(spent.values())):>10.1f}"


def main(paths: list[str]) -> None:
    sessions = [(Path(path).name, recorded(Path(path))) for path in paths] or [("made", made(TOKENS))]
    for name, messages in sessions:
        print(f"{name}, {TOKENS:,} tokens at most; CPU ms of one compaction")
        print(f"{'from':8}{'restore':>9}{'whole':>10}" + "".join(f"{part:>10}" for part in (*PARTS, "other")))
        for kind in ("notes", "ledger", "cold"):
            for restore in (False, True):
                print(row(kind, up_to(messages, TOKENS), restore=restore))


if __name__ == "__main__":
    main(sys.argv[1:])
