"""A keeper that verifies what a session didn't read when it was opened at its last boundary (ENG-3, ENG-9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.context.policy import Facts
from holdfast.context.view import View
from holdfast.events import JournalRepaired
from holdfast.ports import Sink
from holdfast.transcript.records import Record, Repaired


class Past(Protocol):
    """A journal that can be looked at behind its last boundary, once."""

    @property
    def has_past(self) -> bool: ...

    async def look_back(self) -> tuple[Repaired, ...]: ...


class LookingBack:
    """Runs once, after the first answer, so that it delays no turn. What it finds is set aside, recorded and said."""

    name = "verify"

    def __init__(self, journal: Past, sink: Sink) -> None:
        self._journal = journal
        self._sink = sink

    def is_due(self, view: View, facts: Facts) -> bool:
        return self._journal.has_past

    async def keep(self, view: View, facts: Facts) -> Sequence[Record]:
        for repaired in await self._journal.look_back():
            self._sink.emit(JournalRepaired(repaired.line, repaired.what))
        return ()
