"""Doubles for what changes from run to run: time and chance."""

from __future__ import annotations

from collections import Counter


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


class CountingIds:
    """`ports.Ids`: `kind-1`, `kind-2`, … for each kind on its own."""

    def __init__(self) -> None:
        self._made: Counter[str] = Counter()

    def new(self, kind: str) -> str:
        self._made[kind] += 1
        return f"{kind}-{self._made[kind]}"
