"""Who is let in, and who waits: places that are shared fairly among tenants (GW-3, GW-9)."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count

import anyio

RESERVED = 4  # a tenant that holds few places has the last of so many parts to itself
FEW = 16  # few: fewer than one of so many parts
WAITING = 2  # one of so many parts as many as there are places may wait for one, half of them of one tenant


class Refusal(Exception):
    """A request isn't let in now.

    Args:
        reason: for metrics and logs.
        status: what the client gets.
        text: likewise.
        retry_after: in seconds, when it may be let in.
        is_worth_waiting: whether a client should ask again by itself then.
    """

    def __init__(
        self, reason: str, status: int, text: str, *, retry_after: int = 1, is_worth_waiting: bool = True
    ) -> None:
        super().__init__(text)
        self.reason, self.status, self.text = reason, status, text
        self.headers = [(b"retry-after", b"%d" % retry_after)]
        if not is_worth_waiting:
            self.headers.append((b"x-should-retry", b"false"))  # Anthropic's and OpenAI's SDKs heed it


def _busy() -> Refusal:
    return Refusal("busy", 503, "too many requests at a time; come back in a second")


@dataclass(slots=True, eq=False)
class IncomingBody:
    """A body on its way in. `gave_way`: it was cut off for others."""

    scope: anyio.CancelScope
    gave_way: bool = False


@dataclass(slots=True, eq=False)
class WaitingRequest:
    """A request that waits for `weight` places; `number` tells who came first."""

    number: int
    most: int
    own: int | None
    weight: int
    called: anyio.Event = field(default_factory=anyio.Event)


@dataclass(slots=True, eq=False)
class HeldPlaces:
    """The places that a request holds, until it leaves them."""

    admission: Admission
    tenant: str
    weight: int

    def keep(self, weight: int) -> None:
        """Leave all but so many of them."""
        if weight < self.weight:
            spare, self.weight = self.weight - weight, weight
            self.admission.leave(self.tenant, spare)


@dataclass(slots=True)
class Admission:
    """The places of one gateway. `most` is asked for with each request, since the configuration may change."""

    _arriving: dict[str, OrderedDict[IncomingBody, None]] = field(default_factory=dict)
    _answered: Counter[str] = field(default_factory=Counter)
    _waiting: dict[str, deque[WaitingRequest]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def waiting(self) -> int:
        """Requests that wait for a place."""
        return sum(map(len, self._waiting.values()))

    @property
    def in_flight(self) -> int:
        """Requests that arrive, wait or are answered."""
        return sum(map(len, self._arriving.values())) + self.waiting + self._answered.total()

    @contextmanager
    def arriving(self, tenant: str, most: int, seconds: float) -> Iterator[IncomingBody]:
        """The time in which a body arrives: what stands in the block is cancelled after so long, or to give way."""
        if sum(map(len, self._arriving.values())) >= most:
            self._give_way()
        with anyio.move_on_after(seconds) as scope:
            arrival = IncomingBody(scope)
            mine = self._arriving.setdefault(tenant, OrderedDict())
            mine[arrival] = None
            try:
                yield arrival
            finally:
                mine.pop(arrival, None)
                if not mine and self._arriving.get(tenant) is mine:
                    del self._arriving[tenant]
        if arrival.gave_way:
            raise _busy()

    def _give_way(self) -> None:
        tenant = max(self._arriving, key=lambda name: len(self._arriving[name]))
        mine = self._arriving[tenant]
        oldest, _ = mine.popitem(last=False)
        if not mine:
            del self._arriving[tenant]
        oldest.gave_way = True
        oldest.scope.cancel()

    @asynccontextmanager
    async def answered(self, tenant: str, most: int, *, own: int | None, seconds: float) -> AsyncIterator[None]:
        """A place among those that are answered, as `enter` gives it."""
        place = await self.enter(tenant, most, own=own, seconds=seconds)
        try:
            yield
        finally:
            place.keep(0)

    async def enter(self, tenant: str, most: int, *, own: int | None, seconds: float, weight: int = 1) -> HeldPlaces:
        """Take places. Who finds none waits; the tenant that holds fewest has the next.

        Args:
            tenant: whose request it is; tenants that hold few have the last places to themselves.
            most: how many places there are.
            own: how many the tenant may hold; None: as many as there are.
            seconds: how long to wait.
            weight: how many are taken at once.

        Raises:
            Refusal: there is none in this time, or too many wait already.
        """
        if not (self._is_free(tenant, most, own, weight) and tenant not in self._waiting):
            await self._waited(tenant, most, own, seconds, weight)
        else:
            self._answered[tenant] += weight
        return HeldPlaces(self, tenant, weight)

    def _is_free(self, tenant: str, most: int, own: int | None, weight: int) -> bool:
        held = self._answered[tenant]
        taken = self._answered.total() + weight
        holds_few = held < max(1, most // FEW)
        is_within_own = own is None or held + weight <= own
        return is_within_own and taken <= most and (taken <= most - most // RESERVED or holds_few)

    async def _waited(self, tenant: str, most: int, own: int | None, seconds: float, weight: int) -> None:
        """Wait for places, which are taken then."""
        room = max(1, most // WAITING)
        if self.waiting >= room or len(self._waiting.get(tenant, ())) >= max(1, room // 2):
            raise self._none(tenant, own)
        request = WaitingRequest(next(self._numbers), most, own, weight)
        self._waiting.setdefault(tenant, deque()).append(request)
        try:
            with anyio.move_on_after(seconds):
                await request.called.wait()
        except BaseException:
            if request.called.is_set():
                self.leave(tenant, weight)
            raise
        finally:
            if not request.called.is_set():
                self._forget(tenant, request)
        if not request.called.is_set():
            raise self._none(tenant, own)

    def _none(self, tenant: str, own: int | None) -> Refusal:
        if own is None or self._answered[tenant] < own:
            return _busy()
        return Refusal("concurrent", 429, f"more than {own} of your requests at a time; come back in a second")

    def _forget(self, tenant: str, request: WaitingRequest) -> None:
        mine = self._waiting[tenant]
        mine.remove(request)
        if not mine:
            del self._waiting[tenant]

    def leave(self, tenant: str, weight: int) -> None:
        """Free places of a tenant: whoever holds fewest has them next, and of those, who came first."""
        self._answered[tenant] -= weight
        if not self._answered[tenant]:
            del self._answered[tenant]
        while self._waiting:
            first = ((name, requests[0]) for name, requests in self._waiting.items())
            free = [(name, one) for name, one in first if self._is_free(name, one.most, one.own, one.weight)]
            if not free:
                return
            name, next_one = min(free, key=lambda pair: (self._answered[pair[0]], pair[1].number))
            self._forget(name, next_one)
            self._answered[name] += next_one.weight
            next_one.called.set()
