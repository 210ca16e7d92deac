"""How a command runs what is asynchronous, and what Ctrl-C does to it meanwhile."""

from __future__ import annotations

import signal
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
_INTERRUPTED = object()


def in_loop(body: Callable[..., Awaitable[T]], *args: object) -> T:
    """What it returns, run in an event loop of its own.

    asyncio takes Ctrl-C for a cancellation that doesn't heed anyio's shields: whoever waits for a thread is told at
    once, while the thread goes on and makes what nobody takes back. So the first Ctrl-C cancels a scope of anyio, and a
    second one is asyncio's.

    Raises:
        KeyboardInterrupt: it was interrupted before it had an answer.
    """
    import anyio
    from anyio.lowlevel import current_token

    async def run() -> object:
        before = signal.getsignal(signal.SIGINT)  # asyncio's, which a second one gets; not ours where it is ignored
        if threading.current_thread() is not threading.main_thread() or not callable(before):
            return await body(*args)
        scope, loop = anyio.CancelScope(), current_token().native_token

        def interrupt(number: int, frame: object) -> None:
            signal.signal(signal.SIGINT, before)
            loop.call_soon_threadsafe(scope.cancel)  # type: ignore[attr-defined]  # asyncio's, from within any line

        signal.signal(signal.SIGINT, interrupt)
        try:
            with scope:
                return await body(*args)
            return _INTERRUPTED
        finally:
            signal.signal(signal.SIGINT, before)

    found = anyio.run(run)
    if found is _INTERRUPTED:
        raise KeyboardInterrupt
    return found  # type: ignore[return-value]  # the body's then
