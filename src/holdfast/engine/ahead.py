"""Compaction ahead of time: from warning on, a model writes its summary while nobody waits (CMP-6).

What it wrote is a record, so that a restart has it too and the decision to use it can be made again from the journal.
It is used at the trigger, if what it covers is unchanged; the words of the user, the ledger and everything else of a
boundary are made then, by code. Without a model there is nothing to gain: the ledger is ready in a moment (SPD-2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from holdfast.context.cuts import legal_cuts
from holdfast.context.held import digest_of, is_wanted, stale
from holdfast.context.keep import can_leave
from holdfast.context.policy import Facts
from holdfast.context.state import HELD, Held
from holdfast.context.view import View, project
from holdfast.engine.full import written
from holdfast.engine.helping import helping
from holdfast.engine.hooks import before
from holdfast.engine.session import LiveSession
from holdfast.events import CompactionAttemptFailed, CompactionBlocked, SummaryHeld
from holdfast.ports import Model
from holdfast.transcript.edits import Rewound
from holdfast.transcript.records import Noted
from holdfast.transcript.tokens import base_tokens

_TRIES = 2  # between two boundaries: what keeps changing isn't worth a third summary


class AheadOfTime:
    """The keeper that writes summaries ahead of time (`engine.keepers.Keeper`)."""

    name = "precompute"

    def __init__(self, session: LiveSession) -> None:
        self._session = session
        self._tried: tuple[str, int] = ("", 0)  # since which boundary, and how often
        self._is_running = False
        self._made: Held | None = None  # in the journal a little later

    def is_due(self, view: View, facts: Facts) -> bool:
        session = self._session
        is_ready = self._made is not None and stale(view, self._made) is None
        if self._is_running or is_ready or session.is_compacting or not self._models or not is_wanted(view, facts):
            return False
        boundary = view.boundary.id if view.boundary else ""
        since, tries = self._tried
        tries = tries if since == boundary else 0
        self._tried = (boundary, tries + 1)
        return tries < _TRIES

    @property
    def _models(self) -> tuple[Model, ...]:
        return helping(self._session).summarizer

    async def keep(self, view: View, facts: Facts) -> Sequence[Noted]:
        """Ask for the summary of everything up to the last closed pair; hooks may block it."""
        self._is_running = True
        try:
            held = await self._summarised(view, facts)
        finally:
            self._is_running = False
        if held is None:
            return ()
        self._made = held
        return (Noted(kind=HELD, data=msgspec.to_builtins(held)),)

    async def _summarised(self, view: View, facts: Facts) -> Held | None:
        session, emit = self._session, self._session.world.sink.emit
        hooked = await before(session, "precomputed", facts.instructions)
        if hooked.blocked is not None:
            emit(CompactionBlocked("precomputed", hooked.blocked.split(":")[0]))
            return None
        end = legal_cuts(view, loops=False)[-1]
        if not can_leave(view, end):
            return None
        if end < len(view.items):  # a call that waits for its result isn't over, and no part of it
            view = project([Rewound(to=view.items[end - 1].message.id)], onto=view)
        for model in self._models:
            said = await written(session, view, replace(facts, instructions=hooked.instructions), model)
            if isinstance(said, str):
                emit(CompactionAttemptFailed("precomputed", "full", said))
                continue
            emit(SummaryHeld(model.about.id, end, base_tokens(said.text)))
            return Held(
                message=view.items[end - 1].message.id,
                digest=digest_of(view, end),
                text=said.text,
                model=model.about.id,
                dropped=said.dropped,
                instructions=hooked.instructions,
            )
        return None
