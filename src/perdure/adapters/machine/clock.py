"""The machine's own clock and its chance, behind the ports."""

from __future__ import annotations

import secrets
import threading
import time

import anyio

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no i, l, o, u
_RANDOM_BITS = 50
_TIME_BITS = 50


class SystemClock:
    """`ports.Clock`: the wall clock."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


class RandomIds:
    """`ports.Ids`: `kind-` and 20 characters, the first half the time in milliseconds, the rest random.

    Ids of one kind sort in the order in which this object made them, also within a millisecond and when the clock is
    set back.
    """

    def __init__(self) -> None:
        self._last = 0
        self._guard = threading.Lock()

    def new(self, kind: str) -> str:
        fresh = time.time_ns() // 1_000_000 << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
        with self._guard:
            # Not newer than the last: go on from there by a random step, so that it can't be guessed from it.
            self._last = fresh if fresh > self._last else self._last + 1 + secrets.randbits(_RANDOM_BITS // 2)
            value = self._last
        return f"{kind}-{_in_base_32(value, (_TIME_BITS + _RANDOM_BITS) // 5)}"


def _in_base_32(value: int, length: int) -> str:
    return "".join(_DIGITS[value >> shift & 31] for shift in range(5 * (length - 1), -1, -5))
