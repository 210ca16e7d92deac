"""How many requests there may be at a time, so that no client's many keep out another's few (GW-3, SEC-6).

A body that arrives holds no place of those that are answered. When too many arrive, the one that took longest gives
way, of the tenant that has most of them: whoever sends bodies by halves waits for nobody's end but their own.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio

RESERVE = 4  # one place in so many is for tenants that hold few
FEW = 16  # … which is one place in so many


class Busy(Exception):
    """There is no place; who comes back in a second may find one."""


@dataclass(slots=True, eq=False)
class Arrival:
    """A body on its way in. `gave_way`: it was cut off for others."""

    scope: anyio.CancelScope
    gave_way: bool = False


@dataclass(slots=True)
class Admission:
    """The places of one gateway. `most` is asked for with each request, since the configuration may change."""

    _arriving: dict[str, OrderedDict[Arrival, None]] = field(default_factory=dict)
    _answered: Counter[str] = field(default_factory=Counter)

    @property
    def in_flight(self) -> int:
        """Requests that arrive or are answered."""
        return sum(map(len, self._arriving.values())) + self._answered.total()

    @contextmanager
    def arriving(self, tenant: str, most: int, seconds: float) -> Iterator[Arrival]:
        """The time in which a body arrives: what stands in the block is cancelled after so long, or to give way."""
        if sum(map(len, self._arriving.values())) >= most:
            self._give_way()
        with anyio.move_on_after(seconds) as scope:
            arrival = Arrival(scope)
            mine = self._arriving.setdefault(tenant, OrderedDict())
            mine[arrival] = None
            try:
                yield arrival
            finally:
                mine.pop(arrival, None)
                if not mine and self._arriving.get(tenant) is mine:
                    del self._arriving[tenant]

    def _give_way(self) -> None:
        tenant = max(self._arriving, key=lambda name: len(self._arriving[name]))
        mine = self._arriving[tenant]
        oldest, _ = mine.popitem(last=False)
        if not mine:
            del self._arriving[tenant]
        oldest.gave_way = True
        oldest.scope.cancel()

    @contextmanager
    def answered(self, tenant: str, most: int) -> Iterator[None]:
        """A place among those that are answered. Raises `Busy`; the last quarter of them is for who holds few."""
        taken = self._answered.total()
        holds_few = self._answered[tenant] < max(1, most // FEW)
        if taken >= most or (taken >= most - most // RESERVE and not holds_few):
            raise Busy
        self._answered[tenant] += 1
        try:
            yield
        finally:
            self._answered[tenant] -= 1
            if not self._answered[tenant]:
                del self._answered[tenant]
