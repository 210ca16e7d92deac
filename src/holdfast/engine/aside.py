"""Long pure work, off the event loop: in a worker thread, one piece at a time (SPD-8, ADR 0032).

What is done there reads values that nobody changes meanwhile (a copy of a view, messages, records) and gives a value
back; what changes a session is done on the loop, once it is known that the session is still what was looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from holdfast.context.indexing import unread_bytes
from holdfast.context.view import View
from holdfast.transcript.tokens import UNITS_PER_TOKEN

LARGE_BYTES = 32 * 1024  # a few milliseconds of the dearest work; less isn't worth a thread

T = TypeVar("T")
_limiter: RunVar[anyio.CapacityLimiter] = RunVar("holdfast-aside")


async def aside(size_bytes: int, work: Callable[[], T]) -> T:
    """Do something pure: here when there is little of it, else in a thread.

    More than one of them at a time would be no faster, since they share the interpreter's lock with the loop.

    Args:
        size_bytes: about how much is looked through.
        work: touches nothing that the loop changes meanwhile.

    Returns:
        What `work` gives.

    Raises:
        Exception: whatever `work` raises. Cancelled, it waits for the end of `work` first.
    """
    if size_bytes <= LARGE_BYTES:
        return work()
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(1)
        _limiter.set(limiter)
    except RuntimeError:  # whoever drives this has no event loop that could be held
        return work()
    return await anyio.to_thread.run_sync(work, limiter=limiter)


def snapshot(view: View) -> View:
    """A copy of a view for work that is done aside. What the ledger read is shared: one piece at a time adds to it."""
    copy = view.copy()
    copy.index = view.index
    return copy


async def aside_of(view: View, work: Callable[[View], T]) -> T:
    """Do something pure with a view as it is now (as `aside`); in a thread `work` gets a copy of it."""
    size = unread_bytes(view) + view.size.base * UNITS_PER_TOKEN
    if size <= LARGE_BYTES:
        return work(view)
    copy = snapshot(view)
    result = await aside(size, lambda: work(copy))
    if len(copy.items) == len(view.items):
        view.index = copy.index  # what was read needn't be read again
    return result
