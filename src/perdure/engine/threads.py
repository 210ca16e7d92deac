"""Long pure work off the event loop: in a worker thread, one piece at a time (SPD-8, ADR 0032)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from perdure.context.view import ContextView
from perdure.transcript.tokens import UNITS_PER_TOKEN

LARGE_BYTES = 32 * 1024  # a few milliseconds of the dearest work; less isn't worth a thread

T = TypeVar("T")
_limiter: RunVar[anyio.CapacityLimiter] = RunVar("perdure-aside")


async def run_aside(size_bytes: int, work: Callable[[], T]) -> T:
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


async def run_aside_of(view: ContextView, work: Callable[[ContextView], T], *, size_bytes: int | None = None) -> T:
    """Do something pure with a view as it is now (as `run_aside`); in a thread `work` gets a copy of it.

    Without `size_bytes` all that the view shows is looked through. What the ledger read is shared with the copy: one
    piece of work at a time adds to it, and what was read needn't be read again.
    """
    size = view.unread_bytes + view.size.base * UNITS_PER_TOKEN if size_bytes is None else size_bytes
    if size <= LARGE_BYTES:
        return work(view)
    copy = view.copy()
    copy.index = view.index
    result = await run_aside(size, lambda: work(copy))
    if copy.positions == view.positions:  # else it may have been of other messages
        view.index = copy.index
    return result
