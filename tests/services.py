"""Services of a session as tests need them: other ones while it is open, and a clock that stands still."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from perdure.engine.session import LiveSession


def serve(session: LiveSession, **given: Any) -> None:
    """Let these services take the place of the session's own."""
    session.services = replace(session.services, **given)


class FixedClock:
    """`ports.Clock` that stands still until it is moved."""

    def __init__(self, now: float = 1_750_000_000.0) -> None:
        self._now = now
        self.slept: list[float] = []

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Move it on, or back by a negative number."""
        self._now += seconds

    async def sleep(self, seconds: float) -> None:
        """The time passes at once; `slept` remembers it."""
        self.slept.append(seconds)
        self._now += seconds
