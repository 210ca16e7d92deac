"""A session as a page, made when somebody follows its link on the live page (GW-9).

Who may read a tenant's words may read it. A link can't take a key along, and an address mustn't hold one: a page that
was given a key asks for a ticket, which opens one report once.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import anyio
import anyio.to_thread

from perdure.context.models import ModelSpec
from perdure.context.policy import Facts, facts_at
from perdure.context.view import ContextView
from perdure.lab.report.page import header_of, page
from perdure.lab.report.timeline import timeline
from perdure.memory.trust.secrets import redact
from perdure.ports.home import Home
from perdure.settings import Settings
from perdure.transcript.records import Record

_PLACE = re.compile(r"(?P<tenant>[A-Za-z0-9_-]{1,64})/(?P<session>[A-Za-z0-9_-]{1,100})\Z")
_TICKET_SECONDS: Final = 60.0
_MOST_TICKETS: Final = 1_000


def place_of(path: str) -> tuple[str, str] | None:
    """The tenant and the session that a path names; None for anything else."""
    found = _PLACE.match(path)
    return found and (found["tenant"], found["session"])


@dataclass(slots=True)
class SessionReports:
    """Makes reports, one at a time, in a thread; and keeps the tickets that open one."""

    _turn: anyio.Lock = field(default_factory=anyio.Lock)
    _tickets: dict[str, tuple[str, float]] = field(default_factory=dict)  # what each opens, and until when

    def ticket(self, place: str, now: float) -> str:
        """A ticket for a report, good for a minute."""
        self._tickets = {name: one for name, one in self._tickets.items() if one[1] > now}
        while len(self._tickets) >= _MOST_TICKETS:
            del self._tickets[next(iter(self._tickets))]
        ticket = secrets.token_urlsafe(24)
        self._tickets[ticket] = place, now + _TICKET_SECONDS
        return ticket

    def takes(self, ticket: str, place: str, now: float) -> bool:
        """Whether a ticket opens a report; then it opens nothing more."""
        named, until = self._tickets.pop(ticket, ("", 0.0))
        return named == place and now < until

    async def made(
        self, home: Home, session: str, settings: Settings, known: tuple[ModelSpec, ...], now: float
    ) -> bytes:
        """The report of a session of a home. Raises `PerdureError` where there is none."""

        def facts_of(view: ContextView) -> Facts:
            return facts_at(view, settings, known)

        async with self._turn:
            loaded, _ = await home.archive().load(session)
            records, key = [placed.record for placed in loaded.records], await home.secret_key()
            return await anyio.to_thread.run_sync(_page, key, session, records, facts_of, now)


def _page(
    key: bytes, session: str, records: Sequence[Record], facts_of: Callable[[ContextView], Facts], now: float
) -> bytes:
    told = timeline(records, facts_of)
    made = datetime.fromtimestamp(now, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    about = header_of(told, session=session, title=told.view.state.title.title, source="the gateway", made=made)
    return redact(page(about, told), key).text.encode()  # SEC-5: also where nobody thought of one
